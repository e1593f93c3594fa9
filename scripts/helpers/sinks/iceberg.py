"""`IcebergSink`: a batch as one snapshot of an Iceberg table, with Spark or without.

With Spark nothing is written twice. The rows of an attempt are a snapshot on a hidden branch of the table::

    stage     branch staged-<job>-<batch>-f<fence>-…, with one snapshot              readers of the table see `main`
    commit    the head names this attempt: not here, and nothing else does
    publish   cherry-pick that snapshot into `main`, and record the batch            one commit to the catalog
    sweep     the branch is dropped; those of losers too

Without Spark, where `pyiceberg` cannot cherry-pick, they are Parquet files in a folder beside the table, and the
publication appends them and records the batch, in one commit that fails if `main` has moved since it was looked at.
Rows that are merged by key are such files with Spark, too: see `iceberg_merge`.

The record is a property of the table, ``glue-watermarks.<job>.<epoch>``, with the version of the last batch.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from datetime import datetime
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from scripts.helpers.display.units import count_of
from scripts.helpers.errors import (
    InvalidValueError,
    KeyColumnError,
    MissingConnectorError,
    StagedFilesLostError,
    TargetError,
    UnprovenError,
    WatermarkError,
)
from scripts.helpers.protocol.names import BatchId, new_token
from scripts.helpers.protocol.outputs import Output, Retraction, batch_name
from scripts.helpers.rows.sql import sql
from scripts.helpers.sinks.connectors import (
    ICEBERG_EXTENSIONS,
    arrow_catalog,
    check_classic,
    check_iceberg_on_spark,
    check_name,
    quoted_table,
    spark_table,
)
from scripts.helpers.sinks.iceberg_merge import (
    ArrowMerge,
    MovedError,
    SparkMerge,
    is_missing,
    made_if_missing,
    rows_at,
    snapshot_id,
)
from scripts.helpers.sinks.java_errors import is_of_java, reason_of
from scripts.helpers.sinks.merge_frames import events_of
from scripts.helpers.sinks.merging import DELETED, NOT_DELETED, Merge
from scripts.helpers.sinks.outputs import (
    BRANCH,
    MANIFEST,
    batch_values,
    branch_of,
    folder_of,
    mark_of,
    property_of,
    staging_beside,
    value_of_batch,
    version_of,
)
from scripts.helpers.sinks.places import is_same_folder, place_of
from scripts.helpers.sinks.staged_rows import (
    arrow_rows,
    arrow_types,
    check_fits,
    check_layout,
    check_list,
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
from scripts.helpers.spark.jvm import java_frame, java_of, java_session

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

T = TypeVar("T")

TRIES = 10
"""Commits of others may come between look and commit so often. Iceberg itself tries 4 times more in each."""
PROPERTY = "glue-watermarks"
FOLDERS = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
"""Properties of a table that lead its files elsewhere than below its location; the last two are the older names."""
FOR_EVER = 2**63 - 1
"""Milliseconds: the largest number that Iceberg takes for an age."""
CONFLICTS = ("Found conflicting", "Found new conflicting", "Missing required files")
"""What Iceberg says of a merge into a table that others have written to meanwhile."""


class IcebergSink:
    """An Iceberg table, to which each batch is appended, or merged by key, in one commit.

    Promises: once a batch is committed and published, its rows are in the table exactly once, whatever attempts still
    write, sleep or die. Readers of `main` see no row before the commit, all rows of the batch after the publication,
    and never a part. It holds where commits to the catalog are atomic, which is what makes it a catalog (Spark's
    `hadoop` one is none on S3).

    Before its first batch a table that is not there is made, without rows. It stays if the batch is discarded.

    With Spark a loser's files stay, as those of any old snapshot, until ``expire_snapshots``. A branch keeps what is
    committed and not published yet, however old. Without Spark the rows are written twice, staged and appended, and
    read into memory in between.

    Parameters
    ----------
    target
        ``catalog.namespace.table``, as Spark and `pyiceberg` are configured.
    spark
        Without it, `pyiceberg` writes.
    catalog
        One of `pyiceberg`, for a script that configures it itself. Its name begins the target.
    partition_by
        Columns that the table is partitioned by, as they are. Empty: as the table is; a new one is not. For
        ``days(ts)`` and the like make the table first.
    staging
        Where attempts stage without Spark, or rows to merge; by default beside the table's location.
    merge
        Rules by which rows replace others; see `IncrementalJob.merge`. None: rows are appended.
    batch_column
        A column of text that the sink fills with the batch id of each row, so that `rewind` and `reset` with
        ``retract=True`` can delete published rows. A table that is there must have it. None: they cannot. Not for
        merges, which replace rows.

    Raises
    ------
    InvalidValueError
        The name is not one of a table in a catalog.
    NoJvmError
        The session is one of Spark Connect.
    """

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
        check_list(partition_by)
        check_classic(spark, "An Iceberg table")
        self.name = target
        self._partition_by, self._batch_column = list(partition_by), batch_column
        self.rules = merge
        self._engine: _Engine = (
            _SparkEngine(target, spark, s3_client, staging)
            if spark is not None
            else _ArrowEngine(target, catalog, s3_client, staging)
        )

    @classmethod
    def of(
        cls, output: Output | Retraction, spark: SparkSession | None = None, s3_client: S3Client | None = None
    ) -> IcebergSink | None:
        """Return the sink that something was staged for; None where only the job's own script can reach it."""
        engine = output.engine if isinstance(output, Output) else None
        named = partial(cls, output.target, s3_client=s3_client, batch_column=output.batch_column or None)
        made = named()
        # The engine that staged a batch publishes it: the other one does not find what it left.
        if output.staging and engine != _SparkEngine.name:
            # Unless the catalog cannot be reached without the script.
            with suppress(WatermarkError):
                made._engine.check(merges=False)
                return made if made._is_own_place(output) else None
        if spark is None or engine == _ArrowEngine.name:
            return None
        with suppress(TargetError):
            if named(spark=spark)._is_own_place(output):
                return named(spark=spark, staging=output.staging)
        return None

    def _is_own_place(self, of: Output | Retraction) -> bool:
        """Return whether files are staged where the script says, or else beside the table; see `is_beside`."""
        if not of.staging:
            return True
        if self._engine.chosen:
            return is_same_folder(of.staging, self._engine.chosen)
        return is_beside(of, self._typed(self._engine.location))

    def merging(self, rules: Merge) -> IcebergSink:
        """Return a sink for the same table that merges."""
        made = copy(self)
        made.rules = rules
        return made

    def check(self, df: Any) -> None:
        """Raise InvalidValueError for no frame or a wrong column, MissingConnectorError for no connector."""
        merges = self.rules is not None
        check_rows(df, self.name, self._partition_by, self._batch_column, self._engine.name, merges=merges)
        self._engine.check(merges=merges)
        names = self.rules.keys if self.rules is not None else filter(None, [self._batch_column])
        for name in names if self._engine.name == "pyiceberg" else ():
            if "." in name:
                raise KeyColumnError(
                    name, "pyiceberg takes the dot for a field of a struct. Rename the column, or give the sink spark=."
                )

    def places(self, df: Any) -> list[str]:
        """Return the URI of each folder that these rows would bring files to: of the table, and where they are staged.

        Of a table that is not there it is the folder that its catalog would choose. Nothing is made.

        Raises
        ------
        TargetError
            The catalog does not tell.
        """
        return self._typed(lambda: self._engine.folders(df, merges=self.rules is not None))

    def stage(self, batch: BatchId, fence: int, df: Any, *, replaces: bool = False) -> Output:
        """Write the rows to a branch, or a folder, of this attempt alone. No reader of the table sees it.

        Parameters
        ----------
        df
            A DataFrame of Spark or pandas, or a table of pyarrow.
        replaces
            A table does not tell which rows are of which attempt, so nothing is replaced: the first attempt stays. A
            merge is done once more.

        Raises
        ------
        MergeNullError, MergeTieError
            Rows that a merge cannot decide about.
        TargetSchemaError, TargetLayoutError, InvalidValueError
            Before any row is written.
        TargetError
            What cannot be listed, read or written.
        """
        rules = self.rules
        # `IncrementalJob.merge` has marked deletes already; rows that come otherwise are all upserts.
        if rules is not None and DELETED not in columns_of(df):
            df = events_of(df, rules)
        self.check(df)
        try:
            rows = with_batch(self._engine.rows(df), self._batch_column, value_of_batch(batch))
            if columns_of(rows):
                brought = rows if rules is None else self._engine.kept(rows, rules)
                types, required, partition_by = self._engine.made_table(brought, self._partition_by)
                check_fits(self.name, self._engine.types(brought), types)
                # The ends of a version are filled later.
                check_required(self.name, brought, [name for name in required if name in columns_of(rows)])
                check_layout(self.name, self._partition_by, partition_by)
            made = Output(
                "iceberg", self.name, "", "", mark_of(batch.job_id), batch.epoch, batch.version, fence,
                replaces=replaces, engine=self._engine.name, batch_column=self._batch_column, job_id=batch.job_id,
                merge=rules.columns if rules is not None else None,
            )  # fmt: skip
            return self._engine.stage(batch, made, rows, rules)
        except WatermarkError:
            raise
        except Exception as error:
            if self._engine.is_of_connector(error):
                raise TargetError(self.name, f"{reason_of(error)} Check the name, and the rights there.") from error
            raise

    def publish(self, output: Output) -> None:
        """Append or merge the staged rows in one commit that records the batch; nothing if it is recorded already.

        To be called by whoever knows from the head that the attempt won. May be called again, late, and by two at once.

        Raises
        ------
        StagedFilesLostError
            The batch is not in the table, and what was staged is gone.
        UnprovenError
            What is staged is not of this attempt, or for another table.
        TargetError
            The commit failed, for a reason that stays, or because others kept coming between. Call again.
        """
        if not output.rows:
            return
        if output.engine != self._engine.name:
            raise TargetError(
                self.name,
                f"version {output.version} was staged with {output.engine}, and is published by it "
                f"only, not by {self._engine.name}. Run the job once as before.",
            )
        # Attempts of a run that saves nothing share a version. To merge the same rows again does no harm.
        is_again = output.replaces and output.merge is not None
        for _ in range(TRIES):
            try:
                if self._engine.published(output) < output.version or is_again:
                    if not self._is_own_place(output):
                        raise UnprovenError(self.name, output.version, "its files are not staged where this job stages")
                    self._engine.publish(output)
                elif output.replaces:
                    logger.warning(
                        "event=kept target=%s batch=%s: an attempt of this run has published already, and its rows "
                        "stay",
                        self.name, output.batch,
                    )  # fmt: skip
                return
            except WatermarkError:
                raise
            except Exception as error:
                if self._engine.is_missing(error):
                    raise _moved_table(output) from error
                if not self._engine.may_pass(error):
                    raise TargetError(self.name, f"{reason_of(error)} Publishing again is safe.") from error
                # Another publisher of this batch, or another writer of the table. Look again.
                logger.info(
                    "event=iceberg_retried target=%s version=%d: %s", self.name, output.version, reason_of(error)
                )
                failed: Exception = error
        raise TargetError(
            self.name, f"others came between {TRIES} times: {reason_of(failed)} Publishing again is safe."
        ) from failed

    def check_staged(self, output: Output) -> None:
        """Raise what speaks against publishing an output; see `Sink`."""
        if output.rows and self._typed(lambda: self._engine.published(output)) < output.version:
            self._typed(lambda: self._engine.check_staged(output))

    def clear(self, output: Output) -> None:
        """Delete what is left of a published attempt."""
        self._typed(lambda: self._engine.clear(output))

    def drop(self, output: Output) -> None:
        """Delete what an attempt staged that is never to be published."""
        self._typed(lambda: self._engine.drop(output))

    def sweep(self, output: Output, kept: Collection[str]) -> int:
        """Delete what losers staged for batches up to this one; see `Sink`."""
        return self._typed(lambda: self._engine.sweep(output, kept))

    def staged(self, job: str) -> list[str]:
        """Return the branches, or folders, that attempts of a job have left."""
        return self._typed(lambda: self._engine.staged(job))

    def retraction(self, job_id: str, epoch: str, first: int, last: int, since: datetime) -> Retraction:
        """Return the record by which some versions of a job are taken back here."""
        column = self._batch_column or ""
        staging = self._engine.chosen or staging_beside(self._typed(self._engine.location))
        return Retraction(
            "iceberg", self.name, staging, mark_of(job_id), epoch, first, last, since, column, job_id=job_id
        )

    def recorded(self, job: str) -> dict[str, int]:
        """Return the last version that the table has recorded of each epoch of a job, as `mark_of` writes it.

        Empty where there is no table.
        """
        start, found = f"{PROPERTY}.{job}.", self._typed(self._properties)
        return {name.removeprefix(start): int(value) for name, value in found.items() if name.startswith(start)}

    def _properties(self) -> dict[str, str]:
        try:
            return self._engine.properties()
        except Exception as error:
            if not self._engine.is_missing(error):
                raise
            return {}

    def retract(self, retraction: Retraction) -> int:
        """Delete what attempts staged, and published rows by the batch column; return how many rows.

        Without that column published rows stay, with a WARNING: snapshots of others may follow that of a batch, and
        ``rollback_to_snapshot`` would take their rows along. Where the table is gone there is a WARNING as well.

        Raises
        ------
        TargetError
            A commit failed. Call again.
        """
        try:
            recorded = self._typed(lambda: self._engine.published(retraction))
        except TargetError as error:
            if not isinstance(error.__cause__, Exception) or not self._engine.is_missing(error.__cause__):
                raise
            # Or no run could begin any more. A publisher that sleeps finds nothing for a table made anew.
            self._typed(lambda: self._engine.retract_files(retraction))
            logger.warning(
                "event=retraction_left target=%s versions=%d-%d: there is no such table. If it was renamed, it keeps "
                "what they have published", self.name, retraction.first, retraction.last,
            )  # fmt: skip
            return 0
        if not self._is_own_place(retraction):
            retraction = replace(retraction, staging="")  # What lies elsewhere proves nothing.
        # First: whoever publishes later is refused, so no row comes after the delete. A table that has nothing of this
        # job, and that nothing was staged for, is another job's.
        if not self._typed(lambda: self._engine.retract(retraction, recorded)):
            return 0
        if retraction.batch_column:
            deleted = self._typed(lambda: self._engine.delete(retraction))
            if deleted >= 0:
                return deleted
        if retraction.is_published(recorded):
            logger.warning(
                "event=retraction_left target=%s versions=%d-%d rows=%s: the Iceberg table keeps what they have "
                "published. Delete those rows by key, or go back with rollback_to_snapshot if nothing else was "
                "written since", self.name, retraction.first, recorded, retraction.rows_until(recorded),
            )  # fmt: skip
        return 0

    def to_retract(self, retraction: Retraction) -> list[str]:
        """Return what `retract` would delete, as it is found here; see `Sink`."""
        count = self._typed(lambda: self._engine.count(retraction)) if retraction.batch_column else 0
        shown = [f"{count_of(count, 'row')} in {self.name}"] if count > 0 else []
        return shown + self._typed(lambda: self._engine.to_retract(retraction))

    def left_at(self, folder: str) -> str:
        """Return where an attempt has left something, and how much."""
        return self._typed(lambda: self._engine.left_at(folder))

    def _typed(self, action: Callable[[], T]) -> T:
        """Do something, and raise TargetError for what the connector says against it."""
        try:
            return action()
        except WatermarkError:
            raise
        except Exception as error:
            if self._engine.is_of_connector(error) or self._engine.may_pass(error):
                raise TargetError(self.name, reason_of(error)) from error
            raise


