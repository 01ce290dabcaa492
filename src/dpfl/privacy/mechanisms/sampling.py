"""Rules that draw who takes part in a release: the samples of a batch, or the clients of a cohort.

Sampling amplifies privacy: a unit that takes part with probability q is exposed less often. Each
sampling knows the event of a release on its sample, the neighbours for which that event is proven,
and what nobody may learn for the amplification to hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpfl.codec import part
from dpfl.deprecation import keep_old_names
from dpfl.errors import DpflError
from dpfl.lazy_import import dp
from dpfl.privacy.accounting.events import ADD_REMOVE, REPLACE, Event, gaussian


@keep_old_names(
    hidden="needs_secrecy",
    known="allows_self_knowledge",
    counts="depends_on_population",
    least="min_population",
    largest_share="max_share",
    expected="expected_size",
)
class Sampling(Protocol):
    """A rule that draws units for one release."""

    @property
    def neighbours(self) -> str:
        """The neighbouring relation for which the event is proven."""

    @property
    def needs_secrecy(self) -> bool:
        """Whether the event holds only if nobody learns who was drawn."""

    @property
    def allows_self_knowledge(self) -> bool:
        """Whether the event still holds against a unit that knows whether it was drawn itself."""

    @property
    def depends_on_population(self) -> bool:
        """Whether one unit more or less changes how, or when, all others are drawn."""

    @property
    def takes_all(self) -> bool:
        """Whether nothing is drawn: every unit takes part."""
        return False

    @property
    def independent(self) -> bool:
        """Whether each unit takes part by its own chance, whatever the others do. Clients of a
        secure sum can then draw themselves.
        """

    @property
    def draws_samples(self) -> bool:
        """Whether it may draw the samples of a step. Others draw clients."""

    @property
    def min_population(self) -> int:
        """The smallest population that can be drawn from."""

    @property
    def max_share(self) -> float:
        """The largest share of one unit in the mean of a draw, over the fixed divisor."""

    @property
    def by_chance(self) -> bool:
        """Whether chance decides which units are drawn."""

    @property
    def constant_size(self) -> bool:
        """Whether every draw has one fixed number of units, whatever the population and the
        draw.
        """

    @property
    def nominal_size(self) -> int | None:
        """The number of units that a draw is declared to have, exactly, on average or at least;
        None where it follows from the population.
        """

    @property
    def takes_turns(self) -> bool:
        """Whether units take part in fixed turns."""
        return False

    def turns(self, population: int) -> int:
        """Counts the draws after which a unit's fixed turn comes again.

        Args:
            population: The number of units to draw from.

        Returns:
            The number of draws; 1 where there are no fixed turns.

        Raises:
            DpflError: If the population is smaller than one group.
        """
        return 1

    def draw(self, population: int, rng: np.random.Generator, turn: int = 0) -> np.ndarray:
        """Draws the units of one release.

        Args:
            population: The number of units to draw from.
            rng: The generator.
            turn: How many draws came before.

        Returns:
            The units' numbers in ascending order.
        """

    def expected_size(self, population: int) -> float:
        """Computes how many units take part on average, which is the fixed divisor whatever the
        draw.

        Args:
            population: The number of units to draw from.

        Returns:
            The expected number.
        """

    def event(self, noise_multiplier: float, population: int) -> Event:
        """Describes one release on a draw.

        Args:
            noise_multiplier: The noise's standard deviation over the largest norm of one unit.
            population: The number of units to draw from.

        Returns:
            The event.
        """


@part("sampling.poisson")
@dataclass(frozen=True)
class Poisson(Sampling):
    """Poisson sampling: each unit takes part with probability `rate`, independently of the others.

    Proven for adding or removing one unit (Mironov, Talwar and Zhang 2019; Zhu and Wang 2019).

    Attributes:
        rate: The probability q.
    """

    rate: float
    neighbours = ADD_REMOVE
    by_chance = independent = draws_samples = needs_secrecy = allows_self_knowledge = True
    constant_size = depends_on_population = False
    nominal_size = None
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
class PoissonSize(Sampling):
    """Poisson sampling with an expected number of units instead of a rate.

    Attributes:
        size: The expected number.
    """

    size: int
    neighbours = ADD_REMOVE
    by_chance = independent = needs_secrecy = allows_self_knowledge = depends_on_population = True
    constant_size = draws_samples = False
    max_share = math.inf

    @property
    def min_population(self) -> int:
        return self.size

    @property
    def nominal_size(self) -> int:
        return self.size

    def __post_init__(self) -> None:
        if self.size < 1:
            raise DpflError(f"A Poisson draw must expect at least 1 unit, not {self.size}.")

    def of(self, population: int) -> Poisson:
        """Fixes the population.

        Args:
            population: The number of units to draw from.

        Returns:
            Poisson sampling at the rate size / population.

        Raises:
            DpflError: If the population is smaller than the expected number.
        """
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
class FixedSize(Sampling):
    """A fixed number of units without replacement. Proven for replacing one unit (Wang, Balle and
    Kasiviswanathan 2019).

    Replacing a unit moves the sum by two norms, so the event has half the noise multiplier.

    Attributes:
        size: The number of units.
    """

    size: int
    neighbours = REPLACE
    by_chance = constant_size = draws_samples = needs_secrecy = True
    independent = False
    allows_self_knowledge = depends_on_population = False  # replacing one changes no count

    @property
    def min_population(self) -> int:
        return self.size

    @property
    def nominal_size(self) -> int:
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
    """A fixed-size draw of clients, each of which knows whether it was drawn.

    To a client that was not drawn, all b of the draw are among the n - 1 others, at a rate of b /
    (n - 1). To one that was, b - 1 of them are. The event is that of the first, which holds in
    every round against either, and against whoever knows less.
    """

    allows_self_knowledge = True
    draws_samples = False

    def event(self, noise_multiplier: float, population: int) -> Event:
        return super().event(
            noise_multiplier, population - 1 if self.size < population else population
        )


@part("sampling.all")
@dataclass(frozen=True)
class All(Sampling):
    """Every unit takes part in every release."""

    neighbours = ADD_REMOVE
    by_chance = constant_size = needs_secrecy = depends_on_population = False
    takes_all = independent = draws_samples = allows_self_knowledge = True
    nominal_size = None
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
class Cyclic(Sampling):
    """Groups of at least `size` units, one after another in fixed turns.

    There is no chance, and so no amplification. The event is that of all turns together, for noise
    over what a unit moves in all of them.

    Attributes:
        size: The least number of units in a group.
    """

    size: int
    neighbours = ADD_REMOVE
    takes_turns = True
    by_chance = constant_size = independent = draws_samples = needs_secrecy = False
    allows_self_knowledge = depends_on_population = True
    max_share = math.inf

    @property
    def min_population(self) -> int:
        return self.size

    @property
    def nominal_size(self) -> int:
        return self.size

    def __post_init__(self) -> None:
        if self.size < 1:
            raise DpflError(f"A group needs at least 1 unit, not {self.size}.")

    def turns(self, population: int) -> int:
        """Counts the groups.

        Args:
            population: The number of units.

        Returns:
            After how many draws a group takes part again.

        Raises:
            DpflError: If the population is smaller than one group.
        """
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
