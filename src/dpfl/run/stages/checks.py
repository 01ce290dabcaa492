"""Checks of an algorithm against the federation and the model that it is to run on.

What would fail in the first round is refused here, before anything is written. Parts that cannot
be together in any run are refused by `server/rules.py`.
"""

from __future__ import annotations

import torch

from dpfl.algorithms import Algorithm
from dpfl.client.descent.objectives import final_layer
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.models import FlatModel, refuse_batch_statistics
from dpfl.models.flat import CENTRE, evaluating
from dpfl.privacy import Budget, Keyed
from dpfl.privacy.units import SAMPLE_UNITS, protects_person


def row_unit_notes(unit: str, federation: Federation) -> tuple[str, ...]:
    """Says what a guarantee for rows leaves open about the persons behind them.

    Args:
        unit: What the algorithm protects.
        federation: The data, with or without the persons of its rows.

    Returns:
        Notes for the statement.

    Raises:
        DpflError: The federation declares rows per person, which only persons as the unit use.
    """
    if not protects_person(unit) and federation.rows_per_person is not None:
        raise DpflError(
            "data.rows_per_person is for persons as the unit: set privacy.unit = 'person', or "
            "leave it out."
        )
    if protects_person(unit) or unit not in SAMPLE_UNITS:
        return ()
    if federation.persons is not None:
        return (
            "the unit is one row, and a person may have several: for all of a person's set "
            "privacy.unit = 'person'.",
        )
    if federation.train.schema is None:
        return ()
    return ("the unit is one row; nothing is known of whose rows they are.", *federation.warnings)


def check_run(
    algorithm: Algorithm, federation: Federation, budget: Budget, model: FlatModel
) -> None:
    """Refuses what would fail in the first round.

    Args:
        algorithm: The algorithm as it would run.
        federation: The data that the model takes.
        budget: What ends the run.
        model: The model with its first weights.

    Raises:
        DpflError: Algorithm, federation, budget and model do not fit together.
    """
    check_without_sizes(algorithm, federation, budget, model)
    _check_batches(algorithm, federation)
    _check_noise(algorithm, federation)


def check_without_sizes(
    algorithm: Algorithm, federation: Federation, budget: Budget, model: FlatModel
) -> None:
    """Refuses what would fail in the first round, whatever sizes the clients have.

    Args:
        algorithm: The algorithm as it would run.
        federation: The data that the model takes.
        budget: What ends the run.
        model: The model with its first weights.

    Raises:
        DpflError: Algorithm, federation, budget and model do not fit together.
    """
    _check_described_clients(algorithm, federation, model)
    _check_end(algorithm, budget)
    _check_model(algorithm, federation, model)
    algorithm.clients.sampling.draw(len(federation.sizes), Keyed(0).generator("check"))
    _check_public_data(algorithm, federation)


def _check_described_clients(
    algorithm: Algorithm, federation: Federation, model: FlatModel
) -> None:
    if algorithm.unit in SAMPLE_UNITS:
        refuse_batch_statistics(model.module)
        if federation.described:
            raise DpflError(
                "Clients that are drawn may share samples, so no guarantee for samples or persons "
                "holds; use another partition."
            )
    if algorithm.ledger_per_client and federation.described:
        raise DpflError(
            "Clients that are drawn keep no ledgers; put the noise on the sum of a round, or use "
            "other clients."
        )


def _check_end(algorithm: Algorithm, budget: Budget) -> None:
    endless = budget.rounds is None and budget.bytes is None and budget.seconds is None
    if not algorithm.has_noise and endless:
        raise DpflError(
            f"{algorithm.name} spends no epsilon, so only rounds, bytes or seconds can end it; "
            "give one of them."
        )


def _check_model(algorithm: Algorithm, federation: Federation, model: FlatModel) -> None:
    if algorithm.weights.query and not federation.classes:
        raise DpflError(
            f"{algorithm.name} asks how many samples of each class a client has, but labels of the "
            f"task {federation.task.name!r} are no classes: use another system, or other weights."
        )
    if not algorithm.local.objective.task_loss_alone:
        with evaluating(model.module):
            final_layer(model, federation.train.x.new_zeros(1, *federation.shape))
    span, size = model.layout.centre, torch.Size(federation.shape).numel()
    if algorithm.centre and span and span.stop - span.start != size:
        raise DpflError(
            f"The model's {CENTRE} has {span.stop - span.start} numbers, but a sample has {size}: "
            "rename it, or ask for no mean."
        )


def _check_batches(algorithm: Algorithm, federation: Federation) -> None:
    if algorithm.samples is None:
        return
    batch, smallest = (
        algorithm.samples.sampling.min_population,
        min(federation.count_units(algorithm.unit)),
    )
    if batch > smallest:
        raise DpflError(
            f"Batches have {batch} {algorithm.sample_unit}s, but the smallest client has "
            f"{smallest}; lower algorithm.batch_size, or give clients more."
        )


def _check_public_data(algorithm: Algorithm, federation: Federation) -> None:
    if algorithm.schedule and algorithm.schedule.follows and federation.test is None:
        raise DpflError(
            f"{algorithm.name} follows the loss on a public test set: give the data one (x_test "
            "and y_test)."
        )
    if algorithm.asks_public_clips and not federation.public:
        raise DpflError(
            "Clipping by a public median needs public clients: set data.public_clients."
        )
    if algorithm.steps.asks_public and not federation.public:
        raise DpflError("Estimates from public data need public clients: set data.public_clients.")


def _check_noise(algorithm: Algorithm, federation: Federation) -> None:
    """Checks that float32 holds the noise of every private release beside the sum of its expected
    units.
    """
    sizes = federation.count_units(algorithm.unit)
    if samples := algorithm.samples:
        expected_size = samples.sampling.expected_size(max(sizes))
        try:
            samples.check_not_absorbed(expected_size, samples.clip.clip_norm)
        except DpflError as error:
            largest = federation.names[sizes.index(max(sizes))]
            raise DpflError(
                f"{error} The largest client, {largest}, has {max(sizes)} {algorithm.sample_unit}s."
            ) from None
    for size in set(sizes) if algorithm.updates else ():
        if update := algorithm.for_client_size(size).updates:
            update.check_not_absorbed(1, update.clip.clip_norm)
    cohort = algorithm.clients.sampling.expected_size(len(federation.sizes))
    algorithm.clients.check_not_absorbed(cohort, algorithm.clients.clip.clip_norm)
