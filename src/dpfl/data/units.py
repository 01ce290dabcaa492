"""Units of several rows: all rows of one person at one client are one unit.

The vector of a unit is the mean over its rows.
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
    """The rows of a client, by person.

    Persons come in the order of their numbers, and the rows of one person in the client's order. So
    one person's part depends on that person's rows alone.

    Attributes:
        rows: The row numbers, person by person.
        sizes: The number of rows of each person.
    """

    rows: torch.Tensor
    sizes: torch.Tensor

    @classmethod
    def of(cls, rows: torch.Tensor, persons: torch.Tensor, most: int | None = None) -> UnitGroups:
        """Groups the rows of a client.

        Args:
            rows: The rows that the client holds.
            persons: The person of every row of the training set.
            most: The number of rows that count of each person, the first ones; by default all.

        Returns:
            The groups.

        Raises:
            DpflError: `most` is below 1.
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

    def take(self, units: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Finds the rows of some units.

        Args:
            units: The places of the units.

        Returns:
            The rows, and which of the given units each is of: 0, 1, 2, ..., ascending.
        """
        sizes = self.sizes[units]
        starts = self.sizes.cumsum(0)[units] - sizes
        group = torch.repeat_interleave(sizes)
        return self.rows[starts[group] + _places(sizes)], group

    def blocks(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Goes through all units, some at a time. A unit is never cut.

        Yields:
            The rows of some units, and which of these units each row is of.
        """
        ends = self.sizes.cumsum(0)
        first = 0
        while first < len(self):
            before = int(ends[first] - self.sizes[first])
            last = max(first + 1, int(torch.searchsorted(ends, before + ROWS, right=True)))
            yield self.take(torch.arange(first, last))
            first = last

    def means(self, of: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[torch.Tensor]:
        """Computes the mean over the rows of each unit, in float64, some units at a time.

        Args:
            of: Maps row numbers to values (rows, n).

        Yields:
            The means (units, n).
        """
        for rows, group in self.blocks():
            sizes = torch.bincount(group)
            total = torch.zeros(len(sizes), of(rows[:1]).shape[1], dtype=torch.float64)
            for part, whose in zip(rows.split(ROWS), group.split(ROWS), strict=True):
                total.index_add_(0, whose, of(part).double())
            yield total / sizes[:, None]


def _places(sizes: torch.Tensor) -> torch.Tensor:
    """Counts 0, 1, 2, ... within each unit."""
    starts = sizes.cumsum(0) - sizes
    return torch.arange(int(sizes.sum())) - torch.repeat_interleave(starts, sizes)
