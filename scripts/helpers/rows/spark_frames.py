"""Any DataFrame as a source of rows: its columns, its new rows, and the filter that is pushed down to it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from typing import Any

from scripts.helpers._lazy import DataFrame, F
from scripts.helpers.display.options import option_error
from scripts.helpers.errors import CursorError
from scripts.helpers.rows.cursors import Bound, Cursor, CursorColumn, missing_column, unordered
from scripts.helpers.rows.date_partitions import DatePartitions
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.sources import Facts, RowSource, has_chosen_zone, named_zone
from scripts.helpers.rows.sql import SQL, joined, sql, whole
from scripts.helpers.rows.states import check_types
from scripts.helpers.rows.window import RowWindow
from scripts.helpers.spark.jvm import analysed_plan, java_of
from scripts.helpers.spark.settings import check_all_is_read

logger = logging.getLogger(__name__)

# --- origins --------------------------------------------------------------------------------------
# Find where a column of a DataFrame comes from, by inspecting the query plan without running it.

NO_ROWS_OF = "OneRowRelation"
"""Spark's name for the source of a SELECT without FROM."""
TEXTS = ("CSV", "JSON")
"""File formats whose times are text. Spark reads a time without a zone in the time zone of the session."""


def is_partition_column(df: DataFrame, name: str) -> bool:
    """Return whether a column is a partition column of files, under any name, or computed only from such columns.

    Return False if the plan does not show the column's origin: for Spark Connect, for RDDs (such as Glue's
    DynamicFrames), and for a union whose first part has no such column.
    """
    plan = analysed_plan(df)
    if plan is None:
        return False
    of_folders = {number for leaf in _each(plan.collectLeaves()) for number in _partitions_of(leaf)}
    # Return False for a column without source columns, which is a constant or the current time.
    return bool(of_folders) and bool(wanted := _source_columns_of(plan, name)) and wanted <= of_folders


def is_constant_column(df: DataFrame, name: str) -> bool:
    """Return whether a column is computed from no column of a source: a constant, or the time of the read."""
    plan = analysed_plan(df)
    has_rows = plan is not None and any(_kind(leaf) != NO_ROWS_OF for leaf in _each(plan.collectLeaves()))
    return has_rows and not _source_columns_of(plan, name)


def wall_clock_of(df: DataFrame, name: str) -> str | None:
    """Return the reader of Spark that may have made instants of times without a zone: ``JDBC``, ``CSV`` or ``JSON``.

    ``JDBC`` only if the column's type in the database has no zone. None if Spark's query plan shows no such reader, and
    for a computed column, because the computation may have applied the zone.
    """
    plan = analysed_plan(df)
    if plan is None:
        return None
    wanted = _source_columns_of(plan, name, renamed=True)
    relations = (leaf for leaf in _each(plan.collectLeaves()) if _kind(leaf) == "LogicalRelation")
    for leaf in relations:
        found = [attribute.name() for attribute in _each(leaf.output()) if attribute.exprId().id() in wanted]
        relation, kind = leaf.relation(), _kind(leaf.relation())
        if found and kind == "JDBCRelation":
            return None if _has_zone(df, relation.jdbcOptions(), found[0]) else "JDBC"
        if found and kind == "HadoopFsRelation":
            return next((text for text in TEXTS if text == str(relation.fileFormat())), None)
    return None


def _has_zone(df: DataFrame, options: Any, column: str) -> bool:
    """Return whether a column's type has a zone. The JDBC driver is asked, as Spark drops the database's type."""
    dialect = java_of(df.sparkSession).org.apache.spark.sql.jdbc.JdbcDialects.get(options.url())
    connection = dialect.createConnectionFactory(options).apply(-1)
    try:
        found = connection.prepareStatement(dialect.getSchemaQuery(options.tableOrQuery())).getMetaData()
        places = range(1, found.getColumnCount() + 1)
        types = {found.getColumnLabel(at): str(found.getColumnTypeName(at)).lower() for at in places}
    finally:
        connection.close()
    of_mysql = ["timestamp"] if str(options.url()).startswith(("jdbc:mysql:", "jdbc:mariadb:")) else []
    return any(zone in types.get(column, "") for zone in ("tz", "zone", "offset", *of_mysql))


