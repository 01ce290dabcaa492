"""The gradient of one parameter for every sample of a batch, as a norm and a weighted sum.

A weight whose gradient is a sum of T outer products per sample is either written out, or its norm comes from the two T x T
Gram matrices ("ghost" norm), whichever moves less data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dpfl.gradients.scratch import empty, temporary

Right = Callable[[slice, Tensor], Tensor]
"""The right factors of a block of samples; the tensor is room for them."""


@dataclass(frozen=True)
class SampleGradient:
    """One parameter: each sample's squared norm (B,), the flat sum of gradients under weights (B,), and rows (b, n) of some."""

    squares: Tensor
    weighted: Callable[[Tensor], Tensor]
    rows: Callable[[slice], Tensor]


class Unsupported(Exception):
    """The layer was used in a way that its rule does not cover."""


# A multiply-add of a Gram matrix in float64 costs about a sixteenth of writing and twice reading a number of a gradient.
_GRAM_ADVANTAGE = 16
# Numbers: what one block of unfolded patches or gradients may take, and what may be kept until the weights are known.
_BLOCK = 1 << 21
_KEEP = 1 << 25
# Where outer products cancel, the float32 sum of a batch is rounded by about this much of their separate norms.
_ROUNDING = 2 * torch.finfo(torch.float32).eps
# The smallest number of float32: a square is rounded by up to half of it, which is all of a square that is smaller.
_SMALLEST = 2.0**-149


def written_out(rows: Tensor) -> SampleGradient:
    return SampleGradient(squares_of(rows), lambda weights: weights @ rows, lambda block: rows[block])


def squares_of(rows: Tensor) -> Tensor:
    # Not vector_norm: over ten million numbers its running float32 sum is low by 4e-4; this one adds in a cascade.
    return rows.square().sum(1)


def stacked(parts: Sequence[SampleGradient]) -> SampleGradient:
    """One parameter whose rows of weights are split among several gradients."""
    return SampleGradient(
        torch.stack([part.squares for part in parts]).sum(0),
        lambda weights: torch.cat([part.weighted(weights) for part in parts]),
        lambda block: torch.cat([part.rows(block) for part in parts], dim=1),
    )


def outer(x: Tensor, g: Tensor) -> SampleGradient:
    """Gradients g x^T, from x (B, in) and g (B, out). Squares too small for float32 count as its smallest number each: what
    they are multiplied with may be large."""
    return SampleGradient(
        (squares_of(x) + x.shape[1] * _SMALLEST) * (squares_of(g) + g.shape[1] * _SMALLEST),
        lambda weights: ((g * weights[:, None]).T @ x).flatten(),
        lambda block: outer_products(x[block], g[block]),
    )


def outer_products(x: Tensor, g: Tensor) -> Tensor:
    return (g.unsqueeze(2) * x.unsqueeze(1)).flatten(1)


def sum_of_outer(x: Tensor, g: Tensor, small: int = 0) -> SampleGradient:
    """Gradients g^T x, from x (B, T, in) and g (B, T, out); written out at once where all have `small` numbers at most."""
    if len(x) * x.shape[2] * g.shape[2] <= small:
        return written_out(torch.bmm(g.mT, x).flatten(1))
    if x.shape[1] == 1:
        return outer(x.squeeze(1), g.squeeze(1))

    def weighted(weights: Tensor) -> Tensor:
        return ((g * weights[:, None, None]).flatten(0, 1).T @ x.flatten(0, 1)).flatten()

    return products(g.unsqueeze(1), lambda block, _: x[block].unsqueeze(1), x.shape[-1], weighted)


def compared(pairs: int, gradients: int, height: int, width: int) -> bool:
    """Whether to compare pairs of terms moves less data than to write out the gradients."""
    return pairs * (height + width) <= _GRAM_ADVANTAGE * gradients * height * width


def products(left: Tensor, right: Right, width: int, weighted: Callable[[Tensor], Tensor]) -> SampleGradient:
    """Gradients left^T right, from left (B, G, T, r) and right(block, out) (b, G, T, width)."""
    samples, groups, terms, height = left.shape
    ghost = compared(terms * terms, 1, height, width)
    keep = not ghost and samples * groups * height * width <= _KEEP
    step = min(samples, max(1, _BLOCK // (groups * width * (terms if ghost else max(terms, height)))))
    blocks = [slice(start, min(start + step, samples)) for start in range(0, samples, step)]

    lengths: list[Tensor] = []

    def written(block: slice, out: Tensor, measured: bool = False) -> Tensor:
        size = block.stop - block.start
        with temporary():
            terms_of_block = right(block, empty(left, size, groups, terms, width)).flatten(0, 1)
            torch.bmm(left[block].flatten(0, 1).mT, terms_of_block, out=out[:size].view(-1, height, width))
            if measured:
                each = torch.linalg.vector_norm(terms_of_block, dim=2).view(size, groups, terms)
                lengths.append((torch.linalg.vector_norm(left[block], dim=3) * each).sum((1, 2)))
        return out[:size]

    def rows(wanted: slice) -> Tensor:
        first, last, _ = wanted.indices(samples)
        found = left.new_empty(last - first, groups * height * width)
        for start in range(first, last, step):
            stop = min(start + step, last)
            written(slice(start, stop), found[start - first : stop - first])
        return found

    squares = []
    if ghost:
        for block in blocks:
            with temporary():
                room = empty(left, block.stop - block.start, groups, terms, width)
                squares.append(_ghost_squares(left[block], right(block, room)))
        return SampleGradient(torch.cat(squares), weighted, rows)
    kept = empty(left, samples if keep else step, groups * height * width)
    for block in blocks:
        gradients = written(block, kept[block] if keep else kept, measured=not keep)
        # Short rows, whose norms vector_norm has right.
        squares.append(squares_of(torch.linalg.vector_norm(gradients.view(len(gradients), -1, width), dim=2)))
    if not keep:
        return SampleGradient(covering(torch.cat(squares), torch.cat(lengths)), weighted, rows)
    return SampleGradient(torch.cat(squares), lambda weights: weights @ kept, lambda block: kept[block])


def _ghost_squares(left: Tensor, right: Tensor) -> Tensor:
    """In float64: products of Gram entries cancel, and in float32 what is left could be far below the truth."""
    left, right = left.double(), right.double()
    first, second = left @ left.mT, right @ right.mT
    squares = (first * second).sum((1, 2, 3)).clamp_min(0)
    lengths = (first.diagonal(dim1=2, dim2=3) * second.diagonal(dim1=2, dim2=3)).sqrt().sum((1, 2))
    return covering(squares, lengths).float()


def covering(squares: Tensor, lengths: Tensor) -> Tensor:
    """The squares of norms and of what rounding can add to them, where terms of these lengths in all are summed."""
    return (squares.sqrt() + _ROUNDING * lengths).square()
