"""The server as an app of an existing Flower deployment (see examples/flower-app).

Nodes run `dpfl node`, as they do without it.
"""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from rich.console import Console

from dpfl.cli.server import terms_of
from dpfl.config.experiment import load
from dpfl.run.over_nodes.nodes import MOST_ANSWER
from dpfl.run.records.folder import RunFolder
from dpfl.transports.flower.grid_transport import GridTransport
from dpfl.views.terminal.progress import LiveProgress
from dpfl.views.terminal.tables import print_outcome

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Trains over the nodes, or resumes the run in `out` if it has begun.

    `flwr run --stream` shows what it prints.

    Args:
        grid: Flower's connection to the nodes.
        context: Its configuration has `experiment` and `out`, two paths at the server.
    """
    experiment = load(Path(str(context.run_config["experiment"])))
    out = Path(str(context.run_config["out"]))
    resume = RunFolder(out).begun()
    terms, _ = terms_of(experiment)
    result = experiment.serve(
        GridTransport(grid, MOST_ANSWER, terms.deadline),
        terms,
        out,
        resume,
        LiveProgress(Console()),
    )
    print_outcome(result, Console())
