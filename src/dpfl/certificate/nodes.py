"""Checks the statements that nodes have signed against the certificate of the run.

Each statement is signed by the node's own key. It says what the node has spent by its own ledger.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpfl.certificate.check import VerificationCheck
from dpfl.certificate.figures import same_figure
from dpfl.certificate.finished_run import accounts_of
from dpfl.certificate.reading import strict_json
from dpfl.certificate.seals import KEY_OF, NODES_RUN, node_hashes
from dpfl.certificate.sections import AccountSection, Certificate
from dpfl.data.remote_federation import NODES
from dpfl.errors import DpflError
from dpfl.node import statement
from dpfl.privacy import Ledger
from dpfl.privacy.accounting.accountant import accountant
from dpfl.privacy.accounting.events import decode, describe
from dpfl.privacy.ledger.client_ledgers import FEDERATION
from dpfl.protocol.keys import fingerprint
from dpfl.run.accounting.accounts import Accounts
from dpfl.run.records.folder import RunFolder
from dpfl.run.records.record_file import recorded_names

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
"""What reading a file raises where anybody may have written the file."""


@dataclass(frozen=True)
class OrderedReleases:
    """The releases that the server has requested from a node.

    Attributes:
        releases: Their number, by event.
        exact: False where only the certificate is available and it counts other releases, too.
    """

    releases: Mapping[str, int]
    exact: bool = True


@dataclass(frozen=True)
class ExpectedNodes:
    """The nodes that took part in a run, and what the server has requested from each of them.

    Attributes:
        names: The nodes. Empty where the run has one account for the federation and its folder is
            not available.
        nodes: Their number.
        hashes: Hashes of the nodes' keys, and of what the nodes know the run by.
        orders: The releases that were requested from each node that pays for itself.
    """

    names: Sequence[str]
    nodes: int
    hashes: Mapping[str, str]
    orders: Mapping[str, OrderedReleases]

    @classmethod
    def of(cls, certificate: Certificate, folder: RunFolder | None) -> ExpectedNodes:
        """Reads who took part, from the folder of the run or else from the certificate.

        Args:
            certificate: The contents of the certificate.
            folder: The folder of the run, where it is available.

        Returns:
            The nodes that are expected to have a statement.

        Raises:
            DpflError: The folder cannot be read.
        """
        if folder is None:
            accounts = [account for account in certificate.accounts if account.name != FEDERATION]
            exact = same_figure(certificate.guarantee.used, certificate.guarantee.proven)
            orders = {account.name: _listed_releases(account, exact) for account in accounts}
            return cls(list(orders), certificate.trained.clients, certificate.hashes, orders)
        record = folder.record()
        accounts_here = accounts_of(folder, record)
        names = recorded_names(record["resolved"])
        return cls(names, len(names), node_hashes(record), _requested_releases(accounts_here))


def _listed_releases(account: AccountSection, exact: bool) -> OrderedReleases:
    """Reads what an account lists: exact if it has no other run, and no plan replaces releases."""
    releases = {release.event: release.count for release in account.releases}
    return OrderedReleases(releases, exact and not account.other_runs)


def _requested_releases(accounts: Accounts) -> dict[str, OrderedReleases]:
    """Counts the releases of this run in the server's own ledgers.

    The result is empty where the nodes pay for nothing themselves.
    """
    if not accounts.algorithm.ledger_per_client:
        return {}
    orders = {}
    for path in accounts.paths():
        releases: dict[str, int] = {}
        with closing(Ledger.read(path)) as ledger:
            for run, _, event, count, _ in ledger.debits():
                if run == accounts.run:
                    releases[event] = releases.get(event, 0) + count
        orders[path.stem] = OrderedReleases(releases)
    return orders


@dataclass(frozen=True)
class NodeStatementFile:
    """A statement from a file, signed by the key that it contains.

    Attributes:
        file: The file.
        words: The content of the statement.
    """

    file: Path
    words: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the node."""
        return str(self.words["node"])

    @property
    def key(self) -> str:
        """The public key that has signed the statement."""
        return str(self.words["public_key"])

    @property
    def run(self) -> Mapping[str, Any]:
        """The run that the statement lists separately; empty where it lists none."""
        return self.words["run"] or {"id": "", "releases": {}}

    @property
    def text(self) -> str:
        """The statement in words."""
        words = self.words
        return (
            f"epsilon {words['proven']} proven of {words['limit']:g} allowed in total, for one "
            f"{words['unit']} ({words['neighbours']}), delta {words['delta']:g}, by "
            f"{words['accountant']}, against {words['adversary']}; "
            f"{sum(self.run['releases'].values())} releases for this run"
        )


