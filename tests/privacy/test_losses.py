"""Privacy loss distributions are those of dp-accounting, to the last bit."""

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.privacy.losses import gaussian_losses

DELTAS = (1e-9, 1e-5, 1e-2)


def assert_the_same(multiplier, rate, interval, counts=(1, 300)):
    theirs = pld.from_gaussian_mechanism(multiplier, sampling_prob=rate, value_discretization_interval=interval)
    ours = gaussian_losses(multiplier, rate, interval)
    grid = np.arange(-2, 12, 0.5)
    assert list(ours.get_delta_for_epsilon(grid)) == list(theirs.get_delta_for_epsilon(grid))
    for count in counts:
        figures = [distribution.self_compose(count) for distribution in (ours, theirs)]
        assert [figures[0].get_epsilon_for_delta(d) for d in DELTAS] == [figures[1].get_epsilon_for_delta(d) for d in DELTAS]


@given(st.floats(0.5, 20.0), st.floats(1e-4, 1.0))
@settings(max_examples=15, deadline=None)
def test_any_sampled_gaussian_has_the_losses_that_dp_accounting_gives_it(multiplier, rate):
    assert_the_same(multiplier, rate, 1e-3)


@pytest.mark.parametrize(("multiplier", "rate"), [(0.84, 0.015), (1.0, 1.0), (2.0, 1 - np.exp(-0.25)), (5.0, 0.5)])
def test_the_fine_grid_too_where_a_point_lies_on_the_bound_of_the_losses(multiplier, rate):
    assert_the_same(multiplier, rate, 1e-4, counts=(100,))
