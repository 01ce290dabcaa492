"""DP-FedAvg-WAV (Ranaweera et al.), Theorem 3: the bound on the loss after a step, as printed.

The text reads the price of the noise off it, but sigma is in none of its terms: with or without
noise the bound is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpfl.server.steps.ali_bounds import check_range


@dataclass(frozen=True)
class WaveletInputs:
    """K clients take N local steps a round. M is the Lipschitz constant of gradients, mu that of
    the PL inequality, `first` and `second` are B_1 and B_2 of their dissimilarity, `diversity` is
    lambda; `rates` are eta_j since the last aggregation, with the present eta_t last; `squares` is
    |sum_k d_k / (q_c d) grad L_k|^2."""

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
        return self.rates[-1]

    @property
    def before(self) -> float:
        """The sum of eta_j^2 over the steps since the aggregation."""
        return sum(rate**2 for rate in self.rates[:-1])


def spread(inputs: WaveletInputs) -> float:
    """c_t (15): eta M B_2^2 / K (eta / 2 + M (K + 1) / K sum eta_j^2)."""
    K, M = inputs.clients, inputs.smooth
    return (
        inputs.rate * M * inputs.second**2 / K * (inputs.rate / 2 + M * (K + 1) / K * inputs.before)
    )


def past(inputs: WaveletInputs) -> float:
    """B_t (16): lambda (K + 1) eta M^2 / K^2 (B_1 + N)."""
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
    """(13): E L(theta_{t+1}) - L*, from a gap of E L(theta_t) - L* before the step."""
    K = inputs.clients
    along = (
        inputs.rate
        / 2
        * (-1 + inputs.diversity * inputs.smooth * inputs.rate * (inputs.first + K) / K)
    )
    left = (1 - inputs.convex * inputs.rate) * gap
    return left + spread(inputs) + (along + past(inputs) * inputs.before) * inputs.squares
