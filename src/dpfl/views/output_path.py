"""Where pictures and files are written: tried before anything is computed for them."""

from __future__ import annotations

import os
from pathlib import Path

from dpfl.errors import DpflError


def check_place(path: Path | None, option: str, suffix: str = "") -> None:
    """Refuses a name that a file cannot have, or a folder that is not there or cannot be
    written.
    """
    if path is None:
        return
    if suffix and path.suffix.lower() != suffix:
        raise DpflError(f"{option} writes a file that ends in {suffix}, not {path.name!r}.")
    try:
        taken, there = path.is_dir(), path.parent.is_dir()
    except (OSError, ValueError) as error:
        raise DpflError(
            f"{option}: {str(path)[:80]!r} cannot be the name of a file ({error})."
        ) from None
    if taken:
        raise DpflError(f"{option}: {path} is a folder; name a file in it.")
    if not there or not os.access(path.parent, os.W_OK):
        raise DpflError(
            f"{option}: there is no folder {path.parent} that can be written; make it, or name "
            "another."
        )


def check_folder(path: Path | None, option: str) -> None:
    """Refuses what is a file, or lies under one."""
    if path is None:
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise DpflError(
            f"{option}: {str(path)[:80]!r} cannot be a folder ({error}); name another."
        ) from None
