"""A table of pyarrow as a source of rows, compared exactly, without Spark and without pandas."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any, TypeGuard

from scripts.helpers._lazy import pa
from scripts.helpers.errors import CursorError, SourceError
from scripts.helpers.rows.arrow_columns import ArrowColumns
from scripts.helpers.rows.cursors import Bound, CursorColumn, missing_column
from scripts.helpers.rows.sources import Facts, named_zone
from scripts.helpers.rows.window import RowWindow

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


class ArrowRows:
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
        self.table: pa.Table = table if isinstance(table, pa.Table) else pa.Table.from_batches([table])
        self.name = name
        self._columns = ArrowColumns(self._array, None if zone is None else named_zone(zone, name))

    def columns(self, names: Sequence[str], strings: bool) -> tuple[CursorColumn, ...]:
        """Return the cursor columns; CursorError for one that is missing or has no exact order."""
        return self._columns.columns(names, strings)

    def zone_is_known(self, now: datetime) -> bool:
        """Tell whether the zone of columns without zone, and of dates, was given, or is that of the job's clock."""
        return self._columns.zone_is_known(now)

    def facts(self, columns: tuple[CursorColumn, ...], low: Bound | None, descending: bool) -> Facts:
        """Count NULLs and find the last cursor value at `low` or past it."""
        return self._columns.facts(columns, low, descending)

    def rows(self, window: RowWindow) -> pa.Table:
        """Return the rows of a window, as they stand; CursorError if a column is gone or of another type by now."""
        self._columns.check(window)
        if window.whole:
            return self.table
        return self.table.filter(self._columns.taken(window))

    def cursor_at(self, window: RowWindow, position: int) -> Bound | None:
        """Return the cursor of one row of a window, counted from 0; None if it has fewer rows."""
        return self._columns.cursor_at(window, position)

    def counts(self, rows: pa.Table, window: RowWindow) -> dict[str, Any]:
        """Count rows that `rows` has returned, with their smallest and largest cursor where those can be told."""
        return self._columns.counts(rows.num_rows, window, self.name)

    def typed_errors(self) -> AbstractContextManager[None]:
        """Do nothing: the rows are there."""
        return nullcontext()

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
