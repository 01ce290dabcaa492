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
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from dpfl.bad_values import choose
from dpfl.errors import DpflError

Formula = Literal["printed", "code", "consistent", "corrected"]
FORMULAS: tuple[Formula, ...] = get_args(Formula)
FloatArray: TypeAlias = npt.NDArray[np.float64]
Values: TypeAlias = Sequence[float] | FloatArray

MOST_ITERATIONS = 100

# Section V: Gamma by how the data is split, None standing for IID and a number for the beta of the
# Dirichlet distribution.
GAMMA_OF_SPLIT: dict[float | None, float] = {None: 0.0, 0.05: 10.0, 0.5: 5.0, 1.0: 1.0}


def check_range(name: str, value: float, least: float = -math.inf, strict: bool = False) -> None:
    """Refuse what is not a finite number, or lies below its range; `strict` leaves the lower end
    out.
    """
    if not math.isfinite(value) or value < least or (strict and value == least):
        end = "" if least == -math.inf else f" {'above' if strict else 'of at least'} {least:g}"
        raise DpflError(f"{name} must be a finite number{end}, not {value}.")


@dataclass(frozen=True)
class AliInputs:
    """What the bound is made of. L and Delta (the squared distance of the first model to the
    optimum) leave tau* as it is.
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
        return noise_energy(self.sigma, self.C, self.d, self.B)


def noise_energy(sigma: float, C: float, d: int, B: float, steps: int = 1) -> float:
    """E |noise|^2 in a released gradient, or in the mean of this many of them: sigma^2 C^2 d / (B^2
    steps).
    """
    return (sigma * C / B) ** 2 * d / steps


def smallest_batch(q: float, sizes: Sequence[int]) -> float:
    """B = min_i q |D_i|, from declared sizes. With the fixed divisor q |D_i|, 1 / B = max E 1 /
    |B_i| is exact.
    """
    return q * min(sizes)


def total_iterations(tau: npt.ArrayLike, R_s: int, R_c: int) -> FloatArray:
    """T = min(R_s tau, R_c): what the rounds allow, and what the privacy allows."""
    return np.minimum(R_s * np.asarray(tau, dtype=np.float64), R_c)


def h(tau: npt.ArrayLike, inputs: AliInputs, formula: Formula = "corrected") -> FloatArray:
    """(8): the bound on E F(w_T) - F*."""
    rise, rest = _terms(inputs, formula)
    tau = np.asarray(tau, dtype=np.float64)
    return inputs.L / (2 * inputs.T) * (rise * (tau - 1) ** 2 + inputs.Delta * tau + rest)


def G(tau: npt.ArrayLike, inputs: AliInputs, formula: Formula = "corrected") -> FloatArray:
    """(11): the bound at a fixed number of rounds, h(tau) = tau / T G(tau)."""
    return inputs.T / np.asarray(tau, dtype=np.float64) * h(tau, inputs, formula)


def tau_star(inputs: AliInputs, formula: Formula = "corrected") -> float:
    """(9): the real tau that minimises G. Infinite at mu = 0 wherever the formula has 4 / mu^2."""
    rise, rest = _terms(inputs, formula)
    return math.sqrt(1 + rest / rise)


def _terms(inputs: AliInputs, formula: Formula) -> tuple[float, float]:
    """(2 + eta mu)(C^2 + n), which grows with (tau - 1)^2 in (8), and what does not change with
    tau.
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


def whole_tau(tau: float, left: int, most: int = MOST_ITERATIONS) -> int:
    """The nearest whole number in [1, most], capped at the iterations that the budget leaves."""
    if math.isnan(tau):
        raise DpflError("tau* is not a number, so no number of local iterations can be chosen.")
    check_range("The number of iterations left", left, 1)
    return min(math.floor(min(max(tau, 1.0), most) + 0.5), left)


def next_tau(
    inputs: AliInputs, R_s: int, R_c: int, left: int, formula: Formula = "corrected"
) -> int:
    """Algorithm 2, lines 15 to 18: one iteration where rounds are no constraint (Lemma 1), else
    tau* (Lemma 2).
    """
    return 1 if R_s >= R_c else whole_tau(tau_star(inputs, formula), left)


