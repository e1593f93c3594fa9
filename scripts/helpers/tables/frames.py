"""Return a table's rows in the form that the user gets, with Spark or without, and add the columns of a change feed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Literal

from scripts.helpers._lazy import DataFrame, F, SparkSession, pa, pc, pd
from scripts.helpers.errors import SourceError
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.sql import sql, whole
from scripts.helpers.sinks.connectors import rows_at
from scripts.helpers.spark.jvm import without_code
from scripts.helpers.tables.spans import CHANGE, FEED_COLUMNS, GONE, ORDER, TIME, VERSION, TableSpan

Returns = Literal["pandas", "arrow"]


def check_no_feed_columns(columns: Collection[str], name: str, known: Collection[str] = ()) -> None:
    """Raise SourceError if a column of the table has the name of a column that a change feed adds (`FEED_COLUMNS`)."""
    taken = [column for column in columns if column.lower() in FEED_COLUMNS and column not in known]
    if taken:
        raise SourceError(
            name, f"it has a column {taken[0]!r} of its own, as a feed adds one. Rename it.", reason="change_feed"
        )


# --- Spark ------------------------------------------------------------------------------------------


def ordered_changes(changes: DataFrame) -> DataFrame:
    """Return changes with a column `ORDER`: 0 for a row that the commit removed, 1 for a row that it wrote."""
    return changes.withColumn(ORDER, F.when(F.col(CHANGE).isin(*GONE), 0).otherwise(1))


def with_feed_literals(rows: DataFrame, span: TableSpan, name: str) -> DataFrame:
    """Return rows of a whole table with the columns of a change data feed (`FEED_COLUMNS`). Each row is an insert."""
    check_no_feed_columns(rows.columns, name)
    return rows.select(
        "*",
        F.lit("insert").alias(CHANGE),
        F.lit(span.sequence).cast("bigint").alias(VERSION),
        _instant(span.at).alias(TIME),
        F.lit(1).alias(ORDER),
    )


def whole_rows(spark: SparkSession, format: str, table: str, span: TableSpan, name: str) -> DataFrame:
    """Return all rows of a table at the end of a span; see `TableEngine.whole`."""
    # For an empty span, return only the columns. Use those of the newest version: the span's version may be gone.
    found = rows_at(spark, format, table, None if span.is_empty else span.until)
    found = without_code(found, name)
    return with_feed_literals(found, span, name) if span.is_feed else found


def changelog_as_feed(changes: DataFrame, commits: Mapping[int, tuple[int, datetime]], name: str) -> DataFrame:
    """Return Iceberg's changelog with the columns of a feed, among them each snapshot's sequence number and time.

    The changelog's own ``_change_ordinal`` restarts with each read, so it cannot order the rows of several batches.
    """
    own = {"_change_type", "_change_ordinal", "_commit_snapshot_id"}
    columns = [column for column in changes.columns if column not in own]
    check_no_feed_columns(columns, name)
    quoted = [F.col(SPARK.quote(column)) for column in columns]
    numbers, times = [], []
    for snapshot, (sequence, at) in commits.items():
        numbers += [F.lit(snapshot).cast("bigint"), F.lit(sequence).cast("bigint")]
        times += [F.lit(snapshot).cast("bigint"), _instant(at)]
    snapshot_id = F.col("_commit_snapshot_id")
    change = F.lower(F.col("_change_type"))
    return ordered_changes(
        changes.select(
            *quoted,
            change.alias(CHANGE),
            F.create_map(*numbers)[snapshot_id].alias(VERSION),
            F.create_map(*times)[snapshot_id].alias(TIME),
        )
    )


def _instant(at: datetime | None):  # type: ignore[no-untyped-def]
    """Return an instant as a timestamp column, whatever the zone of the session."""
    if at is None:
        return F.lit(None).cast("timestamp")
    # Use SQL, because in Spark 3.3 only SQL has `timestamp_micros`.
    return F.expr(sql("timestamp_micros({})", whole(round(at.timestamp() * 1_000_000))))


# --- pyarrow ----------------------------------------------------------------------------------------


def frame_of_arrow(rows: Any, returns: Returns) -> Any:
    """Return a pyarrow table as it is, or as pandas if `returns` is "pandas". Return a Spark frame unchanged."""
    if returns == "arrow" or hasattr(rows, "sparkSession"):
        return rows
    # Use Arrow's types, which hold every value exactly: NumPy has no integers with NULL, and no decimals.
    return rows.to_pandas(types_mapper=pd.ArrowDtype)


def with_feed_columns(rows: pa.Table, span: TableSpan, name: str, schema: pa.Schema | None = None) -> pa.Table:
    """Add the columns of a change feed to rows: to changes, cast to the table's types, or to a whole table, as inserts.

    Parameters
    ----------
    schema
        The schema of the table, if the rows are changes that `deltalake` read; None for rows of a whole table.
    """
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
        # `deltalake` returns times in UTC, but without a time zone: add the zone.
        times = times.cast(instant) if times.type.tz else pc.assume_timezone(times.cast(pa.timestamp("us")), "UTC")
    order = pc.if_else(pc.is_in(changes, pa.array(GONE)), 0, 1).cast(pa.int32())
    for column, values in ((CHANGE, changes), (VERSION, versions), (TIME, times), (ORDER, order)):
        found = found.append_column(column, values)
    return found
