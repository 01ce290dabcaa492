"""Pieces of HTML for notebooks. Tables take the notebook's own colours, and all text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

CELL = "text-align:left;vertical-align:top;padding:.2em .9em .2em 0"
SHOWN_ROWS = 20


def card(title: str, *parts: str) -> str:
    """Lays out a title in bold with pieces of HTML below it.

    Args:
        title: The title, as text.
        parts: HTML.

    Returns:
        HTML for a notebook cell.
    """
    return (
        '<div style="max-width:60em"><p style="margin:.3em '
        f'0"><b>{escape(title)}</b></p>{"".join(parts)}</div>'
    )


def facts(rows: Iterable[tuple[str, str]], loud: Sequence[str] = ()) -> str:
    """Lays out headings and texts in two columns.

    Args:
        rows: A heading and a text each.
        loud: Headings whose rows have a coloured bar before them.

    Returns:
        A table in HTML.
    """
    lines = []
    for heading, text in rows:
        bar = ";border-left:3px solid #c05020;padding-left:.5em" if heading in loud else ""
        lines.append(
            '<tr><th scope="row" '
            f'style="{CELL}{bar};white-space:nowrap">{escape(heading)}</th>{_cell(text)}</tr>'
        )
    return f"<table>{''.join(lines)}</table>"


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], most: int = SHOWN_ROWS) -> str:
    """Lays out a table.

    Args:
        head: The names of the columns.
        rows: One value per column each. A float is shown with four significant digits, and None
            as an empty cell.
        most: Rows that are shown. Of a longer table only the first and the last are shown.

    Returns:
        A table in HTML, with a note where rows are not shown.
    """
    cut = len(rows) > most
    visible = [*rows[: most // 2], ["…"] * len(head), *rows[-(most - most // 2) :]] if cut else rows
    top = "".join(f'<th scope="col" style="{CELL}">{escape(name)}</th>' for name in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in visible)
    more = note(f"{len(rows)} rows; only the first and the last are shown") if cut else ""
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>{more}"


def columns(values: Mapping[str, Sequence[Any]]) -> str:
    """Lays out a table that is given by column.

    Args:
        values: One value per row, by the name of the column. Columns without any value are omitted.

    Returns:
        A table in HTML.
    """
    full = {
        name: column
        for name, column in values.items()
        if any(value is not None for value in column)
    }
    return table(list(full), list(zip(*full.values(), strict=True)))


def note(text: str) -> str:
    """Lays out a remark in faint text.

    Args:
        text: The remark, as text.

    Returns:
        A paragraph in HTML.
    """
    return f'<p style="margin:.3em 0;opacity:.75">{escape(text)}</p>'


def _cell(value: Any) -> str:
    text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    return f'<td style="{CELL};white-space:pre-line">{escape(text)}</td>'
