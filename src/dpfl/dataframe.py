"""Rows that other tools take as a table: as Arrow, as pandas where that is installed, and in every
library that reads Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpfl.errors import DpflError

if TYPE_CHECKING:
    import pyarrow as pa


class ColumnTable:
    """Rows of one kind, which convert into the tables of other libraries."""

    def columns(self) -> Mapping[str, Sequence[Any]]:
        """Gives the content of the table; a subclass defines it.

        Returns:
            The values of each column by its name, all of one length.
        """
        raise NotImplementedError

    def to_arrow(self) -> pa.Table:
        """Converts the rows into a table of Arrow.

        Returns:
            A table with the same columns; None is null.
        """
        import pyarrow as pa

        return pa.table({name: list(values) for name, values in self.columns().items()})

    def to_pandas(self) -> Any:
        """Converts the rows into a DataFrame. pandas is imported here, as it is no dependency.

        Returns:
            A `pandas.DataFrame` with the same columns.

        Raises:
            DpflError: pandas is not installed.
        """
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise DpflError(
                "pandas is not installed: pip install pandas, or take .to_arrow()."
            ) from None
        return self.to_arrow().to_pandas()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Lets every library that reads Arrow take the rows as they are: `polars.DataFrame(rows)`,
        duckdb, `pandas.DataFrame.from_arrow(rows)`.
        """
        return self.to_arrow().__arrow_c_stream__(requested_schema)
