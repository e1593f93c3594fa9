"""The worked examples of AWS's documentation of job bookmarks, with its numbers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import InvalidValueError, SourceError
from scripts.helpers.glue import ApplyMapping, GlueContext, Job
from scripts.helpers.listing.bucket_pages import BucketPages
from scripts.helpers.watermarks import Watermarks
from tests.glue.options import PAUSE, Put, row_of_parquet
from tests.support.reasons import because

Begin = Callable[..., Job]
T0 = datetime(2026, 3, 16, 12, tzinfo=timezone.utc)
HOUR, MINUTE, DT = timedelta(hours=1), timedelta(minutes=1), timedelta(milliseconds=900_000)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch, s3: Any, bucket: str) -> Callable[..., None]:
    """Return a function that sets the time of S3 and puts files with the given times."""

    def set_time(now: datetime, **files: datetime) -> None:
        from moto.core.models import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        monkeypatch.setattr(BucketPages, "date", property(lambda _: now, lambda *_: None), raising=False)
        for name, time in files.items():
            s3.put_object(Bucket=bucket, Key=f"landing/{name}", Body=row_of_parquet(name))
            held = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[bucket].keys[f"landing/{name}"]
            held.last_modified = time.replace(tzinfo=None)

    return set_time


@pytest.fixture
def take(begin: Begin, glue_context: GlueContext, bucket: str) -> Callable[..., list[str]]:
    """Return a function that runs the job over the bucket once and returns the files that it read, or their ids."""

    def run(run_id: str | None = None, mode: Any = None, has_ids: bool = False, **options: Any) -> list[str]:
        job = begin(run_id, **(mode or {}))
        frame = glue_context.create_dynamic_frame.from_options(
            "s3", {"paths": [f"s3://{bucket}/landing/"], **options}, "parquet", transformation_ctx="datasource0"
        )
        df = frame.toDF()
        found = [row["id"] for row in df.collect()] if has_ids else [Path(path).name for path in df.inputFiles()]
        job.commit()
        return sorted(found)

    return run


# --- tracking files by modification time --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{"maxBand": "900000"}, {"maxBand": "0", "maxFilesInBand": "2"}, {}], ids=["band", "small band", "none"]
)
def test_runs_take_the_files_of_the_example_when_some_show_up_late(
    options: dict[str, Any], at: Callable[..., None], take: Callable[..., list[str]]
) -> None:
    """Run at T0, T1 and T2 with a band dt. F3', F4' and F5' date from T1 or before, but appear after the listing at T1.

    Every file is remembered, so the band makes no difference.
    """
    t1, t2 = T0 + HOUR, T0 + 2 * HOUR
    at(T0, F1=T0 - MINUTE)
    batches = [take(**options)]
    at(t1, F2=T0 + MINUTE, F3=t1 - DT, F4=t1 - 10 * MINUTE, F5=t1)
    batches.append(take(**options))
    late = {"F3'": t1 - 14 * MINUTE, "F4'": t1 - 9 * MINUTE, "F5'": t1}
    at(t2, **late, F7=t1 + MINUTE, F8=t2 - DT, F9=t2 - DT + MINUTE, F10=t2)
    batches += [take(**options), take(**options)]

    assert batches == [["F1"], ["F2", "F3", "F4", "F5"], sorted(["F3'", "F4'", "F5'", "F7", "F8", "F9", "F10"]), []]


def test_overwritten_file_is_read_again_when_it_has_changed_since_the_last_run(
    at: Callable[..., None], take: Callable[..., list[str]], s3: Any, bucket: str
) -> None:
    at(T0, F1=T0)
    batches = [take(has_ids=True)]
    at(T0 + HOUR)
    s3.put_object(Bucket=bucket, Key="landing/F1", Body=row_of_parquet("F1, changed"))
    at(datetime.now(timezone.utc) + MINUTE)
    batches.append(take(has_ids=True))

    assert batches == [["F1"], ["F1, changed"]]


# --- pause with a range ------------------------------------------------------------------------------------------


def test_paused_job_reads_between_two_runs_when_from_and_to_are_given(
    at: Callable[..., None], take: Callable[..., list[str]], watermarks: Watermarks
) -> None:
    """Skip the input up to run `from` and the input after run `to`, and leave the state as it is."""
    for hour, name in enumerate(["F1", "F2", "F3"]):
        at(T0 + hour * HOUR, **{name: T0 + hour * HOUR})
        take(f"jr_{hour + 1}")
    at(T0 + 3 * HOUR, F4=T0 + 3 * HOUR)
    ranges = [("jr_1", "jr_2"), ("jr_1", "jr_3"), ("jr_2", "jr_3")]

    found = [take(mode={**PAUSE, "job_bookmark_from": start, "job_bookmark_to": end}) for start, end in ranges]

    assert found == [["F2"], ["F2", "F3"], ["F3"]]
    assert watermarks.latest("parking").version == 3
    assert take("jr_4") == ["F4"]


# --- bounded execution -------------------------------------------------------------------------------------------


def test_thousand_files_are_read_in_two_runs_when_bounded_files_is_500(
    begin: Begin,
    glue_context: GlueContext,
    table: Callable[..., str],
    put: Put,
    landing: str,
    watermarks: Watermarks,
) -> None:
    put(*(f"{number:04}" for number in range(1_000)))
    database = table("table_name", landing, "csv", columns=["id"])
    for _ in range(3):
        job = begin()
        glue_context.create_dynamic_frame.from_catalog(
            database=database,
            table_name="table_name",
            redshift_tmp_dir="",
            transformation_ctx="datasource0",
            additional_options={"boundedFiles": "500"},
        )
        job.commit()

    assert [entry.change.metrics["files_read"] for entry in watermarks.history("parking")] == [0, 500, 500]


def test_bytes_of_a_run_stay_below_bounded_size_when_it_is_given(
    begin: Begin, glue_context: GlueContext, put_parquet: Put, landing: str
) -> None:
    put_parquet(*"abcde")
    bound = str(len(row_of_parquet("a")) * 5 // 2)
    counts = []
    for _ in range(4):
        job = begin()
        frame = glue_context.create_dynamic_frame.from_options(
            "file", {"paths": [landing], "boundedSize": bound}, "parquet", transformation_ctx="datasource0"
        )
        counts.append(frame.count() if frame.toDF().columns else 0)
        job.commit()

    assert counts == [2, 2, 1, 0]


# --- the catalogue -----------------------------------------------------------------------------------------------


def test_generated_script_reads_maps_and_writes_new_files_when_it_runs_again(
    begin: Begin,
    glue_context: GlueContext,
    table: Callable[..., str],
    put: Put,
    landing: str,
    raw: str,
    spark: Any,
) -> None:
    """Run the script of "Using job bookmarks with the AWS Glue generated script"."""
    database = table("relatedqueries_csv", landing, "csv", columns=["col0", "col1"], serde={"field.delim": ","})
    for name, body in (("1.csv", "one,1\n"), ("2.csv", "two,2\n")):
        put(name, body=body)
        job = begin()
        datasource0 = glue_context.create_dynamic_frame.from_catalog(
            database=database, table_name="relatedqueries_csv", transformation_ctx="datasource0"
        )
        applymapping1 = ApplyMapping.apply(
            frame=datasource0,
            mappings=[("col0", "string", "name", "string"), ("col1", "string", "number", "string")],
            transformation_ctx="applymapping1",
        )
        glue_context.write_dynamic_frame.from_options(
            frame=applymapping1,
            connection_type="s3",
            connection_options={"path": raw},
            format="json",
            transformation_ctx="datasink2",
        )
        job.commit()

    assert sorted(map(tuple, spark.read.json(raw).collect())) == [("one", "1"), ("two", "2")]


def test_files_of_other_partitions_stay_new_when_a_predicate_leaves_them_out(
    begin: Begin, glue_context: GlueContext, table: Callable[..., str], catalog: Any, put_parquet: Put, landing: str
) -> None:
    keys = [{"Name": "year", "Type": "string"}, {"Name": "month", "Type": "int"}]
    database = table("events", landing, "parquet", PartitionKeys=keys)
    for month in ("04", "05"):
        put_parquet(f"year=2017/month={month}/{month}")
        storage = {"Location": f"{landing}year=2017/month={month}/"}
        catalog.create_partition(
            DatabaseName=database,
            TableName="events",
            PartitionInput={"Values": ["2017", month], "StorageDescriptor": storage},
        )
    batches = []
    for predicate in ("(year=='2017' and month=='04')", "year == '2016'", ""):
        job = begin()
        df = glue_context.create_data_frame.from_catalog(
            database=database, table_name="events", transformation_ctx="events", push_down_predicate=predicate
        )
        batches.append([(row["id"][-2:], row["month"]) for row in df.collect()] if df.columns else [])
        job.commit()

    assert batches == [[("04", 4)], [], [("05", 5)]]


def test_new_rows_of_a_database_are_read_when_bookmark_keys_are_named(
    begin: Begin,
    glue_context: GlueContext,
    table: Callable[..., str],
    catalog: Any,
    jdbc: Any,
    postgres: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Run the script of "Specify bookmark keys", which reads ``hr.emp`` by ``empno``, a key with gaps."""
    postgres.sql("CREATE SCHEMA hr", "CREATE TABLE hr.emp (empno bigint PRIMARY KEY, name text)")
    properties = {
        "JDBC_CONNECTION_URL": postgres.url,
        "USERNAME": postgres.properties["user"],
        "PASSWORD": postgres.properties["password"],
    }
    catalog.create_connection(
        ConnectionInput={"Name": "hr", "ConnectionType": "JDBC", "ConnectionProperties": properties}
    )
    database = table("emp", "postgres.hr.emp", "postgresql", parameters={"connectionName": "hr"})
    options = {"jobBookmarkKeys": ["empno"], "jobBookmarkKeysSortOrder": "asc", "hashfield": "empno"}
    batches = []
    for rows in ("(7, 'a'), (9, 'b')", "(8, 'too late'), (20, 'c')", None):
        if rows:
            postgres.sql(f"INSERT INTO hr.emp VALUES {rows}")
        job = begin()
        frame = glue_context.create_dynamic_frame.from_catalog(
            database=database, table_name="emp", transformation_ctx="datasource0", additional_options=options
        )
        batches.append(sorted(row["empno"] for row in frame.toDF().collect()))
        job.commit()

    assert batches == [[7, 9], [20], []]
    assert not [secret for secret in ("not-a-secret", postgres.url) if secret in caplog.text]


