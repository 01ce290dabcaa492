"""Who wrote a ledger and when it was copied: every start of a node is a row of its chain, under a
random name.

Two copies of a ledger that share a start are equal up to the row of that start. Beyond it they are
equal as far as seals of the same rows show: a machine whose memory is set back with its disk goes
another way under the same start. An anchor is such a seal, shortened, of an earlier row. These rows
lie in the table `runs`, under names that no run has.
"""

from __future__ import annotations

import re
import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpfl.privacy.ledger.chain import ChainTail

NODE_PREFIX = "node/"
"""How the names of rows begin that are no runs."""
_START = re.compile(rf"{NODE_PREFIX}start/(\d+)/([0-9a-f]{{16}})")
_TAKEN = re.compile(rf"{NODE_PREFIX}reconciled/([0-9a-f]{{64}})/(.*)")
_ANCHORS = re.compile(rf"{NODE_PREFIX}anchors/([0-9a-f]{{64}})/(.*)")
ANCHOR_DIGITS = 32
"""Of a seal, enough to tell chains apart."""
DENSE, SPREAD = 32, 2**0.125
"""Rows before a head that are all anchors; beyond them each is a tenth farther away."""

Anchors = Mapping[int, str]
"""Rows of a chain, each with the first digits of its seal."""


@dataclass(frozen=True)
class NodeStart:
    """One start of a node: how many there were, its random name, and the last row of the chain that
    belongs to it.
    """

    boot: int
    name: str
    end: int


def new_start(boot: int) -> str:
    """The row of a start; its name has 64 random bits, so that no two starts share one."""
    return f"{NODE_PREFIX}start/{boot}/{secrets.token_hex(8)}"


def reconciliation_row(seal: str, starts: Sequence[NodeStart]) -> str:
    """The row that says that another chain, which ended with this seal, is counted here too."""
    ends = ",".join(f"{start.name}:{start.end}" for start in starts)
    return f"{NODE_PREFIX}reconciled/{seal}/{ends}"


def anchors_row(seal: str, anchors: Anchors) -> str:
    """The row that says where the chain that ended with this seal went through."""
    pairs = ",".join(f"{row}:{digits}" for row, digits in anchors.items())
    return f"{NODE_PREFIX}anchors/{seal}/{pairs}"


def anchor_rows(rows: int, starts: Sequence[NodeStart]) -> list[int]:
    """Rows that a head of so many names: the last ones, some of those before, and where the listed
    starts end.
    """
    back, distance = set(range(1, DENSE + 1)), float(DENSE)
    while (distance := distance * SPREAD) < rows:
        back.add(int(distance))
    return sorted(
        {rows - one for one in back if one < rows}
        | {start.end for start in starts if start.end < rows}
    )


def chains_differ(one: Anchors, other: Anchors) -> bool:
    """Whether two chains have different seals at the same row."""
    return any(other.get(row, digits) != digits for row, digits in one.items())


def read_starts(connection: sqlite3.Connection, rows: int) -> list[NodeStart]:
    """The starts of a chain of so many rows, the latest first."""
    found: list[NodeStart] = []
    query = (
        f"SELECT run, link FROM runs WHERE substr(run, 1, {len(NODE_PREFIX)}) = ? ORDER BY id DESC"
    )
    for run, link in connection.execute(query, (NODE_PREFIX,)):
        if match := _START.fullmatch(run):
            found.append(NodeStart(int(match[1]), match[2], rows))
            rows = int(link) - 1
    return found


def runs_before(connection: sqlite3.Connection, run: str) -> int:
    """How many runs were written down before this one, starts and what is like them left out."""
    query = (
        f"SELECT COUNT(*) FROM runs WHERE substr(run, 1, {len(NODE_PREFIX)}) != ? AND id < "
        "(SELECT id FROM runs WHERE run = ?)"
    )
    return int(connection.execute(query, (NODE_PREFIX, run)).fetchone()[0])


def is_reconciled(
    connection: sqlite3.Connection, tail: ChainTail, start: str, anchors: Anchors
) -> bool:
    """Whether a chain up to here was reconciled: by its seal, or as an earlier part of one that
    was.

    It is such a part if that chain went through its last row by one of its anchors. Where one of
    the two has no anchors, it is one if both are of one start and no row shows that they differ.
    """
    query = f"SELECT run FROM runs WHERE substr(run, 1, {len(NODE_PREFIX)}) = ?"
    rows = [run for (run,) in connection.execute(query, (NODE_PREFIX,))]
    known = {match[1]: _pairs(match[2]) for match in map(_ANCHORS.fullmatch, rows) if match}
    own = {**anchors, tail.links: tail.seal[:ANCHOR_DIGITS]}
    for match in filter(None, map(_TAKEN.fullmatch, rows)):
        ends = {name: int(end) for name, end in _pairs(match[2]).items()}
        theirs = {int(row): digits for row, digits in known.get(match[1], {}).items()}
        decided = bool(anchors and theirs)
        theirs[max(ends.values(), default=0)] = match[1][:ANCHOR_DIGITS]
        if match[1] == tail.seal or theirs.get(tail.links) == own[tail.links]:
            return True
        if not decided and tail.links <= ends.get(start, -1) and not chains_differ(own, theirs):
            return True
    return False


def _pairs(words: str) -> dict[str, str]:
    return dict(part.split(":") for part in words.split(",") if part)


def common_rows(ledger: Sequence[NodeStart], head: Sequence[NodeStart]) -> int:
    """Rows that two chains share for certain: up to the row of the latest start that both have."""
    names = {start.name for start in head}
    for place, start in enumerate(ledger):
        if start.name in names:
            return ledger[place + 1].end + 1 if place + 1 < len(ledger) else 1
    return 0


def spread_starts(starts: Sequence[NodeStart]) -> tuple[NodeStart, ...]:
    """The latest, those 1, 2, 4, ... before it, and no others: a few, of which a copy from any time
    shares a late one.
    """
    places = [0, *(1 << power for power in range(max(len(starts) - 1, 0).bit_length()))]
    return tuple(starts[place] for place in places if place < len(starts))
