"""The scales of columns as one release: its sensitivity, its noise, its price, and what is made of
the answers.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpfl.errors import DpflError
from dpfl.privacy.accounting.events import gaussian
from dpfl.privacy.queries.columns import (
    MIN_VARIANCE,
    ColumnQuery,
    scale_from_bins,
    scale_from_moments,
)
from dpfl.privacy.queries.mean import MeanAnswer
from tests.privacy.queries.subject import RowSubject

SURVEY = ColumnQuery(1e-9, 4, (0, 2), ((1, 5),))


def answer(rows: torch.Tensor, query: ColumnQuery, seed: int = 0, size: int = 50) -> np.ndarray:
    return query.answer(RowSubject(rows, size), np.random.default_rng(seed))


NUMBERS = st.floats(allow_nan=True, allow_infinity=True, width=32)


@given(
    st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=20),
    st.tuples(NUMBERS, NUMBERS, NUMBERS),
)
def test_adding_any_row_moves_the_sum_by_the_bound_at_most(rows, added):
    """With equal noise, the difference of two answers is the added row alone: 2 for each mean, 1
    for each histogram.
    """
    held, more = torch.tensor(rows), torch.tensor([added])
    moved = 50 * (
        answer(torch.cat([held, more]), SURVEY).astype(float) - answer(held, SURVEY).astype(float)
    )
    assert SURVEY.bound == math.sqrt(2 * 2 + 1)
    assert np.linalg.norm(moved) <= SURVEY.bound * (1 + 1e-4)


def test_some_row_moves_the_sum_by_all_of_the_bound():
    moved = SURVEY.bound_rows(torch.tensor([[1.0, 0.3, -1.0]]))
    assert float(moved.norm()) == pytest.approx(SURVEY.bound, rel=1e-4)


@pytest.mark.parametrize("secure", [False, True])
def test_the_noise_has_the_deviation_that_is_paid_for(secure):
    query = replace(SURVEY, noise_multiplier=3.0, secure=secure)
    noise = np.stack(
        [answer(torch.full((1, 3), math.nan), query, seed, size=50) for seed in range(400)]
    )
    assert noise.std() == pytest.approx(3.0 * query.bound / 50, rel=0.03)
    assert query.event == gaussian(3.0)


def test_the_answers_of_clients_give_the_scales_of_all_their_rows():
    rng = torch.Generator().manual_seed(0)
    rows = torch.rand(4000, 3, generator=rng) ** 3 * 2 - 1
    query = replace(SURVEY, binned=((1, 40),))
    answers = {0: answer(rows[:1000], query, size=1000), 2: answer(rows[1000:], query, size=3000)}
    said = {client: torch.from_numpy(answer) for client, answer in answers.items()}
    found = query.estimate(
        MeanAnswer.from_clients(said, (1000, 7, 3000), query.noise_multiplier * query.bound)
    )
    found = found.view(2, 4).T.tolist()
    assert found[3] == [0.0, 1.0]
    for place in (0, 2):
        assert tuple(found[place]) == pytest.approx(
            (rows[:, place].mean().item(), rows[:, place].var().item()), abs=1e-3
        )
    low, median, high = rows[:, 1].quantile(torch.tensor([0.25, 0.5, 0.75])).tolist()
    assert found[1][0] == pytest.approx(median, abs=0.03)
    assert math.sqrt(found[1][1]) == pytest.approx((high - low) / 1.349, abs=0.03)


@pytest.mark.parametrize("noise", [0.0, 0.001, 0.05, 1.0])
def test_a_variance_is_no_less_than_noise_lets_it_be_known_and_never_negative(noise):
    """Of a column that never changes: its noise is not taken for values to be blown up."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        mean, variance = scale_from_moments(
            0.5 + noise * rng.normal(), -0.5 + noise * rng.normal(), noise
        )
        assert -1 <= mean <= 1
        assert max(MIN_VARIANCE, noise / 2) <= variance <= 1


@pytest.mark.parametrize("shares", [np.zeros(8), -np.ones(8), np.full(8, math.nan)])
def test_a_histogram_of_noise_alone_leaves_the_bounds(shares):
    assert scale_from_bins(shares) == (0.0, 1.0)


def test_quartiles_in_one_bin_are_a_bin_apart():
    shares = np.zeros(10)
    shares[3] = 1.0
    median, variance = scale_from_bins(shares)
    assert median == pytest.approx(-0.3)
    assert math.sqrt(variance) == pytest.approx(0.2 / 1.349)


@pytest.mark.parametrize("multiplier", [0.0, -1.0, math.inf, math.nan])
def test_scales_without_noise_are_refused(multiplier):
    with pytest.raises(DpflError, match="noise multiplier of the paid scales"):
        ColumnQuery(multiplier, 1, (0,))
