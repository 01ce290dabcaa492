"""What nodes say of themselves, beside the certificate of the run that they took part in: each
signed with a key of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpfl.certificate.check import VerificationCheck
from dpfl.certificate.contents import AccountSection, Certificate
from dpfl.certificate.figures import same_figure
from dpfl.certificate.finished_run import accounts_of
from dpfl.certificate.reading import strict_json
from dpfl.certificate.seals import KEY_OF, NODES_RUN, node_hashes
from dpfl.data.names import client_names
from dpfl.data.remote_federation import NODES
from dpfl.errors import DpflError
from dpfl.node import statement
from dpfl.privacy import Ledger
from dpfl.privacy.accounting.accountant import accountant
from dpfl.privacy.accounting.events import decode, describe
from dpfl.privacy.ledger.client_ledgers import FEDERATION
from dpfl.protocol.keys import fingerprint
from dpfl.run.accounts import Accounts
from dpfl.run.folder import RunFolder

UNUSABLE = (
    DpflError,
    OSError,
    ArithmeticError,
    AttributeError,
    KeyError,
    TypeError,
    ValueError,
    RecursionError,
)
"""What a file that anybody may have written can give."""


@dataclass(frozen=True)
class OrderedReleases:
    """What the server ordered of a node, by event; `exact` is False where a certificate alone
    counts other things with it.
    """

    releases: Mapping[str, int]
    exact: bool = True


@dataclass(frozen=True)
class ExpectedNodes:
    """Who took part in a run and what was ordered of them, by its folder, or else by its
    certificate.
    """

    names: Sequence[str]
    """None are known of a run whose one account is the federation's, without its folder."""
    nodes: int
    hashes: Mapping[str, str]
    """Of the nodes' keys, and of what they know the run by."""
    ordered: Mapping[str, OrderedReleases]

    @classmethod
    def of(cls, certificate: Certificate, folder: RunFolder | None) -> ExpectedNodes:
        """
        Raises:
            DpflError: If the run's folder is there and cannot be read.
        """
        if folder is None:
            accounts = [account for account in certificate.accounts if account.name != FEDERATION]
            exact = same_figure(certificate.guarantee.used, certificate.guarantee.proven)
            ordered = {account.name: _listed(account, exact) for account in accounts}
            return cls(list(ordered), certificate.trained.clients, certificate.hashes, ordered)
        record = folder.record()
        held = accounts_of(folder, record)
        names = record["resolved"].get("names") or client_names(record["resolved"]["clients"])
        return cls(names, len(names), node_hashes(record), _counted(held))


def _listed(account: AccountSection, exact: bool) -> OrderedReleases:
    """Exact where no other run is counted with it, and no plan stands for what was made."""
    return OrderedReleases(
        {released.event: released.count for released in account.releases},
        exact and not account.other_runs,
    )


def _counted(held: Accounts) -> dict[str, OrderedReleases]:
    """From the server's own ledgers, of this run alone; nothing where the nodes pay for nothing
    themselves.
    """
    if not held.algorithm.ledger_per_client:
        return {}
    found = {}
    for path in held.paths():
        releases: dict[str, int] = {}
        with closing(Ledger.read(path)) as ledger:
            for run, _, event, count, _ in ledger.debits():
                if run == held.run:
                    releases[event] = releases.get(event, 0) + count
        found[path.stem] = OrderedReleases(releases)
    return found


@dataclass(frozen=True)
class NodeStatementFile:
    """A statement that its own key signed, from a file."""

    file: Path
    words: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.words["node"])

    @property
    def key(self) -> str:
        return str(self.words["public_key"])

    @property
    def run(self) -> Mapping[str, Any]:
        return self.words["run"] or {"id": "", "releases": {}}

    @property
    def text(self) -> str:
        words = self.words
        return (
            f"for one {words['unit']} ({words['neighbours']}), delta {words['delta']:g}, proven "
            f"{words['proven']} of "
            f"{words['limit']:g} in all ({words['accountant']}), against {words['adversary']}; "
            f"{sum(self.run['releases'].values())} releases for this run"
        )


def verify_nodes(
    files: Sequence[Path], certificate: Certificate, folder: RunFolder | None
) -> list[VerificationCheck]:
    """The statements of a run's nodes: each by itself, and whether they are all, and each once.

    Args:
        files: The statements. certificate: That of the run. folder: The run's, where it is here: it
        knows every node, its key, and what was ordered of it.
    """
    if certificate.trained.partition != NODES:
        words = "the certified run had no nodes, so that no statement of a node belongs to it."
        return [VerificationCheck(file.stem, "", (f"{file.name}: {words}",)) for file in files]
    try:
        expected = ExpectedNodes.of(certificate, folder)
    except UNUSABLE as error:
        return (
            [VerificationCheck("nodes", "", (f"Who took part in the run cannot be read: {error}",))]
            if files
            else []
        )
    if not files:
        named = ", ".join(expected.names) or f"{expected.nodes} nodes"
        words = (
            "What these spent by their own ledgers, whose signed statements were not given: "
            f"{named}."
        )
        return [
            VerificationCheck(
                "nodes",
                "statements not given: they lie in nodes/ of the run's folder",
                unchecked=(words,),
            )
        ]
    checks, given = [], []
    for file in files:
        try:
            given.append(_read(file))
            checks.append(_checked(given[-1], certificate, expected))
        except UNUSABLE as error:
            checks.append(VerificationCheck(file.stem, "", (f"{file.name}: {error}",)))
    return [*checks, _together(given, expected)]


def _read(file: Path) -> NodeStatementFile:
    envelope = strict_json(file.read_text())
    return NodeStatementFile(
        file, statement.check(envelope, str(envelope["statement"]["public_key"]))
    )


