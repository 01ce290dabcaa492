"""A metric of the trained model, from the clients' own samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dpfl.codec import part
from dpfl.privacy.mechanisms.noises.noise import check_noise_multiplier
from dpfl.privacy.queries.bounded_sum import bounded_sum
from dpfl.privacy.queries.query import PrivateQuery, QuerySubject

if TYPE_CHECKING:
    from torch import Tensor


@part("query.metric")
@dataclass(frozen=True)
class MetricQuery(PrivateQuery):
    """Asks for the mean over samples of `numbers` between 0 and 1, and of a 1 in one of `cells`.

    A sample's vector has a norm of at most sqrt(numbers + 1), or sqrt(numbers) without cells. That
    is the sensitivity.

    Attributes:
        noise_multiplier: The noise's standard deviation over the sensitivity.
        numbers: The numbers between 0 and 1 per sample.
        cells: The cells of which each sample is in one; 0 for none.
        most: The largest loss that one sample counts with.
        held_out: The share of samples that are kept out of training for the metric. At 0 the
            metric is of the training samples.
        secure: Whether the noise is on a grid.
    """

    noise_multiplier: float
    numbers: int
    cells: int
    most: float
    held_out: float
    secure: bool = False
    asks_metric: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_noise_multiplier(self.noise_multiplier, " of the private metric")

    @property
    def held_out_share(self) -> float:
        return self.held_out

    @property
    def bound(self) -> float:
        """The largest norm of one sample's vector."""
        return math.sqrt(self.numbers + bool(self.cells))

    @property
    def width(self) -> int:
        """The length of one sample's vector."""
        return self.numbers + self.cells

    def answer_width(self, size: int) -> int:
        return self.width

    def sensitivity(self, width: int) -> float:
        return self.bound

    def exact_sum(self, data: QuerySubject) -> Tensor:
        return bounded_sum(data.metric_terms(self.most), self.width, self.bound)

    def matches_metric(self, numbers: int, cells: int) -> bool:
        return (numbers, cells) == (self.numbers, self.cells)
