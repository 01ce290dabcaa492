"""Runs and results as tables and pictures."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.panel import Panel
from rich.table import Table

from dpfl.privacy import PrivacyStatement
from dpfl.privacy.figures import rounded_up
from dpfl.privacy.statement_view import NOISE, unit_in_words
from dpfl.run.folder import RunFolder
from dpfl.run.metrics import figure


def statement_panel(privacy: PrivacyStatement) -> Panel:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    for heading, text in privacy.lines():
        grid.add_row(heading, text)
    return Panel(grid, title="privacy statement", title_align="left", expand=False)


def stated_lines(stated: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The statement as it lies in the folder, in the words of a terminal."""
    proven, claimed = stated.get("proven"), stated.get("claimed")
    by = f" at delta {stated['delta']:g} by {stated['accountant']}"
    yield (
        "proven",
        f"epsilon {word(float(proven))}{by}"
        if isinstance(proven, int | float)
        else "unbounded: no epsilon holds",
    )
    yield (
        "claimed",
        f"{'nothing' if claimed is None else word(claimed)} "
        f"({stated.get('claim') or 'the paper says nothing'})",
    )
    if isinstance(stated.get("used"), int | float) and stated["used"] != proven:
        yield (
            "used",
            f"epsilon {word(float(stated['used']))} of it; that follows what came out, and is no "
            "guarantee",
        )
    if stated["unit"] != "none":
        yield (
            "unit",
            f"{unit_in_words(str(stated['unit']))}; neighbours: {stated.get('neighbours')}",
        )
    for warning in stated.get("warnings", ()):
        yield "warning", str(warning)
    yield "adversary", str(stated.get("adversary"))
    if stated.get("noise") in NOISE:
        yield "noise", NOISE[str(stated["noise"])]
    for event, count in stated.get("releases", {}).items():
        most = stated.get("most", {}).get(event, count)
        yield "releases", f"{count}{f' (at most {most})' if most != count else ''} x {event}"
    for name, key in (
        ("asked", "asked"),
        ("not accounted for", "unaccounted"),
        ("assumes", "assumptions"),
    ):
        for line in stated.get(key, ()):
            yield name, str(line)


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
    """Everything that makes a run what it is, but its seed and where its ledgers lie: as asked,
    before noise and rates were planned for the clients that the seed made."""
    resolved, hashes = experiment.get("resolved", {}), experiment.get("hashes", {})
    kept = {
        name: value for name, value in resolved.items() if name not in ("seed", "ledger", "largest")
    }
    data = {name: hashes.get(name) for name in ("train", "test")}
    return kept | {
        "algorithm": experiment.get("asked", resolved.get("algorithm")),
        "data": data,
        "module": hashes.get("model"),
    }


def runs_table(summaries: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column("run, system", overflow="fold", min_width=16)
    names = {row.get("headline") or "accuracy" for row in summaries}
    for heading in ("rounds", measured_by(names), "epsilon proven", "claimed", "ended by"):
        table.add_column(
            heading,
            no_wrap=True,
            justify="left" if heading in ("epsilon proven", "claimed", "ended by") else "right",
        )
    for row in summaries:
        name = f"{Path(row['run']).name}\n{word(row['algorithm'])}"
        measured = _measured(row, named=len(names) > 1)
        table.add_row(
            name,
            word(row["rounds"]),
            measured,
            guarantee(row),
            word(row["claimed"]),
            row["stopped_by"],
        )
    return table


def measured_by(names: Collection[str]) -> str:
    """The heading above figures: the metric, where all have the same."""
    return next(iter(names)) if len(names) == 1 else "measured"


def _measured(row: Mapping[str, Any], named: bool) -> str:
    """The headline of the run's task, with its name where others have other ones."""
    name = row.get("headline") or "accuracy"
    value = row["accuracy"] if name == "accuracy" and row.get("figure") is None else row["figure"]
    text = figure(name, value)
    if value is None:
        return "-"
    noisy = " noisy" if row.get("noisy") else ""
    return (text if named else text.removeprefix(name).strip()) + noisy


def guarantee(row: Mapping[str, Any]) -> str:
    """Epsilon with its unit, delta and accountant, since a bare one says nothing."""
    if not isinstance(row["proven"], float):
        return word(row["proven"])
    used = row.get("used")
    less = (
        f"\nused {rounded_up(used):.4f}" if isinstance(used, float) and used < row["proven"] else ""
    )
    return (
        f"{rounded_up(row['proven']):.4f} a {row['unit']}\n{row['delta']:g}, "
        f"{row['accountant']}{less}"
    )


def word(value: Any) -> str:
    return (
        "-"
        if value is None
        else f"{rounded_up(value):.4f}"
        if isinstance(value, float)
        else str(value)
    )
