"""What is asked of a plan, and the noise that a sampling rate and a number of steps a round then
need.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpfl.errors import DpflError
from dpfl.privacy import Budget, Poisson
from dpfl.privacy.accounting.accountant import (
    DISCRETISATION,
    Accountant,
    gaussian_delta,
    grid_accountant,
    proven_accountant,
)
from dpfl.privacy.accounting.calibration import noise_near
from dpfl.privacy.accounting.events import EventCounts
from dpfl.privacy.mechanisms.noise_shares import NoiseShares

ENOUGH_STEPS = 100
"""A run of fewer steps is counted as worse in proportion; with 100 rounds, one step in each beat
three (docs/results.md).
"""
WITHIN = 1e-3
"""How far below epsilon, in proportion, cells may lie that are not recommended; the recommended one
lies within 1e-4.
"""


@dataclass(frozen=True)
class PlanningQuestion:
    """What is given: the budget, and what is publicly known of clients, model and machines."""

    epsilon: float
    rounds: int
    delta: float = 1e-5
    sizes: tuple[int, ...] = ()
    samples_per_round: float | None = None
    parameters: int | None = None
    accountant: str = "pld"
    seconds_per_round: float | None = None
    samples_per_second: float | None = None
    measured: str = ""
    """What the speed was measured on; empty where it was given."""
    shared: NoiseShares | None = None
    """Who shares the noise, where the server is to see sums only."""

    def __post_init__(self) -> None:
        Budget(epsilon=self.epsilon, delta=self.delta, rounds=self.rounds)
        proven_accountant(self.accountant)
        if any(size < 1 for size in self.sizes):
            raise DpflError(
                "Every client needs at least 1 sample; leave out clients that have none."
            )
        for what in ("samples_per_round", "seconds_per_round", "samples_per_second"):
            if (value := getattr(self, what)) is not None and not 0 < value < math.inf:
                raise DpflError(
                    f"The {what.replace('_per_', ' a ')} must be above 0, not {value:g}."
                )
        if (self.seconds_per_round is None) != (self.samples_per_second is None):
            raise DpflError(
                "Seconds a round and samples a second go together; instead of the speed, name a "
                "model to measure."
            )
        if self.limit < math.inf and not self.sizes:
            raise DpflError(
                "A limit on what a round computes needs the clients' sizes: give --sizes, or "
                "--clients and --size."
            )
        if self.parameters is not None and self.parameters < 1:
            raise DpflError(f"A model has at least 1 parameter, not {self.parameters}.")

    @property
    def limit(self) -> float:
        """The most samples that a client can compute in a round."""
        timed = (self.seconds_per_round or math.inf) * (self.samples_per_second or math.inf)
        return min(self.samples_per_round or math.inf, timed)

    @property
    def parts(self) -> float:
        """The variance in the sum of all clients' noise, in units of what is accounted for: all of
        it from each, or shares.
        """
        return len(self.sizes) / (self.shared.unknown_shares if self.shared else 1)

    def allows(self, rate: float, tau: int) -> bool:
        return self.limit == math.inf or rate * tau * max(self.sizes) <= self.limit * (1 + 1e-9)


@dataclass(frozen=True)
class NoiseChoice:
    """One cell of the table: the noise that all of the rounds need at this rate and tau."""

    sampling_rate: float
    tau: int
    noise_multiplier: float
    iterations: int

    @property
    def per_step(self) -> float:
        """Noise on the mean of a batch, for clip 1 and times the client's size: z / q."""
        return self.noise_multiplier / self.sampling_rate

    @property
    def total(self) -> float:
        return self.per_step / math.sqrt(self.iterations)

    @property
    def score(self) -> float:
        return self.total * max(1.0, ENOUGH_STEPS / self.iterations)

    def samples(self, size: int) -> float:
        """Expected samples a round of a client of this size."""
        return self.sampling_rate * self.tau * size


