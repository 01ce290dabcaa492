"""Metrics of classes on test sets, in float64.

A metric that is not defined, as with one class only, is NaN. Every metric is computed for several
test sets at once, which are made of the same samples: `times` (samples, sets) says how often each
sample is in each set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
SMALLEST = 1e-15
BINS = 10


def each_once(y: Array) -> Array:
    """Makes the weights of one test set that has every sample once.

    Args:
        y: The labels.

    Returns:
        Ones (samples, 1).
    """
    return np.ones((len(y), 1))


def first(figures: Mapping[str, Array]) -> Mapping[str, float]:
    """Takes the metrics of the first test set.

    Args:
        figures: The metrics (sets,) by name.

    Returns:
        Numbers by name.
    """
    return {name: float(figure[0]) for name, figure in figures.items()}


def sigmoid(scores: Array) -> Array:
    """Computes 1 / (1 + exp(-s)).

    Args:
        scores: The scores s.

    Returns:
        The probabilities.
    """
    return np.exp(-np.logaddexp(0.0, -scores.astype(np.float64)))


def softmax(scores: Array) -> Array:
    """Computes exp(s_k) / sum_j exp(s_j) over the last axis.

    Args:
        scores: The scores s.

    Returns:
        The probabilities.
    """
    shifted_scores = scores.astype(np.float64) - scores.max(axis=-1, keepdims=True)
    powers = np.exp(shifted_scores)
    return powers / powers.sum(axis=-1, keepdims=True)


def over(above: Array, below: Array) -> Array:
    """Divides; gives NaN where the denominator is 0.

    Args:
        above: The numerators.
        below: The denominators.

    Returns:
        The quotients.
    """
    is_defined: Array = below > 0
    return np.where(is_defined, above / np.where(is_defined, below, 1.0), np.nan)


def mean(values: Array, times: Array) -> Array:
    """Computes the mean over a test set.

    Args:
        values: A value for each sample.
        times: How often each sample is in each set.

    Returns:
        The means (sets,).
    """
    return over(values.astype(np.float64) @ times, times.sum(0))


def mean_of(figures: Array) -> Array:
    """Computes the mean over those of several figures that are defined.

    Args:
        figures: Figures (several, sets).

    Returns:
        The means (sets,).
    """
    is_defined = ~np.isnan(figures)
    return over(np.where(is_defined, figures, 0.0).sum(0), is_defined.sum(0))


def accuracy(predictions: Array, truth: Array, times: Array) -> Array:
    """Computes the share of right predictions.

    Args:
        predictions: The predicted classes.
        truth: The labels.
        times: How often each sample is in each set.

    Returns:
        The accuracy (sets,).
    """
    return mean(predictions == truth, times)


def balanced_accuracy(predictions: Array, truth: Array, times: Array) -> Array:
    """Computes the mean over classes of the share of each class that was recognised.

    Args:
        predictions: The predicted classes.
        truth: The labels.
        times: How often each sample is in each set.

    Returns:
        The balanced accuracy (sets,).
    """
    samples, hits, _ = _by_class(predictions, truth, times)
    return mean_of(over(hits, samples))


def f1(predictions: Array, truth: Array, times: Array) -> Array:
    """Computes 2 TP / (2 TP + FP + FN).

    Args:
        predictions: The predictions, 0 or 1.
        truth: The labels, 0 or 1.
        times: How often each sample is in each set.

    Returns:
        F1 (sets,).
    """
    right, wrong = (
        these.astype(np.float64) @ times
        for these in ((predictions == 1) & (truth == 1), predictions != truth)
    )
    return over(2 * right, 2 * right + wrong)


def macro_f1(predictions: Array, truth: Array, times: Array) -> Array:
    """Computes the mean of F1 over the classes that occur.

    Args:
        predictions: The predicted classes.
        truth: The labels.
        times: How often each sample is in each set.

    Returns:
        Macro F1 (sets,).
    """
    samples, hits, prediction_counts = _by_class(predictions, truth, times)
    return mean_of(np.where(samples > 0, over(2 * hits, samples + prediction_counts), np.nan))


def _by_class(predictions: Array, truth: Array, times: Array) -> tuple[Array, Array, Array]:
    """Counts the samples of each class, those recognised, and those predicted."""
    one_hot = np.eye(int(max(predictions.max(initial=0), truth.max(initial=0))) + 1)
    return (
        one_hot[:, truth] @ times,
        (one_hot[:, truth] * (predictions == truth)) @ times,
        one_hot[:, predictions] @ times,
    )


def auc(score: Array, truth: Array, times: Array) -> Array:
    """Computes the probability that a positive scores above a negative. Ties count half.

    It follows from the ranks of the positives among all samples. Their ranks among themselves add
    up to P^2 / 2.

    Args:
        score: A score for each sample.
        truth: The labels, 0 or 1.
        times: How often each sample is in each set.

    Returns:
        The AUC (sets,).
    """
    positive = truth == 1
    order, below, through = _rank(score)
    upto = np.zeros((len(score) + 1, times.shape[1]))
    np.cumsum(times[order], axis=0, out=upto[1:])
    weights = times[positive]
    places = np.einsum("ij,ij->j", weights, upto[below[positive]] + upto[through[positive]]) / 2
    positives = weights.sum(0)
    return over(places - np.square(positives) / 2, positives * (upto[-1] - positives))


def _rank(score: Array) -> tuple[Array, Array, Array]:
    """Finds the order from the lowest on; and for each sample how many are below it, and below or
    equal.
    """
    order = np.argsort(score, kind="stable")
    sorted_score = score[order]
    return (
        order,
        np.searchsorted(sorted_score, score, "left"),
        np.searchsorted(sorted_score, score, "right"),
    )


def auc_of_cells(negative: Array, positive: Array) -> Array:
    """Computes the AUC where scores lie in cells: sum_b p_b (n_<b + n_b / 2) / (P N) over the last
    axis.

    Args:
        negative: The number of negatives in each cell, from the lowest on.
        positive: The number of positives in each cell.

    Returns:
        The AUC.
    """
    below = np.cumsum(negative, -1) - negative / 2
    positives, negatives = positive.sum(-1), negative.sum(-1)
    there = np.minimum(positives, negatives) > 0
    return np.where(
        there, (positive * below).sum(-1) / np.where(there, positives * negatives, 1.0), np.nan
    )


def average_precision(score: Array, truth: Array, times: Array) -> Array:
    """Computes sum_k (recall_k - recall_{k-1}) precision_k over the distinct thresholds.

    So a positive counts with the precision among those that score at least as high.

    Args:
        score: A score for each sample.
        truth: The labels, 0 or 1.
        times: How often each sample is in each set.

    Returns:
        The average precision (sets,).
    """
    positive = truth == 1
    order, _, through = _rank(-score)
    above = np.cumsum(times[order], axis=0)[through[positive] - 1]
    hits = np.cumsum(times[order] * positive[order, None], axis=0)[through[positive] - 1]
    weights = times[positive]
    return over((weights * hits / np.maximum(above, SMALLEST)).sum(0), weights.sum(0))


def auc_against_rest(chances: Array, truth: Array, times: Array) -> Array:
    """Computes the mean over classes of the AUC of one class against all others.

    Args:
        chances: The probabilities (samples, classes).
        truth: The labels.
        times: How often each sample is in each set.

    Returns:
        The AUC (sets,).
    """
    return mean_of(
        np.stack(
            [auc(chances[:, label], truth == label, times) for label in range(chances.shape[1])]
        )
    )


def confidence(chances: Array, truth: Array) -> tuple[Array, Array]:
    """Finds the probability of the class that is predicted, and whether it was right.

    Args:
        chances: The probabilities (samples, classes).
        truth: The labels.

    Returns:
        Both, for each sample.
    """
    predictions = chances.argmax(1)
    return chances[np.arange(len(predictions)), predictions], (predictions == truth).astype(int)


def log_loss(chances: Array, truth: Array, times: Array) -> Array:
    """Computes the mean of -log p_y.

    Args:
        chances: The probabilities (samples, classes).
        truth: The labels.
        times: How often each sample is in each set.

    Returns:
        The loss (sets,).
    """
    return mean(-np.log(np.maximum(chances[np.arange(len(truth)), truth], SMALLEST)), times)


def brier(chances: Array, truth: Array, times: Array) -> Array:
    """Computes the mean over samples of sum_k (p_k - 1[y = k])^2.

    Args:
        chances: The probabilities (samples, classes).
        truth: The labels.
        times: How often each sample is in each set.

    Returns:
        The Brier score (sets,).
    """
    return mean(np.square(chances - np.eye(chances.shape[1])[truth]).sum(axis=1), times)


def calibration_curve(
    chance: Array, truth: Array, bins: int = BINS
) -> list[tuple[float, float, int]]:
    """Computes, for each bin that has samples, the mean probability, the share that was so, and the
    number of samples.

    Args:
        chance: The probability of each sample.
        truth: Whether it was so, 0 or 1.
        bins: The number of bins.

    Returns:
        The bins, from the lowest on.
    """
    is_finite = np.isfinite(chance)
    chance, truth = chance[is_finite], truth[is_finite]
    place = _place(chance, bins)
    members = [place == number for number in range(bins)]
    return [
        (float(chance[these].mean()), float(truth[these].mean()), int(these.sum()))
        for these in members
        if these.any()
    ]


def calibration_error(chance: Array, truth: Array, times: Array, bins: int = BINS) -> Array:
    """Computes the mean over samples of the distance, in their bin, between the mean probability
    and the share.

    Args:
        chance: The probability of each sample.
        truth: Whether it was so, 0 or 1.
        times: How often each sample is in each set.
        bins: The number of bins.

    Returns:
        The expected calibration error (sets,).
    """
    apart = np.eye(bins)[:, _place(chance, bins)] * (chance - truth)
    return over(np.abs(apart @ times).sum(0), times.sum(0))


def _place(chance: Array, bins: int) -> Array:
    """Finds the bin of each probability. A NaN, of a model that diverged, is in the first bin and
    makes it NaN.
    """
    place: Array = np.minimum(np.nan_to_num(chance * bins).astype(int), bins - 1)
    return place
