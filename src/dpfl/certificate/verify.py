"""A certificate checked again: its signature, every epsilon from the listed releases, and the run's folder if there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dpfl.certificate import contents
from dpfl.certificate.check import Check
from dpfl.certificate.contents import Account, Certificate, Epsilon, number, shown, stated_figure
from dpfl.certificate.ended import accounts_of, ended
from dpfl.certificate.nodes import verify_nodes
from dpfl.certificate.reading import strict_json
from dpfl.certificate.seals import hashes, sealed
from dpfl.data.elsewhere import NODES
from dpfl.errors import DpflError
from dpfl.experiment import parse
from dpfl.keys import fingerprint, load_public, signed
from dpfl.privacy.accountant import accountant, proving
from dpfl.privacy.calibrate import check_target
from dpfl.privacy.events import Spent, decode, describe
from dpfl.run.accounts import Accounts
from dpfl.run.folder import RunFolder, code_sha256

TOLERANCE = 2e-6
"""Two machines may differ in the last bits of an epsilon, which is stated to six digits, rounded up."""

UNREADABLE = (DpflError, AttributeError, KeyError, TypeError, ValueError)
"""What a folder that somebody changed may give."""

OLDER = ("dpfl certificate 1",)

UNCOMPUTABLE = (DpflError, ArithmeticError, MemoryError, ValueError)
"""What an accountant raises for releases that nobody makes."""


@dataclass(frozen=True)
class Verdict:
    checks: tuple[Check, ...]
    certificate: Certificate | None = None

    @property
    def findings(self) -> list[str]:
        return [finding for check in self.checks for finding in check.findings]

    def to_dict(self) -> dict[str, Any]:
        checks = {check.name: "failed" if check.findings else check.outcome for check in self.checks}
        return {"good": not self.findings, "findings": self.findings, "checks": checks}


def verify(
    file: Path, run: Path | None = None, key: Path | None = None, data: bool = False, nodes: Sequence[Path] = ()
) -> Verdict:
    """Whoever has the file can do this; `run` is the run's folder (by default the one that the file lies in), `key` the
    public key that it should be signed with, `data` asks for the data to be loaded and hashed again, and `nodes` are the
    statements of nodes that took part."""
    expected = load_public(key) if key else None
    given = RunFolder.open(run) if run else None
    try:
        text = file.read_text()
    except FileNotFoundError:
        raise DpflError(f"There is no certificate {file}; make one with: dpfl certify RUN") from None
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
        first = error.errors()[0]
        return _broken(file, f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        return _broken(file, str(error))
    checks = [_signature(body, signature, certificate, expected), _epsilon(certificate), _claim(certificate)]
    folder = given or _beside(file, certificate)
    checks += list(_run_checks(folder, certificate)) if folder else [Check("run", "not compared: give its folder with --run")]
    if folder:
        checks.append(_data(folder, certificate) if data else Check("data", "not hashed again: ask for it with --data"))
    checks += verify_nodes(nodes, certificate, folder)
    return Verdict((*checks, _code(certificate)), certificate)


def _older(file: Path) -> Verdict:
    """Its words were taken from the run as they stood."""
    why = "is of an older form, whose words were not computed again; certify its run with this version."
    return Verdict((Check("file", "", (f"{file.name} {why}",)),))


def _broken(file: Path, why: str) -> Verdict:
    return Verdict((Check("file", "", (f"{file.name} is not a whole certificate ({why}); get it again from its signer.",)),))


def _beside(file: Path, certificate: Certificate) -> RunFolder | None:
    folder = RunFolder(file.resolve().parent)
    if not folder.file("experiment.toml").exists():
        return None
    return folder if folder.experiment().get("run", {}).get("id") == certificate.trained.run else None


def _signature(body: Any, signature: str, certificate: Certificate, expected: str | None) -> Check:
    signer, findings = certificate.signer, []
    if not signed(body, signature, signer.public_key):
        findings.append("The signature does not fit the certificate: something in it was changed after it was signed.")
    try:
        true = fingerprint(signer.public_key)
    except ValueError:
        true = "none"
    if signer.fingerprint != true:
        findings.append(f"The fingerprint {signer.fingerprint} is not that of the key in the certificate ({true}).")
    if expected and expected != signer.public_key:
        findings.append(f"It was signed with the key {true}, not with the one given ({fingerprint(expected)}).")
    known = "the key given" if expected else f"{true}; compare this fingerprint with its owner, or give --key"
    return Check("signature", f"good, by {known}", tuple(findings))


def _epsilon(certificate: Certificate) -> Check:
    """Every figure again, from the listed releases and the named accountant."""
    stated, findings = certificate.guarantee, []
    try:
        proving(stated.accountant)
        check_target(1.0, stated.delta)
        for account in certificate.accounts:
            findings += list(_account_figures(account, stated.accountant, stated.delta))
        if stated.neighbours not in (among := contents.neighbours(certificate.accounts)):
            findings.append(f"The listed releases are proven for neighbours '{among[0]}', not '{stated.neighbours}'.")
        for name, epsilon in contents.spread(certificate.accounts).items():
            if not _same(epsilon, getattr(stated, name)):
                told = "largest" if name == "proven" else name
                findings.append(
                    f"The {told} epsilon of the accounts is {epsilon}; the certificate states {getattr(stated, name)}."
                )
    except UNCOMPUTABLE as error:
        findings.append(f"Epsilon cannot be computed again: {error}")
    if stated.unaccounted and stated.proven != "unbounded":
        findings.append(f"Something left unprotected ({'; '.join(stated.unaccounted)}), yet epsilon {stated.proven} is stated.")
    outcome = f"{shown(stated.proven)}, computed again for {len(certificate.accounts)} accounts by {stated.accountant}"
    return Check("epsilon", outcome, tuple(findings))


def _account_figures(account: Account, by: str, delta: float) -> Iterator[str]:
    spent = {decode(released.event): released.count for released in account.releases}
    epsilon = _epsilon_again(spent, by, delta, account.proven)
    if len(spent) != len(account.releases) or any(released.count < 1 for released in account.releases):
        yield f"{account.name}: its releases are not listed once each, with a count of at least 1."
    elif not _same(epsilon, account.proven):
        yield f"{account.name}: the listed releases cost epsilon {epsilon}; the certificate states {account.proven}."
    for released in account.releases:
        if released.kind != describe(decode(released.event)):
            yield f"{account.name}: {released.event} is called '{released.kind}', but is {describe(decode(released.event))}."


def _epsilon_again(spent: Spent, by: str, delta: float, stated: Epsilon) -> Epsilon:
    """By the named accountant; by RDP alone where that is far from what is stated, since a tight one could take for ever."""
    quick = stated_figure(accountant("rdp").epsilon(spent, delta))
    if stated == "unbounded" or number(quick) > 10 * number(stated) + 100:
        return quick
    return stated_figure(accountant(by).epsilon(spent, delta))


def _same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return one == other or abs(number(one) - number(other)) <= TOLERANCE


def _claim(certificate: Certificate) -> Check:
    claim = certificate.claimed
    if claim.epsilon is None:
        return Check("claimed", f"nothing ({claim.text})")
    if claim.accountant is None:
        return Check("claimed", f"{shown(claim.epsilon)} by a formula ({claim.text}), which is not computed again")
    try:
        spent = {decode(event): count for event, count in claim.stated.items()}
        epsilon = _epsilon_again(spent, claim.accountant, certificate.guarantee.delta, claim.epsilon)
    except UNCOMPUTABLE as error:
        return Check("claimed", "", (f"The claimed epsilon cannot be computed again: {error}",))
    found = f"What the paper counts costs {epsilon} by {claim.accountant}; the certificate states {claim.epsilon} as claimed."
    return Check("claimed", f"{shown(claim.epsilon)}, computed again", () if _same(epsilon, claim.epsilon) else (found,))


def _run_checks(folder: RunFolder, certificate: Certificate) -> Iterator[Check]:
    """The same contents, read from the folder again."""
    accounts = certificate.accounts
    try:
        sealed(folder, b"")
    except DpflError as error:
        yield Check("run", "", (f"The run's folder cannot be compared: {error}",))
        return
    try:
        held = accounts_of(folder, folder.experiment())
    except UNREADABLE as error:
        yield Check("run", "", (f"The run's record cannot be compared: {error}",))
        return
    ledgers = [finding for account in accounts for finding in _ledger(folder, account, held)]
    yield Check("ledgers", f"{len(accounts)}, row by row as certified", tuple(ledgers))
    if not ledgers:
        yield from _derived_checks(folder, certificate)
    yield _section("files", certificate.hashes, lambda: hashes(folder))
    yield _section("reported", certificate.reported, lambda: contents.reported(folder), "as the run says; not checked")


def _derived_checks(folder: RunFolder, certificate: Certificate) -> Iterator[Check]:
    """What follows from record, checkpoint and ledgers, once more."""
    try:
        found = ended(folder)
    except UNREADABLE as error:
        yield Check("run", "", (f"The run does not fit together: {error}",))
        return
    yield _accounts(certificate, [path.stem for path in found.accounts.paths()])
    again = "computed again from record, checkpoint and ledgers"
    yield _section("guarantee", certificate.guarantee, lambda: contents.guarantee(found, certificate.accounts), again)
    yield _section("training", certificate.trained, lambda: contents.trained(found), again)
    yield _section("claim", certificate.claimed, lambda: contents.claimed(found), again)


def _accounts(certificate: Certificate, owners: list[str]) -> Check:
    named = [account.name for account in certificate.accounts]
    missing = [f"The account of {owner} is missing from the certificate." for owner in owners if owner not in named]
    return Check("accounts", "every account of the run", tuple(missing))


def _ledger(folder: RunFolder, account: Account, accounts: Accounts) -> Iterator[str]:
    path = next((path for path in accounts.paths() if path.stem == account.name), None)
    if path is None:
        yield f"The run has no account of {account.name}."
        return
    try:
        held = contents.read_account(folder, path, accounts)
    except UNREADABLE as error:
        yield f"The ledger of {account.name} cannot be compared: {error}"
        return
    if held.seal == account.seal and held.releases == account.releases and held.debits == account.debits:
        return
    yield f"The ledger of {account.name} ({held.ledger}) differs: {_difference(held, account)}."


def _difference(held: Account, certified: Account) -> str:
    parts = []
    if held.debits != certified.debits:
        parts.append(f"it holds {held.debits} debits, the certificate {certified.debits}")
    counts = [{released.kind: released.count for released in account.releases} for account in (held, certified)]
    for kind in sorted(set(counts[0]) | set(counts[1])):
        there, told = (count.get(kind, 0) for count in counts)
        if there != told:
            parts.append(f"{there} x {kind} there, {told} in the certificate")
    if not parts:
        parts.append("as many debits of the same sums, but under another run, name or time than was certified")
    return "; ".join(parts)


def _section(name: str, certified: Any, found: Callable[[], Any], outcome: str = "as in the run's folder") -> Check:
    try:
        there = found()
    except UNREADABLE as error:
        return Check(name, "", (f"The run's {name} cannot be compared: {error}",))
    told, held = (part if isinstance(part, Mapping) else part.model_dump() for part in (certified, there))
    findings = [
        f"{key} is {held.get(key, 'missing')!r} in the run's folder; the certificate states {told.get(key, 'nothing')!r}."
        for key in sorted({*told, *held})
        if told.get(key) != held.get(key)
    ]
    return Check(name, outcome, tuple(findings))


def _data(folder: RunFolder, certificate: Certificate) -> Check:
    """The data itself, where the experiment says how to load it and it lies on this machine."""
    recorded = folder.experiment().get("experiment")
    if folder.experiment().get("resolved", {}).get("partition") == NODES:
        return Check("data", "at the nodes, and theirs alone; only the form of a sample and the test set were at the server")
    if not recorded:
        return Check("data", "hashes as recorded; the data was given from Python and is not hashed again")
    try:
        federation = parse(recorded).federation()
    except DpflError as error:
        return Check("data", f"hashes as recorded; the data is not here to be hashed again ({error})")
    plain = {"federation": federation.sha256, "train": federation.train.sha256}
    true = {name: sealed(folder, value.encode()) for name, value in plain.items()}
    true |= {"test": federation.test.sha256} if federation.test else {}
    differing = [name for name, value in true.items() if certificate.hashes.get(name) != value]
    findings = [f"The {name} data on this machine is not that which was certified." for name in differing]
    return Check("data", "hashed again, as certified", tuple(findings))


def _code(certificate: Certificate) -> Check:
    """Other code is no fault: a certificate must outlive the version that made it."""
    here = code_sha256()
    if certificate.hashes.get("code") == here:
        return Check("code", "that trained is the code of this installation")
    return Check("code", f"that trained was dpfl {certificate.versions.get('dpfl', '?')}; this installation differs from it")
