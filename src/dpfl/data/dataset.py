"""A data set, and a source: the pair of a training and a test set that can be spread over
clients.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dpfl import tasks
from dpfl.bad_values import require_whole
from dpfl.data.names import names_of_sites
from dpfl.data.partition import describe
from dpfl.data.partition_kinds import Dirichlet, Partition, deals_by_class
from dpfl.data.population import Population, RandomClients
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.tasks import MultiClass, Task
from dpfl.tasks.task import between, whole

if TYPE_CHECKING:
    from dpfl.data.federation import Federation
    from dpfl.data.tables.schema import FeatureLayout, Schema


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples and their labels. Whoever has this object sees all of them.

    Attributes:
        name: The name of the data.
        x: The samples (n, ...): float32, or int64 where samples are tokens.
        y: The labels, in the form that the task takes.
        task: What is predicted. A number stands for that many classes.
        schema: The declared columns, where a sample is a row of a table.
    """

    name: str
    x: torch.Tensor
    y: torch.Tensor
    task: Task
    schema: Schema | None = None

    def __post_init__(self) -> None:
        if isinstance(self.task, int):
            object.__setattr__(self, "task", MultiClass(self.task))
        form = self.task.examples(1)
        x_type = torch.int64 if self.task.reads == "tokens" else torch.float32
        if self.x.dtype != x_type or self.y.dtype != form.dtype:
            raise DpflError(
                f"The data set {self.name!r} has x of {self.x.dtype} and y of {self.y.dtype}: "
                f"give {_word(x_type)} and {_word(form.dtype)}, or let dpfl.data.tensors convert "
                "them."
            )
        if self.x.ndim < 2 or self.y.ndim != form.ndim or len(self.x) != len(self.y):
            labels = (
                "one label a sample as (n,)"
                if form.ndim == 1
                else f"y as (n, ...), for the task {self.task.name!r}"
            )
            raise DpflError(
                f"The data set {self.name!r} has x of shape {tuple(self.x.shape)} and y of shape "
                f"{tuple(self.y.shape)}: give x as (n, ...) and {labels}."
            )
        if len(self.y) == 0:
            raise DpflError(f"The data set {self.name!r} is empty: give at least one sample.")
        if not (torch.isfinite(self.x.sum()) or torch.isfinite(self.x).all()):
            raise DpflError(
                f"The data set {self.name!r} holds values that are not finite: remove or replace "
                "them."
            )
        _check_tokens(self)
        _fitting(self.name, self.task, self.y)

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        """Sizes, never samples."""
        shape = " x ".join(map(str, self.shape))
        labels = f"in {self.classes} classes" if self.classes else f"for the task {self.task.name}"
        return f"Dataset({self.name!r}: {len(self)} samples of {shape} {labels})"

    @property
    def classes(self) -> int:
        """The number of classes; 0 where labels are no classes."""
        return self.task.classes

    @property
    def features(self) -> FeatureLayout | None:
        """How a sample is laid out, where it is a row of a table."""
        return self.schema.features if self.schema else None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.x.shape[1:])

    @cached_property
    def sha256(self) -> str:
        """A digest of the samples, the labels and what these mean.

        How a loss weighs the labels is no part of the data.
        """
        digest = hashlib.sha256(
            f"{tuple(self.x.shape)} {self.task.name} {self.task.outputs}".encode()
        )
        for tensor in (self.x, self.y):
            digest.update(tensor.detach().cpu().contiguous().numpy().data)
        return digest.hexdigest()


Array: TypeAlias = "torch.Tensor | np.ndarray"


MOST_CLASSES = 1_000_000


def make_dataset(name: str, x: Array, y: Array, task: Task) -> Dataset:
    """A data set from tensors or arrays of any numeric type.

    Args:
        name: The name of the data.
        x: The samples. Bytes (uint8) are scaled from 0..255 to 0..1, unless they are tokens.
        y: Their labels.
        task: What is predicted.

    Returns:
        The data set.

    Raises:
        DpflError: Samples or labels do not fit the task.
    """
    samples = _tensor(name, x)
    if task.reads == "tokens":
        samples = whole(samples, f"Tokens of {name!r}")
    else:
        samples = samples.float() / 255 if samples.dtype == torch.uint8 else samples.float()
    return Dataset(name, samples.contiguous(), _fitting(name, task, _tensor(name, y)), task)


def _fitting(name: str, task: Task, y: torch.Tensor) -> torch.Tensor:
    """The labels as the task takes them."""
    try:
        return task.labels(y)
    except DpflError as error:
        raise DpflError(f"{name!r}: {error}") from None


def _check_tokens(data: Dataset) -> None:
    if data.task.reads == "tokens":
        try:
            between(data.x, 0, data.task.outputs - 1, "Tokens")
        except DpflError as error:
            raise DpflError(f"{data.name!r}: {error}") from None


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def names_classes(task: Task | str | None) -> bool:
    """Whether the labels of a task are classes, as far as its name tells.

    Args:
        task: A task, or its name in an experiment.

    Returns:
        Whether they are.
    """
    return (
        task.classes > 0
        if isinstance(task, Task)
        else task not in ("labels", "number", "counts", "tokens")
    )


