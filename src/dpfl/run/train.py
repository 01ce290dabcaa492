"""`train`: one model over data that stays with its owners, inside every budget.

A run has four stages:

1. `resolve`, which `prepare` calls, works out what it will do, and writes nothing
   (`run/resolve.py`).
2. `prepare` opens folder, accounts, engine and coordinator (`run/prepare.py`).
3. `run_rounds` makes one round after the other:

       while (request := coordinator.next_request()) is not None:  # cohort and steps, in budget
           replies = run.ask(request)             # clients debit their ledgers, train, release
           coordinator.aggregate(replies)         # weigh, sum, add the server's noise, step
           coordinator.close_round(request.steps) # count
           recorder.close_round(coordinator)      # checkpoint first, then evaluate and show

4. `finish` writes weights, privacy statement and model card. Epsilon follows from the ledgers and
   from nothing else.

A run that was stopped goes through the same stages. Its state comes from the checkpoint, and the
unfinished round is made again with the same model, data and keys. With keyed noise and without
secure sums its releases are therefore the same, and are not debited twice. Otherwise their noise is
new, and they are debited again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace

from torch import Tensor, nn

from dpfl import algorithms, models
from dpfl.algorithms import Algorithm
from dpfl.data import Federation
from dpfl.data.tables.schema import Schema
from dpfl.engines import one_thread
from dpfl.models import Buildable, Layout
from dpfl.privacy import Budget, BudgetRefusal
from dpfl.run.callbacks import CallbackProgress
from dpfl.run.flat_options import accepts_flat_options
from dpfl.run.metrics import RoundRow, RunHistory
from dpfl.run.options import Aggregation, Evaluation, Execution, Privacy
from dpfl.run.prepare import PreparedRun, prepare, utc_now
from dpfl.run.recorder import SilentProgress
from dpfl.run.records.digests import vector_sha256
from dpfl.run.records.model_card import write_card
from dpfl.run.resolve import RunSpec
from dpfl.run.result import Result, finite_or_none
from dpfl.run.statement import privacy_statement


@accepts_flat_options
def train(
    model: Buildable | nn.Module | str,
    federation: Federation,
    algorithm: Algorithm | str,
    budget: Budget,
    *,
    privacy: Privacy = Privacy(),
    aggregation: Aggregation = Aggregation(),
    evaluation: Evaluation = Evaluation(),
    execution: Execution = Execution(),
) -> Result:
    """Trains a model until the first budget ends, and states what that cost in privacy.

    The same seed gives the same model on any number of workers. A resumed run ends with the model
    of a run that was never stopped, unless its noise comes from the system's entropy or it has
    secure sums.
    Everything that is kept lies in the run's folder: metrics, weights, the clients' ledgers and the
    privacy statement.

    Example:
        federation = dpfl.data.sample().split(clients=10)
        result = dpfl.train("cnn", federation, "fedavg-dp", dpfl.Budget(epsilon=4.0, rounds=80))

    Args:
        model: A name such as "cnn", a description of a model, or a `torch.nn.Module`.
        federation: The clients and their data.
        algorithm: A name such as "auto", or what a function of `dpfl.algorithms` returns.
        budget: What ends the run: epsilon, rounds, bytes or seconds, whichever is spent first.
        privacy: What is protected, and how it is counted.
        aggregation: Whether the server sees updates, or sums only.
        evaluation: What is measured, and how often.
        execution: Seed, workers, folder, progress and callbacks.

    Returns:
        The trained model with its metrics and its privacy statement.

    Raises:
        DpflError: The run is refused before anything was released, or training diverges.
    """
    progress = CallbackProgress(execution.progress or SilentProgress(), execution.callbacks)
    spec = RunSpec(
        models.as_model(model),
        federation,
        algorithms.as_algorithm(algorithm),
        budget,
        privacy,
        aggregation,
        evaluation,
        replace(execution, progress=progress),
    )
    with ExitStack() as resources:
        resources.push(progress.closing)
        run = prepare(spec, resources)
        try:
            with closing(run.engine):
                progress.start(run)
                run_rounds(run)
                if execution.nodes:
                    execution.nodes.collect_statements(run.folder)
        finally:
            progress.stop()
        result = finish(run)
    progress.report_end(result)
    if progress.faults:
        return replace(result, warnings=(*result.warnings, *progress.faults))
    return result


def run_rounds(run: PreparedRun) -> None:
    """Makes all rounds that are left, inside every budget.

    Args:
        run: The run, before its first round or after the one of its checkpoint.
    """
    coordinator, recorder = run.coordinator, run.recorder
    recorder.catch_up(coordinator)
    while (request := coordinator.next_request()) is not None:
        # A second thread would take its time from the workers, and wait for them in a loop.
        with one_thread():
            replies = run.ask(request)
            try:
                coordinator.aggregate(replies)
            except BudgetRefusal:
                coordinator.stopped_by = "epsilon"
                break
        coordinator.close_round(request.steps)
        recorder.close_round(coordinator, run.diagnostics.of_round(coordinator, request, replies))
    recorder.close_run(coordinator)


def finish(run: PreparedRun) -> Result:
    """Writes weights, statement and result, from the state and the ledgers as they are.

    Args:
        run: The run after its last round.

    Returns:
        The outcome of the run.
    """
    state, folder, recorder = run.coordinator.state, run.folder, run.recorder
    figures, final = recorder.evaluate(state.model), recorder.measure(state, run.algorithm)
    privacy = privacy_statement(run.accounts, run.randomness)
    history = recorder.finish(run.coordinator, figures, finite_or_none(privacy.used))
    layout, schema = recorder.model.layout, run.data.train.schema
    result = Result(
        run=run.run,
        rounds=state.round,
        iterations=state.iterations,
        accuracy=figures.accuracy,
        loss=figures.loss,
        stopped_by=run.coordinator.stopped_by,
        model_sha256=vector_sha256(state.model),
        privacy=privacy,
        history=RunHistory(history),
        notes=(*run.notes, *run.algorithm.steps.notes(state.memory)),
        lost_replies=tuple(run.coordinator.lost_replies),
        folder=folder.path,
        module=recorder.model.module,
        **vars(final),
        warnings=(
            *privacy.warnings,
            *overdue(run.budget.seconds, state.seconds),
            *diverging(history, recorder.classes),
        ),
    )
    folder.save_model(state.model, layout, schema and scale_model(schema, state.model, layout))
    folder.write_json("statement.json", privacy.to_dict())
    folder.write_json("result.json", result.to_dict() | {"ended": utc_now()})
    write_card(run, result)
    return result


def scale_model(schema: Schema, vector: Tensor, layout: Layout) -> Schema:
    """Writes the scales that clients paid for into a schema, so that a raw row needs nothing else.

    Args:
        schema: The declared columns of the table.
        vector: The model, whose front applies the scales.
        layout: Where the scales lie in the vector.

    Returns:
        The schema with the paid means and standard deviations; the same schema where none were
        paid for.
    """
    if layout.paid_scales is None:
        return schema
    means, variances = vector[layout.paid_scales].chunk(2)
    return schema.with_scales(means.tolist(), variances.sqrt().tolist())


def overdue(limit: float | None, seconds: float) -> tuple[str, ...]:
    """Warns of a run that took longer than its budget: one round was longer than all before it.

    Args:
        limit: The seconds of the budget, or None.
        seconds: The duration of the run.

    Returns:
        One warning, or none.
    """
    if limit is None or seconds <= limit:
        return ()
    return (
        f"the run took {seconds:.3g} seconds, above budget.seconds = {limit:g}: a round was "
        "longer than those before.",
    )


def diverging(history: Sequence[RoundRow], classes: int) -> tuple[str, ...]:
    """Warns of a test loss far above that of guessing, which is log(classes).

    The loss is above twice that of guessing, and above four times it or above 1.5 times its own
    least.

    Args:
        history: The rounds of the run.
        classes: How many classes the test set has; 0 where labels are no classes.

    Returns:
        One warning, or none.
    """
    losses = [row.loss for row in history if row.loss is not None]
    if not classes or not losses:
        return ()
    guessing, last = math.log(max(classes, 2)), losses[-1]
    if last <= 2 * guessing or last <= min(4 * guessing, 1.5 * min(losses)):
        return ()
    growth = (
        f"the test loss was {losses[0]:.3g} when first measured and is {last:.3g}, where "
        f"guessing has {guessing:.3g}"
    )
    return (f"training diverges: {growth}; lower the learning rate.",)
