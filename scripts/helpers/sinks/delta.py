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

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from scripts.helpers.display.units import count_of
from scripts.helpers.errors import (
    InvalidValueError,
    NotATableError,
    StagedFilesLostError,
    TargetError,
    WatermarkError,
)
from scripts.helpers.listing.paths import is_hidden
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.sql import sql
from scripts.helpers.sinks.connectors import (
    address_of,
    check_classic,
    check_delta_on_arrow,
    check_delta_on_spark,
    delta_log_on_spark,
    deltalake_place,
)
from scripts.helpers.sinks.delta_log import LOG, applications_in
from scripts.helpers.sinks.delta_merge import (
    DeltaMerge,
    compared_in,
    create_with_deltalake,
    create_with_spark,
    delta_rows,
    recorded_with_deltalake,
    recorded_with_spark,
    table_of_deltalake,
)
from scripts.helpers.sinks.files import check_apart
from scripts.helpers.sinks.java_errors import is_of_java, reason_of
from scripts.helpers.sinks.merge_frames import events_of
from scripts.helpers.sinks.merging import DELETED, NOT_DELETED, Merge
from scripts.helpers.sinks.outputs import (
    MANIFEST,
    application_of,
    batch_values,
    mark_of,
    staging_beside,
    value_of_batch,
)
from scripts.helpers.sinks.places import Place, place_of
from scripts.helpers.sinks.staged_rows import (
    arrow_rows,
    arrow_types,
    check_columns_left,
    check_fits,
    check_layout,
    check_list,
    check_partition_texts,
    check_required,
    check_rows,
    check_typed,
    columns_of,
    of_batches,
    read_rows,
    read_spark,
    spark_types,
    with_batch,
    with_later_columns,
    write_rows,
)
from scripts.helpers.sinks.staging import Staging, is_beside

if TYPE_CHECKING:
    import pyarrow as pa
    from mypy_boto3_s3 import S3Client
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

T = TypeVar("T")

APPEND_ONLY = "delta.appendOnly"
WRITTEN_ON_ARROW = {
    "appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors", "generatedColumns",
    "invariants", "timestampNtz", "v2Checkpoint", "variantType", "variantType-preview",
}  # fmt: skip
"""Features of a table that `deltalake` 1 writes, as its commits say."""
TRIES = 10
"""Transactions of others may come between look and append so often. Each try appends anew, so more would only cost."""


