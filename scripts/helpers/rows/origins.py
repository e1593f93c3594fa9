"""Where a column of a DataFrame comes from: read from the plan, without running it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scripts.helpers._lazy import DataFrame
from scripts.helpers.spark.jvm import analysed_plan, java_of

NO_ROWS_OF = "OneRowRelation"
"""What Spark calls the source of a SELECT without FROM."""
TEXTS = ("CSV", "JSON")
"""Formats of files whose times are texts. Spark takes one that names no zone for one of the session's zone."""


def is_of_folders(df: DataFrame, name: str) -> bool:
    """Tell whether a column is a partition column of files, under whatever name, or computed from such ones alone.

    False where a plan does not say it: of Spark Connect, of RDDs (as Glue's DynamicFrames are), and of a union whose
    first part has no such column.
    """
    plan = analysed_plan(df)
    if plan is None:
        return False
    of_folders = {number for leaf in _each(plan.collectLeaves()) for number in _partitions_of(leaf)}
    # Without any column it is a constant, or a time.
    return bool(of_folders) and bool(wanted := _made_of(plan, name)) and wanted <= of_folders


def is_of_no_column(df: DataFrame, name: str) -> bool:
    """Return whether a column is computed from no column of a source: a constant, or the time of the read."""
    plan = analysed_plan(df)
    has_rows = plan is not None and any(_kind(leaf) != NO_ROWS_OF for leaf in _each(plan.collectLeaves()))
    return has_rows and not _made_of(plan, name)


def wall_clock_of(df: DataFrame, name: str) -> str | None:
    """Return what Spark has read an instant from that may be a wall clock: ``JDBC``, ``CSV`` or ``JSON``.

    ``JDBC`` only where the type of the column in the database has no zone. None where Spark shows no such thing, also
    of a column that is computed, as the computation may have given it its zone.
    """
    plan = analysed_plan(df)
    if plan is None:
        return None
    wanted = _made_of(plan, name, renamed=True)
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
    """Ask the driver, as Spark keeps nothing of the type that the database has."""
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


def _made_of(plan: Any, name: str, *, renamed: bool = False) -> set[int]:
    """Return the ids of the columns of sources that a column is made of; with `renamed` only if it is one as it is."""
    columns = {attribute.name(): attribute.exprId().id() for attribute in _each(plan.output())}
    lower = {column.lower(): number for column, number in columns.items()}
    wanted: set[Any] = {columns.get(name, lower.get(name.lower()))}
    # From the top down: what an upper node computes is made of columns of the nodes below it.
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
    """Yield the ids of the columns that a node computes, with the expressions that they are made by."""
    kind = _kind(node)
    if kind == "Generate":
        yield from ((attribute.exprId().id(), node.generator()) for attribute in _each(node.generatorOutput()))
    if kind not in ("Project", "Aggregate", "Window"):
        return
    for expression in _each(node.expressions()):
        if _kind(expression) == "Alias":
            made_by = expression.child()
            if _kind(made_by) == "WindowExpression" and not made_by.windowFunction().references().isEmpty():
                # By which rows it is computed makes none of its values.
                made_by = made_by.windowFunction()
            yield expression.exprId().id(), made_by


def _kind(of_java: Any) -> str:
    return str(of_java.getClass().getSimpleName())


def _each(of_scala: Any) -> Iterator[Any]:
    found = of_scala.iterator()
    while found.hasNext():
        yield found.next()
