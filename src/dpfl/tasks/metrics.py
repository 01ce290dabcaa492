"""What is measured on a test set, in float64; a figure that is not defined (one class only, nothing said) is nan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
SMALLEST = 1e-15
BINS = 10


def sigmoid(scores: Array) -> Array:
    return np.exp(-np.logaddexp(0.0, -scores.astype(np.float64)))


def softmax(scores: Array) -> Array:
    shifted = scores.astype(np.float64) - scores.max(axis=-1, keepdims=True)
    powers = np.exp(shifted)
    return powers / powers.sum(axis=-1, keepdims=True)


def mean_of(figures: Iterable[float]) -> float:
    """Over those that are defined."""
    known = [figure for figure in figures if not np.isnan(figure)]
    return float(np.mean(known)) if known else float("nan")


def accuracy(said: Array, truth: Array) -> float:
    return float((said == truth).mean()) if len(truth) else float("nan")


def balanced_accuracy(said: Array, truth: Array) -> float:
    """The mean over classes of the share of it that was found."""
    held = np.bincount(truth)
    found = np.bincount(truth[said == truth], minlength=len(held))
    return float((found[held > 0] / held[held > 0]).mean()) if len(truth) else float("nan")


def f1(said: Array, truth: Array) -> float:
    """2 TP / (2 TP + FP + FN)."""
    right = float(((said == 1) & (truth == 1)).sum())
    wrong = float((said != truth).sum())
    return 2 * right / (2 * right + wrong) if right + wrong else float("nan")


def macro_f1(said: Array, truth: Array) -> float:
    """The mean of F1 = 2 TP / (said + there) over the classes that are there."""
    held = np.bincount(truth)
    found = np.bincount(truth[said == truth], minlength=len(held))
    told = np.bincount(said, minlength=len(held))[: len(held)]
    return float((2 * found / np.maximum(held + told, 1))[held > 0].mean()) if len(truth) else float("nan")


def auc(score: Array, truth: Array) -> float:
    """The chance that a positive scores above a negative, ties by half: from the mean rank of the positives."""
    positives = int(truth.sum())
    negatives = len(truth) - positives
    if not positives or not negatives:
        return float("nan")
    ranks = mean_ranks(score)
    return float((ranks[truth == 1].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def mean_ranks(score: Array) -> Array:
    """From 1 on, down the first axis, equal scores sharing the mean of theirs."""
    order, places = np.argsort(score, axis=0, kind="stable"), np.arange(len(score)).reshape(-1, *(1,) * (score.ndim - 1))
    held = np.take_along_axis(score, order, 0)
    starts = np.ones(held.shape, dtype=bool)
    starts[1:] = held[1:] != held[:-1]
    first = np.maximum.accumulate(np.where(starts, places, 0), 0)
    ends = np.ones(held.shape, dtype=bool)
    ends[:-1] = starts[1:]
    last = np.flip(np.minimum.accumulate(np.flip(np.where(ends, places, len(score)), 0), 0), 0)
    shared: Array = np.empty(held.shape)
    np.put_along_axis(shared, order, (first + last) / 2 + 1, 0)
    return shared


def average_precision(score: Array, truth: Array) -> float:
    """sum_k (recall_k - recall_{k-1}) precision_k over the distinct thresholds."""
    if not truth.sum():
        return float("nan")
    order = np.argsort(-score, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(score[order])), len(score) - 1)
    found = np.cumsum(truth[order])[ends]
    precision, recall = found / (ends + 1), found / truth.sum()
    return float(np.sum(np.diff(np.concatenate([[0.0], recall])) * precision))


def auc_against_rest(chances: Array, truth: Array) -> float:
    """The mean over classes of the AUC of one against all others, all of them ranked at once."""
    held, classes = np.bincount(truth, minlength=chances.shape[1]), chances.shape[1]
    ranks = mean_ranks(chances)[np.arange(len(truth)), truth]
    pairs = held * (len(truth) - held)
    sums = np.bincount(truth, weights=ranks, minlength=classes) - held * (held + 1) / 2
    return mean_of((sums[pairs > 0] / pairs[pairs > 0]).tolist())


def confidence(chances: Array, truth: Array) -> tuple[Array, Array]:
    """The chance of the class that is said, and whether it was right."""
    said = chances.argmax(1)
    return chances[np.arange(len(said)), said], (said == truth).astype(int)


def log_loss(chances: Array, truth: Array) -> float:
    return float(-np.log(np.maximum(chances[np.arange(len(truth)), truth], SMALLEST)).mean()) if len(truth) else float("nan")


def brier(chances: Array, truth: Array) -> float:
    """The mean over samples of sum_k (p_k - 1[y = k])^2."""
    there = np.eye(chances.shape[1])[truth]
    return float(np.square(chances - there).sum(axis=1).mean()) if len(truth) else float("nan")


def calibration_curve(chance: Array, truth: Array, bins: int = BINS) -> list[tuple[float, float, int]]:
    """For each of the bins that has any: the mean chance said, the share that was so, and how many."""
    place = np.minimum((chance * bins).astype(int), bins - 1)
    held = [place == one for one in range(bins)]
    return [(float(chance[these].mean()), float(truth[these].mean()), int(these.sum())) for these in held if these.any()]


def calibration_error(chance: Array, truth: Array, bins: int = BINS) -> float:
    """The mean distance of what was said to what was so, over samples by their bin."""
    curve = calibration_curve(chance, truth, bins)
    return sum(abs(said - was) * count for said, was, count in curve) / len(truth) if len(truth) else float("nan")


def explained(said: Array, truth: Array) -> float:
    """1 - squared errors over squared distances to the mean."""
    spread = float(np.square(truth - truth.mean()).sum()) if len(truth) else 0.0
    return 1 - float(np.square(said - truth).sum()) / spread if spread else float("nan")


def poisson_deviance(rate: Array, truth: Array) -> float:
    """2 mean(y log(y / rate) - (y - rate)); 0 log 0 is 0."""
    logs = np.where(truth > 0, truth * np.log(np.maximum(truth, 1.0) / np.maximum(rate, SMALLEST)), 0.0)
    return float(2 * (logs - truth + rate).mean())


def explained_deviance(rate: Array, truth: Array) -> float:
    """1 - deviance over that of one rate for all."""
    alone = poisson_deviance(np.full(len(truth), truth.mean()), truth) if len(truth) and truth.mean() > 0 else 0.0
    return 1 - poisson_deviance(rate, truth) / alone if alone else float("nan")
