"""Whose each row is: the rows of one person at one client are one unit, whose vector is the mean
over them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dpfl.errors import DpflError
from dpfl.lazy_import import torch

ROWS = 256
"""Rows that are copied at a time to read all of them."""


@dataclass(frozen=True, eq=False)
class UnitGroups:
    """The rows of a client by person, 0, 1, 2, ... in the order of the persons' numbers; each one's
    in the client's order.

    What is one person's here depends on that person's rows alone.
    """

    rows: torch.Tensor
    sizes: torch.Tensor

    @classmethod
    def of(cls, rows: torch.Tensor, persons: torch.Tensor, most: int | None = None) -> UnitGroups:
        """From the rows that a client holds and the persons of all rows; of each person the first
        `most` rows.
        """
        if most is not None and most < 1:
            raise DpflError(f"data.rows_per_person is at least 1, not {most}.")
        numbers = persons[rows]
        order = torch.argsort(numbers, stable=True)
        sizes = torch.unique_consecutive(numbers[order], return_counts=True)[1]
        if most is not None:
            order = order[_places(sizes) < most]
            sizes = sizes.clamp(max=most)
        return cls(rows[order], sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, drawn: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows of the units that were drawn, and which of the drawn ones each is of: 0, 1, 2,
        ..., ascending.
        """
        sizes = self.sizes[drawn]
        starts = self.sizes.cumsum(0)[drawn] - sizes
        group = torch.repeat_interleave(sizes)
        return self.rows[starts[group] + _places(sizes)], group

    def blocks(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """All units, some at a time: their rows, and which of these units each is of. A unit is
        never cut.
        """
        ends = self.sizes.cumsum(0)
        first = 0
        while first < len(self):
            before = int(ends[first] - self.sizes[first])
            last = max(first + 1, int(torch.searchsorted(ends, before + ROWS, right=True)))
            yield self.take(torch.arange(first, last))
            first = last

    def means(self, of: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[torch.Tensor]:
        """For each person, some at a time, the float64 mean (units, n) over their rows of `of`: row
        numbers to (rows, n).
        """
        for rows, group in self.blocks():
            sizes = torch.bincount(group)
            total = torch.zeros(len(sizes), of(rows[:1]).shape[1], dtype=torch.float64)
            for part, whose in zip(rows.split(ROWS), group.split(ROWS), strict=True):
                total.index_add_(0, whose, of(part).double())
            yield total / sizes[:, None]


def _places(sizes: torch.Tensor) -> torch.Tensor:
    """0, 1, 2, ... within each unit."""
    starts = sizes.cumsum(0) - sizes
    return torch.arange(int(sizes.sum())) - torch.repeat_interleave(starts, sizes)
