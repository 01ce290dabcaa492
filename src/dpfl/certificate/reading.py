"""Reads certificates and the files of a run strictly, since anybody may have written them."""

from __future__ import annotations

import json
from typing import Any

from dpfl.errors import DpflError
from dpfl.run.records.folder import RunFolder
from dpfl.run.records.model_card import NAME, TITLE


def strict_json(text: str) -> Any:
    """Parses JSON and refuses what two readers could understand differently.

    A repeated key is refused, because a person sees its first value and a program takes the last.
    NaN and Infinity are refused, because they are not JSON.

    Args:
        text: The content of a file.

    Returns:
        What `json.loads` returns.

    Raises:
        ValueError: The text is not strict JSON.
    """
    try:
        return json.loads(text, object_pairs_hook=_without_doubles, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("it has a key twice")
    return content


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


def read(folder: RunFolder, name: str, needed: bool = True) -> Any:
    """Reads a JSON file of a run.

    Args:
        folder: The folder of the run.
        name: The name of the file.
        needed: Every finished run has this file.

    Returns:
        Its content, or None where it is missing and not needed.

    Raises:
        DpflError: The file is needed and missing, or it cannot be read.
    """
    path = folder.file(name)
    if not path.exists():
        if needed:
            raise DpflError(
                f"The run in {folder.path} is not finished ({name} is missing). Resume it with: "
                f"dpfl run --resume {folder.path}"
            )
        return None
    try:
        return strict_json(path.read_text())
    except (OSError, ValueError) as error:
        raise DpflError(f"{path} cannot be read ({error}); restore it from a copy.") from error


def own_card(folder: RunFolder) -> str | None:
    """Reads the model card of a run.

    Args:
        folder: The folder of the run.

    Returns:
        Its text; None where there is no card, or where the file is not one that a run writes.

    Raises:
        DpflError: The file cannot be read.
    """
    path = folder.file(NAME)
    try:
        text = path.read_text(errors="replace") if path.exists() else ""
    except OSError as error:
        raise DpflError(
            f"{path} cannot be read ({error.strerror}); restore it from a copy, or remove it."
        ) from error
    return text if text.startswith(TITLE) else None
