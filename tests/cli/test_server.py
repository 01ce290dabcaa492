"""`dpfl server`: its keys, and what it refuses before it listens."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from dpfl.cli.server import raise_on_terminate, terms_of
from dpfl.config.experiment import load
from dpfl.errors import DpflError
from tests.cli.command_line import dpfl, refused


def test_keys_are_made_once_and_the_public_one_is_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, first, _ = dpfl(capsys, "server", "init", str(tmp_path / "keys"))
    assert code == 0
    public = first.splitlines()[-1]
    assert len(bytes.fromhex(public)) == 32
    assert dpfl(capsys, "server", "init", str(tmp_path / "keys"))[1].splitlines()[-1] == public


def test_a_run_needs_an_experiment_and_its_nodes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "Give an experiment file" in refused(capsys, "server", "run")
    both = refused(capsys, "server", "run", "x.toml", "--resume", str(tmp_path))
    assert "remove the file" in both
    with pytest.raises(DpflError, match="lists no nodes"):
        terms_of(load(None))


def test_sigterm_is_treated_as_ctrl_c_and_only_within() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), raise_on_terminate():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
