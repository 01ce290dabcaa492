"""Tasks with classes as labels: two, many, several at once, or in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpfl.codec import part
from dpfl.deprecation import renamed_keywords
from dpfl.errors import DpflError
from dpfl.lazy_import import functional, torch
from dpfl.tasks import metrics as measured
from dpfl.tasks.label_checks import between, check_positive, whole
from dpfl.tasks.task import (
    Array,
    BaseTask,
    Labels,
    check_scores,
    one_column,
)

if TYPE_CHECKING:
    from torch import Tensor


@part("target.multi-class")
@dataclass(frozen=True)
class MultiClass(BaseTask):
    """One of several classes, by cross-entropy: log sum exp(s) - s_y.

    Attributes:
        classes: The number of classes.
        weights: The weight of each class, by which the loss is multiplied.
    """

    classes: int
    weights: tuple[float, ...] = ()
    name = "classes"
    reads = "numbers"
    headline = "accuracy"
    answers = True

    def __post_init__(self) -> None:
        _check_count("classes", self.classes, 1)
        _check_weights(self.weights, self.classes)

    @property
    def outputs(self) -> int:
        """One score for each class."""
        return self.classes

    @renamed_keywords(given="values")
    def labels(self, values: Labels) -> Tensor:
        return _one_each(
            between(whole(values, "Labels of classes"), 0, self.classes - 1, "Labels of classes")
        )

    def examples(self, places: int) -> Tensor:
        return torch.arange(self.classes)

    def losses(self, scores: Tensor, y: Tensor) -> Tensor:
        losses = functional.cross_entropy(
            check_scores(scores, (len(y), self.classes), self), y, reduction="none"
        )
        return losses * self._weight(y) if self.weights else losses

    def losses_and_slopes(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        logs = torch.ops.aten._log_softmax(
            check_scores(scores, (len(y), self.classes), self), 1, False
        )
        losses, total = torch.ops.aten.nll_loss_forward(logs, y, None, 0, -100)
        weight = self._weight(y) if self.weights else torch.ones_like(losses)
        g = torch.ops.aten.nll_loss_backward(weight, logs, y, None, 0, -100, total)
        slopes = torch.ops.aten._log_softmax_backward_data(g, logs, 1, scores.dtype)
        return losses * weight if self.weights else losses, slopes

    def _weight(self, y: Tensor) -> Tensor:
        return torch.tensor(self.weights)[y]

    def right_shares(self, scores: Tensor, y: Tensor) -> Tensor:
        return (scores.argmax(1) == y).float()

    def confidences(self, scores: Array, y: Array) -> tuple[Array, Array] | None:
        return measured.confidence(measured.softmax(scores), y)

    def figures(self, scores: Array, y: Array, times: Array) -> Mapping[str, Array]:
        chances, predictions = measured.softmax(scores), scores.argmax(1)
        return {
            "accuracy": measured.accuracy(predictions, y, times),
            "balanced accuracy": measured.balanced_accuracy(predictions, y, times),
            "F1": measured.macro_f1(predictions, y, times),
            "AUC": measured.auc_against_rest(chances, y, times),
            "log loss": measured.log_loss(chances, y, times),
            "Brier": measured.brier(chances, y, times),
            "calibration error": measured.calibration_error(
                *measured.confidence(chances, y), times
            ),
        }

    def live_metrics(self, scores: Array, y: Array) -> Mapping[str, float]:
        return measured.first(
            {"accuracy": measured.accuracy(scores.argmax(1), y, measured.each_once(y))}
        )


@part("target.binary")
@dataclass(frozen=True)
class Binary(BaseTask):
    """Yes or no by one score: log(1 + exp(s)) - y s.

    Attributes:
        weights: The weights of no and of yes, by which the loss is multiplied.
    """

    weights: tuple[float, ...] = ()
    name = "binary"
    classes = 2
    reads = "numbers"
    outputs = 1
    headline = "AUC"
    answers = yes_or_no = True

    def __post_init__(self) -> None:
        _check_weights(self.weights, 2)

    @renamed_keywords(given="values")
    def labels(self, values: Labels) -> Tensor:
        return _one_each(
            between(
                whole(values, "Labels of a binary task"), 0, 1, "Labels of a binary task"
            ).float()
        )

    def examples(self, places: int) -> Tensor:
        return torch.tensor([0.0, 1.0])

    def losses(self, scores: Tensor, y: Tensor) -> Tensor:
        losses = functional.binary_cross_entropy_with_logits(
            one_column(scores, y, self), y, reduction="none"
        )
        return losses * self._weight(y) if self.weights else losses

    def losses_and_slopes(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        s = one_column(scores, y, self)
        losses, slopes = functional.softplus(s) - y * s, torch.sigmoid(s) - y
        if self.weights:
            losses, slopes = losses * self._weight(y), slopes * self._weight(y)
        return losses, slopes.view(scores.shape)

    def _weight(self, y: Tensor) -> Tensor:
        return torch.tensor(self.weights)[y.long()]

    def confidences(self, scores: Array, y: Array) -> tuple[Array, Array] | None:
        return measured.sigmoid(scores.reshape(-1)), y.astype(np.int64)

    def figures(self, scores: Array, y: Array, times: Array) -> Mapping[str, Array]:
        chance = measured.sigmoid(scores.reshape(-1))
        predictions, both = (chance > 0.5).astype(np.int64), np.stack([1 - chance, chance], axis=1)
        label = y.astype(np.int64)
        return {
            "AUC": measured.auc(chance, label, times),
            "average precision": measured.average_precision(chance, label, times),
            "accuracy": measured.accuracy(predictions, label, times),
            "balanced accuracy": measured.balanced_accuracy(predictions, label, times),
            "F1": measured.f1(predictions, label, times),
            "log loss": measured.log_loss(both, label, times),
            "Brier": measured.brier(both, label, times) / 2,
            "calibration error": measured.calibration_error(chance, label, times),
        }

    def live_metrics(self, scores: Array, y: Array) -> Mapping[str, float]:
        score, label, times = scores.reshape(-1), y.astype(np.int64), measured.each_once(y)
        metrics = {
            "AUC": measured.auc(score, label, times),
            "accuracy": measured.accuracy(score > 0, label == 1, times),
        }
        return measured.first(metrics)


@part("target.multi-label")
@dataclass(frozen=True)
class MultiLabel(BaseTask):
    """Several answers of yes or no to one sample: the mean of their binary losses.

    Labels are (n, labels), of 0 and 1.

    Attributes:
        count: The number of labels.
    """

    count: int
    name = "labels"
    classes = 0
    reads = "numbers"
    headline = "AUC"
    answers = True

    def __post_init__(self) -> None:
        _check_count("labels", self.count, 1)

    @property
    def outputs(self) -> int:
        """One score for each label."""
        return self.count

    @renamed_keywords(given="values")
    def labels(self, values: Labels) -> Tensor:
        labels = between(whole(values, "Several labels"), 0, 1, "Several labels").float()
        if labels.dim() != 2 or labels.shape[1] != self.count:
            raise DpflError(
                f"Labels must be {self.count} of 0 or 1 for each sample, but have the shape "
                f"{tuple(labels.shape)}."
            )
        return labels

    def examples(self, places: int) -> Tensor:
        return torch.stack([torch.zeros(self.count), torch.ones(self.count)])

    def losses(self, scores: Tensor, y: Tensor) -> Tensor:
        check_scores(scores, (len(y), self.count), self)
        return functional.binary_cross_entropy_with_logits(scores, y, reduction="none").mean(1)

    def losses_and_slopes(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        check_scores(scores, (len(y), self.count), self)
        return (functional.softplus(scores) - y * scores).mean(1), (
            torch.sigmoid(scores) - y
        ) / self.count

    def figures(self, scores: Array, y: Array, times: Array) -> Mapping[str, Array]:
        chances, label = measured.sigmoid(scores), y.astype(np.int64)
        predictions = (chances > 0.5).astype(np.int64)

        def over_labels(figure: Callable[[Array, Array, Array], Array], of: Array) -> Array:
            return measured.mean_of(
                np.stack(
                    [figure(of[:, place], label[:, place], times) for place in range(self.count)]
                )
            )

        return {
            "AUC": over_labels(measured.auc, chances),
            "average precision": over_labels(measured.average_precision, chances),
            "F1": over_labels(measured.f1, predictions),
            "accuracy": measured.mean((predictions == label).mean(axis=1), times),
        }


@part("target.ordinal")
@dataclass(frozen=True)
class Ordinal(BaseTask):
    """One of several levels in order (Frank and Hall 2001): the questions "above k?".

    The loss is the mean of their binary losses.

    Attributes:
        levels: The number of levels.
    """

    levels: int
    name = "ordinal"
    reads = "numbers"
    headline = "mean distance"
    answers = True

    def __post_init__(self) -> None:
        _check_count("levels", self.levels, 2)

    @property
    def classes(self) -> int:
        """The number of levels."""
        return self.levels

    @property
    def outputs(self) -> int:
        """One score for each question."""
        return self.levels - 1

    @renamed_keywords(given="values")
    def labels(self, values: Labels) -> Tensor:
        return _one_each(between(whole(values, "Levels"), 0, self.levels - 1, "Levels"))

    def examples(self, places: int) -> Tensor:
        return torch.arange(self.levels)

    def losses(self, scores: Tensor, y: Tensor) -> Tensor:
        check_scores(scores, (len(y), self.outputs), self)
        return functional.binary_cross_entropy_with_logits(
            scores, self._above(y), reduction="none"
        ).mean(1)

    def losses_and_slopes(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        above = self._above(y)
        check_scores(scores, (len(y), self.outputs), self)
        return (functional.softplus(scores) - above * scores).mean(1), (
            torch.sigmoid(scores) - above
        ) / self.outputs

    def _above(self, y: Tensor) -> Tensor:
        return (y.unsqueeze(1) > torch.arange(self.outputs)).float()

    def right_shares(self, scores: Tensor, y: Tensor) -> Tensor:
        return ((scores > 0).sum(1) == y).float()

    def figures(self, scores: Array, y: Array, times: Array) -> Mapping[str, Array]:
        predictions = (scores > 0).sum(1)
        return {
            "mean distance": measured.mean(np.abs(predictions - y), times),
            "accuracy": measured.accuracy(predictions, y, times),
            "balanced accuracy": measured.balanced_accuracy(predictions, y, times),
        }


def _one_each(labels: Tensor) -> Tensor:
    if labels.dim() == 2 and labels.shape[1] == 1:
        labels = labels.squeeze(1)
    if labels.dim() != 1:
        raise DpflError(
            "There must be one label for each sample, but the labels have the shape "
            f"{tuple(labels.shape)}."
        )
    return labels


def _check_count(what: str, count: int, least: int) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count < least:
        raise DpflError(f"A task needs a whole number of at least {least} {what}, not {count!r}.")


def _check_weights(weights: tuple[float, ...], classes: int) -> None:
    if weights and len(weights) != classes:
        raise DpflError(
            f"There are {len(weights)} class weights for {classes} classes: give one for each, or "
            "none."
        )
    check_positive(weights, "Class weights")
