"""The metric query: its sensitivity follows the numbers and cells per sample."""

from __future__ import annotations

import math

import pytest

from dpfl.errors import DpflError
from dpfl.privacy.queries.metric import MetricQuery


@pytest.mark.parametrize(("numbers", "cells", "bound"), [(2, 0, 2), (2, 10, 3), (0, 4, 1)])
def test_a_sample_counts_with_its_numbers_and_one_cell(
    numbers: int, cells: int, bound: int
) -> None:
    query = MetricQuery(1.0, numbers, cells, 4.0, 0.25)
    assert query.bound == math.sqrt(bound) == query.sensitivity(query.width)
    assert query.answer_width(784) == query.width == numbers + cells
    assert query.held_out_share == 0.25


def test_a_metric_without_noise_is_refused() -> None:
    with pytest.raises(DpflError, match="private metric"):
        MetricQuery(0.0, 1, 0, 1.0, 0.0)
