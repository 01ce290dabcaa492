"""The step of a round that is nearly all noise is as long as the noise is said to be."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable

import pytest

import dpfl
from dpfl.errors import DpflError
from dpfl.run.folder import METRICS, RunFolder
from dpfl.run.metrics import read_lost, read_updates
from tests.conftest import Clock, StopsAfter


@pytest.mark.parametrize(
    "algorithm",
    [
        dpfl.algorithms.fedavg_dp(noise_multiplier=50.0, sampling_rate=0.2, tau=3),
        dpfl.algorithms.dp_fedavg(noise_multiplier=50.0),
        dpfl.algorithms.dp_fedavg(
            noise_multiplier=50.0, clipping="quantile", count_noise=60.0, server_momentum=0.5
        ),
        dpfl.algorithms.ldp_fl(noise_multiplier=50.0),
    ],
    ids=["steps", "round", "quantile and momentum", "uploads"],
)
def test_noise_is_as_long_as_said(train, federation, algorithm):
    run = train(federation, algorithm, rounds=3)
    steps = read_updates(run.folder / METRICS)
    assert [(step.round, step.whose) for step in steps] == [(1, ""), (2, ""), (3, "")]
    for step in steps:
        assert step.norm == pytest.approx(step.noise, rel=0.03)
    assert steps[0].angle is None
    assert all(abs(step.angle - 90) < 5 or algorithm.server.momentum for step in steps[1:])


def test_a_resumed_run_has_the_same_steps(train, federation):
    system = dpfl.algorithms.fedavg_dp(noise_multiplier=2.0, sampling_rate=0.2)
    whole = train(federation, system, rounds=3, out="whole")
    with pytest.raises(KeyboardInterrupt):
        train(federation, system, rounds=3, progress=StopsAfter(2))
    again = train(federation, system, rounds=3, resume=True)
    assert read_updates(again.folder / METRICS) == read_updates(whole.folder / METRICS)


def test_who_was_refused_is_told_with_its_round(train, federation, tmp_path):
    """A ledger with a low limit of its own refuses, and the run goes on without it."""
    system = dpfl.algorithms.fedavg_dp(noise_multiplier=1.0, sampling_rate=0.5)
    train(federation, system, rounds=1, out="first", ledger=tmp_path / "ledgers")
    from dpfl.privacy import Ledger, Limit

    ledger = Ledger.existing(tmp_path / "ledgers" / "client-00002.sqlite")
    ledger.set_limit(Limit(ledger.epsilon(1e-5) + 0.1, 1e-5))
    ledger.close()
    run = train(federation, system, rounds=2, ledger=tmp_path / "ledgers")
    assert [row.clients for row in run.history] == [3, 3]
    assert read_lost(run.folder / METRICS) == list(run.lost)


def test_a_run_says_which_process_is_at_it(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    assert folder.process() is None
    with folder.locked():
        assert folder.process() == os.getpid()
    assert folder.process() is None


class Until(Clock):
    """Does something at the end of a long sleep, be it made of short ones."""

    def __init__(self, seconds: float, then: Callable[[], object]) -> None:
        super().__init__()
        self.at, self.then = self.now + seconds, then

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.now >= self.at:
            self.then()


def test_a_run_waits_for_those_who_ask_whether_it_is_under_way(tmp_path, monkeypatch):
    """Fault: a page that looked at a run for a tenth of a second, on a busy machine, kept the run
    from starting.
    """
    folder = RunFolder.create(tmp_path / "run")
    folder.file("run.lock").touch()
    with folder.file("run.lock").open("rb") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        clock = Until(20.0, lambda: fcntl.flock(asking, fcntl.LOCK_UN))
        monkeypatch.setattr("dpfl.run.folder.time", clock)
        with folder.locked():
            assert folder.process() == os.getpid()
        assert clock.now >= clock.at


def test_a_run_does_not_wait_for_ever_for_one_who_asks_nor_at_all_for_one_who_runs(
    tmp_path, monkeypatch
):
    folder, clock = RunFolder.create(tmp_path / "run"), Clock()
    began = clock.now
    monkeypatch.setattr("dpfl.run.folder.time", clock)
    with (
        folder.locked(),
        pytest.raises(DpflError, match="Another process is at the run"),
        folder.locked(),
    ):
        pytest.fail("two are at one run")
    assert clock.now == began
    with folder.file("run.lock").open("rb") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        with pytest.raises(DpflError, match="Another process is at the run"), folder.locked():
            pytest.fail("somebody holds the lock")
    assert began + 20 < clock.now < began + 60
