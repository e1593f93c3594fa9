"""`IcebergSink`: writes a batch as one snapshot of an Iceberg table, with Spark or without.

With Spark nothing is written twice. The rows of an attempt are a snapshot on a hidden branch of the table::

    stage     branch staged-<job>-<batch>-f<fence>-…, with one snapshot              readers of the table see `main`
    commit    the job's head names this attempt; the sink takes no part in that
    publish   cherry-pick that snapshot into `main`, and record the batch            one commit to the catalog
    sweep     the branches of this attempt and of losing attempts are dropped

Without Spark, `pyiceberg` cannot cherry-pick, so the rows are Parquet files in a folder next to the table. Publishing
copies them, and adds them and the record in one commit that fails if `main` has moved since the sink looked at it.
With Spark, too, rows to merge by key are Parquet files in that folder: see the comment *iceberg merge* below.

The record is a property of the table, ``glue-watermarks.<job>.<epoch>``, with the version of the last batch.
"""

from __future__ import annotations

import json
import logging
import warnings
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial, reduce
from itertools import chain, pairwise
from typing import Any

from scripts.helpers._lazy import DataFrame, F, S3Client, SparkSession, pa, pc, pq
from scripts.helpers.display.units import count_of
from scripts.helpers.errors import (
    InvalidValueError,
    KeyColumnError,
    MissingConnectorError,
    StagedFilesLostError,
    TargetError,
    WatermarkError,
)
from scripts.helpers.protocol.names import BatchId, new_token
from scripts.helpers.protocol.outputs import Output, Retraction, batch_name
from scripts.helpers.rows.arrow_streams import ArrowStream, joined_batches
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.sql import internal, joined, sql
from scripts.helpers.sinks.arrow_files import has_both_bounds, statistics_by_column
from scripts.helpers.sinks.connectors import (
    ICEBERG_EXTENSIONS,
    arrow_catalog,
    check_classic,
    check_iceberg_on_spark,
    check_installed,
    check_name,
    quoted_table,
    rows_at,
    spark_table,
)
from scripts.helpers.sinks.merging import (
    ARROW_ENGINE,
    ARROW_FRAMES,
    DELETED,
    ROW,
    SPARK_FRAMES,
    Merge,
    Step,
    TableMerge,
    aliases_of,
    one_database,
    quote,
)
from scripts.helpers.sinks.outputs import (
    BRANCH,
    batch_values,
    branch_of,
    folder_of,
    recorded_by,
    staging_beside,
    version_of,
)
from scripts.helpers.sinks.places import LocalPlace, S3Place, place_of
from scripts.helpers.sinks.sink import Witnessed, rolled_back
from scripts.helpers.sinks.spark_files import UNFIT_ICEBERG
from scripts.helpers.sinks.staged_rows import (
    ARROW_ROWS,
    HELD,
    SparkRows,
    check_required,
    columns_of,
    condition_for_batches,
    with_later_columns,
    with_required_within,
)
from scripts.helpers.sinks.staging import Attempts, StagedRows, Staging
from scripts.helpers.sinks.table_sink import (
    CHECK,
    Append,
    LakeLog,
    LakeSink,
    Meaning,
    MergeRows,
    Nothing,
    TableShape,
    moved_table,
)
from scripts.helpers.spark.java_errors import is_spark_error, names_java_class
from scripts.helpers.spark.jvm import java_frame, java_of, java_session
from scripts.helpers.spark.observed import observe
from scripts.helpers.spark.settings import settings

logger = logging.getLogger(__name__)

# --- iceberg merge --------------------------------------------------------------------------------
# One commit merges a batch into an Iceberg table. It has the new rows for all keys of the batch.
#
#     stage     all rows and deletes of the batch, as they arrived; those that cannot be ordered are refused
#     publish   1. read the target at its current snapshot, which the commit in step 4 replaces
#               2. add deletes (keys and `sequence_by`) to the Iceberg table <namespace>.glue_watermarks_deleted_<table>
#               3. read the deletes from this table: an older row that arrives late must not bring its key back
#               4. commit the rows and the record of the batch to the target; fails if `main` has moved since step 1
#
# Every publication adds a snapshot, even if it changes no row, so the publications of all jobs have one order: step 1
# reads the rows, and step 3 the deletes, of all earlier publications. If a publisher dies after step 2, the next
# publisher applies the deletes that the dead one added.
#
# With Spark the rows are merged on a hidden branch that begins at the snapshot of step 1. The commit makes the branch's
# last snapshot the current one of `main` by changing the table's metadata: Iceberg's own fast-forward cannot set a
# property in the same commit, and a cherry-pick of added rows would succeed even if `main` has moved.

STAGED, PUBLISHED = "wap.id", "published-wap-id"
"""Keys in a snapshot's summary that name its batch: the staged one, or the one that a cherry-pick has published."""
MEMORY = "glue_watermarks_deleted_"
THERE, FROM_SOURCE, UPDATES = internal("there"), internal("source"), internal("updates")


def memory_of(target: str) -> str:
    """Return the name of the table that remembers the deletes of a target.

    >>> memory_of("lake.raw.repairs")
    'lake.raw.glue_watermarks_deleted_repairs'
    """
    start, _, name = target.rpartition(".")
    return f"{start}.{MEMORY}{name}"


class MovedError(Exception):
    """Another writer has changed the table since it was read."""


# --- Spark ------------------------------------------------------------------------------------------


