import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from dpfl.data.tables import table_files
from dpfl.data.tables.table_files import TextFormat, open_table, stem
from dpfl.errors import DpflError


def held(path: Path, columns: list[str], text: TextFormat = TextFormat()) -> list[dict[str, str]]:
    return [row for batch in open_table(path, text).batches(columns) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    "content",
    [
        b"a,b\n1,x\n2,y\n",
        b"\xef\xbb\xbfa,b\r\n1,x\r\n2,y\r\n",
        b"a;b\n1;x\n2;y\n",
        b'"a"\t"b"\n1\t"x"\n2\ty',
        b"\na , b\n\n1,x\n\n2,y\n",
    ],
)
def test_the_ways_people_write_csv(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "table.csv"
    for written in (content, gzip.compress(content)):
        path.write_bytes(written)
        assert held(path, ["b", "a"]) == [{"b": "x", "a": "1"}, {"b": "y", "a": "2"}]


def test_quoted_fields_may_hold_delimiters_quotes_and_lines(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text('a,"b,\nc"\n"1,5","x\ny"\n2,"say ""z"""\n')
    assert held(path, ["a", "b,\nc"]) == [
        {"a": "1,5", "b,\nc": "x\ny"},
        {"a": "2", "b,\nc": 'say "z"'},
    ]


def test_other_encodings_are_declared(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes("ort,b\nKöln,1\n".encode("latin-1"))
    with pytest.raises(
        DpflError, match=r"table\.csv, line 2: this is not utf-8; set data\.encoding"
    ):
        held(path, ["ort"])
    assert held(path, ["ort"], TextFormat(encoding="latin-1")) == [{"ort": "Köln"}]


def test_only_the_named_columns_of_parquet_are_read(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    parquet.write_table(pa.table({"a": [1, 2], "b": ["x", None], "c": [0.5, 1.5]}), path)
    assert held(path, ["b", "c"]) == [{"b": "x", "c": 0.5}, {"b": None, "c": 1.5}]


def test_files_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "BLOCK", 1 << 12)
    path = tmp_path / "table.csv"
    path.write_text("a,b\n" + "".join(f"{number},{'x' * 20}\n" for number in range(2000)))
    batches = list(open_table(path).batches(["a"]))
    assert len(batches) > 5
    assert [int(cell.as_py()) for batch in batches for cell in batch.column("a")] == list(
        range(2000)
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"table\.csv is empty"),
        (b"\n\n", r"table\.csv is empty"),
        (b"a,b,a\n1,2,3\n", r"table\.csv has two columns named 'a'"),
        (b"a,,c\n1,2,3\n", r"table\.csv: column 2 of the header has no name"),
        (b"age,b\n1,2\n", r"table\.csv has no column 'ages'; did you mean 'age'"),
        (
            b'ages,b\n1,2\n\n"3\n",4\n5,6,7\n',
            r"table\.csv, line 6: 3 fields, where the header names 2",
        ),
        (b"ages,b\n1,2\n\xff,2\n", r"table\.csv, line 3: this is not utf-8"),
        (gzip.compress(b"ages,b\n1,2\n" * 1000, mtime=0)[:-30], r"table\.csv cannot be read"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(DpflError, match=message):
        held(path, ["ages"])


def test_cells_stay_out_of_messages(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a,b\nsecret,1,2\n")
    with pytest.raises(DpflError) as error:
        held(path, ["a"])
    assert "secret" not in str(error.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DpflError, match="There is no table"):
        open_table(tmp_path / "table.csv")
    (tmp_path / "table.xlsx").write_bytes(b"x")
    with pytest.raises(DpflError, match="is no table: it must end in"):
        open_table(tmp_path / "table.xlsx")
    (tmp_path / "table.parquet").write_bytes(b"not parquet")
    with pytest.raises(DpflError, match=r"table\.parquet cannot be read"):
        open_table(tmp_path / "table.parquet")


def test_stems() -> None:
    assert [stem(Path(name)) for name in ("a.csv", "b.csv.gz", "c.v2.parquet")] == [
        "a",
        "b",
        "c.v2",
    ]


@pytest.mark.parametrize("options", [{"delimiter": ";;"}, {"decimal": "x"}, {"encoding": "utf-99"}])
def test_ways_of_writing_are_checked(options: dict[str, str]) -> None:
    with pytest.raises(DpflError, match=f"data.{next(iter(options))} is"):
        TextFormat(**options)
