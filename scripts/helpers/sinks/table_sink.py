"""`TableSink`: writes a batch to a table that records the batch in the same commit as its rows.

::

    stage     each attempt writes its rows where no reader looks, apart from all other attempts
    commit    the job's head names one attempt; the sink takes no part in that
    publish   if the batch is not recorded yet, one commit adds the rows and the record; if another writer commits
              after the sink has looked for the record, the commit fails and the sink tries again
    sweep     the staged rows of this attempt and of losing attempts are deleted

Each format, and each connector of a format, has its own `TableLog`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

from scripts.helpers.display.units import count_of
from scripts.helpers.errors import TargetError, WatermarkError
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.rows.arrow_streams import ArrowStream
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.sql import SQL, naming, sql
from scripts.helpers.sinks.given_frames import events_of, given_rows
from scripts.helpers.sinks.merging import DELETED, Merge, TableMerge
from scripts.helpers.sinks.outputs import mark_of, value_of_batch
from scripts.helpers.sinks.sink import Witnessed
from scripts.helpers.sinks.spark_files import Unfit, check_partition_counts, check_partition_types, longest_folder
from scripts.helpers.sinks.staged_rows import (
    Rows,
    check_fits,
    check_layout,
    check_list,
    check_required,
    check_rows,
    check_typed,
    columns_of,
    spark_of,
    unfit_counts,
    with_batch,
    with_required,
    without_columns_if_empty,
    write_rows,
)
from scripts.helpers.sinks.staging import Attempts, StagedRows, Staging
from scripts.helpers.spark.java_errors import reason_of, shows_rows
from scripts.helpers.spark.jvm import java_frame

logger = logging.getLogger(__name__)

S = TypeVar("S", bound="TableSink")
T = TypeVar("T")

TRIES = 10
"""Most tries to commit while other writers commit in between; not more, because each try writes the rows again."""
CHECK = " Check the name, and the rights there."
SAFE_TO_REPEAT = " Publishing again is safe."
Meaning = Literal["moved", "missing", "refused"]


@dataclass(frozen=True)
class TableShape:
    """The columns of a table, and the rules that its rows must meet.

    Attributes
    ----------
    types
        The type of each column as a text, such as "bigint": see `SparkRows.types`.
    required
        The columns that must not be NULL.
    partition_by
        The columns that the table is partitioned by.
    no_merge
        The reason if rows cannot be merged into the table; an empty text if they can.
    conditions
        The conditions that each row must meet, such as CHECK constraints, by the name that errors give to each.
    schema
        The schema as an object of the engine: a `StructType` of Spark, or a schema of pyarrow.
    """

    types: Mapping[str, str]
    required: Sequence[str]
    partition_by: Sequence[str]
    no_merge: str = ""
    conditions: Mapping[str, SQL] = field(default_factory=dict)
    schema: Any = None


@dataclass(frozen=True)
class Append:
    """A change of a table: add the rows of an attempt."""

    staged: StagedRows


@dataclass(frozen=True)
class MergeRows:
    """A change of a table: merge an attempt's rows and deletes. If `repeats`, also merge a batch that is recorded."""

    staged: StagedRows
    rules: Merge
    repeats: bool


@dataclass(frozen=True)
class Nothing:
    """A change of a table that changes no row, but records a version.

    If attempts staged files (`staged_files`), publishers that read the table before this commit must fail to commit.
    """

    staged_files: bool