class SparkMerge(TableMerge):
    """The merge of batches into one Iceberg table through its connector for Spark.

    Parameters
    ----------
    target
        ``catalog.namespace.table``.
    load
        A function that loads the table of a given name, as an object of Iceberg's Java API.
    """

    def __init__(self, target: str, rules: Merge, spark: SparkSession, load: Callable[[str], Any]) -> None:
        super().__init__(target, memory_of(target), rules, self, SPARK_FRAMES)
        self._spark, self._load = spark, load
        self._pins: dict[str, int | None] = {}

    def publish(
        self, events: DataFrame, branch: str, record: Mapping[str, str], batch: str, is_done: Callable[[Any], bool]
    ) -> None:
        """Merge staged events into the target, and record the batch.

        Parameters
        ----------
        branch
            A branch name that no other publisher uses.
        record
            The table properties that record the batch.
        batch
            The name of the batch, for the summary of a snapshot.
        is_done
            A function that gets the loaded table, and returns whether the table has the batch already.

        Raises
        ------
        MovedError
            Another writer committed to the target after this merge had read it.
        """
        table = self._load(self.target)
        if is_done(table):
            return
        looked = table.currentSnapshot()
        # First add a snapshot without rows that names the batch: MERGE in SQL cannot name a batch in its snapshot.
        table.newFastAppend().toBranch(branch).set(STAGED, batch).commit()
        try:
            self._merge_into(branch, events)
            self._take_over(branch, looked, record, is_done)
        except Exception as error:
            if self._head(branch) is None:
                # The branch is gone: another publisher of this batch was faster, and has swept the branch.
                raise MovedError(str(error)) from error
            self._load(self.target).manageSnapshots().removeBranch(branch).commit()
            raise

    def has(self, table: str) -> bool:
        """Return whether a table of this name exists."""
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
        """Return the rows of a table at the snapshot to which `_merge_into` has pinned it, or else as they are now."""
        newest = snapshot_id(self._load(table).currentSnapshot())
        return rows_at(self._spark, "iceberg", quoted_table(table), self._pins.get(table, newest))

    def _merge_into(self, branch: str, events: DataFrame) -> None:
        memory, distinct = self.memory, SPARK_FRAMES.distinct(events, self.rules)
        if not self.has(memory):
            make_if_missing(self._spark, memory, distinct.select(*map(quote, self.named)))
        if SPARK_FRAMES.has_deletes(distinct):
            self._merge(memory, "main", distinct, self.remembering())
        remembered = snapshot_id(self._load(memory).currentSnapshot())
        # Pin both tables to their present snapshots: MERGE reads its source twice, and must get the same rows again.
        self._pins = {self.target: self._head(branch), memory: remembered}
        self._merge(self.target, branch, self.source(distinct), self.step(events.columns))

    def _take_over(self, branch: str, looked: Any, record: Mapping[str, str], is_done: Callable[[Any], bool]) -> None:
        """Make the branch's snapshot the current one of `main`, and record the batch, in one commit."""
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
        # A merge adds a snapshot even if it changes no row. If the branch has none, Spark wrote the rows elsewhere.
        if self._head(branch, table) == start:
            raise TargetError(
                self.target,
                f"Spark added no snapshot to branch {branch!r} of {table!r}, as it puts rows aside where the session "
                "has spark.wap.id and the table write.wap.enabled. Unset spark.wap.id. Publishing again is safe.",
            )

    def _head(self, branch: str, table: str = "") -> int | None:
        return snapshot_id(self._load(table or self.target).refs().get(branch))


def snapshot_id(of: Any) -> int | None:
    """Return the id of a snapshot, or of the snapshot that a branch refers to; None for None."""
    return None if of is None else int(of.snapshotId())


def iceberg_rows(spark: SparkSession, name: str) -> DataFrame:
    """Return the rows that a table has now, even if the script has cached it."""
    return rows_at(spark, "iceberg", quoted_table(name), snapshot_id(spark_table(name, spark).currentSnapshot()))


def is_missing(error: Exception) -> bool:
    """Return whether an error of Spark or Iceberg means that there is no such table."""
    return names_java_class(error, "TABLE_OR_VIEW_NOT_FOUND", "NoSuchTableException", "SCHEMA_NOT_FOUND", "not found")


def make_if_missing(spark: SparkSession, name: str, like: DataFrame, partition_by: Sequence[str] = ()) -> None:
    """Create a table with a frame's columns if there is none. Use no transaction: Glue and S3 Tables refuse those."""
    columns = [SPARK.type_name(field.toDDL()) for field in java_frame(like).schema().asNullable().fields()]
    parts = sql(" PARTITIONED BY ({})", joined(", ", map(quote, partition_by))) if partition_by else sql("")
    made = sql("CREATE TABLE IF NOT EXISTS {} ({}) USING iceberg{}", quoted_table(name), joined(", ", columns), parts)
    with settings(spark, {"spark.sql.timestampType": "TIMESTAMP_LTZ"}):
        spark.sql(made)


# --- pyiceberg --------------------------------------------------------------------------------------


