"""Labels from columns, in the form that a task takes."""

from pathlib import Path
from typing import Any

import pytest

from dpfl.data.tables.table import read_table
from dpfl.errors import DpflError
from tests.data.tables.small_table import COLUMNS, schema, write


@pytest.mark.parametrize(
    ("label", "task", "expected"),
    [
        ({"column": "cost", "above": 9}, None, [0, 0, 1, 0]),
        ({"column": "sex", "levels": ["m", "x", "f"]}, None, [2, 0, 1, 2]),
        ("year", "counts", [1990, 1991, 1990, 1992]),
        ({"column": "year", "high": 1991}, "number", [1990, 1991, 1990, 1991]),
        (["died", "other"], None, [[0, 1], [1, 1], [0, 0], [1, 0]]),
    ],
)
def test_labels(tmp_path: Path, label: Any, task: str | None, expected: list[Any]) -> None:
    header = "sex,age,hospital,grade,who,died,cost,year,other\n"
    path = write(
        tmp_path,
        "f,50,b,3,p1,0,0,1990,1\nm,1,a,1,p1,1,1,1991,1\nx,1,b,2,p2,0,99,1990,0\nf,5,a,1,p3,1,9,1992,0\n",
        header,
    )
    changed = schema(label=label, task=task, time=None, columns={"age": {"low": 0, "high": 100}})
    assert read_table(path, changed).rows.y.tolist() == expected


def test_a_number_as_label_is_checked_too(tmp_path: Path) -> None:
    changed = schema(label="sex", task="number", columns={"age": COLUMNS["age"]})
    with pytest.raises(DpflError, match="line 2, column 'sex': not a number"):
        read_table(write(tmp_path), changed)
    with pytest.raises(DpflError, match="line 4, column 'grade': a label that is no count"):
        read_table(
            write(tmp_path), schema(label="grade", task="counts", columns={"age": COLUMNS["age"]})
        )
