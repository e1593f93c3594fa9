"""Find joins and aggregates in Spark's plan that get only new rows: they miss the rows that earlier batches read.

In a plan, new rows come from the CollectMetrics node that counts them, and new files from the nodes that read them.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field

from scripts.helpers._lazy import DataFrame
from scripts.helpers.batch.batch import Batch
from scripts.helpers.rows.sql import internal
from scripts.helpers.sinks.sink import Sink
from scripts.helpers.spark.jvm import analysed_plan

logger = logging.getLogger(__name__)

NODE = re.compile(r"((?:[: ]  )*(?:[:+]- )?)([A-Z]\w*)(?= |$)")
"""The start of a node's line in a plan. Texts in expressions may contain line breaks; those lines do not match."""
JOINS = ("Join", "AsOfJoin")
DISTINCT = "a distinct"
HIDES_SOURCES = ("LogicalRDD", "LocalRelation")
"""Nodes of rows that were computed earlier, such as by a checkpoint or `toPandas`. They may come from any source."""
WITHIN = {"Aggregate": "an aggregate", "Window": "a window", "Deduplicate": DISTINCT, "Distinct": DISTINCT}
WITHIN |= dict.fromkeys(("FlatMapGroupsInPandas", "FlatMapGroupsInArrow"), "an aggregate")
"""Nodes whose rows depend on other rows of the same source."""
ONE_ROW_PER_KEY = re.compile(
    r"Window \[row_number\(\) windowspecdefinition\((?!.*windowspecdefinition).*?\], \[(?P<exactly>.*?)\], \["
    r"|Aggregate \[(?P<grouped>[^\[\]]*)\], \[(?P<taken>[^\[\]]*)\]"
    r"|Deduplicate \[.* more fields|Deduplicate \[(?P<among>.*)\]|Distinct"
)
"""Nodes that leave one row for each key, or several rows that a merge reduces to one."""
NEWEST = re.compile(r"max_by\([^(),]+, ([^(),]+)\) AS |max\((struct\([^()]*\))\) AS ")
"""Aggregates that take values from the newest row of a key; the groups hold the order that defines "newest"."""
Part = tuple[set[str], set[str]]
COLUMN = re.compile(r"(?:^|, )([^,]+?)#\d+L?")


@dataclass
class Node:
    """A node of Spark's plan for a frame. `below` has its children, without the plans of subqueries.

    Attributes
    ----------
    context
        The source whose new rows or files the node reads; None for any other node.
    """

    text: str
    kind: str
    context: str | None
    below: list[Node] = field(default_factory=list)


def contexts_of(batch: Batch, sink: Sink, df: DataFrame) -> set[str]:
    """Return the contexts whose new rows a frame reads. Log a WARNING if a join or aggregate gets only new rows.

    The set is empty if the plan hides its sources or cannot be read. In the latter case, no WARNING is logged.
    """
    try:
        contexts, found = _found(batch, sink, df)
        if found:
            logger.warning(
                "event=batch_is_a_part job=%s target=%s: its rows are computed by %s of new rows alone, without the "
                "rows that earlier runs read. Compute them from the whole source: see docs/write-a-job.md",
                batch.run.job_id, sink.name, " and ".join(sorted(found)),
            )  # fmt: skip
    except Exception as error:
        logger.debug("event=plan_not_read job=%s error=%s", batch.run.job_id, type(error).__name__)
        return set()
    return contexts


def _hides_sources(node: Node) -> bool:
    return node.context is None and (node.kind in HIDES_SOURCES or any(map(_hides_sources, node.below)))


def _found(batch: Batch, sink: Sink, df: DataFrame) -> Part:
    marks = {f"CollectMetrics {name}": context for name, context in batch.counts.names.items()}
    for context, frames in batch.frames.items():
        # Print only the leaves of the plan, which read the files: other nodes of CSV and JSON have long expressions.
        leaves = "".join(analysed_plan(frame).collectLeaves().mkString() for frame in frames)
        marks |= {node.text: context for node in _nodes(leaves, {})}
    nodes = _nodes(analysed_plan(df).toString(), marks)
    contexts = {node.context for node in nodes if node.context is not None and not _hides_sources(nodes[0])}
    if {node.kind for node in nodes}.isdisjoint((*JOINS, *WITHIN)):
        return contexts, set()
    keys = sink.rules.keys if sink.rules is not None else ()
    return contexts, _computed(nodes[0], {key.lower() for key in keys}, {})[1]


def _nodes(plan: str, marks: dict[str, str]) -> list[Node]:
    """Return the nodes of Spark's plan; `marks` maps the text of a node that reads new rows or files to its context."""
    nodes: list[Node] = []
    path: list[Node] = []
    for line in plan.splitlines():
        if (found := NODE.match(line)) is None:
            continue
        text, depth = line[found.end(1) :], len(found[1]) // 3
        node = Node(text, found[2], marks.get(text, marks.get(text.partition(",")[0])))
        # Leave out subqueries: Spark prints their plans two levels below the node, where `path` has no parent for them.
        if 0 < depth <= len(path):
            path[depth - 1].below.append(node)
        path[depth:] = [node] * max(1, 1 + depth - len(path))
        nodes.append(node)
    return nodes


def _computed(node: Node, keys: set[str], tables: dict[str, Part]) -> Part:
    """Return contexts whose new rows reach a plan's node, and joins and aggregates to warn of: they lack older rows.

    `keys`: the keys of a merge, if any; groups by them need no older rows. `tables`: results for WITH clauses, by id.
    """
    name = node.text.partition(",")[0]
    if node.context is not None:
        return {node.context}, set()
    if node.kind == "CTERelationRef":
        return tables[name.split()[1]]
    below = [_computed(child, keys, tables) for child in node.below]
    contexts, found = ({part for parts in below for part in parts[at]} for at in (0, 1))
    if node.kind == "CTERelationDef":
        tables[name.split()[1]] = contexts, found
        return set(), set()
    if node.kind in JOINS:
        if all(contexts for contexts, _ in below):
            return contexts, found | ({"a join"} if len(contexts) > 1 else set())
        if node.text.startswith(("Join LeftSemi", "Join LeftAnti")):
            return below[0]
        if DISTINCT in found:
            # Do not warn if changed keys (a distinct) are joined with a whole table: this finds all rows of the keys.
            return set(), found - {DISTINCT}
    elif contexts and node.kind in WITHIN and not _is_by_keys(node, keys):
        found.add(WITHIN[node.kind])
    return contexts, found


def _is_by_keys(node: Node, keys: set[str]) -> bool:
    """Return whether an aggregate or window needs no older rows: it is by a merge's keys, or this package added it."""
    by = ONE_ROW_PER_KEY.match(node.text) if keys else None
    if by is None:
        return internal("") in node.text
    columns = {name.lower() for name in COLUMN.findall(by["exactly"] or by["grouped"] or by["among"] or "")}
    if by["taken"] is not None:
        orders = {one or other for one, other in NEWEST.findall(by["taken"])}
        others = NEWEST.sub("", by["taken"]).replace(f"max({min(orders, default='')}) AS ", "")
        return columns == keys and len(orders) == 1 and "(" not in others
    return columns == keys if by["exactly"] is not None else not columns or columns >= keys
