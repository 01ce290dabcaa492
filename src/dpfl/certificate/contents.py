"""Makes a certificate: how each of its sections follows from the folder of a run.

A certificate is one canonical JSON document with an Ed25519 signature of all of it. It has

1. the training: run, system, model, clients, rounds, noise and entropy, from `experiment.toml`;
2. the guarantee: unit, neighbours, delta, accountant and proven epsilon, computed again from the
   ledgers;
3. the paper's claim, beside it, where there is one;
4. every account with its releases, from which anybody can compute epsilon again, and a seal of its
   debits;
5. what the run reported: accuracy, why it ended, an audit. The signature covers this too, but
   nothing proves it;
6. hashes of weights, data, code, model card and statement, versions, and who signed when.

`certify` returns the signed document. It refuses a run whose weights or model card are not those
that the run ended with. `verify` (`verify.py`) makes every section again and compares. Nodes sign
statements of their own (`node/statement.py`), and `nodes.py` compares them with the server's
certificate.
"""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from dpfl.certificate.figures import Epsilon, number, stated_figure
from dpfl.certificate.finished_run import FinishedRun, read_finished_run
from dpfl.certificate.model_cards import check_card
from dpfl.certificate.reading import read
from dpfl.certificate.seals import hashes, make_salt, seal
from dpfl.certificate.sections import (
    AccountSection,
    Certificate,
    ClaimSection,
    GuaranteeSection,
    ReleaseSection,
    ReportedSection,
    Signer,
    TrainingSection,
)
from dpfl.codec import canonical
from dpfl.errors import DpflError
from dpfl.privacy import Ledger, PrivacyStatement, accountant
from dpfl.privacy.accounting.events import REPLACE, decode, describe, encode, neighbours_of
from dpfl.privacy.figures import epsilon_text
from dpfl.privacy.ledger.plans import proven_events
from dpfl.privacy.statement_view import PrivacyVerdict, verdict
from dpfl.protocol.keys import fingerprint, load_private, public_key_hex, sign
from dpfl.run.accounting.accounts import Accounts
from dpfl.run.metrics import figure
from dpfl.run.records.digests import code_sha256
from dpfl.run.records.folder import RunFolder

