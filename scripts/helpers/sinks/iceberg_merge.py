"""How a batch of a merge gets into an Iceberg table: by one commit of what the keys of the batch come to.

::

    stage     all events of the batch, as they came; those that nothing orders are refused
    publish   1. look at the target: its snapshot is what the commit replaces
              2. deletes into <namespace>.glue_watermarks_deleted_<table>, an Iceberg table of keys and sequences
              3. look at the deletes that are remembered
              4. one commit to the target with the rows and the record of the batch, refused if `main` has moved since 1

Every publication adds a snapshot, also one that changes no row, so those of all jobs follow each other. One that came
before has remembered its deletes before step 1, and step 3 sees them; one that comes after has looked at these rows.
Whoever dies after step 2 leaves a memory of deletes that a successor carries out.

With Spark the rows are merged on a hidden branch that begins at that snapshot, and the commit makes its last snapshot
that of `main`. It is written as a change of the table's metadata: Iceberg's own fast-forward has no record beside it,
and a cherry-pick of rows that are only added would go on top of whatever has come between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scripts.helpers.errors import TargetError
from scripts.helpers.protocol.names import new_token
from scripts.helpers.rows.sql import joined, sql
from scripts.helpers.sinks.connectors import quoted_table
from scripts.helpers.sinks.java_errors import is_of_java
from scripts.helpers.sinks.merging import DELETED, Merge, Versions
from scripts.helpers.sinks.table_merge import (
    ARROW_FRAMES,
    SPARK_FRAMES,
    Step,
    TableMerge,
    is_newer,
    keys_of,
    of_arrow_keys,
    of_keys,
    quote,
    rows_of,
    values_of,
)
from scripts.helpers.spark.jvm import java_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MEMORY = "glue_watermarks_deleted_"

Row = dict[str, Any]


def memory_of(target: str) -> str:
    """Return the name of the table that remembers the deletes of another one.

    >>> memory_of("lake.raw.repairs")
    'lake.raw.glue_watermarks_deleted_repairs'
    """
    start, _, name = target.rpartition(".")
    return f"{start}.{MEMORY}{name}"


class MovedError(Exception):
    """The table is not what it was when it was looked at."""


# --- Spark ------------------------------------------------------------------------------------------


class SparkMerge:
    """The merge of batches into one Iceberg table by its connector for Spark.

    Parameters
    ----------
    target
        ``catalog.namespace.table``.
    load
        Returns a table, by its name, of Iceberg's Java API, as it is now.
    """

    def __init__(self, target: str, rules: Merge, spark: SparkSession, load: Callable[[str], Any]) -> None:
        self._target, self._spark, self._load = target, spark, load
        self._tables = _SparkTables(spark, load)
        self._common = TableMerge(target, memory_of(target), rules, self._tables, SPARK_FRAMES)

    def check(self, events: DataFrame) -> None:
        """Raise what nothing orders; see `TableMerge.check`."""
        self._common.check(events)

    def publish(
        self, events: DataFrame, branch: str, record: Mapping[str, str], is_done: Callable[[Any], bool]
    ) -> None:
        """Merge staged events.

        Parameters
        ----------
        branch
            A name that no other publisher has.
        record
            What records the batch, as properties of the table.
        is_done
            Tells of a table whether there is nothing left to do.

        Raises
        ------
        MovedError
            Others have come between.
        """
        table = self._load(self._target)
        if is_done(table):
            return
        looked = table.currentSnapshot()
        manage = table.manageSnapshots()
        # Without a snapshot Iceberg begins the branch with one of its own.
        (
            manage.createBranch(branch, looked.snapshotId()) if looked is not None else manage.createBranch(branch)
        ).commit()
        try:
            self._merge_into(branch, events)
            self._take_over(branch, looked, record, is_done)
        except Exception as error:
            if self._head(branch) is None:
                # Swept by the publisher of this batch that came first.
                raise MovedError(str(error)) from error
            self._load(self._target).manageSnapshots().removeBranch(branch).commit()
            raise

    def _merge_into(self, branch: str, events: DataFrame) -> None:
        common, memory = self._common, self._common.memory
        distinct = SPARK_FRAMES.distinct(events, common.rules)
        self._tables.make(memory, distinct.select(*map(quote, common.named)))
        if SPARK_FRAMES.has_deletes(distinct):
            self._merge(memory, "main", distinct, common.remembering())
        remembered = snapshot_id(self._load(memory).currentSnapshot())
        # Both by their snapshots: Spark reads a source twice, to find files and to merge.
        self._tables.pins = {self._target: self._head(branch), memory: remembered}
        columns = [name for name in events.columns if name != DELETED]
        self._merge(self._target, branch, common.source(distinct), common.step(columns))

    def _take_over(self, branch: str, looked: Any, record: Mapping[str, str], is_done: Callable[[Any], bool]) -> None:
        """Make the branch's snapshot that of `main`, and record the batch, in one commit."""
        table, head = self._load(self._target), self._head(branch)
        operations = table.operations()
        base = operations.refresh()
        if snapshot_id(base.currentSnapshot()) != snapshot_id(looked) or is_done(table) or head is None:
            raise MovedError(f"{self._target} is not what it was.")
        java = java_of(self._spark)
        references = java.org.apache.iceberg.SnapshotRef
        main = base.ref("main")
        made = references.builderFrom(main, head) if main is not None else references.branchBuilder(head)
        changed = java.org.apache.iceberg.TableMetadata.buildFrom(base).setRef("main", made.build()).removeRef(branch)
        operations.commit(base, changed.setProperties(dict(record)).build())

    def _merge(self, table: str, branch: str, source: DataFrame, step: Step) -> None:
        start = self._head(branch, table)
        view = f"glue_watermarks_{new_token()[:8]}"
        source.createOrReplaceTempView(view)
        clauses = [sql("MERGE INTO {} AS t USING {} AS s ON {}", quoted_table(table, branch), quote(view), step.on)]
        if step.delete_when is not None:
            clauses.append(sql("WHEN MATCHED AND {} THEN DELETE", step.delete_when))
        if step.update_when is not None:
            sets = joined(", ", (sql("t.{} = {}", name, value) for name, value in step.sets.items()))
            clauses.append(sql("WHEN MATCHED AND {} THEN UPDATE SET {}", step.update_when, sets))
        names, values = joined(", ", step.inserts), joined(", ", step.inserts.values())
        clauses.append(sql("WHEN NOT MATCHED AND {} THEN INSERT ({}) VALUES ({})", step.insert_when, names, values))
        try:
            self._spark.sql(joined(" ", clauses))
        finally:
            self._spark.catalog.dropTempView(view)
        # Iceberg adds a snapshot also for a merge that changes nothing: without one the rows are somewhere else.
        if self._head(branch, table) == start:
            raise TargetError(
                self._target,
                f"Spark added no snapshot to branch {branch!r} of {table!r}, as it puts rows aside where the session "
                "has spark.wap.id and the table write.wap.enabled. Unset spark.wap.id. Publishing again is safe.",
            )

    def _head(self, branch: str, table: str = "") -> int | None:
        return snapshot_id(self._load(table or self._target).refs().get(branch))


