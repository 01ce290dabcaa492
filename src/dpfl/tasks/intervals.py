"""Intervals of what was measured, by drawing the test set again and again from itself (Efron
1979).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from dpfl.tasks.task import Array, Task

DRAWS = 200
AT_ONCE = 2**21
"""Numbers that say how often each sample is in which test set."""


def intervals(
    task: Task,
    scores: Array,
    y: Array,
    owners: Array | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Mapping[str, tuple[float, float]]:
    """The middle 95 % of what a task measures over test sets that are drawn from this one, by owner
    where samples have one.

    It says how far a figure depends on who is in the test set; not what another training run would
    give.
    """
    found: dict[str, list[Array]] = {}
    for times in _drawn(len(y), owners, draws, np.random.default_rng(seed)):
        for name, figures in task.figures(scores, y, times).items():
            found.setdefault(name, []).append(figures)
    return {name: _middle(np.concatenate(figures)) for name, figures in found.items()}


def _drawn(
    count: int, owners: Array | None, draws: int, rng: np.random.Generator
) -> Iterator[Array]:
    """How often each sample is in each of the sets (samples, sets), as many of them at once as
    there is room for.
    """
    whose = (
        np.arange(count)
        if owners is None
        else np.unique(owners, return_inverse=True)[1].reshape(-1)
    )
    units = int(whose.max(initial=-1)) + 1
    for start in range(0, draws, step := max(1, AT_ONCE // max(count, 1))):
        sets = range(start, min(start + step, draws))
        counts = np.stack(
            [np.bincount(rng.integers(0, units, units), minlength=units) for _ in sets], axis=1
        )
        yield counts.astype(np.float64)[whose]


def _middle(figures: Array) -> tuple[float, float]:
    known = figures[~np.isnan(figures)]
    if not len(known):
        return float("nan"), float("nan")
    low, high = np.percentile(known, [2.5, 97.5])
    return float(low), float(high)
