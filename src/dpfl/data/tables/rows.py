"""Reads the rows of a table's files by its schema's rules, a batch at a time."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from dpfl.data.tables import cells as rules
from dpfl.data.tables.cells import Array, CellFormat, EncodedColumn, InvalidCell
from dpfl.data.tables.schema import Column, NumericColumn, Schema
from dpfl.data.tables.table_files import TableFile


@dataclass(frozen=True)
class EncodedRows:
    """Rows as numbers.

    Attributes:
        x: The features (n, ...).
        y: The labels.
        site: The number of each row's site.
        person: The number of each row's person.
        time: Each row's time.
        draw: A number from 0 to 1 that depends on a seed and on the row's person alone, or else on
            the row itself. A test set drawn by it depends on nobody else.
    """

    x: Array
    y: Array
    site: Array
    person: Array
    time: Array
    draw: Array

    def __len__(self) -> int:
        return len(self.x)

    def where(self, keep: Array) -> EncodedRows:
        """Selects some of the rows.

        Args:
            keep: Which ones.

        Returns:
            Those rows.
        """
        return (
            self
            if keep.all()
            else EncodedRows(*(getattr(self, field.name)[keep] for field in fields(self)))
        )


@dataclass
class KeyIndex:
    """Numbers the values of a column in the order in which they appear.

    Attributes:
        seed: Seeds the draws.
        codes: The number of each value.
        draws: A number from 0 to 1 for each value.
    """

    seed: int
    codes: dict[str, int] = field(default_factory=dict)
    draws: list[float] = field(default_factory=list)

    def of(self, array: pa.Array, cell_format: CellFormat, what: str) -> Array:
        """Numbers the values of a batch.

        Args:
            array: The cells.
            cell_format: How texts are read.
            what: What a value is, for the error.

        Returns:
            The numbers.

        Raises:
            InvalidCell: A cell has no value.
        """
        texts = cell_format.texts(array).dictionary_encode()
        rules.refuse(
            texts.is_null().to_numpy(zero_copy_only=False), f"no {what}; every row needs one"
        )
        codes = [self._code(value) for value in texts.dictionary.to_pylist()]
        return np.array(codes, dtype=np.int64)[texts.indices.to_numpy(zero_copy_only=False)]

    def _code(self, value: str) -> int:
        if value not in self.codes:
            self.codes[value] = len(self.codes)
            self.draws.append(_draw(self.seed, value.encode()))
        return self.codes[value]


class RowReader:
    """Reads files of one schema one after another.

    The numbers of sites and persons go on from file to file.

    Args:
        schema: The schema.
        seed: Seeds the draws.
    """

    def __init__(self, schema: Schema, seed: int) -> None:
        self.schema, self.seed = schema, seed
        self.sites, self.persons = KeyIndex(seed), KeyIndex(seed)
        self.clamp_counts: Counter[str] = Counter()

    def rows(self, file: TableFile, site: int | None = None) -> Iterator[EncodedRows]:
        """Reads a file.

        Args:
            file: The file.
            site: The number of the site of all rows, where there is no column for it.

        Yields:
            The rows of each batch that are not dropped.

        Raises:
            DpflError: A cell breaks its column's rule.
        """
        cell_format = CellFormat(self.schema.absent, file.text.decimal if file.text else ".")
        start = 0
        for batch in file.batches(self.schema.read):
            try:
                yield self._rows(batch, cell_format, site)
            except InvalidCell as bad:
                raise file.error(start + bad.row, bad.column, bad.why) from None
            start += len(batch)

    def _rows(
        self, batch: pa.RecordBatch, cell_format: CellFormat, site: int | None
    ) -> EncodedRows:
        schema, size = self.schema, len(batch)
        features = [
            _by(batch, column.name, partial(_encode, column, cell_format))
            for column in schema.columns_in_order
        ]
        labels = [
            _by(batch, name, lambda cells: rules.label(schema.label, cells, cell_format))
            for name in schema.label.columns
        ]
        names = (*(column.name for column in schema.columns_in_order), *schema.label.columns)
        self.clamp_counts.update(
            {
                name: column.clamp_count
                for name, column in zip(names, (*features, *labels), strict=True)
            }
        )
        x = np.concatenate([column.values for column in features], axis=1)
        y = (
            np.stack([column.values for column in labels], axis=1)
            if schema.label.task == "labels"
            else labels[0].values
        )
        sites = np.full(size, site or 0, dtype=np.int64)
        if schema.site:
            sites = _by(batch, schema.site, lambda cells: self.sites.of(cells, cell_format, "site"))
        persons, times = np.zeros(size, dtype=np.int64), np.zeros(size)
        if schema.person:
            persons = _by(
                batch, schema.person, lambda cells: self.persons.of(cells, cell_format, "person")
            )
        if schema.time:
            times = _by(batch, schema.time, lambda cells: rules.time(cells, cell_format))
        draw = np.array(self.persons.draws)[persons] if schema.person else _draws(self.seed, x, y)
        drop_mask = np.logical_or.reduce([column.drop_mask for column in (*features, *labels)])
        return EncodedRows(x, y, sites, persons, times, draw).where(~drop_mask)


def _by(batch: pa.RecordBatch, name: str, rule: Callable[[pa.Array], Any]) -> Any:
    try:
        return rule(batch.column(name))
    except InvalidCell as bad:
        raise InvalidCell(bad.row, bad.why, name) from None


def _encode(column: Column, cell_format: CellFormat, cells: pa.Array) -> EncodedColumn:
    return (
        rules.numeric(column, cells, cell_format)
        if isinstance(column, NumericColumn)
        else rules.categorical(column, cells, cell_format)
    )


def _draws(seed: int, x: Array, y: Array) -> Array:
    return np.array(
        [_draw(seed, row.tobytes() + label.tobytes()) for row, label in zip(x, y, strict=True)],
        dtype=np.float64,
    )


def _draw(seed: int, content: bytes) -> float:
    digest = hashlib.blake2b(content, digest_size=8, key=f"dpfl test set {seed}".encode()).digest()
    return int.from_bytes(digest, "big") / 2**64
