"""The papers' tables and figures, run again: `dpfl reproduce`."""

from dpfl_papers import ablation, ali, ali_wide, als, clipping, hellinger, wavelets
from dpfl_papers.cells import Cell, Outcome, Table


def tables() -> dict[str, Table]:
    papers = ali.tables() | ali_wide.tables() | als.tables() | hellinger.tables() | clipping.tables() | wavelets.tables()
    return papers | ablation.tables()


__all__ = ["Cell", "Outcome", "Table", "tables"]
