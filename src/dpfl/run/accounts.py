"""The ledgers of a federation, read together: what is left, what was spent, and the statement that
follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from dpfl.algorithms import Algorithm
from dpfl.client.noise_placement import NoisePlacement
from dpfl.data.names import client_names
from dpfl.errors import DpflError
from dpfl.privacy import Keyed, Ledger, Limit, PrivacyStatement, Randomness, accountant
from dpfl.privacy.accounting.accountant import HUGE_EPSILON, Accountant, rough_epsilon
from dpfl.privacy.accounting.calibration import MAX_RELEASES, affordable, largest_count
from dpfl.privacy.accounting.events import (
    Event,
    EventCounts,
    add_all,
    describe,
    encode,
    neighbours_of,
    subtract_events,
)
from dpfl.privacy.ledger.client_ledgers import FEDERATION, ClientLedgers
from dpfl.privacy.ledger.ledger import LAST_LINK
from dpfl.privacy.ledger.plans import events_until, proven_events

Answer = TypeVar("Answer")

GRID = 20
"""While a run goes on its epsilon is shown at the next of this many marks: an upper bound, and
quick.
"""

SHARED_NOISE_ADVERSARY = (
    "any one other client, which can subtract its own share of the noise, and the public; the "
    "server, which knows who was drawn and what noise it adds for missing shares, is trusted"
)
ADVERSARY = {
    NoisePlacement.EVERY_STEP: (
        "the server, other clients and the public, who may see every update"
    ),
    NoisePlacement.CLIENT_UPDATE: (
        "the server, other clients and the public, who may see every upload"
    ),
    NoisePlacement.ROUND_SUM: (
        "other clients and the public, who see the models; the server is trusted with single "
        "updates"
    ),
    NoisePlacement.NONE: "nobody is kept out",
}


@dataclass(frozen=True)
class Accounts:
    """One ledger a client at sample level, one for the federation at client level, none without
    noise.
    """

    run: str
    algorithm: Algorithm
    folder: Path
    declared: Sequence[int]
    delta: float
    accountant: str
    limit: Limit | None
    epsilon: float | None = None
    warnings: tuple[str, ...] = ()
    reading: bool = False
    """Of a run that has ended: its ledgers are read, and none is made."""
    timed: bool = False
    """Whether a clock may end the run."""
    names: Sequence[str] = ()
    data: Sequence[str] = ()
    """What each ledger is bound to."""
    arithmetic: str = ""
    """How the units of private steps are computed, in words for the statement."""
    ordered: bool = False
    """Whether these are the server's own ledgers, of what it ordered; the nodes that paid have
    theirs.
    """

    @property
    def event(self) -> Event:
        return self.algorithm.event(self._population)

    @property
    def published(self) -> bool:
        return self.algorithm.variant == "published"

    @property
    def _population(self) -> int:
        return len(self.declared) if self.algorithm.placement is NoisePlacement.ROUND_SUM else 0

    @property
    def owners(self) -> Sequence[str]:
        """Whose ledgers pay."""
        if self.algorithm.ledger_per_client:
            return self.names or client_names(len(self.declared))
        return (FEDERATION,) if self.algorithm.placement is NoisePlacement.ROUND_SUM else ()

    @cached_property
    def ledgers(self) -> ClientLedgers:
        neighbours = self._neighbours if self.owners else "none"
        return ClientLedgers(
            self.folder, self.owners, self.algorithm.unit, neighbours, self.limit, self.data
        )

    def paths(self) -> list[Path]:
        return [self.ledgers.path(number) for number in range(len(self.ledgers))]

    def remaining(self, horizon: int) -> list[int]:
        """How many releases of this run each owner allows; more than anyone makes where nothing
        limits them.
        """
        if self.algorithm.unit == "none":
            return []
        allowed = self._ask(lambda ledger: self._allowed(ledger, horizon))
        if self.published:
            counts = {id(own): self._claimed_remaining(own, horizon) for own in self._kinds}
            return [counts[id(own)] for own in self._own]
        return allowed

    def _allowed(self, ledger: Ledger, horizon: int) -> int:
        """By one owner, beside other runs, which are for the same neighbours."""
        others = ledger.spending(besides=self.run)
        neighbours_of([*others, self.event])
        if self.published:
            return MAX_RELEASES
        if self.algorithm.schedule:
            return self._scheduled_remaining(
                ledger, add_all(others, self.algorithm.before), horizon
            )
        return ledger.remaining(self.event, self.limit, horizon, self.run, self.algorithm.before)

    def _scheduled_remaining(self, ledger: Ledger, others: EventCounts, horizon: int) -> int:
        """The longest beginning of the schedule that every limit leaves room for."""
        limits = [limit for limit in (ledger.limit, self.limit) if limit]

        def fits(releases: int) -> bool:
            spent = add_all(others, self.algorithm.spending(releases, self._population))
            return all(limit.covers(spent) for limit in limits)

        return largest_count(fits, horizon)

    @cached_property
    def _own(self) -> Sequence[Algorithm]:
        """The algorithm as it is for each who pays."""
        if not self.algorithm.ledger_per_client:
            return [self.algorithm] * len(self.owners)
        found = {size: self.algorithm.for_client_size(size) for size in set(self.declared)}
        return [found[size] for size in self.declared]

    @property
    def _kinds(self) -> Iterable[Algorithm]:
        """Those of them that differ."""
        return {id(own): own for own in self._own}.values()

    def _claimed_remaining(self, own: Algorithm, horizon: int) -> int:
        """A published system stops where its paper says; its ledger holds the truth, which no limit
        would allow.
        """
        epsilon, claim = self.epsilon, own.claim
        if epsilon is None:
            return horizon or MAX_RELEASES
        if claim.accountant:
            return self._claimed_affordable(accountant(claim.accountant), epsilon, horizon)
        if claim.formula is None:
            raise DpflError(
                "This published system claims no epsilon, so none can end it; leave budget.epsilon "
                "out."
            )
        return next(
            (
                count
                for count in range(horizon or MAX_RELEASES)
                if claim.formula(count + 1) > epsilon
            ),
            horizon or MAX_RELEASES,
        )

    def _claimed_affordable(self, by: Accountant, epsilon: float, horizon: int) -> int:
        if self.algorithm.schedule is None:
            return affordable(
                {}, self.algorithm.stated_event(self._population), epsilon, self.delta, by, horizon
            )
        stated = partial(self.algorithm.stated, population=self._population)
        return largest_count(
            lambda releases: by.epsilon(stated(releases), self.delta) <= epsilon, horizon
        )

    def meter(self, remaining: Sequence[int], horizon: int, kept: int | None = None) -> Meter:
        """Where noise cannot be repeated, `kept` says how many releases a checkpoint holds: what
        ledgers hold beyond them was released as well, and is made again with other noise."""
        end, before = min(max(remaining), horizon or MAX_RELEASES), self.algorithm.before
        spending = partial(self.algorithm.spending, population=self._population)
        known = add_all(before, spending(kept)) if kept else {}
        starts = set()
        for everything, others in self._debits():
            lost = {} if kept is None else subtract_events(everything, add_all(others, known))
            starts.add(frozenset(add_all(add_all(others, before), lost).items()))
        alike = None if self.algorithm.schedule else self.event
        return Meter(tuple(starts), spending, self.delta, self.accountant, end, alike)

    def plan(self, remaining: Sequence[int]) -> list[int]:
        """Where tau follows what is released, the most that this run can release is written down
        before its first release, and proven is for that; once written it stays, so a resumed run
        may have less left than `remaining`."""
        if self.algorithm.unit == "none" or not self.algorithm.steps.adaptive:
            return list(remaining)
        left = iter(remaining)
        return self._ask(lambda ledger: self._planned(ledger, next(left)))

    def _planned(self, ledger: Ledger, left: int) -> int:
        for event, most in add_all(
            self.algorithm.before, self.algorithm.spending(left, self._population)
        ).items():
            if most and event not in ledger.plans().get(self.run, {}):
                ledger.plan(self.run, event, most)
        planned = ledger.plans().get(self.run, {}).get(self.event, 0)
        return min(left, planned - self.algorithm.before.get(self.event, 0))

    def _held(
        self, ledger: Ledger, own: bool = False
    ) -> tuple[dict[Event, int], dict[Event, int], float]:
        """What was released, the most that could have been, and the epsilon that no debit can pass;
        with `own`, as they stood at this run's last row."""
        until = ledger.last_link(self.run) if own else LAST_LINK
        return (
            events_until(ledger, until),
            proven_events(ledger, until),
            self._ceiling(ledger, until),
        )

    def _ceiling(self, ledger: Ledger, until: int) -> float:
        """By the largest limit that the owner had: one set later, or that of a later run, held
        nothing that came before it.
        """
        limits = ledger.limits_since_first_debit(until)
        return max(
            limit.epsilon if limit and limit.delta <= self.delta else math.inf for limit in limits
        )

    def check_kept(self, paid: Sequence[int]) -> None:
        """A resumed run finds at least its own debits of before, or its ledgers are not those that
        it had.

        What was asked before the first round is not counted among `paid`, and stands for none of
        them.
        """
        for path, count, (everything, others) in zip(
            self.paths(), paid, self._debits(), strict=True
        ):
            if (
                sum(subtract_events(everything, add_all(others, self.algorithm.before)).values())
                < count
            ):
                raise DpflError(
                    f"The ledger {path} has lost debits of this run; bring back the one it had, or "
                    "start a new run."
                )

    def check_made(self) -> None:
        """A run that has ended left debits under its name, which is a digest of its record: another
        record has none.
        """
        if not any(subtract_events(everything, others) for everything, others in self._debits()):
            raise DpflError(
                f"The ledgers in {self.folder} hold no debit of the run {self.run}: it released "
                "nothing, or record or ledgers "
                "are not its own; restore them from a copy."
            )

    def _debits(self) -> list[tuple[dict[Event, int], dict[Event, int]]]:
        """Of each account: all that it holds, and what is of other runs."""
        return self._ask(lambda ledger: ledger.spending_with_others(self.run))

    def _ask(self, question: Callable[[Ledger], Answer]) -> list[Answer]:
        """Of every ledger in turn."""
        answers = []
        for number in range(len(self.ledgers)):
            with closing(
                self.ledgers.read(number) if self.reading else self.ledgers.open(number)
            ) as ledger:
                answers.append(question(ledger))
        return answers

    def statement(self, randomness: Randomness, own: bool = False) -> PrivacyStatement:
        """Proven is what was fixed beforehand: the most that could have been released, inside the
        limits that hold.

        Args:
            randomness: Where the noise came from.
            own: Whether to leave out what the ledgers gained after this run's own last row.
        """
        if self.algorithm.unit == "none":
            return self._nothing()
        held, epsilon = self._ask(partial(self._held, own=own)), accountant(self.accountant).epsilon
        spent, used = (
            [events for events, *_ in held],
            [epsilon(events, self.delta) for events, *_ in held],
        )
        figures = [
            max(made, min(epsilon(most, self.delta), ceiling))
            for made, (_, most, ceiling) in zip(used, held, strict=True)
        ]
        claim = self.algorithm.claim
        stated = [self._stated(own, events) for own, events in zip(self._own, spent, strict=True)]
        claimed = [
            own.claim.epsilon(events, self.delta)
            for own, events in zip(self._own, stated, strict=True)
        ]
        names = self.owners if self.algorithm.ledger_per_client else ["every client"]
        return PrivacyStatement(
            unit=self.algorithm.unit,
            neighbours=self._neighbours,
            delta=self.delta,
            adversary=self._adversary,
            accountant=self.accountant,
            proven=max(figures),
            unaccounted=self.algorithm.leaks,
            claimed=None
            if None in claimed
            else max(figure for figure in claimed if figure is not None),
            claim=claim.text,
            per_client=dict(zip(names, figures, strict=True)),
            releases=_releases(spent),
            stated={
                encode(event): count for event, count in max(stated, key=_releases_made).items()
            },
            assumptions=self._assumptions(randomness),
            used=max(used),
            most=_releases([most for _, most, _ in held]),
            noise=self.algorithm.noise,
            asked=self.algorithm.questions,
            warnings=(*self.warnings, *self._unlimited()),
        )

    @property
    def _adversary(self) -> str:
        if (sums := self.algorithm.noise_shares) is None:
            shared = self.algorithm.clients.shared_by
            return SHARED_NOISE_ADVERSARY if shared else ADVERSARY[self.algorithm.placement]
        return sums.adversary

    @property
    def _neighbours(self) -> str:
        assert self.algorithm.release is not None
        return self.algorithm.release.neighbours

    def _unlimited(self) -> tuple[str, ...]:
        if not self.algorithm.steps.adaptive or self.published or self.epsilon is not None:
            return ()
        return (
            "tau follows what is released, so proven is for all steps that could have been made; "
            "set budget.epsilon.",
        )

    def _stated(self, own: Algorithm, spent: EventCounts) -> EventCounts:
        """The releases as the paper counts them; what it leaves out costs nothing there."""
        made = subtract_events(spent, self.algorithm.before)
        if self.algorithm.schedule is None:
            return {own.stated_event(self._population): made.get(own.event(self._population), 0)}
        return made

    def _nothing(self) -> PrivacyStatement:
        return PrivacyStatement(
            unit="none",
            neighbours="none",
            delta=self.delta,
            adversary=ADVERSARY[NoisePlacement.NONE],
            accountant="none",
            proven=math.inf,
            claimed=None,
            claim=self.algorithm.claim.text,
            unaccounted=("every client's update, without noise",),
            noise=self.algorithm.noise,
        )

    def _assumptions(self, randomness: Randomness) -> tuple[str, ...]:
        facts = ["the sizes of the clients, the settings and the test set are public"]
        if self.ordered:
            facts.append(
                "every release that was ordered is counted once; what a node spent, its own signed "
                "statement says"
            )
        if self.algorithm.trusts_server and self.algorithm.clients.sampling.needs_secrecy:
            facts.append(
                "a client knows whether it was drawn into a cohort itself; only the server learns "
                "who else was, and how many"
            )
        if (shares := self.algorithm.clients.shared_by) and (noise := self.algorithm.clients.noise):
            facts.append(
                "clients do not add up what they know: of t together, only the other shares of the "
                "noise are unknown"
            )
            alone = noise.noise_multiplier / math.sqrt(shares)
            facts.append(
                f"secure aggregation: a single upload has a noise multiplier of {alone:.3g} only"
            )
        if self.algorithm.noise_shares:
            facts.append(
                "secure aggregation: more colluders, or a server that sees single clients, find a "
                "share of the noise only"
            )
            facts.append("who answers, and how fast, does not depend on the data")
            if self.ordered:
                facts.append(
                    "each node's owner has the keys of those whom it sums with from their owners, "
                    "not from the server"
                )
            if self.algorithm.weights.query:
                facts.append(
                    "the label shares that weights are made of are each client's own, seen with "
                    "all of their noise"
                )
        if self.arithmetic:
            facts.append(f"float arithmetic is {self.arithmetic}")
        if self.timed and not self.algorithm.steps.adaptive:
            facts.append("when the clock ends the run does not depend on the data")
        if isinstance(randomness, Keyed):
            facts.append(
                "nobody knows the seed that the noise came from: whoever does can take the noise "
                "away; with real data set "
                "privacy.entropy = 'system'"
            )
        return tuple(facts)


