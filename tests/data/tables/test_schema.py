"""A schema says all that a raw row needs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfl.data.tables.schema import Schema
from dpfl.data.tables.table import Table, read_table
from tests.conftest import example
from tests.data.tables.small_table import COLUMNS, schema

cells = st.fixed_dictionaries(
    {
        "sex": st.sampled_from(["f", "m", " m", "", "NA", "other", "x"]),
        "age": st.one_of(st.just(""), st.integers(-50, 150).map(str)),
        "cost": st.one_of(st.just("NA"), st.floats(-10, 2000).map(str)),
        "grade": st.sampled_from(["1", "2.5", "3", "3.0"]),
    }
)


def table_of(path: Path, rows: list[Any], declared: Schema) -> Table:
    lines = [",".join((*(row[name] for name in COLUMNS), "1")) for row in rows]
    path.write_text("\n".join([",".join((*COLUMNS, "died")), *lines]))
    return read_table(path, declared)


@settings(max_examples=30)
@given(st.lists(cells, min_size=1, max_size=8))
def test_the_exported_schema_is_all_that_a_raw_row_needs(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any]
) -> None:
    path = tmp_path_factory.mktemp("rows") / "table.csv"
    declared = schema(site=None, person=None, time=None)
    table = table_of(path, rows, declared)
    said, plain = json.loads(declared.to_json()), example("predict_without_dpfl")
    numbers, levels = declared.features.numbers, declared.features.levels
    codes = table.rows.x[:, numbers:].astype(int)
    dense = [
        table.rows.x[:, :numbers],
        *(np.eye(count)[column] for count, column in zip(levels, codes.T, strict=True)),
    ]
    np.testing.assert_allclose(
        np.concatenate(dense, axis=1), [plain.features(row, said) for row in rows], atol=1e-6
    )
