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

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from scripts.helpers._lazy import DataFrame, SparkSession, pa, pc
from scripts.helpers.errors import TargetError
from scripts.helpers.protocol.names import new_token
from scripts.helpers.rows.sql import internal, joined, sql
from scripts.helpers.sinks.connectors import quoted_table
from scripts.helpers.sinks.java_errors import is_of_java
from scripts.helpers.sinks.merge_engines import ARROW_ENGINE, ROW, aliases_of
from scripts.helpers.sinks.merging import DELETED, Merge
from scripts.helpers.sinks.table_merge import ARROW_FRAMES, SPARK_FRAMES, Step, TableMerge, quote
from scripts.helpers.spark.jvm import java_of

STAGED, PUBLISHED = "wap.id", "published-wap-id"
"""What the summary of a snapshot says of the batch that it is of, or that a cherry-pick has brought."""
MEMORY = "glue_watermarks_deleted_"
THERE, FROM_SOURCE, UPDATES = internal("there"), internal("source"), internal("updates")


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


class SparkMerge(TableMerge):
    """The merge of batches into one Iceberg table by its connector for Spark.

    Parameters
    ----------
    target
        ``catalog.namespace.table``.
    load
        Returns a table, by its name, of Iceberg's Java API, as it is now.
    """

    def __init__(self, target: str, rules: Merge, spark: SparkSession, load: Callable[[str], Any]) -> None:
        super().__init__(target, memory_of(target), rules, self, SPARK_FRAMES)
        self._spark, self._load = spark, load
        self._pins: dict[str, int | None] = {}

    def publish(
        self, events: DataFrame, branch: str, record: Mapping[str, str], batch: str, is_done: Callable[[Any], bool]
    ) -> None:
        """Merge staged events.

        Parameters
        ----------
        branch
            A name that no other publisher has.
        record
            What records the batch, as properties of the table.
        batch
            The name of the batch, for the summary of a snapshot.
        is_done
            Tells of a table whether there is nothing left to do.

        Raises
        ------
        MovedError
            Others have come between.
        """
        table = self._load(self.target)
        if is_done(table):
            return
        looked = table.currentSnapshot()
        # The branch begins with a snapshot without rows, as SQL gives the one of a merge no properties.
        table.newFastAppend().toBranch(branch).set(STAGED, batch).commit()
        try:
            self._merge_into(branch, events)
            self._take_over(branch, looked, record, is_done)
        except Exception as error:
            if self._head(branch) is None:
                # Swept by the publisher of this batch that came first.
                raise MovedError(str(error)) from error
            self._load(self.target).manageSnapshots().removeBranch(branch).commit()
            raise

    def has(self, table: str) -> bool:
        """Return whether there is such a table."""
        try:
            self._load(table)
        except Exception as error:
            if not is_missing(error):
                raise
            return False
        return True

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns."""
        return list(self._spark.table(quoted_table(table)).columns)

    def read(self, table: str, events: DataFrame, merge: Merge) -> DataFrame:
        """Return the rows of a table, as it is or at the snapshot that was looked at."""
        newest = snapshot_id(self._load(table).currentSnapshot())
        return rows_at(self._spark, table, self._pins.get(table, newest))

    def _merge_into(self, branch: str, events: DataFrame) -> None:
        memory, distinct = self.memory, SPARK_FRAMES.distinct(events, self.rules)
        if not self.has(memory):
            like = self._spark.createDataFrame([], distinct.select(*map(quote, self.named)).schema)
            made_if_missing(like.writeTo(quoted_table(memory)).using("iceberg"))
        if SPARK_FRAMES.has_deletes(distinct):
            self._merge(memory, "main", distinct, self.remembering())
        remembered = snapshot_id(self._load(memory).currentSnapshot())
        # Both by their snapshots: Spark reads a source twice, to find files and to merge.
        self._pins = {self.target: self._head(branch), memory: remembered}
        self._merge(self.target, branch, self.source(distinct), self.step(events.columns))

    def _take_over(self, branch: str, looked: Any, record: Mapping[str, str], is_done: Callable[[Any], bool]) -> None:
        """Make the branch's snapshot that of `main`, and record the batch, in one commit."""
        table, head = self._load(self.target), self._head(branch)
        operations = table.operations()
        base = operations.refresh()
        if snapshot_id(base.currentSnapshot()) != snapshot_id(looked) or is_done(table) or head is None:
            raise MovedError(f"{self.target} is not what it was.")
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
            sets = joined(", ", (sql("t.{0} = s.{0}", quote(name)) for name in step.sets))
            clauses.append(sql("WHEN MATCHED AND {} THEN UPDATE SET {}", step.update_when, sets))
        names = joined(", ", map(quote, step.inserts))
        values = joined(", ", (sql("s.{}", quote(name)) for name in step.inserts))
        clauses.append(sql("WHEN NOT MATCHED AND {} THEN INSERT ({}) VALUES ({})", step.insert_when, names, values))
        try:
            self._spark.sql(joined(" ", clauses))
        finally:
            self._spark.catalog.dropTempView(view)
        # Iceberg adds a snapshot also for a merge that changes nothing: without one the rows are somewhere else.
        if self._head(branch, table) == start:
            raise TargetError(
                self.target,
                f"Spark added no snapshot to branch {branch!r} of {table!r}, as it puts rows aside where the session "
                "has spark.wap.id and the table write.wap.enabled. Unset spark.wap.id. Publishing again is safe.",
            )

    def _head(self, branch: str, table: str = "") -> int | None:
        return snapshot_id(self._load(table or self.target).refs().get(branch))


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


