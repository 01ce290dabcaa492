"""Runs side by side in words: what each row shows, and what the notes warn of."""

from typing import Any

from dpfl.views.compare_groups import group_runs
from dpfl.views.comparison_view import ComparisonView, heading
from tests.views.test_compare_groups import measured, run


def only_row(**changes: Any) -> Any:
    return ComparisonView.of_runs([run(0) | changes]).rows[0]


def test_a_guarantee_names_its_unit_delta_and_accountant() -> None:
    row = only_row(used=1.5)
    assert row.level == "proven"
    assert row.guarantee == "2.0000 per sample\n1e-05, pld\nused 1.5000"


def test_a_run_under_way_and_one_without_a_guarantee_have_no_figure() -> None:
    assert only_row(proven=None, unit=None).guarantee == "not yet"
    assert only_row(proven="unbounded").level == "nothing"
    assert only_row(proven="unbounded", unit="none").unit == "nobody"


def test_a_run_under_way_is_not_called_unbounded() -> None:
    """Fault: epsilons of a finished run and one under way were said to reach to unbounded."""
    view = ComparisonView.of_groups(group_runs([run(0), run(0, tau=3, proven=None)]))
    assert view.notes == ()


def test_metrics_that_differ_carry_their_names() -> None:
    runs = [measured(0, "deviance", 4.5), measured(0, "accuracy", 0.91, name="auto")]
    view = ComparisonView.of_groups(group_runs(runs))
    assert view.metric == heading(["deviance", "accuracy"]) == "measured"
    assert [row.metric.split()[0] for row in view.rows] == ["deviance", "accuracy"]
