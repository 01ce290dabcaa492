"""Counts in a node's ledger what the node released and the ledger lacks (`dpfl ledger reconcile`).

Nothing is subtracted and nothing is forgotten. For each missing head, the ledger adds what that
head counts beyond the rows that both chains share. What only the log or the task log knows of is
added after that. Where the evidence disagrees, the larger count is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.node.history.logged_releases import (
    LoggedRelease,
    missing_releases,
    read_log,
    total_counts,
)
from dpfl.node.history.rollback import includes, is_behind, missing
from dpfl.node.history.signed_heads import own_heads
from dpfl.node.history.witness import Witness
from dpfl.node.policy import NodePolicy
from dpfl.node.storage.folder import open_ledger_at
from dpfl.node.storage.journal import OLDER_FILES
from dpfl.node.storage.task_log import TaskLog
from dpfl.privacy import Ledger
from dpfl.privacy.accounting.events import Event, EventCounts, add, max_events, subtract_events
from dpfl.privacy.ledger.client_ledgers import ledger_path
from dpfl.privacy.ledger.database import remove_database
from dpfl.privacy.ledger.ledger import LedgerAccount, check_same_kind
from dpfl.privacy.ledger.starts import (
    ANCHOR_DIGITS,
    NODE_PREFIX,
    NodeStart,
    anchors_row,
    common_rows,
    reconciliation_row,
)
from dpfl.protocol.keys import public_key_hex
from dpfl.protocol.known_heads import KnownHeads
from dpfl.protocol.ledger_head import HeadSet, LedgerHead, SignedHead, sign_head


@dataclass(frozen=True)
class Reconciliation:
    """The spending that was added to a ledger.

    Attributes:
        path: The ledger.
        before: What it counted before.
        added_events: What was added.
        heads: How many signed heads were missing.
    """

    path: Path
    before: EventCounts
    added_events: EventCounts
    heads: int


def reconcile(
    policy: NodePolicy, key: Ed25519PrivateKey, data: Federation, files: Sequence[Path] = ()
) -> Reconciliation:
    """Counts in the node's ledger at least all that the node signed.

    If anything was added, the runs that were under way are over for this node.

    Args:
        policy: The node's policy. The caller holds the lock of its folder.
        key: The node's key.
        data: The node's data, which a new ledger is bound to.
        files: More evidence: statements and heads as JSON.

    Returns:
        What was added.

    Raises:
        DpflError: The ledger is gone and nothing shows all that it held; or a head is of another
            kind of ledger.
    """
    path = ledger_path(policy.ledgers, policy.name)
    heads = own_heads(policy, public_key_hex(key.public_key()), files)
    is_gone = not path.exists()
    if is_gone:
        _refuse_incomplete_log(policy, path, heads)
    # A new ledger appears under its name with all that it counts, or not at all.
    new_path = path.with_name(f"{path.name}.unfinished") if is_gone else path
    if is_gone:
        remove_database(new_path)
    with closing(open_ledger_at(policy, data, new_path)) as ledger:
        before, lacking = ledger.spending(), missing(ledger, heads)
        must_count = is_gone or bool(lacking) or is_behind(policy, ledger)
        if must_count:
            _add_all(ledger, lacking, policy.folder)
        added_events = subtract_events(ledger.spending(), before)
        if policy.witness and not policy.witness.exists():
            Witness(policy.witness, public_key_hex(key.public_key())).begin(sign_head(ledger, key))
    if is_gone:
        new_path.replace(path)
    if must_count:
        TaskLog.put_away(policy.folder)
    KnownHeads(policy.folder).forget_own()
    return Reconciliation(path, before, added_events, len(lacking))


def _refuse_incomplete_log(policy: NodePolicy, path: Path, heads: HeadSet) -> None:
    """Refuses a log that does not go back to the node's first release, where there is neither a
    ledger nor a head.
    """
    if not heads and (policy.folder / f"node.log.{OLDER_FILES}").exists():
        raise DpflError(
            f"The ledger {path} is gone, and its log does not go back to the beginning: give a "
            "signed statement or a server's "
            "heads.json, or end the use of this data."
        )


def _add_all(ledger: Ledger, lacking: Sequence[SignedHead], folder: Path) -> None:
    """Adds all that was signed, and then the releases that only the log and the task log have."""
    entries = read_log(folder)
    reported_counts = max_events(total_counts(entries), TaskLog.counts_in(folder))
    ledger.start(max((signed_head.head.boot for signed_head in lacking), default=0))
    for signed_head in lacking:
        _add_head(ledger, signed_head.head)
    unsigned_releases = missing_releases(ledger, entries)
    if rest := max_events(
        subtract_events(reported_counts, ledger.spending()), total_counts(unsigned_releases)
    ):
        ledger.add_spending(
            f"{NODE_PREFIX}told/{ledger.starts[0].name}",
            {(event, ""): rest[event] for event in rest},
            {},
        )
    for last in _last_of_each_start(unsigned_releases):
        ledger.write_once(
            reconciliation_row(last.tail.seal, (NodeStart(1, last.start, last.tail.links),))
        )


def _last_of_each_start(lines: Sequence[LoggedRelease]) -> list[LoggedRelease]:
    by_row = sorted(lines, key=lambda signed_head: signed_head.tail.links)
    return list({signed_head.start: signed_head for signed_head in by_row}.values())


def _add_head(ledger: Ledger, head: LedgerHead) -> None:
    """Adds what the head's chain counts beyond the rows that it shares with this ledger."""
    if includes(ledger, head):
        return  # as a part of another head that was added
    _refuse_other_kind(ledger, head)
    shared_events = ledger.spending_until(_shared_rows(ledger, head))
    rest: dict[tuple[Event, str], int] = {}
    for event, mark, count in sorted(head.releases, key=lambda kind: bool(kind[1])):
        in_both = min(shared_events.get(event, 0), count)
        shared_events = add(shared_events, event, -in_both)
        if count > in_both:
            rest[event, mark] = count - in_both
    ledger.write_once(anchors_row(head.seal, dict(head.anchors)))
    ledger.add_spending(reconciliation_row(head.seal, head.starts), rest, dict(head.planned_counts))


def _shared_rows(ledger: Ledger, head: LedgerHead) -> int:
    """Counts the rows that both chains have for certain: up to an anchor of the head, or to the row
    of a start.
    """
    anchors = dict(head.anchors)
    common_anchors = [
        signed_head.links
        for signed_head in ledger.tails_at(list(anchors))
        if signed_head.seal[:ANCHOR_DIGITS] == anchors[signed_head.links]
    ]
    return max([common_rows(ledger.starts, head.starts), *common_anchors])


def _refuse_other_kind(ledger: Ledger, head: LedgerHead) -> None:
    """Refuses a head that counts for another unit or other neighbours. Such counts cannot be added
    up.
    """
    account, signed_for = ledger.account, LedgerAccount(head.node, head.unit, head.neighbours)
    try:
        check_same_kind(ledger.path, account, signed_for)
    except DpflError:
        raise DpflError(
            f"This node signed releases for one {head.unit} (neighbours: {head.neighbours}), and "
            f"its ledger {ledger.path} "
            f"counts for one {account.unit} (neighbours: {account.neighbours}): they cannot be "
            "added up. Bring back the policy and "
            "the ledger of before; for another unit set up a node with a name and a key of its "
            "own, and lower its limits by "
            "what was spent."
        ) from None
