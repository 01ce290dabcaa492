"""Learning tasks: the form of a label, the loss of a sample, and what is measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from dpfl.deprecation import keep_old_names, renamed_keywords
from dpfl.errors import DpflError
from dpfl.tasks.metrics import each_once, first

if TYPE_CHECKING:
    from torch import Tensor

Array = np.ndarray[Any, Any]
Labels: TypeAlias = "Tensor | Array"


@runtime_checkable
class Task(Protocol):
    """A frozen part that says what a model is for.

    Scores are what a model returns for a batch, one row for each sample. Labels are as `labels`
    returns them.
    """

    @property
    def name(self) -> str:
        """Its name in an experiment."""

    @property
    def classes(self) -> int:
        """The number of classes of a label; 0 where labels are no classes."""

    @property
    def reads(self) -> str:
        """What a sample is made of: "numbers" (float32) or "tokens" (int64)."""

    @property
    def outputs(self) -> int:
        """How many numbers a model returns for each sample, or for each place of a sequence."""

    @property
    def headline(self) -> str:
        """The metric that is shown where there is room for one."""

    @property
    def answers(self) -> bool:
        """Whether an answer is right or wrong, so that there is an accuracy."""

    @property
    def yes_or_no(self) -> bool:
        """Whether the answer is yes or no, by one score."""

    def right_shares(self, scores: Tensor, y: Tensor) -> Tensor:
        """How far each answer is right, where answers are right or wrong.

        Args:
            scores: The scores.
            y: The labels.

        Returns:
            The shares (B,), from 0 to 1.
        """

    def confidences(self, scores: Array, y: Array) -> tuple[Array, Array] | None:
        """What a calibration curve compares: predicted probabilities, and what was so.

        Args:
            scores: The scores.
            y: The labels.

        Returns:
            A probability and 0 or 1 for each sample; None where a task has no probabilities.
        """

    def labels(self, values: Labels) -> Tensor:
        """Converts labels to the form that the loss takes.

        Args:
            values: The labels as the user has them.

        Returns:
            The labels.

        Raises:
            DpflError: A label does not fit the task.
        """

    def examples(self, places: int) -> Tensor:
        """Makes one label of each kind that may occur, so that all can be tried before data is
        read.

        Args:
            places: The number of places of a sample, where it is a sequence.

        Returns:
            The labels.
        """

    def losses(self, scores: Tensor, y: Tensor) -> Tensor:
        """Computes the loss of each sample.

        Args:
            scores: The scores.
            y: The labels.

        Returns:
            The losses (B,), with their graph.
        """

    def nonnegative_losses(self, scores: Tensor, y: Tensor) -> Tensor:
        """Computes the loss of each sample, shifted so that it is 0 at best.

        Args:
            scores: The scores.
            y: The labels.

        Returns:
            The losses (B,), none of which is below 0.
        """

    def losses_and_slopes(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Computes the losses, and the gradient of their sum at the scores. No graph is built.

        Args:
            scores: The scores.
            y: The labels.

        Returns:
            The losses (B,), and the gradient, in the shape of the scores.
        """

    def figures(self, scores: Array, y: Array, times: Array) -> Mapping[str, Array]:
        """Computes the metrics of several test sets that are made of the same samples.

        Args:
            scores: The scores of the samples.
            y: Their labels.
            times: How often each sample is in each set (samples, sets).

        Returns:
            The metric of each set (sets,), by name.
        """

    def metrics(self, scores: Array, y: Array) -> Mapping[str, float]:
        """Computes the metrics of one test set.

        Args:
            scores: The scores of the samples.
            y: Their labels.

        Returns:
            The metrics by name.
        """

    def live_metrics(self, scores: Array, y: Array) -> Mapping[str, float]:
        """Computes the metrics that are shown while a run is under way.

        Args:
            scores: The scores of the samples.
            y: Their labels.

        Returns:
            The headline, and the accuracy where there is one.
        """


