"""The commands `dpfl data`: download a data set, describe a table, show how data is dealt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from dpfl.data import Federation, load
from dpfl.data.partition import parse
from dpfl.data.sources.download import get as download
from dpfl.errors import DpflError
from dpfl.views.notebook.federation_page import draw
from dpfl.views.output_path import check_place
from dpfl.views.terminal.download_progress import watch
from dpfl.views.terminal.federation_table import SHOWN_CLIENTS, federation_table

app = typer.Typer(
    help="Download data sets, describe tables, and show how clients share data.",
    no_args_is_help=True,
)

DataDir = Annotated[
    Path | None,
    typer.Option(
        help="The folder of the data sets; by default DPFL_DATA, or the user's cache folder."
    ),
]


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="mnist, fashion-mnist, emnist or cifar10.")],
    data_dir: DataDir = None,
) -> None:
    """Download a public data set and check its hash."""
    console = Console()
    folder = download(name, data_dir, watch=watch if console.is_terminal else None)
    console.print(f"{name} is in {folder}", highlight=False, soft_wrap=True)


@app.command()
def describe(
    table: Annotated[
        Path, typer.Argument(help="A .csv, .csv.gz, .tsv or .parquet file with a header.")
    ],
    public: Annotated[
        bool,
        typer.Option(
            "--public",
            help="The table is public: read ranges and levels from its values.",
            show_default=False,
        ),
    ] = False,
    delimiter: Annotated[
        str | None,
        typer.Option(help="The character between fields.", show_default="from the header"),
    ] = None,
    decimal: Annotated[str, typer.Option(help="The decimal mark, . or ,")] = ".",
    encoding: Annotated[
        str, typer.Option(help="The encoding of the file, such as latin-1.")
    ] = "utf-8",
) -> None:
    """Propose the data section of an experiment for a table.

    The proposal follows from the header and the types of the columns. It contains no value of a
    private table.
    """
    from dpfl.data.tables.describe import describe as propose
    from dpfl.data.tables.table_files import TextFormat

    typer.echo(
        propose(table.expanduser(), public, TextFormat(delimiter, decimal, encoding)), nl=False
    )


@app.command()
def show(
    name: Annotated[
        str,
        typer.Argument(
            help="A data set, the path of an .npz file, or an experiment file that declares a "
            "table."
        ),
    ] = "mnist-sample",
    partition: Annotated[
        str | None,
        typer.Option(
            help="iid, dirichlet, shards, label-skew, mix, unequal or mapping.",
            show_default="dirichlet, or the owners of the data",
        ),
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(
            help="Parameter of the Dirichlet partition; a smaller value is more skewed.",
            show_default="0.05",
        ),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Another option of the partition. May be repeated."
        ),
    ] = None,
    classes: Annotated[
        int | None,
        typer.Option(help="Number of classes of an .npz file.", show_default="from the test set"),
    ] = None,
    test_share: Annotated[
        float | None,
        typer.Option(help="Share of the records of an .npz file that becomes the public test set."),
    ] = None,
    clients: Annotated[int, typer.Option(help="Number of clients.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the partition.")] = 0,
    public_clients: Annotated[
        int, typer.Option(help="Additional clients whose data is public.")
    ] = 0,
    data_dir: DataDir = None,
    png: Annotated[
        Path | None, typer.Option(help="Also draw the partition into this file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Show how many rows of each class every client has."""
    check_place(png, "--png", ".png")
    if name.endswith(".toml"):
        from dpfl.config.experiment import load as experiment

        federation = experiment(Path(name)).federation(data_dir)
    else:
        declaration = {"classes": classes, "test_share": test_share}
        source = load(
            name,
            data_dir,
            **{key: value for key, value in declaration.items() if value is not None},
        )
        word = partition or ("site" if source.rows_by_owner else "dirichlet")
        own_options = _options(word, beta, options or [])
        federation = (
            source.by_owner()
            if word == "site"
            else source.split(clients, parse(word, **own_options), seed, public_clients)
        )
    if png:
        draw(federation).save(png)
    if as_json:
        typer.echo(json.dumps(_summary(federation), indent=2))
        return
    console = Console()
    console.print(federation_table(federation))
    for note in federation.notes[:SHOWN_CLIENTS]:
        console.print(f"- {note}", highlight=False, soft_wrap=True)
    if (more := len(federation.notes) - SHOWN_CLIENTS) > 0:
        console.print(f"- and {more} more notes (--json shows all)", highlight=False)
    for note in federation.private:
        console.print(
            f"- {note} (shown only to the owner of the data)", highlight=False, soft_wrap=True
        )
    if png:
        console.print(f"figure written to {png}", highlight=False, soft_wrap=True)


def _options(partition: str, beta: float | None, pairs: list[str]) -> dict[str, Any]:
    """Reads the options of the partition. A value is JSON where it is valid JSON, and text
    elsewhere.
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise DpflError(f"--set {pair} has no value: write it as --set KEY=VALUE.")
        try:
            options[key.replace("-", "_")] = json.loads(value)
        except json.JSONDecodeError:
            options[key.replace("-", "_")] = value
    if beta is not None:
        options["beta"] = beta
    elif partition == "dirichlet":
        options.setdefault("beta", 0.05)
    return options


def _summary(federation: Federation) -> dict[str, Any]:
    return {
        "name": federation.train.name,
        "partition": federation.how,
        "shape": federation.shape,
        "classes": federation.classes,
        "sizes": federation.sizes,
        "label_counts": federation.label_counts().tolist(),
        "public_sizes": [len(part) for part in federation.public],
        "test_size": len(federation.test) if federation.test else 0,
        "sha256": federation.sha256,
        "notes": federation.notes,
    }
