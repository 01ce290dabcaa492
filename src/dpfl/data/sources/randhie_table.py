"""The RAND Health Insurance Experiment, which comes with the package: visits to a doctor, some
years of each person.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpfl.bad_values import require_name
from dpfl.data.tables.declared import TableDeclaration, declare
from dpfl.data.tables.table import Table, read_table

DECLARED = Path(__file__).with_name("randhie.toml")

LABELS: dict[str, dict[str, Any]] = {
    "any-visit": {"label": {"column": "mdvis", "above": 0}, "task": "binary"},
    "visits": {"label": {"column": "mdvis", "high": 100, "mean": 2.9}, "task": "counts"},
}
"""What can be learned: whether a person saw a doctor that year, or how often. The mean is rounded
from the published data.
"""


def declared(label: str = "any-visit", test: Mapping[str, Any] | None = None) -> TableDeclaration:
    require_name("randhie label", label, LABELS)
    words = tomllib.loads(DECLARED.read_text()) | LABELS[label]
    return declare(words if test is None else words | {"test": dict(test)})


def read(said: TableDeclaration) -> Table:
    return read_table(
        DECLARED.with_suffix(".parquet"),
        said.schema,
        seed=said.test.seed if said.test else 0,
        sites=said.sites,
    )
