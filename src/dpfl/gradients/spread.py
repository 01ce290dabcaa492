"""Units of several rows: a person's gradient is the mean over their rows, and is clipped as one vector.

A pass weighs each row by 1 / (rows of its unit), so that the gradient of a unit is the sum over its rows. Where a layer has
places, the rows of a unit are places of one sample; where its gradients are outer products, norms come from a band of Gram
matrices; elsewhere gradients are written out, some at a time, and summed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from dpfl.gradients.band import Array, Band
from dpfl.gradients.products import SampleGradient, compared, covering, outer_products, squares_of

_PADDING = 3
"""A chunk may be padded to this many times its rows."""


@dataclass(frozen=True, eq=False)
class Spread:
    """How many rows each unit of a chunk has, which lie together, and how many rows may be written out at a time.

    The rows of a unit are counted in numpy, whose small operations cost a fifth of torch's.
    """

    sizes: Array
    block: int

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def group(self) -> Array:
        """Which unit each row is of: 0, 1, 2, ..., ascending."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @cached_property
    def single(self) -> bool:
        """Whether every row is a unit of its own."""
        return len(self.sizes) == len(self.group)

    @cached_property
    def most(self) -> int:
        return int(self.sizes.max())

    @cached_property
    def whose(self) -> Tensor:
        return torch.from_numpy(self.group)

    @cached_property
    def shares(self) -> Tensor:
        """1 / n for each row of a unit of n."""
        return torch.from_numpy((1 / self.sizes).astype(np.float32)[self.group])

    @cached_property
    def ends(self) -> Array:
        return self.sizes.cumsum()

    @cached_property
    def places_within(self) -> Array:
        """0, 1, 2, ... for the rows of each unit."""
        return np.arange(len(self.group)) - (self.ends - self.sizes)[self.group]

    @cached_property
    def _filled(self) -> tuple[Tensor, Tensor]:
        """A row of its own for every place of a unit, and 0 where it stands for none."""
        place = np.arange(self.most)
        within = np.minimum(place, self.sizes[:, None] - 1) + (self.ends - self.sizes)[:, None]
        return torch.from_numpy(within.ravel()), torch.from_numpy((place < self.sizes[:, None]).astype(np.float32).ravel())

    @cached_property
    def band(self) -> Band:
        return Band(self.group, len(self), self.most)

    @property
    def even(self) -> bool:
        return len(self) * self.most == len(self.group)

    def filled(self, values: Tensor) -> Tensor:
        """Rows (rows, ...) as (units, largest, ...); where a unit has fewer, its last row again."""
        full = values if self.even else values.index_select(0, self._filled[0])
        return full.reshape(len(self), self.most, *values.shape[1:])

    def padded(self, values: Tensor) -> Tensor:
        """The same, with zeros where a unit has fewer rows."""
        full = self.filled(values)
        return full if self.even else full.mul_(self._filled[1].view(len(self), self.most, *[1] * (values.dim() - 1)))

    def sums(self, rows: Tensor) -> Tensor:
        """The sum (units, n) of the rows of each unit."""
        return rows if self.single else rows.new_zeros(len(self), *rows.shape[1:]).index_add_(0, self.whose, rows)

    def one(self, unit: int) -> tuple[slice, Spread]:
        """A unit by itself: its rows."""
        rows = slice(int(self.ends[unit] - self.sizes[unit]), int(self.ends[unit]))
        return rows, Spread(self.sizes[unit : unit + 1], self.block)

    def _blocks(self) -> list[slice]:
        """Units, some at a time, with no more rows than may be written out, or one unit."""
        found, first = [], 0
        while first < len(self):
            before = int(self.ends[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(self.ends, before + self.block, side="right")))
            found.append(slice(first, last))
            first = last
        return found

    def _written(self, of_rows: Callable[[slice], Tensor], units: slice) -> Tensor:
        """The gradients of these units, from those of their rows."""
        first, last, _ = units.indices(len(self))
        rows = slice(int(self.ends[first - 1]) if first else 0, int(self.ends[last - 1]))
        return Spread(self.sizes[first:last], self.block).sums(of_rows(rows))

    def summed(self, gradient: SampleGradient) -> SampleGradient:
        """The gradients of units, from those of rows, which may cancel within a unit and are rounded in the sum of all."""
        squares = torch.cat([squares_of(self._written(gradient.rows, units)) for units in self._blocks()])
        return SampleGradient(
            covering(squares, self.sums(gradient.squares.sqrt())),
            lambda weights: gradient.weighted(weights[self.whose]),
            lambda units: self._written(gradient.rows, units),
        )

    def outer(self, x: Tensor, g: Tensor) -> SampleGradient:
        """Gradients of units g^T x, from x (rows, in) and g (rows, out): norms by the band, sums by one product of all rows."""
        return SampleGradient(
            self.band.squares(x, g),
            lambda weights: ((g * weights[self.whose].unsqueeze(1)).T @ x).flatten(),
            lambda units: self._written(lambda rows: outer_products(x[rows], g[rows]), units),
        )

    def banded(self, height: int, width: int) -> bool:
        return compared(len(self.group) * self.most, len(self), height, width)


def chunk_of(sizes: Array, most: int, largest: int) -> int:
    """How many of the first units are taken together: at least one, else as many as have `most` rows, are alike enough to be
    padded, and have no more rows than the `largest` that is not taken alone."""
    if sizes.sum() <= most and alike(sizes, largest):
        return len(sizes)
    ends, longest = sizes.cumsum(), np.maximum.accumulate(sizes)
    fits = (ends <= most) & (np.arange(1, len(sizes) + 1) * longest <= _PADDING * ends) & (longest <= largest)
    return max(1, int(fits.nonzero()[0].max(initial=0)) + 1)


def alike(sizes: Array, largest: int) -> bool:
    """Whether units are taken as they come, and not by their sizes."""
    longest = int(sizes.max(initial=0))
    return longest <= largest and len(sizes) * longest <= _PADDING * int(sizes.sum())
