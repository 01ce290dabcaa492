"""Curves are drawn from the tables of runs, which only the runs themselves write."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from dpfl.errors import DpflError
from dpfl.run.metrics import COLUMNS, RoundRow
from dpfl.run.records.folder import RunFolder
from dpfl.views.compare_groups import RunGroup
from dpfl.views.figures.curves import curve


def group(*folders: Path) -> RunGroup:
    return RunGroup("a system", {}, tuple({"run": str(folder)} for folder in folders))


def row(round: int) -> RoundRow:
    return RoundRow(
        **(
            dict.fromkeys(COLUMNS)
            | {"round": round, "accuracy": round / 10, "epsilon": float(round)}
        )
    )


@pytest.mark.parametrize("ended", [True, False])
def test_a_run_that_is_looked_at_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    """Under way or ended: its table was opened to write, as by the run itself."""
    metrics = RunFolder(tmp_path).metrics()
    metrics.add(row(1))
    metrics.add(row(2))
    if ended:
        metrics.close()
    opened: list[str] = []
    connect = sqlite3.connect

    def recorded(place: Any, *rest: Any, **options: Any) -> sqlite3.Connection:
        opened.append(str(place))
        return connect(place, *rest, **options)

    monkeypatch.setattr(sqlite3, "connect", recorded)
    before = (tmp_path / "metrics.sqlite").read_bytes()
    assert [(at, epsilon, mean.value) for at, epsilon, mean in curve(group(tmp_path))] == [
        (1, 1.0, 0.1),
        (2, 2.0, 0.2),
    ]
    assert [place.rpartition("?")[2] for place in opened] == ["mode=ro"]
    assert (tmp_path / "metrics.sqlite").read_bytes() == before
    if not ended:
        metrics.close()


def test_a_run_without_a_table_has_no_curve_and_gets_none(tmp_path: Path) -> None:
    assert curve(group(tmp_path)) == []
    assert not list(tmp_path.iterdir())


def test_a_table_that_is_none_is_answered_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "metrics.sqlite").write_bytes(b"not a table" * 100)
    with pytest.raises(
        DpflError, match=r"The metrics .* cannot be read \(file is not a database\); restore"
    ):
        curve(group(tmp_path))
