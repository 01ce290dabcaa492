"""The server as an app of a Flower deployment that is there already (examples/flower-app). Nodes
run `dpfl node`, as ever.
"""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from rich.console import Console

from dpfl.cli.server import terms_of
from dpfl.config.experiment import load
from dpfl.run.folder import RunFolder
from dpfl.run.nodes import MOST_ANSWER
from dpfl.transports.flower.grid_transport import GridTransport
from dpfl.views.terminal.progress import LiveProgress
from dpfl.views.terminal.tables import print_outcome

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """`experiment` and `out` are paths at the server, of the run's configuration; a run that was
    broken off goes on. What it says is in the log of the app (`flwr run --stream`)."""
    experiment, out = (
        load(Path(str(context.run_config["experiment"]))),
        Path(str(context.run_config["out"])),
    )
    begun = RunFolder(out).begun()
    terms, _ = terms_of(experiment)
    result = experiment.serve(
        GridTransport(grid, MOST_ANSWER, terms.deadline), terms, out, begun, LiveProgress(Console())
    )
    print_outcome(result, Console())
