"""Units of several rows: a person's gradient is the mean over their rows, clipped as one vector.

A chunk holds units with equally many rows. A unit of n rows is filled up to the next power of two
with rows that count 0. So the shape of everything that is computed for a unit depends on that unit
alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dpfl.gradients.unit_gradients import (
    UnitGradients,
    UnitIndex,
    empty_sum,
    from_rows,
    partial_sums,
    sum_rows,
)
from dpfl.privacy.mechanisms.clips.rounding import squared_norms

# Numbers of written-out gradients that may be held at a time.
_KEEP = 1 << 25


@dataclass(frozen=True)
class UnitRows:
    """The rows of a chunk, by unit.

    Attributes:
        per_unit: The number of rows of each unit. They follow one another.
        shares: The weight of each row in its unit: 1 / n for n true rows, 0 for a filler.
    """

    per_unit: int
    shares: Tensor

    def by_unit(self, values: Tensor) -> Tensor:
        """Groups values of rows by unit.

        Args:
            values: Values of the rows (rows, ...).

        Returns:
            The same as (units, per_unit, ...).
        """
        return values.unflatten(0, (-1, self.per_unit))

    def sum(self, values: Tensor) -> Tensor:
        """Sums values over the rows of each unit.

        Args:
            values: Values of the rows (rows, ...).

        Returns:
            The sums (units, ...).
        """
        return values if self.per_unit == 1 else self.by_unit(values).sum(1)

    def weigh(self, values: Tensor) -> Tensor:
        """Multiplies each row's values by its share.

        Args:
            values: Values of the rows (rows, ...).

        Returns:
            A tensor of the same shape.
        """
        return values * self.shares.view(-1, *[1] * (values.dim() - 1))

    def sum_over_rows(self, gradient: UnitGradients) -> UnitGradients:
        """Computes the gradients of units from those of rows.

        They are written out, so that exactly the numbers that are measured are summed.

        Args:
            gradient: The gradients of the rows, at whose outputs the shares are already applied.

        Returns:
            The gradients of the units.
        """
        count = len(self.shares) // self.per_unit

        def rows(units: slice) -> Tensor:
            first, last, _ = units.indices(count)
            return self.sum(gradient.rows(slice(first * self.per_unit, last * self.per_unit)))

        size = gradient.rows(slice(0, 1)).shape[1]
        if count * self.per_unit * size <= _KEEP:
            return from_rows(rows(slice(0, count)))
        step = max(1, _KEEP // (self.per_unit * size))
        blocks = [slice(start, min(start + step, count)) for start in range(0, count, step)]

        def weighted_sum(units: UnitIndex, weights: Tensor, out: Tensor | None = None) -> Tensor:
            whole = torch.zeros(count, dtype=torch.float64)
            whole[units] = weights
            total = (empty_sum(size) if out is None else out).zero_()
            for block in blocks:
                inside = whole[block].nonzero().flatten()
                if len(inside):
                    total += sum_rows(whole[block][inside], rows(block)[inside])
            return total

        squares = torch.cat([squared_norms(rows(block)) for block in blocks])
        return UnitGradients(
            squares, weighted_sum, rows, additions=len(blocks) + partial_sums(step)
        )
