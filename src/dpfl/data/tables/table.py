"""A table as it is trained on: a row is a sample, from one file or from one file for each site."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpfl.bad_values import require_share
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
    """Rows of a table, with their sites and persons. Whoever has this object sees all of them.

    Attributes:
        name: The name of the file or folder.
        schema: The declared columns; x is laid out as `schema.features`.
        rows: The rows.
        sites: The names of the sites, by number.
        warnings: What a statement says of whose rows these are. It follows from the header.
        private: What the owner should know: what was clamped. It is read off the data, so it
            belongs on the owner's screen and nowhere else.
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
        """The features of the rows."""
        return torch.from_numpy(self.rows.x)

    @property
    def persons(self) -> torch.Tensor | None:
        """The number of the person that each row is of, if persons are declared."""
        return torch.from_numpy(self.rows.person) if self.schema.person else None

    def split_off(self, share: float) -> tuple[Table, Table]:
        """Divides the table into what is trained on and what is public to test on.

        Args:
            share: The share of persons, or of rows where none are declared, that is public.

        Returns:
            The rest, and the public part.

        Raises:
            DpflError: A part would be empty.
        """
        require_share(share, "data.test.share", "the share of persons or rows to test on,")
        public = self.rows.draw < share
        if public.all() or not public.any():
            raise DpflError(
                f"A share of {share:g} of the {len(self)} rows of {self.name} leaves nothing to "
                "train or to test on."
            )
        return self._where(~public), self._where(public)

    def _where(self, keep: Array) -> Table:
        return Table(
            self.name, self.schema, self.rows.where(keep), self.sites, self.warnings, self.private
        )

    def by_site(self) -> tuple[torch.Tensor, ...]:
        """Finds the rows of each site.

        Returns:
            Row numbers, by site.

        Raises:
            DpflError: A site has no rows.
        """
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
    """Reads a table.

    Args:
        path: One file, with a site column or of one site; or a folder with one file for each site,
            which is named after its file.
        schema: The declared columns.
        text: How a CSV file is written.
        seed: Seeds the draw of a test set.
        sites: The declared sites. By default, those that occur.

    Returns:
        The table.

    Raises:
        DpflError: A file cannot be read, a cell breaks its column's rule, or the sites are others.
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
    rows = _join(pieces)
    if names is None:
        rows, names = _sorted_sites(path, rows, tuple(reader.sites.codes), tuple(map(str, sites)))
    return Table(path.name, schema, rows, names, _warnings(files[0], schema), _private(reader))


def _files(
    path: Path, schema: Schema, text: TextFormat
) -> tuple[list[TableFile], tuple[str, ...] | None]:
    """Lists the files, and the names of the sites where each file is one."""
    if not path.is_dir():
        file = open_table(path, text)
        return [file], None if schema.site else (stem(path),)
    paths = sorted(
        file for file in path.iterdir() if is_table(file) and not file.name.startswith(".")
    )
    if not paths:
        raise DpflError(
            f"The folder {path} holds no tables: put one .csv or .parquet file per site there."
        )
    if schema.site:
        raise DpflError(
            f"{path} has one file per site, but data.site names a column: remove it, or "
            "give one file."
        )
    names = tuple(map(stem, paths))
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise DpflError(
            f"The folder {path} holds two files named {twice!r}: one file is one site, so rename "
            "or remove one."
        )
    return [open_table(file, text) for file in paths], names


def _join(pieces: list[EncodedRows]) -> EncodedRows:
    """Joins the pieces into one array for each field. A piece is released once it is copied, so
    that no data is in memory twice.
    """
    size, first = sum(map(len, pieces)), pieces[0]
    whole = EncodedRows(
        *(np.empty((size, *array.shape[1:]), dtype=array.dtype) for array in vars(first).values())
    )
    end = size
    while pieces:
        piece = pieces.pop()
        for name, target in vars(whole).items():
            target[end - len(piece) : end] = getattr(piece, name)
        end -= len(piece)
    return whole


def _sorted_sites(
    path: Path, rows: EncodedRows, names_read: tuple[str, ...], declared_sites: tuple[str, ...]
) -> tuple[EncodedRows, tuple[str, ...]]:
    """Numbers the sites in their declared order, or else by name, whatever row comes first."""
    if declared_sites and (
        unknown := next((name for name in names_read if name not in declared_sites), None)
    ):
        raise DpflError(
            f"{path} has the site {unknown!r}, which data.sites does not name: add it, or remove "
            "its rows."
        )
    if missing := next((name for name in declared_sites if name not in names_read), None):
        raise DpflError(
            f"{path} has no rows of the site {missing!r}, which data.sites names: remove it, or "
            "add its rows."
        )
    names = declared_sites or tuple(sorted(names_read, key=_natural))
    place = np.array([names.index(name) for name in names_read], dtype=np.int64)
    rows.site[:] = place[rows.site]
    return rows, names


def _natural(name: str) -> tuple[bool, float, str]:
    number = name.isdigit()
    return not number, float(name) if number else 0.0, name


def _private(reader: RowReader) -> tuple[str, ...]:
    counts = {name: count for name, count in reader.clamp_counts.items() if count}
    return tuple(
        f"{count:,} cells of {name!r} beyond the declared bounds: clamped"
        for name, count in counts.items()
    )


def _warnings(file: TableFile, schema: Schema) -> tuple[str, ...]:
    """Names columns that look like a person's identifier, where no person is declared.

    It looks at the header, never at values.
    """
    if schema.person:
        return ()
    spoken_for = (schema.site, schema.time, *schema.label.columns)
    identifiers = [
        name for name in file.header if IDENTIFIER.search(name) and name not in spoken_for
    ]
    return tuple(
        f"the column {name!r} looks like a person's identifier; if a person has several rows, "
        f"declare data.person = {name!r} "
        "and set privacy.unit = 'person': as it is, one row is protected."
        for name in identifiers
    )
