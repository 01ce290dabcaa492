"""The commands `dpfl runs` and `dpfl compare`: what runs came to, side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dpfl.report.save import check_place
from dpfl.report.tables import draw_runs, runs_table, summary
from dpfl.run.folder import RunFolder

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def runs(
    root: Annotated[Path, typer.Argument(help="The folder that holds runs.")] = Path("runs"), as_json: Json = False
) -> None:
    """List the runs of a folder."""
    folders = sorted(file.parent for file in root.glob("*/experiment.toml")) if root.is_dir() else []
    _print_runs([summary(RunFolder(folder)) for folder in folders], as_json, f"There are no runs in {root}.")


def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="The folders of the runs.")],
    png: Annotated[Path | None, typer.Option(help="Draw accuracy against rounds and epsilon.")] = None,
    as_json: Json = False,
) -> None:
    """Put runs side by side."""
    check_place(png, "--png", ".png")
    opened = [RunFolder.open(folder) for folder in folders]
    _print_runs([summary(folder) for folder in opened], as_json, "")
    if png:
        draw_runs(opened, png)


def _print_runs(summaries: list[dict[str, object]], as_json: bool, empty: str) -> None:
    if as_json:
        print(json.dumps(summaries))
    elif summaries:
        Console().print(runs_table(summaries))
    else:
        print(empty)
