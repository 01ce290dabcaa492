"""Intervals of metrics, by drawing test sets from the test set: the bootstrap (Efron 1979)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from dpfl.tasks.task import Array, Task

DRAWS = 200
AT_ONCE = 2**21
"""The most counts (samples times test sets) that are in memory at a time."""


def intervals(
    task: Task,
    scores: Array,
    y: Array,
    owners: Array | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Mapping[str, tuple[float, float]]:
    """Computes the middle 95 % of each metric over test sets that are drawn from this one.

    They say how far a metric depends on who is in the test set. They do not say what another
    training run would give.

    Args:
        task: The task.
        scores: The scores of the test set.
        y: Its labels.
        owners: The owner of each sample. Then owners are drawn, with all of their samples.
        draws: The number of test sets that are drawn.
        seed: Seeds the draws.

    Returns:
        The lower and the upper end, by metric.
    """
    values: dict[str, list[Array]] = {}
    for times in _resample(len(y), owners, draws, np.random.default_rng(seed)):
        for name, figures in task.figures(scores, y, times).items():
            values.setdefault(name, []).append(figures)
    return {name: _middle(np.concatenate(figures)) for name, figures in values.items()}


def _resample(
    count: int, owners: Array | None, draws: int, rng: np.random.Generator
) -> Iterator[Array]:
    """Draws how often each sample is in each test set (samples, sets), for as many sets as there is
    room for.
    """
    owner = (
        np.arange(count)
        if owners is None
        else np.unique(owners, return_inverse=True)[1].reshape(-1)
    )
    units = int(owner.max(initial=-1)) + 1
    for start in range(0, draws, step := max(1, AT_ONCE // max(count, 1))):
        sets = range(start, min(start + step, draws))
        counts = np.stack(
            [np.bincount(rng.integers(0, units, units), minlength=units) for _ in sets], axis=1
        )
        yield counts.astype(np.float64)[owner]


def _middle(figures: Array) -> tuple[float, float]:
    defined_figures = figures[~np.isnan(figures)]
    if not len(defined_figures):
        return float("nan"), float("nan")
    low, high = np.percentile(defined_figures, [2.5, 97.5])
    return float(low), float(high)
