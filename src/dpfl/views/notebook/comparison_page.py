"""A comparison in a notebook: a table, its notes, and the curves of its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpfl.views.comparison import Comparison
from dpfl.views.figures.curves import draw_groups
from dpfl.views.notebook.html import card, note, table

if TYPE_CHECKING:
    from dpfl.views.notebook.figure import NotebookFigure

SHOWN_ROWS = 60


def html(comparison: Comparison) -> str:
    """Lays out a comparison.

    Args:
        comparison: Runs side by side.

    Returns:
        HTML for a notebook cell.
    """
    view = comparison.view
    head = ("system and what differs", "seeds", "rounds", view.metric, "epsilon proven", "ended")
    rows = [
        (row.label, row.seeds, row.rounds, row.metric, row.guarantee, row.ending)
        for row in view.rows
    ]
    return card("runs side by side", table(head, rows, most=SHOWN_ROWS), *map(note, view.notes))


def plot(comparison: Comparison) -> NotebookFigure:
    """Draws a comparison.

    Args:
        comparison: Runs side by side.

    Returns:
        The first metric against rounds and against epsilon, one line per group.
    """
    return draw_groups(comparison.groups)
