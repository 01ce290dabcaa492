"""Reads a finished run from what proves it: its record, its checkpoint and its ledgers.

What the run reports about itself (statement.json, result.json) is compared with that. It is never
taken in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from dpfl.algorithms import Algorithm, from_name
from dpfl.certificate.reading import read
from dpfl.certificate.restated import RestatedStatement
from dpfl.config.experiment import parse
from dpfl.errors import DpflError
from dpfl.privacy import Keyed, Ledger, PrivacyStatement, SystemEntropy
from dpfl.privacy.ledger.client_ledgers import ledger_files
from dpfl.run.accounting.accounting_terms import AccountingTerms
from dpfl.run.accounting.accounts import Accounts
from dpfl.run.records.algorithm_record import algorithm_of
from dpfl.run.records.folder import RunFolder
from dpfl.run.records.record_file import recorded_ledgers
from dpfl.run.stages.algorithm_stages import with_unit


@dataclass(frozen=True)
class FinishedRun:
    """A run that has ended, and whose files agree.

    Attributes:
        folder: The folder of the run.
        record: experiment.toml as the run wrote it.
        numbers: The counters of the checkpoint.
        accounts: The ledgers of the run, read together.
        statement: The privacy statement, made again from the ledgers as they are now.
        recorded_statement: The privacy statement as the run wrote it when it ended.
        result: result.json.
    """

    folder: RunFolder
    record: Mapping[str, Any]
    numbers: Mapping[str, Any]
    accounts: Accounts
    statement: PrivacyStatement
    recorded_statement: PrivacyStatement
    result: Mapping[str, Any]

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm, made again from the record."""
        return self.accounts.algorithm


def read_finished_run(folder: RunFolder) -> FinishedRun:
    """Reads a finished run and checks that its files agree.

    Args:
        folder: The folder of the run.

    Returns:
        The run.

    Raises:
        DpflError: The run is not finished, or two of its files contradict each other.
    """
    try:
        return _read(folder)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DpflError(
            f"The files of the run in {folder.path} contradict each other ({error}); restore them "
            "from a copy."
        ) from error


def _read(folder: RunFolder) -> FinishedRun:
    statement, result = (_mapping(folder, name) for name in ("statement.json", "result.json"))
    record, numbers = folder.record(), folder.counters()
    accounts = accounts_of(folder, record)
    if not accounts.algorithm.has_noise:
        raise DpflError(
            f"The run in {folder.path} added no noise. No guarantee is proven for it, so there is "
            "nothing to certify."
        )
    accounts.check_checkpoint(numbers["paid"])
    accounts.check_debits()
    _refuse_uncounted(accounts)
    restatement = RestatedStatement(
        accounts, SystemEntropy() if record["resolved"]["entropy"] == "system" else Keyed(0)
    )
    for word, stated_value, recomputed_value in restatement.differences(statement):
        raise _differs(folder, "statement.json", word, stated_value, recomputed_value)
    if result.get("privacy") != statement:
        raise _differs(
            folder, "result.json", "privacy", result.get("privacy"), "what statement.json says"
        )
    recomputed_counters = {"run": accounts.run, "rounds": numbers["round"]}
    recomputed_counters |= {name: numbers[name] for name in ("iterations", "model_sha256")}
    for word, recomputed_value in recomputed_counters.items():
        if result.get(word) != recomputed_value:
            raise _differs(folder, "result.json", word, result.get(word), recomputed_value)
    return FinishedRun(
        folder,
        record,
        numbers,
        accounts,
        restatement.now,
        PrivacyStatement.from_dict(statement),
        result,
    )


def _differs(
    folder: RunFolder, name: str, word: str, stated_value: Any, recomputed_value: Any
) -> DpflError:
    return DpflError(
        f"{folder.file(name)} says {word} {stated_value!r}, but the run's record, checkpoint and "
        f"ledgers give {recomputed_value!r}; restore it from a copy."
    )


def _refuse_uncounted(accounts: Accounts) -> None:
    """Refuses a ledger that has debits of the run but is not one of its accounts.

    Somebody's releases would otherwise be in no statement.
    """
    account_files = {path.name for path in accounts.paths()}
    for path in ledger_files(accounts.folder):
        if path.name in account_files:
            continue
        with closing(Ledger.read(path)) as ledger:
            if any(run == accounts.run for run, *_ in ledger.debits()):
                raise DpflError(
                    f"The ledger {path} holds debits of the run {accounts.run}, which has no such "
                    "account. The ledger or the record was copied or renamed; restore the "
                    "originals."
                )


def accounts_of(folder: RunFolder, record: Mapping[str, Any]) -> Accounts:
    """Opens the accounts of a run as it had them, read-only.

    Args:
        folder: The run's folder.
        record: The record of the run.

    Returns:
        One account for every client that the record counts, whatever its statement lists.
    """
    terms = AccountingTerms.from_record(record, recorded_algorithm(record))
    ledgers = recorded_ledgers(record["resolved"], folder.ledgers)
    return Accounts(record["run"]["id"], ledgers, terms, read_only=True)


def recorded_algorithm(record: Mapping[str, Any]) -> Algorithm:
    """Reads the algorithm that a run ran from its record.

    Args:
        record: The record of the run.

    Returns:
        The algorithm as it ran. Its claim is that of the system that the experiment names.

    Raises:
        DpflError: The experiment in the record asks for another system.
    """
    algorithm = algorithm_of(record["resolved"]["algorithm"])
    if not record.get("experiment"):
        return algorithm
    experiment = parse(record["experiment"])
    section = experiment.algorithm
    system = with_unit(from_name(section.name, **section.options()), experiment.privacy.unit)
    for word in ("name", "variant", "leaks", "unit", "placement"):
        if getattr(system, word) != getattr(algorithm, word):
            raise DpflError(
                f"experiment.toml asks for a system whose {word} is {getattr(system, word)!r} and "
                f"records one whose {word} is {getattr(algorithm, word)!r}; restore it from a copy."
            )
    return replace(algorithm, claim=system.claim)


def _mapping(folder: RunFolder, name: str) -> dict[str, Any]:
    content = read(folder, name)
    if not isinstance(content, dict):
        raise DpflError(
            f"{folder.file(name)} does not hold what a run writes there; restore it from a copy."
        )
    return content
