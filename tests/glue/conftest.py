"""Fixtures of the tests of Glue's names: a context over the moto server, and scripts that begin and commit."""

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
from tests.glue.options import ENABLE, Put

_databases = itertools.count(1)


@pytest.fixture
def glue_context(spark: Any, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> GlueContext:
    """Return a context whose clients of AWS are led to the moto server."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    return GlueContext(spark.sparkContext)


@pytest.fixture
def begin(glue_context: GlueContext, watermarks: Watermarks) -> Callable[..., Job]:
    """Return what begins a run of the job ``parking``, with bookmarks enabled unless told otherwise."""

    def init(run_id: str | None = None, **args: Any) -> Job:
        job = Job(glue_context, watermarks)
        job.init("parking", ENABLE | {"JOB_RUN_ID": run_id} | args)
        return job

    return init


@pytest.fixture
def landing(tmp_path: Path) -> str:
    """Return a local directory as a source: faster than S3, and the same to what reads it."""
    return f"file://{tmp_path}/landing/"


@pytest.fixture
def raw(tmp_path: Path) -> str:
    """Return a local directory as a target."""
    return f"file://{tmp_path}/raw/"


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Return what writes files of one JSON row each below `landing`, now or at a time of the past."""

    def write(*names: str, at: datetime | None = None, body: str | None = None) -> None:
        for name in names:
            path = tmp_path / "landing" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body or f'{{"id": "{name}"}}')
            if at is not None:
                os.utime(path, (at.timestamp(), at.timestamp()))

    (tmp_path / "landing").mkdir()
    return write


@pytest.fixture
def catalog(glue_context: GlueContext) -> Any:
    """Return a client of the Glue catalogue of the moto server."""
    return boto3.client("glue")


@pytest.fixture
def table(catalog: Any) -> Callable[..., str]:
    """Return what makes a table in a database of its own, whose name it returns."""

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
