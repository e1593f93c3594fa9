"""How a run ended, told once to everyone who asked."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from scripts.helpers.errors import CommitUnknownError, FencedError
from scripts.helpers.freshness import age, lag, open_plan_age
from scripts.helpers.job_report import JobReport, Outcome, Reporter
from scripts.helpers.records import Head

logger = logging.getLogger(__name__)

_COUNTED: Mapping[str, tuple[str, ...]] = {
    "Rows": ("rows_collected", "rows_written"),
    "Files": ("files_read",),
    "Bytes": ("bytes_read", "bytes_written"),
}
"""Which of a job's counts a metric is: the first that is there."""
_OUTCOMES: Mapping[Outcome, str] = {
    "committed": "Committed",
    "failed": "Failed",
    "fenced": "Fenced",
    "unknown": "Unknown",
}


class EndOfRun:
    """Measures one run, and reports its end once."""

    def __init__(self, job_id: str, run_id: str, reporters: Sequence[Reporter], clock: Callable[[], datetime]) -> None:
        self._job_id, self._run_id, self._clock = job_id, run_id, clock
        self._reporters, self._started = list(reporters), time.monotonic()

    def tell(self, error: BaseException | None, head: Head, metrics: Mapping[str, Any]) -> None:
        """Report the end: `error` is what ended the run, None for a commit. A second call does nothing.

        What a reporter raises is logged: it must not change how the run ends.
        """
        reporters, self._reporters = self._reporters, []
        if not reporters:
            return
        outcome = outcome_of(error)
        values = {"DurationSeconds": round(time.monotonic() - self._started, 3), _OUTCOMES[outcome]: 1}
        now = self._clock()
        for name, found in (
            ("AgeSeconds", age(head, now)),
            ("LagSeconds", lag(head, now)),
            ("OpenPlanAgeSeconds", open_plan_age(head, now)),
        ):
            if found is not None:
                values[name] = found.total_seconds()
        if outcome == "committed":
            values.setdefault("OpenPlanAgeSeconds", 0)
            values |= {name: metrics[first] for name, counts in _COUNTED.items() if (first := _first(counts, metrics))}
        report = JobReport(self._job_id, self._run_id, outcome, now, values)
        for reporter in reporters:
            try:
                reporter.report(report)
            except Exception as failure:
                logger.warning("event=report_failed job=%s reporter=%s error=%s", self._job_id, reporter, failure)


def outcome_of(error: BaseException | None) -> Outcome:
    """Return how a run ended."""
    if error is None:
        return "committed"
    if isinstance(error, FencedError):
        return "fenced"
    return "unknown" if isinstance(error, CommitUnknownError) else "failed"


def _first(names: Sequence[str], metrics: Mapping[str, Any]) -> str:
    return next((name for name in names if isinstance(metrics.get(name), int)), "")