def _source_columns_of(plan: Any, name: str, *, renamed: bool = False) -> set[int]:
    """Return the ids of the source columns that a column is made of; with `renamed`, only one that it just renames."""
    columns = {attribute.name(): attribute.exprId().id() for attribute in _each(plan.output())}
    lower = {column.lower(): number for column, number in columns.items()}
    wanted: set[Any] = {columns.get(name, lower.get(name.lower()))}
    # Go from the top down, because a node computes its columns from the columns of the nodes below it.
    waiting = [plan]
    while waiting and wanted:
        node = waiting.pop()
        for number, made_by in _computed(node):
            if number in wanted:
                wanted.remove(number)
                if not renamed or _kind(made_by) == "AttributeReference":
                    wanted |= {made_of.exprId().id() for made_of in _each(made_by.references())}
        waiting.extend(_each(node.children()))
    return wanted


def _partitions_of(leaf: Any) -> Iterator[int]:
    """Yield the ids of a relation's partition columns."""
    if _kind(leaf) == "HiveTableRelation":
        yield from (attribute.exprId().id() for attribute in _each(leaf.partitionCols()))
    if _kind(leaf) == "LogicalRelation" and _kind(leaf.relation()) == "HadoopFsRelation":
        names = set(leaf.relation().partitionSchema().fieldNames())
        if names:
            yield from (attribute.exprId().id() for attribute in _each(leaf.output()) if attribute.name() in names)


def _computed(node: Any) -> Iterator[tuple[int, Any]]:
    """Yield the ids of the columns that a node computes, each with the expression that computes it."""
    kind = _kind(node)
    if kind == "Generate":
        yield from ((attribute.exprId().id(), node.generator()) for attribute in _each(node.generatorOutput()))
    if kind not in ("Project", "Aggregate", "Window"):
        return
    for expression in _each(node.expressions()):
        if _kind(expression) == "Alias":
            made_by = expression.child()
            if _kind(made_by) == "WindowExpression" and not made_by.windowFunction().references().isEmpty():
                # Yield only the window function: its values do not come from columns in PARTITION BY and ORDER BY.
                made_by = made_by.windowFunction()
            yield expression.exprId().id(), made_by


def _kind(of_java: Any) -> str:
    return str(of_java.getClass().getSimpleName())


def _each(of_scala: Any) -> Iterator[Any]:
    found = of_scala.iterator()
    while found.hasNext():
        yield found.next()


# --- spark frames ---------------------------------------------------------------------------------

JDBC_READER = "JDBCRelation("
"""Spark's name for its own JDBC reader in a plan."""


