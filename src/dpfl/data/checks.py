"""Checks of values that users write, and suggestions of what they meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import cast

import numpy as np

from dpfl.errors import DpflError


def suggest(word: str, known: Iterable[str]) -> str:
    """Half a sentence that leads from a mistyped word to the right one.

    Args:
        word: The word as it was written.
        known: The words that there are.

    Returns:
        Either "did you mean ..." or "choose one of ...".
    """
    if near := difflib.get_close_matches(word, list(known), n=1, cutoff=0.5):
        return f"did you mean {near[0]!r}"
    return f"choose one of {', '.join(known)}" if known else "it has none"


def is_number(value: object) -> bool:
    """Whether a value is a finite number, and no truth value.

    Args:
        value: Any value.

    Returns:
        Whether it is.
    """
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))
    )


def require_above(value: object, name: str, bound: float) -> None:
    """Refuses anything but a number above a bound.

    Args:
        value: The value.
        name: Its name in the error.
        bound: The bound, which is excluded.

    Raises:
        DpflError: The value is no such number.
    """
    if not is_number(value) or cast(float, value) <= bound:
        raise DpflError(f"{name} is {value!r}: give a number above {bound}.")


def require_whole(value: object, name: str, least: int) -> None:
    """Refuses anything but a whole number from a bound on.

    Args:
        value: The value.
        name: Its name in the error.
        least: The bound, which is included.

    Raises:
        DpflError: The value is no such number.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise DpflError(f"{name} is {value!r}: give a whole number of at least {least}.")