class TableLog(Protocol):
    """One table, and how a connector commits to it.

    The table has a record for each job and epoch. If the record were only for the job, batches after a restore would be
    skipped, because their versions start again at a lower number.
    """

    format: str
    """The value of `Output.sink`."""
    engine: str | None
    """The value of `Output.engine`."""
    title: str
    """The name of the format in messages."""
    restore_command: str
    """The command with which an operator restores the whole table to an earlier version."""
    retries_decisions: bool
    """Whether to retry a decision when another writer commits in between; if not, the next run carries it out."""

    def exists(self) -> bool:
        """Return whether there is a table."""

    def shape(self) -> TableShape | None:
        """Return the table's columns and rules; None for no table, TargetError for a folder with files but no table."""

    def recorded(self, of: Output | Retraction) -> int:
        """Return the last version that the table has recorded for the job and epoch of `of`; 0 for none.

        In a database, where each version has its own record, look only for the versions of the output or retraction.
        """

    def witnessed(self, job: str, *, others: bool) -> Witnessed:
        """Return which versions the table has recorded for a job; with `others`, for all jobs. See `Sink.recorded`."""

    def commit(self, of: Output | Retraction, version: int, change: Append | MergeRows | Nothing) -> None:
        """Make a change and record a version in one commit; do nothing if that or a later version is recorded.

        If another writer commits after this method read the table, raise an error for which `meaning` returns "moved".
        """

    def delete(self, retraction: Retraction) -> int:
        """Delete the rows whose batch column names a batch of a retraction; return how many."""

    def count(self, retraction: Retraction) -> int:
        """Count the rows that `delete` would delete."""

    def meaning(self, error: Exception) -> Meaning | None:
        """Return what an error of the connector means; None if the error is not of the connector.

        "moved": another writer has committed, or staged files were deleted while they were read. The caller has to read
        the table again. "missing": there is no such table. "refused": any other error.
        """


class LakeLog(TableLog, Protocol):
    """A Delta or Iceberg table. If it does not exist, the sink creates it with the columns of the rows."""

    engine: str
    is_created_when_staged: bool
    """Whether staging creates the table, because attempts need it; if not, the first publication creates it."""
    unfit_partitions: Mapping[str, str]
    """The types of columns that the table cannot be partitioned by, with the reason."""
    unfit: Unfit
    """For the other types, the values that a partition column of the table cannot keep."""
    held: Collection[str]
    """The types that its columns can have; see `staged_rows.HELD`."""
    rows: Rows

    def check(self, *, merges: bool) -> None:
        """Raise MissingConnectorError without a connector, InvalidValueError for one that cannot reach the table."""

    def make(self, like: Any, partition_by: Sequence[str]) -> None:
        """Create the table with the columns of the frame `like`, without rows; do nothing if the table exists."""

    def merging(self, rules: Merge) -> TableMerge:
        """Return the object that merges rows into the table."""


