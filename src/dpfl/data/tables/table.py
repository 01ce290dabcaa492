"""A table as it is trained on: a row is a sample, by a declared schema, from one file or from one
file a site.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpfl.data.tables.cells import Array
from dpfl.data.tables.rows import EncodedRows, RowReader
from dpfl.data.tables.schema import Schema
from dpfl.data.tables.table_files import TableFile, TextFormat, is_table, open_table, stem
from dpfl.errors import DpflError
from dpfl.lazy_import import torch

IDENTIFIER = re.compile(
    r"patient|person|subject|participant|(^|[^a-z])(id|pid|mrn|ssn)([^a-z]|$)", re.IGNORECASE
)


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of x laid out as `schema.features`, their labels, and whose they are: the number of a
    site and of a person.

    `private` tells the owner what was clamped. It is read off the data, so it belongs on the
    owner's screen and nowhere else.
    """

    name: str
    schema: Schema
    rows: EncodedRows
    sites: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    private: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def x(self) -> torch.Tensor:
        return torch.from_numpy(self.rows.x)

    @property
    def persons(self) -> torch.Tensor | None:
        return torch.from_numpy(self.rows.person) if self.schema.person else None

    def held_out(self, share: float) -> tuple[Table, Table]:
        """What is trained on, and the given share of persons (of rows, where none are declared)
        that is public to test on.
        """
        if not 0 < share < 1:
            raise DpflError(
                f"data.test.share is {share!r}: give the share of persons or rows to test on, "
                "between 0 and 1."
            )
        chosen = self.rows.draw < share
        if chosen.all() or not chosen.any():
            raise DpflError(
                f"A share of {share:g} of the {len(self)} rows of {self.name} leaves nothing to "
                "train or to test on."
            )
        return self._where(~chosen), self._where(chosen)

    def _where(self, keep: Array) -> Table:
        return Table(
            self.name, self.schema, self.rows.where(keep), self.sites, self.warnings, self.private
        )

    def by_site(self) -> tuple[torch.Tensor, ...]:
        """The rows of each site."""
        parts = [np.flatnonzero(self.rows.site == number) for number in range(len(self.sites))]
        if empty := next(
            (name for name, part in zip(self.sites, parts, strict=True) if not len(part)), None
        ):
            raise DpflError(
                f"The site {empty!r} of {self.name} has no rows to train on: leave it out, or test "
                "on fewer."
            )
        return tuple(map(torch.from_numpy, parts))


def read_table(
    path: Path,
    schema: Schema,
    text: TextFormat = TextFormat(),
    seed: int = 0,
    sites: Sequence[str] = (),
) -> Table:
    """One file, with a site column or of one site; or a folder with one file a site, which is named
    after its file.

    Without declared `sites`, they are those that occur. The seed is that of the draws for a test
    set.
    """
    files, names = _files(path, schema, text)
    for file in files:
        file.require(schema.read)
    reader = RowReader(schema, seed)
    pieces: list[EncodedRows] = []
    for number, file in enumerate(files):
        before = len(pieces)
        pieces += [rows for rows in reader.rows(file, number) if len(rows)]
        if len(pieces) == before:
            raise DpflError(
                f"{file.path} has no rows below its header that count: a table needs at least one."
            )
    rows = _joined(pieces)
    if names is None:
        rows, names = _sorted_sites(path, rows, tuple(reader.sites.codes), tuple(map(str, sites)))
    return Table(path.name, schema, rows, names, _warnings(files[0], schema), _private(reader))


def _files(
    path: Path, schema: Schema, text: TextFormat
) -> tuple[list[TableFile], tuple[str, ...] | None]:
    """The files, and the names of the sites where each file is one."""
    if not path.is_dir():
        file = open_table(path, text)
        return [file], None if schema.site else (stem(path),)
    paths = sorted(
        file for file in path.iterdir() if is_table(file) and not file.name.startswith(".")
    )
    if not paths:
        raise DpflError(
            f"The folder {path} holds no tables: put one .csv or .parquet file a site there."
        )
    if schema.site:
        raise DpflError(
            f"{path} is a folder with one file a site, but data.site names a column: remove it, or "
            "give one file."
        )
    names = tuple(map(stem, paths))
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise DpflError(
            f"The folder {path} holds two files named {twice!r}: one file is one site, so rename "
            "or remove one."
        )
    return [open_table(file, text) for file in paths], names


def _joined(pieces: list[EncodedRows]) -> EncodedRows:
    """One array each; a piece is let go of once it is copied, so that nothing is held twice."""
    size, first = sum(map(len, pieces)), pieces[0]
    whole = EncodedRows(
        *(np.empty((size, *one.shape[1:]), dtype=one.dtype) for one in vars(first).values())
    )
    end = size
    while pieces:
        piece = pieces.pop()
        for name, target in vars(whole).items():
            target[end - len(piece) : end] = getattr(piece, name)
        end -= len(piece)
    return whole


def _sorted_sites(
    path: Path, rows: EncodedRows, found: tuple[str, ...], declared: tuple[str, ...]
) -> tuple[EncodedRows, tuple[str, ...]]:
    """Sites numbered in their declared order, or else by name, whatever row comes first."""
    if declared and (unknown := next((name for name in found if name not in declared), None)):
        raise DpflError(
            f"{path} has the site {unknown!r}, which data.sites does not name: add it, or remove "
            "its rows."
        )
    if lost := next((name for name in declared if name not in found), None):
        raise DpflError(
            f"{path} has no rows of the site {lost!r} that data.sites names: remove it there, or "
            "add its rows."
        )
    names = declared or tuple(sorted(found, key=_natural))
    place = np.array([names.index(name) for name in found], dtype=np.int64)
    rows.site[:] = place[rows.site]
    return rows, names


def _natural(name: str) -> tuple[bool, float, str]:
    number = name.isdigit()
    return not number, float(name) if number else 0.0, name


def _private(reader: RowReader) -> tuple[str, ...]:
    counts = {name: count for name, count in reader.clamped.items() if count}
    return tuple(
        f"{count:,} cells of {name!r} beyond the declared bounds: clamped"
        for name, count in counts.items()
    )


def _warnings(file: TableFile, schema: Schema) -> tuple[str, ...]:
    """Of columns whose names look like a person's, where no person is declared: by the header, and
    never by their values.
    """
    if schema.person:
        return ()
    spoken_for = (schema.site, schema.time, *schema.label.columns)
    named = [name for name in file.header if IDENTIFIER.search(name) and name not in spoken_for]
    return tuple(
        f"the column {name!r} looks like a person's identifier; if a person has several rows, "
        f"declare data.person = {name!r} "
        "and set privacy.unit = 'person': as it is, one row is protected."
        for name in named
    )
