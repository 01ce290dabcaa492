"""Figures of a certificate: equal up to their last digit, and nothing else is an epsilon."""

from __future__ import annotations

import math

import pytest

from dpfl.certificate.figures import TOLERANCE, between, number, same_figure, stated_figure


class TestFigures:
    def test_figures_are_the_same_to_the_last_of_six_digits(self) -> None:
        assert TOLERANCE == 2e-6
        assert same_figure(1.0, 1.000001)
        assert same_figure(1.000001, 1.0)
        assert not same_figure(1.0, 1.000003)
        assert not same_figure(1.000003, 1.0)
        assert not same_figure(1.0, -1.0)
        assert same_figure("unbounded", "unbounded")
        assert not same_figure("unbounded", 1.0)
        assert same_figure(None, None)
        assert not same_figure(None, 0.0)
        assert not same_figure(0.0, None)

    def test_a_figure_between_two_others(self) -> None:
        for value, inside in (
            (1.0, True),
            (2.0, True),
            (0.999999, True),
            (2.000001, True),
            (0.999997, False),
            (2.000003, False),
        ):
            assert between(1.0, value, 2.0) is inside
        assert between(0.0, 5.0, "unbounded")
        assert not between(0.0, "unbounded", 5.0)
        assert between(None, None, None)
        for figures in (
            (None, 1.0, 2.0),
            (1.0, None, 2.0),
            (1.0, 1.5, None),
            (None, None, 1.0),
            (None, 1.0, None),
        ):
            assert not between(*figures)

    def test_what_is_no_epsilon_is_an_error(self) -> None:
        assert number("unbounded") == math.inf
        assert (number(3), number(0.5)) == (3.0, 0.5)
        for odd in (True, None, "1", math.nan, [1.0]):
            with pytest.raises(ValueError, match="not an epsilon"):
                number(odd)


def test_figures_are_of_six_digits_and_rounded_up():
    assert stated_figure(1.23456701) == 1.234568
    assert stated_figure(1.234567) == 1.234567
    assert stated_figure(float("inf")) == "unbounded"
