"""Intervals of metrics against what they should hold, and against test sets drawn one by one."""

import math

import numpy as np
import pytest

from dpfl import tasks
from dpfl.tasks.intervals import intervals

FORMS: dict[tasks.Task, tuple[int, ...]] = {
    tasks.MultiClass(3): (),
    tasks.Binary(): (),
    tasks.MultiLabel(2): (2,),
    tasks.Ordinal(3): (),
    tasks.Regression(): (),
    tasks.Counts(2.0): (),
    tasks.NextToken(3): (4,),
}
"""Every task, with the form of a label."""


def outcome(task: tasks.Task, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores, some of them equal, and labels."""
    rng, places = np.random.default_rng(seed), FORMS[task] if task.name == "tokens" else ()
    return rng.normal(size=(count, *places, task.outputs)).round(1), rng.integers(
        0, 2, (count, *FORMS[task])
    )


def test_an_interval_is_that_of_the_accuracy_of_a_coin():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 1000)
    scores = np.stack(
        [np.zeros(1000), np.where(rng.random(1000) < 0.8, 1, -1) * np.where(y == 1, 1, -1)], axis=1
    )
    low, high = intervals(tasks.MultiClass(2), scores, y)["accuracy"]
    assert (high - low) / 2 == pytest.approx(1.96 * math.sqrt(0.8 * 0.2 / 1000), rel=0.25)
    assert low < 0.8 < high


def test_rows_of_one_owner_are_drawn_together():
    """Ten rows each that agree: the interval is that of a tenth as many, over three times as
    wide.
    """
    rng = np.random.default_rng(1)
    right = np.repeat(rng.random(100) < 0.7, 10)
    scores = np.stack([np.zeros(1000), np.where(right, 1.0, -1.0)], axis=1)
    y, owners = np.ones(1000, int), np.repeat(np.arange(100), 10)
    alone, together = (
        intervals(tasks.MultiClass(2), scores, y, who)["accuracy"] for who in (None, owners)
    )
    assert (together[1] - together[0]) / (alone[1] - alone[0]) == pytest.approx(
        math.sqrt(10), rel=0.3
    )


@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize("task", FORMS, ids=lambda task: task.name)
def test_intervals_are_those_of_samples_drawn_one_after_another(task, owned) -> None:
    """All sets are measured at once, by how often a sample is in each: the figures are of the drawn
    rows themselves.
    """
    scores, y = outcome(task, 30)
    owners = np.random.default_rng(1).integers(0, 12, 30) if owned else np.arange(30)
    rng, names, found = np.random.default_rng(0), np.unique(owners), []
    for _ in range(20):
        rows = np.concatenate(
            [
                np.flatnonzero(owners == names[one])
                for one in rng.integers(0, len(names), len(names))
            ]
        )
        found.append(task.metrics(scores[rows], y[rows]))
    expected = {
        name: np.nanpercentile([one[name] for one in found], [2.5, 97.5]) for name in found[0]
    }
    at_once = intervals(task, scores, y, owners if owned else None, draws=20)
    assert {name: pytest.approx(tuple(ends)) for name, ends in expected.items()} == at_once


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("task", FORMS, ids=lambda task: task.name)
def test_what_is_not_defined_for_one_sample_is_nan(task) -> None:
    scores, y = outcome(task, 1)
    undefined = (
        {"AUC", "average precision", "R^2", "explained deviance"}
        if not y.any()
        else {"AUC", "R^2", "explained deviance"}
    )
    found = intervals(task, scores, y)
    assert {name for name, ends in found.items() if math.isnan(ends[0])} == undefined & set(found)
