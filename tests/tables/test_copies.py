"""A copy equals its table, whatever was committed to the table and wherever runs died."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks import DeltaSink
from scripts.helpers.watermarks import Watermarks
from tests.support.steps import KilledError
from tests.support.versioned_tables import DeltaByHand, IcebergByHand

STEPS = ["append", "append", "compact", "run", "run", "die at the plan", "die after the write"]
RUNS = STEPS[3:]


def run(watermarks: Watermarks, how: str, read: Any, write: Any) -> bool:
    """Run the job once, perhaps killing it on the way; return whether rows may be left to read."""
    job = IncrementalJob(watermarks, "copy")
    try:
        with job:
            rows = read(job)
            if how == "die at the plan":
                job.freeze()
                raise KilledError
            write(job, rows)
            if how == "die after the write":
                raise KilledError
    except KilledError:
        return True
    return job.has_more


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("make", [DeltaByHand, IcebergByHand], ids=["delta", "iceberg"])
def test_copy_has_each_row_once_when_runs_die_between_appends(
    watermarks: Watermarks, tmp_path: Path, make: Any, seed: int
) -> None:
    chance, table, target, last = random.Random(seed), make(tmp_path), f"{tmp_path}/copy", 0

    def read(job: IncrementalJob) -> Any:
        return job.rows_since(table.source(), max_versions=chance.choice([None, 1, 2]))

    def write(job: IncrementalJob, rows: Any) -> None:
        job.write(rows, target)

    for step in [*chance.choices(STEPS, k=18), "run"]:
        if step == "append":
            count = chance.randint(1, 3)
            table.append(*range(last, last + count))
            last += count
        elif step == "compact":
            if make is DeltaByHand:
                table.compact()
        else:
            run(watermarks, step, read, write)
    while run(watermarks, "run", read, write):
        pass

    assert sorted(pd.read_parquet(target)["id"]) == table.ids == list(range(last))


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_mirror_equals_its_table_when_runs_die_between_changes(
    watermarks: Watermarks, tmp_path: Path, seed: int
) -> None:
    chance, table, last = random.Random(seed), DeltaByHand(tmp_path), 0
    mirror = f"{tmp_path}/mirror"

    def read(job: IncrementalJob) -> Any:
        return job.rows_since(table.source(), changes="feed", max_versions=chance.choice([None, 1, 2]))

    def write(job: IncrementalJob, rows: Any) -> None:
        job.merge(
            rows, DeltaSink(mirror), keys="id", sequence_by=["_commit_version", "_change_order"],
            deletes=lambda rows: rows["_change_order"] == 0,
        )  # fmt: skip

    for step in [*chance.choices(["update", "delete", "overwrite", "set back", *STEPS], k=20), "run"]:
        if step == "append":
            table.append(last, last + 1)
            last += 2
        elif step == "update":
            table.files.update(updates={"kind": f"'{last}'"}, predicate=f"id = {chance.randrange(last + 1)}")
        elif step == "delete":
            table.delete(chance.randrange(last + 1))
        elif step == "overwrite":
            table.overwrite(last, 0)
            last += 1
        elif step == "set back" and table.newest:
            table.set_back(chance.randrange(table.newest))
        elif step == "compact":
            table.compact()
        elif step in RUNS:
            run(watermarks, step, read, write)
    while run(watermarks, "run", read, write):
        pass

    def rows_at(path: str) -> list[tuple[int, str]]:
        found = type(table.files)(path).to_pyarrow_table().to_pylist()
        return sorted((row["id"], row["kind"]) for row in found)

    assert rows_at(mirror) == rows_at(table.path)
