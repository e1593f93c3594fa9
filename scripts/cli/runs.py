"""`watermarks history JOB --runs`: the runs of a job, from this package's Job Runs API or from Glue."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from scripts.cli.documents import emit
from scripts.cli.glue_runs import runs_in_glue
from scripts.cli.progress import progress
from scripts.cli.screen import show_table
from scripts.cli.surroundings import Surroundings
from scripts.helpers.display.units import printable
from scripts.helpers.errors import AmbiguousHistoryError, CorruptItemError, NewerFormatError

STYLES = {"SUCCEEDED": "green", "FAILED": "red", "TIMEOUT": "red", "ERROR": "red", "EXPIRED": "red", "LOST": "red"}


def show_runs(around: Surroundings, job: str, limit: int, glue: bool) -> None:
    """Show the newest runs of a job, from the Job Runs API of this package or from Glue."""
    from scripts.helpers.job_runs.run_record import Runs

    found = runs_in_glue(around, job, limit) if glue else _runs_of_table(around, job, limit)
    if around.is_json:
        emit({"job": job, "runs": found})
        return
    if not found:
        around.out.print("No runs.")
        return
    show_table(around.out, Runs(found), {"state": lambda state: STYLES.get(state, "")})


def _runs_of_table(around: Surroundings, job: str, limit: int) -> list[dict[str, Any]]:
    """Return the records of runs. A run is marked as lost if its launcher gave no sign of life within its lease.

    Raise UnknownJobError if the table has no runs, no definition and no watermarks of the job.
    """
    from scripts.helpers.job_runs.run_store import RunStore

    now, store = around.now(), RunStore(around.store)
    with progress(around, f"reading runs of {printable(job)}"):
        records = store.newest_runs(job, limit)
        if not records and store.job(job) is None:
            # This only checks whether the job exists, so ignore a head that cannot be read.
            with suppress(AmbiguousHistoryError, CorruptItemError, NewerFormatError):
                around.watermarks.latest(job)
    found = []
    for record in records:
        run = dict(record.to_job_run())
        if record.is_lost(now):
            run["Lost"] = True
        found.append(run)
    return found
