"""Records a run: evaluates the model, writes a row of metrics per round, and the checkpoint."""

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
from dpfl.errors import DivergenceError
from dpfl.models import FlatModel
from dpfl.models.evaluation import compute_scores
from dpfl.models.flat import evaluating
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.privacy.units import protects_person
from dpfl.run.accounting.accounts import Meter
from dpfl.run.metrics import Metrics, RoundRow, UpdateRow
from dpfl.run.records.folder import RunFolder
from dpfl.server.coordinator import Coordinator
from dpfl.server.state import METRIC, PAST_NOISE, RunState
from dpfl.tasks.calibration import Curve, calibration
from dpfl.tasks.intervals import intervals
from dpfl.tasks.noisy import figures

VALIDATION_SAMPLES = 2000
"""Samples of the test set that the validation loss and the check for divergence use."""


class Progress(Protocol):
    """Shows a run as it goes, such as in the terminal."""

    def start(self, job: Any) -> None:
        """Shows that a run starts.

        Args:
            job: The `PreparedRun`, before its first round.
        """

    def tell(self, row: RoundRow) -> None:
        """Shows a round, once its checkpoint is on disk.

        Args:
            row: The round with its metrics.
        """

    def stop(self) -> None:
        """Ends the display, also after an error."""


class SilentProgress(Progress):
    """Shows nothing."""

    def start(self, job: Any) -> None: ...

    def tell(self, row: RoundRow) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class TestFigures:
    """The metrics of a model after a round.

    Attributes:
        accuracy: On the test set; None without one, or where the task has no accuracy.
        loss: The mean loss on the test set; None without one.
        headline: The first metric of the task; None without a test set.
    """

    accuracy: float | None = None
    loss: float | None = None
    headline: float | None = None


@dataclass(frozen=True)
class FinalMetrics:
    """The metrics of the finished model.

    Attributes:
        headline: The name of the task's first metric; "" if nothing was measured.
        metrics: Every metric of the task.
        intervals: The middle 95 % of each metric over test sets drawn from this one.
        noisy: On which samples the clients measured, where they did so with noise; otherwise "".
        calibration: How far predicted probabilities agree with observed frequencies.
    """

    headline: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    noisy: str = ""
    calibration: Curve = field(default_factory=list)


