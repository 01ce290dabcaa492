"""How far a run has come in words: its epsilon so far, captions of its curves, its accounts."""

from pathlib import Path

import pytest

from dpfl.run.records.folder import RunFolder
from dpfl.views.run_progress import (
    LastValues,
    RunProgress,
    account_rows,
    no_accounts,
    signal_caption,
)
from dpfl.views.run_summary import RunFacts
from dpfl.views.run_tables import LostReply

LAST = LastValues(steps=6, measured=0.5, lowest=0.25, highest=0.75, loss=0.4, epsilon=8.00321)
PRIVACY = {"unit": "sample", "delta": 1e-5, "proven": 7.5, "used": 7.25, "accountant": "rdp"}


def facts(result: dict[str, object] | None = None, variant: str = "sound") -> RunFacts:
    resolved = {"algorithm": {"variant": variant}, "budget": {"epsilon": 8.0, "delta": 1e-5}}
    return RunFacts.of({"resolved": resolved}, result or {})


def test_a_coarse_bound_above_the_budget_is_shown_as_the_budget() -> None:
    progress = RunProgress(facts(), "running", LAST)
    assert (progress.epsilon, progress.budget.figure) == (8.0, "8.0000")
    assert progress.budget.remaining == "0.0000"
    assert progress.captions()["epsilon"].startswith("8.0000 of 8 allowed (delta 1e-05). Every ")
    below = RunProgress(facts(), "running", LastValues(epsilon=3.00001))
    assert below.budget.figure == "3.0001"


def test_a_published_run_keeps_no_budget_so_its_bound_is_shown_as_it_is() -> None:
    progress = RunProgress(facts(variant="published"), "running", LAST)
    assert (progress.budget.figure, progress.budget.is_over) == ("8.0033", True)


def test_at_the_end_the_epsilon_is_that_of_the_statement() -> None:
    progress = RunProgress(facts({"privacy": PRIVACY}), "finished", LAST)
    assert progress.budget.figure == "7.2500"
    assert progress.budget.note == "proven 7.5000, fixed in advance"
    unbounded = facts({"privacy": PRIVACY | {"used": "unbounded", "proven": "unbounded"}})
    assert RunProgress(unbounded, "finished", LAST).captions()["epsilon"].startswith("unbounded so")


@pytest.mark.parametrize(
    ("state", "when"),
    [("running", "now"), ("paused", "now"), ("stopped", "when it was stopped")],
)
def test_captions_say_when_and_what_to_conclude(state: str, when: str) -> None:
    captions = RunProgress(facts(), state, LAST).captions()
    assert captions["headline"] == (
        f"50.00% {when}, at best 75.00%. If the curve is still rising, a larger budget would help."
    )
    assert captions["loss"].startswith(f"0.400 {when}. If it grows")
    assert captions["tau"] == (
        "6 in the last round. Each step costs privacy, and each round costs bytes."
    )


def test_of_a_metric_that_should_fall_the_lowest_is_the_best() -> None:
    ended = facts({"headline": "RMSE", "privacy": {"unit": "none"}})
    captions = RunProgress(ended, "finished", LAST).captions()
    assert "at the end, at best 0.25" in captions["headline"]
    assert "still falling" in captions["headline"]
    assert "A round costs the same bytes" in captions["tau"]


def test_what_was_not_measured_has_no_caption(runs: Path, tmp_path: Path) -> None:
    assert set(RunProgress(facts(), "running", LastValues()).captions().values()) == {""}
    assert LastValues.read(RunFolder(tmp_path)) == LastValues()
    assert signal_caption([]) == ""
    assert signal_caption([2.0, 0.123456]).startswith("The last step is 0.123 times as long")
    plain = LastValues.read(RunFolder(runs / "plain"))
    assert plain.epsilon is None
    assert plain.measured is not None
    assert plain.lowest <= plain.measured <= plain.highest


def test_accounts_say_what_they_do() -> None:
    accounts = [("a", 1200, 0), ("b", 3, 10**9), ("c", 3, 5000)]
    lost = [LostReply(1, "c", "late"), LostReply(2, "c", "it: timed out")]
    rows = account_rows(accounts, lost, {})
    assert [(row.state, row.level) for row in rows] == [
        ("budget spent", "soft"),
        ("takes part", "good"),
        ("it: timed out (round 2)", "wrong"),
    ]
    assert [(row.releases, row.remaining) for row in rows] == [
        ("1,200", "0"),
        ("3", "no limit"),
        ("3", "5,000"),
    ]
    assert account_rows(accounts, [], {"stopped_by": "rounds"})[0].state == "took part"
    assert account_rows(accounts, [], {"stopped_by": "epsilon"})[0].state == "budget spent"


def test_a_run_without_accounts_says_why() -> None:
    assert no_accounts(facts().guarantee) == "No round has ended yet."
    assert "adds no noise" in no_accounts(facts({"privacy": {"unit": "none"}}).guarantee)
