"""The ledger: an owner's append-only record of every private release, written before the release.

Law 1 of dpfl: whoever adds noise to a release debits its own ledger, on disk, before the release
leaves. A client that adds its own noise pays from its own ledger. Where a trusted server adds the
noise to the sum of a round, the federation's ledger pays. A ledger is one SQLite file per owner:

- `debits` has one row per released value: the run, the name of the value, its event, and a count.
  Epsilon is computed from these rows and from nothing else (`LedgerRecords.epsilon`).
- `limits` holds what the owner allows in all. A debit beyond it is refused (`BudgetRefusal`), and
  the release is then not made.
- `plans` holds the most that a run can release, written before its first release. Where the number
  of releases depends on what came out, proven epsilons are for the plan (`plans.py`).
- `account`, `holdings`, `runs` and `events` say whose ledger it is, which data it counts, and name
  what the other tables refer to.

Every row is sealed together with the one before (`chain.py`), so no row can be changed or removed
unseen. Triggers refuse updates and deletes. A debit is flushed to the disk before it counts.

A crash may therefore waste budget, but never hide spending. A release has a name, which is a digest
of everything that it is computed from. After a crash the same name is the same value, which tells
nobody anything new, so it is not counted twice.

    >>> from dpfl.privacy.accounting.events import gaussian
    >>> ledger = Ledger.open(path, "hospital-a", "sample", ADD_REMOVE, Limit(4.0, 1e-5))
    >>> ledger.debit("run-1", "round 0", gaussian(4.0), count=10)
    >>> ledger.epsilon(delta=1e-5)
    3.34...
    >>> ledger.debit("run-1", "round 1", gaussian(4.0), count=10)
    Traceback (most recent call last):
    dpfl.privacy.ledger.ledger.BudgetRefusal: ...

`store.py` opens the file and keeps transactions, `records.py` reads, and this module writes.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path

from dpfl.deprecation import keep_old_names, renamed_keywords
from dpfl.errors import DpflError
from dpfl.privacy.accounting.events import REPLACE, Event, EventCounts, add, encode, neighbours_of
from dpfl.privacy.ledger.account import LAST_LINK, LedgerAccount, check_same_kind, limit_row
from dpfl.privacy.ledger.chain import append_row
from dpfl.privacy.ledger.database import connect, connect_to_read, create_database
from dpfl.privacy.ledger.limit import Limit, SubLimit
from dpfl.privacy.ledger.records import LedgerRecords
from dpfl.privacy.ledger.starts import new_start, read_starts, runs_before

__all__ = ["LAST_LINK", "BudgetRefusal", "Ledger", "LedgerAccount", "Limit", "check_same_kind"]


class BudgetRefusal(DpflError):
    """The owner's budget does not allow this release. Nothing was released."""


