"""`DirectoryCopy`: a job that copies rows to a directory, and what can be seen there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks.outputs import NOTE
from scripts.helpers.watermarks import Watermarks

JOB = "repairs"


class DirectoryCopy:
    """A job that copies pandas rows to a directory.

    Attributes
    ----------
    source
        The ids of the rows that the next run finds.
    """

    def __init__(self, watermarks: Watermarks, folder: Path) -> None:
        self.watermarks, self.target = watermarks, folder / "raw"
        self.staging = folder / "_raw.staging"
        self.source = [1, 2, 3]

    def job(self, run_id: str = "jr_1") -> IncrementalJob:
        return IncrementalJob(self.watermarks, JOB, run_id)

    def stage(self, job: IncrementalJob, **options: Any) -> None:
        job.write(job.rows_since(pd.DataFrame({"id": self.source}), "id"), str(self.target), **options)

    def run(self, run_id: str = "jr_1", **options: Any) -> None:
        with self.job(run_id) as job:
            self.stage(job, **options)

    def run_with(self, row: int, **options: Any) -> None:
        """Add one row to the source, and load it in a run of its own."""
        self.source = [*self.source, row]
        self.run(f"jr_{row}", **options)

    @property
    def seen(self) -> list[int]:
        """The rows that readers see."""
        files = [path for path in self.target.rglob("*.parquet") if path.is_file()]
        return sorted(row for path in files for row in pd.read_parquet(path)["id"])

    @property
    def staged(self) -> list[str]:
        return [path.name for path in self.staging.rglob("*") if path.is_file() and path.name != NOTE]