def _property(output: Output | Retraction) -> tuple[str, str]:
    """Return the property of the table that records a batch, and its value.

    With the epoch: after a restore versions begin again lower, and would be passed over.
    """
    return property_of(output), str(output.version if isinstance(output, Output) else output.closed)


def _moved_table(output: Output) -> TargetError:
    """Return the error for a batch whose table is under this name no longer."""
    return TargetError(
        output.target,
        f"the table that version {output.version} was staged in is no longer here: it was renamed, dropped or "
        "replaced. If it was renamed, give it this name again, run the job once, and then rename it. Otherwise rewind "
        "the job to the version before and run it again.",
    )


class _Engine(Protocol):
    """What commits to the catalog."""

    name: str
    chosen: str | None
    """Where the script says to stage."""

    def check(self, *, merges: bool) -> None:
        """Raise MissingConnectorError, or InvalidValueError for a catalog that nobody has configured."""

    def location(self) -> str:
        """Return the URI of the table's folder, without a slash at its end."""

    def rows(self, df: Any) -> Any:
        """Return a frame in the form that is staged."""

    def types(self, rows: Any) -> dict[str, str]:
        """Return the types of rows, by column."""

    def folders(self, df: Any, *, merges: bool) -> list[str]:
        """Return where files of the table and staged ones go; of a table that is not there, where they would go."""

    def made_table(self, rows: Any, partition_by: list[str]) -> tuple[dict[str, str], list[str], list[str]]:
        """Return types, required columns and partitions of the table, which is made if it is not there."""

    def kept(self, rows: Any, rules: Merge) -> Any:
        """Return the rows of a merge that are no deletes, with the columns that the table has."""

    def stage(self, batch: BatchId, made: Output, rows: Any, rules: Merge | None) -> Output:
        """Write the rows where no reader looks, and return `made` with where that is.

        Those that a merge cannot decide about are refused before.
        """

    def properties(self) -> dict[str, str]:
        """Return the properties of the table."""

    def published(self, output: Output | Retraction) -> int:
        """Return the last version that the table has recorded for this job and epoch; 0 for none."""

    def publish(self, output: Output) -> None:
        """Append or merge staged rows and record the batch, in one commit that fails if it is there."""

    def staged(self, job: str) -> list[str]:
        """Return what attempts of a job have left, each as `Output.folder`."""

    def check_staged(self, output: Output) -> None:
        """Raise StagedFilesLostError, or UnprovenError, for a batch that is not in the table."""

    def clear(self, output: Output) -> None: ...

    def drop(self, output: Output) -> None: ...

    def sweep(self, output: Output, kept: Collection[str]) -> int: ...

    def retract(self, retraction: Retraction, recorded: int) -> bool:
        """Delete what attempts staged for a retraction, and record its versions as if they had no rows.

        Nothing is done, and False returned, at a table that has nothing of the job. `recorded` is what `published`
        returned.
        """

    def retract_files(self, retraction: Retraction) -> None:
        """Delete the files that attempts staged for a retraction beside the table, which may be gone."""

    def delete(self, retraction: Retraction) -> int:
        """Delete the rows of a retraction's batches, by their column; return how many, -1 if there is no column."""

    def count(self, retraction: Retraction) -> int:
        """Count these rows; -1 if there is no column."""

    def to_retract(self, retraction: Retraction) -> list[str]:
        """Return what attempts have staged for a retraction, as texts."""

    def left_at(self, folder: str) -> str: ...

    def is_of_connector(self, error: Exception) -> bool:
        """Tell whether it is the connector that complains."""

    def is_missing(self, error: Exception) -> bool:
        """Tell whether it says that there is no such table."""

    def may_pass(self, error: Exception) -> bool:
        """Tell whether to look again after an error."""


