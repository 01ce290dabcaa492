"""The account of one owner of data: append-only, on the owner's disk, debited before anything is released.

One SQLite file (WAL, every debit flushed to disk before it counts). Epsilon is computed from its rows and from nothing else.
"""

from __future__ import annotations

import operator
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dpfl.errors import DpflError
from dpfl.privacy.accountant import accountant, proving
from dpfl.privacy.calibrate import MOST, affordable, check_target
from dpfl.privacy.events import Event, Spent, add, add_all, decode, encode

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


class Refused(DpflError):
    """The owner's budget does not allow this release; nothing was released."""


@dataclass(frozen=True)
class Limit:
    """What an owner allows to be spent in all."""

    epsilon: float
    delta: float
    accountant: str = "pld"

    def __post_init__(self) -> None:
        check_target(self.epsilon, self.delta)
        proving(self.accountant)

    def covers(self, spent: Spent) -> bool:
        by = accountant(self.accountant)
        return bool(by.quick and by.quick.epsilon(spent, self.delta) <= self.epsilon) or (
            by.epsilon(spent, self.delta) <= self.epsilon
        )

    def remaining(self, spent: Spent, event: Event, horizon: int = 0) -> int:
        return affordable(spent, event, self.epsilon, self.delta, accountant(self.accountant), horizon)

    def allows(self, spent: Spent, event: Event, count: int, horizon: int = 0) -> bool:
        """By a bound that is found once where all events are alike; else by RDP, which is quick and never below the truth,
        and by the stated accountant where RDP says no."""
        if any(other != event for other in spent):
            quick = accountant("rdp-classic" if self.accountant == "rdp-classic" else "rdp")
            if quick.epsilon(add(spent, event, count), self.delta) <= self.epsilon:
                return True
        return self.remaining(spent, event, max(horizon, count)) >= count


