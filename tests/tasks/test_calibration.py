"""Calibration curves of models whose probabilities hold, and of others."""

import numpy as np
import pytest

from dpfl import tasks
from dpfl.tasks import metrics
from dpfl.tasks.calibration import calibration


@pytest.mark.parametrize("task", [tasks.Binary(), tasks.MultiClass(3)], ids=lambda task: task.name)
def test_chances_that_are_so_lie_on_the_diagonal(task) -> None:
    rng = np.random.default_rng(0)
    scores = 2 * rng.normal(size=(40_000, task.outputs))
    chances = (
        metrics.softmax(scores)
        if task.name == "classes"
        else metrics.sigmoid(np.hstack([-scores, scores]))
    )
    y = (rng.random((len(scores), 1)) > chances.cumsum(1)).sum(1).clip(max=chances.shape[1] - 1)
    curve = calibration(task, scores, y)
    assert sum(count for *_, count in curve) == len(y)
    assert all(abs(said - was) < 0.06 for said, was, count in curve if count > 300)
    wrong = calibration(task, 3 * scores, y)
    assert max(abs(said - was) for said, was, count in wrong if count > 300) > 0.06
    assert (
        task.metrics(scores, y)["calibration error"]
        < 0.02
        < task.metrics(3 * scores, y)["calibration error"]
    )


def test_tasks_without_chances_have_no_curve() -> None:
    assert calibration(tasks.Counts(), np.zeros((3, 1)), np.ones(3)) == []
