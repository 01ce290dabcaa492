"""The rows of a ledger as a chain: each is sealed together with the one before, so that none
changes or goes unseen.

seal = sha256(the seal before, in hexadecimal, and the table and the row's values as Python's
ascii() writes them). The first row is the account.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256

Value = str | int | float | None

COLUMNS: dict[str, tuple[str, ...]] = {
    "account": ("owner", "unit", "neighbours", "salt"),
    "holdings": ("mark", "at"),
    "limits": ("epsilon", "delta", "accountant", "at"),
    "runs": ("run",),
    "events": ("event",),
    "plans": ("run", "event", "most", "at"),
    "debits": ("run", "release", "event", "count", "at"),
}
"""Every table, with the columns that are sealed; its `id` counts its rows, and `link` the rows of
all tables.
"""


@dataclass(frozen=True)
class ChainTail:
    """Where the chain ends: how many rows it has, and the seal of the last."""

    links: int = 0
    seal: str = ""


def append_row(
    connection: sqlite3.Connection, tail: ChainTail, table: str, *values: Value
) -> ChainTail:
    """One more row; call it inside a transaction, with the chain's present end."""
    link, seal = tail.links + 1, _seal(tail.seal, table, values)
    connection.execute(_INSERT[table], (*values, link, seal))
    return ChainTail(link, seal)


def _seal(before: str, table: str, values: tuple[Value, ...]) -> str:
    return sha256(f"{before}{(table, *values)!a}".encode()).hexdigest()


_INSERT = {
    table: f"INSERT INTO {table} ({', '.join(columns)}, link, seal) VALUES "
    f"({', '.join('?' * (len(columns) + 2))})"
    for table, columns in COLUMNS.items()
}


def check_chain(connection: sqlite3.Connection) -> ChainTail:
    """The end of a chain that is whole; anything else is an error that names the first row which is
    wrong.
    """
    links, before, counts = 0, "", dict.fromkeys(COLUMNS, 0)
    for link, table, number, seal, values in _rows(connection):
        links, counts[table] = links + 1, counts[table] + 1
        if link != links or number != counts[table]:
            raise sqlite3.DatabaseError(
                f"a row before row {number} of {table} is missing, or was added"
            )
        if seal != _seal(before, table, values):
            raise sqlite3.DatabaseError(f"row {number} of {table} is not as it was written")
        before = seal
    if counts["account"] != 1:
        raise sqlite3.DatabaseError(f"it has {counts['account']} accounts")
    last = dict(connection.execute("SELECT name, seq FROM sqlite_sequence"))
    if last != {table: count for table, count in counts.items() if count}:
        lost = next((table for table in COLUMNS if last.get(table, 0) != counts[table]), "a table")
        raise sqlite3.DatabaseError(f"rows are missing at the end of {lost}")
    return ChainTail(links, before)


def passes_through(connection: sqlite3.Connection, tail: ChainTail) -> bool:
    """Whether the chain went through here."""
    tables = " UNION ALL ".join(f"SELECT link, seal FROM {table}" for table in COLUMNS)
    found = connection.execute(
        f"SELECT seal FROM ({tables}) WHERE link = ?", (tail.links,)
    ).fetchone()
    return not tail.links or found == (tail.seal,)


def tails_at(connection: sqlite3.Connection, links: Collection[int]) -> list[ChainTail]:
    """Where the chain went through, at these rows, in their order."""
    tables = " UNION ALL ".join(f"SELECT link, seal FROM {table}" for table in COLUMNS)
    query = (
        f"SELECT link, seal FROM ({tables}) WHERE link IN ({', '.join('?' * len(links))}) "
        "ORDER BY link"
    )
    return [ChainTail(*row) for row in connection.execute(query, tuple(links))]


def _rows(connection: sqlite3.Connection) -> list[tuple[int, str, int, str, tuple[Value, ...]]]:
    """Of all tables, in the order in which they were written."""
    found = [
        (row[0], table, row[1], row[2], row[3:])
        for table, columns in COLUMNS.items()
        for row in connection.execute(f"SELECT link, id, seal, {', '.join(columns)} FROM {table}")
    ]
    if odd := next((row for row in found if type(row[0]) is not int), None):
        raise sqlite3.DatabaseError(f"row {odd[2]} of {odd[1]} is not as it was written")
    return sorted(found)
