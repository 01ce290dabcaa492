"""The notebooks of examples/ run as they are printed, in fewer rounds; what their cells show can be
shown.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
QUICK = {"first-run": {"ROUNDS": 2}, "comparing-systems": {"ROUNDS": 2, "SEEDS": range(2)}}


def cells(name: str) -> list[dict[str, Any]]:
    return [
        cell
        for cell in json.loads((EXAMPLES / f"{name}.ipynb").read_text())["cells"]
        if cell["cell_type"] == "code"
    ]


def executed(name: str) -> tuple[dict[str, Any], list[Any]]:
    """The names at the end, and what each cell showed; settings of the cell `parameters` give way
    to quick ones.
    """
    names: dict[str, Any] = {}
    shown = []
    for cell in cells(name):
        body = ast.parse("".join(cell["source"])).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), name, "exec"), names)
        if "parameters" in cell["metadata"].get("tags", []):
            assert set(QUICK[name]) <= set(names)
            names |= QUICK[name]
        if last:
            shown.append(eval(compile(ast.Expression(last.value), name, "eval"), names))
    return names, shown


def test_every_notebook_is_known() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.ipynb")} == set(QUICK)


@pytest.mark.parametrize("name", QUICK)
def test_a_notebook_runs_and_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names, shown = executed(name)
    assert len(shown) >= 4
    for value in shown:
        if picture := getattr(value, "_repr_png_", None):
            assert picture().startswith(b"\x89PNG")
        elif page := getattr(value, "_repr_html_", None):
            assert page().startswith("<")
        else:
            assert value
    if name == "first-run":
        assert shown[-1] == pytest.approx(names["result"].accuracy)
    else:
        assert [len(group.runs) for group in names["comparison"].groups] == [2, 2, 2]


@pytest.mark.parametrize("name", QUICK)
def test_a_notebook_holds_what_it_showed_and_nothing_of_the_machine_it_ran_on(name: str) -> None:
    assert all(cell["execution_count"] for cell in cells(name))
    assert any(
        "image/png" in output.get("data", {}) for cell in cells(name) for output in cell["outputs"]
    )
    assert not any(
        output["output_type"] in ("error", "stream")
        for cell in cells(name)
        for output in cell["outputs"]
    )
    text = (EXAMPLES / f"{name}.ipynb").read_text()
    assert not [place for place in ("/tmp", "/home", "/root", "/work") if f"{place}/" in text]