@dataclass(frozen=True)
class Meter:
    """Epsilon of a run under way, for its fullest account: the figure at the next mark, never below
    the truth.
    """

    starts: tuple[frozenset[tuple[Event, int]], ...]
    spending: Callable[[int], EventCounts]
    delta: float
    accountant: str
    end: int
    event: Event | None = None
    """Of every release, where all are alike."""

    def at_most(self, releases: int) -> float:
        mark = self._mark(releases)
        return max(self._figure(start, mark) for start in self.starts)

    def _figure(self, start: frozenset[tuple[Event, int]], mark: int) -> float:
        """Between even marks by a rough PLD that grows from mark to mark, and never above the
        figure at the end.
        """
        by, total = accountant(self.accountant), partial(add_all, dict(start))
        if by.quick is None or self.event is None or mark >= self.end or not self._even:
            return (by.quick or by).epsilon(total(self.spending(mark)), self.delta)
        end = by.quick.epsilon(total(self.spending(self.end)), self.delta)
        if end > HUGE_EPSILON:
            return by.quick.epsilon(total(self.spending(mark)), self.delta)
        return min(
            end, rough_epsilon(start, self.event, self._stride, mark // self._stride, self.delta)
        )

    @property
    def _even(self) -> bool:
        return self.end < MAX_RELEASES

    @property
    def _stride(self) -> int:
        return max(1, math.ceil(self.end / GRID))

    def _mark(self, releases: int) -> int:
        """Even marks up to a known end; where there is none, each a fifth beyond the last."""
        if not self._even or releases > self.end:
            return math.ceil(1.2 ** math.ceil(math.log(max(releases, 1), 1.2) - 1e-9))
        return min(math.ceil(releases / self._stride) * self._stride, self.end)


def warnings_for(unit: str, clients: int, largest: int, delta: float) -> tuple[str, ...]:
    """Of a delta that is too large for as many units as the largest account has."""
    units, whose = (
        (clients, "clients") if unit == "client" else (largest, f"the largest client's {unit}s")
    )
    if unit == "none" or delta < 1 / units:
        return ()
    return (
        f"delta {delta:g} is not below 1/{units} ({whose}): it allows giving one of them away; "
        "lower it.",
    )


def _releases_made(spent: EventCounts) -> int:
    return sum(spent.values())


def _releases(spent: Sequence[EventCounts]) -> dict[str, int]:
    """The largest count of each kind of release that any one owner made."""
    counts: dict[str, int] = {}
    for events in spent:
        for event, count in events.items():
            text = describe(event)
            counts[text] = max(count, counts.get(text, 0))
    return counts
