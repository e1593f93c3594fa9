"""Reads and changes the records of jobs and runs. Each change is one conditional write."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta

from scripts.helpers.glue_api.errors import OperationTimeoutException
from scripts.helpers.job_runs.job_record import JobRecord
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.protocol import items
from scripts.helpers.protocol.races import TO_CHANGE_A_JOB, TO_CHANGE_A_RUN, Lost, Written
from scripts.helpers.protocol.requests import Between
from scripts.helpers.protocol.store import BUDGET_SECONDS, Store


class RunStore:
    """The records of the Job Runs API in one table. Every read is strongly consistent.

    Parameters
    ----------
    keep
        How long a run's record is kept after the run is over; None keeps it forever.
    """

    def __init__(self, store: Store, keep: timedelta | None = None) -> None:
        self.store, self.keep = store, keep

    def job(self, name: str) -> JobRecord | None:
        """Return a job's record; None if the job was never defined."""
        item = self.store.read(name, items.JOB_RECORD_KEY)
        return JobRecord.from_item(item) if item else None

    def run(self, job_name: str, run_id: str) -> RunRecord | None:
        """Return a run's record, or None."""
        item = self.store.read(job_name, items.run_record_key(run_id))
        return RunRecord.from_item(item) if item else None

    def newest_runs(self, job_name: str, limit: int, after: str | None = None) -> list[RunRecord]:
        """Return runs of a job, the newest first; with `after`, only runs older than that run."""
        first, last = items.run_record_key(""), items.run_record_key("~")
        behind = None if after is None else items.run_record_key(after)
        wanted = Between(job_name, first, last, newest_first=True, limit=limit, after=behind)
        return [RunRecord.from_item(item) for item in itertools.islice(self.store.query(wanted), limit)]

    def write(self, before: JobRecord | None, after: JobRecord) -> bool:
        """Replace a job's record `before`; return False if another process has changed it since it was read."""
        return isinstance(self.store.replace(before.to_item() if before else None, after.to_item()), Written)

    def write_run(
        self, before: RunRecord | None, after: RunRecord, budget: float = BUDGET_SECONDS
    ) -> Written[RunRecord] | Lost[RunRecord]:
        """Replace a run's record `before`; return Lost with the current record if it has changed since it was read."""
        item = after.to_item()
        if self.keep is not None and after.is_over:
            item[items.TTL_ATTRIBUTE] = items.number(int((after.modified_on + self.keep).timestamp()))
        outcome = self.store.replace(before.to_item() if before else None, item, budget)
        if isinstance(outcome, Written):
            return Written(after)
        return Lost(RunRecord.from_item(outcome.to) if outcome.to else None)

    def change_job(self, name: str, change: Callable[[JobRecord | None], JobRecord | None]) -> JobRecord | None:
        """Change a job's record despite concurrent writes; return the record after the change.

        Parameters
        ----------
        change
            A function that receives the record and returns the next one; to change nothing, it returns the same
            record or None. It is called again after each concurrent write, so it must have no side effects.
        """
        for _ in TO_CHANGE_A_JOB.races(self.store.sleep):
            before = self.job(name)
            after = change(before)
            if after is None or after is before or self.write(before, after):
                return after
        raise lost_race("job")

    def change_run(self, run: RunRecord, change: Callable[[RunRecord], RunRecord]) -> RunRecord | None:
        """Change a run's record as `change_job` changes a job's; return None if the record no longer exists.

        There are no pauses between tries: a heartbeat during a pause would outdate the record that was read.
        """
        for _ in TO_CHANGE_A_RUN.races(self.store.sleep):
            after = change(run)
            if after is run:
                return run
            outcome = self.write_run(run, after)
            if isinstance(outcome, Written):
                return outcome.now
            if outcome.to is None:
                return None
            run = outcome.to
        raise lost_race("job run")


def lost_race(what: str) -> OperationTimeoutException:
    """Return the error for a change that failed because other processes kept changing the record."""
    return OperationTimeoutException(f"Others kept changing the {what}. Try again.")