def test_rows_come_in_falling_order_when_the_sort_order_says_so(
    begin: Begin, glue_context: GlueContext, jdbc: Any, postgres: Any, caplog: pytest.LogCaptureFixture
) -> None:
    name = postgres.new_table("id bigint PRIMARY KEY")
    options = {
        "url": postgres.url, "dbtable": name, **postgres.properties,
        "jobBookmarkKeys": "id", "jobBookmarksKeysSortOrder": "desc",
    }  # fmt: skip
    batches = []
    for number in (9, 7):
        postgres.sql(f"INSERT INTO {name} VALUES ({number}), ({number + 90})")
        job = begin()
        frame = glue_context.create_dynamic_frame.from_options("postgresql", options, transformation_ctx="rows")
        batches.append(sorted(row["id"] for row in frame.toDF().collect()))
        job.commit()

    assert batches == [[9, 99], [7]]
    assert "event=rows_below context=rows" in caplog.text


@pytest.mark.parametrize("place", ["", "public."], ids=["table", "schema and table"])
def test_primary_key_is_the_bookmark_key_when_none_is_named(
    begin: Begin,
    glue_context: GlueContext,
    jdbc: Any,
    postgres: Any,
    watermarks: Watermarks,
    caplog: pytest.LogCaptureFixture,
    place: str,
) -> None:
    name = postgres.new_table("number integer, id bigint PRIMARY KEY")
    options = {"url": postgres.url, "dbtable": place + name, **postgres.properties}
    batches = []
    for rows in ("(1, 5), (1, 7)", "(2, 9), (2, 6)"):
        postgres.sql(f"INSERT INTO {name} VALUES {rows}")
        job = begin()
        frame = glue_context.create_dynamic_frame.from_options("postgresql", options, transformation_ctx="repairs")
        batches.append(sorted(row["id"] for row in frame.toDF().collect()))
        job.commit()

    assert batches == [[5, 7], [9]]
    assert watermarks.get_watermark_values("parking")["repairs"]["cursor_column"] == "id"
    assert f"event=primary_key_taken context=repairs table={place}{name} column=id" in caplog.text
    assert not [secret for secret in ("not-a-secret", postgres.url) if secret in caplog.text]


