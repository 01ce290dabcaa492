import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.data.tables.schema import Schema
from dpfl.data.tables.table import Table, read_table
from dpfl.errors import DpflError
from tests.data.tables.small_table import COLUMNS, HEADER, ROWS, schema, write


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
