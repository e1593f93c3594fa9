"""What Delta and Iceberg tables have recorded of a job: the last version of each epoch, however the log is kept."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from scripts.helpers.errors import TargetError
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.sinks.delta import DeltaSink
from scripts.helpers.sinks.iceberg import IcebergSink
from scripts.helpers.sinks.outputs import mark_of
from tests.support.staging import staged_by

JOB, OTHER = mark_of("repairs"), mark_of("parking")
ROWS = pa.table({"id": [1, 2, 3]})
LONG_AGO, LONG_AFTER = 1_600_000_000_000, 4_000_000_000_000


class Log:
    """A Delta table with a log that is written by hand: each commit records one transaction."""

    def __init__(self, path: Path, spark: Any = None) -> None:
        self.path, self.folder, self.spark = str(path), path / "_delta_log", spark

    def make(self, **properties: str) -> None:
        shown = {f"delta.{name}": value for name, value in properties.items()}
        write_deltalake(self.path, ROWS, configuration=shown, mode="error")

    def record(self, app: str, version: int, at: int | None = None) -> None:
        once = CommitProperties(app_transactions=[Transaction(app, version, at)])
        write_deltalake(DeltaTable(self.path), ROWS, mode="append", commit_properties=once)

    def clean(self) -> None:
        """Delete the commits before the last checkpoint, as Delta does once they are old enough."""
        last = max(file.name[:20] for file in self.folder.glob("[0-9]*.checkpoint*"))
        for file in self.folder.glob("[0-9]*.json"):
            if "checkpoint" not in file.name and file.name[:20] <= last:
                file.unlink()

    @property
    def checkpoints(self) -> list[str]:
        return sorted(file.name.partition(".checkpoint")[2] for file in self.folder.glob("[0-9]*.checkpoint*"))

    def recorded(self) -> dict[str, int]:
        return DeltaSink(self.path).recorded(JOB).epochs

    def recorded_on_spark(self) -> dict[str, int]:
        # Clear the cache, as if another process read the log: it would know nothing of what the tests have deleted.
        self.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        return DeltaSink(self.path, spark=self.spark).recorded(JOB).epochs


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "sales")


def checkpoint_by_deltalake(log: Log) -> None:
    DeltaTable(log.path).create_checkpoint()


def checkpoint_by_spark(log: Log, **settings: str) -> None:
    for name, value in settings.items():
        log.spark.conf.set(f"spark.databricks.delta.{name}", value)
    try:
        delta = log.spark._jvm.org.apache.spark.sql.delta.DeltaLog
        delta.clearCache()
        delta.forTable(log.spark._jsparkSession, log.path).checkpoint()
    finally:
        for name in settings:
            log.spark.conf.unset(f"spark.databricks.delta.{name}")


def make_v2(log: Log) -> None:
    # Delta takes its catalog from the active session.
    log.spark._jvm.SparkSession.setActiveSession(log.spark._jsparkSession)
    log.spark.sql(f"ALTER TABLE delta.`{log.path}` SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')")


def in_parts(log: Log) -> None:
    checkpoint_by_spark(log, **{"checkpoint.partSize": "1"})


def v2_of(kind: str) -> Callable[[Log], None]:
    def make(log: Log) -> None:
        make_v2(log)
        checkpoint_by_spark(log, **{"checkpointV2.topLevelFileFormat": kind})

    return make


def v2_by_deltalake(log: Log) -> None:
    make_v2(log)
    checkpoint_by_deltalake(log)


FORMS: dict[str, tuple[Callable[[Log], None], str]] = {
    "one file of deltalake": (checkpoint_by_deltalake, r"\.parquet"),
    "one file": (checkpoint_by_spark, r"\.parquet"),
    "parts": (in_parts, r"\.0+1\.0+[2-9]\.parquet"),
    "V2 in Parquet": (v2_of("parquet"), r"\.[0-9a-f-]{36}\.parquet"),
    "V2 in JSON": (v2_of("json"), r"\.[0-9a-f-]{36}\.json"),
    "V2 of deltalake": (v2_by_deltalake, r".*\.(parquet|json)"),
}


@pytest.mark.parametrize(("form", "is_cleaned"), [*((form, True) for form in FORMS), ("one file of deltalake", False)])
def test_versions_of_all_epochs_are_returned_when_the_log_has_a_checkpoint(
    spark_with_tables: Any, tmp_path: Path, form: str, is_cleaned: bool
) -> None:
    log, (make_checkpoint, name) = Log(tmp_path / "sales", spark_with_tables), FORMS[form]
    log.make()
    for app, version in ((f"{JOB}/e1", 3), (f"{JOB}/e1", 4), (f"{JOB}/e2", 1), (f"{OTHER}/e1", 9), ("stream", 7)):
        log.record(app, version)
    make_checkpoint(log)
    log.record(f"{JOB}/e2", 2)
    log.record(f"{JOB}/e3", 1)
    if is_cleaned:
        log.clean()

    found, on_spark = log.recorded(), log.recorded_on_spark()

    assert found == on_spark == {"e1": 4, "e2": 2, "e3": 1}
    assert re.fullmatch(name, log.checkpoints[0])


def test_nothing_is_returned_when_there_is_no_table(spark_with_tables: Any, tmp_path: Path) -> None:
    log = Log(tmp_path / "sales", spark_with_tables)

    assert (log.recorded(), log.recorded_on_spark()) == ({}, {})
    log.make()
    assert (log.recorded(), log.recorded_on_spark()) == ({}, {})


@pytest.mark.parametrize("has_checkpoint", [True, False], ids=["checkpoint", "commits"])
def test_transaction_is_left_out_when_it_has_expired(
    spark_with_tables: Any, tmp_path: Path, has_checkpoint: bool
) -> None:
    log = Log(tmp_path / "sales", spark_with_tables)
    log.make(setTransactionRetentionDuration="interval 1 hours")
    log.record(f"{JOB}/e1", 3, LONG_AGO)
    log.record(f"{JOB}/e2", 1, LONG_AFTER)
    if has_checkpoint:
        checkpoint_by_deltalake(log)

    assert log.recorded() == log.recorded_on_spark() == {"e2": 1}


@pytest.mark.parametrize("hint", [None, "", '{"version": 1, "size": 3}', '{"version": 99}'])
def test_versions_are_returned_when_the_hint_at_the_last_checkpoint_is_of_no_use(log: Log, hint: str | None) -> None:
    log.make()
    log.record(f"{JOB}/e1", 1)
    checkpoint_by_deltalake(log)
    log.record(f"{JOB}/e2", 1)
    checkpoint_by_deltalake(log)
    log.clean()
    last = log.folder / "_last_checkpoint"
    last.unlink()
    if hint is not None:
        last.write_text(hint)

    assert log.recorded() == {"e1": 1, "e2": 1}


def test_older_checkpoint_counts_when_a_part_of_the_newest_is_missing(spark_with_tables: Any, tmp_path: Path) -> None:
    log = Log(tmp_path / "sales", spark_with_tables)
    log.make()
    log.record(f"{JOB}/e1", 1)
    checkpoint_by_deltalake(log)
    log.record(f"{JOB}/e2", 1)
    log.clean()
    in_parts(log)
    (log.folder / "_last_checkpoint").unlink()
    next(log.folder.glob("[0-9]*.checkpoint.0000000001.*")).unlink()

    assert log.recorded() == log.recorded_on_spark() == {"e1": 1, "e2": 1}


def test_log_is_listed_again_when_a_clean_up_deletes_what_was_listed(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.make()
    log.record(f"{JOB}/e1", 1)
    sink = DeltaSink(log.path)
    read = sink.target.read
    deleted: list[str] = []

    def read_after_the_clean_up(name: str) -> bytes | None:
        if not deleted:
            checkpoint_by_deltalake(log)
            log.clean()
            deleted.append(name)
        return read(name)

    monkeypatch.setattr(sink.target, "read", read_after_the_clean_up)

    assert sink.recorded(JOB).epochs == {"e1": 1}
    assert not Path(log.path, deleted[0]).exists()


def test_error_names_the_log_when_a_commit_is_missing(log: Log) -> None:
    log.make()
    log.record(f"{JOB}/e1", 1)
    log.record(f"{JOB}/e2", 1)
    sink = DeltaSink(log.path)
    (log.folder / f"{1:020d}.json").unlink()

    with pytest.raises(TargetError, match="_delta_log"):
        sink.recorded(JOB)


def test_versions_are_returned_when_a_text_in_the_log_holds_another_end_of_a_line(log: Log) -> None:
    log.make()
    log.record(f"{JOB}/e1", 1)
    commit = log.folder / f"{1:020d}.json"
    actions = [*map(json.loads, commit.read_text().split("\n")), {"txn": {"appId": "a\u2028b", "version": 1}}]
    commit.write_text("\n".join(json.dumps(action, ensure_ascii=False) for action in actions))

    assert log.recorded() == {"e1": 1}


@pytest.mark.parametrize(
    "properties", [{}, {"setTransactionRetentionDuration": "interval 1 days"}], ids=["kept", "expire"]
)
def test_table_is_opened_at_most_once_when_it_has_many_epochs(
    log: Log, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]
) -> None:
    log.make(**properties)
    for number in range(1, 6):
        log.record(f"{JOB}/e{number}", number, LONG_AFTER)
    opened: list[str] = []

    class Counted(DeltaTable):
        def __init__(self, uri: str, **options: Any) -> None:
            opened.append(uri)
            super().__init__(uri, **options)

    monkeypatch.setattr("deltalake.DeltaTable", Counted)
    found = log.recorded()

    assert found == {f"e{number}": number for number in range(1, 6)}
    assert len(opened) == len(properties)


@pytest.mark.parametrize("engine", ["spark", "pyiceberg"])
def test_versions_of_all_epochs_are_returned_when_an_iceberg_table_has_them(
    request: pytest.FixtureRequest, tmp_path: Path, engine: str
) -> None:
    if engine == "spark":
        spark = request.getfixturevalue("spark_with_tables")
        name, options = "lake.raw.recorded", {"spark": spark}
        frame: Any = spark.createDataFrame([(1,)], "id long")
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.raw")
    else:
        catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/lake.db", warehouse=f"file://{tmp_path}")
        catalog.create_namespace("raw")
        name, options, frame = "lake.raw.recorded", {"catalog": catalog}, pa.table({"id": [1]})
    sink = IcebergSink(name, **options)
    before = sink.recorded(JOB).epochs
    for job, epoch, version in (("repairs", "e1", 3), ("repairs", "e1", 4), ("repairs", "e2", 1), ("parking", "e1", 9)):
        sink.publish(staged_by(sink, BatchId(job, epoch, version), 7, frame))

    found = [sink.recorded(job).epochs for job in (JOB, OTHER)]
    assert (before, *found) == ({}, {"e1": 4, "e2": 1}, {"e1": 9})
