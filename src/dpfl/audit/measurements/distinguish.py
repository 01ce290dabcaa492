"""The game of two worlds: an adversary sees a release with or without the canary, and guesses
which.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpfl.audit.bounds import GuessCounts, MeasuredEpsilon, epsilon_of
from dpfl.privacy import Randomness

Mechanism = Callable[[bool, int, np.random.Generator], np.ndarray]
"""A function from (with the canary or without, how often, a generator) to released vectors (trials,
n).
"""

Score = Callable[[np.ndarray], np.ndarray]
PILOT = 0.2
"""The number of further draws, as a share, on which detector and thresholds are chosen. No bound is
computed from them.
"""


@dataclass(frozen=True)
class Detector:
    """Fisher's detector: the direction in which the two worlds are furthest apart for this noise.

    Attributes:
        direction: The direction.
        middle: Score at the middle between the worlds.
    """

    direction: np.ndarray
    middle: float

    def __call__(self, releases: np.ndarray) -> np.ndarray:
        return releases @ self.direction - self.middle


def detector(outs: np.ndarray, movement: np.ndarray, centre: np.ndarray | None = None) -> Detector:
    """Builds a detector from draws without the canary.

    Args:
        outs: Draws without the canary.
        movement: How far the canary moves them.
        centre: Mean without the canary; by default that of the draws.

    Returns:
        The detector. Its scores have standard deviation 1, and 0 is the middle.
    """
    direction, separation = whiten(outs, movement)
    direction = direction / separation if separation else direction
    start = outs.mean(0) if centre is None else centre
    return Detector(direction, float(start @ direction + separation / 2))


def whiten(outs: np.ndarray, movement: np.ndarray) -> tuple[np.ndarray, float]:
    """Computes the best direction and the separation of the worlds.

    Args:
        outs: Draws without the canary, with noise of covariance S.
        movement: How far the canary moves them.

    Returns:
        S^-1 movement, and sqrt(movement S^-1 movement), which is mu if S is exact.
    """
    covariance = np.atleast_2d(np.cov(outs, rowvar=False))
    # A direction without any noise must stay one that can be divided by.
    ridge = 1e-9 * np.trace(covariance) / len(covariance) + 1e-30
    direction = np.linalg.solve(covariance + ridge * np.eye(len(covariance)), movement)
    return direction, math.sqrt(max(float(movement @ direction), 0.0))


def distinguish(
    mechanism: Mechanism, delta: float, trials: int, confidence: float, randomness: Randomness,
    score: Score | None = None, name: str = "release",
) -> MeasuredEpsilon:  # fmt: skip
    """Measures a lower bound on epsilon that holds for any mechanism.

    Args:
        mechanism: Draws releases with or without the canary.
        delta: Delta of the guarantee.
        trials: Number of draws in each world.
        confidence: Confidence of the bound.
        randomness: Source of the draws.
        score: Score of a release; by default that of a detector from pilot draws.
        name: Prefix of the random keys, so that games have draws of their own.

    Returns:
        The bound. Nothing is assumed about the noise.
    """
    pilot, fresh = randomness.generator(f"{name} pilot"), randomness.generator(f"{name} game")
    few = min(max(200, int(PILOT * trials)), trials)
    outs, ins = mechanism(False, few, pilot), mechanism(True, few, pilot)
    scoring = score or detector(outs, ins.mean(0) - outs.mean(0))
    threshold = best_threshold(scoring(outs), scoring(ins), delta, confidence)
    guesses = guess(
        scoring(mechanism(False, trials, fresh)), scoring(mechanism(True, trials, fresh)), threshold
    )
    return MeasuredEpsilon(
        guesses.epsilon(delta, confidence), confidence, 2 * trials, "Clopper-Pearson"
    )


def distinguish_gaussian(
    mechanism: Mechanism,
    score: Score,
    delta: float,
    trials: int,
    confidence: float,
    randomness: Randomness,
    epsilon: Callable[[float], float] | None = None,
    name: str = "release",
) -> MeasuredEpsilon:
    """Measures a lower bound on epsilon for Gaussian noise.

    Args:
        mechanism: Draws releases with or without the canary.
        score: Score of a release, with standard deviation 1 and 0 in the middle.
        delta: Delta of the guarantee.
        trials: Number of draws in each world.
        confidence: Confidence of the bound.
        randomness: Source of the draws.
        epsilon: Epsilon for a mu; by default that of a Gaussian trade-off.
        name: Prefix of the random keys.

    Returns:
        The bound, from mu at the middle between the worlds.
    """
    fresh = randomness.generator(f"{name} gaussian game")
    guesses = guess(
        score(mechanism(False, trials, fresh)), score(mechanism(True, trials, fresh)), 0.0
    )
    mu = guesses.mu(confidence)
    scoring = (epsilon or (lambda mu: epsilon_of(mu, delta)))(mu)
    return MeasuredEpsilon(scoring, confidence, 2 * trials, "Gaussian trade-off", mu)


def guess(outs: np.ndarray, ins: np.ndarray, threshold: float) -> GuessCounts:
    """Guesses "with the canary" where the score is above a threshold.

    Args:
        outs: Scores without the canary.
        ins: Scores with it.
        threshold: The threshold.

    Returns:
        The counts of wrong guesses.
    """
    return GuessCounts(
        int((outs > threshold).sum()), len(outs), int((ins <= threshold).sum()), len(ins)
    )


def best_threshold(
    outs: np.ndarray, ins: np.ndarray, delta: float, confidence: float, candidates: int = 200
) -> float:
    """Finds the threshold with the largest bound on these draws.

    The bound itself has to come from other draws.

    Args:
        outs: Scores without the canary.
        ins: Scores with it.
        delta: Delta of the guarantee.
        confidence: Confidence of the bound.
        candidates: Number of thresholds to compare.

    Returns:
        The threshold.
    """
    both = np.quantile(np.concatenate([outs, ins]), np.linspace(0, 1, candidates))
    return max(
        (float(threshold) for threshold in both),
        key=lambda at: guess(outs, ins, at).epsilon(delta, confidence),
    )
