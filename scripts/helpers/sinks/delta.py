"""`DeltaSink`: writes a batch as one transaction of a Delta table, with Spark or without.

::

    stage     <staging>/<job>/<batch>-f<fence>-…/part-….parquet, then _manifest      no reader sees it
    commit    the job's head names this attempt; the sink takes no part in that
    publish   if the batch is not recorded yet, one transaction appends or merges these rows and records the batch
    sweep     the staged folders of this attempt and of losing attempts are deleted, each manifest last

The record is Delta's own transaction id: a name (the "application", made of job and epoch) and a number (the batch's
version). Delta's log has the record in the same entry as the rows. If two publishers commit the same batch, their
transactions have one application and conflict: the later one fails, reads the table again, and finds the record.
"""

from __future__ import annotations

import json
import re
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from scripts.helpers._lazy import DataFrame, S3Client, SparkSession, pa, pc, pq
from scripts.helpers.errors import InvalidValueError, TargetError
from scripts.helpers.listing.paths import is_hidden
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.rows.dialect import SPARK, Dialect
from scripts.helpers.rows.sql import SQL, internal, joined, of_catalogue, sql, whole
from scripts.helpers.sinks.arrow_files import has_both_bounds, statistics_by_column
from scripts.helpers.sinks.connectors import (
    address_of,
    check_delta_on_spark,
    check_delta_path,
    check_installed,
    delta_log_on_spark,
    delta_schema,
    deltalake_place,
    is_of_deltalake,
    rows_at,
)
from scripts.helpers.sinks.delta_log import LOG, Commits, history_in, rolled_back_in, versions_in
from scripts.helpers.sinks.files import staging_for
from scripts.helpers.sinks.merging import DELETED, Merge, Step, TableMerge, Tables, from_source, one_database, quote
from scripts.helpers.sinks.outputs import application_of, batch_values
from scripts.helpers.sinks.places import Place, place_of
from scripts.helpers.sinks.sink import Witnessed
from scripts.helpers.sinks.spark_files import BYTES, NO_FOLDERS, UNFIT_ARROW, UNFIT_DELTA, timestamps_with_statistics
from scripts.helpers.sinks.staged_rows import (
    ARROW_ROWS,
    HELD,
    SparkRows,
    check_columns_left,
    columns_of,
    condition_for_batches,
    plain_type,
    with_later_columns,
)
from scripts.helpers.sinks.staging import StagedRows, Staging, is_beside
from scripts.helpers.sinks.table_sink import Append, LakeLog, LakeSink, Meaning, MergeRows, Nothing, TableShape
from scripts.helpers.spark.java_errors import is_spark_error, names_java_class
from scripts.helpers.spark.jvm import java_frame, java_of, java_session

Record = tuple[str, int]
"""The application and version of a Delta transaction."""
TRIES = 10
"""Tries to merge a batch while other writers commit in between. Each try reads and joins again."""
APPEND_ONLY = "delta.appendOnly"
UNFIT_IN_NAMES = frozenset(" ,;{}()\n\t=")
"""Characters that column names in Delta's Parquet files cannot have, unless the table maps its columns."""
MAP_PARTS_OF_PATH = r"\{key\}|\{value\}"
"""The parts of a path that are not names, but stand for the keys and values of a map."""
CONSTRAINT = "delta.constraints."
"""The prefix of table properties that hold CHECK constraints."""
EXACT_IN_DOUBLES = 15
"""The most digits of a decimal that a double keeps; the statistics in Delta's log are doubles."""
NO_MERGE = f"it has the property {APPEND_ONLY}, so no merge can change a row. Append."
WRITTEN_ON_ARROW = {
    "appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors", "generatedColumns",
    "invariants", "timestampNtz", "v2Checkpoint", "variantType", "variantType-preview",
}  # fmt: skip
"""Table features that `deltalake` 1 can write, as its commits show."""


COPIED_FEATURES = {
    "appendOnly", "changeDataFeed", "checkConstraints", "deletionVectors", "invariants", "timestampNtz", "v2Checkpoint",
}  # fmt: skip
"""Features with which a table can still take staged files unchanged."""
ANY_WRITER_CHECKS = re.compile(r'"(delta\.identity\.|CURRENT_DEFAULT)|"(containsNull|valueContainsNull)": ?false')
"""What a schema contains if writers have to fill or check values in ways that `conditions_in` does not cover."""
MAX_BOUND = 32
"""Most letters of a text in statistics, because readers keep statistics in memory."""
LAST_LETTER = "\U0010ffff"


