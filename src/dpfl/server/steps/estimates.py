"""Estimates for step policies, from gradients, losses and models of the clients.

Raw estimates are those of the papers and depend on the data directly. Sound ones use released
gradients only, and remove the energy of the noise from them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dpfl.errors import DpflError

FloatArray: TypeAlias = npt.NDArray[np.float64]
Values: TypeAlias = Sequence[float] | FloatArray


def check_range(name: str, value: float, least: float = -math.inf, strict: bool = False) -> None:
    """Refuses a value that is not a finite number, or lies below its range.

    Args:
        name: What the value is, for the message.
        value: The value.
        least: The lower end of the range.
        strict: Whether the lower end itself is refused, too.

    Raises:
        DpflError: The value is refused.
    """
    if not math.isfinite(value) or value < least or (strict and value == least):
        end = "" if least == -math.inf else f" {'above' if strict else 'of at least'} {least:g}"
        raise DpflError(f"{name} must be a finite number{end}, not {value}.")


def raw_gamma(loss_differences: Values, weights: Values) -> float:
    """Computes Gamma as the authors' code does: |sum_i p_i (F_i(w_i) - F_i(w))|.

    No noise covers these losses.

    Args:
        loss_differences: F_i(w_i) - F_i(w) of each client.
        weights: The weight of each client.

    Returns:
        Gamma.
    """
    return abs(
        float(
            shares(weights)
            @ per_client("A loss difference", loss_differences, len(weights), least=None)
        )
    )


def raw_slope(differences: Values, distances: Values, weights: Values) -> float:
    """Computes the published mu: sum_i p_i |grad F_i(w_i) - grad F_i(w)| / |w_i - w|.

    It depends on the data directly: whoever learns tau learns something that no noise covers.

    Args:
        differences: |grad F_i(w_i) - grad F_i(w)| of each client.
        distances: |w_i - w| of each client. Clients whose model did not move are left out.
        weights: The weight of each client.

    Returns:
        mu.

    Raises:
        DpflError: No client's model has moved.
    """
    rises, runs = per_client("A difference", differences, len(weights)), _runs(distances, weights)
    moving = runs > 0
    return float(shares(np.asarray(weights)[moving]) @ (rises[moving] / runs[moving]))


def released_slope(
    differences: Values, distances: Values, weights: Values, noises: Values, d: int
) -> float:
    """Computes the sound mu, from gradients g that were released anyway, at models w and w':

        sqrt(sum_i p_i (|g_i - g_i'|^2 - noise_i) / sum_i p_i |w_i - w_i'|^2)

    Squares are pooled before the root, because the root of one small noisy square is biased. Two
    effects are left in: batches that differ add up to 2 C^2 / B to a square, and a second model
    that was reached along the first noisy gradient adds eta noise_i tr(H) / d. Several rounds
    between the two models make both small against the distance.

    Args:
        differences: |g_i - g_i'| of each client.
        distances: |w_i - w_i'| of each client.
        weights: The weight of each client.
        noises: The energy of the noise in each difference; 2 sigma^2 C^2 d / B^2 for two single
            gradients.
        d: The number of parameters.

    Returns:
        mu, above 0.

    Raises:
        DpflError: No client's model has moved.
    """
    squares = per_client("A difference", differences, len(weights)) ** 2
    return math.sqrt(
        subtract_noise(squares, weights, noises, d)
        / float(shares(weights) @ _runs(distances, weights) ** 2)
    )


def subtract_noise(squares: Values, weights: Values, noises: Values, d: int) -> float:
    """Computes the weighted mean of squared norms without the energy of their noise.

    It is never below one standard deviation of the noise's own energy, sqrt(2 / d) of its mean: a
    smaller square cannot be told from noise. This floor is made of public numbers alone. With noise
    it is above 0, so that tau* stays defined.

    Args:
        squares: The squared norm of each client.
        weights: The weight of each client.
        noises: The energy of the noise in each square.
        d: The number of parameters.

    Returns:
        The mean.
    """
    p = shares(weights)
    noise = per_client("A noise energy", noises, len(p))
    check_range("d", d, 1)
    mean = float(p @ (per_client("A square", squares, len(p)) - noise))
    return max(mean, math.sqrt(2 / d) * float(np.linalg.norm(p * noise)))


def shares(weights: Values) -> FloatArray:
    """Computes p_i, the weights over their sum.

    Args:
        weights: The weight of each client.

    Returns:
        Shares that add up to 1.

    Raises:
        DpflError: No weight is above 0.
    """
    values = per_client("A weight", weights, len(weights))
    if not values.sum() > 0:
        raise DpflError("At least one client must have a weight above 0.")
    return values / values.sum()


def per_client(name: str, values: Values, clients: int, least: float | None = 0.0) -> FloatArray:
    """Checks that there is one finite number per client.

    Args:
        name: What the numbers are, for the message.
        values: The numbers.
        clients: How many clients there are.
        least: The least allowed number; None for any.

    Returns:
        The numbers as an array.

    Raises:
        DpflError: There is another number of them, or one of them is not allowed.
    """
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.shape != (clients,):
        raise DpflError(
            f"{name} is needed for each of {clients} clients, but the shape given is "
            f"{numbers.shape}."
        )
    if not np.isfinite(numbers).all() or (least is not None and (numbers < least).any()):
        raise DpflError(
            f"{name} of a client is not a finite "
            f"number{'' if least is None else f' of at least {least:g}'}."
        )
    return numbers


def _runs(distances: Values, weights: Values) -> FloatArray:
    runs = per_client("A distance", distances, len(weights))
    if not runs @ shares(weights) > 0:
        raise DpflError(
            "No client's model has moved, so a slope cannot be estimated; noise alone should have "
            "moved them."
        )
    return runs
