"""A DataFrame of pandas as a source of rows, compared exactly and without Spark."""

from __future__ import annotations

import sys
from datetime import datetime
from numbers import Integral
from typing import Any, TypeGuard

from scripts.helpers._lazy import pa, pd
from scripts.helpers.errors import CursorError
from scripts.helpers.rows.arrow_columns import MemoryRows
from scripts.helpers.rows.cursors import missing_column


def is_pandas(source: Any) -> TypeGuard[pd.DataFrame]:
    """Tell whether something is a DataFrame of pandas, without importing pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(source, getattr(pandas, "DataFrame", ()))


class PandasRows(MemoryRows["pd.DataFrame"]):
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
        super().__init__(zone, name)
        self.frame = frame

    def _those(self, taken: pa.Array | None) -> pd.DataFrame:
        return self.frame if taken is None else self.frame[taken.to_numpy(zero_copy_only=False)]

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
