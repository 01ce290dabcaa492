"""Rows become tables of Arrow and pandas by their columns."""

import sys

import pyarrow as pa
import pytest

from dpfl.dataframe import ColumnTable
from dpfl.errors import DpflError


class Pairs(ColumnTable):
    def columns(self):
        return {"round": (1, 2), "loss": (0.5, None)}


def test_none_is_null_and_every_reader_of_arrow_takes_the_rows() -> None:
    expected = [{"round": 1, "loss": 0.5}, {"round": 2, "loss": None}]
    assert Pairs().to_arrow().to_pylist() == expected
    assert pa.table(Pairs()).to_pylist() == expected


def test_pandas_is_asked_for_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(DpflError, match="pip install pandas"):
        Pairs().to_pandas()
