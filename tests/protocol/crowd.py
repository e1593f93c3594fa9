"""Starts workers, kills them at random, and afterwards tells what went wrong and what was tried."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from scripts.helpers.errors import FencedError
from scripts.helpers.protocol.head import LogEntry
from scripts.helpers.watermarks import Watermarks
from tests.conftest import REPOSITORY
from tests.protocol.worker import JOB, Folder, Worker, checksum

WORKERS = 5
PAUSES = 0.1
"""How often a process that has a plan in hand is stopped."""
SKEWS = (0.0, 0.0, 0.0, -2.0, 2.0, -86_400.0, 86_400.0)
IN_HAND = ("frozen", "wrote")
"""Last steps of a process that died between freeze and commit."""
ENDED = ("fenced", "committed", "aborted", "unanswered", "failure")
"""Last step of a run."""


class Crowd:
    """At least five processes on one job, one source and one sink.

    Attributes
    ----------
    kills : Counter
        How many processes were killed, by the last step that they had noted.
    ended : list of str
        Processes that ended by themselves, with what they said.
    """

    def __init__(self, watermarks: Watermarks, url: str, root: Path, seed: int, *, forgetful: bool = False) -> None:
        self.folder, self.watermarks, self.seed = Folder(root), watermarks, seed
        self.kills: Counter[str] = Counter()
        self.ended: list[str] = []
        self._settings = {"table": watermarks.table_name, "url": url, "folder": str(root), "forgetful": forgetful}
        self._root, self._random = root, random.Random(seed)
        self._processes: list[tuple[subprocess.Popen[bytes], str]] = []
        self._paused: tuple[subprocess.Popen[bytes], str] | None = None
        self._fence, self._woken, self._taken = 0, ("", ""), 0
        self._started, self._wish = 0, 1.0
        self._last_run: str | None = None
        self.folder.grow(0)

    def work(self, seconds: float) -> None:
        """Let rows come and processes work and die for some seconds; kill all that is left."""
        deadline, next_kill = time.monotonic() + seconds, 0.0
        try:
            while time.monotonic() < deadline:
                self.folder.grow(self.folder.rows() + self._random.randint(0, 8))
                self._drop_ended()
                self._pause_one()
                while len(self._processes) < WORKERS:
                    self._start()
                if time.monotonic() >= next_kill and self._kill_some():
                    next_kill = time.monotonic() + self._random.uniform(0.3, 1.3)
                time.sleep(0.05)
        finally:
            self._wake()
            while self._processes:
                self._kill(0)

    def be_late(self) -> None:
        """Stop one worker that has a plan in hand, take the job over, and let the worker go on: now it is late."""
        self._start()
        process, seed = self._processes[-1]
        try:
            self._wait_for(lambda: self._last_step(-1)["step"] in IN_HAND)
            process.send_signal(signal.SIGSTOP)
            name = f"{process.pid}-{seed}"
            before = len(self._noted(name))
            run = self.watermarks.begin(JOB, f"jr_late-{seed}", take_over=True)
            self._taken += 1
            process.send_signal(signal.SIGCONT)
            self._wait_for(lambda: any(fact["step"] in ENDED for fact in self._noted(name)[before:]))
            with suppress(FencedError):  # The worker may have taken it back.
                run.abort()
        finally:
            self._kill(-1)

    def _wait_for(self, happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not happened() and time.monotonic() < deadline:
            self.folder.grow(self.folder.rows() + 1)
            time.sleep(0.005)

    def drain(self) -> None:
        """Let one clean worker take what is left."""
        worker = Worker(self.folder, self.watermarks, "drain", hasty=True)
        for _ in range(10_000):
            if not worker.step():
                return
        raise AssertionError("one clean worker does not come to an end")

    def _start(self) -> None:
        self._started += 1
        seed = f"{self.seed}-{self._started}"
        again, self._last_run = self._last_run, None
        settings = self._settings | {
            "seed": seed,
            "skew": self._random.choice(SKEWS),
            "first_run": again if self._random.random() < 0.7 else None,
        }
        command = [sys.executable, "-m", "tests.protocol.worker", json.dumps(settings)]
        with (self._root / f"{seed}.log").open("wb") as log:
            self._processes.append((subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log), seed))

    def _pause_one(self) -> None:
        """Stop one that has a plan in hand, as a machine that sleeps does, until another has taken the job over."""
        if self._paused is not None:
            if self.watermarks.latest(JOB).fence > self._fence:
                self._wake()
            return
        for index in range(len(self._processes)):
            last = self._last_step(index)
            if last["step"] in IN_HAND and self._random.random() < PAUSES:
                self._paused, self._fence = self._processes.pop(index), last["fence"]
                self._paused[0].send_signal(signal.SIGSTOP)
                return

    def _wake(self) -> None:
        if self._paused is not None:
            self._paused[0].send_signal(signal.SIGCONT)
            self._processes.append(self._paused)
            self._paused, self._woken = None, (self._paused[1], self._last_step(-1)["run"])

    def _kill_some(self) -> bool:
        """Kill one that has a plan in hand, or any one, or all as a power cut does; False if there was none."""
        fit = [index for index in range(len(self._processes)) if self._is_fit(index)]
        if not fit:
            return False
        self._kill(self._random.choice(fit))
        while self._wish < 0.1 and self._processes:
            self._kill(0)
        self._wish = self._random.random()
        return True

    def _is_fit(self, index: int) -> bool:
        """Tell whether one may be killed now; one that was woken may first try to end its run."""
        last = self._last_step(index)
        if last["step"] in IN_HAND:
            return (self._processes[index][1], last["run"]) != self._woken
        return self._wish < 0.4 and last["step"] != "nothing"

    def _kill(self, index: int) -> None:
        self._processes[index][0].kill()
        self._processes[index][0].wait()
        last = self._last_step(index)
        self.kills[last["step"]] += 1
        if last["step"] in IN_HAND:
            self._last_run = last["run"]
        del self._processes[index]

    def _last_step(self, index: int) -> dict[str, Any]:
        process, seed = self._processes[index]
        noted = self._noted(f"{process.pid}-{seed}")
        return noted[-1] if noted else {"step": "nothing"}

    def _drop_ended(self) -> None:
        for process, seed in list(self._processes):
            if process.poll() is not None:
                self._processes.remove((process, seed))
                said = (self._root / f"{seed}.log").read_text()[-1000:]
                self.ended.append(f"worker {seed} ended with exit code {process.returncode}: {said}")

    # --- afterwards -----------------------------------------------------------------------------

    def _noted(self, name: str) -> list[dict[str, Any]]:
        path = self.folder.notes / name
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def steps(self) -> list[dict[str, Any]]:
        """Return all that all processes noted."""
        return [fact for path in sorted(self.folder.notes.iterdir()) for fact in self._noted(path.name)]

    def lacks(self, least: dict[str, int]) -> list[str]:
        """Name what was tried less often than it must be for a proof."""
        tried = self.tried()
        return [name for name, count in least.items() if tried[name] < count]

    def tried(self) -> dict[str, int]:
        """Count what makes a run of this crowd a proof."""
        steps = self.steps()
        return {
            "killed": sum(self.kills.values()),
            "killed between freeze and commit": sum(self.kills[step] for step in IN_HAND),
            "taken over": self._taken + sum(fact.get("taken_over", False) for fact in steps),
            "replayed": sum(fact.get("replay", False) for fact in steps),
            "tried again by the same id": sum(fact.get("attempt", 1) > 1 for fact in steps),
            "late and fenced": sum(fact["step"] == "fenced" for fact in steps),
            "late and already": sum(fact.get("outcome") == "already" for fact in steps),
            "unanswered": sum(fact["step"] == "unanswered" for fact in steps),
            "versions": self.watermarks.latest(JOB).version,
        }

    def problems(self) -> list[str]:
        """Compare sink, source, notes and history; an empty list is what the protocol promises."""
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
