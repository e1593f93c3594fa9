"""`Batch`: one run from begin to commit, whatever its sources are and in whichever mode."""

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
    RunClosedError,
    TooLargeError,
    UnreadableFilesError,
    WatermarkError,
)
from scripts.helpers.files.states import FilesPlan
from scripts.helpers.protocol.head import Plan
from scripts.helpers.protocol.items import encode_metrics
from scripts.helpers.protocol.names import BatchId, check_context
from scripts.helpers.protocol.run import Run
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
# What a run counts, and which of its counts are saved with its commit.

METRICS = (
    "rows_collected", "rows_written", "bytes_written", "contexts", "files_read", "bytes_read", "files_set_aside",
    "columns_left_out",
)  # fmt: skip
"""What a job counts; no context may have one of these names."""


def files_read(contexts: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Add up the files of all planned contexts; empty without any context of files."""
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
    """Return the contexts that took files or rows. Rows that nothing has read are not counted, and may be some."""
    rows = {name: found["rows"] for name, found in counted.get("contexts", {}).items()}
    sources = {name: planned for name, planned in contexts.items() if planned["kind"] in ("rows", "files", "table")}
    return {name for name, planned in sources.items() if rows.get(name, planned.get("count")) != 0}


def add_written(metrics: dict[str, Any], rows: int, size: int | None) -> None:
    """Add one write to a job's counts; its size may be unknown."""
    metrics["rows_written"] = metrics.get("rows_written", 0) + rows
    if size is not None:
        metrics["bytes_written"] = metrics.get("bytes_written", 0) + size


def counts_to_save(counted: Mapping[str, Any], following: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts to save, all of them if they fit beside the watermarks that follow."""
    # Counts lie beside the values of a run's item. A watermark that was stored by hand under a count's name stays, so
    # the count goes. A metric of the user's own is kept here: the commit refuses it by its name.
    kept = {name: count for name, count in counted.items() if name not in METRICS or name not in following}
    try:
        encode_metrics(kept, following)
    except TooLargeError:
        # They grow with the number of sources, the others do not. A commit must not fail for what is only told.
        kept.pop("contexts", None)
        kept.pop("columns_left_out", None)
    return kept


# --- batch ----------------------------------------------------------------------------------------

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

KINDS = ("rows", "files", "partition", "table")
"""Kinds of states that are those of a source."""
CONNECTIONS = 32
"""Of the S3 client that lists, compares and checks. Workers would wait for a connection if it had fewer than them."""
Stored = Mapping[str, Any]
"""What a plan, or a watermark, keeps of one source."""
NOTHING: Stored = {"kind": "nothing"}
"""The plan of a context that the inherited plan does not know, or a range of runs."""


@dataclass(frozen=True)
class FrozenBatch:
    """A batch whose plan is stored: every attempt at it, in this run or in another one, reads the same rows and files.

    Attributes
    ----------
    id
        What a sink is keyed by.
    planned_at
        When the plan was frozen: the time for columns such as ``import_date``, in UTC.

        Every attempt has the same time, so a replay writes the same columns, also a day later; the time of now would
        put its rows into another partition. The time is always after that of the version before. If the clock is more
        than five minutes behind that version, a WARNING is logged, ``event=clock_behind``. A run that is paused or
        disabled has no plan that a retry would inherit, and so a time of its own. For another zone:
        ``batch.planned_at.astimezone(ZoneInfo("Europe/London"))``.
    """

    id: BatchId
    planned_at: datetime


def kind_of(state: Any) -> Any:
    """Return the kind of a state or plan; None of a value of the user's own."""
    return state.get("kind") if isinstance(state, Mapping) else None


class RowReader(Protocol):
    """What rows are read through: a `RowSource`, or `Relations`."""

    def typed_errors(self) -> AbstractContextManager[Any]:
        """Let what is raised while rows are read come out of Spark's errors as our own."""


@dataclass(frozen=True)
class SourcePart(Generic[T_co]):
    """What a batch takes of one source.

    Attributes
    ----------
    data
        What the job is given.
    plan, state
        What the plan keeps of it, and the watermark that follows; None for none.
    facts
        For the log.
    check
        Called before the commit; what it raises prevents that.
    has_more
        A limit left rows for the next batch.
    """

    data: T_co
    plan: Stored
    state: Stored | None
    facts: str
    check: Callable[[], Any] | None = None
    has_more: bool = False


class Source(Protocol[T_co]):
    """What a batch takes rows or files of."""

    @property
    def kind(self) -> str:
        """The kind of its plans and states."""

    def plan(self, reach: Reach) -> SourcePart[T_co]:
        """Look for what is new, as far as the run reaches, and fix what is taken."""

    def resume(self, stored: Stored) -> SourcePart[T_co]:
        """Take what a frozen plan says, to the letter. The watermark that follows was frozen with it."""

    def nothing(self) -> T_co:
        """Return what the job is given where nothing is taken."""


class Batch:
    """The plan of all sources of one run, frozen in one write, and committed in one.

    Parameters
    ----------
    run
        The run, begun in its mode.
    end
        The end of that run.
    publication
        The output of that run.
    s3_client
        For sources and targets; by default one is made when the first source on S3 is planned.
    committed_at
        Returns when a version of the job was committed; None if nothing tells it any more.
    may_be_empty
        Whether a clean exit commits although no source was asked for.
    writes_itself
        Whether no WARNING is logged of rows that no sink got: `freeze` says that the script writes them itself, scripts
        with Glue's names do, and a run that saves nothing loses none.

    Attributes
    ----------
    saves
        Whether anything of the run is stored.
    contexts
        The plan of each source, as far as they are planned.
    counts
        Of the rows that are read.
    reads_files
        Whether files are among the sources.
    folders
        Prefixes of sources of files, and folders of tables that are read.
    frames
        What was read with Spark of new files, by context.
    left_out
        Columns that are not in what was read, by context: how many, and the names of the first of them.
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
        self._written: set[str] = set()
        self._readers: list[RowReader] = []
        self._watched: list[tuple[Readings, bool]] = []
        self._outcome: str | None = None
        self._frozen: FrozenBatch | None = None

    # --- planning -------------------------------------------------------------------------------

    def take(self, context: str | None, source: Source[T]) -> T:
        """Return what is new in a source, or what the frozen plan has of it, and put it into the plan."""
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
        """Return what lists and compares objects, made where it is not there yet; None if it is not needed."""
        if self.s3_client is None and location.is_s3:
            from scripts.helpers.listing.s3 import make_client

            self.s3_client = make_client(CONNECTIONS)
        return self.s3_client

    def settled(self, context: str | None) -> Mapping[str, Any] | None:
        """Return what is settled already of a source of rows or files: its plan, or None where it is to be planned.

        `NOTHING` is for a context that the inherited plan does not know, or a range of runs.
        """
        if not context:
            self.check_open("read")
            # A source that is not tracked may be all that a batch has, and the run is committed all the same.
            self.may_be_empty = True
            return None
        stored = self.inherited(context)
        run = self.run
        if stored is None and isinstance(run, UnsavedRun) and run.mode.is_range and run.until(context) is None:
            logger.warning("event=not_in_range job=%s context=%s: its runs took nothing of it", run.job_id, context)
            self.contexts[context] = stored = NOTHING
        return stored

    def inherited(self, context: str) -> Mapping[str, Any] | None:
        """Return a context's part of the inherited plan; None where there is no plan yet.

        A context that the inherited plan does not know takes nothing now and everything next time.

        Raises
        ------
        PlanConflictError
            The context is planned already, or comes after the plan is frozen.
        InvalidValueError
            It has the name of a count.
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
            # The batch may be written already under its id. Rows that join it now would be in no earlier attempt.
            logger.warning("event=not_in_plan job=%s context=%s: left for the next run", self.run.job_id, context)
            self.contexts[context] = NOTHING
            return NOTHING
        return stored

    def warn_if_new(self, context: str | None) -> None:
        """Log that a job with other sources reads one for the first time: perhaps another name for one of those."""
        # A run that saves nothing reads everything as it was told to, or what a range has.
        if context is None or not self.saves or context in self.run.watermarks:
            return
        # Other values were stored by hand. A state that is too large for its item is a reference.
        known = [
            name
            for name, state in sorted(self.run.watermarks.items())
            if isinstance(state, Spilled) or kind_of(state) in KINDS
        ]
        if not known:
            return
        logger.warning(
            "event=new_context job=%s context=%s: it has no watermark, so it is read from its start. The job has %s. "
            "If it was renamed, rows and files come again: set its watermark first, or give it its old name",
            self.run.job_id, context, ", ".join(map(printable, known)),
        )  # fmt: skip

    def add(self, context: str, planned: Stored, state: Stored | None) -> None:
        """Put a source into the plan, with the watermark that follows it; None for none."""
        self.contexts[context] = planned
        if state is not None:
            # The columns of a source that this run does not look at are still what they were.
            self._states[context] = carried(state, self.run.state(context))

    def following(self, context: str) -> Mapping[str, Any] | None:
        """Return the watermark that follows the plan of a source, frozen or not; None for none."""
        found: Mapping[str, Any] | None = self._states.get(context)
        return self.run.following(context) if found is None and self.run.plan is not None else found

    def amend(self, context: str, planned: Stored, state: Stored | None) -> None:
        """Replace the part of the plan that is of one source, frozen or not, and the watermark that follows it."""
        self.add(context, planned, state)
        if self.run.plan is None:
            return
        # All else stays as it is frozen, large parts as references.
        following = dict(self.run.plan.next)
        if state is not None:
            following[context] = state
        self.run.amend({**self.run.plan.contexts, context: planned}, following)

    def watch(self, readings: Readings, context: str | None) -> None:
        """Set aside files of a source that make the run fail, if something is saved of it; see `looked_into`."""
        self._watched.append((readings, bool(context) and self.saves))

    @contextmanager
    def looked_into(self) -> Iterator[None]:
        """Find out whether files that cannot be read made the work inside fail, and set them aside.

        Raises
        ------
        UnreadableFilesError
            Some did. They are not in the plan any more, frozen or not: the next run takes the rest.
        """
        try:
            yield
        except Exception as error:
            self._look_into(error)
            raise

    def _look_into(self, error: Exception) -> None:
        if self.run.closed:
            return
        if any(readings.is_spoiled for readings, _ in self._watched):
            # So that the next run continues without the files that were set aside.
            self.freeze()
            return
        for readings, is_saved in self._watched:
            found = self._found(readings, error) if is_saved else {}
            if not found:
                continue
            try:
                readings.set_aside(found)
            except UnreadableFilesError:
                pass  # As is expected of files that were read already.
            except WatermarkError as told:
                if readings.is_spoiled:
                    self.freeze()
                raise told from error
            readings.is_spoiled = True
            # So that the next run knows: it would take the files again, and fail.
            self.freeze()
            raise UnreadableFilesError(str(readings.location), found) from error
        if not isinstance(error, WatermarkError):
            # Here, as hardly any run needs it.
            from scripts.helpers.reading.search import source_error

            typed: WatermarkError | None = source_error(error)
            if self.reads_files:
                # An action of the job's own, such as `collect`, raises it inside an error of Spark. Jobs of rows do
                # without pyarrow.
                from scripts.helpers.reading.fetched_lines import unmarked

                typed = unmarked(error) or typed
            if typed is not None:
                raise typed from error

    def _found(self, readings: Readings, error: Exception) -> dict[str, str]:
        try:
            return readings.found(error)
        except Exception as failure:
            # What ended the run is what a person has to see. That the search failed as well follows from it.
            logger.warning("event=search_failed job=%s error=%s", self.run.job_id, type(failure).__name__)
            return {}

    def read_through(self, reader: RowReader) -> None:
        """Note what knows the errors of a source, for `typed_errors`."""
        self._readers.append(reader)

    def typed_errors(self) -> ExitStack:
        """Let what is raised while planned rows and files are read come out of Spark's errors as our own."""
        stack = ExitStack()
        if self.reads_files:
            # Here, as jobs of rows do without pyarrow.
            from scripts.helpers.reading.small_files import typed_fetch_errors

            stack.enter_context(typed_fetch_errors())
        for reader in self._readers:
            stack.enter_context(reader.typed_errors())
        return stack

    # --- what sinks get -------------------------------------------------------------------------

    def give(self, context: str | None, rows: Any = None, *, is_looked_for: bool = True) -> None:
        """Note a frame that the job was given of a source; None where the job reads the source in another way.

        Parameters
        ----------
        is_looked_for
            Whether `wrote` finds the frame itself, or in Spark's plan the files that it reads.
        """
        if rows is None:
            self._written.add(context or "")
        elif context and is_looked_for and hasattr(rows, "sparkSession"):
            self.frames.setdefault(context, []).append(rows)
        elif context and is_looked_for:
            # What a source of the user's own returns may be of a type that has no weak references.
            with suppress(TypeError):
                self._given.append((context, ref(rows)))

    def wrote(self, df: Any, contexts: set[str]) -> None:
        """Note the contexts of which a sink gets rows: those in Spark's plan, or that of the very frame that was given.

        Any other frame may have the rows of every context. Every frame may have those of contexts that no plan shows.
        """
        found = contexts.union(context for context, given in self._given if given() is df)
        shown = {*self.frames, *self.counts.names.values(), *(context for context, _ in self._given)}
        self._written |= self.contexts.keys() - (shown - found if found else set())

    # --- the run --------------------------------------------------------------------------------

    def freeze(self) -> FrozenBatch:
        """Store the plan of all sources planned so far, and return the batch. Later sources are refused."""
        if self._frozen is None:
            self._frozen = self._frozen_as(self.run.plan or self.run.freeze(*self._planned()))
        return self._frozen

    def _planned(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return what is planned, and the watermarks that follow."""
        if not self.contexts and not self.may_be_empty:
            raise PlanConflictError(self.run.job_id, "no source is planned. Call rows_since or new_files first.")
        # What other contexts remember goes on, also that of sources which this run did not ask for.
        return self.contexts, {**self.run.watermarks, **self._states}

    def _frozen_as(self, plan: Plan) -> FrozenBatch:
        """Return what is kept here, as the head has no plan any more once it is committed."""
        return FrozenBatch(self.run.batch_id, (plan.later or plan.at).astimezone(timezone.utc))

    def check_open(self, verb: str) -> None:
        """Raise RunClosedError if the run was committed or aborted."""
        if self.run.closed:
            how = "aborted" if self._outcome is None else "committed"
            raise RunClosedError(self.run.job_id, self.run.run_id, how, verb)

    def commit(self, metrics: dict[str, Any]) -> str:
        """Commit all planned sources in one write; again is no change. What was read is added to `metrics`."""
        if self._outcome is None:
            self.check_open("commit")
            for readings, _ in self._watched:
                if readings.is_spoiled:
                    raise UnreadableFilesError(str(readings.location), readings.reasons)
            try:
                with self.looked_into():
                    self._outcome = self._commit(metrics)
            except BaseException as error:
                self.end.tell(error)
                raise
            try:
                # After the commit, and only then: before it nobody knows which attempt readers are to see.
                self.publication.publish()
            finally:
                self.end.committed(metrics)
        return self._outcome

    def _commit(self, metrics: dict[str, Any]) -> str:
        read, made = files_read(self.contexts), None
        if isinstance(self.run, Run) and self.run.plan is None and not read.get("files_read"):
            # No sink was given a row, and no file is looked at again: the commit stores the plan with its own change.
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
        # As late as can be: a file that changes between this look and the commit is committed in its old form.
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
                "event=nothing_written job=%s run=%s context=%s: it is committed, and no sink got its rows. Call "
                "job.write in the with block, or job.freeze() if the script writes them. To read again, rewind the job",
                self.run.job_id, self.run.run_id, printable(context),
            )  # fmt: skip
        return outcome

    def abort(self) -> None:
        """Let go of the job without saving anything; a frozen plan stays for the next run. Safe to call again."""
        with self.end.always:
            self.run.abort()
            self.publication.drop()
            self.end.tell(RunClosedError(self.run.job_id, self.run.run_id, "aborted", "commit"))

    def leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object, metrics: dict[str, Any]
    ) -> None:
        """Commit on a clean exit if any source was asked for; otherwise abort and keep the plan."""
        # A child that a job forks leaves the same block with its SystemExit. The run is the parent's to end.
        if error is not None and self.end.is_elsewhere:
            return
        with self.end.always:
            if isinstance(error, Exception):
                try:
                    self._look_into(error)
                except WatermarkError as found:
                    self.run.__exit__(type(found), found, None)
                    self.publication.drop()
                    self.end.tell(found)
                    raise
            if error is None and not self.run.closed and (self.contexts or self.may_be_empty):
                try:
                    self.commit(metrics)
                except BaseException as failure:
                    # The run is left with this error, not with None: the heartbeat ends and the lease is released.
                    self.run.__exit__(type(failure), failure, None)
                    raise
            self.run.__exit__(kind, error, trace)
            self.publication.drop()
            if error is not None:
                self.end.tell(error)
