"""A table with jobs in every state, and the command: called in this process, or in a pseudo-terminal."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import boto3
import pytest
from click.testing import CliRunner, Result

from scripts.cli.main import cli
from scripts.helpers.job import IncrementalJob
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.protocol import items
from scripts.helpers.watermarks import Watermarks
from tests.conftest import Clock

NOW = datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc)
_numbers = itertools.count(1)

Command = Callable[..., Result]


@pytest.fixture(autouse=True)
def quiet_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no command leave a session, a width or an answer about colour behind."""
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "WATERMARKS_TABLE", "WATERMARKS_COMPLETE_JOBS"):
        monkeypatch.delenv(name, raising=False)


def rows_state(value: Any, kind: str = "timestamp") -> dict[str, Any]:
    """Return the state of a rows context."""
    return {"kind": "rows", "cursor_column": "last_modified", "type": kind, "value": value}


def commit(watermarks: Watermarks, job: str, run_id: str, following: dict[str, Any], **metrics: Any) -> None:
    """Commit one version: the plan of a rows context up to its next value."""
    with watermarks.begin(job, run_id) as run:
        run.freeze({"repairs": {"kind": "rows", "cursor_column": "last_modified", "low": None}}, following)
        run.commit(**metrics)


def commit_rows(watermarks: Watermarks, job: str, run_id: str, value: datetime, rows: int) -> None:
    """Commit one version of a job with one rows context."""
    commit(watermarks, job, run_id, {"repairs": rows_state(value)}, rows_collected=rows)


def leave_open(watermarks: Watermarks, job: str, run_id: str, low: datetime, high: datetime) -> None:
    """Freeze a plan and end without a word, as a process that is killed does."""
    run = watermarks.begin(job, run_id)
    window = {**rows_state(None), "low": low, "high": high}
    run.freeze({"repairs": window}, {"repairs": rows_state(high)})


@pytest.fixture(scope="session")
def world(dynamodb: Any, s3: Any) -> Watermarks:
    """Return a table that tests only read."""
    return build_world(dynamodb, s3, "council")


def build_world(dynamodb: Any, s3: Any, table_name: str) -> Watermarks:
    """Return a table with an idle job, one at work, an open plan, files, and a job of the original class."""
    clock = Clock()
    watermarks = Watermarks(table_name, dynamodb, clock=clock)
    watermarks.create_table()
    hour = timedelta(hours=1)
    for number in range(1, 4):
        clock.now = NOW - (4 - number) * 24 * hour
        commit_rows(watermarks, "parking-permits", f"jr_permits_{number}", clock.now - hour, 100 * number)
    clock.now = NOW - 30 * hour
    commit_rows(watermarks, "repairs", "jr_repairs_1", clock.now - hour, 5_000)
    clock.now = NOW - 6 * hour
    leave_open(watermarks, "repairs", "jr_repairs_2", NOW - 31 * hour, NOW - 7 * hour)
    clock.now = NOW - timedelta(minutes=5)
    commit_rows(watermarks, "housing", "jr_housing_1", clock.now - timedelta(minutes=5), 12)
    watermarks.begin("housing", "jr_housing_2")
    clock.now = NOW - 2 * hour
    land(s3, "landing", "parking/1.csv", "parking/2.csv")
    s3.delete_object(Bucket="landing", Key="parking/3.csv")
    with IncrementalJob(watermarks, "parking-fines", "jr_fines_1", s3_client=s3) as job:
        job.new_files("s3://landing/parking/", transformation_ctx="fines")
    land(s3, "landing", "parking/3.csv")
    item = watermarks.create_watermark_item(job_id="rents", run_id="jr_rents_1", latest_data="2026-03-15", rows=7)
    watermarks.add_watermark(item)
    for run_id in ("jr_old_1", "jr_old_2"):
        put_legacy(dynamodb, watermarks.table_name, "libraries", run_id)
    clock.now = NOW
    for number, state, error in ((1, "SUCCEEDED", None), (2, "FAILED", "the cluster went away")):
        started = NOW - timedelta(hours=30 if number == 1 else 6)
        told = {"Attempt": 0, "Timeout": 10, "Arguments": {}}
        over = started + timedelta(minutes=4)
        record = RunRecord(
            "repairs",
            f"jr_{number}" + "0" * 63,
            state,
            started,
            over,
            told,
            running_since=started,
            completed_on=over,
            error=error,
        )
        dynamodb.put_item(TableName=watermarks.table_name, Item=record.to_item())
    return watermarks


def land(s3: Any, bucket: str, *keys: str) -> None:
    """Put objects into a bucket, which is made if it is not there."""
    if bucket not in [found["Name"] for found in s3.list_buckets()["Buckets"]]:
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-west-2"})
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=f"id\n{key}\n".encode())


def put_legacy(dynamodb: Any, table: str, job: str, run_id: str) -> None:
    """Put an item as the original class writes it."""
    shown = {"latest_data": {"S": "2023-03-16 15:45:00"}, "rows_collected": {"N": "808"}}
    dynamodb.put_item(TableName=table, Item=items.key(job, run_id) | {"watermarks": {"M": shown}})


def put_newer(dynamodb: Any, table: str, job: str) -> None:
    """Put the head of a later version of this package."""
    dynamodb.put_item(TableName=table, Item=items.key(job, items.HEAD_KEY) | {"fmt": {"N": "99"}})


@pytest.fixture
def run(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return what calls the command in this process, at a fixed time, on a table or a `Watermarks`."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)

    def call(table: Watermarks | str, *arguments: str, now: datetime = NOW, **options: Any) -> Result:
        name = table if isinstance(table, str) else table.table_name
        given = ["--table", name, "--now", now.isoformat(), *arguments]
        return CliRunner().invoke(cli, given, prog_name="watermarks", **options)

    return call


def document(result: Result) -> Any:
    """Return the one JSON document on standard output of a command that succeeded."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
