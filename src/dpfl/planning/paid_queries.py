"""What clients are asked once, beside their updates: scales of a table before the first round, a
metric after the last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dpfl.algorithms import Algorithm
from dpfl.data import Federation
from dpfl.data.tables.schema import BINS, QUARTILES, Schema
from dpfl.errors import DpflError
from dpfl.privacy import Budget, noise_for
from dpfl.privacy.accounting.accountant import proven_accountant
from dpfl.privacy.accounting.events import gaussian
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.tasks import Task
from dpfl.tasks.noisy import numbers_and_cells

USUAL_NOISE = 20.0
"""Of what clients are asked once: beside steps within epsilon 1 it takes some hundredth of the
budget.
"""
USUAL_METRIC_NOISE = 10.0


@dataclass(frozen=True)
class PrivateMetric:
    """Its `noise` in multiples of the sensitivity, or as a `share` of epsilon if it were alone; the
    share of samples that is `held_out` of training for it, 0 for those of training; and the loss
    that one sample counts with at `most`."""

    noise: float | None = None
    share: float | None = None
    held_out: float = 0.2
    most: float = 4.0

    def __post_init__(self) -> None:
        if self.noise is not None and self.share is not None:
            raise DpflError(
                "A private metric has metrics.noise or metrics.share: give one of them."
            )
        if self.share is not None and not 0 < self.share < 1:
            raise DpflError(
                f"metrics.share is {self.share!r}: give a share of epsilon between 0 and 1."
            )
        if not 0 <= self.held_out < 1:
            raise DpflError(
                f"metrics.held_out is {self.held_out!r}: give a share of the samples, or 0 for "
                "those of training."
            )
        if not 0 < self.most < math.inf:
            raise DpflError(
                f"metrics.most is {self.most!r}: give the largest loss that one sample may count "
                "with."
            )

    def survey(self, task: Task, budget: Budget, by: str | None) -> MetricQuery:
        noise = (
            self.noise if self.share is None else noise_of_share(self.share, budget, by, "metrics")
        )
        return MetricQuery(
            USUAL_METRIC_NOISE if noise is None else noise,
            *numbers_and_cells(task),
            self.most,
            self.held_out,
        )


def with_questions(
    algorithm: Algorithm,
    federation: Federation,
    metric: PrivateMetric | None,
    budget: Budget,
    by: str | None,
    elsewhere: bool,
) -> Algorithm:
    """The algorithm with all that it asks for on these data."""
    asked = with_paid_scales(algorithm, federation.train.schema, budget, by)
    asked = with_metric(asked, metric, federation, budget, by)
    if elsewhere and metric and metric.held_out:
        raise DpflError(
            "Nodes on other machines train on all that they have: set metrics.held_out = 0."
        )
    return asked


def with_metric(
    algorithm: Algorithm,
    metric: PrivateMetric | None,
    federation: Federation,
    budget: Budget,
    by: str | None,
) -> Algorithm:
    """The algorithm with the question for a metric, where nothing is public to measure on."""
    if metric is None:
        return algorithm
    if federation.test:
        raise DpflError(
            "The data has a public test set, which costs nothing: leave metrics.private out, or "
            "the test set."
        )
    if federation.described:
        raise DpflError(
            "Clients that are drawn share samples, so no metric of theirs is paid for: leave "
            "metrics.private out."
        )
    return replace(algorithm, metric=metric.survey(federation.task, budget, by))


def with_paid_scales(
    algorithm: Algorithm, schema: Schema | None, budget: Budget, by: str | None
) -> Algorithm:
    """The algorithm with the question for the scales that a table leaves to be paid for, if there
    are any.
    """
    if schema is None or not schema.features.has_paid_scales:
        return algorithm
    asked = [(place, column) for place, column in schema.places if column.has_paid_scale]
    places = tuple(place for place, column in asked if column.scale != QUARTILES)
    binned = tuple(
        (place, column.bins or BINS) for place, column in asked if column.scale == QUARTILES
    )
    noise, share = schema.scale_cost.noise, schema.scale_cost.share
    if share is not None:
        noise = noise_of_share(share, budget, by, "data.paid")
    return replace(
        algorithm,
        columns=ColumnQuery(float(noise or USUAL_NOISE), schema.features.numbers, places, binned),
    )


def noise_of_share(share: float, budget: Budget, by: str | None, where: str) -> float:
    """For one Gaussian release that takes this share of epsilon if it is alone; beside others it
    adds less.
    """
    if budget.epsilon is None:
        raise DpflError(
            f"{where}.share is a share of budget.epsilon, which is not given: give it, or "
            f"{where}.noise."
        )
    return noise_for(
        lambda z: {gaussian(z): 1},
        share * budget.epsilon,
        budget.delta,
        proven_accountant(by or "pld"),
    )
