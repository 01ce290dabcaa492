"""What a metric needs of a client's samples as a release: asked for once, with noise that is paid for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dpfl.lazy import torch
from dpfl.privacy.events import Event, gaussian
from dpfl.privacy.histogram import Asked
from dpfl.privacy.mean import noisy_mean
from dpfl.privacy.noise import check_multiplier

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class MetricSurvey:
    """The question for the mean over samples of `numbers` between 0 and 1, and of a 1 in one of so many `cells`, if any.

    So a sample's vector has a norm of sqrt(numbers + 1) at most (without cells, sqrt(numbers)), and the noise, which protects
    one sample, added or removed, `multiplier` times that deviation. A loss counts up to `most`. A share of the samples may be
    `held_out` of training for it; where none is, they are those of training.
    """

    multiplier: float
    numbers: int
    cells: int
    most: float
    held_out: float
    secure: bool = False
    trusted = exact = False

    def __post_init__(self) -> None:
        check_multiplier(self.multiplier, " of the private metric")

    def secured(self) -> MetricSurvey:
        return replace(self, secure=True)

    @property
    def event(self) -> Event:
        return gaussian(self.multiplier)

    @property
    def bound(self) -> float:
        return math.sqrt(self.numbers + bool(self.cells))

    def ask(self, data: Asked, rng: np.random.Generator) -> np.ndarray:
        return self.answer(data.measured(self.most), data.declared, rng)

    def answer(self, vectors: Iterable[Tensor], size: int, rng: np.random.Generator) -> np.ndarray:
        """From what each sample counts with, some at a time."""
        return noisy_mean(vectors, self.numbers + self.cells, self.bound, self, size, rng)

    def combined(self, answers: Mapping[int, Tensor], declared: Sequence[int]) -> tuple[Tensor, int, float]:
        """The mean over all who answered, of how many samples it is, and the deviation of the noise in each of its numbers."""
        known = sum(declared[client] for client in answers)
        mean = torch.stack([answer.double() * (declared[client] / known) for client, answer in answers.items()]).sum(0)
        return mean, known, self.multiplier * self.bound * math.sqrt(len(answers)) / known
