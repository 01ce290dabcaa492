"""Files of a run's folder and certificates, read strictly."""

from __future__ import annotations

import json
from typing import Any

from dpfl.errors import DpflError
from dpfl.run.folder import RunFolder
from dpfl.run.model_card import NAME, TITLE


def strict_json(text: str) -> Any:
    """No key twice, since a reader sees the first value and a program the last; no NaN, which is
    not JSON.
    """
    try:
        return json.loads(text, object_pairs_hook=_without_doubles, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands in it twice")
    return found


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


def read(folder: RunFolder, name: str, needed: bool = True) -> Any:
    """A JSON file of the run; one that every finished run has, unless it is not `needed`."""
    path = folder.file(name)
    if not path.exists():
        if needed:
            raise DpflError(
                f"The run in {folder.path} is not finished ({name} is missing); go on with: dpfl "
                f"run --resume {folder.path}"
            )
        return None
    try:
        return strict_json(path.read_text())
    except (OSError, ValueError) as error:
        raise DpflError(f"{path} cannot be read ({error}); restore it from a copy.") from error


def own_card(folder: RunFolder) -> str | None:
    """The card as a run writes it; None where there is none, or where the file is somebody
    else's.
    """
    path = folder.file(NAME)
    try:
        text = path.read_text(errors="replace") if path.exists() else ""
    except OSError as error:
        raise DpflError(
            f"{path} cannot be read ({error.strerror}); restore it from a copy, or remove it."
        ) from error
    return text if text.startswith(TITLE) else None
