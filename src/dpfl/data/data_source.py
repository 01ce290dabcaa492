"""A source: a training and a test set in one place, which can be spread over clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpfl.bad_values import require_whole
from dpfl.data.names import names_of_sites
from dpfl.data.partition import describe
from dpfl.data.partition_kinds import UNITS, Dirichlet, Partition
from dpfl.data.partition_traits import kind_of
from dpfl.data.population import Population, RandomClients
from dpfl.deprecation import keep_old_names
from dpfl.errors import DpflError
from dpfl.lazy_import import torch

if TYPE_CHECKING:
    from dpfl.data.federation import Federation


from dpfl.data.dataset import Dataset


@keep_old_names(owned="rows_by_owner")
@dataclass(frozen=True, eq=False)
class DataSource:
    """Training data in one place, and the public test data that everyone is measured on.

    It holds everyone's samples, so it is for simulations, and for an owner's own node.

    Attributes:
        train: The training set.
        test: The public test set, if there is one.
        rows_by_owner: The rows of each owner, where samples have owners of their own.
        persons: The number of the person that each training row is of.
        notes: What was changed or left out, for the record of a run.
        private: What the holder of the data should know, such as the number of clamped cells. It
            follows from the data, so it is shown and never written.
        test_persons: The number of the person that each test row is of.
        owners: The names of the owners, in the order of `rows_by_owner`.
        warnings: What a statement says about the persons behind the rows. It follows from what is
            declared.
    """

    train: Dataset
    test: Dataset | None
    rows_by_owner: tuple[torch.Tensor, ...] = ()
    persons: torch.Tensor | None = None
    notes: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    test_persons: torch.Tensor | None = None
    owners: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def by_owner(self, names: Sequence[str] = ()) -> Federation:
        """Makes every owner a client.

        Args:
            names: The clients' names. By default, the owners' own names, where they can be names of
                files.

        Returns:
            The federation.

        Raises:
            DpflError: The source does not say whose its samples are.
        """
        from dpfl.data.federation import Federation

        if not self.rows_by_owner:
            raise DpflError(
                f"The data {self.train.name!r} does not name the owner of each sample: declare "
                "data.site, or a partition."
            )
        return Federation(
            self.train,
            self.test,
            self.rows_by_owner,
            (),
            "site",
            self.notes,
            persons=self.persons,
            private=self.private,
            names=tuple(names) or names_of_sites(self.owners),
            test_persons=self.test_persons,
            warnings=self.warnings,
        )

    def __repr__(self) -> str:
        return f"Source(train={self.train!r}, test={self.test!r})"

    def _labels_for_partition(self, classes: bool) -> np.ndarray:
        """Returns the labels that a partition looks at."""
        task, labels = self.train.task, self.train.y.numpy()
        if classes and not task.classes:
            raise DpflError(
                f"Labels of the task {task.name!r} are not classes, so this partition cannot skew "
                "them: set data.partition = 'iid'."
            )
        return labels.astype(np.int64) if task.classes else labels

    def _deal(
        self, how: Partition, clients: int, seed: int
    ) -> tuple[Sequence[np.ndarray], tuple[str, ...]]:
        """Deals rows. Where rows are of people, it deals whole persons, each with the label of
        their first row.

        An explicit partition is the user's own word on every row.
        """
        kind = kind_of(how)
        labels, rng = self._labels_for_partition(kind.deals_by_class), np.random.default_rng(seed)
        if self.persons is None or kind.assigns_rows:
            parts, notes = how(labels, clients, rng)
            return parts, _with_unit(notes, "samples")
        _, first, person = np.unique(self.persons.numpy(), return_index=True, return_inverse=True)
        parts, notes = how(labels[first], clients, rng)
        owner = np.full(len(first), -1)
        for number, part in enumerate(parts):
            owner[part] = number
        rows = [np.flatnonzero(owner[person] == number) for number in range(clients)]
        return rows, _with_unit(notes, "persons")

    def split(
        self,
        clients: int = 10,
        how: Partition | RandomClients = Dirichlet(0.05),
        seed: int = 0,
        public_clients: int = 0,
        names: Sequence[str] = (),
    ) -> Federation:
        """Spreads the training data over clients.

        Args:
            clients: The number of clients.
            how: The partition, or how each client of a population draws its samples.
            seed: Seeds the partition.
            public_clients: How many parts more are made. They are held out as public clients.
            names: The clients' names. By default, those of an explicit partition.

        Returns:
            The federation.

        Raises:
            DpflError: The partition cannot be made of this data.
        """
        from dpfl.data.federation import Federation

        require_whole(seed, "seed", least=0)
        if seed >= 2**63:
            raise DpflError(f"A seed is a whole number from 0 to 2^63 - 1, not {seed}.")
        if clients < 1 or public_clients < 0:
            raise DpflError(
                f"Ask for at least 1 client and 0 public clients, not {clients} and "
                f"{public_clients}."
            )
        if isinstance(how, RandomClients):
            if public_clients:
                raise DpflError(
                    "Clients that are drawn share samples, so none of them can be public: set "
                    "public_clients to 0."
                )
            population = Population(
                how, self._labels_for_partition(how.beta is not None), range(clients), seed
            )
            return Federation(
                self.train,
                self.test,
                population,
                (),
                describe(how),
                self.notes,
                private=self.private,
            )
        parts, notes = self._deal(how, clients + public_clients, seed)
        indices = tuple(torch.from_numpy(np.sort(part).astype(np.int64)) for part in parts)
        notes = (*self.notes, *notes)
        if public_clients:
            notes = (
                *notes,
                f"clients {clients} to {len(parts) - 1} of the partition are held out as public",
            )
        return Federation(
            self.train,
            self.test,
            indices[:clients],
            indices[clients:],
            describe(how),
            notes,
            persons=self.persons,
            private=self.private,
            names=tuple(names) or kind_of(how).names[:clients],
            test_persons=self.test_persons,
            warnings=self.warnings,
        )


def _with_unit(notes: Sequence[str], unit_word: str) -> tuple[str, ...]:
    """Names in each note what was dealt."""
    return tuple(note.replace(UNITS, unit_word) for note in notes)
