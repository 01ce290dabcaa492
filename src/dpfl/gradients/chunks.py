"""A batch in chunks: rows that go through the model together.

A chunk has a number of rows that passed the self-test (`self_test.py`), filled up with rows of
zeros. Where the unit is a person, a chunk holds persons with equally many rows: each is filled up
to the next power of two by repeating the last row with a share of 0. So the shape of everything
that is computed for a unit depends on that unit alone, and never on the rest of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpfl.errors import DpflError
from dpfl.gradients.unit_rows import UnitRows
from dpfl.models.row_sizes import ChunkSizes, pad, padded_chunks

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Chunk:
    """Rows that are computed together.

    Attributes:
        x: The rows, with fillers behind them.
        y: Their labels.
        units: The batch's units that come first in the chunk; all other rows are fillers.
        rows: The rows of each unit, where a unit has several.
        large: Whether this is one unit with more rows than a chunk may have. It has no fillers.
    """

    x: Tensor
    y: Tensor
    units: Array
    rows: UnitRows | None = None
    large: bool = False


def rows_per_unit(unit_ids: Tensor, rows: int) -> Array:
    """Counts the rows of each unit of a batch.

    Args:
        unit_ids: The unit of each row: 0, 1, 2, ..., ascending, and none left out.
        rows: The number of rows of the batch.

    Returns:
        The counts, by unit.

    Raises:
        DpflError: The numbers are not ascending, leave one out, or are not one for each row.
    """
    ids = unit_ids.numpy()
    ascending = len(ids) == rows and not (ids[1:] < ids[:-1]).any()
    counts = np.bincount(ids) if ascending else np.zeros(1)
    if not counts.all():
        raise DpflError(
            "The units of a batch are numbered 0, 1, 2, ..., one number a row, in ascending order."
        )
    return counts


def sample_chunks(sizes: ChunkSizes, x: Tensor, y: Tensor) -> Iterator[Chunk]:
    """Yields chunks of a batch in which every row is a unit.

    Args:
        sizes: Chooses the number of rows of the next chunk.
        x: The samples.
        y: Their labels.

    Yields:
        The chunks, in the order of the batch.
    """
    first = 0
    for (samples, labels), count in padded_chunks(sizes, x, y):
        yield Chunk(samples, labels, np.arange(first, first + count))
        first += count


def unit_chunks(
    sizes: ChunkSizes, x: Tensor, y: Tensor, counts: Array, most: int
) -> Iterator[Chunk]:
    """Yields chunks of units that have equally many rows after each is filled up to a power of two.

    Args:
        sizes: Chooses the number of rows of the next chunk.
        x: The samples, unit by unit.
        y: Their labels.
        counts: The number of rows of each unit.
        most: The largest number of rows of a chunk. A unit with more has a chunk of its own.

    Yields:
        The chunks, the smallest units first.
    """
    starts, classes = counts.cumsum() - counts, 2 ** np.ceil(np.log2(counts)).astype(np.int64)
    for per_unit in np.unique(classes).tolist():
        remaining = np.flatnonzero(classes == per_unit)
        while len(remaining):
            if per_unit > most:
                unit = remaining[0]
                span = slice(int(starts[unit]), int(starts[unit] + counts[unit]))
                yield Chunk(x[span], y[span], remaining[:1], large=True)
                remaining = remaining[1:]
                continue
            rows = sizes.rows_for(len(remaining), per_unit)
            units, remaining = remaining[: rows // per_unit], remaining[rows // per_unit :]
            indices, shares = _filled_up(starts[units], counts[units], per_unit)
            unit_rows = UnitRows(per_unit, pad(shares, rows))
            yield Chunk(pad(x[indices], rows), pad(y[indices], rows), units, unit_rows)


def _filled_up(starts: Array, counts: Array, per_unit: int) -> tuple[Tensor, Tensor]:
    """Lists the rows of units, each filled up to `per_unit` rows, and each row's share in its unit.

    A unit that has fewer repeats its last row, with a share of 0.
    """
    place, counts = np.arange(per_unit), counts[:, None]
    indices = starts[:, None] + np.minimum(place, counts - 1)
    shares = np.where(place < counts, 1 / counts, 0.0).astype(np.float32)
    return torch.from_numpy(indices.ravel()), torch.from_numpy(shares.ravel())
