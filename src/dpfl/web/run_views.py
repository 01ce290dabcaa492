"""One run, and several side by side, as JSON for the pages.

The sentences and figures are those of `RunView` and `ComparisonView`. A page adds only the captions
of charts that move while a run goes on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from dpfl.errors import DpflError
from dpfl.privacy.statement_view import GuaranteeView
from dpfl.run.metrics import COLUMNS, LESS_IS_BETTER, RoundRow, read_lost, read_thinned
from dpfl.run.over_nodes.nodes import MEMBERS, STATEMENTS
from dpfl.run.records.folder import METRICS, RunFolder
from dpfl.run.records.record_file import recorded_names
from dpfl.views.compare_groups import group_runs
from dpfl.views.comparison_view import ComparisonView
from dpfl.views.curve_sentences import HORIZONTAL_AXES, compared_sentence
from dpfl.views.run_lines import RunLines, lines_of
from dpfl.views.run_tables import RunTables
from dpfl.views.run_view import RunView, live_tiles
from dpfl.web.run_line import last_row, line_of, state_of

MOST_LISTED = 500
"""Clients, and lost replies, that a page lists."""

MOST_NEW_ROWS = 500
"""Rounds in one event of a page that watches."""


def columns_of(rows: Sequence[RoundRow]) -> dict[str, list[Any]]:
    """Lists rounds by column, which halves the size of the JSON.

    Args:
        rows: Rounds.

    Returns:
        Values by the name of their column. What is not finite is None, as JSON has no word for it.
    """
    return {name: [_plain(getattr(row, name)) for row in rows] for name in COLUMNS}


def run_page(folder: RunFolder, name: str, within: Path | None = None) -> dict[str, Any]:
    """Answers for the page of a run.

    Args:
        folder: The folder of the run.
        name: What the pages call the run.
        within: The folder that no opened ledger may lie outside of.

    Returns:
        What the page lays out.
    """
    run = RunTables.read(folder.path, name, within)
    view = RunView.of(run)
    assert view.record is not None
    steps = [step for step in run.steps if step.noise]
    privacy_warnings = run.privacy.warnings if run.privacy else ()
    notes = [str(note) for note in run.result.get("notes", ())]
    return {
        "line": line_of(folder, name),
        "lead": view.record.lead,
        "verdict": asdict(view.verdict) if view.verdict else None,
        "tiles": [asdict(tile) for tile in view.tiles],
        "warnings": [*privacy_warnings, *view.outcome.warnings],
        "ending": view.outcome.ending,
        "rows": columns_of(run.rows),
        "signal": {
            "round": [step.round for step in steps],
            "ratio": [step.norm / (step.noise or 1.0) for step in steps],
        },
        "statement": dict(run.statement),
        "lines": list(view.statement.rows) if view.statement else [],
        "clients": clients_view(folder, run.clients),
        "limits": dict(run.limits),
        "nodes": nodes_view(folder, run.experiment, notes),
        "command": view.record.command,
        "experiment": view.record.experiment,
    }


def clients_view(folder: RunFolder, names: Sequence[str]) -> dict[str, Any]:
    """Lists the accounts as the last checkpoint has them, quickly enough to ask every second.

    Args:
        folder: The folder of the run.
        names: The names of the clients.

    Returns:
        Releases paid and left by account, and the replies that did not count.
    """
    releases, remaining = _releases(folder)
    owners = list(names) if len(releases) == len(names) else ["federation"] * len(releases)
    try:
        lost_replies = read_lost(folder.file(METRICS), MOST_LISTED)
    except DpflError:
        lost_replies = []
    accounts = [
        {"name": owner, "paid": count, "remaining": more}
        for owner, count, more in zip(owners, releases, remaining, strict=True)
    ]
    return {
        "accounts": accounts[:MOST_LISTED],
        "more": max(0, len(accounts) - MOST_LISTED),
        "lost": lost_replies,
    }


def nodes_view(
    folder: RunFolder, experiment: Mapping[str, Any], notes: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Lists the nodes of a run: who joined, what each signed at the end, and who takes no part.

    Signatures are checked by `verify` alone.

    Args:
        folder: The folder of the run.
        experiment: The content of `experiment.toml`.
        notes: The notes of the result, which say why a node takes no part.

    Returns:
        One entry per node; none for a simulation.
    """
    listed_nodes = experiment.get("experiment", {}).get("server", {}).get("nodes", {})
    try:
        members = folder.json(MEMBERS) or {}
    except DpflError:
        members = {}
    member_entries = [
        _node(folder, str(name), member) for name, member in list(members.items())[:MOST_LISTED]
    ]
    absent = [name for name in listed_nodes if name not in members] if members else []
    return member_entries + [
        _node(folder, name, None) | {"away": _reason(name, notes)}
        for name in absent[: MOST_LISTED - len(member_entries)]
    ]


