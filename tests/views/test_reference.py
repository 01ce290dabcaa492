"""The reference is made from the code, whole, and as it is now."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from scripts.reference import DOCS, keys

import dpfl
from dpfl.data import Federation
from dpfl.run.metrics import COLUMNS
from dpfl.views.reference import FILES, KEYS, MEASURES, page


def test_every_key_and_column_has_a_line() -> None:
    assert set(keys()) <= set(KEYS)
    assert tuple(MEASURES) == COLUMNS


def test_the_page_is_up_to_date() -> None:
    """If this fails: python scripts/reference.py."""
    assert (DOCS / "reference.md").read_text() == page(keys())


@pytest.mark.parametrize("system", ["fedavg-dp", "dp-fedavg"])
def test_every_file_of_a_run_is_in_the_reference(
    train: Callable[..., dpfl.Result], federation: Federation, system: str
) -> None:
    result = train(federation, system, epsilon=8.0, rounds=1)
    names = [re.escape(name).replace("NAME", r"[\w.-]+") for name in FILES]
    for path in result.folder.rglob("*"):
        if path.is_file():
            place = path.relative_to(result.folder).as_posix()
            assert any(re.fullmatch(rf"{name}(-wal|-shm)?", place) for name in names), place


def test_the_readme_names_the_reference() -> None:
    assert "docs/reference.md" in (Path(__file__).parents[2] / "README.md").read_text()
