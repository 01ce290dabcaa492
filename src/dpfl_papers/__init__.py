"""The papers' tables and figures, run again: `dpfl reproduce`."""

from dpfl_papers import ablation, ali, ali_wide, als, clipping, hellinger, wavelets
from dpfl_papers.cells import Cell, Outcome, PaperTable


def tables() -> dict[str, PaperTable]:
    """Returns every table and figure of the papers.

    Returns:
        The tables by name, such as `ali-3` or `wavelet-fig7`.
    """
    papers = (
        ali.tables()
        | ali_wide.tables()
        | als.tables()
        | hellinger.tables()
        | clipping.tables()
        | wavelets.tables()
    )
    return papers | ablation.tables()


__all__ = ["Cell", "Outcome", "PaperTable", "tables"]
