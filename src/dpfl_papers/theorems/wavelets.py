"""Theorem 3 of DP-FedAvg-WAV (Ranaweera et al.): the bound on the loss after a step, as printed.

The text derives the cost of the noise from it, but sigma is in none of its terms. The bound is the
same with and without noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpfl.server.steps.estimates import check_range


@dataclass(frozen=True)
class WaveletInputs:
    """Inputs of the bound.

    Attributes:
        clients: Clients, K.
        steps: Local steps per round, N.
        smooth: Lipschitz constant of the gradients, M.
        convex: Constant of the PL inequality, mu.
        first: Dissimilarity of the gradients, B_1.
        second: Dissimilarity of the gradients, B_2.
        diversity: Diversity of the gradients, lambda.
        rates: Learning rates eta_j since the last aggregation, the present one last.
        squares: |sum_k d_k / (q_c d) grad L_k|^2.
    """

    clients: int
    steps: int
    smooth: float
    convex: float
    first: float
    second: float
    diversity: float
    rates: Sequence[float]
    squares: float

    def __post_init__(self) -> None:
        for name in ("clients", "steps", "smooth", "convex"):
            check_range(name, getattr(self, name), 0, strict=True)
        for name in ("first", "second", "diversity", "squares"):
            check_range(name, getattr(self, name), 0)
        check_range("The number of rates", len(self.rates), 1)

    @property
    def rate(self) -> float:
        """The present learning rate."""
        return self.rates[-1]

    @property
    def squared_rates(self) -> float:
        """The sum of eta_j^2 over the earlier steps since the aggregation."""
        return sum(rate**2 for rate in self.rates[:-1])


def dissimilarity(inputs: WaveletInputs) -> float:
    """Computes c_t (15): eta M B_2^2 / K (eta / 2 + M (K + 1) / K sum eta_j^2).

    Args:
        inputs: Constants of the problem.

    Returns:
        c_t.
    """
    K, M = inputs.clients, inputs.smooth
    return (
        inputs.rate
        * M
        * inputs.second**2
        / K
        * (inputs.rate / 2 + M * (K + 1) / K * inputs.squared_rates)
    )


def drift(inputs: WaveletInputs) -> float:
    """Computes B_t (16): lambda (K + 1) eta M^2 / K^2 (B_1 + N).

    Args:
        inputs: Constants of the problem.

    Returns:
        B_t.
    """
    K = inputs.clients
    return (
        inputs.diversity
        * (K + 1)
        * inputs.rate
        * inputs.smooth**2
        / K**2
        * (inputs.first + inputs.steps)
    )


def bound(inputs: WaveletInputs, gap: float) -> float:
    """Computes the bound (13) on E L(theta_{t+1}) - L*.

    Args:
        inputs: Constants of the problem.
        gap: E L(theta_t) - L* before the step.

    Returns:
        The printed bound.
    """
    K = inputs.clients
    descent = (
        inputs.rate
        / 2
        * (-1 + inputs.diversity * inputs.smooth * inputs.rate * (inputs.first + K) / K)
    )
    remainder = (1 - inputs.convex * inputs.rate) * gap
    return (
        remainder
        + dissimilarity(inputs)
        + (descent + drift(inputs) * inputs.squared_rates) * inputs.squares
    )