class ArrowMerge(TableMerge):
    """The merge of batches into one Iceberg table by `pyiceberg`.

    Parameters
    ----------
    target
        ``catalog.namespace.table``.
    catalog
        One that tries a commit once.
    """

    def __init__(self, target: str, rules: Merge, catalog: Any) -> None:
        super().__init__(target, memory_of(target), rules, self, ARROW_FRAMES)
        self._catalog = catalog
        self._found: dict[str, Any] = {}
        # The condition for the keys of the batch. It is made once: for 100,000 keys that takes seconds.
        self._wanted: Any = None
        self._compared = [*rules.keys, *rules.sequence_by, *rules.columns.history, DELETED]
        self._quote = aliases_of(self._compared).__getitem__

    def check(self, events: pa.Table) -> None:
        """Raise what nothing orders; see `TableMerge.check`."""
        events = _as_there(events, self._table(self.target))
        self._wanted = _those(self.rules.keys, events)
        super().check(events)

    def publish(self, table: Any, events: pa.Table, properties: Mapping[str, str], summary: Mapping[str, str]) -> None:
        """Merge staged events into a table of `pyiceberg` as it was looked at.

        Parameters
        ----------
        properties
            What records the batch, as properties of the table.
        summary
            What tells the batch, as properties of its snapshots.
        """
        self._found = {self.target: table}
        memory, distinct = self.memory, ARROW_FRAMES.distinct(_as_there(events, table), self.rules)
        self._wanted = _those(self.rules.keys, distinct)
        if not self.has(memory):
            # Another publisher may make it now.
            self._catalog.create_table_if_not_exists(_identifier(memory), distinct.select(self.named).schema)
        remembered = self._table(memory)
        with remembered.transaction() as transaction:
            self._write(transaction, remembered, distinct, self.remembering(self._quote), {})
        del self._found[memory]
        source, step = self.source(distinct), self.step(distinct.column_names, self._quote)
        with table.transaction() as transaction:
            if not self._write(transaction, table, source, step, summary):
                transaction.append(table.schema().as_arrow().empty_table(), dict(summary))
            if properties:
                transaction.set_properties(dict(properties))

    def has(self, table: str) -> bool:
        """Return whether there is such a table."""
        from pyiceberg.exceptions import NoSuchTableError

        with suppress(NoSuchTableError):
            self._table(table)
        return table in self._found

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns."""
        return [field.name for field in self._table(table).schema().fields]

    def read(self, table: str, events: pa.Table, merge: Merge) -> pa.Table:
        """Return the rows of a table that have the key of an event, and maybe more; see `_those`."""
        return _scanned(self._table(table), self._wanted)

    def _table(self, name: str) -> Any:
        """Return a table as it was when it was looked at first."""
        if name not in self._found:
            self._found[name] = self._catalog.load_table(_identifier(name))
            self._found[name].catalog = self._catalog
        return self._found[name]

    def _write(self, transaction: Any, table: Any, source: pa.Table, step: Step, summary: Mapping[str, str]) -> bool:
        """Merge a source into a table; return whether anything changes."""
        schema, there = table.schema().as_arrow(), _scanned(table, self._wanted)
        changes = self._changes(there, source, step)
        if not changes.num_rows:
            return False
        updates = changes.filter(pc.and_(pc.is_valid(changes[THERE]), changes[UPDATES]))
        updated, by = there.take(updates[THERE]), source.take(updates[FROM_SOURCE])
        for name in step.sets:
            updated = updated.set_column(updated.column_names.index(name), name, by[name])
        inserted = source.take(changes.filter(pc.is_null(changes[THERE]))[FROM_SOURCE])
        written = _in_columns(schema, inserted, updated)
        replaced = there.take(changes[THERE].drop_null())
        if not replaced.num_rows:
            transaction.append(written, dict(summary))
            return True
        # Only files with a changed row are rewritten, with the rows in them that stay.
        those = _those(self.rules.keys, replaced)
        rewritten = _scanned(table, those)
        gone = self._changes(rewritten, source, step)[THERE]
        stays = pc.invert(pc.is_in(pa.array(range(rewritten.num_rows), pa.int64()), gone.combine_chunks()))
        rows = _in_columns(schema, written, rewritten.filter(stays))
        transaction.overwrite(rows, those, dict(summary))
        return True

    def _changes(self, there: pa.Table, source: pa.Table, step: Step) -> pa.Table:
        """Return the rows that a step changes: by number in the table, or NULL if inserted, and in the source."""
        no = sql("FALSE")
        changes = sql(
            "SELECT t.{row} AS {there}, s.{row} AS {source}, {update} AS {updates} FROM {{there}} AS t "
            "JOIN {{source}} AS s ON {on} WHERE {delete} OR {update} UNION ALL SELECT NULL, s.{row}, FALSE "
            "FROM {{source}} AS s WHERE {insert} AND NOT EXISTS (SELECT 1 FROM {{there}} AS t WHERE {on})",
            row=ROW, there=THERE, source=FROM_SOURCE, updates=UPDATES, on=step.on, insert=step.insert_when,
            update=step.update_when or no, delete=step.delete_when or no,
        )  # fmt: skip
        return ARROW_ENGINE.sql(changes, there=self._relation(there), source=self._relation(source))

    def _relation(self, rows: pa.Table) -> pa.Table:
        named = {name: self._quote(name) for name in self._compared if name in rows.column_names}
        return ARROW_ENGINE.relation(rows, named)


def _identifier(name: str) -> str:
    """Return a table's name within its catalog."""
    return name.partition(".")[2]