class ArrowMerge(TableMerge):
    """The merge of batches into one Iceberg table through `pyiceberg`.

    Parameters
    ----------
    target
        ``catalog.namespace.table``.
    catalog
        A catalog that tries each commit only once.
    """

    def __init__(self, target: str, rules: Merge, catalog: Any) -> None:
        super().__init__(target, memory_of(target), rules, self, ARROW_FRAMES)
        self._catalog = catalog
        self._found: dict[str, Any] = {}
        # The condition for rows with the keys of the batch. Build it only once: for 100,000 keys that takes seconds.
        self._wanted: Any = None
        self._compared = [*rules.keys, *rules.sequence_by, *rules.columns.history, DELETED]
        self._quote = aliases_of(self._compared).__getitem__

    def check(self, events: pa.Table) -> None:
        """Raise if events cannot be ordered; see `TableMerge.check`."""
        events = _cast_to_table(events, self._table(self.target))
        self._wanted = _condition_for(self.rules.keys, events)
        super().check(events)

    @one_database()
    def publish(self, table: Any, events: pa.Table, properties: Mapping[str, str], summary: Mapping[str, str]) -> None:
        """Merge staged events into `table`, as `pyiceberg` loaded it. Fails if the table has changed since then.

        Parameters
        ----------
        properties
            The table properties that record the batch.
        summary
            The properties of the new snapshots, which name the batch.
        """
        self._found = {self.target: table}
        memory, distinct = self.memory, ARROW_FRAMES.distinct(_cast_to_table(events, table), self.rules)
        self._wanted = _condition_for(self.rules.keys, distinct)
        if not self.has(memory):
            # Do not fail if another publisher creates the table at the same time.
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
        """Return whether a table of this name exists."""
        from pyiceberg.exceptions import NoSuchTableError

        with suppress(NoSuchTableError):
            self._table(table)
        return table in self._found

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns."""
        return [field.name for field in self._table(table).schema().fields]

    def read(self, table: str, events: pa.Table, merge: Merge) -> pa.Table:
        """Return the rows of a table that have the key of an event, and maybe other rows; see `_condition_for`."""
        return _scanned(self._table(table), self._wanted)

    def _table(self, name: str) -> Any:
        """Return the table `name` as it was when this object first loaded it."""
        if name not in self._found:
            self._found[name] = self._catalog.load_table(_identifier(name))
            self._found[name].catalog = self._catalog
        return self._found[name]

    def _write(self, transaction: Any, table: Any, source: pa.Table, step: Step, summary: Mapping[str, str]) -> bool:
        """Merge the rows of `source` into `table`; return whether this changes any row of the table."""
        schema, there = table.schema().as_arrow(), _scanned(table, self._wanted)
        changes = self._changes(there, source, step)
        if not changes.num_rows:
            return False
        updates = changes.filter(pc.and_(pc.is_valid(changes[THERE]), changes[UPDATES]))
        updated, by = there.take(updates[THERE]), source.take(updates[FROM_SOURCE])
        for name in step.sets:
            updated = updated.set_column(updated.column_names.index(name), name, by[name])
        inserted = source.take(changes.filter(pc.is_null(changes[THERE]))[FROM_SOURCE])
        written = _with_columns(schema, inserted, updated)
        replaced = there.take(changes[THERE].drop_null())
        if not replaced.num_rows:
            transaction.append(written, dict(summary))
            return True
        # Rewrite only files that have a row to be changed or deleted, and keep their other rows.
        condition = _condition_for(self.rules.keys, replaced)
        rewritten = _scanned(table, condition)
        gone = self._changes(rewritten, source, step)[THERE]
        stays = pc.invert(pc.is_in(pa.array(range(rewritten.num_rows), pa.int64()), gone.combine_chunks()))
        rows = _with_columns(schema, written, rewritten.filter(stays))
        transaction.overwrite(rows, condition, dict(summary))
        return True

    def _changes(self, there: pa.Table, source: pa.Table, step: Step) -> pa.Table:
        """Return a row for each change: the row's number in the table (NULL for an insert) and in the source."""
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
    """Return the name of a table without its catalog."""
    return name.partition(".")[2]


def _scanned(table: Any, condition: Any) -> pa.Table:
    """Return the rows of a table for which a condition is true."""
    found: pa.Table = table.scan(row_filter=condition).to_arrow()
    return found


def _condition_for(names: Sequence[str], rows: pa.Table) -> Any:
    """Return a condition for rows with a key of `rows`. With several key columns, it may match rows of other keys.

    An exact condition would have a part for each key, and pyarrow would take minutes for some ten thousand keys.
    """
    from pyiceberg import expressions

    # pyiceberg creates the expression types at run time, so mypy sees wrong signatures.
    made: Any = expressions
    found = made.AlwaysTrue()
    for name in names:
        # Leave out NULL: rows with a NULL key are refused. Leave out NaN, too, which only `IsNaN` can match.
        values = {value for value in rows[name].drop_null().unique().to_pylist() if value == value}
        found = made.And(found, made.Or(made.In(name, values), made.IsNaN(name)))
    return found


def _cast_to_table(events: pa.Table, table: Any) -> pa.Table:
    """Cast rows and deletes to the types of their table, but nullable: a delete may have NULL in any column."""
    schema = table.schema().as_arrow()
    types = {one.name: schema.field(one.name).type for one in events.schema if one.name != DELETED}
    return events.cast(pa.schema([pa.field(name, types.get(name, pa.bool_())) for name in events.column_names]))


def _with_columns(schema: pa.Schema, *rows: pa.Table) -> pa.Table:
    """Return the rows of several frames as one, with the columns of `schema`, NULL where a frame lacks a column."""
    found = pa.concat_tables([schema.empty_table(), *rows], promote_options="permissive")
    return found.select(schema.names).cast(schema)


# --- iceberg --------------------------------------------------------------------------------------

PROPERTY = "glue-watermarks"
FOLDERS = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
"""Table properties that put files outside the table's location; the last two are older names."""
CHUNK = 64 * 1024 * 1024
"""Bytes in memory of the rows of one snapshot; a batch of more bytes becomes several snapshots."""
LARGEST_AGE_MS = 2**63 - 1
"""Milliseconds: the largest number that Iceberg accepts as an age."""
CONFLICT_TEXTS = (
    "CommitFailedException", "CommitStateUnknownException", "FileNotFoundException", "PATH_NOT_FOUND",
    "Found conflicting", "Found new conflicting", "Missing required files",
)  # fmt: skip
"""Parts of Iceberg's errors if another writer has changed the table, or has published the batch, meanwhile."""