class _SparkEngine:
    """Iceberg's connector for Spark, through its Java API: SQL has no commit of a cherry-pick with a property."""

    name = "spark"

    def __init__(self, target: str, spark: SparkSession, s3_client: S3Client | None, staging: str | None) -> None:
        self._target, self._spark, self._s3_client, self.chosen = target, spark, s3_client, staging
        self._quoted = quoted_table(target)

    def check(self, *, merges: bool) -> None:
        # Spark's own error would be one in the middle of the publication.
        if merges and ICEBERG_EXTENSIONS not in str(self._spark.conf.get("spark.sql.extensions", "")):
            raise MissingConnectorError("iceberg", f"To merge rows, set spark.sql.extensions={ICEBERG_EXTENSIONS}.")
        check_iceberg_on_spark(self._target, self._spark)

    def rows(self, df: DataFrame) -> DataFrame:
        return df

    def types(self, rows: DataFrame) -> dict[str, str]:
        return spark_types(rows.schema)

    def folders(self, df: DataFrame, *, merges: bool) -> list[str]:
        try:
            table = self._table()
        except Exception as error:
            if not is_missing(error):
                raise
            if not df.columns:
                return []  # None will be made, either.
            table = self._imagined()
        location = str(table.location())
        return _folders(location, table.properties().get, self.chosen, stages_files=merges)

    def made_table(self, rows: DataFrame, partition_by: list[str]) -> tuple[dict[str, str], list[str], list[str]]:
        from pyspark.sql import functions as F  # noqa: N812

        try:
            table = self._table()
        except Exception as error:
            if not is_missing(error):
                raise
            empty = self._spark.createDataFrame([], rows.schema)
            writer = empty.writeTo(self._quoted).using("iceberg")
            made_if_missing(writer.partitionedBy(*map(F.col, partition_by)) if partition_by else writer)
            table = self._table()
        self._check_not_put_aside(table)
        schema = self._spark.table(self._quoted).schema
        required = [field.name for field in schema.fields if not field.nullable]
        fields = table.spec().fields()
        return spark_types(schema), required, [str(fields.get(at).name()) for at in range(fields.size())]

    def kept(self, rows: DataFrame, rules: Merge) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        found = rows.where(NOT_DELETED).drop(DELETED)
        types = {field.name: field.dataType for field in found.schema.fields}
        ends = {name: F.lit(None).cast(types[like]) for name, like in rules.ends(found.columns).items()}
        return found.select("*", *(column.alias(name) for name, column in ends.items()))

    def stage(self, batch: BatchId, made: Output, rows: DataFrame, rules: Merge | None) -> Output:
        if rules is not None:
            return self._stage_events(batch, made, rows, rules)
        from pyspark.sql import functions as F  # noqa: N812

        folder = folder_of(batch, made.fence, new_token()[:8])
        output = replace(made, folder=folder, rows=0)
        # A frame without columns is that of a source where nothing is new.
        if not rows.columns:
            return output
        branch = branch_of(folder)
        manage = self._table().manageSnapshots().createBranch(branch)
        # Else `expire_snapshots` would drop the branch at the age that the table has for all, also where its batch is
        # committed and waits for a run to publish it.
        manage.setMaxRefAgeMs(branch, FOR_EVER).commit()
        required = [field.name for field in self._spark.table(self._quoted).schema.fields if not field.nullable]
        # Spark refuses a column that could be NULL, though none is: that was looked at before.
        sure = reduce(lambda found, name: found.where(F.col(name).isNotNull()), required, rows)
        # Iceberg refuses to add a second snapshot with this id to `main`, whichever attempt it is of.
        (
            sure.writeTo(quoted_table(self._target, branch))
            .option("snapshot-property.wap.id", _audit(made, batch.version))
            .append()
        )
        snapshot = self._refs()[branch]
        summary = snapshot.summary()
        return replace(
            output,
            files=int(summary.get("added-data-files") or 0), bytes=int(summary.get("added-files-size") or 0),
            rows=int(summary.get("added-records") or 0), snapshot=int(snapshot.snapshotId()), table=self._uuid(),
        )  # fmt: skip

    def _stage_events(self, batch: BatchId, made: Output, rows: DataFrame, rules: Merge) -> Output:
        staging = self._staging()
        output, sizes = staging.stage(batch, made, partial(write_rows, rows))
        if not sizes:
            return output
        try:
            self._merging(rules).check(self._read(staging, output.folder, sizes))
        except BaseException:
            staging.drop(output.folder)
            raise
        return output

    def properties(self) -> dict[str, str]:
        return dict(self._table().properties())

    def published(self, output: Output | Retraction) -> int:
        return int(self.properties().get(_property(output)[0]) or 0)

    def publish(self, output: Output) -> None:
        if output.merge is not None:
            self._merge(output)
            return
        # What the branch of this attempt holds, and not the snapshot that the output names: it was read from the table
        # of watermarks, and the branch bears the mark of the job.
        staged = self._refs().get(branch_of(output.folder))
        if staged is None:
            if self.published(output) < output.version:
                self.check_staged(output)
            return
        transaction = self._table().newTransaction()
        try:
            transaction.manageSnapshots().cherrypick(staged.snapshotId()).commit()
            transaction.updateProperties().set(*_property(output)).commit()
            transaction.commitTransaction()
        except Exception as error:
            # Iceberg looks at the snapshots of `main` again in each try of the commit.
            if is_of_java(error, "DuplicateWAPCommitException", "CherrypickAncestorCommitException"):
                return
            if is_of_java(error, "unknown snapshot"):
                # It was published and swept meanwhile.
                raise MovedError(str(error)) from error
            raise

    def check_staged(self, output: Output) -> None:
        if output.merge is not None:
            _check_files(self._staging(output), output)
        elif branch_of(output.folder) not in self._refs():
            # Output of an earlier version of this package does not say which table it is in.
            if (output.table or self._uuid()) != self._uuid():
                raise _moved_table(output)
            raise StagedFilesLostError(output.target, output.version, [branch_of(output.folder)])

    def _merge(self, output: Output) -> None:
        name = _property(output)[0]

        def version(table: Any) -> int:
            return int(table.properties().get(name) or 0)

        def is_done(table: Any) -> bool:
            return version(table) >= output.version and not output.replaces

        assert output.merge is not None
        staging = self._staging(output)
        manifest = staging.manifest(output)
        try:
            if manifest is None:
                raise FileNotFoundError(MANIFEST)
            is_recorded = version(self._table()) >= output.version
            # As the branch of another attempt at this batch: those who sweep its leftovers take it along.
            branch = branch_of(f"{output.folder.rpartition('-')[0]}-{new_token()[:8]}")
            merging = self._merging(Merge.by(output.merge))
            events = self._read(staging, output.folder, manifest)
            merging.publish(events, branch, {} if is_recorded else dict([_property(output)]), is_done)
        except Exception as error:
            if not isinstance(error, FileNotFoundError) and not is_of_java(
                error, "FileNotFoundException", "PATH_NOT_FOUND"
            ):
                raise
            if self.published(output) < output.version:
                raise StagedFilesLostError(output.target, output.version, [reason_of(error)]) from error

    def _merging(self, rules: Merge) -> SparkMerge:
        return SparkMerge(self._target, rules, self._spark, self._table)

    def _read(self, staging: Staging, folder: str, names: Collection[str]) -> DataFrame:
        return read_spark(self._spark, staging.place, folder, names)

    def _staging(self, of: Output | Retraction | None = None) -> Staging:
        return _staging_of(self._target, of, self.chosen, self.location, self._spark, self._s3_client)

    def location(self) -> str:
        return str(self._table().location()).rstrip("/")

    def staged(self, job: str) -> list[str]:
        return self._branches(job) + (self._staging().left(job) if self.chosen else [])

    def _branches(self, job: str) -> list[str]:
        """Return the branches that attempts of a job have left, each as `Output.folder`."""
        start = f"{BRANCH}{job}-"
        return sorted(f"{job}/{name.removeprefix(start)}" for name in self._refs() if name.startswith(start))

    def clear(self, output: Output) -> None:
        if output.staging:
            self._staging(output).clear(output.folder)
        else:
            self._drop(branch_of(output.folder))

    def drop(self, output: Output) -> None:
        if output.staging:
            self._staging(output).drop(output.folder)
        else:
            self._drop(branch_of(output.folder))

    def sweep(self, output: Output, kept: Collection[str]) -> int:
        # As in `Staging.sweep`: later versions may be at work.
        losers = []
        for folder in self._branches(output.job):
            version = version_of(folder, output.epoch)
            if version is not None and version <= output.version and folder not in kept:
                losers.append(folder)
        for folder in losers:
            self._drop(branch_of(folder))
            logger.info("event=staging_swept target=%s folder=%s", output.target, folder)
        return len(losers) + (self._staging(output).sweep(output, kept) if output.staging else 0)

    def retract(self, retraction: Retraction, recorded: int) -> bool:
        folders = self._covered(retraction)
        is_staged = bool(retraction.staging) and self._staging(retraction).withdraw(retraction)
        if not (recorded or folders or is_staged):
            self.retract_files(retraction)
            return False
        for folder in folders:
            # A snapshot without rows under the id of the batch: Iceberg refuses what a publisher that sleeps would add.
            append = self._table().newFastAppend()
            version = version_of(folder, retraction.epoch) or 0
            append.set("wap.id", _audit(retraction, version)).commit()
        # After those snapshots: a publisher that has read it before is refused by them, a later one by this.
        if self.published(retraction) < retraction.closed:
            transaction = self._table().newTransaction()
            if retraction.staging:
                # A publisher that merges is refused if there is another snapshot than the one it has looked at.
                transaction.newFastAppend().commit()
            transaction.updateProperties().set(*_property(retraction)).commit()
            transaction.commitTransaction()
        # Last: until then they say that the table has something of this job.
        for folder in folders:
            self._drop(branch_of(folder))
        self.retract_files(retraction)
        return True

    def _covered(self, retraction: Retraction) -> list[str]:
        """Return the branches of attempts at the versions of a retraction, each as `Output.folder`."""
        found = self._branches(retraction.job)
        return [folder for folder in found if retraction.covers(version_of(folder, retraction.epoch))]

    def to_retract(self, retraction: Retraction) -> list[str]:
        shown = [self.left_at(folder) for folder in self._covered(retraction)]
        return shown + (self._staging(retraction).to_retract(retraction) if retraction.staging else [])

    def left_at(self, folder: str) -> str:
        staged = self._refs().get(branch_of(folder))
        if staged is None:
            return self._staging().left_at(folder)
        count = int(staged.summary().get("added-records") or 0)
        return f"{count_of(count, 'row')} on branch {branch_of(folder)} of {self._target}"

    def retract_files(self, retraction: Retraction) -> None:
        if retraction.staging:
            self._staging(retraction).retract(retraction)

    def delete(self, retraction: Retraction) -> int:
        count = self.count(retraction)
        if count > 0:
            self._spark.sql(sql("DELETE FROM {} WHERE {}", self._quoted, of_batches(retraction)))
        return count

    def count(self, retraction: Retraction) -> int:
        table = self._table()
        self._check_not_put_aside(table)
        rows = rows_at(self._spark, self._target, snapshot_id(table.currentSnapshot()))
        if retraction.batch_column not in rows.columns:
            return -1
        return rows.where(of_batches(retraction)).count()

    def is_of_connector(self, error: Exception) -> bool:
        return type(error).__name__ in ("AnalysisException", "Py4JJavaError", "IllegalArgumentException")

    def is_missing(self, error: Exception) -> bool:
        return is_missing(error)

    def may_pass(self, error: Exception) -> bool:
        passing = ("CommitFailedException", "CommitStateUnknownException", *CONFLICTS)
        return isinstance(error, MovedError) or is_of_java(error, *passing)

    def _check_not_put_aside(self, table: Any) -> None:
        """Raise TargetError where Spark would put rows aside for an audit, and not where it is told.

        With an id of the session they would be in a snapshot of no branch, and nothing would tell that they are gone.
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

    def _drop(self, branch: str) -> None:
        if branch not in self._refs():
            return
        try:
            self._table().manageSnapshots().removeBranch(branch).commit()
        except Exception as error:
            if not is_of_java(error, "Branch does not exist"):
                raise

    def _refs(self) -> dict[str, Any]:
        """Return the snapshots of the table's branches, by name."""
        table = self._table()
        return {str(name): table.snapshot(ref.snapshotId()) for name, ref in dict(table.refs()).items()}

    def _table(self, name: str = "") -> Any:
        """Return the table, or another one, as it is now: Spark's catalog keeps what it has read for half a minute."""
        return spark_table(name or self._target, self._spark)

    def _uuid(self) -> str:
        """Return what a table keeps when it is renamed, and another one of its name has not."""
        return str(self._table().operations().current().uuid())

    def _imagined(self) -> Any:
        """Return the table that would be made, from a transaction that is never committed."""
        iceberg, session = java_of(self._spark).org.apache.iceberg, java_session(self._spark)
        catalog, _, name = self._target.partition(".")
        identifier = iceberg.catalog.TableIdentifier.parse(name)
        of_texts = self._spark.createDataFrame([], "name string")
        # Of no type but text: what types of these rows the table cannot have is told where it is made.
        schema = iceberg.spark.SparkSchemaUtil.convert(java_frame(of_texts).schema())
        loaded = iceberg.spark.Spark3Util.loadIcebergCatalog(session, catalog)
        return loaded.buildTable(identifier, schema).createTransaction().table()


