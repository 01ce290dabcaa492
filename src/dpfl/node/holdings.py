"""What a client has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

ROWS = 256
"""Rows that are copied at a time to read all of a client's data."""


@dataclass(frozen=True)
class Holdings:
    """A client's rows of a larger (shared) data set."""

    x: Tensor
    y: Tensor
    rows: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        chosen = self.rows[batch]
        return self.x[chosen], self.y[chosen]


@dataclass(frozen=True)
class Questioned:
    """A client that is asked about what it has, beside what is public of it."""

    data: Holdings
    classes: int
    declared: int
    counted: Callable[[Tensor, Tensor, float], Tensor] | None = None
    """What a metric counts samples and labels with, under the model that is asked about, their losses up to a bound."""

    @property
    def labels(self) -> np.ndarray:
        return self.data.y[self.data.rows].long().numpy()

    @property
    def blocks(self) -> Iterator[Tensor]:
        return (self.data.x[part].flatten(1) for part in self.data.rows.split(ROWS))

    @property
    def features(self) -> int:
        return self.data.x[0].numel()

    def vectors(self, of: Callable[[Tensor, Tensor], Tensor]) -> Iterator[Tensor]:
        """What each sample is by a function of samples and labels, some at a time."""
        return (of(self.data.x[part], self.data.y[part]) for part in self.data.rows.split(ROWS))

    def measured(self, most: float) -> Iterator[Tensor]:
        counted = self.counted
        assert counted is not None
        return self.vectors(lambda x, y: counted(x, y, most))
