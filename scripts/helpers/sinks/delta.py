"""`DeltaSink`: a batch as one transaction of a Delta table, with Spark or without.

::

    stage     <staging>/<job>/<batch>-f<fence>-…/part-….parquet, then _manifest      nobody sees it
    commit    the head names this attempt: not here, and nothing else does
    publish   one transaction that appends these rows, or merges them, and records the batch, unless it is recorded
    sweep     the staged folder is deleted, its manifest last; those of losers too

The record is Delta's own: a transaction id of an application, here job and epoch, with a version, here the batch's.
It is in the same entry of Delta's log as the rows. Two writers of one application's transaction conflict, whatever
they append: the later one fails, looks again, and finds that the batch is there.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from scripts.helpers._lazy import DataFrame, S3Client, SparkSession, pa, pc
from scripts.helpers.errors import InvalidValueError, TargetError
from scripts.helpers.listing.paths import is_hidden
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.rows.dialect import SPARK, Dialect
from scripts.helpers.rows.sql import SQL, joined, of_catalogue, sql, whole
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
from scripts.helpers.sinks.merging import DELETED, Merge, Step, TableMerge, Tables, from_source, quote
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
    of_batches,
    with_later_columns,
)
from scripts.helpers.sinks.staging import StagedRows, Staging, is_beside
from scripts.helpers.sinks.table_sink import Append, LakeLog, LakeSink, Meaning, MergeRows, Nothing, TableShape
from scripts.helpers.spark.java_errors import is_of_java, is_of_spark
from scripts.helpers.spark.jvm import java_frame, java_of, java_session

Record = tuple[str, int]
"""Application and version of one of Delta's transactions."""
TRIES = 10
"""Others may write to the table while a batch is merged so often. Each try reads and joins anew."""
APPEND_ONLY = "delta.appendOnly"
UNFIT_IN_NAMES = frozenset(" ,;{}()\n\t=")
"""What names of a Parquet file of Delta do not have, unless the table maps its columns."""
PARTS_OF_MAPS = r"\{key\}|\{value\}"
"""What a path has beside the names."""
CONSTRAINT = "delta.constraints."
"""What the names of properties begin with that are CHECK constraints."""
EXACT_IN_DOUBLES = 15
"""Digits of a decimal that a double keeps, as statistics in a log have it."""
NO_MERGE = f"it has the property {APPEND_ONLY}, so no merge can change a row. Append."
WRITTEN_ON_ARROW = {
    "appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors", "generatedColumns",
    "invariants", "timestampNtz", "v2Checkpoint", "variantType", "variantType-preview",
}  # fmt: skip
"""Features of a table that `deltalake` 1 writes, as its commits say."""


