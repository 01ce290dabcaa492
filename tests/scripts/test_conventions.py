"""The conventions hold, and the checks of them notice a departure."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts import conventions

DEPARTURES = '''
class Twice:
    """Something."""

    def method(self, size):
        found = size

def undocumented() -> None: ...

def no_sections(size: int) -> int:
    """Does something."""
    return size
'''


@pytest.mark.parametrize("check", conventions.CHECKS, ids=lambda check: check.__name__)
def test_there_are_no_departures(check: Callable[[], Iterator[str]]) -> None:
    assert list(check()) == []


@pytest.mark.parametrize(
    ("check", "count"),
    [
        (conventions.duplicate_classes, 2),
        (conventions.missing_docstrings, 6),
        (conventions.missing_sections, 4),
        (conventions.participles, 2),
        (conventions.missing_tests, 2),
        (conventions.long_files, 2),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_departure_is_noticed(
    check: Callable[[], Iterator[str]],
    count: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Two copies of one bad module, each with every departure."""
    for name in ("one", "two"):
        path = tmp_path / "src" / "dpfl" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(DEPARTURES + "\n" * conventions.MOST_LINES)
    sources = sorted((tmp_path / "src").rglob("*.py"))
    monkeypatch.setattr(conventions, "ROOT", tmp_path)
    monkeypatch.setattr(
        conventions, "modules", lambda: {path: ast.parse(path.read_text()) for path in sources}
    )
    conventions._documented_by_bases.cache_clear()
    try:
        assert len(list(check())) == count
    finally:
        conventions._documented_by_bases.cache_clear()
