"""HW-DPFL (Tan, Wu, Tao 2023), Theorem 3: the bound on its convergence, as printed, and what it is
made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpfl.errors import DpflError
from dpfl.server.steps.ali_bounds import check_range


@dataclass(frozen=True)
class HellingerInputs:
    """For M of N clients: tau_k, their shares in the sum; rho_k^2, the variances of their
    gradients; sigma_k, the deviations of their noise; the constants of Assumptions 1 to 4,
    `distance` being E |w_0 - w*|^2."""

    shares: Sequence[float]
    variances: Sequence[float]
    deviations: Sequence[float]
    clients: int
    steps: int
    rate: float
    norm: float
    smooth: float
    convex: float
    skew: float
    parameters: int
    distance: float

    def __post_init__(self) -> None:
        many = len(self.shares)
        if not many == len(self.variances) == len(self.deviations) or not 1 <= many <= self.clients:
            raise DpflError(
                "Theorem 3 has a share, a variance and a noise for each client that takes part, of "
                "all."
            )
        for name in ("steps", "rate", "norm", "smooth", "convex", "parameters"):
            check_range(name, getattr(self, name), 0, strict=True)
        if self.convex * self.rate > 1:
            raise DpflError(
                f"Theorem 3 needs mu eta of at most 1, not {self.convex * self.rate:g}; lower the "
                "rate."
            )


def drift(inputs: HellingerInputs) -> float:
    """Psi (28): 2 (E - 1)^2 eta^2 G^2 + 2 (M + 2) eta^2 L Gamma + eta^2 sum_k tau_k^2 rho_k^2."""
    spread = sum(
        share**2 * variance for share, variance in zip(inputs.shares, inputs.variances, strict=True)
    )
    away = 2 * (inputs.steps - 1) ** 2 * inputs.norm**2
    skewed = 2 * (len(inputs.shares) + 2) * inputs.smooth * inputs.skew
    return inputs.rate**2 * (away + skewed + spread)


def noise(inputs: HellingerInputs) -> float:
    """Lambda (29): d sum_k tau_k^2 sigma_k^2."""
    return inputs.parameters * sum(
        (share * sigma) ** 2 for share, sigma in zip(inputs.shares, inputs.deviations, strict=True)
    )


def absent(inputs: HellingerInputs) -> float:
    """(32): what it costs that M of N clients take part, (N - M) / (N - 1) 4 / M eta^2 E^2 G^2."""
    some, all_ = len(inputs.shares), inputs.clients
    return (
        (all_ - some) / (all_ - 1) * 4 / some * (inputs.rate * inputs.steps * inputs.norm) ** 2
        if all_ > 1
        else 0.0
    )


def bound(inputs: HellingerInputs, rounds: int) -> float:
    """(30): the bound on E F(w_T) - F(w*), as printed. It counts a round's noise T times in every
    round, so it grows with T.

    The step to the second line of (36) takes mu eta for the sum of (1 - mu eta)^t, which is up to 1
    / (mu eta): `unrolled` is what the recursion gives, and larger wherever mu eta < 1.
    """
    return _with(inputs, rounds, inputs.convex * inputs.rate)


def unrolled(inputs: HellingerInputs, rounds: int) -> float:
    """What (35) gives over all rounds: the same with sum_{t < T} (1 - mu eta)^t in the place of mu
    eta.
    """
    shrinking = 1 - inputs.convex * inputs.rate
    return _with(inputs, rounds, sum(shrinking**t for t in range(rounds)))


def _with(inputs: HellingerInputs, rounds: int, factor: float) -> float:
    left = (1 - inputs.convex * inputs.rate) ** rounds * inputs.distance
    return (
        inputs.smooth
        / 2
        * (left + factor * (drift(inputs) + rounds * noise(inputs) + absent(inputs)))
    )
