"""The rounds of a run in a notebook: a table, and curves.

They show only what was released, or measured on public data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpfl.run.metrics import RunHistory
from dpfl.views.figures.canvas import PALETTE
from dpfl.views.notebook.html import columns

if TYPE_CHECKING:
    from dpfl.views.notebook.figure import NotebookFigure


def html(history: RunHistory) -> str:
    """Lays out the rounds of a run.

    Args:
        history: The rounds.

    Returns:
        HTML for a notebook cell, with one row per round.
    """
    return columns(history.columns())


def plot(history: RunHistory, headline: str = "") -> NotebookFigure:
    """Draws the first metric against rounds and epsilon, and the local steps of every round.

    Args:
        history: The rounds.
        headline: The name of the first metric; "" if it is not known.

    Returns:
        One panel each. A panel without values is omitted.
    """
    from dpfl.views.notebook.figure import NotebookFigure

    panels = [panel for panel in _panels(history, headline) if panel[2]]
    picture = NotebookFigure(4 * max(1, len(panels)), 3.6)
    for axis, (x, y, across, up, line) in zip(
        picture.subplots(1, len(panels) or 1, squeeze=False)[0], panels, strict=False
    ):
        axis.plot(
            across, up, line, color=PALETTE[0], drawstyle="steps-mid" if line == "-" else "default"
        )
        axis.set(xlabel=x, ylabel=y)
        if line == "-":
            axis.set_ylim(0, 1.1 * max(up))
    return picture


def _panels(history: RunHistory, headline: str) -> list[tuple[str, str, list[Any], list[Any], str]]:
    """Collects both labels, both columns of values, and the line style of each panel."""
    rows = [row for row in history if row.measured is not None]
    share = headline == "accuracy" or (
        not headline and all(row.measured == row.accuracy for row in rows)
    )
    name = "test accuracy, %" if share else f"{headline or 'headline'} on the test set"
    up = {row.round: (100 if share else 1) * (row.measured or 0.0) for row in rows}
    with_epsilon = [row for row in rows if row.epsilon is not None]
    return [
        ("round", name, [row.round for row in rows], list(up.values()), ".-"),
        (
            "epsilon used (upper bound)",
            name,
            [row.epsilon for row in with_epsilon],
            [up[row.round] for row in with_epsilon],
            ".-",
        ),
        (
            "round",
            "steps per round (tau)",
            [row.round for row in history],
            [row.steps for row in history],
            "-",
        ),
    ]
