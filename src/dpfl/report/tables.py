"""Runs and results as tables and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.panel import Panel
from rich.table import Table

from dpfl.privacy import PrivacyStatement
from dpfl.privacy.statement import rounded_up
from dpfl.run.folder import RunFolder


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
        "started": experiment.get("run", {}).get("started"),
        "rounds": result.get("rounds"),
        "iterations": result.get("iterations"),
        "accuracy": result.get("accuracy"),
        "loss": result.get("loss"),
        "stopped_by": result.get("stopped_by", "unfinished"),
        "unit": privacy.get("unit"),
        "delta": privacy.get("delta"),
        "accountant": privacy.get("accountant"),
        "proven": privacy.get("proven"),
        "claimed": privacy.get("claimed"),
        "model_sha256": result.get("model_sha256"),
    }


def runs_table(summaries: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column("run", overflow="fold", min_width=16)
    for heading in ("algorithm", "rounds", "accuracy", "epsilon proven", "claimed", "ended by"):
        table.add_column(heading, no_wrap=True, justify="right" if heading in ("rounds", "accuracy") else "left")
    for row in summaries:
        accuracy = "-" if row["accuracy"] is None else f"{row['accuracy']:.2%}"
        words = (Path(row["run"]).name, row["algorithm"], row["rounds"])
        table.add_row(*map(_word, words), accuracy, _guarantee(row), _word(row["claimed"]), row["stopped_by"])
    return table


def _guarantee(row: dict[str, Any]) -> str:
    """Epsilon with its unit, delta and accountant, since a bare one says nothing."""
    if not isinstance(row["proven"], float):
        return _word(row["proven"])
    return f"{rounded_up(row['proven']):.4f} a {row['unit']}\n{row['delta']:g}, {row['accountant']}"


def _word(value: Any) -> str:
    return "-" if value is None else f"{rounded_up(value):.4f}" if isinstance(value, float) else str(value)


def draw_runs(folders: Sequence[RunFolder], path: Path) -> None:
    """Accuracy against rounds and against epsilon, a line a run."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True, constrained_layout=True)
    for folder in folders:
        metrics = folder.metrics()
        rows = [row for row in metrics.rows() if row.accuracy is not None]
        metrics.close()
        label = f"{folder.path.name} ({summary(folder)['algorithm']})"
        accuracy = [100 * (row.accuracy or 0) for row in rows]
        axes[0].plot([row.round for row in rows], accuracy, marker=".", label=label)
        axes[1].plot([row.epsilon for row in rows], accuracy, marker=".", label=label)
    for axis, name in zip(axes, ("round", "epsilon spent (proven upper bound)"), strict=True):
        axis.set_xlabel(name)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("test accuracy, %")
    axes[0].legend(fontsize="small")
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
