"""What people read of a statement: unit and delta beside every figure, and every warning."""

from __future__ import annotations

import math

from dpfl.privacy.accounting.events import ADD_REMOVE
from dpfl.privacy.statement import PrivacyStatement
from dpfl.privacy.statement_view import StatementView


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
