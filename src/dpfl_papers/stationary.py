"""Computes where FedAvg with clipped updates stops on three parabolas, in closed form: problem (8)
of the clipping paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from dpfl_papers.cells import Outcome

MINIMISERS, CURVATURES = (4.0, 1 / 2, -1 / 6), (1.0, 4.0, 36.0)


@dataclass(frozen=True)
class StationaryPoint:
    """The x at which the clipped updates of the clients sum to 0.

    Attributes:
        steps: Local steps per round, Q.
        clip: Limit on the length of an update; None clips nothing.
        rate: Learning rate at the clients.
    """

    steps: int
    clip: float | None = None
    rate: float = 0.01
    tag: ClassVar[str] = "Stationary"

    @property
    def content(self) -> Mapping[str, Any]:
        """The attributes by name."""
        return asdict(self)

    def with_settings(self, settings: Sequence[str]) -> StationaryPoint:
        """Returns the work unchanged, because it has no experiment.

        Args:
            settings: Settings of the form `section.key=value`.

        Returns:
            This work.
        """
        return self

    def run(self, seed: int, data_dir: Path | None, prefixes: Path | None = None) -> Outcome:
        """Computes the point.

        Args:
            seed: Seed of all random draws.
            data_dir: Folder of the data sets; by default `DPFL_DATA`.
            prefixes: Not used.

        Returns:
            The outcome; the same for every seed.
        """
        return Outcome(self.point())

    def drift(self, x: float) -> float:
        """Computes sum_i clip(w_i (x_i - x), c) with w_i = 1 - (1 - eta a_i)^Q, which falls in x.

        Args:
            x: The model.

        Returns:
            The sum of the clipped updates.
        """
        updates = [
            (1 - (1 - self.rate * curvature) ** self.steps) * (minimiser - x)
            for minimiser, curvature in zip(MINIMISERS, CURVATURES, strict=True)
        ]
        return sum(
            updates
            if self.clip is None
            else [max(-self.clip, min(self.clip, update)) for update in updates]
        )

    def point(self) -> float:
        """Finds the root of `drift` by bisection.

        Returns:
            The stationary point.
        """
        low, high = min(MINIMISERS), max(MINIMISERS)
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if self.drift(middle) > 0 else (low, middle)
        return (low + high) / 2
