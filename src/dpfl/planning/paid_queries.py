"""Adds the paid queries that an experiment needs to its algorithm.

Clients answer a query once, with noise, and their ledgers pay for it like for a step: the scales of
a table before the first round, a metric after the last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpfl.algorithms import Algorithm
from dpfl.bad_values import is_number, require_share, wrong_value
from dpfl.data import Federation
from dpfl.data.tables.schema import BINS, QUARTILES, Schema
from dpfl.deprecation import keep_old_names
from dpfl.errors import DpflError
from dpfl.planning.accountant_choice import accountant_of
from dpfl.privacy import Budget, noise_for
from dpfl.privacy.accounting.events import gaussian
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.tasks import Task
from dpfl.tasks.noisy import numbers_and_cells

USUAL_NOISE = 20.0
"""Noise multiplier of a query before training. Beside steps within epsilon 1 the query costs about
one hundredth of the budget.
"""
USUAL_METRIC_NOISE = 10.0


@keep_old_names(survey="query")
@dataclass(frozen=True)
class PrivateMetric:
    """A metric that clients report with noise after the last round, where no public test set
    exists.

    Attributes:
        noise: Noise in multiples of the sensitivity. Excludes `share`.
        share: Share of epsilon that the metric would cost by itself. Excludes `noise`.
        held_out: Share of each client's samples that training leaves out for the metric. With 0 it
            is measured on the samples of training.
        most: Largest loss with which one sample may count.
    """

    noise: float | None = None
    share: float | None = None
    held_out: float = 0.2
    most: float = 4.0

    def __post_init__(self) -> None:
        if self.noise is not None and self.share is not None:
            raise DpflError(
                "A private metric has metrics.noise or metrics.share: give one of them."
            )
        if self.share is not None:
            require_share(self.share, "metrics.share", "a share of epsilon")
        if not is_number(self.held_out) or not 0 <= self.held_out < 1:
            advice = "give a share of the samples, or 0 for those of training"
            raise wrong_value(self.held_out, "metrics.held_out", advice)
        if not is_number(self.most) or self.most <= 0:
            advice = "give the largest loss that one sample may count with"
            raise wrong_value(self.most, "metrics.most", advice)

    def query(self, task: Task, budget: Budget, by: str | None) -> MetricQuery:
        """Builds the query for this metric.

        Args:
            task: What is predicted.
            budget: Budget of the run, for `share`.
            by: Accountant's name; None for the default.

        Returns:
            The query.

        Raises:
            DpflError: `share` is set and the budget has no epsilon.
        """
        noise = (
            self.noise if self.share is None else noise_of_share(self.share, budget, by, "metrics")
        )
        return MetricQuery(
            USUAL_METRIC_NOISE if noise is None else noise,
            *numbers_and_cells(task),
            self.most,
            self.held_out,
        )


def with_queries(
    algorithm: Algorithm,
    federation: Federation,
    metric: PrivateMetric | None,
    budget: Budget,
    by: str | None,
    elsewhere: bool,
) -> Algorithm:
    """Adds all paid queries that these data and this experiment need.

    Args:
        algorithm: The algorithm without them.
        federation: The data.
        metric: The private metric, if there is one.
        budget: Budget of the run.
        by: Accountant's name; None for the default.
        elsewhere: Whether the clients are nodes on other machines.

    Returns:
        The algorithm with its queries.

    Raises:
        DpflError: A query does not fit the data or the budget.
    """
    algorithm = with_paid_scales(algorithm, federation.train.schema, budget, by)
    algorithm = with_metric(algorithm, metric, federation, budget, by)
    if elsewhere and metric and metric.held_out:
        raise DpflError(
            "Nodes on other machines train on all that they have: set metrics.held_out = 0."
        )
    return algorithm


def with_metric(
    algorithm: Algorithm,
    metric: PrivateMetric | None,
    federation: Federation,
    budget: Budget,
    by: str | None,
) -> Algorithm:
    """Adds the query for a private metric.

    Args:
        algorithm: The algorithm without it.
        metric: The metric, or None.
        federation: The data, which must have no public test set.
        budget: Budget of the run.
        by: Accountant's name; None for the default.

    Returns:
        The algorithm with the query, or as it is without a metric.

    Raises:
        DpflError: The data has a public test set, or clients that keep no ledgers.
    """
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
    return replace(algorithm, metric=metric.query(federation.task, budget, by))


def with_paid_scales(
    algorithm: Algorithm, schema: Schema | None, budget: Budget, by: str | None
) -> Algorithm:
    """Adds the query for the column scales that a table's schema leaves to be paid for.

    Args:
        algorithm: The algorithm without it.
        schema: Schema of the table; None if the data is no table.
        budget: Budget of the run.
        by: Accountant's name; None for the default.

    Returns:
        The algorithm with the query, or as it is if no scale is paid for.

    Raises:
        DpflError: The schema gives a share of epsilon and the budget has no epsilon.
    """
    if schema is None or not schema.features.has_paid_scales:
        return algorithm
    columns = [(place, column) for place, column in schema.places if column.has_paid_scale]
    places = tuple(place for place, column in columns if column.scale != QUARTILES)
    bins = tuple(
        (place, column.bins or BINS) for place, column in columns if column.scale == QUARTILES
    )
    noise, share = schema.scale_cost.noise, schema.scale_cost.share
    if share is not None:
        noise = noise_of_share(share, budget, by, "data.paid")
    return replace(
        algorithm,
        columns=ColumnQuery(float(noise or USUAL_NOISE), schema.features.numbers, places, bins),
    )


def noise_of_share(share: float, budget: Budget, by: str | None, where: str) -> float:
    """Plans the noise of one Gaussian release that costs this share of epsilon by itself.

    Beside other releases it adds less.

    Args:
        share: Share of epsilon, between 0 and 1.
        budget: Budget of the run.
        by: Accountant's name; None for PLD.
        where: Key of the experiment file that holds the share, for the error.

    Returns:
        The noise multiplier.

    Raises:
        DpflError: The budget has no epsilon.
    """
    if budget.epsilon is None:
        raise DpflError(
            f"{where}.share is a share of budget.epsilon, which is not given: give it, or "
            f"{where}.noise."
        )
    accounting = accountant_of(None, 1, by)
    return noise_for(lambda z: {gaussian(z): 1}, share * budget.epsilon, budget.delta, accounting)
