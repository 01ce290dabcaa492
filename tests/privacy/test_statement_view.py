"""The view of a statement: its verdict, and rows that name all that a guarantee needs."""

import math
from typing import Any

import pytest

from dpfl.privacy import PrivacyStatement
from dpfl.privacy.statement_view import NOISE, scope, unit_in_words, verdict


def statement(**changes: Any) -> PrivacyStatement:
    fields: dict[str, Any] = {
        "unit": "sample",
        "neighbours": "add/remove one",
        "delta": 1e-5,
        "adversary": "the server",
        "accountant": "pld",
        "proven": 2.0,
        "claimed": 1.0,
        "claim": "Theorem 2",
    }
    return PrivacyStatement(**(fields | changes))


def test_a_verdict_names_unit_neighbours_delta_adversary_and_accountant() -> None:
    shown = verdict(statement(), keyed=False)
    text = f"{shown.sentence} {shown.details}"
    assert shown.level == "proven"
    for words in ("Epsilon 2.0000", "1e-05", "one sample", "add/remove one", "the server", "pld"):
        assert words in text


@pytest.mark.parametrize(("claimed", "warns"), [(1.0, True), (2.0, False), (None, False)])
def test_a_claim_below_the_proof_is_named(claimed: float | None, warns: bool) -> None:
    sentence = verdict(statement(claimed=claimed), keyed=False).sentence
    assert ("that is no guarantee" in sentence) == warns


def test_a_seed_is_a_condition_and_a_leak_leaves_no_guarantee() -> None:
    assert verdict(statement(), keyed=True).level == "condition"
    leaking = verdict(statement(proven=math.inf, unaccounted=("raw tau",)), keyed=True)
    assert leaking.level == "nothing"
    assert "raw tau" in leaking.sentence


def test_the_view_has_figures_with_their_scope() -> None:
    view = statement(claimed=None).view
    assert (view.proven, view.claimed) == ("2.0000", "nothing")
    assert view.scope == "for one sample, delta 1e-05"
    assert scope("none", None) == "delta unknown"
    assert dict(view.rows)["noise"] == NOISE["floating-point"]
    assert "counts twice" in unit_in_words("person")