class IcebergSink(LakeSink):
    """An Iceberg table, to which each batch is appended, or merged by key, in one commit.

    Guarantees: each row of a published batch is in the table exactly once, even if other attempts at the batch run,
    pause or crash. Readers of `main` see no row before the commit, and then all rows of the batch at once. This
    depends on a catalog that commits atomically; Spark's `hadoop` catalog on S3 does not.

    If the table does not exist, staging the first batch that has rows creates it, without rows. The table stays even if
    the batch is discarded. To find out whether a batch has rows, Spark computes the frame up to its first row.

    With Spark, each attempt stages its rows on a branch. The files of a losing attempt stay until
    ``expire_snapshots`` deletes them, like those of old snapshots. The branch of a committed batch never expires
    before the batch is published. Without Spark, publishing copies the staged files into the table's folder; for a
    table with partitions or a sort order, `pyiceberg` reads and writes the rows again.

    Parameters
    ----------
    target
        ``catalog.namespace.table``, with a catalog that Spark or `pyiceberg` is configured for.
    spark
        The Spark session; without it, `pyiceberg` writes.
    catalog
        A catalog of `pyiceberg`, for a script that configures it itself. Its name is the first part of `target`.
    partition_by
        Columns whose values partition the table. Empty: a table that exists keeps its partitions, a new one has none.
        To partition by a function such as ``days(ts)``, create the table first.
    staging
        The folder where attempts stage files, without Spark or for a merge. By default next to the table's location.
    merge, batch_column
        As for `DeltaSink`.

    Raises
    ------
    InvalidValueError
        The target is not of the form ``catalog.namespace.table``, or the given catalog has another name.
    NoJvmError
        The session is one of Spark Connect.
    """

    _log: _SparkLog | _ArrowLog

    def __init__(
        self,
        target: str,
        *,
        spark: SparkSession | None = None,
        s3_client: S3Client | None = None,
        catalog: Any = None,
        partition_by: Sequence[str] = (),
        staging: str | None = None,
        merge: Merge | None = None,
        batch_column: str | None = None,
    ) -> None:
        check_name(target, catalog)
        check_classic(spark, "An Iceberg table")
        self._spark, self._s3_client, self._chosen = spark, s3_client, staging
        self.needs_script = catalog is not None
        log = _SparkLog(target, spark) if spark is not None else _ArrowLog(target, catalog)
        super().__init__(target, log, partition_by, merge, batch_column)

    @classmethod
    def of(
        cls, output: Output | Retraction, spark: SparkSession | None = None, s3_client: S3Client | None = None
    ) -> IcebergSink | None:
        """Return a sink that can publish an output, or carry out a retraction; None if only the job's script can."""
        engine = output.engine if isinstance(output, Output) else None
        named = partial(cls, output.target, s3_client=s3_client, batch_column=output.batch_column or None)
        made = named()
        # Use the engine (Spark or `pyiceberg`) that staged the batch, because the other engine cannot find its rows.
        if output.staging and engine != _SparkLog.engine:
            # Ignore errors: this process cannot open the catalog, which only the job's own script configures. For a
            # retraction, Spark is tried below; for the output of another engine, None is returned.
            with suppress(WatermarkError):
                made._log.check(merges=False)
                return made if made._done(lambda: made._is_own_place(output)) else None
        if spark is None or engine == _ArrowLog.engine:
            return None
        with suppress(TargetError):
            made = named(spark=spark)
            if made._done(lambda: made._is_own_place(output)):
                return named(spark=spark, staging=output.staging)
        return None

    @property
    def staging(self) -> Staging:
        return self._staging_at(self._chosen or staging_beside(self._log.location()))

    def check(self, df: Any) -> Any:
        rows = super().check(df)
        if "" in columns_of(df):
            raise InvalidValueError(f"The rows for {self.name!r} have a column without a name. Give it one.")
        names = self.rules.keys if self.rules is not None else filter(None, [self._batch_column])
        for name in names if isinstance(self._log, _ArrowLog) else ():
            if "." in name:
                raise KeyColumnError(
                    name, "pyiceberg takes the dot for a field of a struct. Rename the column, or give the sink spark=."
                )
        return rows

    def places(self, df: Any) -> list[str]:
        if (found := self._done(self._log.found)) is not None:
            return self._leads_to(str(found.location()), self._log.properties(found))
        # Return no folder for rows without columns, which create no table. Also return none if the catalog does not
        # show where it would put a new table (TargetError): that folder does not exist yet, so no source is in it.
        with suppress(TargetError):
            return self._done(lambda: self._leads_to(*self._log.planned_table())) if columns_of(df) else []
        return []

    def publish(self, output: Output) -> None:
        """See `TableSink.publish`. TargetError if the rows were staged by the other engine (Spark or pyiceberg)."""
        if output.rows != 0 and output.engine != self._log.engine:
            raise TargetError(
                self.name,
                f"version {output.version} was staged with {output.engine}, and is published by it "
                f"only, not by {self._log.engine}. Run the job once as before.",
            )
        super().publish(output)

    def retract(self, retraction: Retraction) -> int:
        """See `TableSink.retract`. If the table is gone, delete only the staged rows, and log a WARNING."""
        if self._done(self._log.exists):
            return super().retract(retraction)
        # Do not raise, or each later run would fail. Delete the staged rows, so that no overtaken run can publish them.
        if retraction.staging:
            self._staging_at(retraction.staging).retract(retraction)
        logger.warning(
            "event=retraction_left target=%s versions=%d-%d: there is no such table. If it was renamed, it keeps the "
            "rows of these versions", self.name, retraction.first, retraction.last,
        )  # fmt: skip
        return 0

    def _checked(self, rows: Any) -> tuple[Any, TableShape]:
        rows, shape = super()._checked(rows)
        if not isinstance(self._log, _ArrowLog) or not columns_of(rows):
            return rows, shape
        rows = with_required_within(self.name, rows, shape.schema)
        return with_field_ids(rows, shape.schema) if self.rules is None else rows, shape

    def _attempts(self, of: Output | Retraction | None) -> Sequence[Attempts]:
        if isinstance(of, Output) and of.rows == 0 and not self._log.exists():
            return []  # A batch without rows creates no table, so there is no place in which rows could be staged.
        branches = [self._log.branches] if isinstance(self._log, _SparkLog) else []
        # Search this job's own staging folder, not the one that a record names: a forged record might name any folder.
        if branches and not (self._chosen if of is None else of.staging):
            return branches
        return [*branches, self.staging]

    def _write(self, batch: BatchId, made: Output, rows: Any) -> tuple[Output, StagedRows]:
        if not columns_of(rows) and not self._done(self._log.exists, after=CHECK):
            folder = folder_of(batch, made.fence, new_token()[:8])
            return replace(made, folder=folder, rows=0), StagedRows(folder)
        if self.rules is None and isinstance(self._log, _SparkLog):
            branches = self._log.branches
            output = self._done(lambda: branches.stage(batch, made, rows), after=CHECK)
            return output, StagedRows(output.folder)
        return super()._write(batch, made, rows)

    def _staging_at(self, folder: str) -> Staging:
        if not folder:
            raise InvalidValueError(f"{self.name!r} is a whole bucket. Say where to stage: staging='s3://…/'.")
        return Staging(place_of(folder.rstrip("/"), self._spark, self._s3_client))

    def _leads_to(self, location: str, properties: Mapping[str, Any]) -> list[str]:
        moved = [properties.get(name) for name in FOLDERS]
        stages_files = self.rules is not None or not isinstance(self._log, _SparkLog)
        staging = (self._chosen or staging_beside(location.rstrip("/"))) if stages_files else None
        return [location, *(str(folder) for folder in (*moved, staging) if folder)]


