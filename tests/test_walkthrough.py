"""The walkthrough names functions that exist, in no more than twelve steps."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "walkthrough.md").read_text()
LINKS = sorted(set(re.findall(r"\[`([\w.]+)`\]\(\.\./(src/[\w/]+\.py)\)", PAGE)))


def _definitions(path: Path) -> set[str]:
    """Returns the functions and classes of a file, methods with their class."""
    names = {path.name}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{method.name}"
                for method in node.body
                if isinstance(method, ast.FunctionDef)
            }
    return names


@pytest.mark.parametrize(("name", "file"), LINKS, ids=[name for name, _ in LINKS])
def test_a_function_is_where_the_page_says(name: str, file: str) -> None:
    assert name in _definitions(ROOT / file)


def test_there_are_twelve_steps() -> None:
    simulation = PAGE.partition("## In a simulation")[2].partition("## Other placements")[0]
    assert re.findall(r"^\| (\d+) \|", simulation, re.MULTILINE) == [str(n) for n in range(1, 13)]
