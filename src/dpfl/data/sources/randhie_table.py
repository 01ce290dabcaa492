"""The RAND Health Insurance Experiment, which comes with the package.

A row is one person in one year, and the label is their visits to a doctor.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpfl.bad_values import require_name
from dpfl.data.tables.declared import TableDeclaration, declare
from dpfl.data.tables.table import Table, read_table

DECLARATION = Path(__file__).with_name("randhie.toml")

LABELS: dict[str, dict[str, Any]] = {
    "any-visit": {"label": {"column": "mdvis", "above": 0}, "task": "binary"},
    "visits": {"label": {"column": "mdvis", "high": 100, "mean": 2.9}, "task": "counts"},
}
"""The labels that can be learned: whether a person saw a doctor that year, or how often. The mean
is rounded from the published data.
"""


def declaration(
    label: str = "any-visit", test: Mapping[str, Any] | None = None
) -> TableDeclaration:
    """Makes the declaration of the table.

    Args:
        label: What is learned: "any-visit" or "visits".
        test: The words of data.test; by default, a fifth of the persons.

    Returns:
        The declaration.

    Raises:
        DpflError: There is no such label, or `test` is wrong.
    """
    require_name("randhie label", label, LABELS)
    words = tomllib.loads(DECLARATION.read_text()) | LABELS[label]
    return declare(words if test is None else words | {"test": dict(test)})


def read(declaration: TableDeclaration) -> Table:
    """Reads the table.

    Args:
        declaration: How it is declared.

    Returns:
        The table.
    """
    return read_table(
        DECLARATION.with_suffix(".parquet"),
        declaration.schema,
        seed=declaration.test.seed if declaration.test else 0,
        sites=declaration.sites,
    )
