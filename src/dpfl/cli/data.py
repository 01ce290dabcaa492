"""The commands `dpfl data get`, `dpfl data describe` and `dpfl data show`."""

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

app = typer.Typer(help="Data: get it, see who holds what.", no_args_is_help=True)

DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder of the data sets (else DPFL_DATA, else the user's cache)."),
]


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="mnist, fashion-mnist, emnist or cifar10.")],
    data_dir: DataDir = None,
) -> None:
    """Download a public data set and check its hashes."""
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
            help="The table is public: read ranges and levels off it, too.",
            show_default=False,
        ),
    ] = False,
    delimiter: Annotated[
        str | None, typer.Option(help="What stands between fields.", show_default="from the header")
    ] = None,
    decimal: Annotated[str, typer.Option(help="The decimal mark: . or ,")] = ".",
    encoding: Annotated[str, typer.Option(help="Such as latin-1.")] = "utf-8",
) -> None:
    """Propose the [data] section of an experiment for a table, from its header and types; no value
    is read off private data.
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
            help="A data set's name, the path of an .npz file, or an experiment file, which "
            "declares a table."
        ),
    ] = "mnist-sample",
    partition: Annotated[
        str | None,
        typer.Option(
            help="iid, dirichlet, shards, label-skew, mix, unequal or mapping.",
            show_default="dirichlet, or the data's owners",
        ),
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(help="Dirichlet parameter; smaller is more skewed.", show_default="0.05"),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other option of the partition."),
    ] = None,
    classes: Annotated[
        int | None,
        typer.Option(help="Number of classes of an .npz file.", show_default="test set's"),
    ] = None,
    test_share: Annotated[
        float | None, typer.Option(help="Part of an .npz file's records that is made public.")
    ] = None,
    clients: Annotated[int, typer.Option(help="Number of clients.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the partition.")] = 0,
    public_clients: Annotated[int, typer.Option(help="Clients held out as public.")] = 0,
    data_dir: DataDir = None,
    png: Annotated[Path | None, typer.Option(help="Also draw it into this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Show how a data set is spread over the clients."""
    check_place(png, "--png", ".png")
    if name.endswith(".toml"):
        from dpfl.config.experiment import load as experiment

        federation = experiment(Path(name)).federation(data_dir)
    else:
        declared = {"classes": classes, "test_share": test_share}
        source = load(
            name, data_dir, **{key: value for key, value in declared.items() if value is not None}
        )
        word = partition or ("site" if source.owned else "dirichlet")
        chosen = _options(word, beta, options or [])
        federation = (
            source.by_owner()
            if word == "site"
            else source.split(clients, parse(word, **chosen), seed, public_clients)
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
        console.print(f"- {note} (for the owner of the data only)", highlight=False, soft_wrap=True)
    if png:
        console.print(f"drawn in {png}", highlight=False, soft_wrap=True)


def _options(partition: str, beta: float | None, pairs: list[str]) -> dict[str, Any]:
    """The partition's options; a value is read as JSON if it is JSON, else as text."""
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