def _property(of: Output | Retraction) -> str:
    """Return the table property that records the last version of a job and epoch."""
    return f"{PROPERTY}.{of.job}.{of.epoch}"


class _Log(LakeLog):
    """The Iceberg table of a target. `found` and `table` load it as it is now, as an object of Java or `pyiceberg`."""

    format, title, restore_command = "iceberg", "Iceberg", "rollback_to_snapshot"
    is_created_when_staged, retries_decisions = True, False
    unfit_partitions: Mapping[str, str] = {}
    unfit: Mapping[str, Sequence[str]] = {}
    held: Collection[str] = HELD

    def __init__(self, target: str) -> None:
        self._target = target

    def exists(self) -> bool:
        return self.found() is not None

    def recorded(self, of: Output | Retraction) -> int:
        return self._recorded_in(self.table(), of)

    def witnessed(self, job: str, *, others: bool) -> Witnessed:
        table, prefix, start = self.found(), f"{PROPERTY}.", "" if others else f"{job}/"
        if table is None:
            return Witnessed(job, {})
        properties = self.properties(table)
        apps = {name.removeprefix(prefix).replace(".", "/", 1): name for name in properties if name.startswith(prefix)}
        found = {app: str(properties[name]) for app, name in apps.items() if app.startswith(start)}
        versions = {app: int(version) for app, version in found.items() if version.isdecimal()}
        return Witnessed(job, versions, rolled_back=_rolled_back(json.loads(self.metadata(table))))

    def location(self) -> str:
        """Return the URI of the folder of the target's table, without a slash at the end."""
        return str(self.table().location()).rstrip("/")

    def found(self) -> Any:
        """Return the target's table as it is now; None if the table does not exist."""
        try:
            return self.table()
        except Exception as error:
            if self.meaning(error) != "missing":
                raise
            return None

    def properties(self, table: Any) -> Any:
        """Return the Iceberg properties of a loaded table, by name."""
        return table.properties() if callable(table.properties) else table.properties

    def _recorded_in(self, table: Any, of: Output | Retraction) -> int:
        return int(self.properties(table).get(_property(of)) or 0)

    @abstractmethod
    def planned_table(self) -> tuple[str, Any]:
        """Return the location and the properties that a new table would get. No table is created.

        It is planned with one text column in place of the rows' columns, so Iceberg does not check their types here.
        """

    @abstractmethod
    def metadata(self, table: Any) -> str:
        """Return a loaded table's metadata as JSON text, as its catalog stores it, without loading the table again."""

    @abstractmethod
    def table(self) -> Any:
        """Return the target's table as it is now. Raise the connector's error if the table does not exist."""


def _rolled_back(metadata: Mapping[str, Any]) -> dict[str, int]:
    """Return, by job and epoch, the last version before those that a table lost in a rollback to an older snapshot."""
    snapshots = {one["snapshot-id"]: one for one in metadata.get("snapshots") or ()}
    summaries = {at: one.get("summary") or {} for at, one in snapshots.items()}
    ids = {at: str(one.get(PUBLISHED) or one.get(STAGED) or "") for at, one in summaries.items()}
    batches = {at: recorded_by(one.removeprefix(f"{PROPERTY}.").replace(".", "/", 1)) for at, one in ids.items()}
    return rolled_back(
        metadata.get("current-snapshot-id") or -1,
        {at: one.get("parent-snapshot-id") or -1 for at, one in snapshots.items()},
        [entry["snapshot-id"] for entry in metadata.get("snapshot-log") or ()],
        {at: batch for at, batch in batches.items() if batch is not None},
    )


