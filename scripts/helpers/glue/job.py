"""`Job`: Glue's class of that name, with its bookmarks in this package's table."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from scripts.helpers.errors import FencedError, JobArgumentError, PlanConflictError, WatermarkError
from scripts.helpers.glue.arguments import DISABLE
from scripts.helpers.glue_api.errors import VersionMismatchException
from scripts.helpers.job import IncrementalJob
from scripts.helpers.metrics.embedded import EmbeddedMetrics
from scripts.helpers.metrics.report import Reporter
from scripts.helpers.watermarks import Watermarks, table_by_default

logger = logging.getLogger(__name__)

METRICS, EMBEDDED = "GLUE_WATERMARKS_METRICS", "emf"
"""An environment variable or job argument, and its value with which each run prints a line of metrics at its end."""


class Job:
    """The bookmarks of a script: call `init` at its start and `commit` at its end, once for all sources.

    As in Glue, the state belongs to the process and not to the object: the readers of any `GlueContext`
    use it. Between the two calls, a source with a ``transformation_ctx`` returns what is new. `commit`
    saves the bookmarks of all sources in one write. Without `commit` nothing is saved, and an ERROR is
    logged.

    Parameters
    ----------
    glue_context
        The context of the script, or its SparkSession.
    watermarks
        The table; by default the one that the environment variable ``WATERMARKS_TABLE`` names, else
        ``glue-watermarks`` in the default region. Glue's class has only the first argument.
    reporters
        The reporters that receive the end of the run, as for `IncrementalJob`. By default `EmbeddedMetrics()` if
        ``GLUE_WATERMARKS_METRICS`` is ``emf``, as an argument of the job or in the environment, else none.
    job_runs
        As ``get_job_runs`` returns them. Needed off Glue if the run in ``job_bookmark_from`` or ``_to`` has no commit.

    Examples
    --------
    >>> job = Job(glue_context, watermarks)
    >>> job.init("landing", {"job_bookmark_option": "job-bookmark-enable", "JOB_RUN_ID": "jr_1"})
    >>> landed = glue_context.create_dynamic_frame.from_options(
    ...     "file", {"paths": [landing]}, "csv", {"withHeader": True}, transformation_ctx="landed")
    >>> landed.count()
    2
    >>> job.commit()
    >>> watermarks.get_most_recent_run_id("landing")
    'jr_1'
    """

    _batch: ClassVar[IncrementalJob | None] = None
    _table: ClassVar[Watermarks | None] = None
    _refused: ClassVar[tuple[str, str] | None] = None
    """Name of the job and of the error if the last `init` failed."""

    def __init__(
        self,
        glue_context: Any,
        watermarks: Watermarks | None = None,
        *,
        reporters: Sequence[Reporter] | None = None,
        job_runs: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        self._glue_context, self._watermarks = glue_context, watermarks
        self._reporters, self._job_runs = reporters, job_runs

    def init(self, job_name: str, args: Mapping[str, Any] | None = None) -> None:
        """Begin a run.

        Parameters
        ----------
        job_name
            The job's name in the table.
        args
            The result of `getResolvedOptions`. `init` uses ``job_bookmark_option`` (if missing, as in Glue,
            ``job-bookmark-disable``), ``job_bookmark_from``, ``job_bookmark_to``, ``JOB_RUN_ID``, and
            ``BOOKMARK_CONTEXT``, a namespace: runs with different ones do not share bookmarks.

        Raises
        ------
        RunInProgressError
            Another run works on the job. Nothing was read; Glue would fail at the commit, after the write.
            After this or any other error, sources and `commit` are refused until another `init`.
        JobArgumentError
            The arguments contradict each other, or the metrics setting is not ``emf``.
        """
        Job.forget()
        given = dict(args or {})
        given["job_bookmark_option"] = given.get("job_bookmark_option") or DISABLE
        Job._table = self._watermarks or Watermarks(table_by_default())
        try:
            reporters = _reporters_from_settings() if self._reporters is None else self._reporters
            # Scripts pass a GlueContext, which has a session, or the session itself.
            spark = getattr(self._glue_context, "spark_session", self._glue_context)
            batch = IncrementalJob(Job._table, spark=spark, reporters=reporters, job_runs=self._job_runs)
            # Scripts for Glue write with `df.write` or Glue's writers, so do not warn that no sink got the rows.
            batch.writes_itself = True
            Job._batch = batch.init(job_name, given)
        except BaseException as error:
            # Remember the failure: if a script catches it and continues, its sources must not read everything.
            Job._refused = (job_name, type(error).__name__)
            raise

    def isInitialized(self) -> bool:  # noqa: N802
        """Return whether `init` was called."""
        return Job._batch is not None

    def commit(self) -> None:
        """Save what all sources read, in one write; with pause or disable save nothing. Safe to call again.

        Raises
        ------
        VersionMismatchException
            Another run changed the bookmark meanwhile; the text is Glue's. Nothing was saved.
        FencedError
            Another run took over the job and is at work. VersionMismatchException is a subclass.
        PlanConflictError
            `init` failed.
        """
        self._check_begun()
        batch, table = Job._batch, Job._table
        if batch is None or table is None:
            return
        try:
            batch.commit()
        except FencedError as error:
            found = table.latest(batch.job_id).version
            # VersionMismatchException must show two different versions. If the run that took over has not committed
            # yet, the version is still the same. Glue has no error for this case, so raise the FencedError.
            if found == batch.run.version:
                raise
            raise VersionMismatchException(batch.job_id, batch.run_id, batch.run.version, found) from error

    @classmethod
    def tracking(cls, context: str) -> IncrementalJob | None:
        """Return the open run. If `init` was not called, return None, and log a WARNING if the source has a context.

        Raises
        ------
        PlanConflictError
            The run has ended, or `init` failed. Without a run, the source would read everything and save nothing.
        """
        cls._check_begun()
        batch = cls._batch
        if batch is None:
            if context:
                logger.warning(
                    "event=untracked context=%s: everything is read. Call Job.init before the first source", context
                )
            return None
        if batch.run.closed:
            raise PlanConflictError(
                batch.job_id,
                f"job.commit() has ended the run, and a source with transformation_ctx={context!r} is read after it. "
                "Read it before job.commit(), or call job.init() again, which begins another run.",
            )
        if not context and batch.mode.name != "disable":
            logger.warning(
                "event=untracked job=%s: a source without transformation_ctx is read whole, and nothing is saved",
                batch.job_id,
            )
        return batch

    @classmethod
    def running(cls) -> IncrementalJob | None:
        """Return the open run, or None."""
        return None if cls._batch is None or cls._batch.run.closed else cls._batch

    @classmethod
    def forget(cls) -> None:
        """Abort and log a run that was not committed. `init` calls this. When Python ends, `EndOfRun` does the same."""
        batch, cls._batch, cls._table, cls._refused = cls.running(), None, None, None
        if batch is None:
            return
        logger.error(
            "event=commit_forgotten job=%s run=%s: nothing was saved, so the next run reads the same rows and files "
            "again. Call commit() at the end of the script",
            batch.job_id, batch.run_id,
        )  # fmt: skip
        try:
            batch.abort()
        except WatermarkError as failure:
            logger.warning("event=abort_failed job=%s run=%s error=%s", batch.job_id, batch.run_id, failure)

    @classmethod
    def _check_begun(cls) -> None:
        if cls._refused is not None:
            name, error = cls._refused
            raise PlanConflictError(
                name, f"Job.init failed with {error}, so nothing is read and saved. Fix that, and call init again."
            )


def _reporters_from_settings() -> list[Reporter]:
    """Return the reporters that an argument of the job or the environment asks for."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument(f"--{METRICS}", nargs="?", const=EMBEDDED, default=os.environ.get(METRICS))
    asked = getattr(parser.parse_known_args(sys.argv[1:])[0], METRICS)
    if asked and asked != EMBEDDED:
        raise JobArgumentError(f"{METRICS} is {asked!r}. Write {EMBEDDED!r}, or leave it out.")
    return [EmbeddedMetrics()] if asked else []
