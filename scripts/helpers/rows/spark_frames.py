"""Any DataFrame as a source of rows: its columns, what is new in it, and the filter that reaches it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Any

from scripts.helpers._lazy import DataFrame, F
from scripts.helpers.errors import CursorError, SourceOptionError
from scripts.helpers.rows.cursors import Bound, Cursor, CursorColumn, missing_column, unordered
from scripts.helpers.rows.date_partitions import DatePartitions
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.origins import is_of_folders, is_of_no_column, wall_clock_of
from scripts.helpers.rows.sources import Facts, RowSource, named_zone, says_zone
from scripts.helpers.rows.sql import SQL, joined, sql, whole
from scripts.helpers.rows.states import check_types
from scripts.helpers.rows.window import RowWindow
from scripts.helpers.spark.jvm import analysed_plan
from scripts.helpers.spark.settings import check_all_is_read

logger = logging.getLogger(__name__)

JDBC_READER = "JDBCRelation("
"""What Spark calls its own reader of databases in a plan."""


class DataFrameRows(RowSource):
    """The rows of a DataFrame or of Glue's DynamicFrame.

    Planning and reading are two queries. Where the data changes between them, a row that came late
    is in the next window if its cursor is at or past `high`; the delay is for those below.

    Parameters
    ----------
    df
        The source. Reading it twice must be possible.
    partitions
        How it is partitioned by date. Folders of other dates than those of the window are then not
        read, neither for rows nor to count NULLs; with ``nulls="take"`` all are.
    zone
        Zone whose wall clock columns without zone, and dates, are stamped with, such as ``Europe/London`` or ``UTC``.
        A first run by such a column is a CursorError without it, unless the job has a clock in another zone than UTC,
        whose zone is then taken. A run of a watermark that there was before goes on in UTC, with a WARNING.
    name
        For messages.

    Notes
    -----
    Given to a job as ``job.rows_since(DataFrameRows(df, partitions=days), "last_modified")``, with
    ``days = DatePartitions("import_year=%Y/import_month=%m/import_day=%d")``.
    """

    def __init__(
        self,
        df: DataFrame | Any,
        *,
        partitions: DatePartitions | None = None,
        zone: str | None = None,
        name: str = "DataFrame",
    ) -> None:
        # By its methods, as awsglue is there on Glue only. A DataFrame has a toDF as well, with other arguments.
        is_dynamic = not hasattr(type(df), "where") and hasattr(type(df), "toDF")
        self.df: DataFrame = df.toDF() if is_dynamic else df
        check_all_is_read(self.df.sparkSession)
        self.name, self._partitions = name, partitions
        self._zone = None if zone is None else named_zone(zone, name)

    def columns(self, names: Sequence[str], strings: bool) -> tuple[CursorColumn, ...]:
        """Return the cursor columns; CursorError for one that is missing or has no exact order."""
        return tuple(self._column(name, strings) for name in names)

    def _column(self, name: str, strings: bool) -> CursorColumn:
        # The exact name first: where Spark compares names exactly, `Id` and `id` are two columns.
        there = self.df.columns
        found = [other for other in there if other == name]
        if not found:
            found = [other for other in there if other.lower() == name.lower()]
        if len(found) != 1:
            raise missing_column(name, there)
        kind = self.df.schema[found[0]].dataType.simpleString()
        if kind == "string" and not strings:
            raise unordered(name, kind, as_text=True)
        return CursorColumn(name, kind)

    def zone_is_known(self, now: datetime) -> bool:
        """Tell whether the zone of columns without zone, and of dates, was given, or is that of the job's clock."""
        return self._zone is not None or says_zone(now)

    def is_partition(self, column: CursorColumn) -> bool:
        """Tell whether the cursor is made of partition columns of files alone; False where Spark does not show it."""
        return is_of_folders(self.df, column.name)

    def wall_clock(self, column: CursorColumn) -> str | None:
        """Return what Spark made the instants of a cursor from, where that may be a wall clock."""
        return wall_clock_of(self.df, column.name)

    def facts(self, columns: tuple[CursorColumn, ...], low: Bound | None, descending: bool) -> Facts:
        """Count NULLs and find the last cursor value at `low` or past it, as exact text, in one aggregate."""
        if is_of_no_column(self.df, columns[0].name):
            raise CursorError(
                columns[0].name,
                "it is computed from no column of the source, so its values do not show which rows are new. Name a "
                "column that the rows are stored with.",
            )
        if self._reads_a_database():
            logger.warning(
                "event=jdbc_frame source=%s: Spark's own JDBC reader tells neither the database's clock nor its open "
                "transactions. Give the table as JdbcTable(spark, url, table)", self.name,
            )  # fmt: skip
        probe = RowWindow(columns, low, None, descending=descending)
        nulls = probe.null_predicate(SPARK)
        source = self._pruned(columns, low, None)
        # Rows with NULL are counted wherever they are: no window takes them, so old ones are as lost as new ones.
        if low is not None:
            source = source.where(sql("{} OR ({})", nulls, probe.at_or_past(low, SPARK)))
        asked = [*_last(columns, nulls, descending), sql("count_if({})", nulls)]
        if columns[0].type == "string":
            length = sql("length({})", SPARK.quote(columns[0].name))
            asked += [sql("min({})", length), sql("max({})", length)]
        row = source.selectExpr(*asked).head()
        assert row is not None
        last = None
        if row[0] is not None:
            last = tuple(column.from_text(text) for column, text in zip(columns, row, strict=False))
        return Facts(
            largest=None if descending else last,
            smallest=last if descending else None,
            nulls=row[len(columns)],
            zone=self._zone,
            widths=tuple(width for width in row[len(columns) + 1 :] if width is not None),
            slack=None if self._partitions is None else self._partitions.slack,
        )

    def writers(self, column: str, longest: timedelta) -> frozenset[str] | None:
        """Return None, as nobody can tell, where Spark's own JDBC reader made the DataFrame; else no transaction."""
        return None if self._reads_a_database() else frozenset()

    def _reads_a_database(self) -> bool:
        # A DataFrame of Spark Connect has no plan here, and what comes from an RDD does not say where that read.
        plan = analysed_plan(self.df)
        return plan is not None and JDBC_READER in plan.toString()

    def cursor_at(self, window: RowWindow, position: int) -> Bound | None:
        """Return the cursor of one row of a window, counted from 0; None if it has fewer rows."""
        keys = [F.expr(SPARK.quote(column.name)) for column in window.columns]
        ordered = self.rows(window).orderBy(*[key.desc() if window.descending else key.asc() for key in keys])
        # The row is the last one of those up to it, and is read as `facts` reads the last one.
        last = _last(window.columns, window.null_predicate(SPARK), window.descending)
        row = ordered.limit(position + 1).selectExpr("count(1)", *last).head()
        assert row is not None
        if row[0] <= position:
            return None
        return tuple(column.from_text(text) for column, text in zip(window.columns, row[1:], strict=True))

    def rows(self, window: RowWindow) -> DataFrame:
        """Return the rows of a window; CursorError if a column is gone or not of the type it was planned with."""
        now = self.columns([column.name for column in window.columns], strings=True)
        check_types(now, window.columns)
        # NULL is in no folder's date, so rows without a cursor may be in any folder.
        every = window.high is None or window.nulls == "take"
        source = self.df if every else self._pruned(now, window.read_low, window.high)
        return source.where(window.predicate(SPARK))

    def _pruned(self, columns: tuple[CursorColumn, ...], low: Bound | None, high: Bound | None) -> DataFrame:
        """Leave out the partitions that hold nothing between two bounds."""
        if self._partitions is None:
            return self.df
        if not columns[0].is_time:
            raise CursorError(
                columns[0].name, f"a {columns[0].type} has no date to find partitions by. Leave out partitions."
            )
        types = {field.name: field.dataType.simpleString() for field in self.df.schema.fields}
        predicate = self._partitions.predicate(types, _day(low), _day(high))
        return self.df if predicate is None else self.df.where(predicate)


