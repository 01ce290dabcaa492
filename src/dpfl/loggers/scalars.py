"""The content that loggers write about a run: scalars of each round, settings, and the privacy
statement.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfl.errors import DpflError
from dpfl.run.metrics import RoundRow
from dpfl.run.outcome_view import ending_in_words

if TYPE_CHECKING:
    from dpfl.run.result import Result


def check_writable(folder: Path) -> Path:
    """Creates the folder of a logger, before the run begins.

    Args:
        folder: The folder.

    Returns:
        The same folder.

    Raises:
        DpflError: The folder cannot be created or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise DpflError(
            f"The logger cannot write to {str(folder)[:80]!r} ({error}); choose another place."
        ) from None
    if not os.access(folder, os.W_OK):
        raise DpflError(f"The logger cannot write to {str(folder)[:80]!r}; choose another place.")
    return folder


SCALAR_NAMES = {
    "accuracy": "test/accuracy",
    "loss": "test/loss",
    "headline": "test/headline",
    "epsilon": "privacy/epsilon_used_upper_bound",
    "clip": "privacy/clip",
    "steps": "round/steps",
    "clients": "round/clients",
    "bytes": "cost/bytes",
    "seconds": "cost/seconds",
}
"""The name that a logger shows, by the column of the metrics."""


def scalars(row: RoundRow) -> dict[str, float]:
    """Lists the numbers of a round.

    Args:
        row: The round.

    Returns:
        Its numbers by the name that a logger shows. What was not measured is missing.
    """
    return {
        name: float(value)
        for key, name in SCALAR_NAMES.items()
        if (value := getattr(row, key)) is not None
    }


def flat(settings: Mapping[str, Any], place: str = "") -> dict[str, str]:
    """Lists settings by dotted names.

    Args:
        settings: Settings, which may contain others.
        place: The name of these settings within others; "" at the top.

    Returns:
        Each value as text, such as "8" for "model.hidden".
    """
    texts: dict[str, str] = {}
    for key, value in settings.items():
        name = f"{place}.{key}" if place else str(key)
        texts |= flat(value, name) if isinstance(value, Mapping) else {name: str(value)}
    return texts


def statement_text(result: Result) -> str:
    """Writes the outcome and the whole privacy statement.

    A logger writes this beside any figure of the statement.

    Args:
        result: A finished run.

    Returns:
        Markdown.
    """
    lines = [
        f"{result.measured} after {result.rounds} rounds; {ending_in_words(result.stopped_by)}.",
        "",
        "    privacy statement",
    ]
    return "\n".join([*lines, *(f"    {line}" for line in str(result.privacy).splitlines())])
