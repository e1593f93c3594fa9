"""Jobs move here from other tools as docs/migrate.md shows."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import boto3
import pandas as pd
from botocore.stub import Stubber

from scripts.helpers.databases.sql_table import SqlTable
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks
from tests.docs.pages import run_page


def land(folder: Path, files: dict[str, datetime]) -> None:
    folder.mkdir(exist_ok=True)
    for name, modified in files.items():
        (folder / name).write_text(f"id\n{name[0]}\n")
        os.utime(folder / name, (modified.timestamp(),) * 2)


def glue_runs(ended: datetime) -> list[dict[str, Any]]:
    """Return two Glue runs: one began at `ended` and succeeded, and a later one failed."""
    states = {"SUCCEEDED": ended, "FAILED": ended + timedelta(hours=1)}
    return [{"Id": f"jr_{state}", "JobRunState": state, "StartedOn": at} for state, at in states.items()]


def next_rows(watermarks: Watermarks, folder: Path) -> list[int]:
    """Return the ids that the next run reads from a table with ids 1 to 7. Glue has read 1 to 5."""
    with closing(sqlite3.connect(folder / "shop.db")) as shop, shop:
        shop.execute("CREATE TABLE repairs (id INTEGER PRIMARY KEY)")
        shop.executemany("INSERT INTO repairs VALUES (?)", [(number,) for number in range(1, 8)])
    with IncrementalJob(watermarks, "repairs on glue") as job:
        rows = job.rows_since(
            SqlTable(f"sqlite:{folder}/shop.db", "repairs"), "id", transformation_ctx="repairs", delay=timedelta(0)
        )
        job.freeze()
        found: list[int] = rows.read_all().column("id").to_pylist()
    return sorted(found)


def test_jobs_move_as_told_when_the_page_is_followed(
    make_watermarks: Callable[..., Watermarks], dynamodb: Any, tmp_path: Path
) -> None:
    watermarks = make_watermarks()
    for run_id in ("jr_c0ffee", "jr_dead", "jr_beef"):
        item = {"jobName": {"S": "parking"}, "runId": {"S": run_id}, "watermarks": {"M": {"n": {"N": "1"}}}}
        dynamodb.put_item(TableName=watermarks.table_name, Item=item)
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "1.csv").touch()
    ended = datetime(2026, 3, 5, 12, tzinfo=timezone.utc)  # The start of Glue's last successful run.
    land(tmp_path / "parking", {"1.csv": ended - timedelta(hours=1), "2.csv": ended - timedelta(minutes=5)})
    land(tmp_path / "parking", {"3.csv": ended + timedelta(minutes=1)})
    glue = boto3.client("glue")
    runs = [
        {"Id": run_id, "StartedOn": datetime(2026, 3, day, tzinfo=timezone.utc)}
        for run_id, day in (("jr_c0ffee", 3), ("jr_dead", 2), ("jr_beef", 1))
    ]
    names: dict[str, Any] = {"watermarks": watermarks, "lake": str(tmp_path), "glue": glue}

    with Stubber(glue) as stubber:
        stubber.add_response("get_job_runs", {"JobRuns": runs}, {"JobName": "parking"})
        stubber.add_response("get_job_runs", {"JobRuns": glue_runs(ended)}, {"JobName": "parking on glue"})
        found = run_page("migrate.md", names)

    assert found == 6
    assert sorted(names["landed"].table.column("key").to_pylist()) == ["2.csv", "3.csv"]
    assert sorted(pd.read_parquet(tmp_path / "raw" / "parking")["id"]) == [2, 3]
    assert next_rows(watermarks, tmp_path) == [6, 7]
    land(tmp_path / "parking", {"4.csv": ended})
    with IncrementalJob(watermarks, "parking on glue") as job:
        later = job.new_files(f"{tmp_path}/parking/", transformation_ctx="landed")
        job.freeze()
    assert later.table.column("key").to_pylist() == ["4.csv"]
    assert names["taken"].count == 1
    state = watermarks.progress.state("repairs", "repairs")
    assert state.value == (datetime(2026, 3, 1, tzinfo=timezone.utc),)