class DeltaSink(LakeSink):
    """A Delta table at a path, to which each batch is appended, or merged by key, in one transaction.

    Guarantees: each row of a published batch is in the table exactly once, even if other attempts at the batch run,
    pause or crash. Readers see no row before the commit, and then all rows of the batch at once. This depends on
    Delta's transactions: if two Spark clusters may write to a table on S3 at once, Spark needs Delta's
    `S3DynamoDBLogStore`. Without Spark, the conditional writes of S3 are enough.

    Spark writes each row twice: it stages the rows, reads them, and appends them. Without Spark, an append copies the
    staged files, or if the table does not allow that, `deltalake` reads and writes the rows again. A merge and a text
    column in `partition_by` take one more read of the staged rows. The table is created when the first batch with rows
    is published. If an operator takes that batch back at the same moment, the table stays, without rows.

    Parameters
    ----------
    target
        The path of the table: ``s3://bucket/prefix/`` or a directory.
    spark
        The Spark session; without it, `deltalake` writes.
    s3_client
        A boto3 client of S3. `deltalake` uses its login and endpoint, too.
    partition_by
        Columns that the table is partitioned by. Empty: keep the partitions of the table; a new table has none.
    staging
        The folder where attempts stage, in the target's bucket or file system; by default one next to the target.
    merge
        The keys and the order by which a new row replaces an old one; see `IncrementalJob.merge`. None: append rows.
    batch_column
        A text column that the sink fills with the batch id of each row, so that `rewind` and `reset` with
        ``retract=True`` can delete published rows. An existing table must have it. None: published rows stay. Not
        allowed together with `merge`.

    Raises
    ------
    InvalidValueError
        The target is no path, or the paths of target and staging do not fit together.
    NoJvmError
        The session is one of Spark Connect.
    """

    def __init__(
        self,
        target: str,
        *,
        spark: SparkSession | None = None,
        s3_client: S3Client | None = None,
        partition_by: Sequence[str] = (),
        staging: str | None = None,
        merge: Merge | None = None,
        batch_column: str | None = None,
    ) -> None:
        check_delta_path(target, spark)
        self.target: Place = place_of(target, spark, s3_client)
        self._staging = staging_for(self.target, staging, spark, s3_client)
        log = _SparkLog(self.target, spark) if spark is not None else _ArrowLog(self.target)
        super().__init__(self.target.uri(""), log, partition_by, merge, batch_column)

    @classmethod
    def of(
        cls, output: Output | Retraction, spark: SparkSession | None = None, s3_client: S3Client | None = None
    ) -> DeltaSink | None:
        """Return a sink that can publish an output, or carry out a retraction.

        None if Spark staged the output and `spark` is None, or if the staging place is known to the job's script only.
        """
        engine = output.engine if isinstance(output, Output) else None
        if (engine == _SparkLog.engine and spark is None) or not is_beside(output, output.target):
            return None
        # Use the engine (Spark or `deltalake`) that staged the batch, because the other engine cannot find its rows.
        with_spark = None if engine == _ArrowLog.engine else spark
        return cls(
            output.target, spark=with_spark, s3_client=s3_client, staging=output.staging,
            batch_column=output.batch_column or None,
        )  # fmt: skip

    @property
    def staging(self) -> Staging:
        return self._staging

    def check(self, df: Any) -> Any:
        rows = super().check(df)
        stored = [name for name in columns_of(df) if name != DELETED]
        check_columns_left(self._partition_by, [*stored, self._batch_column] if self._batch_column else stored)
        paths = self._log.rows.by_path(df.schema) if isinstance(self._log, _SparkLog) else ()
        unfit = [
            path for path in paths if path != DELETED and set(re.sub(MAP_PARTS_OF_PATH, "", path)) & UNFIT_IN_NAMES
        ]
        # Check the names now: the table is created only after the commit, and then refusing a name would be too late.
        if unfit and not self._log.exists():
            raise InvalidValueError(
                f"Column {unfit[0]!r}: no name in a new Delta table of Spark has a blank, a tab, a line break, or one "
                "of ,;{}()=. Rename it, or make the table first, with delta.columnMapping.mode=name."
            )
        return rows

    def places(self, df: Any) -> list[str]:
        return [self.name, self._staging_now()]

    def _write(self, batch: BatchId, made: Output, rows: Any) -> tuple[Output, StagedRows]:
        # Check the rights only for `deltalake`, which uses the login of this process. Spark has a login of its own.
        if made.engine == _ArrowLog.engine:
            self.staging.place.check_rights(self.target)
        return super()._write(batch, made, rows)


