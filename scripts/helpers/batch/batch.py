"""`Batch`: one run from begin to commit, for any kind of source and in any mode."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from weakref import ReferenceType, ref

from scripts.helpers._lazy import DataFrame, S3Client
from scripts.helpers.batch.modes import Reach, UnsavedRun, reach_of
from scripts.helpers.display.units import printable
from scripts.helpers.errors import (
    InvalidValueError,
    PlanConflictError,
    TooLargeError,
    UnreadableFilesError,
    WatermarkError,
)
from scripts.helpers.files.states import FilesPlan
from scripts.helpers.protocol.head import Plan
from scripts.helpers.protocol.items import encode_metrics
from scripts.helpers.protocol.names import BatchId, check_context
from scripts.helpers.protocol.run import Run, run_closed
from scripts.helpers.protocol.values import Spilled
from scripts.helpers.rows.counts import RowCounts
from scripts.helpers.schemas.kept import carried

if TYPE_CHECKING:
    from scripts.helpers.batch.end_of_run import EndOfRun
    from scripts.helpers.batch.publishing import Publication
    from scripts.helpers.files.readings import Readings
    from scripts.helpers.listing.listing import Location

logger = logging.getLogger(__name__)

# --- counts ---------------------------------------------------------------------------------------
# Count what a run reads and writes, and select the counts that are saved with its commit.

METRICS = (
    "rows_collected", "rows_written", "bytes_written", "contexts", "files_read", "bytes_read", "files_set_aside",
    "columns_left_out",
)  # fmt: skip
"""The names of a job's counts; no context may have one of these names."""