def verify_nodes(
    files: Sequence[Path], certificate: Certificate, folder: RunFolder | None
) -> list[VerificationCheck]:
    """Checks each statement, and that there is exactly one per node of the run.

    Args:
        files: The statements.
        certificate: The contents of the certificate of the run.
        folder: The folder of the run, where it is available. It names every node, its key, and what
            the server has requested from it.

    Returns:
        One check per statement, and one for all of them together.
    """
    if certificate.trained.partition != NODES:
        words = "the certified run had no nodes, so no statement of a node belongs to it."
        return [VerificationCheck(file.stem, "", (f"{file.name}: {words}",)) for file in files]
    try:
        expected_nodes = ExpectedNodes.of(certificate, folder)
    except UNUSABLE as error:
        finding = f"Who took part in the run cannot be read: {error}"
        return [VerificationCheck("nodes", "", (finding,))] if files else []
    if not files:
        return [_without_statements(expected_nodes)]
    checks, statements = [], []
    for file in files:
        try:
            statements.append(_read(file))
            checks.append(_check_statement(statements[-1], certificate, expected_nodes))
        except UNUSABLE as error:
            checks.append(VerificationCheck(file.stem, "", (f"{file.name}: {error}",)))
    return [*checks, _together(statements, expected_nodes)]


def _without_statements(expected_nodes: ExpectedNodes) -> VerificationCheck:
    nodes = ", ".join(expected_nodes.names) or f"{expected_nodes.nodes} nodes"
    not_checked = (
        "What these nodes spent by their own ledgers, since their signed statements were not "
        f"given: {nodes}."
    )
    outcome = "statements not given; they are in nodes/ in the run's folder"
    return VerificationCheck("nodes", outcome, not_checked=(not_checked,))


def _read(file: Path) -> NodeStatementFile:
    envelope = strict_json(file.read_text())
    return NodeStatementFile(
        file, statement.check(envelope, str(envelope["statement"]["public_key"]))
    )


def _check_statement(
    statement_file: NodeStatementFile, certificate: Certificate, expected_nodes: ExpectedNodes
) -> VerificationCheck:
    text = statement_file.text
    if expected_nodes.names and statement_file.name not in expected_nodes.names:
        return VerificationCheck(
            statement_file.name,
            "",
            (f"{statement_file.file.name}: the run had no node {statement_file.name}.",),
        )
    findings = [
        f"The statement of {statement_file.name} {fault}."
        for fault in _faults(statement_file, certificate, expected_nodes)
    ]
    order, not_checked = expected_nodes.orders.get(statement_file.name), []
    if order and not order.exact:
        not_checked.append(
            f"Whether {statement_file.name} made all requested releases: the certificate counts "
            "releases of other runs with them."
        )
    is_listed = f"{KEY_OF}{statement_file.name}" in expected_nodes.hashes
    whose = (
        "by the key that the run lists"
        if is_listed
        else f"by the key {statement_file.key[:16]}..., to be confirmed with its owner"
    )
    return VerificationCheck(
        statement_file.name, f"signed {whose}: {text}", tuple(findings), tuple(not_checked)
    )


def _faults(
    statement_file: NodeStatementFile, certificate: Certificate, expected_nodes: ExpectedNodes
) -> Iterator[str]:
    """Finds where a statement contradicts its run."""
    words, guarantee = statement_file.words, certificate.guarantee
    if (
        expected_nodes.hashes.get(
            f"{KEY_OF}{statement_file.name}", key := fingerprint(statement_file.key)
        )
        != key
    ):
        yield "is not signed by the key that the run lists"
    if words["run"] is None:
        yield "names no run"
    elif (
        expected_nodes.hashes.get(
            NODES_RUN,
            run_hash := hashlib.sha256(str(statement_file.run["id"]).encode()).hexdigest(),
        )
        != run_hash
    ):
        yield "is for another run"
    if not accountant(words["accountant"]).proven:
        yield f"uses {words['accountant']}, which is an approximation and proves nothing"
    if words["delta"] > guarantee.delta:
        yield f"holds at delta {words['delta']:g}; the run's delta is {guarantee.delta:g}"
    pays = statement_file.name in expected_nodes.orders
    for word in ("unit", "neighbours") if pays else ():
        if words[word] != getattr(guarantee, word):
            yield (
                f"is for another {word} than the run: {words[word]!r}, not "
                f"{getattr(guarantee, word)!r}"
            )
    if words["run"] is not None:
        yield from _releases(
            statement_file,
            expected_nodes.orders.get(
                statement_file.name, OrderedReleases({}, exact=bool(expected_nodes.names))
            ),
        )