class _SparkLog(_Log):
    """The target's table, by Iceberg's Java API: SQL cannot cherry-pick a snapshot and record a batch in one commit."""

    engine = "spark"

    def __init__(self, target: str, spark: SparkSession) -> None:
        super().__init__(target)
        self._spark, self.rows, self._quoted = spark, SparkRows(spark), quoted_table(target)
        self.branches = _Branches(target, spark, self)

    def check(self, *, merges: bool) -> None:
        # Check for Iceberg's extensions now: without them, MERGE would fail only at the publication.
        if merges and ICEBERG_EXTENSIONS not in str(self._spark.conf.get("spark.sql.extensions", "")):
            raise MissingConnectorError("iceberg", f"To merge rows, set spark.sql.extensions={ICEBERG_EXTENSIONS}.")
        check_iceberg_on_spark(self._target, self._spark)

    def shape(self) -> TableShape | None:
        table = self.found()
        if table is None:
            return None
        self._check_not_put_aside(table)
        schema, fields = self._spark.table(self._quoted).schema, table.spec().fields()
        partition_by = [str(fields.get(at).name()) for at in range(fields.size())]
        return TableShape(self.rows.types(schema), self.rows.required(schema), partition_by, schema=schema)

    def make(self, like: DataFrame, partition_by: Sequence[str]) -> None:
        make_if_missing(self._spark, self._target, like, partition_by)

    def planned_table(self) -> tuple[str, Any]:
        iceberg, session = java_of(self._spark).org.apache.iceberg, java_session(self._spark)
        catalog, _, name = self._target.partition(".")
        identifier = iceberg.catalog.TableIdentifier.parse(name)
        columns = java_frame(self._spark.createDataFrame([], "name string")).schema()
        schema = iceberg.spark.SparkSchemaUtil.convert(columns)
        loaded = iceberg.spark.Spark3Util.loadIcebergCatalog(session, catalog)
        table = loaded.buildTable(identifier, schema).createTransaction().table()
        return str(table.location()), table.properties()

    def commit(self, of: Output | Retraction, version: int, change: Append | MergeRows | Nothing) -> None:
        if isinstance(change, MergeRows):
            self._merge(of, version, change)
            return
        staged = self.refs().get(branch_of(change.staged.folder)) if isinstance(change, Append) else None
        if self.recorded(of) >= version:
            return
        if isinstance(change, Append) and staged is None:
            raise MovedError("It was published and swept meanwhile.")
        transaction = self.table().newTransaction()
        try:
            if staged is not None:
                # Use the snapshot of this attempt's branch, whose name contains a hash of the job's id. Do not use
                # `Output.snapshot`, which was read from the table of watermarks and may be forged.
                transaction.manageSnapshots().cherrypick(staged.snapshotId()).commit()
            elif isinstance(change, Nothing) and change.staged_files:
                # Add a snapshot, so that the commit of a late publisher, whose merge read an older snapshot, fails.
                transaction.newFastAppend().commit()
            transaction.updateProperties().set(_property(of), str(version)).commit()
            transaction.commitTransaction()
        except Exception as error:
            # Another publisher has published the batch: Iceberg refuses a second snapshot of a batch in `main`.
            if names_java_class(error, "DuplicateWAPCommitException", "CherrypickAncestorCommitException"):
                return
            if names_java_class(error, "unknown snapshot"):
                # Another publisher has published the batch and deleted its branch. The caller retries on MovedError.
                raise MovedError(str(error)) from error
            raise

    def merging(self, rules: Merge) -> SparkMerge:
        return SparkMerge(self._target, rules, self._spark, self.load)

    def delete(self, retraction: Retraction) -> int:
        count = self.count(retraction)
        if count > 0:
            self._spark.sql(sql("DELETE FROM {} WHERE {}", self._quoted, condition_for_batches(retraction)))
        return count

    def count(self, retraction: Retraction) -> int:
        return iceberg_rows(self._spark, self._target).where(condition_for_batches(retraction)).count()

    def meaning(self, error: Exception) -> Meaning | None:
        if is_missing(error):
            return "missing"
        if isinstance(error, FileNotFoundError | MovedError) or names_java_class(error, *CONFLICT_TEXTS):
            return "moved"
        return "refused" if is_spark_error(error) else None

    def refs(self) -> dict[str, Any]:
        """Return the last snapshot of each branch of the target's table, by the branch's name."""
        table = self.table()
        return {str(name): table.snapshot(ref.snapshotId()) for name, ref in dict(table.refs()).items()}

    def uuid(self) -> str:
        """Return the id of the target's table. A renamed table keeps its id; a new one of the same name has another."""
        return str(self.table().operations().current().uuid())

    def load(self, name: str) -> Any:
        """Return a table as it is now. Refresh it, because Spark's catalog caches tables for half a minute."""
        return spark_table(name, self._spark)

    def table(self) -> Any:
        return self.load(self._target)

    def metadata(self, table: Any) -> str:
        # Get the metadata as one text: to read ten thousand snapshots one by one through Py4J takes half a minute.
        return str(java_of(self._spark).org.apache.iceberg.TableMetadataParser.toJson(table.operations().current()))

    def _merge(self, of: Output | Retraction, version: int, change: MergeRows) -> None:
        def is_done(table: Any) -> bool:
            return self._recorded_in(table, of) >= version and not change.repeats

        record = {} if self.recorded(of) >= version else {_property(of): str(version)}
        # Name the branch as if another attempt at this batch had made it, so that a sweep deletes it, too.
        branch = branch_of(f"{change.staged.folder.rpartition('-')[0]}-{new_token()[:8]}")
        events, batch = self.rows.read(change.staged), _audit(of, version)
        self.merging(change.rules).publish(events, branch, record, batch, is_done)

    def _check_not_put_aside(self, table: Any) -> None:
        """Raise TargetError if Iceberg's write-audit-publish is on, by which Spark writes rows where no sink looks.

        With `spark.wap.id`, the rows would be in a snapshot that is in no branch, without any error.
        """
        if str(table.properties().get("write.wap.enabled")).lower() != "true":
            return
        for name in ("spark.wap.id", "spark.wap.branch"):
            if self._spark.conf.get(name, None) is not None:
                raise TargetError(
                    self._target,
                    f"the session has {name}, and the table write.wap.enabled, so Spark puts rows aside that would "
                    f"count as written. Unset {name}: rows are staged, and seen after the commit, anyway.",
                )