def files_read(contexts: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Return counts of files over all planned contexts, such as ``files_read``; empty if no context has files."""
    files = [FilesPlan.read(planned, "plan") for planned in contexts.values() if planned["kind"] == "files"]
    if not files:
        return {}
    counts = {
        "files_read": sum(planned.count for planned in files),
        "bytes_read": sum(planned.bytes for planned in files),
    }
    aside = sum(planned.set_aside for planned in files)
    return counts | ({"files_set_aside": aside} if aside else {})


def contexts_taken(contexts: Mapping[str, Mapping[str, Any]], counted: Mapping[str, Any]) -> set[str]:
    """Return the contexts that took files or rows. A context whose rows were not counted is among them."""
    rows = {name: found["rows"] for name, found in counted.get("contexts", {}).items()}
    sources = {name: planned for name, planned in contexts.items() if planned["kind"] in ("rows", "files", "table")}
    return {name for name, planned in sources.items() if rows.get(name, planned.get("count")) != 0}


def add_written(metrics: dict[str, Any], rows: int, size: int | None) -> None:
    """Add the rows and bytes of one write to a job's counts; a `size` of None (unknown) adds no bytes."""
    metrics["rows_written"] = metrics.get("rows_written", 0) + rows
    if size is not None:
        metrics["bytes_written"] = metrics.get("bytes_written", 0) + size


def counts_to_save(counted: Mapping[str, Any], following: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts to save at the commit, without the counts per source if the run's item would be too large."""
    # A run's item has counts and watermarks in one map. If a watermark was stored by hand under a count's name, drop
    # the count. Do not drop a user's own metric that has a watermark's name: the commit refuses it with an error.
    kept = {name: count for name, count in counted.items() if name not in METRICS or name not in following}
    try:
        encode_metrics(kept, following)
    except TooLargeError:
        # The item would be too large: drop the counts by source, as mere statistics must not make the commit fail.
        kept.pop("contexts", None)
        kept.pop("columns_left_out", None)
    return kept


# --- batch ----------------------------------------------------------------------------------------

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

KINDS = ("rows", "files", "partition", "table")
"""The kinds of states that sources have."""
CONNECTIONS = 32
"""Connections of the S3 client that lists, compares and checks: at least one for each worker, so that none waits."""
Stored = Mapping[str, Any]
"""The part of a plan, or of the watermarks, that belongs to one source."""
NOTHING: Stored = {"kind": "nothing"}
"""The plan of a context that is not in the inherited plan, or not in the range of runs."""


@dataclass(frozen=True)
class FrozenBatch:
    """A batch whose plan is stored: every attempt at it, in this run or in another one, reads the same rows and files.

    Attributes
    ----------
    id
        The key of the batch for a sink.
    planned_at
        The time in UTC when the plan was frozen. Use it for columns such as ``import_date``.

        Every attempt at the batch has the same time, so a replay writes to the same partition even a day later. Each
        version has a later time than the version before. If the clock is more than five minutes behind that earlier
        version's time, ``event=clock_behind`` is logged as a WARNING. A retry of a paused or disabled run has a new
        time. For another zone: ``batch.planned_at.astimezone(ZoneInfo("Europe/London"))``.
    """

    id: BatchId
    planned_at: datetime


def kind_of(state: Any) -> Any:
    """Return the kind of a state or plan, such as "files"; None for a value that the user stored."""
    return state.get("kind") if isinstance(state, Mapping) else None


class RowReader(Protocol):
    """An object that reads the rows of a source: a `RowSource`, `TableCommits` or `Relations`."""

    def typed_errors(self) -> AbstractContextManager[Any]:
        """Translate Spark's errors into those of this package while rows are read."""


@dataclass(frozen=True)
class SourcePart(Generic[T_co]):
    """The part of one source that a batch takes.

    Attributes
    ----------
    data
        The rows or files that the job gets.
    plan, state
        The source's part of the plan, and the watermark to store at the commit; `state` is None if there is none.
    facts
        Details for the log.
    check
        Called before the commit; an error prevents the commit.
    has_more
        Whether a limit left rows or files for the next batch.
    """

    data: T_co
    plan: Stored
    state: Stored | None
    facts: str
    check: Callable[[], Any] | None = None
    has_more: bool = False


class Source(Protocol[T_co]):
    """A source of rows or files for a batch."""

    @property
    def kind(self) -> str:
        """The word for the kind of source in its plans and states, such as ``rows`` or ``files``."""

    def plan(self, reach: Reach) -> SourcePart[T_co]:
        """Find the new rows or files in the range that `reach` allows, and decide which of them the batch takes."""

    def resume(self, stored: Stored) -> SourcePart[T_co]:
        """Take exactly the rows or files of a frozen plan, which also holds the watermark to store at the commit."""

    def nothing(self) -> T_co:
        """Return the result for a job that takes nothing of the source, such as zero rows with the same columns."""


class Batch:
    """The plan of all sources of one run, which one write freezes and one write commits.

    Parameters
    ----------
    run
        The run, after its begin: an `UnsavedRun` if the job is paused or disabled.
    end
        Reports the end of the run, and calls the hooks around it.
    publication
        Commits the run, and publishes its output.
    s3_client
        The client for sources and targets; by default one is made when the first source on S3 is planned.
    committed_at
        A function that returns the time at which a version was committed; None if that is not stored any more.
    may_be_empty
        Whether a clean exit commits although the job read no source.
    writes_itself
        Whether the script writes rows without a sink, as after `freeze` or with Glue's own writers. If it does, no
        WARNING is logged about rows that no sink got. Nor does a run that saves nothing log it: it cannot lose rows.

    Attributes
    ----------
    saves
        Whether the run stores anything.
    contexts
        The plan of each source that is planned so far.
    counts
        The counts of the rows that are read.
    reads_files
        Whether files are among the sources.
    folders
        The folders that the batch reads: prefixes of files, and folders of tables.
    frames
        The frames that Spark read from new files, by context.
    left_out
        The columns that the batch did not read, by context: how many, and the names of the first few.
    """

    def __init__(
        self,
        run: Run | UnsavedRun,
        end: EndOfRun,
        publication: Publication,
        *,
        s3_client: S3Client | None = None,
        committed_at: Callable[[int], datetime | None] = lambda version: None,
        may_be_empty: bool = False,
        writes_itself: bool = False,
    ) -> None:
        self.run, self.end, self.publication = run, end, publication
        self.clock, self.s3_client, self.committed_at = end.clock, s3_client, committed_at
        self.saves, self.may_be_empty = not isinstance(run, UnsavedRun), may_be_empty
        self.contexts: dict[str, Mapping[str, Any]] = {}
        self.writes_itself = writes_itself or not self.saves
        self.counts = RowCounts()
        self.reads_files = False
        self.has_more = False
        self.folders: list[str] = []
        self.frames: dict[str, list[DataFrame]] = {}
        self.left_out: dict[str, dict[str, Any]] = {}
        self._states: dict[str, Mapping[str, Any]] = {}
        self._given: list[tuple[str, ReferenceType[Any]]] = []
        self._read: set[str] = set()
        self._written: set[str] = set()
        self._readers: list[RowReader] = []
        self._watched: list[tuple[Readings, bool]] = []
        self._outcome: str | None = None
        self._frozen: FrozenBatch | None = None

    # --- planning -------------------------------------------------------------------------------

    def take(self, context: str | None, source: Source[T]) -> T:
        """Return what is new in a source and add it to the plan; in a replay, return what the frozen plan has of it."""
        stored = self.settled(context)
        if stored == NOTHING:
            return source.nothing()
        if stored is None:
            if source.kind in KINDS:
                self.warn_if_new(context)
            taken = source.plan(reach_of(self.run, context))
        else:
            taken = source.resume(stored)
        self.has_more |= taken.has_more
        if context:
            self.add(context, taken.plan, taken.state)
            if taken.check is not None:
                self.end.before_commit(taken.check)
            logger.info(
                "event=planned job=%s context=%s kind=%s replay=%s %s",
                self.run.job_id, context, source.kind, self.run.replay, taken.facts,
            )  # fmt: skip
        return taken.data

    def client(self, location: Location) -> S3Client | None:
        """Return the S3 client for a location, and make it on the first call; None if the location needs none."""
        if self.s3_client is None and location.is_s3:
            from scripts.helpers.listing.s3 import make_client

            self.s3_client = make_client(CONNECTIONS)
        return self.s3_client

    def settled(self, context: str | None) -> Mapping[str, Any] | None:
        """Return the plan that an earlier attempt froze for a source; None if the source has to be planned now.

        Return `NOTHING` to skip a source that the replayed plan, or the past runs that are read again, did not read.
        """
        if not context:
            self.check_open("read")
            # A source without a context stores no plan or watermark. Let the run commit even if it has no other source.
            self.may_be_empty = True
            return None
        stored = self.inherited(context)
        run = self.run
        if stored is None and isinstance(run, UnsavedRun) and run.mode.is_range and run.until(context) is None:
            logger.warning("event=not_in_range job=%s context=%s: no run of the range read it", run.job_id, context)
            self.contexts[context] = stored = NOTHING
        return stored

    def inherited(self, context: str) -> Mapping[str, Any] | None:
        """Return a context's part of the inherited plan, which an earlier attempt froze; None if there is no plan yet.

        A context that is not in the inherited plan takes nothing now, and everything in the next run.

        Raises
        ------
        PlanConflictError
            The context is planned already, or comes after the plan is frozen.
        InvalidValueError
            The context has the reserved name of a count of the run, such as ``rows_collected``.
        """
        self.check_open("read")
        check_context(context)
        if context in METRICS:
            raise InvalidValueError(reason="reserved_name", name=context, reserved=METRICS)
        if context in self.contexts:
            raise PlanConflictError(
                self.run.job_id, f"context {context!r} is planned already. Give each source its own."
            )
        if self.run.plan is None:
            return None
        if not self.run.replay:
            raise PlanConflictError(
                self.run.job_id,
                f"context {context!r} comes after the plan is frozen. Plan all sources before writing.",
            )
        stored: Stored | None = self.run.planned(context)
        if stored is None:
            # Take nothing: an earlier attempt may have written this batch already, without the rows of this context.
            logger.warning("event=not_in_plan job=%s context=%s: the next run reads it", self.run.job_id, context)
            self.contexts[context] = NOTHING
            return NOTHING
        return stored

    def warn_if_new(self, context: str | None) -> None:
        """Log a WARNING if a job that has watermarks reads a new source: it may be an old source under a new name."""
        # Do not warn in a run that saves nothing: it reads everything, or a range of runs, on purpose.
        if context is None or not self.saves or context in self.run.watermarks:
            return
        # Skip values that were stored by hand: they have no kind. `Spilled` is a state that is stored in chunks.
        known = [
            name
            for name, state in sorted(self.run.watermarks.items())
            if isinstance(state, Spilled) or kind_of(state) in KINDS
        ]
        if not known:
            return
        logger.warning(
            "event=new_context job=%s context=%s: the context has no watermark and is read from its start. The job has "
            "%s. If the context was renamed, everything is read again: set its watermark first, or use its old name",
            self.run.job_id, context, ", ".join(map(printable, known)),
        )  # fmt: skip

    def add(self, context: str, planned: Stored, state: Stored | None) -> None:
        """Add a source to the plan, and the watermark to store for it at the commit, if there is one."""
        self.contexts[context] = planned
        if state is not None:
            # Keep the columns that the source's present state stores, even if this run has not looked at columns.
            self._states[context] = carried(state, self.run.state(context))

    @contextmanager
    def withdrawing(self, context: str | None) -> Iterator[None]:
        """Leave a source out of the batch if the block fails: a script that goes on must not commit rows it never got.

        The source stays in a plan that is frozen already. So the commit fails: it raises the block's error again.
        """
        try:
            yield
        except Exception as error:
            refusal = error
            if context in self.contexts and self.run.plan is None:
                del self.contexts[context]
                self._states.pop(context, None)
            elif context is not None:

                def refuse() -> None:
                    raise refusal

                self.end.before_commit(refuse)
            raise

    def following(self, context: str) -> Mapping[str, Any] | None:
        """Return the watermark that the commit will store for a source; None if there is none."""
        found: Mapping[str, Any] | None = self._states.get(context)
        return self.run.following(context) if found is None and self.run.plan is not None else found

    def amend(self, context: str, planned: Stored, state: Stored | None) -> None:
        """Replace one source's part of the plan, even if it is frozen, and the watermark to store at the commit."""
        self.add(context, planned, state)
        if self.run.plan is None:
            return
        # Copy the other parts of the frozen plan unchanged: a large part stays a reference to its stored chunks.
        following = dict(self.run.plan.next)
        if state is not None:
            following[context] = state
        self.run.amend({**self.run.plan.contexts, context: planned}, following)

    def watch(self, readings: Readings, context: str | None) -> None:
        """Register files that `setting_aside_unreadable` may set aside, if the run saves the state of their source."""
        self._watched.append((readings, bool(context) and self.saves))

    @contextmanager
    def setting_aside_unreadable(self) -> Iterator[None]:
        """If the block fails because of unreadable files, set these files aside.

        Raises
        ------
        UnreadableFilesError
            Unreadable files made the block fail. They were removed from the plan; the next run takes its other files.
        """
        try:
            yield
        except Exception as error:
            self._set_aside_unreadable(error)
            raise

    def _set_aside_unreadable(self, error: Exception) -> None:
        if self.run.closed:
            return
        if any(readings.is_spoiled for readings, _ in self._watched):
            # Freeze the plan, so that the next run continues without the files that were set aside.
            self.freeze()
            return
        for readings, is_saved in self._watched:
            found = self._found(readings, error) if is_saved else {}
            if not found:
                continue
            try:
                readings.set_aside(found)
            except UnreadableFilesError:
                pass  # A frame may have rows of these files. Raise the same error below, once `freeze` stored the plan.
            except WatermarkError as told:
                if readings.is_spoiled:
                    self.freeze()
                raise told from error
            readings.is_spoiled = True
            # Freeze the plan without the unreadable files, otherwise the next run would take them again, and fail.
            self.freeze()
            raise UnreadableFilesError(str(readings.location), found) from error
        if not isinstance(error, WatermarkError):
            # Import this here, because hardly any run needs it.
            from scripts.helpers.reading.search import source_error

            typed: WatermarkError | None = source_error(error)
            if self.reads_files:
                # Find a file's error inside the Spark error that an action of the script, such as `collect`, raised.
                # Import this here, because jobs that read only rows need no pyarrow.
                from scripts.helpers.reading.fetched_lines import unmarked

                typed = unmarked(error) or typed
            if typed is not None:
                raise typed from error

    def _found(self, readings: Readings, error: Exception) -> dict[str, str]:
        try:
            return readings.found(error)
        except Exception as failure:
            # Only log that the search for bad files failed: the operator has to see `error`, which ended the run.
            logger.warning("event=search_failed job=%s error=%s", self.run.job_id, type(failure).__name__)
            return {}

    def add_reader(self, reader: RowReader) -> None:
        """Register a reader, so that `typed_errors` also translates the errors of its source."""
        self._readers.append(reader)

    def typed_errors(self) -> ExitStack:
        """Translate Spark's errors into those of this package while planned rows and files are read."""
        stack = ExitStack()
        if self.reads_files:
            # Import this here, because jobs that read only rows need no pyarrow.
            from scripts.helpers.reading.small_files import typed_fetch_errors

            stack.enter_context(typed_fetch_errors())
        for reader in self._readers:
            stack.enter_context(reader.typed_errors())
        return stack

    # --- rows for sinks -------------------------------------------------------------------------

    def give(self, context: str | None, rows: Any = None, *, is_recognisable: bool = True) -> None:
        """Note that a script got `rows`. None: the script opens files, so the commit cannot warn of unwritten rows.

        `is_recognisable`: whether a write can be traced to this frame, by the object or by the files in Spark's plan.
        """
        self._read.add(context or "")
        if rows is None:
            self._written.add(context or "")
        elif context and is_recognisable and hasattr(rows, "sparkSession"):
            self.frames.setdefault(context, []).append(rows)
        elif context and is_recognisable:
            # Ignore rows that cannot have weak references, such as those of a source that the user wrote.
            with suppress(TypeError):
                self._given.append((context, ref(rows)))

    def wrote(self, df: Any, contexts: set[str]) -> None:
        """Note which contexts have rows in `df`, the frame that a sink gets; the others get a WARNING at the commit.

        Note the `contexts` that were found in Spark's plan, and those whose frame (see `give`) is `df`. If there are
        none, note all contexts of the batch. Always note contexts whose rows were read and cannot be traced to a frame.
        """
        found = contexts.union(context for context, given in self._given if given() is df)
        shown = {*self.frames, *self.counts.names.values(), *(context for context, _ in self._given)}
        shown |= {name for name, planned in self.contexts.items() if planned["kind"] == "files"} - self._read
        self._written |= self.contexts.keys() - (shown - found if found else set())

    # --- the run --------------------------------------------------------------------------------

    def freeze(self) -> FrozenBatch:
        """Store the plan of all sources planned so far, and return the batch. Sources planned later are refused."""
        if self._frozen is None:
            self._frozen = self._frozen_as(self.run.plan or self.run.freeze(*self._planned()))
        return self._frozen

    def _planned(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the plan of each context, and the watermarks to store at the commit."""
        if not self.contexts and not self.may_be_empty:
            raise PlanConflictError(self.run.job_id, "no source is planned. Call rows_since or new_files first.")
        # Carry over the watermarks of all other contexts, also of sources that this run did not read.
        return self.contexts, {**self.run.watermarks, **self._states}

    def _frozen_as(self, plan: Plan) -> FrozenBatch:
        """Return the batch of a plan. Callers keep it in `_frozen`, because the head has no plan after the commit."""
        return FrozenBatch(self.run.batch_id, (plan.later or plan.at).astimezone(timezone.utc))

    def check_open(self, verb: str) -> None:
        """Raise PlanConflictError if the run was committed or aborted."""
        if self.run.closed:
            how = "aborted" if self._outcome is None else "committed"
            raise run_closed(self.run.job_id, self.run.run_id, how, verb)

    def commit(self, metrics: dict[str, Any]) -> str:
        """Commit all planned sources in one write and add the counts to `metrics`. A second call only publishes."""
        if self._outcome is None:
            self.check_open("commit")
            for readings, _ in self._watched:
                if readings.is_spoiled:
                    raise UnreadableFilesError(str(readings.location), readings.reasons)
            try:
                with self.setting_aside_unreadable():
                    self._outcome = self._commit(metrics)
            except BaseException as error:
                self.end.tell(error)
                raise
            try:
                # Publish only after the commit, which decides which attempt readers see.
                self.publication.publish()
            finally:
                self.end.committed(metrics)
        else:
            self.publication.publish_again()
        return self._outcome

    def _commit(self, metrics: dict[str, Any]) -> str:
        read, made = files_read(self.contexts), None
        if isinstance(self.run, Run) and self.run.plan is None and not read.get("files_read"):
            # Store the plan only with the commit. It need not be frozen before: no sink got a row, and no file is read.
            made = self.run.unfrozen(*self._planned())
        else:
            self.freeze()
        plan = made or self.run.plan
        assert plan is not None
        unread = set(plan.contexts) - set(self.contexts)
        if unread:
            raise PlanConflictError(
                self.run.job_id,
                f"the frozen plan holds {', '.join(sorted(unread))}, which this run did not ask for; a commit would "
                "mark it as done. Run the code that made the plan, or discard the plan.",
            )
        # Check as late as possible: if a file changes after this check, its old content is committed unnoticed.
        self.end.check()
        metrics.update(counted := self.counts.metrics())
        metrics.update(read)
        if self.left_out:
            metrics["columns_left_out"] = self.left_out
        outcome = self.publication.commit(counts_to_save(metrics, plan.next), made)
        if made:
            self._frozen = self._frozen_as(made)
        for context in () if self.writes_itself else sorted(contexts_taken(self.contexts, counted) - self._written):
            logger.warning(
                "event=nothing_written job=%s run=%s context=%s: the context is committed, but no sink got rows. Call "
                "job.write in the with block, or job.freeze() before your own write. To read again, rewind the job",
                self.run.job_id, self.run.run_id, printable(context),
            )  # fmt: skip
        return outcome

    def abort(self) -> None:
        """Release the job without saving anything; a frozen plan stays for the next run. Safe to call again."""
        with self.end.always:
            self.run.abort()
            self.publication.drop()
            self.end.tell(run_closed(self.run.job_id, self.run.run_id, "aborted", "commit"))

    def leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object, metrics: dict[str, Any]
    ) -> None:
        """Commit on a clean exit if the job read any source; otherwise abort and keep the plan."""
        # Do nothing in a forked child, which leaves the same block with SystemExit: only the parent may end the run.
        if error is not None and self.end.is_forked_process:
            return
        with self.end.always:
            if isinstance(error, Exception):
                try:
                    self._set_aside_unreadable(error)
                except WatermarkError as found:
                    self.run.__exit__(type(found), found, None)
                    self.publication.drop()
                    self.end.tell(found)
                    raise
            if error is None and not self.run.closed and (self.contexts or self.may_be_empty):
                try:
                    self.commit(metrics)
                except BaseException as failure:
                    # Pass this error to the run instead of None, so that it ends its heartbeat and releases its lease.
                    self.run.__exit__(type(failure), failure, None)
                    raise
            self.run.__exit__(kind, error, trace)
            self.publication.drop()
            if error is not None:
                self.end.tell(error)
