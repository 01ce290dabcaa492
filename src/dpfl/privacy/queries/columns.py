"""The scales of a table's columns as one release: means, second moments and histograms, with noise
that is paid for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dpfl.codec import part
from dpfl.lazy_import import torch
from dpfl.privacy.accounting.events import Event, gaussian
from dpfl.privacy.mechanisms.noise import check_noise_multiplier
from dpfl.privacy.queries.histogram import QuerySubject
from dpfl.privacy.queries.mean import MeanAnswer, bounded_sum, noisy_mean, scaled_down

if TYPE_CHECKING:
    from torch import Tensor

MIN_VARIANCE = 1e-5
"""No variance is below this, in units of half the distance of the bounds."""
NORMAL = 1.349
"""The distance of the quartiles of a normal distribution, in its deviations."""


@part("query.columns")
@dataclass(frozen=True)
class ColumnQuery:
    """The question for the mean over samples of all that the scales need; the noise protects one
    sample, added or removed.

    A row begins with so many `numbers`, each between -1 and 1 by declared bounds. One whose moments
    are asked for (`places`) counts with v and 2 v^2 - 1, both between -1 and 1; one whose quartiles
    are (`binned`, with so many bins) with a 1 in its bin. So a sample's vector over all k and h of
    them has a norm of sqrt(2 k + h) at most, and the noise `multiplier` times that deviation.
    """

    noise_multiplier: float
    numbers: int
    places: tuple[int, ...] = ()
    binned: tuple[tuple[int, int], ...] = ()
    secure: bool = False
    trusted = exact = False

    def __post_init__(self) -> None:
        check_noise_multiplier(self.noise_multiplier, " of the paid scales")

    def with_secure_noise(self) -> ColumnQuery:
        return replace(self, secure=True)

    @property
    def event(self) -> Event:
        return gaussian(self.noise_multiplier)

    @property
    def bound(self) -> float:
        return math.sqrt(2 * len(self.places) + len(self.binned))

    @property
    def width(self) -> int:
        return 2 * len(self.places) + sum(bins for _, bins in self.binned)

    def answer_width(self, features: int) -> int:
        return self.width

    def sensitivity(self, width: int) -> float:
        return self.bound

    def ask(self, data: QuerySubject, rng: np.random.Generator) -> np.ndarray:
        return self.answer(self._vectors(data), data.declared, rng)

    def exact_sum(self, data: QuerySubject) -> Tensor:
        return bounded_sum(self._vectors(data), self.width, self.bound)

    def _vectors(self, data: QuerySubject) -> Iterable[Tensor]:
        return data.vectors(lambda rows, labels: self.bounded(rows.flatten(1)))

    def answer(self, vectors: Iterable[Tensor], size: int, rng: np.random.Generator) -> np.ndarray:
        """From what each row counts with, some at a time."""
        return noisy_mean(vectors, self.width, self.bound, self, size, rng)

    def bounded(self, rows: Tensor) -> Tensor:
        """What each row counts with."""
        values = rows[:, list(self.places)].clamp(-1.0, 1.0)
        parts = [values, 2 * values.square() - 1]
        for place, bins in self.binned:
            code = (
                ((rows[:, place].nan_to_num(0.0).clamp(-1.0, 1.0) + 1) * (bins / 2))
                .long()
                .clamp(max=bins - 1)
            )
            parts.append((code.unsqueeze(1) == torch.arange(bins)).to(rows.dtype))
        return scaled_down(torch.cat(parts, dim=1), self.bound)

    def estimate(self, said: MeanAnswer) -> Tensor:
        """The means, then the variances of all numbers, 0 and 1 where none were asked for:
        post-processing, and so free.
        """
        mean, noise, count = said.mean, said.noise, len(self.places)
        moments = zip(
            self.places, mean[:count].tolist(), mean[count : 2 * count].tolist(), strict=True
        )
        found = torch.stack([torch.zeros(self.numbers), torch.ones(self.numbers)])
        for place, first, second in moments:
            found[:, place] = torch.tensor(standard(first, second, noise))
        for (place, bins), shares in zip(
            self.binned, torch.split(mean[2 * count :], [b for _, b in self.binned]), strict=True
        ):
            found[:, place] = torch.tensor(by_quartiles(shares.numpy().reshape(bins)))
        return found.flatten()


def standard(first: float, second: float, noise: float) -> tuple[float, float]:
    """Mean and variance from the noisy means of v and 2 v^2 - 1.

    The noise is in m^2, too, on average by its variance, which is taken off. A variance that is not
    above its own deviation is not known, and that deviation stands for it: a column is never blown
    up by noise.
    """
    mean = min(max(first, -1.0), 1.0)
    variance = (second + 1) / 2 - (mean**2 - noise**2)
    unsure = noise * math.hypot(0.5, 2 * mean)
    return mean, min(max(variance, unsure, MIN_VARIANCE), 1.0)


def by_quartiles(shares: np.ndarray) -> tuple[float, float]:
    """The median, and the variance of the normal distribution with these quartiles, which are at
    least a bin apart.
    """
    held = np.maximum(shares, 0.0)
    if not held.sum() > 0:
        return 0.0, 1.0
    ends, edges = (
        np.concatenate([[0.0], np.cumsum(held) / held.sum()]),
        np.linspace(-1.0, 1.0, len(held) + 1),
    )
    low, median, high = np.interp((0.25, 0.5, 0.75), ends, edges)
    return float(median), max((max(high - low, 2 / len(held)) / NORMAL) ** 2, MIN_VARIANCE)
