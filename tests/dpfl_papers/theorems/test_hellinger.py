"""Theorem 3 of HW-DPFL against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpfl.errors import DpflError
from dpfl.privacy.accounting.published_claims import HellingerNoise
from dpfl_papers.theorems.hellinger import HellingerInputs, bound, bound_of_recursion, drift, noise

HALVES = HellingerInputs(
    shares=(0.5, 0.5),
    variances=(1.0, 3.0),
    deviations=(0.2, 0.4),
    clients=5,
    steps=3,
    rate=0.1,
    norm=2.0,
    smooth=4.0,
    convex=0.5,
    skew=0.25,
    parameters=10,
    distance=8.0,
)


def test_the_terms_are_as_printed():
    # 0.01 (2 * 4 * 4 + 2 * 4 * 4 * 0.25 + 0.25 * 1 + 0.25 * 3) and 10 (0.25 * 0.04 + 0.25 * 0.16)
    assert drift(HALVES) == pytest.approx(0.01 * (32 + 8 + 1))
    assert noise(HALVES) == pytest.approx(0.5)


def test_the_bound_is_as_printed():
    # 2 * 0.95^2 * 8 + 4 * 0.5 * 0.1 ((0.41 + 2 * 0.5) / 2 + 3/4 * 2/2 * 0.36)
    assert bound(HALVES, 2) == pytest.approx(2 * 0.9025 * 8 + 0.2 * (0.705 + 0.27))


def test_the_recursion_gives_more_than_is_printed():
    """(35), round by round: 0.95 times what was, plus 0.41 + T 0.5 + 0.54."""
    distance = 8.0
    for _ in range(20):
        distance = 0.95 * distance + 0.41 + 20 * 0.5 + 0.54
    assert bound_of_recursion(HALVES, 20) == pytest.approx(4 / 2 * distance)
    assert bound_of_recursion(HALVES, 20) > bound(HALVES, 20)


def test_with_all_clients_there_is_no_term_for_the_absent():
    everybody = replace(HALVES, clients=2)
    assert bound(HALVES, 2) - bound(everybody, 2) == pytest.approx(0.2 * 0.27)


def test_it_grows_with_the_rounds_since_each_counts_the_noise_of_all():
    assert bound(HALVES, 400) > bound(HALVES, 200) > bound(HALVES, 50)


def test_the_noise_of_theorem_1_is_each_clients_own():
    """gamma = E b / n_k with E b = 200: 9.9 for 196 samples, 3.075 for 600, 0.89 for 1,957."""
    sigmas = [HellingerNoise(1.0, 1e-5, 20, 10, size).noise_multiplier for size in (196, 600, 1957)]
    assert sigmas == pytest.approx([9.896, 3.075, 0.889], abs=1e-3)


@pytest.mark.parametrize(
    "wrong", [{"shares": (1.0,)}, {"clients": 1}, {"rate": 3.0}, {"rate": 0.0}]
)
def test_what_the_theorem_does_not_cover_is_refused(wrong):
    with pytest.raises(DpflError):
        replace(HALVES, **wrong)
