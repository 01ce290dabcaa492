"""Statistical tests of random draws, in standard deviations, and the limit for a fault."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

TOO_FAR = 7.5
"""The limit for a fault, in standard deviations. Fair draws of one audit reach it less than once in
10^6, over all tests and places together.
"""


@dataclass(frozen=True)
class RandomnessCheck:
    """The result of an exact or statistical check.

    Attributes:
        summary: What was checked, in words.
        faults: What is wrong, a sentence per fault.
        releases: Number of releases that were checked.
    """

    summary: str
    faults: tuple[str, ...] = ()
    releases: int = 0


def count_score(count: float, mean: float, variance: float) -> float:
    """Scores a count against its mean.

    Args:
        count: The count.
        mean: Its mean under fair draws.
        variance: Its variance. With 0 any difference is infinite.

    Returns:
        The distance in standard deviations.
    """
    if variance > 0:
        return (count - mean) / math.sqrt(variance)
    return 0.0 if count == mean else math.copysign(math.inf, count - mean)


def squares_score(squares: float, freedom: float) -> float:
    """Scores a chi-square sum as a standard normal number (Wilson and Hilferty 1931).

    Args:
        squares: The sum of squares.
        freedom: Degrees of freedom.

    Returns:
        The score.
    """
    spread = 2 / (9 * freedom)
    return (math.pow(max(squares, 0.0) / freedom, 1 / 3) - (1 - spread)) / math.sqrt(spread)


def largest_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Computes the largest |sum_i a_i b_(i+k)| over all shifts k, by Fourier transforms.

    Args:
        one: White noise of standard deviation 1.
        other: The same. If it is the same vector, shift 0 is left out.

    Returns:
        The correlation in standard deviations.
    """
    size = max(len(one), len(other))
    together = np.fft.irfft(np.fft.rfft(one, size).conj() * np.fft.rfft(other, size), size)
    shifts = together[1:] if one is other else together
    return float(np.abs(shifts).max() / math.sqrt(min(len(one), len(other))))