class _SparkTables:
    """Iceberg tables as Spark reads them: as they are, or at a snapshot."""

    def __init__(self, spark: SparkSession, load: Callable[[str], Any]) -> None:
        self._spark, self._load = spark, load
        self.pins: dict[str, int | None] = {}

    def has(self, table: str) -> bool:
        try:
            self._load(table)
        except Exception as error:
            if not is_missing(error):
                raise
            return False
        return True

    def make(self, table: str, like: DataFrame) -> None:
        if not self.has(table):
            made_if_missing(self._spark.createDataFrame([], like.schema).writeTo(quoted_table(table)).using("iceberg"))

    def columns(self, table: str) -> list[str]:
        return list(self._spark.table(quoted_table(table)).columns)

    def read(self, table: str, events: DataFrame, merge: Merge) -> DataFrame:
        newest = snapshot_id(self._load(table).currentSnapshot())
        return of_keys(rows_at(self._spark, table, self.pins.get(table, newest)), events, merge)


def snapshot_id(of: Any) -> int | None:
    """Return the id of a snapshot, or of the one that a branch is at; None where there is none."""
    return None if of is None else int(of.snapshotId())


def rows_at(spark: SparkSession, table: str, snapshot: int | None) -> DataFrame:
    """Return the rows that a table has at a snapshot; none without one, as of a table that is new.

    By an option: where the script has cached the table, Spark would read what it had then, also by VERSION AS OF.
    """
    if snapshot is None:
        return spark.table(quoted_table(table)).limit(0)
    return spark.read.option("snapshot-id", snapshot).table(quoted_table(table))


