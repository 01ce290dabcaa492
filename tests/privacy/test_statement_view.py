"""What people read of a statement: unit and delta beside every figure, and every warning."""

from __future__ import annotations

import math

from dpfl.privacy.accounting.events import ADD_REMOVE
from dpfl.privacy.statement import PrivacyStatement
from dpfl.privacy.statement_view import (
    GuaranteeView,
    StatementView,
    large_delta,
    protected_unit,
)


def statement(proven: float) -> PrivacyStatement:
    return PrivacyStatement(
        "sample", ADD_REMOVE, 1e-5, "the public", "pld", proven, None, warnings=("few samples",)
    )


def test_a_view_names_the_scope_of_its_figures_and_keeps_the_warnings() -> None:
    view = StatementView.of(statement(1.23451))
    assert "1.2346" in view.proven
    assert "sample" in view.scope
    assert "1e-05" in view.scope
    assert ("warning", "few samples") in view.rows


def test_no_epsilon_is_a_word_and_no_claim_is_too() -> None:
    view = StatementView.of(statement(math.inf))
    assert view.proven == "unbounded"
    assert view.claimed == "nothing"


def test_what_is_proven_in_cells_of_a_list() -> None:
    proven = GuaranteeView.of({"proven": 1.23451, "claimed": 1, "unit": "sample", "delta": 1e-5})
    assert proven.to_dict() == {
        "level": "proven",
        "proven": "1.2346",
        "claimed": "1.0000",
        "unit": "one sample",
        "delta": "1e-05",
        "scope": "for one sample, delta 1e-05",
        "short": "1.2346",
        "no_figure": "-",
    }
    nothing = GuaranteeView.of({"proven": "unbounded", "unit": "none", "delta": 1e-5})
    assert (nothing.level, nothing.proven, nothing.short) == (
        "nothing",
        "unbounded",
        "no guarantee",
    )
    assert (nothing.unit, nothing.delta, nothing.claimed) == ("nobody", "-", "nothing")


def test_of_a_run_under_way_the_budget_gives_the_delta() -> None:
    view = GuaranteeView.of({}, delta=1e-6)
    assert (view.level, view.short, view.no_figure) == ("running", "not yet", "-")
    assert (view.unit, view.claimed, view.delta) == ("-", "-", "-")
    assert view.scope == "delta 1e-06"


def test_a_figure_that_is_no_number_is_no_guarantee() -> None:
    assert GuaranteeView.of({"proven": math.nan}).level == "nothing"
    assert [protected_unit(unit) for unit in ("client", "none", None)] == [
        "one client",
        "nobody",
        "-",
    ]


def test_a_large_delta_is_named_with_the_number_that_it_must_stay_below() -> None:
    assert large_delta(0.01, 100, "clients").startswith("delta 0.01 is not below 1/100 (clients)")
