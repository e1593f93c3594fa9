"""A process that works on a shared job until it is killed: `python -m tests.protocol.worker SETTINGS`.

Source: a file with a growing number; row n exists once the number is above n. Sink: a folder with one file
per batch, put there by `os.replace`. The process notes every step in a file of its own, one write per line,
so that the last line shows where a SIGKILL hit. A worker with `stop_at` stops itself after that step, with
the plan in hand, as a sleeping machine does; the crowd that started it then kills it or wakes it up late.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import secrets
import signal
import sys
import time
import traceback
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from scripts.helpers.errors import CommitUnknownError, FencedError, RunInProgressError, StoreUnavailableError
from scripts.helpers.protocol.names import new_run_id
from scripts.helpers.protocol.run import Run
from scripts.helpers.watermarks import Watermarks

JOB = "shared"
BATCH_ROWS = 50
HOURS = timedelta(hours=1)
"""The lease of a hasty worker, which outlasts a test even on a slow machine."""
SPILLING = 70_000
"""With this many characters a plan does not fit into the head."""


class Folder:
    """What all processes share: the source, the sink, and the notes of each process."""

    def __init__(self, root: Path) -> None:
        self.source, self.sink, self.notes = root / "source", root / "sink", root / "notes"
        self._temporary = root / "temporary"
        for folder in (self.sink, self.notes, self._temporary):
            folder.mkdir(exist_ok=True)

    def rows(self) -> int:
        return int(self.source.read_text())

    def grow(self, rows: int) -> None:
        self.replace(self.source, str(rows))

    def replace(self, path: Path, text: str) -> None:
        """Write a file whole or not at all."""
        temporary = self._temporary / secrets.token_hex(8)
        temporary.write_text(text)
        os.replace(temporary, path)

    def batches(self) -> dict[str, str]:
        """Return the text of each batch at the sink, by batch id."""
        return {path.name: path.read_text() for path in sorted(self.sink.iterdir())}


def checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Worker:
    """Runs of one process: begin, freeze, write, commit, with pauses in which other workers act or a kill hits.

    Parameters
    ----------
    first_run
        The run id of a dead process, to retry its run; None for a new one.
    hasty
        Without pauses or chance: take over at once, work, commit. Such workers do the same each time.
    stop_at
        The step after which the process stops itself, once.
    forgetful
        Negative control: compute a batch anew instead of replaying its plan.
    """

    def __init__(
        self,
        folder: Folder,
        watermarks: Watermarks,
        seed: str,
        *,
        first_run: str | None = None,
        hasty: bool = False,
        stop_at: str | None = None,
        forgetful: bool = False,
    ) -> None:
        self.folder, self.watermarks = folder, watermarks
        self._random, self._stop_at = random.Random(seed), stop_at
        self._next_run, self._hasty, self._forgetful = first_run, hasty, forgetful
        self._notes = os.open(folder.notes / f"{os.getpid()}-{seed}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, step: str, **facts: Any) -> None:
        os.write(self._notes, (json.dumps({"step": step} | facts) + "\n").encode())
        if step == self._stop_at:
            self._stop_at = None
            os.kill(os.getpid(), signal.SIGSTOP)

    def step(self) -> bool:
        """Do one run; return False if there was nothing to do."""
        run_id, self._next_run = self._next_run or new_run_id(), None
        try:
            run = self._begin(run_id)
            if run is None:
                return True
            if self._hasty or self._random.random() < 0.5:
                return self._work(run)
            with run:
                return self._work(run)
        except FencedError:
            self.note("fenced", run=run_id)
        except (CommitUnknownError, StoreUnavailableError) as error:
            self.note("unanswered", run=run_id, error=str(error))
        except Exception:
            self.note("failure", run=run_id, error=traceback.format_exc())
        return True

    def _begin(self, run_id: str) -> Run | None:
        lease = HOURS if self._hasty else timedelta(seconds=self._random.uniform(0.2, 3.0))
        taken_over = False
        try:
            run = self.watermarks.begin(JOB, run_id, lease=lease)
        except RunInProgressError:
            self._pause(0.2)
            taken_over = self._hasty or self._random.random() < 0.03
            if not taken_over:
                return None
            run = self.watermarks.begin(JOB, run_id, lease=lease, take_over=True)
        self.note("begun", run=run_id, replay=run.replay, attempt=run.attempt, taken_over=taken_over, fence=run.fence)
        return run

    def _work(self, run: Run) -> bool:
        if not run.replay:
            low, high = run.state("rows") or 0, self.folder.rows()
            if low >= high:
                self.note("idle", run=run.run_id)
                run.abort()
                self._pause(0.2)
                return False
            high = min(high, low + self._random.randint(1, BATCH_ROWS))
            run.freeze({"batch": self._new_batch(low, high)}, {"rows": high})
        batch = run.planned("batch")
        if run.replay and self._forgetful:
            batch = self._new_batch(batch["low"], batch["high"])
        self.note("frozen", run=run.run_id, batch=str(run.batch_id), fence=run.fence)
        self._pause(0.3)
        self._write(run, batch)
        self._pause(0.3)
        if not self._hasty and self._random.random() < 0.05:
            self.note("aborted", run=run.run_id, batch=str(run.batch_id))
            run.abort()
            return True
        outcome = run.commit(rows_written=batch["high"] - batch["low"])
        self.note("committed", run=run.run_id, batch=str(run.batch_id), version=run.version, outcome=outcome)
        return True

    def _new_batch(self, low: int, high: int) -> dict[str, Any]:
        """Return a batch with a mark of its own, so that another plan for the same rows shows in the sink."""
        mark = secrets.token_hex(8)
        if self._random.random() < 0.1:
            mark = secrets.token_hex(SPILLING // 2)
        return {"low": low, "high": high, "mark": mark}

    def _write(self, run: Run, batch: dict[str, Any]) -> None:
        batch_id = str(run.batch_id)
        content = {"rows": list(range(batch["low"], batch["high"])), "mark": checksum(batch["mark"])}
        text = json.dumps(content)
        self.note("wrote", run=run.run_id, batch=batch_id, fence=run.fence, checksum=checksum(text))
        target = self.folder.sink / batch_id
        if target.exists() and target.read_text() != text:
            self.note("failure", run=run.run_id, batch=batch_id, error="the sink holds another content for this batch")
        self.folder.replace(target, text)
        self.note("stored", run=run.run_id, batch=batch_id, fence=run.fence)

    def _pause(self, seconds: float) -> None:
        if not self._hasty:
            time.sleep(self._random.uniform(0, seconds))


def clock_with(skew: float) -> Callable[[], datetime]:
    return lambda: datetime.now(timezone.utc) + timedelta(seconds=skew)


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    table = Watermarks(
        settings["table"],
        region_name=settings["region"] if settings["url"] else None,
        endpoint_url=settings["url"] or None,
        clock=clock_with(settings["skew"]),
    )
    worker = Worker(
        Folder(Path(settings["folder"])),
        table,
        settings["seed"],
        first_run=settings["first_run"],
        hasty=settings["hasty"],
        stop_at=settings["stop_at"],
        forgetful=settings["forgetful"],
    )
    while True:
        worker.step()
