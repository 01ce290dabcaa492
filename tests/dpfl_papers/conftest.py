"""All tables, built once, and small runs."""

from __future__ import annotations

from typing import Any

import pytest

from dpfl_papers import Cell, Outcome, PaperTable, tables
from dpfl_papers.training import Training

TABLES = tables()


@pytest.fixture(scope="session")
def paper_tables() -> dict[str, PaperTable]:
    return TABLES


def cell_of(table: PaperTable, row: str, column: str, group: str = "") -> Cell:
    """The one cell of a row whose column begins so."""
    matches = [
        c
        for c in table.cells
        if c.row == row and c.column.startswith(column) and group in ("", c.group)
    ]
    assert len(matches) == 1
    return matches[0]


def cell_at(table: str, group: str, row: str, column: str) -> Cell:
    """The one cell of a table whose column begins so."""
    return cell_of(TABLES[table], row, column, group)


def run(table: PaperTable, row: str, column: str, *settings: str) -> Outcome:
    """On the embedded images, with a point of the curve every round."""
    scaled = table.with_settings(["data.name=mnist-sample", "evaluate.every=1", *settings])
    return cell_of(scaled, row, column).work.run(0, None)


SMALL = {
    "data": {"name": "mnist-sample", "partition": "iid", "clients": 4},
    "model": {"name": "mlp", "hidden": 8},
    "budget": {"epsilon": 4.0, "rounds": 2},
    "evaluate": {"every": 1},
}


def small_training(**algorithm: Any) -> Training:
    return Training(SMALL | {"algorithm": {"name": "fedavg-dp"} | algorithm})


def small_table(*rates: float, picture: str = "dots") -> PaperTable:
    cells = tuple(
        Cell("MNIST", f"rate {rate:g}", "eps 4", small_training(rate=rate, tau=1), 50.0, 3.5)
        for rate in rates
    )
    return PaperTable("t", "A table", cells, ("Something was open.",), picture=picture)
