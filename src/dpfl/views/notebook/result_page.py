"""A result in a notebook: the outcome, its privacy statement, and its rounds as curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpfl.run.result import Result
from dpfl.views.notebook import history_page, statement_page
from dpfl.views.notebook.html import card, facts, note
from dpfl.views.run_view import RunView

if TYPE_CHECKING:
    from dpfl.views.notebook.figure import NotebookFigure


def html(result: Result) -> str:
    """Lays out a result.

    Args:
        result: What `train` returns.

    Returns:
        HTML for a notebook cell.
    """
    outcome = RunView.of_result(result).outcome
    rows = [("rounds", outcome.rounds)]
    if outcome.metrics:
        rows.append(("measured", f"{outcome.measured_on}: {outcome.metrics}"))
    rows += [("warning", warning) for warning in outcome.warnings]
    where = f"history holds the rounds, plot() draws them, and everything is in {result.folder}"
    return card(
        outcome.measured,
        facts(rows, ("warning",)),
        statement_page.html(result.privacy),
        note(where),
    )


def plot(result: Result) -> NotebookFigure:
    """Draws the rounds of a result.

    Args:
        result: What `train` returns.

    Returns:
        The first metric against rounds and epsilon, and the local steps.
    """
    return history_page.plot(result.history, result.headline)
