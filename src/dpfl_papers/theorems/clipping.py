"""Clipping (Zhang et al. 2021), Theorem 3.1: the bound on the convergence of DP-FedAvg, as printed,
term by term.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpfl.errors import DpflError
from dpfl.server.steps.ali_bounds import FloatArray, check_range, per_client


@dataclass(frozen=True)
class ClippingInputs:
    """P of N clients make Q steps in each of T rounds. `gap` is f(x^0) - f*, L the smoothness, G
    the bound on gradients, the variances those within a client (sigma_l^2) and between clients
    (sigma_g^2), d the parameters and `deviation` the noise."""

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

    def objections(self) -> tuple[str, ...]:
        """What does not hold of eta_g eta_l <= min(P / 48 Q, P / 6 Q L (P - 1)) and eta_l <= 1 /
        (sqrt(60) Q L).
        """
        product, P, Q = self.server_rate * self.local_rate, self.cohort, self.steps
        most = min(P / (48 * Q), P / (6 * Q * self.L * (P - 1)) if P > 1 else math.inf)
        own = 1 / (math.sqrt(60) * Q * self.L)
        found = [f"eta_g eta_l = {product:g} is above {most:g}"] if product > most else []
        return (
            *found,
            *([f"eta_l = {self.local_rate:g} is above {own:g}"] if self.local_rate > own else []),
        )


@dataclass(frozen=True)
class ClippingBound:
    """What each cause adds to the mean of alpha |grad f(x_t)|^2 over the rounds."""

    training: float
    noise: float
    clipping: float

    @property
    def total(self) -> float:
        return self.training + self.noise + self.clipping


def bound(
    inputs: ClippingInputs, alphas: Sequence[float], expected: Sequence[float]
) -> ClippingBound:
    """For factors alpha_i of the clip and those of the expected updates, the same in every round; 1
    clips nothing.
    """
    many = inputs.clients
    a, e = (per_client("A factor of the clip", factors, many) for factors in (alphas, expected))
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
    """4 G^2 sum (|alpha_i - alpha~_i| + |alpha~_i - mean|) / N and 6 eta_g eta_l L Q G^2 sum of
    their squares / P.
    """
    apart, rates = (abs(a - e), abs(e - mean)), inputs.server_rate * inputs.local_rate
    first = 4 * inputs.G**2 * float((apart[0] + apart[1]).sum()) / inputs.clients
    second = (
        6
        * rates
        * inputs.L
        * inputs.steps
        * inputs.G**2
        * float((apart[0] ** 2 + apart[1] ** 2).sum())
        / inputs.cohort
    )
    return first + second


def clip_factor(clip: float, norm: float) -> float:
    """alpha = c / max(c, |eta_l sum of the gradients|)."""
    check_range("The clip", clip, 0, strict=True)
    check_range("The norm of an update", norm, 0)
    return clip / max(clip, norm)
