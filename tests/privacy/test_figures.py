"""Figures of epsilon: an upper bound is never rounded down, and files keep infinity as a word."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfl.privacy.figures import epsilon_text, figure, from_figure, rounded_down, rounded_up


@given(st.floats(min_value=0, max_value=1e6))
def test_bounds_are_rounded_to_the_safe_side(epsilon: float) -> None:
    assert epsilon - 1e-9 <= rounded_up(epsilon) <= epsilon + 1e-4
    assert rounded_down(epsilon) <= epsilon
    assert rounded_up(epsilon) - rounded_down(epsilon) <= 1e-4 + 1e-9
    assert from_figure(figure(epsilon)) == rounded_up(epsilon, 6)


@pytest.mark.parametrize("epsilon", [0.0, 1.5, math.inf, None])
def test_a_figure_is_read_back(epsilon: float | None) -> None:
    assert from_figure(figure(epsilon)) == epsilon


def test_an_epsilon_as_people_read_it() -> None:
    assert figure(math.inf) == "unbounded"
    assert epsilon_text(3.99101) == "3.9911"
    assert epsilon_text(math.inf) == epsilon_text("unbounded") == "unbounded"
    assert epsilon_text(None, absent="nothing") == "nothing"
    with pytest.raises(ValueError, match="could not convert"):
        from_figure("much")
