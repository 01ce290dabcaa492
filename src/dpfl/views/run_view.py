"""A result on a page, and its rounds as curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpfl.run.metrics import figure
from dpfl.run.result import Result
from dpfl.views import history_view, statement_view
from dpfl.views.html import card, facts, note

if TYPE_CHECKING:
    from dpfl.views.notebook import NotebookFigure


def html(result: Result) -> str:
    told = [
        (
            "rounds",
            f"{result.rounds}, {result.iterations} steps a client; ended by {result.stopped_by}",
        )
    ]
    told += (
        [("measured", f"{result.noisy or 'on the test set'}: {figures(result)}")]
        if result.metrics
        else []
    )
    beside = [
        ("warning", warning)
        for warning in result.warnings
        if warning not in result.privacy.warnings
    ]
    where = note(f"history has the rounds, plot() draws them, and {result.folder} has everything")
    return card(
        result.measured,
        facts([*told, *beside], ("warning",)),
        statement_view.html(result.privacy),
        where,
    )


def plot(result: Result) -> NotebookFigure:
    return history_view.plot(result.history, result.headline)


def figures(result: Result) -> str:
    """Every metric, with its interval where it has one."""
    told = []
    for name, value in result.metrics.items():
        low, high = (
            figure(name, end).removeprefix(name).strip()
            for end in result.intervals.get(name, (None, None))
        )
        told.append(
            figure(name, value) + (f" ({low} to {high})" if name in result.intervals else "")
        )
    return ", ".join(told)
