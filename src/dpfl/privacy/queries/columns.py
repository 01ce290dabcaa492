"""The scales of a table's columns: means, second moments and histograms in one release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpfl.codec import part
from dpfl.lazy_import import torch
from dpfl.privacy.mechanisms.noises.noise import check_noise_multiplier
from dpfl.privacy.queries.bounded_sum import bounded_sum, scale_down
from dpfl.privacy.queries.mean import MeanAnswer
from dpfl.privacy.queries.query import PrivateQuery, QuerySubject

if TYPE_CHECKING:
    from torch import Tensor

MIN_VARIANCE = 1e-5
"""The smallest variance of a column, in units of half the distance of its bounds."""

QUARTILE_DISTANCE = 1.349
"""The distance of the quartiles of a normal distribution, in standard deviations."""


@part("query.columns")
@dataclass(frozen=True)
class ColumnQuery(PrivateQuery):
    """Asks for the mean over samples of everything that the scales of columns need.

    Declared bounds map every number v of a row to [-1, 1]. A column in `places` counts with v and
    2 v^2 - 1, whose norm is at most sqrt(2). A column in `binned` counts with a 1 in its bin. So a
    row's vector has a norm of at most sqrt(2 k + h) for k columns with moments and h with bins,
    which is the sensitivity.

    Attributes:
        noise_multiplier: The noise's standard deviation over the sensitivity.
        numbers: How many numbers a row begins with.
        places: The columns with moments.
        binned: The columns with a histogram, each with its number of bins.
        secure: Whether the noise is on a grid.
    """

    noise_multiplier: float
    numbers: int
    places: tuple[int, ...] = ()
    binned: tuple[tuple[int, int], ...] = ()
    secure: bool = False

    def __post_init__(self) -> None:
        check_noise_multiplier(self.noise_multiplier, " of the paid scales")

    @property
    def bound(self) -> float:
        """The largest norm of one row's vector."""
        return math.sqrt(2 * len(self.places) + len(self.binned))

    @property
    def width(self) -> int:
        """The length of one row's vector."""
        return 2 * len(self.places) + sum(bins for _, bins in self.binned)

    def answer_width(self, size: int) -> int:
        return self.width

    def sensitivity(self, width: int) -> float:
        return self.bound

    def exact_sum(self, data: QuerySubject) -> Tensor:
        vectors = data.vectors(lambda rows, labels: self.bound_rows(rows.flatten(1)))
        return bounded_sum(vectors, self.width, self.bound)

    def matches_data(self, features: int, classes: int) -> bool:
        columns = (*self.places, *(place for place, _ in self.binned))
        return bool(columns) and max(columns) < features and self.numbers <= features

    def bound_rows(self, rows: Tensor) -> Tensor:
        """Maps rows to the vectors that they count with.

        Args:
            rows: Rows (units, features).

        Returns:
            The vectors (units, width), in float64.
        """
        values = rows[:, list(self.places)].clamp(-1.0, 1.0)
        parts = [values, 2 * values.square() - 1]
        for place, bins in self.binned:
            column = rows[:, place].nan_to_num(0.0).clamp(-1.0, 1.0)
            code = ((column + 1) * (bins / 2)).long().clamp(max=bins - 1)
            parts.append((code.unsqueeze(1) == torch.arange(bins)).to(rows.dtype))
        return scale_down(torch.cat(parts, dim=1), self.bound)

    def estimate(self, answer: MeanAnswer) -> Tensor:
        """Turns the noisy means into a mean and a variance per column. Post-processing is free.

        Args:
            answer: The mean over all clients that answered.

        Returns:
            The means of all columns, then their variances: 0 and 1 for columns without a scale.
        """
        columns = len(self.places)
        firsts = answer.mean[:columns].tolist()
        seconds = answer.mean[columns : 2 * columns].tolist()
        scales = torch.stack([torch.zeros(self.numbers), torch.ones(self.numbers)])
        for place, first, second in zip(self.places, firsts, seconds, strict=True):
            scales[:, place] = torch.tensor(scale_from_moments(first, second, answer.noise))
        histograms = torch.split(answer.mean[2 * columns :], [bins for _, bins in self.binned])
        for (place, bins), shares in zip(self.binned, histograms, strict=True):
            scales[:, place] = torch.tensor(scale_from_bins(shares.numpy().reshape(bins)))
        return scales.flatten()


def scale_from_moments(first: float, second: float, noise: float) -> tuple[float, float]:
    """Estimates a column's mean and variance from its noisy moments.

    The mean m carries noise of variance sigma^2, which m^2 therefore contains on average. The
    estimate takes it off: Var = (second + 1) / 2 - (m^2 - sigma^2). A variance below its own
    standard deviation is unknown. That standard deviation then stands for it, so that noise never
    blows a column up.

    Args:
        first: The noisy mean of v.
        second: The noisy mean of 2 v^2 - 1.
        noise: The standard deviation sigma of the noise in both.

    Returns:
        The mean and the variance.
    """
    mean = min(max(first, -1.0), 1.0)
    variance = (second + 1) / 2 - (mean**2 - noise**2)
    uncertainty = noise * math.hypot(0.5, 2 * mean)
    return mean, min(max(variance, uncertainty, MIN_VARIANCE), 1.0)


def scale_from_bins(shares: np.ndarray) -> tuple[float, float]:
    """Estimates a column's centre and variance from a noisy histogram over [-1, 1].

    Args:
        shares: The noisy share of each bin.

    Returns:
        The median, and the variance of the normal distribution with the same quartiles. The
        quartiles are taken to be at least one bin apart. Without a positive share: 0 and 1.
    """
    positive = np.maximum(shares, 0.0)
    if not positive.sum() > 0:
        return 0.0, 1.0
    cumulative = np.concatenate([[0.0], np.cumsum(positive) / positive.sum()])
    edges = np.linspace(-1.0, 1.0, len(positive) + 1)
    low, median, high = np.interp((0.25, 0.5, 0.75), cumulative, edges)
    distance = max(high - low, 2 / len(positive))
    return float(median), max((distance / QUARTILE_DISTANCE) ** 2, MIN_VARIANCE)
