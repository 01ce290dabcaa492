"""Runs as processes: only a run's own process is signalled, and none is started twice."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from dpfl.errors import DpflError
from dpfl.run.records.folder import RunFolder
from dpfl.web.control import RunControl
from dpfl.web.run_index import RunIndex

pytestmark = pytest.mark.xdist_group("web")


@pytest.mark.parametrize("number", ["-1", "0", "1", "-9", "x", ""])
def test_only_a_process_is_stopped(
    runs: Path, tmp_path: Path, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may write a run's folder may not choose that everything of whoever looks at it is
    ended.
    """
    shutil.copytree(runs / "plain", tmp_path / "x")
    (tmp_path / "x" / "run.lock").write_text(number)
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("a signal was sent"))
    with (tmp_path / "x" / "run.lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(DpflError, match="No process"):
            RunControl(RunIndex(tmp_path)).stop("x")


def test_a_name_that_is_being_started_keeps_its_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process reads the file seconds after it began."""
    control = RunControl(RunIndex(tmp_path))
    monkeypatch.setattr("dpfl.web.control.PROGRAM", "import time; time.sleep(3600)")
    monkeypatch.setattr("dpfl.web.control.PATIENCE", 0.1)
    control.start("twice", {"budget": {"epsilon": 1.0}})
    try:
        with pytest.raises(DpflError, match="being started"):
            control.start("twice", {"budget": {"epsilon": 100.0}})
        assert "epsilon = 1.0" in (tmp_path / ".starting" / "twice.toml").read_text()
    finally:
        control._processes["twice"].kill()
        control._processes["twice"].wait()


def test_a_run_that_was_stopped_is_waited_for_before_it_goes_on(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: on a busy machine a process that had let go of its run took more than three seconds to
    end, and the run that was to go on was said to be starting."""
    control, waits = RunControl(RunIndex(tmp_path)), list[float]()

    class Process:
        pid, returncode = os.getpid(), 130

        def poll(self) -> None: ...

        def wait(self, seconds: float) -> None:
            waits.append(seconds)

    monkeypatch.setattr("dpfl.web.control.subprocess.Popen", lambda *_, **__: Process())
    monkeypatch.setattr("dpfl.web.control._send", lambda *_: None)
    control.start("x", {})
    shutil.copytree(runs / "plain", tmp_path / "x")
    (tmp_path / "x" / "result.json").unlink()
    with RunFolder(tmp_path / "x").lock():
        control.stop("x")
    control.resume("x")
    control.resume("x")
    assert waits == [60.0, 3.0], "what was started again is as new"
