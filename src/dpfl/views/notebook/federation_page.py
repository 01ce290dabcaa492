"""A federation in a notebook: the sizes of its clients, and who holds which classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpfl.data import Federation
from dpfl.data.remote_federation import RemoteFederation
from dpfl.errors import DpflError
from dpfl.views.notebook.html import card, facts, note
from dpfl.views.terminal.federation_table import noun

if TYPE_CHECKING:
    from dpfl.views.notebook.figure import NotebookFigure


def html(federation: Federation) -> str:
    """Lays out a federation by its sizes.

    It shows no sample and no label: a notebook is passed on.

    Args:
        federation: The clients and their data.

    Returns:
        HTML for a notebook cell.
    """
    sizes = sorted(federation.sizes)
    samples = (
        f"{sum(sizes):,} in all; {sizes[0]:,} to {sizes[-1]:,} per client, median "
        f"{np.median(sizes):,.0f}"
    )
    rows = [
        ("clients", f"{len(sizes):,}, split by {federation.how}"),
        ("samples", samples),
        ("task", f"{federation.task.name}, samples of shape {tuple(federation.shape)}"),
        ("test set", f"{len(federation.test):,} samples" if federation.test else "none"),
    ]
    if federation.public:
        rows.append(("public clients", str(len(federation.public))))
    rows += [("warning", warning) for warning in federation.warnings]
    hint = note("plot() draws which client holds which classes")
    return card(federation.train.name, facts(rows, ("warning",)), hint)


def plot(federation: Federation) -> NotebookFigure:
    """Draws which client holds what. The figure is as private as the data.

    Args:
        federation: The clients and their data.

    Returns:
        One bar per client, in the colours of its classes.

    Raises:
        DpflError: If the data is at nodes, which alone know who holds what.
    """
    if isinstance(federation, RemoteFederation):
        raise DpflError(
            "Only the nodes know who holds what. `dpfl data show` draws it where the data is."
        )
    return draw(federation)


def draw(federation: Federation) -> NotebookFigure:
    """Draws which client holds what, without asking whether that is private.

    Args:
        federation: The clients and their data.

    Returns:
        One bar per client, as long as its number of samples, in the colours of its classes.
    """
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    from dpfl.views.notebook.figure import NotebookFigure

    counts = federation.label_counts()
    clients, classes = counts.shape
    figure = NotebookFigure(9, float(np.clip(1.6 + 0.36 * clients, 3.2, 14)))
    axes = figure.subplots()
    colours, edge = _colours(classes), "white" if clients <= 40 else "none"
    sizes = counts.sum(axis=1)
    for number, row in enumerate(counts):
        pieces = list(zip(np.cumsum(row) - row, row, strict=True))
        axes.broken_barh(
            pieces, (number - 0.41, 0.82), facecolors=colours, edgecolor=edge, linewidth=0.6
        )
    if clients <= 40:
        for number, size in enumerate(sizes):
            axes.annotate(f" {size:,}", (size, number), va="center", fontsize=8, color="0.35")
    axes.set(
        xlabel=noun(federation),
        ylabel="client",
        xlim=(0, sizes.max() * 1.08),
        ylim=(clients - 0.5, -0.5),
    )
    axes.yaxis.set_major_locator(MaxNLocator(nbins=min(clients, 40), integer=True))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.suptitle(
        f"Who holds what: {federation.train.name}, {clients} clients",
        x=0.01,
        ha="left",
        fontsize=12,
    )
    axes.set_title(federation.how, loc="left", fontsize=9, color="0.35")
    keys = [Patch(color=colour, label=str(label)) for label, colour in enumerate(colours)]
    axes.legend(
        handles=keys,
        title="class",
        loc="upper left",
        bbox_to_anchor=(1, 1),
        frameon=False,
        ncols=1 + (classes - 1) // 16,
    )
    return figure


def _colours(classes: int) -> list[tuple[float, float, float, float]]:
    from matplotlib import colormaps

    if classes <= 10:
        return [colormaps["tab10"](label) for label in range(classes)]
    if classes <= 20:
        return [colormaps["tab20"](label) for label in range(classes)]
    return [colormaps["turbo"](place) for place in np.linspace(0.02, 0.98, classes)]
