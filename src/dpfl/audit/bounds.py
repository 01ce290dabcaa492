"""Turns right and wrong guesses into a lower bound on epsilon, with its confidence."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr, bdtrc, betaincinv, chdtri, log_ndtr, ndtri

from dpfl.errors import DpflError
from dpfl.privacy.accounting.published_claims import gaussian_releases_epsilon

LARGEST, MOST_EXACT = 60.0, 600.0
"""The largest epsilon that a search over guesses returns, and the largest that it returns for a
known Gaussian trade-off.
"""


@dataclass(frozen=True)
class MeasuredEpsilon:
    """The result of a game: a bound on epsilon, or an estimate.

    Attributes:
        epsilon: Lower bound on epsilon, or an estimate if there is no confidence.
        confidence: Confidence of the bound; None for an estimate.
        trials: Number of draws, runs or canaries.
        how: How it was measured, in words.
        mu: Gaussian privacy that the epsilon comes from, if the noise is Gaussian.
    """

    epsilon: float
    confidence: float | None
    trials: int
    how: str
    mu: float | None = None


@dataclass(frozen=True)
class GuessCounts:
    """Guesses at a threshold that was fixed before the draws.

    Attributes:
        false_positives: Wrong guesses among the draws without the canary.
        outs: Number of draws without the canary.
        false_negatives: Wrong guesses among the draws with the canary.
        ins: Number of draws with the canary.
    """

    false_positives: int
    outs: int
    false_negatives: int
    ins: int

    def rates_at_most(self, confidence: float) -> tuple[float, float]:
        """Computes upper bounds on FPR and FNR that hold together.

        Args:
            confidence: Confidence of both together. Each has half of the error probability.

        Returns:
            Upper bounds on the false positive and the false negative rate.
        """
        each = 1 - (1 - confidence) / 2
        return rate_at_most(self.false_positives, self.outs, each), rate_at_most(
            self.false_negatives, self.ins, each
        )

    def epsilon(self, delta: float, confidence: float) -> float:
        """Computes a lower bound that holds for any mechanism (two-sample Clopper-Pearson).

        Args:
            delta: Delta of the guarantee.
            confidence: Confidence of the bound.

        Returns:
            max(ln((1 - FNR - delta) / FPR), ln((1 - FPR - delta) / FNR)), at least 0.
        """
        positive, negative = self.rates_at_most(confidence)
        return max(
            0.0,
            _log_ratio(1 - negative - delta, positive),
            _log_ratio(1 - positive - delta, negative),
        )

    def mu(self, confidence: float) -> float:
        """Computes a lower bound on mu for a Gaussian trade-off.

        Args:
            confidence: Confidence of the bound.

        Returns:
            Phi^-1(1 - FPR) - Phi^-1(FNR), at least 0.
        """
        positive, negative = self.rates_at_most(confidence)
        return max(0.0, float(ndtri(1 - positive) - ndtri(negative)))


def rate_at_most(events: int, trials: int, confidence: float) -> float:
    """Computes the one-sided Clopper-Pearson upper bound on a rate.

    Args:
        events: How often the event happened.
        trials: Number of trials.
        confidence: Confidence of the bound.

    Returns:
        The bound.

    Raises:
        DpflError: There are more events than trials, or the confidence is out of range.
    """
    if not 0 <= events <= trials or not 0 < confidence < 1:
        raise DpflError(
            f"A rate needs events among trials and a confidence below 1, not {events}, {trials}, "
            f"{confidence}."
        )
    return 1.0 if events == trials else float(betaincinv(events + 1, trials - events, confidence))


def deviation_at_most(draws: np.ndarray, confidence: float) -> float:
    """Computes an upper bound on the standard deviation of normal draws.

    Their squared distances from the mean, over the variance, are a chi-square sum.

    Args:
        draws: The draws.
        confidence: Confidence of the bound.

    Returns:
        The bound.
    """
    squares = float(np.square(draws - draws.mean()).sum())
    return math.sqrt(squares / float(chdtri(len(draws) - 1, confidence)))


def _log_ratio(above: float, below: float) -> float:
    return math.log(above / below) if above > 0 else 0.0


def epsilon_of(mu: float, delta: float) -> float:
    """Computes the exact epsilon of a Gaussian trade-off.

    Args:
        mu: Gaussian privacy.
        delta: Delta of the guarantee.

    Returns:
        Epsilon.
    """
    return gaussian_releases_epsilon(1 / mu, delta) if mu > 0 else 0.0


@dataclass(frozen=True)
class SampledGaussian:
    """A Gaussian release that draws the canary at a rate, and then moves by mu.

    Attributes:
        mu: Distance between the two worlds once the canary is drawn, in standard deviations.
        rate: Probability that the canary is drawn.
        replaced: Whether the other world has another unit in the canary's place, at the opposite
            side.
    """

    mu: float
    rate: float
    replaced: bool = False

    def epsilon(self, delta: float) -> float:
        """Computes epsilon for this order of the two worlds.

        Args:
            delta: Delta of the guarantee.

        Returns:
            Exact epsilon for this order, hence a lower bound for both orders.
        """
        if self.mu <= 0 or self.delta(0.0) <= delta:
            return 0.0
        return _largest(lambda epsilon: self.delta(epsilon) > delta, MOST_EXACT)

    def delta(self, epsilon: float) -> float:
        """Computes P(x > t) - e^epsilon Q(x > t), with t where the likelihood ratio is e^epsilon.

        Args:
            epsilon: Epsilon of the guarantee.

        Returns:
            Delta.
        """
        low, high = -60.0 - self.mu, 60.0 + self.mu + (epsilon + 60.0) / self.mu
        while low < (middle := (low + high) / 2) < high:
            low, high = (middle, high) if self._log_ratio(middle) < epsilon else (low, middle)
        above, below = (self._log_mixture(log_ndtr, mean, -high) for mean in self._means)
        return float(np.exp(above) - np.exp(min(epsilon + below, 700.0)))

    @property
    def _means(self) -> tuple[float, float]:
        return (self.mu / 2, -self.mu / 2) if self.replaced else (self.mu, 0.0)

    def _log_ratio(self, x: float) -> float:
        one, other = (self._log_mixture(lambda at: -(at**2) / 2, mean, -x) for mean in self._means)
        return one - other

    def _log_mixture(self, log: Callable[[float], float], mean: float, x: float) -> float:
        """Computes log((1 - q) f(x) + q f(x + mean)) from log f, for a tail or a density f at
        -x.
        """
        log_of_drawn = math.log(self.rate) + float(log(x + mean))
        return (
            log_of_drawn
            if self.rate >= 1
            else float(np.logaddexp(math.log1p(-self.rate) + float(log(x)), log_of_drawn))
        )


def one_run_chance(epsilon: float, canaries: int, guesses: int, right: int, delta: float) -> float:
    """Bounds the probability of so many right guesses under (epsilon, delta), in one run.

    This is Theorem 5.2 of Steinke et al. 2023.

    Args:
        epsilon: Epsilon of the guarantee.
        canaries: Number of canaries.
        guesses: Number of guesses.
        right: Number of right guesses.
        delta: Delta of the guarantee.

    Returns:
        Upper bound on the probability.
    """
    rate = 1 / (1 + math.exp(-epsilon))
    if right == 0:
        return 1.0
    tail, fewer = float(bdtrc(right - 1, guesses, rate)), np.arange(1, right)
    # P[right - i <= Bin < right] for i below right, and P[Bin < right] for i = right.
    below = bdtr(right - 1, guesses, rate) - np.append(bdtr(right - 1 - fewer, guesses, rate), 0.0)
    return min(1.0, tail + 2 * canaries * delta * float(np.max(below / np.append(fewer, right))))


def one_run_epsilon(
    canaries: int, guesses: int, right: int, delta: float, confidence: float
) -> float:
    """Computes the largest epsilon that so many right guesses refute, in one run.

    Args:
        canaries: Number of canaries.
        guesses: Number of guesses.
        right: Number of right guesses.
        delta: Delta of the guarantee.
        confidence: Confidence of the bound.

    Returns:
        The lower bound on epsilon.
    """
    return _largest(
        lambda epsilon: one_run_chance(epsilon, canaries, guesses, right, delta) < 1 - confidence,
        LARGEST,
    )


def _largest(is_refuted: Callable[[float], bool], most: float) -> float:
    if not is_refuted(0.0):
        return 0.0
    low, high = 0.0, most
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low
