"""Brings a job's runs up to date: ends lost runs, and frees the slots of runs that are over."""

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
"""How long a run may stay in a slot before its launcher claims it. A slow machine must start Python in this time,
otherwise runs that are about to begin would be given up."""
QUEUE_TIME = timedelta(hours=24)
"""How long a run that an earlier version queued waits before it is EXPIRED: this version does not start such runs."""


class Engine(Protocol):
    """Starts one of a job's concurrent runs, through a launcher of this package, which records how the run ends."""

    def launch(self, run: RunRecord, shared: Mapping[str, Any]) -> None:
        """Start the run; raise OSError if that fails, a WatermarkError if the engine does not allow such a run."""


class Scheduler:
    """Starts runs, ends lost ones, and frees slots. A change may safely be made twice, also at once by two processes.

    Any user who may write a job's items controls what its lists and records contain. So no method
    starts runs that it finds there; only `start` starts a run, the one that it is given.

    Parameters
    ----------
    engine
        Starts the launchers; None if this process starts no runs.

    Attributes
    ----------
    timer
        A function that returns the seconds of a clock that never jumps. It measures the leases of other processes.
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
        """Return the settings with which another process manages the same runs, in types that JSON has."""
        store = self.records.store
        meta = store.client and store.client.meta
        return {
            # Use an absolute path, because another process may be in another folder.
            "table": store.table.place if is_file(store.table_name) else store.table_name,
            "region": meta and meta.region_name,
            "endpoint": meta and meta.endpoint_url,
            "keep_seconds": self.records.keep and self.records.keep.total_seconds(),
        }

    def settle(self, job_name: str, looked_at: Collection[str] = ()) -> JobRecord | None:
        """Record the end of lost runs, and free the slots of runs that are over; start nothing.

        Runs queued by earlier versions of this package are read only if due to expire, or if `looked_at` has their ids.
        """

        def settle(job: JobRecord | None) -> JobRecord | None:
            if job is None or not (job.active or job.waiting):
                return job
            ended = [entry for entry in job.active if self._is_free(job, entry)]
            ended += [entry for entry in job.waiting if self._has_ended_waiting(job, entry, looked_at)]
            # Return the same record if nothing changed: a needless write would make concurrent writes fail.
            return job.without(ended) if ended else job

        job = self.records.change_job(job_name, settle)
        if job is not None:
            listed = {(job_name, entry.run_id) for entry in (*job.active, *job.waiting)}
            for key in {key for key in list(self._seen) if key[0] == job_name} - listed:
                self._seen.pop(key, None)  # Forget runs no longer active or waiting, otherwise memory would fill up.
        return job

    def seen(self, run: RunRecord) -> RunRecord:
        """Return a run as it is shown to users: a lost run as the ERROR that will be recorded for it."""
        return self._lost(run, run.lease_until) if run.lease_until and self.is_lost(run) else run

    def is_lost(self, run: RunRecord) -> bool:
        """Return whether, as far as this process can see, a run's launcher let its lease expire."""
        key = run.job_name, run.run_id  # The job is part of the key: two jobs may have the same run id.
        if run.lease is None or run.lease_until is None:
            self._seen.pop(key, None)
            return False
        return self._is_over(key, run.token, run.modified_on, run.lease)

    def _is_over(self, key: tuple[str, str], token: str, since: datetime, lease: timedelta) -> bool:
        """Return whether a lease is over. `token` identifies its last renewal, at `since` by the clock of its holder.

        As in the Kinesis client, this process times a lease from when it first sees a token. It also compares its own
        clock with `since`, with a margin of `CLOCK_MARGIN`, because a process that looks only once, such as a command,
        cannot see that a token stays the same.
        """
        seen = self._seen.get(key)
        if seen is None or seen[0] != token:
            seen = self._seen[key] = token, self.timer()
        # Use `>` and not `>=`, because the owner holds the lease up to its very end.
        stands_still = self.timer() - seen[1] > lease.total_seconds()
        return stands_still or self.clock() > since + lease + CLOCK_MARGIN

    def _is_free(self, job: JobRecord, entry: Entry) -> bool:
        """Return whether the slot of a run is free: the run is over, and its launcher does not retry it."""
        run = self._up_to_date(job, entry)
        if run is None or not run.is_over:
            return False
        # A launcher records the end of its run before it moves the slot to the retry. Keep the slot for `START_LEASE`,
        # so that no new run takes it in between.
        is_retried = run.is_retried and job.definition is not None
        return not is_retried or self._is_over((job.name, run.run_id), run.token, run.modified_on, START_LEASE)

    def _has_ended_waiting(self, job: JobRecord, entry: Entry, looked_at: Collection[str]) -> bool:
        """Return whether a waiting run has ended. Of up to 500, read only those due to expire or in `looked_at`."""
        is_due = self.clock() >= entry.since + QUEUE_TIME or job.definition is None
        if not is_due and entry.run_id not in looked_at:
            return False
        run = self._up_to_date(job, entry)
        return run is not None and run.is_over

    def _up_to_date(self, job: JobRecord, entry: Entry) -> RunRecord | None:
        """Return `entry`'s run; None if not yet recorded. First end it if it is lost, expired or of a deleted job."""
        now = self.clock()
        run = self.records.run(job.name, entry.run_id)
        if run is None:
            # A start writes the entry of a run before its record: return None while the record may still be written.
            if not self._is_over((job.name, entry.run_id), "", entry.since, START_LEASE):
                return None
            return self._record_broken_start(job.name, entry)

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

    def _record_broken_start(self, job_name: str, entry: Entry) -> RunRecord | None:
        """Record an ERROR for a run whose start died or is very slow, so that the start cannot write a record later."""
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
        """Start the launcher of a STARTING run; if that fails, record the run as FAILED or ERROR and return False."""
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