class _Branches(Attempts):
    """The hidden branches of a table on which attempts stage rows to append, each with one snapshot."""

    def __init__(self, target: str, spark: SparkSession, log: _SparkLog) -> None:
        self._target, self._spark, self._log = target, spark, log

    def stage(self, batch: BatchId, made: Output, rows: DataFrame) -> Output:
        folder = folder_of(batch, made.fence, new_token()[:8])
        output = replace(made, folder=folder, rows=0)
        # Stage nothing for a frame without columns, which means that the source had nothing new.
        if not rows.columns:
            return output
        branch = branch_of(folder)
        manage = self._log.table().manageSnapshots().createBranch(branch)
        # Keep the branch forever. Otherwise `expire_snapshots` would drop it at the table's general maximum age, even
        # if its batch is committed and waits for a run to publish it.
        manage.setMaxRefAgeMs(branch, LARGEST_AGE_MS).commit()
        required = self._log.rows.required(self._spark.table(quoted_table(self._target)).schema)
        columns = {name: F.col(SPARK.quote(name)) for name in required}
        nulls = [F.count(F.when(column.isNull(), 1)).alias(name) for name, column in columns.items()]
        counted, observed = observe(rows, nulls) if nulls else (rows, None)
        # Leave out rows with NULL in a required column: Spark refuses to write a nullable column to a required one.
        # Count them in this write (a frame computed again may differ). If there are any, `check_required` raises below.
        sure = reduce(lambda found, column: found.where(column.isNotNull()), columns.values(), counted)
        # Give the snapshot the `wap.id` of the batch, so that Iceberg lets only one attempt's snapshot into `main`.
        (
            sure.writeTo(quoted_table(self._target, branch))
            .option(f"snapshot-property.{STAGED}", _audit(made, batch.version))
            .append()
        )
        snapshot = self._log.refs()[branch]
        summary, left_out = snapshot.summary(), (observed and observed.after_action()) or {}
        if any(left_out.values()) or not int(summary.get("added-records") or 0):
            # Drop a branch that has no rows, or lacks some, and expire only its snapshot: none is older than time 0.
            self.clear(folder)
            self._log.table().expireSnapshots().expireOlderThan(0).expireSnapshotId(snapshot.snapshotId()).commit()
            check_required(self._target, left_out)
            return output
        return replace(
            output,
            files=int(summary.get("added-data-files") or 0), bytes=int(summary.get("added-files-size") or 0),
            rows=int(summary.get("added-records") or 0), snapshot=int(snapshot.snapshotId()), table=self._log.uuid(),
        )  # fmt: skip

    def find(self, output: Output) -> StagedRows:
        if branch_of(output.folder) not in self._log.refs():
            if output.table != self._log.uuid():
                raise moved_table(output)
            raise StagedFilesLostError(output.target, output.version, [branch_of(output.folder)])
        return StagedRows(output.folder)

    def left(self, job: str) -> list[str]:
        start = f"{BRANCH}{job}-"
        return sorted(f"{job}/{name.removeprefix(start)}" for name in self._log.refs() if name.startswith(start))

    def left_at(self, folder: str) -> str:
        snapshot = self._log.refs().get(branch_of(folder))
        count = 0 if snapshot is None else int(snapshot.summary().get("added-records") or 0)
        return f"{count_of(count, 'row')} on branch {branch_of(folder)} of {self._target}"

    def clear(self, folder: str) -> None:
        branch = branch_of(folder)
        if branch not in self._log.refs():
            return
        try:
            self._log.table().manageSnapshots().removeBranch(branch).commit()
        except Exception as error:
            if not names_java_class(error, "Branch does not exist"):
                raise

    drop = clear

    def withdraw(self, retraction: Retraction) -> bool:
        folders = self.covered(retraction)
        for folder in folders:
            # Add a snapshot without rows with the batch's `wap.id`: Iceberg then refuses a late publisher's snapshot.
            append = self._log.table().newFastAppend()
            append.set(STAGED, _audit(retraction, version_of(folder, retraction.epoch) or 0)).commit()
        return bool(folders)


def _audit(of: Output | Retraction, version: int) -> str:
    """Return the `wap.id` of a batch. Iceberg lets only one snapshot with this id into `main`."""
    return f"{PROPERTY}.{of.job}.{batch_name(of.epoch, version)}"


