"""Norms of sums of outer products over units of several rows, from a band of the Gram matrices of all rows.

|sum_i g_i x_i^T|^2 = sum_ij (g_i . g_j)(x_i . x_j), and the rows of a unit lie together: what is needed of the products of all
rows with all others are windows along the diagonal, which are read where the rows are, without padding any unit.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpfl.gradients.products import covering
from dpfl.gradients.scratch import empty, temporary

Array = np.ndarray[Any, Any]

# Rows whose products with the rows of a window are one matrix product.
_STEP = 4


class Band:
    """For rows of ascending units, `most` of one unit at most."""

    def __init__(self, group: Array, units: int, most: int) -> None:
        self.rows, self.units, self.most = len(group), units, most
        self._group = group
        self._window = most + _STEP - 1
        self._count = -(-self.rows // _STEP)
        own = np.full(self._count * _STEP + most - 1, units)
        own[: self.rows] = group
        seen = own[_STEP * np.arange(self._count)[:, None] + np.arange(self._window)][:, :, None]
        self._whose = np.where(seen == seen[:, :_STEP].transpose(0, 2, 1), seen, units).ravel()

    def squares(self, x: Tensor, g: Tensor) -> Tensor:
        """The squared norms (units,), from x (rows, in) and g (rows, out)."""
        pairs = self._gram(x).mul_(self._gram(g))
        lengths = pairs.diagonal(dim1=1, dim2=2).sqrt().view(-1)[: self.rows]
        # What is not of one unit is added up beyond the last: multiplied by 0, it might still not be finite.
        squares = _sums(self._whose, pairs.mul_(_counts(self._window)).view(-1), self.units + 1)[: self.units]
        return covering(squares.clamp_min_(0), _sums(self._group, lengths, self.units)).float()

    def _gram(self, values: Tensor) -> Tensor:
        """(windows, rows of a window, its first rows), in float64: products cancel."""
        width = values.shape[1]
        with temporary():
            room = empty(values, self._count * _STEP + self.most - 1, 2 * width).view(torch.float64)
            room[: self.rows] = values
            room[self.rows :] = 0
            windows = room.as_strided((self._count, self._window, width), (_STEP * width, width, 1), room.storage_offset())
            return torch.bmm(windows, windows[:, :_STEP].mT)


def _sums(whose: Array, values: Tensor, count: int) -> Tensor:
    return torch.from_numpy(np.bincount(whose, values.numpy(), count))


@lru_cache
def _counts(window: int) -> Tensor:
    """Pairs count twice, from their first row, and a row with itself once."""
    return torch.from_numpy(2 * np.tri(window, _STEP, -1) + np.eye(window, _STEP))
