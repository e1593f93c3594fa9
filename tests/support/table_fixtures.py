"""Fixtures for the tests of `Watermarks`: a table of either kind, a job for each test, faults, and the stored items."""

from __future__ import annotations

import itertools
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from scripts.helpers.protocol import items
from scripts.helpers.protocol.dynamodb import CLIENT_CONFIG
from scripts.helpers.protocol.names import is_file, new_run_id
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.doubles import fast_folder, remove_files
from tests.support.faults import ONE_ATTEMPT, ClientFaults, Faults, TableFaults, WatchedTable, Wire
from tests.support.no_aws import no_aws
from tests.support.places import REGION, TEST_TABLE
from tests.support.table_items import Item, all_items, items_of, put_item

DYNAMODB, SQLITE = "dynamodb", "sqlite"
_tables = itertools.count(1)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that is marked `both_stores` on both stores, unless it uses features that only DynamoDB has."""
    if metafunc.definition.get_closest_marker("both_stores") and may_use_a_file(metafunc.fixturenames):
        metafunc.parametrize("store_kind", [DYNAMODB, SQLITE])


def pytest_sessionfinish() -> None:
    """Leave no table behind."""
    remove_files()


def may_use_a_file(fixtures: Sequence[str]) -> bool:
    """Return whether a test with these fixtures works with a table in a file as well as with one in DynamoDB."""
    return "store_kind" in fixtures and "dynamodb" not in fixtures and TEST_TABLE not in os.environ


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, without credentials and without a region."""
    no_aws(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def store_kind(request: pytest.FixtureRequest) -> str:
    """Return the kind of store for a test: a file, unless the test uses `dynamodb` by a mark or a fixture."""
    return SQLITE if may_use_a_file(request.fixturenames) else DYNAMODB


@pytest.fixture(scope="session")
def tables_folder() -> Iterator[Path]:
    """Return the folder for tables that are files, in memory if there is room: each commit would wait for a disk."""
    with tempfile.TemporaryDirectory(prefix="tables-", dir=fast_folder()) as folder:
        yield Path(folder)


@pytest.fixture
def make_watermarks(
    request: pytest.FixtureRequest, store_kind: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Watermarks]:
    """Return a builder of `Watermarks` over a table; by default over a new table or over that of TEST_TABLE."""
    if store_kind == SQLITE:
        # The tests' clock is years behind, and a file deletes what has expired at once, unlike DynamoDB.
        monkeypatch.setattr("scripts.helpers.protocol.sqlite.time", SimpleNamespace(time=lambda: 0))

    def make(table_name: str | None = None, **options: Any) -> Watermarks:
        table_name = table_name or os.environ.get(TEST_TABLE)
        if store_kind == SQLITE:
            folder, client = request.getfixturevalue("tables_folder"), None
            made_name = f"sqlite:{folder}/table-{next(_tables)}.db"
        else:
            client = request.getfixturevalue("dynamodb")
            made_name = f"table-{next(_tables)}"
        assert client or is_file(table_name or made_name), "a test that names a table of DynamoDB uses `dynamodb`"
        made = Watermarks(table_name or made_name, client, **({"clock": clock} | options))
        # Chunks are paced for a table that limits units per second; the tests of the pace use a timer of their own.
        made.store.sleep = lambda seconds: None
        if table_name is None:
            made.create_table()
        return made

    return make


@pytest.fixture
def watermarks(make_watermarks: Callable[..., Watermarks]) -> Watermarks:
    """Return `Watermarks` over a new, empty table, or over that of TEST_TABLE."""
    return make_watermarks()


@pytest.fixture
def job_id() -> str:
    """Return a job name that no other test uses, because tests may share one table."""
    return f"job-{secrets.token_hex(8)}"


@pytest.fixture
def run_ids() -> list[str]:
    """Return five run ids of the form of Glue's, which have no order."""
    return [new_run_id() for _ in range(5)]


@pytest.fixture
def client(dynamodb: Any) -> Any:
    """Return a client for this test only and without retries, so that no hooks remain on a shared client."""
    config = CLIENT_CONFIG.merge(ONE_ATTEMPT)
    return boto3.client("dynamodb", endpoint_url=dynamodb.meta.endpoint_url, config=config)


@pytest.fixture
def watched(watermarks: Watermarks) -> WatchedTable:
    """Return the table of `watermarks`, watched, for `hooked` if there is no client."""
    return WatchedTable(watermarks.store.table)


@pytest.fixture
def wire(request: pytest.FixtureRequest, store_kind: str) -> Wire:
    """Return the record of every request that `client` sends, or that `hooked` makes to a file."""
    if store_kind == DYNAMODB:
        return Wire(request.getfixturevalue("client"))
    recorded: Wire = request.getfixturevalue("watched").wire
    return recorded


@pytest.fixture
def faults(request: pytest.FixtureRequest, store_kind: str, wire: Wire) -> Faults:
    """Return the faults of `client` or of a file; `wire` records first, so it also sees requests that a fault drops."""
    if store_kind == DYNAMODB:
        return ClientFaults(request.getfixturevalue("client"))
    return TableFaults(request.getfixturevalue("watched"))


@pytest.fixture
def pauses() -> list[float]:
    """Return the waits that `hooked` would have made; nothing sleeps."""
    return []


@pytest.fixture
def hooked(
    request: pytest.FixtureRequest, store_kind: str, watermarks: Watermarks, clock: Clock, pauses: list[float]
) -> Watermarks:
    """Return `Watermarks` over the same table, whose requests `wire` records and `faults` can make fail."""
    if store_kind == DYNAMODB:
        made = Watermarks(watermarks.table_name, request.getfixturevalue("client"), clock=clock)
    else:
        made = Watermarks(watermarks.table_name, clock=clock)
        made.store.table = request.getfixturevalue("watched")
    made.store.sleep = pauses.append
    return made


@pytest.fixture
def live(make_watermarks: Callable[..., Watermarks]) -> Watermarks:
    """Return `Watermarks` with the real clock, which other processes and Glue use."""
    return make_watermarks(clock=lambda: datetime.now(timezone.utc))


@pytest.fixture
def put_legacy(watermarks: Watermarks, job_id: str) -> Callable[..., None]:
    """Return a function that writes items in the exact form of the original class."""

    def put(run_id: str, **values: dict[str, Any]) -> None:
        shown = values or {"latest_data": {"S": "2023-03-16 15:45:00"}, "rows_collected": {"N": "808"}}
        put_item(watermarks, items.key(job_id, run_id) | {"watermarks": {"M": shown}})

    return put


@pytest.fixture
def stored(watermarks: Watermarks, job_id: str) -> Callable[[], dict[str, Item]]:
    """Return a reader of all raw items of the job by range key."""

    return lambda: items_of(watermarks.store.table, job_id)


@pytest.fixture
def everything(watermarks: Watermarks) -> Callable[[], dict[tuple[str, str], Item]]:
    """Return a reader of all raw items of the table by job and range key."""
    return lambda: all_items(watermarks)


@pytest.fixture
def delete(watermarks: Watermarks, job_id: str) -> Callable[[str], None]:
    """Return a function that removes one raw item of the job."""
    return lambda range_key: watermarks.store.delete(job_id, range_key)


@pytest.fixture
def put(watermarks: Watermarks, job_id: str) -> Callable[..., None]:
    """Return a function that writes a raw item of the job, without the package's checks."""
    return lambda range_key, **attributes: put_item(watermarks, items.key(job_id, range_key) | attributes)


@pytest.fixture
def in_process(mocked_aws: None) -> Iterator[tuple[Any, str]]:
    """Return a bucket of moto without a server; it accepts all characters in keys. A running server keeps its data."""
    client, bucket = boto3.client("s3", region_name=REGION), "in-process"
    client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    yield client, bucket
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for found in page.get("Contents", []):
            client.delete_object(Bucket=bucket, Key=found["Key"])
    client.delete_bucket(Bucket=bucket)
