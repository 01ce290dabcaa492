"""Tables of a plan: one row per sampling rate, and the recommendation stands out."""

from __future__ import annotations

from dpfl.views.plan_view import ClientPlansView, PlanView
from dpfl.views.terminal.plan_tables import client_table, plan_table
from tests.views.planned import tradeoff


def test_the_recommended_cell_is_bold_and_one_that_is_not_allowed_is_dim() -> None:
    table = plan_table(PlanView.of(tradeoff()))
    assert [column.header for column in table.columns] == ["q", "tau 1", "tau 2"]
    cells = [list(column.cells) for column in table.columns]
    assert cells[0] == ["0.1", "0.5"]
    assert str(cells[2][0]).startswith("[bold]* ")
    assert str(cells[2][1]).startswith("[dim](")


def test_a_plan_for_unequal_clients_has_a_row_per_size() -> None:
    view = ClientPlansView((("600", "2", "0.02", "0.02", "0.5", "5.5"),), "the largest")
    table = client_table(view)
    assert (table.row_count, table.caption) == (1, "the largest")
    assert client_table(ClientPlansView(view.rows, "")).caption is None