class Ledger:
    """An open account. `Ledger.open(path, ...)` creates it where it does not exist."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    def open(cls, path: Path, owner: str = "owner", unit: str = "sample", limit: Limit | None = None) -> Ledger:
        """The account at `path`; a new one gets `limit`, an old one keeps the limit that its owner set."""
        path = Path(path)
        if not path.exists():
            _create(path, owner, unit, limit)
        ledger = cls(path, _connect(path))
        with ledger._errors():
            ledger._connection.execute("PRAGMA synchronous = FULL")
            if ledger._connection.execute("PRAGMA quick_check").fetchone()[0] != "ok":
                raise sqlite3.DatabaseError("its pages do not fit together")
            tables = {name for (name,) in ledger._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not tables.issuperset(UNIQUE):
                raise sqlite3.DatabaseError("it holds no account, so it is not a ledger")
        return ledger

    @classmethod
    def read(cls, path: Path) -> Ledger:
        if not Path(path).exists():
            raise DpflError(f"There is no ledger at {path}.")
        return cls.open(path)

    def set_limit(self, limit: Limit) -> None:
        """The owner's word; earlier limits stay on record."""
        with self._errors(), self._transaction():
            _insert_limit(self._connection, limit)

    @property
    def limit(self) -> Limit | None:
        with self._errors():
            query = "SELECT epsilon, delta, accountant FROM limits ORDER BY rowid DESC LIMIT 1"
            row = self._connection.execute(query).fetchone()
            return Limit(*row) if row else None

    @property
    def unit(self) -> str:
        with self._errors():
            return str(self._connection.execute("SELECT unit FROM account").fetchone()[0])

    def epoch(self, run: str) -> int:
        """How many other runs came before this one; it enters the noise keys, so that no two runs share noise."""
        with self._errors(), self._transaction() as connection:
            _insert_once(connection, "runs", run)
            return int(connection.execute("SELECT epoch FROM runs WHERE run = ?", (run,)).fetchone()[0]) - 1

    def spent(self, besides: str = "") -> dict[Event, int]:
        """Every event that was debited, with its count; those of the run `besides` left out."""
        query = "SELECT e.event, SUM(d.count) FROM debits d JOIN events e ON e.id = d.event WHERE d.run != ? GROUP BY e.id"
        with self._errors():
            return {decode(line): int(count) for line, count in self._connection.execute(query, (besides,))}

    def epsilon(self, delta: float, by: str = "pld") -> float:
        return accountant(by).epsilon(self.spent(), delta)

    def remaining(
        self, event: Event, limit: Limit | None = None, horizon: int = 0, run: str = "", before: Spent | None = None
    ) -> int:
        """How many releases of `event` the owner's limit and the run's leave room for, beside those of other runs and those
        that this one makes `before`. At most `horizon`, where one is given.
        """
        limits = [bound for bound in (self.limit, limit) if bound]
        spent = add_all(self.spent(besides=run), before or {})
        return min((bound.remaining(spent, event, horizon) for bound in limits), default=horizon or MOST)

    def debit(
        self, run: str, release: str, event: Event, count: int, limit: Limit | None = None, horizon: int = 0,
        allowed: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """Write down `count` releases of `event` before they are made, or refuse, by the owner's limit or the run's.

        `release` names the released value. The same name again is the same value computed again after a crash, which tells
        nobody anything new: it is not counted twice. `allowed` is called once no limit forbids the releases, while the disk is
        still to have them; when this returns, it has.
        """
        count = operator.index(count)
        if count < 1:
            raise DpflError(f"A debit is for at least 1 release, not {count}.")
        with self._errors(), self._transaction() as connection:
            query = "SELECT d.run, e.event, d.count FROM debits d JOIN events e ON e.id = d.event WHERE d.release = ?"
            known = connection.execute(query, (release,)).fetchone()
            if known:
                if known != (run, encode(event), count):
                    raise Refused(f"The ledger {self.path.name} holds another release under the same name.")
                return
            spent = self.spent()
            for bound in (self.limit, limit):
                if bound and not bound.allows(spent, event, count, horizon):
                    raise Refused(f"The budget of {self.path.stem} (epsilon {bound.epsilon:g}) has no room for {count} more.")
            _insert_once(connection, "events", encode(event))
            _insert_once(connection, "runs", run)
            connection.execute(
                "INSERT INTO debits (run, release, event, count, at) SELECT ?, ?, id, ?, ? FROM events WHERE event = ?",
                (run, release, count, time.time(), encode(event)),
            )
            allowed()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """SQLite's errors as one sentence; whatever failed, nothing was released."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise DpflError(
                f"The ledger {self.path} cannot be written ({error}); nothing was released. "
                "Free some space or mend the folder, then resume the run."
            ) from error
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError) as error:
            raise DpflError(f"The ledger {self.path} refuses this entry ({error}); nothing was released.") from error
        except sqlite3.DatabaseError as error:
            raise DpflError(
                f"The ledger {self.path} is damaged ({error}); nothing was released. "
                "Restore it from a copy, since what it held was spent."
            ) from error

    def close(self) -> None:
        self._connection.close()


def _connect(path: Path) -> sqlite3.Connection:
    try:
        return sqlite3.connect(path, timeout=30, isolation_level=None)
    except sqlite3.Error as error:
        raise DpflError(f"The ledger {path} cannot be opened ({error}); check the folder and its permissions.") from error


def _create(path: Path, owner: str, unit: str, limit: Limit | None) -> None:
    """A whole ledger appears at once, or not at all; of two that create it together, one wins and both use it."""
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(unfinished, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(SCHEMA + "".join(_guards()))
        connection.execute("INSERT INTO account VALUES (?, ?)", (owner, unit))
        if limit:
            _insert_limit(connection, limit)
        connection.close()
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


def _insert_limit(connection: sqlite3.Connection, limit: Limit) -> None:
    values = (limit.epsilon, limit.delta, limit.accountant, time.time())
    connection.execute("INSERT INTO limits VALUES (?, ?, ?, ?)", values)


def _insert_once(connection: sqlite3.Connection, table: str, value: str) -> None:
    column = UNIQUE[table]
    query = f"INSERT INTO {table} ({column}) SELECT ? WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE {column} = ?)"
    connection.execute(query, (value, value))