class DeltaSink:
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
        if "/" not in target:
            raise InvalidValueError(
                f"{target!r} is not a path. Name the folder of the Delta table, s3://bucket/prefix/ or a directory."
            )
        check_list(partition_by)
        check_classic(spark, "A Delta table")
        self.target: Place = place_of(target, spark, s3_client)
        chosen = staging.rstrip("/") if staging else staging_beside(self.target.uri(""))
        if not chosen:
            raise InvalidValueError(f"{target!r} is a whole bucket. Name a folder of it for the Delta table.")
        self.staging = Staging(place_of(chosen, spark, s3_client))
        check_apart(self.target, self.staging.place)
        self._partition_by, self._batch_column = list(partition_by), batch_column
        self.rules = merge
        self._engine: _Engine = _SparkEngine(self.target, spark) if spark is not None else _ArrowEngine(self.target)

    @classmethod
    def of(
        cls, output: Output | Retraction, spark: SparkSession | None = None, s3_client: S3Client | None = None
    ) -> DeltaSink | None:
        """Return the sink that something was staged for.

        None if Spark staged it, and there is none here, or where only the job's own script knows the place.
        """
        engine = output.engine if isinstance(output, Output) else None
        if (engine == _SparkEngine.name and spark is None) or not is_beside(output, output.target):
            return None
        # The engine that staged a batch publishes it: the other one does not find what it left.
        with_spark = None if engine == _ArrowEngine.name else spark
        return cls(
            output.target, spark=with_spark, s3_client=s3_client, staging=output.staging,
            batch_column=output.batch_column or None,
        )  # fmt: skip

    def merging(self, rules: Merge) -> DeltaSink:
        """Return a sink for the same table that merges."""
        made = copy(self)
        made.rules = rules
        return made

    @property
    def name(self) -> str:
        """The URI of the table."""
        return self.target.uri("")

    def check(self, df: Any) -> None:
        """Raise InvalidValueError for no frame or a wrong `partition_by`, MissingConnectorError for no connector."""
        merges = self.rules is not None
        check_rows(df, self.name, self._partition_by, self._batch_column, self._engine.name, merges=merges)
        stored = [name for name in columns_of(df) if name != DELETED]
        check_columns_left(self._partition_by, [*stored, self._batch_column] if self._batch_column else stored)
        self._engine.check()

    def stage(self, batch: BatchId, fence: int, df: Any, *, replaces: bool = False) -> Output:
        """Write the rows as Parquet to a folder of this attempt alone. No reader of the table sees it.

        Parameters
        ----------
        df
            A DataFrame of Spark or pandas, or a table of pyarrow.
        replaces
            A table does not tell which rows are of which attempt, so nothing is replaced: the first attempt stays. A
            merge is done once more.

        Raises
        ------
        MergeNullError, MergeTieError, EmptyPartitionError
            Rows that a merge cannot decide about, or with an empty text in a column that the table is partitioned by.
            What was staged is deleted.
        TargetSchemaError, TargetLayoutError, NotATableError, InvalidValueError
            Before anything is written.
        TargetError
            What cannot be listed, read or written.
        """
        # `IncrementalJob.merge` has marked deletes already; rows that come otherwise are all upserts.
        if self.rules is not None and DELETED not in columns_of(df):
            df = events_of(df, self.rules)
        self.check(df)
        rows = with_batch(self._engine.rows(df), self._batch_column, value_of_batch(batch))
        texts = self._check_table(rows)
        # Spark writes to the table by a login of its own, of which this one tells nothing.
        if isinstance(self._engine, _ArrowEngine):
            self.staging.place.check_rights(self.target)
        made = Output(
            "delta", self.name, "", "", mark_of(batch.job_id), batch.epoch, batch.version, fence,
            replaces=replaces, engine=self._engine.name, partition_by=tuple(self._partition_by),
            batch_column=self._batch_column, merge=self.rules.columns if self.rules is not None else None,
            job_id=batch.job_id,
        )  # fmt: skip
        output, sizes = self.staging.stage(batch, made, partial(write_rows, rows))
        self._check_staged(_Staged(self.staging.place, output.folder, sorted(sizes)), texts)
        return output

    def publish(self, output: Output) -> None:
        """Append or merge the staged rows in one transaction that records the batch; nothing if it is recorded already.

        To be called by a caller who knows from the head that the attempt won. May be called again, late, and by two at
        once.

        Raises
        ------
        StagedFilesLostError
            The batch is not in the table, and its files are not staged.
        UnprovenError
            What is staged is not of this attempt, or for another table.
        TargetError
            The transaction failed, for a reason that stays, or because others kept coming between. Call again.
        """
        if not output.rows:
            return None
        is_merge = output.merge is not None
        if output.replaces and not is_merge and self._has(output):
            logger.warning(
                "event=kept target=%s batch=%s: an attempt of this run has published already, and its rows stay",
                self.name, output.batch,
            )  # fmt: skip
            return None
        failed: Exception
        for _ in range(TRIES):
            try:
                staged = self._staged(output)
                if staged is not None and not self.target.files(LOG, most=1):
                    # Without rows, and only then looked at again. A decision that takes the batch back deletes what
                    # is staged, and then records that in the table, if there is one: a table that is made together
                    # with its first rows could come after both.
                    self._engine.create(output, staged)
                    staged = self._staged(output)
                if staged is None:
                    return None
                if is_merge:
                    return self._merge(output, staged)
                return self._engine.append(output, staged)
            except WatermarkError:
                raise
            except Exception as error:
                if not self._engine.may_pass(error):
                    raise TargetError(self.name, f"{reason_of(error)} Publishing again is safe.") from error
                # Another publisher of this batch, or one who made the table first. Or the files went while they were
                # read, as the batch was published elsewhere. Whatever it is, look again.
                logger.info("event=delta_retried target=%s version=%d: %s", self.name, output.version, reason_of(error))
                failed = error
        raise TargetError(
            self.name, f"others came between {TRIES} times: {reason_of(failed)} Publishing again is safe."
        ) from failed

    def check_staged(self, output: Output) -> None:
        """Raise what speaks against publishing an output; see `Sink`."""
        if output.rows:
            self._tried(lambda: self._staged(output))

    def clear(self, output: Output) -> None:
        """Delete what is left of a published attempt's staged folder."""
        self.staging.clear(output.folder)

    def drop(self, output: Output) -> None:
        """Delete what an attempt staged that is never to be published."""
        self.staging.drop(output.folder)

    def sweep(self, output: Output, kept: Collection[str]) -> int:
        """Delete what losers staged for batches up to this one; see `Sink`."""
        return self.staging.sweep(output, kept)

    def staged(self, job: str) -> list[str]:
        """Return the folders that attempts of a job have left."""
        return self.staging.left(job)

    def retraction(self, job_id: str, epoch: str, first: int, last: int, since: datetime) -> Retraction:
        """Return the record by which some versions of a job are taken back here."""
        column, staging = self._batch_column or "", self.staging.place.uri("")
        return Retraction(
            "delta", self.name, staging, mark_of(job_id), epoch, first, last, since, column, job_id=job_id
        )

    def retract(self, retraction: Retraction) -> int:
        """Delete what attempts staged, and published rows by the batch column; return how many rows.

        Without that column published rows stay, with a WARNING: Delta does not tell which rows a transaction has added
        once files were compacted, and ``RESTORE`` would take rows of others along.

        Raises
        ------
        TargetError
            A transaction failed. Call again.
        """
        is_staged = self.staging.withdraw(retraction)
        # Whoever makes the table after this look finds out then that nothing is staged any more.
        count = self._take_back(retraction, is_staged) if self.target.files(LOG, most=1) else 0
        self.staging.retract(retraction)
        return count

    def to_retract(self, retraction: Retraction) -> list[str]:
        """Return what `retract` would delete, as it is found here; see `Sink`."""
        count = 0
        if self.target.files(LOG, most=1) and self._has_column(retraction):
            count = self._tried(lambda: self._engine.count(retraction))
        shown = [f"{count_of(count, 'row')} in {self.name}"] if count else []
        return shown + self.staging.to_retract(retraction)

    def recorded(self, job: str) -> dict[str, int]:
        """Return the last version that the table has recorded of each epoch of a job, as `mark_of` writes it.

        Empty where there is no table. A transaction that has expired by the properties of the table is not recorded.
        """
        return self._tried(lambda: self._recorded(f"{job}/")) if self.target.files(LOG, most=1) else {}

    def _recorded(self, start: str) -> dict[str, int]:
        found = [app for app in self._engine.applications() if app.startswith(start)]
        versions = {app.removeprefix(start): self._engine.recorded(app) for app in found}
        return {epoch: version for epoch, version in versions.items() if version}

    def _has(self, output: Output) -> bool:
        return self._engine.recorded(application_of(output)) >= output.version

    def left_at(self, folder: str) -> str:
        """Return where an attempt has left files, and how many."""
        return self.staging.left_at(folder)

    def _take_back(self, retraction: Retraction, is_staged: bool) -> int:
        recorded = self._tried(lambda: self._engine.recorded(application_of(retraction)))
        # A table that has nothing of this job, and that nothing was staged for, is another job's.
        if not recorded and not is_staged:
            return 0
        # First: whoever publishes later finds it recorded, so no row comes after the delete.
        self._tried(lambda: self._engine.close(retraction))
        if self._has_column(retraction):
            return self._tried(lambda: self._engine.delete(retraction))
        if retraction.is_published(recorded):
            logger.warning(
                "event=retraction_left target=%s versions=%d-%d rows=%s: the Delta table keeps what they have "
                "published. Delete those rows by key, or go back with RESTORE TABLE if nothing else was written since",
                self.name, retraction.first, recorded, retraction.rows_until(recorded),
            )  # fmt: skip
        return 0

    def _has_column(self, retraction: Retraction) -> bool:
        column = retraction.batch_column
        return bool(column) and column in self._tried(self._engine.table).types

    def _check_staged(self, staged: _Staged, texts: Sequence[str]) -> None:
        """Raise what speaks against the values of staged rows, and delete them: merged, or parted by some columns."""
        if not staged.names or not (texts or self.rules):
            return
        # Not of the rows as they came: Spark would compute each of them once more.
        try:
            rows = self._engine.read(staged)
            check_partition_texts(rows if self.rules is None else self._engine.kept(rows), texts)
            if self.rules is not None:
                self._engine.merging(self.rules).check(rows)
        except BaseException:
            self.staging.drop(staged.folder)
            raise

    def _merge(self, output: Output, staged: _Staged) -> None:
        is_recorded = self._has(output)
        # Else a publisher of long ago would remember its deletes once more.
        if is_recorded and not output.replaces:
            return
        events = self._engine.read(staged)
        columns = [name for name in columns_of(events) if name != DELETED]
        assert output.merge is not None
        merge = self._engine.merging(Merge.by(output.merge))
        record = None if is_recorded else (application_of(output), output.version)
        merge.publish(events, columns, record, self._engine.may_pass)

    def _tried(self, action: Callable[[], T]) -> T:
        """Do something at the table, again where others came between.

        Raises
        ------
        TargetError
            The transaction failed. Call again.
        """
        for _ in range(TRIES):
            try:
                return action()
            except Exception as error:
                if not self._engine.may_pass(error):
                    raise TargetError(self.name, reason_of(error)) from error
                failed = error
        raise TargetError(self.name, f"others came between {TRIES} times: {reason_of(failed)}") from failed

    def _staged(self, output: Output) -> _Staged | None:
        """Return the files of the manifest; None if they are gone as the batch is published.

        Raises
        ------
        StagedFilesLostError
            Files are gone, and the batch is not in the table.
        """
        manifest = self.staging.manifest(output)
        there = self.staging.place.files(output.folder) if manifest is not None else {}
        lost = [name for name in manifest or [MANIFEST] if f"{output.folder}/{name}" not in there]
        if not lost:
            return _Staged(self.staging.place, output.folder, sorted(manifest or []))
        if not self._has(output):
            raise StagedFilesLostError(output.target, output.version, lost)
        return None

    def _check_table(self, rows: Any) -> list[str]:
        """Raise what speaks against the rows at the table, or against the target where there is no table.

        Returns the columns of text that the table is partitioned by, or is going to be.
        """
        if not columns_of(rows):
            return []
        brought = self._engine.types(rows)
        table = self._engine.table() if self.target.files(LOG, most=1) else None
        if table is None:
            found = [name for name in self.target.files(most=100) if not is_hidden(name)]
            if found:
                raise NotATableError(self.name, "Delta", found[0])
            self._engine.check_new(rows)
            return _texts(self._partition_by, brought)
        there = dict(table.types)
        if self.rules is not None:
            if table.is_append_only:
                raise TargetError(
                    self.name, f"it has the property {APPEND_ONLY}, so no merge can change a row. Append."
                )
            del brought[DELETED]
            history = self.rules.history
            filled = {history.valid_from, history.valid_to} if history else set()
            there = {name: kind for name, kind in there.items() if name in brought or name not in filled}
        check_fits(self.name, brought, there)
        needed = [name for name in table.required if name in brought]
        check_required(self.name, rows if self.rules is None else self._engine.kept(rows), needed)
        check_layout(self.name, self._partition_by, table.partition_by)
        return _texts(table.partition_by, brought)