@keep_old_names(shown="live_metrics")
class BaseTask:
    """The base of tasks: what each of them has to define, and the metrics that follow from its
    `figures`.

    Attributes:
        answers: Whether an answer is right or wrong (`Task.answers`).
        yes_or_no: Whether the answer is yes or no (`Task.yes_or_no`).
    """

    answers = yes_or_no = False

    def right_shares(self, scores: Tensor, y: Tensor) -> Tensor:
        """How far each answer is right, where answers are right or wrong.

        Args:
            scores: The scores.
            y: The labels.

        Returns:
            The shares (B,), from 0 to 1: of the labels whose score is on the right side of 0.
        """
        return ((scores.view(len(y), -1) > 0) == (y.view(len(y), -1) > 0)).float().mean(1)

    def confidences(self, scores: Array, y: Array) -> tuple[Array, Array] | None:
        """What a calibration curve compares: predicted probabilities, and what was so.

        Args:
            scores: The scores.
            y: The labels.

        Returns:
            None: most tasks have no probabilities.
        """
        return None

    @renamed_keywords(given="values")
    def labels(self, values: Labels) -> Tensor:
        """Converts labels to the form that the loss takes.

        Args:
            values: The labels as they were read.

        Returns:
            The labels, one entry or row per sample.

        Raises:
            DpflError: They do not fit the task.
        """
        raise NotImplementedError

    def examples(self, places: int) -> Tensor:
        """Makes one label of each kind that may occur, so that all can be tried before data is
        read.

        Args:
            places: The number of places of a sample, where it is a sequence.

        Returns:
            The labels.
        """
        raise NotImplementedError

    def losses(self, scores: Tensor, y: Tensor) -> Tensor:
        """Computes the loss of each sample.

        Args:
            scores: The scores.
            y: The labels.

        Returns:
            The losses (B,), with their graph.
        """
        raise NotImplementedError

    def nonnegative_losses(self, scores: Tensor, y: Tensor) -> Tensor:
        """Computes the loss of each sample, shifted so that it is 0 at best.

        Args:
            scores: The scores.
            y: The labels.

        Returns:
            The losses (B,), none of which is below 0: those of `losses`, unless a task leaves
            something out there.
        """
        return self.losses(scores, y)

    def losses_and_slopes(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Computes the losses, and the gradient of their sum at the scores. No graph is built.

        Args:
            scores: The scores.
            y: The labels.

        Returns:
            The losses (B,), and the gradient, in the shape of the scores.
        """
        raise NotImplementedError

    def figures(self, scores: Array, y: Array, times: Array) -> Mapping[str, Array]:
        """Computes the metrics of several test sets that are made of the same samples.

        Args:
            scores: The scores of the samples.
            y: Their labels.
            times: How often each sample is in each set (samples, sets).

        Returns:
            The metric of each set (sets,), by name.
        """
        raise NotImplementedError

    def metrics(self, scores: Array, y: Array) -> Mapping[str, float]:
        """Computes the metrics of one test set.

        Args:
            scores: The scores of the samples.
            y: Their labels.

        Returns:
            The metrics by name.
        """
        return first(self.figures(scores, y, each_once(y)))

    def live_metrics(self, scores: Array, y: Array) -> Mapping[str, float]:
        """Computes the metrics that are shown while a run is under way; by default, all.

        Args:
            scores: The scores of the samples.
            y: Their labels.

        Returns:
            The metrics by name.
        """
        return self.metrics(scores, y)


def check_scores(scores: Tensor, shape: tuple[int, ...], task: Task) -> Tensor:
    """Refuses a model of another size than the task. The first pass shows this mistake.

    Args:
        scores: What the model returned.
        shape: The shape that the task needs.
        task: The task.

    Returns:
        The scores.

    Raises:
        DpflError: They have another shape.
    """
    if tuple(scores.shape) != shape:
        raise DpflError(
            f"The task {task.name!r} needs {task.outputs} outputs per sample, a tensor of shape "
            f"{shape} here, but the model "
            f"returns {tuple(scores.shape)}: give it as many outputs."
        )
    return scores


def one_column(scores: Tensor, y: Tensor, task: Task) -> Tensor:
    """Takes the scores of a task with one output.

    Args:
        scores: The scores (B, 1) or (B,).
        y: The labels.
        task: The task.

    Returns:
        The scores (B,).

    Raises:
        DpflError: They have another shape.
    """
    return scores if scores.shape == y.shape else check_scores(scores, (len(y), 1), task).squeeze(1)
