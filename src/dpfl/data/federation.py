"""A federation: one training set, and which of its samples each client has.

In a simulation one process has all data, so a client is a tensor of indices into the training set.
Every sample has one owner at most: a sample at two clients would be paid for by each ledger alone,
and its guarantee would be wrong. A population (`population.py`) is the exception. Its clients are
described and may share samples, so its unit can only be a client. Over nodes, the server has a
`RemoteFederation` (`remote_federation.py`): names, declared sizes and the form of a sample, and no
data.

`persons` says to whom each row belongs, which matters where the unit is a person. Then all rows of
one person at one client are one unit (`units.py`). A person with rows at two clients is one unit at
each.

A ledger is bound to the samples that it pays for. `client_digests` are digests of each client's
samples, independent of their order. A digest says something of the samples, so it stays with their
owner.

    >>> x, y = torch.randn(1000, 4), torch.arange(1000) % 2
    >>> federation = Federation.from_tensors([(x[:600], y[:600]), (x[600:], y[600:])], classes=2)
    >>> federation.sizes
    (600, 400)
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from dpfl.bad_values import require_whole
from dpfl.data.dataset import Array, Dataset, make_dataset
from dpfl.data.declared_task import task_of
from dpfl.data.names import checked_names, client_names
from dpfl.data.population import Population
from dpfl.deprecation import keep_old_names
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.notebook_repr import NotebookView
from dpfl.tasks import Task

CLIENTS_COUNTED = 1000
ROWS_DIGESTED = 256
"""Rows that are copied at a time to digest them."""


@keep_old_names(
    counted="count_units",
    holding="pooled_digest",
    holdings="client_digests",
    public_holdings="public_client_digests",
)
@dataclass(frozen=True, eq=False)
class Federation(NotebookView, shown_by="federation_page"):
    """Clients, and held-out public clients, as disjoint index tensors into one training set.

    Attributes:
        train: The training set of all clients.
        test: The public test set, if there is one.
        clients: The rows of each client, or a population whose clients are described instead.
        public: The rows of each held-out public client.
        how: How the samples were dealt, as an experiment writes it.
        notes: What was changed or left over, for the record of a run.
        persons: The number of the person that each training row is of.
        private: What the holder of the data should know. It follows from the data, so it is shown
            and never written.
        names: The names of the clients, and of their ledgers.
        test_persons: The number of the person that each test row is of.
        rows_per_person: How many rows of each person count, the first ones; by default all.
        warnings: What a statement of the unit says of the data. It follows from what is declared.
    """

    train: Dataset
    test: Dataset | None
    clients: Sequence[torch.Tensor]
    public: Sequence[torch.Tensor] = ()
    how: str = "own"
    notes: tuple[str, ...] = ()
    persons: torch.Tensor | None = None
    private: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    test_persons: torch.Tensor | None = None
    rows_per_person: int | None = None
    """How many rows count where the unit is a person: the first ones. By default all."""
    warnings: tuple[str, ...] = ()
    """What a statement of the unit has to say of the data; read off what is declared, never off the
    data.
    """

    def __post_init__(self) -> None:
        if self.test and (self.train.shape != self.test.shape or self.train.task != self.test.task):
            raise DpflError(
                f"Training samples are {self.train.shape} for {self.train.task}, test samples "
                f"{self.test.shape} for "
                f"{self.test.task}: give both the same shape and classes."
            )
        if not self.clients:
            raise DpflError("The federation has no clients: give at least one.")
        if self.persons is not None and (
            self.persons.dtype != torch.int64 or self.persons.shape != self.train.y.shape[:1]
        ):
            raise DpflError(
                "A federation needs one int64 per training row to name persons: correct them."
            )
        if self.rows_per_person is not None:
            require_whole(self.rows_per_person, "data.rows_per_person", least=1)
        if self.described:
            return
        names = (
            checked_names(self.names, len(self.clients))
            if self.names
            else client_names(len(self.clients))
        )
        object.__setattr__(self, "names", names)
        named_parts = [(f"client {number}", part) for number, part in enumerate(self.clients)]
        named_parts += [
            (f"public client {number}", part) for number, part in enumerate(self.public)
        ]
        for name, part in named_parts:
            _check_part(name, part, len(self.train))
        _check_disjoint(named_parts, len(self.train))

    @classmethod
    def from_tensors(
        cls,
        parts: Sequence[tuple[Array, Array]],
        test: tuple[Array, Array] | None = None,
        name: str = "own",
        classes: int | None = None,
        names: Sequence[str] = (),
        task: Task | str | None = None,
    ) -> Federation:
        """Makes a federation of the user's own clients.

        Args:
            parts: A pair (x, y) for each client.
            test: A public test set (x, y).
            name: The name of the data.
            classes: The declared number of classes; by default that of the test set.
            names: The clients' names.
            task: A task or its name; by default, labels are classes.

        Returns:
            The federation.

        Raises:
            DpflError: There is no client, or the clients' samples do not have one shape.
        """
        if not parts:
            raise DpflError("The federation has no clients: give at least one pair (x, y).")
        task = task_of(name, task, classes, test=test[1] if test else None)
        sets = [
            make_dataset(f"{name}, client {number}", x, y, task)
            for number, (x, y) in enumerate(parts)
        ]
        test_set = make_dataset(name, *test, task) if test else None
        shape, whose = (
            (test_set.shape, "test samples'") if test_set else (sets[0].shape, "first client's")
        )
        if odd := next((dataset.name for dataset in sets if dataset.shape != shape), None):
            raise DpflError(
                f"The samples of {odd!r} do not have the {whose} shape {shape}: align them."
            )
        train = Dataset(
            name,
            torch.cat([dataset.x for dataset in sets]),
            torch.cat([dataset.y for dataset in sets]),
            task,
        )
        ends = np.cumsum([0, *(len(dataset) for dataset in sets)])
        clients = tuple(torch.arange(start, end) for start, end in pairwise(ends))
        return cls(train, test_set, clients, names=tuple(names))

    def __repr__(self) -> str:
        """Shows sizes, never samples."""
        low, high = min(self.sizes), max(self.sizes)
        sizes = f"{low} samples each" if low == high else f"{low} to {high} samples"
        public = f", {len(self.public)} public clients" if self.public else ""
        clients = f"{len(self.clients)} clients with {sizes}{public}, by {self.how}"
        test_text = f"{len(self.test)} test samples" if self.test else "no test set"
        return f"Federation({self.train.name!r}: {clients}; {test_text})"

    @property
    def described(self) -> bool:
        """Whether the clients are a population, described and not held."""
        return isinstance(self.clients, Population)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of samples of each client."""
        if isinstance(self.clients, Population):
            return (self.clients.how.images,) * len(self.clients)
        return tuple(len(part) for part in self.clients)

    def count_units(
        self, unit: str, parts: Sequence[torch.Tensor] | None = None
    ) -> tuple[int, ...]:
        """Counts the units of each client.

        Args:
            unit: What is protected: "person", or anything else for samples.
            parts: Other parts than the clients.

        Returns:
            The number of persons, or of samples, of each part.

        Raises:
            DpflError: The unit is a person, and no persons are declared.
        """
        if unit == "person":
            return tuple(map(self._persons_in, self.clients if parts is None else parts))
        return self.sizes if parts is None else tuple(map(len, parts))

    def _persons_in(self, rows: torch.Tensor) -> int:
        if self.persons is None:
            raise DpflError(
                "privacy.unit is 'person', but data.person is not declared: name the column that "
                "says to whom each row belongs."
            )
        return len(torch.unique(self.persons[rows]))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self.train.shape

    @property
    def task(self) -> Task:
        """What is predicted."""
        return self.train.task

    @property
    def classes(self) -> int:
        """The number of classes; 0 where labels are no classes."""
        return self.train.classes

    def client(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Reads the samples and labels of one client.

        Args:
            number: The client's place in `clients`.

        Returns:
            x and y.
        """
        part = self.clients[number]
        return self.train.x[part], self.train.y[part]

    def label_counts(self) -> np.ndarray:
        """Counts how many samples of each class each client has.

        Returns:
            Counts (clients, classes); of a population, those of the first 1,000 clients. Where
            labels are no classes, one column: the number of samples.
        """
        parts = self.clients[:CLIENTS_COUNTED] if self.described else self.clients
        if not self.classes:
            return np.array([[len(part)] for part in parts])
        labels = self.train.y.numpy().astype(np.int64)
        return np.stack(
            [np.bincount(labels[part.numpy()], minlength=self.classes) for part in parts]
        )

    @cached_property
    def client_digests(self) -> tuple[str, ...]:
        """A digest of each client's samples. It says something of them, so it stays where they
        are.
        """
        return () if self.described else tuple(_digest(self.train, part) for part in self.clients)

    @cached_property
    def public_client_digests(self) -> tuple[str, ...]:
        """A digest of each public client's samples."""
        return () if self.described else tuple(_digest(self.train, part) for part in self.public)

    def by_person(self, parts: Sequence[torch.Tensor]) -> tuple[str, ...]:
        """Computes digests of the samples, and of the person of each.

        A ledger for persons counts for these persons and no others.

        Args:
            parts: The rows of each client.

        Returns:
            The digests.
        """
        assert self.persons is not None
        return tuple(_digest(self.train, part, self.persons) for part in parts)

    @cached_property
    def pooled_digest(self) -> str:
        """A digest of all clients' samples, dealt as they are, whatever the order of the
        clients.
        """
        whole = (
            f"{self.train.sha256} {_population_text(self.clients)}"
            if self.described
            else " ".join(sorted(self.client_digests))
        )
        return hashlib.sha256(whole.encode()).hexdigest()

    @cached_property
    def sha256(self) -> str:
        """A digest of the whole federation: training and test data, persons, and who holds which
        rows.
        """
        digest = hashlib.sha256(
            f"{self.train.sha256} {self.test.sha256 if self.test else ''}".encode()
        )
        if self.persons is not None:
            digest.update(b" persons ")
            digest.update(self.persons.contiguous().numpy().data)
            digest.update(f" {self.rows_per_person} ".encode())
        if self.described:
            digest.update(
                f"{_population_text(self.clients)} {_population_text(self.public)}".encode()
            )
            return digest.hexdigest()
        for kind, parts in (("clients", self.clients), ("public", self.public)):
            digest.update(f" {kind} {[len(part) for part in parts]} ".encode())
            for part in parts:
                digest.update(part.contiguous().numpy().data)
        return digest.hexdigest()


def _population_text(clients: Any) -> str:
    """Returns the fixed text of a population; `()` for no clients."""
    return clients.canonical_text if isinstance(clients, Population) else "()"


def _digest(train: Dataset, rows: torch.Tensor, persons: torch.Tensor | None = None) -> str:
    """Computes a digest of a client's samples, whatever their order in the lists.

    With persons, also of who has which samples, whatever the persons' numbers.
    """
    digest = hashlib.sha256(f"{train.shape} {len(rows)}".encode())
    rows = rows.sort().values
    for tensor in (train.x, train.y):
        for part in rows.split(ROWS_DIGESTED):
            digest.update(tensor[part].contiguous().numpy().data)
    if persons is not None:
        digest.update(b" persons " + _by_appearance(persons[rows].numpy()).tobytes())
    return digest.hexdigest()


def _by_appearance(numbers: np.ndarray) -> np.ndarray:
    """Numbers persons as 0, 1, 2, ..., in the order in which they first occur."""
    _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)


def _check_part(name: str, part: torch.Tensor, total: int) -> None:
    if part.dtype != torch.int64 or part.ndim != 1:
        raise DpflError(
            f"The indices of {name} are {part.dtype} of {part.ndim} dimensions: give one row of "
            "int64."
        )
    if len(part) < 2:
        size = "only one image" if len(part) else "no images"
        raise DpflError(
            f"There is {size} at {name}: ask for fewer clients, a larger minimum, or a milder "
            "partition."
        )
    if int(part.min()) < 0 or int(part.max()) >= total:
        raise DpflError(
            f"The indices of {name} leave the range 0 to {total - 1} of the training set: correct "
            "them."
        )


def _check_disjoint(named_parts: list[tuple[str, torch.Tensor]], total: int) -> None:
    """Checks that each sample has one owner. With two owners, each would pay for it alone, and its
    guarantee would be wrong.
    """
    is_occupied = torch.zeros(total, dtype=torch.bool)
    for name, part in named_parts:
        if bool(is_occupied[part].any()) or len(torch.unique(part)) != len(part):
            raise DpflError(
                f"Some indices of {name} occur twice: every image must have one owner, who holds "
                "it once."
            )
        is_occupied[part] = True
