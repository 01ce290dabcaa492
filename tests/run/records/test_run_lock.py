"""Of two processes at one run, the second is refused; whoever only asks is waited for."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable

import pytest

from dpfl.errors import DpflError
from dpfl.run.records.folder import RunFolder
from tests.conftest import Clock


def test_a_run_says_which_process_is_at_it(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    assert folder.process() is None
    with folder.lock():
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
        monkeypatch.setattr("dpfl.run.records.run_lock.time", clock)
        with folder.lock():
            assert folder.process() == os.getpid()
        assert clock.now >= clock.at


def test_a_run_does_not_wait_for_ever_for_one_who_asks_nor_at_all_for_one_who_runs(
    tmp_path, monkeypatch
):
    folder, clock = RunFolder.create(tmp_path / "run"), Clock()
    began = clock.now
    monkeypatch.setattr("dpfl.run.records.run_lock.time", clock)
    with (
        folder.lock(),
        pytest.raises(DpflError, match="Another process works on the run"),
        folder.lock(),
    ):
        pytest.fail("two are at one run")
    assert clock.now == began
    with folder.file("run.lock").open("rb") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        with pytest.raises(DpflError, match="Another process works on the run"), folder.lock():
            pytest.fail("somebody holds the lock")
    assert began + 20 < clock.now < began + 60
