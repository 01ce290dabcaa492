"""Files of a run that are read for a certificate: there, whole, and of the right kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfl.certificate.finished_run import _mapping
from dpfl.certificate.reading import read
from dpfl.errors import DpflError
from dpfl.run.records.folder import RunFolder


def test_a_file_is_read_as_it_is_and_a_missing_one_is_named_where_it_is_needed(
    tmp_path: Path,
) -> None:
    folder = RunFolder(tmp_path)
    (tmp_path / "statement.json").write_text('{"a": {"b": 1}}')
    assert _mapping(folder, "statement.json") == {"a": {"b": 1}}
    assert read(folder, "audit.json", needed=False) is None
    with pytest.raises(DpflError, match=r"is not finished \(result\.json is missing\)"):
        read(folder, "result.json")


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"a": 1, "a": 2}')
    with pytest.raises(DpflError):
        read(RunFolder(tmp_path), "result.json")