class TableSink(ABC):
    """A table to which each batch is appended, or merged by key, in one commit."""

    needs_script = False

    def __init__(self, name: str, log: TableLog, merge: Merge | None, batch_column: str | None) -> None:
        self._name, self.rules, self._log, self._batch_column = name, merge, log, batch_column

    @property
    def name(self) -> str:
        return self._name

    def merging(self: S, rules: Merge) -> S:
        made = copy(self)
        made.rules = rules
        return made

    def check(self, df: Any) -> Any:
        """Return the rows in the form that `stage` takes; see `Sink`."""
        # Mark all rows as upserts, unless `IncrementalJob.merge` has marked deletes already.
        if self.rules is not None and DELETED not in columns_of(df):
            df = events_of(df, self.rules)
        return given_rows(df, self.name)

    def places(self, df: Any) -> list[str]:
        return []

    def stage(self, batch: BatchId, fence: int, rows: Any, *, replaces: bool = False) -> Output:
        """Write the rows where only this attempt stages. No reader of the table sees them.

        Parameters
        ----------
        rows
            The rows that `check` returned.
        replaces
            True for a run that saves no watermarks. Several of its attempts may publish. Each merges its rows, but only
            the first appends: appended rows do not show their attempt, so a later attempt could not replace them.

        Raises
        ------
        KeyColumnError, InvalidValueError
            A merge cannot order the rows, or a partition column has an unfit value. The staged rows are deleted.
        TargetSchemaError, TargetError, InvalidValueError
            The rows do not fit the table. In most cases this is found before any row is written.
        TargetError
            A file or the table cannot be listed, read or written.
        """
        log, rules = self._log, self.rules
        made = Output(
            log.format, self.name, "", "", mark_of(batch.job_id), batch.epoch, batch.version, fence,
            replaces=replaces, engine=log.engine, batch_column=self._batch_column, job_id=batch.job_id,
            merge=rules.columns if rules is not None else None,
        )  # fmt: skip
        return self._stage(batch, made, rows)

    def publish(self, output: Output) -> None:
        """Append or merge the staged rows in one commit that records the batch; do nothing if it is recorded already.

        The caller must know from the head that this attempt was committed. Calls may be late, repeated and concurrent.

        Raises
        ------
        StagedFilesLostError
            The batch is not in the table, and the staged rows are gone.
        UnprovenError
            The staged rows are not of this attempt, or are for another table.
        TargetError
            The commit failed, or in each try another writer committed first. You may call this again.
        """
        # If `rows` is None, the rows were not counted, so publish.
        if output.rows != 0:
            self._done(lambda: self._publish(output), TRIES, SAFE_TO_REPEAT, output)

    def check_staged(self, output: Output) -> None:
        if output.rows != 0:
            self._decided(lambda: self._staged(output))

    def clear(self, output: Output) -> None:
        self._done(lambda: [place.clear(place.own(output)) for place in self._attempts(output)[-1:]])

    def drop(self, output: Output) -> None:
        self._done(lambda: [place.drop(place.own(output)) for place in self._attempts(output)])

    def sweep(self, output: Output, kept: Collection[str], recorded: Witnessed | None = None) -> int:
        return self._done(lambda: sum(place.sweep(output, kept) for place in self._attempts(output)))

    def staged(self, job: str) -> list[str]:
        return self._done(lambda: [folder for place in self._attempts(None) for folder in place.left(job)])

    def left_at(self, folder: str) -> str:
        return self._done(lambda: self._left_at(folder))

    def recorded(self, job: str, *, others: bool = False, newest: Output | None = None) -> Witnessed:
        return self._decided(lambda: self._log.witnessed(job, others=others))

    def retraction(self, job_id: str, epoch: str, first: int, last: int, since: datetime) -> Retraction:
        column, staging = self._batch_column or "", self._done(self._staging_now)
        return Retraction(
            self._log.format, self.name, staging, mark_of(job_id), epoch, first, last, since, column, job_id=job_id
        )

    def retract(self, retraction: Retraction) -> int:
        """Delete the staged rows of some versions, and the published ones; return how many published rows were deleted.

        Without a batch column, published rows stay, and a WARNING is logged: after a compaction, nothing else in a
        table shows which batch a row is of.

        Raises
        ------
        TargetError
            A commit failed. Call again.
        """
        log = self._log
        places = self._done(lambda: self._attempts(retraction))
        withdrawn = [self._decided(partial(place.withdraw, retraction)) for place in places]
        # A publisher that creates the table after this check adds no row to it: the staged rows are withdrawn.
        is_there = self._done(log.exists)
        recorded = self._decided(lambda: log.recorded(retraction)) if is_there else 0
        # If the table has no batch of this job, and the job staged nothing for it, it is another job's: leave it alone.
        is_touched = is_there and bool(recorded or any(withdrawn))
        if is_touched:
            # Record the versions before the delete: a publisher that comes later finds them recorded, and adds no row.
            nothing = Nothing(staged_files=bool(retraction.staging))
            self._decided(lambda: log.commit(retraction, retraction.closed, nothing))
        # Delete the staged files only now: if this call dies earlier, they show the next call that the job wrote here.
        for place in places:
            self._done(partial(place.retract, retraction))
        if is_touched and self._has_column(retraction):
            return self._decided(lambda: log.delete(retraction))
        if retraction.is_published(recorded):
            logger.warning(
                "event=retraction_left target=%s versions=%d-%d rows=%s: the %s table keeps the rows of these "
                "versions. Delete the rows by key, or go back with %s if nothing else was written since",
                self.name, retraction.first, recorded, retraction.rows_until(recorded), log.title, log.restore_command,
            )  # fmt: skip
        return 0

    def to_retract(self, retraction: Retraction) -> list[str]:
        has_column = retraction.batch_column and self._done(self._log.exists) and self._has_column(retraction)
        count = self._decided(lambda: self._log.count(retraction)) if has_column else 0
        shown = [f"{count_of(count, 'row')} in {self.name}"] if count else []
        for place in self._done(lambda: self._attempts(retraction)):
            shown += self._done(partial(place.to_retract, retraction))
        return shown

    # --- the methods that each format implements -----------------------------------------------------

    @abstractmethod
    def _attempts(self, of: Output | Retraction | None) -> Sequence[Attempts]:
        """Return the places where attempts stage or, for a record `of`, staged; an output's rows are in the last."""

    @abstractmethod
    def _staging_now(self) -> str:
        """Return where new attempts stage, for `Output.staging`: the URI of a folder, or the schema of a database."""

    @abstractmethod
    def _stage(self, batch: BatchId, made: Output, rows: Any) -> Output:
        """Write rows where no reader looks, and check them. Return `made` with staging place and row count added."""

    # --- helpers ----------------------------------------------------------------------------------

    def _publish(self, output: Output) -> None:
        rules = Merge.by(output.merge) if output.merge is not None else None
        # All attempts of a run that saves no watermarks have the same version: append only the first one's rows.
        if output.replaces and rules is None and self._has(output):
            logger.warning(
                "event=kept target=%s batch=%s: an earlier attempt published this batch, and its rows stay",
                self.name, output.batch,
            )  # fmt: skip
            return
        staged = self._staged(output)
        if staged is not None:
            change = Append(staged) if rules is None else MergeRows(staged, rules, output.replaces)
            self._log.commit(output, output.version, change)

    def _staged(self, output: Output) -> StagedRows | None:
        """Return the staged rows of an attempt; None if they cannot be found or used, but the batch is published.

        Raises
        ------
        StagedFilesLostError
            The rows are gone, and the batch is not in the table.
        UnprovenError, TargetError
            The batch is not in the table, and its rows are of another attempt, for another table or staged elsewhere.
        """
        try:
            return self._attempts(output)[-1].find(output)
        except TargetError:
            if not self._has(output):
                raise
            return None

    def _left_at(self, folder: str) -> str:
        *others, last = self._attempts(None)
        job = folder.partition("/")[0]
        return next((place for place in others if folder in place.left(job)), last).left_at(folder)

    def _has(self, output: Output) -> bool:
        return self._log.recorded(output) >= output.version

    def _has_column(self, retraction: Retraction) -> bool:
        shape = self._decided(self._log.shape) if retraction.batch_column else None
        return shape is not None and retraction.batch_column in shape.types

    def _decided(self, action: Callable[[], T]) -> T:
        """Run an action. On another writer's commit, retry if `retries_decisions`, else raise: the next run retries."""
        return self._done(action, TRIES if self._log.retries_decisions else 1)

    def _done(self, action: Callable[[], T], tries: int = 1, after: str = "", output: Output | None = None) -> T:
        """Run an action on the table. If another writer commits in between, run it again, at most `tries` times in all.

        Parameters
        ----------
        after
            A sentence to append to the text of an error.
        output
            The output to publish. With it, all errors become TargetErrors; without it, only errors of the connector do.

        Raises
        ------
        TargetError
            The connector raised an error, or in each try another writer committed in between.
        """
        for left in reversed(range(tries)):
            try:
                return action()
            except WatermarkError as error:
                if not (left and error.reason == "locked" and error.is_deadlock):
                    raise
                # Try again: the server ended this transaction to break a deadlock, so the other one can finish now.
                logger.info("event=deadlock_retried target=%s error=%s", self.name, error)
            except Exception as error:
                meaning, reason = self._log.meaning(error), reason_of(error)
                if output is not None and meaning == "missing":
                    raise moved_table(output) from error
                if output is None and meaning is None:
                    raise
                if tries == 1 or meaning != "moved":
                    raise TargetError(self.name, f"{reason}{after}") from None if shows_rows(error) else error
                if not left:
                    raise TargetError(self.name, f"others came between {tries} times: {reason}{after}") from error
                if output is not None:
                    # Try again: another writer has committed, or another process has published this batch and deleted
                    # its staged files while they were read here.
                    logger.info(
                        "event=%s_retried target=%s version=%d: %s",
                        self._log.format, self.name, output.version, reason,
                    )  # fmt: skip
        raise AssertionError("the last try returns or raises")


