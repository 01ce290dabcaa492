"""The commands `dpfl server`: the experiment over nodes that guard their own data."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from dpfl.cli.run import recorded
from dpfl.cli.shorthand import RunShorthandGroup
from dpfl.config.experiment import Experiment, load
from dpfl.errors import DpflError
from dpfl.run.folder import RunFolder, new_path
from dpfl.run.nodes import MOST_ANSWER, ServerTerms
from dpfl.run.recorder import SilentProgress
from dpfl.views.terminal.progress import LiveProgress
from dpfl.views.terminal.tables import print_outcome

if TYPE_CHECKING:
    from dpfl.transports.flower.server import NodeKeys

app = typer.Typer(
    cls=RunShorthandGroup,
    help="The server of a federation: train over nodes that guard their own data.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="A folder for its certificate and keys.")],
    host: Annotated[
        list[str] | None, typer.Option(help="A name or address that nodes reach it by; any number.")
    ] = None,
) -> None:
    """Make a server's certificate, and the key that its orders are signed with."""
    from dpfl.transports.flower.server import new_server

    made, owner = new_server(
        folder, tuple(dict.fromkeys(("localhost", "127.0.0.1", *(host or ()))))
    )
    print(
        f"Every node needs the file {made.authority} and, in its policy, the public key of these "
        "orders:"
    )
    print(owner)


@app.command()
def run(
    file: Annotated[
        Path | None, typer.Argument(help="The experiment (TOML), with [server.nodes].")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="section.key=value, on top of the file.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; by default a new one under runs/.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train over the nodes that the experiment lists."""
    if resume and (file or set_ or out):
        raise DpflError(
            "--resume goes on with a run as it was: leave out the file, --set and --out."
        )
    if not resume and not file:
        raise DpflError("Name the experiment, or the folder of a run to go on with (--resume).")
    experiment = recorded(resume) if resume else load(file, set_ or ())
    serve(
        experiment,
        resume or out or new_path(experiment.algorithm.name),
        resume is not None,
        quiet,
        as_json,
    )


def terms_of(experiment: Experiment) -> tuple[ServerTerms, dict[str, NodeKeys]]:
    """Whose orders they are, and whose answers count, by the experiment and the server's folder."""
    from dpfl.protocol.keys import load_private
    from dpfl.transports.flower import server as carrier

    section, engine = experiment.server, experiment.engine
    if not section.nodes:
        raise DpflError(
            "The experiment lists no nodes: give [server.nodes] a line each, as `dpfl node init` "
            "prints it."
        )
    nodes = {name: carrier.NodeKeys.parse(name, line) for name, line in section.nodes.items()}
    owner = load_private(Path(section.folder) / carrier.OWNER)
    keys = {name: node.letters for name, node in nodes.items()}
    heads = Path(section.folder) / carrier.HEADS
    return ServerTerms(
        owner, keys, engine.deadline, engine.joining, engine.least_replies, heads
    ), nodes


def serve(
    experiment: Experiment, folder: Path, resume: bool, quiet: bool, as_json: bool,
    nodes_of_ours: AbstractContextManager[None] = nullcontext(),
) -> None:  # fmt: skip
    """Nodes that were started for it end before the SuperLink does."""
    from dpfl.cli.federation_progress import FederationProgress
    from dpfl.transports.flower.server import carried
    from dpfl.transports.flower.watch import MetricsEndpoint

    section, (terms, nodes) = experiment.server, terms_of(experiment)
    told = FederationProgress(
        SilentProgress() if quiet else LiveProgress(Console(stderr=True)), Path(section.folder)
    )
    watched = (
        MetricsEndpoint(section.watch, told.figures, lambda: "") if section.watch else nullcontext()
    )
    try:
        carrier = carried(Path(section.folder), section.address, nodes, MOST_ANSWER, terms.deadline)
        with watched, carrier as post, nodes_of_ours, raise_on_terminate():
            result = experiment.serve(post, terms, folder, resume, told)
    except KeyboardInterrupt:
        begun = RunFolder(folder).begun()
        advice = (
            f". Go on with: dpfl server --resume {folder}"
            if begun
            else " before anything was ordered."
        )
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"dpfl: stopped{advice}", markup=False
        )
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(result.to_dict()))
    else:
        print_outcome(result, Console())


@contextmanager
def raise_on_terminate() -> Iterator[None]:
    """SIGTERM is taken for Ctrl-C: what was ordered is counted, and the run goes on with
    --resume.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
