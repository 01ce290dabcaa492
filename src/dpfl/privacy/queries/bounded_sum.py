"""Sums of vectors, each scaled down to a bound: the part of a query that sets its sensitivity."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.privacy.mechanisms.clips.clip import MARGIN

if TYPE_CHECKING:
    from torch import Tensor


def bounded_sum(vectors: Iterable[Tensor], width: int, bound: float) -> Tensor:
    """Sums the units' vectors, each scaled down to the bound.

    Args:
        vectors: Rows (units, width), some at a time.
        width: The length of a row.
        bound: The largest norm S of a row.

    Returns:
        The sum in float64. One unit moves it by at most S.

    Raises:
        DpflError: If a row has another length. Broadcasting would repeat it, and the noise covers
            each number once.
    """
    total = torch.zeros(width, dtype=torch.float64)
    for rows in vectors:
        if rows.shape[1:] != total.shape:
            raise DpflError(
                f"A sample counts with {rows[:1].numel()} numbers here, not with {width}."
            )
        total += scale_down(rows, bound).sum(0)
    return total


def scale_down(rows: Tensor, bound: float) -> Tensor:
    """Scales rows down to a norm: x min(1, S (1 - MARGIN) / |x|).

    In float64 a row's result differs between batches by about 1e-16 at most, which the margin
    covers.

    Args:
        rows: Rows (units, n).
        bound: The largest norm S of a row.

    Returns:
        The rows in float64. A row that is not finite becomes 0.
    """
    rows = rows.double()
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    factors = (bound * (1 - MARGIN) / norms).clamp(max=1.0)
    return torch.where(torch.isfinite(norms), rows * factors, 0.0)
