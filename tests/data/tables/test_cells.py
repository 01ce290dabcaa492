"""Each cell is a number or a code, or is named by its place."""

from pathlib import Path

import pytest

from dpfl.data.tables.table import read_table
from dpfl.data.tables.table_files import TextFormat
from dpfl.errors import DpflError
from tests.data.tables.small_table import ROWS, schema, write


def test_a_declared_level_is_one_even_where_it_looks_missing(tmp_path: Path) -> None:
    path = write(tmp_path, "NA,1,0\n,2,1\n", "country,age,died\n")
    one = schema(
        columns={"country": {"levels": ["NA", "DE"], "missing": "DE"}},
        site=None,
        person=None,
        time=None,
    )
    assert read_table(path, one).x.tolist() == [[0], [1]]


def test_decimal_commas_are_declared(tmp_path: Path) -> None:
    path = write(tmp_path, '"12,5";0\n', "age;died\n")
    one = schema(columns={"age": {"low": 0, "high": 25}}, site=None, person=None, time=None)
    assert read_table(path, one, TextFormat(decimal=",")).x.tolist() == [[0]]
    with pytest.raises(DpflError, match=r"line 2, column 'age': not a number"):
        read_table(path, one)
    write(tmp_path, "1.234;0\n", "age;died\n")
    with pytest.raises(
        DpflError, match=r"line 2, column 'age': a point in a number with decimal comma"
    ):
        read_table(path, one, TextFormat(decimal=","))


def test_dates(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        ROWS.replace("1990", "1970-01-03")
        .replace("1991", "1971-01-01")
        .replace("1992", "1970-01-01 12:00:00"),
    )
    assert read_table(path, schema()).rows.time.tolist() == [2, 365, 2, 0.5]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("f,old,a,1,p1,1,1,1", "line 3, column 'age': not a number"),
        ("f,1,a,1,p1,1,ten,1", "line 3, column 'cost': not a number"),
        (
            "f,1,a,7,p1,1,1,1",
            "line 3, column 'grade': a level that is not declared; add it to `levels`, or set "
            "other = true",
        ),
        ("f,1,a,one,p1,1,1,1", "line 3, column 'grade': a level that is not declared"),
        ("f,1,a,,p1,1,1,1", "line 3, column 'grade': no value; declare what to do as `missing`"),
        ("f,1,a,1,p1,yes,1,1", "line 3, column 'died': a label other than 0, 1"),
        ("f,1,a,1,p1,2,1,1", "line 3, column 'died': a label other than 0, 1"),
        ("f,1,a,1,p1,,1,1", "line 3, column 'died': no label"),
        ("f,1,,1,p1,1,1,1", "line 3, column 'hospital': no site"),
        ("f,1,a,1,,1,1,1", "line 3, column 'who': no person"),
        ("f,1,a,1,p1,1,1,soon", "column 'year': neither numbers nor dates"),
        ("f,1,a,1,p1,1,1,", "line 3, column 'year': no time"),
    ],
)
def test_a_bad_cell_is_named_by_its_place_and_not_shown(
    tmp_path: Path, row: str, message: str
) -> None:
    with pytest.raises(DpflError, match=message) as error:
        read_table(write(tmp_path, f"f,1,a,1,p1,1,1,1\n{row}\n"), schema())
    assert str(error.value).startswith(str(tmp_path / "table.csv"))
    assert not any(word in str(error.value) for word in ("'old'", "'ten'", "'7'", "'yes'", "soon"))
