"""Which errors of a connector mean that a part of the table is gone, and what the error for the user says."""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake.exceptions import DeltaError
from pyiceberg.exceptions import NoSuchTableError

from scripts.helpers.errors import InvalidValueError, MissingConnectorError, SourceError, SourceLostError, TargetError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks import connectors
from scripts.helpers.sinks.files import FileSink
from scripts.helpers.tables import IcebergTable, delta, iceberg
from scripts.helpers.tables.iceberg import Metadata, Snapshot
from scripts.helpers.tables.sources import raising_expired
from scripts.helpers.tables.spans import TableSpan
from scripts.helpers.watermarks import Watermarks
from tests.support.reasons import because
from tests.support.versioned_tables import DeltaByHand, IcebergByHand

SPARK: Any = SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: default))
"""A session without extensions."""
ON_SPARK = {
    "delta": delta._SparkEngine("s3://lake/sales", SPARK),
    "iceberg": iceberg._SparkEngine("lake.raw.sales", SPARK),
}
WITHOUT: dict[str, Any] = {
    "delta": delta._ArrowEngine(SimpleNamespace(uri=lambda _: "file:///lake/sales")),
    "iceberg": iceberg._ArrowEngine("lake.raw.sales", SimpleNamespace(load_table=lambda _: object())),
}


@pytest.mark.parametrize(
    ("engine", "error", "is_gone"),
    [
        (ON_SPARK["delta"], Exception("Cannot time travel Delta table to version 3. Available: [5, 9]."), True),
        (ON_SPARK["delta"], Exception("[DELTA_VERSION_NOT_FOUND] Cannot time travel to 3"), True),
        (ON_SPARK["delta"], Exception("FileNotFoundException: s3a://lake/sales/a.parquet"), True),
        (ON_SPARK["delta"], Exception("FileNotFoundException: s3a://lake/copy/a.parquet"), False),
        (ON_SPARK["delta"], Exception("AccessDenied: s3a://lake/sales/a.parquet"), False),
        (ON_SPARK["iceberg"], Exception("Cannot find snapshot with ID 3"), True),
        (ON_SPARK["iceberg"], Exception("Cannot find the end snapshot: 3"), True),
        (ON_SPARK["iceberg"], Exception("Starting snapshot 3 is not a parent ancestor of end snapshot 5"), True),
        # The table was not looked up, so the location of its files is unknown.
        (ON_SPARK["iceberg"], Exception("NotFoundException: s3://lake/copy/a.parquet"), False),
        (WITHOUT["delta"], FileNotFoundError("a.parquet"), True),
        (WITHOUT["delta"], DeltaError("Object at location a.parquet not found"), True),
        (WITHOUT["delta"], OSError("Generic error: No such file or directory (os error 2)"), True),
        (WITHOUT["delta"], DeltaError("Invalid version"), False),
        (WITHOUT["iceberg"], FileNotFoundError("a.parquet"), True),
        (WITHOUT["iceberg"], ValueError("Snapshot not found: 3"), True),
        (WITHOUT["iceberg"], ValueError("Could not find snapshot 3"), True),
        (WITHOUT["iceberg"], ValueError("Invalid schema"), False),
        (WITHOUT["iceberg"], OSError("Snapshot"), False),
    ],
)
def test_error_means_that_data_is_gone_when_it_is_about_a_file_or_snapshot_of_the_table(
    engine: Any, error: Exception, is_gone: bool
) -> None:
    assert engine.is_gone(error) is is_gone


@pytest.mark.parametrize(
    ("error", "is_its_own"),
    [
        (NoSuchTableError("x"), True),
        (OSError("x"), True),
        (ValueError("x"), False),
        (RuntimeError("pyiceberg."), False),
    ],
    ids=repr,
)
def test_error_is_one_of_pyiceberg_when_its_class_is_or_it_is_an_oserror(error: Exception, is_its_own: bool) -> None:
    assert WITHOUT["iceberg"].is_of_connector(error) is is_its_own


# --- where rows are read --------------------------------------------------------------------------------------------


def reading(*, is_planned: bool = True) -> AbstractContextManager[None]:
    def is_gone(error: Exception) -> bool:
        return "gone" in str(error)

    return raising_expired(is_gone, "s3://lake/sales", "rows", "orders", is_planned=is_planned)


def raised_by(error: Exception, cause: Exception | None) -> Exception:
    """Raise an error while rows are read, and return the error that reaches the caller."""
    with pytest.raises(Exception) as raised, reading(is_planned=False):  # noqa: PT011
        raise error from cause
    return raised.value


