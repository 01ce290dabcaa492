"""Checks of single values that came over a network.

A *form* is a function from a value as JSON has it to the value of a field. It raises a
`ProtocolError` for anything else. Types are compared exactly: `True` is not a whole number, and
1.0 is not either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from dpfl.errors import DpflError
from dpfl.privacy.accounting.events import Event, decode
from dpfl.refusals import ProtocolError, RefusalReason

LARGEST = 1e30
MOST_WHOLE = 1_000_000_000
MOST_LISTED = 100_000
MOST_TEXT = 64
MOST_EVENT_TEXT = 1000
"""Characters of an event's line."""
HEXADECIMAL = frozenset("0123456789abcdef")

Form = Callable[[Any], Any]
"""From a value as JSON has it to the value of a field."""


def refuse(reason: RefusalReason = RefusalReason.BAD_WORDS) -> NoReturn:
    """Refuses a value.

    Args:
        reason: Why.

    Raises:
        ProtocolError: Always.
    """
    raise ProtocolError(reason)


def truth(value: Any) -> bool:
    """Accepts true and false.

    Args:
        value: A value of any type.

    Returns:
        The value.
    """
    return value if type(value) is bool else refuse()


def whole(least: int = 0, most: int = MOST_WHOLE) -> Form:
    """Makes a form of whole numbers.

    Args:
        least: The least number that is accepted.
        most: The largest number that is accepted.

    Returns:
        The form.
    """
    return lambda value: value if type(value) is int and least <= value <= most else refuse()


def number(value: Any) -> float:
    """Accepts finite numbers, whole or not, as they are written.

    Args:
        value: A value of any type.

    Returns:
        The value.
    """
    return value if type(value) in (int, float) and -LARGEST <= value <= LARGEST else refuse()


def share(value: Any) -> float:
    """Accepts what an optimiser may keep from step to step. From 1 on, steps grow without bound.

    Args:
        value: A value of any type.

    Returns:
        The value, in [0, 1).
    """
    return value if 0 <= number(value) < 1 else refuse()


def positive(value: Any) -> float:
    """Accepts numbers above 0.

    Args:
        value: A value of any type.

    Returns:
        The value.
    """
    return value if number(value) > 0 else refuse()


def text(value: Any) -> str:
    """Accepts short printable texts.

    Args:
        value: A value of any type.

    Returns:
        The value.
    """
    if type(value) is not str or len(value) > MOST_TEXT or not value.isprintable():
        refuse()
    return value


def one_of(*words: str) -> Form:
    """Makes a form of a few fixed words.

    Args:
        *words: The words.

    Returns:
        The form.
    """
    return lambda value: value if type(value) is str and value in words else refuse()


def digits(length: int) -> Form:
    """Makes a form of texts of hexadecimal digits.

    Args:
        length: How many digits.

    Returns:
        The form.
    """

    def form(value: Any) -> str:
        if type(value) is not str or len(value) != length or not set(value) <= HEXADECIMAL:
            refuse()
        return value

    return form


def optional(form: Form) -> Form:
    """Makes a form that also accepts nothing.

    Args:
        form: The form of a value that is there.

    Returns:
        The form.
    """
    return lambda value: None if value is None else form(value)


def list_of(form: Form, most: int = MOST_LISTED) -> Form:
    """Makes a form of lists.

    Args:
        form: The form of each entry.
        most: The most entries.

    Returns:
        The form, whose values are tuples.
    """

    def entries(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or len(value) > most:
            refuse()
        return tuple(form(item) for item in value)

    return entries


def event(value: Any) -> Event:
    """Accepts the line of an event, as ledgers write it.

    Args:
        value: A value of any type.

    Returns:
        The event.

    Raises:
        ProtocolError: It is not the line of an event.
    """
    if type(value) is not str or len(value) > MOST_EVENT_TEXT:
        refuse()
    try:
        return decode(value)
    except (DpflError, RecursionError):
        raise ProtocolError(RefusalReason.BAD_WORDS) from None
