import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner

from dpfl.cli.data import app
from dpfl.data.tables.declared import declare
from dpfl.data.tables.describe import describe
from dpfl.data.tables.table import read_table
from dpfl.errors import DpflError

CONTENT = (
    "patient id;age;ward;died;weight, kg\np1;77,5;north;0;80\np2;;south;1;91\np2;31;north;0;62\n"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(CONTENT)
    return path


def test_a_public_table_describes_itself(path: Path) -> None:
    result = CliRunner().invoke(app, ["describe", str(path), "--public", "--decimal", ","])
    assert result.exit_code == 0
    section = tomllib.loads(result.output)["data"]
    assert section["columns"] == {
        "age": {"low": 31, "high": 77.5, "missing": "indicate"},
        "ward": {"levels": ["north", "south"], "other": True},
        "died": {"low": 0, "high": 1},
        "weight, kg": {"low": 62, "high": 91},
    }
    assert (section["person"], section["delimiter"], section["decimal"]) == ("patient id", ";", ",")
    del section["columns"]["died"], section["name"]
    declared = declare(section | {"label": "died", "task": "binary"})
    assert len(read_table(path, declared.schema, declared.text)) == 3


def test_no_value_is_read_off_a_table_that_is_not_said_to_be_public(path: Path) -> None:
    said = describe(path).replace(str(path), "")
    assert not any(
        value in said for value in ("77", "31", "north", "south", "62", "91", "p1", "indicate")
    )
    assert tomllib.loads(said)["data"]["columns"] == {
        "age": {},
        "ward": {},
        "died": {},
        "weight, kg": {},
    }
    assert "[data.columns.died]\n# numbers\n# low =\n# high =\n" in said
    assert "[data.columns.ward]\n# texts\n# levels = []\n" in said


def test_columns_that_are_no_features_are_said(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    parquet.write_table(pa.table({"lists": [[1], [2]], "note": ["a", "b"], "same": [1, 1]}), path)
    said = describe(path, public=True)
    assert "# lists holds neither numbers nor texts" in said
    assert tomllib.loads(said)["data"]["columns"]["same"] == {"levels": [1], "other": True}
    many = tmp_path / "many.csv"
    many.write_text("note\n" + "".join(f"remark {number}\n" for number in range(40)))
    assert "# more than 30 different texts" in describe(many, public=True)


def test_a_table_without_rows_describes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a,b\n")
    with pytest.raises(DpflError, match="no rows below its header"):
        describe(path, public=True)
