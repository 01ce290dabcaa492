"""The data of each client, as rows and units.

The clients of one machine share two tensors, samples and labels. `ClientDatasets` says which rows
each client has, how many units it declared, and which rows belong to one person; `ClientDataset` is
one client's view of them. Training, private queries and digests all take a `ClientDataset`, so each
of them asks the same container what a unit is. Here a client has five rows of two persons:

    >>> rows, persons = torch.arange(5), torch.tensor([7, 7, 9, 9, 9])
    >>> data = ClientDataset(x, y, rows, declared_size=3, persons=UnitGroups.of(rows, persons))
    >>> len(data), data.declared_size
    (2, 3)
    >>> samples, labels, group = data.units(torch.tensor([1]))  # all rows of the second person
    >>> len(samples), group.tolist()
    (3, [0, 0, 0])

`len` is the true number of units, which is private. `declared_size` is what the client told the
server before training. Divisors, weights and accounting use the declared size, so that they reveal
nothing and do not change when one unit is added or removed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from dpfl.data.units import UnitGroups
from dpfl.lazy_import import torch
from dpfl.privacy.units import protects_person

if TYPE_CHECKING:
    from torch import Tensor

    from dpfl.data.federation import Federation
    from dpfl.data.held_out import HeldOutSplit

ROWS = 256
"""Rows that are copied at a time to read all of a client's data."""

SHARES = 1 << 32
"""Parts of one person. What each row counts is rounded down to whole parts, so sums are exact."""