class LakeSink(TableSink):
    """A Delta or Iceberg table: its rows are staged in files, or on a branch."""

    _log: LakeLog

    def __init__(
        self, name: str, log: LakeLog, partition_by: Sequence[str], merge: Merge | None, batch_column: str | None
    ) -> None:
        check_list(partition_by)
        super().__init__(name, log, merge, batch_column)
        self._partition_by = list(partition_by)

    @property
    @abstractmethod
    def staging(self) -> Staging:
        """The place where attempts stage files."""

    def check(self, df: Any) -> Any:
        """Return the rows for `stage`. MissingConnectorError for no connector; InvalidValueError for bad arguments."""
        log, merges = self._log, self.rules is not None
        log.check(merges=merges)
        rows = super().check(df)
        check_rows(rows, self.name, self._partition_by, self._batch_column, log.engine, merges=merges)
        return log.rows.taken(without_columns_if_empty(rows), self.name, log.held)

    def _attempts(self, of: Output | Retraction | None) -> Sequence[Attempts]:
        return [self.staging]

    def _staging_now(self) -> str:
        return self.staging.place.uri("")

    def _is_own_place(self, of: Output | Retraction) -> bool:
        """Return whether the files of a record are staged where this job stages; True if it has no files."""
        return not of.staging or self.staging.is_own_place(of)

    def _stage(self, batch: BatchId, made: Output, rows: Any) -> Output:
        log = self._log
        rows = with_batch(rows, self._batch_column, value_of_batch(batch))
        rows, shape = self._checked(rows) if columns_of(rows) else (rows, None)
        # If the table is created only when the batch is published, the output must name the partition columns.
        made = replace(made, partition_by=() if log.is_created_when_staged else tuple(self._partition_by))
        output, staged = self._write(batch, made, rows)
        if staged.names and shape is not None:
            self._check_staged(staged, shape)
        return output

    def _write(self, batch: BatchId, made: Output, rows: Any) -> tuple[Output, StagedRows]:
        """Write rows where no reader looks. Return `made` with the staging place and counts added, and the files."""
        staging = self._done(lambda: self.staging, after=CHECK)
        return staging.stage(batch, made, partial(write_rows, rows))

    def _checked(self, rows: Any) -> tuple[Any, TableShape]:
        """Raise an error if the rows do not fit the table, or if no table can be created for them.

        Returns the rows in the form to stage, and the shape of the table; for a missing table, that of the new one.
        """
        log, rules = self._log, self.rules
        shape = self._done(log.shape, after=CHECK)
        if shape is not None:
            rows = log.rows.filled(rows, shape.schema, [*rules.keys, *rules.sequence_by] if rules is not None else [])
        brought = rows if rules is None else log.rows.kept(rows, rules)
        types = log.rows.types(brought.schema)
        if shape is None:
            check_typed(log.rows.by_path(brought.schema), self.name)
            shape = TableShape(types, [], self._partition_by)
            if log.is_created_when_staged:
                # Use the RDD, not an action of the DataFrame: an Observation would count the rows of that action.
                if spark_of(rows) is not None and java_frame(rows).toJavaRDD().isEmpty():
                    return rows.select(), shape
                if isinstance(rows, ArrowStream) and rows.is_empty():
                    return rows.schema.empty_table().select([]), shape
                self._done(lambda: log.make(brought, self._partition_by), after=CHECK)
                shape = self._done(log.shape, after=CHECK) or shape
        if rules is not None and shape.no_merge:
            raise TargetError(self.name, shape.no_merge)
        check_fits(self.name, types, shape.types)
        # The rows lack `valid_from` and `valid_to`, which a merge with history= fills: do not require these columns.
        required = [name for name in shape.required if name in columns_of(rows)]
        if spark_of(brought) is None:
            brought = with_required(self.name, brought, required)
        check_layout(self.name, self._partition_by, shape.partition_by)
        check_partition_types(shape.partition_by, types, log.unfit_partitions)
        return brought if rules is None else rows, shape

    def _check_staged(self, staged: StagedRows, shape: TableShape) -> None:
        """Raise if staged rows have values that a merge, a partition or a constraint refuses, and delete the rows."""
        log, rules = self._log, self.rules
        checked = [
            name for name in shape.partition_by if shape.types.get(name, "").partition("(")[0] in log.unfit
        ]  # fmt: skip
        longest = longest_folder(self._staging_now()) if checked else 0
        # Check the staged rows, not the script's frame: Spark would compute that again, perhaps with other values.
        required = shape.required if log.engine == "spark" else ()
        if not (checked or required or shape.conditions or rules):
            return
        try:
            asked = {**{name: sql("{} IS NOT NULL", SPARK.quote(name)) for name in required}, **shape.conditions}
            parts = log.rows.parts(staged) if rules is None else ()
            if rules is not None:
                rows = log.rows.read(staged)
                self._done(lambda: log.merging(rules).check(rows))
                # Skip constraints on `valid_from` and `valid_to`, which a merge with history= fills when it publishes.
                lacks = naming(rules.ends(columns_of(rows)))
                asked = {name: text for name, text in asked.items() if not lacks(text)}
                parts = [log.rows.kept(log.rows.frames.distinct(rows, rules), rules)]
            unfit, refused = Counter[str](), Counter[str]()
            for part in parts:
                unfit.update(unfit_counts(part, checked, log.unfit, longest))
                refused.update(self._done(partial(log.rows.refused, part, asked)) if asked else {})
            check_partition_counts(checked, unfit)
            check_required(self.name, {name: refused.pop(name, 0) for name in required})
            check_counts(self.name, refused)
        except BaseException:
            self.staging.drop(staged.folder)
            raise

    def _publish(self, output: Output) -> None:
        log = self._log
        staged = None if log.is_created_when_staged or log.exists() else self._staged(output)
        if staged is not None:
            # Create the table without rows, and then look for the staged rows again, because `retract` may have deleted
            # them meanwhile. `retract` records a retraction only in a table that exists, so a table that is created
            # with rows after `retract` has looked for it would keep the retracted rows.
            like = log.rows.empty(staged)
            kept = like if output.merge is None else log.rows.kept(like, Merge.by(output.merge))
            log.make(kept, output.partition_by)
        super()._publish(output)


def check_counts(target: str, refused: Mapping[str, int], remedy: str = "") -> None:
    """Raise TargetError for the first constraint that refuses rows; `refused` has their number by constraint."""
    for constraint, count in refused.items():
        if count:
            raise TargetError(
                target,
                f"its {constraint} refuses {count_of(count, 'row')}. Correct or filter them{remedy}. Nothing is "
                "written.",
                reason="unfit_table",
            )


def moved_table(output: Output) -> TargetError:
    """Return the error for a batch whose table no longer exists under the name in the output."""
    return TargetError(
        output.target,
        f"the table that version {output.version} was staged in is no longer here: it was renamed, dropped or "
        "replaced. If it was renamed, give it this name again, run the job once, and then rename it. Otherwise rewind "
        "the job to the version before and run it again.",
    )
