"""What a certificate says of a run, read from the run's folder and its ledgers."""

from __future__ import annotations

import datetime
import math
import statistics
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from dpfl.certificate.keys import canonical, fingerprint, load_private, raw, sign
from dpfl.certificate.reading import read
from dpfl.certificate.seals import hashes, make_salt, sealed
from dpfl.errors import DpflError
from dpfl.node.holdings import ledger_path
from dpfl.privacy import Ledger, accountant
from dpfl.privacy.events import decode, describe, encode, neighbours_of
from dpfl.privacy.statement import rounded_up
from dpfl.run.folder import RunFolder, code_sha256

FORMAT = "dpfl certificate 1"
Epsilon = float | Literal["unbounded"]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Trained(Part):
    run: str
    started: str
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
    accuracy: float | None
    stopped_by: str


class Guarantee(Part):
    """For whom, against whom, by what accountant; `proven` is the largest epsilon of any account."""

    unit: str
    neighbours: str
    delta: float
    adversary: str
    accountant: str
    proven: Epsilon
    median: Epsilon
    lowest: Epsilon
    unaccounted: list[str]
    assumptions: list[str]
    warnings: list[str]


class Claimed(Part):
    """The paper's own figure for events as it counts them; without an accountant it comes from a formula of the paper."""

    epsilon: Epsilon | None
    text: str
    accountant: str | None
    stated: dict[str, int]


class Released(Part):
    event: str
    kind: str
    count: int


class Account(Part):
    """A ledger: `seal` is of its debits, not of the file, whose bytes change without any row changing."""

    name: str
    ledger: str
    proven: Epsilon
    releases: list[Released]
    debits: int
    other_runs: int
    seal: str


class Signer(Part):
    algorithm: Literal["Ed25519"] = "Ed25519"
    public_key: str
    fingerprint: str


class Certificate(Part):
    format: Literal["dpfl certificate 1"]
    issued: str
    trained: Trained
    guarantee: Guarantee
    claimed: Claimed
    accounts: list[Account]
    audit: Any
    hashes: dict[str, str]
    versions: dict[str, str]
    certified_by: dict[str, str]
    signer: Signer


def certify(run: Path, key: Path | None = None) -> dict[str, Any]:
    """The signed certificate of a finished run, as JSON holds it."""
    folder, private = RunFolder.open(run), load_private(key)
    public = raw(private.public_key())
    names = account_names(folder)
    make_salt(folder)
    listed = [read_account(folder, name) for name in names]
    _refuse_lost_debits(folder, listed)
    if folder.weights_sha256() != hashes(folder)["weights"]:
        raise DpflError(f"model.safetensors in {run} is not the model that its run ended with; restore it from a copy.")
    certificate = Certificate(
        format="dpfl certificate 1",
        issued=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        trained=trained(folder),
        guarantee=guarantee(folder, listed),
        claimed=claimed(folder),
        accounts=listed,
        audit=read(folder, "audit.json", needed=False),
        hashes=hashes(folder),
        versions=folder.experiment()["versions"],
        certified_by={"dpfl": _version(), "code": code_sha256()},
        signer=Signer(public_key=public, fingerprint=fingerprint(public)),
    )
    body = certificate.model_dump()
    return {"certificate": body, "signature": sign(body, private)}


def _version() -> str:
    from dpfl import __version__

    return __version__


def _refuse_lost_debits(folder: RunFolder, listed: Sequence[Account]) -> None:
    """A ledger may have gone on since the run ended, but never back."""
    before = read(folder, "statement.json")["per_client"]
    for account in listed:
        if number(account.proven) < number(before[_key(account.name)]) - 1e-6:
            raise DpflError(
                f"The ledger {account.ledger} says epsilon {account.proven}, less than the run's own statement "
                f"({before[_key(account.name)]}): it has lost debits; restore it from a copy."
            )


def trained(folder: RunFolder) -> Trained:
    experiment, result = folder.experiment(), read(folder, "result.json")
    resolved = experiment["resolved"]
    return Trained(
        run=experiment["run"]["id"],
        started=experiment["run"]["started"],
        algorithm=resolved["algorithm"]["name"],
        variant=resolved["algorithm"]["variant"],
        budget=resolved["budget"].get("epsilon"),
        **{name: resolved[name] for name in ("model", "clients", "partition", "entropy", "noise")},
        **{name: result[name] for name in ("rounds", "iterations", "accuracy", "stopped_by")},
    )


