"""Epsilons as a certificate states them: six digits, rounded up, or the word "unbounded"."""

from __future__ import annotations

import math
from typing import Any, Literal

from dpfl.privacy.statement import figure

Epsilon = float | Literal["unbounded"]

TOLERANCE = 2e-6
"""Two machines may differ in the last bits of an epsilon, and so in its sixth digit."""


def stated_figure(epsilon: float) -> Epsilon:
    """Rounds an epsilon up to six digits.

    Args:
        epsilon: Any epsilon, infinity included.

    Returns:
        The figure that a certificate states.
    """
    json_figure: Any = figure(epsilon)
    return json_figure  # type: ignore[no-any-return]


def number(epsilon: Any) -> float:
    """Reads a figure that somebody may have edited.

    Args:
        epsilon: A number or "unbounded".

    Returns:
        The number; "unbounded" is infinity.

    Raises:
        ValueError: It is neither a number nor "unbounded".
    """
    if epsilon == "unbounded":
        return math.inf
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or math.isnan(epsilon):
        raise ValueError(f"{epsilon!r} is not an epsilon")
    return float(epsilon)


def same_figure(one: Any, other: Any) -> bool:
    """Compares two figures up to their last digit.

    Args:
        one: A figure, or None.
        other: A figure, or None. None equals only None.

    Returns:
        True where they are equal up to `TOLERANCE`.
    """
    if one is None or other is None:
        return one is other
    return one == other or abs(number(one) - number(other)) <= TOLERANCE


def between(low: Any, epsilon: Any, high: Any) -> bool:
    """Checks that a figure lies between two others, up to its last digit.

    Args:
        low: The lower bound, or None.
        epsilon: The figure, or None.
        high: The upper bound, or None.

    Returns:
        True where it lies between them, or where all three are None.
    """
    if low is None or epsilon is None or high is None:
        return low is epsilon is high
    return number(low) - TOLERANCE <= number(epsilon) <= number(high) + TOLERANCE
