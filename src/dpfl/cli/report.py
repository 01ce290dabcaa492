"""The command `dpfl report`: writes one page about one run, or several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dpfl.run.records.folder import write_atomically
from dpfl.views.figures.run_figures import pictures
from dpfl.views.output_path import check_folder, check_place
from dpfl.views.report.page import page
from dpfl.views.run_tables import read_all


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="The folders of the runs.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page; by default report.html in the folder of the run, or in the current one."
        ),
    ] = None,
    png: Annotated[
        Path | None, typer.Option(help="Also write the figures as PNG and SVG into this folder.")
    ] = None,
) -> None:
    """Write one HTML page with every figure of one or more runs.

    The page shows learning curves, tau, every epsilon, the noise, and how the data is spread over
    the clients. It opens from disk and loads nothing from the network.
    """
    runs = read_all(folders)
    file = out or (folders[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    check_place(file, "--out", ".html")
    check_folder(png, "--png")
    figures = pictures(runs)
    write_atomically(file, page(runs, figures).encode())
    for picture in figures if png else ():
        assert png is not None
        write_atomically(png / f"{picture.name}.png", picture.png())
        write_atomically(png / f"{picture.name}.svg", picture.svg_file().encode())
    where = f", and as PNG and SVG in {png}" if png else ""
    Console(highlight=False, soft_wrap=True).print(
        f"{len(figures)} figure{'s' * (len(figures) != 1)} in {file}{where}", markup=False
    )
