"""An audit in words: a lower bound is rounded down wherever it is shown."""

from __future__ import annotations

import math

import pytest

from dpfl.audit.report import AuditFinding, AuditReport
from dpfl.views.audit_view import AuditReportView, AuditView, lower_bound_text, upper_bound_text


def finding(measured: float | None, **changes: object) -> AuditFinding:
    values = {
        "game": "one release",
        "scope": "one round",
        "claimed": 1.00001,
        "proven": 2.00001,
        "measured": measured,
        "confidence": 0.95,
        "verdict": "consistent",
        "detail": "how",
    } | changes
    return AuditFinding(**values)  # type: ignore[arg-type]


def report(*findings: AuditFinding) -> AuditReport:
    return AuditReport("dp-sgd", "sound", "sample", 1e-5, 0.95, 1.25, findings)


def test_a_stored_outcome_is_a_figure_with_a_label_and_a_verdict() -> None:
    view = AuditView.of(
        {
            "measured": 0.49999,
            "scope": "one round",
            "proven": 1.00001,
            "verdict": "consistent",
            "played": ["ledgers", "noise"],
        }
    )
    assert (view.figure, view.measured) == ("0.4999", "at least 0.4999")
    assert view.label == (
        "lower bound on epsilon, measured by an attack on one round (proven there: 1.0001)"
    )
    assert view.note == f"{view.label}: consistent"
    assert view.outcome == "consistent in ledgers, noise"


def test_a_run_without_an_audit_says_how_to_make_one() -> None:
    view = AuditView.of(None)
    assert (view.measured, view.note) == ("not audited", "no attack was run: dpfl audit RUN")


def test_an_audit_of_an_older_version_does_not_say_which_games_were_played() -> None:
    assert AuditView.of({"verdict": "holds", "measured": 0.5}).outcome == "holds"
    assert AuditView.of({"verdict": "holds", "played": []}).outcome == "holds in no game"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "not measured"),
        ({}, "see file"),
        ([], "see file"),
        (1.59999, "1.5999"),
        (2, "2.0000"),
        (math.inf, "unbounded"),
        ("words", "words"),
    ],
)
def test_words_for_what_was_measured(value: object, text: str) -> None:
    assert lower_bound_text(value) == text


def test_words_for_an_upper_bound() -> None:
    assert [upper_bound_text(value, "nothing") for value in (None, {}, 1.00001, "unbounded")] == [
        "nothing",
        "see file",
        "1.0001",
        "unbounded",
    ]


def test_games_that_were_played_have_rows_and_the_others_are_gaps() -> None:
    away = finding(None, game="masks", verdict="not testable", claimed=None, proven=None)
    view = AuditReportView.of(report(finding(0.99999), away))
    assert view.lead.startswith("(sound): one sample, delta 1e-05, floating-point noise of ")
    (row,), (gap,) = view.rows, view.gaps
    assert (row.claimed, row.proven, row.measured) == ("1.0001", "2.0001", ">= 0.9999")
    assert (gap.game, gap.claimed, gap.proven, gap.measured) == ("masks", "", "", "")


def test_an_estimate_is_no_bound_and_a_leak_needs_no_sign() -> None:
    estimate = finding(0.5, confidence=None, verdict="estimate")
    leak = finding(math.inf, game="leaks", verdict="refuted")
    view = AuditReportView.of(report(estimate, leak))
    assert [row.measured for row in view.rows] == ["~ 0.5000", "unbounded"]
    assert view.reason == (
        "a value without noise tells neighbours apart, so no epsilon holds; claimed 1.0001, proven "
        "2.0001"
    )


def test_the_reason_names_a_bound_that_is_rounded_down() -> None:
    above = finding(1.50009, verdict="refuted", claimed=None)
    assert AuditReportView.of(report(above)).reason == (
        "at least epsilon 1.5000 was measured in one round; claimed nothing, proven 2.0001"
    )


def test_an_audit_without_games_rests_on_none() -> None:
    assert AuditReportView.of(report()).coverage == ""
