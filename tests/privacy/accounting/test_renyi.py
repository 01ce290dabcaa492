"""Renyi divergences of sampled Gaussian releases are those of dp-accounting."""

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.privacy import accountant
from dpfl.privacy.accounting.accountant import CLASSIC_ORDERS
from dpfl.privacy.accounting.renyi import sampled_divergences


def theirs(rate: float, multiplier: float, orders: list[float]) -> np.ndarray:
    made = dp.rdp.RdpAccountant(orders)
    made.compose(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(multiplier)))
    return made.rdp


@given(st.floats(1e-6, 0.999), st.floats(-1.0, 2.0))
@settings(max_examples=20)
def test_every_order_is_dp_accountings(rate, exponent):
    found, expected = (
        of(rate, 10**exponent, DEFAULT_RDP_ORDERS) for of in (sampled_divergences, theirs)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize(
    ("rate", "multiplier"), [(0.5, 1.0), (0.999, 0.05), (1e-6, 1.0), (0.01, 1000.0)]
)
def test_where_series_are_long_or_do_not_end(rate, multiplier):
    for orders in (DEFAULT_RDP_ORDERS, CLASSIC_ORDERS):
        found, expected = (of(rate, multiplier, orders) for of in (sampled_divergences, theirs))
        assert np.array_equal(np.isinf(found), np.isinf(expected))
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)
        assert (found >= 0).all()


def test_where_everyone_or_nobody_is_drawn_the_formula_has_no_say():
    gaussian = dp.GaussianDpEvent(2.0)
    by = accountant("rdp")
    assert by.epsilon({dp.PoissonSampledDpEvent(1.0, gaussian): 3}, 1e-5) == by.epsilon(
        {gaussian: 3}, 1e-5
    )
    assert by.epsilon({dp.PoissonSampledDpEvent(0.0, gaussian): 3}, 1e-5) == 0.0
