"""The question that a plan answers, and the noise that each sampling rate and tau then need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

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
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares

ENOUGH_STEPS = 100
"""A run of fewer steps counts as worse in proportion. With 100 rounds, one step in each beat three
(docs/results.md).
"""
WITHIN = 1e-3
"""Relative distance below epsilon that a cell of the table may have. The recommended cell lies
within 1e-4.
"""


@dataclass(frozen=True)
class PlanningQuestion:
    """The budget, and what is publicly known of clients, model and machines.

    Attributes:
        epsilon: Privacy budget.
        rounds: Number of rounds.
        delta: Delta of the guarantee.
        sizes: Declared number of samples per client.
        samples_per_round: Most samples that a client may compute in a round.
        parameters: Number of trained parameters of the model.
        accountant: Name of the accountant, which must be proven.
        seconds_per_round: Most seconds that a client may compute in a round.
        samples_per_second: Speed of a client; goes with `seconds_per_round`.
        measured_model: The model that the speed was measured with; empty if it was given.
        noise_shares: Who shares the noise, if the server is to see sums only.
    """

    epsilon: float
    rounds: int
    delta: float = 1e-5
    sizes: tuple[int, ...] = ()
    samples_per_round: float | None = None
    parameters: int | None = None
    accountant: str = "pld"
    seconds_per_round: float | None = None
    samples_per_second: float | None = None
    measured_model: str = ""
    noise_shares: NoiseShares | None = None

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
                    f"The {what.replace('_per_', ' per ')} must be above 0, not {value:g}."
                )
        if (self.seconds_per_round is None) != (self.samples_per_second is None):
            raise DpflError(
                "Seconds per round and samples per second go together. Instead of the speed you "
                "can name a model, and dpfl measures it."
            )
        if self.limit < math.inf and not self.sizes:
            raise DpflError(
                "A limit on what a client computes per round needs the clients' sizes: give "
                "--sizes, or --clients and --size."
            )
        if self.parameters is not None and self.parameters < 1:
            raise DpflError(f"A model has at least 1 parameter, not {self.parameters}.")

    @property
    def limit(self) -> float:
        """Most samples that a client can compute in a round."""
        timely_samples = (self.seconds_per_round or math.inf) * (
            self.samples_per_second or math.inf
        )
        return min(self.samples_per_round or math.inf, timely_samples)

    @property
    def parts(self) -> float:
        """Variance of all clients' noise in the sum, in units of the variance that is accounted
        for.

        It is the number of clients where each adds all of the noise, and less where they share it.
        """
        return len(self.sizes) / (self.noise_shares.unknown_shares if self.noise_shares else 1)

    def to_dict(self) -> dict[str, Any]:
        """Returns the question as plain values, for JSON.

        Returns:
            The fields by their written keys.
        """
        words = asdict(self)
        return words | {
            "measured": words.pop("measured_model"),
            "shared": words.pop("noise_shares"),
        }

    def allows(self, rate: float, tau: int) -> bool:
        """Says whether the largest client can compute this in a round.

        Args:
            rate: Sampling rate.
            tau: Local steps per round.

        Returns:
            Whether it stays within the limit.
        """
        return self.limit == math.inf or rate * tau * max(self.sizes) <= self.limit * (1 + 1e-9)


@dataclass(frozen=True)
class NoiseChoice:
    """One cell of the table: the noise that all rounds need at this sampling rate and tau.

    Attributes:
        sampling_rate: Probability q with which each sample enters a step.
        tau: Local steps per round.
        noise_multiplier: Noise z, over sensitivity.
        iterations: Steps of the whole run, T.
    """

    sampling_rate: float
    tau: int
    noise_multiplier: float
    iterations: int

    @property
    def per_step(self) -> float:
        """Noise of a step on the mean gradient for clip norm 1, times a client's size: z / q."""
        return self.noise_multiplier / self.sampling_rate

    @property
    def total(self) -> float:
        """Noise on the sum of all steps over their number, z / (q sqrt(T))."""
        return self.per_step / math.sqrt(self.iterations)

    @property
    def score(self) -> float:
        """Total noise, counted as worse where the run has few steps. Less is better."""
        return self.total * max(1.0, ENOUGH_STEPS / self.iterations)

    def samples(self, size: int) -> float:
        """Returns the expected number of samples that a client computes in a round.

        Args:
            size: Declared samples of the client.

        Returns:
            q tau n.
        """
        return self.sampling_rate * self.tau * size


