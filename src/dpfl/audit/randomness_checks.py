"""Tests of chance: how far a count or a sum of squares is from what fair draws give, in deviations,
and what is too far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

TOO_FAR = 7.5
"""In deviations. Fair draws of one audit reach it less than once in 10^6, all tests and places that
it looks at together.
"""


@dataclass(frozen=True)
class RandomnessCheck:
    """What was looked at, in words, the sentences about what is wrong with it, and of how many
    releases.
    """

    seen: str
    faults: tuple[str, ...] = ()
    releases: int = 0


def count_score(found: float, mean: float, variance: float) -> float:
    """Where nothing is left to chance, any difference is too far."""
    if variance > 0:
        return (found - mean) / math.sqrt(variance)
    return 0.0 if found == mean else math.copysign(math.inf, found - mean)


def squares_score(squares: float, freedom: float) -> float:
    """A chi-square sum as a standard normal number (Wilson and Hilferty 1931)."""
    spread = 2 / (9 * freedom)
    return (math.pow(max(squares, 0.0) / freedom, 1 / 3) - (1 - spread)) / math.sqrt(spread)


def largest_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """The largest |sum_i a_i b_(i+k)| over all shifts k, in deviations, for white noise of
    deviation 1; by Fourier transforms.

    A vector against itself is not asked at shift 0.
    """
    size = max(len(one), len(other))
    together = np.fft.irfft(np.fft.rfft(one, size).conj() * np.fft.rfft(other, size), size)
    shifts = together[1:] if one is other else together
    return float(np.abs(shifts).max() / math.sqrt(min(len(one), len(other))))
