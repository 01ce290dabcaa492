"""Epsilons as files hold them: rounded up, and a word for infinity."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from dpfl.privacy.figures import figure, from_figure, rounded_up


@given(st.floats(0.0, 1e6))
def test_a_figure_never_says_less_than_the_epsilon(epsilon: float) -> None:
    assert epsilon - 1e-9 <= rounded_up(epsilon) <= epsilon + 1e-4
    assert from_figure(figure(epsilon)) == rounded_up(epsilon, 6)


def test_infinity_is_a_word_and_none_stays_none() -> None:
    assert figure(math.inf) == "unbounded"
    assert from_figure("unbounded") == math.inf
    assert figure(None) is from_figure(None) is None