def _audit(of: Output | Retraction, version: int) -> str:
    """Return the id under which Iceberg takes one snapshot only, whichever attempt at a batch it is of."""
    return f"{PROPERTY}.{of.job}.{batch_name(of.epoch, version)}"


def _folders(
    location: str, property_of: Callable[[str], str | None], chosen: str | None, *, stages_files: bool
) -> list[str]:
    """Return where files of a table are, and those that are staged."""
    moved = [property_of(name) for name in FOLDERS]
    staging = (chosen or staging_beside(location.rstrip("/"))) if stages_files else None
    return [location, *(str(folder) for folder in (*moved, staging) if folder)]


def _check_files(staging: Staging, output: Output) -> None:
    """Raise StagedFilesLostError for files that an attempt has listed and that are gone, or for a list that is."""
    manifest, there = staging.manifest(output), staging.place.files(output.folder)
    lost = [name for name in manifest or [MANIFEST] if f"{output.folder}/{name}" not in there]
    if lost:
        raise StagedFilesLostError(output.target, output.version, lost)


def _staging_of(
    target: str,
    of: Output | Retraction | None,
    chosen: str | None,
    location: Callable[[], str],
    spark: SparkSession | None,
    s3_client: S3Client | None,
) -> Staging:
    """Return where files are staged: where those of an attempt are, or where attempts are to stage."""
    found = (of.staging if of else chosen) or staging_beside(location())
    if not found:
        raise InvalidValueError(f"{target!r} is a whole bucket. Say where to stage: staging='s3://…/'.")
    return Staging(place_of(found.rstrip("/"), spark, s3_client))


