"""Reads what the page shows of each job; nothing is ever written."""

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
from scripts.helpers.protocol.jobs import ListedJob
from scripts.helpers.protocol.names import served_by
from scripts.helpers.protocol.values import Spilled
from scripts.helpers.rows.cursor_ranges import ShownRange
from scripts.helpers.rows.progress import RowsProgress
from scripts.helpers.rows.states import RowsState, is_rows
from scripts.helpers.states import typed
from scripts.helpers.watermarks import Watermarks
from scripts.report.facts import JobFacts

MOST_VERSIONS = 1_000
"""Versions of one job that are read at most, the newest ones: almost three years of a daily job."""
MOST_JOB_RUNS = 100
"""The newest ones, of which those without success are shown: a day of a job that runs every quarter of an hour."""
OF_ONE_JOB = (NothingThereError, AmbiguousHistoryError, NewerFormatError, CorruptItemError, InvalidIdError)
"""Errors that say nothing about other jobs."""


def choose(watermarks: Watermarks, jobs: Iterable[str] | None) -> list[ListedJob]:
    """Return the jobs to show: those asked for, in that order, or all of the table without the slices of backfills."""
    if jobs is None:
        listed = [job for job in watermarks.list_jobs() if served_by(job.job_id) is None]
        # One item of the original class is no head, and yet the next run takes it over: it is a job like others.
        return [look_up(watermarks, job.job_id, job.problem) if job.problem else job for job in listed]
    return [look_up(watermarks, job_id) for job_id in dict.fromkeys(jobs)]


def look_up(watermarks: Watermarks, job_id: str, problem: str | None = None) -> ListedJob:
    """Read one head, or the item of the original class; what is wrong is its `problem`, unless it is known."""
    try:
        return ListedJob(job_id, watermarks.latest(job_id))
    except OF_ONE_JOB as error:
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

    What cannot be read, or is damaged, is the `problem` of that job and does not end the report.

    Raises
    ------
    CredentialsError, AccessRefusedError, StoreUnavailableError, TableNotFoundError
        These would hold for every job.
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
    except OF_ONE_JOB as error:
        return JobFacts(job.job_id, now, None, str(error))
    except DAMAGE as error:
        return damaged(job.job_id, now, error)


def damaged(job_id: str, now: datetime, error: BaseException) -> JobFacts:
    """Return what is shown of a job whose items can be read and make no sense: no more than that, and among the others.

    Only the type of the error is named: its text may quote a watermark.
    """
    problem = f"Its items are damaged ({type(error).__name__} while reading them). See doctor."
    return JobFacts(job_id, now, None, problem)


def _shown(state: Any) -> Any:
    """Return a state that was in chunks without what is packed in it: that may be megabytes for each job."""
    found = typed(state, unpacks=False)
    if isinstance(found, FilesState):
        aside = found.aside and replace(found.aside, data=b"")
        return replace(found, segments=(), aside=aside, others={}).to_store()
    return replace(found, covered=None, others={}).to_store() if isinstance(found, RowsState) else state


def _entries(watermarks: Watermarks, job_id: str, since: datetime | None) -> tuple[Sequence[LogEntry], bool]:
    """Read versions, newest first, until there are enough; and tell whether none is older."""
    found: list[LogEntry] = []
    while len(found) < MOST_VERSIONS:
        page = watermarks.history(job_id, MOST_VERSIONS - len(found), found[-1].version if found else None)
        recent = [entry for entry in page if since is None or entry.change.at >= since]
        found += recent
        # Versions come newest first, so an entry from before `since` ends it: all after it are older still.
        if len(recent) < len(page):
            return found, False
        # Old versions expire, so version 1 may be gone and an empty page the end.
        if not page or page[-1].version == 1:
            return found, True
    return found, False


def _unsuccessful(watermarks: Watermarks, job_id: str, since: datetime | None) -> Sequence[RunRecord]:
    """Read which of the newest job runs ended without success; none where `JobRuns` is not used."""
    found = RunStore(watermarks.store).newest_runs(job_id, MOST_JOB_RUNS)
    return [
        run for run in found if run.is_over and run.state != "SUCCEEDED" and (since is None or run.started_on >= since)
    ]


def _gaps(lookups: BoundedLookups, job_id: str, context: str) -> Sequence[ShownRange] | None:
    """Read the gaps of a rows context; None where its state, or its record of backfills, is damaged or too large."""
    try:
        return RowsProgress(lookups).gaps(job_id, context)
    except (InvalidValueError, *OF_ONE_JOB):
        return None
