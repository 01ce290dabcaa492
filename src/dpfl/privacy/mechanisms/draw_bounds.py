"""Bounds the size of a draw, but for a negligible probability."""

from __future__ import annotations

import math

from dpfl.privacy.mechanisms.sampling import Sampling

NEGLIGIBLE = 2.0**-100
"""A probability that counts as none."""


def largest_draw(sampling: Sampling, population: int) -> float:
    """Bounds the size of a draw, but for a probability of 2^-100 (Bernstein's inequality).

    Args:
        sampling: The sampling.
        population: The number of units to draw from.

    Returns:
        The bound.
    """
    mean = sampling.expected_size(population)
    if sampling.constant_size or not sampling.by_chance:
        return mean
    third = -math.log(NEGLIGIBLE) / 3
    return min(float(population), mean + third + math.sqrt(third**2 + 6 * third * mean))
