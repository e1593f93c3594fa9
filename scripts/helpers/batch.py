"""`Batch`: one run of a job from begin to commit, whatever its sources are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from scripts.helpers.errors import PlanConflictError, ReservedNameError
from scripts.helpers.ids import BatchId, check_context, new_run_id
from scripts.helpers.job_metrics import METRICS, files_read, fitting
from scripts.helpers.row_counts import RowCounts, bytes_below
from scripts.helpers.run import Run
from scripts.helpers.spark_writing import timestamps_with_statistics
from scripts.helpers.watermarks import Watermarks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from typing_extensions import Self

    from scripts.helpers.row_sources import RowSource

logger = logging.getLogger(__name__)

BATCH_COLUMN = "batch_id"
NOTHING: dict[str, Any] = {"kind": "nothing"}
"""The plan of a context that the inherited plan does not know."""


class Batch:
    """What all sources of a job share: the run, the plan, the write under a batch id, and the commit."""

    def __init__(self, watermarks: Watermarks, job_id: str, run_id: str | None, lease: timedelta) -> None:
        self.job_id, self.run_id = job_id, run_id or new_run_id()
        self.metrics: dict[str, Any] = {}
        self._watermarks, self._lease = watermarks, lease
        self._run: Run | None = None
        self._contexts: dict[str, Any] = {}
        self._states: dict[str, Any] = {}
        self._sources: list[RowSource] = []
        self._counts = RowCounts()
        self._before_commit: list[Callable[[], Any]] = []
        self._after_commit: list[Callable[[], Any]] = []

    def __enter__(self) -> Self:
        """Begin the run and keep its lease. RunInProgressError, before anything is read, if another one has it."""
        self._run = self._watermarks.begin(self.job_id, self.run_id, lease=self._lease)
        self._run.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Commit on a clean exit if any source was planned; otherwise abort and keep the plan."""
        if error is None and self._contexts:
            try:
                self.commit()
            except BaseException as failure:
                self.run.__exit__(type(failure), failure, None)
                raise
        self.run.__exit__(kind, error, trace)

    # --- the batch ------------------------------------------------------------------------------

    @property
    def run(self) -> Run:
        """The run of this job; PlanConflictError outside the ``with`` statement."""
        if self._run is None:
            raise PlanConflictError(self.job_id, "the run has not begun. Use the job in a `with` statement.")
        return self._run

    @property
    def batch_id(self) -> BatchId:
        """The id to key a sink by. Freezes the plan: a batch has an id once its content is fixed."""
        self.freeze()
        return self.run.batch_id

    def freeze(self) -> None:
        """Store the plan of all sources planned so far. Later sources are refused; again is no change."""
        if self.run.plan is None:
            if not self._contexts:
                raise PlanConflictError(self.job_id, "no source is planned. Call rows_since or new_files first.")
            self.run.freeze(self._contexts, {**self.run.watermarks, **self._states})

    def write(self, df: DataFrame, path: str, *, format: str = "parquet", **options: Any) -> int:
        """Write one batch to ``path/batch_id=…/`` and overwrite only that; return the rows written.

        A replay leaves the same rows there. `path` ends up partitioned by ``batch_id``. Rows are
        counted while they are written (Spark's Observation), without a second pass. Parquet
        timestamps are written as TIMESTAMP_MICROS, which row groups keep statistics of.

        Raises
        ------
        FencedError
            Another run took over; nothing is written.
        """
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812

        if BATCH_COLUMN in (name.lower() for name in df.columns):
            raise ReservedNameError(BATCH_COLUMN, [BATCH_COLUMN])
        folder = f"{path.rstrip('/')}/{BATCH_COLUMN}={self.batch_id}"
        self.run.check()
        written = Observation()
        counted = df.observe(written, F.count(F.lit(1)).alias("rows"))
        with self._typed_errors(), timestamps_with_statistics(df, format):
            counted.write.format(format).options(**options).mode("overwrite").save(folder)
        rows = int(written.get["rows"])
        for metric, number in (("rows_written", rows), ("bytes_written", bytes_below(df.sparkSession, folder))):
            if number is not None:
                self.metrics[metric] = self.metrics.get(metric, 0) + number
        return rows

    def commit(self) -> str:
        """Commit all planned sources in one write; see `Run.commit`. Called by a clean exit."""
        if self.run.closed:
            return "done"
        self.freeze()
        assert self.run.plan is not None
        unread = set(self.run.plan.contexts) - set(self._contexts)
        if unread:
            raise PlanConflictError(
                self.job_id,
                f"the frozen plan holds {', '.join(sorted(unread))}, which this run did not ask for; a commit would "
                "mark it as done. Run the code that made the plan, or discard the plan.",
            )
        for check in self._before_commit:
            check()
        self.metrics |= {**self._counts.metrics(), **files_read(self._contexts)}
        outcome = self.run.commit(**fitting(self.metrics, self.run.plan.next))
        for told in self._after_commit:
            told()
        return outcome

    # --- within ---------------------------------------------------------------------------------

    def _replayed(self, context: str) -> Mapping[str, Any] | None:
        """Return a context's part of the inherited plan; None where there is no plan yet.

        A context that the inherited plan does not know takes nothing now and everything next time.
        """
        check_context(context)
        if context in METRICS:
            raise ReservedNameError(context, METRICS)
        if context in self._contexts:
            raise PlanConflictError(self.job_id, f"context {context!r} is planned already. Give each source its own.")
        if self.run.plan is None:
            return None
        if not self.run.replay:
            raise PlanConflictError(
                self.job_id, f"context {context!r} comes after the plan is frozen. Plan all sources before writing."
            )
        stored: Mapping[str, Any] | None = self.run.planned(context)
        if stored is None:
            logger.warning("event=not_in_plan job=%s context=%s: left for the next run", self.job_id, context)
            self._contexts[context] = NOTHING
            return NOTHING
        return stored

    def _typed_errors(self) -> ExitStack:
        """Let what is raised while planned rows and files are read come out of Spark's errors as our own."""
        stack = ExitStack()
        if any(planned["kind"] == "files" for planned in self._contexts.values()):
            from scripts.helpers.small_files import typed_errors

            stack.enter_context(typed_errors())
        for source in self._sources:
            stack.enter_context(source.typed_errors())
        return stack

    def _add(self, context: str, planned: Mapping[str, Any], state: Mapping[str, Any] | None) -> None:
        self._contexts[context] = planned
        if state is not None:
            self._states[context] = state