def guarantee(folder: RunFolder, listed: Sequence[Account]) -> Guarantee:
    statement = read(folder, "statement.json")
    named = ("unit", "delta", "adversary", "accountant", "unaccounted", "assumptions", "warnings")
    return Guarantee(
        neighbours=neighbours(listed), **spread(listed), **{name: statement[name] for name in named}
    )  # fmt: skip


def neighbours(listed: Sequence[Account]) -> str:
    return neighbours_of(decode(released.event) for account in listed for released in account.releases)


def spread(listed: Sequence[Account]) -> dict[str, Any]:
    figures = [number(account.proven) for account in listed]
    found = {"proven": max(figures), "median": statistics.median(figures), "lowest": min(figures)}
    return {name: stated_figure(epsilon) for name, epsilon in found.items()}


def claimed(folder: RunFolder) -> Claimed:
    statement = read(folder, "statement.json")
    by = folder.experiment()["resolved"]["algorithm"]["claim"].get("accountant")
    return Claimed(epsilon=statement["claimed"], text=statement["claim"], accountant=by, stated=statement["stated"])


def account_names(folder: RunFolder) -> list[str]:
    """`client N` for every client with a ledger, or `federation`."""
    statement = read(folder, "statement.json")
    if statement["unit"] == "none":
        raise DpflError(f"The run in {folder.path} added no noise: nothing is proven of it, so there is nothing to certify.")
    return ["federation" if key == "every client" else f"client {key}" for key in statement["per_client"]]


def _key(name: str) -> str:
    return "every client" if name == "federation" else name.removeprefix("client ")


def read_account(folder: RunFolder, name: str) -> Account:
    """Epsilon from the debits of the ledger and from nothing else, those of other runs included."""
    experiment, statement = folder.experiment(), read(folder, "statement.json")
    where = Path(experiment["resolved"].get("ledger") or folder.ledgers)
    path = where / "federation.sqlite" if name == "federation" else ledger_path(where, int(_key(name)))
    with closing(Ledger.read(path)) as ledger:
        debits, spent, unit = ledger.debits(), ledger.spent(), ledger.unit
    counts = sorted((encode(event), describe(event), count) for event, count in spent.items())
    return Account(
        name=name,
        ledger=path.name,
        proven=stated_figure(accountant(statement["accountant"]).epsilon(spent, statement["delta"])),
        releases=[Released(event=event, kind=kind, count=count) for event, kind, count in counts],
        debits=len(debits),
        other_runs=len({run for run, *_ in debits} - {experiment["run"]["id"]}),
        seal=sealed(folder, canonical([unit, *debits])),
    )


def stated_figure(epsilon: float) -> Epsilon:
    return rounded_up(epsilon, 6) if math.isfinite(epsilon) else "unbounded"


def number(epsilon: Epsilon) -> float:
    return math.inf if isinstance(epsilon, str) else epsilon


def headline(certificate: Certificate) -> tuple[Literal["proven", "condition", "nothing"], str]:
    """The one sentence that must not be overlooked."""
    stated = certificate.guarantee
    claim = certificate.claimed.epsilon
    paper = "" if claim is None else f" The paper's own accounting claims {shown(claim)}; that is no guarantee."
    if stated.proven == "unbounded":
        leaks = "; ".join(stated.unaccounted) or "a release without noise"
        return "nothing", f"No epsilon holds: privacy is unbounded. What leaves unprotected: {leaks}.{paper}"
    figures = f"Epsilon {shown(stated.proven)} at delta {stated.delta:g} is proven for one {stated.unit} ({stated.neighbours})"
    if certificate.trained.entropy != "system":
        return (
            "condition",
            f"{figures}, but only while nobody knows the seed of the noise: this is a simulation, not a release.",
        )
    below = paper if claim is not None and number(claim) < number(stated.proven) else ""
    return "proven", f"{figures}.{below}"


def shown(epsilon: Epsilon | None) -> str:
    return "nothing" if epsilon is None else epsilon if isinstance(epsilon, str) else f"{rounded_up(epsilon):.4f}"
