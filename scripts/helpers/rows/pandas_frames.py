"""A DataFrame of pandas as a source of rows, compared exactly and without Spark."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from numbers import Integral
from typing import Any, TypeGuard

from scripts.helpers._lazy import pa, pd
from scripts.helpers.errors import CursorError
from scripts.helpers.rows.arrow_columns import ArrowColumns
from scripts.helpers.rows.cursors import Bound, CursorColumn, missing_column
from scripts.helpers.rows.sources import Facts, named_zone
from scripts.helpers.rows.window import RowWindow


def is_pandas(source: Any) -> TypeGuard[pd.DataFrame]:
    """Tell whether something is a DataFrame of pandas, without importing pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(source, getattr(pandas, "DataFrame", ()))


class PandasRows:
    """The rows of a DataFrame of pandas; needs pyarrow, and no Spark.

    Types are those that pyarrow finds: aware datetimes are ``timestamp``, others ``timestamp_ntz``, and both
    are compared in whole microseconds of UTC, whatever their unit. A column that was whole numbers
    before pandas put NaN into it is floats, and refused: read it as ``Int64``. A column of objects
    must hold one kind of them.

    Parameters
    ----------
    frame
        All rows, or at least those past the watermark.
    zone
        As that of `DataFrameRows`: of columns without zone, and of dates.
    name
        For messages.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = PandasRows(pd.DataFrame({"id": [3, 1, 2]}))
    >>> rows.facts(rows.columns(["id"], strings=False), None, descending=False).largest
    (3,)
    """

    def __init__(self, frame: pd.DataFrame, *, zone: str | None = None, name: str = "DataFrame") -> None:
        self.frame, self.name = frame, name
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

    def rows(self, window: RowWindow) -> pd.DataFrame:
        """Return the rows of a window, as they stand; CursorError if a column is gone or of another type by now."""
        self._columns.check(window)
        if window.whole:
            return self.frame
        taken = self._columns.taken(window)
        return self.frame[taken.to_numpy(zero_copy_only=False)]

    def cursor_at(self, window: RowWindow, position: int) -> Bound | None:
        """Return the cursor of one row of a window, counted from 0; None if it has fewer rows."""
        return self._columns.cursor_at(window, position)

    def counts(self, rows: pd.DataFrame, window: RowWindow) -> dict[str, Any]:
        """Count rows that `rows` has returned, with their smallest and largest cursor where those can be told."""
        return self._columns.counts(len(rows), window, self.name)

    def typed_errors(self) -> AbstractContextManager[None]:
        """Do nothing: the rows are there."""
        return nullcontext()

    def _array(self, name: str) -> tuple[pa.Array, bool]:
        there = [str(column) for column in self.frame.columns]
        if there.count(name) != 1:
            raise missing_column(name, there)
        series = self.frame.iloc[:, there.index(name)]
        # pyarrow makes one type of some mixtures without a word, such as of datetimes with and without zone, and they
        # would compare otherwise than where they come from.
        of_objects = str(series.dtype) == "object"
        kinds = sorted(set(map(_kind, series.dropna()))) if of_objects else []
        if len(kinds) > 1:
            raise CursorError(
                name, f"its values are not all of one type ({series.dtype}): {', '.join(kinds)}. Give it one."
            )
        try:
            array = pa.Array.from_pandas(series)
        except OverflowError:
            raise CursorError(
                name, "it holds numbers of more than 64 bits. Give it an Arrow decimal type, as in df.astype."
            ) from None
        except (pa.ArrowException, TypeError, ValueError):
            raise CursorError(
                name, f"its values are not all of one type ({series.dtype}). Give it one, as in df.astype."
            ) from None
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        return array, of_objects


def _kind(value: object) -> str:
    """Name the kind of an object, so that those of one kind compare."""
    if isinstance(value, datetime):
        return "datetime" if value.tzinfo is None else "aware datetime"
    if isinstance(value, Integral) and not isinstance(value, bool):
        return "int"
    return type(value).__name__
