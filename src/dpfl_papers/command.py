"""The command `dpfl reproduce`: a paper's table or figure, run again here."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table as Grid

from dpfl.bad_values import choose
from dpfl.errors import DpflError
from dpfl_papers import tables
from dpfl_papers.cells import Cell, Outcome, PaperTable
from dpfl_papers.cost import measured, seconds_of, told
from dpfl_papers.runner import OutcomeStore, left_to_do, work_through
from dpfl_papers.table_report import (
    SCALED,
    FinishedCell,
    collect,
    digits,
    markdown,
    scaled,
    shown_epsilon,
    terms,
    write_csv,
)


def reproduce(
    table: Annotated[
        str | None,
        typer.Argument(help="The table or figure, such as ali-3; without one, a list of them."),
    ] = None,
    cells: Annotated[
        list[str] | None,
        typer.Option(
            help="Only cells with this data set, this row, or this text in their column. May be "
            "repeated."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds per cell, counted from 0.")] = 1,
    workers: Annotated[
        int | None,
        typer.Option(help="Cells that run at a time; by default one per processor core."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Change a key of every experiment: section.key=value. It is recorded."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of the results.")] = Path("reproduced"),
    data_dir: Annotated[
        Path | None, typer.Option(help="The folder of the data sets; by default DPFL_DATA.")
    ] = None,
    done: Annotated[
        bool, typer.Option("--done", help="Report the finished cells and run none.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Reproduce the tables and figures of a paper, beside its own numbers.

    Finished cells are kept. A command that was stopped continues where it was.
    """
    known = tables()
    if table is None:
        _list(known, as_json)
        return
    chosen = choose("table", table, known).only(cells or ()).scaled(set_ or ())
    if not chosen.cells:
        places = "; ".join(
            sorted(
                {cell.group for cell in known[table].cells}
                | {cell.row for cell in known[table].cells}
            )
        )
        raise DpflError(f"{table} has no such cells; its data sets and rows are: {places}.")
    if seeds < 1:
        raise DpflError(f"At least 1 seed is needed, not {seeds}.")
    kept, numbers = OutcomeStore(out), range(seeds)
    if not done:
        _run(chosen, numbers, kept, (os.cpu_count() or 1) if workers is None else workers, data_dir)
    made = collect(chosen, numbers, kept)
    if not made:
        raise DpflError(f"No cell of {table} is done in {out} yet; leave out --done to run them.")
    folder = out / (f"{table}{SCALED}" if set_ else table)
    _write(chosen, made, set_ or (), folder)
    _show(chosen, made, set_ or (), folder, as_json)


def _run(
    table: PaperTable, seeds: Sequence[int], kept: OutcomeStore, workers: int, data_dir: Path | None
) -> None:
    console = Console(stderr=True)
    if workers > 0 and (total := _to_come(table, seeds, kept)):
        console.print(
            f"dpfl: what is not done takes {told(total, workers)} here, on {workers} workers.",
            highlight=False,
        )
    with CellProgress(console, *left_to_do(table.cells, seeds, kept)) as watching:
        try:
            work_through(table.cells, seeds, kept, workers, data_dir, watching.tell)
        except KeyboardInterrupt:
            console.print(
                "dpfl: stopped. Finished cells are kept; the same command continues.",
                highlight=False,
            )
            raise typer.Exit(130) from None


def _to_come(table: PaperTable, seeds: Sequence[int], kept: OutcomeStore) -> float:
    """In seconds of one core."""
    return seconds_of(
        table.cells, len(seeds), lambda cell, seed: kept.get(cell.digest(seed)) is None, measured()
    )


class CellProgress:
    """Cells done of all, and the time left; a line for every cell where there is no terminal."""

    def __init__(self, console: Console, total: int, left: int) -> None:
        self._console, self._done, self._total = console, total - left, total
        columns = (
            TextColumn("cells"),
            MofNCompleteColumn(),
            BarColumn(bar_width=20),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=True),
        )
        self._bar = Progress(
            *columns, console=console, disable=not console.is_terminal, speed_estimate_period=3600
        )

    def __enter__(self) -> CellProgress:
        self._bar.start()
        self._task = self._bar.add_task("starting", total=self._total, completed=self._done)
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def tell(self, cell: Cell, seed: int, outcome: Outcome) -> None:
        self._done += 1
        value = "diverges" if outcome.value is None else f"{outcome.value:.2f}"
        text = f"{cell.place}, seed {seed}: {value}"
        self._bar.update(self._task, completed=self._done, description=text[:70])
        if not self._console.is_terminal:
            self._console.print(
                f"{self._done}/{self._total}  {text}", highlight=False, soft_wrap=True
            )


def _write(
    table: PaperTable, made: list[FinishedCell], settings: Sequence[str], folder: Path
) -> None:
    from dpfl_papers.figures import draw

    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_csv(made, folder / "results.csv")
        (folder / "table.md").write_text(markdown(table, made, settings))
        draw(table, made, folder / "picture.png")
    except OSError as error:
        raise DpflError(
            f"The table cannot be written to {folder} ({error.strerror}); the cells are kept."
        ) from None


def _show(
    table: PaperTable,
    made: list[FinishedCell],
    settings: Sequence[str],
    folder: Path,
    as_json: bool,
) -> None:
    if as_json:
        print(
            json.dumps(
                {
                    "table": table.name,
                    "folder": str(folder),
                    "settings": list(settings),
                    "choices": list(table.choices),
                    "cells": [
                        {
                            "group": one.cell.group,
                            "row": one.cell.row,
                            "column": one.cell.column,
                            "printed": one.cell.printed,
                            "paper_epsilon": one.cell.claimed,
                            "seeds": list(one.seeds),
                            "values": [outcome.value for outcome in one.outcomes],
                            "claimed": one.outcomes[0].claimed,
                            "proven": one.proven,
                            "terms": one.outcomes[0].terms,
                            "steps": one.outcomes[0].steps,
                        }
                        for one in made
                    ],
                }
            )
        )
        return
    grid = Grid("", "column", table.value, "paper", "epsilon stated", "proven", title=table.title)
    for one in made:
        told = (
            "-" if number is None else f"{number:g}"
            for number in (one.cell.printed, one.cell.claimed)
        )
        name, proven = f"{one.cell.group} {one.cell.row}".strip(), shown_epsilon(one.proven)
        grid.add_row(name, one.cell.column, one.text(digits(table)), *told, proven)
    console = Console()
    console.print(grid)
    for line in [scaled(settings)] * bool(settings) + terms(made):
        console.print(line, markup=False, highlight=False)
    for choice in table.choices:
        console.print(f"- {choice}", markup=False, highlight=False)
    console.print(
        f"results in {folder}: results.csv, table.md, picture.png", highlight=False, soft_wrap=True
    )


def _list(known: dict[str, PaperTable], as_json: bool) -> None:
    if as_json:
        print(
            json.dumps(
                [
                    {"name": table.name, "title": table.title, "cells": len(table.cells)}
                    for table in known.values()
                ]
            )
        )
        return
    grid = Grid("name", "what", "cells")
    for table in known.values():
        grid.add_row(table.name, table.title, str(len(table.cells)))
    Console().print(grid)