@pytest.mark.parametrize("declared", ["timestamp", "date"])
def test_keys_are_taken_for_utc_with_a_warning_when_they_have_no_zone(
    begin: Begin, glue_context: GlueContext, jdbc: Any, postgres: Any, caplog: pytest.LogCaptureFixture, declared: str
) -> None:
    """A Glue script cannot name a zone, so its first run is not refused as the first run of `rows_since` is."""
    name = postgres.new_table(f"id bigint, changed {declared}")
    options = {"url": postgres.url, "dbtable": name, "jobBookmarkKeys": ["changed"], **postgres.properties}
    batches = []
    for row in ("(1, '2026-01-01')", "(2, '2026-01-02')"):
        postgres.sql(f"INSERT INTO {name} VALUES {row}")
        job = begin()
        frame = glue_context.create_dynamic_frame.from_options("postgresql", options, transformation_ctx="repairs")
        batches.append([row["id"] for row in frame.toDF().collect()])
        job.commit()

    assert batches == [[1], [2]]
    assert caplog.text.count("event=no_zone context=repairs column=changed") == 2


def test_primary_key_is_that_of_the_database_when_it_is_mariadbs(
    begin: Begin, glue_context: GlueContext, jdbc: Any, maria: Any
) -> None:
    name = maria.new_table("id bigint PRIMARY KEY, number integer")
    maria.sql(f"INSERT INTO {name} VALUES (7, 1)")
    begin()

    options = {"url": maria.url, "dbtable": name, **maria.properties}
    frame = glue_context.create_dynamic_frame.from_options("mysql", options, transformation_ctx="repairs")

    assert [row["id"] for row in frame.toDF().collect()] == [7]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("id bigint", "is missing, and the primary key is missing or unknown. In the option, name columns that"),
        ("a int, b int, PRIMARY KEY (a, b)", "is missing, and the primary key has several columns: a, b. In the"),
    ],
    ids=["none", "two columns"],
)
def test_source_is_refused_when_its_primary_key_is_not_one_column(
    begin: Begin,
    glue_context: GlueContext,
    jdbc: Any,
    postgres: Any,
    watermarks: Watermarks,
    columns: str,
    text: str,
) -> None:
    options = {"url": postgres.url, "dbtable": postgres.new_table(columns), **postgres.properties}
    begin()

    with pytest.raises(InvalidValueError, check=because("option"), match=f"'jobBookmarkKeys' {text}"):
        glue_context.create_dynamic_frame.from_options("postgresql", options, transformation_ctx="repairs")

    assert watermarks.latest("parking").plan is None