class _ArrowLog(_Log):
    """The target's table, read and written through the package `pyiceberg`."""

    engine = "pyiceberg"
    rows = ARROW_ROWS
    unfit = UNFIT_ICEBERG
    held = HELD | {"time64[us]"}

    def __init__(self, target: str, catalog: Any) -> None:
        super().__init__(target)
        self._given, self._identifier = catalog, target.partition(".")[2]

    def check(self, *, merges: bool) -> None:
        check_installed(self.format, ["duckdb"] if merges else [])
        self._catalog()

    def shape(self) -> TableShape | None:
        table = self.found()
        if table is None:
            return None
        schema = table.schema().as_arrow()
        partition_by = [field.name for field in table.spec().fields]
        return TableShape(self.rows.types(schema), self.rows.required(schema), partition_by, schema=schema)

    def make(self, like: Any, partition_by: Sequence[str]) -> None:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        # Ignore the error if another attempt has created the table. Avoid transactions: Glue and S3 Tables refuse them.
        with suppress(TableAlreadyExistsError, CommitFailedException):
            if not partition_by:
                self._catalog().create_table(self._identifier, like.schema)
                return
            begun = self._catalog().create_table_transaction(self._identifier, schema=like.schema)
            with begun as transaction, transaction.update_spec() as spec:
                for column in partition_by:
                    spec.add_identity(column)

    def planned_table(self) -> tuple[str, Any]:
        schema = pa.schema([("name", pa.string())])
        return str(self._catalog().create_table_transaction(self._identifier, schema).table_metadata.location), {}

    def commit(self, of: Output | Retraction, version: int, change: Append | MergeRows | Nothing) -> None:
        table = self.table()
        # Look for the batch in the `table` that is committed: if another publisher records it later, the commit fails.
        is_recorded = self._recorded_in(table, of) >= version
        if is_recorded and not (isinstance(change, MergeRows) and change.repeats):
            return
        summary = {STAGED: _audit(of, version)}
        record = {} if is_recorded else {_property(of): str(version)}
        table.catalog = _OneTry(table.catalog)
        if isinstance(change, MergeRows):
            merging = ArrowMerge(self._target, change.rules, table.catalog)
            merging.publish(table, self.rows.read(change.staged), record, summary)
            return
        schema = table.schema().as_arrow()
        copied = self._copied(table, change.staged) if isinstance(change, Append) else None
        with table.transaction() as transaction:
            if copied is not None:
                update = transaction.update_snapshot(summary)
                merges = table.properties.get("commit.manifest-merge.enabled") == "true"
                with update.merge_append() if merges else update.fast_append() as append:
                    for file in copied:
                        append.append_data_file(file)
            elif isinstance(change, Append):
                found = with_later_columns(self._target, self.rows.stream(change.staged), schema)
                # Append a snapshot for each 64 MB of rows, because pyiceberg holds a snapshot's rows in memory. Commit
                # all at once. Only the last snapshot names the batch: the others do not have all of its rows.
                chunks = joined_batches(found, CHUNK)
                for rows, later in pairwise(chain([next(chunks, schema.empty_table())], chunks, [None])):
                    assert rows is not None
                    transaction.append(rows.select(schema.names).cast(schema), summary if later is None else {})
            else:
                # Add a snapshot without rows, so that the commit of a publisher that read an older snapshot fails.
                transaction.append(schema.empty_table())
            transaction.set_properties(record)

    def _copied(self, table: Any, staged: StagedRows) -> list[Any] | None:
        """Copy staged files into the table's folder; return them as files of the table.

        Return None if `pyiceberg` has to write the rows itself: the table cannot have the files as they are, or only
        `pyiceberg` has the right to write to the folder.
        """
        from pyiceberg.io.pyarrow import parquet_file_to_data_file, parquet_path_to_id_mapping

        metadata, location = table.metadata, str(table.location()).rstrip("/")
        folder = staged.place.at(location) if isinstance(staged.place, LocalPlace | S3Place) else None
        if (
            folder is None
            or table.spec().fields
            or table.sort_order().fields
            or metadata.format_version > 2
            or {*FOLDERS, "write.object-storage.enabled", "write.py-location-provider.impl"} & set(table.properties)
        ):
            return None
        footers = staged.footers()
        if not all(has_fields(footer, table.schema()) for footer in footers.values()):
            return None
        try:
            copied = [name for name, _ in staged.copy_to(folder, "data/").values()]
        except TargetError as error:
            logger.info("event=written_again target=%s: %s", self._target, error)
            return None
        try:
            files = [parquet_file_to_data_file(table.io, metadata, f"{location}/{name}") for name in copied]
        except OSError as error:
            # `pyiceberg`, with another login or endpoint, cannot read the copied files: let it write the rows itself.
            logger.info("event=written_again target=%s: %s", self._target, error)
            return None
        ids = parquet_path_to_id_mapping(table.schema())
        for file, footer in zip(files, footers.values(), strict=True):
            for path, there in statistics_by_column(footer):
                # Drop bounds that `pyiceberg` took from some row groups only: readers would skip rows of the others.
                if not all(map(has_both_bounds, there)):
                    file.lower_bounds.pop(ids[path], None)
                    file.upper_bounds.pop(ids[path], None)
        return files

    def merging(self, rules: Merge) -> ArrowMerge:
        return ArrowMerge(self._target, rules, self._catalog())

    def delete(self, retraction: Retraction) -> int:
        table = self.table()
        before = _total(table)
        # Do not retry the commit: the rows before and after it are counted, and others may add rows between two tries.
        table.catalog = _OneTry(table.catalog)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Delete operation did not match any records")
            table.delete(_condition_for_batches(retraction))
        return before - _total(table)

    def count(self, retraction: Retraction) -> int:
        return int(self.table().scan(_condition_for_batches(retraction)).count())

    def meaning(self, error: Exception) -> Meaning | None:
        from pyiceberg.exceptions import CommitStateUnknownException, NoSuchTableError

        if isinstance(error, NoSuchTableError):
            return "missing"
        if isinstance(error, MovedError | CommitStateUnknownException | FileNotFoundError):
            return "moved"
        return "refused" if type(error).__module__.startswith(("pyiceberg.", "_duckdb")) else None

    def table(self) -> Any:
        return self._catalog().load_table(self._identifier)

    def metadata(self, table: Any) -> str:
        return str(table.metadata.model_dump_json())

    def _catalog(self) -> Any:
        self._given = arrow_catalog(self._target, self._given, TargetError, "use IcebergSink(…, catalog=…)")
        return self._given


def with_field_ids(rows: Any, schema: pa.Schema) -> Any:
    """Return Arrow rows with a table's field ids, which `pyarrow` then writes into Parquet. `schema` has these ids."""
    if isinstance(rows, ArrowStream):
        return rows.mapped(lambda table: with_field_ids(table, schema))
    fields = [schema.field(name) for name in rows.column_names]
    columns = [
        rows[field.name].cast(field.type) if pa.types.is_nested(field.type) else rows[field.name] for field in fields
    ]
    kept = [field.with_type(column.type) for field, column in zip(fields, columns, strict=True)]
    return pa.table(columns, pa.schema(kept))


def has_fields(footer: pq.FileMetaData, schema: Any) -> bool:
    """Return whether a Parquet file has the fields of a table, and the table's required fields are required there."""
    from pyiceberg.io.pyarrow import pyarrow_to_schema

    try:
        found = pyarrow_to_schema(footer.schema.to_arrow_schema())
    except ValueError:
        return False  # The error means that the file has no field ids.
    required = [at for at in schema.field_ids if schema.find_field(at).required]
    return _fields_in(found) == _fields_in(schema) and all(found.find_field(at).required for at in required)


def _fields_in(schema: Any) -> set[tuple[int, str, str]]:
    names = {at: schema.find_column_name(at) for at in schema.field_ids}
    return {(at, name, str(schema.find_type(at))) for at, name in names.items()}


def _condition_for_batches(retraction: Retraction) -> Any:
    """Return pyiceberg's condition that a row belongs to one of a retraction's batches."""
    from pyiceberg import expressions

    # pyiceberg creates the expression types at run time, so mypy sees wrong signatures.
    made: Any = expressions
    column, (first, last) = retraction.batch_column, batch_values(retraction)
    return made.And(made.GreaterThanOrEqual(column, first), made.LessThanOrEqual(column, last))


def _total(table: Any) -> int:
    """Return the number of rows in a table of `pyiceberg`."""
    snapshot = table.current_snapshot()
    return int(snapshot.summary["total-records"]) if snapshot is not None else 0


class _OneTry:
    """A catalog that tries each commit only once.

    From version 0.12 on, if a commit is refused, pyiceberg tries it again on top of the commits that came in between.
    One of these may be the same batch, from another publisher: then the batch would be in the table twice.
    """

    def __init__(self, catalog: Any) -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(self, *given: Any, **named: Any) -> Any:
        """Commit, or raise MovedError if the catalog refuses."""
        from pyiceberg.exceptions import CommitFailedException

        try:
            return self._catalog.commit_table(*given, **named)
        except CommitFailedException as error:
            raise MovedError(str(error)) from error
