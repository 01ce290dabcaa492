"""The table of rounds."""

from pathlib import Path

import pytest

from dpfl.errors import DpflError
from dpfl.run.metrics import COLUMNS, Metrics, RoundRow


def row(round: int, **options: object) -> RoundRow:
    return RoundRow(**(dict.fromkeys(COLUMNS) | {"round": round, "seconds": 0.5} | options))


def test_metrics_forget_the_rounds_that_are_made_again(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "metrics.sqlite")
    for round in (1, 2, 3):
        metrics.add(row(round))
    metrics.forget_after(1)
    metrics.add(row(2, accuracy=0.5))
    assert metrics.rows() == [row(1), row(2, accuracy=0.5)]
    metrics.close()


def test_metrics_that_are_no_table_are_answered_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "metrics.sqlite").write_bytes(b"not a table" * 100)
    with pytest.raises(DpflError, match="metrics"):
        Metrics(tmp_path / "metrics.sqlite")
