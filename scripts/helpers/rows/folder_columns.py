"""Whether a column of a DataFrame comes from the folders of files alone: read from the plan, without running it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from scripts.helpers.spark.jvm import analysed_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def is_of_folders(df: DataFrame, name: str) -> bool:
    """Tell whether a column is a partition column of files, under whatever name, or computed from such ones alone.

    False where a plan does not say it: of Spark Connect, of RDDs (as Glue's DynamicFrames are), and of a union whose
    first part has no such column.
    """
    plan = analysed_plan(df)
    if plan is None:
        return False
    of_folders = {number for leaf in _each(plan.collectLeaves()) for number in _partitions_of(leaf)}
    if not of_folders:
        return False
    columns = {attribute.name(): attribute.exprId().id() for attribute in _each(plan.output())}
    lower = {column.lower(): number for column, number in columns.items()}
    wanted = {columns.get(name, lower.get(name.lower()))}
    # From the top down: what an upper node computes is made of columns of the nodes below it.
    waiting = [plan]
    while waiting and not wanted <= of_folders:
        node = waiting.pop()
        for alias in _aliases(node):
            if alias.exprId().id() in wanted:
                wanted.remove(alias.exprId().id())
                wanted |= {made_of.exprId().id() for made_of in _each(alias.child().references())}
        waiting.extend(_each(node.children()))
    # Without any column it is a constant, or a time.
    return bool(wanted) and wanted <= of_folders


def _partitions_of(leaf: Any) -> Iterator[int]:
    """Yield the ids of a relation's partition columns."""
    if _kind(leaf) == "HiveTableRelation":
        yield from (attribute.exprId().id() for attribute in _each(leaf.partitionCols()))
    if _kind(leaf) == "LogicalRelation" and _kind(leaf.relation()) == "HadoopFsRelation":
        names = set(leaf.relation().partitionSchema().fieldNames())
        if names:
            yield from (attribute.exprId().id() for attribute in _each(leaf.output()) if attribute.name() in names)


def _aliases(node: Any) -> Iterator[Any]:
    """Yield the expressions that a node computes and gives a name."""
    if _kind(node) in ("Project", "Aggregate"):
        yield from (expression for expression in _each(node.expressions()) if _kind(expression) == "Alias")


def _kind(of_java: Any) -> str:
    return str(of_java.getClass().getSimpleName())


def _each(of_scala: Any) -> Iterator[Any]:
    found = of_scala.iterator()
    while found.hasNext():
        yield found.next()
