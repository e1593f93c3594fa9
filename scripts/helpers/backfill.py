"""`Backfill`: read an old range once, with bounds of its own, while the live job goes on."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from scripts.helpers.coverage import (
    Interval,
    covered_by,
    fitting,
    merged,
    missing,
    record_id,
    region,
    span,
    to_store,
    types_of,
)
from scripts.helpers.dataframe_rows import as_source
from scripts.helpers.errors import BoundsError, PlanConflictError, UnknownJobError
from scripts.helpers.ids import BatchId, new_run_id
from scripts.helpers.job import IncrementalJob
from scripts.helpers.row_plan import Sink
from scripts.helpers.row_window import check_source, check_types
from scripts.helpers.slices import given, slice_id
from scripts.helpers.watermarks import Watermarks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)


class Backfill:
    """One slice ``[low, high)`` of a rows context, read by a job of its own.

    The live watermark is neither moved nor does the live job notice. The slice is a job in the same
    table, its name made of the live job's and of the bounds, so it has a lease, a frozen plan, a
    replay and batch ids as any job; slices run at the same time, anywhere, and finish in any order.
    What is done is recorded: `Watermarks.coverage` counts it, `Watermarks.gaps` no longer names it.

    A slice that is done is done once: run again, it takes no rows, and records again what a crash
    may have left unrecorded. Finish a slice under the bounds that it was begun with, and hand
    slices that do not overlap to parallel runs (`slices` makes such).

    Parameters
    ----------
    watermarks
        The table.
    job_id
        The live job. It has a watermark for the context, from a run or by `set_watermark`.
    run_id
        By default a new one. A scheduler's retry should pass the same one.
    transformation_ctx
        The live job's context.
    low, high
        Where to start, itself taken (None: the very beginning), and where to end, itself not taken:
        no further than the live watermark. Tuples for compound cursors. What `gaps` returns fits.
    sink
        ``append`` refuses bounds of which something is covered already, as those rows would be
        there twice; ``merge`` says that what is written replaces rows of the same key.
    name
        Another name makes another backfill of the same bounds, after a correction at the source for
        instance.
    **options
        Of `IncrementalJob`: `spark`, `lease`, `clock`.

    Attributes
    ----------
    job_id : str
        The slice's own job, for `history` or `reset`. Known once it has begun.
    is_done : bool
        An earlier run did the slice; there are no rows to take.

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
        sink: Sink = "append",
        name: str = "backfill",
        **options: Any,
    ) -> None:
        given(transformation_ctx, low, high)
        if sink not in get_args(Sink):
            raise BoundsError(transformation_ctx, f"sink={sink!r} is unknown. Use 'append' or 'merge'.")
        self.live_job_id, self.run_id, self.context = job_id, run_id or new_run_id(), transformation_ctx
        self.is_done = False
        self._watermarks, self._options = watermarks, options
        self._ends, self._sink, self._name = (low, high), sink, name
        self._is_asked = False
        self._job: IncrementalJob | None = None
        self._live: Mapping[str, Any] = {}
        self._bounds: Interval = ((), ())

    def __enter__(self) -> Backfill:
        """Check the bounds against the live job, and begin the slice.

        Raises
        ------
        UnknownJobError, UnknownContextError
            The live job has no watermark there.
        CursorError, BoundsError
            The bounds do not fit the cursor, reach past the live watermark, or are covered in part.
        RunInProgressError
            Another run works on this slice.
        """
        self._live, covered = self._watermarks.covered(self.live_job_id, self.context)
        low, high = self._ends
        self._bounds = given(self.context, fitting(self._live, low, "low"), fitting(self._live, high, "high"))
        if missing(self._bounds, [region(self._live)]):
            raise BoundsError(
                self.context,
                "they reach past the live watermark, and the live job will read those rows. End there at the latest.",
            )
        self.job_id = slice_id(self.live_job_id, self.context, self._live, self._bounds, self._name)
        if self._sink == "append" and missing(self._bounds, covered) != [self._bounds] and not self._is_begun():
            raise BoundsError(
                self.context,
                "a part of them is covered already, and sink='append' would keep those rows twice. Take what gaps() "
                "returns, or write with a sink that merges by key and say sink='merge'.",
            )
        self._job = IncrementalJob(self._watermarks, self.job_id, self.run_id, **self._options).__enter__()
        self.is_done = self.run.state(self.context) is not None
        logger.info(
            "event=backfill job=%s slice=%s context=%s sink=%s done=%s replay=%s",
            self.live_job_id, self.job_id, self.context, self._sink, self.is_done, self.run.replay,
        )  # fmt: skip
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Commit and record on a clean exit if rows were asked for; otherwise abort and keep the plan."""
        if error is None and self._is_asked:
            try:
                self.commit()
            except BaseException as failure:
                self.job.__exit__(type(failure), failure, None)
                raise
        self.job.__exit__(kind, error, trace)

    def rows(self, source: DataFrame | Any, cursor_column: str | Sequence[str], **options: Any) -> DataFrame:
        """Return the rows of the slice, lazily; none if it is done.

        Parameters
        ----------
        source, cursor_column
            As for `IncrementalJob.rows_since`, and the same columns as the live job's.
        **options
            `nulls` and `strings`, as there.

        Raises
        ------
        SourceChangedError, CursorError
            The column is another one than the live job's, or has another type.
        """
        job, names = self.job, [cursor_column] if isinstance(cursor_column, str) else list(cursor_column)
        check_source(self._live, names, self.context)
        source = as_source(source, self.context)
        check_types(source.columns(names, bool(options.get("strings"))), self._live.get("type"))
        low, high = span(self._bounds, len(names))
        taken = job.rows_since(
            source,
            cursor_column,
            transformation_ctx=self.context,
            initial_value=low,
            high=high,
            sink=self._sink,
            **options,
        )
        self._is_asked = True
        return taken

    def write(self, df: DataFrame, path: str, **options: Any) -> int:
        """Write the slice to ``path/batch_id=…/``, as `IncrementalJob.write` does; nothing if it is done."""
        return 0 if self.is_done else self.job.write(df, path, **options)

    def commit(self) -> str:
        """Commit the slice, then record it as covered. Called by a clean exit."""
        outcome = self.job.commit()
        self._watermarks.change_watermark(
            record_id(self.live_job_id, self.context, self._live),
            self._with_bounds,
            context=self.context,
            why=f"slice {self.job_id} is done",
            who=self.run_id,
        )
        return outcome

    @property
    def job(self) -> IncrementalJob:
        """The job of the slice; PlanConflictError outside the ``with`` statement."""
        if self._job is None:
            raise PlanConflictError(self.live_job_id, "the backfill has not begun. Use it in a `with` statement.")
        return self._job

    @property
    def run(self) -> Any:
        """The run of the slice."""
        return self.job.run

    @property
    def batch_id(self) -> BatchId:
        """The id to key a sink by, as that of `IncrementalJob`."""
        return self.job.batch_id

    def _is_begun(self) -> bool:
        """Tell whether this very slice is planned or done. Read after the coverage, which it precedes."""
        try:
            head = self._watermarks.latest(self.job_id)
        except UnknownJobError:
            return False
        return head.version > 0 or head.plan is not None

    def _with_bounds(self, recorded: Mapping[str, Any] | None) -> dict[str, Any]:
        names = {name: self._live.get(name) for name in ("cursor_column", "type")}
        covered = merged([*(covered_by(recorded) if recorded else []), self._bounds])
        return {"kind": "backfills", **names, "covered": to_store(covered, len(types_of(names)))}
