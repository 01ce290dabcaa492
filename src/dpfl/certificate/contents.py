"""What a certificate says of a run, read from the run's folder and its ledgers."""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from dpfl.certificate.figures import Epsilon, number, stated_figure
from dpfl.certificate.finished_run import FinishedRun, read_finished_run
from dpfl.certificate.model_cards import check_card
from dpfl.certificate.reading import read
from dpfl.certificate.seals import hashes, make_salt, seal
from dpfl.codec import canonical
from dpfl.errors import DpflError
from dpfl.privacy import Ledger, PrivacyStatement, accountant
from dpfl.privacy.accounting.events import REPLACE, decode, describe, encode, neighbours_of
from dpfl.privacy.figures import epsilon_text
from dpfl.privacy.ledger.plans import proven_events
from dpfl.privacy.statement_view import PrivacyVerdict, verdict
from dpfl.protocol.keys import fingerprint, load_private, raw, sign
from dpfl.run.accounts import Accounts
from dpfl.run.folder import RunFolder, code_sha256
from dpfl.run.metrics import figure

AUDITED = (
    "system",
    "variant",
    "delta",
    "confidence",
    "claimed",
    "proven",
    "measured",
    "scope",
    "game",
    "verdict",
)


class CertificateSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TrainingSection(CertificateSection):
    run: str
    algorithm: str
    variant: str
    model: str
    clients: int
    partition: str
    entropy: str
    noise: str
    budget: float | None
    rounds: int
    iterations: int


class ReportedSection(CertificateSection):
    """What the run says of itself and nothing here proves: accuracy needs the test set, an audit
    its games.
    """

    started: str
    accuracy: float | None
    stopped_by: str
    audit: dict[str, Any] | None
    measured: str | None = None
    """The first metric of the task, in words."""


class GuaranteeSection(CertificateSection):
    """For whom, against whom, by what accountant; `proven` is the largest epsilon of any
    account.
    """

    unit: str
    neighbours: str
    delta: float
    adversary: str
    accountant: str
    proven: Epsilon
    median: Epsilon
    lowest: Epsilon
    used: Epsilon
    """Of what was made: no guarantee where that follows what came out."""
    unaccounted: list[str]
    assumptions: list[str]
    warnings: list[str]


class ClaimSection(CertificateSection):
    """The paper's own figure for events as it counts them; without an accountant it comes from a
    formula of the paper.
    """

    epsilon: Epsilon | None
    text: str
    accountant: str | None
    stated: dict[str, int]


class ReleaseSection(CertificateSection):
    event: str
    kind: str
    count: int


class AccountSection(CertificateSection):
    """A ledger: `seal` is of its debits, not of the file, whose bytes change without any row
    changing.
    """

    name: str
    ledger: str
    proven: Epsilon
    releases: list[ReleaseSection]
    debits: int
    other_runs: int
    seal: str


class Signer(CertificateSection):
    algorithm: Literal["Ed25519"] = "Ed25519"
    public_key: str
    fingerprint: str


class Certificate(CertificateSection):
    format: Literal["dpfl certificate 2"]
    issued: str
    trained: TrainingSection
    guarantee: GuaranteeSection
    claimed: ClaimSection
    accounts: list[AccountSection]
    reported: ReportedSection
    hashes: dict[str, str]
    versions: dict[str, str]
    certified_by: dict[str, str]
    signer: Signer


def certify(run: Path, key: Path | None = None) -> dict[str, Any]:
    """The signed certificate of a finished run, as JSON holds it: every word from its record,
    checkpoint and ledgers.
    """
    folder, private = RunFolder.open(run), load_private(key)
    public = raw(private.public_key())
    found = read_finished_run(folder)
    make_salt(folder)
    if folder.weights_sha256() != found.numbers["model_sha256"]:
        raise DpflError(
            f"model.safetensors in {run} is not the model that its run ended with; restore it from "
            "a copy."
        )
    if faults := check_card(found).findings:
        raise DpflError(f"{faults[0]} Restore it from a copy, or remove it.")
    listed = [read_account(folder, path, found.accounts) for path in found.accounts.paths()]
    certificate = Certificate(
        format="dpfl certificate 2",
        issued=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        trained=training_section(found),
        guarantee=guarantee_section(found, listed),
        claimed=claim_section(found),
        accounts=listed,
        reported=reported_section(folder),
        hashes=hashes(folder),
        versions=found.record["versions"],
        certified_by={"dpfl": version(), "code": code_sha256()},
        signer=Signer(public_key=public, fingerprint=fingerprint(public)),
    )
    body = certificate.model_dump()
    return {"certificate": body, "signature": sign(body, private)}


def version() -> str:
    from dpfl import __version__

    return __version__


def training_section(found: FinishedRun) -> TrainingSection:
    resolved = found.record["resolved"]
    return TrainingSection(
        run=found.accounts.run,
        algorithm=found.algorithm.name,
        variant=found.algorithm.variant,
        budget=resolved["budget"].get("epsilon"),
        noise=found.algorithm.noise,
        rounds=found.numbers["round"],
        iterations=found.numbers["iterations"],
        **{name: resolved[name] for name in ("model", "clients", "partition", "entropy")},
    )


