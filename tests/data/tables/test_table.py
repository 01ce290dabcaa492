import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.data.tables import table_files
from dpfl.data.tables.declared import declare
from dpfl.data.tables.schema import Schema
from dpfl.data.tables.table import Table, read_table
from dpfl.data.tables.table_files import TextFormat
from dpfl.errors import DpflError
from tests.conftest import example

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


def test_rows_by_their_schema(tmp_path: Path) -> None:
    table = read_table(write(tmp_path), schema())
    log = math.log1p(9) / math.log1p(999) * 2 - 1
    expected = [[0, 0, -1, 0, 0], [0, 1, log, 1, 1], [1, 0, 1, 2, 2], [-1, 0, log, 3, 1]]
    assert table.x.numpy() == pytest.approx(np.array(expected), abs=1e-6)
    assert table.rows.y.tolist() == [0, 1, 0, 1]
    assert table.sites == ("a", "b")
    assert table.rows.site.tolist() == [1, 0, 1, 0]
    assert table.persons is not None
    assert table.persons.tolist() == [0, 0, 1, 2]
    assert table.rows.time.tolist() == [1990, 1991, 1990, 1992]
    assert [part.tolist() for part in table.by_site()] == [[1, 3], [0, 2]]


def test_clamped_cells_are_counted_for_the_owner_alone(tmp_path: Path) -> None:
    table = read_table(write(tmp_path), schema())
    assert table.private == ("2 cells of 'age' beyond the declared bounds: clamped",)
    assert table.warnings == ()


def test_parquet_is_the_same_table(tmp_path: Path) -> None:
    path = write(tmp_path)
    rows = list(csv.DictReader(path.open()))
    arrays = {
        "sex": pa.array([row["sex"] or None for row in rows]).dictionary_encode(),
        "age": pa.array([int(row["age"]) if row["age"] else None for row in rows], pa.int32()),
        "cost": pa.array([float(row["cost"]) if row["cost"] else None for row in rows]),
        "grade": pa.array([float(row["grade"]) for row in rows], pa.float32()),
        "died": pa.array([row["died"] == "1" for row in rows]),
        "who": pa.array([int(row["who"][1:]) for row in rows]),
    } | {name: pa.array([row[name] for row in rows]) for name in ("hospital", "year")}
    parquet.write_table(pa.table(arrays), tmp_path / "table.parquet")
    ours, theirs = read_table(path, schema()), read_table(tmp_path / "table.parquet", schema())
    for name in ("x", "y", "site", "person", "time"):
        np.testing.assert_array_equal(getattr(ours.rows, name), getattr(theirs.rows, name))


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


def test_a_number_as_label_is_checked_too(tmp_path: Path) -> None:
    changed = schema(label="sex", task="number", columns={"age": COLUMNS["age"]})
    with pytest.raises(DpflError, match="line 2, column 'sex': not a number"):
        read_table(write(tmp_path), changed)
    with pytest.raises(DpflError, match="line 4, column 'grade': a label that is no count"):
        read_table(
            write(tmp_path), schema(label="grade", task="counts", columns={"age": COLUMNS["age"]})
        )


def test_rows_of_parquet_are_counted_from_one(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"age": [1.0, None], "died": [0, 1]}), tmp_path / "table.parquet")
    with pytest.raises(DpflError, match=r"table\.parquet, row 2, column 'age': no value"):
        read_table(
            tmp_path / "table.parquet",
            schema(columns={"age": {"low": 0, "high": 1}}, site=None, person=None, time=None),
        )


