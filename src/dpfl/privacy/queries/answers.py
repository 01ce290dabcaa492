"""What clients can be asked beside their updates."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from dpfl.privacy.mechanisms.integer_sum import Whole, WholeSum
from dpfl.privacy.mechanisms.noise_shares import Shared
from dpfl.privacy.queries.columns import ColumnSurvey
from dpfl.privacy.queries.histogram import Asked, Survey
from dpfl.privacy.queries.mean import MeanSurvey
from dpfl.privacy.queries.metric import MetricSurvey

Mean: TypeAlias = MeanSurvey | ColumnSurvey | MetricSurvey
"""A mean over all samples, which a sum over clients gives as well as their single answers."""
AnySurvey: TypeAlias = Survey | MeanSurvey | ColumnSurvey | MetricSurvey


def answers_of(survey: Mean, shared: Shared, width: int, bound: float, clients: int) -> WholeSum:
    """How clients send what their samples answer with, `width` numbers, for a server that sees the sum over them only."""
    return WholeSum(shared.share(survey.multiplier * survey.longest(width)), bound, clients)


def shared_answer(survey: Mean, shared: Shared, data: Asked, bound: float, clients: int, rng: np.random.Generator) -> Whole:
    """A client's part of that sum: over its samples, with its share of the noise."""
    total = survey.exact_sum(data)
    return answers_of(survey, shared, len(total), bound, clients).numbers(total.numpy(), rng)
