"""A client's label counts as a release: asked for once, with noise that is paid for, or (as
published) as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike

from dpfl.bad_values import require_name
from dpfl.codec import part
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.privacy.accounting.events import ADD_REMOVE, REPLACE, Event, gaussian
from dpfl.privacy.mechanisms.noise import check_noise_multiplier
from dpfl.privacy.mechanisms.secure_noise import secure_sum

if TYPE_CHECKING:
    from torch import Tensor

SENSITIVITY = {ADD_REMOVE: 1.0, REPLACE: math.sqrt(2)}
"""L2 sensitivity of a vector of counts: one count moves by one, or two do."""


def distribution(counts: ArrayLike) -> np.ndarray:
    """Counts over the last axis as shares; a client of whom nothing is known (all zero) is taken as
    balanced.
    """
    values = np.asarray(counts, dtype=np.float64)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise DpflError("A label histogram needs at least one class.")
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise DpflError("A label histogram needs finite counts of at least 0.")
    largest = values.max(axis=-1, keepdims=True)
    filled = np.where(
        largest > 0, values / np.where(largest > 0, largest, 1.0), 1.0
    )  # so that the sum cannot overflow
    shares: np.ndarray = filled / filled.sum(axis=-1, keepdims=True)
    return shares


def private_histogram(
    counts: ArrayLike,
    noise_multiplier: float,
    rng: np.random.Generator,
    neighbours: str = ADD_REMOVE,
    secure: bool = False,
) -> np.ndarray:
    """Shares from noisy counts: Gaussian noise for the sensitivity, then clamp and normalise, which
    is free.

    It costs one `gaussian(multiplier)` event, to be debited before it leaves the client. `secure`
    noise is on a grid, and larger by what rounding the counts to the grid can move them
    (`secure_sum`).
    """
    check_noise_multiplier(noise_multiplier, " of the histogram")
    require_name("definition of neighbours", neighbours, SENSITIVITY)
    exact = np.asarray(counts, dtype=np.float64)
    if exact.ndim != 1 or not exact.size or not np.isfinite(exact).all():
        raise DpflError("A private histogram needs one finite count a class.")
    stddev = noise_multiplier * SENSITIVITY[neighbours]
    if secure:
        noisy = secure_sum(torch.from_numpy(exact), stddev, noise_multiplier, rng).double().numpy()
    else:
        noisy = exact + stddev * rng.standard_normal(exact.shape)
    return distribution(np.maximum(noisy, 0.0))


class QuerySubject(Protocol):
    """A client that is asked about its units: how many of each class, each as a row, some at a
    time, and what is public.

    A unit is a sample, or a person by the mean of their rows: one of either adds at most 1 to the
    norm of the counts.
    """

    @property
    def counts(self) -> np.ndarray: ...

    @property
    def blocks(self) -> Iterable[Tensor]: ...

    @property
    def features(self) -> int: ...

    @property
    def declared(self) -> int: ...

    def vectors(self, of: Callable[[Tensor, Tensor], Tensor]) -> Iterable[Tensor]:
        """What each sample is by a function of samples and labels."""

    def measured(self, most: float) -> Iterable[Tensor]:
        """What a metric counts each sample with, under the model that is asked about."""


@part("query.histogram")
@dataclass(frozen=True)
class LabelQuery:
    """The question for label shares; the noise protects one sample, added or removed. Without a
    multiplier there is none.

    A `trusted` server may have them exactly where it only ever shows sums with noise for whole
    clients.
    """

    noise_multiplier: float | None
    trusted: bool = False
    secure: bool = False

    def __post_init__(self) -> None:
        if self.noise_multiplier is not None:
            check_noise_multiplier(self.noise_multiplier, " of the histogram")

    def with_secure_noise(self) -> LabelQuery:
        return replace(self, secure=True)

    @property
    def exact(self) -> bool:
        return self.noise_multiplier is None

    @property
    def event(self) -> Event:
        return gaussian(self.noise_multiplier or 0.0)

    def ask(self, data: QuerySubject, rng: np.random.Generator) -> np.ndarray:
        return self.answer(data.counts, rng)

    def answer(self, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if self.noise_multiplier is None:
            return distribution(counts)
        return private_histogram(counts, self.noise_multiplier, rng, secure=self.secure)
