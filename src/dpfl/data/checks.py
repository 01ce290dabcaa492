"""Checks of what users write, and suggestions of what they meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import cast

import numpy as np

from dpfl.errors import DpflError


def suggest(word: str, known: Iterable[str]) -> str:
    """Half a sentence that leads from a mistyped word to the right one."""
    if near := difflib.get_close_matches(word, list(known), n=1, cutoff=0.5):
        return f"did you mean {near[0]!r}"
    return f"choose one of {', '.join(known)}" if known else "it has none"


def is_number(value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))
    )


def require_above(value: object, name: str, bound: float) -> None:
    if not is_number(value) or cast(float, value) <= bound:
        raise DpflError(f"{name} is {value!r}: give a number above {bound}.")


def require_whole(value: object, name: str, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise DpflError(f"{name} is {value!r}: give a whole number of at least {least}.")
