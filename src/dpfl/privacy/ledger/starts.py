"""Tells which copy of a ledger is the later one. Every start of a node is a row of the ledger's
chain.

A start's row has a random name. Two copies of a ledger that share a start are equal up to the row
of that start. Beyond it they are equal as far as seals of the same rows show: a machine whose
memory is set back with its disk goes another way under the same start. An *anchor* is such a seal,
shortened, of an earlier row. These rows lie in the table `runs`, under names that no run has.
"""

from __future__ import annotations

import re
import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpfl.privacy.ledger.chain import ChainTail

NODE_PREFIX = "node/"
"""The beginning of the names of rows that are no runs."""
_START = re.compile(rf"{NODE_PREFIX}start/(\d+)/([0-9a-f]{{16}})")
_RECONCILIATION = re.compile(rf"{NODE_PREFIX}reconciled/([0-9a-f]{{64}})/(.*)")
_ANCHORS = re.compile(rf"{NODE_PREFIX}anchors/([0-9a-f]{{64}})/(.*)")
ANCHOR_DIGITS = 32
"""Digits of a seal that are enough to tell chains apart."""
DENSE, SPREAD = 32, 2**0.125
"""Rows just before a head, all of which are anchors. Beyond them each anchor is a tenth farther
away.
"""

Anchors = Mapping[int, str]
"""Rows of a chain, each with the first digits of its seal."""


@dataclass(frozen=True)
class NodeStart:
    """One start of a node.

    Attributes:
        boot: How many starts there were, this one included.
        name: Its random name.
        end: The last row of the chain that belongs to it.
    """

    boot: int
    name: str
    end: int


def new_start(boot: int) -> str:
    """Names the row of a start. It has 64 random bits, so no two starts share a name.

    Args:
        boot: The number of the start.

    Returns:
        The row.
    """
    return f"{NODE_PREFIX}start/{boot}/{secrets.token_hex(8)}"


def reconciliation_row(seal: str, starts: Sequence[NodeStart]) -> str:
    """Names the row that says that another chain is counted here too.

    Args:
        seal: The last seal of that chain.
        starts: The starts of that chain.

    Returns:
        The row.
    """
    ends = ",".join(f"{start.name}:{start.end}" for start in starts)
    return f"{NODE_PREFIX}reconciled/{seal}/{ends}"


def anchors_row(seal: str, anchors: Anchors) -> str:
    """Names the row that lists anchors of another chain.

    Args:
        seal: The last seal of that chain.
        anchors: Its anchors.

    Returns:
        The row.
    """
    pairs = ",".join(f"{row}:{digits}" for row, digits in anchors.items())
    return f"{NODE_PREFIX}anchors/{seal}/{pairs}"


def anchor_rows(rows: int, starts: Sequence[NodeStart]) -> list[int]:
    """Chooses the rows that are anchors: the last ones, some of those before, and the ends of
    starts.

    Args:
        rows: The number of rows of the chain.
        starts: The starts that are listed beside the anchors.

    Returns:
        The places of the rows.
    """
    back, distance = set(range(1, DENSE + 1)), float(DENSE)
    while (distance := distance * SPREAD) < rows:
        back.add(int(distance))
    return sorted(
        {rows - distance_back for distance_back in back if distance_back < rows}
        | {start.end for start in starts if start.end < rows}
    )


def chains_differ(one: Anchors, other: Anchors) -> bool:
    """Says whether two chains have different seals at the same row.

    Args:
        one: The anchors of one chain.
        other: The anchors of the other.

    Returns:
        Whether they differ.
    """
    return any(other.get(row, digits) != digits for row, digits in one.items())


def read_starts(connection: sqlite3.Connection, rows: int) -> list[NodeStart]:
    """Reads the starts of a chain.

    Args:
        connection: An open ledger file.
        rows: The number of rows of the chain.

    Returns:
        The starts, the latest first.
    """
    starts: list[NodeStart] = []
    query = (
        f"SELECT run, link FROM runs WHERE substr(run, 1, {len(NODE_PREFIX)}) = ? ORDER BY id DESC"
    )
    for run, link in connection.execute(query, (NODE_PREFIX,)):
        if match := _START.fullmatch(run):
            starts.append(NodeStart(int(match[1]), match[2], rows))
            rows = int(link) - 1
    return starts


def runs_before(connection: sqlite3.Connection, run: str) -> int:
    """Counts the runs that were written down before a run, without the node's own rows.

    Args:
        connection: An open ledger file.
        run: The run.

    Returns:
        Their number.
    """
    query = (
        f"SELECT COUNT(*) FROM runs WHERE substr(run, 1, {len(NODE_PREFIX)}) != ? AND id < "
        "(SELECT id FROM runs WHERE run = ?)"
    )
    return int(connection.execute(query, (NODE_PREFIX, run)).fetchone()[0])


def is_reconciled(
    connection: sqlite3.Connection, tail: ChainTail, start: str, anchors: Anchors
) -> bool:
    """Says whether a chain up to a row was reconciled: by its seal, or as an earlier part of one
    that was.

    It is such a part if that chain went through its last row by one of its anchors. Where one of
    the two has no anchors, it is one if both are of one start and no row shows that they differ.

    Args:
        connection: An open ledger file.
        tail: The row's place and seal.
        start: The start to which the row belongs.
        anchors: Earlier rows of the chain.

    Returns:
        Whether it was.
    """
    query = f"SELECT run FROM runs WHERE substr(run, 1, {len(NODE_PREFIX)}) = ?"
    rows = [run for (run,) in connection.execute(query, (NODE_PREFIX,))]
    anchors_by_seal = {
        match[1]: _pairs(match[2]) for match in map(_ANCHORS.fullmatch, rows) if match
    }
    own = {**anchors, tail.links: tail.seal[:ANCHOR_DIGITS]}
    for match in filter(None, map(_RECONCILIATION.fullmatch, rows)):
        ends = {name: int(end) for name, end in _pairs(match[2]).items()}
        theirs = {int(row): digits for row, digits in anchors_by_seal.get(match[1], {}).items()}
        has_both_anchors = bool(anchors and theirs)
        theirs[max(ends.values(), default=0)] = match[1][:ANCHOR_DIGITS]
        if match[1] == tail.seal or theirs.get(tail.links) == own[tail.links]:
            return True
        if (
            not has_both_anchors
            and tail.links <= ends.get(start, -1)
            and not chains_differ(own, theirs)
        ):
            return True
    return False


def _pairs(words: str) -> dict[str, str]:
    return dict(part.split(":") for part in words.split(",") if part)


def common_rows(ledger: Sequence[NodeStart], head: Sequence[NodeStart]) -> int:
    """Counts the rows that two chains share for certain: up to the latest start that both have.

    Args:
        ledger: The starts of one chain, the latest first.
        head: The starts of the other.

    Returns:
        The number of rows.
    """
    names = {start.name for start in head}
    for place, start in enumerate(ledger):
        if start.name in names:
            return ledger[place + 1].end + 1 if place + 1 < len(ledger) else 1
    return 0


def spread_starts(starts: Sequence[NodeStart]) -> tuple[NodeStart, ...]:
    """Keeps the latest start and those 1, 2, 4, ... before it. A copy from any time shares a late
    one.

    Args:
        starts: All starts, the latest first.

    Returns:
        A few of them.
    """
    places = [0, *(1 << power for power in range(max(len(starts) - 1, 0).bit_length()))]
    return tuple(starts[place] for place in places if place < len(starts))