def comparison_page(runs: Sequence[RunTables]) -> dict[str, Any]:
    """Answers for the page that compares runs.

    Args:
        runs: The runs.

    Returns:
        The rows, the notes and the curves with their captions.
    """
    groups, lines = group_runs(run.summary for run in runs), lines_of(runs)
    view = ComparisonView.of_groups(groups)
    rows = []
    for group, line, row in zip(groups, lines, view.rows, strict=True):
        labels = {"label": line.label, "settings": group.label}
        rows.append(asdict(row) | labels | {"curves": curves(line)})
    names = {group.figure.name for group in groups if group.figure}
    captions = {against: compared_sentence(lines, against) for against in HORIZONTAL_AXES}
    return {
        "metric": view.metric,
        "percent": view.metric == "accuracy",
        "less_is_better": bool(names & LESS_IS_BETTER),
        "rows": rows,
        "notes": list(view.notes),
        "captions": captions,
    }


def curves(line: RunLines) -> dict[str, Any]:
    """Lists the curves of a line: the first metric against rounds, epsilon and bytes, and the loss.

    Args:
        line: Runs that differ only by their seed.

    Returns:
        Places, means and halves of their intervals, by curve.
    """
    curves_by_name = {}
    for name in HORIZONTAL_AXES:
        points = line.points(*(("rounds", "loss") if name == "loss" else (name, "headline")))
        curves_by_name[name] = {
            part: [getattr(point, part) for point in points] for part in ("x", "y", "half")
        }
    return curves_by_name


def news(folder: RunFolder, after: int, resolved_section: Mapping[str, Any]) -> dict[str, Any]:
    """Answers for a page that watches a run.

    Args:
        folder: The folder of the run.
        after: The last round that the page has.
        resolved_section: The resolved experiment, with the names of the clients.

    Returns:
        The rounds since, the state, the tiles and the accounts.
    """
    rows = read_thinned(folder.file(METRICS), MOST_NEW_ROWS, after)
    result = folder.json("result.json") or {}
    headline = str(result.get("headline") or "accuracy")
    budget = resolved_section.get("budget", {}).get("rounds")
    evaluated_row = last_row(folder, evaluated=True)
    last_value = evaluated_row.measured if evaluated_row else None
    tiles = live_tiles(headline, result, last_row(folder), budget, last_value)
    return {
        "rows": columns_of(rows),
        "state": state_of(folder),
        "tiles": [asdict(tile) for tile in tiles],
        "clients": clients_view(folder, recorded_names(resolved_section)),
    }


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _releases(folder: RunFolder) -> tuple[list[int], list[int]]:
    """Reads from the checkpoint how many releases each account has made and can still make."""
    try:
        with safe_open(folder.file("checkpoint.safetensors"), "np") as file:
            numbers = json.loads((file.metadata() or {})["state"])
        releases = [int(count) for count in numbers["paid"]]
        remaining = [int(count) for count in numbers["remaining"]]
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        return [], []
    return (releases, remaining) if len(releases) == len(remaining) else ([], [])


def _node(folder: RunFolder, name: str, member: Any) -> dict[str, Any]:
    statement: Mapping[str, Any] = {}
    guarantee = GuaranteeView.of(statement)
    try:
        if member and Path(name).name == name:
            node_statement = (folder.json(f"{STATEMENTS}/{name}.json") or {}).get("statement", {})
            guarantee, statement = GuaranteeView.of(node_statement), node_statement
    except (DpflError, AttributeError, TypeError):
        pass
    size = member.get("size") if isinstance(member, dict) else None
    keys = ("proven", "limit", "spent", "accountant", "at")
    node = {"name": name, "size": size, "away": None, "guarantee": guarantee.to_dict()}
    return node | {key: statement.get(key) for key in keys}


def _reason(name: str, notes: Sequence[str]) -> str:
    start = f"{name} takes no part: "
    reasons = (note.removeprefix(start) for note in notes if note.startswith(start))
    return next(reasons, "it did not join")