def _texts(names: Sequence[str], types: Mapping[str, str]) -> list[str]:
    """Return those of some columns that hold texts, by the types that an engine tells."""
    return [name for name in names if types.get(name) == "string"]


@dataclass(frozen=True)
class _Table:
    """What a Delta table is."""

    types: dict[str, str]
    required: list[str]
    partition_by: list[str]
    is_append_only: bool


@dataclass(frozen=True)
class _Staged:
    """The files of an attempt."""

    place: Place
    folder: str
    names: list[str]


def _made_of(rows: Any, output: Output) -> dict[str, str]:
    """Return the columns of a table that is made for staged rows, each with the one of the rows that has its type."""
    columns = [name for name in rows.schema.names if name != DELETED]
    ends = Merge.by(output.merge).ends(columns) if output.merge is not None else {}
    return {name: name for name in columns} | ends


class _Engine(Protocol):
    """What writes Delta's log."""

    name: str

    def check(self) -> None:
        """Raise MissingConnectorError if it is not there."""

    def rows(self, df: Any) -> Any:
        """Return a frame in the form that is staged."""

    def types(self, rows: Any) -> dict[str, str]:
        """Return the types of rows, by column."""

    def check_new(self, rows: Any) -> None:
        """Raise InvalidValueError for rows that no table can be made of."""

    def table(self) -> _Table:
        """Return what the table is."""

    def applications(self) -> Collection[str]:
        """Return all applications that the table has, or had, a transaction of; there is a table."""

    def recorded(self, app: str) -> int:
        """Return the last version that the table has recorded of an application; 0 for none, as of no table."""

    def create(self, output: Output, staged: _Staged) -> None:
        """Make the table for staged rows, without any of them; nothing if somebody else has made it."""

    def append(self, output: Output, staged: _Staged) -> None:
        """Append staged rows, and record the batch, in one transaction; nothing if it is recorded."""

    def read(self, staged: _Staged) -> Any:
        """Return staged rows as a frame."""

    def kept(self, rows: Any) -> Any:
        """Return the rows of a merge that are no deletes."""

    def merging(self, rules: Merge) -> DeltaMerge:
        """Return what merges into the table."""

    def close(self, retraction: Retraction) -> None:
        """Record the versions of a retraction as if they had no rows; nothing if a later one is recorded."""

    def delete(self, retraction: Retraction) -> int:
        """Delete the rows of a retraction's batches, by their column; return how many."""

    def count(self, retraction: Retraction) -> int:
        """Count them."""

    def may_pass(self, error: Exception) -> bool:
        """Return whether to look again after an error."""


