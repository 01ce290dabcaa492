"""ALS-DPFL (Ling et al. 2023): the gap between federated and central descent, the bounds made of
it, and the search for tau.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import numpy.typing as npt

from dpfl.server.steps.ali_bounds import MOST_ITERATIONS, total_iterations
from dpfl.server.steps.estimates import (
    FloatArray,
    Values,
    check_range,
    per_client,
    raw_slope,
    released_slope,
    shares,
    subtract_noise,
)

# Wang et al. 2019 control their bound by a number that is chosen, not derived: this for convex
# models, 5e-5 for CNNs.
PHI = 0.025

# Beyond e^600 the bound has lost all meaning; its logarithm is held there so that no product
# becomes infinite.
_LARGEST_EXPONENT = 600.0


@dataclass(frozen=True)
class AlsEstimates:
    """Estimates over the clients, weighted.

    Attributes:
        rho: The Lipschitz constant of the losses.
        beta: Their smoothness.
        xi: How far gradients of clients diverge from their mean.
    """

    rho: float
    beta: float
    xi: float


@dataclass(frozen=True)
class AlsInputs:
    """The quantities of the bounds, tau and T apart, in the paper's notation.

    Attributes:
        rho: The Lipschitz constant of the losses.
        beta: Their smoothness.
        xi: How far gradients of clients diverge from their mean.
        eta: The learning rate.
        sigma: The noise multiplier.
        C: The clip norm.
        d: The number of parameters.
        B: The smallest expected batch.
    """

    rho: float
    beta: float
    xi: float
    eta: float
    sigma: float
    C: float
    d: int
    B: float

    def __post_init__(self) -> None:
        for field in fields(self):
            may_vanish = field.name in ("rho", "beta", "xi", "sigma")
            check_range(field.name, getattr(self, field.name), 0, strict=not may_vanish)

    @property
    def A(self) -> float:
        """xi + 2 sqrt(d) sigma C / B: how far gradients of clients, and their noise, pull apart."""
        return self.xi + 2 * math.sqrt(self.d) * self.sigma * self.C / self.B


@dataclass(frozen=True)
class Theorem2:
    """The quantities of (13) beside `AlsInputs`.

    Attributes:
        phi: phi of (13). The bound is defined only where it is above 0.
        lam: lambda of (13), above 0.
    """

    phi: float
    lam: float

    def __post_init__(self) -> None:
        check_range("phi", self.phi)
        check_range("lambda", self.lam, 0, strict=True)


@dataclass(frozen=True)
class TauChoice:
    """The result of a search.

    Attributes:
        tau: The number of local steps.
        bound: The bound that it minimises.
    """

    tau: int
    bound: Literal["theorem 2", "wang"]


def h(x: npt.ArrayLike, inputs: AlsInputs) -> FloatArray:
    """Computes (11) with the sign and the bracket of its proof.

        h(x) = A / beta ((eta beta + 1)^x - 1) - eta A x, and so h(0) = h(1) = 0

    Args:
        x: Local steps, one number or several.
        inputs: The quantities of the bound.

    Returns:
        h for each x; 0 where beta is 0.
    """
    x = np.asarray(x, dtype=np.float64)
    if not inputs.beta:
        return np.zeros_like(x)
    exponent = np.minimum(x * math.log1p(inputs.eta * inputs.beta), _LARGEST_EXPONENT)
    return inputs.A * (np.expm1(exponent) / inputs.beta - inputs.eta * x)


def phi_of_theorem(omega: float, lam: float, inputs: AlsInputs) -> float:
    """Computes phi = omega (1 - beta eta / 2) - sigma^2 d / lambda^2 of Theorem 2.

    Args:
        omega: The inverse square of the distance to the optimum.
        lam: lambda, the least loss above that of the optimum.
        inputs: The quantities of the bound.

    Returns:
        phi, which is far below 0 for any network.
    """
    return omega * (1 - inputs.beta * inputs.eta / 2) - inputs.sigma**2 * inputs.d / lam**2


def margin(tau: npt.ArrayLike, inputs: AlsInputs, theorem: Theorem2) -> FloatArray:
    """Computes eta phi - rho h(tau) / (tau lambda^2). (13) is a bound only where this is above 0.

    Args:
        tau: Local steps, one number or several.
        inputs: The quantities of the bound.
        theorem: phi and lambda.

    Returns:
        The margin for each tau.
    """
    tau = np.asarray(tau, dtype=np.float64)
    return inputs.eta * theorem.phi - inputs.rho * h(tau, inputs) / (tau * theorem.lam**2)


def theorem_gap(
    tau: npt.ArrayLike, T: npt.ArrayLike, inputs: AlsInputs, theorem: Theorem2
) -> FloatArray:
    """Computes (13), 1 / (T margin) + sqrt(3) / 3.

    Args:
        tau: Local steps, one number or several.
        T: The iterations in all, for each tau.
        inputs: The quantities of the bound.
        theorem: phi and lambda.

    Returns:
        The bound for each tau; infinite where it is undefined, so that no search ends there.
    """
    room = margin(tau, inputs, theorem)
    gap = np.full(np.broadcast_shapes(room.shape, np.shape(T)), np.inf)
    np.divide(1.0, np.asarray(T) * room, out=gap, where=np.broadcast_to(room > 0, gap.shape))
    return gap + math.sqrt(3) / 3


def wang_gap(
    tau: npt.ArrayLike, T: npt.ArrayLike, inputs: AlsInputs, phi: float = PHI
) -> FloatArray:
    """Computes the bound of Wang et al. 2019, which is defined everywhere:

        (1 + sqrt(1 + 4 T^2 phi rho eta h / tau)) / (2 T eta phi) + rho h

    Args:
        tau: Local steps, one number or several.
        T: The iterations in all, for each tau.
        inputs: The quantities of the bound.
        phi: The control parameter, above 0.

    Returns:
        The bound for each tau.
    """
    check_range("phi", phi, 0, strict=True)
    tau, T = np.asarray(tau, dtype=np.float64), np.asarray(T, dtype=np.float64)
    gap = inputs.rho * h(tau, inputs)
    root = np.sqrt(1 + 4 * T**2 * phi * inputs.eta * gap / tau)
    return (1 + root) / (2 * T * inputs.eta * phi) + gap


def best_tau(
    inputs: AlsInputs,
    previous: int,
    R_s: int,
    R_c: int,
    remaining: int,
    theorem: Theorem2 | None = None,
    phi: float = PHI,
) -> TauChoice:
    """Searches the tau in [1, min(2 previous, 100)] with the least bound (Algorithm 2, line 19).

    T follows the candidate. With the T of the last round, as printed, more local steps would only
    ever cost.

    Args:
        inputs: The quantities of the bound.
        previous: tau of the last round.
        R_s: The rounds.
        R_c: The iterations that privacy allows in the whole run.
        remaining: How many of them are left.
        theorem: phi and lambda of (13); None to use the bound of Wang et al. only.
        phi: The control parameter of the bound of Wang et al.

    Returns:
        The tau, and of equal ones the smallest.

    Raises:
        DpflError: A count is below 1.
    """
    for name, count in (
        ("The last tau", previous),
        ("R_s", R_s),
        ("R_c", R_c),
        ("The number of iterations left", remaining),
    ):
        check_range(name, count, 1)
    tau = np.arange(1, min(2 * previous, MOST_ITERATIONS, remaining) + 1)
    T = total_iterations(tau, R_s, R_c)
    if theorem is not None and (margin(tau, inputs, theorem) > 0).any():
        return TauChoice(int(tau[theorem_gap(tau, T, inputs, theorem).argmin()]), "theorem 2")
    return TauChoice(int(tau[wang_gap(tau, T, inputs, phi).argmin()]), "wang")


def raw_estimates(
    loss_differences: Values,
    gradient_differences: Values,
    distances: Values,
    divergences: Values,
    weights: Values,
) -> AlsEstimates:
    """Computes the estimates as published.

    Every one of them depends on the data directly, and no noise covers it.

    Args:
        loss_differences: |F_i(w_i) - F_i(w)| of each client.
        gradient_differences: |grad F_i(w_i) - grad F_i(w)| of each client.
        distances: |w_i - w| of each client.
        divergences: |grad F_i(w) - grad F(w)| of each client.
        weights: The weight of each client.

    Returns:
        rho and beta as weighted means of the first two over the distances, and xi as that of the
        divergences.
    """
    return AlsEstimates(
        rho=raw_slope(loss_differences, distances, weights),
        beta=raw_slope(gradient_differences, distances, weights),
        xi=float(shares(weights) @ per_client("A divergence", divergences, len(weights))),
    )


def released_estimates(
    norms: Values,
    differences: Values,
    distances: Values,
    divergences: Values,
    weights: Values,
    noises: Values,
    d: int,
    C: float,
) -> AlsEstimates:
    """Computes the estimates from released gradients g_i only.

    Losses are never released: rho is the size |g_i| of the gradient, at most C by clipping. beta is
    the slope from |g_i - g_i'| at two models. xi is |g_i - sum_j p_j g_j| at one model, where a
    client's noise meets its own share in the mean again. Squares are averaged before the root,
    which errs on the safe side: a larger rho or xi raises the bound.

    Args:
        norms: |g_i| of each client.
        differences: |g_i - g_i'| of each client.
        distances: |w_i - w_i'| of each client.
        divergences: |g_i - sum_j p_j g_j| of each client.
        weights: The weight of each client.
        noises: The energy of the noise in each gradient; sigma^2 C^2 d / B^2 for a single one.
        d: The number of parameters.
        C: The clip norm.

    Returns:
        The estimates.
    """
    check_range("C", C, 0, strict=True)
    p, noise = shares(weights), per_client("A noise energy", noises, len(weights))
    sizes = per_client("A norm", norms, len(p)) ** 2
    apart = per_client("A divergence", divergences, len(p)) ** 2
    # Rounding may leave a trace below 0 where one client has all the weight.
    noise_apart = np.maximum((1 - 2 * p) * noise + p**2 @ noise, 0.0)
    return AlsEstimates(
        rho=min(C, math.sqrt(subtract_noise(sizes, p, noise, d))),
        beta=released_slope(differences, distances, p, 2 * noise, d),
        xi=math.sqrt(subtract_noise(apart, p, noise_apart, d)),
    )
