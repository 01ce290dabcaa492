"""The file of a ledger: its tables, the triggers that guard them, and how it is opened."""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from dpfl.errors import DpflError
from dpfl.privacy.ledger.chain import COLUMNS, ChainTail, append_row

FORMAT = 2
"""The format of the file, as its user_version. Format 1 had no chain, no neighbours and no binding
to data.
"""

PATIENCE, QUICK = 30.0, 2.0
"""Seconds that a debit waits for another process's debit, and that a reader waits."""

SCHEMA = """
CREATE TABLE account (
    id INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL, unit TEXT NOT NULL, neighbours TEXT NOT NULL,
    salt TEXT NOT NULL, link INTEGER NOT NULL, seal TEXT NOT NULL
);
CREATE TABLE holdings (
    id INTEGER PRIMARY KEY AUTOINCREMENT, mark TEXT NOT NULL, at REAL NOT NULL, link INTEGER NOT NULL, seal TEXT NOT NULL
);
CREATE TABLE limits (
    id INTEGER PRIMARY KEY AUTOINCREMENT, epsilon REAL NOT NULL, delta REAL NOT NULL, accountant TEXT NOT NULL,
    at REAL NOT NULL, link INTEGER NOT NULL, seal TEXT NOT NULL
);
CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL UNIQUE, link INTEGER NOT NULL, seal TEXT NOT NULL
);
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, event TEXT NOT NULL UNIQUE, link INTEGER NOT NULL, seal TEXT NOT NULL
);
CREATE TABLE plans (
    id INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL REFERENCES runs(run),
    event INTEGER NOT NULL REFERENCES events(id), most INTEGER NOT NULL CHECK (typeof(most) = 'integer' AND most >= 0),
    at REAL NOT NULL, link INTEGER NOT NULL, seal TEXT NOT NULL
);
CREATE TABLE debits (
    id INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL REFERENCES runs(run), release TEXT NOT NULL UNIQUE,
    event INTEGER NOT NULL REFERENCES events(id), count INTEGER NOT NULL CHECK (typeof(count) = 'integer' AND count > 0),
    at REAL NOT NULL, link INTEGER NOT NULL, seal TEXT NOT NULL
);
"""  # noqa: E501
UNIQUE = {**dict.fromkeys(COLUMNS, "rowid"), "runs": "run", "events": "event", "debits": "release"}
"""Every table, with the column that no two rows may share."""