def is_missing(error: Exception) -> bool:
    """Tell whether an error of Spark or Iceberg says that there is no such table."""
    return is_of_java(error, "TABLE_OR_VIEW_NOT_FOUND", "NoSuchTableException", "SCHEMA_NOT_FOUND", "not found")


def made_if_missing(writer: Any) -> None:
    """Let a writer of Spark make its table; another one may make it meanwhile."""
    try:
        writer.create()
    except Exception as error:
        if not is_of_java(error, "ALREADY_EXISTS", "AlreadyExists"):
            raise


# --- pyiceberg --------------------------------------------------------------------------------------


class ArrowMerge:
    """The merge of batches into one Iceberg table by `pyiceberg`.

    Parameters
    ----------
    target
        ``catalog.namespace.table``.
    catalog
        One that tries a commit once.
    """

    def __init__(self, target: str, rules: Merge, catalog: Any) -> None:
        self._target, self._rules, self._catalog = target, rules, catalog
        self._tables = _ArrowTables(catalog)
        self._common = TableMerge(target, memory_of(target), rules, self._tables, ARROW_FRAMES)

    def check(self, events: pa.Table) -> None:
        """Raise what nothing orders; see `TableMerge.check`."""
        self._common.check(_as_there(events, self._tables.table(self._target)))

    def publish(self, table: Any, events: pa.Table, properties: Mapping[str, str], summary: Mapping[str, str]) -> None:
        """Merge staged events into a table of `pyiceberg` as it was looked at.

        Parameters
        ----------
        properties
            What records the batch, as properties of the table.
        summary
            What tells the batch, as properties of its snapshots.
        """
        self._tables.pin(self._target, table)
        distinct = ARROW_FRAMES.distinct(_as_there(events, table), self._rules)
        self._remember(distinct)
        before = self._tables.read(self._target, distinct, self._rules)
        after = self._after(before.to_pylist(), self._common.source(distinct).to_pylist())
        with table.transaction() as transaction:
            if not self._write(transaction, table, before, after, summary):
                transaction.append(table.schema().as_arrow().empty_table(), dict(summary))
            if properties:
                transaction.set_properties(dict(properties))

    def _remember(self, distinct: pa.Table) -> None:
        """Remember the deletes among events: the last of each key, or for a history all."""
        import pyarrow as pa

        memory, named = self._common.memory, self._common.named
        schema = pa.schema([pa.field(one.name, one.type) for one in map(distinct.schema.field, named)])
        table = self._tables.made(memory, schema)
        deletes = distinct.select([*named, DELETED]).filter(distinct[DELETED])
        before = self._tables.read(memory, deletes, self._rules)
        every = ARROW_FRAMES.together(deletes, before, deleted=True)
        wanted = ARROW_FRAMES.distinct(every, self._rules)
        with table.transaction() as transaction:
            self._write(transaction, table, before, rows_of(wanted, named), {})
        self._tables.forget(memory)

    def _after(self, before: Sequence[Row], source: Sequence[Row]) -> list[Row]:
        """Return what the rows of the batch's keys come to; the source is that of `TableMerge.source`."""
        rules, keys = self._rules, self._rules.keys
        if rules.history is not None:
            return _all_versions(before, source, keys, rules.history)
        newest = {values_of(row, keys): row for row in source}
        kept = [row for row in before if not is_newer(newest[values_of(row, keys)], row, rules)]
        settled = {values_of(row, keys) for row in kept}
        written = [row for key, row in newest.items() if not row[DELETED] and key not in settled]
        return kept + written

    def _write(
        self, transaction: Any, table: Any, before: pa.Table, after: Sequence[Row], summary: Mapping[str, str]
    ) -> bool:
        """Write rows in place of those of their keys; tell whether anything changes."""
        import pyarrow as pa

        schema, keys = table.schema().as_arrow(), self._rules.keys
        old, new = _by_key(before.to_pylist(), keys), _by_key(_in_columns(after, schema.names), keys)
        changed = [key for key in {**old, **new} if _texts(old.get(key, ())) != _texts(new.get(key, ()))]
        if not changed:
            return False
        now: list[Row] = []
        for key in changed:
            now += new.get(key, [])
        written = pa.Table.from_pylist(now, schema=schema)
        replaced = [key for key in changed if key in old]
        if not replaced:
            transaction.append(written, dict(summary))
            return True
        those = _those(keys, replaced)
        # The condition is about each column of the key by itself, so it may be true for others: they stay.
        others = of_arrow_keys(table.scan(row_filter=those).to_arrow(), set(replaced), keys, others=True)
        rows = pa.concat_tables([written, others.select(schema.names).cast(schema)])
        transaction.overwrite(rows, those, dict(summary))
        return True