@pytest.mark.parametrize(
    ("error", "cause"),
    [(RuntimeError("gone"), None), (TargetError("t", "it fails."), RuntimeError("gone"))],
    ids=["reader", "target"],
)
def test_expired_source_is_named_with_its_context_when_a_file_of_it_is_gone(
    error: Exception, cause: Exception | None
) -> None:
    found = raised_by(error, cause)

    assert isinstance(found, SourceLostError)
    assert (found.source, found.context, found.job_id, found.reason) == ("s3://lake/sales", "rows", "orders", "expired")
    assert found.__cause__ is error


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (RuntimeError("full"), None),
        (SourceError("s", "it is gone."), None),
        (TargetError("t", "it is gone."), None),
        (TargetError("t", "it is gone."), RuntimeError("full")),
    ],
    ids=["reader", "ours", "target", "target with a cause"],
)
def test_error_is_left_as_it_is_when_nothing_of_the_source_is_gone(error: Exception, cause: Exception | None) -> None:
    assert raised_by(error, cause) is error


@pytest.mark.parametrize("make", [DeltaByHand, IcebergByHand], ids=["delta", "iceberg"])
def test_error_of_a_target_is_left_as_it_is_when_the_rows_of_the_table_are_in_memory(
    make: Any, watermarks: Watermarks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: FileSink, *_: Any, **__: Any) -> None:
        raise TargetError(self.name, "its folder is gone.") from FileNotFoundError("copy")

    table = make(tmp_path)
    table.append(1)
    monkeypatch.setattr(FileSink, "stage", fail)

    with pytest.raises(TargetError, match="its folder is gone"), IncrementalJob(watermarks, "sales") as job:
        job.write(job.rows_since(table.source()), f"{tmp_path}/copy")


# --- Delta ----------------------------------------------------------------------------------------------------------


def delta_span(after: int, until: int, **facts: Any) -> TableSpan:
    return TableSpan("delta", after, until, **facts)


def test_source_has_expired_when_a_file_is_deleted_just_before_it_is_read(tmp_path: Path) -> None:
    table = DeltaByHand(tmp_path)
    table.append(1)
    source = table.source()
    for file in Path(table.path).glob("*.parquet"):
        file.unlink()

    with (
        pytest.raises(SourceLostError, check=because("expired")) as raised,
        source.typed_errors("rows", "orders", is_planned=False),
    ):
        source.rows(delta_span(0, 1))

    assert (raised.value.source, raised.value.context, raised.value.job_id) == (source.name, "rows", "orders")


@pytest.mark.parametrize("until", [2, 3], ids=["expired", "newer than the table"])
def test_span_is_lost_when_a_version_of_it_is_not_in_the_log(tmp_path: Path, until: int) -> None:
    table = DeltaByHand(tmp_path)
    table.append(1)
    table.append(2)
    is_lost = table.source().is_lost(delta_span(0, 2))
    if until == 2:
        table.expire()

    assert (is_lost, table.source().is_lost(delta_span(0, until))) == (False, True)


def test_table_is_missing_when_its_changes_are_asked_for_after_it_was_deleted(tmp_path: Path) -> None:
    table = DeltaByHand(tmp_path)
    shutil.rmtree(table.path)

    with pytest.raises(SourceError) as raised:
        table.source().check_feed(delta_span(0, 1, changes="feed"))

    assert str(raised.value) == f"Source {table.name!r}: there is no Delta table. Check the path."


def test_error_says_to_check_the_rights_when_a_file_of_the_log_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = DeltaByHand(tmp_path)
    source = table.source()
    engine: Any = source._engine

    def refuse(_: str) -> bytes:
        raise TargetError(table.name, "S3 refuses s3:GetObject.")

    monkeypatch.setattr(engine._place, "read", refuse, raising=False)

    with pytest.raises(SourceError) as raised:
        source.head()

    assert str(raised.value) == (
        f"Source {table.name!r}: Target {table.name!r}: S3 refuses s3:GetObject. Check the rights there."
    )


def test_rows_have_the_columns_of_the_table_when_deltalake_is_older_than_its_scan() -> None:
    import pyarrow as pa

    engine = WITHOUT["delta"]
    older = SimpleNamespace(to_pyarrow_table=lambda: pa.table({"other": ["x"], "id": pa.array([1], pa.int32())}))

    found = engine._scanned(older, pa.schema([("id", pa.int64())]))

    assert found == pa.table({"id": pa.array([1], pa.int64())})


