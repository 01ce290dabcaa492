"""What is measured on a test set, in float64; a figure that is not defined (one class only, nothing
said) is nan.

Figures are of several test sets at once, made of the same samples: `times` (samples, sets) says how
often each is in which.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
SMALLEST = 1e-15
BINS = 10


def each_once(y: Array) -> Array:
    """One set, with every sample in it."""
    return np.ones((len(y), 1))


def first(figures: Mapping[str, Array]) -> Mapping[str, float]:
    """Of the first set."""
    return {name: float(figure[0]) for name, figure in figures.items()}


def sigmoid(scores: Array) -> Array:
    return np.exp(-np.logaddexp(0.0, -scores.astype(np.float64)))


def softmax(scores: Array) -> Array:
    shifted = scores.astype(np.float64) - scores.max(axis=-1, keepdims=True)
    powers = np.exp(shifted)
    return powers / powers.sum(axis=-1, keepdims=True)


def over(above: Array, below: Array) -> Array:
    """A share; nan where it is of nothing."""
    known: Array = below > 0
    return np.where(known, above / np.where(known, below, 1.0), np.nan)


def mean(values: Array, times: Array) -> Array:
    return over(values.astype(np.float64) @ times, times.sum(0))


def mean_of(figures: Array) -> Array:
    """Over those that are defined, of several for each set."""
    known = ~np.isnan(figures)
    return over(np.where(known, figures, 0.0).sum(0), known.sum(0))


def accuracy(said: Array, truth: Array, times: Array) -> Array:
    return mean(said == truth, times)


def balanced_accuracy(said: Array, truth: Array, times: Array) -> Array:
    """The mean over classes of the share of it that was found."""
    held, found, _ = _by_class(said, truth, times)
    return mean_of(over(found, held))


def f1(said: Array, truth: Array, times: Array) -> Array:
    """2 TP / (2 TP + FP + FN)."""
    right, wrong = (
        these.astype(np.float64) @ times for these in ((said == 1) & (truth == 1), said != truth)
    )
    return over(2 * right, 2 * right + wrong)


def macro_f1(said: Array, truth: Array, times: Array) -> Array:
    """The mean of F1 = 2 TP / (said + there) over the classes that are there."""
    held, found, told = _by_class(said, truth, times)
    return mean_of(np.where(held > 0, over(2 * found, held + told), np.nan))


def _by_class(said: Array, truth: Array, times: Array) -> tuple[Array, Array, Array]:
    """How many there are of each class, how many of them were found, and how often it was said."""
    one = np.eye(int(max(said.max(initial=0), truth.max(initial=0))) + 1)
    return one[:, truth] @ times, (one[:, truth] * (said == truth)) @ times, one[:, said] @ times


def auc(score: Array, truth: Array, times: Array) -> Array:
    """The chance that a positive scores above a negative, ties by half: from the places of the
    positives among all, of which their places among themselves come to P^2 / 2."""
    positive = truth == 1
    order, below, through = _ranked(score)
    upto = np.zeros((len(score) + 1, times.shape[1]))
    np.cumsum(times[order], axis=0, out=upto[1:])
    held = times[positive]
    places = np.einsum("ij,ij->j", held, upto[below[positive]] + upto[through[positive]]) / 2
    positives = held.sum(0)
    return over(places - np.square(positives) / 2, positives * (upto[-1] - positives))


def _ranked(score: Array) -> tuple[Array, Array, Array]:
    """The order from the lowest on, and for each sample how many are below it, and below or
    equal.
    """
    order = np.argsort(score, kind="stable")
    ranked = score[order]
    return order, np.searchsorted(ranked, score, "left"), np.searchsorted(ranked, score, "right")


def auc_of_cells(negative: Array, positive: Array) -> Array:
    """The same where scores lie in cells, from the lowest on: sum_b p_b (n_<b + n_b / 2) / (P N)
    over the last axis.
    """
    below = np.cumsum(negative, -1) - negative / 2
    positives, negatives = positive.sum(-1), negative.sum(-1)
    there = np.minimum(positives, negatives) > 0
    return np.where(
        there, (positive * below).sum(-1) / np.where(there, positives * negatives, 1.0), np.nan
    )


def average_precision(score: Array, truth: Array, times: Array) -> Array:
    """sum_k (recall_k - recall_{k-1}) precision_k over the distinct thresholds: a positive counts
    with the precision among those that score at least as high."""
    positive = truth == 1
    order, _, through = _ranked(-score)
    said = np.cumsum(times[order], axis=0)[through[positive] - 1]
    found = np.cumsum(times[order] * positive[order, None], axis=0)[through[positive] - 1]
    held = times[positive]
    return over((held * found / np.maximum(said, SMALLEST)).sum(0), held.sum(0))


def auc_against_rest(chances: Array, truth: Array, times: Array) -> Array:
    """The mean over classes of the AUC of one against all others."""
    return mean_of(
        np.stack([auc(chances[:, one], truth == one, times) for one in range(chances.shape[1])])
    )


def confidence(chances: Array, truth: Array) -> tuple[Array, Array]:
    """The chance of the class that is said, and whether it was right."""
    said = chances.argmax(1)
    return chances[np.arange(len(said)), said], (said == truth).astype(int)


def log_loss(chances: Array, truth: Array, times: Array) -> Array:
    return mean(-np.log(np.maximum(chances[np.arange(len(truth)), truth], SMALLEST)), times)


def brier(chances: Array, truth: Array, times: Array) -> Array:
    """The mean over samples of sum_k (p_k - 1[y = k])^2."""
    return mean(np.square(chances - np.eye(chances.shape[1])[truth]).sum(axis=1), times)


def calibration_curve(
    chance: Array, truth: Array, bins: int = BINS
) -> list[tuple[float, float, int]]:
    """For each of the bins that has any: the mean chance said, the share that was so, and how
    many.
    """
    known = np.isfinite(chance)
    chance, truth = chance[known], truth[known]
    place = _place(chance, bins)
    held = [place == one for one in range(bins)]
    return [
        (float(chance[these].mean()), float(truth[these].mean()), int(these.sum()))
        for these in held
        if these.any()
    ]


def calibration_error(chance: Array, truth: Array, times: Array, bins: int = BINS) -> Array:
    """The mean distance of what was said to what was so, over samples by their bin."""
    apart = np.eye(bins)[:, _place(chance, bins)] * (chance - truth)
    return over(np.abs(apart @ times).sum(0), times.sum(0))


def _place(chance: Array, bins: int) -> Array:
    """What is no number, of a model that diverged, is in the first, and makes its mean none."""
    place: Array = np.minimum(np.nan_to_num(chance * bins).astype(int), bins - 1)
    return place


def root_mean_square(apart: Array, times: Array) -> Array:
    return np.sqrt(mean(np.square(apart), times))


def explained(said: Array, truth: Array, times: Array) -> Array:
    """1 - squared errors over squared distances to the mean."""
    centred = truth - (truth.mean() if len(truth) else 0.0)
    spread = mean(np.square(centred), times) - np.square(mean(centred, times))
    return np.where(
        _varies(truth, times), 1 - over(mean(np.square(said - truth), times), spread), np.nan
    )


def _varies(truth: Array, times: Array) -> Array:
    """Whether a set has more than one value."""
    there, value = times > 0, truth[:, None]
    largest: Array = np.where(there, value, -np.inf).max(0, initial=-np.inf)
    return largest > np.where(there, value, np.inf).min(0, initial=np.inf)


def poisson_deviance(rate: Array, truth: Array, times: Array) -> Array:
    """2 mean(y log(y / rate) - (y - rate)); 0 log 0 is 0."""
    return 2 * mean(_logs(truth) - truth * np.log(np.maximum(rate, SMALLEST)) - truth + rate, times)


def _logs(truth: Array) -> Array:
    return truth * np.log(np.where(truth > 0, truth, 1.0))


def explained_deviance(rate: Array, truth: Array, times: Array) -> Array:
    """1 - deviance over that of one rate for all, 2 (mean(y log y) - m log m)."""
    usual = mean(truth, times)
    alone = 2 * (mean(_logs(truth), times) - usual * np.log(np.where(usual > 0, usual, 1.0)))
    return np.where(
        _varies(truth, times), 1 - over(poisson_deviance(rate, truth, times), alone), np.nan
    )
