"""Theorem 3.1 of the clipping paper against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpfl.errors import DpflError
from dpfl_papers.theorems.clipping import ClippingInputs, bound

INPUTS = ClippingInputs(
    cohort=2,
    clients=4,
    steps=5,
    rounds=10,
    local_rate=0.01,
    server_rate=0.5,
    gap=3.0,
    L=2.0,
    G=1.5,
    within=0.4,
    between=0.1,
    d=100,
    deviation=0.02,
)
NONE = (1.0, 1.0, 1.0, 1.0)


def test_without_a_clip_the_terms_are_those_of_fedavg_and_the_noise():
    found = bound(INPUTS, NONE, NONE)
    # 4 * 3 / (0.005 * 50) + 12.5 * 1e-4 * 10 (0.4 + 30 * 0.1) + 6 * 0.005 * 2 * 0.4 / 2
    assert found.training == pytest.approx(48 + 0.0425 + 0.012)
    # 2 * 0.5 * 2 * 100 * 4e-4 / (0.01 * 10)
    assert found.noise == pytest.approx(0.8)
    assert found.clipping == 0
    assert found.total == pytest.approx(48.8545)


def test_clients_that_are_clipped_otherwise_than_the_mean_add_a_bias():
    found = bound(INPUTS, (1.0, 0.5, 1.0, 0.5), (1.0, 0.5, 1.0, 0.5))
    # mean 0.75, all 0.25 from it: 4 * 2.25 * 1 / 4, and 6 * 0.005 * 10 * 2.25 * 4 * 0.0625 / 2
    assert found.clipping == pytest.approx(2.25 + 0.084375)
    assert found.training == pytest.approx(48 + 0.0425 * 0.75 + 0.012 * 0.5625)


def test_a_clip_that_differs_from_that_of_the_expected_update_adds_one_too():
    found = bound(INPUTS, (0.8,) * 4, NONE)
    # 4 * 2.25 * 0.2, and 6 * 0.005 * 10 * 2.25 * 4 * 0.04 / 2
    assert found.clipping == pytest.approx(1.8 + 0.054)


def test_conditions_are_named_where_they_do_not_hold():
    assert INPUTS.violations() == ()
    told = replace(INPUTS, local_rate=0.2, server_rate=1.0).violations()
    # P / 48 Q = 1 / 120 and 1 / (sqrt(60) * 10)
    assert told == ("eta_g eta_l = 0.2 is above 0.00833333", "eta_l = 0.2 is above 0.0129099")


def test_a_clip_that_lengthens_is_refused():
    with pytest.raises(DpflError, match="1 at most"):
        bound(INPUTS, (2.0, 1.0, 1.0, 1.0), NONE)
