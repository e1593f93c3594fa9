"""Glue's sinks: `getSink`, tables of the catalogue, database connections, and `purge_s3_path`."""

from __future__ import annotations

import csv
import logging
import os
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from scripts.helpers.errors import InvalidValueError, NotOffGlueError, PlanConflictError, SourceError
from scripts.helpers.glue import DynamicFrame, DynamicFrameCollection, GlueContext, Job, sinks
from scripts.helpers.glue.sinks import url_of_database, write_catalog_table
from tests.glue.options import Put
from tests.support.reasons import because

Begin = Callable[..., Job]
Make = Callable[[str], DynamicFrame]
PARTS = "SELECT * FROM VALUES (1, DATE'2026-01-01', 'a/b'), (2, DATE'2026-01-02', NULL) AS t(id, day, `Area`)"


@pytest.fixture
def frame(glue_context: GlueContext, spark: Any) -> Make:
    return lambda sql: DynamicFrame.fromDF(spark.sql(sql), glue_context, "parts")


@pytest.fixture
def database(catalog: Any, request: pytest.FixtureRequest) -> str:
    """Return the name of a new database of the catalogue."""
    name = f"sinks_{abs(hash(request.node.name))}"
    catalog.create_database(DatabaseInput={"Name": name})
    return name


def ids_in(raw: str) -> list[Any]:
    """Return the ids in the Parquet files of a target, in order."""
    return sorted(pq.read_table(raw.removeprefix("file://"))["id"].to_pylist())


def sink_of(context: GlueContext, raw: str, database: str, **options: Any) -> Any:
    given = {"enableUpdateCatalog": True, "partitionKeys": ["day", "Area"], **options}
    sink = context.getSink(connection_type="s3", path=raw, **given)
    sink.setFormat("glueparquet")
    sink.setCatalogInfo(catalogDatabase=database, catalogTableName="parts")
    return sink


def test_table_and_partitions_are_in_the_catalogue_when_a_sink_has_written(
    glue_context: GlueContext, frame: Make, raw: str, catalog: Any, database: str
) -> None:
    sink = sink_of(glue_context, raw, database)

    errors = sink.writeFrame(frame(PARTS))
    sink_of(glue_context, raw, database).writeFrame(frame(PARTS.replace("id,", "id_2,").replace("(1,", "(3,")))

    table = catalog.get_table(DatabaseName=database, Name="parts")["Table"]
    found = catalog.get_partitions(DatabaseName=database, TableName="parts")["Partitions"]
    assert [(each["Name"], each["Type"]) for each in table["StorageDescriptor"]["Columns"]] == [
        ("id", "int"), ("id_2", "int"),
    ]  # fmt: skip
    assert [(each["Name"], each["Type"]) for each in table["PartitionKeys"]] == [("day", "date"), ("area", "string")]
    assert {tuple(each["Values"]): each["StorageDescriptor"]["Location"] for each in found} == {
        ("2026-01-01", "a/b"): f"{raw}day=2026-01-01/Area=a%2Fb/",
        ("2026-01-02", "__HIVE_DEFAULT_PARTITION__"): f"{raw}day=2026-01-02/Area=__HIVE_DEFAULT_PARTITION__/",
    }
    assert sum(pq.read_metadata(path).num_rows for path in Path(raw.removeprefix("file://")).rglob("*.parquet")) == 4
    assert (errors.name, errors.count()) == ("parts_errors", 0)


@pytest.mark.parametrize("per_batch", [False, True])
def test_csv_is_that_of_rfc_4180_when_it_is_written_by_glues_names(
    begin: Begin, glue_context: GlueContext, frame: Make, raw: str, tmp_path: Path, per_batch: bool
) -> None:
    job = begin("jr_1")
    said = r"""SELECT 1 AS id, 'he said "hi", ok' AS say, 'C:\\temp\\' AS path"""

    options = {"path": raw, "perBatch": per_batch}
    glue_context.write_dynamic_frame.from_options(frame(said), "file", options, "csv")
    job.commit()

    (file,) = (tmp_path / "raw").rglob("*.csv")
    with file.open(newline="") as lines:
        assert [*csv.reader(lines)] == [["id", "say", "path"], ["1", 'he said "hi", ok', "C:\\temp\\"]]


