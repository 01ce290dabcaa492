"""Runs of experiments as the work of a cell."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dpfl.config.experiment import parse
from dpfl.config.settings import with_settings
from dpfl.errors import DivergenceError
from dpfl.models.evaluation import compute_scores
from dpfl.privacy import Budget, PrivacyStatement
from dpfl.privacy.units import protects_nobody
from dpfl.run.metrics import RoundRow
from dpfl.run.recorder import SilentProgress
from dpfl.run.result import Result
from dpfl_papers.cells import Outcome
from dpfl_papers.shared_prefixes import PrefixStore, prefix_key


@dataclass(frozen=True)
class Training:
    """A run of an experiment.

    Attributes:
        content: Sections of the experiment file, without the seed.
        shows: What the value is: "accuracy" is the final accuracy in percent, "best" that of the
            best round, and "loss" the final loss.
    """

    content: Mapping[str, Any]
    shows: str = "accuracy"
    tag: ClassVar[str] = "Training"

    def with_settings(self, settings: Sequence[str]) -> Training:
        """Applies settings to the experiment.

        Args:
            settings: Settings of the form `section.key=value`.

        Returns:
            The same training with these settings.

        Raises:
            DpflError: If the experiment or its budget is not valid. This is found before anything
                runs.
        """
        content = with_settings(self.content, settings)
        Budget(
            **parse(content).budget.model_dump()
        )  # what cannot be is refused before anything is measured or run
        return replace(self, content=content)

    def run(self, seed: int, data_dir: Path | None, prefixes: Path | None = None) -> Outcome:
        """Trains.

        Args:
            seed: Seed of all random draws.
            data_dir: Folder of the data sets; by default `DPFL_DATA`.
            prefixes: Folder of checkpoints that runs with the same start share; None for none.

        Returns:
            The outcome. It has no value if training diverged.
        """
        experiment, key = parse({**self.content, "seed": seed}), prefix_key(self.content, seed)
        store = (
            PrefixStore(prefixes / key, self.content["algorithm"]["tau"])
            if prefixes and key
            else None
        )
        with tempfile.TemporaryDirectory() as folder:
            try:
                result = experiment.run(
                    Path(folder) / "run", workers=1, data_dir=data_dir, progress=store
                )
            except DivergenceError:
                return Outcome(None, stopped_by="divergence")
        outcome = outcome_of(result, self.shows)
        return (
            replace(outcome, series=store.with_earlier_rounds(outcome.series)) if store else outcome
        )


TRAINING_LOSS = "training loss"
LOSS_IMAGES = 6_000
"""Training images that a training loss is a mean over."""


@dataclass(frozen=True)
class WatchedTraining(Training):
    """A run whose value is the loss on images that clients train on.

    The images are the same in every round. They are evaluated beside the run, as the papers do with
    public data: no epsilon covers these losses.
    """

    shows: str = TRAINING_LOSS
    tag: ClassVar[str] = "WatchedTraining"

    def run(self, seed: int, data_dir: Path | None, prefixes: Path | None = None) -> Outcome:
        """Trains, and evaluates the loss on training images beside it.

        Args:
            seed: Seed of all random draws.
            data_dir: Folder of the data sets; by default `DPFL_DATA`.
            prefixes: Not used.

        Returns:
            The outcome, with the training loss as a series. It has no value if training diverged.
        """
        experiment = parse({**self.content, "seed": seed})
        watcher = _Watcher(seed, experiment.evaluate.every or 1)
        with tempfile.TemporaryDirectory() as folder:
            try:
                result = experiment.run(
                    Path(folder) / "run", workers=1, data_dir=data_dir, progress=watcher
                )
            except DivergenceError:
                return Outcome(None, stopped_by="divergence")
            outcome = outcome_of(result)
        losses = [watcher.losses.get(int(round or 0)) for round in outcome.series["round"]]
        return replace(
            outcome, value=watcher.last, series={**outcome.series, TRAINING_LOSS: losses}
        )


class _Watcher(SilentProgress):
    def __init__(self, seed: int, every: int) -> None:
        self._seed, self._every, self.losses = seed, every, dict[int, float]()

    @property
    def last(self) -> float | None:
        return self.losses[max(self.losses)] if self.losses else None

    def start(self, job: Any) -> None:
        self._job = job

    def stop(self) -> None:
        self._job = None

    def tell(self, row: RoundRow) -> None:
        if row.round % self._every and row.round != self._job.budget.rounds:
            return
        model, train = self._job.recorder.model, self._job.source.train
        indices = np.random.default_rng(self._seed).permutation(len(train.x))[:LOSS_IMAGES]
        model.load(self._job.coordinator.state.model)
        self.losses[row.round] = _finite(
            compute_scores(model, train.x[indices], train.y[indices])[1]
        )


def outcome_of(result: Result, shows: str = "accuracy") -> Outcome:
    """Reads the outcome from a result.

    Args:
        result: Result of a run on data with a public test set.
        shows: As in `Training`.

    Returns:
        The outcome, with a series per round of tau, accuracy in percent, and loss.
    """
    privacy, is_unprotected = result.privacy.to_dict(), protects_nobody(result.privacy.unit)
    rows = result.history
    assert result.accuracy is not None, "the papers' data sets have test sets"
    assert result.loss is not None
    return Outcome(
        value=_finite(result.loss)
        if shows == "loss"
        else 100 * (_best(result) if shows == "best" else result.accuracy),
        claimed=privacy["claimed"],  # type: ignore[arg-type]
        proven=None if is_unprotected else privacy["proven"],  # type: ignore[arg-type]
        unit=result.privacy.unit,
        terms="" if is_unprotected else terms_of(result.privacy),
        steps=result.iterations,
        rounds=result.rounds,
        stopped_by=result.stopped_by,
        sha256=result.model_sha256,
        series={
            "round": [row.round for row in rows],
            "tau": [row.steps for row in rows],
            "accuracy": [None if row.accuracy is None else 100 * row.accuracy for row in rows],
            "loss": [None if row.loss is None else _finite(row.loss) for row in rows],
        },
    )


def terms_of(privacy: PrivacyStatement) -> str:
    """Words the terms of a guarantee.

    Args:
        privacy: Statement of a run.

    Returns:
        Unit, neighbours, delta and accountant.
    """
    return (
        f"one {privacy.unit}, {privacy.neighbours}, delta {privacy.delta:g}, by "
        f"{privacy.accountant}"
    )


def _best(result: Result) -> float:
    """Returns the best accuracy of the rounds after which the model was evaluated."""
    return max(row.accuracy for row in result.history if row.accuracy is not None)


def _finite(loss: float) -> float:
    """Replaces an infinite loss, which JSON cannot hold, by a large number."""
    return loss if math.isfinite(loss) else 1e9
