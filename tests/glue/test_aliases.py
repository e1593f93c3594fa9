"""Glue's less common names and option spellings: each does here what it does on Glue."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import boto3
import pyarrow.parquet as pq
import pytest

from scripts.helpers.errors import InvalidValueError, NotOffGlueError
from scripts.helpers.glue import (
    DropFields,
    DynamicFrame,
    Filter,
    GlueContext,
    RenameField,
    ResolveChoice,
    SelectFields,
    getResolvedOptions,
)
from scripts.helpers.glue.catalog import Catalog, _csv_options, with_login
from scripts.helpers.glue.connection_options import JDBC_PARTITIONS, folders_to_read, table_to_read
from scripts.helpers.glue.formats import spark_format, spark_options
from tests.glue.options import Put
from tests.support.reasons import because

JDBC = {"url": "jdbc:postgresql://db/council", "dbtable": "repairs"}


@pytest.fixture
def frame(glue_context: GlueContext, spark: Any) -> DynamicFrame:
    """Return a frame of one row."""
    return DynamicFrame.fromDF(spark.sql("SELECT 1 AS id, '2' AS bay"), glue_context, "parking")


# --- calls ---------------------------------------------------------------------------------------------------------


def test_frame_is_mapped_when_the_call_is_in_camel_case(frame: DynamicFrame) -> None:
    mapped = frame.applyMapping([("id", "int", "key", "long")])

    assert mapped.toDF().dtypes == [("key", "bigint")]


def test_no_error_is_counted_when_rows_were_read(frame: DynamicFrame) -> None:
    assert frame.errorsCount() == 0


@pytest.mark.parametrize(
    ("transform", "options", "dtypes"),
    [
        (SelectFields, {"paths": ["bay"]}, [("bay", "string")]),
        (DropFields, {"paths": ["bay"]}, [("id", "int")]),
        (RenameField, {"old_name": "bay", "new_name": "place"}, [("id", "int"), ("place", "string")]),
        (ResolveChoice, {"specs": [("bay", "cast:long")]}, [("id", "int"), ("bay", "bigint")]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_class_does_what_the_method_does_when_applied(
    transform: Any, options: dict[str, Any], dtypes: list[tuple[str, str]], frame: DynamicFrame
) -> None:
    changed = transform.apply(frame=frame, transformation_ctx="changed", **options)

    assert changed.toDF().dtypes == dtypes


def test_files_are_read_and_written_when_methods_of_the_context_are_called(
    glue_context: GlueContext, put_parquet: Put, landing: str, raw: str
) -> None:
    put_parquet("a", "b")

    frame = glue_context.create_dynamic_frame_from_options("file", {"paths": [landing]}, "parquet")
    written = glue_context.write_dynamic_frame_from_options(frame, "file", {"path": raw}, "parquet")

    assert isinstance(frame, DynamicFrame)
    assert written is frame
    assert sorted(pq.read_table(raw.removeprefix("file://"))["id"].to_pylist()) == ["a", "b"]


def test_data_frame_is_read_when_methods_of_the_context_are_called(
    glue_context: GlueContext, table: Callable[..., str], put_parquet: Put, landing: str
) -> None:
    put_parquet("a")
    database = table("events", landing, "parquet")

    of_options = glue_context.create_data_frame_from_options("file", {"paths": [landing]}, "parquet")
    of_catalog = glue_context.create_data_frame_from_catalog(database, "events")

    assert [[row["id"] for row in df.collect()] for df in (of_options, of_catalog)] == [["a"], ["a"]]


def test_frame_is_written_to_a_folder_and_to_a_table_when_methods_of_the_context_are_called(
    glue_context: GlueContext, table: Callable[..., str], raw: str
) -> None:
    database = table("raw", raw, "parquet")
    frame = glue_context.create_dynamic_frame_from_rdd([(1,)], "parking", ["id"])

    written = glue_context.write_from_options(frame, "file", {"path": raw}, "parquet")
    glue_context.write_data_frame_from_catalog(frame.toDF(), database, "raw")

    assert written is frame
    assert pq.read_table(raw.removeprefix("file://"))["id"].to_pylist() == [1, 1]


def test_context_behaves_like_sparks_when_a_script_uses_it_as_a_sql_context(
    glue_context: GlueContext, spark: Any
) -> None:
    glue_context.registerDataFrameAsTable(spark.range(3), "three")
    glue_context.registerFunction("shouted", str.upper)
    glue_context.setConf("spark.sql.glue_watermarks.test", "on")

    assert glue_context.sql("SELECT count(*), shouted('a') FROM three").collect() == [(3, "A")]
    assert "three" in [row["tableName"] for row in glue_context.tables().collect()]
    assert glue_context.getConf("spark.sql.glue_watermarks.test", "off") == "on"
    assert glue_context._jvm.java.lang.Math.abs(-1) == 1
    assert glue_context._sc.version == spark.version
    for name in ("_ssql_ctx", "_glue_scala_context"):
        with pytest.raises(NotOffGlueError, match=rf"GlueContext\.{name} is Glue's own"):
            getattr(glue_context, name)


def test_transform_works_when_it_is_instantiated_before_it_is_called(frame: DynamicFrame) -> None:
    assert Filter()(frame=frame, f=lambda record: record["id"] > 1).count() == 0


def test_login_is_read_from_a_secret_when_the_options_name_one(glue_context: GlueContext) -> None:
    boto3.client("secretsmanager").create_secret(
        Name="council/login", SecretString='{"username": "ann", "password": "not-a-secret"}'
    )

    request = table_to_read(with_login(JDBC | {"secretId": "council/login"}))

    assert request.properties == {"user": "ann", "password": "not-a-secret"}


def test_time_is_in_milliseconds_when_a_script_asks_the_context(
    glue_context: GlueContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.helpers.glue.context.time", SimpleNamespace(time=lambda: 1_700_000_000.25))

    assert glue_context.currentTimeMillis() == 1_700_000_000_250


@pytest.mark.parametrize("option", ["database", "name_space"])
def test_catalogue_table_is_read_when_either_option_names_its_database(
    option: str, glue_context: GlueContext, table: Callable[..., str], put_parquet: Put, landing: str
) -> None:
    put_parquet("a")
    given = {option: table("events", landing, "parquet")}

    frame = glue_context.create_dynamic_frame_from_catalog(table_name="events", **given)

    assert [row["id"] for row in frame.toDF().collect()] == ["a"]


def test_python_logger_is_returned_when_a_script_asks_for_glues_logger(
    glue_context: GlueContext, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "glue"):
        glue_context.get_logger().info("read")

    assert caplog.record_tuples == [("glue", logging.INFO, "read")]


# --- options of sources --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "partitions"),
    [
        ({}, None),
        ({"hashfield": "bay"}, JDBC_PARTITIONS),
        ({"hashexpression": "id"}, JDBC_PARTITIONS),
        ({"hashexpression": "id", "hashpartitions": "4"}, 4),
        ({"hashpartitions": 3}, 3),
    ],
)
def test_table_is_read_in_parallel_when_hash_options_are_given(given: dict[str, Any], partitions: int | None) -> None:
    assert table_to_read(JDBC | given).partitions == partitions


@pytest.mark.parametrize("option", ["customJdbcDriverClassName", "driver"])
def test_named_driver_is_used_when_either_option_gives_it(option: str) -> None:
    assert table_to_read(JDBC | {option: "org.postgresql.Driver"}).properties == {"driver": "org.postgresql.Driver"}


@pytest.mark.parametrize("option", ["groupFiles", "groupSize", "useS3ListImplementation"])
def test_option_is_ignored_without_a_warning_when_it_only_affects_speed(
    option: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        found = folders_to_read({"paths": ["s3://b/a/"], option: "x"})

    assert found == folders_to_read({"paths": ["s3://b/a/"]})
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", f"event=options_needless source=s3 options={option}")
    ]


def test_archived_files_are_skipped_when_both_archive_classes_are_excluded() -> None:
    request = folders_to_read({"paths": ["s3://b/a/"], "excludeStorageClasses": ["GLACIER", "DEEP_ARCHIVE"]})

    plain = folders_to_read({"paths": ["s3://b/a/"]})
    assert request.options == {**plain.options, "on_archived": "skip"}


@pytest.mark.parametrize("option", ["customJdbcDriverS3Path", "useConnectionProperties"])
def test_option_is_ignored_without_a_warning_when_the_driver_is_already_there(
    option: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = table_to_read(JDBC | {option: "x"})

    assert found == table_to_read(JDBC)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("option", ["enableSamplePath", "query", "samplePath", "sampleQuery"])
def test_option_is_refused_when_it_changes_what_is_read(option: str) -> None:
    with pytest.raises(
        InvalidValueError, check=because("option"), match=f"'{option}' changes what is read, and is not here"
    ):
        table_to_read(JDBC | {option: "x"})


# --- options of formats --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given", "options"),
    [
        ("csv", {"separator": ";", "escaper": "!", "quoteChar": "'"}, {"sep": ";", "escape": "!", "quote": "'"}),
        ("csv", {"quoteChar": -1}, {"quote": ""}),
        ("csv", {"withHeader": True, "multiline": True}, {"header": "true", "multiLine": "true"}),
        ("csv", {"withHeader": "false", "multiLine": "true"}, {"header": "false", "multiLine": "true"}),
        ("csv", {"optimizePerformance": True, "strictCheckForQuoting": True}, {}),
        ("json", {"multiline": False, "timestampFormat": "yyyy"}, {"multiLine": "false", "timestampFormat": "yyyy"}),
        ("json", {"jsonPath": False, "skipFirst": "false"}, {}),
        ("xml", {"rowTag": "row", "charset": "latin1"}, {"rowTag": "row", "charset": "latin1"}),
        ("xml", {"rowTag": "row", "encoding": "latin1"}, {"rowTag": "row", "charset": "latin1"}),
        ("parquet", {"useGlueParquetWriter": True, "blockSize": 1, "pageSize": 1, "compression": "gzip"},
         {}),
    ],
)  # fmt: skip
def test_glue_options_become_spark_options_when_a_format_is_read(
    name: str, given: dict[str, Any], options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    assert spark_options(name, given) == (options, None)
    assert caplog.records == []


@pytest.mark.parametrize(("given", "header"), [({}, "true"), ({"writeHeader": False}, "false")])
def test_header_is_written_unless_told_otherwise(given: dict[str, Any], header: str) -> None:
    assert spark_options("csv", given, writing=True) == ({"header": header}, None)


def test_file_name_column_is_returned_when_attach_filename_is_given() -> None:
    assert spark_options("json", {"attachFilename": "file"}) == ({}, "file")


@pytest.mark.parametrize("option", ["jsonPath", "skipFirst"])
def test_option_of_a_format_is_refused_when_spark_has_nothing_for_it(option: str) -> None:
    with pytest.raises(InvalidValueError, check=because("option"), match=f"'{option}' is not here"):
        spark_options("json", {option: "true"})


@pytest.mark.parametrize(("writing", "passed"), [(False, {}), (True, {"madeUp": "true"})])
def test_warning_names_unknown_options_when_only_writers_may_have_them(
    writing: bool, passed: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    options, _ = spark_options("json", {"samplingRatio": 0.5, "madeUp": True}, writing=writing)

    assert options == {"samplingRatio": "0.5", **passed}
    assert caplog.messages == ["event=format_options_unknown format=json options=madeUp"]


def test_formats_are_named_when_none_is_given() -> None:
    with pytest.raises(InvalidValueError, check=because("option")) as caught:
        spark_format(None)

    assert str(caught.value) == (
        "Option 'format' is missing. Name one of csv, json, parquet, glueparquet, orc, avro, xml."
    )


@pytest.mark.parametrize(("name", "spark"), [("glueparquet", "parquet"), ("ORC", "orc"), ("Avro", "avro")])
def test_sparks_name_of_the_format_is_returned_when_glue_spells_it_differently(name: str, spark: str) -> None:
    assert spark_format(name) == spark


# --- the catalogue -------------------------------------------------------------------------------------------------


class Answer:
    """A client of the catalogue that returns one table and keeps the last request."""

    def __init__(self, library: str) -> None:
        self.asked: dict[str, Any] = {}
        serde = {"SerializationLibrary": library}
        self._table = {"StorageDescriptor": {"Location": "s3://b/a/", "SerdeInfo": serde}}

    def get_table(self, **request: Any) -> dict[str, Any]:
        self.asked = request
        return {"Table": self._table}


@pytest.mark.parametrize(
    ("library", "found"),
    [
        ("org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe", "parquet"),
        ("org.apache.hadoop.hive.ql.io.orc.OrcSerde", "orc"),
        ("org.openx.data.jsonserde.JsonSerDe", "json"),
        ("org.apache.hadoop.hive.serde2.avro.AvroSerDe", "avro"),
        ("org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", "csv"),
        ("org.apache.hadoop.hive.serde2.OpenCSVSerde", "csv"),
    ],
)
def test_format_is_taken_from_the_serde_when_the_table_has_no_classification(
    library: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Answer(library)
    monkeypatch.setattr("boto3.client", lambda _: client)

    table = Catalog("123456789012").table("council", "events")

    assert table.format == found
    assert client.asked == {"CatalogId": "123456789012", "DatabaseName": "council", "Name": "events"}


@pytest.mark.parametrize(
    ("serde", "options"),
    [
        ({"separatorChar": ";"}, {"separator": ";"}),
        ({"field.delim": "|", "escape.delim": "!"}, {"separator": "|", "escaper": "!"}),
    ],
)
def test_csv_options_are_read_when_either_serde_spells_them(serde: dict[str, str], options: dict[str, str]) -> None:
    assert _csv_options("", serde, {}) == options


def test_catalogue_filters_the_partitions_when_a_catalogue_predicate_is_given(
    glue_context: GlueContext, table: Callable[..., str], catalog: Any, put: Put, landing: str
) -> None:
    database = table("events", landing, "json", PartitionKeys=[{"Name": "month", "Type": "string"}])
    for month in ("04", "05"):
        put(f"month={month}/a", body=f'{{"id": "{month}"}}')
        given = {"Values": [month], "StorageDescriptor": {"Location": f"{landing}month={month}/"}}
        catalog.create_partition(DatabaseName=database, TableName="events", PartitionInput=given)

    frame = glue_context.create_dynamic_frame.from_catalog(
        database, "events", additional_options={"catalogPartitionPredicate": "month = '05'"}
    )

    assert [(row["id"], row["month"]) for row in frame.toDF().collect()] == [("05", "05")]


# --- arguments of jobs ---------------------------------------------------------------------------------------------


def test_argument_name_has_underscores_when_glue_passes_it_with_hyphens() -> None:
    found = SimpleNamespace(
        **getResolvedOptions(["job.py", "--encryption-type", "sse-s3", "--enable-data-lineage", "true"], [])
    )

    assert (found.encryption_type, found.enable_data_lineage) == ("sse-s3", "true")
