"""What `result.json` says of a run."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from torch import nn

import dpfl
from dpfl.privacy.accounting.events import ADD_REMOVE
from dpfl.run.metrics import RunHistory
from dpfl.run.result import finite_or_none

LOST = ["round 1, client 7: x", "round 2, client 3: x"]


def result(unit: str = "sample", **options: object) -> dpfl.Result:
    privacy = dpfl.PrivacyStatement(unit, ADD_REMOVE, 1e-5, "the public", "pld", 1.0, None)
    return dpfl.Result(
        "id", 2, 4, 0.9, 0.3, "rounds", "0" * 64, privacy, RunHistory(), [], **options,
        folder=Path("runs/x"), module=nn.Linear(1, 1),
    )  # fmt: skip


@pytest.mark.parametrize(("unit", "lines"), [("client", ["2 replies"]), ("sample", LOST)])
def test_a_record_at_client_level_does_not_say_who_was_drawn(unit: str, lines: list[str]) -> None:
    assert result(unit, lost_replies=LOST).to_dict()["lost"] == lines


def test_the_old_name_of_lost_replies_still_works_and_warns() -> None:
    with pytest.warns(DeprecationWarning, match=r"Result\.lost_replies"):
        assert result(lost_replies=LOST).lost == LOST
    with pytest.raises(AttributeError, match="no_such_name"):
        result(lost_replies=()).no_such_name  # noqa: B018


def test_numbers_that_json_cannot_hold_are_none() -> None:
    metrics = {"accuracy": 0.9, "AUC": math.nan}
    intervals = {"accuracy": (0.8, math.inf)}
    content = result(lost_replies=(), metrics=metrics, intervals=intervals).to_dict()
    assert content["metrics"] == {"accuracy": 0.9, "AUC": None}
    assert content["intervals"] == {"accuracy": [0.8, None]}
    assert [finite_or_none(value) for value in (3, "inf", -math.inf)] == [3, "inf", None]


def test_the_headline_is_given_in_words() -> None:
    assert result(lost_replies=()).measured == "accuracy not measured"
    named = result(lost_replies=(), headline="RMSE", metrics={"RMSE": 1.5})
    assert named.measured == "RMSE 1.5000"
    assert repr(named).startswith("Result(RMSE 1.5000 after 2 rounds, ended by rounds;")
