"""The rows of a ledger as a chain: no row can be changed, removed or added unseen.

Each row is sealed together with the one before: seal = sha256(the seal before, in hexadecimal, then
the table and the row's values as Python's ascii() writes them). The first row is the account.
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
    """The end of a chain.

    Attributes:
        links: How many rows it has.
        seal: The seal of the last row.
    """

    links: int = 0
    seal: str = ""


def append_row(
    connection: sqlite3.Connection, tail: ChainTail, table: str, *values: Value
) -> ChainTail:
    """Adds a row. Call it inside a transaction, with the chain's present end.

    Args:
        connection: An open ledger file.
        tail: The end of the chain.
        table: The table of the row.
        *values: The row's sealed values.

    Returns:
        The new end of the chain.
    """
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
    """Checks that a chain is whole.

    Args:
        connection: An open ledger file.

    Returns:
        The end of the chain.

    Raises:
        sqlite3.DatabaseError: If a row is wrong or missing. The message names the first one.
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
        table = next((table for table in COLUMNS if last.get(table, 0) != counts[table]), "a table")
        raise sqlite3.DatabaseError(f"rows are missing at the end of {table}")
    return ChainTail(links, before)


def passes_through(connection: sqlite3.Connection, tail: ChainTail) -> bool:
    """Says whether a chain went through a row.

    Args:
        connection: An open ledger file.
        tail: The row's place and seal.

    Returns:
        Whether the row is part of the chain.
    """
    tables = " UNION ALL ".join(f"SELECT link, seal FROM {table}" for table in COLUMNS)
    row = connection.execute(
        f"SELECT seal FROM ({tables}) WHERE link = ?", (tail.links,)
    ).fetchone()
    return not tail.links or row == (tail.seal,)


def tails_at(connection: sqlite3.Connection, links: Collection[int]) -> list[ChainTail]:
    """Reads the seals of some rows.

    Args:
        connection: An open ledger file.
        links: The places of the rows.

    Returns:
        Where the chain went through at these rows, in their order.
    """
    tables = " UNION ALL ".join(f"SELECT link, seal FROM {table}" for table in COLUMNS)
    query = (
        f"SELECT link, seal FROM ({tables}) WHERE link IN ({', '.join('?' * len(links))}) "
        "ORDER BY link"
    )
    return [ChainTail(*row) for row in connection.execute(query, tuple(links))]


def _rows(connection: sqlite3.Connection) -> list[tuple[int, str, int, str, tuple[Value, ...]]]:
    """Reads the rows of all tables in the order in which they were written."""
    rows = [
        (row[0], table, row[1], row[2], row[3:])
        for table, columns in COLUMNS.items()
        for row in connection.execute(f"SELECT link, id, seal, {', '.join(columns)} FROM {table}")
    ]
    if forged_row := next((row for row in rows if type(row[0]) is not int), None):
        raise sqlite3.DatabaseError(
            f"row {forged_row[2]} of {forged_row[1]} is not as it was written"
        )
    return sorted(rows)