class _Log(LakeLog, Tables):
    """A Delta table, and the table next to it that remembers deletes. Methods take the URI of one of the two."""

    format, title, restore_command = "delta", "Delta", "RESTORE TABLE"
    is_created_when_staged, retries_decisions = False, True
    held = HELD | {"tinyint", "smallint"}
    dialect: Dialect

    def __init__(self, target: Place, uri: str) -> None:
        self._place, self._uri = target, uri

    def exists(self) -> bool:
        return bool(self._place.files(LOG, most=1))

    def shape(self) -> TableShape | None:
        if self.exists():
            return self._shape()
        found = [name for name in self._place.files(most=100) if not is_hidden(name)]
        if found:
            raise TargetError(self._place.uri(""), reason="not_a_table", format=self.title, found=found[0])
        return None

    def make(self, like: Any, partition_by: Sequence[str]) -> None:
        self.create(self._uri, like, columns_of(like), partition_by)

    def recorded(self, of: Output | Retraction) -> int:
        return self.recorded_at(application_of(of))

    def commit(self, of: Output | Retraction, version: int, change: Append | MergeRows | Nothing) -> None:
        app = application_of(of)
        if not isinstance(change, MergeRows):
            self._append((app, version), change.staged if isinstance(change, Append) else None)
            return
        is_recorded = self.recorded(of) >= version
        # Do not merge a recorded batch again: this would restore rows that an operator removed from the deletes table.
        if not is_recorded or change.repeats:
            record = None if is_recorded else (app, version)
            self._merge(self.merging(change.rules), self.rows.read(change.staged), record)

    def witnessed(self, job: str, *, others: bool) -> Witnessed:
        versions, commits = self._versions("" if others else f"{job}/")
        found = Witnessed(job, versions)
        return replace(found, rolled_back=rolled_back_in(job, commits)) if found.epochs else found

    def merging(self, rules: Merge) -> TableMerge:
        start, _, name = self._uri.rpartition("/")
        return TableMerge(self._uri, f"{start}/_{name}.deleted", rules, self, self.rows.frames)

    def has(self, table: str) -> bool:
        return self.version(table) is not None

    @one_database()
    def _merge(self, merge: TableMerge, events: Any, record: Record | None) -> None:
        """Merge events into an existing table, and record the batch if `record` is given. Repeated calls do no harm.

        Delta has no transaction over two tables: the target, and the table that remembers deletes. So the deletes are
        written first. If this publisher then dies, the next one applies them to the target. If another publisher writes
        to one of the tables between the read and the write here, that table's version shows it, and this publisher
        merges again.
        """
        self.create(merge.memory, events, merge.named)
        distinct = self.rows.frames.distinct(events, merge.rules)
        if self.rows.frames.has_deletes(distinct):
            self.merge(merge.memory, distinct, merge.remembering(), None)
        step, recorded = merge.step(columns_of(events)), record
        for _ in range(TRIES):
            looked = self.version(self._uri), self.version(merge.memory)
            try:
                self.merge(self._uri, merge.source(distinct), step, recorded)
            except Exception as error:
                # While this loop has not recorded the batch, raise: the caller tries again, or finds that another
                # publisher has recorded it. Once it is recorded, and another writer has changed the table ("moved"),
                # merge again here: the caller would skip the batch, and not merge it with that writer's changes.
                if recorded is not None or self.meaning(error) != "moved":
                    raise
                continue
            recorded = None
            # Stop if the table has recorded a later version, of a batch or a decision: `merge` then did nothing.
            if record is not None and self.recorded_at(record[0]) > record[1]:
                return
            now = self.version(self._uri), self.version(merge.memory)
            # A merge raises the table's version by one, or not at all if it changes no row. Any other version shows
            # that another writer committed in between, so merge again to include its rows and deletes.
            if now[1] == looked[1] and now[0] in (looked[0], (looked[0] or 0) + 1):
                return
        raise TargetError(self._uri, f"others came between {TRIES} times. Let one job at a time merge into a table.")

    @abstractmethod
    def recorded_at(self, app: str) -> int:
        """Return the last version recorded for an application (job and epoch); 0 for none, or if there is no table."""

    @abstractmethod
    def version(self, uri: str) -> int | None:
        """Return the current version of the table at `uri`; None if there is no table."""

    @abstractmethod
    def create(self, uri: str, like: Any, columns: Sequence[str], partition_by: Sequence[str] = ()) -> None:
        """Create a table without rows, with the `columns` of the frame `like`; do nothing if the table exists."""

    @abstractmethod
    def merge(self, uri: str, source: Any, step: Step, record: Record | None) -> None:
        """Merge a frame into a table in one transaction, which also records the batch if `record` is given.

        If that batch or a later one is recorded already, do nothing.
        """

    def _shape_of(
        self, schema: Any, columns: Mapping[str, Any], partition_by: Sequence[str], properties: Mapping[str, str]
    ) -> TableShape:
        """Return the shape of a table, made from its log and from `schema`, which the connector has read."""
        no_merge = NO_MERGE if properties.get(APPEND_ONLY) == "true" else ""
        conditions = conditions_in(columns, properties, self.dialect)
        types, required = self.rows.types(schema), self.rows.required(schema)
        return TableShape(types, required, list(partition_by), no_merge, conditions, schema)

    @abstractmethod
    def _shape(self) -> TableShape: ...

    @abstractmethod
    def _versions(self, start: str) -> tuple[dict[str, int], Commits]:
        """Return the last version of each application whose name begins with `start`, and the newest commits."""

    @abstractmethod
    def _append(self, record: Record, staged: StagedRows | None) -> None:
        """Append staged rows (None: no rows) and record the batch in one transaction, unless it is recorded already."""


