"""Figures of privacy: three epsilons, every account against its limit, and lost replies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dpfl.views.figures.privacy_figures import accounts, losses
from dpfl.views.figures.run_figures import pictures
from dpfl.views.report.page import page
from dpfl.views.run_tables import LostReply, RunTables


def test_an_audit_without_a_figure_is_drawn(runs: Path) -> None:
    run = replace(RunTables.read(runs / "private-seed0"), audit={"measured": float("nan")})
    assert "not audited" in page([run], pictures([run]))


def by_hand(**changes: Any) -> Any:
    usual = {
        "name": "a",
        "unit": "sample",
        "guarantee": "one sample, delta 1e-05",
        "statement": {"per_client": {"boston": 1.5, "lyon": 2.0}},
        "limits": {"lyon": 4.0},
        "lost_replies": [],
        "rows": [SimpleNamespace(round=1), SimpleNamespace(round=3)],
    }
    return SimpleNamespace(**usual | changes)


def test_the_account_that_spent_the_most_is_named_with_its_limit() -> None:
    figure = accounts(by_hand())
    assert figure is not None
    assert "lyon: epsilon 2.0000 of 4 allowed; 2.0000 remain." in figure.sentence
    assert figure.sentence.endswith("No reply was refused or lost.")
    (legend,) = figure.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["its limit"]
    unlimited = accounts(by_hand(limits={}))
    assert unlimited is not None
    assert "Its ledger has no limit." in unlimited.sentence
    assert accounts(by_hand(statement={})) is None


def test_lost_replies_are_marked_and_the_first_is_named() -> None:
    assert losses(by_hand()) is None
    replies = [
        LostReply(2, "lyon", "too late."),
        LostReply(3, "lyon", "no room"),
        LostReply(0, "", "?"),
    ]
    figure = losses(by_hand(lost_replies=replies))
    assert figure is not None
    assert figure.sentence == (
        "2 replies from 1 client did not count. The first was in round 2, lyon: too late."
    )
