"""Plans clip norm and learning rate for the rows of a table from what is declared of them.

Two declared facts decide: the length of a row, and the slope and curvature of the label's loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dpfl.tasks import Task

SCORE_NOISE = 0.5
"""Distance by which the noise of a whole run may move a score. Beyond it, noise drowns
probabilities and rates (docs/auto.md).
"""


class FeatureCounts(Protocol):
    """The declared counts of a table's columns.

    Attributes:
        numbers: Number of columns that hold numbers.
        levels: Number of values of each column that holds categories.
    """

    @property
    def numbers(self) -> int:
        """Number of columns that hold numbers."""

    @property
    def levels(self) -> Sequence[int]:
        """Number of values of each column that holds categories."""


@dataclass(frozen=True)
class RowFeatures:
    """Size of a row, and steepness of its label's loss.

    Columns are declared to be of about unit size, and each row has a constant 1 besides.

    Attributes:
        length: L2 norm of a usual row.
        slope: Usual slope of the loss at a score.
        curvature: Largest curvature of the loss at a score.
    """

    length: float
    slope: float
    curvature: float

    @property
    def clip(self) -> float:
        """Norm of a usual gradient. With a smaller clip norm all gradients would count the same,
        which loses probabilities and means.
        """
        return float(f"{self.slope * self.length:.3g}")

    @property
    def most(self) -> float:
        """Largest learning rate, 2 / L with L <= curvature |x|^2. Steps beyond it may diverge on a
        linear model.
        """
        return 2 / (self.curvature * self.length**2)

    def walk(self, parameters: int) -> float:
        """Returns the distance of all parameters at which a score x . w moves by SCORE_NOISE.

        Args:
            parameters: Number of parameters of the model.

        Returns:
            The distance, an L2 norm.
        """
        return SCORE_NOISE * math.sqrt(parameters) / self.length


def rows_of(features: FeatureCounts | None, task: Task) -> RowFeatures | None:
    """Describes the rows of a table to the planner.

    Args:
        features: Declared columns; None if samples are not rows of a table.
        task: What is predicted.

    Returns:
        The size of a row, or None if samples are not rows or the loss of their label is unknown.
    """
    if features is None or task.name not in _LOSSES:
        return None
    slope, curvature = _LOSSES[task.name]
    heaviest = max(getattr(task, "weights", ()) or (1.0,))
    shared_outputs = (
        task.outputs if task.name in ("labels", "ordinal") else 1
    )  # their loss is a mean over outputs
    length = math.sqrt(features.numbers + len(features.levels) + 1)
    return RowFeatures(
        length, heaviest * slope / math.sqrt(shared_outputs), heaviest * curvature / shared_outputs
    )


_LOSSES = {
    "binary": (1.0, 0.25),
    "labels": (1.0, 0.25),
    "ordinal": (1.0, 0.25),
    "classes": (1.0, 0.5),
    "number": (1.0, 1.0),
    "counts": (2.0, 1.0),
}
"""Largest slope and curvature of each loss at a score, in the unit in which it is trained."""
