"""The mean of the samples as a release: its sensitivity, its noise, its price."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpfl.errors import DpflError
from dpfl.privacy.accounting.events import gaussian
from dpfl.privacy.queries.bounded_sum import scale_down
from dpfl.privacy.queries.mean import MeanAnswer, MeanQuery
from tests.privacy.queries.subject import RowSubject

FEATURES = 9


def answer(rows: torch.Tensor, query: MeanQuery, seed: int = 0, size: int = 50) -> np.ndarray:
    return query.answer(RowSubject(rows, size), np.random.default_rng(seed))


@given(st.integers(1, 40), st.floats(1e-3, 1e30), st.integers(0, 10))
def test_adding_any_sample_moves_the_sum_by_the_bound_at_most(count, scale, seed):
    """With equal noise, the difference of two answers is the added sample alone."""
    rng = torch.Generator().manual_seed(seed)
    rows, added = (
        torch.randn(count, FEATURES, generator=rng),
        scale * torch.randn(1, FEATURES, generator=rng),
    )
    quiet = MeanQuery(1e-9)
    moved = 50 * (
        answer(torch.cat([rows, added]), quiet).astype(float) - answer(rows, quiet).astype(float)
    )
    assert np.linalg.norm(moved) <= math.sqrt(FEATURES) * (1 + 1e-4)


def test_a_sample_that_is_not_finite_counts_as_nothing():
    rows = torch.tensor([[1.0, 0.0], [math.inf, 0.0], [math.nan, 1.0]])
    assert scale_down(rows, 1.0)[1:].abs().sum() == 0
    assert torch.linalg.vector_norm(scale_down(rows, 1.0)[0]) <= 1


LARGEST, LEAST = torch.finfo(torch.float32).max, 1e-45


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("features", [1, 3, 4000])
@pytest.mark.parametrize("value", [LARGEST, -LARGEST, LEAST, -0.0, 1.0, 1.0000001, 1.17549435e-38])
def test_no_number_of_float32_passes_the_bound(value, features, flush):
    """Alone, among zeros, and in all places; also where the processor takes the smallest numbers
    for 0.
    """
    rows = torch.full((3, features), value)
    rows[1, 1:], rows[2, 1:] = 0.0, LEAST
    torch.set_flush_denormal(flush)
    try:
        scaled = scale_down(rows, math.sqrt(features))
    finally:
        torch.set_flush_denormal(False)
    assert torch.linalg.vector_norm(scaled.double(), dim=1).max() <= math.sqrt(features)


def test_normalised_samples_are_not_scaled_and_the_declared_size_divides():
    rows = torch.full((20, FEATURES), 0.9)
    found = answer(rows, MeanQuery(1e-9), size=40)
    assert found == pytest.approx(np.full(FEATURES, 0.45), rel=1e-4)


def test_the_noise_has_the_deviation_that_is_paid_for():
    query = MeanQuery(20.0)
    noise = np.stack([answer(torch.zeros(1, 100), query, seed, size=50) for seed in range(200)])
    assert noise.std() == pytest.approx(20.0 * math.sqrt(100) / 50, rel=0.02)
    assert query.event == gaussian(20.0)


def test_noise_is_taken_out_of_the_mean_and_pure_noise_is_taken_out_whole():
    query, sizes = MeanQuery(2.0), (400, 600)
    rng = torch.Generator().manual_seed(0)
    deviation = 2.0 * math.sqrt(2500) / torch.tensor(sizes)  # of each client's answer
    truth = 0.3 * torch.randn(2500, generator=rng)
    for mean, far in ((truth, 1.0), (torch.zeros(2500), 0.05)):
        answers = {
            i: mean + d * torch.randn(2500, generator=rng) for i, d in enumerate(deviation.tolist())
        }
        plain = sum(answers[i] * (sizes[i] / 1000) for i in (0, 1))
        found = query.estimate(MeanAnswer.from_clients(answers, sizes, 2.0 * math.sqrt(2500)))
        assert (found - mean).norm() < (plain - mean).norm()
        assert found.norm() <= far * plain.norm()
    alone = MeanAnswer.from_clients({0: 1e-3 * truth}, sizes, 2.0 * math.sqrt(2500))
    assert query.estimate(alone).abs().sum() == 0


@pytest.mark.parametrize("multiplier", [0.0, -1.0, math.inf, math.nan])
def test_a_mean_without_noise_is_refused(multiplier):
    with pytest.raises(DpflError, match="noise multiplier of the mean"):
        MeanQuery(multiplier)
