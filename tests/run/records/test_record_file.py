"""The record of a run is read whole, or refused with a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli_w

from dpfl.codec import FORMAT
from dpfl.errors import DpflError
from dpfl.run.records.digests import record_id
from dpfl.run.records.record_file import (
    read_record,
    read_sealed_record,
    recorded_ledgers,
    recorded_names,
    refuse_other_format,
)

RECORD: dict[str, Any] = {
    "format": FORMAT,
    "run": {"nonce": "0" * 32},
    "resolved": {"seed": 1},
    "hashes": {},
}


def write(folder: Path, record: dict[str, Any]) -> Path:
    path = folder / "experiment.toml"
    path.write_text(tomli_w.dumps(record))
    return path


def test_a_record_that_was_changed_is_not_the_one_that_debits_name(tmp_path: Path) -> None:
    sealed = RECORD | {"run": {"id": record_id(RECORD), **RECORD["run"]}}
    assert read_sealed_record(write(tmp_path, sealed)) == sealed
    with pytest.raises(DpflError, match="has changed since its run wrote it"):
        read_sealed_record(write(tmp_path, sealed | {"resolved": {"seed": 2}}))
    with pytest.raises(DpflError, match="did not seal"):
        read_sealed_record(write(tmp_path, sealed | {"run": {"id": record_id(RECORD)}}))


def test_a_record_of_another_format_is_read_where_that_is_known(tmp_path: Path) -> None:
    newer = write(tmp_path, RECORD | {"format": FORMAT + 1})
    with pytest.raises(DpflError, match="newer dpfl"):
        read_record(newer)
    older = write(tmp_path, {name: value for name, value in RECORD.items() if name != "format"})
    assert read_record(older)["format"] == 1
    with pytest.raises(DpflError, match="cannot resume it"):
        refuse_other_format(older)


@pytest.mark.parametrize(
    "text", ["not = = toml", "format = 2", "run = 1\nresolved = 2\nhashes = 3"]
)
def test_what_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(text)
    with pytest.raises(DpflError, match="restore it from a copy"):
        read_record(path)


def test_clients_and_ledgers_are_those_that_the_record_names() -> None:
    assert recorded_names({"clients": 2, "names": ["a", "b"]}) == ("a", "b")
    assert recorded_names({"clients": 2}) == ("client-00000", "client-00001")
    assert recorded_names({}) == ()
    own = Path("run") / "ledger"
    assert recorded_ledgers({"ledger": "/elsewhere"}, own) == Path("/elsewhere")
    assert recorded_ledgers({}, own) == own