def cells(
    question: PlanningQuestion, rates: Sequence[float], taus: Sequence[int]
) -> tuple[tuple[NoiseChoice, ...], tuple[float, ...]]:
    """All cells, and the errors of the limit theorem at them, which are small where q T is large
    and grow as it falls.
    """
    found: dict[tuple[float, int], tuple[NoiseChoice, float]] = {}
    first = 0.0
    for rate in sorted(rates, reverse=True):
        scale = first
        for tau in sorted(taus):
            steps = tau * question.rounds
            found[rate, tau] = _choice(
                question, rate, tau, scale / (rate * steps), _quick(question, steps)
            )
            scale = found[rate, tau][1] * rate * steps
            first = scale if tau == min(taus) else first
    choices, errors = zip(*(found[rate, tau] for rate in rates for tau in taus), strict=True)
    return choices, errors


def exact(question: PlanningQuestion, choice: NoiseChoice, error: float) -> NoiseChoice:
    """The cell to 1e-4, by the accountant that guards a run: on its coarse grid, unless that asks
    for more noise.
    """
    by = proven_accountant(question.accountant)
    found, error = _choice(question, choice.sampling_rate, choice.tau, error, by.quick or by, 1e-4)
    if found.noise_multiplier > 1.005 * choice.noise_multiplier:
        found, _ = _choice(question, choice.sampling_rate, choice.tau, error, by, 1e-4)
    return found


def coarse(question: PlanningQuestion, choice: NoiseChoice) -> NoiseChoice:
    """The cell to 1e-3, on the grid of the table."""
    return _choice(
        question, choice.sampling_rate, choice.tau, 0.0, _quick(question, choice.iterations)
    )[0]


def _quick(question: PlanningQuestion, steps: int) -> Accountant:
    """Losses on a grid of a tenth of a step's deviation, which moves epsilon by some 1e-3; never
    finer than the figure's.
    """
    width = max(
        DISCRETISATION, 0.1 * _gaussian(question.epsilon, question.delta) / math.sqrt(steps)
    )
    return (
        grid_accountant(width)
        if question.accountant == "pld"
        else proven_accountant(question.accountant)
    )


def _choice(
    question: PlanningQuestion,
    rate: float,
    tau: int,
    error: float,
    by: Accountant,
    within: float = WITHIN,
) -> tuple[NoiseChoice, float]:
    sampling, steps = Poisson(rate), tau * question.rounds

    def events(z: float) -> EventCounts:
        return {sampling.event(z, 1): steps}

    def near(epsilon: float) -> float:
        return in_the_limit(_gaussian(epsilon, question.delta), rate, steps)

    noise, error = noise_near(near, error, events, question.epsilon, question.delta, by, within)
    return NoiseChoice(rate, tau, math.ceil(noise * 1e4) / 1e4, steps), error


def sketched(
    question: PlanningQuestion, rates: Sequence[float], taus: Sequence[int]
) -> tuple[NoiseChoice, ...]:
    """All cells by the limit theorem alone, in a millisecond: near, and nothing that a run may rely
    on.
    """
    mu = _gaussian(question.epsilon, question.delta)
    found = [(rate, tau, tau * question.rounds) for rate in rates for tau in taus]
    return tuple(
        NoiseChoice(rate, tau, in_the_limit(mu, rate, steps), steps) for rate, tau, steps in found
    )


def in_the_limit(mu: float, rate: float, steps: int) -> float:
    """The noise by the limit theorem (Bu et al. 2020), mu^2 = T q^2 (exp(1/z^2) - 1); exact for q =
    1.
    """
    return (
        1 / math.sqrt(math.log1p((mu / rate) ** 2 / steps)) if rate < 1 else math.sqrt(steps) / mu
    )


def _gaussian(epsilon: float, delta: float) -> float:
    """The largest mu = 1/z with which one Gaussian release stays within epsilon."""
    low, high = 0.0, 1e3
    for _ in range(50):
        mu = (low + high) / 2
        low, high = (low, mu) if gaussian_delta(mu, epsilon) > delta else (mu, high)
    return low
