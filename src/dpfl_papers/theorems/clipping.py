"""Theorem 3.1 of Zhang et al. 2021: the bound on the convergence of DP-FedAvg with clipping, term
by term as printed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpfl.errors import DpflError
from dpfl.server.steps.estimates import FloatArray, check_range, per_client


@dataclass(frozen=True)
class ClippingInputs:
    """Inputs of the bound.

    Attributes:
        cohort: Clients per round, P.
        clients: Clients in all, N.
        steps: Local steps per round, Q.
        rounds: Rounds, T.
        local_rate: Learning rate at the clients, eta_l.
        server_rate: Learning rate at the server, eta_g.
        gap: f(x^0) - f*.
        L: Smoothness.
        G: Bound on the norm of a gradient.
        within: Variance of gradients within a client, sigma_l^2.
        between: Variance of gradients between clients, sigma_g^2.
        d: Number of parameters.
        deviation: Standard deviation of the noise.
    """

    cohort: int
    clients: int
    steps: int
    rounds: int
    local_rate: float
    server_rate: float
    gap: float
    L: float
    G: float
    within: float
    between: float
    d: int
    deviation: float

    def __post_init__(self) -> None:
        for name in (
            "cohort",
            "clients",
            "steps",
            "rounds",
            "local_rate",
            "server_rate",
            "L",
            "G",
            "d",
        ):
            check_range(name, getattr(self, name), 0, strict=True)
        for name in ("gap", "within", "between", "deviation"):
            check_range(name, getattr(self, name), 0)

    def violations(self) -> tuple[str, ...]:
        """Checks the conditions on the learning rates.

        These are eta_g eta_l <= min(P / 48 Q, P / 6 Q L (P - 1)) and eta_l <= 1 / (sqrt(60) Q L).

        Returns:
            A sentence per condition that does not hold.
        """
        product, P, Q = self.server_rate * self.local_rate, self.cohort, self.steps
        most = min(P / (48 * Q), P / (6 * Q * self.L * (P - 1)) if P > 1 else math.inf)
        own = 1 / (math.sqrt(60) * Q * self.L)
        violations = [f"eta_g eta_l = {product:g} is above {most:g}"] if product > most else []
        return (
            *violations,
            *([f"eta_l = {self.local_rate:g} is above {own:g}"] if self.local_rate > own else []),
        )


@dataclass(frozen=True)
class ClippingBound:
    """The bound on the mean of alpha |grad f(x_t)|^2 over the rounds, by cause.

    Attributes:
        training: Term of FedAvg.
        noise: Term of the noise.
        clipping: Term of the clip.
    """

    training: float
    noise: float
    clipping: float

    @property
    def total(self) -> float:
        """The whole bound."""
        return self.training + self.noise + self.clipping


def bound(
    inputs: ClippingInputs, alphas: Sequence[float], expected_factors: Sequence[float]
) -> ClippingBound:
    """Computes the bound for factors of the clip that are the same in every round.

    Args:
        inputs: Constants of the problem.
        alphas: Factor alpha_i by which each client's update is shortened; 1 clips nothing.
        expected_factors: The same factor of each client's expected update.

    Returns:
        The bound by cause.

    Raises:
        DpflError: If a factor is above 1.
    """
    many = inputs.clients
    a, e = (
        per_client("A factor of the clip", factors, many) for factors in (alphas, expected_factors)
    )
    if max(a.max(), e.max()) > 1:
        raise DpflError("A clip shortens: its factors are 1 at most.")
    mean, rates, Q = float(e.mean()), inputs.server_rate * inputs.local_rate, inputs.steps
    training = (
        4 * inputs.gap / (rates * Q * inputs.rounds)
        + 25
        / 2
        * inputs.local_rate**2
        * inputs.L
        * Q
        * (inputs.within + 6 * Q * inputs.between)
        * mean
        + 6 * rates * inputs.L * inputs.within / inputs.cohort * mean**2
    )
    noise = (
        2
        * inputs.server_rate
        * inputs.L
        * inputs.d
        * inputs.deviation**2
        / (inputs.local_rate * inputs.cohort * Q)
    )
    return ClippingBound(training, noise, _clipping(inputs, a, e, mean))


def _clipping(inputs: ClippingInputs, a: FloatArray, e: FloatArray, mean: float) -> float:
    """Computes the term of the clip, with e_i the factors of the expected updates.

    It is 4 G^2 sum_i (|alpha_i - e_i| + |e_i - mean|) / N, and 6 eta_g eta_l L Q G^2 times the sum
    of their squares / P.
    """
    distances, rates = (abs(a - e), abs(e - mean)), inputs.server_rate * inputs.local_rate
    first = 4 * inputs.G**2 * float((distances[0] + distances[1]).sum()) / inputs.clients
    second = (
        6
        * rates
        * inputs.L
        * inputs.steps
        * inputs.G**2
        * float((distances[0] ** 2 + distances[1] ** 2).sum())
        / inputs.cohort
    )
    return first + second
