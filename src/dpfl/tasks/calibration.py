"""Whether chances are what they say: by bins, what was said against what was so."""

from __future__ import annotations

import numpy as np

from dpfl.tasks import metrics as measured
from dpfl.tasks.task import Array, Task

Curve = list[tuple[float, float, int]]


def calibration(task: Task, scores: Array, y: Array) -> Curve:
    """For each bin that has any: the mean chance said, the share that was so, and how many. Of yes,
    or of the class that was said where there are many; none where a task gives no chances."""
    if task.name == "binary":
        return measured.calibration_curve(measured.sigmoid(scores.reshape(-1)), y.astype(np.int64))
    if task.name == "classes":
        return measured.calibration_curve(*measured.confidence(measured.softmax(scores), y))
    return []
