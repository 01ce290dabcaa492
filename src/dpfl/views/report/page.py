"""The report: one page of HTML that opens from disk and loads nothing from elsewhere.

Everything that comes from a run is escaped, so none of it is read as HTML.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib import resources

from dpfl.privacy.statement_view import PrivacyVerdict
from dpfl.views.compare_groups import group_runs
from dpfl.views.comparison_view import ComparisonView
from dpfl.views.figures.canvas import FigureFile
from dpfl.views.run_tables import RunTables
from dpfl.views.run_view import SEED_SHOWN, RunView, Tile

FOOTER = (
    "For private runs it shows what was released and the settings, including the seed, and nothing "
    "else. Proven and claimed epsilons are upper bounds and rounded up. A measured epsilon is a "
    "lower bound and rounded down."
)


@cache
def asset(name: str) -> str:
    """Reads a style sheet or script of the page.

    Args:
        name: The file in `assets/`.

    Returns:
        Its text.
    """
    return (resources.files("dpfl.views.report") / "assets" / name).read_text()


def policy() -> str:
    """States what the page may do: run its own script, known by its hash, and reach nobody.

    Returns:
        A Content-Security-Policy.
    """
    digest = base64.b64encode(hashlib.sha256(asset("report.js").encode()).digest()).decode()
    return (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src "
        f"'sha256-{digest}'; base-uri 'none'"
    )


def page(runs: Sequence[RunTables], pictures: Sequence[FigureFile]) -> str:
    """Lays out a report on one run, or on several side by side.

    Args:
        runs: The runs.
        pictures: Their figures.

    Returns:
        The page.
    """
    views = [RunView.of(run) for run in runs]
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs side by side"
    parts = [f"<h1>{escape(title)}</h1>"]
    parts += _single(views[0]) if len(views) == 1 else _several(runs, views)
    figures = "\n".join(map(_figure, pictures))
    parts.append("<h2>Figures</h2>")
    parts.append(
        f'<div class="figures">{figures}</div>' if figures else _note("No round has ended.")
    )
    parts += [_statement(view, alone=len(views) == 1) for view in views]
    parts.append("<h2>The experiment</h2>")
    parts += [_experiment(view, number) for number, view in enumerate(views)]
    version = escape(importlib.metadata.version("dpfl"))
    parts.append(f"<footer>dpfl {version} made this page from the run's files. {FOOTER}</footer>")
    return _document(title, "\n".join(parts))


def _document(title: str, body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}, a report</title><style>{asset('report.css')}</style></head>\n"
        f"<body><main>\n{body}\n</main><script>{asset('report.js')}</script></body></html>\n"
    )


def _single(view: RunView) -> list[str]:
    lead = f"{view.record.lead}. {view.outcome.rounds.capitalize()}." if view.record else ""
    parts = [f'<p class="lead">{escape(lead)}</p>']
    parts += [_box(verdict) for verdict in (view.seed_shown, view.verdict) if verdict]
    parts.append(f'<div class="tiles">{"".join(map(_tile, view.tiles))}</div>')
    return parts


def _several(runs: Sequence[RunTables], views: Sequence[RunView]) -> list[str]:
    lead = "Runs that differ only by their seed are one row, with the 95 % interval of their mean."
    parts = [f'<p class="lead">{lead}</p>']
    parts += [_box(SEED_SHOWN)] if any(view.seed_shown for view in views) else []
    view = ComparisonView.of_groups(group_runs(run.summary for run in runs))
    headings = (
        "System and what differs",
        "Seeds",
        view.metric.capitalize(),
        "Epsilon proven",
        "Claimed",
        "Protects",
        "Delta",
        "Ended",
    )
    rows = [
        (
            row.label,
            row.seeds,
            row.metric,
            row.proven,
            row.claimed,
            row.unit,
            row.delta,
            row.ending,
        )
        for row in view.rows
    ]
    parts.append(f"<h2>Side by side</h2>{_table(headings, rows)}")
    parts.append(_note(" ".join(view.notes)) if view.notes else "")
    return parts


def _box(verdict: PrivacyVerdict) -> str:
    text = f"{verdict.sentence} {verdict.details}".strip()
    return f'<p class="verdict {verdict.level}"><b>{escape(verdict.title)}</b>{escape(text)}</p>'


def _tile(tile: Tile) -> str:
    return (
        f'<div class="tile {tile.kind}"><span class="kind">{escape(tile.title)}</span>'
        f"<strong>{escape(tile.text)}</strong><span>{escape(tile.note)}</span></div>"
    )


def _note(text: str) -> str:
    return f'<p class="soft">{escape(text)}</p>'


def _figure(picture: FigureFile) -> str:
    title, caption = escape(picture.title), escape(picture.sentence)
    return (
        f'<figure id="{picture.name}"><h3>{title}</h3><figcaption>{caption}</figcaption>'
        f'<div role="img" aria-label="{title}">{picture.svg()}</div></figure>'
    )


def _statement(view: RunView, alone: bool) -> str:
    title = "Privacy statement" if alone else f"Privacy statement of {view.name}"
    if view.statement is None:
        return f"<h2>{escape(title)}</h2>{_note('It is written when the run ends.')}"
    rows = "".join(
        f"<tr><th>{escape(heading)}</th><td>{escape(text)}</td></tr>"
        for heading, text in view.statement.rows
    )
    table = f'<div class="scroll"><table><tbody>{rows}</tbody></table></div>'
    return f"<h2>{escape(title)}</h2>{table}"


def _experiment(view: RunView, number: int) -> str:
    assert view.record is not None
    command = _note("It was started from Python, so no command repeats it.")
    if view.record.command:
        command = (
            '<p>This command repeats it: <button type="button" hidden '
            f'data-copies="command-{number}">Copy</button></p>'
            f'<pre id="command-{number}" tabindex="0">{escape(view.record.command)}</pre>'
        )
    return (
        f'<section class="card"><h3>{escape(view.name)}</h3>{command}'
        "<details><summary>As requested, and as resolved</summary>"
        f'<pre tabindex="0">{escape(view.record.experiment)}</pre></details></section>'
    )


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = ""
    for row in rows:
        cells = "".join(
            f'<td data-label="{escape(heading)}">{escape(cell)}</td>'
            for heading, cell in zip(headings, row, strict=True)
        )
        body += f"<tr>{cells}</tr>"
    return (
        f'<div class="scroll"><table class="stack"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