def conditions_in(columns: Mapping[str, Any], properties: Mapping[str, str], dialect: Dialect) -> dict[str, SQL]:
    """Return the conditions that each row of a table must meet, by name, such as "CHECK positive (n > 0)"."""
    found = {}
    for name, text in properties.items():
        if name.startswith(CONSTRAINT):
            found[f"CHECK {name.removeprefix(CONSTRAINT)} ({text})"] = of_catalogue(text)
    for path, field in _fields_in(columns):
        quoted, more = [dialect.quote(name) for name in path], field["metadata"]
        of, column = f"of column {'.'.join(path)!r}", joined(".", quoted)
        if text := more.get("delta.invariants"):
            text = json.loads(text)["expression"]["expression"]
            found[f"invariant ({text}) {of}"] = of_catalogue(text)
        if text := more.get("delta.generationExpression"):
            found[f"GENERATED ALWAYS AS ({text}) {of}"] = sql(
                "{} IS NOT DISTINCT FROM ({})", column, of_catalogue(text)
            )
        if more.get("delta.identity.allowExplicitInsert") is False:
            found[f"GENERATED ALWAYS AS IDENTITY {of}"] = sql("FALSE")
        if limit := re.fullmatch(r"(?:var)?char\((\d+)\)", more.get("__CHAR_VARCHAR_TYPE_STRING", "")):
            found[f"{limit[0]} {of}"] = sql("COALESCE(LENGTH(RTRIM({})), 0) <= {}", column, whole(int(limit[1])))
    for field in columns["fields"]:
        for within, condition in _required_within(field["type"], field["name"], dialect.quote(field["name"]), dialect):
            found[f"NOT NULL of column {within!r}"] = condition
    return found


def _required_within(kind: Any, path: str, value: SQL, dialect: Dialect) -> Iterator[tuple[str, SQL]]:
    """Yield, for each nested field or element that must not be NULL, its path and the condition that it is not NULL.

    Delta and readers require such a field even if the struct around it is NULL. No engine checks fields in lists and
    maps when it writes, but `pyarrow` cannot read a table with a NULL there.
    """
    if not isinstance(kind, dict):
        return
    if kind["type"] == "struct":
        for field in kind["fields"]:
            inner, within = f"{path}.{field['name']}", sql("{}.{}", value, dialect.quote(field["name"]))
            if not field["nullable"]:
                yield inner, sql("{} IS NOT NULL", within)
            yield from _required_within(field["type"], inner, within, dialect)
        return
    name = "element" if kind["type"] == "array" else "value"
    item = sql("{}_{}", internal("item"), whole(path.count(".")))
    values = value if name == "element" else sql("MAP_VALUES({})", value)
    conditions = list(_required_within(kind[f"{name}Type"], f"{path}.{name}", item, dialect))
    if not kind["containsNull" if name == "element" else "valueContainsNull"]:
        conditions.append((f"{path}.{name}", sql("{} IS NOT NULL", item)))
    for inner, condition in conditions:
        if dialect is SPARK:
            yield inner, sql("COALESCE(NOT EXISTS({}, {} -> NOT ({})), TRUE)", values, item, condition)
        else:
            yield inner, sql("COALESCE(LEN([{1} FOR {1} IN {0} IF NOT ({2})]), 0) = 0", values, item, condition)


