"""The account of one owner of data: append-only, on the owner's disk, debited before anything is
released.

One SQLite file (WAL, every debit flushed to disk before it counts). Epsilon is computed from its
rows and from nothing else.
"""

from __future__ import annotations

import operator
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from dpfl.errors import DpflError
from dpfl.privacy.accounting.accountant import accountant
from dpfl.privacy.accounting.calibration import MAX_RELEASES
from dpfl.privacy.accounting.events import (
    REPLACE,
    Event,
    EventCounts,
    add,
    add_all,
    decode,
    encode,
    neighbours_of,
)
from dpfl.privacy.ledger.account import (
    LAST_LINK,
    LedgerAccount,
    check_same_kind,
    data_mark,
    limit_row,
    limits_since_first_debit,
    read_plans,
)
from dpfl.privacy.ledger.chain import (
    ChainTail,
    Value,
    append_row,
    check_chain,
    passes_through,
    tails_at,
)
from dpfl.privacy.ledger.database import (
    check_schema,
    connect,
    connect_to_read,
    create_database,
    ledger_error,
)
from dpfl.privacy.ledger.limit import Limit, SubLimit
from dpfl.privacy.ledger.starts import (
    Anchors,
    NodeStart,
    is_reconciled,
    new_start,
    read_starts,
    runs_before,
)

__all__ = ["LAST_LINK", "BudgetRefusal", "Ledger", "LedgerAccount", "Limit", "check_same_kind"]


class BudgetRefusal(DpflError):
    """The owner's budget does not allow this release; nothing was released."""


@dataclass(frozen=True)
class _Held:
    """What a ledger holds at a version of its file, so that it is not read again for every
    debit.
    """

    version: int
    tail: ChainTail
    spent: EventCounts
    limit: Limit | None
    mark: str
    events: Mapping[Event, int]
    runs: frozenset[str]