class _ArrowTables:
    """Tables of `pyiceberg`, each as it was when it was looked at first."""

    def __init__(self, catalog: Any) -> None:
        self._catalog = catalog
        self._found: dict[str, Any] = {}

    def table(self, name: str) -> Any:
        if name not in self._found:
            table = self._catalog.load_table(_identifier(name))
            table.catalog = self._catalog
            self._found[name] = table
        return self._found[name]

    def made(self, name: str, schema: pa.Schema) -> Any:
        if not self.has(name):
            # Another publisher may make it now.
            self._catalog.create_table_if_not_exists(_identifier(name), schema)
        return self.table(name)

    def pin(self, name: str, table: Any) -> None:
        self._found = {name: table}

    def forget(self, name: str) -> None:
        self._found.pop(name, None)

    def has(self, table: str) -> bool:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            self.table(table)
        except NoSuchTableError:
            return False
        return True

    def columns(self, table: str) -> list[str]:
        return [field.name for field in self.table(table).schema().fields]

    def read(self, table: str, events: pa.Table, merge: Merge) -> pa.Table:
        wanted, there = keys_of(events, merge.keys), self.table(table)
        if not wanted:
            return there.schema().as_arrow().empty_table()
        return of_arrow_keys(there.scan(row_filter=_those(merge.keys, wanted)).to_arrow(), wanted, merge.keys)


def _identifier(name: str) -> str:
    """Return a table's name within its catalog."""
    return name.partition(".")[2]


def _those(names: Sequence[str], keys: Iterable[tuple[Any, ...]]) -> Any:
    """Return a condition that is true for the rows of some keys; of keys by several columns maybe for more.

    An exact one would have a part for each key, and pyarrow would take minutes for some ten thousand.
    """
    from pyiceberg import expressions

    # Their types are made at run time: to mypy an expression takes the name of its own kind first.
    made: Any = expressions
    found = made.AlwaysTrue()
    for name, values in zip(names, zip(*keys, strict=True), strict=True):
        found = made.And(found, made.In(name, set(values)))
    return found


def _as_there(events: pa.Table, table: Any) -> pa.Table:
    """Return events with the types of the table's columns; deletes may be NULL where rows may not."""
    import pyarrow as pa

    schema = table.schema().as_arrow()
    types = {one.name: schema.field(one.name).type for one in events.schema if one.name != DELETED}
    return events.cast(pa.schema([pa.field(name, types.get(name, pa.bool_())) for name in events.column_names]))


def _all_versions(before: Sequence[Row], source: Sequence[Row], keys: Sequence[str], history: Versions) -> list[Row]:
    """Return the versions of a history: those that are there, with their ends as they are now, and the new ones."""
    start, end = history.valid_from, history.valid_to
    # A row of the source that is marked as deleted is none to write: it says where a version that is there ends.
    ends = {(values_of(row, keys), row[start]): row[end] for row in source if row[DELETED]}
    versions = []
    for row in before:
        ends_now = ends.get((values_of(row, keys), row[start]), row[end])
        versions.append(row | {end: ends_now})
    return versions + [row for row in source if not row[DELETED]]


def _in_columns(rows: Iterable[Row], columns: Sequence[str]) -> list[Row]:
    return [{name: row.get(name) for name in columns} for row in rows]


def _by_key(rows: Iterable[Row], keys: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(values_of(row, keys), []).append(row)
    return found


def _texts(rows: Iterable[Row]) -> list[str]:
    """Return rows as texts that compare: lists and structs have no order, and NaN is not equal to itself."""
    return sorted(repr(sorted(row.items())) for row in rows)
