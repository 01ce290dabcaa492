"""Tables as sources of a federation: training rows, their owners, and the rows that are public."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpfl.data.data_source import DataSource
from dpfl.data.dataset import Dataset
from dpfl.data.sources import randhie_table
from dpfl.data.tables.declared import TableDeclaration, declare
from dpfl.data.tables.table import Table, read_table
from dpfl.errors import DpflError
from dpfl.tasks import Task


def own_table(place: Path, words: Mapping[str, Any]) -> DataSource:
    """Reads a user's own table.

    Args:
        place: The file or folder.
        words: The words of [data].

    Returns:
        The source.

    Raises:
        DpflError: The table is not declared, or cannot be read.
    """
    declaration = declare(words)
    if declaration.schema.site and not declaration.sites:
        raise DpflError(
            "data.site names a column, but the list of sites must be public: list the sites in "
            "data.sites, too."
        )
    seed = declaration.test.seed if declaration.test else 0
    return _source(
        read_table(place, declaration.schema, declaration.text, seed, declaration.sites),
        declaration,
        place.is_dir() or bool(declaration.schema.site),
    )


def study(label: str, test: Mapping[str, Any] | None) -> DataSource:
    """Reads the RAND Health Insurance Experiment.

    Args:
        label: What is learned: "any-visit" or "visits".
        test: The words of data.test.

    Returns:
        The source.
    """
    declaration = randhie_table.declaration(label, test)
    return _source(
        replace(randhie_table.read(declaration), name="randhie"), declaration, owned=True
    )


def _source(whole: Table, declaration: TableDeclaration, owned: bool) -> DataSource:
    train, test = whole, None
    if declaration.test and declaration.test.file:
        test = read_table(
            Path(declaration.test.file).expanduser(),
            declaration.schema,
            declaration.text,
            declaration.test.seed,
        )
    elif declaration.test and declaration.test.share:
        train, test = whole.split_off(declaration.test.share)
    return DataSource(
        _dataset(train, declaration.task),
        None if test is None else _dataset(test, declaration.task),
        train.by_site() if owned else (),
        train.persons,
        (),
        whole.private,
        None if test is None else test.persons,
        whole.sites if owned else (),
        whole.warnings,
    )


def _dataset(rows: Table, task: Task) -> Dataset:
    return Dataset(rows.name, rows.x, task.labels(rows.rows.y), task, rows.schema)
