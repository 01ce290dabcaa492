"""Clip and rate for rows of a table, from what is declared of them: how long a row is, and how
steep the loss of its label.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dpfl.tasks import Task

SCORE_NOISE = 0.5
"""How far the noise of a whole run may move a score: beyond it, chances and rates are lost in it
(docs/auto.md).
"""


class FeatureCounts(Protocol):
    @property
    def numbers(self) -> int: ...

    @property
    def levels(self) -> Sequence[int]: ...


@dataclass(frozen=True)
class RowFeatures:
    """A row of this length, of columns declared to be of about unit size and a constant 1; the loss
    of its label has slopes of about `slope` at a score, and at most `curvature`."""

    length: float
    slope: float
    curvature: float

    @property
    def clip(self) -> float:
        """The length of a usual gradient: shorter ones would all count the same, and chances and
        means would be lost.
        """
        return float(f"{self.slope * self.length:.3g}")

    @property
    def most(self) -> float:
        """2 / L, beyond which steps on the loss of a linear model may grow, with L <= curvature
        |x|^2.
        """
        return 2 / (self.curvature * self.length**2)

    def walk(self, parameters: int) -> float:
        """The move of all parameters at which a score x . w moves by SCORE_NOISE."""
        return SCORE_NOISE * math.sqrt(parameters) / self.length


def rows_of(features: FeatureCounts | None, task: Task) -> RowFeatures | None:
    """None where samples are no rows, or their label's loss is not known."""
    if features is None or task.name not in _LOSSES:
        return None
    slope, curvature = _LOSSES[task.name]
    heaviest = max(getattr(task, "weights", ()) or (1.0,))
    shared = (
        task.outputs if task.name in ("labels", "ordinal") else 1
    )  # their loss is a mean over outputs
    length = math.sqrt(features.numbers + len(features.levels) + 1)
    return RowFeatures(length, heaviest * slope / math.sqrt(shared), heaviest * curvature / shared)


_LOSSES = {
    "binary": (1.0, 0.25),
    "labels": (1.0, 0.25),
    "ordinal": (1.0, 0.25),
    "classes": (1.0, 0.5),
    "number": (1.0, 1.0),
    "counts": (2.0, 1.0),
}
"""Slopes and curvatures of losses at a score, in the unit that they are trained in."""
