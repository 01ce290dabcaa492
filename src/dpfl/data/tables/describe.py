"""Proposes a declaration from a table's header and the types of its columns.

Ranges and levels are read of a public table only.
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
    """A summary of the batches of a column so far.

    Attributes:
        name: The name of the column.
        numbers: Whether all values are numbers.
        low: The smallest of them.
        high: The largest of them.
        missing: Whether some cell has no value.
        unfit: Whether the column holds neither numbers nor texts.
        levels: The different values, while there are few.
    """

    name: str
    numbers: bool = True
    low: float = np.inf
    high: float = -np.inf
    missing: bool = False
    unfit: bool = False
    levels: set[str] = field(default_factory=set)

    def add(self, array: pa.Array, cell_format: CellFormat) -> None:
        """Adds a batch.

        Args:
            array: The cells.
            cell_format: How texts are read.
        """
        try:
            numbers = cell_format.numbers(array) if self.numbers else None
        except InvalidCell:
            numbers, self.numbers = None, False
        try:
            texts = cell_format.texts(array)
        except InvalidCell:
            self.unfit = True
            return
        self.missing |= texts.null_count > 0
        if numbers is not None and np.isfinite(numbers).any():
            finite = numbers[np.isfinite(numbers)]
            self.low, self.high = min(self.low, finite.min()), max(self.high, finite.max())
        if len(self.levels) <= MOST_LEVELS:
            self.levels |= set(texts.drop_null().unique().to_pylist())


def describe(path: Path, public: bool = False, text: TextFormat = TextFormat()) -> str:
    """Writes a [data] section for a table, as TOML that the user completes.

    Args:
        path: The table.
        public: Whether its values may be read. Otherwise only the header and the types of its first
            rows are.
        text: How a CSV file is written.

    Returns:
        The section.

    Raises:
        DpflError: The table cannot be read, or has no rows.
    """
    file = open_table(path, text)
    cell_format = CellFormat(ABSENT, file.text.decimal if file.text else ".")
    columns = [ColumnSummary(name) for name in file.header]
    for number, batch in enumerate(file.batches(file.header)):
        if number and not public:
            break
        for column in columns:
            column.add(batch.column(column.name), cell_format)
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
        '# label = "..."   # the column to predict',
        '# task = "..."    # binary, classes, ordinal, number or counts',
        '# site = "..."    # the column that names the owner of each row; leave it out for a '
        "folder with one file per site",
        f"{'' if person else '# '}person = {json.dumps(person or '...')}   # the column that "
        "identifies the person of each row",
        '# time = "..."',
        "# test = { share = 0.2, seed = 0 }   # a share of the persons (or rows) that you declare "
        "public, as the test set",
        "# Remove columns that are not features: those above, names, and whatever is known only "
        "after the label.",
    ]


def _column(column: ColumnSummary, public: bool) -> list[str]:
    if IDENTIFIER.search(column.name):
        return []
    name = (
        column.name
        if re.fullmatch(r"[A-Za-z0-9_-]+", column.name)
        else json.dumps(column.name, ensure_ascii=False)
    )
    if column.unfit:
        return ["", f"# {name} holds neither numbers nor texts, and can be no feature"]
    lines = ["", f"[data.columns.{name}]"]
    kind = "numbers" if column.numbers else "texts"
    if not public:
        return [
            *lines,
            f"# {kind}",
            *(("# low =", "# high =") if column.numbers else ("# levels = []", "# other = true")),
        ]
    if column.numbers and column.low < column.high:
        lines += [f"low = {_number(column.low)}", f"high = {_number(column.high)}"]
        return [*lines, *(['missing = "indicate"'] if column.missing else [])]
    if len(column.levels) > MOST_LEVELS:
        many = (
            f"# more than {MOST_LEVELS} different texts: declare the levels that matter, or "
            "remove the column"
        )
        return [*lines, many, "# levels = []"]
    levels: list[Any] = (
        sorted(map(float, column.levels)) if column.numbers else sorted(column.levels)
    )
    level_list = ", ".join(
        _number(level) if column.numbers else json.dumps(level, ensure_ascii=False)
        for level in levels
    )
    return [
        *lines,
        f"levels = [{level_list}]",
        "other = true",
        *(['missing = "missing"'] if column.missing else []),
    ]


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