def connect(path: Path) -> sqlite3.Connection:
    """Opens a ledger file to write.

    Args:
        path: The file.

    Returns:
        A connection that flushes every transaction to the disk.

    Raises:
        DpflError: If the file cannot be opened.
    """
    try:
        connection = sqlite3.connect(
            path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA synchronous = FULL")
        return connection
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise ledger_error(path, error) from error


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Opens a ledger file to read. Nothing is written, not even beside the file.

    Args:
        path: The file.

    Returns:
        A read-only connection, or one to a copy in memory where the medium allows no other.

    Raises:
        DpflError: If the file cannot be read.
    """
    try:
        return _reading(path, "mode=ro")
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if _code(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise ledger_error(path, error) from error
    return _read_apart(path)


def _reading(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?{mode}"
    connection = sqlite3.connect(
        uri, uri=True, timeout=QUICK, isolation_level=None, check_same_thread=False
    )
    connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    return connection


def _read_apart(path: Path) -> sqlite3.Connection:
    """Reads a file on a read-only medium: as it is, or as a copy if its log has rows."""
    log = path.with_name(f"{path.name}-wal")
    try:
        if not log.exists() or not log.stat().st_size:
            return _reading(path, "immutable=1")
        with tempfile.TemporaryDirectory(prefix="dpfl-ledger-") as folder:
            for file in (path, log):
                shutil.copyfile(file, Path(folder, file.name))
            whole, memory = (
                sqlite3.connect(Path(folder, path.name)),
                sqlite3.connect(":memory:", isolation_level=None),
            )
            whole.backup(memory)
            whole.close()
            return memory
    except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
        raise ledger_error(path, error) from error


def remove_database(path: Path) -> None:
    """Removes an SQLite file that was never in use, with what lies beside it.

    Args:
        path: The file.
    """
    for end in ("", "-wal", "-shm", "-journal"):
        path.with_name(f"{path.name}{end}").unlink(missing_ok=True)


def check_schema(path: Path, connection: sqlite3.Connection) -> None:
    """Checks that a file has the tables and triggers of a ledger, in pages that fit together.

    Args:
        path: The file, for the message.
        connection: The open file.

    Raises:
        DpflError: If another version of dpfl wrote it.
        sqlite3.DatabaseError: If it is no ledger, or damaged.
    """
    if connection.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
        raise sqlite3.DatabaseError("its pages do not fit together")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    form = _form(connection)
    if version != FORMAT and {"account", "debits"} <= {name for _, name, *_ in form}:
        raise DpflError(
            f"The ledger {path} was written by another version of dpfl, and says nothing of whose "
            "data it counts; what it "
            "holds was spent. Go on in another folder (privacy.ledger), with limits lower by that "
            "much."
        )
    if not form or version != FORMAT:
        raise sqlite3.DatabaseError("it holds no account, so it is not a ledger")
    if form != _whole_form():
        raise sqlite3.DatabaseError("its tables, or what guards them, are not those of a ledger")


def _form(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    return connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
    ).fetchall()


@cache
def _whole_form() -> list[tuple[str, ...]]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(SCHEMA + "".join(_guards()))
    return _form(connection)


def create_database(path: Path, account: Sequence[str], limit: Sequence[float | str]) -> None:
    """Creates a ledger at once, or not at all. If two processes create it together, both use one.

    Args:
        path: The file.
        account: The owner, the unit and the neighbours.
        limit: Epsilon, delta and the accountant's name; empty for no limit.

    Raises:
        DpflError: If the file cannot be written.
    """
    new_path = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(new_path, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")  # flushed below, all of it at once
        connection.executescript("BEGIN;" + SCHEMA + "".join(_guards()))
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        tail = append_row(connection, ChainTail(), "account", *account, secrets.token_hex(32))
        if limit:
            append_row(connection, tail, "limits", *limit, time.time())
        connection.execute("COMMIT")
        connection.close()
        with new_path.open("rb+") as file:
            os.fsync(file.fileno())
        os.link(new_path, path)
    except FileExistsError:
        pass
    except (OSError, sqlite3.Error) as error:
        raise DpflError(
            f"The ledger {path} cannot be made ({error}); nothing was released. Give its folder "
            "space and permissions (or name "
            "another by privacy.ledger), then give the same command again."
        ) from error
    finally:
        with suppress(OSError):
            new_path.unlink(missing_ok=True)


def _guards() -> Iterator[str]:
    """Yields the triggers: rows can be added, never changed, removed or replaced."""
    for table, column in UNIQUE.items():
        stop = "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;\n"
        yield f"CREATE TRIGGER {table}_update BEFORE UPDATE ON {table} {stop}"
        yield f"CREATE TRIGGER {table}_delete BEFORE DELETE ON {table} {stop}"
        there = f"EXISTS (SELECT 1 FROM {table} WHERE rowid = NEW.rowid OR {column} = NEW.{column})"
        yield f"CREATE TRIGGER {table}_replace BEFORE INSERT ON {table} WHEN {there} {stop}"


_PLACE = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOMEM,
}
"""Errors of the disk, and not of the file."""


def ledger_error(path: Path, error: Exception) -> DpflError:
    """Turns an error of SQLite into a sentence. Whatever failed, nothing was released.

    Args:
        path: The file.
        error: The error.

    Returns:
        The error to raise.
    """
    code = _code(error)
    if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
        return DpflError(f"The ledger {path} refuses this entry ({error}); nothing was released.")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return DpflError(
            f"The ledger {path} is in use by another program ({error}); nothing was released. Try "
            "again when it has ended."
        )
    if isinstance(error, OSError) or code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return DpflError(
            f"The ledger {path} cannot be opened ({error}); check the folder and its permissions."
        )
    if code in _PLACE:
        return DpflError(
            f"The ledger {path} cannot be written ({error}); nothing was released. "
            "Free some space or fix the folder, then resume the run, or give the same command "
            "again where there is none yet."
        )
    return DpflError(
        f"The ledger {path} is damaged ({error}); nothing was released. Restore it from a copy, "
        "since what it held was spent."
    )


def _code(error: Exception) -> int:
    """Returns SQLite's primary error code; 0 without one."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
