"""What follows from what happened to a job's runs: lost ones are ended, and slots of those that are over get free."""

from __future__ import annotations

import logging
import subprocess
import time
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

from scripts.helpers.errors import WatermarkError
from scripts.helpers.job_runs.job_record import Entry, JobRecord
from scripts.helpers.job_runs.run_record import CLOCK_MARGIN, RunRecord
from scripts.helpers.job_runs.run_store import RunStore
from scripts.helpers.protocol.names import is_file
from scripts.helpers.protocol.races import Written

logger = logging.getLogger(__name__)

START_LEASE = timedelta(seconds=60)
"""For how long a run may be without a sign of its launcher after it was given a slot. Longer than a slow machine takes
to start a Python, or runs that are about to begin would be given up."""
QUEUE_TIME = timedelta(hours=24)
"""How long a run of an earlier version waits before it has EXPIRED: nothing starts those any more."""


class Engine(Protocol):
    """What starts a run that has a slot: a launcher of ours, which writes how it ends."""

    def launch(self, run: RunRecord, shared: Mapping[str, Any]) -> None:
        """Start the run; OSError if that fails, a WatermarkError if the engine does not run such a run."""


class Scheduler:
    """Brings the runs of a job up to date. Everything it does may be done twice, by many at once, or by the next one.

    Whoever may write the items of a job decides what is in its lists and records. So nothing here
    starts a run, but `start` the one that it is given.

    Parameters
    ----------
    engine
        None: runs are started by somebody else.

    Attributes
    ----------
    timer
        Seconds on a clock that nobody sets. Leases of others are measured by it.
    """

    def __init__(
        self,
        records: RunStore,
        engine: Engine | None,
        clock: Callable[[], datetime],
    ) -> None:
        self.records, self.engine, self.clock = records, engine, clock
        self.timer: Callable[[], float] = time.monotonic
        self._seen: dict[tuple[str, str], tuple[str, float]] = {}

    def settings(self) -> dict[str, Any]:
        """Return what makes another process look after the same runs in the same way; plain enough for JSON."""
        store = self.records.store
        meta = store.client and store.client.meta
        return {
            # Another process may be in another folder.
            "table": store.table.place if is_file(store.table_name) else store.table_name,
            "region": meta and meta.region_name,
            "endpoint": meta and meta.endpoint_url,
            "keep_seconds": self.records.keep and self.records.keep.total_seconds(),
        }

    def settle(self, job_name: str, looked_at: Collection[str] = ()) -> JobRecord | None:
        """Write the end of runs that are lost, and free the slots of those that are over; start nothing.

        Of the runs that wait, which an earlier version left, those are read that are due to expire or `looked_at`.
        """

        def settle(job: JobRecord | None) -> JobRecord | None:
            if job is None or not (job.active or job.waiting):
                return job
            ended = [entry for entry in job.active if self._is_free(job, entry)]
            ended += [entry for entry in job.waiting if self._has_ended_waiting(job, entry, looked_at)]
            # Without a change nothing is written, or all who look at once would make each other's writes fail.
            return job.without(ended) if ended else job

        job = self.records.change_job(job_name, settle)
        if job is not None:
            listed = {(job_name, entry.run_id) for entry in (*job.active, *job.waiting)}
            for key in {key for key in list(self._seen) if key[0] == job_name} - listed:
                self._seen.pop(key, None)  # Or a list that names other runs each time would fill the memory.
        return job

    def seen(self, run: RunRecord) -> RunRecord:
        """Return a run as it is to be shown: one whose launcher is lost as the ERROR that will be written of it."""
        return self._lost(run, run.lease_until) if run.lease_until and self.is_lost(run) else run

    def is_lost(self, run: RunRecord) -> bool:
        """Tell whether the launcher of a run has given no sign for its lease, as far as this process knows."""
        key = run.job_name, run.run_id  # A record of any job may have the id of another's run.
        if run.lease is None or run.lease_until is None:
            self._seen.pop(key, None)
            return False
        return self._is_over(key, run.token, run.modified_on, run.lease)

    def _is_over(self, key: tuple[str, str], token: str, since: datetime, lease: timedelta) -> bool:
        """Tell whether a lease is over that was last renewed, with a token, at `since` by the clock of its owner.

        As the Kinesis client judges leases: a token that was not seen before starts a lease on the timer of this
        process. The clocks of two machines are compared only where one says that the lease is over for longer than
        clocks differ: a process that looks once, as a command does, sees no token stand still.
        """
        seen = self._seen.get(key)
        if seen is None or seen[0] != token:
            seen = self._seen[key] = token, self.timer()
        # Up to its very end the lease is its owner's, so `>` and not `>=`.
        stands_still = self.timer() - seen[1] > lease.total_seconds()
        return stands_still or self.clock() > since + lease + CLOCK_MARGIN

    def _is_free(self, job: JobRecord, entry: Entry) -> bool:
        """Tell whether the slot of a run is to be had: the run is over, and its launcher makes no retry of it."""
        run = self._up_to_date(job, entry)
        if run is None or not run.is_over:
            return False
        # A launcher writes the end of its run first and then gives the slot to the retry: without this time somebody
        # else's run could come in between.
        is_retried = run.is_retried and job.definition is not None
        return not is_retried or self._is_over((job.name, run.run_id), run.token, run.modified_on, START_LEASE)

    def _has_ended_waiting(self, job: JobRecord, entry: Entry, looked_at: Collection[str]) -> bool:
        """Tell whether a run that waits is over; up to 500 may wait, so only those are read whose state can matter."""
        is_due = self.clock() >= entry.since + QUEUE_TIME or job.definition is None
        if not is_due and entry.run_id not in looked_at:
            return False
        run = self._up_to_date(job, entry)
        return run is not None and run.is_over

    def _up_to_date(self, job: JobRecord, entry: Entry) -> RunRecord | None:
        """Return the run of an entry, ended if it must be; None while it is being made."""
        now = self.clock()
        run = self.records.run(job.name, entry.run_id)
        if run is None:
            # The place in the list is written before the record, so a young one is about to get its record.
            if not self._is_over((job.name, entry.run_id), "", entry.since, START_LEASE):
                return None
            return self._never_started(job.name, entry)

        def end(run: RunRecord) -> RunRecord:
            if self.is_lost(run):
                return self._lost(run, now)
            if run.state == "WAITING" and job.definition is None:
                error = "The job was deleted while the run waited for a slot."
                return run.to("ERROR", now, error=error)
            if run.state == "WAITING" and now >= entry.since + QUEUE_TIME:
                hours = f"{QUEUE_TIME.total_seconds() / 3600:g} hours"
                return run.to("EXPIRED", now, error=f"Nothing started the run for {hours}. Start it again by its id.")
            return run

        return self.records.change_run(run, end)

    def _never_started(self, job_name: str, entry: Entry) -> RunRecord | None:
        """Write the record that a start left out which died or is very slow; it then can write its own no more."""
        run = RunRecord.without_record(job_name, entry.run_id, entry.since)
        error = "The start of the run broke off before it was recorded. Start it again."
        ended = run.to("ERROR", self.clock(), error=error)
        outcome = self.records.write_run(None, ended)
        return ended if isinstance(outcome, Written) else outcome.to

    def _lost(self, run: RunRecord, now: datetime) -> RunRecord:
        since = run.modified_on.isoformat(timespec="seconds")
        where = run.launcher or "it never began"
        error = f"The launcher gave no sign since {since} ({where}): it was killed, or its machine went down."
        return run.ended("ERROR", now, error)

    # --- launching ------------------------------------------------------------------------------

    def start(self, run: RunRecord) -> bool:
        """Start the launcher of a run that is STARTING; the run has failed if that cannot be done."""
        assert self.engine is not None
        try:
            self.engine.launch(run, self.settings())
        except (WatermarkError, OSError, ValueError, subprocess.SubprocessError) as error:
            state, text = "FAILED", f"The launcher cannot be started: {type(error).__name__}."
            if isinstance(error, WatermarkError):
                state, text = "ERROR", str(error)
            elif isinstance(error, OSError) and error.strerror:
                text = f"The launcher cannot be started: {error.strerror}: {error.filename}."
            logger.warning("event=not_started job=%s run=%s error=%s", run.job_name, run.run_id, type(error).__name__)
            self.records.write_run(run, run.to(state, self.clock(), error=text))
            return False
        logger.info("event=started job=%s run=%s", run.job_name, run.run_id)
        return True
