"""Whether a node's ledger includes all that the node once signed, and what its owner adds where it
does not.

A disk can be set back: a backup that is restored, a folder that is copied, a file that is deleted.
What was signed remains elsewhere: in replies that were kept, in the witness file, in what servers
and other nodes remember.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.node.folder import open_own
from dpfl.node.journal import KEPT as OLDER_LOGS
from dpfl.node.policy import NodePolicy
from dpfl.node.task_log import TaskLog
from dpfl.node.witness import Witness
from dpfl.privacy import Ledger
from dpfl.privacy.accounting.events import (
    Event,
    EventCounts,
    add,
    decode,
    max_events,
    subtract_events,
)
from dpfl.privacy.ledger.chain import ChainTail
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
from dpfl.protocol import messages
from dpfl.protocol.keys import is_signed, raw
from dpfl.protocol.known_heads import KnownHeads
from dpfl.protocol.ledger_head import (
    MOST_OWN,
    HeadSet,
    LedgerHead,
    SignedHead,
    head_from_words,
    sign_head,
)
from dpfl.refusals import ProtocolError

AT_ONCE = 500
"""Rows of a ledger that are asked for together."""
DEEPEST = 6
"""Levels of a JSON file that are searched for what a node signed."""


def own_heads(charter: NodePolicy, public_key: str, files: Sequence[Path] = ()) -> HeadSet:
    """Every head that the node signed, as far as anything on its disk, its witness and the given
    files say.

    Args:
        charter: The node's policy.
        public_key: The node's own; what another key signed is left out.
        files: Statements and heads as JSON, such as a server's `heads.json`.

    Returns:
        The furthest head of each start.

    Raises:
        DpflError: A file cannot be read, or the witness holds something else.
    """
    found = HeadSet(most=MOST_OWN)
    for one in _all_heads(charter, public_key, files):
        if (one.head.node, one.head.public_key) == (charter.name, public_key):
            found.add(one)
    return found


def _all_heads(charter: NodePolicy, public_key: str, files: Sequence[Path]) -> Iterator[SignedHead]:
    yield from KnownHeads(charter.folder).own
    yield from _kept(charter, public_key)
    if charter.witness:
        yield from Witness(charter.witness, public_key).heads()
    for file in files:
        try:
            yield from _in_words(json.loads(file.read_text()), public_key)
        except (OSError, ValueError, RecursionError) as error:
            raise DpflError(
                f"{file} cannot be read as JSON ({error}); give statements, or a server's "
                "heads.json."
            ) from error


def _kept(charter: NodePolicy, public_key: str) -> Iterator[SignedHead]:
    """Those of replies that may have left."""
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
    for path in (charter.folder / "replies").glob("*.letter"):
        try:
            letter = path.read_bytes()
            yield head_from_words(messages.read(letter, key, len(letter)).head.get("ledger_head"))
        except (OSError, ProtocolError):
            continue


def _in_words(words: Any, public_key: str, depth: int = 0) -> Iterator[SignedHead]:
    """Heads and statements anywhere in a JSON file."""
    if isinstance(words, dict):
        if words.keys() == {"head", "signature"}:
            try:
                yield head_from_words(words)
            except ProtocolError:
                return
        elif one := _of_statement(words, public_key):
            yield one
    if isinstance(words, dict | list) and depth < DEEPEST:
        for part in words.values() if isinstance(words, dict) else words:
            yield from _in_words(part, public_key, depth + 1)


def _of_statement(given: dict[str, Any], public_key: str) -> SignedHead | None:
    """What a statement without a head says: of versions that signed none."""
    said, signature = given.get("statement"), given.get("signature")
    if not isinstance(said, dict) or "ledger_head" in said or said.get("public_key") != public_key:
        return None
    if not isinstance(signature, str) or not is_signed(said, signature, public_key):
        return None
    spent = tuple((decode(line), "", int(count)) for line, count in said["releases"].items())
    at = said["ledger"]
    words = (
        said["node"],
        public_key,
        said["unit"],
        said["neighbours"],
        at["rows"],
        at["seal"],
        (),
        spent,
        (),
    )
    return SignedHead(LedgerHead(*words), signature)


def missing(ledger: Ledger, heads: Iterable[SignedHead]) -> list[SignedHead]:
    """Those heads that the ledger does not include."""
    return [one for one in heads if not _includes(ledger, one.head)]


def _includes(ledger: Ledger, head: LedgerHead) -> bool:
    return ledger.includes(head.tail, head.start, dict(head.anchors))


def refuse_missing(charter: NodePolicy, ledger: Ledger, heads: Iterable[SignedHead]) -> None:
    """One sentence where the ledger lacks what the node signed, or what its own orders and log tell
    of.
    """
    if (
        missing(ledger, heads)
        or not ledger.contains(TaskLog.seen_in(charter.folder))
        or _unlogged(ledger, charter.folder)
    ):
        raise DpflError(
            f"The ledger {ledger.path} is older than what was spent since, or is a copy of one "
            "that went another way: it lacks "
            "releases that this node signed. Stop every copy but one, then count them with: dpfl "
            "ledger reconcile "
            f"{charter.folder / 'policy.toml'}"
        )


def refuse_traces(charter: NodePolicy) -> None:
    """A node that has worked and has no ledger does not begin at zero."""
    path = ledger_path(charter.ledgers, charter.name)
    if path.exists():
        return
    if traces := _traces(charter):
        raise DpflError(
            f"The ledger {path} is gone, and what it held was spent: {', '.join(traces)} show that "
            "this node has worked. Bring "
            "it back from a copy, or count what was signed with: dpfl ledger reconcile "
            f"{charter.folder / 'policy.toml'}"
        )


def _traces(charter: NodePolicy) -> list[str]:
    folder = charter.folder
    found = [path.name for path in sorted(folder.glob("node.log*"))]
    if any((folder / "replies").glob("*.letter")):
        found.append("replies")
    if TaskLog.seen_in(folder).links:
        found.append("orders.sqlite")
    if KnownHeads(folder).own:
        found.append("heads.json")
    if charter.witness and charter.witness.exists():
        found.append(str(charter.witness))
    return found


@dataclass(frozen=True)
class Reconciliation:
    """What a ledger counted before, and what was added to it."""

    path: Path
    before: EventCounts
    added: EventCounts
    heads: int
    """Signed heads that were missing."""


def reconcile(
    charter: NodePolicy, key: Ed25519PrivateKey, data: Federation, files: Sequence[Path] = ()
) -> Reconciliation:
    """Count in the node's ledger at least all that the node signed.

    Args:
        charter: The node's policy; the caller holds the lock of its folder.
        key: The node's own.
        data: What the node has, which a new ledger is bound to.
        files: More evidence: statements and heads as JSON.

    Returns:
        What was added. Runs that were under way are over for this node, if anything was.

    Raises:
        DpflError: The ledger is gone and nothing shows all that it held; or a head is of another
        kind of ledger.
    """
    path, heads = (
        ledger_path(charter.ledgers, charter.name),
        own_heads(charter, raw(key.public_key()), files),
    )
    gone = not path.exists()
    if gone and not heads and (charter.folder / f"node.log.{OLDER_LOGS}").exists():
        raise DpflError(
            f"The ledger {path} is gone, and its log does not go back to the beginning: give a "
            "signed statement or a server's "
            "heads.json, or end the use of this data."
        )
    at = path.with_name(f"{path.name}.unfinished") if gone else path
    if gone:
        remove_database(at)
    with closing(open_own(charter, data, at)) as ledger:
        before, lost = ledger.spending(), missing(ledger, heads)
        ahead = not ledger.contains(TaskLog.seen_in(charter.folder)) or bool(
            _unlogged(ledger, charter.folder)
        )
        if needed := gone or bool(lost) or ahead:
            logged = _log_lines(charter.folder)
            _add_all(
                ledger, lost, max_events(_total(logged), TaskLog.counts_in(charter.folder)), logged
            )
        added = subtract_events(ledger.spending(), before)
        if charter.witness and not charter.witness.exists():
            Witness(charter.witness, raw(key.public_key())).begin(sign_head(ledger, key))
    if gone:
        at.replace(path)  # a ledger appears with all that it counts, or not at all
    if needed:
        TaskLog.put_away(charter.folder)
    KnownHeads(charter.folder).forget_own()
    return Reconciliation(path, before, added, len(lost))


def _add_all(
    ledger: Ledger,
    lost: Sequence[SignedHead],
    told: EventCounts,
    logged: Sequence[LoggedRelease] = (),
) -> None:
    """All that was signed; and what log and orders tell of beyond that, which nobody signed."""
    ledger.start(max((one.head.boot for one in lost), default=0))
    for one in lost:
        _add(ledger, one.head)
    unsigned = _missing_lines(ledger, logged)
    if rest := max_events(subtract_events(told, ledger.spending()), _total(unsigned)):
        ledger.add_spending(
            f"{NODE_PREFIX}told/{ledger.starts[0].name}",
            {(event, ""): rest[event] for event in rest},
            {},
        )
    for last in {
        one.start: one for one in sorted(unsigned, key=lambda one: one.tail.links)
    }.values():
        ledger.write_once(
            reconciliation_row(last.tail.seal, (NodeStart(1, last.start, last.tail.links),))
        )


def _add(ledger: Ledger, head: LedgerHead) -> None:
    """What that chain counts beyond the rows that it shares with this one."""
    if _includes(ledger, head):
        return  # as a part of another that was added
    _refuse_other_kind(ledger, head)
    known = ledger.spending_until(_shared_rows(ledger, head))
    rest: dict[tuple[Event, str], int] = {}
    for event, mark, count in sorted(head.spent, key=lambda kind: bool(kind[1])):
        shared = min(known.get(event, 0), count)
        known = add(known, event, -shared)
        if count > shared:
            rest[event, mark] = count - shared
    ledger.write_once(anchors_row(head.seal, dict(head.anchors)))
    ledger.add_spending(reconciliation_row(head.seal, head.starts), rest, dict(head.planned))


def _shared_rows(ledger: Ledger, head: LedgerHead) -> int:
    """Rows that both chains have for certain: up to an anchor of the head, or to the row of a
    start.
    """
    anchors = dict(head.anchors)
    passed = [
        one.links
        for one in ledger.tails_at(list(anchors))
        if one.seal[:ANCHOR_DIGITS] == anchors[one.links]
    ]
    return max([common_rows(ledger.starts, head.starts), *passed])


def _refuse_other_kind(ledger: Ledger, head: LedgerHead) -> None:
    """A node that changed its unit or neighbours under one key cannot add up what it signed
    before.
    """
    found, signed_for = ledger.account, LedgerAccount(head.node, head.unit, head.neighbours)
    try:
        check_same_kind(ledger.path, found, signed_for)
    except DpflError:
        raise DpflError(
            f"This node signed releases for one {head.unit} (neighbours: {head.neighbours}), and "
            f"its ledger {ledger.path} "
            f"counts for one {found.unit} (neighbours: {found.neighbours}): they cannot be added "
            "up. Bring back the policy and "
            "the ledger of before; for another unit set up a node with a name and a key of its "
            "own, and lower its limits by "
            "what was spent."
        ) from None


@dataclass(frozen=True)
class LoggedRelease:
    """A line of the node's log that tells of releases: what was made, and where the ledger's chain
    ended then.
    """

    event: Event
    count: int
    tail: ChainTail
    """Empty in logs of earlier versions."""
    start: str


def _log_lines(folder: Path) -> list[LoggedRelease]:
    """Every line of the logs that tells of releases, as they were written; whatever else stands
    there is left out.
    """
    found: list[LoggedRelease] = []
    for path in sorted(folder.glob("node.log*"), reverse=True):
        for line in path.read_text(errors="replace").splitlines():
            try:
                words = json.loads(line)
                row, seal, start = words.get("ledger") or (0, "", "")
                found.append(
                    LoggedRelease(
                        decode(words["release"]),
                        int(words["count"]),
                        ChainTail(int(row), str(seal)),
                        str(start),
                    )
                )
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError, DpflError):
                continue
    return found


def _missing_lines(ledger: Ledger, logged: Iterable[LoggedRelease]) -> list[LoggedRelease]:
    """Lines of releases that the ledger does not include, by where its chain ended then."""
    rows = sorted({one.tail.links for one in logged if one.tail.links})
    passed = {
        tail
        for first in range(0, len(rows), AT_ONCE)
        for tail in ledger.tails_at(rows[first : first + AT_ONCE])
    }
    beside = [one for one in logged if one.tail.links and one.tail not in passed]
    return [one for one in beside if not ledger.includes(one.tail, one.start)]


def _unlogged(ledger: Ledger, folder: Path) -> list[LoggedRelease]:
    """The last line of the log, if the ledger lacks what it tells of."""
    return _missing_lines(ledger, [one for one in _log_lines(folder) if one.tail.links][-1:])


def _total(lines: Iterable[LoggedRelease]) -> EventCounts:
    total: EventCounts = {}
    for one in lines:
        total = add(total, one.event, one.count)
    return total
