"""Tables in a terminal show what their views say, and fit 80 columns."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import Console

import dpfl
from dpfl.views.compare_groups import group_runs
from dpfl.views.comparison_view import ComparisonView
from dpfl.views.terminal.tables import (
    comparison_table,
    print_outcome,
    runs_table,
    statement_panel,
)
from tests.views.test_compare_groups import run

STATEMENT = dpfl.PrivacyStatement(
    "sample", "add/remove one", 1e-5, "the server", "pld", 1.25, 0.5, claim="the paper"
)


def printed(table: Any) -> str:
    console = Console(width=80, file=io.StringIO(), force_terminal=False)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_a_list_and_a_comparison_fit_the_terminal() -> None:
    runs = [run(0, tau=1), run(1, tau=1), run(0, tau=3, proven=None, accuracy=None)]
    listing = printed(runs_table(ComparisonView.of_runs(runs)))
    assert listing.count("fedavg-dp") == 6, "a name and a system per run"
    comparison = printed(comparison_table(ComparisonView.of_groups(group_runs(runs))))
    assert "2.0000 per sample" in comparison
    assert "not yet" in comparison
    assert "Student's t" in comparison
    assert max(map(len, (listing + comparison).splitlines())) <= 80


def test_a_statement_has_a_row_per_heading() -> None:
    panel = printed(statement_panel(STATEMENT.view))
    assert "privacy statement" in panel
    assert all(heading in panel for heading, _ in STATEMENT.view.rows)


def test_an_outcome_is_printed_with_its_statement_and_its_warnings() -> None:
    content = {
        "headline": "accuracy",
        "metrics": {"accuracy": 0.5},
        "rounds": 3,
        "stopped_by": "rounds",
        "warnings": ["[bold] is no markup"],
    }
    result: Any = SimpleNamespace(
        folder=Path("runs/one"), privacy=STATEMENT, to_dict=lambda: content
    )
    console = Console(width=80, file=io.StringIO(), force_terminal=False)
    print_outcome(result, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for part in ("3 rounds", "1.2500", "warning: [bold] is no markup", "results in runs/one"):
        assert part in text