def _checked(
    given: NodeStatementFile, certificate: Certificate, expected: ExpectedNodes
) -> VerificationCheck:
    text = given.text
    if expected.names and given.name not in expected.names:
        return VerificationCheck(
            given.name, "", (f"{given.file.name}: the run had no node {given.name}.",)
        )
    findings = [
        f"The statement of {given.name} {fault}." for fault in _faults(given, certificate, expected)
    ]
    ordered, unchecked = expected.ordered.get(given.name), []
    if ordered and not ordered.exact:
        unchecked.append(
            f"Whether {given.name} made all releases that were ordered: the certificate counts "
            "others with them."
        )
    known = f"{KEY_OF}{given.name}" in expected.hashes
    whose = (
        "by the key that the run lists"
        if known
        else f"by the key {given.key[:16]}..., to be compared with its owner"
    )
    return VerificationCheck(
        given.name, f"signed {whose}: {text}", tuple(findings), tuple(unchecked)
    )


def _faults(
    given: NodeStatementFile, certificate: Certificate, expected: ExpectedNodes
) -> Iterator[str]:
    """What a statement says that its run does not."""
    words, stated = given.words, certificate.guarantee
    if expected.hashes.get(f"{KEY_OF}{given.name}", key := fingerprint(given.key)) != key:
        yield "is not signed by the key that the run lists"
    if words["run"] is None:
        yield "is of no run"
    elif (
        expected.hashes.get(
            NODES_RUN, known := hashlib.sha256(str(given.run["id"]).encode()).hexdigest()
        )
        != known
    ):
        yield "is of another run"
    if not accountant(words["accountant"]).proven:
        yield f"is by {words['accountant']}, which is an approximation and proves nothing"
    if words["delta"] > stated.delta:
        yield f"holds with delta {words['delta']:g}, where the run's is {stated.delta:g}"
    pays = given.name in expected.ordered
    for word in ("unit", "neighbours") if pays else ():
        if words[word] != getattr(stated, word):
            yield (
                f"is for another {word} than the run: {words[word]!r}, not "
                f"{getattr(stated, word)!r}"
            )
    if words["run"] is not None:
        yield from _releases(
            given, expected.ordered.get(given.name, OrderedReleases({}, exact=bool(expected.names)))
        )


def _releases(given: NodeStatementFile, ordered: OrderedReleases) -> Iterator[str]:
    """Of every kind as many as were ordered. Where there are fewer, nobody here can tell whether
    they were made.
    """
    made, everything = given.run["releases"], given.words["releases"]
    if any(type(count) is not int or count < 1 for count in (*made.values(), *everything.values())):
        yield "counts releases that are no whole numbers above 0"
        return
    for event in sorted({*made, *ordered.releases}):
        own, asked, kind = (
            made.get(event, 0),
            ordered.releases.get(event, 0),
            describe(decode(event)),
        )
        if own > everything.get(event, 0):
            yield (
                f"counts {own} x {kind} for this run, and {everything.get(event, 0)} for all of "
                "its runs"
            )
        if own > asked:
            yield (
                f"differs from what was ordered: {given.name} counts {own} x {kind}, the server "
                f"{asked}"
            )
        elif own < asked and ordered.exact:
            why = "the others were refused or lost on the way, or are missing from its ledger"
            yield (
                f"differs from what was ordered: {given.name} counts {own} x {kind}, the server "
                f"{asked}; {why}"
            )


def _together(given: Sequence[NodeStatementFile], expected: ExpectedNodes) -> VerificationCheck:
    """Every node of the run, and each once: by its name, and by its key."""
    findings, names, keys = [], dict[str, NodeStatementFile](), dict[str, NodeStatementFile]()
    for one in given:
        if one.name in names:
            findings.append(
                f"The statement of {one.name} was given twice: {names[one.name].file.name} and "
                f"{one.file.name}."
            )
        elif one.key in keys:
            findings.append(
                f"{one.name} and {keys[one.key].name} signed with one key, so that one of them is "
                "not its node."
            )
        names.setdefault(one.name, one)
        keys.setdefault(one.key, one)
    runs = {str(one.run["id"]) for one in given if one.words["run"] is not None}
    if len(runs) > 1:
        findings.append(f"The statements are of {len(runs)} runs.")
    missing = [name for name in expected.names if name not in names]
    findings += [
        f"The statement of {name} is missing: it took part in the run." for name in missing
    ]
    if not expected.names and len(names) != expected.nodes:
        findings.append(f"{len(names)} of {expected.nodes} nodes have a statement here.")
    return VerificationCheck(
        "nodes",
        f"{len(names)}, every node of the run",
        tuple(findings),
        tuple(_unknown(given, expected)),
    )


def _unknown(given: Sequence[NodeStatementFile], expected: ExpectedNodes) -> Iterator[str]:
    strange = [
        f"{one.name} ({fingerprint(one.key)})"
        for one in given
        if f"{KEY_OF}{one.name}" not in expected.hashes
    ]
    if strange:
        yield (
            "Whose keys signed for these nodes; compare them with their owners: "
            f"{', '.join(strange)}."
        )
    if given:
        yield "When the nodes signed, their limits and their versions: as they say."
    if headless := [one.name for one in given if "ledger_head" not in one.words]:
        yield (
            f"What was fixed beforehand, and against whom it holds: {', '.join(headless)} "
            "signed "
            "no head of a ledger."
        )
    if NODES_RUN not in expected.hashes:
        yield (
            "Whether the nodes speak of this run, which the certificate does not say: give the "
            "run's folder with --run."
        )
