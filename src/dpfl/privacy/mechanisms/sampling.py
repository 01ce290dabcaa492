"""Who takes part in a release: samples of a batch, or clients of a cohort."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpfl.codec import part
from dpfl.errors import DpflError
from dpfl.lazy_import import dp
from dpfl.privacy.accounting.events import ADD_REMOVE, REPLACE, Event, gaussian


class Sampling(Protocol):
    @property
    def neighbours(self) -> str:
        """Whom the event is proven for: one more or less, or one in another's place."""

    @property
    def needs_secrecy(self) -> bool:
        """Whether the event counts on it that nobody learns who was drawn."""

    @property
    def allows_self_knowledge(self) -> bool:
        """Whether the event still holds against a unit that knows of itself whether it was
        drawn.
        """

    @property
    def depends_on_population(self) -> bool:
        """Whether one unit more or less changes with what chance, or when, all others are drawn."""

    @property
    def min_population(self) -> int:
        """The smallest population that can be drawn from."""

    @property
    def max_share(self) -> float:
        """How much of the mean of a draw, over the fixed divisor, one unit of it is at most."""

    def draw(self, population: int, rng: np.random.Generator, turn: int = 0) -> np.ndarray:
        """The indices that take part, in ascending order; `turn` counts the draws."""

    def expected_size(self, population: int) -> float:
        """How many take part on average: the fixed divisor, whatever the draw."""

    def event(self, noise_multiplier: float, population: int) -> Event:
        """The event of a release whose noise is `noise_multiplier` times the largest norm of one
        unit.
        """


NEGLIGIBLE = 2.0**-100
"""A chance that counts as none."""


def largest_draw(sampling: Sampling, population: int) -> float:
    """How many units a draw from a population of this declared size has, but for a chance of
    RARELY.

    Coins that come up m times on average come up t times more often with a chance of exp(-t^2 / (2
    m + 2 t / 3)) at most (Bernstein's inequality).
    """
    mean = sampling.expected_size(population)
    if not isinstance(sampling, Poisson | PoissonSize):
        return mean
    third = -math.log(NEGLIGIBLE) / 3
    return min(float(population), mean + third + math.sqrt(third**2 + 6 * third * mean))


@part("sampling.poisson")
@dataclass(frozen=True)
class Poisson:
    """Each unit by its own coin; proven for adding or removing one."""

    rate: float
    neighbours = ADD_REMOVE
    needs_secrecy = allows_self_knowledge = True
    depends_on_population = False
    min_population = 1
    max_share = math.inf

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise DpflError(
                f"The sampling rate must lie above 0 and at most at 1, not {self.rate}."
            )

    def draw(self, population: int, rng: np.random.Generator, turn: int = 0) -> np.ndarray:
        return np.flatnonzero(rng.random(population) < self.rate)

    def expected_size(self, population: int) -> float:
        return self.rate * population

    def event(self, noise_multiplier: float, population: int) -> Event:
        noise = gaussian(noise_multiplier)
        private = noise_multiplier > 0 and self.rate < 1
        return dp.PoissonSampledDpEvent(self.rate, noise) if private else noise


@part("sampling.poisson-size")
@dataclass(frozen=True)
class PoissonSize:
    """Poisson sampling with a number expected instead of a rate."""

    size: int
    neighbours = ADD_REMOVE
    needs_secrecy = allows_self_knowledge = depends_on_population = True
    max_share = math.inf

    @property
    def min_population(self) -> int:
        return self.size

    def __post_init__(self) -> None:
        if self.size < 1:
            raise DpflError(f"A Poisson draw must expect at least 1 unit, not {self.size}.")

    def of(self, population: int) -> Poisson:
        if self.size > population:
            raise DpflError(
                f"{self.size} units cannot be expected of {population}; lower the size of the draw."
            )
        return Poisson(self.size / population)

    def draw(self, population: int, rng: np.random.Generator, turn: int = 0) -> np.ndarray:
        return self.of(population).draw(population, rng)

    def expected_size(self, population: int) -> float:
        return float(self.size)

    def event(self, noise_multiplier: float, population: int) -> Event:
        return self.of(population).event(noise_multiplier, population)