def test_connector_is_asked_for_when_spark_has_the_extension_but_not_the_jar(monkeypatch: pytest.MonkeyPatch) -> None:
    package = SimpleNamespace()  # As Py4J's package for a name that is no class: it cannot be called.
    java = SimpleNamespace(
        org=SimpleNamespace(
            apache=SimpleNamespace(
                spark=SimpleNamespace(
                    sql=SimpleNamespace(
                        SparkSession=SimpleNamespace(setActiveSession=lambda _: None),
                        delta=SimpleNamespace(DeltaLog=SimpleNamespace(forTableWithSnapshot=package)),
                    )
                )
            )
        )
    )
    monkeypatch.setattr(connectors, "java_of", lambda _: java)
    monkeypatch.setattr(connectors, "java_session", lambda _: None)

    with pytest.raises(MissingConnectorError, match="format='delta' is not installed"):
        delta._SparkEngine("s3://lake/sales", SPARK).newest()


class Store:
    """A stand-in for the reader of Delta's log on Spark: version 2 is there, any other raises an error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def read(self, path: str, _: None) -> Any:
        if path != f"{2:020d}.json":
            raise self._error
        return SimpleNamespace(mkString=lambda _: '{"add":{"path":"a"}}')


def commits_of(error: Exception, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    engine = delta._SparkEngine("s3://lake/sales", SPARK)
    log = SimpleNamespace(newDeltaHadoopConf=lambda: None, logPath=lambda: None, store=lambda: Store(error))
    monkeypatch.setattr(engine, "_log", lambda: SimpleNamespace(_1=lambda: log))
    monkeypatch.setattr(engine, "_path", lambda _, name: name)
    return [commit.version for commit in engine.commits([1, 2, 3])]


def test_commit_is_left_out_when_spark_does_not_find_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert commits_of(Exception("java.io.FileNotFoundException: 1.json"), monkeypatch) == [2]


def test_error_of_the_log_is_left_as_it_is_when_its_file_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="AccessDenied"):
        commits_of(RuntimeError("AccessDenied"), monkeypatch)


# --- Iceberg --------------------------------------------------------------------------------------------------------


def test_catalog_of_pyiceberg_is_refused_when_spark_is_given() -> None:
    with pytest.raises(InvalidValueError, check=because("option")) as raised:
        IcebergTable("lake.raw.sales", spark=SPARK, catalog=SimpleNamespace(name="lake"))

    assert str(raised.value) == "Option 'catalog': it is one of pyiceberg, and Spark has its own. Give one of the two."


def test_extension_is_named_when_changes_are_asked_of_a_session_without_it() -> None:
    with pytest.raises(MissingConnectorError) as raised:
        IcebergTable("lake.raw.sales", spark=SPARK).check_feed(TableSpan("iceberg", 1, 2, changes="feed"))

    assert str(raised.value) == (
        "The connector for format='iceberg' is not installed. To read changes, set "
        "spark.sql.extensions=org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions."
    )


def test_error_says_to_update_pyiceberg_when_it_cannot_read_appended_rows() -> None:
    with pytest.raises(MissingConnectorError) as raised:
        WITHOUT["iceberg"].appended(TableSpan("iceberg", 1, 2))

    assert str(raised.value) == (
        "The connector for format='iceberg' is not installed. Appended rows need pyiceberg 0.12 or later; or give "
        "spark=."
    )


def test_error_says_that_spark_is_needed_when_changes_are_read_with_pyiceberg() -> None:
    engine = WITHOUT["iceberg"]

    with pytest.raises(SourceError, check=because("change_feed")) as raised:
        engine.feed(TableSpan("iceberg", 1, 2, changes="feed"), {})

    assert str(raised.value) == f"Source 'lake.raw.sales': {iceberg.NO_SPARK}"


@pytest.mark.parametrize(
    ("facts", "reason", "told"),
    [
        (
            {"sequence": 0},
            "format_version_1",
            "it is of format version 1, whose commits have no numbers that order their changes. Set ",
        ),
        (
            {"marks_deletes": True},
            "merge_on_read",
            "a commit since the watermark marks rows as deleted beside their files",
        ),
    ],
    ids=["version 1", "merge-on-read"],
)
def test_changes_are_refused_when_iceberg_cannot_order_or_make_them(
    facts: dict[str, Any], reason: str, told: str
) -> None:
    from datetime import datetime, timezone

    at = datetime(2026, 3, 16, tzinfo=timezone.utc)
    commit: dict[str, Any] = {"operation": "append", "at": at, "sequence": 2, "marks_deletes": False, **facts}
    found = Metadata("u", 2, 2, {1: Snapshot(1, None, "append", at, 1, False), 2: Snapshot(2, 1, **commit)})
    source = IcebergTable("lake.raw.sales", spark=SPARK)
    engine: Any = SimpleNamespace(check=lambda: None, check_feed=lambda: None, metadata=lambda: found)
    source._engine = engine

    with pytest.raises(SourceError, check=because(reason)) as raised:
        source.check_feed(TableSpan("iceberg", 1, 2, changes="feed"))

    assert str(raised.value).startswith(f"Source 'lake.raw.sales': {told}")
