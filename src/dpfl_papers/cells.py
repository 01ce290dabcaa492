"""What a table of a paper consists of: cells, each with the number that the paper prints and the
work that makes ours.
"""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from dpfl.config.experiment import parse
from dpfl.config.settings import with_settings
from dpfl.errors import Diverged
from dpfl.models.evaluation import compute_scores
from dpfl.privacy import Budget, PrivacyStatement
from dpfl.run.metrics import RoundRow
from dpfl.run.recorder import SilentProgress
from dpfl.run.result import Result
from dpfl_papers.shared_prefixes import PrefixStore, beginning

NAMES = {
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
}


@dataclass(frozen=True)
class Outcome:
    """What one piece of work came to: a number in the table's unit, what it cost in privacy, and
    what pictures need.

    An epsilon is a number, "unbounded", or None where nothing is claimed or proven; `terms` say
    what the proven one is for. There is no value where training diverged.
    """

    value: float | None
    claimed: float | str | None = None
    proven: float | str | None = None
    unit: str = "none"
    terms: str = ""
    steps: int = 0
    rounds: int = 0
    stopped_by: str = ""
    sha256: str = ""
    code: str = ""
    series: Mapping[str, Sequence[float | None]] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        return cls(**json.loads(text))


class CellWork(Protocol):
    """A piece of work with a seed: the same digest is the same number."""

    tag: ClassVar[str]
    """What the digests of its cells know it by; it never changes, so that stored cells are found
    again.
    """

    @property
    def content(self) -> Mapping[str, Any]:
        """All that the outcome depends on, but for seed and data."""

    def scaled(self, settings: Sequence[str]) -> CellWork:
        """With `section.key=value` settings on top, where it has any."""

    def run(self, seed: int, data_dir: Path | None, beginnings: Path | None = None) -> Outcome:
        """`beginnings` is a folder for what works that begin alike leave to each other."""


@dataclass(frozen=True)
class Cell:
    """One number: its group (a table of its own where there are several), row and column, and the
    epsilon that the paper states for it."""

    group: str
    row: str
    column: str
    work: CellWork
    printed: float | None = None
    claimed: float | None = None

    @property
    def place(self) -> str:
        return ", ".join(part for part in (self.group, self.row, self.column) if part)

    def meant_by(self, word: str) -> bool:
        return word in (self.group.lower(), self.row.lower()) or word in self.column.lower()

    def digest(self, seed: int) -> str:
        told = json.dumps([self.work.tag, self.work.content, seed], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:24]


@dataclass(frozen=True)
class PaperTable:
    """A table or figure of a paper. `choices` says what was chosen where the paper leaves something
    open; `value` is what its numbers are, and `picture` how they are drawn."""

    name: str
    title: str
    cells: tuple[Cell, ...]
    choices: tuple[str, ...]
    value: str = "accuracy, %"
    picture: str = "dots"

    def only(self, words: Sequence[str]) -> PaperTable:
        """The cells that every one of the words is the group or the row of, or occurs in the column
        of.
        """
        kept = [
            cell
            for cell in self.cells
            if all(cell.meant_by(word.strip().lower()) for word in words)
        ]
        return replace(self, cells=tuple(kept))

    def scaled(self, settings: Sequence[str]) -> PaperTable:
        cells = tuple(replace(cell, work=cell.work.scaled(settings)) for cell in self.cells)
        return replace(self, cells=cells) if settings else self


@dataclass(frozen=True)
class Training:
    """A run of an experiment; its value is the final accuracy in per cent, that of the best round,
    or the final loss.
    """

    content: Mapping[str, Any]
    shows: str = "accuracy"
    tag: ClassVar[str] = "Training"

    def scaled(self, settings: Sequence[str]) -> Training:
        content = with_settings(self.content, settings)
        Budget(
            **parse(content).budget.model_dump()
        )  # what cannot be is refused before anything is measured or run
        return replace(self, content=content)

    def run(self, seed: int, data_dir: Path | None, beginnings: Path | None = None) -> Outcome:
        experiment, begins = parse({**self.content, "seed": seed}), beginning(self.content, seed)
        on = (
            PrefixStore(beginnings / begins, self.content["algorithm"]["tau"])
            if beginnings and begins
            else None
        )
        with tempfile.TemporaryDirectory() as folder:
            try:
                result = experiment.run(
                    Path(folder) / "run", workers=1, data_dir=data_dir, progress=on
                )
            except Diverged:
                return Outcome(None, stopped_by="divergence")
        made = outcome_of(result, self.shows)
        return replace(made, series=on.with_rounds_before(made.series)) if on else made


TRAINING_LOSS = "training loss"
LOOKED_AT = 6_000
"""Training images that a training loss is a mean over."""


@dataclass(frozen=True)
class WatchedTraining(Training):
    """A run that somebody watches who has all data: its value is the loss on images that clients
    train on, always the same.

    They are looked at beside the run, as the papers do with data that is public: no epsilon covers
    these losses.
    """

    shows: str = TRAINING_LOSS
    tag: ClassVar[str] = "WatchedTraining"

    def run(self, seed: int, data_dir: Path | None, beginnings: Path | None = None) -> Outcome:
        experiment = parse({**self.content, "seed": seed})
        watcher = _Watcher(seed, experiment.evaluate.every or 1)
        with tempfile.TemporaryDirectory() as folder:
            try:
                result = experiment.run(
                    Path(folder) / "run", workers=1, data_dir=data_dir, progress=watcher
                )
            except Diverged:
                return Outcome(None, stopped_by="divergence")
            made = outcome_of(result)
        losses = [watcher.losses.get(int(round or 0)) for round in made.series["round"]]
        return replace(made, value=watcher.last, series={**made.series, TRAINING_LOSS: losses})


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
        chosen = np.random.default_rng(self._seed).permutation(len(train.x))[:LOOKED_AT]
        model.load(self._job.coordinator.state.model)
        self.losses[row.round] = _finite(compute_scores(model, train.x[chosen], train.y[chosen])[1])


def outcome_of(result: Result, shows: str = "accuracy") -> Outcome:
    privacy = result.privacy.to_dict()
    rows = result.history
    assert result.accuracy is not None, "the papers' data sets have test sets"
    assert result.loss is not None
    return Outcome(
        value=_finite(result.loss)
        if shows == "loss"
        else 100 * (_best(result) if shows == "best" else result.accuracy),
        claimed=privacy["claimed"],  # type: ignore[arg-type]
        proven=privacy["proven"] if result.privacy.unit != "none" else None,  # type: ignore[arg-type]
        unit=result.privacy.unit,
        terms=terms_of(result.privacy) if result.privacy.unit != "none" else "",
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
    return (
        f"one {privacy.unit}, {privacy.neighbours}, delta {privacy.delta:g}, by "
        f"{privacy.accountant}"
    )


def _best(result: Result) -> float:
    """Of the rounds after which it was measured."""
    return max(row.accuracy for row in result.history if row.accuracy is not None)


def _finite(loss: float) -> float:
    """JSON has no infinity; a loss beyond all bounds is shown as a large one."""
    return loss if math.isfinite(loss) else 1e9