def task_of(
    name: str,
    task: Task | str | None,
    classes: int | None,
    weights: Sequence[float] = (),
    test: Array | None = None,
) -> Task:
    """The task of a data set, as it is declared.

    Args:
        name: The name of the data, for errors.
        task: A task, or its name in an experiment. Without one, labels are classes.
        classes: The declared number of classes, labels, levels or tokens.
        weights: The weights of the classes in the loss.
        test: The labels of the public test set.

    Returns:
        The task.

    Raises:
        DpflError: The declarations contradict each other, or one is missing.
    """
    if not isinstance(task, str | None):
        if classes is not None or weights:
            raise DpflError(
                "A task that is given as a part has its classes and weights: declare them there, "
                "and only there."
            )
        return task
    options: dict[str, Any] = {"weights": tuple(weights)} if weights else {}
    if task in (None, "classes"):
        return tasks.from_name("classes", classes=number_of_classes(name, classes, test), **options)
    sizes = {"labels": "count", "ordinal": "levels", "tokens": "vocabulary"}
    if task in sizes:
        if classes is None:
            raise DpflError(
                f"The task {task!r} of {name!r} needs its {sizes[task]} declared (data.classes, "
                "classes=)."
            )
        options[sizes[task]] = classes
    elif classes not in (None, tasks.from_name(task).classes):
        raise DpflError(
            f"The task {task!r} does not have {classes} classes: leave data.classes out."
        )
    return tasks.from_name(task, **options)


def number_of_classes(name: str, declared: int | None, test: Array | None) -> int:
    """The number of classes: as declared, or that of the public test set.

    It is never read off the labels of clients. It would tell that one of them holds the last class.

    Args:
        name: The name of the data, for errors.
        declared: The declared number.
        test: The labels of the public test set.

    Returns:
        The number.

    Raises:
        DpflError: There is neither a declaration nor a test set, or the number is out of its range.
    """
    if declared is None:
        if test is None:
            raise DpflError(
                f"How many classes {name!r} has is not read off private labels: declare it "
                "(data.classes, classes=)."
            )
        labels = whole(_tensor(name, test), f"The labels of {name!r}")
        declared = int(labels.max()) + 1 if labels.numel() else 1
    require_whole(declared, "classes", least=1)
    if declared > MOST_CLASSES:
        raise DpflError(
            f"{name!r} would have {declared} classes: number them 0, 1, 2, ..., {MOST_CLASSES - 1} "
            "at most."
        )
    return declared


def _tensor(name: str, values: Array) -> torch.Tensor:
    try:
        tensor = torch.as_tensor(values).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise DpflError(
            f"The data set {name!r} holds something else than numbers ({error}): convert it."
        ) from error
    if tensor.is_complex():
        raise DpflError(
            f"The data set {name!r} holds complex numbers: give real ones, such as both parts side "
            "by side."
        )
    return tensor


@dataclass(frozen=True, eq=False)
class DataSource:
    """Training data in one place, and the public test data that everyone is measured on.

    It holds everyone's samples, so it is for simulations, and for an owner's own node.

    Attributes:
        train: The training set.
        test: The public test set, if there is one.
        owned: The rows of each owner, where samples have owners of their own.
        persons: The number of the person that each training row is of.
        notes: What was changed or left out, for the record of a run.
        private: What the holder of the data should know, such as the number of clamped cells. It is
            read off the data, so it is shown and never written.
        test_persons: The number of the person that each test row is of.
        owners: The names of the owners, in the order of `owned`.
        warnings: What a statement says of whose rows these are. It follows from what is declared.
    """

    train: Dataset
    test: Dataset | None
    owned: tuple[torch.Tensor, ...] = ()
    persons: torch.Tensor | None = None
    notes: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    test_persons: torch.Tensor | None = None
    owners: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """What a statement says of whose rows these are, from what is declared."""

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

        if not self.owned:
            raise DpflError(
                f"{self.train.name!r} does not say whose its samples are: declare data.site, or a "
                "partition."
            )
        return Federation(
            self.train,
            self.test,
            self.owned,
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
        """The labels that a partition looks at."""
        task, labels = self.train.task, self.train.y.numpy()
        if classes and not task.classes:
            raise DpflError(
                f"Labels of the task {task.name!r} are no classes that a partition could skew: use "
                "'iid', say."
            )
        return labels.astype(np.int64) if task.classes else labels

    def _deal(
        self, how: Partition, clients: int, seed: int
    ) -> tuple[Sequence[np.ndarray], tuple[str, ...]]:
        """Deals rows; where these are of people, whole persons, each with the label of their first
        row.

        An explicit partition is the user's own word on every row.
        """
        labels, rng = self._labels_for_partition(deals_by_class(how)), np.random.default_rng(seed)
        if self.persons is None or getattr(how, "assigns_rows", False):
            return how(labels, clients, rng)
        _, first, person = np.unique(self.persons.numpy(), return_index=True, return_inverse=True)
        parts, notes = how(labels[first], clients, rng)
        owner = np.full(len(first), -1)
        for number, part in enumerate(parts):
            owner[part] = number
        rows = [np.flatnonzero(owner[person] == number) for number in range(clients)]
        return rows, tuple(note.replace("images", "persons") for note in notes)

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
            names=tuple(names) or tuple(getattr(how, "names", ()))[:clients],
            test_persons=self.test_persons,
            warnings=self.warnings,
        )