def _releases(statement_file: NodeStatementFile, order: OrderedReleases) -> Iterator[str]:
    """Compares the number of releases of every kind with what the server has requested.

    Where there are fewer, nobody here can tell whether they were made.
    """
    own_releases, everything = statement_file.run["releases"], statement_file.words["releases"]
    if any(
        type(count) is not int or count < 1
        for count in (*own_releases.values(), *everything.values())
    ):
        yield "has counts of releases that are not positive integers"
        return
    for event in sorted({*own_releases, *order.releases}):
        own_count, requested_count = own_releases.get(event, 0), order.releases.get(event, 0)
        kind = describe(decode(event))
        if own_count > everything.get(event, 0):
            yield (
                f"counts {own_count} x {kind} for this run, and {everything.get(event, 0)} for "
                "all of its runs"
            )
        if own_count > requested_count:
            yield (
                f"differs from what was requested: {statement_file.name} counts {own_count} x "
                f"{kind}, the server {requested_count}"
            )
        elif own_count < requested_count and order.exact:
            why = "the others were refused or lost on the way, or are missing from its ledger"
            yield (
                f"differs from what was requested: {statement_file.name} counts {own_count} x "
                f"{kind}, the server {requested_count}; {why}"
            )


def _together(
    statements: Sequence[NodeStatementFile], expected_nodes: ExpectedNodes
) -> VerificationCheck:
    """Checks that every node of the run has one statement, by its name and by its key."""
    findings, names, keys = [], dict[str, NodeStatementFile](), dict[str, NodeStatementFile]()
    for statement_file in statements:
        if statement_file.name in names:
            findings.append(
                f"The statement of {statement_file.name} was given twice: "
                f"{names[statement_file.name].file.name} and {statement_file.file.name}."
            )
        elif statement_file.key in keys:
            findings.append(
                f"{statement_file.name} and {keys[statement_file.key].name} signed with the same "
                "key, so one of these statements is not from its node."
            )
        names.setdefault(statement_file.name, statement_file)
        keys.setdefault(statement_file.key, statement_file)
    runs = {
        str(statement_file.run["id"])
        for statement_file in statements
        if statement_file.words["run"] is not None
    }
    if len(runs) > 1:
        findings.append(f"The statements are for {len(runs)} different runs.")
    missing = [name for name in expected_nodes.names if name not in names]
    findings += [
        f"The statement of {name}, which took part in the run, is missing." for name in missing
    ]
    if not expected_nodes.names and len(names) != expected_nodes.nodes:
        findings.append(f"{len(names)} of {expected_nodes.nodes} nodes have a statement here.")
    return VerificationCheck(
        "nodes",
        f"{len(names)}, every node of the run",
        tuple(findings),
        tuple(_unknown(statements, expected_nodes)),
    )


def _unknown(
    statements: Sequence[NodeStatementFile], expected_nodes: ExpectedNodes
) -> Iterator[str]:
    strange = [
        f"{statement_file.name} ({fingerprint(statement_file.key)})"
        for statement_file in statements
        if f"{KEY_OF}{statement_file.name}" not in expected_nodes.hashes
    ]
    if strange:
        yield (
            "Whose keys signed for these nodes; confirm them with their owners: "
            f"{', '.join(strange)}."
        )
    if statements:
        yield "When the nodes signed, their limits and their versions: as the nodes state them."
    if headless := [
        statement_file.name
        for statement_file in statements
        if "ledger_head" not in statement_file.words
    ]:
        yield (
            "What was fixed in advance, and against whom the guarantee holds: "
            f"{', '.join(headless)} signed no head of a ledger."
        )
    if NODES_RUN not in expected_nodes.hashes:
        yield (
            "Whether the statements are for this run. The certificate does not say; give the "
            "run's folder with --run."
        )
