"""Epsilons as a certificate states them: six digits, rounded up, and a word where there is no
bound.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from dpfl.privacy.statement import figure

Epsilon = float | Literal["unbounded"]

TOLERANCE = 2e-6
"""Two machines may differ in the last bits of an epsilon, which is stated to six digits, rounded
up.
"""


def stated_figure(epsilon: float) -> Epsilon:
    stated: Any = figure(epsilon)
    return stated  # type: ignore[no-any-return]


def number(epsilon: Any) -> float:
    """Of a figure that somebody may have edited.

    Raises:
        ValueError: If it is neither a number nor the word for none.
    """
    if epsilon == "unbounded":
        return math.inf
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or math.isnan(epsilon):
        raise ValueError(f"{epsilon!r} is no epsilon")
    return float(epsilon)


def same_figure(one: Any, other: Any) -> bool:
    """Whether two figures are one, but for the last digit."""
    if one is None or other is None:
        return one is other
    return one == other or abs(number(one) - number(other)) <= TOLERANCE


def between(low: Any, value: Any, high: Any) -> bool:
    """Whether a figure is neither below the one nor above the other, but for the last digit; None
    is only None.
    """
    if low is None or value is None or high is None:
        return low is value is high
    return number(low) - TOLERANCE <= number(value) <= number(high) + TOLERANCE
