"""Jobs with a past, for commands to look at, and a table with jobs in every state."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import Any

from click.testing import Result

from scripts.helpers.job import IncrementalJob
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.protocol import items
from scripts.helpers.protocol.head import Change, Head, Order
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.steps import commit

NOW = datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc)
Command = Callable[..., Result]


def rows_state(value: Any, kind: str = "timestamp") -> dict[str, Any]:
    """Return the state of a rows context."""
    return {"kind": "rows", "cursor_column": "last_modified", "type": kind, "value": value}


def commit_rows(watermarks: Watermarks, job: str, run_id: str, value: datetime, rows: int) -> None:
    """Commit one version of a job with one rows context."""
    commit(watermarks, job, run_id, {"repairs": rows_state(value)}, rows_collected=rows)


def leave_open(watermarks: Watermarks, job: str, run_id: str, low: datetime, high: datetime) -> None:
    """Freeze a plan and stop without a commit or an abort, as a killed process does."""
    run = watermarks.begin(job, run_id)
    window = {**rows_state(None), "low": low, "high": high}
    run.freeze({"repairs": window}, {"repairs": rows_state(high)})


def build_world(dynamodb: Any, s3: Any, table_name: str) -> Watermarks:
    """Return a table with jobs that are idle, at work, with an open plan, of files and of the original class."""
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
    """Put objects into a bucket, which is created if it is missing."""
    if bucket not in [found["Name"] for found in s3.list_buckets()["Buckets"]]:
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-west-2"})
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=f"id\n{key}\n".encode())


def put_legacy(dynamodb: Any, table: str, job: str, run_id: str, *, latest_data: str = "2023-03-16 15:45:00") -> None:
    """Store an item in the form in which the original class writes it."""
    shown = {"latest_data": {"S": latest_data}, "rows_collected": {"N": "808"}}
    dynamodb.put_item(TableName=table, Item=items.key(job, run_id) | {"watermarks": {"M": shown}})


def put_newer(dynamodb: Any, table: str, job: str) -> None:
    """Store the head of a job as a later version of this package would."""
    dynamodb.put_item(TableName=table, Item=items.key(job, items.HEAD_KEY) | {"fmt": {"N": "99"}})


def document(result: Result) -> Any:
    """Return the one JSON document that a successful command printed to standard output."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


ORDER = Order("sam", "moving", NOW, "token")


def put_runs(watermarks: Watermarks, job_id: str) -> list[tuple[str, str]]:
    """Write the items that the Job Runs API keeps for a job, and return their keys."""
    keys = [items.run_record_key("jr_1"), items.JOB_RECORD_KEY]
    for key in keys:
        watermarks.store.put(items.key(job_id, key) | {"state": {"S": "WAITING"}}, if_new=True)
    return [(job_id, key) for key in keys]


CHUNK = bytes(350_000)


def job_items(job: str, versions: int, chunks: int = 0) -> list[items.Item]:
    """Return the items of a job with a history."""
    head, log, run = templates(versions)
    keys = [(head, items.HEAD_KEY), *((log, items.log_key(number + 1)) for number in range(versions))]
    keys += [(run, f"jr_{number + 1}") for number in range(versions)]
    keys += [({"data": {"B": CHUNK}}, items.chunk_key("s#t-0", number)) for number in range(chunks)]
    return [template | items.key(job, range_key) for template, range_key in keys]


@cache
def templates(versions: int) -> tuple[items.Item, items.Item, items.Item]:
    """Return a head, a log entry and a run item as templates for any job."""
    last = Change("COMMIT", "c", NOW, f"jr_{versions}", fence=versions, runs=versions)
    head = Head("job", "e1", versions, versions, {"value": versions}, last)
    assert head.log_entry is not None
    return items.head_to_item(head), items.log_to_item(head.log_entry), items.run_to_item(head.log_entry)