class DeltaSink(LakeSink):
    """A Delta table at a path, to which each batch is appended, or merged by key, in one transaction.

    Promises: once a batch is committed and published, its rows are in the table exactly once, whatever attempts still
    write, sleep or die. Readers see no row before the commit, all rows of the batch after the publication, and never a
    part. It holds where Delta's own transactions hold: on S3, Spark needs Delta's `S3DynamoDBLogStore` if two
    clusters may write to the table at once. Without Spark, conditional writes of S3 do it.

    The rows are written twice, staged and appended, and read once in between; once more where they are merged, and of
    columns of text that the table is partitioned by. The first batch that has rows makes the table when it is
    published. If it is taken back at that moment, the table stays, without rows.

    Parameters
    ----------
    target
        The path of the table: ``s3://bucket/prefix/`` or a directory.
    spark
        Without it, `deltalake` writes.
    s3_client
        Its login and endpoint are those of `deltalake`, too.
    partition_by
        Columns that the table is partitioned by. Empty: as the table is; a new one is not.
    staging
        Where attempts stage, in the same bucket or file system; by default beside the target.
    merge
        Rules by which rows replace others; see `IncrementalJob.merge`. None: rows are appended.
    batch_column
        A column of text that the sink fills with the batch id of each row, so that `rewind` and `reset` with
        ``retract=True`` can delete published rows. A table that is there must have it. None: they cannot. Not for
        merges, which replace rows.

    Raises
    ------
    InvalidValueError
        The target is no path, or the paths do not go together.
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
        """Return the sink that something was staged for.

        None if Spark staged it, and there is none here, or where only the job's own script knows the place.
        """
        engine = output.engine if isinstance(output, Output) else None
        if (engine == _SparkLog.engine and spark is None) or not is_beside(output, output.target):
            return None
        # The engine that staged a batch publishes it: the other one does not find what it left.
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
        unfit = [path for path in paths if path != DELETED and set(re.sub(PARTS_OF_MAPS, "", path)) & UNFIT_IN_NAMES]
        # Its first publication would make the table, after the commit.
        if unfit and not self._log.exists():
            raise InvalidValueError(
                f"Column {unfit[0]!r}: no name in a new Delta table of Spark has a blank, a tab, a line break, or one "
                "of ,;{}()=. Rename it, or make the table first, with delta.columnMapping.mode=name."
            )
        return rows

    def places(self, df: Any) -> list[str]:
        return [self.name, self._staging_now()]

    def _write(self, batch: BatchId, made: Output, rows: Any) -> tuple[Output, StagedRows]:
        # Spark writes to the table by a login of its own, of which this one tells nothing.
        if made.engine == _ArrowLog.engine:
            self.staging.place.check_rights(self.target)
        return super()._write(batch, made, rows)


class _Log(LakeLog, Tables):
    """A Delta table, and the one beside it that remembers deletes, each by its URI."""

    format, title, way_back = "delta", "Delta", "RESTORE TABLE"
    is_made_early, decides_again = False, True
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
        # Else a publisher of long ago would remember its deletes once more.
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

    def _merge(self, merge: TableMerge, events: Any, record: Record | None) -> None:
        """Merge events into a table that is there, and record the batch if it is named.

        What they leave is the same however often it is done.

        Delta has no transaction over two tables, so the order counts. Deletes are remembered first: a publisher that
        dies in between leaves a memory of deletes that its successor carries out. Whoever looks before they are
        remembered, and writes after, is found out by the versions of both tables, and looks again.
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
                # Before the batch is recorded another publisher of it may have come first: the caller looks. After,
                # only this one is left to look again.
                if recorded is not None or self.meaning(error) != "moved":
                    raise
                continue
            recorded = None
            # A later batch, or a decision that took this one back, and that before this merge: then it did nothing.
            if record is not None and self.recorded_at(record[0]) > record[1]:
                return
            now = self.version(self._uri), self.version(merge.memory)
            # One version more is this merge; none, one that changed nothing. Anything else came between the look and
            # the write: a delete that was remembered meanwhile, or a version that ends one of ours.
            if now[1] == looked[1] and now[0] in (looked[0], (looked[0] or 0) + 1):
                return
        raise TargetError(self._uri, f"others came between {TRIES} times. Let one job at a time merge into a table.")

    @abstractmethod
    def recorded_at(self, app: str) -> int:
        """Return the version that the table has recorded of an application; 0 for none, and where there is no table."""

    @abstractmethod
    def version(self, uri: str) -> int | None:
        """Return the version of a table; None where there is none."""

    @abstractmethod
    def create(self, uri: str, like: Any, columns: Sequence[str], partition_by: Sequence[str] = ()) -> None:
        """Make a table without rows, if there is none, of some columns of a frame."""

    @abstractmethod
    def merge(self, uri: str, source: Any, step: Step, record: Record | None) -> None:
        """Merge a frame into a table in one transaction, which records the batch if it is named.

        Nothing is done if it is recorded by then, or a later one.
        """

    def _shape_of(
        self, schema: Any, columns: Mapping[str, Any], partition_by: Sequence[str], properties: Mapping[str, str]
    ) -> TableShape:
        """Return what a table is by its log, and its schema by the connector."""
        no_merge = NO_MERGE if properties.get(APPEND_ONLY) == "true" else ""
        conditions = conditions_in(columns, properties, self.dialect)
        types, required = self.rows.types(schema), self.rows.required(schema)
        return TableShape(types, required, list(partition_by), no_merge, conditions, schema)

    @abstractmethod
    def _shape(self) -> TableShape: ...

    @abstractmethod
    def _versions(self, start: str) -> tuple[dict[str, int], Commits]:
        """Return the last version of each application whose name begins so, and the newest commits."""

    @abstractmethod
    def _append(self, record: Record, staged: StagedRows | None) -> None:
        """Append staged rows, or none, and record the batch, in one transaction; nothing if it is recorded."""


def conditions_in(columns: Mapping[str, Any], properties: Mapping[str, str], dialect: Dialect) -> dict[str, SQL]:
    """Return what a table refuses rows by, which is all that has to be true of each row, by its name in errors."""
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
        if quoted[1:] and not field["nullable"]:
            # Also where the value around it is NULL.
            found[f"NOT NULL {of}"] = sql("{} IS NOT NULL", column)
    return found


