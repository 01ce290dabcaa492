"""A run that continues a shorter one is bit for bit the run from the start, and pays for all of
it.
"""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import pytest

from dpfl.errors import DpflError
from dpfl.privacy import Poisson
from dpfl.privacy.accounting.accountant import accountant
from dpfl_papers import shared_prefixes, tables
from dpfl_papers.cells import Cell, Outcome
from dpfl_papers.runner import OutcomeStore, run_cells
from dpfl_papers.shared_prefixes import PrefixStore, prefix_key
from dpfl_papers.training import Training
from tests.run.test_paid_scales import told

TAU, Q, NOISE = 3, 0.05, 1.1


def epsilon_of(steps: int) -> float:
    return accountant("pld").epsilon({Poisson(Q).event(NOISE, 1): steps}, 1e-5)


def training(rounds: int, epsilon: float = 100.0, **algorithm: Any) -> Training:
    given = {
        "name": "fedavg-dp",
        "tau": TAU,
        "sampling_rate": Q,
        "noise_multiplier": NOISE,
        "rate": 0.5,
    } | algorithm
    return Training({
        "data": {"name": "mnist-sample", "partition": "iid", "clients": 3},
        "model": {"name": "mlp", "hidden": 8},
        "algorithm": given,
        "budget": {"epsilon": epsilon, "delta": 1e-5, "rounds": rounds},
        "evaluate": {"every": rounds},
    })  # fmt: skip


SHORT = training(2, epsilon_of(5) + 1e-6)  # a whole round, and two steps of the next
MIDDLE = training(3)
LONG = training(5, epsilon_of(14) + 1e-6)
OTHER = training(2, rate=0.4)


@pytest.fixture(scope="module")
def alone() -> list[Outcome]:
    return [work.run(0, None) for work in (SHORT, MIDDLE, LONG, OTHER)]


def cells(*works: Training) -> list[Cell]:
    return [Cell("MNIST", f"row {number}", "", work) for number, work in enumerate(works)]


@pytest.mark.parametrize("workers", [1, 2])
def test_together_they_come_to_what_each_comes_to_alone(tmp_path, alone, workers):
    kept, told = OutcomeStore(tmp_path), list[str]()
    chosen = cells(LONG, SHORT, MIDDLE, OTHER)
    run_cells(chosen, [0], kept, workers, None, lambda cell, *_: told.append(cell.row))
    made = [kept.get(cell.digest(0)) for cell in chosen]
    assert [replace(one, code="") for one in made] == [alone[2], alone[0], alone[1], alone[3]]
    assert [row for row in told if row != "row 3"] == ["row 1", "row 2", "row 0"]
    assert sorted(
        path.parent.name for path in tmp_path.glob("beginnings/*/*/checkpoint.safetensors")
    ) == ["1", "2", "3", "4"]


def test_alone_they_differ_in_what_they_spent(alone):
    assert [one.steps for one in alone[:3]] == [5, 9, 14]
    assert [one.proven for one in alone[:3]] == pytest.approx(
        [epsilon_of(steps) for steps in (5, 9, 14)], abs=1e-6
    )  # rounded up where it is written
    assert alone[2].series["tau"] == [3, 3, 3, 3, 2]


def test_a_run_goes_on_and_makes_only_what_is_missing(tmp_path, monkeypatch, alone):
    MIDDLE.run(0, None, tmp_path)
    from dpfl.server.coordinator import Coordinator

    rounds, close = list[int](), Coordinator.close_round
    monkeypatch.setattr(
        Coordinator,
        "close_round",
        lambda self, steps: (rounds.append(steps), close(self, steps))[1],
    )
    assert LONG.run(0, None, tmp_path) == alone[2]
    assert rounds == [3, 2]


def test_what_was_made_before_is_in_the_ledgers_that_its_epsilon_is_read_from(
    tmp_path, monkeypatch
):
    from dpfl.privacy.ledger.ledger import Ledger

    MIDDLE.run(0, None, tmp_path)
    debits, begin = list[int](), Ledger.begin
    monkeypatch.setattr(
        Ledger,
        "begin",
        lambda self, *words, **more: (debits.append(words[3]), begin(self, *words, **more))[1],
    )
    LONG.run(0, None, tmp_path)
    assert debits == [9] * 3 + [3] * 3 + [2] * 3


def test_of_a_longer_run_nothing_is_taken_that_the_budget_does_not_allow(tmp_path, alone):
    LONG.run(0, None, tmp_path)
    assert SHORT.run(0, None, tmp_path) == alone[0]
    poor = training(5, epsilon_of(5) + 1e-6)
    assert replace(poor.run(0, None, tmp_path), stopped_by="") == replace(alone[0], stopped_by="")


def test_who_ends_where_another_did_makes_nothing_more(tmp_path, alone):
    MIDDLE.run(0, None, tmp_path)
    assert MIDDLE.run(0, None, tmp_path) == alone[1]


