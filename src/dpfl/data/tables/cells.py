"""Turns the cells of a column into numbers, by the column's declared rule.

Each cell is read by itself, so that a row depends on itself alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpfl.data.tables.label import LabelColumn
from dpfl.data.tables.schema import DROP, OTHER, REFUSE, CategoricalColumn, NumericColumn

Array = np.ndarray[Any, Any]

NOT_A_NUMBER = "not a number"


class InvalidCell(Exception):
    """A cell that breaks its column's rule.

    Args:
        row: The row within the batch.
        why: What is wrong, without the value.
        column: The name of the column, once it is known.
    """

    def __init__(self, row: int, why: str, column: str = "") -> None:
        super().__init__(why)
        self.row, self.why, self.column = row, why, column


@dataclass(frozen=True)
class CellFormat:
    """The format in which texts of cells are read.

    Attributes:
        absent: The texts that stand for no value.
        decimal: The decimal mark.
    """

    absent: tuple[str, ...]
    decimal: str = "."

    def texts(self, array: pa.Array) -> pa.Array:
        """Reads cells as texts without blanks around them.

        Args:
            array: The cells.

        Returns:
            The texts, null where there is no value.

        Raises:
            InvalidCell: The column holds something else than texts or numbers.
        """
        try:
            texts = pc.utf8_trim_whitespace(_plain(array).cast(pa.string()))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError):
            raise InvalidCell(
                0, f"holds {array.type}, where texts or numbers are declared"
            ) from None
        return pc.if_else(pc.is_in(texts, pa.array(self.absent, pa.string())), None, texts)

    def numbers(self, array: pa.Array) -> Array:
        """Reads cells as numbers.

        Args:
            array: The cells.

        Returns:
            float64, NaN where there is no value.

        Raises:
            InvalidCell: A cell is no number.
        """
        array = _plain(array)
        if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
            return self._parse(self.texts(array))
        if pa.types.is_boolean(array.type):
            array = array.cast(pa.int8())
        if not (
            pa.types.is_integer(array.type)
            or pa.types.is_floating(array.type)
            or pa.types.is_decimal(array.type)
        ):
            raise InvalidCell(0, f"holds {array.type}, where numbers are declared")
        return np.asarray(
            array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64
        )

    def _parse(self, texts: pa.Array) -> Array:
        if self.decimal == ",":
            has_point = pc.fill_null(pc.match_substring(texts, "."), False).to_numpy(
                zero_copy_only=False
            )
            refuse(
                has_point, "a point in a number with decimal comma; remove marks between thousands"
            )
            texts = pc.replace_substring(texts, ",", ".")
        try:
            return np.array(
                texts.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64
            )
        except pa.ArrowInvalid:
            raise InvalidCell(_first_text(texts), NOT_A_NUMBER) from None


@dataclass(frozen=True)
class EncodedColumn:
    """A column as numbers.

    Attributes:
        values: The numbers of each row.
        drop_mask: Which rows are left out, because a value is missing.
        clamp_count: The number of cells beyond the declared bounds.
    """

    values: Array
    drop_mask: Array
    clamp_count: int = 0


def numeric(column: NumericColumn, array: pa.Array, cells: CellFormat) -> EncodedColumn:
    """Encodes a numeric column: clamped, perhaps as a logarithm, centred and scaled.

    Args:
        column: Its declaration.
        array: The cells.
        cells: How texts are read.

    Returns:
        The column; with a second number that is 1 where a value is missing, if that is declared.

    Raises:
        InvalidCell: A cell is no number, or is missing where that is refused.
    """
    numbers = cells.numbers(array)
    absent = np.isnan(numbers)
    if column.missing == REFUSE:
        refuse(absent, "no value; declare what to do as `missing`")
    inside = np.clip(numbers, column.low, column.high)
    clamp_count = int(np.count_nonzero(inside[~absent] != numbers[~absent]))
    inside[absent] = np.clip(column.fill, column.low, column.high)
    mean, scale = column.centre_and_scale
    values = ((np.log1p(inside - column.low) if column.log else inside) - mean) / scale
    columns = np.stack([values, absent], axis=1) if column.width == 2 else values[:, None]
    return EncodedColumn(
        columns.astype(np.float32),
        absent if column.missing == DROP else np.zeros_like(absent),
        clamp_count,
    )


def categorical(column: CategoricalColumn, array: pa.Array, cells: CellFormat) -> EncodedColumn:
    """Encodes a categorical column: the code of each cell's level.

    A declared level is one even where it looks like a missing value.

    Args:
        column: Its declaration.
        array: The cells.
        cells: How texts are read.

    Returns:
        The column.

    Raises:
        InvalidCell: A cell is none of the levels, or is missing where that is refused.
    """
    codes, absent = _codes(column.levels, array, cells)
    unknown = (codes < 0) & ~absent
    if column.other:
        codes[unknown] = column.all_levels.index(OTHER)
    else:
        refuse(unknown, "a level that is not declared; add it to `levels`, or set other = true")
    if column.missing == REFUSE:
        refuse(absent, "no value; declare what to do as `missing`")
    drop_mask = absent if column.missing == DROP else np.zeros_like(absent)
    codes[absent] = (
        0 if column.missing in (DROP, REFUSE) else column.all_levels.index(column.missing)
    )
    return EncodedColumn(codes.astype(np.float32)[:, None], drop_mask)


def label(column: LabelColumn, array: pa.Array, cells: CellFormat) -> EncodedColumn:
    """Encodes a label column.

    Args:
        column: Its declaration.
        array: The cells.
        cells: How texts are read.

    Returns:
        The class, count or number of each row, (n,).

    Raises:
        InvalidCell: A cell is no such label, or is missing where that is refused.
    """
    if column.levels or column.task == "labels":
        codes, absent = _codes(column.levels or (0, 1), array, cells)
        refuse(
            (codes < 0) & ~absent,
            f"a label other than {', '.join(map(str, column.levels or (0, 1)))}",
        )
        values, clamp_count = np.maximum(codes, 0), 0
    else:
        numbers = cells.numbers(array)
        absent = np.isnan(numbers)
        refuse(np.isinf(numbers), "a label that is not finite")
        values, clamp_count = _number(column, np.where(absent, 0, numbers), absent)
    if column.missing == REFUSE:
        refuse(absent, "no label; correct it, or set data.label.missing = 'drop'")
    return EncodedColumn(values, absent, clamp_count)


def _number(column: LabelColumn, numbers: Array, absent: Array) -> tuple[Array, int]:
    if column.above is not None:
        return (numbers > column.above).astype(np.int64), 0
    inside = (
        np.clip(numbers, column.low, column.high)
        if (column.low, column.high) != (None, None)
        else numbers
    )
    clamp_count = int(np.count_nonzero((inside != numbers) & ~absent))
    if column.task == "counts":
        refuse(
            (inside < 0) | (inside != np.floor(inside)),
            "a label that is no count, a whole number from 0 on",
        )
        return inside.astype(np.int64), clamp_count
    return inside.astype(np.float32), clamp_count


def time(array: pa.Array, cells: CellFormat) -> Array:
    """Encodes a time column.

    Args:
        array: The cells.
        cells: How texts are read.

    Returns:
        Numbers as they are; dates, as such or as year-month-day, in days since 1970.

    Raises:
        InvalidCell: A cell is neither, or is missing.
    """
    array = _plain(array)
    try:
        return _present(cells.numbers(array), "no time; every row needs one")
    except InvalidCell as bad:
        if bad.why != NOT_A_NUMBER and not pa.types.is_temporal(array.type):
            raise
    texts = pa.types.is_string(array.type)
    try:
        moments = (cells.texts(array) if texts else array).cast(pa.timestamp("s"), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InvalidCell(
            0, "neither numbers nor dates, written as year-month-day, in the rows from here on"
        ) from None
    seconds = moments.cast(pa.int64()).cast(pa.float64()).to_numpy(zero_copy_only=False)
    return _present(np.array(seconds, dtype=np.float64), "no time; every row needs one") / 86400


def _present(numbers: Array, why: str) -> Array:
    refuse(np.isnan(numbers), why)
    return numbers


def _codes(
    levels: tuple[str | float, ...], array: pa.Array, cells: CellFormat
) -> tuple[Array, Array]:
    """Finds the place of each cell among the levels, -1 where it is none of them, and which cells
    are missing.
    """
    if isinstance(levels[0], str):
        texts = CellFormat((), cells.decimal).texts(array)
        codes = pc.fill_null(pc.index_in(texts, pa.array(levels, pa.string())), -1).to_numpy(
            zero_copy_only=False
        )
        absent = cells.texts(array).is_null().to_numpy(zero_copy_only=False) & (codes < 0)
        return codes.astype(np.int64), absent
    numbers, absent = _lenient(array, cells)
    order = np.argsort(np.asarray(levels, dtype=np.float64))
    sorted_levels = np.asarray(levels, dtype=np.float64)[order]
    place = np.searchsorted(sorted_levels, numbers).clip(max=len(sorted_levels) - 1)
    return np.where(sorted_levels[place] == numbers, order[place], -1), absent


def _lenient(array: pa.Array, cells: CellFormat) -> tuple[Array, Array]:
    """Reads cells as numbers, NaN where a cell is none, and finds which cells are missing.

    A text among numbers is a level that is not declared.
    """
    array = _plain(array)
    if not pa.types.is_string(array.type):
        numbers = cells.numbers(array)
        return numbers, np.isnan(numbers)
    texts = cells.texts(array).dictionary_encode(null_encoding="encode")
    values = []
    for text in texts.dictionary.to_pylist():
        try:
            values.append(float(cells.numbers(pa.array([text], pa.string()))[0]))
        except InvalidCell:
            values.append(np.nan)
    absent = np.array([text is None for text in texts.dictionary.to_pylist()], dtype=bool)
    codes = texts.indices.to_numpy(zero_copy_only=False)
    return np.array(values, dtype=np.float64)[codes], absent[codes]


def refuse(wrong: Array, why: str) -> None:
    """Refuses a column in which some cell is wrong.

    Args:
        wrong: Which cells are wrong.
        why: What is wrong with them, without a value.

    Raises:
        InvalidCell: A cell is wrong. It names the first.
    """
    if wrong.any():
        raise InvalidCell(int(np.argmax(wrong)), why)


def _plain(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _first_text(texts: pa.Array) -> int:
    """Finds the first cell that is not a number, by halving."""
    start, length = 0, len(texts)
    while length > 1:
        half = length // 2
        try:
            texts.slice(start, half).cast(pa.float64())
        except pa.ArrowInvalid:
            length = half
        else:
            start, length = start + half, length - half
    return start
