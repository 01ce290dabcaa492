"""Composition of privacy loss distributions: a check value, and bounds that only grow."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpfl.privacy.accounting.accountant import gaussian_epsilon
from dpfl.privacy.accounting.loss_grid import LossGrid, LossGridPair
from dpfl.privacy.accounting.losses import gaussian_losses


def test_ten_gaussians_cost_what_one_with_a_tenth_of_the_variance_costs_or_a_little_more() -> None:
    exact = gaussian_epsilon(math.sqrt(10) / 4.0, 1e-5)
    epsilon = gaussian_losses(4.0, 1.0, 1e-3).self_compose(10).epsilon(1e-5)
    assert exact <= epsilon <= exact + 1e-3


def test_an_infinite_loss_that_is_likelier_than_delta_has_no_epsilon() -> None:
    losses = LossGrid(0.1, 0, np.array([0.9]), 0.1)
    assert losses.epsilon(0.05) == math.inf
    assert losses.epsilon(0.2) == 0.0
    assert losses.compose(losses).infinite == pytest.approx(0.19)


def test_the_larger_epsilon_of_both_directions_counts() -> None:
    small, large = (LossGrid(0.1, place, np.array([1.0]), 0.0) for place in (5, 20))
    assert LossGridPair(small, large).epsilon(1e-5) == large.epsilon(1e-5) > small.epsilon(1e-5)
    assert LossGridPair(small, small).alike
