"""Intervals of what was measured, by drawing the test set again and again from itself (Efron 1979)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dpfl.tasks.task import Array, Task

Measure = Callable[[Array, Array], Mapping[str, float]]
DRAWS = 200


def intervals(
    measure: Measure, scores: Array, y: Array, owners: Array | None = None, draws: int = DRAWS, seed: int = 0
) -> Mapping[str, tuple[float, float]]:
    """The middle 95 % of what a task measures over test sets that are drawn from this one, by owner where samples have one.

    It says how far a figure depends on who is in the test set; not what another training run would give.
    """
    rng, found = np.random.default_rng(seed), dict[str, list[float]]()
    groups = _rows_by_owner(owners) if owners is not None else None
    for _ in range(draws):
        rows = _drawn(len(y), groups, rng)
        for name, figure in measure(scores[rows], y[rows]).items():
            found.setdefault(name, []).append(figure)
    return {name: _middle(np.array(figures)) for name, figures in found.items()}


def intervals_of(task: Task, scores: Array, y: Array, owners: Array | None = None) -> Mapping[str, tuple[float, float]]:
    """Of what a task measures; where its figures are of sums over samples (`sums`, `of_sums`), those are made once."""
    sums, of_sums = getattr(task, "sums", None), getattr(task, "of_sums", None)
    if sums is None or of_sums is None:
        return intervals(task.metrics, scores, y, owners)
    return intervals(lambda drawn, _: of_sums(drawn), sums(scores, y), y, owners)


def _rows_by_owner(owners: Array) -> list[Array]:
    order = np.argsort(owners, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(owners[order])) + 1)


def _drawn(count: int, groups: list[Array] | None, rng: np.random.Generator) -> Array:
    if groups is None:
        return rng.integers(0, count, count)
    return np.concatenate([groups[one] for one in rng.integers(0, len(groups), len(groups))])


def _middle(figures: Array) -> tuple[float, float]:
    known = figures[~np.isnan(figures)]
    if not len(known):
        return float("nan"), float("nan")
    low, high = np.percentile(known, [2.5, 97.5])
    return float(low), float(high)
