"""Tables in an Iceberg REST catalog, such as S3 Tables and Glue have: sources and targets, with Spark and without."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from scripts.helpers.errors import TargetError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.sinks import IcebergSink
from scripts.helpers.tables import IcebergTable
from scripts.helpers.watermarks import Watermarks
from tests.support import maven_jars
from tests.support.components import missing_component
from tests.support.rest_catalog import RestCatalog, rest_catalog
from tests.support.staging import staged_by
from tests.support.steps import KilledError

pytestmark = pytest.mark.if_changed("targets")
Write = Callable[["Copy", IncrementalJob, Any], None]


@pytest.fixture(scope="session")
def rest_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    found = maven_jars.jars(coordinates=maven_jars.REST_CATALOG)
    assert not found.wrong, found.wrong
    if found.unreachable:
        missing_component("Iceberg's REST catalog", f"python -m tests.support.maven_jars ({found.unreachable})")
    with rest_catalog(found.paths, tmp_path_factory.mktemp("rest-lake")) as served:
        load_catalog("rest", type="rest", uri=served.url).create_namespace("raw")
        yield served


class Copy:
    """A table in a REST catalog, and a job that copies its new rows to another table."""

    def __init__(self, server: RestCatalog, spark: Any, watermarks: Watermarks, name: str) -> None:
        self.server, self.spark, self.watermarks = server, spark, watermarks
        self._catalog = load_catalog("rest", type="rest", uri=server.url)
        given = {"catalog": self._catalog} if spark is None else {"spark": spark}
        self.source = IcebergTable(f"rest.raw.{name}", **given)
        self.target = f"rest.raw.{name}_copy"
        self._given, self.name = given, name

    def sink(self, **options: Any) -> IcebergSink:
        return IcebergSink(self.target, **self._given, **options)

    def append(self, *ids: int) -> None:
        """Add a commit to the source by `pyiceberg`, as other writers do."""
        rows = pa.table({"id": ids, "seen": ids, "kind": [f"k{number % 2}" for number in ids]})
        self._catalog.create_table_if_not_exists(f"raw.{self.name}", rows.schema).append(rows)

    def run(self, write: Write, *, dies: bool = False) -> None:
        with IncrementalJob(self.watermarks, "copy", spark=self.spark) as job:
            write(self, job, job.rows_since(self.source))
            if dies:
                job.freeze()
                raise KilledError

    @property
    def folder(self) -> Path:
        """The folder of the copy."""
        return Path(self._catalog.load_table(f"raw.{self.name}_copy").location().removeprefix("file:"))

    @property
    def copied(self) -> list[int]:
        return sorted(self._catalog.load_table(f"raw.{self.name}_copy").scan().to_arrow()["id"].to_pylist())


def let_spark_use(server: RestCatalog, spark: Any) -> None:
    options = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": server.url}
    for name, value in options.items():
        spark.conf.set(f"spark.sql.catalog.rest{name}", value)


@pytest.fixture(params=["spark", "pyiceberg"])
def copy(request: pytest.FixtureRequest, rest_server: RestCatalog, watermarks: Watermarks) -> Iterator[Copy]:
    spark = request.getfixturevalue("spark_with_tables") if request.param == "spark" else None
    if spark is not None:
        let_spark_use(rest_server, spark)
    rest_server.stages_tables = False
    yield Copy(rest_server, spark, watermarks, f"t{abs(hash(request.node.name))}")
    rest_server.stages_tables, rest_server.lose, rest_server.lost = True, 0, 0


def append(copy: Copy, job: IncrementalJob, rows: Any) -> None:
    job.write(rows, copy.sink(partition_by=["kind"] if copy.spark is not None else []))


def merge(copy: Copy, job: IncrementalJob, rows: Any) -> None:
    job.merge(rows, copy.sink(), keys="id", sequence_by="seen")


@pytest.mark.parametrize("write", [append, merge])
def test_copy_has_each_row_once_when_an_answer_is_lost_and_a_run_dies(copy: Copy, write: Write) -> None:
    copy.append(1, 2)
    copy.server.lose = 1
    copy.run(write)
    copy.append(3)
    with pytest.raises(KilledError):
        copy.run(write, dies=True)
    copy.append(4)
    copy.run(write)  # This run reads what the dead run planned.
    copy.run(write)

    assert copy.server.lost == 1
    assert copy.copied == [1, 2, 3, 4]


@pytest.mark.parametrize("copy", ["pyiceberg"], indirect=True)
def test_new_table_with_partitions_is_refused_when_the_catalog_makes_none_in_a_transaction(copy: Copy) -> None:
    copy.append(1)

    with pytest.raises(TargetError, match="stage-create"), IncrementalJob(copy.watermarks, "copy") as job:
        job.write(job.rows_since(copy.source), copy.sink(partition_by=["kind"]))


def test_removal_of_orphan_files_between_any_two_steps_loses_no_row(copy: Copy, spark_with_tables: Any) -> None:
    let_spark_use(copy.server, spark_with_tables)
    removed: list[str] = []

    def remove_orphans() -> None:
        """Make all files older than three days, and delete those that no snapshot names."""
        (copy.folder / "data" / "orphan.parquet").touch()
        for path in copy.folder.parent.rglob("*"):
            os.utime(path, (0, 0))
        # Spark keeps a table for a while, and would take files of later commits for orphans.
        spark_with_tables.sql(f"REFRESH TABLE {copy.target}")
        found = spark_with_tables.sql(f"CALL rest.system.remove_orphan_files(table => 'raw.{copy.name}_copy')")
        removed.extend(row[0].rpartition("/")[2] for row in found.collect())

    def frame(number: int) -> Any:
        rows = pd.DataFrame({"id": [number]})
        return rows if copy.spark is None else copy.spark.createDataFrame(rows)

    sink = copy.sink()
    for version in (1, 2):
        output = staged_by(sink, BatchId("copy", "e1", version), 7, frame(version))
        if version == 2:
            remove_orphans()
        sink.publish(output)
        remove_orphans()
        sink.clear(output)
        remove_orphans()

    assert copy.copied == [1, 2]
    assert set(removed) == {"orphan.parquet"}
