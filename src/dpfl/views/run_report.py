"""A report: one page of HTML that opens from disk, with nothing loaded from elsewhere. Whatever a
run says is text in it.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib import resources

import tomli_w

from dpfl.run.metrics import figure
from dpfl.views.canvas import FigureFile
from dpfl.views.compare_groups import RunGroup, group_runs, notes
from dpfl.views.privacy_figures import epsilon_words, three_values
from dpfl.views.rerun_command import command
from dpfl.views.run_tables import RunTables
from dpfl.views.terminal import stated_lines, word


@cache
def asset(name: str) -> str:
    return (resources.files("dpfl.views") / "assets" / name).read_text()


def policy() -> str:
    """What the page may do: run its own script, known by its hash, and reach nobody."""
    digest = base64.b64encode(hashlib.sha256(asset("report.js").encode()).digest()).decode()
    return (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src "
        f"'sha256-{digest}'; base-uri 'none'"
    )


def page(runs: Sequence[RunTables], pictures: Sequence[FigureFile]) -> str:
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs side by side"
    first = runs[0]
    parts = [f"<h1>{escape(title)}</h1>", f'<p class="lead">{escape(_lead(runs))}</p>']
    parts += [_SEEDED] if any(map(_has_the_seed, runs)) else []
    if len(runs) == 1:
        parts += [_told(first), _tiles(first)]
    else:
        parts.append(_comparison(runs))
    drawn = "\n".join(map(_figure, pictures))
    parts.append(f'<h2>Figures</h2><div class="figures">{drawn}</div>' if drawn else _nothing())
    for run in runs:
        parts.append(_statement(run, alone=len(runs) == 1))
    parts.append(
        "<h2>The experiment as "
        f"run</h2>{''.join(_experiment(run, number) for number, run in enumerate(runs))}"
    )
    parts.append(
        f"<footer>Made by dpfl {escape(importlib.metadata.version('dpfl'))} from the run's own "
        f"files. {_FOOT}</footer>"
    )
    head = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}, a "
        f"report</title><style>{asset('report.css')}</style></head>\n<body><main>\n"
    )
    return (
        head + "\n".join(parts) + f"\n</main><script>{asset('report.js')}</script></body></html>\n"
    )


KEYED = (
    "Only while nobody knows the seed of the noise, which this page has: it is a simulation, "
    "not a release."
)

_FOOT = (
    "Of private runs it shows what was released and the settings, seed included, and nothing else. "
    "Epsilons are bounds from "
    "above and rounded up; what an audit measured is one from below and rounded down."
)


def _lead(runs: Sequence[RunTables]) -> str:
    if len(runs) > 1:
        return (
            "Runs that differ by their seed alone are one line, with the 95 % interval of "
            "their "
            "mean."
        )
    told = runs[0].summary
    ended = (
        "under way, or stopped"
        if told["stopped_by"] == "unfinished"
        else f"ended by {told['stopped_by']}"
    )
    return (
        f"{told['algorithm']} with {told['model']} over {told['clients']} clients, seed "
        f"{told['seed']}; {ended}."
    )


def _told(run: RunTables) -> str:
    """What must not be overlooked, first."""
    stated, proven = run.statement, run.statement.get("proven")
    if not stated:
        return _box(
            "running",
            "Not finished",
            "Figures are those so far; what is proven is stated at the end.",
        )
    if not isinstance(proven, int | float):
        leaks = "; ".join(map(str, stated.get("unaccounted", ()))) or "a release without noise"
        return _box(
            "nothing", "No guarantee", f"No epsilon holds. What leaves unprotected: {leaks}."
        )
    told = (
        f"Epsilon {epsilon_words(float(proven), 'proven')} at delta {stated['delta']:g} for one "
        f"{stated['unit']} "
        f"({stated.get('neighbours')}), against {stated.get('adversary')}; by "
        f"{stated['accountant']}."
    )
    return (
        _box("condition", "Proven under a condition", f"{told} {KEYED}")
        if run.keyed
        else _box("proven", "Proven", told)
    )


def _box(kind: str, title: str, text: str) -> str:
    return f'<p class="told {kind}"><b>{escape(title)}</b>{escape(text)}</p>'


def _has_the_seed(run: RunTables) -> bool:
    """Of the noise itself, where there is any."""
    return run.unit != "none" and run.experiment["resolved"].get("entropy") != "system"


_SEEDED = _box(
    "nothing",
    "This page has the seed",
    "Whoever knows the seed can take the noise away, and no epsilon holds against them: show this "
    "page only to those who "
    'may see the data. With privacy.entropy = "system" there is no such seed.',
)


def _tiles(run: RunTables) -> str:
    value, said = run.summary.get("figure"), run.result.get("noisy") or "on the public test set"
    value = run.summary["accuracy"] if value is None else value
    shown = (
        figure(run.headline, value).removeprefix(run.headline).strip()
        if value is not None
        else "not measured"
    )
    tiles = [
        (
            "",
            run.headline.capitalize(),
            shown,
            said if value is not None else "there is no public test set",
        )
    ]
    notes = {
        "proven": f"the guarantee of this run, {run.guarantee}"
        if isinstance(run.statement.get("proven"), int | float)
        else "no epsilon holds: nobody is protected",
        "claimed": str(run.statement.get("claim") or "by the paper's own accounting")
        + "; no guarantee",
        "audited": "what an attack measured, a bound from below"
        if run.audit
        else "no attack was played: dpfl audit RUN",
    }
    if run.statement:
        found = three_values(run)
        shades = {kind: "nothing" if found[kind] == "unbounded" else kind for kind in notes}
        tiles += [
            (shades[kind], f"Epsilon {kind}", epsilon_words(found[kind], kind), note)
            for kind, note in notes.items()
        ]
    told = run.summary
    rows = run.rows[-1] if run.rows else None
    if rows:
        sent = f"{rows.bytes / 1e6:,.1f} MB sent, {rows.seconds:,.0f} s"
        tiles.append(
            (
                "",
                "Rounds",
                f"{told['rounds'] or rows.round:,}",
                f"{rows.iterations:,.0f} steps a client, {sent}",
            )
        )
    return (
        '<div class="tiles">'
        + "".join(
            f'<div class="tile {kind}"><span '
            f'class="kind">{escape(name)}</span><strong>{escape(text)}</strong>'
            f"<span>{escape(note)}</span></div>"
            for kind, name, text, note in tiles
        )
        + "</div>"
    )


def _comparison(runs: Sequence[RunTables]) -> str:
    groups = group_runs(run.summary for run in runs)
    heads = (
        "System and what differs",
        "Seeds",
        "Measured",
        "Epsilon proven",
        "Claimed",
        "Unit",
        "Delta",
        "Ended by",
    )
    rows = [_compared(group) for group in groups]
    said = " ".join(notes(groups))
    return f"<h2>Side by side</h2>{_table(heads, rows)}" + (
        f'<p class="soft">{escape(said)}</p>' if said else ""
    )


def _compared(group: RunGroup) -> tuple[str, ...]:
    worst, measured = group.worst, group.figure
    proven = worst["proven"] if worst["proven"] is not None else "not yet"
    delta = f"{worst['delta']:g}" if isinstance(worst["delta"], float) else "-"
    ends = ", ".join(sorted({str(run["stopped_by"]) for run in group.runs}))
    text = measured.text if measured else "-"
    return (
        group.label,
        str(len(group.runs)),
        text,
        word(proven),
        word(worst["claimed"]),
        word(worst["unit"]),
        delta,
        ends,
    )


def _figure(picture: FigureFile) -> str:
    title, said = escape(picture.title), escape(picture.sentence)
    return (
        f'<figure id="{picture.name}"><h3>{title}</h3><figcaption>{said}</figcaption>'
        f'<div role="img" aria-label="{title}">{picture.svg()}</div></figure>'
    )


def _nothing() -> str:
    return '<h2>Figures</h2><p class="soft">There is nothing to draw yet: no round has ended.</p>'


def _statement(run: RunTables, alone: bool) -> str:
    title = "Privacy statement" if alone else f"Privacy statement of {run.name}"
    if not run.statement:
        return f'<h2>{escape(title)}</h2><p class="soft">It is written when the run ends.</p>'
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>"
        for name, text in stated_lines(run.statement)
    )
    return f'<h2>{escape(title)}</h2><div class="scroll"><table><tbody>{rows}</tbody></table></div>'


def _experiment(run: RunTables, number: int) -> str:
    again, record = (
        command(run.experiment),
        {key: run.experiment[key] for key in ("experiment", "resolved") if run.experiment.get(key)},
    )
    copied = (
        '<p>The command that repeats it: <button type="button" hidden '
        f'data-copies="again-{number}">Copy</button></p>'
        f'<pre id="again-{number}" tabindex="0">{escape(again)}</pre>'
        if again
        else '<p class="soft">It was started from Python, so no command repeats it.</p>'
    )
    shown = escape(tomli_w.dumps(record))
    return (
        f'<section class="card"><h3>{escape(run.name)}</h3>{copied}'
        "<details><summary>As asked for, and as it came to be</summary><pre "
        f'tabindex="0">{shown}</pre></details></section>'
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    lines = (zip(heads, row, strict=True) for row in rows)
    cells = (
        "".join(f'<td data-label="{escape(name)}">{escape(cell)}</td>' for name, cell in line)
        for line in lines
    )
    body = "".join(f"<tr>{line}</tr>" for line in cells)
    return (
        '<div class="scroll"><table '
        f'class="stack"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )
