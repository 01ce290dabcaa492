"""Populations of any size, whose clients are described and have no rows of their own.

A client's samples are drawn from the training set by the client's number, when somebody asks for
them. Two clients may draw the same sample. So such a federation can protect clients, but not
samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

import numpy as np

from dpfl.bad_values import is_number, require_above, require_whole, wrong_value
from dpfl.data.stratify import apportion
from dpfl.errors import DpflError
from dpfl.lazy_import import torch


@dataclass(frozen=True)
class RandomClients:
    """Describes a population in which each client draws its own samples.

    Attributes:
        images: The number of samples of each client.
        beta: With it, the classes of each client have proportions of its own from Dir(beta).
        labels: With it, each client has the classes in these proportions, and chance says which
            class has which: [230, 230, 5, 5, 5, 5, 5, 5, 5, 5] of ten.
    """

    images: int = 50
    beta: float | None = None
    labels: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        require_whole(self.images, "images", least=2)
        if self.beta is not None:
            require_above(self.beta, "beta", bound=0)
        if self.labels is not None:
            self._check_labels(self.labels)

    def _check_labels(self, labels: Any) -> None:
        if self.beta is not None:
            raise DpflError(
                "data.beta and data.labels both say how labels are skewed: give one of them."
            )
        if (
            not isinstance(labels, list | tuple)
            or not all(is_number(share) and share >= 0 for share in labels)
            or not any(labels)
        ):
            advice = "give a list of how many samples each class has, such as [230, 230, 5, 5]"
            raise wrong_value(labels, "data.labels", advice)
        object.__setattr__(self, "labels", tuple(labels))

    @property
    def skewed(self) -> bool:
        """Whether the draw depends on labels."""
        return bool(self.beta or self.labels)


@dataclass(frozen=True, eq=False)
class Population(Sequence["torch.Tensor"]):
    """The rows of each client of a population, drawn anew whenever they are asked for.

    Attributes:
        how: How a client draws.
        labels: The labels of the training set.
        clients: The numbers of the clients.
        seed: Seeds the draw of each client, together with its number.
    """

    how: RandomClients
    labels: np.ndarray = field(repr=False)
    clients: range
    seed: int

    @property
    def canonical_text(self) -> str:
        """The text that digests know the population by. Ledgers are bound to it, so it never
        changes.
        """
        how = f"images={self.how.images!r}, beta={self.how.beta!r}, labels={self.how.labels!r}"
        return (
            f"Population(how=Drawn({how}), clients=range({self.clients.start}, "
            f"{self.clients.stop}), seed={self.seed})"
        )

    def __len__(self) -> int:
        return len(self.clients)

    @overload
    def __getitem__(self, number: int) -> torch.Tensor: ...

    @overload
    def __getitem__(self, number: slice) -> Population: ...

    def __getitem__(self, number: int | slice) -> torch.Tensor | Population:
        if isinstance(number, slice):
            return Population(self.how, self.labels, self.clients[number], self.seed)
        rng = np.random.default_rng((self.seed, self.clients[number]))
        rows = (
            self._by_label(rng)
            if self.how.skewed
            else rng.choice(len(self.labels), self.how.images, replace=False)
        )
        return torch.from_numpy(np.sort(rows).astype(np.int64))

    @cached_property
    def _members(self) -> list[np.ndarray]:
        """The samples of each class."""
        return np.split(
            np.argsort(self.labels, kind="stable"), np.cumsum(np.bincount(self.labels))[:-1]
        )

    def _by_label(self, rng: np.random.Generator) -> np.ndarray:
        members = self._members
        counts = (
            self._by_proportions(len(members), rng)
            if self.how.labels
            else self._by_dirichlet(len(members), rng)
        )
        counts = np.minimum(counts, [len(rows) for rows in members])
        return np.concatenate(
            [
                rng.choice(rows, count, replace=False)
                for rows, count in zip(members, counts, strict=True)
            ]
        )

    def _by_dirichlet(self, classes: int, rng: np.random.Generator) -> np.ndarray:
        return rng.multinomial(self.how.images, rng.dirichlet(np.full(classes, self.how.beta)))

    def _by_proportions(self, classes: int, rng: np.random.Generator) -> np.ndarray:
        labels = self.how.labels or ()
        if len(labels) != classes:
            raise DpflError(
                f"data.labels has {len(labels)} numbers, but there are {classes} classes: give one "
                "for each."
            )
        return apportion(rng.permutation(np.array(labels, dtype=np.float64)), self.how.images)