def reported_section(folder: RunFolder) -> ReportedSection:
    """An audit by its verdict alone: how single samples fared is for their owner."""
    result, audit = read(folder, "result.json"), read(folder, "audit.json", needed=False)
    told = {name: audit.get(name) for name in AUDITED} if isinstance(audit, dict) else None
    if told and "played" in audit:  # audits of older versions do not say
        told["played"] = audit["played"]
    if told and str(told["game"]).startswith(("membership", "inversion")):
        told |= {"measured": None, "scope": None, "game": None}
    started = folder.experiment()["run"]["started"]
    return ReportedSection(
        started=started,
        accuracy=result["accuracy"],
        stopped_by=result["stopped_by"],
        audit=told,
        measured=_measured(result),
    )


def _measured(result: Mapping[str, Any]) -> str | None:
    """As the run's file says, whoever wrote it."""
    name, found = result.get("headline"), result.get("metrics")
    value = found.get(name) if isinstance(found, dict) and isinstance(name, str) else None
    if name is None or not isinstance(value, int | float):
        return None
    return f"{figure(name, float(value))} {result.get('noisy') or 'on the test set'}"


def guarantee_section(found: FinishedRun, listed: Sequence[AccountSection]) -> GuaranteeSection:
    stated = found.statement.to_dict()
    named = (
        "unit",
        "neighbours",
        "delta",
        "adversary",
        "accountant",
        "unaccounted",
        "assumptions",
        "warnings",
    )
    words: dict[str, Any] = {
        name: list(value) if isinstance(value := stated[name], tuple) else value for name in named
    }
    return GuaranteeSection(
        **spread(listed), used=stated_figure(found.statement.used or 0.0), **words
    )


def neighbours(listed: Sequence[AccountSection]) -> tuple[str, ...]:
    """For which the listed releases can be proven: sampling says, and without it the sensitivity,
    which the run knows.
    """
    events = {released.event for account in listed for released in account.releases}
    found = neighbours_of(map(decode, events))
    return (found,) if any('"sampling"' in event for event in events) else (found, REPLACE)


def spread(listed: Sequence[AccountSection]) -> dict[str, Any]:
    figures = [number(account.proven) for account in listed]
    found = {"proven": max(figures), "median": statistics.median(figures), "lowest": min(figures)}
    return {name: stated_figure(epsilon) for name, epsilon in found.items()}


def claim_section(found: FinishedRun) -> ClaimSection:
    claim, epsilon = found.algorithm.claim, found.statement.claimed
    figure = None if epsilon is None else stated_figure(epsilon)
    return ClaimSection(
        epsilon=figure,
        text=claim.text,
        accountant=claim.accountant,
        stated=dict(found.statement.stated),
    )


def read_account(folder: RunFolder, path: Path, accounts: Accounts) -> AccountSection:
    """Epsilon from the debits and plans of the ledger and from nothing else, those of other runs
    included.
    """
    with closing(Ledger.read(path)) as ledger:
        debits, spent, unit = ledger.debits(), proven_events(ledger), ledger.unit
    counts = sorted((encode(event), describe(event), count) for event, count in spent.items())
    return AccountSection(
        name=path.stem,
        ledger=path.name,
        proven=stated_figure(
            accountant(accounts.terms.accountant).epsilon(spent, accounts.terms.budget.delta)
        ),
        releases=[
            ReleaseSection(event=event, kind=kind, count=count) for event, kind, count in counts
        ],
        debits=len(debits),
        other_runs=len({run for run, *_ in debits} - {accounts.run}),
        seal=seal(folder, canonical([unit, *debits])),
    )


def headline(certificate: Certificate) -> PrivacyVerdict:
    """Judges a certificate in one sentence, which nobody may overlook.

    Args:
        certificate: A certificate whose signature has been checked.

    Returns:
        The same verdict that pages and reports show for the run.
    """
    guarantee, claim = certificate.guarantee, certificate.claimed
    statement = PrivacyStatement(
        unit=guarantee.unit,
        neighbours=guarantee.neighbours,
        delta=guarantee.delta,
        adversary=guarantee.adversary,
        accountant=guarantee.accountant,
        proven=number(guarantee.proven),
        claimed=None if claim.epsilon is None else number(claim.epsilon),
        claim=claim.text,
        unaccounted=tuple(guarantee.unaccounted),
    )
    return verdict(statement, keyed=certificate.trained.entropy != "system")


def display_figure(epsilon: Epsilon | None) -> str:
    """Shows an epsilon of a certificate.

    Args:
        epsilon: A figure, "unbounded", or None if nobody claims one.

    Returns:
        Four decimal places, rounded up, or a word.
    """
    return epsilon_text(epsilon, absent="nothing")
