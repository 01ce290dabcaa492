"""What is kept of a round: evaluation, a row of metrics, a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from dpfl.algorithms import Algorithm
from dpfl.client.noise_placement import NoisePlacement
from dpfl.data import Dataset
from dpfl.errors import Diverged
from dpfl.models import FlatModel
from dpfl.models.evaluation import compute_scores
from dpfl.models.flat import evaluating
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.run.accounts import Meter
from dpfl.run.folder import RunFolder
from dpfl.run.metrics import Metrics, RoundRow, UpdateRow
from dpfl.server.coordinator import Coordinator
from dpfl.server.state import METRIC, PAST_NOISE, RunState
from dpfl.tasks.calibration import Curve, calibration
from dpfl.tasks.intervals import intervals
from dpfl.tasks.noisy import figures

VALIDATED = 2000


class Progress(Protocol):
    """Whoever watches a run."""

    def start(self, job: Any) -> None: ...

    def tell(self, row: RoundRow) -> None: ...

    def stop(self) -> None: ...


class SilentProgress:
    def start(self, job: Any) -> None: ...

    def tell(self, row: RoundRow) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class TestFigures:
    """What is measured of a model on the test set; None where there is no such public data, or no
    such figure.
    """

    accuracy: float | None = None
    loss: float | None = None
    headline: float | None = None


@dataclass(frozen=True)
class FinalMetrics:
    """Every metric of the finished model, how far it depends on who is in the test set, and whether
    its chances are so.
    """

    headline: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    noisy: str = ""
    """Of whom, where it is no public test set, and that there is noise in it."""
    calibration: Curve = field(default_factory=list)


@dataclass(frozen=True)
class Recorder:
    folder: RunFolder
    metrics: Metrics
    model: FlatModel
    test: Dataset | None
    meter: Meter | None
    every: int
    progress: Progress
    persons: Tensor | None = None
    """Whose each test sample is."""

    @property
    def classes(self) -> int:
        """How many the test set has, which is what guessing is measured by; 0 where labels are
        none.
        """
        return self.test.y.unique().numel() if self.test and self.test.classes else 0

    def close_round(self, coordinator: Coordinator, updates: Sequence[UpdateRow] = ()) -> None:
        """The checkpoint comes first: nothing of a round is shown while a crash could have it made
        again.
        """
        coordinator.state.lost = self._told(coordinator)
        self.folder.save_checkpoint(coordinator.state)
        self._show(coordinator, updates)

    def _told(self, coordinator: Coordinator) -> list[str]:
        """At client level a name would say who was drawn, which outlives no process of the
        server.
        """
        return (
            ["a reply"] * len(coordinator.lost)
            if coordinator.algorithm.unit == "client"
            else list(coordinator.lost)
        )

    def catch_up(self, coordinator: Coordinator) -> None:
        """The round of the checkpoint, where a crash came before it was shown."""
        if coordinator.state.round > self.metrics.last_round():
            self._show(coordinator)

    def _show(self, coordinator: Coordinator, updates: Sequence[UpdateRow] = ()) -> None:
        state = coordinator.state
        figures = self.evaluate(state.model) if state.round % self.every == 0 else TestFigures()
        of_sum = coordinator.algorithm.placement is NoisePlacement.ROUND_SUM
        adapts = of_sum or coordinator.algorithm.schedule
        release = state.clients if of_sum else state.samples
        row = RoundRow(
            round=state.round,
            steps=state.tau,
            iterations=state.iterations,
            clients=state.shown,
            accuracy=figures.accuracy,
            loss=figures.loss,
            headline=figures.headline,
            epsilon=self.meter.at_most(coordinator.releases) if self.meter else None,
            clip=release.clip.clip_norm if adapts and release else None,
            bytes=state.bytes,
            seconds=state.seconds,
        )
        hidden = (
            coordinator.algorithm.unit == "client"
        )  # when somebody was lost would say when they were drawn
        self.metrics.add(row, updates, () if hidden else coordinator.lost)
        self.progress.tell(row)
        if self.test and figures.loss is not None and not math.isfinite(figures.loss):
            self._refuse_divergence(self.test, state.round)

    def _refuse_divergence(self, test: Dataset, round: int) -> None:
        """Samples without a finite gradient count as nothing, so only public ones can say that
        hardly any has one.
        """
        with evaluating(self.model.module):
            scores = self.model.module(self.model.arrange(test.x[:VALIDATED]))
        if torch.isfinite(scores).flatten(1).all(1).float().mean() < 0.5:
            raise Diverged(
                f"Training diverged on the test set after round {round}: its scores are not "
                "finite. "
                "The last good checkpoint is kept; lower the learning rate, then start anew."
            )

    def evaluate(self, vector: Tensor) -> TestFigures:
        self.model.load(vector)
        if not self.test:
            return TestFigures()
        scores, loss = compute_scores(self.model, self.test.x, self.test.y)
        shown = self.test.task.live_metrics(scores.numpy(), self.test.y.numpy())
        return TestFigures(shown.get("accuracy"), loss, shown[self.test.task.headline])

    def close_run(self, coordinator: Coordinator) -> None:
        """The metric that clients are asked for, kept before it is shown: a run that goes on from
        here does not ask again.
        """
        if coordinator.algorithm.metric and METRIC not in coordinator.state.memory:
            coordinator.measure()
            self.folder.save_checkpoint(coordinator.state)

    def measure(self, state: RunState, algorithm: Algorithm) -> FinalMetrics:
        """At the end of a run: all that the task measures; intervals by person, where the test set
        has persons.
        """
        self.model.load(state.model)
        if not self.test:
            return self._noisy(
                state.memory.get(METRIC),
                algorithm.metric,
                "persons" if algorithm.unit == "person" else "samples",
            )
        task, y, persons = (
            self.test.task,
            self.test.y.numpy(),
            None if self.persons is None else self.persons.numpy(),
        )
        scores = compute_scores(self.model, self.test.x, self.test.y)[0].numpy()
        found = intervals(task, scores, y, persons)
        return FinalMetrics(
            task.headline, task.metrics(scores, y), found, calibration=calibration(task, scores, y)
        )

    def _noisy(self, answered: Tensor | None, asked: MetricQuery | None, whom: str) -> FinalMetrics:
        if answered is None or asked is None or self.model.task is None:
            return FinalMetrics()
        units, noise, *mean = answered.tolist()
        found = figures(self.model.task, np.array(mean), int(units), noise, asked.most)
        of = (
            "kept out of training"
            if asked.held_out
            else "that it was trained on, which flatters it"
        )
        return FinalMetrics(
            **vars(found), noisy=f"with noise, on {int(units)} {whom} of the clients {of}"
        )

    def validate(self, vector: Tensor) -> float:
        """The loss on the first of the test samples, for systems that follow a public loss in every
        round.
        """
        assert self.test is not None, (
            "a system that follows a public loss is refused where there is none"
        )
        self.model.load(vector)
        return compute_scores(self.model, self.test.x[:VALIDATED], self.test.y[:VALIDATED])[1]

    def finish(
        self, coordinator: Coordinator, figures: TestFigures, epsilon: float | None
    ) -> list[RoundRow]:
        """The last row gets the final figures; what the server had to remember of its noise is
        forgotten.
        """
        if coordinator.state.memory.pop(PAST_NOISE, None) is not None:
            self.folder.save_checkpoint(coordinator.state)
        rows = self.metrics.rows()
        if rows:
            rows[-1] = replace(rows[-1], **vars(figures), epsilon=epsilon)
            self.metrics.add(rows[-1])
        self.metrics.export(self.folder.file("metrics.parquet"))
        self.metrics.close()
        return rows
