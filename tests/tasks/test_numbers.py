"""Tasks of one number: their unit, and counts that never overflow."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpfl import tasks
from dpfl.tasks.numbers import STEEPEST


def test_numbers_are_measured_in_their_own_unit():
    found = tasks.Regression(centre=100.0, scale=10.0).metrics(
        np.array([[0.0], [1.0]]), np.array([105.0, 110.0])
    )
    assert found["MAE"] == pytest.approx(2.5)
    assert found["RMSE"] == pytest.approx(math.sqrt(12.5))
    assert found["R^2"] == pytest.approx(1 - 25 / 12.5)


@given(score=st.floats(-1e4, 1e4), count=st.integers(0, 10**6))
def test_counts_never_overflow(score, count):
    scores, y = torch.tensor([[score]]), torch.tensor([float(count)])
    losses, slopes = tasks.Counts().losses_and_slopes(scores, y)
    assert torch.isfinite(losses).all()
    assert torch.isfinite(slopes).all()


def test_a_score_of_nought_is_the_declared_mean():
    y, unit = np.array([0.0, 2.0, 7.0]), tasks.Counts(mean=3.0)
    found, same = (
        unit.metrics(np.zeros((3, 1)), y),
        tasks.Counts().metrics(np.full((3, 1), math.log(3.0)), y),
    )
    assert found == pytest.approx(same, abs=1e-9)
    steep = tasks.Counts().losses_and_slopes(torch.full((3, 1), math.log(3.0)), torch.tensor(y))[1]
    torch.testing.assert_close(
        3 * unit.losses_and_slopes(torch.zeros(3, 1), torch.tensor(y))[1].double(), steep.double()
    )


def test_counts_go_on_as_a_line():
    at, beyond = (
        tasks.Counts().losses(torch.tensor([[s]]), torch.tensor([0.0]))
        for s in (STEEPEST, STEEPEST + 1)
    )
    assert float(beyond - at) == pytest.approx(math.exp(STEEPEST), rel=1e-5)


def test_a_number_is_trained_in_the_unit_that_is_declared():
    task = tasks.Regression(centre=10.0, scale=2.0)
    losses, slopes = task.losses_and_slopes(
        torch.tensor([[1.0], [1.0]]), task.labels(torch.tensor([12, 8]))
    )
    assert losses.tolist() == [0.0, 2.0]
    assert slopes.tolist() == [[0.0], [2.0]]


def test_the_loss_of_counts_is_never_below_0_once_its_constant_is_back():
    counts, y = tasks.Counts(mean=2.0), torch.tensor([0.0, 2.0, 7.0])
    best = (y / 2.0).clamp(min=1e-30).log()[:, None]
    assert counts.nonnegative_losses(best, y) == pytest.approx(torch.zeros(3), abs=1e-6)
    assert (counts.losses(best, y)[1:] != 0).all()
    assert (counts.nonnegative_losses(torch.zeros(3, 1), y) >= 0).all()