def as_source(source: Any, name: str) -> RowSource:
    """Return a source of rows as it is; a DataFrame or DynamicFrame as one."""
    if isinstance(source, RowSource):
        return source
    if not hasattr(source, "toDF"):
        raise SourceOptionError(
            "source", f"a {type(source).__name__} has no rows. Pass a DataFrame, as of spark.table(…)."
        )
    return DataFrameRows(source, name=name)


def _day(bound: Bound | None) -> date | None:
    value: Cursor | None = None if bound is None else bound[0]
    if isinstance(value, datetime):
        return value.date()
    return value if isinstance(value, date) else None


def _last(columns: tuple[CursorColumn, ...], nulls: SQL, descending: bool) -> list[SQL]:
    """Write the last cursor there is, column by column, as exact text."""
    names = [SPARK.quote(column.name) for column in columns]
    function = sql("min" if descending else "max")
    if len(names) == 1:
        found = [sql("{}({})", function, names[0])]
    else:
        # A struct compares from its first field on, as a compound cursor does; the largest of each column by itself
        # would be a row that is not there. NULL is below everything in a struct, so such rows are left out.
        pairs = joined(", ", (sql("'c{}', {}", whole(position), name) for position, name in enumerate(names)))
        together = sql("{}(named_struct({})) FILTER (WHERE NOT ({}))", function, pairs, nulls)
        found = [sql("({}).c{}", together, whole(position)) for position in range(len(names))]
    return [SPARK.exact(expression, column.type) for column, expression in zip(columns, found, strict=True)]
