"""The outcome of a run: the trained model with its metrics and its privacy statement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfl.deprecation import keep_old_names
from dpfl.notebook_repr import NotebookView
from dpfl.privacy import PrivacyStatement
from dpfl.privacy.units import protects_client, protects_nobody
from dpfl.run.metrics import RunHistory, figure

if TYPE_CHECKING:
    from torch import nn


@keep_old_names(lost="lost_replies")
@dataclass(frozen=True)
class Result(NotebookView, shown_by="result_page"):
    """The outcome of a run, which `train` returns and `result.json` holds.

    Attributes:
        run: The name of the run in ledgers and certificates.
        rounds: How many rounds it made.
        iterations: How many steps each client made.
        accuracy: On the test set; None without one, or where the task has no accuracy.
        loss: The mean loss on the test set; None without one.
        stopped_by: What ended the run, such as "rounds" or "epsilon".
        model_sha256: The digest of the weights.
        privacy: The privacy statement.
        history: The rounds, as rows.
        notes: What a person should know of the run.
        lost_replies: A line for each reply that never arrived or could not be used.
        folder: The run's folder.
        module: The trained model.
        warnings: The warnings of the statement, and those about the model itself.
        headline: The name of the task's first metric.
        metrics: All that the task measures on the test set.
        intervals: The middle 95 % of each metric over test sets drawn from this one, by person
            where it has persons. For a noisy metric, of the noise, too.
        noisy: On which samples the clients measured, where the metric is noisy.
        calibration: For each bin of predicted probabilities the mean prediction, the observed
            frequency, and how many test samples it holds.
    """

    run: str
    rounds: int
    iterations: int
    accuracy: float | None
    loss: float | None
    stopped_by: str
    model_sha256: str
    privacy: PrivacyStatement
    history: RunHistory
    notes: Sequence[str]
    lost_replies: Sequence[str]
    folder: Path
    module: nn.Module
    warnings: Sequence[str] = ()
    headline: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    noisy: str = ""
    calibration: Sequence[tuple[float, float, int]] = ()

    @property
    def measured(self) -> str:
        """The headline in words."""
        if not self.headline:
            return "accuracy not measured"
        return figure(self.headline, self.metrics[self.headline])

    def __repr__(self) -> str:
        """Writes the outcome in a line. The statement is in `privacy`, the rounds in `history`."""
        proven, unit = self.privacy.lines()[0][1], self.privacy.unit
        for_unit = "" if protects_nobody(unit) else f" for one {unit}"
        return (
            f"Result({self.measured} after {self.rounds} rounds, ended by {self.stopped_by}; "
            f"proven{for_unit}: {proven}; in {self.folder})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Writes the outcome as plain values.

        Returns:
            The content of `result.json`.
        """
        names = ("run", "rounds", "iterations", "accuracy", "loss", "stopped_by", "model_sha256")
        metrics = {name: finite_or_none(value) for name, value in self.metrics.items()}
        intervals = {
            name: [finite_or_none(end) for end in ends] for name, ends in self.intervals.items()
        }
        return {
            **{name: finite_or_none(getattr(self, name)) for name in names},
            "headline": self.headline or None,
            "metrics": metrics,
            "intervals": intervals,
            "noisy": self.noisy or None,
            "calibration": [list(point) for point in self.calibration],
            "privacy": self.privacy.to_dict(),
            "notes": list(self.notes),
            "warnings": list(self.warnings),
            "lost": self._lost_lines(),
            "folder": str(self.folder),
        }

    def _lost_lines(self) -> list[str]:
        """Lists the lost replies; at client level only their number. A name would say who was
        drawn, which stays with the server.
        """
        if not protects_client(self.privacy.unit) or not self.lost_replies:
            return list(self.lost_replies)
        return [f"{len(self.lost_replies)} replies"]


def finite_or_none(value: Any) -> Any:
    """Replaces what JSON cannot hold, which has neither nan nor infinity.

    Args:
        value: A number, or anything else.

    Returns:
        None for a float that is not finite, otherwise the value.
    """
    return None if isinstance(value, float) and not math.isfinite(value) else value
