"""The command `dpfl up`: runs an experiment as a federation of processes on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from dpfl.cli.server import serve
from dpfl.config.experiment import Experiment, load, parse
from dpfl.errors import DpflError
from dpfl.run.records.folder import new_path

if TYPE_CHECKING:
    from dpfl.protocol.proposal import Proposal


def up(
    file: Annotated[
        Path | None, typer.Argument(help="The experiment file (TOML); without one, the demo.")
    ] = None,
    nodes: Annotated[
        int,
        typer.Option(
            help="Number of nodes; where the data has sites, these are the nodes.", min=1, max=100
        ),
    ] = 3,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a key: section.key=value. May be repeated."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A folder for the server, the nodes and the run; by default a new one under runs/."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run a whole federation on this machine: a server and nodes as real processes with TLS.

    Every process has its own folder, keys and policy. All of them end with the run.
    """
    from dpfl.transports.flower.local_federation import (
        EPSILON_MULTIPLE,
        leaving,
        refuse_ended,
        run_federation,
        write_layout,
    )

    experiment = load(file, set_ or ())
    folder = out or new_path("up")
    if folder.exists() and any(folder.iterdir()):
        raise DpflError(f"{folder} is not empty; choose another folder with --out.")
    if experiment.budget.epsilon is None:
        raise DpflError("Every node enforces a limit on epsilon: give budget.epsilon.")
    node_sections = experiment.node_sections(nodes)
    proposal = experiment.proposal(tuple(node_sections))(0)
    limits = {
        "epsilon": EPSILON_MULTIPLE * experiment.budget.epsilon,
        "delta": experiment.budget.delta,
    }
    own = {"unit": proposal.unit, "neighbours": proposal.neighbours} if proposal.events else {}
    allow = {"systems": [experiment.algorithm.name], "models": [experiment.model.name]}
    tell = {
        "size": "exact",
        "secure": proposal.noise in ("secure", "shared"),
        "trusted": not proposal.events,
    }
    address, lines = write_layout(
        folder, node_sections, limits | own, allow, tell, _secure(proposal)
    )
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if not quiet:
        console.print(
            f"{len(lines)} nodes and a server on {address}, each with its own folder in {folder}",
            markup=False,
        )
        if tell["trusted"]:
            console.print(
                "The policies of the nodes trust the server, which adds the noise of this system.",
                markup=False,
            )
    with run_federation(folder, lines) as processes:
        refuse_ended(folder, processes)
        over = _over(experiment, folder, address, lines)
        try:
            serve(over, folder / "run", False, quiet, as_json, leaving(processes))
        except typer.Exit:
            first = folder / "nodes" / next(iter(lines))
            console.print(
                "dpfl: the nodes have ended, too. Before you resume, start each of them again, "
                f"for example with: dpfl node run {first}",
                markup=False,
            )
            raise
    if not quiet:
        console.print(f"The statement of each node is in {folder / 'run' / 'nodes'}", markup=False)


def _secure(proposal: Proposal) -> dict[str, int] | None:
    """Returns the limits of the nodes on secure sums, which are those of this run."""
    sums = proposal.sums
    return {"least_survivors": sums.survivors, "least_colluders": sums.colluders} if sums else None


def _over(experiment: Experiment, folder: Path, address: str, lines: dict[str, str]) -> Experiment:
    server = {"folder": str(folder / "server"), "address": address, "nodes": lines}
    return parse(experiment.model_dump(exclude_unset=True, exclude_none=True) | {"server": server})
