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
from dpfl_papers.cost import duration_text, seconds_of, speed_meter
from dpfl_papers.runner import OutcomeStore, count_missing, run_cells
from dpfl_papers.table_report import (
    SCALED_SUFFIX,
    FinishedCell,
    collect,
    digits,
    markdown,
    scale_note,
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
    report_only: Annotated[
        bool, typer.Option("--done", help="Report the finished cells and run none.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Reproduce the tables and figures of a paper, beside its own numbers.

    Finished cells are kept. A command that was stopped continues where it was.
    """
    every_table = tables()
    if table is None:
        _list(every_table, as_json)
        return
    selection = choose("table", table, every_table).only(cells or ()).with_settings(set_ or ())
    if not selection.cells:
        places = "; ".join(
            sorted(
                {cell.group for cell in every_table[table].cells}
                | {cell.row for cell in every_table[table].cells}
            )
        )
        raise DpflError(f"{table} has no such cells; its data sets and rows are: {places}.")
    if seeds < 1:
        raise DpflError(f"At least 1 seed is needed, not {seeds}.")
    store, numbers = OutcomeStore(out), range(seeds)
    if not report_only:
        _run(
            selection,
            numbers,
            store,
            (os.cpu_count() or 1) if workers is None else workers,
            data_dir,
        )
    results = collect(selection, numbers, store)
    if not results:
        raise DpflError(f"No cell of {table} is done in {out} yet; leave out --done to run them.")
    folder = out / (f"{table}{SCALED_SUFFIX}" if set_ else table)
    _write(selection, results, set_ or (), folder)
    _show(selection, results, set_ or (), folder, as_json)


def _run(
    table: PaperTable,
    seeds: Sequence[int],
    store: OutcomeStore,
    workers: int,
    data_dir: Path | None,
) -> None:
    console = Console(stderr=True)
    if workers > 0 and (total := _remaining_seconds(table, seeds, store)):
        console.print(
            f"dpfl: what is not done takes {duration_text(total, workers)} here, "
            f"on {workers} workers.",
            highlight=False,
        )
    with CellProgress(console, *count_missing(table.cells, seeds, store)) as progress:
        try:
            run_cells(table.cells, seeds, store, workers, data_dir, progress.tell)
        except KeyboardInterrupt:
            console.print(
                "dpfl: stopped. Finished cells are kept; the same command continues.",
                highlight=False,
            )
            raise typer.Exit(130) from None


def _remaining_seconds(table: PaperTable, seeds: Sequence[int], store: OutcomeStore) -> float:
    """Estimates the time of the missing cells in seconds of one core."""
    return seconds_of(
        table.cells,
        len(seeds),
        lambda cell, seed: store.get(cell.digest(seed)) is None,
        speed_meter(),
    )


class CellProgress:
    """Shows the finished cells and the time left; prints a line per cell where there is no
    terminal.
    """

    def __init__(self, console: Console, total: int, missing: int) -> None:
        self._console, self._done_count, self._total = console, total - missing, total
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
        self._task = self._bar.add_task("starting", total=self._total, completed=self._done_count)
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def tell(self, cell: Cell, seed: int, outcome: Outcome) -> None:
        """Notes a finished cell.

        Args:
            cell: The cell.
            seed: Its seed.
            outcome: Its outcome.
        """
        self._done_count += 1
        value = "diverges" if outcome.value is None else f"{outcome.value:.2f}"
        text = f"{cell.place}, seed {seed}: {value}"
        self._bar.update(self._task, completed=self._done_count, description=text[:70])
        if not self._console.is_terminal:
            self._console.print(
                f"{self._done_count}/{self._total}  {text}", highlight=False, soft_wrap=True
            )


def _write(
    table: PaperTable, results: list[FinishedCell], settings: Sequence[str], folder: Path
) -> None:
    from dpfl_papers.figures import draw

    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_csv(results, folder / "results.csv")
        (folder / "table.md").write_text(markdown(table, results, settings))
        draw(table, results, folder / "picture.png")
    except OSError as error:
        raise DpflError(
            f"The table cannot be written to {folder} ({error.strerror}); the cells are kept."
        ) from None


def _show(
    table: PaperTable,
    results: list[FinishedCell],
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
                            "group": result.cell.group,
                            "row": result.cell.row,
                            "column": result.cell.column,
                            "printed": result.cell.printed,
                            "paper_epsilon": result.cell.claimed,
                            "seeds": list(result.seeds),
                            "values": [outcome.value for outcome in result.outcomes],
                            "claimed": result.outcomes[0].claimed,
                            "proven": result.proven,
                            "terms": result.outcomes[0].terms,
                            "steps": result.outcomes[0].steps,
                        }
                        for result in results
                    ],
                }
            )
        )
        return
    grid = Grid("", "column", table.value, "paper", "epsilon stated", "proven", title=table.title)
    for result in results:
        numbers = (
            "-" if number is None else f"{number:g}"
            for number in (result.cell.printed, result.cell.claimed)
        )
        name, proven = (
            f"{result.cell.group} {result.cell.row}".strip(),
            shown_epsilon(result.proven),
        )
        grid.add_row(name, result.cell.column, result.text(digits(table)), *numbers, proven)
    console = Console()
    console.print(grid)
    for line in [scale_note(settings)] * bool(settings) + terms(results):
        console.print(line, markup=False, highlight=False)
    for choice in table.choices:
        console.print(f"- {choice}", markup=False, highlight=False)
    console.print(
        f"results in {folder}: results.csv, table.md, picture.png", highlight=False, soft_wrap=True
    )


def _list(every_table: dict[str, PaperTable], as_json: bool) -> None:
    if as_json:
        print(
            json.dumps(
                [
                    {"name": table.name, "title": table.title, "cells": len(table.cells)}
                    for table in every_table.values()
                ]
            )
        )
        return
    grid = Grid("name", "what", "cells")
    for table in every_table.values():
        grid.add_row(table.name, table.title, str(len(table.cells)))
    Console().print(grid)
