"""Fixtures that several folders use: a moto server in a process of its own, and tables with the real clock."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from scripts.helpers.watermarks import Watermarks
from tests.support.places import REGION
from tests.support.servers import free_port, served

_tables, _buckets = itertools.count(1), itertools.count(1)


@pytest.fixture(scope="session")
def moto_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a moto server in a process of its own, which handles one request at a time."""
    port = free_port()
    command = [sys.executable, "-m", "tests.support.moto_server", str(port)]
    with served(command, port, tmp_path_factory.mktemp("moto"), {}) as url:
        yield url


@pytest.fixture
def bucket_of_process(moto_process: str) -> str:
    """Return a new, empty bucket of that server. All tests share the server, so none names its bucket itself."""
    name = f"bucket-of-process-{next(_buckets)}"
    client = boto3.client("s3", endpoint_url=moto_process)
    client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    return name


@pytest.fixture
def make_table(tables_folder: Path) -> Callable[..., Watermarks]:
    """Return a builder of `Watermarks` with the real clock over a new table of a server; without a URL, of a file."""

    def make(url: str, client: Any = None) -> Watermarks:
        name = f"protocol-{next(_tables)}"
        table_name = name if url else f"sqlite:{tables_folder}/{name}.db"
        made = Watermarks(table_name, client, region_name=REGION if url else None, endpoint_url=url or None)
        made.create_table()
        return made

    return make
