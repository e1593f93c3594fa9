"""Read what the page shows of each job. Nothing here writes to the table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from scripts.helpers.errors import (
    DAMAGE,
    AmbiguousHistoryError,
    CorruptItemError,
    InvalidIdError,
    InvalidValueError,
    NewerFormatError,
    NothingThereError,
    UnknownJobError,
)
from scripts.helpers.files.states import FilesState
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.job_runs.run_store import RunStore
from scripts.helpers.metrics.freshness import Threshold
from scripts.helpers.protocol.bounded_lookups import BoundedLookups
from scripts.helpers.protocol.head import LogEntry
from scripts.helpers.protocol.jobs import ListedJob, list_jobs
from scripts.helpers.protocol.names import served_by
from scripts.helpers.protocol.values import Spilled
from scripts.helpers.rows.cursor_ranges import ShownRange
from scripts.helpers.rows.progress import RowsProgress
from scripts.helpers.rows.states import RowsState, is_rows
from scripts.helpers.states import typed
from scripts.helpers.watermarks import Watermarks
from scripts.report.facts import JobFacts

MOST_VERSIONS = 1_000
"""Maximum versions that are read of one job, the newest ones: almost three years of a daily job."""
MOST_JOB_RUNS = 100
"""Maximum job runs that are searched for runs without success: a day of a job that runs every 15 minutes."""
SINGLE_JOB_ERRORS = (NothingThereError, AmbiguousHistoryError, NewerFormatError, CorruptItemError, InvalidIdError)
"""Errors that concern only one job."""


def choose(watermarks: Watermarks, jobs: Iterable[str] | None) -> list[ListedJob]:
    """Return the jobs to show: the named jobs in that order, or all of the table without the slices of backfills."""
    if jobs is None:
        listed = [job for job in list_jobs(watermarks.store).jobs if served_by(job.job_id) is None]
        # Look up jobs with a problem again: a job without a head may have an item of the original class to show.
        return [look_up(watermarks, job.job_id, job.problem) if job.problem else job for job in listed]
    return [look_up(watermarks, job_id) for job_id in dict.fromkeys(jobs)]


def look_up(watermarks: Watermarks, job_id: str, problem: str | None = None) -> ListedJob:
    """Return a job with its head or item of the original class. If a read fails, add `problem`; if None, the error."""
    try:
        return ListedJob(job_id, watermarks.latest(job_id))
    except SINGLE_JOB_ERRORS as error:
        if isinstance(error, UnknownJobError) and RunStore(watermarks.store).job(job_id) is not None:
            return ListedJob(job_id, None)
        return ListedJob(job_id, None, problem or str(error))


def read_facts(
    watermarks: Watermarks,
    job: ListedJob,
    now: datetime,
    since: datetime | None = None,
    threshold: Threshold | None = None,
) -> JobFacts:
    """Read the history, the gaps and the job runs of one job.

    An item that is damaged or cannot be read becomes the `problem` of that job and does not end the report.

    Raises
    ------
    CredentialsError, AccessRefusedError, StoreUnavailableError, TableNotFoundError
        These errors would affect every job.
    """
    if job.head is None:
        return JobFacts(job.job_id, now, None, job.problem)
    try:
        entries, is_whole = _entries(watermarks, job.job_id, since)
        lookups = BoundedLookups(watermarks.lookups)
        states = {
            name: _shown(state) if isinstance(job.head.watermarks[name], Spilled) else state
            for name, state in lookups.opened(job.head).watermarks.items()
        }
        gaps = {name: _gaps(lookups, job.job_id, name) for name, state in states.items() if is_rows(state)}
        return JobFacts(
            job.job_id, now, replace(job.head, watermarks=states), None, entries, is_whole, gaps,
            _unsuccessful(watermarks, job.job_id, since), threshold,
        )  # fmt: skip
    except SINGLE_JOB_ERRORS as error:
        return JobFacts(job.job_id, now, None, str(error))
    except DAMAGE as error:
        return damaged(job.job_id, now, error)


def damaged(job_id: str, now: datetime, error: BaseException) -> JobFacts:
    """Return the facts of a job whose items can be read but are damaged: only its name and this problem.

    The problem names only the type of the error, because the error's text may quote a watermark.
    """
    problem = f"Its items are damaged ({type(error).__name__} while reading them). See doctor."
    return JobFacts(job_id, now, None, problem)


def _shown(state: Any) -> Any:
    """Return a state that was stored in chunks, without its compressed fields, which may be megabytes for each job."""
    found = typed(state, unpacks=False)
    if isinstance(found, FilesState):
        aside = found.aside and replace(found.aside, data=b"")
        return replace(found, segments=(), aside=aside, others={}).to_store()
    return replace(found, covered=None, others={}).to_store() if isinstance(found, RowsState) else state


def _entries(watermarks: Watermarks, job_id: str, since: datetime | None) -> tuple[Sequence[LogEntry], bool]:
    """Return the newest versions, newest first, up to the limit or `since`, and whether there are no older ones."""
    found: list[LogEntry] = []
    while len(found) < MOST_VERSIONS:
        page = watermarks.history(job_id, MOST_VERSIONS - len(found), found[-1].version if found else None)
        recent = [entry for entry in page if since is None or entry.change.at >= since]
        found += recent
        # Versions are read newest first, so once an entry is from before `since`, all following ones are older.
        if len(recent) < len(page):
            return found, False
        # Old versions expire, so the history may end with an empty page instead of version 1.
        if not page or page[-1].version == 1:
            return found, True
    return found, False


def _unsuccessful(watermarks: Watermarks, job_id: str, since: datetime | None) -> Sequence[RunRecord]:
    """Return those of the newest job runs that ended without success; empty if `JobRuns` is not used."""
    found = RunStore(watermarks.store).newest_runs(job_id, MOST_JOB_RUNS)
    return [
        run for run in found if run.is_over and run.state != "SUCCEEDED" and (since is None or run.started_on >= since)
    ]


def _gaps(lookups: BoundedLookups, job_id: str, context: str) -> Sequence[ShownRange] | None:
    """Return the cursor ranges that no run read; None if the state or record of backfills is damaged or too large."""
    try:
        return RowsProgress(lookups).gaps(job_id, context)
    except (InvalidValueError, *SINGLE_JOB_ERRORS):
        return None
