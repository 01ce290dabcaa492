"""Rows that other tools take as a table: as Arrow, as pandas where that is installed, and by
whoever reads Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpfl.errors import DpflError

if TYPE_CHECKING:
    import pyarrow as pa


class ColumnTable:
    """What has columns of one length."""

    def columns(self) -> Mapping[str, Sequence[Any]]:
        raise NotImplementedError

    def to_arrow(self) -> pa.Table:
        """A column a field; None is null."""
        import pyarrow as pa

        return pa.table({name: list(values) for name, values in self.columns().items()})

    def to_pandas(self) -> Any:
        """A DataFrame; pandas is no dependency, and is asked for where it is needed."""
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise DpflError(
                "pandas is not installed: pip install pandas, or take .to_arrow()."
            ) from None
        return self.to_arrow().to_pandas()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Whoever knows Arrow reads it as a table: polars.DataFrame(rows), duckdb,
        pandas.DataFrame.from_arrow(rows).
        """
        return self.to_arrow().__arrow_c_stream__(requested_schema)
