"""The papers' tables and figures, run again: `dpfl reproduce`."""

from dpfl.reproduce import ablation, ali
from dpfl.reproduce.cells import Cell, Outcome, Table


def tables() -> dict[str, Table]:
    return ali.tables() | ablation.tables()


__all__ = ["Cell", "Outcome", "Table", "tables"]
