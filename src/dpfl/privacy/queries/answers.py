"""What clients can be asked beside their updates."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from dpfl.privacy.mechanisms.integer_sum import IntegerArray, IntegerSum
from dpfl.privacy.mechanisms.noise_shares import NoiseShares
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.privacy.queries.histogram import LabelQuery, QuerySubject
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.privacy.queries.metric import MetricQuery

Mean: TypeAlias = MeanQuery | ColumnQuery | MetricQuery
"""A mean over all samples, which a sum over clients gives as well as their single answers."""
AnyQuery: TypeAlias = LabelQuery | MeanQuery | ColumnQuery | MetricQuery


def answers_of(
    survey: Mean, shared: NoiseShares, width: int, bound: float, clients: int
) -> IntegerSum:
    """How clients send what their samples answer with, `width` numbers, for a server that sees the
    sum over them only.
    """
    return IntegerSum(
        shared.share(survey.noise_multiplier * survey.sensitivity(width)), bound, clients
    )


def shared_answer(
    survey: Mean,
    shared: NoiseShares,
    data: QuerySubject,
    bound: float,
    clients: int,
    rng: np.random.Generator,
) -> IntegerArray:
    """A client's part of that sum: over its samples, with its share of the noise."""
    total = survey.exact_sum(data)
    return answers_of(survey, shared, len(total), bound, clients).numbers(total.numpy(), rng)
