"""A plan in words: which cell is recommended, which are allowed, and what to change."""

from __future__ import annotations

from dpfl.views.plan_view import PlanView
from tests.views.planned import tradeoff


def test_cells_are_marked_by_what_they_are() -> None:
    view = PlanView.of(tradeoff())
    assert view.headings == ("q", "tau 1", "tau 2")
    (rate, cells), (_, dear) = view.rows
    assert rate == "0.1"
    assert [cell.text[:2] for cell in cells] == ["8.", "* "]
    assert [cell.recommended for cell in cells] == [False, True]
    assert [cell.allowed for cell in dear] == [True, False], "600 x 0.5 x 2 exceeds 400"
    assert dear[1].text.startswith("(")


def test_a_delta_that_is_too_large_is_named() -> None:
    def advice(delta: float) -> list[str]:
        view = PlanView.of(tradeoff(delta=delta))
        return [sentence for sentence in view.sentences if sentence.startswith("Lower delta")]

    assert advice(1e-5) == []
    assert advice(0.01) == ["Lower delta: 0.01 is not below 1 / (samples of the largest client)."]
