"""Theorem 3 of the wavelet paper against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from dpfl.errors import DpflError
from dpfl_papers.theorems.wavelets import WaveletInputs, bound, dissimilarity, drift

INPUTS = WaveletInputs(
    clients=4,
    steps=5,
    smooth=2.0,
    convex=0.5,
    first=1.0,
    second=3.0,
    diversity=1.5,
    rates=(0.2, 0.1, 0.1),
    squares=0.7,
)


def test_the_terms_are_as_printed():
    # 0.1 * 2 * 9 / 4 (0.05 + 2 * 5/4 * 0.05) and 1.5 * 5 * 0.1 * 4 / 16 * 6
    assert dissimilarity(INPUTS) == pytest.approx(0.45 * (0.05 + 0.125))
    assert drift(INPUTS) == pytest.approx(1.125)


def test_the_bound_is_as_printed():
    # 0.95 * 8 + 0.07875 + 0.05 (-1 + 1.5 * 2 * 0.1 * 5/4) 0.7 + 1.125 * 0.05 * 0.7
    assert bound(INPUTS, 8.0) == pytest.approx(7.6 + 0.07875 - 0.05 * 0.625 * 0.7 + 0.05625 * 0.7)


def test_right_after_an_aggregation_nothing_is_past():
    assert bound(replace(INPUTS, rates=(0.1,), second=0.0, squares=0.0), 8.0) == pytest.approx(7.6)


def test_no_term_knows_of_the_noise():
    assert not {"sigma", "deviation", "noise"} & {field.name for field in fields(WaveletInputs)}


@pytest.mark.parametrize(
    "wrong", [{"clients": 0}, {"convex": 0.0}, {"squares": -1.0}, {"rates": ()}]
)
def test_what_the_theorem_does_not_cover_is_refused(wrong):
    with pytest.raises(DpflError):
        replace(INPUTS, **wrong)
