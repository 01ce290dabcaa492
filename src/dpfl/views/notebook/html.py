"""Small pieces of HTML for notebooks: tables in the notebook's own colours, and every word
escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

CELL = "text-align:left;vertical-align:top;padding:.2em .9em .2em 0"
SHOWN_ROWS = 20


def card(title: str, *parts: str) -> str:
    """A title in bold, and what is below it."""
    return (
        '<div style="max-width:60em"><p style="margin:.3em '
        f'0"><b>{escape(title)}</b></p>{"".join(parts)}</div>'
    )


def facts(rows: Iterable[tuple[str, str]], loud: Sequence[str] = ()) -> str:
    """Heading and text in two columns; what is loud has a bar before it."""
    told = []
    for heading, text in rows:
        bar = ";border-left:3px solid #c05020;padding-left:.5em" if heading in loud else ""
        told.append(
            '<tr><th scope="row" '
            f'style="{CELL}{bar};white-space:nowrap">{escape(heading)}</th>{_cell(text)}</tr>'
        )
    return f"<table>{''.join(told)}</table>"


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], most: int = SHOWN_ROWS) -> str:
    """The first and the last rows of a long one."""
    cut = len(rows) > most
    kept = [*rows[: most // 2], ["…"] * len(head), *rows[-(most - most // 2) :]] if cut else rows
    top = "".join(f'<th scope="col" style="{CELL}">{escape(name)}</th>' for name in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in kept)
    more = note(f"{len(rows)} rows, the first and the last are shown") if cut else ""
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>{more}"


def columns(held: Mapping[str, Sequence[Any]]) -> str:
    """A table by its columns; those that are empty are left out."""
    full = {
        name: values for name, values in held.items() if any(value is not None for value in values)
    }
    return table(list(full), list(zip(*full.values(), strict=True)))


def note(text: str) -> str:
    return f'<p style="margin:.3em 0;opacity:.75">{escape(text)}</p>'


def _cell(value: Any) -> str:
    text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    return f'<td style="{CELL};white-space:pre-line">{escape(text)}</td>'