AUDIT_FIELDS = (
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


def certify(run: Path, key: Path | None = None) -> dict[str, Any]:
    """Makes the signed certificate of a finished run.

    Every word follows from the record, the checkpoint and the ledgers of the run.

    Args:
        run: The folder of the run.
        key: The private key; by default that of the user.

    Returns:
        The contents and the signature, as the JSON file has them.

    Raises:
        DpflError: The run is not finished, its files contradict each other, or there is no key.
    """
    folder, private = RunFolder.open(run), load_private(key)
    public = public_key_hex(private.public_key())
    finished_run = read_finished_run(folder)
    make_salt(folder)
    if folder.weights_sha256() != finished_run.numbers["model_sha256"]:
        raise DpflError(
            f"model.safetensors in {run} is not the model that its run ended with; restore it from "
            "a copy."
        )
    if faults := check_card(finished_run).findings:
        raise DpflError(f"{faults[0]} Restore it from a copy, or remove it.")
    accounts = finished_run.accounts
    account_sections = [read_account(folder, path, accounts) for path in accounts.paths()]
    certificate = Certificate(
        format="dpfl certificate 2",
        issued=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        trained=training_section(finished_run),
        guarantee=guarantee_section(finished_run, account_sections),
        claimed=claim_section(finished_run),
        accounts=account_sections,
        reported=reported_section(folder),
        hashes=hashes(folder),
        versions=finished_run.record["versions"],
        certified_by={"dpfl": version(), "code": code_sha256()},
        signer=Signer(public_key=public, fingerprint=fingerprint(public)),
    )
    body = certificate.model_dump()
    return {"certificate": body, "signature": sign(body, private)}


def version() -> str:
    """Returns the version of this installation.

    Returns:
        Such as "0.2.0".
    """
    from dpfl import __version__

    return __version__


def training_section(finished_run: FinishedRun) -> TrainingSection:
    """Says what was trained.

    Args:
        finished_run: The run.

    Returns:
        The section of the certificate.
    """
    resolved_section = finished_run.record["resolved"]
    return TrainingSection(
        run=finished_run.accounts.run,
        algorithm=finished_run.algorithm.name,
        variant=finished_run.algorithm.variant,
        budget=resolved_section["budget"].get("epsilon"),
        noise=finished_run.algorithm.noise,
        rounds=finished_run.numbers["round"],
        iterations=finished_run.numbers["iterations"],
        **{name: resolved_section[name] for name in ("model", "clients", "partition", "entropy")},
    )


def reported_section(folder: RunFolder) -> ReportedSection:
    """Says what the run reports about itself.

    An audit appears by its verdict alone, since results on single samples belong to their owner.

    Args:
        folder: The folder of the run.

    Returns:
        The section of the certificate.
    """
    result, audit = read(folder, "result.json"), read(folder, "audit.json", needed=False)
    outcome = {name: audit.get(name) for name in AUDIT_FIELDS} if isinstance(audit, dict) else None
    if outcome and "played" in audit:  # audits of older versions do not say
        outcome["played"] = audit["played"]
    if outcome and str(outcome["game"]).startswith(("membership", "inversion")):
        outcome |= {"measured": None, "scope": None, "game": None}
    start = folder.experiment()["run"]["started"]
    return ReportedSection(
        started=start,
        accuracy=result["accuracy"],
        stopped_by=result["stopped_by"],
        audit=outcome,
        measured=_headline_metric(result),
    )


def _headline_metric(result: Mapping[str, Any]) -> str | None:
    """Puts the first metric into words. Anybody may have written the file."""
    name, metrics = result.get("headline"), result.get("metrics")
    value = metrics.get(name) if isinstance(metrics, dict) and isinstance(name, str) else None
    if name is None or not isinstance(value, int | float):
        return None
    return f"{figure(name, float(value))} {result.get('noisy') or 'on the test set'}"


def guarantee_section(
    finished_run: FinishedRun, account_sections: Sequence[AccountSection]
) -> GuaranteeSection:
    """States the guarantee.

    Args:
        finished_run: The run.
        account_sections: Every account of the run.

    Returns:
        The section of the certificate.
    """
    statement = finished_run.statement.to_dict()
    names = (
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
        name: list(value) if isinstance(value := statement[name], tuple) else value
        for name in names
    }
    return GuaranteeSection(
        **spread(account_sections), used=stated_figure(finished_run.statement.used or 0.0), **words
    )


def neighbours(account_sections: Sequence[AccountSection]) -> tuple[str, ...]:
    """Finds the neighbours for which the listed releases can be proven.

    Sampling determines them. Without sampling the sensitivity does, which only the run knows.

    Args:
        account_sections: Every account of the run.

    Returns:
        The definitions of neighbours that are possible.
    """
    events = {release.event for account in account_sections for release in account.releases}
    narrowest = neighbours_of(map(decode, events))
    has_sampling = any('"sampling"' in event for event in events)
    return (narrowest,) if has_sampling else (narrowest, REPLACE)


def spread(account_sections: Sequence[AccountSection]) -> dict[str, Any]:
    """Summarises the epsilons of all accounts.

    Args:
        account_sections: Every account of the run.

    Returns:
        The largest, which is what is proven, the median and the smallest.
    """
    figures = [number(account.proven) for account in account_sections]
    summary = {"proven": max(figures), "median": statistics.median(figures), "lowest": min(figures)}
    return {name: stated_figure(epsilon) for name, epsilon in summary.items()}


def claim_section(finished_run: FinishedRun) -> ClaimSection:
    """States what the paper's own accounting claims.

    Args:
        finished_run: The run.

    Returns:
        The section of the certificate.
    """
    claim, epsilon = finished_run.algorithm.claim, finished_run.statement.claimed
    figure = None if epsilon is None else stated_figure(epsilon)
    return ClaimSection(
        epsilon=figure,
        text=claim.text,
        accountant=claim.accountant,
        stated=dict(finished_run.statement.stated),
    )


def read_account(folder: RunFolder, path: Path, accounts: Accounts) -> AccountSection:
    """Reads one account.

    Its epsilon follows from the debits and plans of the ledger and from nothing else. It covers
    other runs on the same ledger.

    Args:
        folder: The folder of the run.
        path: The ledger.
        accounts: The accounts of the run, for accountant and delta.

    Returns:
        The section of the certificate.
    """
    with closing(Ledger.read(path)) as ledger:
        debits, events, unit = ledger.debits(), proven_events(ledger), ledger.unit
    counts = sorted((encode(event), describe(event), count) for event, count in events.items())
    return AccountSection(
        name=path.stem,
        ledger=path.name,
        proven=stated_figure(
            accountant(accounts.terms.accountant).epsilon(events, accounts.terms.budget.delta)
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
