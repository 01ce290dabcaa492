"""One run, and several side by side, as JSON for the pages.

The sentences and figures are those of `RunView`, `RunProgress`, `BudgetView` and `ComparisonView`.
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
from dpfl.privacy.units import protects_nobody
from dpfl.run.metrics import COLUMNS, RoundRow, read_lost, read_thinned
from dpfl.run.over_nodes.nodes import MEMBERS, STATEMENTS
from dpfl.run.records.folder import METRICS, RunFolder
from dpfl.run.records.record_file import recorded_names
from dpfl.views.budget_view import BudgetView, account_budgets
from dpfl.views.compare_groups import group_runs
from dpfl.views.comparison_view import ComparisonView
from dpfl.views.curve_sentences import HORIZONTAL_AXES, compared_sentence
from dpfl.views.run_lines import RunLines, lines_of
from dpfl.views.run_progress import (
    LastValues,
    RunProgress,
    account_rows,
    no_accounts,
    signal_caption,
)
from dpfl.views.run_summary import RunFacts
from dpfl.views.run_tables import LostReply, RunTables
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
    ratios = [step.norm / (step.noise or 1.0) for step in steps]
    progress = RunProgress(run.facts, state_of(folder), LastValues.read(folder))
    budgets = account_budgets(run.statement, run.limits, run.facts.guarantee)
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
            "ratio": ratios,
        },
        "captions": progress.captions() | {"signal": signal_caption(ratios)},
        "epsilon_so_far": _gauge(progress),
        "lines": list(view.statement.rows) if view.statement else [],
        "clients": clients_view(folder, run.clients, run.facts),
        "budgets": {owner: budget.to_dict() for owner, budget in budgets.items()},
        "nodes": nodes_view(folder, run.experiment, notes),
        "command": view.record.command,
        "experiment": view.record.experiment,
    }


def clients_view(folder: RunFolder, names: Sequence[str], facts: RunFacts) -> dict[str, Any]:
    """Lists the accounts as the last checkpoint has them, quickly enough to ask every second.

    Args:
        folder: The folder of the run.
        names: The names of the clients.
        facts: The facts of the run.

    Returns:
        What every account does, has paid for and can still pay for, and the replies that did not
        count.
    """
    releases, remaining = _releases(folder)
    owners = list(names) if len(releases) == len(names) else ["federation"] * len(releases)
    try:
        lines = read_lost(folder.file(METRICS), MOST_LISTED)
    except DpflError:
        lines = []
    lost_replies = [LostReply.parse(line, names) for line in lines]
    entries = list(zip(owners, releases, remaining, strict=True))
    accounts = account_rows(entries[:MOST_LISTED], lost_replies, facts.result)
    return {
        "accounts": [asdict(account) for account in accounts],
        "none": no_accounts(facts.guarantee),
        "more": max(0, len(entries) - MOST_LISTED),
        "lost": [reply.to_dict() for reply in lost_replies],
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
    captions = {against: compared_sentence(lines, against) for against in HORIZONTAL_AXES}
    return {
        "metric": view.metric,
        "percent": view.metric == "accuracy",
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
        The rounds since, the state, the tiles, the captions, the epsilon so far and the accounts.
    """
    rows = read_thinned(folder.file(METRICS), MOST_NEW_ROWS, after)
    result = folder.json("result.json") or {}
    facts, last_values = (
        RunFacts.of({"resolved": resolved_section}, result),
        LastValues.read(folder),
    )
    most_rounds = facts.budget.get("rounds")
    tiles = live_tiles(facts.headline, result, last_row(folder), most_rounds, last_values.measured)
    progress = RunProgress(facts, state_of(folder), last_values)
    return {
        "rows": columns_of(rows),
        "state": progress.state,
        "tiles": [asdict(tile) for tile in tiles],
        "captions": progress.captions(),
        "epsilon_so_far": _gauge(progress),
        "clients": clients_view(folder, recorded_names(resolved_section), facts),
    }


def _gauge(progress: RunProgress) -> dict[str, Any] | None:
    """Shows the budget of a run; None where nobody is protected, or the run keeps no budget."""
    facts = progress.facts
    if protects_nobody(facts.privacy.get("unit")) or facts.variant == "published":
        return None
    return progress.budget.to_dict()


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
    budget = BudgetView.of(statement.get("proven"), statement.get("limit"), guarantee)
    node = {"name": name, "size": size, "away": None, "budget": budget.to_dict()}
    return node | {key: statement.get(key) for key in ("proven", "limit", "at")}


def _reason(name: str, notes: Sequence[str]) -> str:
    start = f"{name} takes no part: "
    reasons = (note.removeprefix(start) for note in notes if note.startswith(start))
    return next(reasons, "it did not join")
