"""Statements, outcomes and runs in a terminal. All words and figures come from view objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from dpfl.privacy.statement_view import StatementView
from dpfl.views.comparison_view import ComparisonView
from dpfl.views.run_view import RunView

if TYPE_CHECKING:
    from dpfl.run.result import Result


def print_outcome(result: Result, console: Console) -> None:
    """Prints what a run came to, with its privacy statement.

    Args:
        result: A finished run.
        console: Where to print.
    """
    view = RunView.of_result(result)
    outcome = view.outcome
    metric = f"[bold]{outcome.measured}[/bold]"
    console.print(f"\n{metric} after {outcome.rounds}", highlight=False)
    if outcome.metrics:
        console.print(f"{outcome.measured_on}: {outcome.metrics}", highlight=False)
    if view.statement:
        console.print(statement_panel(view.statement))
    for warning in outcome.warnings:
        console.print(f"warning: {warning}", markup=False, highlight=False, soft_wrap=True)
    if outcome.lost_replies:
        console.print(outcome.lost_replies, markup=False, soft_wrap=True)
    console.print(f"results in {result.folder}", highlight=False, soft_wrap=True)


def statement_panel(statement: StatementView) -> Panel:
    """Lays out a privacy statement.

    Args:
        statement: The statement in words.

    Returns:
        A box with one row per heading.
    """
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    for heading, text in statement.rows:
        grid.add_row(heading, text)
    return Panel(grid, title="privacy statement", title_align="left", expand=False)


def runs_table(view: ComparisonView) -> Table:
    """Lays out a list of runs.

    Args:
        view: One row per run.

    Returns:
        A table that fits 80 columns.
    """
    table = _table("run, system", "rounds", view.metric, "epsilon proven", "claimed", "ended")
    for row in view.rows:
        table.add_row(row.label, row.rounds, row.metric, row.guarantee, row.claimed, row.ending)
    return table


def comparison_table(view: ComparisonView) -> Table:
    """Lays out runs side by side.

    Args:
        view: One row per group of runs that differ only by their seed.

    Returns:
        A table that fits 80 columns, with the notes below it.
    """
    table = _table(
        "system and what differs", "seeds", "rounds", view.metric, "epsilon proven", "ended"
    )
    for row in view.rows:
        table.add_row(row.label, row.seeds, row.rounds, row.metric, row.guarantee, row.ending)
    table.caption = " ".join(view.notes)
    return table


def _table(first: str, *headings: str) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False, caption_justify="left"
    )
    table.add_column(first, overflow="fold", min_width=16)
    words = ("epsilon proven", "claimed")
    for heading in headings:
        if heading == "ended":
            table.add_column(heading, min_width=10)
        else:
            table.add_column(heading, no_wrap=True, justify="left" if heading in words else "right")
    return table
