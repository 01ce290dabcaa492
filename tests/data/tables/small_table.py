"""A small table with every kind of column."""

from pathlib import Path
from typing import Any

from dpfl.data.tables.declared import declare
from dpfl.data.tables.schema import Schema

COLUMNS: dict[str, Any] = {
    "age": {"low": 0, "high": 100, "missing": "indicate"},
    "cost": {"low": 0, "high": 999, "log": True, "missing": 9},
    "sex": {"levels": ["f", "m"], "other": True, "missing": "missing"},
    "grade": {"levels": [3, 1, 2.5]},
}


HEADER = "sex,age,hospital,grade,who,died,cost,year\n"


ROWS = "f,50,b,3,p1,0,0,1990\nm,,a,1,p1,1,,1991\nx,130,b,2.5,p2,0,999,1990\n,-5,a,1.0,p3,1,9,1992\n"


def schema(**changes: Any) -> Schema:
    roles = {"label": "died", "task": "binary", "site": "hospital", "person": "who", "time": "year"}
    said = roles | {"columns": COLUMNS} | changes
    return declare({word: value for word, value in said.items() if value is not None}).schema


def write(tmp_path: Path, rows: str = ROWS, header: str = HEADER, name: str = "table.csv") -> Path:
    path = tmp_path / name
    path.write_text(header + rows)
    return path
