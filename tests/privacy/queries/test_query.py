"""What all private queries have in common, whichever they are."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from dpfl.privacy.accounting.events import gaussian
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.privacy.queries.query import PrivateQuery
from tests.privacy.queries.subject import RowSubject

QUERIES: tuple[PrivateQuery, ...] = (
    LabelQuery(2.0),
    MeanQuery(2.0),
    ColumnQuery(2.0, 4, (0, 2), ((1, 5),)),
    MetricQuery(2.0, 2, 2, 4.0, 0.0),
)
ROWS = torch.linspace(-1, 1, 80).reshape(20, 4)
each_query = pytest.mark.parametrize("query", QUERIES, ids=lambda query: type(query).__name__)


@each_query
def test_an_answer_costs_one_gaussian_event_and_its_secure_form_costs_the_same(
    query: PrivateQuery,
) -> None:
    assert query.event == query.with_secure_noise().event == gaussian(2.0)
    assert query.with_noise(3.0).event == gaussian(3.0)
    assert query.stddev(4) == 2.0 * query.sensitivity(4)
    assert not query.exact


@each_query
def test_an_honest_answer_is_admitted_and_a_long_one_is_not(query: PrivateQuery) -> None:
    subject = RowSubject(ROWS, len(ROWS))
    answer = query.answer(subject, np.random.default_rng(0))
    assert query.admits(answer, subject.declared_size)
    assert not query.admits(answer * 1e4, subject.declared_size)
    assert not query.admits(answer * math.nan, subject.declared_size)


@each_query
def test_one_row_moves_the_exact_sum_by_the_sensitivity_at_most(query: PrivateQuery) -> None:
    sums = [query.exact_sum(RowSubject(rows, 20)).double() for rows in (ROWS, ROWS[1:])]
    assert float((sums[0] - sums[1]).norm()) <= query.sensitivity(len(sums[0])) * (1 + 1e-9)


@each_query
def test_shares_of_the_noise_add_up_to_its_standard_deviation(query: PrivateQuery) -> None:
    whole = query.integer_sum(NoiseShares(8, 1), 4, 100.0, 10)
    assert whole.share * math.sqrt(7) == pytest.approx(query.stddev(4))


def test_a_shared_answer_is_the_exact_sum_where_there_is_next_to_no_noise() -> None:
    query, shares = MeanQuery(1e-6), NoiseShares(2)
    subject, rng = RowSubject(ROWS, 20), np.random.default_rng(0)
    part = query.shared_answer(subject, shares, 100.0, 2, rng)
    total = query.integer_sum(shares, 4, 100.0, 2).total(part)
    assert total == pytest.approx(query.exact_sum(subject).numpy(), abs=1e-4)


def test_the_label_query_alone_needs_classes_and_is_not_summed() -> None:
    assert [query.summable for query in QUERIES] == [False, True, True, True]
    assert [query.matches_data(4, 0) for query in QUERIES] == [False, True, True, True]
    assert not QUERIES[2].matches_data(2, 10)


def test_the_metric_query_alone_is_about_the_model() -> None:
    assert [query.asks_metric for query in QUERIES] == [False, False, False, True]
    assert [query.matches_metric(1, 2) for query in QUERIES] == [True, True, True, False]
    assert QUERIES[3].matches_metric(2, 2)
