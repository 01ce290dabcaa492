"""What clients say beside their updates: bounds close to what is proven, and never above it."""

import pytest

from dpfl.algorithms import ali_dpfl
from dpfl.audit.bounds import epsilon_of
from dpfl.audit.measurements.query_games import one_answer, one_slope
from dpfl.privacy import Keyed, accountant
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.privacy.queries.query import PrivateQuery


def test_a_noisy_histogram_stays_below_its_proof_and_shows_when_noise_is_small() -> None:
    assert one_answer(LabelQuery(10.0), 1e-5, 600, 0.95, Keyed(0)).epsilon <= 0.3407
    little = one_answer(LabelQuery(0.3), 1e-5, 600, 0.95, Keyed(0)).epsilon
    assert 2.0 < little <= epsilon_of(1 / 0.3, 1e-5)


def test_a_noisy_mean_stays_below_its_proof_and_shows_when_noise_is_small() -> None:
    assert one_answer(MeanQuery(10.0), 1e-5, 600, 0.95, Keyed(0)).epsilon <= 0.3407
    assert one_answer(MeanQuery(0.3), 1e-5, 600, 0.95, Keyed(0)).epsilon > 3


@pytest.mark.parametrize(
    "query", [LabelQuery(10.0), MeanQuery(20.0), ColumnQuery(20.0, 3, (0, 2), ((1, 8),))]
)
def test_an_answer_with_much_noise_is_measured_to_a_few_percent(query: PrivateQuery) -> None:
    proven = epsilon_of(1 / (query.noise_multiplier or 1.0), 1e-5)
    measured = one_answer(query, 1e-5, 600, 0.95, Keyed(0))
    assert 0.9 * proven < measured.epsilon <= proven


@pytest.mark.parametrize(
    ("numbers", "cells", "shared"),
    [(1, 0, None), (2, 0, None), (2, 20, NoiseShares(4, 1))],
    ids=str,
)
def test_a_metric_moves_as_far_as_its_noise_is_for(
    numbers: int, cells: int, shared: NoiseShares | None
) -> None:
    """Of a number, of classes, and of yes and no where it is seen as a sum over clients, of whom
    one colludes.
    """
    measured = one_answer(
        MetricQuery(10.0, numbers, cells, 4.0, 0.0), 1e-5, 100, 0.95, Keyed(0), noise_shares=shared
    )
    assert measured.mu is not None
    assert 0.75 < 10.0 * measured.mu <= 1


def test_a_slope_moves_as_far_as_its_noise_is_for() -> None:
    made = ali_dpfl(mu="paid", noise_multiplier=1.0)
    measured = one_slope(made, 1e-5, 200, 0.95, Keyed(0))
    assert measured.mu is not None
    assert 0.85 < measured.mu <= 1
    assert made.samples is not None
    assert measured.epsilon <= accountant("pld").epsilon({made.samples.event(1): 1}, 1e-5)
