"""A table as it is declared in an experiment: the words of [data] and [data.columns.NAME],
checked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpfl.bad_values import is_number, refuse_unknown_options, require_whole
from dpfl.data.special_names import ROLES, TABLE_WORDS
from dpfl.data.tables.label import LabelColumn
from dpfl.data.tables.schema import (
    ABSENT,
    CategoricalColumn,
    Column,
    NumericColumn,
    PaidScales,
    Schema,
)
from dpfl.data.tables.table_files import TextFormat
from dpfl.errors import DpflError
from dpfl.tasks import Task


@dataclass(frozen=True)
class DeclaredTestSet:
    """What is declared public to measure on: a share of the persons (or rows), another table, or
    nothing.
    """

    __test__ = False  # not one of pytest's

    share: float | None = None
    seed: int = 0
    file: str | None = None

    def __post_init__(self) -> None:
        if (self.share is None) == (self.file is None):
            raise DpflError(
                "data.test is { share = 0.2, seed = 0 }, or { file = 'test.csv' }: give one of "
                "share and file."
            )
        if self.share is not None and (not is_number(self.share) or not 0 < self.share < 1):
            raise DpflError(f"data.test.share is {self.share!r}: give a number between 0 and 1.")
        require_whole(self.seed, "data.test.seed", least=0)


@dataclass(frozen=True)
class TableDeclaration:
    """All that is said of a table before a row of it is read."""

    schema: Schema
    text: TextFormat
    test: DeclaredTestSet | None = None
    sites: tuple[str, ...] = ()
    class_weights: tuple[float, ...] = ()

    @property
    def task(self) -> Task:
        return self.schema.label.as_task(self.class_weights)


def declare(words: Mapping[str, Any]) -> TableDeclaration:
    """The words of [data], as TOML gives them."""
    refuse_unknown_options("data", words, TABLE_WORDS, "key")
    if "label" not in words:
        raise DpflError(
            "The table has no label: set data.label to the column that is to be learned."
        )
    roles = {role: _column_name(f"data.{role}", words[role]) for role in ROLES if role in words}
    columns = words.get("columns", {})
    if not isinstance(columns, Mapping):
        raise DpflError(
            "data.columns is no table: declare each column as [data.columns.NAME], with bounds or "
            "levels."
        )
    schema = Schema(
        tuple(parse_column(name, said) for name, said in columns.items()),
        parse_label(words["label"], words.get("task"), words.get("classes")),
        **roles,
        absent=_texts("data.absent", words.get("absent", ABSENT)),
        paid=_of(PaidScales, "data.paid", words.get("paid", {})),
    )
    if "paid" in words and not schema.features.paid:
        raise DpflError(
            "data.paid says what scales may cost, but no column has scale = 'paid': set one, or "
            "leave it out."
        )
    sites = _texts("data.sites", words.get("sites", ()))
    if sites and not schema.site:
        raise DpflError(
            "data.sites names sites, but data.site no column that says which row is whose: set it."
        )
    text = TextFormat(
        **{word: words[word] for word in ("delimiter", "decimal", "encoding") if word in words}
    )
    test = words.get("test")
    weights = _list("data.class_weights", words.get("class_weights", ()))
    said = TableDeclaration(
        schema,
        text,
        None if test is None else _of(DeclaredTestSet, "data.test", test),
        sites,
        weights,
    )
    said.task  # noqa: B018  what does not fit is refused before a row is read
    return said


def parse_column(name: str, said: Any) -> Column:
    """[data.columns.NAME]: numeric by its bounds, or categorical by its levels."""
    where = f"data.columns.{name}"
    if not isinstance(said, Mapping) or ("levels" in said) == ("low" in said or "high" in said):
        raise DpflError(
            f"{where} needs either low and high (a numeric column), or levels (a categorical one)."
        )
    if "levels" in said:
        return _of(
            CategoricalColumn,
            where,
            {**said, "levels": _list(f"{where}.levels", said["levels"])},
            name=name,
        )
    return _of(NumericColumn, where, said, name=name)


def parse_label(said: Any, task: Any = None, classes: Any = None) -> LabelColumn:
    """A column's name, a list of them (several labels), or { column = ..., levels, above, low,
    high, mean, missing }.
    """
    options = dict(said) if isinstance(said, Mapping) else {"column": said}
    named = options.pop("column", None)
    names = named if isinstance(named, list | tuple) else [named]
    columns = tuple(_column_name("data.label", name) for name in names)
    if "levels" in options:
        options["levels"] = _list("data.label.levels", options["levels"])
    if classes is not None:
        require_whole(classes, "data.classes", least=2)
        options.setdefault("levels", tuple(range(classes)))
    task = task or _task(columns, options)
    if task == "binary" and "above" not in options:
        options.setdefault("levels", (0, 1))
    return _of(LabelColumn, "data.label", options, columns=columns, task=task)


def _task(columns: Sequence[str], options: Mapping[str, Any]) -> str:
    """What the label itself says."""
    if len(columns) > 1:
        return "labels"
    if "above" in options or len(options.get("levels", ())) == 2:
        return "binary"
    if "levels" in options:
        return "classes"
    raise DpflError(
        f"What {columns[0]!r} is to be is not said: set data.task to binary, classes, ordinal, "
        "number or counts."
    )


def _of(kind: type[Any], where: str, said: Any, **known: Any) -> Any:
    """A part from the words for it."""
    if not isinstance(said, Mapping):
        raise DpflError(f"{where} is {said!r}: give a table of words and values.")
    fields = [field for field in dataclasses.fields(kind) if field.name not in known]
    refuse_unknown_options(where, said, [field.name for field in fields], "key")
    needed = (field.name for field in fields if field.default is dataclasses.MISSING)
    if lost := next((name for name in needed if name not in said), None):
        raise DpflError(f"{where} has no {lost}: give it.")
    return kind(**said, **known)


def _column_name(where: str, name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise DpflError(f"{where} is {name!r}: give the name of a column.")
    return name


def _list(where: str, said: Any) -> tuple[Any, ...]:
    if not isinstance(said, list | tuple):
        raise DpflError(f"{where} is {said!r}: give a list.")
    return tuple(said)


def _texts(where: str, said: Any) -> tuple[str, ...]:
    found = _list(where, said)
    if not all(isinstance(one, str | int) and not isinstance(one, bool) for one in found):
        raise DpflError(f"{where} is {said!r}: give a list of texts.")
    return tuple(map(str, found))