class _SparkEngine:
    """Delta's connector for Spark."""

    name = "spark"

    def __init__(self, target: Place, spark: SparkSession) -> None:
        self._uri, self._spark = target.uri(""), spark
        self._quoted = sql("delta.{}", SPARK.quote(self._uri))

    def check(self) -> None:
        check_delta_on_spark(self._spark)

    def rows(self, df: DataFrame) -> DataFrame:
        return df

    def types(self, rows: DataFrame) -> dict[str, str]:
        return spark_types(rows.schema)

    def check_new(self, rows: DataFrame) -> None:
        untyped = [field.name for field in rows.schema.fields if field.dataType.simpleString() == "void"]
        if untyped:
            raise InvalidValueError(f"Column {untyped[0]!r} is NULL in every row and has no type. Cast it.")

    def table(self) -> _Table:
        schema = self._spark.read.format("delta").load(self._uri).schema
        detail = self._spark.sql(sql("DESCRIBE DETAIL {}", self._quoted)).select("partitionColumns", "properties")
        ((partition_by, properties),) = detail.collect()
        required = [field.name for field in schema.fields if not field.nullable]
        return _Table(spark_types(schema), required, list(partition_by), properties.get(APPEND_ONLY) == "true")

    def applications(self) -> Collection[str]:
        # As one text: each name would be a call to the JVM.
        return str(delta_log_on_spark(self._uri, self._spark)._2().transactions().keys().mkString("\n")).split("\n")

    def recorded(self, app: str) -> int:
        return recorded_with_spark(self._spark, self._uri, app)

    def create(self, output: Output, staged: _Staged) -> None:
        rows = self.read(staged)
        create_with_spark(self._spark, self._uri, rows, _made_of(rows, output), output.partition_by)

    def append(self, output: Output, staged: _Staged) -> None:
        writer = self.read(staged).write.format("delta").mode("append")
        writer.option("txnAppId", application_of(output)).option("txnVersion", output.version).save(self._uri)

    def read(self, staged: _Staged) -> DataFrame:
        return read_spark(self._spark, staged.place, staged.folder, staged.names)

    def kept(self, rows: DataFrame) -> DataFrame:
        return rows.where(NOT_DELETED)

    def merging(self, rules: Merge) -> DeltaMerge:
        return DeltaMerge.with_spark(self._uri, rules, self._spark)

    def close(self, retraction: Retraction) -> None:
        nothing = self._spark.read.format("delta").load(self._uri).limit(0)
        writer = nothing.write.format("delta").mode("append")
        writer.option("txnAppId", application_of(retraction)).option("txnVersion", retraction.closed).save(self._uri)

    def delete(self, retraction: Retraction) -> int:
        delete = sql("DELETE FROM {} WHERE {}", self._quoted, of_batches(retraction))
        return int(self._spark.sql(delete).collect()[0][0])

    def count(self, retraction: Retraction) -> int:
        return delta_rows(self._spark, self._uri).where(of_batches(retraction)).count()

    def may_pass(self, error: Exception) -> bool:
        # ConcurrentTransactionException and, for the first batch, ProtocolChangedException or MetadataChangedException.
        return is_of_java(error, "io.delta.exceptions.", "java.io.FileNotFoundException", "PATH_NOT_FOUND")


