"""A disk that fails while a file is written."""

from __future__ import annotations

from pathlib import Path

import pytest


def fail_at(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets "flush" or "rename" fail, as they do on a full disk."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if step == "flush":
        monkeypatch.setattr("os.fsync", full)
    else:
        monkeypatch.setattr(Path, "replace", full)
