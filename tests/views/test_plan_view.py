"""A plan in words: which cell is recommended, which are allowed, and what to change."""

from __future__ import annotations

from dataclasses import replace

from dpfl.algorithms import from_name
from dpfl.privacy import Budget
from dpfl.run.accounting.accounting_terms import AccountingTerms
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


def test_the_recommendation_says_for_whom_and_rounds_the_noise_up() -> None:
    plan = tradeoff()
    closer = replace(plan.recommendation, noise_multiplier=0.90001)
    view = PlanView.of(replace(plan, recommendation=closer), unit="person")
    assert view.recommendation.startswith(
        "Recommended for epsilon 4 (for one person, delta 1e-05) over 20 rounds: "
        "sampling rate 0.1, tau 2 (local steps per round), noise multiplier 0.9001, clip 0.05, "
    )
    assert view.details[:2] == (
        "The largest client then takes 120 persons per round.",
        "The model has 100 parameters.",
    )
    assert view.sentences[0] == view.recommendation
    without_rate = PlanView.of(tradeoff(parameters=None))
    assert without_rate.settings[-1].text.startswith("clip 0.05 (give --parameters or --model")


def test_clients_of_one_size_are_no_largest_client() -> None:
    view = PlanView.of(tradeoff(sizes=(600, 600)))
    assert view.details[0] == "Each client then takes 120 samples per round."


def test_the_accountant_that_limits_the_run_is_named() -> None:
    view = PlanView.of(tradeoff(accountant="rdp"))
    assert [one.accountant for one in view.steps if one.limits_run] == ["rdp"]
    assert "by rdp, which limits the run;" in " ".join(view.sentences)


def test_a_delta_that_is_too_large_is_named_as_a_run_names_it() -> None:
    assert PlanView.of(tradeoff(delta=1e-5)).warnings == ()
    (warning,) = PlanView.of(tradeoff(delta=0.01)).warnings
    assert warning.startswith("Delta 0.01 is not below 1/600 (the largest client's samples): ")
    terms = AccountingTerms(from_name("fedavg-dp"), Budget(4.0, 0.01, 20), "pld", (600, 300, 600))
    assert terms.warnings == (f"d{warning[1:]}",)