def _fields_in(struct: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield path and definition of each field of a schema in Delta's log, also of the fields within structs."""
    for field in struct["fields"]:
        within = (*path, field["name"])
        yield within, field
        if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            yield from _fields_in(field["type"], within)


def delta_rows(spark: SparkSession, uri: str) -> DataFrame:
    """Return the rows that a table has now, even if the script has cached it. Spark raises if there is no table."""
    return rows_at(spark, "delta", uri, _version(spark, uri))


def _version(spark: SparkSession, uri: str) -> int | None:
    if not java_of(spark).io.delta.tables.DeltaTable.isDeltaTable(java_session(spark), uri):
        return None
    return int(delta_log_on_spark(uri, spark)._2().version())


class _SparkLog(_Log):
    """The target's table, read and written through Delta's connector for Spark."""

    engine, dialect = "spark", SPARK
    unfit_partitions, unfit = NO_FOLDERS, UNFIT_DELTA

    def __init__(self, target: Place, spark: SparkSession) -> None:
        super().__init__(target, target.uri(""))
        self._spark, self.rows = spark, SparkRows(spark)
        self._quoted = sql("delta.{}", SPARK.quote(self._uri))

    def check(self, *, merges: bool) -> None:
        check_delta_on_spark(self._spark)

    def delete(self, retraction: Retraction) -> int:
        delete = sql("DELETE FROM {} WHERE {}", self._quoted, condition_for_batches(retraction))
        return int(self._spark.sql(delete).collect()[0][0])

    def count(self, retraction: Retraction) -> int:
        return delta_rows(self._spark, self._uri).where(condition_for_batches(retraction)).count()

    def meaning(self, error: Exception) -> Meaning | None:
        # `io.delta.exceptions` has the errors that the later of two publishers gets: ConcurrentTransactionException or,
        # for the first batch, ProtocolChangedException or MetadataChangedException.
        if names_java_class(error, "io.delta.exceptions.", "java.io.FileNotFoundException", "PATH_NOT_FOUND"):
            return "moved"
        return "refused" if is_spark_error(error) else None

    def version(self, uri: str) -> int | None:
        return _version(self._spark, uri)

    def columns(self, table: str) -> list[str]:
        return list(self._load(table).columns)

    def read(self, table: str, events: DataFrame, merge: Merge) -> DataFrame:
        return delta_rows(self._spark, table)

    def create(self, uri: str, like: DataFrame, columns: Sequence[str], partition_by: Sequence[str] = ()) -> None:
        if self.has(uri):
            return
        # Use the mode "ignore", which does nothing if another publisher has created the table meanwhile.
        writer = like.limit(0).select(*map(quote, columns)).write.format("delta").mode("ignore")
        # Set the Parquet type of timestamps even for no rows: Delta writes a file without rows.
        with timestamps_with_statistics(self._spark):
            (writer.partitionBy(*partition_by) if partition_by else writer).save(uri)

    def recorded_at(self, app: str) -> int:
        done = delta_log_on_spark(self._uri, self._spark)._2().transactions().get(app)
        return int(done.get()) if done.isDefined() else 0

    def merge(self, uri: str, source: DataFrame, step: Step, record: Record | None) -> None:
        # Set the transaction's name and number in a cloned session: otherwise they would apply to other threads, too.
        with timestamps_with_statistics(self._spark):
            session = java_session(self._spark).cloneSession()
        if record is not None:
            session.conf().set("spark.databricks.delta.write.txnAppId", record[0])
            session.conf().set("spark.databricks.delta.write.txnVersion", str(record[1]))
        target = java_of(self._spark).io.delta.tables.DeltaTable.forPath(session, uri).alias("t")
        merging = target.merge(java_frame(source.alias("s")), step.on)
        if step.delete_when is not None:
            merging = merging.whenMatched(step.delete_when).delete()
        if step.update_when is not None:
            merging = merging.whenMatched(step.update_when).updateExpr(from_source(step.sets))
        merging.whenNotMatched(step.insert_when).insertExpr(from_source(step.inserts)).execute()

    def _shape(self) -> TableShape:
        found = json.loads(delta_log_on_spark(self._uri, self._spark)._2().metadata().json())["metaData"]
        columns = json.loads(found["schemaString"])
        return self._shape_of(self._load(self._uri).schema, columns, found["partitionColumns"], found["configuration"])

    def _versions(self, start: str) -> tuple[dict[str, int], Commits]:
        if not self.exists():
            return {}, ()
        # Get all applications as one text: reading them one by one would take a call to the JVM for each.
        found = str(delta_log_on_spark(self._uri, self._spark)._2().transactions().mkString("\n")).split("\n")
        texts = (text.rpartition(" -> ") for text in found)
        versions = {app: int(version) for app, _, version in texts if app.startswith(start) and app}
        return versions, history_in(self._place, self._place.files(LOG))

    def _append(self, record: Record, staged: StagedRows | None) -> None:
        # Do not check first whether the batch is recorded: Delta checks that within the transaction.
        rows = self._load(self._uri).limit(0) if staged is None else self.rows.read(staged)
        writer = rows.write.format("delta").mode("append").option("txnAppId", record[0])
        with timestamps_with_statistics(self._spark):
            writer.option("txnVersion", record[1]).save(self._uri)

    def _load(self, uri: str) -> DataFrame:
        return self._spark.read.format("delta").load(uri)


class _ArrowLog(_Log):
    """The target's table, read and written through the package `deltalake`."""

    engine, dialect = "deltalake", Dialect()
    rows = ARROW_ROWS
    unfit_partitions, unfit = BYTES, UNFIT_ARROW

    def __init__(self, target: Place) -> None:
        uri, self._options = deltalake_place(target)
        super().__init__(target, uri)

    def check(self, *, merges: bool) -> None:
        # Require DuckDB even for an append, because it checks the constraints of the table.
        check_installed(self.format, ["deltalake", "duckdb"])
        address_of(self._uri)

    def delete(self, retraction: Retraction) -> int:
        return int(self._open(self._uri).delete(condition_for_batches(retraction)).get("num_deleted_rows") or 0)

    def count(self, retraction: Retraction) -> int:
        table, (first, last) = self._open(self._uri), batch_values(retraction)
        rows = table.to_pyarrow_dataset()
        column = compared_in(table, rows, retraction.batch_column)
        return int(rows.count_rows(filter=(column >= first) & (column <= last)))

    def meaning(self, error: Exception) -> Meaning | None:
        from deltalake.exceptions import CommitFailedError

        # Search the text, too: if staged files are gone, `deltalake` raises an error that quotes a FileNotFoundError.
        if isinstance(error, CommitFailedError | FileNotFoundError) or "FileNotFoundError" in str(error):
            return "moved"
        return "refused" if is_of_deltalake(error) else None

    def version(self, uri: str) -> int | None:
        table = self._open(uri)
        return None if table is None else int(table.version())

    def columns(self, table: str) -> list[str]:
        return [field.name for field in self._open(table).schema().fields]

    def read(self, table: str, events: pa.Table, merge: Merge) -> pa.Table:
        there = self._open(table)
        rows, first = there.to_pyarrow_dataset(), merge.keys[0]
        # Filter by the first column of the key, so that files whose statistics exclude these values are not read.
        values = events[first].unique().cast(rows.schema.field(first).type)
        return rows.to_table(filter=compared_in(there, rows, first).isin(values))

    def create(self, uri: str, like: pa.Table, columns: Sequence[str], partition_by: Sequence[str] = ()) -> None:
        from deltalake import DeltaTable, Schema

        if self.has(uri):
            return
        schema = pa.schema([pa.field(name, like.schema.field(name).type) for name in columns])
        # Create the table without rows: two publishers may create it at once unnoticed, and both would add the rows.
        DeltaTable.create(
            address_of(uri), schema=Schema.from_arrow(schema), mode="ignore", partition_by=list(partition_by) or None,
            storage_options=self._options,
        )  # fmt: skip

    def recorded_at(self, app: str) -> int:
        return _recorded_in(self._open(self._uri), app)

    def merge(self, uri: str, source: pa.Table, step: Step, record: Record | None) -> None:
        table = self._open(uri)
        # Check the table object that the merge uses: if another publisher records the batch later, the merge fails.
        if record is not None and _recorded_in(table, record[0]) >= record[1]:
            return
        merging = table.merge(
            source, step.on, source_alias="s", target_alias="t", commit_properties=_properties_recording(record)
        )
        if step.delete_when is not None:
            merging = merging.when_matched_delete(step.delete_when)
        if step.update_when is not None:
            merging = merging.when_matched_update(from_source(step.sets), step.update_when)
        merging.when_not_matched_insert(from_source(step.inserts), step.insert_when).execute()
        if record is not None and _recorded_in(table, record[0]) < record[1]:
            # A merge that changes no row makes no commit, so record the batch here: otherwise it would seem lost.
            self._append(record, None)

    def _shape(self) -> TableShape:
        table = self._open(self._uri)
        schema = delta_schema(table)
        # Check the features now: `deltalake` checks them only when it publishes, which is after the job's commit.
        if unfit := set(table.protocol().writer_features or ()) - WRITTEN_ON_ARROW:
            raise TargetError(
                self._uri,
                f"it has the features {', '.join(sorted(unfit))}, which the package deltalake does not write. Write it "
                "with Spark.",
            )
        found, columns = table.metadata(), json.loads(table.schema().to_json())
        return self._shape_of(schema, columns, found.partition_columns, found.configuration)

    def _versions(self, start: str) -> tuple[dict[str, int], Commits]:
        versions, may_expire, commits = versions_in(self._place)
        found = {app: version for app, version in versions.items() if app.startswith(start)}
        # If records may have expired, ask `deltalake`, which leaves out expired ones but reads the whole log each time.
        table = self._open(self._uri) if found and may_expire else None
        return {app: _recorded_in(table, app) for app in found} if table is not None else found, commits

    def _append(self, record: Record, staged: StagedRows | None) -> None:
        from deltalake import write_deltalake

        table = self._open(self._uri)
        # Add nothing if this or a higher version is recorded: by a later batch, or a decision that took this one back.
        if _recorded_in(table, record[0]) >= record[1]:
            return
        # Write to the table object in which no record was found, not to its path: only then does this append conflict
        # with one that another publisher has committed since. Otherwise the batch would be in the table twice.
        schema = delta_schema(table)
        properties = _properties_recording(record)
        if staged is not None and (added := self._copied(table, schema, staged)) is not None:
            table.create_write_transaction(added, "append", table.schema(), commit_properties=properties)
            return
        rows: Any = (
            with_later_columns(self._uri, self.rows.stream(staged), schema)
            if staged is not None
            else schema.empty_table()
        )
        write_deltalake(table, rows, mode="append", commit_properties=properties)

    def _copied(self, table: Any, schema: pa.Schema, staged: StagedRows) -> list[Any] | None:
        """Copy staged files into the table's folder; return the actions that add them to the table's log.

        Return None, and copy nothing, if the table cannot use the files as they are: the caller then writes the rows.
        """
        from deltalake.transaction import AddAction

        found, columns = table.metadata(), table.schema().to_json()
        if (
            found.partition_columns
            or found.configuration.get("delta.columnMapping.mode", "none") != "none"
            or set(table.protocol().writer_features or ()) - COPIED_FEATURES
            or ANY_WRITER_CHECKS.search(columns)
            or conditions_in(json.loads(columns), found.configuration, self.dialect)
        ):
            return None
        footers = staged.footers()
        if not all(has_layout(footer, schema) for footer in footers.values()):
            return None
        copied, now = staged.copy_to(self._place), int(time.time() * 1000)
        return [
            AddAction(path, size, {}, now, True, statistics_of(footers[name], schema))
            for name, (path, size) in copied.items()
        ]

    def _open(self, uri: str) -> Any:
        """Return the table at `uri` as it is now; None if there is no table."""
        from deltalake import DeltaTable

        address = address_of(uri)
        is_there = DeltaTable.is_deltatable(address, self._options)
        return DeltaTable(address, storage_options=self._options) if is_there else None


def has_layout(footer: pq.FileMetaData, schema: pa.Schema) -> bool:
    """Return whether a Parquet file has the table's columns and types, and no NULL in a required column."""
    found = footer.schema.to_arrow_schema()
    types = {field.name: plain_type(field.type) for field in schema}
    required = {field.name for field in schema if not field.nullable}
    by_path = statistics_by_column(footer)
    chunks = [one for path, groups in by_path if path.partition(".")[0] in required for one in groups]
    has_nulls = any(not one or not one.has_null_count or one.null_count for one in chunks)
    return {field.name: plain_type(field.type) for field in found} == types and not has_nulls


def statistics_of(footer: pq.FileMetaData, schema: pa.Schema) -> str:
    """Return the statistics of a Parquet file as JSON for Delta's log: the row count, and bounds of each column.

    The bounds enclose all values of a column. If the bounds of one column cannot be given, none are given: `deltalake`
    would read a missing bound as NULL, and skip the file although it may have matching rows.
    """
    found: dict[str, Any] = {"numRecords": footer.num_rows}
    chunks: dict[str, list[Any]] = {}
    for path, there in statistics_by_column(footer):
        chunks.setdefault(path, []).extend(there)
    bounds: dict[str, Any] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    # Give no bounds if two columns have the same path, as a column "a.b" and the field `b` of a struct `a` have.
    is_unique = all(len(there) == footer.num_row_groups for there in chunks.values())
    # Give no bounds if one of them is a date or time that Python cannot represent, such as in the year 10000.
    with suppress(OverflowError, ValueError):
        if is_unique and all(_describe(field, field.name, chunks, *bounds.values()) for field in schema):
            found |= bounds
    # Do not escape letters, because `deltalake` reads some of JSON's escapes as other letters.
    return json.dumps(found, ensure_ascii=False)


def _describe(field: Any, path: str, chunks: Mapping[str, list[Any]], low: Any, high: Any, nulls: Any) -> bool:
    """Add a column's bounds and number of NULLs to `low`, `high` and `nulls`; return False if they are not known."""
    kind, name, types = field.type, field.name, pa.types
    # Give no bounds for a name with a dot: readers would take it for the path of a field in a struct.
    if "." in name:
        return False
    if types.is_struct(kind):
        for bounds in (low, high, nulls):
            bounds[name] = {}
        inner = low[name], high[name], nulls[name]
        return all(_describe(one, f"{path}.{one.name}", chunks, *inner) for one in kind)
    if types.is_nested(kind) or types.is_binary(kind):
        return True
    if not all(has_both_bounds(one) and one.has_null_count for one in chunks[path]):
        return False
    nulls[name] = sum(one.null_count for one in chunks[path])
    with_values = [one for one in chunks[path] if one.num_values]
    if with_values:
        low[name], high[name] = _bounds(min(one.min for one in with_values), max(one.max for one in with_values), kind)
    return True


def _bounds(least: Any, most: Any, kind: pa.DataType) -> tuple[Any, Any]:
    """Return a lower and an upper bound of all values, as in Delta's log; ValueError if the log must have none."""
    if isinstance(least, str):
        high = most[:MAX_BOUND]
        while high < most:
            high += LAST_LETTER
        return least[:MAX_BOUND], high
    if isinstance(least, datetime):
        zone, until = "Z" if least.tzinfo else "", most + timedelta(microseconds=999)
        low, high = (one.replace(tzinfo=None).isoformat(timespec="milliseconds") for one in (least, until))
        return f"{low}{zone}", f"{high}{zone}"
    if isinstance(least, Decimal):
        low, high = float(least), float(most)
        # Give no bounds that `deltalake` would read as NULL: decimals with many digits, or with an exponent.
        if kind.precision > EXACT_IN_DOUBLES or "e" in f"{low} {high}":
            raise ValueError(most)
        return low, high
    if isinstance(least, float):
        # Give no bounds for floats. Spark answers MAX by bounds, and NaN is its largest float, but Parquet ignores NaN.
        raise ValueError(most)
    return (least.isoformat(), most.isoformat()) if isinstance(least, date) else (least, most)


def _recorded_in(table: Any, app: str) -> int:
    return int((table and table.transaction_version(app)) or 0)


def _properties_recording(record: Record | None) -> Any:
    """Return the commit properties that record a batch in a transaction."""
    from deltalake import CommitProperties, Transaction

    return CommitProperties(app_transactions=[Transaction(*record)]) if record else None


def compared_in(table: Any, rows: Any, name: str) -> Any:
    """Return a column for a pyarrow filter. With it, pyarrow skips files by statistics only if these can be trusted.

    Statistics in Delta's log may be inexact, and pyarrow would skip files that have matching rows: decimals are stored
    as doubles, some writers cut times to milliseconds, NaN and infinity are left out, and for files that `deltalake`
    has merged, texts have a type that pyarrow cannot compare with the column's. Bounds may also be missing, such as
    those of booleans that Spark wrote: `deltalake` returns them as NULL, and pyarrow would skip these files, too.

    In these cases the column is wrapped in a function, so that files are skipped only by their partition values.

    Parameters
    ----------
    table, rows
        The table of `deltalake`, and its dataset.
    """
    import pyarrow.dataset as ds

    kind, column = rows.schema.field(name).type, ds.field(name)
    is_exact = (
        pa.types.is_integer(kind)
        or pa.types.is_date(kind)
        or (pa.types.is_decimal(kind) and kind.precision <= EXACT_IN_DOUBLES)
    )
    return column if is_exact and _has_bounds(table, name) else pc.coalesce(column)


def _has_bounds(table: Any, name: str) -> bool:
    """Return whether the log has a column's bounds for each file in which the column has a value."""
    files = pa.table(table.get_add_actions(flatten=True))
    if not {f"min.{name}", f"max.{name}", f"null_count.{name}"} <= set(files.column_names):
        return name in table.metadata().partition_columns
    lacks = pc.or_(pc.is_null(files[f"min.{name}"]), pc.is_null(files[f"max.{name}"]))
    has_values = pc.fill_null(pc.not_equal(files[f"null_count.{name}"], files["num_records"]), True)
    return not pc.any(pc.and_(lacks, has_values)).as_py()
