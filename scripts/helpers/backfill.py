"""`Backfill`: read an old range once, between given bounds, while the live job keeps running."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from shlex import quote
from typing import TYPE_CHECKING, Any, get_args

from scripts.helpers._lazy import DataFrame
from scripts.helpers.batch.batch import FrozenBatch
from scripts.helpers.batch.rows import as_rows
from scripts.helpers.display.options import check_choice
from scripts.helpers.errors import (
    BoundsError,
    InvalidValueError,
    NothingThereError,
    PlanConflictError,
    UnknownJobError,
    UnpublishedError,
)
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.names import new_run_id
from scripts.helpers.rows.coverage import BackfillRecord, backfill_bounds, backfill_record_id, slice_id
from scripts.helpers.rows.cursor_ranges import CursorRange, overlap, uncovered
from scripts.helpers.rows.identity import check_same_source
from scripts.helpers.rows.options import DEFAULT_DELAY, WriteDisposition
from scripts.helpers.rows.progress import SliceSource
from scripts.helpers.rows.states import RowsState, check_same_columns, check_types
from scripts.helpers.rows.window import Nulls
from scripts.helpers.watermarks import Watermarks, utc_now

if TYPE_CHECKING:
    from scripts.helpers.sinks.sink import Sink as Target

logger = logging.getLogger(__name__)

OPTIONS = ("spark", "lease", "clock", "reporters")


class Backfill:
    """One slice: the rows of a source between two cursor values, ``[low, high)``, read by a job of its own.

    A slice does not move the watermark of the live job (the job that reads new rows), or affect its runs. The slice is
    a job in the same table, named after the live job and the bounds, so it has a lease, a frozen plan, a replay and
    batch ids like any job. Slices may run at the same time on any machine, and finish in any order. A slice is recorded
    as begun before it writes anything, and as done when it commits: then `Watermarks.coverage` includes its range and
    `Watermarks.gaps` no longer returns it.

    If a slice that is done is run again, it takes no rows, and only records what a crash may have left unrecorded. To
    finish a slice that has begun, run it with the same bounds and name: `gaps` returns the bounds as a separate gap,
    and `Watermarks.unfinished` returns bounds, name and job. Parallel runs must take slices that do not overlap, such
    as those that `slices` returns.

    If you set the live watermark back, by `set_watermark` or `rewind`, the live job reads all rows after it, even
    those that slices have read. If you reset the live job, what slices have read no longer counts as covered, and
    a slice that is running raises a PlanConflictError at its next write or commit.

    Parameters
    ----------
    watermarks
        The table with the live job.
    job_id
        The live job. It must have a watermark for the context, from a run or from `set_watermark`.
    run_id
        By default a new one. A scheduler's retry should pass the same one.
    transformation_ctx
        The live job's context.
    low, high
        The slice starts at `low` (None: at the very beginning) and ends before `high`, which may not exceed the
        live watermark nor, for times, the source's clock less `delay`. If the live job reads in descending order,
        `high` may be None: the very end. For compound cursors, pass tuples. `gaps` returns such pairs.
    delay
        How long after its timestamp a row may become visible; see `options.RowOptions`.
    write_disposition
        ``append`` refuses bounds that are partly covered, or that another slice has begun, because the target
        would have those rows twice. ``merge`` declares that written rows replace rows of the same key.
    name
        A new name makes a new backfill of the same bounds, for example after a correction at the source.
    **options
        Options of `IncrementalJob`: `spark`, `lease`, `clock`, `reporters`. Others raise an InvalidValueError,
        because a slice always saves, whatever the mode of the live job.

    Attributes
    ----------
    job_id : str
        The name of the slice's own job, to pass to `history` or `reset`. Set once the slice has begun.
    live_job_id, run_id, transformation_ctx : str
        As passed, or a new run id.
    is_done : bool
        Whether an earlier run finished the slice, so that there are no rows to take.

    Examples
    --------
    ::

        for low, high in watermarks.gaps("landing-to-raw", "repairs"):
            with Backfill(watermarks, "landing-to-raw", transformation_ctx="repairs", low=low, high=high) as backfill:
                backfill.write(backfill.rows(repairs, "last_modified"), "s3://raw/repairs/")
    """

    def __init__(
        self,
        watermarks: Watermarks,
        job_id: str,
        run_id: str | None = None,
        *,
        transformation_ctx: str = "rows",
        low: Any,
        high: Any,
        delay: timedelta = DEFAULT_DELAY,
        write_disposition: WriteDisposition = "append",
        name: str = "backfill",
        **options: Any,
    ) -> None:
        backfill_bounds(transformation_ctx, low, high, endless=True)
        check_choice("write_disposition", write_disposition, get_args(WriteDisposition))
        if unfit := sorted(options.keys() - set(OPTIONS)):
            raise InvalidValueError(f"A backfill has no option {', '.join(unfit)}. It takes {', '.join(OPTIONS)}.")
        self.live_job_id, self.run_id, self.transformation_ctx = job_id, run_id or new_run_id(), transformation_ctx
        self.is_done = False
        self._watermarks, self._options = watermarks, options
        self._clock: Callable[[], datetime] = options.get("clock", utc_now)
        self._ends, self._delay, self._disposition, self._name = (low, high), delay, write_disposition, name
        self._is_asked = False
        self._job: IncrementalJob | None = None
        self._live = RowsState(())
        self._bounds: CursorRange = ((), ())

    def __repr__(self) -> str:
        if self._job is None:
            state = "not begun"
        elif self.is_done:
            state = "done"
        else:
            state = f"slice {self.job_id!r}"
        return f"<Backfill of {self.live_job_id!r}, context {self.transformation_ctx!r}: {state}, run {self.run_id}>"

    def __enter__(self) -> Backfill:
        """Check the bounds against the live job, and begin the slice.

        Raises
        ------
        UnknownJobError, NothingThereError
            The live job does not exist, or has no watermark in the context.
        CursorError, BoundsError
            The bounds do not fit the cursor, reach past the live watermark, or overlap another slice or covered rows.
        RunInProgressError
            Another run works on this slice.
        """
        self._live = live = self._watermarks.progress.state(self.live_job_id, self.transformation_ctx)
        low, high = (live.end_that_fits(end, what) for end, what in zip(self._ends, ("low", "high"), strict=True))
        self._bounds = backfill_bounds(self.transformation_ctx, low, high, endless=live.descending)
        self.job_id = slice_id(self.live_job_id, self.transformation_ctx, live, self._bounds, self._name)
        has_read = self._has_read(self._head(self.job_id))
        # Refuse bounds past the watermark of the live job (which this slice fills): its next run would read them again.
        if uncovered(self._bounds, [live.passed]):
            begun = f"It was set back: delete what the slice wrote, {self._command_to_abandon(self.job_id)}"
            remedy = begun if has_read else "End there at the latest."
            raise BoundsError(
                self.transformation_ctx,
                f"they reach past the live watermark, and the live job will read those rows. {remedy}",
            )
        # Refuse overlapping slices only before this slice has a plan: a slice with a plan must be able to finish.
        if not has_read:
            self._others(self._watermarks.progress.backfills(self.live_job_id, self.transformation_ctx, live))
        self._job = IncrementalJob(self._watermarks, self.job_id, self.run_id, **self._options).__enter__()
        self.is_done = self.run.state(self.transformation_ctx) is not None
        logger.info(
            "event=backfill job=%s slice=%s context=%s write_disposition=%s done=%s replay=%s",
            self.live_job_id, self.job_id, self.transformation_ctx, self._disposition, self.is_done, self.run.replay,
        )  # fmt: skip
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Commit and record the slice if `rows` was called. On an error, or without that call, abort, keep the plan."""
        if error is None and self._is_asked:
            try:
                self.commit()
            except BaseException as failure:
                self.job.__exit__(type(failure), failure, None)
                raise
        self.job.__exit__(kind, error, trace)
        if error is None and not self._is_asked:
            self._check_published()

    def rows(
        self,
        source: DataFrame | Any,
        cursor_column: str | Sequence[str],
        *,
        nulls: Nulls = "raise",
        strings: bool = False,
    ) -> DataFrame:
        """Return the slice's rows, lazily in Spark; no rows if the slice is done.

        Parameters
        ----------
        source, cursor_column, nulls, strings
            As for `IncrementalJob.rows_since`. The cursor columns must be those of the live job.

        Raises
        ------
        SourceError, CursorError
            The table, its `where` or the cursor column is not the live job's, or the column's type has changed.
        BoundsError
            New rows may still appear in the slice, or another slice has begun to read some of its rows.
        PlanConflictError
            The live job was reset or set back in the meantime.
        """
        job, names = self.job, [cursor_column] if isinstance(cursor_column, str) else list(cursor_column)
        check_same_columns(self._live.names, names, self.transformation_ctx)
        low, high = self._bounds
        source = as_rows(source, self.transformation_ctx)
        check_types(source.columns(names, strings), self._live.columns)
        if self.is_done:
            high, nulls = None, "raise"
        else:
            check_same_source(self._live.source, source.identity(), self.transformation_ctx, self.live_job_id)
            # Record the slice before it reads rows, so that no other slice reads the same rows, even if this run dies.
            self._check_live()
            self._change_record(self._begun)
        taken: DataFrame = job.rows_since(
            SliceSource(source, self.transformation_ctx, high, self._delay, self._clock, self.is_done),
            cursor_column,
            transformation_ctx=self.transformation_ctx,
            start_from=low or None,
            high=high,
            settled=True,
            write_disposition=self._disposition,
            delay=self._delay,
            nulls=nulls,
            strings=strings,
        )
        self._is_asked = True
        return taken

    def write(self, df: DataFrame | Any, path: str | Target, **options: Any) -> int:
        """Write the slice to a target, as `IncrementalJob.write` does; write no row if it is done.

        If an earlier run of the slice died after its commit, this publishes what that run staged for the target.
        """
        if not self.is_done:
            self._check_live()
        elif not self.run.unpublished:
            return 0
        # If the slice is done, this publishes its staged rows, as `doctor --publish` cannot log in to a database.
        return self.job.write(df, path, **options)

    def commit(self) -> str:
        """Commit the slice, then record it as covered. A clean exit calls this.

        Raises
        ------
        UnpublishedError
            The slice is done, but the target does not have all of its rows.
        """
        if not self.is_done:
            self._check_live()
        # Commit, then record. In the other order, a crash in between would leave a range recorded as covered that was
        # never loaded. In this order, it leaves the slice recorded as begun, and its next run records it as done.
        outcome = self.job.commit()
        self._check_published()
        self._change_record(self._record_finished)
        return outcome

    @property
    def job(self) -> IncrementalJob:
        """The job that reads this backfill's rows. PlanConflictError if no ``with`` statement has begun it yet."""
        if self._job is None:
            raise PlanConflictError(self.live_job_id, "the backfill has not begun. Use it in a `with` statement.")
        return self._job

    @property
    def run(self) -> Any:
        """The run that reads this slice of the backfill."""
        return self.job.run

    def freeze(self) -> FrozenBatch:
        """Store the plan of the slice, and return the batch; see `IncrementalJob.freeze`."""
        if not self.is_done:
            self._check_live()
        return self.job.freeze()

    # --- internals of a slice -------------------------------------------------------------------

    def _head(self, job_id: str) -> Head:
        """Return the head of the job that reads a slice of the backfill; an empty head if that job never began."""
        try:
            return self._watermarks.latest(job_id)
        except UnknownJobError:
            return Head.first(job_id)

    def _check_published(self) -> None:
        """Raise UnpublishedError if a target lacks rows of the slice, because no later run would publish them."""
        for output in self.run.unpublished:
            remedy = "Write to that target again, in a run with the bounds and the name of this slice."
            raise UnpublishedError(self.job_id, output.version, output.target, remedy)

    def _has_read(self, head: Head) -> bool:
        """Return whether the slice whose job has this head is planned or done: other slices must not read its rows."""
        return head.plan is not None or self.transformation_ctx in head.watermarks

    def _check_live(self) -> None:
        """Raise PlanConflictError if the backfilled job was reset or set back: its runs then read the slice's rows."""
        now = None
        with suppress(NothingThereError):
            now = self._watermarks.progress.state(self.live_job_id, self.transformation_ctx)
        # A reset gives the live job another `origin` (period since the last reset), even if its watermark is the same.
        is_other = now is None or now.origin != self._live.origin
        # With "append", rows arrive twice if the live job (of new rows) has read or will read some rows of the slice.
        if now is None or is_other or (self._disposition == "append" and not now.is_left_to_slices(self._bounds)):
            # After a reset (`is_other`), omit the advice to abandon the slice: the slice no longer blocks new slices.
            abandon = "." if is_other else f", {self._command_to_abandon(self.job_id)}"
            raise PlanConflictError(
                self.job_id,
                f"job {self.live_job_id!r} was reset or set back since the slice began, so it reads the rows. Delete "
                f"what this batch has written{abandon} Then take what gaps() returns.",
            )

    def _command_to_abandon(self, job_id: str) -> str:
        command = f"watermarks backfill {quote(self.live_job_id)} --context {quote(self.transformation_ctx)}"
        return f"and abandon the slice: {command} --abandon {quote(job_id)} --why TEXT."

    def _change_record(self, change: Callable[[BackfillRecord], BackfillRecord]) -> None:
        def changed(stored: Any) -> Mapping[str, Any]:
            before = BackfillRecord.read(stored)
            after = change(before)
            return stored if stored and after == before else after.to_store(self._live)

        verb = "done" if change == self._record_finished else "begun"
        self._watermarks.decisions.change_watermark(
            backfill_record_id(self.live_job_id, self.transformation_ctx, self._live),
            changed,
            context=self.transformation_ctx,
            why=f"slice {self.job_id} is {verb}",
            who=self.run_id,
        )

    def _begun(self, record: BackfillRecord) -> BackfillRecord:
        """Return the record with this slice added, and overlapping slices removed that ended before reading a row."""
        gone = [] if self.run.replay else self._others(record)
        if record.has_begun(self._name, self._bounds):
            return record
        return record.drop(gone).begin(self._name, self._bounds)

    def _record_finished(self, record: BackfillRecord) -> BackfillRecord:
        if record.is_covered(self._bounds) and not record.has_begun(self._name, self._bounds):
            return record
        return record.finish(self._name, self._bounds)

    def _others(self, record: BackfillRecord) -> list[tuple[str, CursorRange]]:
        """With `append`, return overlapping slices that read nothing; BoundsError if rows would be written twice."""
        if self._disposition != "append":
            return []
        if uncovered(self._bounds, [*self._live.ranges, *record.covered]) != [self._bounds]:
            raise BoundsError(
                self.transformation_ctx,
                "a part of them is covered already, and write_disposition='append' would keep those rows twice. Take "
                "what gaps() returns, or write with a sink that merges by key and say write_disposition='merge'.",
            )
        others = [
            (name, bounds)
            for name, bounds in record.slices()
            if overlap(bounds, self._bounds) and (name, bounds) != (self._name, self._bounds)
        ]
        for name, bounds in others:
            job_id = slice_id(self.live_job_id, self.transformation_ctx, self._live, bounds, name)
            head = self._head(job_id)
            # Refuse even if the other slice's lease is over: its run may be alive and not know that it lost the lease.
            if head.claim is not None or self._has_read(head):
                raise BoundsError(
                    self.transformation_ctx,
                    f"slice {job_id} (name={name!r}) has begun with a part of them, and write_disposition='append' "
                    "would keep those rows twice. Finish it with its own bounds, which unfinished() returns and gaps() "
                    f"keeps apart; or delete what it wrote, {self._command_to_abandon(job_id)}",
                )
        return others
