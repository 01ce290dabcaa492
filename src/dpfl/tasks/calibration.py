"""Whether predicted probabilities hold: what was predicted against what happened, in bins."""

from __future__ import annotations

from dpfl.tasks import metrics as measured
from dpfl.tasks.task import Array, Task

Curve = list[tuple[float, float, int]]


def calibration(task: Task, scores: Array, y: Array) -> Curve:
    """Computes the calibration curve of a model.

    Args:
        task: The task.
        scores: The scores of the test set.
        y: Its labels.

    Returns:
        For each bin that has samples: the mean predicted probability, the share that was so, and
        the number of samples. It is the probability of yes, or of the class that was predicted. The
        curve is empty where a task has no probabilities.
    """
    pairs = task.confidences(scores, y)
    return [] if pairs is None else measured.calibration_curve(*pairs)
