"""The commands `dpfl runs` and `dpfl compare`: lists runs, and compares their results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dpfl.run.records.folder import RunFolder
from dpfl.views.compare_groups import group_runs
from dpfl.views.comparison_view import ComparisonView
from dpfl.views.figures.curves import draw_calibration, draw_groups
from dpfl.views.output_path import check_place
from dpfl.views.run_summary import summary
from dpfl.views.terminal.tables import comparison_table, runs_table

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def runs(
    root: Annotated[Path, typer.Argument(help="The folder that holds runs.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List the runs in a folder."""
    folders = (
        sorted(file.parent for file in root.glob("*/experiment.toml")) if root.is_dir() else []
    )
    rows = [summary(RunFolder(folder)) for folder in folders]
    if as_json:
        print(json.dumps(rows))
    elif rows:
        Console().print(runs_table(ComparisonView.of_runs(rows)))
    else:
        print(f"There are no runs in {root}.")


def compare(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="The folders of the runs.")
    ],
    png: Annotated[
        Path | None,
        typer.Option(
            help="Plot accuracy, or the task's own metric, against rounds and epsilon (PNG)."
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(help="Plot predicted probabilities against observed frequencies (PNG)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare runs side by side.

    Runs that differ only in their seed share one row, with the mean and its interval.
    """
    check_place(png, "--png", ".png")
    check_place(calibration, "--calibration", ".png")
    groups = group_runs(summary(RunFolder.open(folder)) for folder in folders)
    if png:
        draw_groups(groups).save(png)
    if calibration:
        draw_calibration(groups).save(calibration)
    if as_json:
        print(json.dumps([group.to_dict() for group in groups]))
    else:
        Console().print(comparison_table(ComparisonView.of_groups(groups)))
