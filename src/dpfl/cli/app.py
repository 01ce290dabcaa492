"""`dpfl`: every user error is one sentence and exit code 2."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dpfl import __version__
from dpfl.cli import algorithms as algorithm_commands
from dpfl.cli import audit as audit_commands
from dpfl.cli import certificate as certificate_commands
from dpfl.cli import data as data_commands
from dpfl.cli import ledger as ledger_commands
from dpfl.cli import plan as plan_commands
from dpfl.cli import reproduce as reproduce_commands
from dpfl.errors import DpflError
from dpfl.experiment import Experiment, load, parse
from dpfl.report.progress import Live
from dpfl.report.tables import draw_runs, runs_table, statement_panel, summary
from dpfl.run.folder import RunFolder
from dpfl.run.train import Result

app = typer.Typer(
    help="Differentially private federated learning that says truthfully what it cost in privacy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data_commands.app, name="data")
app.add_typer(ledger_commands.app, name="ledger")
app.add_typer(certificate_commands.key_app, name="key")
app.command()(algorithm_commands.algorithms)
app.command()(plan_commands.plan)
app.command()(audit_commands.audit)
app.command()(reproduce_commands.reproduce)
app.command()(certificate_commands.certify)
app.command()(certificate_commands.verify)

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def main() -> None:
    try:
        app()
    except DpflError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"dpfl: {error}", markup=False)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if show:
        print(__version__)
        raise typer.Exit


@app.command()
def run(
    file: Annotated[Path | None, typer.Argument(help="The experiment (TOML); without it, the demo.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="section.key=value, on top of the file.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; by default a new one under runs/.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    workers: Annotated[int | None, typer.Option(help="Worker processes; by default one a core.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where the data lies; else DPFL_DATA.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Json = False,
) -> None:
    """Run an experiment, or go on with one that was stopped."""
    if resume and (file or set_ or out):
        raise DpflError("--resume goes on with a run as it was: leave out the file, --set and --out.")
    experiment = _recorded(resume) if resume else load(file, set_ or ())
    progress = None if quiet else Live(Console(stderr=True))
    folder = resume or out
    try:
        result = experiment.run(folder, resume is not None, progress, workers, data_dir)
    except KeyboardInterrupt:
        where = folder or (progress.folder if progress else "its folder")
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"dpfl: stopped. Go on with: dpfl run --resume {where}")
        raise typer.Exit(130) from None
    if quiet or as_json:
        for warning in result.warnings:
            Console(stderr=True, highlight=False, soft_wrap=True).print(f"dpfl: warning: {warning}", markup=False)
    if as_json:
        print(json.dumps(result.to_dict()))
    else:
        show(result, Console())


def _recorded(folder: Path) -> Experiment:
    recorded = RunFolder.open(folder).experiment().get("experiment")
    if not recorded:
        raise DpflError(f"The run in {folder} was started from Python; resume it there: dpfl.train(..., resume=True).")
    return parse(recorded)


def show(result: Result, console: Console) -> None:
    console.print(
        f"\n[bold]accuracy {result.accuracy:.2%}[/bold] after {result.rounds} rounds and {result.iterations} steps a client; "
        f"ended by {result.stopped_by}",
        highlight=False,
    )
    console.print(statement_panel(result.privacy))
    for warning in set(result.warnings) - set(result.privacy.warnings):
        console.print(f"warning: {warning}", markup=False, highlight=False, soft_wrap=True)
    if result.lost:
        console.print(f"{len(result.lost)} replies were lost, the first: {result.lost[0]}", markup=False, soft_wrap=True)
    console.print(f"results in {result.folder}", highlight=False, soft_wrap=True)


@app.command()
def runs(
    root: Annotated[Path, typer.Argument(help="The folder that holds runs.")] = Path("runs"), as_json: Json = False
) -> None:
    """List the runs of a folder."""
    folders = sorted(file.parent for file in root.glob("*/experiment.toml")) if root.is_dir() else []
    _print_runs([summary(RunFolder(folder)) for folder in folders], as_json, f"There are no runs in {root}.")


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="The folders of the runs.")],
    png: Annotated[Path | None, typer.Option(help="Draw accuracy against rounds and epsilon.")] = None,
    as_json: Json = False,
) -> None:
    """Put runs side by side."""
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
