"""`Batch`: one run of a job from begin to commit, whatever its sources are."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

from scripts.helpers.batch.end_of_run import EndOfRun, check_clock
from scripts.helpers.batch.modes import Mode
from scripts.helpers.batch.unsaved_run import UnsavedRun
from scripts.helpers.errors import PlanConflictError, ReservedNameError, RunClosedError
from scripts.helpers.glue_api.runs import runs_on_glue
from scripts.helpers.metrics.report import Reporter
from scripts.helpers.metrics.saved import METRICS, files_read, fitting
from scripts.helpers.protocol.names import BatchId, check_context, name_in_table, new_run_id, split_name
from scripts.helpers.protocol.run import Run
from scripts.helpers.rows.counts import RowCounts, bytes_below
from scripts.helpers.rows.pandas_frames import is_pandas
from scripts.helpers.sinks.spark_files import timestamps_with_statistics
from scripts.helpers.watermarks import Watermarks

if TYPE_CHECKING:
    import pandas as pd
    from mypy_boto3_s3 import S3Client
    from pyspark.sql import DataFrame
    from typing_extensions import Self

    from scripts.helpers.relational.relations import Relations
    from scripts.helpers.rows.sources import RowSource

logger = logging.getLogger(__name__)

BATCH_COLUMN = "batch_id"
NOTHING: dict[str, Any] = {"kind": "nothing"}
"""The plan of a context that the inherited plan does not know, or a range of runs."""


class Batch:
    """What all sources of a job share: the run, the plan, the write under a batch id, and the commit."""

    _s3_client: S3Client | None = None
    _reporters: Sequence[Reporter] = ()
    _clock: Callable[[], datetime]
    _end: EndOfRun

    def __init__(
        self,
        watermarks: Watermarks,
        job_id: str | None,
        run_id: str | None,
        lease: timedelta,
        mode: Mode,
        namespace: str | None,
        job_runs: Iterable[Mapping[str, Any]],
    ) -> None:
        self.run_id, self.mode = run_id or new_run_id(), mode
        self.metrics: dict[str, Any] = {}
        self._watermarks, self._lease, self._job_runs = watermarks, lease, job_runs
        self._namespace = namespace
        self.job_id = name_in_table(job_id, namespace) if job_id else ""
        self._run: Run | UnsavedRun | None = None
        self._contexts: dict[str, Any] = {}
        self._states: dict[str, Any] = {}
        self._may_be_empty = self._reads_files = False
        self._sources: list[RowSource | Relations] = []
        self._counts = RowCounts()
        self._before_commit: list[Callable[[], Any]] = []
        self._after_commit: list[Callable[[], Any]] = []
        self._at_end = ExitStack()
        self._written: set[str] = set()
        self._outcome: str | None = None

    def init(self, job_name: str, args: Mapping[str, Any] | None = None) -> Self:
        """Begin the run without a ``with`` statement, as scripts for AWS Glue do; `commit` ends it.

        A job that is not committed saves nothing: an ERROR says so when the job object is gone, or Python
        ends, and the lease is released, so that a retry need not wait. A signal such as SIGTERM ends
        Python without that, unless the script turns it into an exit.

        Parameters
        ----------
        job_name
            The job's name.
        args
            Resolved job arguments, as of `from_args`. ``job_bookmark_option`` stands for the mode with its
            range. What they leave open is that of the constructor.

        Raises
        ------
        RunInProgressError
            Another run has the job; nothing was read.
        PlanConflictError
            The run has begun already.
        InvalidValueError
            The clock has no time zone.
        """
        if self._run is not None:
            raise PlanConflictError(self.job_id, "the run has begun already. Make a new job for another run.")
        args = args or {}
        self.mode = self.mode.changed_by(args)
        self.run_id = args.get("JOB_RUN_ID") or self.run_id
        self.job_id = name_in_table(job_name, args.get("BOOKMARK_CONTEXT") or self._namespace)
        self._may_be_empty = True
        self.__enter__()
        if self.mode.saves:
            self._end.watch(self)
        return self

    def __repr__(self) -> str:
        state = "not begun" if self._run is None else f"{len(self._contexts)} sources planned, {self._run!r}"
        return f"<{type(self).__name__} {self.job_id!r}, run {self.run_id}: {state}>"

    def __enter__(self) -> Self:
        """Begin the run and keep its lease. RunInProgressError, before anything is read, if another one has it."""
        if self._run is None:
            check_clock(self._clock)
            if self.mode.saves:
                self._run = self._watermarks.begin(self.job_id, self.run_id, lease=self._lease)
            else:
                in_glue = runs_on_glue(split_name(self.job_id)[0], (self.mode.from_run, self.mode.to_run))
                known = chain(self._job_runs, in_glue)
                self._run = UnsavedRun(self._watermarks, self.job_id, self.run_id, self.mode, known)
            self._run.__enter__()
            self._end = EndOfRun(self._run, self._reporters if self.mode.saves else (), self._clock)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Commit on a clean exit if any source was asked for; otherwise abort and keep the plan."""
        if error is not None and self._end.is_elsewhere:
            return
        with self._at_end:
            if error is None and not self.run.closed and (self._contexts or self._may_be_empty):
                try:
                    self.commit()
                except BaseException as failure:
                    self.run.__exit__(type(failure), failure, None)
                    raise
            self.run.__exit__(kind, error, trace)
            if error is not None:
                self._end.tell(error)

    # --- the batch ------------------------------------------------------------------------------

    @property
    def run(self) -> Run | UnsavedRun:
        """The run of this job; PlanConflictError before it has begun."""
        if self._run is None:
            raise PlanConflictError(
                self.job_id, "the run has not begun. Use the job in a `with` statement, or call init."
            )
        return self._run

    @property
    def batch_id(self) -> BatchId:
        """The id to key a sink by. Freezes the plan: a batch has an id once its content is fixed."""
        self.freeze()
        return self.run.batch_id

    def freeze(self) -> None:
        """Store the plan of all sources planned so far. Later sources are refused; again is no change."""
        if self.run.plan is None:
            if not self._contexts and not self._may_be_empty:
                raise PlanConflictError(self.job_id, "no source is planned. Call rows_since or new_files first.")
            self.run.freeze(self._contexts, {**self.run.watermarks, **self._states})

    def write(self, df: DataFrame | pd.DataFrame, path: str, *, format: str = "parquet", **options: Any) -> int:
        """Write one batch to ``path/batch_id=…/`` and overwrite only that; return the rows written.

        A replay leaves the same rows there. `path` ends up partitioned by ``batch_id``. Rows are
        counted while they are written (Spark's Observation), without a second pass. Parquet
        timestamps are written as TIMESTAMP_MICROS, which row groups keep statistics of. A DataFrame
        of pandas is written as one Parquet file; see `pandas_writing.write_pandas`.

        A run that is paused or disabled writes to a batch id made of the mode, the run id and a hash of the
        job: a retry under the same run id replaces it, and what earlier runs wrote stays beside it.

        Raises
        ------
        PlanConflictError
            The batch was written to that path already, and would be replaced; nothing is written.
        RunClosedError
            The run was committed or aborted.
        FencedError
            Another run took over; nothing is written.
        """
        if BATCH_COLUMN in (str(name).lower() for name in df.columns):
            raise ReservedNameError(BATCH_COLUMN, [BATCH_COLUMN])
        self._check_open("write")
        place = re.sub("^s3[an]:", "s3:", path.rstrip("/"))
        if place in self._written:
            raise PlanConflictError(
                self.job_id,
                f"this batch was written to {path!r} already, and a second write would replace it. Union the frames, "
                "or give another path.",
            )
        folder = f"{path.rstrip('/')}/{BATCH_COLUMN}={self.batch_id}"
        self.run.check()
        if is_pandas(df):
            from scripts.helpers.sinks.pandas_files import write_pandas

            size: int | None = write_pandas(df, folder, format, self._s3_client, options)
            rows = len(df)
        else:
            rows, size = self._write_spark(df, folder, format, options)
        self._written.add(place)
        for metric, number in (("rows_written", rows), ("bytes_written", size)):
            if number is not None:
                self.metrics[metric] = self.metrics.get(metric, 0) + number
        return rows

    def _write_spark(
        self, df: DataFrame, folder: str, format: str, options: Mapping[str, Any]
    ) -> tuple[int, int | None]:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812

        written = Observation()
        counted = df.observe(written, F.count(F.lit(1)).alias("rows"))
        with self._typed_errors(), timestamps_with_statistics(df, format):
            counted.write.format(format).options(**options).mode("overwrite").save(folder)
        return int(written.get["rows"]), bytes_below(df.sparkSession, folder)

    def abort(self) -> None:
        """Let go of the job without saving anything; a frozen plan stays for the next run. Safe to call again."""
        with self._at_end:
            self.run.abort()
            self._end.tell(RunClosedError(self.job_id, self.run_id, "aborted", "commit"))

    def commit(self) -> str:
        """Commit all planned sources in one write; see `Run.commit`. Called by a clean exit. Again is no change.

        Returns
        -------
        str
            ``"done"``, ``"already"``, or ``"unsaved"`` for a run that is paused or disabled.

        Raises
        ------
        RunClosedError
            The run was aborted.
        """
        if self._outcome is None:
            self._check_open("commit")
            try:
                self._outcome = self._commit()
            except BaseException as error:
                self._end.tell(error)
                raise
            self._end.tell(None, self.metrics)
            self._end.call(self._after_commit)
            self._at_end.close()
        return self._outcome

    # --- within ---------------------------------------------------------------------------------

    def _commit(self) -> str:
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
        return self.run.commit(**fitting(self.metrics, self.run.plan.next))

    def _check_open(self, verb: str) -> None:
        if self.run.closed:
            how = "aborted" if self._outcome is None else "committed"
            raise RunClosedError(self.job_id, self.run_id, how, verb)

    def _untracked(self) -> None:
        """Note a source without context, which may be all that a batch has."""
        self._check_open("read")
        self._may_be_empty = True

    def _planned(self, context: str) -> Mapping[str, Any] | None:
        """Return as `_replayed`; and nothing for a context that a range of runs has nothing of."""
        stored = self._replayed(context)
        if stored is None and self._range is not None and self._range.until(context) is None:
            logger.warning("event=not_in_range job=%s context=%s: its runs took nothing of it", self.job_id, context)
            self._contexts[context] = stored = NOTHING
        return stored

    def _replayed(self, context: str) -> Mapping[str, Any] | None:
        """Return a context's part of the inherited plan; None where there is no plan yet.

        A context that the inherited plan does not know takes nothing now and everything next time.
        """
        self._check_open("read")
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

    @property
    def _range(self) -> UnsavedRun | None:
        """The run, if it reads a range of runs again."""
        return self._run if isinstance(self._run, UnsavedRun) and self._run.mode.is_range else None

    def _reach(self, context: str | None) -> dict[str, Any]:
        """Return how far a bookmark of files reaches: from which state, until which, and whether something follows."""
        if not context:
            self._untracked()
            return {"state": None, "saves": False}
        reach = {"state": self.run.state(context), "saves": self.mode.saves}
        return reach if self._range is None else reach | {"until": self._range.until(context)}

    def _typed_errors(self) -> ExitStack:
        """Let what is raised while planned rows and files are read come out of Spark's errors as our own."""
        stack = ExitStack()
        if self._reads_files:
            from scripts.helpers.reading.small_files import typed_errors

            stack.enter_context(typed_errors())
        for source in self._sources:
            stack.enter_context(source.typed_errors())
        return stack

    def _add(self, context: str, planned: Mapping[str, Any], state: Mapping[str, Any] | None) -> None:
        self._contexts[context] = planned
        if state is not None:
            self._states[context] = state
