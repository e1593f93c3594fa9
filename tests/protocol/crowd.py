"""Start, stop and kill workers, then report what went wrong and how often each event happened."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.helpers.protocol.head import LogEntry
from scripts.helpers.watermarks import Watermarks
from tests.protocol.worker import JOB, Folder, Worker, checksum
from tests.support.places import REGION, REPOSITORY

WORKERS = 5
STOPPING = 0.3
"""The share of the randomly acting processes that stop themselves once they have a plan in hand."""
MOST_STOPPED = 2
SKEWS = (0.0, 0.0, 0.0, -2.0, 2.0, -86_400.0, 86_400.0)
IN_HAND = ("frozen", "wrote", "stored")
"""Last steps of a process that died between freeze and commit."""
STAGES = ("begun", *IN_HAND, "committed")
"""Every step of a run that writes a batch."""
ENDED = ("fenced", "committed", "aborted", "unanswered", "failure")
"""Steps that end a run."""


@dataclass(frozen=True)
class Process:
    """A worker in a process of its own. Its log is named by `seed`, its notes by the process id and `seed`."""

    popen: subprocess.Popen[bytes]
    seed: str

    @property
    def notes(self) -> str:
        return f"{self.popen.pid}-{self.seed}"

    def is_stopped(self) -> bool:
        """Return whether the process has stopped. Its note precedes SIGSTOP, so it is too early for a SIGCONT."""
        return os.waitid(os.P_PID, self.popen.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None

    def wake(self) -> None:
        self.popen.send_signal(signal.SIGCONT)


class Crowd:
    """Many processes on one job, one source and one sink: some follow a script, some act at random.

    Attributes
    ----------
    kills : Counter
        How many processes were killed, by the last step that they had noted.
    ended : list of str
        Processes that ended by themselves, with the end of their log.
    """

    def __init__(self, watermarks: Watermarks, url: str, root: Path, seed: int, *, forgetful: bool = False) -> None:
        self.folder, self.watermarks, self.seed = Folder(root), watermarks, seed
        self.kills: Counter[str] = Counter()
        self.ended: list[str] = []
        at = {"table": watermarks.table_name, "url": url, "region": REGION}
        self._settings = {**at, "folder": str(root), "forgetful": forgetful}
        self._root, self._random = root, random.Random(seed)
        self._processes: list[Process] = []
        self._stopped: list[Process] = []
        self._woken: set[tuple[str, str]] = set()
        self._started, self._wish = 0, 1.0
        self._last_run: str | None = None
        self.folder.grow(0)

    # --- scripted events -------------------------------------------------------------------------

    def play(self) -> None:
        """Make each event happen that a valid run needs, without depending on chance or a clock.

        A worker is killed at every stage of its run. The next worker replays the frozen plan, with the same run id or
        with a new one that takes the job over. Two workers are late: while they were stopped, another worker took the
        job over, and has either done nothing yet or committed their plan.
        """
        with self._killing_all():
            for stage in STAGES:
                self._kill(self._reach(stage, same_run=stage == "wrote"))
            self._be_late("frozen", "begun")
            self._be_late("stored", "committed")

    def _be_late(self, stage: str, other_stage: str) -> None:
        """Stop a worker at `stage`, let another one take over and reach `other_stage`, then wake the first one."""
        late = self._reach(stage)
        other = self._reach(other_stage)
        before = len(self._noted(late.notes))
        late.wake()
        self._wait_for(late, lambda: any(fact["step"] in ENDED for fact in self._noted(late.notes)[before:]))
        self._kill(late)
        self._kill(other)

    def _reach(self, stage: str, *, same_run: bool = False) -> Process:
        """Start a worker that takes the job over, and wait until it has stopped after a stage."""
        self.folder.grow(self.folder.rows() + 1)
        process = self._start(hasty=True, stop_at=stage, first_run=self._last_run if same_run else None)
        self._wait_for(process, process.is_stopped)
        return process

    def _wait_for(self, process: Process, happened: Callable[[], bool]) -> None:
        """Wait until it happened; fail if the process ends. pytest's timeout limits the wait."""
        while not happened():
            assert process.popen.poll() is None, (self._root / f"{process.seed}.log").read_text()[-1000:]
            time.sleep(0.005)

    # --- random events ---------------------------------------------------------------------------

    def work(self, seconds: float) -> None:
        """Add rows, start workers and kill some at random for some seconds; then kill the rest."""
        deadline, next_kill = time.monotonic() + seconds, 0.0
        with self._killing_all():
            while time.monotonic() < deadline:
                self.folder.grow(self.folder.rows() + self._random.randint(0, 8))
                self._drop_ended()
                self._wake_late_ones()
                while len(self._processes) < WORKERS:
                    self._start_one()
                if time.monotonic() >= next_kill and self._kill_some():
                    next_kill = time.monotonic() + self._random.uniform(0.3, 1.3)
                time.sleep(0.05)

    def drain(self) -> None:
        """Let one worker without pauses or randomness process the remaining rows."""
        worker = Worker(self.folder, self.watermarks, "drain", hasty=True)
        for _ in range(10_000):
            if not worker.step():
                return
        raise AssertionError("one clean worker does not come to an end")

    def _start_one(self) -> None:
        again, self._last_run = self._last_run, None
        self._start(
            skew=self._random.choice(SKEWS),
            first_run=again if self._random.random() < 0.7 else None,
            stop_at=self._random.choice(IN_HAND) if self._random.random() < STOPPING else None,
        )

    def _start(
        self, *, hasty: bool = False, skew: float = 0.0, first_run: str | None = None, stop_at: str | None = None
    ) -> Process:
        self._started += 1
        seed = f"{self.seed}-{self._started}"
        settings = {"seed": seed, "skew": skew, "first_run": first_run, "hasty": hasty, "stop_at": stop_at}
        command = [sys.executable, "-m", "tests.protocol.worker", json.dumps(self._settings | settings)]
        with (self._root / f"{seed}.log").open("wb") as log:
            process = Process(subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log), seed)
        self._processes.append(process)
        return process

    def _wake_late_ones(self) -> None:
        """Wake stopped workers once another run has taken the job: now they are late."""
        for process in [process for process in self._processes if process.is_stopped()]:
            self._processes.remove(process)
            self._stopped.append(process)
        if not self._stopped:
            return
        fence = self.watermarks.latest(JOB).fence
        for process in list(self._stopped):
            last = self._last_step(process)
            if fence > last["fence"] or len(self._stopped) > MOST_STOPPED:
                process.wake()
                self._stopped.remove(process)
                self._processes.append(process)
                self._woken.add((process.seed, last["run"]))

    def _kill_some(self) -> bool:
        """Kill a worker with a plan in hand, any worker, or all as in a power cut; False if none may be killed."""
        fit = [process for process in self._processes if self._is_fit(process)]
        if not fit:
            return False
        self._kill(self._random.choice(fit))
        while self._wish < 0.1 and self._processes:
            self._kill(self._processes[0])
        self._wish = self._random.random()
        return True

    def _is_fit(self, process: Process) -> bool:
        """Return whether a process may be killed now; one that was woken up may first try to end its run."""
        last = self._last_step(process)
        if last["step"] in IN_HAND:
            return (process.seed, last["run"]) not in self._woken
        return self._wish < 0.4 and last["step"] != "nothing"

    @contextmanager
    def _killing_all(self) -> Iterator[None]:
        """Kill every process at the end of the block; a stopped one would never end by itself."""
        try:
            yield
        finally:
            while self._processes or self._stopped:
                self._kill((self._processes or self._stopped)[0])

    def _kill(self, process: Process) -> None:
        process.popen.kill()
        process.popen.wait()
        last = self._last_step(process)
        self.kills[last["step"]] += 1
        if last["step"] in IN_HAND:
            self._last_run = last["run"]
        among = self._processes if process in self._processes else self._stopped
        among.remove(process)

    def _last_step(self, process: Process) -> dict[str, Any]:
        noted = self._noted(process.notes)
        return noted[-1] if noted else {"step": "nothing"}

    def _drop_ended(self) -> None:
        for process in list(self._processes):
            if process.popen.poll() is not None:
                self._processes.remove(process)
                said = (self._root / f"{process.seed}.log").read_text()[-1000:]
                self.ended.append(f"worker {process.seed} ended with exit code {process.popen.returncode}: {said}")

    # --- afterwards -----------------------------------------------------------------------------

    def _noted(self, name: str) -> list[dict[str, Any]]:
        path = self.folder.notes / name
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def steps(self) -> list[dict[str, Any]]:
        """Return the notes of all processes."""
        return [fact for path in sorted(self.folder.notes.iterdir()) for fact in self._noted(path.name)]

    def lacks(self, least: dict[str, int]) -> list[str]:
        """Name each event that happened less often than `least` requires for a valid run."""
        tried = self.tried()
        return [name for name, count in least.items() if tried[name] < count]

    def tried(self) -> dict[str, int]:
        """Count the events that make a run of this crowd a valid proof."""
        steps = self.steps()
        return {
            "killed": sum(self.kills.values()),
            **{f"killed after {stage}": self.kills[stage] for stage in STAGES},
            "taken over": sum(fact.get("taken_over", False) for fact in steps),
            "replayed": sum(fact.get("replay", False) for fact in steps),
            "tried again by the same id": sum(fact.get("attempt", 1) > 1 for fact in steps),
            "late and fenced": sum(fact["step"] == "fenced" for fact in steps),
            "late and already": sum(fact.get("outcome") == "already" for fact in steps),
            "unanswered": sum(fact["step"] == "unanswered" for fact in steps),
            "versions": self.watermarks.latest(JOB).version,
        }

    def problems(self) -> list[str]:
        """Return contradictions between sink, source, notes and history; the protocol promises that there are none."""
        history = self.watermarks.history(JOB)[::-1]
        return [*self.ended, *self._failures(), *self._sink(history), *self._commits(history), *self._log(history)]

    def _failures(self) -> list[str]:
        return [f"a worker noted: {fact['error']}" for fact in self.steps() if fact["step"] == "failure"]

    def _sink(self, history: list[LogEntry]) -> list[str]:
        found, batches, source = [], self.folder.batches(), self.folder.rows()
        rows = Counter(row for text in batches.values() for row in json.loads(text)["rows"])
        found += [f"row {row} is {rows[row]} times at the sink" for row in range(source) if rows[row] != 1]
        found += [f"row {row} is at the sink and not in the source" for row in rows if row >= source]
        versions = {int(batch_id.rpartition("-")[2]) for batch_id in batches}
        if versions != {entry.version for entry in history}:
            found.append(f"batches at the sink are {sorted(versions)}, not those of the history")
        written: dict[str, set[str]] = defaultdict(set)
        for fact in self.steps():
            if fact["step"] == "wrote":
                written[fact["batch"]].add(fact["checksum"])
        for batch_id, text in batches.items():
            if written[batch_id] != {checksum(text)}:
                found.append(f"batch {batch_id} was written with {len(written[batch_id])} contents")
        return found

    def _commits(self, history: list[LogEntry]) -> list[str]:
        told = Counter(fact["version"] for fact in self.steps() if fact.get("outcome") == "done")
        known = {entry.version: entry.change.run_id for entry in history}
        found = [f"version {version} was committed {times} times" for version, times in told.items() if times > 1]
        for fact in self.steps():
            if fact.get("outcome") == "done" and known.get(fact["version"]) != fact["run"]:
                found.append(f"run {fact['run']} was told that it made version {fact['version']}, and did not")
        return found

    def _log(self, history: list[LogEntry]) -> list[str]:
        found = []
        if [entry.version for entry in history] != list(range(1, self.watermarks.latest(JOB).version + 1)):
            found.append(f"the versions are {[entry.version for entry in history]}")
        low = 0
        for entry in history:
            high = entry.watermarks["rows"]
            if entry.change.metrics != {"rows_written": high - low} or high <= low:
                found.append(f"version {entry.version} goes from {low} to {high} and counts {entry.change.metrics}")
            assert entry.change.run_id is not None
            if self.watermarks.get_watermark(JOB, entry.change.run_id)["version"] < entry.version:
                found.append(f"the run item of version {entry.version} is older than it")
            low = high
        return found
