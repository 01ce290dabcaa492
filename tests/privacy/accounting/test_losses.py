"""Privacy loss distributions, and what is composed of them, are those of dp-accounting."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.privacy.accounting.accountant import gaussian_epsilon
from dpfl.privacy.accounting.loss_grid import LossGrid
from dpfl.privacy.accounting.losses import gaussian_losses

CLOSE = {1e-9: 1e-5, 1e-5: 1e-8, 1e-2: 1e-8}
"""How near figures are at a delta; far out in the tails, both sides feel the rounding of Fourier
transforms.
"""


def both(multiplier: float, rate: float, interval: float):
    theirs = pld.from_gaussian_mechanism(
        multiplier, sampling_prob=rate, value_discretization_interval=interval
    )
    return gaussian_losses(multiplier, rate, interval), theirs


def assert_the_same_figures(ours, theirs) -> None:
    for delta, near in CLOSE.items():
        assert ours.epsilon(delta) == pytest.approx(
            theirs.get_epsilon_for_delta(delta), rel=near, abs=near
        )


def assert_the_same(multiplier: float, rate: float, interval: float, counts=(1, 300)) -> None:
    ours, theirs = both(multiplier, rate, interval)
    for losses, pmf in (
        (ours.removed_losses, theirs._pmf_remove),
        (ours.added_losses, theirs._pmf_add),
    ):
        dense = pmf.to_dense_pmf()
        assert (losses.lowest, len(losses.masses)) == (dense._lower_loss, dense.size)
        np.testing.assert_allclose(losses.masses, dense._probs, rtol=0, atol=1e-16)
        assert losses.infinite == pytest.approx(dense._infinity_mass, abs=1e-16)
    for count in counts:
        assert_the_same_figures(ours.self_compose(count), theirs.self_compose(count))


@given(st.floats(0.5, 20.0), st.floats(1e-4, 1.0))
@settings(max_examples=15, deadline=None)
def test_any_sampled_gaussian_has_the_losses_that_dp_accounting_gives_it(multiplier, rate):
    assert_the_same(multiplier, rate, 1e-3)


@pytest.mark.parametrize(
    ("multiplier", "rate"), [(0.84, 0.015), (1.0, 1.0), (2.0, 1 - np.exp(-0.25)), (5.0, 0.5)]
)
def test_the_fine_grid_too_where_a_point_lies_on_the_bound_of_the_losses(multiplier, rate):
    assert_the_same(multiplier, rate, 1e-4, counts=(100,))


@pytest.mark.parametrize("rates", [(0.05, 0.3), (0.05, 1.0), (1.0, 1.0)])
def test_releases_of_two_kinds_compose_as_they_do_there(rates):
    (first, theirs), (second, others) = (
        both(multiplier, rate, 1e-3) for multiplier, rate in zip((1.0, 4.0), rates, strict=True)
    )
    assert_the_same_figures(
        first.self_compose(7).compose(second.self_compose(3)),
        theirs.self_compose(7).compose(others.self_compose(3)),
    )


@pytest.mark.parametrize(("multiplier", "count"), [(1.0, 1), (1.0, 300), (2.0, 30), (5.0, 2000)])
def test_no_figure_is_below_the_exact_one_of_gaussians(multiplier, count):
    losses = gaussian_losses(multiplier, 1.0, 1e-3).self_compose(count)
    for delta in CLOSE:
        exact = gaussian_epsilon(math.sqrt(count) / multiplier, delta)
        assert exact <= losses.epsilon(delta) < exact + 1e-3


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=12),
    st.integers(-8, 4),
    st.floats(0, 0.01),
    st.floats(1e-6, 0.5),
)
def test_epsilon_is_the_least_that_delta_allows(weights, lowest, infinite, delta):
    """By the definition of delta(epsilon), whatever the distribution."""
    total = sum(weights) or 1.0
    chances = np.array(weights) * (1 - infinite) / total
    found = LossGrid(0.5, lowest, chances, infinite).epsilon(delta)
    losses = (lowest + np.arange(len(chances))) * 0.5

    def needed(epsilon: float) -> float:
        return infinite + float((chances * -np.expm1(np.minimum(epsilon - losses, 0.0))).sum())

    if math.isinf(found):
        assert infinite > delta
        return
    assert needed(found) <= delta * (1 + 1e-9)
    assert found == 0.0 or needed(found - 1e-6) > delta * (1 - 1e-9)


def test_losses_whose_weight_is_beyond_floating_point_numbers_are_their_own_bound():
    assert LossGrid(1.0, 800, np.array([0.5, 0.5]), 0.0).epsilon(1e-5) == 801.0


def test_what_is_cut_off_counts_as_an_infinite_loss():
    """None of the mass is lost, however many are composed; rounding on the grid may add some."""
    whole = gaussian_losses(1.0, 0.1, 1e-3)
    both = whole.self_compose(3).compose(whole.self_compose(2))
    for losses in (whole.self_compose(500).removed_losses, both.added_losses):
        assert 1.0 - 1e-13 < losses.masses.sum() + losses.infinite < 1.0 + 1e-8
        assert losses.infinite > whole.removed_losses.infinite


def test_what_two_cut_off_together_counts_as_an_infinite_loss_and_never_as_less():
    """By hand: a loss of 4 with a chance of 3e-16 is beyond what is kept, and so are infinite
    losses of either or of both.
    """
    tail = LossGrid(1.0, 0, np.array([0.5, 0.5 - 1.7e-8, 1.7e-8]), 0.0)
    assert 0 < tail.compose(tail).infinite < 1e-15
    one, other = (
        LossGrid(1.0, -1, np.array([0.5, 0.4]), 0.1),
        LossGrid(1.0, 3, np.array([0.5, 0.3]), 0.2),
    )
    both = one.compose(other)
    assert both.infinite == pytest.approx(0.28, rel=1e-12)
    assert both.lowest == 2
    np.testing.assert_allclose(both.masses, [0.25, 0.35, 0.12], rtol=1e-12)
