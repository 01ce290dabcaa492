"""`dpfl up`: the experiment as a federation of real processes on this machine, from first key to
last statement.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from dpfl.cli.server import serve
from dpfl.config.experiment import Experiment, load, parse
from dpfl.errors import DpflError
from dpfl.run.folder import new_path

if TYPE_CHECKING:
    from dpfl.protocol.proposal import Proposal


def up(
    file: Annotated[
        Path | None, typer.Argument(help="The experiment (TOML); without it, the demo.")
    ] = None,
    nodes: Annotated[
        int,
        typer.Option(help="How many; where data has sites, they are the nodes.", min=1, max=100),
    ] = 3,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="section.key=value, on top of the file.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A folder for all of it; by default a new one under runs/.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """A federation of real processes on this machine: a server and nodes, TLS, keys; taken down at
    the end.
    """
    from dpfl.transports.flower.local_federation import (
        ALLOWED,
        leaving,
        refuse_ended,
        run_federation,
        write_layout,
    )

    experiment = load(file, set_ or ())
    folder = out or new_path("up")
    if folder.exists() and any(folder.iterdir()):
        raise DpflError(f"{folder} is not empty; choose another with --out.")
    if experiment.budget.epsilon is None:
        raise DpflError("A node allows so much epsilon and no more: give budget.epsilon.")
    dealt = experiment.node_sections(nodes)
    proposal = experiment.proposal(tuple(dealt))(0)
    limits = {"epsilon": ALLOWED * experiment.budget.epsilon, "delta": experiment.budget.delta}
    own = {"unit": proposal.unit, "neighbours": proposal.neighbours} if proposal.events else {}
    allow = {"systems": [experiment.algorithm.name], "models": [experiment.model.name]}
    tell = {
        "size": "exact",
        "secure": proposal.noise in ("secure", "shared"),
        "trusted": not proposal.events,
    }
    address, lines = write_layout(folder, dealt, limits | own, allow, tell, _secure(proposal))
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if not quiet:
        console.print(
            f"{len(lines)} nodes and a server on {address}, each with a folder of its own in "
            f"{folder}",
            markup=False,
        )
        if tell["trusted"]:
            console.print(
                "the nodes' policies trust the server, which adds the noise of this system",
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
                "dpfl: the nodes have ended, too; start each again before that: dpfl node run "
                f"{first}",
                markup=False,
            )
            raise
    if not quiet:
        console.print(f"each node's own statement is in {folder / 'run' / 'nodes'}", markup=False)


def _secure(proposal: Proposal) -> dict[str, int] | None:
    """The least that the nodes ask for is what this run has."""
    sums = proposal.sums
    return {"least_survivors": sums.survivors, "least_colluders": sums.colluders} if sums else None


def _over(experiment: Experiment, folder: Path, address: str, lines: dict[str, str]) -> Experiment:
    server = {"folder": str(folder / "server"), "address": address, "nodes": lines}
    return parse(experiment.model_dump(exclude_unset=True, exclude_none=True) | {"server": server})
