"""Tables on disk, CSV (gzipped or not) and Parquet, read in pieces.

So a file may be larger than memory. Errors name the file, the line and the column, and never the
cell: a log should keep nothing of private data.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet

from dpfl.bad_values import suggest, wrong_value
from dpfl.data.special_names import TABLES
from dpfl.errors import DpflError

DELIMITERS = (",", ";", "\t", "|")
BLOCK = 1 << 22
"""Bytes of text that are read at once: no row may be longer."""
ROWS = 1 << 16
"""Rows of a Parquet file that are read at once."""


@dataclass(frozen=True)
class TextFormat:
    """The text format of a CSV file.

    Attributes:
        delimiter: The mark between fields. By default, the one that cuts the header into most
            names.
        decimal: The decimal mark.
        encoding: The encoding of the text.
    """

    delimiter: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if self.delimiter is not None and (
            not isinstance(self.delimiter, str) or len(self.delimiter) != 1
        ):
            raise wrong_value(self.delimiter, "data.delimiter", "give one character, such as ';'")
        if self.decimal not in (".", ","):
            raise wrong_value(self.decimal, "data.decimal", "give '.' or ','")
        try:
            codecs.lookup(self.encoding)
        except (LookupError, TypeError):
            advice = "give a known one, such as 'utf-8' or 'latin-1'"
            raise wrong_value(self.encoding, "data.encoding", advice) from None


@dataclass(frozen=True)
class TableFile:
    """A file with a header.

    Attributes:
        path: The file.
        header: The names of its columns.
        text: How it is written, if it is a CSV file.
    """

    path: Path
    header: tuple[str, ...]
    text: TextFormat | None = None

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Reads some columns.

        Args:
            columns: Their names.

        Returns:
            The rows, a piece at a time; those of a CSV file as texts.

        Raises:
            DpflError: A column is missing, or the file cannot be read.
        """
        self.require(columns)
        return self._csv(columns, self.text) if self.text else self._parquet(columns)

    def require(self, columns: Sequence[str]) -> None:
        """Refuses a file that lacks a column.

        Args:
            columns: The names of the columns.

        Raises:
            DpflError: One of them is missing.
        """
        if missing := next((name for name in columns if name not in self.header), None):
            suggestion = suggest(missing, self.header)
            raise DpflError(f"{self.path} has no column {missing!r}; {suggestion}")

    def error(self, row: int, column: str, why: str) -> DpflError:
        """Makes the error for a cell.

        Args:
            row: The row, counted from 0, without the header.
            column: The name of the column.
            why: What is wrong, without the value.

        Returns:
            The error.
        """
        place = f"line {self._line(row)}" if self.text else f"row {row + 1}"
        return DpflError(f"{self.path}, {place}, column {column!r}: {why}.")

    def _csv(self, columns: Sequence[str], text: TextFormat) -> Iterator[pa.RecordBatch]:
        names = {name: pa.string() for name in columns}
        options = {
            "read_options": arrow_csv.ReadOptions(
                use_threads=False,
                block_size=BLOCK,
                encoding=text.encoding,
                column_names=self.header,
            ),
            "parse_options": arrow_csv.ParseOptions(
                delimiter=text.delimiter, newlines_in_values=True
            ),
            "convert_options": arrow_csv.ConvertOptions(
                column_types=names, include_columns=list(names)
            ),
        }
        try:
            with (
                _arrow_stream(self.path) as stream,
                arrow_csv.open_csv(stream, **options) as reader,
            ):
                for number, batch in enumerate(reader):
                    yield (
                        batch if number else batch.slice(1)
                    )  # the header, whatever lines came before it
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise self._csv_error(error) from None

    def _csv_error(self, error: Exception) -> DpflError:
        """Makes the error for a file that Arrow cannot read. Arrow's own message quotes the line,
        so the place is searched here.
        """
        try:
            for line, row in _lines(self.path, self.text or TextFormat()):
                if row and len(row) != len(self.header):
                    return DpflError(
                        f"{self.path}, line {line}: {len(row)} fields, where the header names "
                        f"{len(self.header)}: correct it, "
                        "or set data.delimiter."
                    )
        except UnicodeError:
            return self._encoding_error()
        except (csv.Error, OSError, EOFError) as problem:
            return DpflError(f"{self.path} cannot be read ({problem}): correct or replace it.")
        return DpflError(
            f"{self.path} cannot be read ({type(error).__name__}): a row may be longer than "
            f"{BLOCK >> 20} MB."
        )

    def _encoding_error(self) -> DpflError:
        encoding = self.text.encoding if self.text else "utf-8"
        with _bytes(self.path) as stream:
            for line, content in enumerate(stream, start=1):
                try:
                    content.decode(encoding)
                except UnicodeError:
                    return DpflError(
                        f"{self.path}, line {line}: this is not {encoding}; set data.encoding, "
                        "such as 'latin-1'."
                    )
        return DpflError(f"{self.path} is not {encoding}: set data.encoding, such as 'latin-1'.")

    def _parquet(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        try:
            with parquet.ParquetFile(self.path) as file:
                yield from file.iter_batches(batch_size=ROWS, columns=list(columns))
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(self.path, error) from None

    def _line(self, row: int) -> int:
        lines = (line for line, fields in _lines(self.path, self.text or TextFormat()) if fields)
        return next(islice(lines, row + 1, None))


def open_table(path: Path, text: TextFormat = TextFormat()) -> TableFile:
    """Opens a table, and reads and checks its header.

    Args:
        path: The file.
        text: How a CSV file is written.

    Returns:
        The file.

    Raises:
        DpflError: It is no table, is empty, or its header is wrong.
    """
    if not path.is_file():
        raise DpflError(
            f"There is no table {path}: give the path of a file ending in {', '.join(TABLES)}, or "
            "of a folder of them."
        )
    if not is_table(path):
        raise DpflError(f"{path} is no table: it must end in {', '.join(TABLES)}.")
    if path.stat().st_size == 0:
        raise DpflError(f"{path} is empty: give a file with a header and rows.")
    is_parquet = path.name.lower().endswith(".parquet")
    file = _open_parquet(path) if is_parquet else _open_csv(path, text)
    if blank := next(
        (number for number, name in enumerate(file.header, start=1) if not name), None
    ):
        raise DpflError(f"{path}: column {blank} of the header has no name: give it one.")
    if twice := next(
        (name for number, name in enumerate(file.header) if name in file.header[:number]), None
    ):
        raise DpflError(f"{path} has two columns named {twice!r}: rename one of them.")
    return file


def is_table(path: Path) -> bool:
    """Says whether a path has the ending of a table.

    Args:
        path: The path.

    Returns:
        Whether it has.
    """
    return path.name.lower().endswith(TABLES)


def stem(path: Path) -> str:
    """Cuts the ending off a file's name.

    Args:
        path: The file.

    Returns:
        The name.
    """
    ending = max((ending for ending in TABLES if path.name.lower().endswith(ending)), key=len)
    return path.name[: -len(ending)]


def _open_parquet(path: Path) -> TableFile:
    try:
        with parquet.ParquetFile(path) as file:
            return TableFile(path, tuple(file.schema_arrow.names))
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from None


def _open_csv(path: Path, text: TextFormat) -> TableFile:
    try:
        cuts = {
            mark: next(
                (
                    row
                    for _, row in _lines(path, TextFormat(mark, text.decimal, text.encoding))
                    if row
                ),
                [],
            )
            for mark in ((text.delimiter,) if text.delimiter else DELIMITERS)
        }
    except UnicodeError:
        raise TableFile(path, (), text)._encoding_error() from None
    except (csv.Error, OSError, EOFError) as error:
        raise _unreadable(path, error) from None
    mark, header = max(cuts.items(), key=lambda item: len(item[1]))
    if not header:
        raise DpflError(f"{path} is empty: give a file with a header and rows.")
    return TableFile(
        path, tuple(name.strip() for name in header), TextFormat(mark, text.decimal, text.encoding)
    )


def _lines(path: Path, text: TextFormat) -> Iterator[tuple[int, list[str]]]:
    """Yields each row's first line, counted from 1, and its fields. It is slow, so it serves
    headers and errors only.
    """
    encoding = (
        "utf-8-sig"
        if text.encoding.lower().replace("_", "-") in ("utf-8", "utf8")
        else text.encoding
    )
    with _bytes(path) as raw, io.TextIOWrapper(raw, encoding, newline="") as stream:
        reader = csv.reader(stream, delimiter=text.delimiter or ",")
        first = 1
        for fields in reader:
            yield first, fields
            first = reader.line_num + 1


def _bytes(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if _gzipped(path) else path.open("rb")


@contextmanager
def _arrow_stream(path: Path) -> Iterator[Any]:
    with pa.input_stream(str(path), compression="gzip" if _gzipped(path) else None) as stream:
        yield stream


def _gzipped(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _unreadable(path: Path, error: Exception) -> DpflError:
    return DpflError(
        f"{path} cannot be read ({str(error).splitlines()[0]}): correct or replace it."
    )