def test_error_names_the_table_and_no_key_when_the_table_does_not_exist(
    begin: Begin, glue_context: GlueContext, jdbc: Any, postgres: Any
) -> None:
    options = {"url": postgres.url, "dbtable": "public.not_there", **postgres.properties}
    begin()

    with pytest.raises(SourceError, match=r"public\.not_there': there is no such table"):
        glue_context.create_dynamic_frame.from_options("postgresql", options, transformation_ctx="repairs")


def test_source_is_refused_without_its_password_when_the_key_cannot_be_asked_for(
    begin: Begin, glue_context: GlueContext, jdbc: Any, postgres: Any
) -> None:
    options = {"url": postgres.url, "dbtable": "repairs", **postgres.properties, "user": "nobody-here"}
    begin()

    with pytest.raises(SourceError, match=r"PostgreSQL table repairs.*refuses the user or the password") as caught:
        glue_context.create_dynamic_frame.from_options("postgresql", options, transformation_ctx="repairs")

    assert "nobody-here" not in str(caught.value)


def test_whole_table_is_read_when_the_source_has_no_context(
    begin: Begin, glue_context: GlueContext, jdbc: Any, postgres: Any
) -> None:
    name = postgres.new_table("id bigint PRIMARY KEY")
    postgres.sql(f"INSERT INTO {name} VALUES (1)")
    counts = []
    for _ in range(2):
        job = begin()
        options = {"url": postgres.url, "dbtable": name, **postgres.properties}
        counts.append(glue_context.create_dynamic_frame.from_options("postgresql", options).count())
        job.commit()

    assert counts == [1, 1]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"dbtable": "emp", "jobBookmarkKeys": []}, "'jobBookmarkKeys' is empty"),
        ({"dbtable": "emp", "jobBookmarkKeysSortOrder": "up"}, "'jobBookmarkKeysSortOrder' is 'up'"),
        ({"dbtable": "(SELECT 1) t"}, "'dbtable' is a query"),
        ({"dbtable": "emp", "sampleQuery": "SELECT 1"}, "'sampleQuery' changes what is read"),
        ({"jobBookmarkKeys": ["id"]}, "'dbtable' is missing"),
    ],
    ids=["empty keys", "order", "query", "sample", "no table"],
)
def test_bad_option_of_a_database_is_refused_before_it_is_asked(
    options: dict[str, Any], text: str, begin: Begin, glue_context: GlueContext
) -> None:
    begin()
    login = {"url": "jdbc:postgresql://127.0.0.1:1/none", "user": "u", "password": "not-a-secret"}

    with pytest.raises(InvalidValueError, check=because("option")) as caught:
        glue_context.create_dynamic_frame.from_options("postgresql", login | options, transformation_ctx="rows")

    assert text in str(caught.value)
    assert "not-a-secret" not in str(caught.value)


def test_missing_table_of_the_catalogue_is_named_when_it_is_read(glue_context: GlueContext) -> None:
    with pytest.raises(SourceError) as caught:
        glue_context.create_dynamic_frame.from_catalog(database="nowhere", table_name="nothing")

    assert "'nowhere.nothing': get_table of the Glue catalogue says EntityNotFoundException" in str(caught.value)
