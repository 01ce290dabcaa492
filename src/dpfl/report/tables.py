"""Runs and results as tables and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.panel import Panel
from rich.table import Table

from dpfl.privacy import PrivacyStatement
from dpfl.privacy.statement import rounded_up
from dpfl.run.folder import RunFolder
from dpfl.run.metrics import figure


def statement_panel(privacy: PrivacyStatement) -> Panel:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    for heading, text in privacy.lines():
        grid.add_row(heading, text)
    return Panel(grid, title="privacy statement", title_align="left", expand=False)


def summary(folder: RunFolder) -> dict[str, Any]:
    """One run in a line: finished or not."""
    experiment, result = folder.experiment(), folder.json("result.json") or {}
    resolved = experiment.get("resolved", {})
    privacy = result.get("privacy", {})
    return {
        "run": str(folder.path),
        "algorithm": resolved.get("algorithm", {}).get("name"),
        "model": resolved.get("model"),
        "clients": resolved.get("clients"),
        "seed": resolved.get("seed"),
        "settings": settings(experiment),
        "started": experiment.get("run", {}).get("started"),
        "rounds": result.get("rounds"),
        "iterations": result.get("iterations"),
        "accuracy": result.get("accuracy"),
        "loss": result.get("loss"),
        "headline": result.get("headline"),
        "figure": result.get("metrics", {}).get(result.get("headline")),
        "noisy": bool(result.get("noisy")),
        "stopped_by": result.get("stopped_by", "unfinished"),
        "unit": privacy.get("unit"),
        "delta": privacy.get("delta"),
        "accountant": privacy.get("accountant"),
        "proven": privacy.get("proven"),
        "used": privacy.get("used"),
        "claimed": privacy.get("claimed"),
        "model_sha256": result.get("model_sha256"),
    }


def settings(experiment: dict[str, Any]) -> dict[str, Any]:
    """Everything that makes a run what it is, but its seed and where its ledgers lie: as asked, before noise and rates were
    planned for the clients that the seed made."""
    resolved, hashes = experiment.get("resolved", {}), experiment.get("hashes", {})
    kept = {name: value for name, value in resolved.items() if name not in ("seed", "ledger", "largest")}
    data = {name: hashes.get(name) for name in ("train", "test")}
    return kept | {"algorithm": experiment.get("asked", resolved.get("algorithm")), "data": data, "module": hashes.get("model")}


def runs_table(summaries: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column("run, system", overflow="fold", min_width=16)
    for heading in ("rounds", "accuracy", "epsilon proven", "claimed", "ended by"):
        table.add_column(heading, no_wrap=True, justify="right" if heading in ("rounds", "accuracy") else "left")
    for row in summaries:
        accuracy = "-" if row["accuracy"] is None else f"{row['accuracy']:.2%}"
        if row.get("headline") not in (None, "accuracy"):
            accuracy = figure(row["headline"], row["figure"])
        name = f"{Path(row['run']).name}\n{word(row['algorithm'])}"
        table.add_row(name, word(row["rounds"]), accuracy, guarantee(row), word(row["claimed"]), row["stopped_by"])
    return table


def guarantee(row: Mapping[str, Any]) -> str:
    """Epsilon with its unit, delta and accountant, since a bare one says nothing."""
    if not isinstance(row["proven"], float):
        return word(row["proven"])
    used = row.get("used")
    less = f"\nused {rounded_up(used):.4f}" if isinstance(used, float) and used < row["proven"] else ""
    return f"{rounded_up(row['proven']):.4f} a {row['unit']}\n{row['delta']:g}, {row['accountant']}{less}"


def word(value: Any) -> str:
    return "-" if value is None else f"{rounded_up(value):.4f}" if isinstance(value, float) else str(value)
