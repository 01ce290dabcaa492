"""An epsilon beside its limit: what was used is rounded up, and what remains is rounded down."""

import math

import pytest

from dpfl.privacy.statement_view import GuaranteeView
from dpfl.views.budget_view import BudgetView, account_budgets, remaining_text

PROVEN = GuaranteeView.of({"proven": 2.0, "unit": "sample", "delta": 1e-5})
UNPROVEN = GuaranteeView.of({"proven": "unbounded", "unit": "sample", "delta": 1e-5})


def test_both_figures_are_rounded_to_their_safe_side() -> None:
    view = BudgetView.of(3.99101, 8.0, PROVEN)
    assert (view.figure, view.limit, view.remaining) == ("3.9911", "8", "4.0089")
    assert (view.scope, view.is_over, view.note) == ("for one sample, delta 1e-05", False, "")
    assert view.percent == pytest.approx(100 * 3.99101 / 8)
    assert remaining_text(3.99999, 8.0) == "4.0000"
    assert remaining_text(4.00001, 8.0) == "3.9999"


def test_above_the_limit_the_figure_stays_and_nothing_remains() -> None:
    view = BudgetView.of(9.5, 8.25, PROVEN)
    assert (view.figure, view.limit, view.remaining) == ("9.5000", "8.25", "0.0000")
    assert (view.percent, view.is_over) == (100.0, True)


def test_without_a_limit_nothing_is_said_to_remain() -> None:
    for limit in (None, 0.0):
        view = BudgetView.of(1.0, limit, PROVEN)
        assert (view.limit, view.remaining, view.percent, view.is_over) == ("", "–", 0.0, False)


@pytest.mark.parametrize("epsilon", ["unbounded", math.inf, math.nan, None])
def test_a_word_stands_where_there_is_no_epsilon(epsilon: float | str | None) -> None:
    view = BudgetView.of(epsilon, 8.0, UNPROVEN)
    assert (view.is_figure, view.figure, view.level) == (False, "no guarantee", "nothing")
    assert view.remaining == "–"
    assert BudgetView.of(epsilon, 8.0, GuaranteeView.of({})).figure == "-"


def test_what_is_proven_is_said_where_it_is_more_than_was_used() -> None:
    assert BudgetView.of(1.0, 8.0, PROVEN, 1.23456).note == "proven 1.2346, fixed in advance"
    assert BudgetView.of(1.0, 8.0, PROVEN, 1.0).note == ""
    assert BudgetView.of(1.0, 8.0, PROVEN, "unbounded").note == ""


def test_accounts_have_their_own_limits_or_that_of_every_client() -> None:
    statement = {"per_client": {"a": 1.0, "every client": 2.0}}
    budgets = account_budgets(statement, {"a": 4.0, "every client": 8.0}, PROVEN)
    assert {name: view.limit for name, view in budgets.items()} == {"a": "4", "every client": "8"}
    assert account_budgets({}, {}, PROVEN) == {}