def test_a_folder_is_one_file_a_site(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv"):
        write(tmp_path, name=name)
    (tmp_path / "notes.txt").write_text("not a table")
    table = read_table(tmp_path, schema(site=None))
    assert table.sites == ("a", "b")
    assert table.rows.site.tolist() == [0] * 4 + [1] * 4
    write(tmp_path, rows="", name="c.csv")
    with pytest.raises(DpflError, match=r"c\.csv has no rows below its header that count"):
        read_table(tmp_path, schema(site=None))
    (tmp_path / "c.csv").write_text("")
    with pytest.raises(DpflError, match=r"c\.csv is empty"):
        read_table(tmp_path, schema(site=None))
    (tmp_path / "c.csv").write_text("sex,age\nf,1\n")
    with pytest.raises(DpflError, match=r"c\.csv has no column 'cost'"):
        read_table(tmp_path, schema(site=None))
    with pytest.raises(DpflError, match=r"data\.site names a column"):
        read_table(tmp_path, schema())


def test_declared_sites_are_those_that_occur(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert read_table(path, schema(), sites=("b", "a")).rows.site.tolist() == [0, 1, 0, 1]
    with pytest.raises(DpflError, match=r"no rows of the site 'c', which data\.sites names"):
        read_table(path, schema(), sites=("a", "b", "c"))
    with pytest.raises(DpflError, match=r"the site 'b', which data\.sites does not name"):
        read_table(path, schema(), sites=("a",))


def test_sites_with_numbers_are_in_their_order(tmp_path: Path) -> None:
    path = write(tmp_path, "".join(f"f,1,{site},1,p1,1,1,1\n" for site in (10, 9, 1)))
    assert read_table(path, schema()).sites == ("1", "9", "10")


def people(tmp_path: Path, persons: range, person: str | None = "who") -> Table:
    rows = "".join(
        f"f,{year + number % 50},a,1,p{number},1,1,{year}\n"
        for number in persons
        for year in range(number % 4 + 1)
    )
    return read_table(write(tmp_path, rows), schema(person=person), seed=3)


def test_a_test_set_holds_whole_persons(tmp_path: Path) -> None:
    train, test = people(tmp_path, range(1000)).split_off(0.2)
    assert not set(train.rows.person) & set(test.rows.person)
    assert len(set(test.rows.person)) == pytest.approx(200, abs=40)


@pytest.mark.parametrize("person", ["who", None])
def test_who_is_tested_on_depends_on_nobody_else(tmp_path: Path, person: str | None) -> None:
    """Without the first person, or with another, the others stay where they were: neighbours stay
    neighbours.
    """
    tested = [people(tmp_path, range(first, 100), person).split_off(0.3)[1] for first in (0, 1)]
    lost = len(tested[0]) - len(tested[1])
    assert lost in (0, 1)
    np.testing.assert_array_equal(tested[0].rows.x[lost:], tested[1].rows.x)


def test_another_seed_draws_others(tmp_path: Path) -> None:
    people(tmp_path, range(100))
    draws = [
        read_table(tmp_path / "table.csv", schema(), seed=seed).split_off(0.5)[1].rows.person
        for seed in (0, 1)
    ]
    assert set(draws[0]) != set(draws[1])


def test_a_site_that_is_all_tested_on_is_said(tmp_path: Path) -> None:
    rows = "".join(f"f,1,{'b' if number == 7 else 'a'},1,p{number},1,1,1\n" for number in range(50))
    table = read_table(write(tmp_path, rows), schema())
    alone = float(table.rows.draw[7])
    with pytest.raises(DpflError, match=r"The site 'b' of table\.csv has no rows to train on"):
        table.split_off(alone + 1e-9)[0].by_site()
    with pytest.raises(DpflError, match="leaves nothing to train or to test on"):
        table.split_off(1e-12)


def test_a_column_named_like_an_identifier_brings_a_warning_whatever_its_values(
    tmp_path: Path,
) -> None:
    """By the header alone: whether values repeat would tell of private data."""
    header = HEADER.replace("who", "patient_id")
    (said,) = read_table(write(tmp_path, header=header), schema(person=None)).warnings
    assert said.startswith(
        "the column 'patient_id' looks like a person's identifier; if a person has several rows, "
        "declare"
    )
    assert read_table(write(tmp_path, header=header), schema(person="patient_id")).warnings == ()
    assert read_table(
        write(tmp_path, ROWS.replace("p1,1", "p4,1"), header), schema(person=None)
    ).warnings == (said,)
    assert (
        read_table(
            write(tmp_path, header=HEADER.replace("who", "width")), schema(person=None)
        ).warnings
        == ()
    )


cells = st.fixed_dictionaries(
    {
        "sex": st.sampled_from(["f", "m", " m", "", "NA", "other", "x"]),
        "age": st.one_of(st.just(""), st.integers(-50, 150).map(str)),
        "cost": st.one_of(st.just("NA"), st.floats(-10, 2000).map(str)),
        "grade": st.sampled_from(["1", "2.5", "3", "3.0"]),
    }
)


def table_of(path: Path, rows: list[Any], declared: Schema) -> Table:
    lines = [",".join((*(row[name] for name in COLUMNS), "1")) for row in rows]
    path.write_text("\n".join([",".join((*COLUMNS, "died")), *lines]))
    return read_table(path, declared)


@settings(max_examples=30)
@given(st.lists(cells, min_size=2, max_size=6), st.integers(0, 5))
def test_without_a_row_the_others_are_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], gone: int
) -> None:
    """Neighbouring files are neighbouring data, in features and in who is tested on."""
    gone %= len(rows)
    path, declared = (
        tmp_path_factory.mktemp("rows") / "table.csv",
        schema(site=None, person=None, time=None),
    )
    whole, less = (
        table_of(path, rows, declared),
        table_of(path, rows[:gone] + rows[gone + 1 :], declared),
    )
    for name, values in vars(whole.rows).items():
        np.testing.assert_array_equal(np.delete(values, gone, axis=0), getattr(less.rows, name))


@settings(max_examples=30)
@given(st.lists(cells, min_size=1, max_size=8))
def test_the_exported_schema_is_all_that_a_raw_row_needs(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any]
) -> None:
    path = tmp_path_factory.mktemp("rows") / "table.csv"
    declared = schema(site=None, person=None, time=None)
    table = table_of(path, rows, declared)
    said, plain = json.loads(declared.to_json()), example("predict_without_dpfl")
    numbers, levels = declared.features.numbers, declared.features.levels
    codes = table.rows.x[:, numbers:].astype(int)
    dense = [
        table.rows.x[:, :numbers],
        *(np.eye(count)[column] for count, column in zip(levels, codes.T, strict=True)),
    ]
    np.testing.assert_allclose(
        np.concatenate(dense, axis=1), [plain.features(row, said) for row in rows], atol=1e-6
    )
