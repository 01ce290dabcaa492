"""`dpfl up` refuses what it cannot start, before any process exists."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpfl.cli.up import _over, _secure
from dpfl.config.experiment import load
from tests.cli.command_line import refused


def test_a_folder_in_use_and_a_run_without_epsilon_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    assert "is not empty" in refused(capsys, "up", "--out", str(tmp_path))
    file = tmp_path / "experiment.toml"
    file.write_text("[algorithm]\nname = 'fedavg'\n[budget]\nrounds = 1\n")
    assert "give budget.epsilon" in refused(capsys, "up", str(file), "--out", str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_nodes_allow_exactly_the_secure_sums_of_the_run() -> None:
    sums = SimpleNamespace(survivors=4, colluders=1)
    proposal: Any = SimpleNamespace(sums=sums)
    assert _secure(proposal) == {"least_survivors": 4, "least_colluders": 1}
    assert _secure(SimpleNamespace(sums=None)) is None  # type: ignore[arg-type]


def test_the_run_gets_the_keys_and_the_address_of_its_server(tmp_path: Path) -> None:
    over = _over(load(None), tmp_path, "127.0.0.1:9", {"a": "key"})
    assert over.server.nodes == {"a": "key"}
    assert over.server.address == "127.0.0.1:9"
    assert over.budget == load(None).budget
