"""The launcher: the process that executes one run. The engine `SparkSubmit` starts its `main`."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, NamedTuple

from scripts.helpers.errors import StoreUnavailableError, WatermarkError
from scripts.helpers.job_runs.engines import SETTINGS, SparkSubmit, is_python_shell
from scripts.helpers.job_runs.job_record import JobRecord
from scripts.helpers.job_runs.last_words import describe
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.job_runs.run_store import RunStore
from scripts.helpers.job_runs.scheduler import START_LEASE, Scheduler
from scripts.helpers.protocol.dynamodb import make_table_client
from scripts.helpers.protocol.heartbeat import Heartbeat
from scripts.helpers.protocol.races import Written
from scripts.helpers.protocol.store import Store

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.05
"""Interval at which the launcher checks whether the job has ended; so a short job seems to take at least this long."""
TAIL_BYTES = 64 * 1024
"""Size of a log's end that is searched for the error; a Python traceback is far shorter."""
SURE_PART = 0.9
"""Part of a lease that its owner relies on. The rest is time to end the job, and a margin for slower or faster clocks:
other processes measure a lease with their own timers, from when they first saw the last renewal."""
_GUARDED = """
exec 3<&0 </dev/null
(
    trap '' TERM INT HUP; cat <&3 >/dev/null
    kill -9 0
) >/dev/null 2>&1 &
exec 3<&-
exec "$@"
"""
"""Starts a job with a guard in its process group. The launcher holds the other end of the guard's pipe: if it dies
for any reason, the pipe closes and the guard kills the group."""


class End(NamedTuple):
    """How a run ends: its final state, and its error if there is one."""

    state: str
    error: str | None


