"""Epsilons in the form that people and files read. An upper bound is always rounded up."""

from __future__ import annotations

import math

UNBOUNDED = "unbounded"
"""The word for an infinite epsilon, in files and on pages."""


def rounded_up(epsilon: float, digits: int = 4) -> float:
    """Rounds an upper bound so that the result is never below it.

    Args:
        epsilon: A finite upper bound.
        digits: Decimal places of the result.

    Returns:
        The smallest decimal of that many places that is not below `epsilon`.
    """
    scale = 10.0**digits
    return math.ceil(epsilon * scale - 1e-9) / scale


def rounded_down(epsilon: float, digits: int = 4) -> float:
    """Rounds a lower bound so that the result is never above it.

    Args:
        epsilon: A finite lower bound, such as what an audit measured.
        digits: Decimal places of the result.

    Returns:
        The largest decimal of that many places that is not above `epsilon`.
    """
    scale = 10.0**digits
    return math.floor(epsilon * scale) / scale


def figure(epsilon: float | None) -> float | str | None:
    """Writes an epsilon as JSON holds it.

    Args:
        epsilon: A bound, infinity if there is none, or None if nobody states one.

    Returns:
        Six decimal places, rounded up; the word "unbounded" for infinity; None for None.
    """
    if epsilon is None:
        return None
    return rounded_up(epsilon, 6) if math.isfinite(epsilon) else UNBOUNDED


def from_figure(figure: float | str | None) -> float | None:
    """Reads what `figure` wrote.

    Args:
        figure: A number, the word "unbounded", or None.

    Returns:
        The epsilon, which is infinity for "unbounded".

    Raises:
        ValueError: If a text is neither a number nor "unbounded".
    """
    if figure is None:
        return None
    return math.inf if figure == UNBOUNDED else float(figure)


def epsilon_text(epsilon: float | str | None, absent: str = "-") -> str:
    """Shows an upper bound to people, with four decimal places.

    Args:
        epsilon: A number, a word such as "unbounded", or None.
        absent: What stands for None.

    Returns:
        The figure as text.

    Example:
        >>> epsilon_text(3.99101)
        '3.9911'
    """
    if epsilon is None:
        return absent
    if isinstance(epsilon, str):
        return epsilon
    return f"{rounded_up(epsilon):.4f}" if math.isfinite(epsilon) else UNBOUNDED
