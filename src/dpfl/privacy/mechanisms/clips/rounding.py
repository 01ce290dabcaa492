"""Bounds the error of float arithmetic: the constants of docs/privacy.md, "Float arithmetic"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpfl.lazy_import import torch

if TYPE_CHECKING:
    from torch import Tensor

SINGLE = 2.0**-24
DOUBLE = 2.0**-53
"""The unit roundoff u of float32 and of float64."""

SMALLEST = 2.0**-149
"""The smallest positive float32: a square is rounded by up to half of it, which is all of a smaller
square.
"""

LARGEST = float((2 - 2.0**-23) * 2.0**127)
"""The largest finite float32: rows whose squares sum to more count as not finite."""

BLOCK = 256
"""Squares that are summed in float32 before the sum goes on in float64."""

NARROW = 1024
"""Rows of so many numbers, or fewer, are summed in float64 at once."""

COVER = 2.0**-11
"""The share of the summed lengths of cancelling terms that is added to a norm."""

TERMS = 512
"""Terms that one float64 matrix product sums; the sums of several products are added after."""


def gamma(terms: int, unit: float = SINGLE) -> float:
    """Bounds the relative rounding error of a sum of n terms in any order: n u / (1 - n u).

    This is Lemma 3.1 of Higham (2002).

    Args:
        terms: The number n of roundings.
        unit: The unit roundoff u.

    Returns:
        gamma_n.
    """
    return terms * unit / (1 - terms * unit)


SQUARES = 1 + 2 * gamma(BLOCK + 4)
"""A sum of squares in blocks is at most this factor below the truth: BLOCK additions, a square, a
root and its square in float32; what float64 adds to that is within the factor 2."""


def squared_norms(rows: Tensor) -> Tensor:
    """Bounds the squared norms of rows from above, whatever the order in which a kernel sums.

    Args:
        rows: A float32 tensor (B, n).

    Returns:
        A float64 tensor (B,). It is at least the true squared norm less n times the smallest
        float32.
    """
    if rows.shape[1] <= NARROW:
        narrow: Tensor = torch.linalg.vector_norm(rows.double(), dim=1).square_().mul_(SQUARES)
        return narrow.where(narrow <= LARGEST, torch.inf)  # as it is where float32 sums
    whole = rows.shape[1] // BLOCK * BLOCK
    squares: Tensor = (
        torch.linalg.vector_norm(rows[:, :whole].reshape(len(rows), -1, BLOCK), dim=2)
        .double()
        .square_()
        .sum(1)
    )
    if whole < rows.shape[1]:
        squares += torch.linalg.vector_norm(rows[:, whole:], dim=1).double().square_()
    return squares.mul_(SQUARES)


def cover_cancellation(squares: Tensor, lengths: Tensor, terms: int) -> Tensor:
    """Adds to norms what rounding can hide where terms cancel.

    The norm becomes |sum| + k * sum of lengths, with k = max(COVER, 2 gamma_T) for T terms of
    float32 sums. So a clipped unit's terms have a summed length of at most C / k, which bounds the
    rounding of the float64 sum over units.

    Args:
        squares: The squared norms of the sums, as computed.
        lengths: The summed norms of the terms of each sum.
        terms: The number T of terms of each sum.

    Returns:
        The squares of the covered norms, in float64.
    """
    return (squares.double().sqrt() + max(COVER, 2 * gamma(terms)) * lengths.double()).square()
