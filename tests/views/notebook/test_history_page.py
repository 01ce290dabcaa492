"""The rounds of a run as a table and as curves."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pyarrow as pa

import dpfl
from dpfl.data import Federation
from dpfl.run.metrics import COLUMNS, RoundRow, RunHistory
from tests.conftest import PATIENCE
from tests.views.notebook.html_reader import words


def test_a_history_is_a_table_to_arrow_and_pandas_and_to_whoever_reads_arrow(
    results: list[dpfl.Result],
) -> None:
    history = results[0].history
    assert len(history) == 3
    assert history[-1] == list(history)[-1]
    arrow = history.to_arrow()
    assert tuple(arrow.column_names) == COLUMNS
    assert arrow.column("epsilon").to_pylist() == [row.epsilon for row in history]
    assert pa.RecordBatchReader.from_stream(history).read_all().equals(arrow)
    frame = history.to_pandas()
    assert list(frame["round"]) == [1, 2, 3]
    assert "accuracy" in words(history)


def test_without_pandas_a_sentence_says_what_to_do() -> None:
    code = (
        "import sys; sys.modules['pandas'] = None; from dpfl.run.metrics import RunHistory; "
        "RunHistory().to_pandas()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stderr.splitlines()[-1].endswith(
        "pandas is not installed: pip install pandas, or take .to_arrow()."
    )


def test_a_run_without_a_test_set_draws_its_steps_only(train: Any, federation: Federation) -> None:
    result = train(replace(federation, test=None), "fedavg", rounds=2)
    assert "accuracy not measured" in words(result)
    assert [axis.get_ylabel() for axis in result.plot().axes] == ["steps per round (tau)"]


def test_another_task_is_drawn_by_its_own_headline() -> None:
    rows = [RoundRow(n, 1, n, 2, None, 0.5, None, None, 8, 0.1, headline=0.7) for n in (1, 2)]
    assert RunHistory(rows).plot().axes[0].get_ylabel() == "headline on the test set"