class Ledger:
    """An open account. `open` creates it where it does not exist, `existing` and `read` do not, and
    `read` never writes.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, data: str = "") -> None:
        self.path = path
        self._connection = connection
        self._held: _Held | None = None
        with self._errors():
            try:
                self._file = _file(path)
                check_schema(path, connection)
                connection.execute("BEGIN")
                self._look()
                connection.execute("COMMIT")
                row = connection.execute(
                    "SELECT owner, unit, neighbours, salt FROM account"
                ).fetchone()
                self.account, self._salt, self._mark = (
                    LedgerAccount(*row[:3]),
                    row[3],
                    data_mark(row[3], data),
                )
            except BaseException:
                connection.close()
                raise

    @classmethod
    def open(
        cls,
        path: Path,
        owner: str,
        unit: str,
        neighbours: str,
        limit: Limit | None = None,
        data: str = "",
    ) -> Ledger:
        """The account of `owner` at `path`, for the `data` of this digest: refused where the ledger
        is of something else.

        A new one gets `limit`, an old one keeps the limit that its owner set.
        """
        path, account = Path(path), LedgerAccount(owner, unit, neighbours)
        if not path.exists():
            create_database(path, astuple(account), limit_row(limit) if limit else ())
        ledger = cls(path, connect(path), data)
        ledger.check_account(account)
        return ledger

    @classmethod
    def existing(cls, path: Path) -> Ledger:
        """To write in, as its owner does."""
        return cls(_there(path), connect(path))

    @classmethod
    def read(cls, path: Path) -> Ledger:
        return cls(_there(path), connect_to_read(path))

    def check_account(self, account: LedgerAccount) -> None:
        try:
            if self.account.owner != account.owner:
                raise DpflError(
                    f"The ledger {self.path} is that of {self.account.owner} and not of "
                    f"{account.owner}: copied, or renamed. "
                    f"Bring back the one that {account.owner} had, since what it held was spent."
                )
            check_same_kind(self.path, self.account, account)
            self._check_data()
        except DpflError:
            self.close()
            raise

    def set_limit(self, limit: Limit) -> None:
        """The owner's word; earlier limits stay on record."""
        with self._errors(), self._transaction():
            self._append("limits", *limit_row(limit), time.time())
            self._held = replace(self._now, limit=limit)

    @property
    def limit(self) -> Limit | None:
        with self._errors():
            query = "SELECT epsilon, delta, accountant FROM limits ORDER BY rowid DESC LIMIT 1"
            row = self._connection.execute(query).fetchone()
            return Limit(*row) if row else None

    def limits_since_first_debit(self, until: int = LAST_LINK) -> list[Limit | None]:
        """Each that any debit may have been held against, in turn, up to a link of the chain; None
        where the owner had set none."""
        with self._errors():
            return limits_since_first_debit(self._connection, until)

    def last_link(self, run: str) -> int:
        """Where this run's last row stands in the chain: its last debit, plan or mention; 0 where
        it has none.
        """
        tables = " UNION ALL ".join(
            f"SELECT run, link FROM {table}" for table in ("runs", "plans", "debits")
        )
        with self._errors():
            query = f"SELECT COALESCE(MAX(link), 0) FROM ({tables}) WHERE run = ?"
            return int(self._connection.execute(query, (run,)).fetchone()[0])

    def counts_data(self, data: str) -> bool:
        """Whether debits were for the data of this digest."""
        return bool(data) and self._now.mark == data_mark(self._salt, data)

    @property
    def unit(self) -> str:
        return self.account.unit

    def epoch(self, run: str) -> int:
        """How many other runs came before this one; it enters the noise keys, so that no two runs
        share noise.
        """
        with self._errors(), self._transaction() as connection:
            self._know(run)
            return runs_before(connection, run)

    def has_release(self, release: str) -> bool:
        """Whether a value of this name was debited."""
        with self._errors():
            return (
                self._connection.execute(
                    "SELECT 1 FROM debits WHERE release = ?", (release,)
                ).fetchone()
                is not None
            )

    def attempts_before(self, place: str, part: str) -> int:
        """How many others were made in the place of this part of a release that is paid for as a
        whole; now it is one.
        """
        with self._errors(), self._transaction() as connection:
            self._know(f"{place}/{part}")
            query = "SELECT run FROM runs WHERE substr(run, 1, ?) = ? ORDER BY id"
            made = [run for (run,) in connection.execute(query, (len(place) + 1, f"{place}/"))]
            return made.index(f"{place}/{part}")

    def plan(self, run: str, event: Event, most: int) -> None:
        """Write down, before the first of them, how many releases of `event` a run can make at
        most; said once.
        """
        most = operator.index(most)
        with self._errors(), self._transaction():
            known = self.plans().get(run, {}).get(event)
            if known is not None and known != most:
                raise BudgetRefusal(
                    f"The ledger {self.path.name} holds another plan of this run: {known} "
                    f"releases, not {most}."
                )
            if known is None:
                self._append("plans", run, self._know(run, event), most, time.time())

    def plans(self) -> dict[str, dict[Event, int]]:
        """By run: the most releases of each event that it said it would make."""
        with self._errors():
            return read_plans(self._connection)

    def spending(self, besides: str = "") -> dict[Event, int]:
        """Every event that was debited, with its count; those of the run `besides` left out."""
        return self._sums("d.run != ?", besides)

    def spending_with_others(self, run: str) -> tuple[dict[Event, int], dict[Event, int]]:
        """All that was debited, and what of it is not of this run: at one moment, whoever writes
        meanwhile.
        """
        query = (
            "SELECT e.event, SUM(d.count), SUM(d.count * (d.run != ?)) FROM debits d JOIN events e "
            "ON e.id = d.event "
            "GROUP BY e.id"
        )
        with self._errors():
            found = [
                (decode(line), int(count), int(others))
                for line, count, others in self._connection.execute(query, (run,))
            ]
        return {event: count for event, count, _ in found}, {
            event: others for event, _, others in found if others
        }

    def spending_within(self, share: SubLimit, besides: str = "") -> dict[Event, int]:
        """Of a run, or since a day; the run `besides` left out."""
        return self._sums(
            "d.run != ? AND ? IN ('', d.run) AND d.at >= ?",
            besides,
            share.run,
            share.since(time.time()),
        )

    def spending_until(self, rows: int) -> dict[Event, int]:
        """What the first so many rows of the chain count."""
        return self._sums("d.link <= ?", rows)

    def _sums(self, where: str, *given: Value) -> dict[Event, int]:
        query = (
            "SELECT e.event, SUM(d.count) FROM debits d JOIN events e ON e.id = d.event WHERE "
            f"{where} GROUP BY e.id"
        )
        with self._errors():
            return {
                decode(line): int(count) for line, count in self._connection.execute(query, given)
            }

    @property
    def tail(self) -> ChainTail:
        """Where its chain ends now."""
        with self._errors(), self._transaction():
            return self._now.tail

    def contains(self, tail: ChainTail) -> bool:
        """Whether its chain went through here: a copy from before does not."""
        with self._errors():
            return passes_through(self._connection, tail)

    def start(self, least: int = 0) -> None:
        """A row for one more start of its node, numbered above all before it and above `least`."""
        with self._errors(), self._transaction() as connection:
            boots = [start.boot for start in read_starts(connection, self._now.tail.links)]
            self._know(new_start(max([least, *boots]) + 1))

    @property
    def starts(self) -> list[NodeStart]:
        """Those of the node that writes here, the latest first; none where no node does."""
        with self._errors():
            return read_starts(self._connection, self.tail.links)

    def includes(self, tail: ChainTail, start: str = "", anchors: Anchors | None = None) -> bool:
        """Whether all that was spent up to there is counted here: in its chain, or in one that was
        reconciled with it.
        """
        with self._errors():
            return self.contains(tail) or is_reconciled(
                self._connection, tail, start, anchors or {}
            )

    def tails_at(self, rows: Collection[int]) -> list[ChainTail]:
        """Where its chain went through, at these rows."""
        with self._errors():
            return tails_at(self._connection, rows)

    @property
    def is_in_place(self) -> bool:
        """Whether the file of its path is still the one that is open here: a backup may have taken
        its place.
        """
        return _file(self.path) == self._file

    def write_once(self, name: str) -> bool:
        """Write down a row of the node's own, once; whether it was there."""
        with self._errors(), self._transaction():
            known = name in self._now.runs
            self._know(name)
            return known

    def add_spending(
        self, name: str, spent: Mapping[tuple[Event, str], int], planned: EventCounts
    ) -> None:
        """Count what was released and is not written here, whatever limits say: it was spent. By
        event and by the mark of the shares of its noise, if it had a share only; `planned` is what
        was fixed beforehand on top of it."""
        with self._errors(), self._transaction():
            self._bind()
            self._know(name)
            for (event, mark), count in spent.items():
                number = self._know(name, event)
                self._append(
                    "debits",
                    name,
                    f"reconciled/{mark}/{name}/{number}",
                    number,
                    count,
                    self._time(),
                )
                self._held = replace(self._now, spent=add(self._now.spent, event, count))
            for event, count in planned.items():
                made = sum(count for (kind, _), count in spent.items() if kind == event)
                self._append("plans", name, self._know(name, event), made + count, time.time())

    def debits(self, until: int = LAST_LINK) -> list[tuple[str, str, str, int, float]]:
        """Every row in the order it was written, up to a link of the chain: run, name of the
        release, event, count, time.
        """
        query = (
            "SELECT d.run, d.release, e.event, d.count, d.at FROM debits d JOIN events e ON e.id = "
            "d.event "
            "WHERE d.link <= ? ORDER BY d.id"
        )
        with self._errors():
            return self._connection.execute(query, (until,)).fetchall()

    def epsilon(self, delta: float, by: str = "pld") -> float:
        return accountant(by).epsilon(self.spending(), delta)

    def remaining(
        self,
        event: Event,
        limit: Limit | None = None,
        horizon: int = 0,
        run: str = "",
        before: EventCounts | None = None,
    ) -> int:
        """How many releases of `event` the owner's limit and the run's leave room for, beside those
        of other runs and those that this one makes `before`. At most `horizon`, where one is given.
        """
        limits = [bound for bound in (self.limit, limit) if bound]
        spent = add_all(self.spending(besides=run), before or {})
        return min(
            (bound.remaining(spent, event, horizon) for bound in limits),
            default=horizon or MAX_RELEASES,
        )

    def debit(
        self,
        run: str,
        release: str,
        event: Event,
        count: int,
        limit: Limit | None = None,
        horizon: int = 0,
    ) -> None:
        """Write down `count` releases of `event` before they are made, or refuse, by the owner's
        limit or the run's.

        `release` names the released value. The same name again is the same value computed again
        after a crash, which tells nobody anything new: it is not counted twice. When this returns,
        the disk has the debit.
        """
        self.begin(run, release, event, count, limit, horizon)()

    def begin(
        self,
        run: str,
        release: str,
        event: Event,
        count: int,
        limit: Limit | None = None,
        horizon: int = 0,
        shares: Sequence[SubLimit] = (),
    ) -> Callable[[], None]:
        """A debit that no limit forbids, in all or on a share, and that the disk is still to have:
        by what is returned, which must be called once, in any thread, before the ledger is used
        again."""
        count = operator.index(count)
        if count < 1:
            raise DpflError(f"A debit is for at least 1 release, not {count}.")
        with self._errors(), self._begun() as connection:
            query = (
                "SELECT d.run, e.event, d.count FROM debits d JOIN events e ON e.id = d.event "
                "WHERE d.release = ?"
            )
            known = connection.execute(query, (release,)).fetchone()
            if known and known != (run, encode(event), count):
                raise BudgetRefusal(
                    f"The ledger {self.path.name} holds another release under the same name."
                )
            if not known:
                self._check_shares(event, count, shares)
                self._enter(run, release, event, count, limit, horizon)
        return self._flush

    def _check_shares(self, event: Event, count: int, shares: Sequence[SubLimit]) -> None:
        for share in shares:
            if not share.limit.allows(self.spending_within(share), event, count):
                part = f"for the run {share.run}" if share.run else f"for {share.days:g} days"
                raise BudgetRefusal(
                    f"The budget of {self.path.stem} {part} (epsilon {share.limit.epsilon:g}) has "
                    "no room for it."
                )

    def _enter(
        self, run: str, release: str, event: Event, count: int, limit: Limit | None, horizon: int
    ) -> None:
        """Inside a transaction, which nobody else can write beside."""
        held = self._now
        if neighbours_of([event]) == REPLACE != self.account.neighbours:
            raise BudgetRefusal(
                f"The ledger {self.path.name} is for neighbours that {self.account.neighbours}; "
                "fixed-size draws are proven "
                "for different neighbours, so they need a ledger of their own."
            )
        for bound in dict.fromkeys((held.limit, limit)):
            if bound and not bound.allows(held.spent, event, count, horizon):
                raise BudgetRefusal(
                    f"The budget of {self.path.stem} (epsilon {bound.epsilon:g}) has no room for "
                    f"{count} more."
                )
        self._bind()
        number, held = self._know(run, event), self._now
        tail = append_row(
            self._connection, held.tail, "debits", run, release, number, count, self._time()
        )
        self._held = replace(held, tail=tail, spent=add(held.spent, event, count))

    def _time(self) -> float:
        """Never before the last debit: one that a clock, set back, dated years ago would be no part
        of this year.
        """
        last = self._connection.execute("SELECT at FROM debits ORDER BY id DESC LIMIT 1").fetchone()
        return max(time.time(), last[0] if last else 0.0)

    def _bind(self) -> None:
        """The first debit says whose data the ledger counts, and every other is for the same."""
        self._check_data(needed=True)
        if self._mark and not self._now.mark:
            self._append("holdings", self._mark, time.time())
            self._held = replace(self._now, mark=self._mark)

    def _check_data(self, needed: bool = False) -> None:
        mark = self._held.mark if self._held else ""
        if mark and self._mark != mark and (self._mark or needed):
            raise DpflError(
                f"The ledger {self.path} counts other data than this run's, whose samples are "
                "others or were dealt otherwise; "
                "bring the same data (data.seed deals it, data.names says whose it is), or keep "
                "other ledgers (privacy.ledger)."
            )

    def _know(self, run: str, event: Event | None = None) -> int:
        """A run, and an event, are written down once; the event's number."""
        if run not in self._now.runs:
            self._append("runs", run)
            self._held = replace(self._now, runs=self._now.runs | {run})
        if event is not None and event not in self._now.events:
            self._append("events", encode(event))
            self._held = replace(
                self._now, events={**self._now.events, event: len(self._now.events) + 1}
            )
        return self._now.events[event] if event is not None else 0

    def _append(self, table: str, *values: Value) -> None:
        held = self._now
        self._held = replace(held, tail=append_row(self._connection, held.tail, table, *values))

    @property
    def _now(self) -> _Held:
        """Inside a transaction."""
        assert self._held is not None
        return self._held

    def _look(self) -> None:
        """What the ledger holds is read and checked anew where another connection wrote since."""
        version = int(self._connection.execute("PRAGMA data_version").fetchone()[0])
        if self._held is None or self._held.version != version:
            tail, ask = check_chain(self._connection), self._connection.execute
            mark = ask("SELECT mark FROM holdings ORDER BY id DESC LIMIT 1").fetchone()
            events = {decode(line): number for number, line in ask("SELECT id, event FROM events")}
            runs = frozenset(run for (run,) in ask("SELECT run FROM runs"))
            self._held = _Held(
                version, tail, self.spending(), self.limit, mark[0] if mark else "", events, runs
            )

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
            self._look()
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
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise ledger_error(self.path, error) from error

    def close(self) -> None:
        self._connection.close()


def _file(path: Path) -> tuple[int, int] | None:
    """Which file is at a path, whatever it is called."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _there(path: Path) -> Path:
    if not Path(path).exists():
        raise DpflError(f"There is no ledger at {path}.")
    return Path(path)