class Launcher:
    """Executes one run: claims it, starts its job, renews its lease, and records how it ended.

    Parameters
    ----------
    timer
        A function that returns seconds. It measures the lease, the time limit and the grace.
    told_to_end
        A function that returns whether the launcher itself received a SIGTERM.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        engine: SparkSubmit,
        run: RunRecord,
        timer: Callable[[], float] = time.monotonic,
        told_to_end: Callable[[], bool] = lambda: False,
    ) -> None:
        self._scheduler, self._records, self._engine, self._timer = scheduler, scheduler.records, engine, timer
        self._told_to_end = told_to_end
        self._run = run  # This is the record that the launcher last wrote or read.
        self._sure_until, self._is_ours = 0.0, True
        self._folder = engine.folder(run.job_name, run.run_id)
        self._job: subprocess.Popen[bytes] | None = None
        self._fetched_into: str | None = None
        self._logs: dict[str, BinaryIO] = {}

    def carry_out(self) -> Launcher | None:
        """Execute the run; return the launcher of its retry, or None if there is no retry."""
        try:
            is_claimed = self._claim()
            if is_claimed:
                # Renew in another thread: a table that hangs must not keep this thread from ending the job in time.
                Heartbeat(self, Launcher._beat, self._engine.beat_seconds)
                self._start_and_watch()
        finally:
            self._is_ours = False  # End the heartbeat thread, but do not wait: its request to the table might hang.
            self._kill()
            for log in self._logs.values():
                log.close()
        retry = self._retry() if is_claimed and not self._told_to_end() else None
        if retry is None:
            self._scheduler.settle(self._run.job_name)
            return None
        return Launcher(self._scheduler, self._engine, retry, self._timer, self._told_to_end)

    def _retry(self) -> RunRecord | None:
        """Record and return a retry, which gets the failed run's concurrency slot; None if the run is not retried."""
        failed, records = self._run, self._records
        if not failed.is_retried:
            return None
        now = self._scheduler.clock()
        retry = failed.retry(now).starting(now, START_LEASE)

        def hand_on(job: JobRecord | None) -> JobRecord | None:
            if job is None or job.definition is None or not job.has_slot(failed.run_id):
                return job
            return job.retried(failed.run_id, retry.run_id, now)

        job = records.change_job(failed.job_name, hand_on)
        has_slot = job is not None and job.has_slot(retry.run_id)
        if not has_slot or not isinstance(records.write_run(None, retry), Written):
            logger.warning("event=not_retried run=%s: its slot was given up", failed.run_id)
            return None
        logger.info("event=retried job=%s run=%s attempt=%d", retry.job_name, retry.run_id, retry.attempt)
        return retry

    # --- the record -----------------------------------------------------------------------------

    def _claim(self) -> bool:
        """Claim the run; return False if another launcher has it, or if it was stopped or given up before."""
        while self._run.state == "STARTING":
            # Read the clocks before the write: a later time would make the lease seem longer than the table says.
            written_at, now = self._timer(), self._scheduler.clock()
            running = replace(
                self._run.to("RUNNING", now),
                running_since=now,
                launcher=f"{socket.gethostname()}:{os.getpid()}",
                lease=timedelta(seconds=self._engine.lease_seconds),
                told={**self._run.told, "LogGroupName": str(self._folder)},
            )
            outcome = self._records.write_run(self._run, running)
            if isinstance(outcome, Written):
                self._run = running
                self._taken(written_at)
                return True
            if outcome.to is None:
                return False
            self._run = outcome.to
        # If the run was stopped before any launcher claimed it, record its end. Otherwise its launcher records the end.
        if self._run.state == "STOPPING" and self._run.running_since is None:
            self._end("STOPPED", None)
        return False

    def _taken(self, written_at: float) -> None:
        """Count the lease from the time just before its write, because the time when the table stored it is unknown."""
        self._sure_until = written_at + self._engine.lease_seconds * SURE_PART

    @property
    def _is_sure(self) -> bool:
        """Return whether the lease has certainly not ended. Until it ends, other processes take this run for alive."""
        return self._is_ours and self._timer() < self._sure_until

    def _beat(self) -> bool:
        """Renew the lease and read requests to stop; return False if the run is done or another process ended it."""
        seconds = self._engine.lease_seconds
        try:
            while self._is_ours:
                run, written_at = self._run, self._timer()
                renewed = run.renewed(self._scheduler.clock(), timedelta(seconds=seconds))
                # Retry a write for at most half a lease. If it fails, the other half is left to end the job in time.
                outcome = self._records.write_run(run, renewed, seconds / 2)
                if isinstance(outcome, Written):
                    self._run = renewed
                    self._taken(written_at)
                    break
                if outcome.to is None or outcome.to.is_over or outcome.to.launcher != run.launcher:
                    self._is_ours = False
                    break
                # Another process changed the record, for example to request a stop. Use its record and try again.
                self._run = outcome.to
        except WatermarkError as error:
            logger.warning("event=beat_failed run=%s error=%s", self._run.run_id, type(error).__name__)
        return self._is_ours

    def _end(self, state: str, error: str | None) -> None:
        def end(run: RunRecord) -> RunRecord:
            # Keep the record unchanged if another process has ended the run, or if another launcher has taken it.
            if run.is_over or run.launcher != self._run.launcher:
                return run
            return run.ended(state, self._scheduler.clock(), error)

        # Retry for one lease only. After that, other processes record the run as lost.
        give_up = self._timer() + self._engine.lease_seconds
        while True:
            try:
                ended = self._records.change_run(self._run, end)
                break
            except StoreUnavailableError:
                if self._timer() > give_up:
                    raise
                time.sleep(self._engine.beat_seconds)
        self._run = ended or self._run
        logger.info("event=ended run=%s state=%s", self._run.run_id, ended.state if ended else "none")

    # --- the process ----------------------------------------------------------------------------

    def _start_and_watch(self) -> None:
        try:
            self._folder = self._engine.make_folder(self._run.job_name, self._run.run_id)
            command = self._engine.command(self._run, self._script())
            # Check the lease again: if it expired while the script was fetched, another launcher may have the run.
            end = self._why_to_end()
            if end is None:
                self._job = self._spawn(command)
        except (OSError, ValueError, WatermarkError) as error:
            end = End("FAILED", f"The job cannot be started: {error}")
        if self._job is not None:
            end = self._watch(self._job)
        assert end is not None
        self._end(*end)

    def _why_to_end(self) -> End | None:
        """Return how the run ends if its job must not start or must be killed at once; otherwise None."""
        if self._told_to_end():
            return End("ERROR", "The launcher received SIGTERM, as when its machine shuts down.")
        if self._is_sure:
            return None
        seconds = self._engine.lease_seconds
        return End("ERROR", f"The lease of {seconds:g} s could not be renewed in time, so the job was killed.")

    def _watch(self, job: subprocess.Popen[bytes]) -> End:
        """Wait for the job, and stop it on request or timeout; return how the run ends."""
        minutes = self._run.told["Timeout"]
        deadline, end, kill_at = self._timer() + minutes * 60, None, 0.0
        while job.poll() is None:
            # Kill without grace: the lease may expire any moment, and then another attempt may start beside this one.
            if at_once := self._why_to_end():
                end = at_once
                logger.warning("event=killed run=%s: %s", self._run.run_id, end.error)
                self._signal(signal.SIGKILL)
                break
            now = self._timer()
            is_stopping = self._run.state == "STOPPING"
            if end is None and (is_stopping or now >= deadline):
                end = End("TIMEOUT", f"The run did not end within its timeout of {minutes} minutes.")
                if is_stopping:
                    end = End("STOPPED", None)
                kill_at = now + self._engine.grace_seconds
                self._signal(signal.SIGTERM)
            if end is not None and now >= kill_at:
                self._signal(signal.SIGKILL)
            time.sleep(min(POLL_SECONDS, self._engine.beat_seconds))
        code = job.wait()
        # If the lease is over, end as an ERROR, because other processes already show the run as an ERROR.
        end = end or self._why_to_end()
        self._kill()  # Kill before the end is recorded: a retry must not run beside children of this attempt.
        if end is not None or code == 0:
            return end or End("SUCCEEDED", None)
        # Search stdout first: spark-submit writes Python's stdout and stderr to it, and only its own log to stderr.
        names = ("stderr",) if is_python_shell(self._run) else ("stdout", "stderr")
        return End("FAILED", describe([self._tail(name) for name in names], code, str(self._folder)))

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        logger.info("event=spawned run=%s", self._run.run_id)
        # Keep the logs open, so that `_tail` reads these files even if the job replaced them under their names.
        self._logs |= {name: self._log(name) for name in ("stdout", "stderr")}
        return subprocess.Popen(
            ["/bin/sh", "-c", _GUARDED, "guard", *command],
            stdin=subprocess.PIPE,
            stdout=self._logs["stdout"],
            stderr=self._logs["stderr"],
            env=self._engine.variables(self._run),
            start_new_session=True,
        )

    def _log(self, name: str) -> BinaryIO:
        """Open a log that only its owner can read; fail if it was replaced with a link."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        return os.fdopen(os.open(self._folder / name, flags, 0o600), "a+b")

    def _signal(self, number: signal.Signals) -> None:
        if self._job is not None:
            with suppress(ProcessLookupError, PermissionError):  # macOS raises PermissionError if the job has ended.
                os.killpg(self._job.pid, number)

    def _kill(self) -> None:
        """Kill the rest of the job's process group, with its guard (`_GUARDED`); delete a script fetched from S3."""
        if self._job is not None:
            self._signal(signal.SIGKILL)
            self._job.wait()
            self._job = None  # Send no more signals: another process group may get the number of this one.
        if self._fetched_into is not None:
            shutil.rmtree(self._fetched_into, ignore_errors=True)

    # --- the script -----------------------------------------------------------------------------

    def _script(self) -> str:
        """Return the path of the script; download it if it is on S3."""
        location = self._engine.script(self._run)
        if location.startswith(("s3://", "s3a://")):
            return str(self._download_script(location))
        if "://" in location and is_python_shell(self._run):
            raise FileNotFoundError(f"{location}: a Python shell job takes a local file or one on S3.")
        if "://" not in location and not os.path.isfile(location):
            raise FileNotFoundError(f"the script {location} does not exist. Fix Command.ScriptLocation of the job.")
        return location

    def _download_script(self, location: str) -> Path:
        from scripts.helpers.listing.listing import Location
        from scripts.helpers.listing.s3 import make_client
        from scripts.helpers.reading.fetch import ObjectFetcher, Planned

        folder, _, name = location.rpartition("/")
        parsed = Location.parse(folder + "/")
        fetched = ObjectFetcher(parsed, make_client(1)).fetch(Planned(name, None, None, 0))
        # Avoid the log folder: a user who can rename the logs could replace the script before the job reads it.
        self._fetched_into = tempfile.mkdtemp(prefix="glue-watermarks-")
        path = Path(self._fetched_into, name or "script.py")
        path.write_bytes(fetched)
        return path

    def _tail(self, name: str) -> str:
        output = self._logs[name]
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - TAIL_BYTES))  # A short log would give a negative position, which seek refuses.
        return output.read().decode(errors="replace")


