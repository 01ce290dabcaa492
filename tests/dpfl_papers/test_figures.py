"""Pictures of tables, and what they count."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.axes import Axes

from dpfl_papers import Cell, Outcome, PaperTable
from dpfl_papers.figures import best_taus, draw
from dpfl_papers.table_report import FinishedCell
from dpfl_papers.training import Training
from tests.dpfl_papers.conftest import cell_of, small_table


def test_the_best_tau_of_each_column_is_counted():
    def made_of(tau: int, column: str, value: float, printed: float) -> FinishedCell:
        work = Training({"budget": {"epsilon": 2.0}, "algorithm": {"tau": tau}})
        return FinishedCell(
            Cell("M", f"tau = {tau}", column, work, printed), (0,), (Outcome(value),)
        )

    made = [
        made_of(tau, column, value, printed)
        for column, values in {
            "a": ((1, 90.0, 80.0), (2, 91.0, 79.0)),
            "b": ((1, 95.0, 70.0), (2, 94.0, 99.0)),
        }.items()
        for tau, value, printed in values
    ]
    assert best_taus(made, lambda one: one.mean) == {2: 1, 1: 1}
    assert best_taus(made, lambda one: one.cell.printed) == {1: 1, 2: 1}


@pytest.mark.parametrize("picture", ["dots", "curves", "steps", "taus", "best"])
def test_every_picture_is_drawn(tmp_path, picture):
    chosen = small_table(1.0, 2.0, picture=picture)
    series = {"round": [1, 2], "tau": [1, 1], "accuracy": [None, 40.0], "loss": [None, 1.0]}
    made = [FinishedCell(cell, (0,), (Outcome(40.0, series=series),)) for cell in chosen.cells]
    draw(chosen, made, tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"


def test_the_picture_has_a_black_dot_for_the_mean(
    paper_tables: dict[str, PaperTable], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    scatter = Axes.scatter
    monkeypatch.setattr(
        Axes,
        "scatter",
        lambda self, x, y, **how: seen.append((x, y, how)) or scatter(self, x, y, **how),
    )
    cell = cell_of(paper_tables["clipping-fig1"], "AlexNet", "IID")
    series = {
        "norm": [1.0, 2.0],
        "angle": [30.0, 60.0],
        "norm of mean": [1.2],
        "angle of mean": [40.0],
    }
    draw(
        paper_tables["clipping-fig1"],
        [FinishedCell(cell, (0,), (Outcome(1.5, series=series),))],
        tmp_path / "picture.png",
    )
    assert any(
        how.get("color") == "black" and list(x) == [1.2] and list(y) == [40.0] for x, y, how in seen
    )
