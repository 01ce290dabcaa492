"""A certificate checked again: its signature, every epsilon from the listed releases, and the run's
folder if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dpfl.bad_values import invalid
from dpfl.certificate import contents
from dpfl.certificate.attached_files import check_pages, check_sent, others
from dpfl.certificate.check import VerificationCheck
from dpfl.certificate.contents import AccountSection, Certificate, display_figure
from dpfl.certificate.figures import number, same_figure, stated_figure
from dpfl.certificate.finished_run import FinishedRun, accounts_of, read_finished_run
from dpfl.certificate.model_cards import check_card
from dpfl.certificate.nodes import verify_nodes
from dpfl.certificate.reading import strict_json
from dpfl.certificate.recompute import check_claim, check_epsilon, check_issue, check_listing
from dpfl.certificate.seals import added_hashes, hashes, seal
from dpfl.config.experiment import parse
from dpfl.data.remote_federation import NODES
from dpfl.errors import DpflError
from dpfl.privacy import Ledger
from dpfl.protocol.keys import fingerprint, is_signed, load_public
from dpfl.run.accounts import Accounts
from dpfl.run.folder import RunFolder, code_sha256

UNREADABLE = (DpflError, AttributeError, KeyError, TypeError, ValueError)
"""What a folder that somebody changed may give."""

OLDER = ("dpfl certificate 1",)


@dataclass(frozen=True)
class Verdict:
    checks: tuple[VerificationCheck, ...]
    certificate: Certificate | None = None

    @property
    def findings(self) -> list[str]:
        return [finding for check in self.checks for finding in check.findings]

    @property
    def unchecked(self) -> list[str]:
        """What nothing here could check, in sentences: a good verdict says nothing of it."""
        return [line for check in self.checks for line in check.unchecked]

    def to_dict(self) -> dict[str, Any]:
        checks = {
            check.name: "failed" if check.findings else check.outcome for check in self.checks
        }
        return {
            "good": not self.findings,
            "findings": self.findings,
            "checks": checks,
            "not_checked": self.unchecked,
        }


def verify(
    file: Path,
    run: Path | None = None,
    key: Path | None = None,
    data: bool = False,
    nodes: Sequence[Path] = (),
) -> Verdict:
    """Whoever has the file can do this; `run` is the run's folder (by default the one that the file
    lies in), `key` the public key that it should be signed with, `data` asks for the data to be
    loaded and hashed again, and `nodes` are the statements of nodes that took part."""
    expected = load_public(key) if key else None
    given = RunFolder.open(run) if run else None
    try:
        text = file.read_text()
    except FileNotFoundError:
        raise DpflError(
            f"There is no certificate {file}; make one with: dpfl certify RUN"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        return _broken(file, str(error))
    try:
        envelope = strict_json(text)
        body, signature = envelope["certificate"], envelope["signature"]
        if set(envelope) != {"certificate", "signature"} or not isinstance(signature, str):
            raise ValueError("it holds more than a certificate and its signature")
        if isinstance(body, dict) and body.get("format") in OLDER:
            return _older(file)
        certificate = Certificate.model_validate(body)
    except ValidationError as error:
        return _broken(file, str(invalid(error, "the certificate")))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        return _broken(file, str(error))
    checks = [
        _signature(body, signature, certificate, expected),
        check_epsilon(certificate),
        check_claim(certificate),
    ]
    folder = given or _beside(file, certificate)
    checks += (
        _with_run(folder, certificate, file, data) if folder else _without_run(certificate, file)
    )
    checks.append(check_pages(file, envelope, certificate, signature, folder))
    checks += verify_nodes(nodes, certificate, folder)
    return Verdict((*checks, _code(certificate)), certificate)


def _with_run(
    folder: RunFolder, certificate: Certificate, file: Path, data: bool
) -> list[VerificationCheck]:
    checks = list(_run_checks(folder, certificate))
    unhashed = VerificationCheck(
        "data",
        "not hashed again: ask for it with --data",
        unchecked=("The data: --data hashes it again.",),
    )
    checks.append(_data(folder, certificate) if data else unhashed)
    return [
        *checks,
        VerificationCheck(
            "folder", "compared as far as listed here", unchecked=tuple(others(folder, file))
        ),
    ]


def _without_run(certificate: Certificate, file: Path) -> list[VerificationCheck]:
    """Only what the certificate says of itself, and what was sent with it."""
    formula = (
        ", the claimed epsilon, which is of a formula"
        if certificate.claimed.accountant is None
        else ""
    )
    words = (
        "Without the run's folder (--run): which clients took part and how many, the algorithm, "
        "unit, delta and budget, "
        "ledgers, debits, other runs on them, what was used, rounds, entropy, adversary, "
        "assumptions, versions, data, model, "
        f"and whether it was issued after the last debit{formula}."
    )
    checks = [
        VerificationCheck("run", "not compared: give its folder with --run", unchecked=(words,))
    ]
    sent = check_sent(file, certificate)
    return [
        *checks,
        check_listing(certificate, None),
        check_issue(certificate),
        *([sent] if sent else []),
    ]


def _older(file: Path) -> Verdict:
    """Its words were taken from the run as they stood."""
    why = (
        "is of an older form, whose words were not computed again; certify its run with this "
        "version."
    )
    return Verdict((VerificationCheck("file", "", (f"{file.name} {why}",)),))


def _broken(file: Path, why: str) -> Verdict:
    return Verdict(
        (
            VerificationCheck(
                "file",
                "",
                (f"{file.name} is not a whole certificate ({why}); get it again from its signer.",),
            ),
        )
    )


def _beside(file: Path, certificate: Certificate) -> RunFolder | None:
    folder = RunFolder(file.resolve().parent)
    if not folder.file("experiment.toml").exists():
        return None
    return (
        folder if folder.experiment().get("run", {}).get("id") == certificate.trained.run else None
    )


def _signature(
    body: Any, signature: str, certificate: Certificate, expected: str | None
) -> VerificationCheck:
    signer, findings = certificate.signer, []
    if not is_signed(body, signature, signer.public_key):
        findings.append(
            "The signature does not fit the certificate: something in it was changed after it was "
            "signed."
        )
    try:
        true = fingerprint(signer.public_key)
    except ValueError:
        true = "none"
    if signer.fingerprint != true:
        findings.append(
            f"The fingerprint {signer.fingerprint} is not that of the key in the certificate "
            f"({true})."
        )
    if expected and expected != signer.public_key:
        findings.append(
            f"It was signed with the key {true}, not with the one given ({fingerprint(expected)})."
        )
    known = (
        "the key given"
        if expected
        else f"{true}; compare this fingerprint with its owner, or give --key"
    )
    unchecked = (
        ()
        if expected
        else (f"Whose key it is that signed: compare {true} with its owner, or give --key.",)
    )
    return VerificationCheck("signature", f"good, by {known}", tuple(findings), unchecked)


def _run_checks(folder: RunFolder, certificate: Certificate) -> Iterator[VerificationCheck]:
    """The same contents, read from the folder again."""
    accounts = certificate.accounts
    try:
        seal(folder, b"")
    except DpflError as error:
        yield VerificationCheck("run", "", (f"The run's folder cannot be compared: {error}",))
        return
    try:
        held = accounts_of(folder, folder.experiment())
    except UNREADABLE as error:
        yield VerificationCheck("run", "", (f"The run's record cannot be compared: {error}",))
        return
    ledgers = [finding for account in accounts for finding in _ledger(folder, account, held)]
    yield VerificationCheck("ledgers", f"{len(accounts)}, row by row as certified", tuple(ledgers))
    if not ledgers:
        yield from _derived_checks(folder, certificate)
    yield check_listing(certificate, [path.stem for path in held.paths()])
    yield check_issue(certificate, _last_debit(held))
    yield _files(folder, certificate)
    reported = _section(
        "reported",
        certificate.reported,
        lambda: contents.reported_section(folder),
        "as the run says; not checked",
    )
    yield replace(
        reported,
        unchecked=(
            "Accuracy and metrics, when and why the run ended, and its audit: as the run says.",
        ),
    )


def _last_debit(accounts: Accounts) -> float | None:
    """When the last one was written, of any account that can be read."""
    times = []
    for path in accounts.paths():
        try:
            with closing(Ledger.read(path)) as ledger:
                times += [at for *_, at in ledger.debits()[-1:]]
        except DpflError:
            continue
    return max(times, default=None)


def _files(folder: RunFolder, certificate: Certificate) -> VerificationCheck:
    """By their hashes; a certificate from before some files had one is compared by the others,
    which is said.
    """
    try:
        there, added = hashes(folder), added_hashes(folder)
    except UNREADABLE as error:
        return VerificationCheck("files", "", (f"The run's files cannot be compared: {error}",))
    if added and not added.keys() & certificate.hashes.keys():
        held = {name: value for name, value in there.items() if name not in added}
        words = (
            f"Whether {', '.join(added)} changed since: the certificate is from before it had "
            "their digests."
        )
        return replace(_section("files", certificate.hashes, lambda: held), unchecked=(words,))
    return _section("files", certificate.hashes, lambda: there)


def _derived_checks(folder: RunFolder, certificate: Certificate) -> Iterator[VerificationCheck]:
    """What follows from record, checkpoint and ledgers, once more."""
    try:
        found = read_finished_run(folder)
    except UNREADABLE as error:
        yield VerificationCheck("run", "", (f"The run does not fit together: {error}",))
        return
    again = "computed again from record, checkpoint and ledgers"
    yield _section(
        "guarantee",
        certificate.guarantee,
        lambda: contents.guarantee_section(found, certificate.accounts),
        again,
    )
    yield _section("training", certificate.trained, lambda: contents.training_section(found), again)
    yield _section("claim", certificate.claimed, lambda: contents.claim_section(found), again)
    yield _section(
        "versions",
        certificate.versions,
        lambda: found.record["versions"],
        "as the run recorded them",
    )
    yield _statement(found, certificate)
    yield check_card(found)


def _statement(found: FinishedRun, certificate: Certificate) -> VerificationCheck:
    """It was compared where the run was made again; where other runs spent since, it says less than
    the certificate.
    """
    told, now = stated_figure(found.told.proven), certificate.guarantee.proven
    if number(told) < number(now) and not same_figure(told, now):
        return VerificationCheck(
            "statement",
            f"true when the run ended: {display_figure(told)}; the certificate counts what came "
            "since, and plans",
        )
    return VerificationCheck(
        "statement", f"{display_figure(told)}, every word and figure made again"
    )


def _ledger(folder: RunFolder, account: AccountSection, accounts: Accounts) -> Iterator[str]:
    path = next((path for path in accounts.paths() if path.stem == account.name), None)
    if path is None:
        yield f"The run has no account of {account.name}."
        return
    try:
        held = contents.read_account(folder, path, accounts)
    except UNREADABLE as error:
        yield f"The ledger of {account.name} cannot be compared: {error}"
        return
    same = ("seal", "releases", "debits", "other_runs")
    if all(getattr(held, word) == getattr(account, word) for word in same):
        return
    yield f"The ledger of {account.name} ({held.ledger}) differs: {_difference(held, account)}."


def _difference(held: AccountSection, certified: AccountSection) -> str:
    parts = []
    if held.debits != certified.debits:
        parts.append(f"it holds {held.debits} debits, the certificate {certified.debits}")
    if held.other_runs != certified.other_runs:
        parts.append(
            f"it holds debits of {held.other_runs} other runs, the certificate says "
            f"{certified.other_runs}"
        )
    counts = [
        {released.kind: released.count for released in account.releases}
        for account in (held, certified)
    ]
    for kind in sorted(set(counts[0]) | set(counts[1])):
        there, told = (count.get(kind, 0) for count in counts)
        if there != told:
            parts.append(f"{there} x {kind} there, {told} in the certificate")
    if not parts:
        parts.append(
            "as many debits of the same sums, but under another run, name or time than was "
            "certified"
        )
    return "; ".join(parts)


def _section(
    name: str, certified: Any, found: Callable[[], Any], outcome: str = "as in the run's folder"
) -> VerificationCheck:
    try:
        there = found()
    except UNREADABLE as error:
        return VerificationCheck(name, "", (f"The run's {name} cannot be compared: {error}",))
    told, held = (
        part if isinstance(part, Mapping) else part.model_dump() for part in (certified, there)
    )
    findings = [
        f"{key} is {held.get(key, 'missing')!r} in the run's folder; the certificate states "
        f"{told.get(key, 'nothing')!r}."
        for key in sorted({*told, *held})
        if told.get(key) != held.get(key)
    ]
    return VerificationCheck(name, outcome, tuple(findings))


def _data(folder: RunFolder, certificate: Certificate) -> VerificationCheck:
    """The data itself, where the experiment says how to load it and it lies on this machine."""
    recorded = folder.experiment().get("experiment")
    if folder.experiment().get("resolved", {}).get("partition") == NODES:
        return VerificationCheck(
            "data",
            "at the nodes, and theirs alone; only the form of a sample and the test set were at "
            "the server",
        )
    if not recorded:
        words = "the data was given from Python and is not hashed again"
        return VerificationCheck(
            "data", f"hashes as recorded; {words}", unchecked=(f"The data: {words}.",)
        )
    try:
        federation = parse(recorded).federation()
    except DpflError as error:
        words = f"it is not here to be hashed again ({error})"
        return VerificationCheck(
            "data", f"hashes as recorded; {words}", unchecked=(f"The data: {words}",)
        )
    plain = {"federation": federation.sha256, "train": federation.train.sha256}
    true = {name: seal(folder, value.encode()) for name, value in plain.items()}
    true |= {"test": federation.test.sha256} if federation.test else {}
    differing = [name for name, value in true.items() if certificate.hashes.get(name) != value]
    findings = [
        f"The {name} data on this machine is not that which was certified." for name in differing
    ]
    return VerificationCheck("data", "hashed again, as certified", tuple(findings))


def _code(certificate: Certificate) -> VerificationCheck:
    """Other code is no fault: a certificate must outlive the version that made it."""
    here = code_sha256()
    if certificate.hashes.get("code") == here:
        return VerificationCheck("code", "that trained is the code of this installation")
    trained = (
        f"that trained was dpfl {certificate.versions.get('dpfl', '?')}; this installation "
        "differs from it"
    )
    return VerificationCheck("code", trained, unchecked=(f"The code {trained}.",))
