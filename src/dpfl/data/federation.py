"""A federation: one training set, and which of its samples each client holds."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from dpfl.bad_values import require_whole
from dpfl.data.dataset import Array, Dataset, make_dataset, task_of
from dpfl.data.names import checked_names, client_names
from dpfl.data.population import Population
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.notebook_repr import NotebookView
from dpfl.tasks import Task

COUNTED = 1000
DIGESTED = 256
"""Rows that are copied at a time to digest them."""


@dataclass(frozen=True, eq=False)
class Federation(NotebookView, shown_by="partition_view"):
    """Clients (and held-out public clients) as disjoint index tensors into the training set, or as
    a population that is described instead, whose clients may share samples.

    `persons` and `test_persons` say whose each row is, where rows are of people. `private` is for
    the owner of the data alone: it is read off the data, so it is shown and never written. `names`
    are those of the clients' ledgers.
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
                "The persons of a federation are one int64 for each training row: correct them."
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
        named = [(f"client {number}", part) for number, part in enumerate(self.clients)]
        named += [(f"public client {number}", part) for number, part in enumerate(self.public)]
        for name, part in named:
            _check_part(name, part, len(self.train))
        _check_disjoint(named, len(self.train))

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
        """A federation of the user's own clients, each a pair (x, y), and a public test set (x, y),
        if there is one.

        The task is classes unless another is declared; their number is declared, or that of the
        test set.
        """
        if not parts:
            raise DpflError("The federation has no clients: give at least one pair (x, y).")
        known = task_of(name, task, classes, test=test[1] if test else None)
        held = [
            make_dataset(f"{name}, client {number}", x, y, known)
            for number, (x, y) in enumerate(parts)
        ]
        measured = make_dataset(name, *test, known) if test else None
        shape, whose = (
            (measured.shape, "test samples'") if measured else (held[0].shape, "first client's")
        )
        if odd := next((one.name for one in held if one.shape != shape), None):
            raise DpflError(
                f"The samples of {odd!r} do not have the {whose} shape {shape}: align them."
            )
        train = Dataset(
            name, torch.cat([one.x for one in held]), torch.cat([one.y for one in held]), known
        )
        ends = np.cumsum([0, *(len(one) for one in held)])
        clients = tuple(torch.arange(start, end) for start, end in pairwise(ends))
        return cls(train, measured, clients, names=tuple(names))

    def __repr__(self) -> str:
        """Sizes, never samples."""
        low, high = min(self.sizes), max(self.sizes)
        held = f"{low} samples each" if low == high else f"{low} to {high} samples"
        public = f", {len(self.public)} public clients" if self.public else ""
        clients = f"{len(self.clients)} clients with {held}{public}, by {self.how}"
        tested = f"{len(self.test)} test samples" if self.test else "no test set"
        return f"Federation({self.train.name!r}: {clients}; {tested})"

    @property
    def described(self) -> bool:
        return isinstance(self.clients, Population)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        if isinstance(self.clients, Population):
            return (self.clients.how.images,) * len(self.clients)
        return tuple(len(part) for part in self.clients)

    def counted(self, unit: str, parts: Sequence[torch.Tensor] | None = None) -> tuple[int, ...]:
        """The sizes of the clients (or of other parts) in units: persons, where these are
        protected, else samples.
        """
        if unit == "person":
            return tuple(map(self._persons_in, self.clients if parts is None else parts))
        return self.sizes if parts is None else tuple(map(len, parts))

    def _persons_in(self, rows: torch.Tensor) -> int:
        if self.persons is None:
            raise DpflError(
                "privacy.unit is 'person', but nobody said whose each row is: declare data.person, "
                "the column."
            )
        return len(torch.unique(self.persons[rows]))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.train.shape

    @property
    def task(self) -> Task:
        return self.train.task

    @property
    def classes(self) -> int:
        return self.train.classes

    def client(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The samples and labels that a client holds."""
        part = self.clients[number]
        return self.train.x[part], self.train.y[part]

    def label_counts(self) -> np.ndarray:
        """How many samples of each class each client holds: (clients, classes); of a population,
        the first 1,000.

        Where labels are no classes, one column: how many samples.
        """
        parts = self.clients[:COUNTED] if self.described else self.clients
        if not self.classes:
            return np.array([[len(part)] for part in parts])
        labels = self.train.y.numpy().astype(np.int64)
        return np.stack(
            [np.bincount(labels[part.numpy()], minlength=self.classes) for part in parts]
        )

    @cached_property
    def holdings(self) -> tuple[str, ...]:
        """A digest of each client's samples; it says something of them, so it stays where they
        are.
        """
        return () if self.described else tuple(_digest(self.train, part) for part in self.clients)

    @cached_property
    def public_holdings(self) -> tuple[str, ...]:
        return () if self.described else tuple(_digest(self.train, part) for part in self.public)

    def by_person(self, parts: Sequence[torch.Tensor]) -> tuple[str, ...]:
        """The same, with whose each sample is: a ledger for persons counts for these persons and no
        others.
        """
        assert self.persons is not None
        return tuple(_digest(self.train, part, self.persons) for part in parts)

    @cached_property
    def holding(self) -> str:
        """Of all of them, dealt as they are, in whatever order the clients are listed."""
        whole = (
            f"{self.train.sha256} {_written(self.clients)}"
            if self.described
            else " ".join(sorted(self.holdings))
        )
        return hashlib.sha256(whole.encode()).hexdigest()

    @cached_property
    def sha256(self) -> str:
        digest = hashlib.sha256(
            f"{self.train.sha256} {self.test.sha256 if self.test else ''}".encode()
        )
        if self.persons is not None:
            digest.update(b" persons ")
            digest.update(self.persons.contiguous().numpy().data)
            digest.update(f" {self.rows_per_person} ".encode())
        if self.described:
            digest.update(f"{_written(self.clients)} {_written(self.public)}".encode())
            return digest.hexdigest()
        for kind, parts in (("clients", self.clients), ("public", self.public)):
            digest.update(f" {kind} {[len(part) for part in parts]} ".encode())
            for part in parts:
                digest.update(part.contiguous().numpy().data)
        return digest.hexdigest()


def _written(clients: Any) -> str:
    """The fixed text of a population; `()` for no clients."""
    return clients.written if isinstance(clients, Population) else "()"


def _digest(train: Dataset, rows: torch.Tensor, persons: torch.Tensor | None = None) -> str:
    """Of the samples that a client holds, whatever their order in the lists; and of who has which,
    whatever their numbers.
    """
    digest, held = hashlib.sha256(f"{train.shape} {len(rows)}".encode()), rows.sort().values
    for tensor in (train.x, train.y):
        for part in held.split(DIGESTED):
            digest.update(tensor[part].contiguous().numpy().data)
    if persons is not None:
        digest.update(b" persons " + _by_appearance(persons[held].numpy()).tobytes())
    return digest.hexdigest()


def _by_appearance(numbers: np.ndarray) -> np.ndarray:
    """Persons as 0, 1, 2, ..., in the order in which they first come."""
    _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)


def _check_part(name: str, part: torch.Tensor, total: int) -> None:
    if part.dtype != torch.int64 or part.ndim != 1:
        raise DpflError(
            f"The indices of {name} are {part.dtype} of {part.ndim} dimensions: give one row of "
            "int64."
        )
    if len(part) < 2:
        held = "only one image" if len(part) else "no images"
        raise DpflError(
            f"There is {held} at {name}: ask for fewer clients, a larger minimum, or a milder "
            "partition."
        )
    if int(part.min()) < 0 or int(part.max()) >= total:
        raise DpflError(
            f"The indices of {name} leave the range 0 to {total - 1} of the training set: correct "
            "them."
        )


def _check_disjoint(named: list[tuple[str, torch.Tensor]], total: int) -> None:
    """A sample with two owners would be paid for by each of them alone, and its guarantee would be
    wrong.
    """
    taken = torch.zeros(total, dtype=torch.bool)
    for name, part in named:
        if bool(taken[part].any()) or len(torch.unique(part)) != len(part):
            raise DpflError(
                f"Some indices of {name} occur twice: every image must have one owner, who holds "
                "it once."
            )
        taken[part] = True
