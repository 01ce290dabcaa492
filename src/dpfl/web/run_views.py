"""One run, and several side by side, as the pages take them: words, numbers, and as many rounds as
a picture has room for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from safetensors import SafetensorError, safe_open

from dpfl.errors import DpflError
from dpfl.run.folder import METRICS, RunFolder
from dpfl.run.metrics import COLUMNS, LESS_IS_BETTER, RoundRow, read_lost, read_thinned
from dpfl.run.nodes import MEMBERS, STATEMENTS
from dpfl.views.compare_groups import group_runs, notes
from dpfl.views.lines import RunLines, lines_of
from dpfl.views.rerun_command import command
from dpfl.views.run_tables import RunTables
from dpfl.views.terminal import stated_lines
from dpfl.web.run_index import line_of, state_of

MOST_LISTED = 500
"""Clients, and lost replies, that a page lists."""


def columns_of(rows: Sequence[RoundRow]) -> dict[str, list[Any]]:
    """A list a column, which is half as long as a word a number; what is not finite is left out, as
    JSON has no word for it.
    """
    return {name: [_plain(getattr(row, name)) for row in rows] for name in COLUMNS}


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def run_view(folder: RunFolder, name: str, within: Path | None = None) -> dict[str, Any]:
    run = RunTables.read(folder.path, name, within)
    steps = [step for step in run.steps if step.noise]
    record = {
        key: run.experiment[key] for key in ("experiment", "resolved") if run.experiment.get(key)
    }
    return {
        "line": line_of(folder, name),
        "rows": columns_of(run.rows),
        "signal": {
            "round": [step.round for step in steps],
            "ratio": [step.norm / (step.noise or 1.0) for step in steps],
        },
        "statement": dict(run.statement),
        "lines": list(stated_lines(run.statement)) if run.statement else [],
        "guarantee": run.guarantee,
        "keyed": run.keyed,
        "audit": {
            key: run.audit.get(key) for key in ("measured", "scope", "verdict", "why", "confidence")
        }
        if run.audit
        else None,
        "metrics": run.result.get("metrics", {}),
        "intervals": run.result.get("intervals", {}),
        "measured_on": run.result.get("noisy") or "on the public test set",
        "warnings": [str(warning) for warning in run.result.get("warnings", ())],
        "clients": clients_view(folder, run.clients),
        "limits": dict(run.limits),
        "nodes": nodes_view(
            folder, run.experiment, [str(note) for note in run.result.get("notes", ())]
        ),
        "again": command(run.experiment),
        "experiment": tomli_w.dumps(record),
    }


def clients_view(folder: RunFolder, names: Sequence[str]) -> dict[str, Any]:
    """Accounts as the last checkpoint has them, and whose replies did not count; quick enough to
    ask every second.
    """
    paid, left = _counted(folder)
    owners = list(names) if len(paid) == len(names) else ["federation"] * len(paid)
    try:
        lost = read_lost(folder.file(METRICS), MOST_LISTED)
    except DpflError:
        lost = []
    accounts = [
        {"name": owner, "paid": made, "left": more}
        for owner, made, more in zip(owners, paid, left, strict=True)
    ]
    return {
        "accounts": accounts[:MOST_LISTED],
        "more": max(0, len(accounts) - MOST_LISTED),
        "lost": lost,
    }


def _counted(folder: RunFolder) -> tuple[list[int], list[int]]:
    """Releases of each account that are paid for, and that it leaves room for."""
    try:
        with safe_open(folder.file("checkpoint.safetensors"), "np") as file:
            numbers = json.loads((file.metadata() or {})["state"])
        paid, left = (
            [int(count) for count in numbers["paid"]],
            [int(count) for count in numbers["remaining"]],
        )
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        return [], []
    return (paid, left) if len(paid) == len(left) else ([], [])


def nodes_view(
    folder: RunFolder, experiment: Mapping[str, Any], notes: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Of a run over nodes: who joined, what each signed at the end, and who takes no part; checked
    by `verify` alone.
    """
    listed = experiment.get("experiment", {}).get("server", {}).get("nodes", {})
    try:
        members = folder.json(MEMBERS) or {}
    except DpflError:
        members = {}
    told = [_node(folder, str(name), one) for name, one in list(members.items())[:MOST_LISTED]]
    away = (
        [name for name in listed if name not in members][: MOST_LISTED - len(told)]
        if members
        else []
    )
    return told + [_node(folder, name, None) | {"away": _why(name, notes)} for name in away]


def _node(folder: RunFolder, name: str, member: Any) -> dict[str, Any]:
    said: Mapping[str, Any] = {}
    try:
        if member and Path(name).name == name:
            said = (folder.json(f"{STATEMENTS}/{name}.json") or {}).get("statement", {})
    except (DpflError, AttributeError):
        pass
    size = member.get("size") if isinstance(member, dict) else None
    told = {
        key: said.get(key)
        for key in ("proven", "limit", "spent", "unit", "delta", "accountant", "at")
    }
    return {"name": name, "size": size, "away": None, **told}


def _why(name: str, notes: Sequence[str]) -> str:
    begins = f"{name} takes no part: "
    return next(
        (note.removeprefix(begins) for note in notes if note.startswith(begins)), "it did not join"
    )


def comparison_view(runs: Sequence[RunTables]) -> dict[str, Any]:
    groups, lines = group_runs(run.summary for run in runs), lines_of(runs)
    told = []
    for group, line in zip(groups, lines, strict=True):
        worst = {
            key: group.worst[key] for key in ("unit", "delta", "accountant", "proven", "claimed")
        }
        rounds = [run["rounds"] for run in group.runs]
        figure = group.figure
        measured = (
            figure.to_dict()
            | {"name": figure.name, "less_is_better": figure.name in LESS_IS_BETTER}
            if figure
            else None
        )
        made = {
            "label": line.label,
            "settings": group.label,
            "runs": [run.name for run in line.runs],
            "rounds": rounds,
        }
        told.append(made | {"measured": measured, **worst, "curves": curves(line)})
    return {"groups": told, "notes": notes(groups)}


def curves(line: RunLines) -> dict[str, Any]:
    """The headline against rounds, epsilon and bytes, and the loss: places, means, and halves of
    their intervals.
    """
    wanted = {"rounds": "headline", "epsilon": "headline", "bytes": "headline", "loss": "loss"}
    found = {}
    for name, value in wanted.items():
        points = line.points("rounds" if name == "loss" else name, value)
        found[name] = {
            part: [getattr(point, part) for point in points] for part in ("x", "y", "half")
        }
    return found


def now(folder: RunFolder, after: int, names: Sequence[str]) -> dict[str, Any]:
    """What a page that watches has not seen yet."""
    rows = read_thinned(folder.file(METRICS), 500, after)
    return {
        "rows": columns_of(rows),
        "state": state_of(folder),
        "clients": clients_view(folder, names),
    }
