"""Sums of bounded vectors: one unit moves them by the bound at most."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpfl.errors import DpflError
from dpfl.privacy.queries.bounded_sum import bounded_sum, scale_down
from dpfl.privacy.queries.metric import MetricQuery
from tests.privacy.queries.subject import RowSubject

NUMBERS = st.floats(allow_nan=True, allow_infinity=True, width=32)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=9), st.floats(1e-3, 1e3))
def test_any_row_moves_the_sum_by_the_bound_at_most(
    rows: list[tuple[float, float, float]], bound: float
) -> None:
    vectors = torch.tensor(rows)
    everything, rest = (bounded_sum([part], 3, bound) for part in (vectors, vectors[1:]))
    assert float((everything - rest).norm()) <= bound


def test_a_row_inside_the_bound_stays_as_it_is_and_one_that_is_not_finite_counts_as_nothing() -> (
    None
):
    rows = torch.tensor([[0.3, 0.4], [math.nan, 0.0], [math.inf, 1.0]])
    assert scale_down(rows, 1.0)[0].tolist() == pytest.approx([0.3, 0.4])
    assert scale_down(rows, 1.0)[1:].abs().sum() == 0


@pytest.mark.parametrize("width", [1, 3])
def test_what_a_sample_counts_with_is_never_repeated(width: int) -> None:
    """One number per sample, spread over a wider sum, would come back many times under noise for
    one of them.
    """
    rows = torch.ones(4, width)
    with pytest.raises(DpflError, match=f"counts with {width} numbers"):
        bounded_sum([rows], 5, 1.0)
    query = MetricQuery(1.0, 2, 8, 4.0, 0.0)
    with pytest.raises(DpflError, match=f"counts with {width} numbers"):
        query.answer(RowSubject(rows, 10), np.random.default_rng(0))
