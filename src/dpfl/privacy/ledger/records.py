"""Reads a ledger: its debits, plans and limits, its chain, and the starts of its node."""

from __future__ import annotations

import time
from collections.abc import Collection

from dpfl.privacy.accounting.accountant import accountant
from dpfl.privacy.accounting.calibration import MAX_RELEASES
from dpfl.privacy.accounting.events import Event, EventCounts, add_all, decode
from dpfl.privacy.ledger.account import (
    LAST_LINK,
    data_mark,
    limits_since_first_debit,
    read_plans,
)
from dpfl.privacy.ledger.chain import ChainTail, Value, passes_through, tails_at
from dpfl.privacy.ledger.limit import Limit, SubLimit
from dpfl.privacy.ledger.starts import Anchors, NodeStart, is_reconciled, read_starts
from dpfl.privacy.ledger.store import LedgerStore, read_limit, read_spending


class LedgerRecords(LedgerStore):
    """An open ledger that is read. `Ledger` also writes."""

    @property
    def unit(self) -> str:
        """The unit that the ledger counts releases for."""
        return self.account.unit

    @property
    def limit(self) -> Limit | None:
        """The owner's limit that stands now; None without one."""
        with self._errors():
            return read_limit(self._connection)

    def limits_since_first_debit(self, until: int = LAST_LINK) -> list[Limit | None]:
        """Lists every limit that a debit may have been held against.

        Args:
            until: The last link of the chain to read.

        Returns:
            The limits in turn; None where the owner had set none.
        """
        with self._errors():
            return limits_since_first_debit(self._connection, until)

    def last_link(self, run: str) -> int:
        """Finds where a run's last row stands in the chain.

        Args:
            run: The run.

        Returns:
            The link of its last debit, plan or mention; 0 without any.
        """
        tables = " UNION ALL ".join(
            f"SELECT run, link FROM {table}" for table in ("runs", "plans", "debits")
        )
        with self._errors():
            query = f"SELECT COALESCE(MAX(link), 0) FROM ({tables}) WHERE run = ?"
            return int(self._connection.execute(query, (run,)).fetchone()[0])

    def counts_data(self, data: str) -> bool:
        """Says whether debits were for the data of a digest.

        Args:
            data: The digest.

        Returns:
            Whether the ledger is bound to that data.
        """
        return bool(data) and self._now.mark == data_mark(self._salt, data)

    def has_release(self, release: str) -> bool:
        """Says whether a released value was debited.

        Args:
            release: The name of the value.

        Returns:
            Whether there is a debit of this name.
        """
        with self._errors():
            query = "SELECT 1 FROM debits WHERE release = ?"
            return self._connection.execute(query, (release,)).fetchone() is not None

    def plans(self) -> dict[str, dict[Event, int]]:
        """Reads all plans.

        Returns:
            The largest number of releases of each event that a run can make, by run.
        """
        with self._errors():
            return read_plans(self._connection)

    def debits(self, until: int = LAST_LINK) -> list[tuple[str, str, str, int, float]]:
        """Reads the debits in the order in which they were written.

        Args:
            until: The last link of the chain to read.

        Returns:
            Run, name of the release, written event, count and time of each debit.
        """
        query = (
            "SELECT d.run, d.release, e.event, d.count, d.at FROM debits d JOIN events e ON e.id = "
            "d.event WHERE d.link <= ? ORDER BY d.id"
        )
        with self._errors():
            return self._connection.execute(query, (until,)).fetchall()

    def spending(self, besides: str = "") -> dict[Event, int]:
        """Sums the debits of each event.

        Args:
            besides: A run to leave out.

        Returns:
            The count of each event.
        """
        return self._sum("d.run != ?", besides)

    def spending_with_others(self, run: str) -> tuple[dict[Event, int], dict[Event, int]]:
        """Sums all debits, and those of other runs, at one moment.

        Args:
            run: The run.

        Returns:
            The count of each event, and its count in the other runs.
        """
        query = (
            "SELECT e.event, SUM(d.count), SUM(d.count * (d.run != ?)) FROM debits d JOIN events e "
            "ON e.id = d.event GROUP BY e.id"
        )
        with self._errors():
            rows = [
                (decode(line), int(count), int(others))
                for line, count, others in self._connection.execute(query, (run,))
            ]
        everything = {event: count for event, count, _ in rows}
        return everything, {event: others for event, _, others in rows if others}

    def spending_within(self, share: SubLimit, besides: str = "") -> dict[Event, int]:
        """Sums the debits that a limit on a part of the spending covers.

        Args:
            share: The limit.
            besides: A run to leave out.

        Returns:
            The count of each event.
        """
        since = share.since(time.time())
        return self._sum("d.run != ? AND ? IN ('', d.run) AND d.at >= ?", besides, share.run, since)

    def spending_until(self, rows: int) -> dict[Event, int]:
        """Sums the debits among the first rows of the chain.

        Args:
            rows: How many rows.

        Returns:
            The count of each event.
        """
        return self._sum("d.link <= ?", rows)

    def _sum(self, where: str, *arguments: Value) -> dict[Event, int]:
        with self._errors():
            return read_spending(self._connection, where, *arguments)

    def epsilon(self, delta: float, by: str = "pld") -> float:
        """Computes the epsilon of everything that was debited.

        Args:
            delta: The target delta.
            by: The accountant's name.

        Returns:
            Epsilon.
        """
        return accountant(by).epsilon(self.spending(), delta)

    def remaining(
        self,
        event: Event,
        limit: Limit | None = None,
        horizon: int = 0,
        run: str = "",
        before: EventCounts | None = None,
    ) -> int:
        """Counts the releases of an event that the owner's limit and a run's own leave room for.

        Args:
            event: The event.
            limit: The run's own limit.
            horizon: How many releases the run needs at most; 0 for no such number.
            run: The run, whose own debits do not count.
            before: What the run releases before them.

        Returns:
            The number of releases, beside those of other runs.
        """
        limits = [bound for bound in (self.limit, limit) if bound]
        events = add_all(self.spending(besides=run), before or {})
        counts = [bound.remaining(events, event, horizon) for bound in limits]
        return min(counts, default=horizon or MAX_RELEASES)

    @property
    def tail(self) -> ChainTail:
        """Where the chain ends now."""
        with self._errors(), self._transaction():
            return self._now.tail

    def contains(self, tail: ChainTail) -> bool:
        """Says whether the chain went through a row. An earlier copy of the file did not.

        Args:
            tail: The row's place and seal.

        Returns:
            Whether the row is part of the chain.
        """
        with self._errors():
            return passes_through(self._connection, tail)

    def includes(self, tail: ChainTail, start: str = "", anchors: Anchors | None = None) -> bool:
        """Says whether everything that a chain had spent up to a row is counted here.

        Args:
            tail: The row's place and seal.
            start: The start of the node to which the row belongs.
            anchors: Earlier rows of that chain.

        Returns:
            Whether the row is in this chain, or in one that was reconciled with it.
        """
        with self._errors():
            return self.contains(tail) or is_reconciled(
                self._connection, tail, start, anchors or {}
            )

    def tails_at(self, rows: Collection[int]) -> list[ChainTail]:
        """Reads the seals of some rows.

        Args:
            rows: The places of the rows.

        Returns:
            Where the chain went through at these rows.
        """
        with self._errors():
            return tails_at(self._connection, rows)

    @property
    def starts(self) -> list[NodeStart]:
        """The starts of the node that writes here, the latest first; none where no node does."""
        with self._errors():
            return read_starts(self._connection, self.tail.links)
