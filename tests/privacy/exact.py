"""Privacy of the sampled Gaussian from its definition, without any accounting library: what the
tests compare with.
"""

from __future__ import annotations

import dp_accounting as dp
import numpy as np
from scipy.special import ndtr


def poisson(rate: float, multiplier: float) -> dp.DpEvent:
    return dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(multiplier))


def epsilon_of_pair(p: np.ndarray, q: np.ndarray, dx: float, delta: float) -> float:
    """The smallest epsilon with sum max(p - e^epsilon q, 0) dx <= delta, both ways round, by
    bisection.
    """

    def exceeds(epsilon: float) -> bool:
        one = np.maximum(p - np.exp(epsilon) * q, 0).sum() * dx
        other = np.maximum(q - np.exp(epsilon) * p, 0).sum() * dx
        return max(one, other) > delta

    low, high = 0.0, 1.0
    while exceeds(high):
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return high


def mixture(x: np.ndarray, multiplier: float, rate: float, shift: float) -> np.ndarray:
    """Density of noise around `shift` with probability `rate`, and around 0 otherwise."""

    def normal(centre: float) -> np.ndarray:
        return np.exp(-(((x - centre) / multiplier) ** 2) / 2) / (multiplier * np.sqrt(2 * np.pi))

    return (1 - rate) * normal(0.0) + rate * normal(shift)


def grid(multiplier: float) -> tuple[np.ndarray, float]:
    x, dx = np.linspace(-14 * multiplier - 2, 14 * multiplier + 2, 200_001, retstep=True)
    return x, float(dx)


def one_poisson_step(rate: float, multiplier: float, delta: float) -> float:
    """Epsilon of one release to adding or removing a unit of norm 1."""
    x, dx = grid(multiplier)
    return epsilon_of_pair(
        mixture(x, multiplier, rate, 1.0), mixture(x, multiplier, 0.0, 0.0), dx, delta
    )


def one_fixed_size_step(rate: float, multiplier: float, delta: float) -> float:
    """Epsilon of one release for a pair that differs in one unit, replaced by its opposite: a lower
    bound on the worst pair.
    """
    x, dx = grid(multiplier)
    return epsilon_of_pair(
        mixture(x, multiplier, rate, 1.0), mixture(x, multiplier, rate, -1.0), dx, delta
    )


def composed_poisson(
    rate: float, multiplier: float, steps: int, delta: float, width: float = 1e-4, span: int = 2**18
) -> float:
    """Epsilon of `steps` releases: the privacy loss of removing a unit, put on a grid and convolved
    by FFT.

    Each loss is rounded to the nearest point of the grid, so the figure is near the truth but no
    bound.
    """
    edges = (np.arange(-span // 2, span // 2 + 1) - 0.5) * width
    with np.errstate(divide="ignore", invalid="ignore"):
        x = multiplier**2 * np.log(np.maximum(np.expm1(edges) + rate, 0) / rate) + 0.5
    below = (1 - rate) * ndtr(x / multiplier) + rate * ndtr((x - 1) / multiplier)
    once = np.diff(below)
    transformed = np.fft.rfft(np.roll(once, -span // 2)) ** steps
    total = np.roll(np.fft.irfft(transformed, span), span // 2)
    losses = np.arange(-span // 2, span // 2) * width
    low, high = 0.0, 12.0
    for _ in range(50):
        middle = (low + high) / 2
        tail = losses > middle
        at = float(np.sum(total[tail] * -np.expm1(middle - losses[tail])))
        low, high = (middle, high) if at > delta else (low, middle)
    return high
