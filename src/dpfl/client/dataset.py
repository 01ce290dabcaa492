"""What a client has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpfl.lazy_import import torch

if TYPE_CHECKING:
    from torch import Tensor

    from dpfl.data.units import UnitGroups

ROWS = 256
"""Rows that are copied at a time to read all of a client's data."""


SHARES = 1 << 32
"""Parts of one person: what each row counts is rounded down to whole ones, so that sums are
exact.
"""


@dataclass(frozen=True)
class ClientDataset:
    """A client's rows of a larger (shared) data set; with `persons`, all of one person's are one
    unit.
    """

    x: Tensor
    y: Tensor
    rows: Tensor
    persons: UnitGroups | None = None

    def __len__(self) -> int:
        """Of units: rows, or persons."""
        return len(self.rows) if self.persons is None else len(self.persons)

    @property
    def as_rows(self) -> ClientDataset:
        """The same rows, each by itself: for training whose guarantee does not depend on whose they
        are.
        """
        return ClientDataset(self.x, self.y, self.rows)

    def take(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        chosen = self.rows[batch]
        return self.x[chosen], self.y[chosen]

    def units(self, batch: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """The rows of the units that were drawn; with persons, also which of the drawn ones each
        row is of.
        """
        if self.persons is None:
            return *self.take(batch), None
        chosen, group = self.persons.take(batch)
        return self.x[chosen], self.y[chosen], group


@dataclass(frozen=True)
class QueryData:
    """A client that is asked about what it has, beside what is public of it. A person answers with
    the mean of their rows.
    """

    data: ClientDataset
    classes: int
    declared: int
    counted: Callable[[Tensor, Tensor, float], Tensor] | None = None
    """What a metric counts samples and labels with, under the model that is asked about, their
    losses up to a bound.
    """

    @property
    def counts(self) -> np.ndarray:
        """How many units are of each class; a person with several is of each by its share of their
        rows.
        """
        labels, persons = self.data.y.long(), self.data.persons
        if persons is None:
            return np.bincount(labels[self.data.rows].numpy(), minlength=self.classes)
        total = torch.zeros(self.classes, dtype=torch.int64)
        for rows, group in persons.blocks():
            total.index_add_(0, labels[rows], SHARES // torch.bincount(group)[group])
        return total.numpy() / SHARES

    @property
    def blocks(self) -> Iterator[Tensor]:
        return self.vectors(lambda x, y: x.flatten(1))

    @property
    def features(self) -> int:
        return self.data.x[0].numel()

    def vectors(self, of: Callable[[Tensor, Tensor], Tensor]) -> Iterator[Tensor]:
        """What each unit is by a function of samples and labels, some at a time; of a person, the
        mean over their rows.
        """
        x, y, persons = self.data.x, self.data.y, self.data.persons
        if persons is not None:
            return persons.means(lambda rows: of(x[rows], y[rows]))
        return (of(x[part], y[part]) for part in self.data.rows.split(ROWS) if len(part))

    def measured(self, most: float) -> Iterator[Tensor]:
        counted = self.counted
        assert counted is not None
        return self.vectors(lambda x, y: counted(x, y, most))
