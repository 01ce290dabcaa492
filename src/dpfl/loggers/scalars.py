"""What a logger writes of a run, in names that say what they are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfl.errors import DpflError
from dpfl.run.metrics import RoundRow

if TYPE_CHECKING:
    from dpfl.run.result import Result


def writable(folder: Path) -> Path:
    """Tried before a run begins: a logger that cannot write is of no use at its end."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise DpflError(
            f"The logger cannot write to {str(folder)[:80]!r} ({error}); name another place."
        ) from None
    if not os.access(folder, os.W_OK):
        raise DpflError(f"The logger cannot write to {str(folder)[:80]!r}; name another place.")
    return folder


NAMES = {
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


def scalars(row: RoundRow) -> dict[str, float]:
    """What a round measured, by name."""
    return {
        name: float(value)
        for key, name in NAMES.items()
        if (value := getattr(row, key)) is not None
    }


def flat(settings: Mapping[str, Any], place: str = "") -> dict[str, str]:
    """Settings by dotted names."""
    found: dict[str, str] = {}
    for key, value in settings.items():
        name = f"{place}.{key}" if place else str(key)
        found |= flat(value, name) if isinstance(value, Mapping) else {name: str(value)}
    return found


def told(result: Result) -> str:
    """The statement as Markdown: no figure of it is logged without it."""
    lines = [
        f"{result.measured} after {result.rounds} rounds; ended by {result.stopped_by}.",
        "",
        "    privacy statement",
    ]
    return "\n".join([*lines, *(f"    {line}" for line in str(result.privacy).splitlines())])
