"""Gradients that are sums of outer products: written out, or compared by Gram matrices.

A weight used at T positions has the gradient sum_t b_t a_t^T for each unit. `products` chooses one
of two ways, whichever moves less data:

- *Written out*: the matrix is formed for each unit, and its norm is measured on it.
- *Compared* (the ghost norm of Goodfellow 2015 and Li et al. 2021): the squared norm is
  sum_st (a_s . a_t) (b_s . b_t), the inner product of two T x T Gram matrices. The gradients exist
  only in the sum over units, which one matrix product of all terms gives (book-keeping, Bu et al.
  2022).

Gram matrices are in float64, because their entries cancel. Choosing between both ways layer by
layer is mixed ghost clipping (Bu, Mao and Xu 2022).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod

import torch
from torch import Tensor

from dpfl.gradients.scratch import empty, temporary
from dpfl.gradients.unit_gradients import (
    UnitGradients,
    UnitIndex,
    empty_sum,
    from_rows,
    partial_sums,
    sum_rows,
)
from dpfl.privacy.mechanisms.clips.rounding import (
    COVER,
    SMALLEST,
    TERMS,
    cover_cancellation,
    squared_norms,
)

Right = Callable[[slice, Tensor], Tensor]
"""The right factors of a block of units; the tensor is memory for them."""

_GRAM_ADVANTAGE = 16
# A multiply-add of a Gram matrix in float64 costs about a sixteenth of writing a number of a
# gradient once and reading it twice.
_BLOCK = 1 << 21
# Numbers that one block of unfolded patches or gradients may take.
_KEEP = 1 << 25
# Numbers of gradients that may be kept until the weights are known.


def outer(x: Tensor, g: Tensor, squares: Tensor | None = None) -> UnitGradients:
    """Gradients g x^T: one outer product for each unit.

    Their squared norm is |x|^2 |g|^2 (Goodfellow 2015). A number whose square is too small for
    float32 counts as the smallest float32, because the other factor may be large. A product of two
    float32 numbers is exact in float64.

    Args:
        x: The inputs (B, in).
        g: The gradients at the outputs (B, out).
        squares: The `squared_norms` of g, where the caller has computed them.

    Returns:
        The gradients, of out * in numbers each.
    """

    def weighted_sum(units: UnitIndex, weights: Tensor, out: Tensor | None = None) -> Tensor:
        return _sum_products(
            (g[units].double() * weights[:, None])[None], x[units].double()[None], out
        )

    squares = squared_norms(g) if squares is None else squares
    return UnitGradients(
        (squared_norms(x) + x.shape[1] * SMALLEST) * (squares + g.shape[1] * SMALLEST),
        weighted_sum,
        lambda block: outer_products(x[block], g[block]),
        parts=(x, g),
        additions=partial_sums(len(x)),
    )


def _sum_products(lhs: Tensor, rhs: Tensor, out: Tensor | None = None) -> Tensor:
    """Computes the flat sum over terms of outer products, for each group.

    The factors are float64 tensors (G, n, height) and (G, n, width).
    """
    size = len(lhs), lhs.shape[2], rhs.shape[2]
    total = (empty_sum(prod(size)) if out is None else out).view(size)
    torch.bmm(lhs[:, :TERMS].mT, rhs[:, :TERMS], out=total)
    for first in range(TERMS, lhs.shape[1], TERMS):
        total.baddbmm_(lhs[:, first : first + TERMS].mT, rhs[:, first : first + TERMS])
    return total.flatten()


def outer_products(x: Tensor, g: Tensor) -> Tensor:
    """Writes g x^T out.

    Args:
        x: The inputs (B, in).
        g: The gradients at the outputs (B, out).

    Returns:
        Rows (B, out * in).
    """
    return (g.unsqueeze(2) * x.unsqueeze(1)).flatten(1)


def sum_of_outer(x: Tensor, g: Tensor, small: int = 0) -> UnitGradients:
    """Gradients g^T x: a sum of T outer products for each unit.

    Args:
        x: The inputs (B, T, in).
        g: The gradients at the outputs (B, T, out).
        small: Where the gradients of all units together have at most so many numbers, they are
            written out at once.

    Returns:
        The gradients, of out * in numbers each.
    """
    if len(x) * x.shape[2] * g.shape[2] <= small:
        return from_rows(torch.bmm(g.mT, x).flatten(1))
    if x.shape[1] == 1:
        return outer(x.squeeze(1), g.squeeze(1))
    return products(g.unsqueeze(1), lambda block, _: x[block].unsqueeze(1), x.shape[-1], (x, g))


def prefers_gram(terms: int, height: int, width: int) -> bool:
    """Says whether Gram matrices move less data than gradients that are written out.

    Args:
        terms: The number T of outer products in a unit's gradient.
        height: The rows of the gradient.
        width: Its columns.

    Returns:
        Whether T^2 (height + width) is at most 16 height * width.
    """
    return terms**2 * (height + width) <= _GRAM_ADVANTAGE * height * width


def products(lhs: Tensor, rhs: Right, width: int, parts: tuple[Tensor, ...]) -> UnitGradients:
    """Gradients L^T R, by Gram matrices or written out.

    Args:
        lhs: The left factors L (B, G, T, r), for G groups of the layer's channels.
        rhs: Maps a block of units, and memory for the result, to the right factors R (b, G, T,
            width). So unfolded patches exist for one block at a time only.
        width: The columns of the right factors.
        parts: What both factors are computed from, for the self-test.

    Returns:
        The gradients, of G * r * width numbers each.
    """
    _, _, terms, height = lhs.shape
    if prefers_gram(terms, height, width):
        return replace(_Products(lhs, rhs, width).by_gram(), parts=parts)
    return _Products(lhs, rhs, width).by_rows()


class _Products:
    """Sums of outer products, with the blocks in which they are computed."""

    def __init__(self, lhs: Tensor, rhs: Right, width: int) -> None:
        self.lhs, self.rhs, self.width = lhs, rhs, width
        self.samples, self.groups, self.terms, self.height = lhs.shape

    def by_gram(self) -> UnitGradients:
        """Takes norms from Gram matrices, and sums from one product of all terms."""
        squares, blocks = [], self._blocks(self.terms)
        for block in blocks:
            with temporary():
                squares.append(_ghost_squares(self.lhs[block], self._rhs(block)))
        additions = len(blocks) + partial_sums(blocks[0].stop * self.terms)
        return UnitGradients(
            torch.cat(squares), self._sum_in_float64, self._rows, 1 / COVER, additions=additions
        )

    def by_rows(self) -> UnitGradients:
        """Takes norms from written-out gradients, which are kept if they are few, or computed a
        second time in the same blocks.
        """
        size = self.groups * self.height * self.width
        blocks = self._blocks(max(self.terms, self.height))
        if self.samples * size <= _KEEP:
            rows = empty(self.lhs, self.samples, size)
            for block in blocks:
                self._write(block, rows[block])
            return from_rows(rows)
        room = empty(self.lhs, len(range(self.samples)[blocks[0]]), size)
        squares = torch.cat([squared_norms(self._write(block, room)) for block in blocks])

        def weighted_sum(units: UnitIndex, weights: Tensor, out: Tensor | None = None) -> Tensor:
            whole = torch.zeros(self.samples, dtype=torch.float64)
            whole[units] = weights
            total = (empty_sum(size) if out is None else out).zero_()
            for block in blocks:
                inside = whole[block].nonzero().flatten()
                if len(inside):
                    total += sum_rows(whole[block][inside], self._write(block, room)[inside])
            return total

        return UnitGradients(
            squares, weighted_sum, self._rows, additions=len(blocks) + partial_sums(blocks[0].stop)
        )

    def _blocks(self, numbers: int) -> list[slice]:
        step = min(self.samples, max(1, _BLOCK // (self.groups * self.width * numbers)))
        return [
            slice(start, min(start + step, self.samples)) for start in range(0, self.samples, step)
        ]

    def _rhs(self, block: slice) -> Tensor:
        return self.rhs(
            block, empty(self.lhs, block.stop - block.start, self.groups, self.terms, self.width)
        )

    def _write(self, block: slice, out: Tensor) -> Tensor:
        size = block.stop - block.start
        with temporary():
            factors = self._rhs(block).flatten(0, 1)
            torch.bmm(
                self.lhs[block].flatten(0, 1).mT,
                factors,
                out=out[:size].view(-1, self.height, self.width),
            )
        return out[:size]

    def _rows(self, units: slice) -> Tensor:
        first, last, _ = units.indices(self.samples)
        rows = self.lhs.new_empty(last - first, self.groups * self.height * self.width)
        step = self._blocks(max(self.terms, self.height))[0].stop
        for start in range(first, last, step):
            stop = min(start + step, last)
            self._write(slice(start, stop), rows[start - first : stop - first])
        return rows

    def _sum_in_float64(
        self, units: UnitIndex, weights: Tensor, out: Tensor | None = None
    ) -> Tensor:
        """Computes the weighted sum in float64, where each product of two float32 numbers is
        exact.
        """
        total = (empty_sum(self.groups * self.height * self.width) if out is None else out).zero_()
        for block, own, places in self._blocks_with(units, weights):
            with temporary():
                rhs = self._rhs(block)
                lhs = self.lhs[block]
                if places is not None:
                    lhs, rhs = lhs[places], rhs[places]
                lhs = lhs.double() * own.view(-1, 1, 1, 1)
                pair = (lhs, rhs.double())
                total += _sum_products(
                    *(part.transpose(0, 1).flatten(1, 2).contiguous() for part in pair)
                )
        return total

    def _blocks_with(
        self, units: UnitIndex, weights: Tensor
    ) -> Iterator[tuple[slice, Tensor, Tensor | None]]:
        """Finds the blocks that hold units to be summed.

        Yields:
            A block, the weights of its units that are summed, and their places in the block, or
            None for all of it.
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


def _ghost_squares(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Computes squared norms from Gram matrices, in float64.

    Products of Gram entries cancel. In float32, what remains could be far below the truth.
    """
    lhs, rhs = lhs.double(), rhs.double()
    first, second = lhs @ lhs.mT, rhs @ rhs.mT
    squares = (first * second).sum((1, 2, 3)).clamp_min(0)
    lengths = (first.diagonal(dim1=2, dim2=3) * second.diagonal(dim1=2, dim2=3)).sqrt().sum((1, 2))
    return cover_cancellation(squares, lengths, 1)
