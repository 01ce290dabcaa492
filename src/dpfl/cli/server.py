"""The commands `dpfl server`: trains over nodes that guard their own data."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from dpfl.cli.run import read_experiment
from dpfl.cli.shorthand import RunShorthandGroup
from dpfl.config.experiment import Experiment, load
from dpfl.errors import DpflError
from dpfl.run.over_nodes.nodes import MOST_ANSWER, ServerTerms
from dpfl.run.recorder import SilentProgress
from dpfl.run.records.folder import RunFolder, new_path
from dpfl.views.terminal.progress import LiveProgress
from dpfl.views.terminal.tables import print_outcome

if TYPE_CHECKING:
    from dpfl.transports.flower.server import NodeKeys

app = typer.Typer(
    cls=RunShorthandGroup,
    help="Run the server of a federation, whose nodes guard their own data.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="A folder for the certificate and the keys.")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="A name or address at which nodes reach the server. May be repeated."),
    ] = None,
) -> None:
    """Make the certificate of a server, and the key that signs its tasks."""
    from dpfl.transports.flower.server import new_server

    names = dict.fromkeys(("localhost", "127.0.0.1", *(host or ())))
    certificate, owner = new_server(folder, tuple(names))
    print(
        f"Give the file {certificate.authority} to every node. Each node also needs this public "
        "key in its policy:"
    )
    print(owner)


@app.command()
def run(
    file: Annotated[
        Path | None, typer.Argument(help="The experiment file (TOML), with its server.nodes.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a key: section.key=value. May be repeated."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the run; by default a new one under runs/.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Resume the run in this folder.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train over the nodes that the experiment lists."""
    if resume and (file or set_ or out):
        raise DpflError(
            "--resume continues a run with its own experiment: remove the file, --set and --out."
        )
    if not resume and not file:
        raise DpflError("Give an experiment file, or --resume with the folder of a run.")
    experiment = read_experiment(resume) if resume else load(file, set_ or ())
    serve(
        experiment,
        resume or out or new_path(experiment.algorithm.name),
        resume is not None,
        quiet,
        as_json,
    )


def terms_of(experiment: Experiment) -> tuple[ServerTerms, dict[str, NodeKeys]]:
    """Reads the keys of the server and of its nodes.

    Args:
        experiment: The experiment, with `[server.nodes]`.

    Returns:
        The terms of a run over nodes, and the keys of each node.

    Raises:
        DpflError: The experiment lists no nodes, or a key cannot be read.
    """
    from dpfl.protocol.keys import load_private
    from dpfl.transports.flower import server as carrier

    section, engine = experiment.server, experiment.engine
    if not section.nodes:
        raise DpflError(
            "The experiment lists no nodes: add a line per node to [server.nodes], as `dpfl node "
            "init` prints it."
        )
    nodes = {name: carrier.NodeKeys.parse(name, line) for name, line in section.nodes.items()}
    owner = load_private(Path(section.folder) / carrier.OWNER)
    keys = {name: node.message_key for name, node in nodes.items()}
    heads = Path(section.folder) / carrier.HEADS
    return ServerTerms(
        owner, keys, engine.deadline, engine.joining, engine.least_replies, heads
    ), nodes


def serve(
    experiment: Experiment,
    folder: Path,
    resume: bool,
    quiet: bool,
    as_json: bool,
    nodes_of_ours: AbstractContextManager[None] = nullcontext(),
) -> None:
    """Starts the SuperLink, trains over the nodes, and prints the result.

    Args:
        experiment: The experiment, with `[server.nodes]`.
        folder: The folder of the run.
        resume: Continue the run in that folder.
        quiet: Show no progress.
        as_json: Print the result as JSON.
        nodes_of_ours: Nodes that this process has started. They end before the SuperLink does, so
            that their last replies arrive.
    """
    from dpfl.cli.federation_progress import FederationProgress
    from dpfl.transports.flower.server import carry_messages
    from dpfl.transports.flower.watch import MetricsEndpoint

    section, (terms, nodes) = experiment.server, terms_of(experiment)
    progress = FederationProgress(
        SilentProgress() if quiet else LiveProgress(Console(stderr=True)), Path(section.folder)
    )
    endpoint = (
        MetricsEndpoint(section.watch, progress.figures, lambda: "")
        if section.watch
        else nullcontext()
    )
    try:
        carrier = carry_messages(
            Path(section.folder), section.address, nodes, MOST_ANSWER, terms.deadline
        )
        with endpoint, carrier as post, nodes_of_ours, raise_on_terminate():
            result = experiment.serve(post, terms, folder, resume, progress)
    except KeyboardInterrupt:
        can_resume = RunFolder(folder).begun()
        advice = " before anything was requested from a node."
        if can_resume:
            advice = f". Resume it with: dpfl server --resume {folder}"
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
    """Treats SIGTERM as Ctrl-C, so that requests are counted and the run can be resumed.

    Yields:
        Nothing; the former handler returns at the end.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
