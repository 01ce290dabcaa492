"""The command `dpfl run`: an experiment, from its start or from where it was stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dpfl.config.experiment import Experiment, load, parse
from dpfl.errors import DpflError
from dpfl.run.folder import RunFolder, new_path
from dpfl.views.terminal.progress import LiveProgress
from dpfl.views.terminal.tables import print_outcome


def run(
    file: Annotated[
        Path | None, typer.Argument(help="The experiment (TOML); without it, the demo.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="section.key=value, on top of the file.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; by default a new one under runs/.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes; by default one a core.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where the data lies; else DPFL_DATA.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run an experiment, or go on with one that was stopped."""
    if resume and (file or set_ or out):
        raise DpflError(
            "--resume goes on with a run as it was: leave out the file, --set and --out."
        )
    experiment = recorded(resume) if resume else load(file, set_ or ())
    progress = None if quiet else LiveProgress(Console(stderr=True))
    folder = resume or out or new_path(experiment.algorithm.name)
    try:
        result = experiment.run(folder, resume is not None, progress, workers, data_dir)
    except KeyboardInterrupt:
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"dpfl: stopped{_advice(folder)}", markup=False
        )
        raise typer.Exit(130) from None
    if quiet or as_json:
        for warning in result.warnings:
            Console(stderr=True, highlight=False, soft_wrap=True).print(
                f"dpfl: warning: {warning}", markup=False
            )
    if as_json:
        print(json.dumps(result.to_dict()))
    else:
        print_outcome(result, Console())


def _advice(folder: Path) -> str:
    """What can be resumed is a folder with its experiment; before that nothing was released."""
    if RunFolder(folder).begun():
        return f". Go on with: dpfl run --resume {folder}"
    return " before anything was released. Start it again with the same command."


def recorded(folder: Path) -> Experiment:
    recorded = RunFolder.open(folder).experiment().get("experiment")
    if not recorded:
        raise DpflError(
            f"The run in {folder} was started from Python; resume it there: dpfl.train(..., "
            "resume=True)."
        )
    return parse(recorded)