def _scanned(table: Any, those: Any) -> pa.Table:
    """Return the rows of a table for which a condition is true."""
    found: pa.Table = table.scan(row_filter=those).to_arrow()
    return found


def _those(names: Sequence[str], rows: pa.Table) -> Any:
    """Return a condition that is true for the keys of some rows; of keys by several columns maybe for more.

    An exact one would have a part for each key, and pyarrow would take minutes for some ten thousand.
    """
    from pyiceberg import expressions

    # Their types are made at run time: to mypy an expression takes the name of its own kind first.
    made: Any = expressions
    found = made.AlwaysTrue()
    for name in names:
        # No key is NULL: such rows are refused, and not looked for.
        found = made.And(found, made.In(name, set(rows[name].drop_null().unique().to_pylist())))
    return found


def _as_there(events: pa.Table, table: Any) -> pa.Table:
    """Return events with the types of the table's columns; deletes may be NULL where rows may not."""
    schema = table.schema().as_arrow()
    types = {one.name: schema.field(one.name).type for one in events.schema if one.name != DELETED}
    return events.cast(pa.schema([pa.field(name, types.get(name, pa.bool_())) for name in events.column_names]))


def _in_columns(schema: pa.Schema, *rows: pa.Table) -> pa.Table:
    """Return rows with the columns of a table, NULL where they lack one."""
    found = pa.concat_tables([schema.empty_table(), *rows], promote_options="permissive")
    return found.select(schema.names).cast(schema)
