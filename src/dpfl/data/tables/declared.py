"""A table as an experiment declares it: the words of [data] and [data.columns.NAME], checked.

Everything that a row becomes follows from these declarations, and nothing from other rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpfl.bad_values import (
    refuse_unknown_options,
    require_share,
    require_whole,
    wrong_value,
)
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
    """The rows that are declared public to test on: a share of the persons (or rows), or another
    table.

    Attributes:
        share: The share, between 0 and 1.
        seed: Seeds the draw.
        file: The path of another table.
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
        if self.share is not None:
            require_share(self.share, "data.test.share")
        require_whole(self.seed, "data.test.seed", least=0)


@dataclass(frozen=True)
class TableDeclaration:
    """The declaration of a table, made before a row of it is read.

    Attributes:
        schema: Its columns.
        text: How a CSV file is written.
        test: The public test set, if there is one.
        sites: The names of the sites that take part.
        class_weights: The weights of the classes in the loss.
    """

    schema: Schema
    text: TextFormat
    test: DeclaredTestSet | None = None
    sites: tuple[str, ...] = ()
    class_weights: tuple[float, ...] = ()

    @property
    def task(self) -> Task:
        """What is predicted."""
        return self.schema.label.as_task(self.class_weights)


def declare(words: Mapping[str, Any]) -> TableDeclaration:
    """Parses the declaration of a table.

    Args:
        words: The words of [data], as TOML gives them.

    Returns:
        The declaration.

    Raises:
        DpflError: A word is unknown, missing, or does not fit the others.
    """
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
        tuple(parse_column(name, column) for name, column in columns.items()),
        parse_label(words["label"], words.get("task"), words.get("classes")),
        **roles,
        absent=_texts("data.absent", words.get("absent", ABSENT)),
        scale_cost=_of(PaidScales, "data.paid", words.get("paid", {})),
    )
    if "paid" in words and not schema.features.has_paid_scales:
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
    declaration = TableDeclaration(
        schema,
        text,
        None if test is None else _of(DeclaredTestSet, "data.test", test),
        sites,
        weights,
    )
    declaration.task  # noqa: B018  what does not fit is refused before a row is read
    return declaration


def parse_column(name: str, words: Any) -> Column:
    """Parses the declaration of a column.

    Args:
        name: The name of the column.
        words: The words of [data.columns.NAME].

    Returns:
        A numeric column where bounds are declared, a categorical one where levels are.

    Raises:
        DpflError: The words declare neither, or both.
    """
    where = f"data.columns.{name}"
    if not isinstance(words, Mapping) or ("levels" in words) == ("low" in words or "high" in words):
        raise DpflError(
            f"{where} needs either low and high (a numeric column), or levels (a categorical one)."
        )
    if "levels" in words:
        return _of(
            CategoricalColumn,
            where,
            {**words, "levels": _list(f"{where}.levels", words["levels"])},
            name=name,
        )
    return _of(NumericColumn, where, words, name=name)


def parse_label(words: Any, task: Any = None, classes: Any = None) -> LabelColumn:
    """Parses the declaration of the label.

    Args:
        words: A column's name, a list of them for several labels, or a table with column, levels,
            above, low, high, mean and missing.
        task: The name of the task, if it is declared.
        classes: The number of classes, if it is declared.

    Returns:
        The declaration.

    Raises:
        DpflError: The words do not say what the label is to be, or do not fit the task.
    """
    options = dict(words) if isinstance(words, Mapping) else {"column": words}
    label_columns = options.pop("column", None)
    names = label_columns if isinstance(label_columns, list | tuple) else [label_columns]
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
    """Infers the task from the label's declaration."""
    if len(columns) > 1:
        return "labels"
    if "above" in options or len(options.get("levels", ())) == 2:
        return "binary"
    if "levels" in options:
        return "classes"
    raise DpflError(
        f"The task of the label {columns[0]!r} is unknown: set data.task to binary, classes, "
        "ordinal, number or counts."
    )


def _of(kind: type[Any], where: str, words: Any, **constants: Any) -> Any:
    """Builds a declaration dataclass from a TOML table."""
    if not isinstance(words, Mapping):
        raise wrong_value(words, where, "give a table of keys and values")
    fields = [field for field in dataclasses.fields(kind) if field.name not in constants]
    refuse_unknown_options(where, words, [field.name for field in fields], "key")
    required_keys = (field.name for field in fields if field.default is dataclasses.MISSING)
    if missing := next((name for name in required_keys if name not in words), None):
        raise DpflError(f"{where} has no {missing}: give it.")
    return kind(**words, **constants)


def _column_name(where: str, name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise wrong_value(name, where, "give the name of a column")
    return name


def _list(where: str, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, list | tuple):
        raise wrong_value(values, where, "give a list")
    return tuple(values)


def _texts(where: str, values: Any) -> tuple[str, ...]:
    texts = _list(where, values)
    if not all(isinstance(text, str | int) and not isinstance(text, bool) for text in texts):
        raise wrong_value(values, where, "give a list of texts")
    return tuple(map(str, texts))
