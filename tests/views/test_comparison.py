"""Lists of runs and comparisons as tables for other tools."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dpfl
from dpfl.data import Federation
from dpfl.errors import DpflError
from tests.conftest import MODEL
from tests.views.notebook.html_reader import words


def test_a_folder_of_runs_is_a_table_and_can_be_compared(results: list[dpfl.Result]) -> None:
    place = results[0].folder.parent
    found = dpfl.runs(place)
    assert [path.name for path in found] == ["a", "b", "c"]
    assert found[0] == place / "a"
    assert len(found[1:]) == 2
    assert found.to_pandas()["proven"].max() <= 8
    assert pa.RecordBatchReader.from_stream(found).read_all().num_rows == 3
    assert (
        dpfl.compare(found).to_dict()
        == dpfl.compare(*results).to_dict()
        == dpfl.compare(results[0], found[1:]).to_dict()
    )
    assert "fedavg-dp" in words(found)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (lambda: dpfl.compare(), "nothing to compare"),
        (lambda: dpfl.compare("nowhere"), "There is no run in nowhere"),
        (lambda: dpfl.compare(3), "not a int"),
        (lambda: dpfl.runs("nowhere"), "There is no folder nowhere"),
    ],
)
def test_what_is_no_run_is_refused(asked: Any, said: str) -> None:
    with pytest.raises(DpflError, match=said):
        asked()


def test_a_run_under_way_and_one_without_a_proof_are_rows_too(
    tmp_path: Path, federation: Federation
) -> None:
    dpfl.train(
        MODEL,
        federation,
        "fedavg",
        dpfl.Budget(rounds=1),
        execution=dpfl.Execution(out=tmp_path / "plain"),
    )
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "experiment.toml").write_bytes((tmp_path / "plain" / "experiment.toml").read_bytes())
    found = dpfl.runs(tmp_path).to_arrow()
    assert found.column("proven").to_pylist() == [None, math.inf]
    assert found.column("stopped_by").to_pylist() == ["unfinished", "rounds"]
