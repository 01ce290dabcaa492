"""The gradient of one parameter for every unit of a chunk, as norms and a weighted sum.

Clipping needs two things from a unit's gradient: its norm, and then its contribution to a sum under
weights that follow from the norms. `UnitGradients` gives both, so a gradient need not exist as a
vector. Where it does (`from_rows`), its norm is measured on exactly the float32 numbers that are
summed. Sums over units are in float64 (docs/privacy.md, "Float arithmetic").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import torch
from torch import Tensor

from dpfl.models import FlatModel
from dpfl.privacy.mechanisms.clips.rounding import TERMS, squared_norms

UnitIndex = slice | Tensor
"""Which units of a chunk are summed: the first ones, or their places."""

_CONVERSION_SIZE = 1 << 16
# Numbers that are converted to float64 at a time: they stay in the cache.


class UnsupportedLayer(Exception):
    """A layer, or the way it is used, is not covered by a pass or by its rule."""


class WeightedSum(Protocol):
    """Sums the gradients of units under weights, in float64."""

    def __call__(self, units: UnitIndex, weights: Tensor, out: Tensor | None = None) -> Tensor:
        """Computes the flat sum of weight * gradient.

        Args:
            units: The units of the chunk that are summed.
            weights: Their float64 weights.
            out: Memory for the sum, whose contents are overwritten.

        Returns:
            The sum (n,).
        """
        ...


@dataclass(frozen=True)
class UnitGradients:
    """The gradient of one parameter, with n numbers, for each of the B units of a chunk.

    Attributes:
        squares: Upper bounds (B,) on the squared norms, in float64.
        weighted_sum: Sums the gradients of some units under weights.
        rows: Maps a slice of units to their gradients (b, n), written out.
        cancellation: A bound on the summed length of a unit's terms over its norm as stated; 1
            where nothing cancels. It limits the units of a batch (`sum_rounding.py`).
        parts: What the gradients are computed from, by unit, where that is less than the rows.
            The self-test compares it.
        additions: The largest number of partial sums of `TERMS` terms that `weighted_sum` adds up.
    """

    squares: Tensor
    weighted_sum: WeightedSum
    rows: Callable[[slice], Tensor]
    cancellation: float = 1.0
    parts: tuple[Tensor, ...] = ()
    additions: int = 1


def from_rows(rows: Tensor, squares: Tensor | None = None) -> UnitGradients:
    """Gradients that are written out.

    Args:
        rows: The gradients (B, n).
        squares: Their `squared_norms`, where the caller has computed them.

    Returns:
        The same as `UnitGradients`.
    """

    def weighted_sum(units: UnitIndex, weights: Tensor, out: Tensor | None = None) -> Tensor:
        return sum_rows(weights, rows[units], out)

    squares = squared_norms(rows) if squares is None else squares
    return UnitGradients(
        squares, weighted_sum, lambda block: rows[block], additions=partial_sums(len(rows))
    )


def stack(parts: Sequence[UnitGradients]) -> UnitGradients:
    """Joins the gradients of a parameter that is split into blocks of rows, one block after
    another.

    Args:
        parts: The gradients of each block.

    Returns:
        The gradients of the whole parameter: squared norms add up.
    """

    def weighted_sum(units: UnitIndex, weights: Tensor, out: Tensor | None = None) -> Tensor:
        return torch.cat([part.weighted_sum(units, weights) for part in parts], out=out)

    factors = tuple(factor for part in parts for factor in part.parts)
    return UnitGradients(
        reduce(torch.add, (part.squares for part in parts)),
        weighted_sum,
        lambda block: torch.cat([part.rows(block) for part in parts], dim=1),
        max(part.cancellation for part in parts),
        factors if all(part.parts for part in parts) else (),
        max(part.additions for part in parts),
    )


def sum_rows(weights: Tensor, rows: Tensor, out: Tensor | None = None) -> Tensor:
    """Computes the float64 sum of rows under weights, by blocks of columns that stay in the cache.

    Args:
        weights: The weights (B,).
        rows: The rows (B, n).
        out: Memory for the sum, whose contents are overwritten.

    Returns:
        The sum (n,).
    """
    total, weights = empty_sum(rows.shape[1]) if out is None else out, weights.double()
    step = max(1024, _CONVERSION_SIZE // max(1, len(rows)))
    for start in range(0, rows.shape[1], step):
        part = slice(start, start + step)
        torch.mv(rows[:TERMS, part].double().T, weights[:TERMS], out=total[part])
        for first in range(TERMS, len(rows), TERMS):
            total[part] += (
                weights[first : first + TERMS] @ rows[first : first + TERMS, part].double()
            )
    return total


def partial_sums(terms: int) -> int:
    """Counts the partial sums, of `TERMS` terms at most, that so many terms need.

    Args:
        terms: The number of terms.

    Returns:
        terms / TERMS, rounded up.
    """
    return -(-terms // TERMS)


def empty_sum(size: int) -> Tensor:
    """Allocates uninitialised memory for a float64 sum.

    Args:
        size: The number of entries.

    Returns:
        A tensor (size,).
    """
    return torch.empty(size, dtype=torch.float64)


class LayoutSum:
    """A float64 sum over the whole model, in layout order, that grows entry by entry.

    The first term of an entry is written, not added, so that no memory is cleared.

    Args:
        model: The model whose layout the sum has.
    """

    def __init__(self, model: FlatModel) -> None:
        self._layout = model.layout
        self._vector = empty_sum(model.layout.trainable)
        self._nonzero_entries: set[int] = set()

    def add(self, entry: int, gradients: UnitGradients, units: UnitIndex, weights: Tensor) -> None:
        """Adds the gradients of units of a chunk.

        Args:
            entry: The layout entry of the parameter.
            gradients: The parameter's gradients.
            units: The units that are summed.
            weights: Their float64 weights.
        """
        target = self._vector[self._layout.span(entry)]
        if entry in self._nonzero_entries:
            target += gradients.weighted_sum(units, weights)
        else:
            gradients.weighted_sum(units, weights, target)
        self._nonzero_entries.add(entry)

    def add_vector(self, entry: int, vector: Tensor) -> None:
        """Adds one vector to one entry.

        Args:
            entry: The layout entry.
            vector: What is added, of the entry's size.
        """
        target = self._vector[self._layout.span(entry)]
        if entry in self._nonzero_entries:
            target += vector
        else:
            target.copy_(vector)
        self._nonzero_entries.add(entry)

    @property
    def vector(self) -> Tensor:
        """The sum so far. It is zero if nothing was added."""
        return self._vector if self._nonzero_entries else self._vector.zero_()