def make(settings: dict[str, Any], **options: Any) -> Launcher | None:
    """Return the launcher of one run from its settings; None if the run no longer exists."""
    shared = settings["shared"]
    keep = None if shared["keep_seconds"] is None else timedelta(seconds=shared["keep_seconds"])
    client = make_table_client(shared["region"], shared["endpoint"]) if shared["region"] else None
    records = RunStore(Store(shared["table"], client), keep)
    scheduler = Scheduler(records, None, lambda: datetime.now(timezone.utc))
    run = records.run(settings["job"], settings["run"])
    return Launcher(scheduler, SparkSubmit(**settings["engine"]), run, **options) if run else None


def main() -> None:
    """Execute the run that the environment names, and its retries."""
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)sZ level=%(levelname)s logger=%(name)s %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )

    launcher = make(json.loads(os.environ.pop(SETTINGS)), told_to_end=told_to_end(signal.SIGTERM))
    while launcher is not None:
        launcher = launcher.carry_out()


def told_to_end(*signals: signal.Signals) -> Callable[[], bool]:
    """Install handlers that only record signals; return a function that returns whether one arrived.

    An exception from a handler could look like a failed request to the code that accesses the table.
    """
    told: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        told.append(number)

    for number in signals:
        signal.signal(number, note)
    return lambda: bool(told)
