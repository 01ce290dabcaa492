"""Draws all figures of one run, or of several runs side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpfl.config.experiment import parse
from dpfl.data.published_images import SHAPES
from dpfl.data.remote_federation import NODES
from dpfl.errors import DpflError
from dpfl.views.figures.canvas import FigureFile
from dpfl.views.figures.privacy_figures import accounts, losses, partition, three_epsilons
from dpfl.views.figures.training_figures import metrics, signals, taus, updates
from dpfl.views.run_lines import lines_of
from dpfl.views.run_tables import RunTables

EMBEDDED_DATA = ("mnist-sample", "randhie", "shakespeare")


def pictures(runs: Sequence[RunTables]) -> list[FigureFile]:
    """Draws every figure that the runs have data for.

    Args:
        runs: One run, or several that share their figures.

    Returns:
        The figures, in the order in which a report shows them.
    """
    return [picture for picture in _all(runs) if picture is not None]


def _all(runs: Sequence[RunTables]) -> Iterator[FigureFile | None]:
    lines = lines_of(runs)
    yield three_epsilons(runs)
    for against in ("rounds", "epsilon", "bytes"):
        yield metrics(lines, against)
    yield taus(lines)
    yield signals(lines)
    if len(runs) == 1:
        yield accounts(runs[0])
        yield losses(runs[0])
        yield updates(runs[0])
        yield who_holds_what(runs[0])


def who_holds_what(run: RunTables) -> FigureFile | None:
    """Draws which client has how many samples of each class, if that is public.

    It is public for a data set that everybody has, dealt by a seed that the experiment contains.

    Args:
        run: A run.

    Returns:
        The figure. None if the data is private or at nodes, is not on this machine, or is not the
        data that the run was trained on.
    """
    content, resolved_section = run.experiment.get("experiment") or {}, run.experiment["resolved"]
    name = content.get("data", {}).get("name")
    if name not in SHAPES and name not in EMBEDDED_DATA:
        return None
    if resolved_section.get("partition") == NODES:
        return None
    try:
        federation = parse(content).federation()
    except DpflError:  # it is not on this machine
        return None
    if federation.sha256 != run.experiment["hashes"].get("federation"):
        return None
    return partition(federation.label_counts(), federation.how, federation.names)
