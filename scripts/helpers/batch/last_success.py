"""Which version a run id stands for: that of its commit, or of the last success before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from scripts.helpers.errors import InvalidValueError, UnknownRunError, UnplacedRunError
from scripts.helpers.protocol.head import SUCCESS, Head, LogEntry
from scripts.helpers.protocol.names import check_run_id, split_name
from scripts.helpers.watermarks import Watermarks

PAGE = 100
"""Versions of one request: the last success is seldom further back."""


def last_success(
    watermarks: Watermarks, job_id: str, run_id: str, job_runs: Iterable[Mapping[str, Any]] = ()
) -> LogEntry | None:
    """Return the version that the last successful run at or before this one made.

    A run that committed stands for its last commit, whatever people decided about the job since. Ids
    have no order: a run that never committed is placed by the time at which it started. The table
    knows that of the run that has the job now, and of those that `JobRuns` started; `job_runs` of others.

    Parameters
    ----------
    job_runs
        The ``JobRuns`` that Glue's ``get_job_runs`` returns, or any maps with ``Id`` and an aware ``StartedOn``.
        Looked at only for a run that the table cannot place.

    Returns
    -------
    LogEntry or None
        None where the run was there before the first success: nothing was processed then.

    Raises
    ------
    UnknownJobError, AmbiguousHistoryError
        As `Watermarks.latest`.
    UnplacedRunError
        The run never committed and nothing tells when it started, or what was there then has expired.
    InvalidValueError
        `job_runs` has the run with a ``StartedOn`` that is no aware datetime.
    """
    check_run_id(run_id)
    head = watermarks.latest(job_id)
    found = _commit_of(watermarks, head, run_id)
    if found is not None:
        return found
    started = _started(watermarks, head, run_id, job_runs)
    if started is None:
        raise UnplacedRunError(job_id, run_id)
    oldest = 1
    # By starts, as "before this run" is said of runs. Of a version without one only the time of its commit is known.
    for entry in _history(watermarks, job_id):
        if entry.change.op in SUCCESS and (entry.change.started_at or entry.change.at) <= started:
            return entry
        oldest = entry.version
    # Versions below it have expired, and the success that was looked for may be among them.
    if oldest > 1:
        raise UnplacedRunError(job_id, run_id)
    return None


def _commit_of(watermarks: Watermarks, head: Head, run_id: str) -> LogEntry | None:
    """Find the last commit of a run by its item, without reading the history where that is long."""
    below: int | None = None
    # The item of a run is written after the head that commits it, so that of the very last run may not be there yet.
    if head.last is None or head.last.run_id != run_id:
        try:
            version = watermarks.get_watermark(head.job_id, run_id).get("version")
        except UnknownRunError:
            return None
        below = None if version is None else version + 1
    for entry in _history(watermarks, head.job_id, below):
        if entry.change.op in SUCCESS and entry.change.run_id == run_id:
            return entry
        # The item names the version of the run's last commit: if it is not that one, it is none.
        if below is not None:
            break
    return None


def _history(watermarks: Watermarks, job_id: str, below: int | None = None) -> Iterator[LogEntry]:
    """Yield the versions of a job, newest first, page by page; one page is one request, the first may be one entry."""
    page = PAGE if below is None else 1
    while entries := watermarks.history(job_id, limit=page, before=below):
        yield from entries
        below, page = entries[-1].version, PAGE


def _started(watermarks: Watermarks, head: Head, run_id: str, job_runs: Iterable[Mapping[str, Any]]) -> datetime | None:
    if head.claim is not None and head.claim.run_id == run_id:
        return head.claim.since
    own_name, _ = split_name(head.job_id)
    began = watermarks.lookups.start_of_job_run(own_name, run_id)
    if began is not None:
        return began
    for job_run in job_runs:
        if job_run.get("Id") == run_id and job_run.get("StartedOn") is not None:
            started = job_run["StartedOn"]
            if not isinstance(started, datetime) or started.utcoffset() is None:
                kind = "datetime without zone" if isinstance(started, datetime) else type(started).__name__
                raise InvalidValueError(
                    f"job_runs: StartedOn of run {run_id!r} of job {head.job_id!r} is a {kind}. Give an aware "
                    "datetime, as get_job_runs returns."
                )
            return started
    return None
