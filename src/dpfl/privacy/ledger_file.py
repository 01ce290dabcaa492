"""The file of a ledger: its tables, what keeps their rows, and how a new one appears."""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from dpfl.errors import DpflError

SCHEMA = """
CREATE TABLE account (owner TEXT NOT NULL, unit TEXT NOT NULL);
CREATE TABLE limits (epsilon REAL NOT NULL, delta REAL NOT NULL, accountant TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE runs (epoch INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL UNIQUE);
CREATE TABLE events (id INTEGER PRIMARY KEY, event TEXT NOT NULL UNIQUE);
CREATE TABLE debits (
    id INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL REFERENCES runs(run), release TEXT NOT NULL UNIQUE,
    event INTEGER NOT NULL REFERENCES events(id), count INTEGER NOT NULL CHECK (typeof(count) = 'integer' AND count > 0),
    at REAL NOT NULL
);
"""
UNIQUE = {"account": "rowid", "limits": "rowid", "runs": "run", "events": "event", "debits": "release"}
"""Every table, with the column that no two rows may share."""


def connect(path: Path) -> sqlite3.Connection:
    try:
        return sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise DpflError(f"The ledger {path} cannot be opened ({error}); check the folder and its permissions.") from error


def create(path: Path, owner: str, unit: str, limit: Sequence[float | str]) -> None:
    """A whole ledger appears at once, or not at all; of two that create it together, one wins and both use it."""
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(unfinished, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")  # flushed below, all of it at once
        connection.executescript("BEGIN;" + SCHEMA + "".join(_guards()))
        connection.execute("INSERT INTO account VALUES (?, ?)", (owner, unit))
        if limit:
            insert_limit(connection, limit)
        connection.execute("COMMIT")
        connection.close()
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        os.link(unfinished, path)
    except FileExistsError:
        pass
    except (OSError, sqlite3.Error) as error:
        raise DpflError(f"The ledger {path} cannot be made ({error}); check the folder, its space and permissions.") from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def _guards() -> Iterator[str]:
    """Rows can be added, never changed, removed or replaced."""
    for table, column in UNIQUE.items():
        stop = "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;\n"
        yield f"CREATE TRIGGER {table}_update BEFORE UPDATE ON {table} {stop}"
        yield f"CREATE TRIGGER {table}_delete BEFORE DELETE ON {table} {stop}"
        there = f"EXISTS (SELECT 1 FROM {table} WHERE rowid = NEW.rowid OR {column} = NEW.{column})"
        yield f"CREATE TRIGGER {table}_replace BEFORE INSERT ON {table} WHEN {there} {stop}"


def insert_limit(connection: sqlite3.Connection, limit: Sequence[float | str]) -> None:
    """Epsilon, delta and the name of the accountant."""
    connection.execute("INSERT INTO limits VALUES (?, ?, ?, ?)", (*limit, time.time()))


def insert_once(connection: sqlite3.Connection, table: str, value: str) -> None:
    column = UNIQUE[table]
    query = f"INSERT INTO {table} ({column}) SELECT ? WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE {column} = ?)"
    connection.execute(query, (value, value))
