"""A table of which client has what, in a terminal. It is as private as the data."""

from __future__ import annotations

import numpy as np
from rich import box
from rich.table import Table

from dpfl.data import Federation

SHOWN_CLIENTS = 20
SHOWN_CLASSES = 12


def federation_table(federation: Federation) -> Table:
    """Lays out who holds what.

    Args:
        federation: The clients and their data.

    Returns:
        One row per client (the first 20 of many) with its samples by class, and the sum.
    """
    counts = federation.label_counts()
    classes = federation.classes if federation.classes <= SHOWN_CLASSES else 0
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, title_justify="left")
    table.title = f"{federation.train.name}, {federation.how}"
    table.add_column("client", no_wrap=True)
    for heading in (noun(federation), *(map(str, range(classes)) if classes else ("classes",))):
        table.add_column(heading, justify="right", no_wrap=True)
    for number, row in enumerate(counts[:SHOWN_CLIENTS]):
        table.add_row(str(number), *_cells(row, classes))
    rest = counts[SHOWN_CLIENTS:]
    if len(rest):
        table.add_row(f"{len(rest)} more", *_cells(rest.sum(axis=0), classes))
    table.add_section()
    table.add_row(f"all {len(counts)}", *_cells(counts.sum(axis=0), classes), style="bold")
    if federation.public:
        samples = str(sum(len(part) for part in federation.public))
        table.add_row(f"public {len(federation.public)}", samples, style="dim")
    sizes = counts.sum(axis=1)
    table.caption = (
        f"smallest client {sizes.min()} {noun(federation)}, median {np.median(sizes):.0f}, "
        f"largest {sizes.max()}"
    )
    table.caption_justify = "left"
    return table


def noun(federation: Federation) -> str:
    """Says what the samples are.

    Args:
        federation: The clients and their data.

    Returns:
        "rows" or "images".
    """
    return "rows" if federation.train.schema else "images"


def _cells(row: np.ndarray, classes: int) -> list[str]:
    if not classes:
        return [str(row.sum()), str(np.count_nonzero(row))]
    return [str(row.sum()), *(str(count) if count else "·" for count in row)]
