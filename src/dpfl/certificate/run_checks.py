"""Checks a certificate against the folder of its run: everything is made again and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpfl.certificate import contents
from dpfl.certificate.attached_files import others
from dpfl.certificate.check import VerificationCheck
from dpfl.certificate.contents import display_figure
from dpfl.certificate.figures import number, same_figure, stated_figure
from dpfl.certificate.finished_run import FinishedRun, accounts_of, read_finished_run
from dpfl.certificate.model_cards import check_card
from dpfl.certificate.recompute import check_issue, check_listing
from dpfl.certificate.seals import added_hashes, hashes, seal
from dpfl.certificate.sections import AccountSection, Certificate
from dpfl.config.experiment import parse
from dpfl.data.remote_federation import NODES
from dpfl.errors import DpflError
from dpfl.privacy import Ledger
from dpfl.run.accounting.accounts import Accounts
from dpfl.run.records.folder import RunFolder

UNREADABLE = (DpflError, AttributeError, KeyError, TypeError, ValueError)
"""What reading a folder raises where somebody has changed the folder."""


def check_run(
    folder: RunFolder, certificate: Certificate, file: Path, data: bool
) -> list[VerificationCheck]:
    """Compares a certificate with the folder of its run.

    Args:
        folder: The folder of the run.
        certificate: The contents of the certificate.
        file: The certificate, which may lie in the folder.
        data: Load the data of the run, where it is available, and hash it again.

    Returns:
        One check for each section of the certificate.
    """
    without_data = VerificationCheck(
        "data",
        "not hashed again; --data does that",
        not_checked=("The data. Use --data to hash it again.",),
    )
    return [
        *_sections(folder, certificate),
        _data(folder, certificate) if data else without_data,
        VerificationCheck(
            "folder", "compared as far as listed here", not_checked=tuple(others(folder, file))
        ),
    ]


def _sections(folder: RunFolder, certificate: Certificate) -> Iterator[VerificationCheck]:
    """Compares every section with the same section made from the folder."""
    try:
        seal(folder, b"")
    except DpflError as error:
        yield VerificationCheck("run", "", (f"The run's folder cannot be compared: {error}",))
        return
    try:
        accounts = accounts_of(folder, folder.experiment())
    except UNREADABLE as error:
        yield VerificationCheck("run", "", (f"The run's record cannot be compared: {error}",))
        return
    certified_accounts = certificate.accounts
    differences = [
        line for account in certified_accounts for line in _ledger(folder, account, accounts)
    ]
    yield VerificationCheck(
        "ledgers", f"{len(certified_accounts)}, row by row as certified", tuple(differences)
    )
    if not differences:
        yield from _derived_checks(folder, certificate)
    yield check_listing(certificate, [path.stem for path in accounts.paths()])
    yield check_issue(certificate, _last_debit(accounts))
    yield _files(folder, certificate)
    report_check = _section(
        "reported",
        certificate.reported,
        lambda: contents.reported_section(folder),
        "as the run reports; not checked",
    )
    words = "Accuracy and metrics, when and why the run ended, and its audit: as the run reports."
    yield replace(report_check, not_checked=(words,))


def _last_debit(accounts: Accounts) -> float | None:
    """Finds the time of the last debit in any account that can be read."""
    times = []
    for path in accounts.paths():
        try:
            with closing(Ledger.read(path)) as ledger:
                times += [at for *_, at in ledger.debits()[-1:]]
        except DpflError:
            continue
    return max(times, default=None)


def _files(folder: RunFolder, certificate: Certificate) -> VerificationCheck:
    """Compares files by their hashes.

    An older certificate has no hashes of some files. Then the others are compared, and the check
    says so.
    """
    try:
        files, added_files = hashes(folder), added_hashes(folder)
    except UNREADABLE as error:
        return VerificationCheck("files", "", (f"The run's files cannot be compared: {error}",))
    if added_files and not added_files.keys() & certificate.hashes.keys():
        others_only = {name: value for name, value in files.items() if name not in added_files}
        words = (
            f"Whether {', '.join(added_files)} have changed since: this older certificate has no "
            "digests of them."
        )
        return replace(
            _section("files", certificate.hashes, lambda: others_only), not_checked=(words,)
        )
    return _section("files", certificate.hashes, lambda: files)


def _derived_checks(folder: RunFolder, certificate: Certificate) -> Iterator[VerificationCheck]:
    """Computes again what follows from the record, the checkpoint and the ledgers."""
    try:
        run = read_finished_run(folder)
    except UNREADABLE as error:
        yield VerificationCheck(
            "run", "", (f"The files of the run contradict each other: {error}",)
        )
        return
    again = "computed again from record, checkpoint and ledgers"
    yield _section(
        "guarantee",
        certificate.guarantee,
        lambda: contents.guarantee_section(run, certificate.accounts),
        again,
    )
    yield _section("training", certificate.trained, lambda: contents.training_section(run), again)
    yield _section("claim", certificate.claimed, lambda: contents.claim_section(run), again)
    yield _section(
        "versions",
        certificate.versions,
        lambda: run.record["versions"],
        "as the run recorded them",
    )
    yield _statement(run, certificate)
    yield check_card(run)


def _statement(run: FinishedRun, certificate: Certificate) -> VerificationCheck:
    """Reports the statement of the run, which `read_finished_run` has made again and compared.

    Where other runs have spent since, the statement names less than the certificate.
    """
    stated_epsilon, now = stated_figure(run.recorded_statement.proven), certificate.guarantee.proven
    outcome = f"{display_figure(stated_epsilon)}, every word and figure computed again"
    if number(stated_epsilon) < number(now) and not same_figure(stated_epsilon, now):
        outcome = (
            f"true when the run ended: {display_figure(stated_epsilon)}; the certificate also "
            "counts later runs and plans"
        )
    return VerificationCheck("statement", outcome)


def _ledger(folder: RunFolder, account: AccountSection, accounts: Accounts) -> Iterator[str]:
    path = next((path for path in accounts.paths() if path.stem == account.name), None)
    if path is None:
        yield f"The run has no account of {account.name}."
        return
    try:
        current = contents.read_account(folder, path, accounts)
    except UNREADABLE as error:
        yield f"The ledger of {account.name} cannot be compared: {error}"
        return
    same = ("seal", "releases", "debits", "other_runs")
    if all(getattr(current, key) == getattr(account, key) for key in same):
        return
    difference = _difference(current, account)
    yield f"The ledger of {account.name} ({current.ledger}) differs: {difference}."


def _difference(current: AccountSection, certified_account: AccountSection) -> str:
    parts = []
    if current.debits != certified_account.debits:
        parts.append(
            f"it holds {current.debits} debits, the certificate {certified_account.debits}"
        )
    if current.other_runs != certified_account.other_runs:
        parts.append(
            f"it holds debits of {current.other_runs} other runs, the certificate says "
            f"{certified_account.other_runs}"
        )
    counts, certified_counts = (
        {release.kind: release.count for release in account.releases}
        for account in (current, certified_account)
    )
    for kind in sorted(set(counts) | set(certified_counts)):
        count, certified_count = counts.get(kind, 0), certified_counts.get(kind, 0)
        if count != certified_count:
            parts.append(f"{count} x {kind} there, {certified_count} in the certificate")
    if not parts:
        parts.append(
            "it has the same number of debits and the same totals, but with another run, name or "
            "time"
        )
    return "; ".join(parts)


def _section(
    name: str,
    certified_section: Any,
    read: Callable[[], Any],
    outcome: str = "as in the run's folder",
) -> VerificationCheck:
    try:
        current = read()
    except UNREADABLE as error:
        return VerificationCheck(name, "", (f"The run's {name} cannot be compared: {error}",))
    stated_values, actual = (
        part if isinstance(part, Mapping) else part.model_dump()
        for part in (certified_section, current)
    )
    findings = [
        f"{key} is {actual.get(key, 'missing')!r} in the run's folder; the certificate states "
        f"{stated_values.get(key, 'nothing')!r}."
        for key in sorted({*stated_values, *actual})
        if stated_values.get(key) != actual.get(key)
    ]
    return VerificationCheck(name, outcome, tuple(findings))


def _data(folder: RunFolder, certificate: Certificate) -> VerificationCheck:
    """Hashes the data again, where the experiment says how to load it and it is on this machine."""
    experiment = folder.experiment().get("experiment")
    if folder.experiment().get("resolved", {}).get("partition") == NODES:
        return VerificationCheck(
            "data",
            "only at the nodes; the server had the shape of a sample and the test set",
        )
    if not experiment:
        words = "the data was passed in from Python and is not hashed again"
        return VerificationCheck(
            "data", f"hashes as recorded; {words}", not_checked=(f"The data: {words}.",)
        )
    try:
        federation = parse(experiment).federation()
    except DpflError as error:
        words = f"it cannot be loaded here and hashed again ({error})"
        return VerificationCheck(
            "data", f"hashes as recorded; {words}", not_checked=(f"The data: {words}",)
        )
    plain = {"federation": federation.sha256, "train": federation.train.sha256}
    true = {name: seal(folder, value.encode()) for name, value in plain.items()}
    true |= {"test": federation.test.sha256} if federation.test else {}
    differing = [name for name, value in true.items() if certificate.hashes.get(name) != value]
    findings = [
        f"The {name} data on this machine is not the data that was certified." for name in differing
    ]
    return VerificationCheck("data", "hashed again, as certified", tuple(findings))
