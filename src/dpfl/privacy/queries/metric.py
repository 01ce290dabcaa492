"""What a metric needs of a client's samples as a release: asked for once, with noise that is paid
for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dpfl.codec import part
from dpfl.privacy.accounting.events import Event, gaussian
from dpfl.privacy.mechanisms.noise import check_noise_multiplier
from dpfl.privacy.queries.histogram import QuerySubject
from dpfl.privacy.queries.mean import bounded_sum, noisy_mean

if TYPE_CHECKING:
    from torch import Tensor


@part("query.metric")
@dataclass(frozen=True)
class MetricQuery:
    """The question for the mean over samples of `numbers` between 0 and 1, and of a 1 in one of so
    many `cells`, if any.

    So a sample's vector has a norm of sqrt(numbers + 1) at most (without cells, sqrt(numbers)), and
    the noise, which protects one sample, added or removed, `multiplier` times that deviation. A
    loss counts up to `most`. A share of the samples may be `held_out` of training for it; where
    none is, they are those of training.
    """

    noise_multiplier: float
    numbers: int
    cells: int
    most: float
    held_out: float
    secure: bool = False
    trusted = exact = False

    def __post_init__(self) -> None:
        check_noise_multiplier(self.noise_multiplier, " of the private metric")

    def with_secure_noise(self) -> MetricQuery:
        return replace(self, secure=True)

    @property
    def event(self) -> Event:
        return gaussian(self.noise_multiplier)

    @property
    def bound(self) -> float:
        return math.sqrt(self.numbers + bool(self.cells))

    @property
    def width(self) -> int:
        return self.numbers + self.cells

    def answer_width(self, features: int) -> int:
        return self.width

    def sensitivity(self, width: int) -> float:
        return self.bound

    def ask(self, data: QuerySubject, rng: np.random.Generator) -> np.ndarray:
        return self.answer(data.measured(self.most), data.declared, rng)

    def exact_sum(self, data: QuerySubject) -> Tensor:
        return bounded_sum(data.measured(self.most), self.width, self.bound)

    def answer(self, vectors: Iterable[Tensor], size: int, rng: np.random.Generator) -> np.ndarray:
        """From what each sample counts with, some at a time."""
        return noisy_mean(vectors, self.width, self.bound, self, size, rng)
