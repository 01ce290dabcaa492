"""Checks the paths of output files before anything is computed for them."""

from __future__ import annotations

import os
from pathlib import Path

from dpfl.errors import DpflError


def check_place(path: Path | None, option: str, suffix: str = "") -> None:
    """Refuses a path that no file can be written to.

    Args:
        path: The file; None if none is asked for.
        option: The option that names it, for the error.
        suffix: The ending that the file must have, such as ".png"; "" for any.

    Raises:
        DpflError: The path has another ending or is a folder, or its folder cannot be written.
    """
    if path is None:
        return
    if suffix and path.suffix.lower() != suffix:
        raise DpflError(f"{option} writes a file that ends in {suffix}, not {path.name!r}.")
    try:
        is_folder, has_parent = path.is_dir(), path.parent.is_dir()
    except (OSError, ValueError) as error:
        raise DpflError(
            f"{option}: {str(path)[:80]!r} cannot be the name of a file ({error})."
        ) from None
    if is_folder:
        raise DpflError(f"{option}: {path} is a folder; give a file in it.")
    if not has_parent or not os.access(path.parent, os.W_OK):
        raise DpflError(
            f"{option}: the folder {path.parent} does not exist or cannot be written; create it, "
            "or choose another."
        )


def check_folder(path: Path | None, option: str) -> None:
    """Creates a folder, or refuses a path that cannot be one.

    Args:
        path: The folder; None if none is asked for.
        option: The option that names it, for the error.

    Raises:
        DpflError: The path is a file or lies below one, or the folder cannot be created.
    """
    if path is None:
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise DpflError(
            f"{option}: {str(path)[:80]!r} cannot be a folder ({error}); choose another."
        ) from None
