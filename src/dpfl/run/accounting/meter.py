"""Bounds epsilon while a run is under way, cheaply, after every round."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from dpfl.privacy import accountant
from dpfl.privacy.accounting.accountant import HUGE_EPSILON, rough_epsilon
from dpfl.privacy.accounting.calibration import MAX_RELEASES
from dpfl.privacy.accounting.events import Event, EventCounts, add_all

GRID = 20
"""The number of marks per run. Epsilon is shown at the next mark: an upper bound, and quick."""


@dataclass(frozen=True)
class Meter:
    """An upper bound on the epsilon of the fullest account: epsilon at the next mark.

    Attributes:
        starts: What each account holds before the run's first release, without repetitions.
        spending: The events of the run's first n releases.
        delta: The delta that epsilon is for.
        accountant: The name of the accountant.
        end: The most releases that the run can make.
        event: The event of every release, where all are alike.
    """

    starts: tuple[frozenset[tuple[Event, int]], ...]
    spending: Callable[[int], EventCounts]
    delta: float
    accountant: str
    end: int
    event: Event | None = None

    def at_most(self, releases: int) -> float:
        """Bounds epsilon from above.

        Args:
            releases: How many private releases the run has made.

        Returns:
            The epsilon of the fullest account at the next mark.
        """
        mark = self._mark(releases)
        return max(self._epsilon(start, mark) for start in self.starts)

    def _epsilon(self, start: frozenset[tuple[Event, int]], mark: int) -> float:
        """Computes epsilon at a mark. Between even marks a rough PLD grows from mark to mark, and
        never above the figure at the end.
        """
        by, total = accountant(self.accountant), partial(add_all, dict(start))
        if by.quick is None or self.event is None or mark >= self.end or not self._even:
            return (by.quick or by).epsilon(total(self.spending(mark)), self.delta)
        end = by.quick.epsilon(total(self.spending(self.end)), self.delta)
        if end > HUGE_EPSILON:
            return by.quick.epsilon(total(self.spending(mark)), self.delta)
        marks = mark // self._stride
        return min(end, rough_epsilon(start, self.event, self._stride, marks, self.delta))

    @property
    def _even(self) -> bool:
        return self.end < MAX_RELEASES

    @property
    def _stride(self) -> int:
        return max(1, math.ceil(self.end / GRID))

    def _mark(self, releases: int) -> int:
        """Finds the next mark. Marks are even up to a known end. Without one, each mark is a fifth
        beyond the last.
        """
        if not self._even or releases > self.end:
            return math.ceil(1.2 ** math.ceil(math.log(max(releases, 1), 1.2) - 1e-9))
        return min(math.ceil(releases / self._stride) * self._stride, self.end)