@part("sampling.fixed-size")
@dataclass(frozen=True)
class FixedSize:
    """As many as planned, without replacement; proven for replacing one, where the sum moves by two
    norms.
    """

    size: int
    neighbours = REPLACE
    needs_secrecy = True
    allows_self_knowledge = depends_on_population = False  # replacing one changes no count

    @property
    def min_population(self) -> int:
        return self.size

    @property
    def max_share(self) -> float:
        return 1 / self.size

    def __post_init__(self) -> None:
        if self.size < 1:
            raise DpflError(f"A fixed-size draw needs at least 1 unit, not {self.size}.")

    def draw(self, population: int, rng: np.random.Generator, turn: int = 0) -> np.ndarray:
        if self.size > population:
            raise DpflError(
                f"{self.size} units cannot be drawn from {population}; lower the size of the draw."
            )
        return np.sort(rng.choice(population, self.size, replace=False))

    def expected_size(self, population: int) -> float:
        return float(self.size)

    def event(self, noise_multiplier: float, population: int) -> Event:
        if self.size > population:
            raise DpflError(
                f"{self.size} units cannot be drawn from {population}; lower the size of the draw."
            )
        noise = gaussian(noise_multiplier / 2)
        return (
            dp.SampledWithoutReplacementDpEvent(population, self.size, noise)
            if noise_multiplier > 0
            else noise
        )


@part("sampling.fixed-cohort")
@dataclass(frozen=True)
class FixedCohort(FixedSize):
    """A fixed-size draw of clients, each of whom knows whether it was drawn.

    To one that was not, all of the draw are among the n - 1 others, at a rate of b / (n - 1); to
    one that was, b - 1 of them. The event is that of the first, which holds in every round against
    either, and against whoever knows less.
    """

    allows_self_knowledge = True

    def event(self, noise_multiplier: float, population: int) -> Event:
        return super().event(
            noise_multiplier, population - 1 if self.size < population else population
        )


@part("sampling.all")
@dataclass(frozen=True)
class All:
    """Everyone, every time."""

    neighbours = ADD_REMOVE
    needs_secrecy = depends_on_population = False
    allows_self_knowledge = True
    min_population = 1
    max_share = (
        math.inf
    )  # the divisor is declared: one sample more makes the mean longer than its clip

    def draw(self, population: int, rng: np.random.Generator, turn: int = 0) -> np.ndarray:
        return np.arange(population)

    def expected_size(self, population: int) -> float:
        return float(population)

    def event(self, noise_multiplier: float, population: int) -> Event:
        return gaussian(noise_multiplier)


@part("sampling.cyclic")
@dataclass(frozen=True)
class Cyclic:
    """Groups of at least this many units, one after another in fixed turns: no chance, and no gain
    by it.

    The event is that of all turns together, for noise over what a unit moves in all of them.
    """

    size: int
    neighbours = ADD_REMOVE
    needs_secrecy = False
    allows_self_knowledge = depends_on_population = True
    max_share = math.inf

    @property
    def min_population(self) -> int:
        return self.size

    def __post_init__(self) -> None:
        if self.size < 1:
            raise DpflError(f"A group needs at least 1 unit, not {self.size}.")

    def turns(self, population: int) -> int:
        if self.size > population:
            raise DpflError(
                f"A group of {self.size} cannot be made of {population} units; lower its size."
            )
        return population // self.size

    def draw(self, population: int, rng: np.random.Generator, turn: int = 0) -> np.ndarray:
        turns = self.turns(population)
        return np.arange(turn % turns, population, turns)

    def expected_size(self, population: int) -> float:
        return population / self.turns(population)

    def event(self, noise_multiplier: float, population: int) -> Event:
        return gaussian(noise_multiplier)
