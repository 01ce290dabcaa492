"""Rows in pieces, and without those that lack a value, are the same rows."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from dpfl.data.tables import table_files
from dpfl.data.tables.table import read_table
from dpfl.errors import DpflError
from tests.data.tables.small_table import ROWS, schema, write


def test_clamped_cells_are_counted_for_the_owner_alone(tmp_path: Path) -> None:
    table = read_table(write(tmp_path), schema())
    assert table.private == ("2 cells of 'age' beyond the declared bounds: clamped",)
    assert table.warnings == ()


def test_pieces_are_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, ROWS * 300)
    whole = read_table(path, schema())
    monkeypatch.setattr(table_files, "BLOCK", 1 << 10)
    pieces = read_table(path, schema())
    for name, values in vars(whole.rows).items():
        np.testing.assert_array_equal(values, getattr(pieces.rows, name))
    assert pieces.private == ("600 cells of 'age' beyond the declared bounds: clamped",)


def test_rows_that_miss_a_value_may_be_dropped(tmp_path: Path) -> None:
    columns = {
        "age": {"low": 0, "high": 100, "missing": "drop"},
        "sex": {"levels": ["f", "m", "x"], "missing": "drop"},
    }
    table = read_table(write(tmp_path), schema(columns=columns))
    assert table.x.tolist() == [[0, 0], [1, 2]]
    no_label = write(tmp_path, "f,1,a,1,p1,,1,1\nf,1,a,1,p2,1,1,1\nf,1,a,1,p2,0,1,1\n")
    assert len(read_table(no_label, schema(label={"column": "died", "missing": "drop"}))) == 2


def test_rows_of_parquet_are_counted_from_one(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"age": [1.0, None], "died": [0, 1]}), tmp_path / "table.parquet")
    with pytest.raises(DpflError, match=r"table\.parquet, row 2, column 'age': no value"):
        read_table(
            tmp_path / "table.parquet",
            schema(columns={"age": {"low": 0, "high": 1}}, site=None, person=None, time=None),
        )