def heterogeneity(optimum: float, optima: Values, weights: Values) -> float:
    """Gamma = F* - sum_i p_i F_i*. Optima that are only estimated can put it below 0, its least
    possible value.
    """
    check_range("F*", optimum)
    return max(
        0.0, optimum - float(shares(weights) @ per_client("F_i*", optima, len(weights), least=None))
    )


def raw_gamma(loss_differences: Values, weights: Values) -> float:
    """Gamma as the authors' code has it: |sum_i p_i (F_i(w_i) - F_i(w))|, from losses, which no
    noise covers either.
    """
    return abs(
        float(
            shares(weights)
            @ per_client("A loss difference", loss_differences, len(weights), least=None)
        )
    )


def raw_slope(differences: Values, distances: Values, weights: Values) -> float:
    """The published mu: sum_i p_i |grad F_i(w_i) - grad F_i(w)| / |w_i - w|, over the clients whose
    model moved.

    It depends on the data directly: whoever learns tau learns something that no noise covers.
    """
    rises, runs = per_client("A difference", differences, len(weights)), _runs(distances, weights)
    moved = runs > 0
    return float(shares(np.asarray(weights)[moved]) @ (rises[moved] / runs[moved]))


def released_slope(
    differences: Values, distances: Values, weights: Values, noises: Values, d: int
) -> float:
    """The sound mu, from gradients g that were released anyway, at models w and w'.

    sqrt(sum_i p_i (|g_i - g_i'|^2 - noise_i) / sum_i p_i |w_i - w_i'|^2), where `noises` are the
    energies of the noise in each difference, 2 sigma^2 C^2 d / B^2 for two single gradients.
    Squares are pooled before the root, because the root of one small noisy square is biased. Two
    effects are left in: batches that differ add up to 2 C^2 / B to a square, and a second model
    that was reached along the first noisy gradient adds eta noise_i tr(H) / d. Several rounds
    between the two models make both small against the distance.
    """
    squares = per_client("A difference", differences, len(weights)) ** 2
    return math.sqrt(
        denoised(squares, weights, noises, d)
        / float(shares(weights) @ _runs(distances, weights) ** 2)
    )


def denoised(squares: Values, weights: Values, noises: Values, d: int) -> float:
    """The weighted mean of squared norms without the energy of their noise.

    Never below one standard deviation of the noise's own energy, sqrt(2 / d) of its mean: a smaller
    square cannot be told from noise. This floor is above 0, so that tau* stays defined, and made of
    public numbers alone.
    """
    p = shares(weights)
    noise = per_client("A noise energy", noises, len(p))
    check_range("d", d, 1)
    found = float(p @ (per_client("A square", squares, len(p)) - noise))
    return max(found, math.sqrt(2 / d) * float(np.linalg.norm(p * noise)))


def shares(weights: Values) -> FloatArray:
    """p_i, the weights over their sum."""
    values = per_client("A weight", weights, len(weights))
    if not values.sum() > 0:
        raise DpflError("At least one client must have a weight above 0.")
    return values / values.sum()


def per_client(name: str, values: Values, clients: int, least: float | None = 0.0) -> FloatArray:
    """One finite number for each client."""
    found = np.asarray(values, dtype=np.float64)
    if found.shape != (clients,):
        raise DpflError(
            f"{name} is needed for each of {clients} clients, but the shape given is {found.shape}."
        )
    if not np.isfinite(found).all() or (least is not None and (found < least).any()):
        raise DpflError(
            f"{name} of a client is not a finite "
            f"number{'' if least is None else f' of at least {least:g}'}."
        )
    return found


def _runs(distances: Values, weights: Values) -> FloatArray:
    runs = per_client("A distance", distances, len(weights))
    if not runs @ shares(weights) > 0:
        raise DpflError(
            "No client's model has moved, so a slope cannot be estimated; noise alone should have "
            "moved them."
        )
    return runs