class _ArrowEngine:
    """The package `pyiceberg`."""

    name = "pyiceberg"

    def __init__(self, target: str, catalog: Any, s3_client: S3Client | None, staging: str | None) -> None:
        self._target, self._given, self._s3_client, self.chosen = target, catalog, s3_client, staging
        self._identifier = target.partition(".")[2]

    def check(self, *, merges: bool) -> None:
        self._catalog()

    def rows(self, df: Any) -> Any:
        return arrow_rows(df, self._target)

    def types(self, rows: Any) -> dict[str, str]:
        return arrow_types(rows.schema)

    def folders(self, df: Any, *, merges: bool) -> list[str]:
        import pyarrow as pa
        from pyiceberg.exceptions import NoSuchTableError

        try:
            table = self._table()
            location, properties = table.location(), table.properties
        except NoSuchTableError:
            if not columns_of(df):
                return []  # None will be made, either.
            # Never committed. Of no type but text: what types of these rows it cannot have is told where it is made.
            schema = pa.schema([("name", pa.string())])
            imagined = self._catalog().create_table_transaction(self._identifier, schema)
            location, properties = imagined.table_metadata.location, {}
        return _folders(str(location), properties.get, self.chosen, stages_files=True)

    def made_table(self, rows: Any, partition_by: list[str]) -> tuple[dict[str, str], list[str], list[str]]:
        from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError

        try:
            table = self._table()
        except NoSuchTableError:
            check_typed(rows, self._target)
            try:
                with (
                    self._catalog().create_table_transaction(self._identifier, schema=rows.schema) as transaction,
                    transaction.update_spec() as spec,
                ):
                    for column in partition_by:
                        spec.add_identity(column)
            except (TableAlreadyExistsError, CommitFailedException):
                pass  # Another attempt at the batch has made it.
            table = self._table()
        schema = table.schema().as_arrow()
        required = [field.name for field in schema if not field.nullable]
        return arrow_types(schema), required, [field.name for field in table.spec().fields]

    def kept(self, rows: Any, rules: Merge) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        found = rows.filter(pc.invert(rows[DELETED])).drop_columns([DELETED])
        for name, like in rules.ends(found.column_names).items():
            found = found.append_column(name, pa.nulls(found.num_rows, found.schema.field(like).type))
        return found

    def stage(self, batch: BatchId, made: Output, rows: Any, rules: Merge | None) -> Output:
        if rules is not None and rows.num_columns:
            ArrowMerge(self._target, rules, self._catalog()).check(rows)
        return self._staging().stage(batch, made, partial(write_rows, rows)).output

    def properties(self) -> dict[str, str]:
        return dict(self._table().properties)

    def published(self, output: Output | Retraction) -> int:
        return int(self.properties().get(_property(output)[0]) or 0)

    def publish(self, output: Output) -> None:
        table, merge = self._table(), output.merge
        # Of this very look: what is committed below is refused if `main` has moved since.
        is_recorded = int(table.properties.get(_property(output)[0]) or 0) >= output.version
        if is_recorded and not (merge and output.replaces):
            return
        staging = self._staging(output)
        manifest = staging.manifest(output)
        try:
            if manifest is None:
                raise FileNotFoundError(MANIFEST)
            rows = read_rows(staging.place, output.folder, manifest)
            if not merge:
                rows = with_later_columns(self._target, rows, table.schema().as_arrow())
            rows = rows.read_all()
        except FileNotFoundError as error:
            if self.published(output) >= output.version:
                return
            raise StagedFilesLostError(output.target, output.version, [str(error)]) from error
        table.catalog = _OneTry(table.catalog)
        record, summary = dict([_property(output)]), {f"{PROPERTY}.batch": output.batch}
        if merge:
            merging = ArrowMerge(output.target, Merge.by(merge), table.catalog)
            merging.publish(table, rows, {} if is_recorded else record, summary)
            return
        schema = table.schema().as_arrow()
        with table.transaction() as transaction:
            transaction.append(rows.select(schema.names).cast(schema), summary)
            transaction.set_properties(record)

    def staged(self, job: str) -> list[str]:
        return self._staging().left(job)

    def check_staged(self, output: Output) -> None:
        _check_files(self._staging(output), output)

    def clear(self, output: Output) -> None:
        self._staging(output).clear(output.folder)

    def drop(self, output: Output) -> None:
        self._staging(output).drop(output.folder)

    def sweep(self, output: Output, kept: Collection[str]) -> int:
        return self._staging(output).sweep(output, kept)

    def retract(self, retraction: Retraction, recorded: int) -> bool:
        if not (self._staging(retraction).withdraw(retraction) or recorded):
            self.retract_files(retraction)
            return False
        table = self._table()
        name, closed = _property(retraction)
        if int(table.properties.get(name) or 0) < retraction.closed:
            # With a snapshot without rows: a publisher that sleeps has looked at the one before, and is refused.
            table.catalog = _OneTry(table.catalog)
            with table.transaction() as transaction:
                transaction.append(table.schema().as_arrow().empty_table())
                transaction.set_properties({name: closed})
        self.retract_files(retraction)
        return True

    def to_retract(self, retraction: Retraction) -> list[str]:
        return self._staging(retraction).to_retract(retraction)

    def left_at(self, folder: str) -> str:
        return self._staging().left_at(folder)

    def retract_files(self, retraction: Retraction) -> None:
        self._staging(retraction).retract(retraction)

    def delete(self, retraction: Retraction) -> int:
        table = self._table()
        of_these = self._of_batches(table, retraction)
        if of_these is None:
            return -1
        before = _total(table)
        # One try, so nothing of others comes in between, and the totals differ by these rows alone.
        table.catalog = _OneTry(table.catalog)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Delete operation did not match any records")
            table.delete(of_these)
        return before - _total(table)

    def count(self, retraction: Retraction) -> int:
        table = self._table()
        of_these = self._of_batches(table, retraction)
        return -1 if of_these is None else int(table.scan(of_these).count())

    def _of_batches(self, table: Any, retraction: Retraction) -> Any:
        """Return the expression for the rows of a retraction's batches; None if there is no column."""
        from pyiceberg import expressions

        # Their types are made at run time: to mypy an expression takes the name of its own kind first.
        made: Any = expressions
        column, (first, last) = retraction.batch_column, batch_values(retraction)
        if column not in table.schema().column_names:
            return None
        return made.And(made.GreaterThanOrEqual(column, first), made.LessThanOrEqual(column, last))

    def is_of_connector(self, error: Exception) -> bool:
        return type(error).__module__.startswith("pyiceberg.")

    def is_missing(self, error: Exception) -> bool:
        from pyiceberg.exceptions import NoSuchTableError

        return isinstance(error, NoSuchTableError)

    def may_pass(self, error: Exception) -> bool:
        from pyiceberg.exceptions import CommitStateUnknownException

        return isinstance(error, MovedError | CommitStateUnknownException)

    def _staging(self, of: Output | Retraction | None = None) -> Staging:
        return _staging_of(self._target, of, self.chosen, self.location, None, self._s3_client)

    def location(self) -> str:
        return str(self._table().location()).rstrip("/")

    def _table(self) -> Any:
        return self._catalog().load_table(self._identifier)

    def _catalog(self) -> Any:
        if self._given is None:
            self._given = arrow_catalog(self._target, TargetError, "use IcebergSink(…, catalog=…)")
        return self._given


def _total(table: Any) -> int:
    """Return how many rows a table of pyiceberg has."""
    snapshot = table.current_snapshot()
    return int(snapshot.summary["total-records"]) if snapshot is not None else 0


class _OneTry:
    """A catalog that lets a commit be tried once.

    From version 0.12 on pyiceberg tries a commit that was refused again, on top of what has come between. That may be
    this very batch, published by another one: then it would be there twice.
    """

    def __init__(self, catalog: Any) -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(self, *given: Any, **named: Any) -> Any:
        """Commit, or raise an error of our own."""
        from pyiceberg.exceptions import CommitFailedException

        try:
            return self._catalog.commit_table(*given, **named)
        except CommitFailedException as error:
            raise MovedError(str(error)) from error
