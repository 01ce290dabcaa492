"""The account of one owner of data: append-only, on the owner's disk, debited before anything is released.

One SQLite file (WAL, every debit flushed to disk before it counts). Epsilon is computed from its rows and from nothing else.
"""

from __future__ import annotations

import operator
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

from dpfl.errors import DpflError
from dpfl.privacy.accountant import accountant, proving
from dpfl.privacy.calibrate import MOST, affordable, check_target
from dpfl.privacy.events import Event, Spent, add, add_all, decode, encode
from dpfl.privacy.ledger_file import UNIQUE, connect, create, insert_limit, insert_once


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


@dataclass(frozen=True)
class _Held:
    """What a ledger holds at a version of its file, so that it is not read again for every debit."""

    version: int
    spent: Spent
    limit: Limit | None
    written: frozenset[tuple[str, str]]


class Ledger:
    """An open account. `Ledger.open(path, ...)` creates it where it does not exist."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._held: _Held | None = None

    @classmethod
    def open(cls, path: Path, owner: str = "owner", unit: str = "sample", limit: Limit | None = None) -> Ledger:
        """The account at `path`; a new one gets `limit`, an old one keeps the limit that its owner set."""
        path = Path(path)
        if not path.exists():
            create(path, owner, unit, astuple(limit) if limit else ())
        ledger = cls(path, connect(path))
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
            self._held = None
            insert_limit(self._connection, astuple(limit))

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
            insert_once(connection, "runs", run)
            return int(connection.execute("SELECT epoch FROM runs WHERE run = ?", (run,)).fetchone()[0]) - 1

    def spent(self, besides: str = "") -> dict[Event, int]:
        """Every event that was debited, with its count; those of the run `besides` left out."""
        query = "SELECT e.event, SUM(d.count) FROM debits d JOIN events e ON e.id = d.event WHERE d.run != ? GROUP BY e.id"
        with self._errors():
            return {decode(line): int(count) for line, count in self._connection.execute(query, (besides,))}

    def debits(self) -> list[tuple[str, str, str, int, float]]:
        """Every row in the order it was written: run, name of the release, event, count, time."""
        query = "SELECT d.run, d.release, e.event, d.count, d.at FROM debits d JOIN events e ON e.id = d.event ORDER BY d.id"
        with self._errors():
            return self._connection.execute(query).fetchall()

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
        self, run: str, release: str, event: Event, count: int, limit: Limit | None = None, horizon: int = 0
    ) -> None:  # fmt: skip
        """Write down `count` releases of `event` before they are made, or refuse, by the owner's limit or the run's.

        `release` names the released value. The same name again is the same value computed again after a crash, which tells
        nobody anything new: it is not counted twice. When this returns, the disk has the debit.
        """
        self.begin(run, release, event, count, limit, horizon)()

    def begin(
        self, run: str, release: str, event: Event, count: int, limit: Limit | None = None, horizon: int = 0
    ) -> Callable[[], None]:  # fmt: skip
        """A debit that no limit forbids, and that the disk is still to have: by what is returned, which must be called once,
        in any thread, before the ledger is used again."""
        count = operator.index(count)
        if count < 1:
            raise DpflError(f"A debit is for at least 1 release, not {count}.")
        with self._errors(), self._begun() as connection:
            query = "SELECT d.run, e.event, d.count FROM debits d JOIN events e ON e.id = d.event WHERE d.release = ?"
            known = connection.execute(query, (release,)).fetchone()
            if known and known != (run, encode(event), count):
                raise Refused(f"The ledger {self.path.name} holds another release under the same name.")
            if not known:
                self._enter(run, release, event, count, limit, horizon)
        return self._flush

    def _enter(self, run: str, release: str, event: Event, count: int, limit: Limit | None, horizon: int) -> None:
        """Inside a transaction, which nobody else can write beside."""
        held = self._current()
        for bound in dict.fromkeys((held.limit, limit)):
            if bound and not bound.allows(held.spent, event, count, horizon):
                raise Refused(f"The budget of {self.path.stem} (epsilon {bound.epsilon:g}) has no room for {count} more.")
        for table, value in (("events", encode(event)), ("runs", run)):
            if (table, value) not in held.written:
                insert_once(self._connection, table, value)
        self._connection.execute(
            "INSERT INTO debits (run, release, event, count, at) SELECT ?, ?, id, ?, ? FROM events WHERE event = ?",
            (run, release, count, time.time(), encode(event)),
        )
        written = held.written | {("events", encode(event)), ("runs", run)}
        self._held = _Held(held.version, add(held.spent, event, count), held.limit, written)

    def _current(self) -> _Held:
        """What the ledger holds, read anew where another connection wrote since; call it inside a transaction."""
        version = int(self._connection.execute("PRAGMA data_version").fetchone()[0])
        if self._held is None or self._held.version != version:
            self._held = _Held(version, self.spent(), self.limit, frozenset())
        return self._held

    def _flush(self) -> None:
        with self._errors(), self._undone_on_failure():
            self._connection.execute("COMMIT")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._begun() as connection:
            yield connection
            connection.execute("COMMIT")

    @contextmanager
    def _begun(self) -> Iterator[sqlite3.Connection]:
        self._connection.execute("BEGIN IMMEDIATE")
        with self._undone_on_failure():
            yield self._connection

    @contextmanager
    def _undone_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._held = None
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
