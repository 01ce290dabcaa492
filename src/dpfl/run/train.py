"""The round loop: one model over data that stays with its owners, inside every budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from dpfl import algorithms, models
from dpfl.algorithms import Algorithm
from dpfl.data import Federation
from dpfl.data.tables.schema import Schema
from dpfl.engines import one_thread
from dpfl.models import Buildable, FlatModel, Layout
from dpfl.notebook_repr import NotebookView
from dpfl.planning.paid_queries import PrivateMetric
from dpfl.privacy import Budget, BudgetRefusal, PrivacyStatement
from dpfl.run.aggregation import Aggregation
from dpfl.run.callbacks import Callback, CallbackProgress
from dpfl.run.folder import vector_sha256
from dpfl.run.metrics import RoundRow, RunHistory, figure
from dpfl.run.model_card import write_card
from dpfl.run.prepare import NodePool, PreparedRun, prepare, utc_now
from dpfl.run.recorder import Progress, SilentProgress


@dataclass(frozen=True)
class Result(NotebookView, shown_by="run_view"):
    """What a run came to; accuracy and loss are None where there is no test set, accuracy also
    where the task has none.

    `metrics` are all that the task measures on the test set, `headline` the first of them;
    `intervals` hold the middle 95 % over test sets drawn from it, by person where it has persons.
    Where clients were asked for them, `noisy` says so, and of which samples; the intervals are then
    of the noise, too.
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
    lost: Sequence[str]
    folder: Path
    module: nn.Module
    warnings: Sequence[str] = ()
    """Those of the statement, and what is wrong with the model itself."""
    headline: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    noisy: str = ""
    calibration: Sequence[tuple[float, float, int]] = ()
    """By bins of chances: the mean that was said, the share that was so, and of how many test
    samples.
    """

    @property
    def measured(self) -> str:
        """The headline in words."""
        return (
            figure(self.headline, self.metrics[self.headline])
            if self.headline
            else "accuracy not measured"
        )

    def __repr__(self) -> str:
        """The outcome in a line; the statement is in `privacy`, the rounds in `history`."""
        proven = self.privacy.lines()[0][1]
        whose = "" if self.privacy.unit == "none" else f" for one {self.privacy.unit}"
        return (
            f"Result({self.measured} after {self.rounds} rounds, ended by {self.stopped_by}; "
            f"proven{whose}: {proven}; in {self.folder})"
        )

    def to_dict(self) -> dict[str, Any]:
        names = ("run", "rounds", "iterations", "accuracy", "loss", "stopped_by", "model_sha256")
        numbers = {name: _finite(getattr(self, name)) for name in names}
        numbers |= {
            "headline": self.headline or None,
            "metrics": {name: _finite(value) for name, value in self.metrics.items()},
            "intervals": {
                name: [_finite(end) for end in ends] for name, ends in self.intervals.items()
            },
            "noisy": self.noisy or None,
            "calibration": [list(point) for point in self.calibration],
        }
        told = {
            "notes": list(self.notes),
            "warnings": list(self.warnings),
            "lost": self._lost_told(),
        }
        return numbers | {"privacy": self.privacy.to_dict()} | told | {"folder": str(self.folder)}

    def _lost_told(self) -> list[str]:
        """At client level a name would say who was drawn, which stays with the server: only how
        many.
        """
        if self.privacy.unit != "client" or not self.lost:
            return list(self.lost)
        return [f"{len(self.lost)} replies"]


def train(
    model: Buildable | nn.Module | str,
    federation: Federation,
    algorithm: Algorithm | str,
    budget: Budget,
    *,
    seed: int = 0,
    out: Path | str | None = None,
    workers: int = 1,
    accountant: str | None = None,
    ledger: Path | str | None = None,
    entropy: str = "keyed",
    noise: str | None = None,
    arithmetic: str = "exact",
    evaluate_every: int | None = None,
    metric: PrivateMetric | None = None,
    progress: Progress | None = None,
    callbacks: Sequence[Callback] = (),
    resume: bool = False,
    experiment: Mapping[str, Any] | None = None,
    unit: str | None = None,
    host: NodePool | None = None,
    aggregation: str = "plain",
    survivors: int | None = None,
    colluders: int | None = None,
    masks: bool = False,
) -> Result:
    """Train until the first budget ends, and say what it cost in privacy.

    Everything that is kept lies in the run's folder (`out`, a new one under runs/ by default):
    metrics, weights, the ledgers of the clients, the privacy statement, which is for one `unit`: a
    "sample" (a row), or a "person" (all rows at a client). The same seed gives the same model, on
    any number of workers, resumed or never stopped. Callbacks are told of every round.
    """
    telling = CallbackProgress(progress or SilentProgress(), callbacks)
    with ExitStack() as until_the_end:
        until_the_end.push(telling.closing)
        job = prepare(
            models.described(model),
            federation,
            algorithms.described(algorithm),
            budget,
            seed=seed,
            out=out,
            workers=workers,
            accountant=accountant,
            ledger=ledger,
            entropy=entropy,
            noise=noise,
            arithmetic=arithmetic,
            evaluate_every=evaluate_every,
            progress=telling,
            resume=resume,
            experiment=experiment,
            until_the_end=until_the_end,
            host=host,
            metric=metric,
            unit=unit,
            aggregation=Aggregation(aggregation, survivors, colluders, masks),
        )
        try:
            with closing(job.engine):
                job.recorder.progress.start(job)
                run_rounds(job)
                if host:
                    host.part(job.folder)
        finally:
            job.recorder.progress.stop()
        result = finish(job)
    telling.ended(result)
    return (
        replace(result, warnings=(*result.warnings, *telling.faults)) if telling.faults else result
    )


