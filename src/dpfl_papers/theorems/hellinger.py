"""Theorem 3 of HW-DPFL (Tan, Wu, Tao 2023): the bound on its convergence as printed, and its
terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpfl.errors import DpflError
from dpfl.server.steps.estimates import check_range


@dataclass(frozen=True)
class HellingerInputs:
    """Inputs of the bound for the M of N clients that take part.

    Attributes:
        shares: Weight of each client in the sum, tau_k.
        variances: Variance of each client's gradients, rho_k^2.
        deviations: Standard deviation of each client's noise, sigma_k.
        clients: Clients in all, N.
        steps: Local steps per round, E.
        rate: Learning rate, eta.
        norm: Bound on the norm of a gradient, G.
        smooth: Smoothness, L.
        convex: Strong convexity, mu.
        skew: Heterogeneity of the clients, Gamma.
        parameters: Number of parameters, d.
        distance: E |w_0 - w*|^2.
    """

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
    """Computes the drift of local steps, Psi (28).

    It is 2 (E - 1)^2 eta^2 G^2 + 2 (M + 2) eta^2 L Gamma + eta^2 sum_k tau_k^2 rho_k^2.

    Args:
        inputs: Constants of the problem.

    Returns:
        Psi.
    """
    spread = sum(
        share**2 * variance for share, variance in zip(inputs.shares, inputs.variances, strict=True)
    )
    away = 2 * (inputs.steps - 1) ** 2 * inputs.norm**2
    skew = 2 * (len(inputs.shares) + 2) * inputs.smooth * inputs.skew
    return inputs.rate**2 * (away + skew + spread)


def noise(inputs: HellingerInputs) -> float:
    """Computes the variance of the noise, Lambda (29) = d sum_k tau_k^2 sigma_k^2.

    Args:
        inputs: Constants of the problem.

    Returns:
        Lambda.
    """
    return inputs.parameters * sum(
        (share * sigma) ** 2 for share, sigma in zip(inputs.shares, inputs.deviations, strict=True)
    )


def partial_participation(inputs: HellingerInputs) -> float:
    """Computes the cost of partial participation (32): (N - M) / (N - 1) 4 / M eta^2 E^2 G^2.

    Args:
        inputs: Constants of the problem.

    Returns:
        The term; 0 if there is one client.
    """
    some, all_ = len(inputs.shares), inputs.clients
    return (
        (all_ - some) / (all_ - 1) * 4 / some * (inputs.rate * inputs.steps * inputs.norm) ** 2
        if all_ > 1
        else 0.0
    )


def bound(inputs: HellingerInputs, rounds: int) -> float:
    """Computes the bound (30) on E F(w_T) - F(w*), as printed.

    It counts the noise of a round T times in every round, so it grows with T. The step to the
    second line of (36) takes mu eta for the sum of (1 - mu eta)^t, which is up to 1 / (mu eta).
    `bound_of_recursion` has the sum, and is larger wherever mu eta < 1.

    Args:
        inputs: Constants of the problem.
        rounds: Rounds, T.

    Returns:
        The printed bound.
    """
    return _with(inputs, rounds, inputs.convex * inputs.rate)


def bound_of_recursion(inputs: HellingerInputs, rounds: int) -> float:
    """Computes what (35) gives over all rounds.

    It has the sum of (1 - mu eta)^t over t < T where the printed bound has mu eta.

    Args:
        inputs: Constants of the problem.
        rounds: Rounds, T.

    Returns:
        The bound that the proof supports.
    """
    shrinking = 1 - inputs.convex * inputs.rate
    return _with(inputs, rounds, sum(shrinking**t for t in range(rounds)))


def _with(inputs: HellingerInputs, rounds: int, factor: float) -> float:
    initial = (1 - inputs.convex * inputs.rate) ** rounds * inputs.distance
    return (
        inputs.smooth
        / 2
        * (
            initial
            + factor * (drift(inputs) + rounds * noise(inputs) + partial_participation(inputs))
        )
    )
