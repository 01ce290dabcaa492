"""The declared schema of a table: what each column means, in constants not read off private data.

What a row becomes depends on that row and on the schema alone. So neighbouring tables stay
neighbours, and no guarantee changes. `Schema.to_json` says all that is needed to do the same to a
raw row elsewhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import accumulate

from dpfl.bad_values import (
    is_number,
    require_above,
    require_bool,
    require_share,
    require_whole,
    wrong_value,
)
from dpfl.data.tables.label import LabelColumn, Level, check_levels
from dpfl.errors import DpflError

ABSENT = ("", "NA", "NaN", "nan", "NULL", "null")
"""Cells of a text file that hold no value, unless the table declares others."""

REFUSE, DROP, INDICATE, OTHER, MISSING = "refuse", "drop", "indicate", "other", "missing"
PAID_SCALE, QUARTILES = "paid", "paid quartiles"
"""Scales that clients are asked for before training, with noise that their ledgers pay for."""
BINS, MOST_BINS = 20, 1000


@dataclass(frozen=True)
class NumericColumn:
    """A number between declared bounds.

    A value v is clamped to the bounds. Then, if `log`, it becomes log(1 + v - low). Then it becomes
    (v - mean) / scale; without mean and scale, the bounds become -1 and 1.

    A scale that is "paid" is measured before training, with noise that the clients' ledgers pay
    for: the mean and the standard deviation of the column at all clients. "paid quartiles" are the
    median and the distance of the quartiles, from a histogram.

    Attributes:
        name: The name of the column.
        low: The lower bound.
        high: The upper bound.
        log: Whether the logarithm is taken.
        mean: What is subtracted.
        scale: What it is divided by, or "paid" or "paid quartiles".
        missing: A missing value is refused ("refuse"), drops its row ("drop"), is filled in by a
            number, or is filled in by the middle of the bounds and shown by one more feature
            ("indicate").
        bins: The number of bins of the histogram.
    """

    name: str
    low: float
    high: float
    log: bool = False
    mean: float | None = None
    scale: float | str | None = None
    missing: str | float = REFUSE
    bins: int | None = None

    def __post_init__(self) -> None:
        where = f"data.columns.{self.name}"
        if not is_number(self.low) or not is_number(self.high) or self.low >= self.high:
            raise DpflError(
                f"{where} has low = {self.low!r} and high = {self.high!r}: give two numbers, the "
                "lower one first."
            )
        self._check_scale(where)
        require_bool(self.log, f"{where}.log")
        if self.missing not in (REFUSE, DROP, INDICATE) and not is_number(self.missing):
            advice = f"give {REFUSE!r}, {DROP!r}, {INDICATE!r} or the number to put there"
            raise wrong_value(self.missing, f"{where}.missing", advice)

    def _check_scale(self, where: str) -> None:
        if self.scale in (PAID_SCALE, QUARTILES):
            if self.mean is not None:
                raise DpflError(
                    f"{where} has a mean, but its scale is {self.scale!r}, which finds both: leave "
                    "the mean out."
                )
        elif isinstance(self.scale, str):
            advice = f"give a number above 0, {PAID_SCALE!r} or {QUARTILES!r}"
            raise wrong_value(self.scale, f"{where}.scale", advice)
        elif (self.mean is None) != (self.scale is None):
            raise DpflError(
                f"{where} has one of mean and scale: give both, or none to map the bounds to -1 "
                "and 1."
            )
        elif self.scale is not None and (
            not is_number(self.mean) or not is_number(self.scale) or self.scale <= 0
        ):
            raise DpflError(
                f"{where} has mean = {self.mean!r} and scale = {self.scale!r}: give a number, and "
                "one above 0."
            )
        if self.bins is not None:
            if self.scale != QUARTILES:
                raise DpflError(
                    f"{where}.bins is only used with scale = {QUARTILES!r}: set it, or leave bins "
                    "out."
                )
            require_whole(self.bins, f"{where}.bins", least=4, most=MOST_BINS)

    @property
    def has_paid_scale(self) -> bool:
        """Whether the scale is measured before training, and paid for."""
        return self.scale in (PAID_SCALE, QUARTILES)

    @property
    def width(self) -> int:
        """The number of features that the column becomes."""
        return 2 if self.missing == INDICATE else 1

    @property
    def fill(self) -> float:
        """What stands for a missing value."""
        return float(self.missing) if is_number(self.missing) else (self.low + self.high) / 2

    @property
    def centre_and_scale(self) -> tuple[float, float]:
        """The constants of the values before training. A paid scale is applied on top, by the
        model.
        """
        if self.mean is not None and self.scale is not None and not isinstance(self.scale, str):
            return self.mean, self.scale
        low, high = (0.0, math.log1p(self.high - self.low)) if self.log else (self.low, self.high)
        return (low + high) / 2, (high - low) / 2


@dataclass(frozen=True)
class CategoricalColumn:
    """One of the declared levels, which are all texts or all numbers.

    Attributes:
        name: The name of the column.
        levels: The levels.
        other: Whether a value that is not declared is the level "other". Otherwise it is refused.
        missing: A missing value is refused ("refuse"), drops its row ("drop"), or is a level: a
            declared one, "other", or "missing" as one of its own.
    """

    name: str
    levels: tuple[Level, ...]
    other: bool = False
    missing: str | float = REFUSE

    def __post_init__(self) -> None:
        where = f"data.columns.{self.name}"
        check_levels(where, self.levels)
        require_bool(self.other, f"{where}.other")
        if self.missing not in (REFUSE, DROP, *self.all_levels):
            advice = "give 'refuse', 'drop', 'missing', 'other' with other = true, or a level"
            raise wrong_value(self.missing, f"{where}.missing", advice)

    @cached_property
    def all_levels(self) -> tuple[Level, ...]:
        """The declared levels, and those that `other` and `missing` add. A level's code is its
        place here.
        """
        extra = ((OTHER, self.other), (MISSING, self.missing == MISSING))
        return (
            *self.levels,
            *(name for name, applies in extra if applies and name not in self.levels),
        )

    @property
    def numbers(self) -> bool:
        """Whether the levels are numbers."""
        return is_number(self.levels[0])


Column = NumericColumn | CategoricalColumn


@dataclass(frozen=True)
class PaidScales:
    """The budget of all paid scales together.

    Attributes:
        noise: The noise multiplier.
        share: The share of epsilon, as if nothing else were released.
    """

    noise: float | None = None
    share: float | None = None

    def __post_init__(self) -> None:
        if self.noise is not None and self.share is not None:
            raise DpflError(
                "data.paid is { noise = 20 } or { share = 0.1 }: give one of noise and share."
            )
        if self.noise is not None:
            require_above(self.noise, "data.paid.noise", bound=0)
        if self.share is not None:
            require_share(self.share, "data.paid.share", "a share of epsilon")


@dataclass(frozen=True)
class Schema:
    """The columns of a table.

    Attributes:
        columns: The features.
        label: The label.
        site: The column of the site that a row is of.
        person: The column of the person that a row is of.
        time: The column of the time.
        absent: The texts that stand for no value.
        scale_cost: What the paid scales may cost. An experiment declares it as data.paid.
    """

    columns: tuple[Column, ...]
    label: LabelColumn
    site: str | None = None
    person: str | None = None
    time: str | None = None
    absent: tuple[str, ...] = ABSENT
    scale_cost: PaidScales = PaidScales()

    def __post_init__(self) -> None:
        if not self.columns:
            raise DpflError(
                "The table has no columns to learn from: declare them as [data.columns.NAME], with "
                "bounds or levels."
            )
        column_names = [column.name for column in self.columns]
        for role, name in (
            ("site", self.site),
            ("person", self.person),
            *(("label", name) for name in self.label.columns),
        ):
            if name in column_names:
                raise DpflError(
                    f"The column {name!r} is the {role} and also one of data.columns: it can be "
                    "one of them only."
                )

    @cached_property
    def numeric(self) -> tuple[NumericColumn, ...]:
        """The numeric columns."""
        return tuple(column for column in self.columns if isinstance(column, NumericColumn))

    @cached_property
    def categorical(self) -> tuple[CategoricalColumn, ...]:
        """The categorical columns."""
        return tuple(column for column in self.columns if isinstance(column, CategoricalColumn))

    @property
    def columns_in_order(self) -> tuple[Column, ...]:
        """The columns in the order of the features: numbers first, then codes."""
        return (*self.numeric, *self.categorical)

    @property
    def features(self) -> FeatureLayout:
        """How a row is laid out."""
        return FeatureLayout(
            sum(column.width for column in self.numeric),
            tuple(len(column.all_levels) for column in self.categorical),
            any(column.has_paid_scale for column in self.numeric),
        )

    @property
    def places(self) -> Iterator[tuple[int, NumericColumn]]:
        """Where the value of each numeric column lies in a row."""
        starts = accumulate((column.width for column in self.numeric), initial=0)
        return zip(starts, self.numeric, strict=False)

    def with_scales(self, means: Sequence[float], scales: Sequence[float]) -> Schema:
        """Sets the scales that were measured by a paid release.

        Args:
            means: A mean for every number of a row, in units of what it is without paid scales.
            scales: A scale for every number of a row, likewise.

        Returns:
            The schema, in which every scale is a number.
        """
        measured_columns = {}
        for place, column in self.places:
            if column.has_paid_scale:
                centre, unit = column.centre_and_scale
                mean, scale = centre + unit * means[place], unit * scales[place]
                measured_columns[column.name] = replace(column, mean=mean, scale=scale, bins=None)
        return replace(
            self,
            columns=tuple(measured_columns.get(column.name, column) for column in self.columns),
        )

    @property
    def read(self) -> tuple[str, ...]:
        """The names of the columns that are read, each once."""
        keys = (name for name in (self.site, self.person, self.time) if name is not None)
        return tuple(
            dict.fromkeys((*(column.name for column in self.columns), *self.label.columns, *keys))
        )

    def to_json(self) -> str:
        """Writes all that turns a raw row into a model's input: the numbers first, then each
        category one-hot.

        Returns:
            JSON.
        """
        numeric = [
            {"name": column.name, "low": column.low, "high": column.high, "log": column.log}
            | dict(zip(("mean", "scale"), column.centre_and_scale, strict=True))
            | {"missing": column.missing, "fill": column.fill}
            for column in self.numeric
        ]
        categorical = [
            asdict(column) | {"levels": column.all_levels} for column in self.categorical
        ]
        return json.dumps(
            {
                "format": "dpfl table 1",
                "numeric": numeric,
                "categorical": categorical,
                "absent": self.absent,
            }
            | {
                "label": asdict(self.label),
                "site": self.site,
                "person": self.person,
                "time": self.time,
            }
        )


@dataclass(frozen=True)
class FeatureLayout:
    """The layout of a row of x: numbers, then one whole-number code for each categorical column.

    A row of codes is short however many levels there are. A model asks for what it takes: dense
    rows (one-hot, made a batch at a time), or the codes, for embeddings.

    Attributes:
        numbers: How many numbers there are.
        levels: The number of levels of each categorical column.
        has_paid_scales: Whether some numbers have a scale that is measured before training.
    """

    numbers: int
    levels: tuple[int, ...]
    has_paid_scales: bool = False

    @property
    def dense(self) -> int:
        """The length of a row with one-hot categories."""
        return self.numbers + sum(self.levels)
