"""The ledgers of a run, read together: what they allow, what they hold, and whether they are the
run's own.

Who pays depends on where the noise is. With noise in a client's steps or on its update, every
client pays from a ledger of its own. With noise on the sum of a round, the federation has one
ledger. Without noise there is none. `Accounts` hides that difference: every question goes to each
ledger in turn.

A run asks its accounts four things:

1. `remaining`: how many releases does each owner allow, beside what other runs spent?
2. `plan`: for an algorithm that chooses its steps by what was released, the most that it could
   release is written into the ledgers before the first release. Proven epsilon is for that count.
3. `meter`: an upper bound on epsilon after every round.
4. `totals`: what was released, what could have been, and which limits held. The privacy statement
   (`run/statement.py`) follows from these and from nothing else.

After a crash or at a certificate, `check_checkpoint` and `check_debits` compare the ledgers with
the run that claims them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from dpfl.algorithms import Algorithm
from dpfl.errors import DpflError
from dpfl.privacy import Ledger, Limit, accountant
from dpfl.privacy.accounting.accountant import Accountant
from dpfl.privacy.accounting.calibration import MAX_RELEASES, affordable, largest_count
from dpfl.privacy.accounting.events import (
    Event,
    EventCounts,
    add_all,
    neighbours_of,
    subtract_events,
)
from dpfl.privacy.ledger.client_ledgers import ClientLedgers
from dpfl.privacy.ledger.ledger import LAST_LINK
from dpfl.privacy.ledger.plans import events_until, proven_events
from dpfl.run.accounting.accounting_terms import AccountingTerms
from dpfl.run.accounting.meter import Meter

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class LedgerTotals:
    """The totals of one ledger, over all runs that used it.

    Attributes:
        releases: The events that were released.
        possible: The most that could have been released, by the plans made before training.
        ceiling: The epsilon that no debit could pass; infinite without a limit.
    """

    releases: EventCounts
    possible: EventCounts
    ceiling: float


@dataclass(frozen=True)
class Accounts:
    """The accounts of one run: one ledger per client, one for the federation, or none.

    Attributes:
        run: The name of the run in its ledgers.
        folder: The folder of the ledgers.
        terms: What the accounts count by.
        read_only: Whether the run has ended: its ledgers are read and none is made.
    """

    run: str
    folder: Path
    terms: AccountingTerms
    read_only: bool = False

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm as it runs."""
        return self.terms.algorithm

    @property
    def event(self) -> Event:
        """The event of one private release."""
        return self.algorithm.event(self.terms.population)

    @property
    def limit(self) -> Limit | None:
        """The limit that no debit of this run may pass."""
        return self.terms.limit

    @property
    def neighbours(self) -> str:
        """The neighbouring data sets that the guarantee compares."""
        return self.terms.neighbours

    @cached_property
    def ledgers(self) -> ClientLedgers:
        """The ledgers that pay, by number."""
        return ClientLedgers(
            self.folder,
            self.terms.owners,
            self.algorithm.unit,
            self.neighbours,
            self.limit,
            self.terms.data,
        )

    def paths(self) -> list[Path]:
        """Lists the files of the ledgers.

        Returns:
            A path per owner, in their order.
        """
        return [self.ledgers.path(number) for number in range(len(self.ledgers))]

    @cached_property
    def algorithms(self) -> Sequence[Algorithm]:
        """The algorithm as it is for each owner: noise on updates may follow a client's size."""
        if not self.algorithm.ledger_per_client:
            return [self.algorithm] * len(self.terms.owners)
        sizes = self.terms.declared_sizes
        by_size = {size: self.algorithm.for_client_size(size) for size in set(sizes)}
        return [by_size[size] for size in sizes]

    def remaining(self, horizon: int) -> list[int]:
        """Returns how many releases of this run each owner allows.

        Args:
            horizon: The most releases that the budget's rounds can make, or 0.

        Returns:
            A count per owner, [] without noise. Where nothing limits an owner, it is more than any
            run makes.
        """
        if not self.algorithm.has_noise:
            return []
        allowances = self._for_each_ledger(lambda ledger: self._allowance(ledger, horizon))
        if not self.algorithm.sound:
            different = {id(algorithm): algorithm for algorithm in self.algorithms}.items()
            claims = {
                key: self._claimed_remaining(own_algorithm, horizon)
                for key, own_algorithm in different
            }
            return [claims[id(algorithm)] for algorithm in self.algorithms]
        return allowances

    def _allowance(self, ledger: Ledger, horizon: int) -> int:
        """Counts the releases that one owner allows beside other runs, which are for the same
        neighbours.
        """
        others = ledger.spending(besides=self.run)
        neighbours_of([*others, self.event])
        if not self.algorithm.sound:
            return MAX_RELEASES
        if self.algorithm.schedule:
            queries = self.algorithm.query_spending
            return self._scheduled_remaining(ledger, add_all(others, queries), horizon)
        return ledger.remaining(
            self.event, self.limit, horizon, self.run, self.algorithm.query_spending
        )

    def _scheduled_remaining(self, ledger: Ledger, others: EventCounts, horizon: int) -> int:
        """Finds the longest beginning of the schedule that every limit leaves room for."""
        limits = [limit for limit in (ledger.limit, self.limit) if limit]

        def fits(releases: int) -> bool:
            total = add_all(others, self._spending(releases))
            return all(limit.covers(total) for limit in limits)

        return largest_count(fits, horizon)

    def _spending(self, releases: int) -> EventCounts:
        return self.algorithm.spending(releases, self.terms.population)

    def _claimed_remaining(self, algorithm: Algorithm, horizon: int) -> int:
        """Counts the releases of a published system until its paper says to stop. Its ledger holds
        the true cost, which no limit would allow.
        """
        epsilon, claim = self.terms.budget.epsilon, algorithm.claim
        if epsilon is None:
            return horizon or MAX_RELEASES
        if claim.accountant:
            return self._claimed_affordable(accountant(claim.accountant), epsilon, horizon)
        if claim.formula is None:
            raise DpflError(
                "This published system claims no epsilon, so none can end it; leave budget.epsilon "
                "out."
            )
        for count in range(horizon or MAX_RELEASES):
            if claim.formula(count + 1) > epsilon:
                return count
        return horizon or MAX_RELEASES

    def _claimed_affordable(self, by: Accountant, epsilon: float, horizon: int) -> int:
        population, delta = self.terms.population, self.terms.budget.delta
        if self.algorithm.schedule is None:
            event = self.algorithm.stated_event(population)
            return affordable({}, event, epsilon, delta, by, horizon)
        stated_spending = partial(self.algorithm.stated_spending, population=population)
        return largest_count(
            lambda releases: by.epsilon(stated_spending(releases), delta) <= epsilon, horizon
        )

    def meter(
        self, remaining: Sequence[int], horizon: int, checkpoint_releases: int | None = None
    ) -> Meter:
        """Builds the meter of the run.

        Args:
            remaining: The releases that each owner allowed before the first round.
            horizon: The most releases that the budget's rounds can make, or 0.
            checkpoint_releases: How many releases the checkpoint holds, where noise cannot be
                repeated. What the ledgers hold beyond them was released as well, and will be made
                again with other noise.

        Returns:
            A meter whose figure is never below the true epsilon.
        """
        end, queries = min(max(remaining), horizon or MAX_RELEASES), self.algorithm.query_spending
        releases = self._spending(checkpoint_releases) if checkpoint_releases else {}
        in_checkpoint = add_all(queries, releases) if checkpoint_releases else {}
        starts = set()
        for everything, others in self._debits():
            repeat_events: EventCounts = {}
            if checkpoint_releases is not None:
                repeat_events = subtract_events(everything, add_all(others, in_checkpoint))
            start = add_all(add_all(others, queries), repeat_events)
            starts.add(frozenset(start.items()))
        alike = None if self.algorithm.schedule else self.event
        terms = self.terms
        return Meter(
            tuple(starts), self._spending, terms.budget.delta, terms.accountant, end, alike
        )

    def plan(self, remaining: Sequence[int]) -> list[int]:
        """Writes down the most that this run can release, where its steps follow what it releases.

        Proven epsilon is for that count. Once written it stays, so a resumed run may have less left
        than `remaining`.

        Args:
            remaining: The releases that each owner allows.

        Returns:
            The releases that each owner allows by what is written.
        """
        if not self.algorithm.has_noise or not self.algorithm.steps.adaptive:
            return list(remaining)
        counts = iter(remaining)
        return self._for_each_ledger(lambda ledger: self._plan_in(ledger, next(counts)))

    def _plan_in(self, ledger: Ledger, remaining: int) -> int:
        queries = self.algorithm.query_spending
        for event, most in add_all(queries, self._spending(remaining)).items():
            if most and event not in ledger.plans().get(self.run, {}):
                ledger.plan(self.run, event, most)
        planned_count = ledger.plans().get(self.run, {}).get(self.event, 0)
        return min(remaining, planned_count - queries.get(self.event, 0))

    def totals(self, at_own_last_row: bool = False) -> list[LedgerTotals]:
        """Reads what each ledger says of all runs that used it.

        Args:
            at_own_last_row: Whether to leave out what the ledgers gained after this run's own last
                row.

        Returns:
            The totals of each owner, in their order.
        """
        return self._for_each_ledger(partial(self._totals_of, at_own_last_row=at_own_last_row))

    def _totals_of(self, ledger: Ledger, at_own_last_row: bool) -> LedgerTotals:
        until = ledger.last_link(self.run) if at_own_last_row else LAST_LINK
        return LedgerTotals(
            events_until(ledger, until), proven_events(ledger, until), self._ceiling(ledger, until)
        )

    def _ceiling(self, ledger: Ledger, until: int) -> float:
        """Finds the largest limit since the first debit. A limit that was set later bounds nothing
        that was released before it.
        """
        delta = self.terms.budget.delta
        limits = ledger.limits_since_first_debit(until)
        return max(
            limit.epsilon if limit and limit.delta <= delta else math.inf for limit in limits
        )

    def check_checkpoint(self, debits: Sequence[int]) -> None:
        """Checks that the ledgers hold at least the debits that a checkpoint counts.

        Args:
            debits: The releases of each owner by the checkpoint. Queries before the first round
                are not among them.

        Raises:
            DpflError: A ledger holds fewer debits of this run.
        """
        for path, count, (everything, others) in zip(
            self.paths(), debits, self._debits(), strict=True
        ):
            own = subtract_events(everything, add_all(others, self.algorithm.query_spending))
            if sum(own.values()) < count:
                raise DpflError(
                    f"The ledger {path} has lost debits of this run; bring back the one it had, or "
                    "start a new run."
                )

    def check_debits(self) -> None:
        """Checks that the ledgers hold debits of a run that has ended.

        The name of a run is a digest of its record, so no other record has its debits.

        Raises:
            DpflError: No ledger holds a debit under the run's name.
        """
        if not any(subtract_events(everything, others) for everything, others in self._debits()):
            raise DpflError(
                f"The ledgers in {self.folder} hold no debit of the run {self.run}: it released "
                "nothing, or record or ledgers "
                "are not its own; restore them from a copy."
            )

    def _debits(self) -> list[tuple[EventCounts, EventCounts]]:
        """Reads for each account all that it holds, and the part of other runs."""
        return self._for_each_ledger(lambda ledger: ledger.spending_with_others(self.run))

    def _for_each_ledger(self, question: Callable[[Ledger], Answer]) -> list[Answer]:
        answers = []
        for number in range(len(self.ledgers)):
            ledger = self.ledgers.read(number) if self.read_only else self.ledgers.open(number)
            with closing(ledger):
                answers.append(question(ledger))
        return answers
