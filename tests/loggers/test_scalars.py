"""What loggers write: numbers by name, settings by dotted names, and never a bare epsilon."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dpfl
from dpfl.errors import DpflError
from dpfl.loggers.scalars import check_writable, flat, scalars, statement_text
from dpfl.run.metrics import RoundRow


def test_what_was_not_measured_is_missing() -> None:
    row = RoundRow(3, 2, 6, 10, None, 0.4, 1.5, None, 8, 7.0)
    assert scalars(row) == {
        "test/loss": 0.4,
        "privacy/epsilon_used_upper_bound": 1.5,
        "round/steps": 2.0,
        "round/clients": 10.0,
        "cost/bytes": 8.0,
        "cost/seconds": 7.0,
    }


def test_settings_are_listed_by_dotted_names() -> None:
    settings = {"model": {"name": "mlp", "hidden": 8}, "seed": None}
    assert flat(settings) == {"model.name": "mlp", "model.hidden": "8", "seed": "None"}


def test_the_outcome_carries_the_whole_statement() -> None:
    statement = dpfl.PrivacyStatement(
        "sample", "add/remove one", 1e-5, "the server", "pld", 1.25, None
    )
    result: Any = SimpleNamespace(
        measured="accuracy 50.00%", rounds=3, stopped_by="rounds", privacy=statement
    )
    text = statement_text(result)
    assert text.startswith("accuracy 50.00% after 3 rounds; all rounds were run.")
    assert all(f"    {line}" in text for line in str(statement).splitlines())


def test_a_folder_is_created_and_a_file_is_refused(tmp_path: Path) -> None:
    assert check_writable(tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(DpflError, match="choose another place"):
        check_writable(tmp_path / "file")