@keep_old_names(
    add_spent="add_spending",
    counts="counts_data",
    holds="contains",
    limits_since_the_first_debit="limits_since_first_debit",
    made_before="attempts_before",
    note="write_once",
    paid_for="has_release",
    refuse_other="check_account",
    spent="spending",
    spent_and_besides="spending_with_others",
    spent_of="spending_within",
    spent_until="spending_until",
)
class Ledger(LedgerRecords):
    """An open ledger. `open` creates the file if there is none, and `read` never writes."""

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
        """Opens an owner's ledger, and creates it if there is none.

        Args:
            path: The file.
            owner: The owner's name.
            unit: What one record is: a sample, a person or a client.
            neighbours: The neighbouring relation.
            limit: The limit of a new ledger. An old one keeps the limit that its owner set.
            data: A digest of the data that the ledger counts.

        Returns:
            The ledger.

        Raises:
            DpflError: If the file is of another owner, unit or data, or is damaged.
        """
        path, account = Path(path), LedgerAccount(owner, unit, neighbours)
        if not path.exists():
            create_database(path, astuple(account), limit_row(limit) if limit else ())
        ledger = cls(path, connect(path), data)
        ledger.check_account(account)
        return ledger

    @classmethod
    def existing(cls, path: Path) -> Ledger:
        """Opens a ledger that exists, to write in as its owner does.

        Args:
            path: The file.

        Returns:
            The ledger.

        Raises:
            DpflError: If there is none, or it is damaged.
        """
        return cls(_existing_path(path), connect(path))

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """Opens a ledger that exists, to read.

        Args:
            path: The file.

        Returns:
            The ledger. Nothing is written, so the medium may be read-only.

        Raises:
            DpflError: If there is none, or it is damaged.
        """
        return cls(_existing_path(path), connect_to_read(path))

    def check_account(self, account: LedgerAccount) -> None:
        """Closes the ledger if it is not the one that was expected.

        Args:
            account: The expected owner, unit and neighbours.

        Raises:
            DpflError: If the ledger is another's, counts other units, or counts other data.
        """
        try:
            if self.account.owner != account.owner:
                raise DpflError(
                    f"The ledger {self.path} belongs to {self.account.owner}, not to "
                    f"{account.owner}: it was copied or renamed. Restore the ledger that "
                    f"{account.owner} had, because its releases still count."
                )
            check_same_kind(self.path, self.account, account)
            self._check_data()
        except DpflError:
            self.close()
            raise

    def set_limit(self, limit: Limit) -> None:
        """Sets the owner's limit. Earlier limits stay on record.

        Args:
            limit: The new limit.
        """
        with self._errors(), self._transaction():
            self._append("limits", *limit_row(limit), time.time())
            self._snapshot = replace(self._now, limit=limit)

    def epoch(self, run: str) -> int:
        """Counts the runs before this one. It enters the noise keys, so no two runs share noise.

        Args:
            run: The run, which is written down if it is new.

        Returns:
            How many other runs came before.
        """
        with self._errors(), self._transaction() as connection:
            self._register(run)
            return runs_before(connection, run)

    def attempts_before(self, place: str, part: str) -> int:
        """Counts the values that were released before for one part of a release that is paid for as
        a whole.

        Args:
            place: The place in the release, such as a round.
            part: The value's name, which is written down if it is new.

        Returns:
            How many other values were released in this place before.
        """
        with self._errors(), self._transaction() as connection:
            self._register(f"{place}/{part}")
            query = "SELECT run FROM runs WHERE substr(run, 1, ?) = ? ORDER BY id"
            rows = connection.execute(query, (len(place) + 1, f"{place}/"))
            return [run for (run,) in rows].index(f"{place}/{part}")

    def plan(self, run: str, event: Event, most: int) -> None:
        """Writes down, before the first of them, the most releases that a run can make.

        Args:
            run: The run.
            event: The event.
            most: The largest number of releases.

        Raises:
            BudgetRefusal: If the ledger holds another plan of this run.
        """
        most = operator.index(most)
        with self._errors(), self._transaction():
            earlier = self.plans().get(run, {}).get(event)
            if earlier is not None and earlier != most:
                raise BudgetRefusal(
                    f"The ledger {self.path.name} holds another plan of this run: {earlier} "
                    f"releases, not {most}."
                )
            if earlier is None:
                self._append("plans", run, self._register(run, event), most, time.time())

    def start(self, least: int = 0) -> None:
        """Adds a row for one more start of the owner's node.

        Args:
            least: A number that the start's must exceed, as it does all before it.
        """
        with self._errors(), self._transaction() as connection:
            boots = [start.boot for start in read_starts(connection, self._now.tail.links)]
            self._register(new_start(max([least, *boots]) + 1))

    def write_once(self, name: str) -> bool:
        """Writes down a row for the node itself, once.

        Args:
            name: The row.

        Returns:
            Whether it was there before.
        """
        with self._errors(), self._transaction():
            known_before = name in self._now.runs
            self._register(name)
            return known_before

    @renamed_keywords(spent="events", planned="planned_counts")
    def add_spending(
        self, name: str, events: Mapping[tuple[Event, str], int], planned_counts: EventCounts
    ) -> None:
        """Counts what was released but is not written here, whatever the limits say.

        Args:
            name: The name of the row under which it is counted.
            events: The count of each event and mark of shared noise; no mark if all of the noise
                was the client's.
            planned_counts: What was fixed in advance on top of it.
        """
        with self._errors(), self._transaction():
            self._bind()
            self._register(name)
            for (event, mark), count in events.items():
                number = self._register(name, event)
                release = f"reconciled/{mark}/{name}/{number}"
                self._append("debits", name, release, number, count, self._debit_time())
                total = add(self._now.spending, event, count)
                self._snapshot = replace(self._now, spending=total)
            for event, count in planned_counts.items():
                release_count = sum(count for (kind, _), count in events.items() if kind == event)
                number = self._register(name, event)
                self._append("plans", name, number, release_count + count, time.time())

    def debit(
        self,
        run: str,
        release: str,
        event: Event,
        count: int,
        limit: Limit | None = None,
        horizon: int = 0,
    ) -> None:
        """Writes releases down before they are made. When this returns, the disk has the debit.

        Args:
            run: The run.
            release: The name of the released value. A name that is debited already is the same
                value, computed again after a crash, and is not counted twice.
            event: The event.
            count: How many releases.
            limit: The run's own limit.
            horizon: How many releases the run needs at most.

        Raises:
            BudgetRefusal: If the owner's limit or the run's has no room.
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
        """Decides on a debit, and leaves the flush to the disk to the caller.

        Args:
            run: The run.
            release: The name of the released value.
            event: The event.
            count: How many releases.
            limit: The run's own limit.
            horizon: How many releases the run needs at most.
            shares: Limits on parts of the spending.

        Returns:
            The flush. It must be called once, in any thread, before the ledger is used again.

        Raises:
            BudgetRefusal: If a limit has no room.
        """
        count = operator.index(count)
        if count < 1:
            raise DpflError(f"A debit is for at least 1 release, not {count}.")
        with self._errors(), self._open_transaction() as connection:
            query = (
                "SELECT d.run, e.event, d.count FROM debits d JOIN events e ON e.id = d.event "
                "WHERE d.release = ?"
            )
            earlier = connection.execute(query, (release,)).fetchone()
            if earlier and earlier != (run, encode(event), count):
                raise BudgetRefusal(
                    f"The ledger {self.path.name} holds another release under the same name."
                )
            if not earlier:
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
        """Writes one debit, inside a transaction that nobody else can write beside."""
        before = self._now
        if neighbours_of([event]) == REPLACE != self.account.neighbours:
            raise BudgetRefusal(
                f"The ledger {self.path.name} is for neighbours that {self.account.neighbours}; "
                "fixed-size draws are proven "
                "for different neighbours, so they need a ledger of their own."
            )
        for bound in dict.fromkeys((before.limit, limit)):
            if bound and not bound.allows(before.spending, event, count, horizon):
                raise BudgetRefusal(
                    f"The budget of {self.path.stem} (epsilon {bound.epsilon:g}) has no room for "
                    f"{count} more."
                )
        self._bind()
        row = run, release, self._register(run, event), count, self._debit_time()
        now = self._now
        tail = append_row(self._connection, now.tail, "debits", *row)
        self._snapshot = replace(now, tail=tail, spending=add(now.spending, event, count))

    def _debit_time(self) -> float:
        """Returns the time, never before the last debit.

        A debit that a clock, set back, dated years ago would be no part of this year's spending.
        """
        last = self._connection.execute("SELECT at FROM debits ORDER BY id DESC LIMIT 1").fetchone()
        return max(time.time(), last[0] if last else 0.0)

    def _bind(self) -> None:
        """Binds the ledger to its data at the first debit; every other debit is for the same."""
        self._check_data(needed=True)
        if self._mark and not self._now.mark:
            self._append("holdings", self._mark, time.time())
            self._snapshot = replace(self._now, mark=self._mark)


def _existing_path(path: Path) -> Path:
    if not Path(path).exists():
        raise DpflError(f"There is no ledger at {path}; give the path of a ledger (.sqlite).")
    return Path(path)