@dataclass(frozen=True)
class Recorder:
    """Records the rounds of one run.

    Attributes:
        folder: The run's folder.
        metrics: The table of rounds.
        model: A model to evaluate with; each evaluation loads its weights first.
        test: The public test set, or None.
        meter: An upper bound on epsilon after each round; None where none is proven.
        every: The number of rounds from one evaluation to the next.
        progress: Shows the rounds.
        persons: The person that each test sample is of, where persons are declared.
    """

    folder: RunFolder
    metrics: Metrics
    model: FlatModel
    test: Dataset | None
    meter: Meter | None
    every: int
    progress: Progress
    persons: Tensor | None = None

    @property
    def classes(self) -> int:
        """The number of classes in the test set, which is what guessing is measured by; 0 where
        labels are no classes.
        """
        return self.test.y.unique().numel() if self.test and self.test.classes else 0

    def close_round(self, coordinator: Coordinator, updates: Sequence[UpdateRow] = ()) -> None:
        """Writes the checkpoint of a round, then evaluates and shows it.

        The checkpoint comes first. So nothing of a round is shown as long as a crash could cause
        the round to be made again.

        Args:
            coordinator: The server's side of the round.
            updates: How far the round moved the model.

        Raises:
            DivergenceError: The model's scores on the test set are not finite.
        """
        coordinator.state.lost_replies = self._lost_replies(coordinator)
        self.folder.save_checkpoint(coordinator.state)
        self._show(coordinator, updates)

    def _lost_replies(self, coordinator: Coordinator) -> list[str]:
        """Lists the lost replies for the checkpoint. At client level a name would say who was
        drawn, so it is not written to disk.
        """
        return (
            ["a reply"] * len(coordinator.lost_replies)
            if coordinator.algorithm.protects_client
            else list(coordinator.lost_replies)
        )

    def catch_up(self, coordinator: Coordinator) -> None:
        """Shows the round of the checkpoint, if a crash came before it was shown.

        Args:
            coordinator: The server's side, in the state of the checkpoint.
        """
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
            clients=state.cohort_size,
            accuracy=figures.accuracy,
            loss=figures.loss,
            headline=figures.headline,
            epsilon=self.meter.at_most(coordinator.releases) if self.meter else None,
            clip=release.clip.clip_norm if adapts and release else None,
            bytes=state.bytes,
            seconds=state.seconds,
        )
        # At client level, the round of a lost reply would say when that client was drawn.
        is_hidden = coordinator.algorithm.protects_client
        self.metrics.add(row, updates, () if is_hidden else coordinator.lost_replies)
        self.progress.tell(row)
        if self.test and figures.loss is not None and not math.isfinite(figures.loss):
            self._refuse_divergence(self.test, state.round)

    def _refuse_divergence(self, test: Dataset, round: int) -> None:
        """Ends a run whose model gives most public test samples scores that are not finite. Clients
        cannot say so, because their samples without a finite gradient count as zero.
        """
        with evaluating(self.model.module):
            scores = self.model.module(self.model.arrange(test.x[:VALIDATION_SAMPLES]))
        if torch.isfinite(scores).flatten(1).all(1).float().mean() < 0.5:
            raise DivergenceError(
                f"Training diverged on the test set after round {round}: its scores are not "
                "finite. "
                "The last good checkpoint is kept; lower the learning rate, then start anew."
            )

    def evaluate(self, vector: Tensor) -> TestFigures:
        """Measures a model on the public test set.

        Args:
            vector: The weights as one flat vector.

        Returns:
            The figures; all None without a test set.
        """
        self.model.load(vector)
        if not self.test:
            return TestFigures()
        scores, loss = compute_scores(self.model, self.test.x, self.test.y)
        metrics = self.test.task.live_metrics(scores.numpy(), self.test.y.numpy())
        return TestFigures(metrics.get("accuracy"), loss, metrics[self.test.task.headline])

    def close_run(self, coordinator: Coordinator) -> None:
        """Asks the clients for the noisy metric, where the run has one, and stores the answer.

        The answer is in the checkpoint before it is shown, so a run that is resumed does not ask
        again.

        Args:
            coordinator: The server's side, after the last round.
        """
        if coordinator.algorithm.metric and METRIC not in coordinator.state.memory:
            coordinator.measure()
            self.folder.save_checkpoint(coordinator.state)

    def measure(self, state: RunState, algorithm: Algorithm) -> FinalMetrics:
        """Measures the finished model.

        Intervals are over samples of the test set, or over its persons where it has persons.

        Args:
            state: The state after the last round.
            algorithm: The algorithm as it ran.

        Returns:
            All that the task measures. Without a test set, the noisy metric that clients answered;
            without that, nothing.
        """
        self.model.load(state.model)
        if not self.test:
            return self._noisy(
                state.memory.get(METRIC),
                algorithm.metric,
                "persons" if protects_person(algorithm.unit) else "samples",
            )
        task, y, persons = (
            self.test.task,
            self.test.y.numpy(),
            None if self.persons is None else self.persons.numpy(),
        )
        scores = compute_scores(self.model, self.test.x, self.test.y)[0].numpy()
        return FinalMetrics(
            task.headline,
            task.metrics(scores, y),
            intervals(task, scores, y, persons),
            calibration=calibration(task, scores, y),
        )

    def _noisy(self, answer: Tensor | None, query: MetricQuery | None, whom: str) -> FinalMetrics:
        if answer is None or query is None or self.model.task is None:
            return FinalMetrics()
        units, noise, *mean = answer.tolist()
        noisy_figures = figures(self.model.task, np.array(mean), int(units), noise, query.most)
        of = (
            "kept out of training"
            if query.held_out
            else "that it was trained on, which flatters it"
        )
        return FinalMetrics(
            **vars(noisy_figures), noisy=f"with noise, on {int(units)} {whom} of the clients {of}"
        )

    def validate(self, vector: Tensor) -> float:
        """Measures the loss on the first 2,000 samples of the test set, for systems that follow a
        public loss in every round.

        Args:
            vector: The weights as one flat vector.

        Returns:
            The mean loss.
        """
        assert self.test is not None, (
            "a system that follows a public loss is refused where there is none"
        )
        self.model.load(vector)
        x, y = self.test.x[:VALIDATION_SAMPLES], self.test.y[:VALIDATION_SAMPLES]
        return compute_scores(self.model, x, y)[1]

    def finish(
        self, coordinator: Coordinator, figures: TestFigures, epsilon: float | None
    ) -> list[RoundRow]:
        """Completes the table of rounds, and deletes the noise that the server had to remember.

        Args:
            coordinator: The server's side, after the last round.
            figures: What was measured of the finished model, for the last row.
            epsilon: The epsilon of all releases, for the last row; None if it is not finite.

        Returns:
            The rounds in order.
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