class _ArrowEngine:
    """The package `deltalake`."""

    name = "deltalake"

    def __init__(self, target: Place) -> None:
        self._place, (self._uri, self._options) = target, deltalake_place(target)

    def check(self) -> None:
        check_delta_on_arrow()
        address_of(self._uri)

    def rows(self, df: Any) -> pa.Table:
        return arrow_rows(df, self._uri)

    def types(self, rows: pa.Table) -> dict[str, str]:
        return arrow_types(rows.schema)

    def check_new(self, rows: pa.Table) -> None:
        check_typed(rows, self._uri)

    def table(self) -> _Table:
        import pyarrow as pa

        table = self._table()
        assert table is not None
        schema = pa.schema(table.schema().to_arrow())
        # It finds out with the commit of rows, when those of the job are committed already.
        if unfit := set(table.protocol().writer_features or ()) - WRITTEN_ON_ARROW:
            raise TargetError(
                self._uri,
                f"it has the features {', '.join(sorted(unfit))}, which the package deltalake does not write. Write it "
                "with Spark.",
            )
        required = [field.name for field in schema if not field.nullable]
        found = table.metadata()
        is_append_only = found.configuration.get(APPEND_ONLY) == "true"
        return _Table(arrow_types(schema), required, list(found.partition_columns), is_append_only)

    def applications(self) -> Collection[str]:
        return applications_in(self._place)

    def recorded(self, app: str) -> int:
        return recorded_with_deltalake(self._table(), app)

    def create(self, output: Output, staged: _Staged) -> None:
        rows = read_rows(staged.place, staged.folder, staged.names)
        create_with_deltalake(self._options, self._uri, rows, _made_of(rows, output), output.partition_by)

    def append(self, output: Output, staged: _Staged) -> None:
        import pyarrow as pa
        from deltalake import CommitProperties, Transaction, write_deltalake

        once = CommitProperties(app_transactions=[Transaction(application_of(output), output.version)])
        table = self._table()
        if not _is_done(table, output):
            # To the table as it was looked at, not to the path: else another publisher's append in between, which
            # conflicts with this one, goes unnoticed, and the batch is there twice.
            rows: Any = read_rows(staged.place, staged.folder, staged.names)
            rows = with_later_columns(self._uri, rows, pa.schema(table.schema().to_arrow()))
            write_deltalake(table, rows, mode="append", commit_properties=once)

    def read(self, staged: _Staged) -> pa.Table:
        return read_rows(staged.place, staged.folder, staged.names).read_all()

    def kept(self, rows: pa.Table) -> pa.Table:
        import pyarrow.compute as pc

        return rows.filter(pc.invert(rows[DELETED]))

    def merging(self, rules: Merge) -> DeltaMerge:
        return DeltaMerge.with_deltalake(self._uri, rules, self._options)

    def close(self, retraction: Retraction) -> None:
        import pyarrow as pa
        from deltalake import CommitProperties, Transaction, write_deltalake

        table = self._table()
        done = table.transaction_version(application_of(retraction))
        # Not over a later number: it is that of a batch, or of another decision, which closes these versions as well.
        if done is None or done < retraction.closed:
            once = CommitProperties(app_transactions=[Transaction(application_of(retraction), retraction.closed)])
            nothing = pa.schema(table.schema().to_arrow()).empty_table()
            write_deltalake(table, nothing, mode="append", commit_properties=once)

    def delete(self, retraction: Retraction) -> int:
        deleted = self._table().delete(of_batches(retraction))
        return int(deleted.get("num_deleted_rows") or 0)

    def count(self, retraction: Retraction) -> int:
        rows, (first, last) = self._table().to_pyarrow_dataset(), batch_values(retraction)
        column, _ = compared_in(rows, retraction.batch_column)
        return int(rows.count_rows(filter=(column >= first) & (column <= last)))

    def may_pass(self, error: Exception) -> bool:
        from deltalake.exceptions import CommitFailedError

        # The reader of staged files is called from Rust as well, whose error has theirs as text.
        return isinstance(error, CommitFailedError | FileNotFoundError) or "FileNotFoundError" in str(error)

    def _table(self) -> Any:
        return table_of_deltalake(self._options, self._uri)


def _is_done(table: Any, output: Output) -> bool:
    return recorded_with_deltalake(table, application_of(output)) >= output.version
