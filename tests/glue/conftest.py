"""Fixtures for the tests of Glue's names: a context on the moto server, sources, targets and catalogue tables."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import boto3
import pytest

from scripts.helpers.glue import GlueContext, Job
from scripts.helpers.watermarks import Watermarks
from tests.glue.options import ENABLE, Put, row_of_parquet

_databases = itertools.count(1)


@pytest.fixture
def glue_context(spark: Any, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> GlueContext:
    """Return a context whose AWS clients call the moto server."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    return GlueContext(spark.sparkContext)


@pytest.fixture
def begin(glue_context: GlueContext, watermarks: Watermarks) -> Callable[..., Job]:
    """Return a function that begins a run of the job ``parking``, with bookmarks enabled by default."""

    def init(run_id: str | None = None, **args: Any) -> Job:
        job = Job(glue_context, watermarks)
        job.init("parking", ENABLE | {"JOB_RUN_ID": run_id} | args)
        return job

    return init


@pytest.fixture
def landing(tmp_path: Path) -> str:
    """Return a local directory as a source: it is faster than S3, and readers treat both the same."""
    return f"file://{tmp_path}/landing/"


@pytest.fixture
def raw(tmp_path: Path) -> str:
    """Return a local directory as a target."""
    return f"file://{tmp_path}/raw/"


def writer_of(landing: Path, content: Callable[[str], bytes]) -> Put:
    """Return a function that writes files below a new directory, dated now or at `at`; `content` is the default."""

    def write(*names: str, at: datetime | None = None, body: str | None = None) -> None:
        for name in names:
            path = landing / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content(name) if body is None else body.encode())
            if at is not None:
                os.utime(path, (at.timestamp(), at.timestamp()))

    landing.mkdir()
    return write


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Return a function that writes files of one JSON row each below `landing`, dated now or at `at`."""
    return writer_of(tmp_path / "landing", lambda name: f'{{"id": "{name}"}}'.encode())


@pytest.fixture
def put_parquet(tmp_path: Path) -> Put:
    """Return a function like `put` that writes Parquet, which Spark reads in a fifth of the time: types are known."""
    return writer_of(tmp_path / "landing", row_of_parquet)


@pytest.fixture
def catalog(glue_context: GlueContext) -> Any:
    """Return a client of the moto server's Glue catalogue."""
    return boto3.client("glue")


@pytest.fixture
def table(catalog: Any) -> Callable[..., str]:
    """Return a function that makes a table in a new database and returns the database's name."""

    def make(name: str, location: str, classification: str, **more: Any) -> str:
        database = f"database_{next(_databases)}"
        catalog.create_database(DatabaseInput={"Name": database})
        given = more.pop("columns", ())
        kinds = given if isinstance(given, dict) else dict.fromkeys(given, "string")
        columns = [{"Name": column, "Type": kind} for column, kind in kinds.items()]
        parameters = {"classification": classification, **more.pop("parameters", {})}
        storage = {"Location": location, "Columns": columns, "SerdeInfo": {"Parameters": more.pop("serde", {})}}
        made = {"Name": name, "StorageDescriptor": storage, "Parameters": parameters, **more}
        catalog.create_table(DatabaseName=database, TableInput=made)
        return database

    return make
