"""A ledger as somebody leaves it who knows its form: rows changed, and every seal made anew."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from dpfl.privacy import Ledger
from dpfl.privacy.ledger.chain import COLUMNS, ChainTail, _rows, append_row
from dpfl.privacy.ledger.database import _guards


def unguarded(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    for (name,) in connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    ).fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    return connection


def debit_elsewhere(path: Path, run: str, release: str, event: Any, count: int) -> None:
    """Of another run, on the same data."""
    with closing(Ledger.existing(path)) as ledger:
        ledger._mark = ledger._snapshot.mark if ledger._snapshot else ""
        ledger.debit(run, release, event, count)


def forge(path: Path, statement: str) -> None:
    with closing(unguarded(path)) as connection:
        assert connection.execute(statement).rowcount > 0
        rows, tail = _rows(connection), ChainTail()
        for table in (*COLUMNS, "sqlite_sequence"):
            connection.execute(f"DELETE FROM {table}")
        for _, table, _, _, values in rows:
            tail = append_row(connection, tail, table, *values)
        connection.executescript("".join(_guards()))
