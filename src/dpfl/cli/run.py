"""The command `dpfl run`: runs an experiment, or resumes one that was stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dpfl.config.experiment import Experiment, load, parse
from dpfl.errors import DpflError
from dpfl.run.records.folder import RunFolder, new_path
from dpfl.views.terminal.progress import LiveProgress
from dpfl.views.terminal.tables import print_outcome


def run(
    file: Annotated[
        Path | None, typer.Argument(help="The experiment file (TOML); without one, the demo.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a key: section.key=value. May be repeated."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the run; by default a new one under runs/.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Resume the run in this folder.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes; by default one per processor core.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="The folder of the data sets; by default DPFL_DATA.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run an experiment, or resume one that was stopped."""
    if resume and (file or set_ or out):
        raise DpflError(
            "--resume continues a run with its own experiment: remove the file, --set and --out."
        )
    experiment = read_experiment(resume) if resume else load(file, set_ or ())
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
    """Says how to continue. A run without a record has released nothing, so it starts again."""
    if RunFolder(folder).begun():
        return f". Resume it with: dpfl run --resume {folder}"
    return " before anything was released. Start it again with the same command."


def read_experiment(folder: Path) -> Experiment:
    """Reads the experiment of a run.

    Args:
        folder: The folder of the run.

    Returns:
        The experiment as it was asked for.

    Raises:
        DpflError: There is no run, or it was started from Python and has no experiment file.
    """
    content = RunFolder.open(folder).experiment().get("experiment")
    if not content:
        raise DpflError(
            f"The run in {folder} was started from Python. Resume it there, with "
            "dpfl.train(..., execution=dpfl.Execution(out=..., resume=True))."
        )
    return parse(content)
