"""What is to be predicted: the form of a label, the loss of a sample, and what is measured on a
test set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.tasks.metrics import each_once, first

if TYPE_CHECKING:
    from torch import Tensor

Array = np.ndarray[Any, Any]
Labels: TypeAlias = "Tensor | Array"


@runtime_checkable
class Task(Protocol):
    """A frozen part. Scores are what a model returns for a batch, a row a sample; labels are as
    `labels` made them.
    """

    @property
    def name(self) -> str: ...

    @property
    def classes(self) -> int:
        """How many classes a label is one of; 0 where it is none."""

    @property
    def reads(self) -> str:
        """What a sample is made of: "numbers" (float32) or "tokens" (int64)."""

    @property
    def outputs(self) -> int:
        """How many numbers a model returns for a sample (for a place of it, where a sample is a
        sequence).
        """

    @property
    def headline(self) -> str:
        """The metric that is shown where there is room for one."""

    def labels(self, given: Labels) -> Tensor:
        """Labels in the form that the loss takes; what does not fit is refused."""

    def examples(self, places: int) -> Tensor:
        """One label of each kind that may occur, so that all of them can be tried before any data
        is.
        """

    def losses(self, scores: Tensor, y: Tensor) -> Tensor:
        """The loss of each sample (B,), with its graph."""

    def losses_and_slopes(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The losses, and the gradient of their sum at the scores; no graph is built."""

    def figures(self, scores: Array, y: Array, times: Array) -> Mapping[str, Array]:
        """What is measured, by name, on test sets that have sample i `times[i, set]` times."""

    def metrics(self, scores: Array, y: Array) -> Mapping[str, float]:
        """The same on the test set as it is."""

    def shown(self, scores: Array, y: Array) -> Mapping[str, float]:
        """Those that are looked at while a run is under way: the headline, and accuracy where there
        is one.
        """


class TaskFigures:
    """What follows from the figures of a task."""

    def figures(self, scores: Array, y: Array, times: Array) -> Mapping[str, Array]:
        raise NotImplementedError

    def metrics(self, scores: Array, y: Array) -> Mapping[str, float]:
        return first(self.figures(scores, y, each_once(y)))

    def shown(self, scores: Array, y: Array) -> Mapping[str, float]:
        return self.metrics(scores, y)


def whole(given: Labels, what: str) -> Tensor:
    """Labels as int64; none of them may be anything else than a whole number."""
    found = torch.as_tensor(given).detach().cpu()
    if found.is_complex() or (found.is_floating_point() and not bool(torch.isfinite(found).all())):
        raise DpflError(
            f"{what} must be whole numbers, but some are not finite or complex: correct them."
        )
    converted = found.to(torch.int64)
    if not torch.equal(converted.to(found.dtype), found):
        raise DpflError(
            f"{what} must be whole numbers, but some are not: number the classes 0, 1, 2, ..."
        )
    return converted.contiguous()


def between(found: Tensor, least: int, most: int, what: str) -> Tensor:
    if found.numel() and (int(found.min()) < least or int(found.max()) > most):
        raise DpflError(
            f"{what} run from {int(found.min())} to {int(found.max())}: number them from {least} "
            f"to {most}, or declare the "
            "task that they are for."
        )
    return found


def check_scores(scores: Tensor, shape: tuple[int, ...], task: Task) -> Tensor:
    """A model of another size than the task is a mistake that the first pass must show."""
    if tuple(scores.shape) != shape:
        raise DpflError(
            f"The task {task.name!r} needs {task.outputs} outputs a sample, a tensor of shape "
            f"{shape} here, but the model "
            f"returns {tuple(scores.shape)}: give it as many outputs."
        )
    return scores


def one_column(scores: Tensor, y: Tensor, task: Task) -> Tensor:
    """Scores of a task with one output, (B, 1) or (B,), as (B,)."""
    return scores if scores.shape == y.shape else check_scores(scores, (len(y), 1), task).squeeze(1)


def check_positive(values: tuple[float, ...], what: str) -> None:
    if not all(0 < value < float("inf") for value in values):
        raise DpflError(f"{what} must be positive numbers, not {values}.")
