"""A job over growing rows and files, without Spark, whose runs return what they took."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from scripts.helpers.job import IncrementalJob
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.listed_rows import ListedRows
from tests.support.steps import KilledError

JOB = "parking"
ID = CursorColumn("id", "bigint")
Taken = tuple[list[Any], list[str]]


class World:
    """Rows with rising ids, a landing directory, and runs of one job over both, in any mode."""

    def __init__(self, watermarks: Watermarks, clock: Clock, root: Path) -> None:
        self.watermarks, self.clock, self.landing = watermarks, clock, root / "landing"
        self.rows = ListedRows((ID,))
        self.options: dict[str, Any] = {}
        """Options of `new_files` in every run from now on."""
        self.landing.mkdir()

    def grow(self) -> None:
        """Add a row and a file with the next number."""
        number = len(self.rows.listed) + 1
        self.rows.listed.append((number,))
        self.put(f"{number}.json", f'{{"id": {number}}}\n')

    def put(self, name: str, text: str = "{}", age: float = 0) -> None:
        """Write a file whose modification time is `age` seconds ago."""
        path = self.landing / name
        path.write_text(text)
        if age:
            stamp = path.stat().st_mtime - age
            os.utime(path, (stamp, stamp))

    def take(self, job: IncrementalJob) -> Taken:
        rows = job.rows_since(self.rows, "id", transformation_ctx="rows")
        files = job.new_files(str(self.landing), transformation_ctx="files", **self.options)
        return [number for (number,) in rows], [file.key for file in files.files]

    def run(self, run_id: str | None = None, *, die: bool = False, **options: Any) -> Taken:
        """Run the job ten minutes after its last run; return what it took. `die` kills the run with a plan open."""
        self.clock.move(minutes=10)
        with IncrementalJob(self.watermarks, JOB, run_id, clock=self.clock, **options) as job:
            taken = self.take(job)
            job.freeze()
            if die:
                raise KilledError
            return taken


def taken(*numbers: int) -> Taken:
    """Return the rows and files with these numbers, as `World.grow` adds them."""
    return list(numbers), [f"{number}.json" for number in numbers]
