"""Report the end of a run, once to each reporter, even if the script forgets to end the run."""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import Any

from scripts.helpers.batch.modes import UnsavedRun
from scripts.helpers.errors import CommitUnknownError, FencedError, InvalidValueError, WatermarkError
from scripts.helpers.metrics.report import JobReport, Outcome, Reporter
from scripts.helpers.protocol.run import Run, run_closed

logger = logging.getLogger(__name__)

_COUNTED: Mapping[str, tuple[str, ...]] = {
    "Rows": ("rows_collected", "rows_written"),
    "Files": ("files_read",),
    "Bytes": ("bytes_read", "bytes_written"),
    "FilesSetAside": ("files_set_aside",),
}
"""The counts of a job that each metric reports: the first one that is there."""
_OUTCOMES: Mapping[Outcome, str] = {
    "committed": "Committed",
    "failed": "Failed",
    "fenced": "Fenced",
    "unknown": "Unknown",
}


class EndOfRun:
    """Measures one run, calls the hooks around its commit and at its end, and reports it once.

    This object must not reference the job, directly or indirectly: otherwise a job that the script forgot to close is
    never garbage-collected, and `watch` does not abort its run. The caller closes the attribute `always`, an ExitStack,
    at the end of the run, with or without an error.

    Parameters
    ----------
    run
        The run to measure. A run that saves nothing is not reported, as it does not show that the job is up to date.
    clock
        A function that returns the time as an aware datetime.
    """

    def __init__(self, run: Run | UnsavedRun, reporters: Sequence[Reporter], clock: Callable[[], datetime]) -> None:
        self._run, self._reporters, self.clock = run, list(reporters), clock
        self._started, self._process = time.monotonic(), os.getpid()
        self._checks: list[Callable[[], Any]] = []
        self._hooks: list[Callable[[], Any]] = []
        self.always = ExitStack()

    @property
    def is_forked_process(self) -> bool:
        """Whether this process is a fork of the one in which the run began. A fork must not end the run."""
        return os.getpid() != self._process

    def watch(self, job: object) -> None:
        """Arrange that an uncommitted run is aborted when `job` is garbage-collected or Python exits."""
        weakref.finalize(job, self._end_forgotten_run)

    def before_commit(self, check: Callable[[], Any]) -> None:
        """Add a check to call before the commit; an error prevents the commit."""
        self._checks.append(check)

    def after_commit(self, hook: Callable[[], Any]) -> None:
        """Add a hook to call after the commit; an error is logged."""
        self._hooks.append(hook)

    def call_at_end(self, hook: Callable[[], Any]) -> None:
        """Add a hook to call when the run has ended, with or without an error."""
        self.always.callback(hook)

    def check(self) -> None:
        """Call the checks that precede the commit."""
        for check in self._checks:
            check()

    def committed(self, metrics: Mapping[str, Any]) -> None:
        """Report a commit, and call the hooks that follow it."""
        self.tell(None, metrics)
        self.call(self._hooks)
        self.always.close()

    def tell(self, error: BaseException | None, metrics: Mapping[str, Any] | None = None) -> None:
        """Report that the run ended with an error, or with a commit if `error` is None. A second call does nothing.

        Errors in here are only logged, because they must not change how the run ends.
        """
        reporters, self._reporters = self._reporters, []
        if not reporters or not isinstance(self._run, Run):
            return
        job_id = self._run.job_id
        try:
            report = self._report(self._run, outcome_of(error), metrics or {})
        except Exception as failure:
            logger.warning("event=report_failed job=%s error=%s", job_id, failure)
            return
        for reporter in reporters:
            try:
                reporter.report(report)
            except Exception as failure:
                logger.warning("event=report_failed job=%s reporter=%s error=%s", job_id, reporter, failure)

    def call(self, hooks: Iterable[Callable[[], Any]]) -> None:
        """Call the hooks that follow the end. Errors are only logged, because the run has ended."""
        for hook in hooks:
            try:
                hook()
            except Exception as failure:
                # Do not raise: the commit is stored, so it must not look failed, and the next hook has to run, too.
                logger.error(
                    "event=after_commit_failed job=%s run=%s error=%s: the outcome of the run does not change",
                    self._run.job_id, self._run.run_id, failure,
                )  # fmt: skip

    def _report(self, run: Run, outcome: Outcome, metrics: Mapping[str, Any]) -> JobReport:
        from scripts.helpers.metrics.freshness import age, lag, open_plan_age

        # Measure with the monotonic clock, because `clock` may jump, or stand still in tests.
        values = {"DurationSeconds": round(time.monotonic() - self._started, 3), _OUTCOMES[outcome]: 1}
        now = self.clock()
        behind = {
            "AgeSeconds": age(run.head, now),
            "LagSeconds": lag(run.head, now),
            "OpenPlanAgeSeconds": open_plan_age(run.head, now),
        }
        values |= {name: found.total_seconds() for name, found in behind.items() if found is not None}
        if outcome == "committed":
            # If no plan is open, report an age of 0: an earlier alarm on the age ends only when it gets a lower value.
            values.setdefault("OpenPlanAgeSeconds", 0)
            for name, counts in _COUNTED.items():
                # Check the type, because a user may store anything under these names.
                known = [metrics[each] for each in counts if isinstance(metrics.get(each), int)]
                if known:
                    values[name] = known[0]
        return JobReport(run.job_id, run.run_id, outcome, now, values)

    def _end_forgotten_run(self) -> None:
        """Log that the run was never committed, release its job, and report it."""
        run = self._run
        # A fork inherits this finalizer. It must not abort, because the parent is still working on the job.
        if run.closed or self.is_forked_process:
            return
        logger.error(
            "event=commit_forgotten job=%s run=%s: the run ended without commit, so nothing was saved and the next run "
            "reads the same again. Call commit() at the end of the script", run.job_id, run.run_id,
        )  # fmt: skip
        try:
            run.abort()
        except WatermarkError as failure:
            logger.warning("event=abort_failed job=%s run=%s error=%s", run.job_id, run.run_id, failure)
        self.tell(run_closed(run.job_id, run.run_id, "aborted", "commit"))


def check_clock(clock: Callable[[], datetime]) -> None:
    """Raise InvalidValueError if a clock returns a datetime without a time zone."""
    if clock().utcoffset() is None:
        raise InvalidValueError(
            "clock returns a datetime without zone. Return an aware one, as lambda: datetime.now(timezone.utc) does."
        )


def outcome_of(error: BaseException | None) -> Outcome:
    """Return the outcome of a run that ended with an error, or with None for a commit."""
    if error is None:
        return "committed"
    if isinstance(error, FencedError):
        return "fenced"
    return "unknown" if isinstance(error, CommitUnknownError) else "failed"
