"""Canary clients: an estimate of what is spent."""

import pytest

from dpfl.audit.measurements.canary_clients import canary_clients
from dpfl.privacy import Flat, Gaussian, Keyed, PoissonSize, Release


def test_canary_clients_estimate_what_is_spent_and_say_that_it_is_no_bound() -> None:
    plain = canary_clients(Release(clip=Flat(1.0), noise=Gaussian(1.0)), 1, 1e-5, Keyed(0))
    assert plain.confidence is None
    assert plain.epsilon == pytest.approx(4.377, rel=0.25)
    drawn = canary_clients(Release(PoissonSize(20), Flat(1.0), Gaussian(1.0)), 4, 1e-5, Keyed(0))
    assert 0 <= drawn.epsilon < plain.epsilon