@pytest.mark.parametrize("change", [
    {"rate": 0.4}, {"noise_multiplier": 1.2}, {"tau": 2}, {"sampling_rate": 0.06}, {"clip": 0.5},
])  # fmt: skip
def test_another_setting_is_another_beginning(change):
    assert prefix_key(training(5, **change).content, 0) not in ("", prefix_key(LONG.content, 0))


def test_another_model_other_data_and_other_code_are_other_beginnings(monkeypatch):
    first = prefix_key(LONG.content, 0)
    for section, change in (("model", {"hidden": 9}), ("data", {"clients": 4})):
        changed = LONG.content | {section: LONG.content[section] | change}
        assert prefix_key(changed, 0) not in ("", first)
    monkeypatch.setattr(shared_prefixes, "code_sha256", lambda: "other code")
    assert prefix_key(LONG.content, 0) != first


@pytest.mark.parametrize(("section", "change"), [
    ("budget", {"bytes": 10**6}), ("budget", {"seconds": 1.0}),
    ("privacy", {"ledger": "books"}), ("privacy", {"entropy": "system"}),
])  # fmt: skip
def test_a_run_that_ends_otherwise_or_has_its_own_books_is_like_no_other(section, change):
    assert prefix_key(LONG.content | {section: LONG.content.get(section, {}) | change}, 0) == ""


def test_what_the_server_remembers_of_its_steps_goes_on_too(tmp_path):
    short, long = (training(rounds, server_momentum=0.9) for rounds in (2, 4))
    alone = long.run(0, None)
    short.run(0, None, tmp_path)
    assert long.run(0, None, tmp_path) == alone


def test_a_beginning_that_is_not_as_it_was_left_is_refused(tmp_path):
    """Of a count that was lowered, less would be paid for than was released."""
    MIDDLE.run(0, None, tmp_path)
    (kept,) = tmp_path.glob("*/3/checkpoint.safetensors")
    (kept.parents[1] / "3.bak").mkdir()
    (kept.parents[1] / "3.bak" / kept.name).write_bytes(kept.read_bytes())
    sound = kept.read_bytes()
    fewer = sound.replace(rb"\"iterations\": 9", rb"\"iterations\": 1")
    assert fewer != sound
    for bytes_ in (fewer, sound[: len(sound) // 2], b""):
        kept.write_bytes(bytes_)
        with pytest.raises(DpflError, match="remove it"):
            LONG.run(0, None, tmp_path)
    kept.write_bytes(sound)
    assert LONG.run(0, None, tmp_path).steps == 14


def test_a_beginning_that_cannot_be_kept_costs_no_result(tmp_path, alone):
    (tmp_path / "beginnings").write_text("a file")
    kept = OutcomeStore(tmp_path)
    run_cells(cells(MIDDLE), [0], kept, 1, None, lambda *_: None)
    assert replace(kept.get(cells(MIDDLE)[0].digest(0)), code="") == alone[1]


def test_what_is_asked_before_the_first_round_is_asked_and_paid_for_by_every_run(tmp_path):
    """Fault: a longer run went on after questions that a shorter one had paid for, and proved half
    of its epsilon.
    """
    held = told(tmp_path, paid={"noise": 2.0})
    short, long = (
        Training(
            held | training(rounds, tau=1).content | {"data": held["data"], "model": held["model"]}
        )
        for rounds in (2, 4)
    )
    anew = long.run(0, None)
    short.run(0, None, tmp_path / "beginnings")
    assert long.run(0, None, tmp_path / "beginnings") == anew


def test_another_seed_is_another_beginning_and_another_budget_is_not():
    assert (
        prefix_key(LONG.content, 1) != prefix_key(LONG.content, 0) == prefix_key(SHORT.content, 0)
    )


def test_runs_whose_noise_or_tau_follow_the_budget_are_like_no_other():
    planned = training(5).content
    planned = planned | {
        "algorithm": {
            name: value
            for name, value in planned["algorithm"].items()
            if name != "noise_multiplier"
        }
    }
    assert prefix_key(planned, 0) == ""
    assert prefix_key(training(5).content | {"evaluate": {"every": 1}}, 0) == ""
    adaptive = [cell for cell in tables()["ali-2"].cells if not cell.row.startswith("tau = ")]
    assert {prefix_key(cell.work.content, 0) for cell in adaptive} == {""}


def test_a_run_that_is_over_leaves_nothing_in_memory(tmp_path, monkeypatch):
    """Fault: of each cell of a long table some hundred megabytes of data stayed until the next
    collection of cycles.
    """
    held, start = [], PrefixStore.start
    monkeypatch.setattr(
        PrefixStore,
        "start",
        lambda self, job: (held.append(weakref.ref(job.coordinator)), start(self, job))[1],
    )
    gc.disable()
    try:
        MIDDLE.run(0, None, tmp_path)
        assert [one() for one in held] == [None]
    finally:
        gc.enable()