@pytest.mark.parametrize("per_batch", [False, True])
@pytest.mark.parametrize("format", ["csv", "json"])
def test_blanks_and_microseconds_are_kept_when_texts_are_written_by_glues_names(
    begin: Begin, glue_context: GlueContext, frame: Make, raw: str, tmp_path: Path, format: str, per_batch: bool
) -> None:
    job = begin("jr_1")
    said = "SELECT '  007 ' AS code, TIMESTAMP'2026-11-30 10:00:00.123456' AS at"

    options = {"path": raw, "perBatch": per_batch}
    glue_context.write_dynamic_frame.from_options(frame(said), "file", options, format)
    job.commit()

    (file,) = (tmp_path / "raw").rglob(f"*.{format}")
    assert "  007 " in file.read_text()
    assert "10:00:00.123456" in file.read_text()


def csv_sink(context: GlueContext, raw: str, database: str, **format_options: Any) -> Any:
    sink = context.getSink(connection_type="s3", path=raw, enableUpdateCatalog=True)
    sink.setFormat("csv", **format_options)
    sink.setCatalogInfo(catalogDatabase=database, catalogTableName="parts")
    return sink


def rows_of_table(context: GlueContext, database: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table as the catalogue describes it, with the columns in alphabetical order."""
    df = context.create_data_frame.from_catalog(database, "parts")
    return sorted((tuple(row[name] for name in sorted(df.columns)) for row in df.collect()), key=repr)


@pytest.mark.parametrize("options", [{}, {"writeHeader": False}, {"separator": "|"}, {"quoteChar": "'"}])
def test_table_of_csv_is_read_as_it_was_written_when_a_sink_makes_it(
    glue_context: GlueContext, frame: Make, raw: str, database: str, options: dict[str, Any]
) -> None:
    both = frame("SELECT * FROM VALUES ('1', 'a, \\'b\\''), ('2', 'c') AS t(id, name)").coalesce(1)

    csv_sink(glue_context, raw, database, **options).writeFrame(both)

    assert rows_of_table(glue_context, database) == [("1", "a, 'b'"), ("2", "c")]


def test_values_stay_in_their_columns_when_frames_have_other_columns_than_a_table_of_csv(
    glue_context: GlueContext, frame: Make, raw: str, database: str
) -> None:
    for columns in ("'a1' AS a, 'c1' AS c", "'a2' AS a, 'b2' AS b, 'c2' AS c", "'c3' AS C"):
        csv_sink(glue_context, raw, database).writeFrame(frame(f"SELECT {columns}"))

    expected = [("a1", None, "c1"), ("a2", "b2", "c2"), (None, None, "c3")]
    assert rows_of_table(glue_context, database) == expected


@pytest.mark.parametrize("options", [{"writeHeader": False}, {"separator": "|"}, {"quoteChar": "'"}])
def test_files_are_refused_when_a_table_of_csv_would_be_read_in_another_way(
    glue_context: GlueContext, frame: Make, raw: str, database: str, options: dict[str, Any]
) -> None:
    csv_sink(glue_context, raw, database).writeFrame(frame("SELECT '1' AS id"))

    with pytest.raises(InvalidValueError, match="Write the same"):
        csv_sink(glue_context, raw, database, **options).writeFrame(frame("SELECT '2' AS id"))

    assert rows_of_table(glue_context, database) == [("1",)]


def test_rows_fit_the_table_when_a_table_of_csv_is_appended_to_by_its_name(
    glue_context: GlueContext, frame: Make, raw: str, table: Callable[..., str]
) -> None:
    database = table("parts", raw, "csv", columns=["id", "name"], serde={"field.delim": ","})
    write = glue_context.write_dynamic_frame.from_catalog

    write(frame("SELECT 'a' AS name, '1' AS id"), database, "parts")
    with pytest.raises(InvalidValueError, match="columns size, which the CSV table lacks"):
        write(frame("SELECT '2' AS id, 'L' AS size"), database, "parts")

    assert rows_of_table(glue_context, database) == [("1", "a")]


def test_written_table_is_read_by_its_name_when_the_catalogue_has_it(
    glue_context: GlueContext, frame: Make, raw: str, database: str
) -> None:
    sink_of(glue_context, raw, database).writeFrame(frame(PARTS))

    found = glue_context.create_dynamic_frame.from_catalog(database, "parts").toDF()

    assert sorted((row["id"], str(row["day"]), row["area"]) for row in found.collect()) == [
        (1, "2026-01-01", "a/b"), (2, "2026-01-02", None),
    ]  # fmt: skip


def test_table_stays_and_a_warning_names_the_columns_when_it_only_logs(
    glue_context: GlueContext, frame: Make, raw: str, catalog: Any, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    sink_of(glue_context, raw, database, updateBehavior="LOG").writeFrame(frame(PARTS))
    sink_of(glue_context, raw, database).writeFrame(frame(PARTS))
    sink_of(glue_context, raw, database, updateBehavior="LOG").writeFrame(frame(PARTS.replace("id,", "more,")))
    typed = frame(f"SELECT string(id) AS id, id AS new, day, `Area` FROM ({PARTS})")
    sink_of(glue_context, raw, database, updateBehavior="LOG").writeFrame(typed)

    columns = catalog.get_table(DatabaseName=database, Name="parts")["Table"]["StorageDescriptor"]["Columns"]
    assert [column["Name"] for column in columns] == ["id"]
    assert "event=no_table" in caplog.text
    assert f"event=catalog_differs database={database} table=parts columns=more:" in caplog.text
    assert f"event=catalog_differs database={database} table=parts columns=id,new:" in caplog.text


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"updateBehavior": "DELETE"}, InvalidValueError, "'DELETE'. Write one of UPDATE_IN_DATABASE, LOG"),
        ({"partitionKeys": ["gone"]}, InvalidValueError, "Write a list of columns that the frame has"),
        ({"partitionKeys": "day"}, InvalidValueError, "Write a list of columns"),
        ({"path": ""}, InvalidValueError, "Write a folder such as"),
        ({"format": "avro"}, NotOffGlueError, "Use one of parquet, orc, json, csv"),
        ({"database": "gone"}, SourceError, "EntityNotFoundException"),
        ({"database": ""}, InvalidValueError, "no table is named. Call setCatalogInfo"),
    ],
)
def test_nothing_is_written_when_a_sink_is_told_nonsense(
    options: dict[str, Any], error: Any, text: str, glue_context: GlueContext, frame: Make, raw: str, database: str
) -> None:
    given = {"path": raw, "enableUpdateCatalog": True, **options}
    kind, name = given.pop("format", "parquet"), given.pop("database", database)
    sink = glue_context.getSink("s3", **given)
    sink.setFormat(kind)
    if name:
        sink.setCatalogInfo(name, "parts")

    with pytest.raises(error, match=text):
        sink.writeFrame(frame(PARTS))

    assert not Path(raw.removeprefix("file://")).exists()


def test_other_partition_keys_are_refused_when_the_table_has_its_own(
    glue_context: GlueContext, frame: Make, raw: str, database: str
) -> None:
    sink_of(glue_context, raw, database).writeFrame(frame(PARTS))

    with pytest.raises(InvalidValueError, check=because("option"), match=r"but table 'parts' has \['day', 'area'\]"):
        sink_of(glue_context, raw, database, partitionKeys=["day"]).writeFrame(frame(PARTS))


def test_each_frame_is_written_when_a_sink_gets_a_collection(
    glue_context: GlueContext, frame: Make, raw: str, spark: Any
) -> None:
    sink = glue_context.getSink("parquet", path=raw)
    sink.setAccumulableSize(10)
    collection = DynamicFrameCollection({"a": frame("SELECT 1 AS id"), "b": frame("SELECT 2 AS id")}, glue_context)

    sink.write(collection)
    sink.writeDataFrame(spark.sql("SELECT 3 AS id"), glue_context)

    assert ids_in(raw) == [1, 2, 3]
    with pytest.raises(NotOffGlueError, match="A sink of 'kinesis'"):
        glue_context.getSink("kinesis")


def test_each_frame_is_written_when_a_writer_gets_a_collection(
    glue_context: GlueContext, frame: Make, raw: str
) -> None:
    collection = DynamicFrameCollection({"a": frame("SELECT 1 AS id"), "b": frame("SELECT 2 AS id")}, glue_context)

    glue_context.write_dynamic_frame.from_options(
        frame=collection, connection_type="file", connection_options={"path": raw}, format="parquet"
    )

    assert ids_in(raw) == [1, 2]


def test_rows_are_in_a_bucket_when_the_target_names_no_folder(
    glue_context: GlueContext, frame: Make, s3: Any, bucket: str
) -> None:
    glue_context.write_dynamic_frame.from_options(frame("SELECT 1 AS id"), "s3", {"path": f"s3://{bucket}"}, "json")

    names = [each["Key"] for each in s3.list_objects_v2(Bucket=bucket)["Contents"] if each["Key"].endswith(".json")]
    assert [s3.get_object(Bucket=bucket, Key=name)["Body"].read() for name in names] == [b'{"id":1}\n']


def test_rows_come_once_when_a_run_died_before_its_commit_and_its_sink_writes_per_batch(
    begin: Begin, glue_context: GlueContext, put_parquet: Put, landing: str, raw: str
) -> None:
    put_parquet("a", "b")
    for number in range(2):
        job = begin()
        landed = glue_context.create_dynamic_frame.from_options(
            "file", {"paths": [landing]}, "parquet", transformation_ctx="landed"
        )
        sink = glue_context.getSink("file", path=raw, perBatch=True)
        sink.setFormat("parquet")
        sink.writeFrame(landed)
        if number == 0:
            Job.forget()
    job.commit()

    assert ids_in(raw) == ["a", "b"]


def test_table_of_the_catalogue_is_appended_to_when_it_is_named(
    glue_context: GlueContext, frame: Make, raw: str, catalog: Any, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    sink_of(glue_context, raw, database).writeFrame(frame(PARTS))
    later = frame(PARTS.replace("(1,", "(3,").replace("2026-01-01", "2026-01-03"))

    glue_context.write_dynamic_frame.from_catalog(
        frame=later, database=database, table_name="parts", additional_options={"partitionKeys": ["day", "Area"]}
    )
    glue_context.write_dynamic_frame_from_catalog(
        later, database, "parts", additional_options={"enableUpdateCatalog": True, "partitionKeys": ["day", "Area"]}
    )

    found = glue_context.create_dynamic_frame.from_catalog(database, "parts").toDF()
    assert found.where("id = 3").count() == 2
    assert "event=partitions_not_registered" in caplog.text
    with pytest.raises(SourceError, match="EntityNotFoundException"):
        glue_context.write_dynamic_frame.from_catalog(frame=later, database=database, table_name="gone")
    with pytest.raises(InvalidValueError, check=because("option"), match="'table_name' is missing"):
        glue_context.write_dynamic_frame.from_catalog(frame=later, database=database)


def test_rows_are_in_a_database_once_or_appended_when_a_connection_leads_there(
    begin: Begin, glue_context: GlueContext, put_parquet: Put, landing: str, frame: Make, catalog: Any, jdbc: Any,
    postgres: Any, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.INFO)
    postgres.sql("CREATE SCHEMA IF NOT EXISTS sinks", "CREATE TABLE sinks.parts (id text)")
    known = {
        "JDBC_CONNECTION_URL": postgres.url,
        "USERNAME": postgres.properties["user"],
        "PASSWORD": postgres.properties["password"],
    }
    catalog.create_connection(
        ConnectionInput={"Name": "sinks", "ConnectionType": "JDBC", "ConnectionProperties": known}
    )
    of_table = {"dbtable": "sinks.parts"}
    glue_context.write_dynamic_frame_from_jdbc_conf(frame("SELECT 'x' AS id"), "sinks", of_table)
    put_parquet("a")

    for number in range(2):
        job = begin()
        landed = glue_context.create_dynamic_frame.from_options(
            "file", {"paths": [landing]}, "parquet", transformation_ctx="landed"
        )
        glue_context.write_dynamic_frame.from_jdbc_conf(landed, "sinks", {**of_table, "perBatch": True})
        if number == 0:
            Job.forget()
    job.commit()

    assert sorted(postgres.sql("SELECT id FROM sinks.parts")) == [("a",), ("x",)]
    assert not [secret for secret in ("not-a-secret", postgres.url) if secret in caplog.text]
    with pytest.raises(InvalidValueError, check=because("option"), match="'dbtable' is missing"):
        glue_context.write_dynamic_frame.from_jdbc_conf(landed, "sinks", {})
    with pytest.raises(
        InvalidValueError, check=because("option"), match="'database' does not go into a URL of this kind"
    ):
        other = {**of_table, "url": "jdbc:sqlserver://host", "database": "two"}
        glue_context.write_dynamic_frame.from_jdbc_conf(landed, "sinks", other)
    with pytest.raises(NotOffGlueError, match="'preactions'"):
        glue_context.write_dynamic_frame.from_jdbc_conf(landed, "sinks", {**of_table, "preactions": "DELETE"})


TABLE = {"url": "jdbc:postgresql://h/d", "dbtable": "parts"}


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return a list of the options of each table write; nothing is written."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(sinks, "write_table", lambda df, given, job: found.append(given))
    return found


@pytest.mark.parametrize("location", ["parts", "sinks.parts", "shop.sinks.parts"])
def test_table_name_omits_the_database_when_the_catalogue_lists_a_jdbc_table(
    location: str, table: Any, catalog: Any, given: list[dict[str, Any]]
) -> None:
    login = {"JDBC_CONNECTION_URL": TABLE["url"], "USERNAME": "ann", "PASSWORD": "not-a-secret"}
    catalog.create_connection(
        ConnectionInput={"Name": f"to {location}", "ConnectionType": "JDBC", "ConnectionProperties": login}
    )
    database = table("parts", location, "postgresql", parameters={"connectionName": f"to {location}"})
    df: Any = None

    write_catalog_table(df, database, "parts", {"perBatch": True}, None, None)

    assert given == [
        {
            "url": TABLE["url"], "user": "ann", "password": "not-a-secret", "perBatch": True,
            "dbtable": {"shop.sinks.parts": "sinks.parts"}.get(location, "parts"),
        }
    ]  # fmt: skip


def test_rows_go_to_the_table_when_a_sink_is_one_of_a_database(
    glue_context: GlueContext, frame: Make, given: list[dict[str, Any]]
) -> None:
    sink = glue_context.getSink("postgresql", **TABLE)

    errors: Any = sink.write(frame(PARTS))

    assert given == [TABLE]
    assert (errors.name, errors.count()) == ("parts_errors", 0)


def test_catalogue_is_refused_when_a_sink_is_one_of_a_database(
    glue_context: GlueContext, frame: Make, given: list[dict[str, Any]]
) -> None:
    sink = glue_context.getSink("postgresql", **TABLE)
    sink.setCatalogInfo("shop", "parts")

    with pytest.raises(InvalidValueError, check=because("option")) as caught:
        sink.writeFrame(frame(PARTS))

    assert str(caught.value) == "Option 'setCatalogInfo' goes with files only. Leave it out for a database."
    assert given == []


def test_frame_comes_back_and_nothing_is_written_when_nothing_was_new(
    glue_context: GlueContext, frame: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    empty = frame("SELECT 1 AS id").drop_fields(["id"])

    assert glue_context.write_dynamic_frame.from_options(empty, "postgresql", TABLE) is empty
    assert "event=nothing_written: the frame has no columns, because nothing was new" in caplog.messages


def test_warning_names_options_and_no_values_when_a_folder_has_no_use_for_them(
    frame: Make, raw: str, caplog: pytest.LogCaptureFixture
) -> None:
    frame("SELECT 1 AS id").write("file", {"path": raw, "madeUp": "not-a-secret", "groupFiles": "x"}, "json")

    assert caplog.messages == ["event=options_unknown sink=s3 options=groupFiles,madeUp: ignored"]


@pytest.mark.parametrize("write", ["files", "table"])
def test_batch_needs_a_run_when_it_is_to_be_written_once(
    write: str, glue_context: GlueContext, frame: Make, raw: str
) -> None:
    kind, given = {
        "files": ("file", {"path": raw}), "table": ("postgresql", {"url": "jdbc:postgresql://h/d", "dbtable": "t"}),
    }[write]  # fmt: skip

    with pytest.raises(PlanConflictError, match="perBatch needs a run"):
        glue_context.write_dynamic_frame.from_options(
            frame("SELECT 1 AS id"), kind, {**given, "perBatch": True}, "parquet"
        )


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("jdbc:postgresql://host:5432/one?ssl=true", "jdbc:postgresql://host:5432/two?ssl=true"),
        ("jdbc:mysql://host/one", "jdbc:mysql://host/two"),
        ("jdbc:mariadb://host:3306", "jdbc:mariadb://host:3306/two"),
        ("jdbc:redshift://host:5439/one;ssl=true", "jdbc:redshift://host:5439/two;ssl=true"),
    ],
)
def test_other_database_of_the_server_is_named_when_options_say_so(url: str, found: str) -> None:
    assert url_of_database(url, "two") == found
    with pytest.raises(InvalidValueError, check=because("option"), match="does not go into a URL of this kind"):
        url_of_database("jdbc:sqlserver://host;databaseName=one", "two")


def test_old_files_are_deleted_and_new_ones_stay_when_a_path_is_purged(
    glue_context: GlueContext, tmp_path: Path
) -> None:
    now = datetime.now(timezone.utc)
    ages = {
        "old": timedelta(hours=200),
        "day=1/old": timedelta(hours=169),
        "_SUCCESS": timedelta(days=10),
        "new": timedelta(),
    }
    for name, age in ages.items():
        path = tmp_path / "raw" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        at = (now - age).timestamp()
        os.utime(path, (at, at))
    (tmp_path / "raw2").mkdir()
    (tmp_path / "raw2" / "old").write_text("x")
    left = lambda: sorted(path.name for path in tmp_path.rglob("*") if path.is_file())  # noqa: E731

    glue_context.purge_s3_path(str(tmp_path / "raw"))
    after_a_week = left()
    glue_context.purge_s3_path(f"{tmp_path}/raw/", {"retentionPeriod": 0})

    assert (after_a_week, left()) == (["new", "old"], ["old"])


def test_objects_of_a_bucket_are_purged_when_their_class_is_not_left_out(
    glue_context: GlueContext, s3: Any, bucket: str
) -> None:
    for key, kind in (("raw/a", "STANDARD"), ("raw/b", "GLACIER"), ("rawest/c", "STANDARD")):
        s3.put_object(Bucket=bucket, Key=key, Body=b"x", StorageClass=kind)

    glue_context.purge_s3_path(f"s3://{bucket}/raw", {"retentionPeriod": 0, "excludeStorageClasses": ["GLACIER"]})

    assert [each["Key"] for each in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["raw/b", "rawest/c"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"retentionPeriod": -1}, "Write a number of hours"),
        ({"retentionPeriod": "0"}, "Write a number of hours"),
        ({"retentionPeriod": float("nan")}, "Write a number of hours"),
        ({"retentionPeriod": float("inf")}, "Write a number of hours"),
        ({"retentionPeriods": 100}, "'retentionPeriods' is not here"),
    ],
)
def test_nothing_is_purged_when_options_are_wrong(
    options: dict[str, Any], text: str, glue_context: GlueContext, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("x")
    os.utime(tmp_path / "a", (0, 0))

    with pytest.raises(InvalidValueError, check=because("option"), match=text):
        glue_context.purge_s3_path(str(tmp_path), options)

    assert (tmp_path / "a").exists()