def cells(
    question: PlanningQuestion, rates: Sequence[float], taus: Sequence[int]
) -> tuple[tuple[NoiseChoice, ...], tuple[float, ...]]:
    """Computes the table of a plan.

    Args:
        question: The question.
        rates: Sampling rates.
        taus: Local steps per round.

    Returns:
        All cells, rate by rate, and the errors of the limit theorem at them. The errors are small
        where q T is large and grow as it falls, so each is a good guess for the next cell.
    """
    cells_by_setting: dict[tuple[float, int], tuple[NoiseChoice, float]] = {}
    first = 0.0
    for rate in sorted(rates, reverse=True):
        scale = first
        for tau in sorted(taus):
            steps = tau * question.rounds
            choice, error = _choice(
                question, rate, tau, scale / (rate * steps), _quick(question, steps)
            )
            cells_by_setting[rate, tau] = choice, error
            scale = error * rate * steps
            first = scale if tau == min(taus) else first
    choices, errors = zip(
        *(cells_by_setting[rate, tau] for rate in rates for tau in taus), strict=True
    )
    return choices, errors


def exact(question: PlanningQuestion, choice: NoiseChoice, error: float) -> NoiseChoice:
    """Computes one cell to 1e-4, by the accountant that guards a run.

    Its coarse grid is used unless that asks for more noise.

    Args:
        question: The question.
        choice: The cell as the table has it.
        error: Error of the limit theorem at the cell.

    Returns:
        The cell.
    """
    by = proven_accountant(question.accountant)
    quick = by.quick or by
    cell, error = _choice(question, choice.sampling_rate, choice.tau, error, quick, 1e-4)
    if cell.noise_multiplier > 1.005 * choice.noise_multiplier:
        cell, _ = _choice(question, choice.sampling_rate, choice.tau, error, by, 1e-4)
    return cell


def coarse(question: PlanningQuestion, choice: NoiseChoice) -> NoiseChoice:
    """Computes one cell to 1e-3, on the grid of the table.

    Args:
        question: The question.
        choice: The cell to compute.

    Returns:
        The cell.
    """
    return _choice(
        question, choice.sampling_rate, choice.tau, 0.0, _quick(question, choice.iterations)
    )[0]


def _quick(question: PlanningQuestion, steps: int) -> Accountant:
    """Returns an accountant for the table: losses on a grid of a tenth of a step's deviation.

    That moves epsilon by some 1e-3. The grid is never finer than that of the final figure.
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


def sketch_choices(
    question: PlanningQuestion, rates: Sequence[float], taus: Sequence[int]
) -> tuple[NoiseChoice, ...]:
    """Computes all cells by the limit theorem alone, in a millisecond.

    The figures are close, and nothing that a run may rely on.

    Args:
        question: The question.
        rates: Sampling rates.
        taus: Local steps per round.

    Returns:
        All cells, rate by rate.
    """
    mu = _gaussian(question.epsilon, question.delta)
    settings = [(rate, tau, tau * question.rounds) for rate in rates for tau in taus]
    return tuple(
        NoiseChoice(rate, tau, in_the_limit(mu, rate, steps), steps)
        for rate, tau, steps in settings
    )


def in_the_limit(mu: float, rate: float, steps: int) -> float:
    """Returns the noise by the central limit theorem, mu^2 = T q^2 (exp(1/z^2) - 1).

    The theorem is that of Bu et al. 2020. The result is exact for q = 1.

    Args:
        mu: Gaussian privacy of the whole run.
        rate: Sampling rate q.
        steps: Number of steps T.

    Returns:
        The noise multiplier z.
    """
    return (
        1 / math.sqrt(math.log1p((mu / rate) ** 2 / steps)) if rate < 1 else math.sqrt(steps) / mu
    )


def _gaussian(epsilon: float, delta: float) -> float:
    """Computes the largest mu = 1/z with which one Gaussian release stays within epsilon."""
    low, high = 0.0, 1e3
    for _ in range(50):
        mu = (low + high) / 2
        low, high = (low, mu) if gaussian_delta(mu, epsilon) > delta else (mu, high)
    return low
