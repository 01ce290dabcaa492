"""Tables as sources of a federation: training rows and their owners, and the rows that are declared
public to test on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpfl.data.dataset import Dataset, DataSource
from dpfl.data.sources import randhie_table
from dpfl.data.tables.declared import TableDeclaration, declare
from dpfl.data.tables.table import Table, read_table
from dpfl.errors import DpflError
from dpfl.tasks import Task


def own_table(place: Path, words: Mapping[str, Any]) -> DataSource:
    said = declare(words)
    if said.schema.site and not said.sites:
        raise DpflError(
            "data.site names a column, but who takes part is not read off private data: list "
            "data.sites, too."
        )
    seed = said.test.seed if said.test else 0
    return _source(
        read_table(place, said.schema, said.text, seed, said.sites),
        said,
        place.is_dir() or bool(said.schema.site),
    )


def study(label: str, test: Mapping[str, Any] | None) -> DataSource:
    said = randhie_table.declared(label, test)
    return _source(replace(randhie_table.read(said), name="randhie"), said, owned=True)


def _source(whole: Table, said: TableDeclaration, owned: bool) -> DataSource:
    train, test = whole, None
    if said.test and said.test.file:
        test = read_table(Path(said.test.file).expanduser(), said.schema, said.text, said.test.seed)
    elif said.test and said.test.share:
        train, test = whole.held_out(said.test.share)
    return DataSource(
        _dataset(train, said.task),
        None if test is None else _dataset(test, said.task),
        train.by_site() if owned else (),
        train.persons,
        (),
        whole.private,
        None if test is None else test.persons,
        whole.sites if owned else (),
        whole.warnings,
    )


def _dataset(held: Table, task: Task) -> Dataset:
    return Dataset(held.name, held.x, task.labels(held.rows.y), task, held.schema)
