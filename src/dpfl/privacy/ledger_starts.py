"""Who wrote a ledger and when it was copied: every start of a node is a row of its chain, under a random name.

A start is one process, and one process writes one chain. So two copies of a ledger that share a start are equal up to the row
where the first of them ends that start, and whatever one of them holds beyond it is missing from the other. These rows lie in
the table `runs`, under names that no run has.
"""

from __future__ import annotations

import re
import secrets
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

OWN = "node/"
"""How the names of rows begin that are no runs."""
_START = re.compile(rf"{OWN}start/(\d+)/([0-9a-f]{{16}})")
_TAKEN = re.compile(rf"{OWN}reconciled/([0-9a-f]{{64}})/(.*)")


@dataclass(frozen=True)
class Start:
    """One start of a node: how many there were, its random name, and the last row of the chain that belongs to it."""

    boot: int
    name: str
    end: int


def new_start(boot: int) -> str:
    """The row of a start; its name has 64 random bits, so that no two starts share one."""
    return f"{OWN}start/{boot}/{secrets.token_hex(8)}"


def taken_over(seal: str, starts: Sequence[Start]) -> str:
    """The row that says that another chain, which ended with this seal, is counted here too."""
    return f"{OWN}reconciled/{seal}/{','.join(f'{start.name}:{start.end}' for start in starts)}"


def read_starts(connection: sqlite3.Connection, rows: int) -> list[Start]:
    """The starts of a chain of so many rows, the latest first."""
    found: list[Start] = []
    query = f"SELECT run, link FROM runs WHERE substr(run, 1, {len(OWN)}) = ? ORDER BY id DESC"
    for run, link in connection.execute(query, (OWN,)):
        if match := _START.fullmatch(run):
            found.append(Start(int(match[1]), match[2], rows))
            rows = int(link) - 1
    return found


def runs_before(connection: sqlite3.Connection, run: str) -> int:
    """How many runs were written down before this one, starts and what is like them left out."""
    query = f"SELECT COUNT(*) FROM runs WHERE substr(run, 1, {len(OWN)}) != ? AND id < (SELECT id FROM runs WHERE run = ?)"
    return int(connection.execute(query, (OWN, run)).fetchone()[0])


def is_taken_over(connection: sqlite3.Connection, seal: str, rows: int, start: str) -> bool:
    """Whether a chain up to here was reconciled: by its seal, or as an earlier part of one that was."""
    query = f"SELECT run FROM runs WHERE substr(run, 1, {len(OWN)}) = ?"
    for (run,) in connection.execute(query, (OWN,)):
        if not (match := _TAKEN.fullmatch(run)):
            continue
        ends = dict(part.split(":") for part in match[2].split(",") if part)
        if match[1] == seal or rows <= int(ends.get(start, -1)):
            return True
    return False


def common_rows(one: Sequence[Start], other: Sequence[Start]) -> int:
    """Rows that two chains share for certain: up to where the first of them ends the latest start that both have."""
    ends = {start.name: start.end for start in one}
    return max((min(start.end, ends[start.name]) for start in other if start.name in ends), default=0)


def spread_starts(starts: Sequence[Start]) -> tuple[Start, ...]:
    """The latest, those 1, 2, 4, ... before it, and no others: a few, of which a copy from any time shares a late one."""
    places = [0, *(1 << power for power in range(max(len(starts) - 1, 0).bit_length()))]
    return tuple(starts[place] for place in places if place < len(starts))
