"""The gradient of one parameter for every unit of a chunk, as a norm and a weighted sum.

A weight whose gradient is a sum of T outer products per unit is either written out, or its norm
comes from the two T x T Gram matrices ("ghost" norm), whichever moves less data. A written-out
gradient is a float32 vector: its norm is measured on exactly the numbers that are summed. Sums over
units are in float64 (docs/privacy.md, "Float arithmetic").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from typing import Protocol

import torch
from torch import Tensor

from dpfl.gradients.scratch import empty, temporary
from dpfl.privacy.mechanisms.rounding import (
    COVER,
    SMALLEST,
    TERMS,
    cover_cancellation,
    squared_norms,
)

Right = Callable[[slice, Tensor], Tensor]
"""The right factors of a block of units; the tensor is room for them."""

Chosen = slice | Tensor
"""Which units of a chunk are summed: the first ones, or their places."""


class WeightedSum(Protocol):
    """The flat float64 sum of the gradients of units under float64 weights, written over `out`
    where that is given.
    """

    def __call__(self, units: Chosen, weights: Tensor, out: Tensor | None = None) -> Tensor: ...


@dataclass(frozen=True)
class SampleGradient:
    """The gradient of one parameter for each unit of a chunk.

    Attributes:
        squares: Upper bounds (B,) on the squared norms, in float64. weighted: Maps units of the
        chunk and their weights to the sum of weighted gradients. rows: Maps a slice of units to
        their gradients (b, n), written out. amplifies: A bound on the summed length of a unit's
        terms over its norm as stated; 1 where nothing cancels. parts: What the gradients are made
        of, by unit, where that is less than the rows. additions: How many results of `TERMS` terms,
        at most, `weighted` adds one after another.
    """

    squares: Tensor
    weighted: WeightedSum
    rows: Callable[[slice], Tensor]
    amplifies: float = 1.0
    parts: tuple[Tensor, ...] = ()
    additions: int = 1


class Unsupported(Exception):
    """The layer was used in a way that its rule does not cover."""


# A multiply-add of a Gram matrix in float64 costs about a sixteenth of writing and twice reading a
# number of a gradient.
_GRAM_ADVANTAGE = 16
# Numbers: what one block of unfolded patches or gradients may take, and what may be kept until the
# weights are known.
_BLOCK = 1 << 21
_KEEP = 1 << 25
# Numbers that are converted to float64 at a time: they stay in the cache.
_CONVERTED = 1 << 16


def written_out(rows: Tensor, squares: Tensor | None = None) -> SampleGradient:
    """Gradients that are given as rows (B, n), with their `squared_norms` where these are known."""

    def weighted(units: Chosen, weights: Tensor, out: Tensor | None = None) -> Tensor:
        return sum_rows(weights, rows[units], out)

    squares = squared_norms(rows) if squares is None else squares
    return SampleGradient(
        squares, weighted, lambda block: rows[block], additions=results(len(rows))
    )


def sum_rows(weights: Tensor, rows: Tensor, out: Tensor | None = None) -> Tensor:
    """The float64 sum of rows (B, n) under weights (B,), by columns that stay in the cache; written
    over `out`, if given.
    """
    total, weights = doubles(rows.shape[1]) if out is None else out, weights.double()
    step = max(1024, _CONVERTED // max(1, len(rows)))
    for start in range(0, rows.shape[1], step):
        part = slice(start, start + step)
        torch.mv(rows[:TERMS, part].double().T, weights[:TERMS], out=total[part])
        for first in range(TERMS, len(rows), TERMS):
            total[part] += (
                weights[first : first + TERMS] @ rows[first : first + TERMS, part].double()
            )
    return total


def results(terms: int) -> int:
    """How many results so many terms give."""
    return -(-terms // TERMS)


def doubles(size: int) -> Tensor:
    """Room for a sum."""
    return torch.empty(size, dtype=torch.float64)


def stacked(parts: Sequence[SampleGradient]) -> SampleGradient:
    """One parameter whose rows of weights are split among several gradients."""

    def weighted(units: Chosen, weights: Tensor, out: Tensor | None = None) -> Tensor:
        return torch.cat([part.weighted(units, weights) for part in parts], out=out)

    return SampleGradient(
        reduce(torch.add, (part.squares for part in parts)),
        weighted,
        lambda block: torch.cat([part.rows(block) for part in parts], dim=1),
        max(part.amplifies for part in parts),
        tuple(factor for part in parts for factor in part.parts)
        if all(part.parts for part in parts)
        else (),
        max(part.additions for part in parts),
    )


def outer(x: Tensor, g: Tensor, squares: Tensor | None = None) -> SampleGradient:
    """Gradients g x^T, from x (B, in) and g (B, out), with the `squared_norms` of g where these are
    known.

    Squares too small for float32 count as its smallest number each: what they are multiplied with
    may be large. A product of two float32 numbers is exact in float64.
    """

    def weighted(units: Chosen, weights: Tensor, out: Tensor | None = None) -> Tensor:
        return _sum_products(
            (g[units].double() * weights[:, None])[None], x[units].double()[None], out
        )

    squares = squared_norms(g) if squares is None else squares
    return SampleGradient(
        (squared_norms(x) + x.shape[1] * SMALLEST) * (squares + g.shape[1] * SMALLEST),
        weighted,
        lambda block: outer_products(x[block], g[block]),
        parts=(x, g),
        additions=results(len(x)),
    )


def _sum_products(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """The flat sum over terms of outer products, per group: from float64 (G, n, height) and (G, n,
    width).
    """
    size = len(left), left.shape[2], right.shape[2]
    total = (doubles(prod(size)) if out is None else out).view(size)
    torch.bmm(left[:, :TERMS].mT, right[:, :TERMS], out=total)
    for first in range(TERMS, left.shape[1], TERMS):
        total.baddbmm_(left[:, first : first + TERMS].mT, right[:, first : first + TERMS])
    return total.flatten()


def outer_products(x: Tensor, g: Tensor) -> Tensor:
    """Rows (B, out * in) of g x^T."""
    return (g.unsqueeze(2) * x.unsqueeze(1)).flatten(1)


def sum_of_outer(x: Tensor, g: Tensor, small: int = 0) -> SampleGradient:
    """Gradients g^T x, from x (B, T, in) and g (B, T, out); written out at once where all have
    `small` numbers at most.
    """
    if len(x) * x.shape[2] * g.shape[2] <= small:
        return written_out(torch.bmm(g.mT, x).flatten(1))
    if x.shape[1] == 1:
        return outer(x.squeeze(1), g.squeeze(1))
    return products(g.unsqueeze(1), lambda block, _: x[block].unsqueeze(1), x.shape[-1], (x, g))


def compared(pairs: int, gradients: int, height: int, width: int) -> bool:
    """Whether to compare pairs of terms moves less data than to write out the gradients."""
    return pairs * (height + width) <= _GRAM_ADVANTAGE * gradients * height * width


def products(left: Tensor, right: Right, width: int, parts: tuple[Tensor, ...]) -> SampleGradient:
    """Gradients left^T right, from left (B, G, T, r) and right(block, room) (b, G, T, width), which
    are made of the parts.
    """
    _, _, terms, height = left.shape
    if compared(terms * terms, 1, height, width):
        return replace(_Products(left, right, width).compared(), parts=parts)
    return _Products(left, right, width).written()


class _Products:
    """Sums of outer products, with the blocks in which they are computed."""

    def __init__(self, left: Tensor, right: Right, width: int) -> None:
        self.left, self.right, self.width = left, right, width
        self.samples, self.groups, self.terms, self.height = left.shape

    def compared(self) -> SampleGradient:
        """Norms from Gram matrices, sums from one product of all terms."""
        squares, blocks = [], self._blocks(self.terms)
        for block in blocks:
            with temporary():
                squares.append(_ghost_squares(self.left[block], self._right(block)))
        additions = len(blocks) + results(blocks[0].stop * self.terms)
        return SampleGradient(
            torch.cat(squares), self._summed, self._rows, 1 / COVER, additions=additions
        )

    def written(self) -> SampleGradient:
        """Norms from written-out gradients, which are kept, or made again in the same blocks."""
        size, blocks = (
            self.groups * self.height * self.width,
            self._blocks(max(self.terms, self.height)),
        )
        if self.samples * size <= _KEEP:
            kept = empty(self.left, self.samples, size)
            for block in blocks:
                self._write(block, kept[block])
            return written_out(kept)
        room = empty(self.left, len(range(self.samples)[blocks[0]]), size)
        squares = torch.cat([squared_norms(self._write(block, room)) for block in blocks])

        def weighted(units: Chosen, weights: Tensor, out: Tensor | None = None) -> Tensor:
            whole = torch.zeros(self.samples, dtype=torch.float64)
            whole[units] = weights
            total = (doubles(size) if out is None else out).zero_()
            for block in blocks:
                inside = whole[block].nonzero().flatten()
                if len(inside):
                    total += sum_rows(whole[block][inside], self._write(block, room)[inside])
            return total

        return SampleGradient(
            squares, weighted, self._rows, additions=len(blocks) + results(blocks[0].stop)
        )

    def _blocks(self, numbers: int) -> list[slice]:
        step = min(self.samples, max(1, _BLOCK // (self.groups * self.width * numbers)))
        return [
            slice(start, min(start + step, self.samples)) for start in range(0, self.samples, step)
        ]

    def _right(self, block: slice) -> Tensor:
        return self.right(
            block, empty(self.left, block.stop - block.start, self.groups, self.terms, self.width)
        )

    def _write(self, block: slice, out: Tensor) -> Tensor:
        size = block.stop - block.start
        with temporary():
            factors = self._right(block).flatten(0, 1)
            torch.bmm(
                self.left[block].flatten(0, 1).mT,
                factors,
                out=out[:size].view(-1, self.height, self.width),
            )
        return out[:size]

    def _rows(self, wanted: slice) -> Tensor:
        first, last, _ = wanted.indices(self.samples)
        rows = self.left.new_empty(last - first, self.groups * self.height * self.width)
        step = self._blocks(max(self.terms, self.height))[0].stop
        for start in range(first, last, step):
            stop = min(start + step, last)
            self._write(slice(start, stop), rows[start - first : stop - first])
        return rows

    def _summed(self, units: Chosen, weights: Tensor, out: Tensor | None = None) -> Tensor:
        """In float64, where each product of two float32 numbers is exact."""
        total = (doubles(self.groups * self.height * self.width) if out is None else out).zero_()
        for block, own, places in self._chosen(units, weights):
            with temporary():
                right = self._right(block)
                left = self.left[block]
                if places is not None:
                    left, right = left[places], right[places]
                left = left.double() * own.view(-1, 1, 1, 1)
                total += _sum_products(
                    *(
                        part.transpose(0, 1).flatten(1, 2).contiguous()
                        for part in (left, right.double())
                    )
                )
        return total

    def _chosen(
        self, units: Chosen, weights: Tensor
    ) -> Iterator[tuple[slice, Tensor, Tensor | None]]:
        """Blocks with the weights of the chosen units in them, and the places of these in the
        block, or None for all.
        """
        for block in self._blocks(self.terms):
            if isinstance(units, slice):
                inside = slice(block.start, min(block.stop, len(weights)))
                if inside.start < inside.stop:
                    yield inside, weights[inside], None
            else:
                own = (units >= block.start) & (units < block.stop)
                if own.any():
                    yield block, weights[own], units[own] - block.start


def _ghost_squares(left: Tensor, right: Tensor) -> Tensor:
    """In float64: products of Gram entries cancel, and in float32 what is left could be far below
    the truth.
    """
    left, right = left.double(), right.double()
    first, second = left @ left.mT, right @ right.mT
    squares = (first * second).sum((1, 2, 3)).clamp_min(0)
    lengths = (first.diagonal(dim1=2, dim2=3) * second.diagonal(dim1=2, dim2=3)).sqrt().sum((1, 2))
    return cover_cancellation(squares, lengths, 1)
