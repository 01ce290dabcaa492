"""ALI-DPFL (Ling et al. 2024): the bound on convergence, the number of local iterations that
minimises it, and its inputs.

Four readings of the optimum are kept apart by `formula`. They differ in the step size that they put
into (11):

- "printed": (9), which is (11) at eta = 1 / (mu T);
- "code": what the authors ran, 1 / (mu T) in the term of Gamma and 2 / (mu T) in the other, and
  1e-6 on the denominator;
- "consistent": (11) at eta = 2 / (mu T), the step size of the proof;
- "corrected": (11) at the learning rate in use, without 4 / mu^2, which is beta^2 added where the
  proof has to multiply by it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import numpy.typing as npt

from dpfl.bad_values import choose
from dpfl.errors import DpflError
from dpfl.server.steps.estimates import FloatArray, check_range

Formula = Literal["printed", "code", "consistent", "corrected"]

MOST_ITERATIONS = 100


@dataclass(frozen=True)
class AliInputs:
    """The quantities of the bound, in the paper's notation.

    Attributes:
        mu: The strong convexity of the clients' losses.
        C: The clip norm.
        Gamma: The heterogeneity of the clients, F* - sum_i p_i F_i*.
        sigma: The noise multiplier.
        d: The number of parameters.
        B: The smallest expected batch.
        T: The number of iterations.
        eta: The learning rate.
        L: The smoothness of the losses. tau* does not depend on it.
        Delta: The squared distance of the first model to the optimum. tau* does not depend on it.
    """

    mu: float
    C: float
    Gamma: float
    sigma: float
    d: int
    B: float
    T: float
    eta: float
    L: float = 1.0
    Delta: float = 1.0

    def __post_init__(self) -> None:
        for field in fields(self):
            may_vanish = field.name in ("mu", "Gamma", "sigma", "Delta")
            check_range(field.name, getattr(self, field.name), 0, strict=not may_vanish)
        check_range("T", self.T, 1)

    @property
    def noise(self) -> float:
        """E |noise|^2 in a released gradient."""
        return noise_energy(self.sigma, self.C, self.d, self.B)


def noise_energy(sigma: float, C: float, d: int, B: float, steps: int = 1) -> float:
    """Computes E |noise|^2 in the mean of released gradients, sigma^2 C^2 d / (B^2 steps).

    Args:
        sigma: The noise multiplier.
        C: The clip norm.
        d: The number of parameters.
        B: The expected batch.
        steps: How many gradients are averaged.

    Returns:
        The energy.
    """
    return (sigma * C / B) ** 2 * d / steps


def total_iterations(tau: npt.ArrayLike, R_s: int, R_c: int) -> FloatArray:
    """Computes T = min(R_s tau, R_c): what the rounds allow, and what privacy allows.

    Args:
        tau: Local steps, one number or several.
        R_s: The rounds.
        R_c: The iterations that privacy allows.

    Returns:
        T for each tau.
    """
    return np.minimum(R_s * np.asarray(tau, dtype=np.float64), R_c)


def h(tau: npt.ArrayLike, inputs: AliInputs, formula: Formula = "corrected") -> FloatArray:
    """Computes the bound (8) on E F(w_T) - F*.

    Args:
        tau: Local steps, one number or several.
        inputs: The quantities of the bound.
        formula: The reading of (9), which this bound leads to.

    Returns:
        The bound for each tau.
    """
    rise, rest = _terms(inputs, formula)
    tau = np.asarray(tau, dtype=np.float64)
    return inputs.L / (2 * inputs.T) * (rise * (tau - 1) ** 2 + inputs.Delta * tau + rest)


def G(tau: npt.ArrayLike, inputs: AliInputs, formula: Formula = "corrected") -> FloatArray:
    """Computes (11), the bound at a fixed number of rounds: h(tau) = tau / T G(tau).

    Args:
        tau: Local steps, one number or several.
        inputs: The quantities of the bound.
        formula: The reading of (9), which this bound leads to.

    Returns:
        The bound for each tau.
    """
    return inputs.T / np.asarray(tau, dtype=np.float64) * h(tau, inputs, formula)


def tau_star(inputs: AliInputs, formula: Formula = "corrected") -> float:
    """Computes (9), the real tau that minimises G.

    Args:
        inputs: The quantities of the bound.
        formula: The reading of (9).

    Returns:
        tau*, at least 1; infinite at mu = 0 in every reading with 4 / mu^2.
    """
    rise, rest = _terms(inputs, formula)
    return math.sqrt(1 + rest / rise)


def _terms(inputs: AliInputs, formula: Formula) -> tuple[float, float]:
    """Returns (2 + eta mu)(C^2 + n), which grows with (tau - 1)^2 in (8), and the terms that do not
    depend on tau.
    """
    mu, T, square = inputs.mu, inputs.T, inputs.C**2
    inverse_rate, rate_times_mu = choose(
        "formula for tau*",
        formula,
        {
            "printed": (mu * T, 1 / T),
            "code": (mu * T, 2 / T),
            "consistent": (mu * T / 2, 2 / T),
            "corrected": (1 / inputs.eta, inputs.eta * mu),
        },
    )
    slip = 0.0 if formula == "corrected" else 4 / mu**2 if mu**2 else math.inf
    guard = 1e-6 if formula == "code" else 0.0
    rise = (2 + rate_times_mu) * (square + inputs.noise) + guard
    return rise, slip + 3 * square + 2 * inputs.Gamma * inverse_rate + inputs.noise


def whole_tau(tau: float, remaining: int, most: int = MOST_ITERATIONS) -> int:
    """Rounds tau to the nearest whole number from 1 to `most`, and caps it at what privacy leaves.

    Args:
        tau: The real tau.
        remaining: The iterations that privacy leaves.
        most: The largest tau.

    Returns:
        The number of local iterations.

    Raises:
        DpflError: tau is not a number, or no iteration is left.
    """
    if math.isnan(tau):
        raise DpflError("tau* is not a number, so no number of local iterations can be chosen.")
    check_range("The number of iterations left", remaining, 1)
    return min(math.floor(min(max(tau, 1.0), most) + 0.5), remaining)


def next_tau(
    inputs: AliInputs, R_s: int, R_c: int, remaining: int, formula: Formula = "corrected"
) -> int:
    """Chooses tau as in Algorithm 2, lines 15 to 18: 1 where rounds are no constraint (Lemma 1),
    else tau* (Lemma 2).

    Args:
        inputs: The quantities of the bound.
        R_s: The rounds.
        R_c: The iterations that privacy allows in the whole run.
        remaining: How many of them are left.
        formula: The reading of (9).

    Returns:
        The number of local iterations.
    """
    return 1 if R_s >= R_c else whole_tau(tau_star(inputs, formula), remaining)
