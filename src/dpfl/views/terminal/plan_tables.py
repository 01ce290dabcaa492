"""A plan as tables in a terminal."""

from __future__ import annotations

from rich import box
from rich.table import Table

from dpfl.views.plan_view import (
    CLIENT_HEADINGS,
    CLIENT_LEGEND,
    LEGEND,
    ClientPlansView,
    PlanView,
)


def plan_table(view: PlanView) -> Table:
    """Lays out a plan.

    Args:
        view: The plan in words.

    Returns:
        One row per sampling rate, one column per tau.
    """
    table = _table(LEGEND, view.headings)
    for rate, cells in view.rows:
        texts = []
        for cell in cells:
            style = "bold" if cell.recommended else "" if cell.allowed else "dim"
            texts.append(f"[{style}]{cell.text}[/{style}]" if style else cell.text)
        table.add_row(rate, *texts)
    return table


def client_table(view: ClientPlansView) -> Table:
    """Lays out what a shared plan means for clients of unequal size.

    Args:
        view: The clients by size.

    Returns:
        One row per size.
    """
    table = _table(CLIENT_LEGEND, CLIENT_HEADINGS)
    for row in view.rows:
        table.add_row(*row)
    table.caption = view.note or None
    return table


def _table(title: str, headings: tuple[str, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left", title=title)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
