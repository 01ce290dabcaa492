"""A data set, and a source: the pair of a training and a test set that can be split over clients."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from dpfl.data.checks import require_whole
from dpfl.data.partition import Dirichlet, Partition, describe
from dpfl.data.population import Drawn, Population
from dpfl.errors import DpflError
from dpfl.lazy import torch

if TYPE_CHECKING:
    from dpfl.data.federation import Federation
    from dpfl.data.schema import Features, Schema


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples and their labels: x is float32 (n, ...), y is int64 (n,) in 0 .. classes - 1."""

    name: str
    x: torch.Tensor
    y: torch.Tensor
    classes: int
    schema: Schema | None = None

    def __post_init__(self) -> None:
        if self.x.dtype != torch.float32 or self.y.dtype != torch.int64:
            raise DpflError(
                f"The data set {self.name!r} has x of {self.x.dtype} and y of {self.y.dtype}: "
                "give float32 and int64, or let dpfl.data.tensors convert them."
            )
        if self.x.ndim < 2 or self.y.ndim != 1 or len(self.x) != len(self.y):
            raise DpflError(
                f"The data set {self.name!r} has x of shape {tuple(self.x.shape)} and y of shape "
                f"{tuple(self.y.shape)}: give x as (n, ...) and one label a sample as (n,)."
            )
        if len(self.y) == 0:
            raise DpflError(f"The data set {self.name!r} is empty: give at least one sample.")
        if not bool(torch.isfinite(self.x).all()):
            raise DpflError(f"The data set {self.name!r} holds values that are not finite: remove or replace them.")
        low, high = int(self.y.min()), int(self.y.max())
        if low < 0 or high >= self.classes:
            raise DpflError(
                f"The labels of {self.name!r} run from {low} to {high}: number them from 0 to {self.classes - 1}, "
                f"one for each of the {self.classes} classes."
            )

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        """Sizes, never samples."""
        shape = " x ".join(map(str, self.shape))
        return f"Dataset({self.name!r}: {len(self)} samples of {shape} in {self.classes} classes)"

    @property
    def features(self) -> Features | None:
        """How a sample is laid out, if it is a row of a table."""
        return self.schema.features if self.schema else None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.x.shape[1:])

    @cached_property
    def sha256(self) -> str:
        digest = hashlib.sha256(f"{tuple(self.x.shape)} {self.classes}".encode())
        for tensor in (self.x, self.y):
            digest.update(tensor.detach().cpu().contiguous().numpy().data)
        return digest.hexdigest()


Array: TypeAlias = "torch.Tensor | np.ndarray"


MOST_CLASSES = 1_000_000


def make_dataset(name: str, x: Array, y: Array, classes: int) -> Dataset:
    """A data set from tensors or arrays of any numeric type; bytes (uint8) are scaled from 0..255 to 0..1."""
    samples = _tensor(name, x)
    scaled = samples.float() / 255 if samples.dtype == torch.uint8 else samples.float()
    return Dataset(name, scaled.contiguous(), whole_labels(name, y), classes)


def whole_labels(name: str, y: Array) -> torch.Tensor:
    labels = _tensor(name, y)
    whole = labels.to(torch.int64)
    if not torch.equal(whole.to(labels.dtype), labels):
        raise DpflError(f"The labels of {name!r} are not whole numbers: number the classes 0, 1, 2, ...")
    return whole.contiguous()


def number_of_classes(name: str, declared: int | None, test: Array | None) -> int:
    """As declared, or else by the labels of the test set, which is public; never by the labels of the clients, who would tell
    with it that one of them holds the last class."""
    if declared is None:
        if test is None:
            raise DpflError(
                f"How many classes {name!r} has is not read off private labels: declare it (data.classes, classes=)."
            )
        labels = whole_labels(name, test)
        declared = int(labels.max()) + 1 if labels.numel() else 1
    require_whole(declared, "classes", least=1)
    if declared > MOST_CLASSES:
        raise DpflError(f"{name!r} would have {declared} classes: number them 0, 1, 2, ..., {MOST_CLASSES - 1} at most.")
    return declared


def _tensor(name: str, values: Array) -> torch.Tensor:
    try:
        found = torch.as_tensor(values).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise DpflError(f"The data set {name!r} holds something else than numbers ({error}): convert it.") from error
    if found.is_complex():
        raise DpflError(f"The data set {name!r} holds complex numbers: give real ones, such as both parts side by side.")
    return found


@dataclass(frozen=True, eq=False)
class Source:
    """Training data that is still in one place, and the public test data that everyone is measured on, if there is any.

    Where samples have owners of their own, `owned` holds the samples of each; `persons` numbers the people that rows are of.
    `private` is for the eyes of whoever holds the data, and is written nowhere.
    """

    train: Dataset
    test: Dataset | None
    owned: tuple[torch.Tensor, ...] = ()
    persons: torch.Tensor | None = None
    notes: tuple[str, ...] = ()
    private: tuple[str, ...] = ()

    def by_owner(self, names: Sequence[str] = ()) -> Federation:
        """Every owner is a client."""
        from dpfl.data.federation import Federation

        if not self.owned:
            raise DpflError(f"{self.train.name!r} does not say whose its samples are: declare data.site, or a partition.")
        return Federation(
            self.train, self.test, self.owned, (), "site", self.notes,
            persons=self.persons, private=self.private, names=tuple(names),
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"Source(train={self.train!r}, test={self.test!r})"

    def split(
        self, clients: int = 10, how: Partition | Drawn = Dirichlet(0.05), seed: int = 0, public_clients: int = 0,
        names: Sequence[str] = (),
    ) -> Federation:  # fmt: skip
        """Spread the training data over clients; the partition's last `public_clients` parts are held out as public.

        Clients have the `names` that are given here or by a mapping.
        """
        from dpfl.data.federation import Federation

        require_whole(seed, "seed", least=0)
        if seed >= 2**63:
            raise DpflError(f"A seed is a whole number from 0 to 2^63 - 1, not {seed}.")
        if clients < 1 or public_clients < 0:
            raise DpflError(f"Ask for at least 1 client and 0 public clients, not {clients} and {public_clients}.")
        if isinstance(how, Drawn):
            if public_clients:
                raise DpflError("Clients that are drawn share samples, so none of them can be public: set public_clients to 0.")
            population = Population(how, self.train.y.numpy(), range(clients), seed)
            return Federation(self.train, self.test, population, (), describe(how), self.notes, private=self.private)
        parts, notes = how(self.train.y.numpy(), clients + public_clients, np.random.default_rng(seed))
        indices = tuple(torch.from_numpy(np.sort(part).astype(np.int64)) for part in parts)
        notes = (*self.notes, *notes)
        if public_clients:
            notes = (*notes, f"clients {clients} to {len(parts) - 1} of the partition are held out as public")
        return Federation(
            self.train, self.test, indices[:clients], indices[clients:], describe(how), notes,
            persons=self.persons, private=self.private, names=tuple(names) or tuple(getattr(how, "names", ()))[:clients],
        )  # fmt: skip
