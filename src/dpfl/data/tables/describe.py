"""A schema to begin with, from a table's header and the types of its columns; ranges and levels
only of a public table.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dpfl.data.tables.cells import CellFormat, InvalidCell
from dpfl.data.tables.schema import ABSENT
from dpfl.data.tables.table import IDENTIFIER
from dpfl.data.tables.table_files import TableFile, TextFormat, open_table
from dpfl.errors import DpflError

MOST_LEVELS = 30
"""Texts with more values than this are no levels, but names or remarks."""


@dataclass
class ColumnSummary:
    """What the batches of a column have shown so far."""

    name: str
    numbers: bool = True
    low: float = np.inf
    high: float = -np.inf
    missing: bool = False
    unfit: bool = False
    levels: set[str] = field(default_factory=set)

    def add(self, array: pa.Array, read: CellFormat) -> None:
        try:
            found = read.numbers(array) if self.numbers else None
        except InvalidCell:
            found, self.numbers = None, False
        try:
            texts = read.texts(array)
        except InvalidCell:
            self.unfit = True
            return
        self.missing |= texts.null_count > 0
        if found is not None and np.isfinite(found).any():
            held = found[np.isfinite(found)]
            self.low, self.high = min(self.low, held.min()), max(self.high, held.max())
        if len(self.levels) <= MOST_LEVELS:
            self.levels |= set(texts.drop_null().unique().to_pylist())


def describe(path: Path, public: bool = False, text: TextFormat = TextFormat()) -> str:
    """The [data] section that a table could have, as TOML to be finished by hand.

    Of a table that is not said to be public, the header and the types that its first rows have, and
    no value."""
    file = open_table(path, text)
    read = CellFormat(ABSENT, file.text.decimal if file.text else ".")
    columns = [ColumnSummary(name) for name in file.header]
    for number, batch in enumerate(file.batches(file.header)):
        if number and not public:
            break
        for column in columns:
            column.add(batch.column(column.name), read)
    if public and all(not column.levels for column in columns):
        raise DpflError(f"{path} has no rows below its header, so there is nothing to describe.")
    return "\n".join(
        (
            *_head(path, file, public),
            *(line for column in columns for line in _column(column, public)),
            "",
        )
    )


def _head(path: Path, file: TableFile, public: bool) -> list[str]:
    what = (
        "its ranges and levels"
        if public
        else "no value: fill in bounds and levels that are known without the data"
    )
    lines = [
        f"# Proposed from the header and types of {path.name}, and {what}.",
        "[data]",
        f"name = {json.dumps(str(path))}",
    ]
    if file.text and file.text.delimiter != ",":
        lines.append(f"delimiter = {json.dumps(file.text.delimiter)}")
    if file.text and file.text.decimal != ".":
        lines.append(f"decimal = {json.dumps(file.text.decimal)}")
    person = next((name for name in file.header if IDENTIFIER.search(name)), None)
    return [
        *lines,
        '# label = "..."   # the column to learn, and its kind as task: binary, classes, ordinal, '
        "number or counts",
        '# task = "..."',
        '# site = "..."    # the column that says whose a row is; none for a folder with one file '
        "a site",
        f"{'' if person else '# '}person = {json.dumps(person or '...')}   # one of the data's "
        "people, with all of their rows",
        '# time = "..."',
        "# test = { share = 0.2, seed = 0 }   # persons (or rows) that are declared public, to "
        "measure on",
        "# Remove what is no feature: the columns above, names, and whatever is known only after "
        "the label.",
    ]


def _column(seen: ColumnSummary, public: bool) -> list[str]:
    if IDENTIFIER.search(seen.name):
        return []
    name = (
        seen.name
        if re.fullmatch(r"[A-Za-z0-9_-]+", seen.name)
        else json.dumps(seen.name, ensure_ascii=False)
    )
    if seen.unfit:
        return ["", f"# {name} holds neither numbers nor texts, and can be no feature"]
    lines = ["", f"[data.columns.{name}]"]
    kind = "numbers" if seen.numbers else "texts"
    if not public:
        return [
            *lines,
            f"# {kind}",
            *(("# low =", "# high =") if seen.numbers else ("# levels = []", "# other = true")),
        ]
    if seen.numbers and seen.low < seen.high:
        lines += [f"low = {_number(seen.low)}", f"high = {_number(seen.high)}"]
        return [*lines, *(['missing = "indicate"'] if seen.missing else [])]
    if len(seen.levels) > MOST_LEVELS:
        many = (
            f"# more than {MOST_LEVELS} different texts: declare the levels that matter, or "
            "remove the column"
        )
        return [*lines, many, "# levels = []"]
    levels: list[Any] = sorted(map(float, seen.levels)) if seen.numbers else sorted(seen.levels)
    shown = ", ".join(
        _number(level) if seen.numbers else json.dumps(level, ensure_ascii=False)
        for level in levels
    )
    return [
        *lines,
        f"levels = [{shown}]",
        "other = true",
        *(['missing = "missing"'] if seen.missing else []),
    ]


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
