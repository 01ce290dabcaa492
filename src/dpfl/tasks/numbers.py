"""Tasks whose labels are numbers: regression, and counts of events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpfl.codec import part
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.tasks import metrics as measured
from dpfl.tasks.task import Array, Labels, TaskFigures, check_positive, one_column, whole

if TYPE_CHECKING:
    from torch import Tensor

LOSSES = ("squared", "huber")
STEEPEST = 15.0
"""Beyond this score the exponential goes on as a straight line: a rate of three million is none,
and must not overflow.
"""


@part("target.regression")
@dataclass(frozen=True)
class Regression(TaskFigures):
    """A number, trained as t = (y - centre) / scale with both declared: (s - t)^2 / 2, or beyond
    `width` a line (Huber).
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
        if self.loss not in LOSSES:
            raise DpflError(f"The loss of a number is {' or '.join(LOSSES)}, not {self.loss!r}.")
        check_positive((self.scale, self.width), "The scale of a label and the width of its loss")
        if not np.isfinite(self.centre):
            raise DpflError(f"The centre of a label must be a number, not {self.centre}.")

    def labels(self, given: Labels) -> Tensor:
        return finite(given, "Labels")

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
        said = scores.reshape(-1).astype(np.float64) * self.scale + self.centre
        truth = y.reshape(-1).astype(np.float64)
        return {
            "RMSE": measured.root_mean_square(said - truth, times),
            "MAE": measured.mean(np.abs(said - truth), times),
            "R^2": measured.explained(said, truth, times),
        }


@part("target.counts")
@dataclass(frozen=True)
class Counts(TaskFigures):
    """A number of events, Poisson with rate m exp(s) for a declared mean m: exp(s) - (y / m) s, the
    part of -log p that depends on the score, in units of m. A score of 0 is the mean, so that
    training need not find it."""

    mean: float = 1.0
    name = "counts"
    classes = 0
    reads = "numbers"
    outputs = 1
    headline = "deviance"

    def __post_init__(self) -> None:
        check_positive((self.mean,), "The mean of counts")

    def labels(self, given: Labels) -> Tensor:
        found = whole(given, "Counts")
        if found.numel() and int(found.min()) < 0:
            raise DpflError(
                "Counts must be at least 0, but some are not: correct them, or declare the task "
                "'number'."
            )
        return finite(found, "Counts")

    def examples(self, places: int) -> Tensor:
        return torch.tensor([0.0, 1.0, 100.0]) * self.mean

    def losses(self, scores: Tensor, y: Tensor) -> Tensor:
        s = one_column(scores, y, self)
        return _rate(s) - y / self.mean * s

    def losses_and_slopes(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        s = one_column(scores, y, self)
        return _rate(s) - y / self.mean * s, (s.clamp(max=STEEPEST).exp() - y / self.mean).reshape(
            scores.shape
        )

    def figures(self, scores: Array, y: Array, times: Array) -> Mapping[str, Array]:
        rate = self.mean * np.exp(np.minimum(scores.reshape(-1).astype(np.float64), STEEPEST))
        truth = y.reshape(-1).astype(np.float64)
        return {
            "deviance": measured.poisson_deviance(rate, truth, times),
            "explained deviance": measured.explained_deviance(rate, truth, times),
            "MAE": measured.mean(np.abs(rate - truth), times),
            "RMSE": measured.root_mean_square(rate - truth, times),
        }


def _rate(s: Tensor) -> Tensor:
    """exp(s), and its tangent beyond STEEPEST."""
    near = s.clamp(max=STEEPEST)
    return near.exp() * (1 + s - near)


def finite(given: Labels, what: str) -> Tensor:
    """One finite float32 a sample."""
    found = torch.as_tensor(given).detach().cpu()
    if found.is_complex():
        raise DpflError(f"{what} must be numbers of one part, but are complex: convert them.")
    found = found.float()
    if found.dim() == 2 and found.shape[1] == 1:
        found = found.squeeze(1)
    if found.dim() != 1:
        raise DpflError(
            f"There must be one label a sample, but the labels have the shape {tuple(found.shape)}."
        )
    if not bool(torch.isfinite(found).all()):
        raise DpflError(f"{what} must be finite, but some are not: remove or replace them.")
    return found.contiguous()
