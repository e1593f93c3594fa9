"""A table of pyarrow as a source of rows, compared exactly, without Spark and without pandas."""

from __future__ import annotations

import sys
from typing import Any, TypeGuard

from scripts.helpers._lazy import pa
from scripts.helpers.errors import CursorError, SourceError
from scripts.helpers.rows.arrow_columns import MemoryRows
from scripts.helpers.rows.cursors import missing_column

HOW_TO_READ = {"RecordBatchReader": "read_all()", "Dataset": "to_table()", "Scanner": "to_table()"}
"""What makes a table of the other things of pyarrow that hold rows. Each is read anew or only once, so a plan and the
read after it could see other rows."""


def is_arrow(source: Any) -> TypeGuard[pa.Table | pa.RecordBatch]:
    """Tell whether something is a table or a batch of pyarrow, without importing pyarrow.

    Raises
    ------
    SourceError
        It is a reader or a dataset of pyarrow.
    """
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is None:
        return False
    for kind in type(source).__mro__:
        if kind.__module__.startswith("pyarrow") and kind.__name__ in HOW_TO_READ:
            raise SourceError(
                kind.__name__, f"its rows could be others at the next look. Give .{HOW_TO_READ[kind.__name__]} of it."
            )
    return isinstance(source, (getattr(pyarrow, "Table", ()), getattr(pyarrow, "RecordBatch", ())))


class ArrowRows(MemoryRows["pa.Table"]):
    """The rows of a table or record batch of pyarrow; needs no Spark, and returns tables of pyarrow.

    Types are those of `PandasRows`: timestamps with a zone are ``timestamp``, others ``timestamp_ntz``, and both are
    compared in whole microseconds of UTC, whatever their unit.

    Parameters
    ----------
    table
        All rows, or at least those past the watermark.
    zone
        As that of `DataFrameRows`: of columns without zone, and of dates.
    name
        For messages.

    Examples
    --------
    >>> import pyarrow as pa
    >>> rows = ArrowRows(pa.table({"id": [3, 1, 2]}))
    >>> rows.facts(rows.columns(["id"], strings=False), None, descending=False).largest
    (3,)
    """

    def __init__(self, table: pa.Table | pa.RecordBatch, *, zone: str | None = None, name: str = "Table") -> None:
        super().__init__(zone, name)
        self.table: pa.Table = table if isinstance(table, pa.Table) else pa.Table.from_batches([table])

    def _those(self, taken: pa.Array | None) -> pa.Table:
        return self.table if taken is None else self.table.filter(taken)

    def _array(self, name: str) -> tuple[pa.Array, bool]:
        there = self.table.column_names
        if there.count(name) != 1:
            raise missing_column(name, there)
        column = self.table.column(name)
        # Texts of many chunks may be more than 32 bits can address together.
        if pa.types.is_string(column.type):
            column = column.cast(pa.large_string())
        try:
            found = column.combine_chunks()
        except pa.ArrowException:
            raise CursorError(name, "its chunks are too large to be joined. Give the rows in smaller tables.") from None
        return found, False
