"""Metrics from noisy sums: what each sample counts with, and the figures that follow.

Each sample counts with numbers between 0 and 1, so that the sensitivity of their mean is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpfl.lazy_import import torch
from dpfl.tasks.metrics import auc_of_cells
from dpfl.tasks.task import Array, Task

if TYPE_CHECKING:
    from torch import Tensor

BINS = 10
"""Bins of the probabilities of a binary model, from 0 to 1, for the AUC."""
DRAWS = 1000
LOSS = "clipped loss"


@dataclass(frozen=True)
class NoisyFigures:
    """Metrics with intervals, for noise and for who is among the samples.

    Attributes:
        headline: The name of the first metric.
        metrics: The metrics by name.
        intervals: The middle 95 % of where each may lie.
    """

    headline: str
    metrics: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]


def numbers_and_cells(task: Task) -> tuple[int, int]:
    """Counts the numbers and the cells that a sample contributes.

    Args:
        task: The task.

    Returns:
        How many numbers (the loss, and whether the answer was right, where there is one), and how
        many cells of a histogram (label and probability, of a binary task).
    """
    return 1 + task.answers, 2 * BINS if task.yes_or_no else 0


def count_outcomes(task: Task, scores: Tensor, y: Tensor, most: float) -> Tensor:
    """Computes the numbers and cells that each sample contributes.

    Args:
        task: The task.
        scores: The scores of the samples.
        y: Their labels.
        most: The largest loss that counts.

    Returns:
        For each sample: its loss as a share of `most`, 1 if the answer was right, and a 1 in the
        cell of its label and probability.
    """
    parts = [
        (task.nonnegative_losses(scores, y) / most)
        .nan_to_num(1.0, 1.0, 0.0)
        .clamp(0.0, 1.0)
        .unsqueeze(1)
    ]
    if task.answers:
        parts.append(task.right_shares(scores, y).unsqueeze(1))
    if task.yes_or_no:
        chance = torch.sigmoid(scores.reshape(-1)).nan_to_num(0.0)
        cell = (chance * BINS).long().clamp(max=BINS - 1) + BINS * y.long()
        parts.append((cell.unsqueeze(1) == torch.arange(2 * BINS)).float())
    return torch.cat(parts, dim=1)


def figures(task: Task, mean: Array, units: int, noise: float, most: float) -> NoisyFigures:
    """Computes the metrics that follow from a noisy mean.

    A number between 0 and 1 with the mean m has a variance of at most m (1 - m), over persons as
    over samples.

    Args:
        task: The task.
        mean: The noisy mean of what the units counted with.
        units: The number of units.
        noise: The standard deviation of the noise in the mean.
        most: The largest loss that counts.

    Returns:
        The metrics.
    """
    numbers, _ = numbers_and_cells(task)
    names = (LOSS, "accuracy")[:numbers]
    metrics, intervals = dict[str, float](), dict[str, tuple[float, float]]()
    for name, value in zip(names, mean[:numbers].tolist(), strict=True):
        inside = min(max(value, 0.0), 1.0)
        half = 1.96 * float(np.sqrt(inside * (1 - inside) / units + noise**2))
        unit = most if name == LOSS else 1.0
        metrics[name] = unit * inside
        intervals[name] = unit * max(value - half, 0.0), unit * min(value + half, 1.0)
    if task.yes_or_no:
        metrics["AUC"], intervals["AUC"] = _auc_between(mean[numbers:], units, noise)
    headline = task.headline if task.headline in metrics else LOSS
    first = {headline: metrics.pop(headline)}
    return NoisyFigures(headline, first | metrics, intervals)


def _auc_between(cells: Array, units: int, noise: float) -> tuple[float, tuple[float, float]]:
    """Computes the AUC, and the range in which it would lie with other samples of the same shares
    and other noise.

    That is anywhere from 0 to 1 where the noise hides whether both labels occur.
    """
    rng, shares = np.random.default_rng(0), np.maximum(cells, 0.0)
    if not shares.sum() > 0:
        return float("nan"), (0.0, 1.0)
    shares = shares / shares.sum()
    draws = (
        cells
        + rng.multinomial(units, shares, DRAWS) / units
        - shares
        + noise * rng.standard_normal((DRAWS, len(cells)))
    )
    estimate, each = float(_auc(cells)), _auc(draws)
    if np.isnan(each).mean() > 0.025:
        return estimate, (0.0, 1.0)
    low, high = np.nanpercentile(each, [2.5, 97.5])
    return estimate, (float(low), float(high))


def _auc(cells: Array) -> Array:
    """Computes the AUC of noisy shares; NaN where noise leaves nothing of a label."""
    negative, positive = np.moveaxis(cells.reshape(*cells.shape[:-1], 2, -1), -2, 0)
    return np.clip(auc_of_cells(negative, positive), 0.0, 1.0)
