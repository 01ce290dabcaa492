"""Who holds what: a federation as a table and as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich import box
from rich.table import Table

from dpfl.data import Federation
from dpfl.data.remote_federation import RemoteFederation
from dpfl.errors import DpflError
from dpfl.views.html import card, facts, note

if TYPE_CHECKING:
    from dpfl.views.notebook import NotebookFigure

SHOWN_CLIENTS = 20
SHOWN_CLASSES = 12


def table(federation: Federation) -> Table:
    """One row a client (the first 20 of many) with its images by class, and the sum."""
    counts = federation.label_counts()
    shown_classes = federation.classes if federation.classes <= SHOWN_CLASSES else 0
    out = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, title_justify="left")
    out.title = f"{federation.train.name}, {federation.how}"
    for heading in (
        "client",
        noun(federation),
        *(map(str, range(shown_classes)) if shown_classes else ("classes",)),
    ):
        out.add_column(heading, justify="left" if heading == "client" else "right", no_wrap=True)
    for number, row in enumerate(counts[:SHOWN_CLIENTS]):
        out.add_row(str(number), *_cells(row, shown_classes))
    if len(counts) > SHOWN_CLIENTS:
        out.add_row(
            f"{len(counts) - SHOWN_CLIENTS} more",
            *_cells(counts[SHOWN_CLIENTS:].sum(axis=0), shown_classes),
        )
    out.add_section()
    out.add_row(f"all {len(counts)}", *_cells(counts.sum(axis=0), shown_classes), style="bold")
    if federation.public:
        out.add_row(
            f"public {len(federation.public)}",
            str(sum(len(part) for part in federation.public)),
            style="dim",
        )
    sizes = counts.sum(axis=1)
    out.caption = (
        f"smallest client {sizes.min()} {noun(federation)}, median "
        f"{np.median(sizes):.0f}, largest {sizes.max()}"
    )
    out.caption_justify = "left"
    return out


def html(federation: Federation) -> str:
    """Sizes, never samples, nor whose labels are what: a notebook is passed on."""
    sizes = sorted(federation.sizes)
    told = [("clients", f"{len(sizes)}, by {federation.how}")]
    told += [
        (
            "samples",
            f"{sum(sizes):,} in all; a client {sizes[0]:,} to {sizes[-1]:,}, median "
            f"{np.median(sizes):,.0f}",
        )
    ]
    told += [("task", f"{federation.task.name}, samples of shape {tuple(federation.shape)}")]
    told += [("test set", f"{len(federation.test):,} samples" if federation.test else "none")]
    told += [("public clients", str(len(federation.public)))] if federation.public else []
    told += [("warning", warning) for warning in federation.warnings]
    return card(
        federation.train.name,
        facts(told, ("warning",)),
        note("plot() shows who holds which classes"),
    )


def plot(federation: Federation) -> NotebookFigure:
    """Who holds what: of private data it is as private as they are."""
    if isinstance(federation, RemoteFederation):
        raise DpflError(
            "Who holds what is known to the nodes alone: `dpfl data show` draws it where the data "
            "is."
        )
    return draw(federation)


def noun(federation: Federation) -> str:
    return "rows" if federation.train.schema else "images"


def _cells(row: np.ndarray, shown_classes: int) -> list[str]:
    by_class = (
        [str(count) if count else "·" for count in row]
        if shown_classes
        else [str(np.count_nonzero(row))]
    )
    return [str(row.sum()), *by_class]


def draw(federation: Federation) -> NotebookFigure:
    """A bar a client, as long as its number of images, in the colours of its classes."""
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    from dpfl.views.notebook import NotebookFigure

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
