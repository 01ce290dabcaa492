"""The game of two worlds: an adversary sees what a mechanism released, with the canary or without
it, and guesses which.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpfl.audit.bounds import GuessCounts, MeasuredEpsilon, epsilon_of
from dpfl.privacy import Randomness

Mechanism = Callable[[bool, int, np.random.Generator], np.ndarray]
"""(with the canary or without, how often, a generator) to released vectors (trials, n)."""

Score = Callable[[np.ndarray], np.ndarray]
PILOT = 0.2
"""The share of further draws on which detector and thresholds are chosen; no bound is taken from
them.
"""


@dataclass(frozen=True)
class Detector:
    """Fisher's: the direction in which the two worlds are furthest apart for the noise there is; 0
    is the middle.
    """

    direction: np.ndarray
    middle: float

    def __call__(self, released: np.ndarray) -> np.ndarray:
        return released @ self.direction - self.middle


def detector(outs: np.ndarray, moved: np.ndarray, centre: np.ndarray | None = None) -> Detector:
    """From draws without the canary, and how far the canary moves them; scores have deviation 1."""
    direction, separation = whitened(outs, moved)
    direction = direction / separation if separation else direction
    start = outs.mean(0) if centre is None else centre
    return Detector(direction, float(start @ direction + separation / 2))


def whitened(outs: np.ndarray, moved: np.ndarray) -> tuple[np.ndarray, float]:
    """S^-1 moved, and sqrt(moved S^-1 moved) for the covariance S of the noise: mu, were it known
    exactly.
    """
    covariance = np.atleast_2d(np.cov(outs, rowvar=False))
    # A direction without any noise must stay one that can be divided by.
    ridge = 1e-9 * np.trace(covariance) / len(covariance) + 1e-30
    direction = np.linalg.solve(covariance + ridge * np.eye(len(covariance)), moved)
    return direction, math.sqrt(max(float(moved @ direction), 0.0))


def distinguish(
    mechanism: Mechanism, delta: float, trials: int, confidence: float, randomness: Randomness,
    score: Score | None = None, name: str = "release",
) -> MeasuredEpsilon:  # fmt: skip
    """A lower bound on epsilon that holds for any mechanism: nothing is assumed of its noise."""
    pilot, fresh = randomness.generator(f"{name} pilot"), randomness.generator(f"{name} game")
    few = min(max(200, int(PILOT * trials)), trials)
    outs, ins = mechanism(False, few, pilot), mechanism(True, few, pilot)
    found = score or detector(outs, ins.mean(0) - outs.mean(0))
    threshold = best_threshold(found(outs), found(ins), delta, confidence)
    guesses = guess(
        found(mechanism(False, trials, fresh)), found(mechanism(True, trials, fresh)), threshold
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
    """For noise that is Gaussian: mu from the errors at the middle, and what `epsilon` makes of
    it.
    """
    fresh = randomness.generator(f"{name} gaussian game")
    guesses = guess(
        score(mechanism(False, trials, fresh)), score(mechanism(True, trials, fresh)), 0.0
    )
    mu = guesses.mu(confidence)
    found = (epsilon or (lambda mu: epsilon_of(mu, delta)))(mu)
    return MeasuredEpsilon(found, confidence, 2 * trials, "Gaussian trade-off", mu)


def guess(outs: np.ndarray, ins: np.ndarray, threshold: float) -> GuessCounts:
    """In where the score is above the threshold."""
    return GuessCounts(
        int((outs > threshold).sum()), len(outs), int((ins <= threshold).sum()), len(ins)
    )


def best_threshold(
    outs: np.ndarray, ins: np.ndarray, delta: float, confidence: float, candidates: int = 200
) -> float:
    """The one with the largest bound on these draws, so the bound has to come from others."""
    both = np.quantile(np.concatenate([outs, ins]), np.linspace(0, 1, candidates))
    return max(
        (float(threshold) for threshold in both),
        key=lambda at: guess(outs, ins, at).epsilon(delta, confidence),
    )