@dataclass(frozen=True)
class ClientDataset:
    """One client's rows of a larger data set; a unit is a row, or all rows of one person.

    Attributes:
        x: Samples of the larger data set, which may lie in shared memory.
        y: Their labels.
        rows: The client's rows.
        declared_size: How many units the client declared; public, and not always the true number.
        persons: The rows grouped by person, where a unit is a person.
        classes: The number of classes, for queries about labels.
        outcomes: What a metric counts samples with under the model that is asked about: samples,
            labels and the largest loss to (rows, width).
    """

    x: Tensor
    y: Tensor
    rows: Tensor
    declared_size: int
    persons: UnitGroups | None = None
    classes: int = 0
    outcomes: Callable[[Tensor, Tensor, float], Tensor] | None = None

    def __len__(self) -> int:
        """Counts the true number of units, which never leaves the client."""
        return len(self.rows) if self.persons is None else len(self.persons)

    @property
    def as_rows(self) -> ClientDataset:
        """The same rows, each a unit by itself, for training whose guarantee is not for persons."""
        return self if self.persons is None else replace(self, persons=None)

    def take(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        """Looks up rows.

        Args:
            batch: Positions in the client's own list of rows.

        Returns:
            Samples and labels.
        """
        rows = self.rows[batch]
        return self.x[rows], self.y[rows]

    def units(self, batch: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Looks up units.

        Args:
            batch: Positions of the units.

        Returns:
            Samples, labels, and for each row the unit of the batch that it belongs to; None in its
            place where each row is a unit.
        """
        if self.persons is None:
            return *self.take(batch), None
        rows, group = self.persons.take(batch)
        return self.x[rows], self.y[rows], group

    @property
    def counts(self) -> np.ndarray:
        """Counts the units of each class. A person counts for each class by its share of their
        rows, so one unit adds at most 1 to the norm.
        """
        labels = self.y.long()
        if self.persons is None:
            return np.bincount(labels[self.rows].numpy(), minlength=self.classes)
        total = torch.zeros(self.classes, dtype=torch.int64)
        for rows, group in self.persons.blocks():
            total.index_add_(0, labels[rows], SHARES // torch.bincount(group)[group])
        return total.numpy() / SHARES

    @property
    def blocks(self) -> Iterator[Tensor]:
        """Yields the units as vectors (units, features), some at a time."""
        return self.vectors(lambda x, y: x.flatten(1))

    @property
    def features(self) -> int:
        """How many numbers a sample has."""
        return self.x[0].numel()

    def vectors(self, of: Callable[[Tensor, Tensor], Tensor]) -> Iterator[Tensor]:
        """Maps every unit to a vector.

        Args:
            of: Maps samples and labels to one vector per row.

        Returns:
            The vectors (units, n), some at a time. A person's vector is the mean over their rows.
        """
        x, y = self.x, self.y
        if self.persons is not None:
            return self.persons.means(lambda rows: of(x[rows], y[rows]))
        return (of(x[part], y[part]) for part in self.rows.split(ROWS) if len(part))

    def metric_terms(self, most: float) -> Iterator[Tensor]:
        """Maps every unit to what a metric counts it with, under the model that is asked about.

        Args:
            most: The largest loss that counts.

        Returns:
            The vectors (units, n), some at a time.
        """
        outcomes = self.outcomes
        assert outcomes is not None
        return self.vectors(lambda x, y: outcomes(x, y, most))

    def digest(self) -> str:
        """Computes a digest of the client's samples, labels and persons.

        Returns:
            The digest in hexadecimal; it names releases, and never leaves the client by itself.
        """
        digest = hashlib.sha256()
        for tensor in (self.x, self.y):
            for rows in self.rows.split(ROWS):
                digest.update(tensor[rows].contiguous().numpy().data)
        if self.persons is not None:
            rows, sizes = self.persons.rows.numpy(), self.persons.sizes.numpy()
            digest.update(b" persons " + rows.tobytes() + sizes.tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class ClientDatasets:
    """The data of all clients of one machine, by their numbers.

    Attributes:
        x: Samples of all clients.
        y: Their labels.
        rows: For each client the rows that it trains on.
        declared_sizes: For each client how many units it declared that it trains on.
        unit_ids: For each row of `x` the number of its person, where a unit is a person.
        rows_per_person: How many rows of each person count, the first ones; None for all.
        evaluation_rows: For each client the rows that it keeps out of training, to measure on.
        evaluation_sizes: For each client how many units it declared that these are.
    """

    x: Tensor
    y: Tensor
    rows: Sequence[Tensor]
    declared_sizes: Sequence[int]
    unit_ids: Tensor | None = None
    rows_per_person: int | None = None
    evaluation_rows: Sequence[Tensor] = ()
    evaluation_sizes: Sequence[int] = ()
    _persons: dict[tuple[str, int], UnitGroups] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def of(
        cls, federation: Federation, split: HeldOutSplit, unit: str, x: Tensor | None = None
    ) -> ClientDatasets:
        """Collects the data of a federation that lies on this machine.

        Args:
            federation: The clients, and the public clients.
            split: The rows that each client trains on, and those that it measures on.
            unit: What the run protects; rows are grouped by person where it is "person".
            x: Samples in the place of the federation's, such as fixed features of them.

        Returns:
            The data of all clients, public clients last.
        """
        rows: Sequence[Tensor] = federation.clients
        if not federation.described:
            rows = (*split.training_rows, *federation.public)
        return cls(
            federation.train.x if x is None else x,
            federation.train.y,
            rows,
            (*split.sizes, *federation.count_units(unit, federation.public)),
            federation.persons if protects_person(unit) else None,
            federation.rows_per_person,
            split.held_out_rows,
            split.held_out_sizes,
        )

    def training(self, client: int) -> ClientDataset:
        """Finds the data that a client trains on.

        Args:
            client: The client's number.

        Returns:
            The client's data.
        """
        return self._dataset("training", client, self.rows[client], self.declared_sizes[client])

    def evaluation(self, client: int) -> ClientDataset:
        """Finds the data that a client measures a model on.

        Args:
            client: The client's number.

        Returns:
            What it keeps out of training; where it keeps nothing, what it trains on.
        """
        if not self.evaluation_rows:
            return self.training(client)
        rows, declared_size = self.evaluation_rows[client], self.evaluation_sizes[client]
        return self._dataset("evaluation", client, rows, declared_size)

    def _dataset(self, part: str, client: int, rows: Tensor, declared_size: int) -> ClientDataset:
        persons = None
        if self.unit_ids is not None:
            if (part, client) not in self._persons:
                groups = UnitGroups.of(rows, self.unit_ids, self.rows_per_person)
                self._persons[part, client] = groups
            persons = self._persons[part, client]
        return ClientDataset(self.x, self.y, rows, declared_size, persons)
