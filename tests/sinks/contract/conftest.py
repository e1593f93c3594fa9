"""The fixture `target`: an empty target of the kind that a test is run on."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import boto3
import pytest

from scripts.helpers.watermarks import Watermarks
from tests.sinks.contract.targets import TARGETS, Copy, Database, Delta, Files, Folder, Iceberg, Place, Prefix, Target
from tests.support.database_fixtures import written_as
from tests.support.places import REGION

_numbers = itertools.count(1)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Run the formats beyond Parquet and Delta only if something has changed since their tests last passed."""
    given = getattr(item, "callspec", None)
    if given is not None and "target" in given.params and TARGETS[given.params["target"]].is_a_further_format:
        item.add_marker(pytest.mark.if_changed("targets"))


@pytest.fixture(scope="session")
def contract_catalog(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return an Iceberg catalog that all tests share."""
    from pyiceberg.catalog.sql import SqlCatalog

    folder = tmp_path_factory.mktemp("contract-lake")
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("raw")
    return catalog


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """Return an empty target of the kind that the test names."""
    kind, name = TARGETS[request.param], f"t{next(_numbers)}"
    fixture = {"delta": "spark_with_tables", "iceberg": "spark_with_tables", "database": "jdbc"}.get(
        kind.family, "spark"
    )
    spark = request.getfixturevalue(fixture) if kind.engine == "spark" else None
    if kind.family == "database":
        return Database(kind, written_as(request, kind.form), name, spark)
    if kind.family == "iceberg":
        catalog = None if spark is not None else request.getfixturevalue("contract_catalog")
        return Iceberg(kind, f"lake.raw.{name}", catalog, spark)
    s3: Any = None
    place: Place = Folder(tmp_path / "lake" / "raw")
    if kind.on_s3:
        # `deltalake` holds Python's lock while it waits for S3, so the S3 server needs a process of its own.
        url = request.getfixturevalue("moto_process" if kind.family == "delta" else "endpoint")
        s3 = boto3.client("s3", endpoint_url=url)
        s3.create_bucket(Bucket=f"contract-{name}", CreateBucketConfiguration={"LocationConstraint": REGION})
        place = Prefix(s3, f"contract-{name}", "lake/raw")
    return (Files if kind.family == "files" else Delta)(kind, place, spark, s3)


@pytest.fixture
def copy(watermarks: Watermarks, target: Target) -> Copy:
    """Return a job that writes to the target."""
    return Copy(watermarks, target)
