"""Verdicts on findings, and the verdict of a report."""

import math

import pytest

from dpfl.audit import AuditFinding, AuditReport
from dpfl.audit.report import verdict


def test_a_bound_is_held_against_the_proof_first_and_then_against_the_claim() -> None:
    assert verdict(3.0, 2.0, 2.5) == "broken"
    assert verdict(2.2, 2.0, 2.5) == "refuted"
    assert verdict(1.9, 2.0, 2.5) == "consistent"
    assert verdict(2.2, None, 2.5) == "consistent"
    assert verdict(float("inf"), 2.0, float("inf")) == "refuted"


def test_the_worst_verdict_decides_and_its_figures_stand_at_the_top() -> None:
    def finding(game: str, word: str, measured: float | None) -> AuditFinding:
        return AuditFinding(game, "one release", 1.0, 2.0, measured, 0.95, word, "how")

    findings = (
        finding("a", "consistent", 0.5),
        finding("b", "refuted", 1.2),
        finding("c", "refuted", 1.5),
    )
    report = AuditReport(
        "x", "published", "sample", 1e-5, 0.95, 1.0, (*findings, finding("d", "not testable", None))
    )
    told = report.to_dict()
    assert (told["verdict"], told["game"], told["measured"], told["claimed"], told["proven"]) == (
        "refuted",
        "c",
        1.5,
        1.0,
        2.0,
    )
    assert [game["game"] for game in told["games"]] == ["a", "b", "c", "d"]


def found_in(word: str, *games: str) -> list[AuditFinding]:
    return [
        AuditFinding(game, "", None, None, 0.5 if word == "consistent" else None, None, word, "how")
        for game in games
    ]


CORE = ("one release", "ledgers", "noise", "sensitivity")


@pytest.mark.parametrize(
    ("findings", "word"),
    [
        (found_in("consistent", *CORE), "consistent"),
        (
            found_in("consistent", *CORE)
            + found_in("not testable", "leaks", "batches", "whole run"),
            "consistent",
        ),
        (
            found_in("consistent", *CORE) + found_in("not testable", "leaks", "a", "b", "c"),
            "not enough was tested",
        ),
        (
            found_in("consistent", *CORE) + found_in("does not apply", "leaks", "a", "b", "c"),
            "consistent",
        ),
        (
            found_in("consistent", *CORE[1:], "leaks", "a") + found_in("not testable", CORE[0]),
            "not enough was tested",
        ),
        (found_in("consistent", "leaks"), "consistent"),
        (
            found_in("consistent", "leaks")
            + found_in("not testable", "membership", "inversion", "canary clients"),
            "consistent",
        ),
        (found_in("not testable", "leaks"), "not enough was tested"),
        (found_in("does not apply", "masks"), "not enough was tested"),
        (found_in("estimate", "membership"), "estimate"),
        (
            found_in("estimate", "membership") + found_in("not testable", "leaks"),
            "not enough was tested",
        ),
        (found_in("not testable", "membership"), "not enough was tested"),
        (found_in("broken", "leaks") + found_in("not testable", *CORE), "broken"),
        (found_in("refuted", "leaks") + found_in("not testable", *CORE), "refuted"),
    ],
)
def test_a_verdict_needs_enough_games(findings: list[AuditFinding], word: str) -> None:
    """Those that every noisy system has, and more than half of those that apply to it; a fault
    needs no company.
    """
    assert AuditReport("x", "sound", "sample", 1e-5, 0.95, 1.0, findings).verdict == word


@pytest.mark.parametrize(
    ("measured", "display_value"),
    [(None, None), (1.23456789, 1.234567), (math.inf, "unbounded"), (0.0, 0.0)],
)
def test_a_lower_bound_is_rounded_down(
    measured: float | None, display_value: float | str | None
) -> None:
    finding = AuditFinding("leaks", "a run", None, 2.0, measured, 0.95, "consistent", "how")
    assert finding.display_value == finding.to_dict()["measured"] == display_value
