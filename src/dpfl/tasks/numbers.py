"""Tasks with numbers as labels: regression, and counts of events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpfl.bad_values import require_choice
from dpfl.codec import part
from dpfl.deprecation import renamed_keywords
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.tasks import metrics as measured
from dpfl.tasks import number_metrics
from dpfl.tasks.label_checks import check_positive, whole
from dpfl.tasks.task import Array, BaseTask, Labels, one_column

if TYPE_CHECKING:
    from torch import Tensor

LOSSES = ("squared", "huber")
STEEPEST = 15.0
"""Beyond this score the exponential goes on as a straight line: a rate of three million is none,
and must not overflow.
"""


@part("target.regression")
@dataclass(frozen=True)
class Regression(BaseTask):
    """A number, trained as t = (y - centre) / scale: (s - t)^2 / 2.

    With the Huber loss, it is a line beyond `width`.

    Attributes:
        loss: "squared" or "huber".
        centre: The declared centre of the labels.
        scale: Their declared scale.
        width: Where the Huber loss becomes a line, in units of the scale.
    """

    loss: str = "squared"
    centre: float = 0.0
    scale: float = 1.0
    width: float = 1.0
    name = "number"
    classes = 0
    reads = "numbers"
    outputs = 1
    headline = "RMSE"

    def __post_init__(self) -> None:
        require_choice(self.loss, "The loss of a number", LOSSES)
        check_positive((self.scale, self.width), "The scale of a label and the width of its loss")
        if not np.isfinite(self.centre):
            raise DpflError(f"The centre of a label must be a number, not {self.centre}.")

    @renamed_keywords(given="values")
    def labels(self, values: Labels) -> Tensor:
        return finite(values, "Labels")

    def examples(self, places: int) -> Tensor:
        return self.centre + self.scale * torch.tensor([-1.0, 0.0, 1.0])

    def losses(self, scores: Tensor, y: Tensor) -> Tensor:
        apart = self._apart(scores, y)
        if self.loss == "squared":
            return apart.square() / 2
        far = apart.abs()
        return torch.where(far <= self.width, far.square() / 2, self.width * (far - self.width / 2))

    def losses_and_slopes(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        apart = self._apart(scores, y)
        slopes = apart if self.loss == "squared" else apart.clamp(-self.width, self.width)
        return self.losses(scores, y), slopes.reshape(scores.shape)

    def _apart(self, scores: Tensor, y: Tensor) -> Tensor:
        return one_column(scores, y, self) - (y - self.centre) / self.scale

    def figures(self, scores: Array, y: Array, times: Array) -> Mapping[str, Array]:
        predictions = scores.reshape(-1).astype(np.float64) * self.scale + self.centre
        truth = y.reshape(-1).astype(np.float64)
        return {
            "RMSE": number_metrics.root_mean_square(predictions - truth, times),
            "MAE": measured.mean(np.abs(predictions - truth), times),
            "R^2": number_metrics.r_squared(predictions, truth, times),
        }


@part("target.counts")
@dataclass(frozen=True)
class Counts(BaseTask):
    """A number of events, Poisson with the rate m exp(s) for a declared mean m: exp(s) - (y / m) s.

    This is the part of -log p that depends on the score, in units of m. A score of 0 is the mean,
    so that training need not find it.

    Attributes:
        mean: The declared mean m.
    """

    mean: float = 1.0
    name = "counts"
    classes = 0
    reads = "numbers"
    outputs = 1
    headline = "deviance"

    def __post_init__(self) -> None:
        check_positive((self.mean,), "The mean of counts")

    @renamed_keywords(given="values")
    def labels(self, values: Labels) -> Tensor:
        labels = whole(values, "Counts")
        if labels.numel() and int(labels.min()) < 0:
            raise DpflError(
                "Counts must be at least 0, but some are not: correct them, or declare the task "
                "'number'."
            )
        return finite(labels, "Counts")

    def examples(self, places: int) -> Tensor:
        return torch.tensor([0.0, 1.0, 100.0]) * self.mean

    def losses(self, scores: Tensor, y: Tensor) -> Tensor:
        s = one_column(scores, y, self)
        return _rate(s) - y / self.mean * s

    def nonnegative_losses(self, scores: Tensor, y: Tensor) -> Tensor:
        """Computes half the deviance of each sample, in units of the declared mean.

        `losses` leaves out what does not depend on the score: (y / m) log(y / m) - y / m.

        Args:
            scores: The scores.
            y: The counts.

        Returns:
            The losses (B,), 0 where the rate is the count.
        """
        rate = y / self.mean
        return self.losses(scores, y) + torch.special.xlogy(rate, rate) - rate

    def losses_and_slopes(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        s = one_column(scores, y, self)
        return _rate(s) - y / self.mean * s, (s.clamp(max=STEEPEST).exp() - y / self.mean).reshape(
            scores.shape
        )

    def figures(self, scores: Array, y: Array, times: Array) -> Mapping[str, Array]:
        rate = self.mean * np.exp(np.minimum(scores.reshape(-1).astype(np.float64), STEEPEST))
        truth = y.reshape(-1).astype(np.float64)
        return {
            "deviance": number_metrics.poisson_deviance(rate, truth, times),
            "explained deviance": number_metrics.explained_deviance(rate, truth, times),
            "MAE": measured.mean(np.abs(rate - truth), times),
            "RMSE": number_metrics.root_mean_square(rate - truth, times),
        }


def _rate(s: Tensor) -> Tensor:
    """Computes exp(s), and its tangent beyond STEEPEST."""
    near = s.clamp(max=STEEPEST)
    return near.exp() * (1 + s - near)


def finite(values: Labels, what: str) -> Tensor:
    """Reads labels as one finite number for each sample.

    Args:
        values: The labels.
        what: What they are, for the error.

    Returns:
        float32.

    Raises:
        DpflError: They are complex, not finite, or not one for each sample.
    """
    labels = torch.as_tensor(values).detach().cpu()
    if labels.is_complex():
        raise DpflError(f"{what} must be real numbers, but are complex: convert them.")
    labels = labels.float()
    if labels.dim() == 2 and labels.shape[1] == 1:
        labels = labels.squeeze(1)
    if labels.dim() != 1:
        raise DpflError(
            "There must be one label for each sample, but the labels have the shape "
            f"{tuple(labels.shape)}."
        )
    if not bool(torch.isfinite(labels).all()):
        raise DpflError(f"{what} must be finite, but some are not: remove or replace them.")
    return labels.contiguous()
