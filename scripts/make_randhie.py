"""Makes the embedded table of the RAND Health Insurance Experiment: python scripts/make_randhie.py
RANDHIE_CSV.

The file is the one that statsmodels ships as datasets/randhie/src/randhie.csv, gzipped or not."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet

from dpfl.data.sources.randhie_table import DECLARATION, declaration

TARGET = DECLARATION.with_suffix(".parquet")


def main(source: Path) -> None:
    """Writes the columns that the declaration names."""
    table = csv.read_csv(source)
    small_table = pa.table(
        {name: _small(table[name]) for name in declaration("visits").schema.read}
    )
    parquet.write_table(small_table, TARGET, compression="zstd", compression_level=19)
    print(
        f"{TARGET.name}: {small_table.num_rows} rows, {small_table.num_columns} columns, "
        f"{TARGET.stat().st_size} bytes"
    )


def _small(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.int32() if pa.types.is_integer(column.type) else pa.float32())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
