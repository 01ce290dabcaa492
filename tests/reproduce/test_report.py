"""What a report shows of an epsilon."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dpfl_papers.table_report import shown_epsilon


@given(st.floats(1e-3, 1e12))
def test_an_epsilon_in_a_few_digits_is_never_below_the_figure_and_hardly_above(
    epsilon: float,
) -> None:
    assert (
        epsilon * (1 - 1e-6)
        <= float(shown_epsilon(epsilon))
        <= max(epsilon + 0.0011, 1.11 * epsilon if epsilon >= 1e4 else 0)
    )


def test_what_is_no_number_is_said_in_a_word() -> None:
    assert (shown_epsilon(None), shown_epsilon("unbounded")) == ("none", "unbounded")
