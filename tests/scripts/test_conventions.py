"""The conventions hold, and the checks of them notice a departure."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts import conventions

pytestmark = pytest.mark.xdist_group("conventions")  # one worker, which parses src once
DEPARTURES = '''
class Twice:
    """Something."""

    def method(self, size):
        found = size

def undocumented() -> None: ...

def no_sections(size: int) -> int:
    """Does something."""
    if size < 0:
        raise ValueError(size)
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
        (conventions.missing_raises, 2),
        (conventions.participles, 4),
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
    monkeypatch.setattr(conventions, "tools", dict)
    monkeypatch.setattr(
        conventions, "modules", lambda: {path: ast.parse(path.read_text()) for path in sources}
    )
    conventions._documented_by_bases.cache_clear()
    try:
        assert len(list(check())) == count
    finally:
        conventions._documented_by_bases.cache_clear()


@pytest.mark.parametrize(
    "code",
    [
        "scaled = 1",
        "_scaled = SCALED_ROWS = 1",
        "SCALED = 1",
        "shown, rows = 1, 2",
        "def _padded(): ...",
        "class Padded: ...",
        "def pad(padded): ...",
        "def pad(*padded): ...",
        "pad = lambda padded: 1",
        "rows = [clipped for clipped in rows]",
        "for clipped in rows: ...",
        "class Rows:\n    clipped: int = 0",
        "class Rows:\n    def fit(self): self._fitted = 1",
        "def count() -> int:\n    clipped: list[bool] = []",
        "class Rows:\n    def clipped(self) -> int: ...",
        "def one(clipped: bool): ...\ndef other(clipped): ...",
        "def clip(clipped: bool): ...\nclass Rows:\n    def __init__(self): self.clipped = 1",
    ],
)
def test_a_participle_is_noticed(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(_participles(code, monkeypatch)) == 1


@pytest.mark.parametrize(
    "code",
    [
        "scaled_rows = need_seed = seed = SPEED = _feed = embed = ed = _ = 1",
        "class PaddedRows: ...\nclass TestBed: ...",
        "print(scaled)",
        "clipped: bool = True",
        "def clip(clipped: bool | None = None):\n    clipped = True",
        "def clipped() -> bool: ...",
        "class Rows:\n    @property\n    def clipped(self) -> bool: ...",
        "class Rows:\n    clipped: ClassVar[bool] = False",
        "def command(paid: Annotated[bool, typer.Option()] = False): ...",
        "class Rows:\n    def __init__(self):\n        self.fitted: bool = False\n"
        "    def fit(self): self.fitted = True",
        "class Rows:\n    fitted: bool = False\n    def fit(self): self.fitted = True",
        *(f"{name} = 1" for name in conventions.EXCEPTIONS),
    ],
)
def test_other_names_are_no_participles(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _participles(code, monkeypatch) == []


@pytest.mark.parametrize("folder", conventions.TOOLS)
def test_a_participle_beside_src_is_noticed(
    folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / folder / "inner" / "tool.py"
    path.parent.mkdir(parents=True)
    path.write_text("found = 1\nlines = 2\n")
    monkeypatch.setattr(conventions, "ROOT", tmp_path)
    monkeypatch.setattr(conventions, "modules", dict)
    conventions.tools.cache_clear()
    try:
        places = list(conventions.participles())
    finally:
        conventions.tools.cache_clear()
    assert places == [f"{folder}/inner/tool.py:1 found is a participle"]


def test_every_participle_that_is_allowed_occurs() -> None:
    names = {
        name
        for module in conventions.modules().values()
        for node in ast.walk(module)
        for name in conventions._names(node)
    }
    assert set(conventions.EXCEPTIONS) <= names


def _participles(code: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    place = conventions.ROOT / "src" / "dpfl" / "module.py"
    monkeypatch.setattr(conventions, "modules", lambda: {place: ast.parse(code)})
    monkeypatch.setattr(conventions, "tools", dict)
    return list(conventions.participles())