def run_rounds(job: PreparedRun) -> None:
    coordinator, engine, recorder = job.coordinator, job.engine, job.recorder
    recorder.catch_up(coordinator)
    while (order := coordinator.next_order()) is not None:
        # A second thread of this process would take its time from the workers, and wait for them in
        # a loop.
        with one_thread():
            replies = engine.run(order)
            try:
                coordinator.aggregate(replies)
            except BudgetRefusal:
                coordinator.stopped_by = "epsilon"
                break
        coordinator.close_round(order.steps)
        recorder.close_round(coordinator, job.movement.of_round(coordinator, order, replies))
    recorder.close_run(coordinator)


def finish(job: PreparedRun) -> Result:
    """Weights, statement and figures, from the state and the ledgers as they are."""
    state, folder = job.coordinator.state, job.folder
    figures, measured = (
        job.recorder.evaluate(state.model),
        job.recorder.measure(state, job.algorithm),
    )
    privacy = job.accounts.statement(job.randomness)
    history = job.recorder.finish(job.coordinator, figures, _finite(privacy.used))
    model: FlatModel = job.recorder.model
    result = Result(
        run=job.run,
        rounds=state.round,
        iterations=state.iterations,
        accuracy=figures.accuracy,
        loss=figures.loss,
        stopped_by=job.coordinator.stopped_by,
        model_sha256=vector_sha256(state.model),
        privacy=privacy,
        history=RunHistory(history),
        notes=(*job.notes, *job.algorithm.steps.notes(state.memory)),
        lost=tuple(job.coordinator.lost),
        folder=folder.path,
        module=model.module,
        **vars(measured),
        warnings=(
            *privacy.warnings,
            *overdue(job.budget.seconds, state.seconds),
            *diverging(history, job.recorder.classes),
        ),
    )
    folder.save_model(
        state.model, model.layout, job.schema and scale_model(job.schema, state.model, model.layout)
    )
    folder.write_json("statement.json", privacy.to_dict())
    folder.write_json("result.json", result.to_dict() | {"ended": utc_now()})
    write_card(job, result)
    return result


def scale_model(schema: Schema, vector: Tensor, layout: Layout) -> Schema:
    """The schema with the scales that were paid for, which the model's front applies: a raw row
    needs nothing else.
    """
    if layout.paid_scales is None:
        return schema
    means, variances = vector[layout.paid_scales].chunk(2)
    return schema.with_scales(means.tolist(), variances.sqrt().tolist())


def overdue(allowed: float | None, seconds: float) -> tuple[str, ...]:
    """A run stops where another round as long as its longest would pass the clock; how long the
    first takes nobody knows.
    """
    if allowed is None or seconds <= allowed:
        return ()
    return (
        f"the run took {seconds:.3g} seconds, above budget.seconds = {allowed:g}: a round was "
        "longer than those before.",
    )


def diverging(history: Sequence[RoundRow], classes: int) -> tuple[str, ...]:
    """A test loss far above that of guessing, log(classes), or above it and grown since it was
    least; where labels are no classes, nobody knows what guessing has."""
    if not classes:
        return ()
    losses, guessing = (
        [row.loss for row in history if row.loss is not None],
        math.log(max(classes, 2)),
    )
    if (
        not losses
        or losses[-1] <= 2 * guessing
        or losses[-1] <= min(4 * guessing, 1.5 * min(losses))
    ):
        return ()
    grew = (
        f"the test loss was {losses[0]:.3g} when first measured and is {losses[-1]:.3g}, where "
        f"guessing has {guessing:.3g}"
    )
    return (f"training diverges: {grew}; lower the learning rate.",)


def _finite(value: Any) -> Any:
    """JSON knows no nan and no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
