"""The process that carries out one run: `main`, started by the engine."""

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
"""How soon the end of a job is noticed, and so how long a short job seems to take."""
TAIL_BYTES = 64 * 1024
"""How much of a log's end is searched for the error; a Python traceback is far shorter."""
SURE_PART = 0.9
"""Part of a lease in which its owner may count on it. The rest is for ending the job, and for clocks that run at other
speeds: others measure one lease by a timer of their own, from when they first saw the last renewal."""
_GUARDED = """
exec 3<&0 </dev/null
(
    trap '' TERM INT HUP; cat <&3 >/dev/null
    kill -9 0
) >/dev/null 2>&1 &
exec 3<&-
exec "$@"
"""
"""Starts a job with a guard in its process group. The launcher holds the other end of the guard's pipe: when it dies,
however that is, the pipe ends and the guard kills the group."""


class End(NamedTuple):
    """How a run ends: its last state, and the error of one."""

    state: str
    error: str | None


class Launcher:
    """Carries out one run: claims it, starts its job, keeps its lease, and writes how it ended.

    Parameters
    ----------
    timer
        Seconds that the lease, the time limit and the grace are measured by.
    told_to_end
        Tells whether the launcher itself got a SIGTERM.
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
        self._run = run  # As it was when it was last written here, or was read by `_beat`.
        self._sure_until, self._is_ours = 0.0, True
        self._folder = engine.folder(run.job_name, run.run_id)
        self._job: subprocess.Popen[bytes] | None = None
        self._fetched_into: str | None = None
        self._logs: dict[str, BinaryIO] = {}

    def carry_out(self) -> Launcher | None:
        """Do it all; return the launcher of the retry if one follows, else None."""
        try:
            is_claimed = self._claim()
            if is_claimed:
                # Beside the work, so that a table that hangs never makes the lease last too long.
                Heartbeat(self, Launcher._beat, self._engine.beat_seconds)
                self._start_and_watch()
        finally:
            self._is_ours = False  # A renewal that is under way is not waited for.
            self._kill()
            for log in self._logs.values():
                log.close()
        retry = self._retry() if is_claimed and not self._told_to_end() else None
        if retry is None:
            self._scheduler.settle(self._run.job_name)
            return None
        return Launcher(self._scheduler, self._engine, retry, self._timer, self._told_to_end)

    def _retry(self) -> RunRecord | None:
        """Give the slot of the run to its retry, if one follows, and record that."""
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
        """Take the run. False: another launcher has it, or it was stopped or given up before."""
        while self._run.state == "STARTING":
            # Taken before the write: a lease that counts from after it would outlast the one in the table.
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
        # Stopped before any launcher had it, so nobody else will write its end. With `running_since` another one will.
        if self._run.state == "STOPPING" and self._run.running_since is None:
            self._end("STOPPED", None)
        return False

    def _taken(self, written_at: float) -> None:
        """Count the lease from before a write that took effect: when it reached the table is not known."""
        self._sure_until = written_at + self._engine.lease_seconds * SURE_PART

    @property
    def _is_sure(self) -> bool:
        """Tell whether nobody can have given the run up."""
        return self._is_ours and self._timer() < self._sure_until

    def _beat(self) -> bool:
        """Renew the lease, and learn what was asked meanwhile. False: it was let go, or the run was given up."""
        seconds = self._engine.lease_seconds
        try:
            while self._is_ours:
                run, written_at = self._run, self._timer()
                renewed = run.renewed(self._scheduler.clock(), timedelta(seconds=seconds))
                # Half a lease for one write: a table that hangs for longer leaves time to end the job all the same.
                outcome = self._records.write_run(run, renewed, seconds / 2)
                if isinstance(outcome, Written):
                    self._run = renewed
                    self._taken(written_at)
                    break
                if outcome.to is None or outcome.to.is_over or outcome.to.launcher != run.launcher:
                    self._is_ours = False
                    break
                # Somebody else wrote, as who asks for a stop does: that is learned from it, and this tried again.
                self._run = outcome.to
        except WatermarkError as error:
            logger.warning("event=beat_failed run=%s error=%s", self._run.run_id, type(error).__name__)
        return self._is_ours

    def _end(self, state: str, error: str | None) -> None:
        def end(run: RunRecord) -> RunRecord:
            # It was given up and ended by another, who may have made a retry of it: that end stays.
            if run.is_over or run.launcher != self._run.launcher:
                return run
            return run.ended(state, self._scheduler.clock(), error)

        # Later it would be in vain: after a lease without a sign whoever looks writes that the run was lost.
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
            # To fetch the script may have taken longer than the lease: then another launcher may have the run.
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
        """Return how the run ends if there must be no job at once."""
        if self._told_to_end():
            return End("ERROR", "The launcher received SIGTERM, as when its machine shuts down.")
        if self._is_sure:
            return None
        seconds = self._engine.lease_seconds
        return End("ERROR", f"The lease of {seconds:g} s could not be renewed in time, so the job was killed.")

    def _watch(self, job: subprocess.Popen[bytes]) -> End:
        """Wait for the end of the job, and see to it; return how the run ends."""
        minutes = self._run.told["Timeout"]
        deadline, end, kill_at = self._timer() + minutes * 60, None, 0.0
        while job.poll() is None:
            # No grace here: the lease may end any moment, and then another attempt may start beside this one.
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
        # Nobody takes the word of a launcher whose lease is over: those who look call the run an ERROR already.
        end = end or self._why_to_end()
        self._kill()  # Before the end is written: a retry must not meet children of this attempt.
        if end is not None or code == 0:
            return end or End("SUCCEEDED", None)
        # spark-submit writes both outputs of Python to its standard output, and its own log to the other.
        names = ("stderr",) if is_python_shell(self._run) else ("stdout", "stderr")
        return End("FAILED", describe([self._tail(name) for name in names], code, str(self._folder)))

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        logger.info("event=spawned run=%s", self._run.run_id)
        # They stay open for `_tail`: by then the name of a log may be that of another file.
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
        """Open a log that its owner alone can read; never one that somebody has put a link in the place of."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        return os.fdopen(os.open(self._folder / name, flags, 0o600), "a+b")

    def _signal(self, number: signal.Signals) -> None:
        if self._job is not None:
            with suppress(ProcessLookupError, PermissionError):  # macOS says the latter of a group of zombies.
                os.killpg(self._job.pid, number)

    def _kill(self) -> None:
        """End what is left of the job's process group, the guard included; remove a fetched script."""
        if self._job is not None:
            self._signal(signal.SIGKILL)
            self._job.wait()
            self._job = None  # The group is gone, and its number may come to mean another one.
        if self._fetched_into is not None:
            shutil.rmtree(self._fetched_into, ignore_errors=True)

    # --- the script -----------------------------------------------------------------------------

    def _script(self) -> str:
        """Return a local file with the script; it is fetched if it is on S3."""
        location = self._engine.script(self._run)
        if location.startswith(("s3://", "s3a://")):
            return str(self._fetched(location))
        if "://" in location and is_python_shell(self._run):
            raise FileNotFoundError(f"{location}: a Python shell job takes a local file or one on S3.")
        if "://" not in location and not os.path.isfile(location):
            raise FileNotFoundError(f"the script {location} does not exist. Fix Command.ScriptLocation of the job.")
        return location

    def _fetched(self, location: str) -> Path:
        from scripts.helpers.listing.listing import Location
        from scripts.helpers.listing.s3 import make_client
        from scripts.helpers.reading.fetch import ObjectFetcher, Planned

        folder, _, name = location.rpartition("/")
        parsed = Location.parse(folder + "/")
        fetched = ObjectFetcher(parsed, make_client(1)).fetch(Planned(name, None, None, 0))
        # Apart from the logs: who can rename these could put another script in its place before the job reads it.
        self._fetched_into = tempfile.mkdtemp(prefix="glue-watermarks-")
        path = Path(self._fetched_into, name or "script.py")
        path.write_bytes(fetched)
        return path

    def _tail(self, name: str) -> str:
        output = self._logs[name]
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - TAIL_BYTES))  # A seek to before the start would fail on short logs.
        return output.read().decode(errors="replace")


def make(settings: dict[str, Any], **options: Any) -> Launcher | None:
    """Make the launcher of one run from its settings; None if there is no such run any more."""
    shared = settings["shared"]
    keep = None if shared["keep_seconds"] is None else timedelta(seconds=shared["keep_seconds"])
    client = make_table_client(shared["region"], shared["endpoint"]) if shared["region"] else None
    records = RunStore(Store(shared["table"], client), keep)
    scheduler = Scheduler(records, None, lambda: datetime.now(timezone.utc))
    run = records.run(settings["job"], settings["run"])
    return Launcher(scheduler, SparkSubmit(**settings["engine"]), run, **options) if run else None


def main() -> None:
    """Carry out the run that the environment names, and its retries."""
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
    """Let some signals end nothing by themselves; return what tells whether one came.

    An exception raised in between would be taken for a failed request by whatever talks to the table.
    """
    told: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        told.append(number)

    for number in signals:
        signal.signal(number, note)
    return lambda: bool(told)
