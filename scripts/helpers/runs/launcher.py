"""The process that carries out one run: `python -m scripts.helpers.runs.launcher`, started by the engine."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import FrameType
from typing import Any

from scripts.helpers.errors import StoreUnavailableError, WatermarkError
from scripts.helpers.runs.engines import SETTINGS, Launching, SparkSubmit, is_python_shell, script_location
from scripts.helpers.runs.last_words import describe
from scripts.helpers.runs.run_record import RunRecord
from scripts.helpers.runs.run_store import RunStore
from scripts.helpers.runs.scheduler import Scheduler
from scripts.helpers.store import Store, make_client

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.05
TAIL_BYTES = 64 * 1024
_GUARDED = """
exec 3<&0 </dev/null
( trap '' TERM INT HUP; cat <&3 >/dev/null; kill -9 0 ) >/dev/null 2>&1 &
exec 3<&-
exec "$@"
"""
"""Starts a job with a guard in its process group. The launcher holds the other end of the guard's pipe: when the
launcher dies, however that is, the pipe ends and the guard kills the group."""


class ToldToEndError(Exception):
    """The launcher itself got a SIGTERM."""


class Launcher:
    """Carries out one run: claims it, starts its job, keeps its lease, and writes how it ended.

    Parameters
    ----------
    timer
        Seconds that the time limit is measured by.
    """

    def __init__(
        self, scheduler: Scheduler, engine: SparkSubmit, run: RunRecord, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._scheduler, self._records, self._engine, self._timer = scheduler, scheduler.records, engine, timer
        self._run = run
        self._lease = timedelta(seconds=engine.lease_seconds)
        self._folder = engine.folder(run.job_name, run.run_id)
        self._job: subprocess.Popen[bytes] | None = None
        self._beaten = time.monotonic()

    def carry_out(self) -> None:
        """Do it all; return when the run is over, or belongs to nobody here any more."""
        try:
            if self._claim():
                self._start_and_watch()
        except ToldToEndError:
            self._kill()
            self._end("ERROR", "The launcher was told to end (SIGTERM), as when its machine goes down.")
            return
        finally:
            self._kill()
        self._scheduler.tend(self._run.job_name)

    # --- the record -----------------------------------------------------------------------------

    def _claim(self) -> bool:
        """Take the run. False: another launcher has it, or it was stopped or given up before."""
        now = self._scheduler.clock()
        while self._run.state == "STARTING":
            running = replace(
                self._run.to("RUNNING", now, running_since=now, launcher=f"{socket.gethostname()}:{os.getpid()}"),
                lease_until=now + self._lease,
                told={**self._run.told, "LogGroupName": str(self._folder)},
            )
            current = self._records.write_run(self._run, running)
            if current is None:
                return False
            self._run = current
            if current.token == running.token:
                return True
        if self._run.state == "STOPPING" and self._run.running_since is None:
            self._end("STOPPED", None)
        return False

    def _beat(self) -> bool:
        """Renew the lease, and learn what was asked meanwhile. False: the run was given up, so it is no more ours."""
        try:
            while True:
                renewed = self._run.renewed(self._scheduler.clock(), self._lease)
                current = self._records.write_run(self._run, renewed, self._engine.lease_seconds / 2)
                if current is None or current.is_over or current.launcher != self._run.launcher:
                    return False
                self._run = current
                if current.token == renewed.token:
                    self._beaten = time.monotonic()
                    return True
        except WatermarkError as error:
            logger.warning("event=beat_failed run=%s error=%s", self._run.run_id, type(error).__name__)
            return time.monotonic() - self._beaten < self._engine.lease_seconds

    def _end(self, state: str, error: str | None) -> None:
        def end(run: RunRecord) -> RunRecord:
            if run.is_over or run.launcher != self._run.launcher:
                return run
            return self._scheduler.over(run.to(state, self._scheduler.clock(), error=error))

        give_up = time.monotonic() + self._engine.lease_seconds
        while True:
            try:
                self._run = self._records.change_run(self._run, end) or self._run
                break
            except StoreUnavailableError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(self._engine.beat_seconds)
        logger.info("event=ended run=%s state=%s", self._run.run_id, self._run.state)

    # --- the process ----------------------------------------------------------------------------

    def _start_and_watch(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            command = self._engine.command(self._run, self._script())
            self._job = job = self._spawn(command)
        except (OSError, WatermarkError) as error:
            self._end("FAILED", f"The job cannot be started: {error}")
            return
        told = self._watch(job)
        if told is None:
            logger.warning("event=given_up run=%s: it was given up meanwhile, so its job is killed", self._run.run_id)
            return
        code = job.wait()
        self._kill()
        logs = str(self._folder)
        if told == "TIMEOUT":
            self._end("TIMEOUT", f"The run did not end within its timeout of {self._run.told['Timeout']} minutes.")
        elif told == "STOPPED":
            self._end("STOPPED", None)
        elif code == 0:
            self._end("SUCCEEDED", None)
        else:
            # spark-submit writes both outputs of Python to its standard output, and its own log to the other.
            names = ("stderr",) if is_python_shell(self._run) else ("stdout", "stderr")
            self._end("FAILED", describe([self._tail(name) for name in names], code, logs))

    def _watch(self, job: subprocess.Popen[bytes]) -> str | None:
        """Wait for the end of the job; return what it was ended for, "" for itself, None if the run was given up."""
        deadline = self._timer() + self._run.told["Timeout"] * 60
        told, kill_at = "", 0.0
        next_beat = time.monotonic() + self._engine.beat_seconds
        while job.poll() is None:
            now = time.monotonic()
            if now >= next_beat:
                if not self._beat():
                    return None
                next_beat = time.monotonic() + self._engine.beat_seconds
            if not told and (self._run.state == "STOPPING" or self._timer() >= deadline):
                told = "STOPPED" if self._run.state == "STOPPING" else "TIMEOUT"
                kill_at = now + self._engine.grace_seconds
                self._signal(signal.SIGTERM)
            if told and now >= kill_at:
                self._kill()
            time.sleep(min(POLL_SECONDS, self._engine.beat_seconds))
        return told

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self._folder / "stdout").open("ab") as output, (self._folder / "stderr").open("ab") as errors:
            return subprocess.Popen(
                ["/bin/sh", "-c", _GUARDED, "job", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=errors,
                env=self._engine.variables(self._run),
                start_new_session=True,
            )

    def _signal(self, number: signal.Signals) -> None:
        if self._job is not None:
            with suppress(ProcessLookupError, PermissionError):  # macOS says the latter of a group of zombies.
                os.killpg(self._job.pid, number)

    def _kill(self) -> None:
        """End what is left of the job's process group, the guard included."""
        if self._job is not None:
            self._signal(signal.SIGKILL)
            self._job.wait()
            self._job = None  # The group is gone, and its number may come to mean another one.

    # --- the script -----------------------------------------------------------------------------

    def _script(self) -> str:
        """Return a local file with the script; it is fetched if it is on S3."""
        location = script_location(self._run)
        if location.startswith(("s3://", "s3a://")):
            return str(self._fetched(location))
        if "://" in location and not location.startswith("file://"):
            if is_python_shell(self._run):
                raise FileNotFoundError(f"{location}: a Python shell job takes a local file or one on S3.")
            return location
        path = os.path.abspath(location.removeprefix("file://"))
        if not os.path.isfile(path):
            raise FileNotFoundError(f"the script {path} does not exist. Mend Command.ScriptLocation of the job.")
        return path

    def _fetched(self, location: str) -> Path:
        from scripts.helpers.object_fetch import ObjectFetcher, Planned
        from scripts.helpers.object_listing import Location
        from scripts.helpers.s3_client import make_client as make_s3_client

        folder, _, name = location.rpartition("/")
        parsed = Location.parse(folder + "/")
        fetched = ObjectFetcher(parsed, make_s3_client(1)).fetch(Planned(name, None, None, 0))
        path = self._folder / (name or "script.py")
        path.write_bytes(fetched)
        return path

    def _tail(self, name: str) -> str:
        with (self._folder / name).open("rb") as output:
            size = output.seek(0, os.SEEK_END)
            output.seek(max(0, size - TAIL_BYTES))
            return output.read().decode(errors="replace")


def make(settings: dict[str, Any], timer: Callable[[], float] = time.monotonic) -> Launcher | None:
    """Make the launcher of one run from its settings; None if there is no such run any more."""
    engine = SparkSubmit(**settings["engine"])
    records = RunStore(Store(settings["table"], make_client(settings["region"], settings["endpoint"])))
    keep = settings["keep_seconds"]
    more = {name: settings[name] for name in ("table", "region", "endpoint", "queue_seconds", "keep_seconds")}
    scheduler = Scheduler(
        records,
        Launching(engine, more),
        lambda: datetime.now(timezone.utc),
        timedelta(seconds=settings["queue_seconds"]),
        None if keep is None else timedelta(seconds=keep),
    )
    run = records.run(settings["job"], settings["run"])
    return Launcher(scheduler, engine, run, timer) if run else None


def main() -> None:
    """Carry out the run that the environment names."""
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)sZ level=%(levelname)s logger=%(name)s %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )

    def told_to_end(_number: int, _frame: FrameType | None) -> None:
        raise ToldToEndError

    signal.signal(signal.SIGTERM, told_to_end)
    launcher = make(json.loads(os.environ.pop(SETTINGS)))
    if launcher is not None:
        launcher.carry_out()


if __name__ == "__main__":
    main()
