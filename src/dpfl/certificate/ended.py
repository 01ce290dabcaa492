"""A finished run as its own files prove it: the record made into parts again, the checkpoint, and the ledgers read together.

What the run said of itself (statement.json, result.json) is compared with that and never taken for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpfl.algorithms import Algorithm, from_name
from dpfl.certificate.reading import read
from dpfl.data.elsewhere import NODES
from dpfl.errors import DpflError
from dpfl.experiment import parse
from dpfl.privacy import Keyed, PrivacyStatement, SystemEntropy
from dpfl.run.accounts import Accounts, warnings_for
from dpfl.run.folder import RunFolder
from dpfl.run.parts import made_again

TERMS = (
    "unit", "neighbours", "delta", "adversary", "accountant", "noise", "unaccounted", "assumptions", "warnings", "claim",
)  # fmt: skip
"""What does not change when other runs use the same ledgers later."""


@dataclass(frozen=True)
class Ended:
    folder: RunFolder
    record: Mapping[str, Any]
    numbers: Mapping[str, Any]
    accounts: Accounts
    statement: PrivacyStatement

    @property
    def algorithm(self) -> Algorithm:
        return self.accounts.algorithm


def ended(folder: RunFolder) -> Ended:
    """Refused where anything does not fit together, with a sentence that names it."""
    try:
        return _ended(folder)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DpflError(f"The files of the run in {folder.path} do not fit together ({error}); restore them.") from error


def _ended(folder: RunFolder) -> Ended:
    told, result = read(folder, "statement.json"), read(folder, "result.json")
    record, numbers = folder.record(), folder.came_to()
    accounts = accounts_of(folder, record)
    if accounts.algorithm.unit == "none":
        raise DpflError(f"The run in {folder.path} added no noise: nothing is proven of it, so there is nothing to certify.")
    accounts.check_kept(numbers["paid"])
    accounts.check_made()
    statement = accounts.statement(SystemEntropy() if record["resolved"]["entropy"] == "system" else Keyed(0))
    _compare(folder, "statement.json", told, statement.to_dict(), TERMS)
    _compare(folder, "statement.json", told, {"per_client": statement.per_client}, ("per_client",))
    came_to = {"run": accounts.run, "rounds": numbers["round"]}
    came_to |= {name: numbers[name] for name in ("iterations", "model_sha256")}
    _compare(folder, "result.json", result, came_to, tuple(came_to))
    return Ended(folder, record, numbers, accounts, statement)


def accounts_of(folder: RunFolder, record: Mapping[str, Any]) -> Accounts:
    """The accounts as the run had them: one for every client that its record counts, whatever its statement lists."""
    resolved = record["resolved"]
    algorithm, clients, delta = _algorithm(record), resolved["clients"], resolved["budget"]["delta"]
    return Accounts(
        run=record["run"]["id"],
        algorithm=algorithm,
        folder=Path(resolved.get("ledger") or folder.ledgers),
        declared=(resolved["largest"],) * clients,
        delta=delta,
        accountant=resolved["accountant"],
        limit=None,
        epsilon=resolved["budget"].get("epsilon"),
        warnings=(*warnings_for(algorithm.unit, clients, resolved["largest"], delta), *resolved.get("warnings", ())),
        reading=True,
        timed=resolved["budget"].get("seconds") is not None,
        names=tuple(resolved.get("names", ())),
        ordered=resolved.get("partition") == NODES,
    )


def _algorithm(record: Mapping[str, Any]) -> Algorithm:
    """From its description, held against the system that the experiment names where it does."""
    made = made_again(record["resolved"]["algorithm"])
    if not isinstance(made, Algorithm):
        raise DpflError("The record of the run describes no algorithm; restore experiment.toml from a copy.")
    if not record.get("experiment"):
        return made
    experiment = parse(record["experiment"])
    section, unit = experiment.algorithm, experiment.privacy.unit
    asked = from_name(section.name, **section.options())
    asked = asked.protecting(unit) if unit else asked
    for word in ("name", "variant", "leaks", "unit", "scale"):
        if getattr(asked, word) != getattr(made, word):
            raise DpflError(
                f"experiment.toml asks for a system whose {word} is {getattr(asked, word)!r} and records one whose {word} is "
                f"{getattr(made, word)!r}; restore it from a copy."
            )
    return replace(made, claim=asked.claim)


def _compare(folder: RunFolder, name: str, told: Any, found: Mapping[str, Any], words: tuple[str, ...]) -> None:
    for word in words:
        there = told.get(word) if isinstance(told, dict) else None
        truth = list(found[word]) if isinstance(found[word], tuple) else found[word]
        if word == "per_client" and isinstance(there, dict):
            there, truth = sorted(there), sorted(truth)
        if there != truth:
            raise DpflError(
                f"{folder.file(name)} says {word} {there!r}, but the run's record, checkpoint and ledgers give {truth!r}; "
                "restore it from a copy."
            )
