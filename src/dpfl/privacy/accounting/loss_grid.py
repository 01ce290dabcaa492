"""Privacy losses of many releases, on a grid: those of one, composed with themselves and with
others.

As dp-accounting composes its distributions, with the same bounds on what is cut off, which counts
as an infinite loss; by whole arrays where it goes through them number by number, and in a tenth of
the time. At delta = 1e-5 the figures agree to 1e-8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpfl.lazy_import import fft

CUT = 1e-15
"""What may be cut off the ends of a distribution each time that one is made from others."""

ORDERS = 20
"""Of the moments that bound the ends of a sum (Chernoff)."""


@dataclass(frozen=True, eq=False)
class LossGrid:
    """The chance of each loss, from `lowest` intervals on, and of an infinite one: never less than
    the mechanism's own.
    """

    interval: float
    lowest: int
    chances: np.ndarray
    infinite: float

    @cached_property
    def _moments(self) -> tuple[list[float], list[float]]:
        """log E[exp(k i / n)] over the places i of n, for k = 1 to 20, and for the same orders
        below 0.
        """
        up = np.exp(np.arange(len(self.chances)) / len(self.chances))
        found: tuple[list[float], list[float]] = ([], [])
        for base, logs in zip((up, 1 / up), found, strict=True):
            power = np.ones_like(base)
            for _ in range(ORDERS):
                power *= base
                logs.append(math.log(max(float(self.chances @ power), 1e-300)))
        return found

    def _span(self, times: int) -> tuple[int, int]:
        """Places of the sum of so many beyond which there is no more than CUT."""
        count, room = len(self.chances), math.log(2 / CUT)
        up, down = self._moments
        most = min((times * log + room) * count / order for order, log in enumerate(up, 1))
        least = max(-(times * log + room) * count / order for order, log in enumerate(down, 1))
        return max(0, math.floor(least)), min((count - 1) * times, math.ceil(most))

    def repeated(self, times: int) -> LossGrid:
        """Of as many independent releases."""
        least, most = self._span(times)
        held = most - least + 1
        size = fft.next_fast_len(max(held, len(self.chances)), real=True)
        whole = fft.irfft(_power(fft.rfft(self.chances, size), times), size)
        infinite = CUT - math.expm1(times * math.log1p(-self.infinite))
        return LossGrid(
            self.interval, self.lowest * times + least, np.roll(whole, -least)[:held], infinite
        )

    def beside(self, other: LossGrid) -> LossGrid:
        """Of both, on one grid. What is cut off at the top is an infinite loss, and at the bottom
        the least that is kept.
        """
        held = len(self.chances) + len(other.chances) - 1
        size = fft.next_fast_len(held, real=True)
        chances = fft.irfft(fft.rfft(self.chances, size) * fft.rfft(other.chances, size), size)[
            :held
        ]
        low = int(np.searchsorted(np.cumsum(chances), CUT / 2))
        high = max(held - int(np.searchsorted(np.cumsum(chances[::-1]), CUT / 2)), low + 1)
        kept = chances[low:high].copy()
        kept[0] += chances[:low].sum()
        infinite = (
            self.infinite
            + other.infinite
            - self.infinite * other.infinite
            + max(0.0, float(chances[high:].sum()))
        )
        return LossGrid(self.interval, self.lowest + other.lowest + low, kept, infinite)

    def epsilon(self, delta: float) -> float:
        """The least with sum over larger losses of (1 - exp(epsilon - loss)) chance <= delta;
        infinite where there is none.
        """
        if self.infinite > delta:
            return math.inf
        first = max(0, 1 - self.lowest)
        losses = ((self.lowest + np.arange(first, len(self.chances))) * self.interval)[::-1]
        chances = self.chances[first:][::-1]
        above = self.infinite + np.concatenate([[0.0], np.cumsum(chances)])
        shrunk = np.concatenate([[0.0], np.cumsum(chances * np.exp(-losses))])
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            epsilons = np.log((above - delta) / shrunk)
        smaller = np.append(
            losses, 0.0
        )  # the next loss, down to 0: no epsilon below it has these losses alone in its sums
        reached = (above > delta) & (epsilons >= smaller)
        if not reached.any():
            return 0.0
        at = int(np.argmax(reached))
        return float(min(epsilons[at], losses[at - 1]))  # for losses beyond 700, exp(-loss) is 0


def _power(base: np.ndarray, times: int) -> np.ndarray:
    """By squares."""
    found = base.copy() if times % 2 else np.ones_like(base)
    while times := times // 2:
        base = base * base
        if times % 2:
            found *= base
    return found


@dataclass(frozen=True, eq=False)
class LossGridPair:
    """For a record that is removed and for one that is added; the same object where the two are
    alike.
    """

    removed: LossGrid
    added: LossGrid

    @property
    def alike(self) -> bool:
        return self.removed is self.added

    def repeated(self, times: int) -> LossGridPair:
        removed = self.removed.repeated(times)
        return LossGridPair(removed, removed if self.alike else self.added.repeated(times))

    def beside(self, other: LossGridPair) -> LossGridPair:
        removed = self.removed.beside(other.removed)
        return LossGridPair(
            removed, removed if self.alike and other.alike else self.added.beside(other.added)
        )

    def epsilon(self, delta: float) -> float:
        removed = self.removed.epsilon(delta)
        return removed if self.alike else max(removed, self.added.epsilon(delta))
