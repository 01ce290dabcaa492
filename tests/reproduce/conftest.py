"""All tables, made once."""

from __future__ import annotations

import pytest

from dpfl_papers import Cell, Outcome, PaperTable, tables


@pytest.fixture(scope="session")
def made() -> dict[str, PaperTable]:
    return tables()


def cell_of(table: PaperTable, row: str, column: str, group: str = "") -> Cell:
    """The one cell of a row whose column begins so."""
    found = [
        c
        for c in table.cells
        if c.row == row and c.column.startswith(column) and group in ("", c.group)
    ]
    assert len(found) == 1
    return found[0]


def run(table: PaperTable, row: str, column: str, *settings: str) -> Outcome:
    """On the embedded images, with a point of the curve every round."""
    scaled = table.scaled(["data.name=mnist-sample", "evaluate.every=1", *settings])
    return cell_of(scaled, row, column).work.run(0, None)