class DataFrameRows(RowSource):
    """The rows of a DataFrame or of Glue's DynamicFrame.

    Planning and reading are two queries. If the data changes between them, a new row with a cursor at
    or past `high` is in the next window; the delay covers new rows below it.

    Parameters
    ----------
    df
        The source. It must be possible to read it twice.
    partitions
        How the source is partitioned by date. Folders with dates outside the window are then not read,
        neither for rows nor to count NULLs; with ``nulls="take"`` all folders are read.
    zone
        Zone of the wall clock that stamps dates and columns without zone, such as ``Europe/London`` or ``UTC``. Without
        it, a first run with such a column raises CursorError, unless the job has a clock in a zone other than UTC: then
        that zone is used. A job that already has a watermark continues in UTC, with a WARNING.
    name
        The name of the source, for messages.

    Notes
    -----
    Pass it to a job as ``job.rows_since(DataFrameRows(df, partitions=days), "last_modified")``, with
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
        # Recognize a DynamicFrame by its methods, as awsglue exists only on Glue. A DataFrame also has a `toDF`.
        is_dynamic = not hasattr(type(df), "where") and hasattr(type(df), "toDF")
        self.df: DataFrame = df.toDF() if is_dynamic else df
        check_all_is_read(self.df.sparkSession)
        self.name, self._partitions = name, partitions
        self._zone = None if zone is None else named_zone(zone, name)

    def columns(self, names: Sequence[str], strings: bool) -> tuple[CursorColumn, ...]:
        """Return the cursor columns; raise CursorError if one is missing or has no exact order."""
        return tuple(self._column(name, strings) for name in names)

    def _column(self, name: str, strings: bool) -> CursorColumn:
        # Try the exact name first: if Spark is case-sensitive, `Id` and `id` are two columns.
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
        """Return whether the caller or the job's clock gave a zone for dates and for columns without zone."""
        return self._zone is not None or has_chosen_zone(now)

    def is_partition(self, column: CursorColumn) -> bool:
        """Return whether the cursor is made only of partition columns of files; False if Spark does not show it."""
        return is_partition_column(self.df, column.name)

    def wall_clock(self, column: CursorColumn) -> str | None:
        """Return Spark's reader, such as ``CSV``, if it may have turned a cursor's times without zone into instants."""
        return wall_clock_of(self.df, column.name)

    def facts(self, columns: tuple[CursorColumn, ...], low: Bound | None, descending: bool) -> Facts:
        """Count NULLs and find the last cursor value at `low` or past it, as exact text, in one aggregate."""
        if is_constant_column(self.df, columns[0].name):
            raise CursorError(
                columns[0].name,
                "it is computed from no column of the source, so its values do not show which rows are new. Name a "
                "column that the rows are stored with.",
            )
        if self._reads_a_database():
            logger.warning(
                "event=jdbc_frame source=%s: Spark's own JDBC reader shows neither the database's clock nor its open "
                "transactions. Use JdbcTable(spark, url, table) as the source", self.name,
            )  # fmt: skip
        probe = RowWindow(columns, low, None, descending=descending)
        nulls = probe.null_predicate(SPARK)
        source = self._pruned(columns, low, None)
        # Count the NULLs of all rows: a NULL is never past `low`, so otherwise new rows with NULL would go unreported.
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
        """Return None (unknown transactions) for Spark's own JDBC reader, which shows none; otherwise an empty set."""
        return None if self._reads_a_database() else frozenset()

    def _reads_a_database(self) -> bool:
        # Return False without a plan, as on Spark Connect, and for an RDD, whose plan does not show what it reads.
        plan = analysed_plan(self.df)
        return plan is not None and JDBC_READER in plan.toString()

    def cursor_at(self, window: RowWindow, position: int) -> Bound | None:
        """Return the cursor of the row at a position of a window, counted from 0; None if it has fewer rows."""
        keys = [F.expr(SPARK.quote(column.name)) for column in window.columns]
        ordered = self.rows(window).orderBy(*[key.desc() if window.descending else key.asc() for key in keys])
        # Take only the rows up to the position: the last of them is the wanted row, and `_last` reads its cursor.
        last = _last(window.columns, window.null_predicate(SPARK), window.descending)
        row = ordered.limit(position + 1).selectExpr("count(1)", *last).head()
        assert row is not None
        if row[0] <= position:
            return None
        return tuple(column.from_text(text) for column, text in zip(window.columns, row[1:], strict=True))

    def rows(self, window: RowWindow) -> DataFrame:
        """Return the rows of a window; raise CursorError if a column is gone or has another type than in the plan."""
        now = self.columns([column.name for column in window.columns], strings=True)
        check_types(now, window.columns)
        # Read all folders for rows with NULL: a row without a cursor has no date, so it may be in any folder.
        every = window.high is None or window.nulls == "take"
        source = self.df if every else self._pruned(now, window.read_low, window.high)
        return source.where(window.predicate(SPARK))

    def _pruned(self, columns: tuple[CursorColumn, ...], low: Bound | None, high: Bound | None) -> DataFrame:
        """Return the DataFrame without the partitions that have no rows between two bounds."""
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
    """Return a source of rows unchanged, and a DataFrame or DynamicFrame as a `DataFrameRows`."""
    if isinstance(source, RowSource):
        return source
    if not hasattr(source, "toDF"):
        raise option_error("source", f"a {type(source).__name__} has no rows. Pass a DataFrame, as of spark.table(…).")
    return DataFrameRows(source, name=name)


def _day(bound: Bound | None) -> date | None:
    value: Cursor | None = None if bound is None else bound[0]
    if isinstance(value, datetime):
        return value.date()
    return value if isinstance(value, date) else None


def _last(columns: tuple[CursorColumn, ...], nulls: SQL, descending: bool) -> list[SQL]:
    """Return SQL for the last cursor of all rows in the order of reading: one exact text for each column."""
    names = [SPARK.quote(column.name) for column in columns]
    function = sql("min" if descending else "max")
    if len(names) == 1:
        found = [sql("{}({})", function, names[0])]
    else:
        # Compare structs, which compare from the first field on, as a compound cursor does: the maxima of the single
        # columns may belong to different rows. Leave out rows with NULL, which is below all values in a struct.
        pairs = joined(", ", (sql("'c{}', {}", whole(position), name) for position, name in enumerate(names)))
        together = sql("{}(named_struct({})) FILTER (WHERE NOT ({}))", function, pairs, nulls)
        found = [sql("({}).c{}", together, whole(position)) for position in range(len(names))]
    return [SPARK.exact(expression, column.type) for column, expression in zip(columns, found, strict=True)]
