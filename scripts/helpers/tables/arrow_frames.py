"""Rows that are read without Spark: as the user gets them, and with the columns that a feed adds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from scripts.helpers.errors import SourceOptionError
from scripts.helpers.tables.spans import CHANGE, GONE, ORDER, TIME, VERSION, TableSpan
from scripts.helpers.tables.spark_frames import check_no_feed_columns

if TYPE_CHECKING:
    import pyarrow as pa

Returns = Literal["pandas", "arrow"]


def check_returns(returns: object, *, with_spark: bool) -> None:
    """Raise SourceOptionError for an unknown form of rows, or for one beside Spark."""
    if returns is None:
        return
    if returns not in get_args(Returns):
        raise SourceOptionError("returns", f"{returns!r} is unknown. Use 'pandas' or 'arrow'.")
    if with_spark:
        raise SourceOptionError("returns", "it is of rows without Spark. Leave it out, or leave spark out.")


def of_arrow(rows: Any, returns: Returns) -> Any:
    """Return a table of pyarrow as the user asked for it, and a frame of Spark as it is."""
    if returns == "arrow" or hasattr(rows, "sparkSession"):
        return rows
    import pandas as pd

    # NumPy has no whole numbers with NULL, and no decimals: with Arrow's types each value stays what it was.
    return rows.to_pandas(types_mapper=pd.ArrowDtype)


def with_feed_columns(rows: pa.Table, span: TableSpan, name: str, schema: pa.Schema | None = None) -> pa.Table:
    """Return rows as a feed: changes in the types of the table, or rows of a whole table as inserts.

    Parameters
    ----------
    schema
        Of the table, where the rows are changes as `deltalake` reads them; None for rows of a whole table.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    instant = pa.timestamp("us", "UTC")
    if schema is None:
        check_no_feed_columns(rows.column_names, name)
        found, count = rows, rows.num_rows
        changes = pa.repeat(pa.scalar("insert"), count)
        versions = pa.repeat(pa.scalar(span.sequence, pa.int64()), count)
        times = pa.repeat(pa.scalar(span.at, instant), count)
    else:
        check_no_feed_columns(schema.names, name)
        found = rows.select(schema.names).cast(schema)
        changes = rows.column(CHANGE).cast(pa.string())
        versions = rows.column(VERSION).cast(pa.int64())
        times = rows.column(TIME)
        # `deltalake` writes times of UTC without a zone.
        times = times.cast(instant) if times.type.tz else pc.assume_timezone(times.cast(pa.timestamp("us")), "UTC")
    order = pc.if_else(pc.is_in(changes, pa.array(GONE)), 0, 1).cast(pa.int32())
    for column, values in ((CHANGE, changes), (VERSION, versions), (TIME, times), (ORDER, order)):
        found = found.append_column(column, values)
    return found
