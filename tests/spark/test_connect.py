"""Jobs over Spark Connect with a real server: rows, files, databases, sinks and counts, and what is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.databases import table
from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.errors import InvalidValueError, MisfitError, MissingConnectorError, NoJvmError, SourceError
from scripts.helpers.glue.context import GlueContext
from scripts.helpers.glue.frames import DynamicFrame
from scripts.helpers.glue.job import Job
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.sinks.database import DatabaseSink
from scripts.helpers.sinks.delta import DeltaSink
from scripts.helpers.sinks.files import FileSink
from scripts.helpers.sinks.iceberg import IcebergSink
from scripts.helpers.sinks.places import place_of
from scripts.helpers.spark.jvm import is_connect
from scripts.helpers.spark.progress import time_limit
from scripts.helpers.spark.tasks import slots_of, spread
from scripts.helpers.tables.delta import DeltaTable
from scripts.helpers.tables.iceberg import IcebergTable
from scripts.helpers.watermarks import Watermarks
from tests.support.databases import SQLiteFile
from tests.support.odd_settings import LOADED, loaded, set_oddly
from tests.support.planted import plant_type
from tests.support.reasons import because
from tests.support.staging import staged_by

JOB = "parking"
COUNTS = version("pyspark") >= "4"
"""PySpark 3.5 drops the counts that a Spark Connect server returns."""


@pytest.fixture
def make_job(connect: Any, watermarks: Watermarks, clock: Any) -> Callable[[], IncrementalJob]:
    return lambda: IncrementalJob(watermarks, JOB, spark=connect, clock=clock)


def write(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def ids(df: Any) -> list[Any]:
    return sorted(row["id"] for row in df.collect())


# --- rows and counts -----------------------------------------------------------------------------------


def test_new_rows_are_written_once_when_a_job_runs_twice(
    connect: Any, make_job: Callable[[], IncrementalJob], tmp_path: Path
) -> None:
    target = f"file://{tmp_path}/raw"

    for rows in (3, 5):
        with make_job() as job:
            job.write(job.rows_since(connect.range(1, rows + 1), "id"), target)

    assert ids(connect.read.parquet(target)) == [1, 2, 3, 4, 5]


def test_rows_are_counted_or_a_warning_names_the_context_when_they_are_read(
    connect: Any,
    make_job: Callable[[], IncrementalJob],
    watermarks: Watermarks,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    with caplog.at_level(logging.WARNING), make_job() as job:
        rows = job.rows_since(connect.range(1, 4), "id", transformation_ctx="repairs")
        job.write(rows, f"file://{tmp_path}/raw")

    metrics = watermarks.history(JOB)[0].change.metrics
    warned = "event=rows_not_counted context=repairs: Spark Connect" in caplog.text
    assert (metrics.get("rows_collected"), warned) == ((3, False) if COUNTS else (None, True))


def test_times_are_compared_as_instants_when_the_cursor_is_a_time(
    connect: Any, make_job: Callable[[], IncrementalJob]
) -> None:
    source = connect.sql("SELECT id, timestamp_micros(id * 60000000) AS at FROM range(1, 4)")

    with make_job() as job:
        first = ids(job.rows_since(source, "at"))
    more = connect.sql("SELECT id, timestamp_micros(id * 60000000) AS at FROM range(1, 6)")
    with make_job() as job:
        window = job.rows_since(more, "at")
        second = ids(window)

    assert (first, second) == ([1, 2, 3], [4, 5])


def test_rows_and_files_are_loaded_once_when_the_settings_of_a_session_are_odd(
    connect: Any, watermarks: Watermarks, tmp_path: Path
) -> None:
    with set_oddly(connect):
        assert loaded(connect, watermarks, tmp_path) == LOADED


# --- files ---------------------------------------------------------------------------------------------


def test_new_files_are_read_in_each_way_when_they_are_planned(
    connect: Any, make_job: Callable[[], IncrementalJob], tmp_path: Path
) -> None:
    write(tmp_path, "bay=1/a.json", '{"id": 1}\n{"id": 2}\n')
    write(tmp_path, "bay=2/b [x].json", '{"id": 3}\n')

    with make_job() as job:
        landed = job.new_files(str(tmp_path))
        read = landed.read(connect, "json", path_column="path")
        small = landed.read_small(connect, "json", "id LONG, bay INT", path_column="path")
        rows = [sorted(map(tuple, each.select("id", "bay", "path").collect())) for each in (read, small)]
        paths = landed.paths

    assert rows[0] == rows[1]
    assert [row[:2] for row in rows[0]] == [(1, 1), (2, 1), (3, 2)]
    assert {row[2] for row in rows[0]} == set(paths)


def test_folders_stay_texts_when_rows_are_read_after_the_setting_is_given_back(
    connect: Any, make_job: Callable[[], IncrementalJob], tmp_path: Path
) -> None:
    write(tmp_path, "bay=007/a.json", '{"id": 1}\n')

    with make_job() as job:
        landed = job.new_partitions(str(tmp_path), "bay")
        rows = landed.read(connect, "json").select("id", "bay").collect()

    assert [tuple(row) for row in rows] == [(1, "007")]


def test_read_is_ended_when_it_takes_too_long_and_a_slot_is_free(connect: Any) -> None:
    slow = connect.sql("SELECT java_method('java.lang.Thread', 'sleep', 100000L) AS slept FROM range(0, 1, 1, 1)")

    with pytest.raises(TimeoutError, match="no task ended within 2 seconds"), time_limit(connect, 2):
        slow.collect()

    assert connect.getTags() == set()


def test_schema_is_asked_for_when_a_line_has_several_objects_of_json(
    connect: Any, make_job: Callable[[], IncrementalJob], tmp_path: Path
) -> None:
    write(tmp_path, "a.json", '{"id": 1}{"id": 2}\n')

    with make_job() as job:
        landed = job.new_files(str(tmp_path))
        with pytest.raises(SourceError, match="infers the columns of the first"):
            landed.read(connect, "json")
        rows = landed.read(connect, "json", schema="id BIGINT").collect()

    assert [row.id for row in rows] == [1, 2]


def test_column_is_named_when_a_value_does_not_fit_as_it_is_written(
    connect: Any, make_job: Callable[[], IncrementalJob], tmp_path: Path
) -> None:
    write(tmp_path, "landing/a.csv", "id,d\n1,2024-02-29\n2,2024-02-30\n")

    with pytest.raises(MisfitError) as caught, make_job() as job:
        rows = job.new_files(f"file://{tmp_path}/landing/").read(connect, "csv", header=True, schema="id INT, d DATE")
        job.write(rows, f"file://{tmp_path}/raw")

    assert (caught.value.column, caught.value.type_name) == ("d", "date")


def test_missing_package_is_named_when_a_format_is_unknown_to_the_server(
    connect: Any, make_job: Callable[[], IncrementalJob], tmp_path: Path
) -> None:
    write(tmp_path, "a.json", '{"id": 1}\n')

    with make_job() as job:
        landed = job.new_files(str(tmp_path))
        with pytest.raises(MissingConnectorError, match=r"format='no_such_format' is not installed\. Check its name"):
            landed.read(connect, "no_such_format")


def test_read_small_is_refused_when_spark_would_infer_the_schema(
    connect: Any, make_job: Callable[[], IncrementalJob], tmp_path: Path
) -> None:
    write(tmp_path, "a.json", '{"id": 1}\n')

    with make_job() as job:
        landed = job.new_files(str(tmp_path))
        with pytest.raises(NoJvmError, match=r"^read_small of json .* Pass schema="):
            landed.read_small(connect, "json")


@pytest.mark.parametrize("module", ["planted_in_a_file", "os"])
def test_file_is_refused_and_no_code_runs_when_a_type_was_planted_in_it(
    connect: Any, make_job: Callable[[], IncrementalJob], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    imported, unpickled = tmp_path / "imported", tmp_path / "unpickled"
    write(tmp_path, "planted_in_a_file.py", f"open({str(imported)!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    plant_type(tmp_path / "landing", module, unpickled)

    with pytest.raises(SourceError, match="names a type of Python"), make_job() as job:
        job.new_files(str(tmp_path / "landing")).read(connect, "parquet")

    assert not imported.exists()
    assert not unpickled.exists()


def test_executors_find_new_files_when_a_limited_batch_left_some(
    connect: Any, make_job: Callable[[], IncrementalJob], tmp_path: Path
) -> None:
    source, found = tmp_path / "landing", []
    for name in ("1.json", "2.json", "3.json"):
        write(source, name, f'{{"id": {name[0]}}}\n')

    for _ in range(3):
        with make_job() as job:
            delta = job.new_files_on_spark(f"{source}/", ledger_uri=f"{tmp_path}/ledger/", max_files=2)
            rows = ids(delta.read_small(connect, "json", "id LONG"))
            found.append((rows, delta.has_more))

    assert sorted(found[0][0] + found[1][0]) == [1, 2, 3]
    assert [has_more for _, has_more in found] == [True, False, False]
    assert found[2][0] == []


# --- tasks ---------------------------------------------------------------------------------------------


def test_slots_are_those_of_the_server_when_they_are_counted(connect: Any, spark: Any) -> None:
    assert slots_of(connect) == slots_of(spark) == 2


@pytest.mark.parametrize("count", [0, 1, 5])
def test_each_part_reaches_one_task_when_parts_are_spread(connect: Any, count: int) -> None:
    parts = [f"part {number}".encode() for number in range(count)]

    found = [bytes(row["value"]) for row in spread(connect, parts).collect()]

    assert sorted(found) == parts


# --- databases -----------------------------------------------------------------------------------------


def test_ranges_of_a_table_hold_each_row_once_when_the_window_is_wide(
    connect: Any, make_job: Callable[[], IncrementalJob], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "MANY", 3)
    database = SQLiteFile(tmp_path / "shop.db")
    name = database.new_table("id INTEGER PRIMARY KEY, bay TEXT")
    database.sql(*(f"INSERT INTO {name} VALUES ({number}, 'north')" for number in range(1, 10)))

    with make_job() as job:
        rows = job.rows_since(JdbcTable(connect, database.url, name), "id", delay=timedelta(0))
        found = (ids(rows), rows.selectExpr("spark_partition_id() AS part").distinct().count())

    assert found == (list(range(1, 10)), 4)


@pytest.mark.parametrize("cursor", ["id", "at"])
@pytest.mark.parametrize("kind", ["postgres", "maria"])
def test_tables_of_servers_are_read_as_without_spark_connect(
    connect: Any,
    jdbc: Any,
    make_job: Callable[[], IncrementalJob],
    request: pytest.FixtureRequest,
    kind: str,
    cursor: str,
) -> None:
    server = request.getfixturevalue(kind)
    server.sql("CREATE SEQUENCE IF NOT EXISTS remote")
    default = {"postgres": "nextval('remote')", "maria": "(NEXTVAL(remote))"}[kind]
    name = server.new_table(f"id bigint DEFAULT {default}, at timestamp, s varchar(9)")
    server.sql(f"INSERT INTO {name} (at, s) VALUES ('2026-01-01 00:00:00', 'x'), ('2026-01-02 00:00:00', 'y')")
    source = JdbcTable(connect, server.url, name, properties=server.properties, zone="UTC")

    with make_job() as job:
        found = job.rows_since(source, cursor, delay=timedelta(seconds=1))

        assert found.count() == 2


def test_driver_is_named_and_no_password_when_the_database_refuses(connect: Any, tmp_path: Path) -> None:
    source = JdbcTable(connect, f"jdbc:sqlite:{tmp_path}/none/shop.db?password=secret", "repairs")

    with pytest.raises(SourceError, match="the database refused the query") as caught:
        source.columns(["id"], strings=False)

    assert "secret" not in str(caught.value)


# --- sinks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_output_has_the_number_of_rows_when_files_are_staged(connect: Any, tmp_path: Path, format: str) -> None:
    sink = FileSink(f"file://{tmp_path}/raw [x]", spark=connect, format=format, partition_by=["bay"])
    rows = connect.createDataFrame([(1, "two\nlines", "north"), (2, "one", "south")], "id INT, note STRING, bay STRING")

    output = staged_by(sink, BatchId(JOB, "e1", 1), 1, rows)
    sink.publish(output)

    assert output.rows == 2
    assert len(sink.visible()) == 2


def test_output_is_empty_when_no_rows_are_staged(connect: Any, tmp_path: Path) -> None:
    sink = FileSink(f"file://{tmp_path}/raw", spark=connect, partition_by=["bay"])
    rows = connect.createDataFrame([], "id INT, bay STRING")

    output = staged_by(sink, BatchId(JOB, "e1", 1), 1, rows)

    assert (output.rows, output.files) == (0, 0)


def test_empty_texts_are_counted_when_rows_are_parted_by_them(connect: Any, tmp_path: Path) -> None:
    sink = FileSink(f"file://{tmp_path}/raw", spark=connect, partition_by=["bay"])
    rows = connect.createDataFrame([(1, ""), (2, None), (3, "north"), (4, "")], "id INT, bay STRING")

    with pytest.raises(InvalidValueError, check=because("unfit_partition"), match="'bay': 2 rows have"):
        staged_by(sink, BatchId(JOB, "e1", 1), 1, rows)

    assert sink.staging.place.files() == {}


def test_server_of_a_bucket_is_that_of_the_environment_when_spark_does_not_tell_its_own(
    connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://localhost:9000")

    place: Any = place_of("s3a://lake/raw", connect, None)

    assert place.login()["AWS_ENDPOINT_URL"] == "http://localhost:9000"


# --- features that need a JVM --------------------------------------------------------------------------

REFUSED: dict[str, Callable[[Any], object]] = {
    "A Delta table": lambda spark: DeltaSink("s3://lake/repairs/", spark=spark),
    "A Delta table ": lambda spark: DeltaTable("s3://lake/repairs/", spark=spark),
    "An Iceberg table": lambda spark: IcebergSink("lake.shop.repairs", spark=spark),
    "An Iceberg table ": lambda spark: IcebergTable("lake.shop.repairs", spark=spark),
    "A database sink over JDBC": lambda spark: DatabaseSink("repairs", spark=spark, url="jdbc:postgresql://db/shop"),
    "query=": lambda spark: JdbcTable(spark, "jdbc:postgresql://db/shop", query="SELECT id FROM repairs"),
    "The path '/raw', which has no scheme,": lambda spark: FileSink("/raw", spark=spark),
    "The path 'hdfs://lake/raw'": lambda spark: FileSink("hdfs://lake/raw", spark=spark),
    "GlueContext": GlueContext,
    "DynamicFrame": lambda spark: DynamicFrame.fromDF(spark.range(1), None, "repairs"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_session_is_refused_with_a_remedy_when_something_needs_a_jvm(connect: Any, what: str) -> None:
    with pytest.raises(NoJvmError) as caught:
        REFUSED[what](connect)

    assert str(caught.value).startswith(what.strip())
    assert str(caught.value).endswith(f"this one is of Spark Connect. {caught.value.remedy}")
    assert caught.value.remedy.endswith(".")


def test_job_takes_a_session_of_spark_connect_when_a_script_begins(connect: Any, watermarks: Watermarks) -> None:
    job = Job(connect, watermarks)

    job.init(JOB, {"job_bookmark_option": "job-bookmark-enable", "JOB_RUN_ID": "jr_1"})
    job.commit()

    assert is_connect(connect)
    assert watermarks.get_most_recent_run_id(JOB) == "jr_1"
