"""Processes at one run, and runs at once on one folder of ledgers."""

from __future__ import annotations

import multiprocessing
from contextlib import closing
from pathlib import Path

import pytest

import dpfl
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.privacy import Ledger
from dpfl.run.recorder import SilentProgress
from dpfl.run.records.folder import RunFolder
from tests.conftest import MODEL, PATIENCE, wait_until
from tests.run.hospitals import STEPS, spent


def hold(folder: Path, held: object, done: object) -> None:
    with RunFolder(folder).lock():
        held.set()
        done.wait(PATIENCE)


def test_a_run_that_another_process_is_at_is_refused_before_any_debit(
    train, federation, tmp_path
) -> None:
    from tests.conftest import StopsAfter

    with pytest.raises(KeyboardInterrupt):
        train(federation, STEPS, rounds=3, progress=StopsAfter(1))
    before, context = spent(tmp_path / "run" / "ledger"), multiprocessing.get_context("fork")
    held, done = context.Event(), context.Event()
    process = context.Process(target=hold, args=(tmp_path / "run", held, done), daemon=True)
    process.start()
    wait_until(lambda: held.is_set() or not process.is_alive())
    assert held.is_set()
    with pytest.raises(DpflError, match="Another process works on the run"):
        train(federation, STEPS, rounds=3, resume=True)
    assert spent(tmp_path / "run" / "ledger") == before
    done.set()
    process.join(PATIENCE)
    assert train(federation, STEPS, rounds=3, resume=True).rounds == 3


def test_of_two_processes_that_start_or_resume_one_run_together_one_does(
    federation, tmp_path
) -> None:
    context = multiprocessing.get_context("fork")
    together, answers = context.Barrier(2), context.Queue()
    both = [
        context.Process(
            target=start, args=(federation, tmp_path / "run", together, answers), daemon=True
        )
        for _ in "12"
    ]
    for process in both:
        process.start()
    said = sorted(
        (answers.get(timeout=PATIENCE) for _ in both), key=lambda words: words != "3 rounds"
    )
    for process in both:
        process.join(PATIENCE)
    assert said[0] == "3 rounds"
    assert "holds a run already" in said[1] or "Another process" in said[1]
    assert set(spent(tmp_path / "run" / "ledger").values()) == {3}


def start(federation: Federation, out: Path, together: object, answers: object) -> None:
    together.wait(PATIENCE)
    try:
        result = dpfl.train(
            MODEL, federation, STEPS, dpfl.Budget(rounds=3), execution=dpfl.Execution(out=out)
        )
        answers.put(f"{result.rounds} rounds")
    except DpflError as error:
        answers.put(str(error))


def test_runs_at_once_on_shared_ledgers_stay_inside_the_limit_together(
    federation, tmp_path
) -> None:
    context = multiprocessing.get_context("fork")
    watch = Together(context.Barrier(2))
    both = [
        context.Process(target=spend, args=(federation, tmp_path, name, watch), daemon=True)
        for name in ("one", "two")
    ]
    for process in both:
        process.start()
    for process in both:
        process.join(PATIENCE)
        assert process.exitcode == 0
    runs = set()
    for path in sorted((tmp_path / "ledgers").glob("*.sqlite")):
        with closing(Ledger.read(path)) as ledger:
            assert ledger.epsilon(1e-5) <= 2.0
            runs |= {run for run, *_ in ledger.debits()}
    assert len(runs) == 2


class Together(SilentProgress):
    """Both have planned before either debits."""

    def __init__(self, barrier: object) -> None:
        self.barrier = barrier

    def start(self, job: object) -> None:
        self.barrier.wait(PATIENCE)


def spend(federation: Federation, folder: Path, name: str, watch: Together) -> None:
    budget = dpfl.Budget(epsilon=2.0, rounds=40)
    dpfl.train(
        MODEL,
        federation,
        STEPS,
        budget,
        privacy=dpfl.Privacy(ledger=folder / "ledgers"),
        execution=dpfl.Execution(out=folder / name, progress=watch),
    )