def _fields_in(struct: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the fields of a schema as Delta's log has it, and those within structs, by their paths."""
    for field in struct["fields"]:
        within = (*path, field["name"])
        yield within, field
        if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            yield from _fields_in(field["type"], within)


def delta_rows(spark: SparkSession, uri: str) -> DataFrame:
    """Return the rows that a table has now, also where the script has cached it. Spark says if there is no table."""
    return rows_at(spark, "delta", uri, _version(spark, uri))


def _version(spark: SparkSession, uri: str) -> int | None:
    if not java_of(spark).io.delta.tables.DeltaTable.isDeltaTable(java_session(spark), uri):
        return None
    return int(delta_log_on_spark(uri, spark)._2().version())


class _SparkLog(_Log):
    """Delta's connector for Spark."""

    engine, dialect = "spark", SPARK
    unfit_partitions, unfit = NO_FOLDERS, UNFIT_DELTA

    def __init__(self, target: Place, spark: SparkSession) -> None:
        super().__init__(target, target.uri(""))
        self._spark, self.rows = spark, SparkRows(spark)
        self._quoted = sql("delta.{}", SPARK.quote(self._uri))

    def check(self, *, merges: bool) -> None:
        check_delta_on_spark(self._spark)

    def delete(self, retraction: Retraction) -> int:
        delete = sql("DELETE FROM {} WHERE {}", self._quoted, of_batches(retraction))
        return int(self._spark.sql(delete).collect()[0][0])

    def count(self, retraction: Retraction) -> int:
        return delta_rows(self._spark, self._uri).where(of_batches(retraction)).count()

    def meaning(self, error: Exception) -> Meaning | None:
        # ConcurrentTransactionException and, for the first batch, ProtocolChangedException or MetadataChangedException.
        if is_of_java(error, "io.delta.exceptions.", "java.io.FileNotFoundException", "PATH_NOT_FOUND"):
            return "moved"
        return "refused" if is_of_spark(error) else None

    def version(self, uri: str) -> int | None:
        return _version(self._spark, uri)

    def columns(self, table: str) -> list[str]:
        return list(self._load(table).columns)

    def read(self, table: str, events: DataFrame, merge: Merge) -> DataFrame:
        return delta_rows(self._spark, table)

    def create(self, uri: str, like: DataFrame, columns: Sequence[str], partition_by: Sequence[str] = ()) -> None:
        if self.has(uri):
            return
        # Ignored where another publisher of this batch has made it meanwhile.
        writer = like.limit(0).select(*map(quote, columns)).write.format("delta").mode("ignore")
        # It writes a file without rows as well.
        with timestamps_with_statistics(self._spark):
            (writer.partitionBy(*partition_by) if partition_by else writer).save(uri)

    def recorded_at(self, app: str) -> int:
        done = delta_log_on_spark(self._uri, self._spark)._2().transactions().get(app)
        return int(done.get()) if done.isDefined() else 0

    def merge(self, uri: str, source: DataFrame, step: Step, record: Record | None) -> None:
        # A session of its own: the settings that name the transaction would be those of other threads, too.
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
        # As one text: each name would be a call to the JVM.
        found = str(delta_log_on_spark(self._uri, self._spark)._2().transactions().mkString("\n")).split("\n")
        texts = (text.rpartition(" -> ") for text in found)
        versions = {app: int(version) for app, _, version in texts if app.startswith(start) and app}
        return versions, history_in(self._place, self._place.files(LOG))

    def _append(self, record: Record, staged: StagedRows | None) -> None:
        # Whether it is recorded is not asked before: Delta looks by itself, within the transaction.
        rows = self._load(self._uri).limit(0) if staged is None else self.rows.read(staged)
        writer = rows.write.format("delta").mode("append").option("txnAppId", record[0])
        with timestamps_with_statistics(self._spark):
            writer.option("txnVersion", record[1]).save(self._uri)

    def _load(self, uri: str) -> DataFrame:
        return self._spark.read.format("delta").load(uri)


class _ArrowLog(_Log):
    """The package `deltalake`."""

    engine, dialect = "deltalake", Dialect()
    rows = ARROW_ROWS
    unfit_partitions, unfit = BYTES, UNFIT_ARROW

    def __init__(self, target: Place) -> None:
        uri, self._options = deltalake_place(target)
        super().__init__(target, uri)

    def check(self, *, merges: bool) -> None:
        # Constraints are evaluated by it as well.
        check_installed(self.format, ["deltalake", "duckdb"])
        address_of(self._uri)

    def delete(self, retraction: Retraction) -> int:
        return int(self._open(self._uri).delete(of_batches(retraction)).get("num_deleted_rows") or 0)

    def count(self, retraction: Retraction) -> int:
        rows, (first, last) = self._open(self._uri).to_pyarrow_dataset(), batch_values(retraction)
        column = compared_in(rows, retraction.batch_column)
        return int(rows.count_rows(filter=(column >= first) & (column <= last)))

    def meaning(self, error: Exception) -> Meaning | None:
        from deltalake.exceptions import CommitFailedError

        # The reader of staged files is called from Rust as well, whose error has theirs as text.
        if isinstance(error, CommitFailedError | FileNotFoundError) or "FileNotFoundError" in str(error):
            return "moved"
        return "refused" if is_of_deltalake(error) else None

    def version(self, uri: str) -> int | None:
        table = self._open(uri)
        return None if table is None else int(table.version())

    def columns(self, table: str) -> list[str]:
        return [field.name for field in self._open(table).schema().fields]

    def read(self, table: str, events: pa.Table, merge: Merge) -> pa.Table:
        rows = self._open(table).to_pyarrow_dataset()
        # Files whose statistics rule the first column of the key out are not read.
        first = merge.keys[0]
        values = events[first].unique().cast(rows.schema.field(first).type)
        return rows.to_table(filter=compared_in(rows, first).isin(values))

    def create(self, uri: str, like: pa.Table, columns: Sequence[str], partition_by: Sequence[str] = ()) -> None:
        from deltalake import DeltaTable, Schema

        if self.has(uri):
            return
        schema = pa.schema([pa.field(name, like.schema.field(name).type) for name in columns])
        # Never together with rows: two who make a table at once do not see each other, and the later one would append
        # the batch to that of the first. Made twice without rows, it is still one table.
        DeltaTable.create(
            address_of(uri), schema=Schema.from_arrow(schema), mode="ignore", partition_by=list(partition_by) or None,
            storage_options=self._options,
        )  # fmt: skip

    def recorded_at(self, app: str) -> int:
        return _recorded_in(self._open(self._uri), app)

    def merge(self, uri: str, source: pa.Table, step: Step, record: Record | None) -> None:
        table = self._open(uri)
        # Of the table that is merged into: whoever records the batch after this look conflicts with this transaction.
        if record is not None and _recorded_in(table, record[0]) >= record[1]:
            return
        merging = table.merge(source, step.on, source_alias="s", target_alias="t", commit_properties=_noting(record))
        if step.delete_when is not None:
            merging = merging.when_matched_delete(step.delete_when)
        if step.update_when is not None:
            merging = merging.when_matched_update(from_source(step.sets), step.update_when)
        merging.when_not_matched_insert(from_source(step.inserts), step.insert_when).execute()
        if record is not None and _recorded_in(table, record[0]) < record[1]:
            # What changes no row makes no transaction, and the batch would look as if it had gone.
            self._append(record, None)

    def _shape(self) -> TableShape:
        table = self._open(self._uri)
        schema = delta_schema(table)
        # It finds out with the commit of rows, when those of the job are committed already.
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
        # For each answer `deltalake` reads the whole log. What has expired is in the log as well.
        table = self._open(self._uri) if found and may_expire else None
        return {app: _recorded_in(table, app) for app in found} if table is not None else found, commits

    def _append(self, record: Record, staged: StagedRows | None) -> None:
        from deltalake import write_deltalake

        table = self._open(self._uri)
        # Not over a later number: it is that of a batch, or of a decision, which closes these versions as well.
        if _recorded_in(table, record[0]) >= record[1]:
            return
        # To the table as it was looked at, not to the path: else another publisher's append in between, which conflicts
        # with this one, goes unnoticed, and the batch is there twice.
        schema = delta_schema(table)
        rows: Any = (
            with_later_columns(self._uri, self.rows.stream(staged), schema)
            if staged is not None
            else schema.empty_table()
        )
        write_deltalake(table, rows, mode="append", commit_properties=_noting(record))

    def _open(self, uri: str) -> Any:
        """Return a table as it is now; None where there is none."""
        from deltalake import DeltaTable

        address = address_of(uri)
        is_there = DeltaTable.is_deltatable(address, self._options)
        return DeltaTable(address, storage_options=self._options) if is_there else None


def _recorded_in(table: Any, app: str) -> int:
    return int((table and table.transaction_version(app)) or 0)


def _noting(record: Record | None) -> Any:
    """Return what lets a transaction record a batch."""
    from deltalake import CommitProperties, Transaction

    return CommitProperties(app_transactions=[Transaction(*record)]) if record else None


def compared_in(rows: Any, name: str) -> Any:
    """Return a column of a table for a filter of pyarrow, which skips files by statistics where those are exact.

    Delta's log has decimals as doubles, no NaN or infinity, times cut to milliseconds by some writers, and of files
    that `deltalake` has merged, texts of a type that pyarrow cannot compare with the column's. A file that such
    statistics rule out may have the row. Pyarrow asks none for what a function returns, and still takes the values of
    partition columns.
    """
    import pyarrow.dataset as ds

    kind, column = rows.schema.field(name).type, ds.field(name)
    is_exact = (
        pa.types.is_integer(kind)
        or pa.types.is_date(kind)
        or pa.types.is_boolean(kind)
        or (pa.types.is_decimal(kind) and kind.precision <= EXACT_IN_DOUBLES)
    )
    return column if is_exact else pc.coalesce(column)
