"""Builders for the tests of `Watermarks`: a job of one's own, clients with faults, and what the table holds."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import boto3
import pytest

from scripts.helpers.protocol import items
from scripts.helpers.protocol.dynamodb import CLIENT_CONFIG
from scripts.helpers.protocol.names import new_run_id
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.faults import ONE_ATTEMPT, Faults, Wire
from tests.support.places import REGION
from tests.support.table_items import Item, all_items, items_of


@pytest.fixture
def job_id() -> str:
    """Return a job name that no other test uses: tests may share one table."""
    return f"job-{secrets.token_hex(8)}"


@pytest.fixture
def run_ids() -> list[str]:
    """Return five run ids in the shape of Glue's, without order."""
    return [new_run_id() for _ in range(5)]


@pytest.fixture
def client(dynamodb: Any) -> Any:
    """Return a client of this test alone, without retries of its own, so that hooks leave nothing behind."""
    config = CLIENT_CONFIG.merge(ONE_ATTEMPT)
    return boto3.client("dynamodb", endpoint_url=dynamodb.meta.endpoint_url, config=config)


@pytest.fixture
def wire(client: Any) -> Wire:
    """Return the record of every request that `client` sends."""
    return Wire(client)


@pytest.fixture
def faults(client: Any, wire: Wire) -> Faults:
    """Return the faults of `client`; `wire` records first, so it sees what a fault drops."""
    return Faults(client)


@pytest.fixture
def pauses() -> list[float]:
    """Return the waits that `hooked` would have made; nothing sleeps."""
    return []


@pytest.fixture
def hooked(watermarks: Watermarks, client: Any, clock: Clock, pauses: list[float]) -> Watermarks:
    """Return `Watermarks` over the same table through `client`."""
    made = Watermarks(watermarks.table_name, client, clock=clock)
    made.store.sleep = pauses.append
    return made


@pytest.fixture
def live(make_watermarks: Callable[..., Watermarks]) -> Watermarks:
    """Return `Watermarks` whose clock is the real one, as that of other processes and of Glue."""
    return make_watermarks(clock=lambda: datetime.now(timezone.utc))


@pytest.fixture
def put_legacy(dynamodb: Any, watermarks: Watermarks, job_id: str) -> Callable[..., None]:
    """Return a builder of items in the exact shape that the original class writes."""

    def put(run_id: str, **values: dict[str, Any]) -> None:
        shown = values or {"latest_data": {"S": "2023-03-16 15:45:00"}, "rows_collected": {"N": "808"}}
        item = {"jobName": {"S": job_id}, "runId": {"S": run_id}, "watermarks": {"M": shown}}
        dynamodb.put_item(TableName=watermarks.table_name, Item=item)

    return put


@pytest.fixture
def stored(dynamodb: Any, watermarks: Watermarks, job_id: str) -> Callable[[], dict[str, Item]]:
    """Return a reader of all raw items of the job by range key, past the package."""

    return lambda: items_of(dynamodb, watermarks.table_name, job_id)


@pytest.fixture
def everything(watermarks: Watermarks) -> Callable[[], dict[tuple[str, str], Item]]:
    """Return a reader of all raw items of the table by job and range key, past the package."""
    return lambda: all_items(watermarks)


@pytest.fixture
def delete(dynamodb: Any, watermarks: Watermarks, job_id: str) -> Callable[[str], None]:
    """Return what removes one raw item of the job."""

    def remove(range_key: str) -> None:
        dynamodb.delete_item(TableName=watermarks.table_name, Key=items.key(job_id, range_key))

    return remove


@pytest.fixture
def put(dynamodb: Any, watermarks: Watermarks, job_id: str) -> Callable[..., None]:
    """Return what writes a raw item of the job, past the package."""

    def write(range_key: str, **attributes: Any) -> None:
        dynamodb.put_item(TableName=watermarks.table_name, Item=items.key(job_id, range_key) | attributes)

    return write


@pytest.fixture
def in_process(mocked_aws: None) -> Iterator[tuple[Any, str]]:
    """Return a bucket of moto without a server, which takes all characters in keys. A running server keeps its own."""
    client, bucket = boto3.client("s3", region_name=REGION), "in-process"
    client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    yield client, bucket
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for found in page.get("Contents", []):
            client.delete_object(Bucket=bucket, Key=found["Key"])
    client.delete_bucket(Bucket=bucket)
