"""The bookmark worked out by executors gives the answer of the local one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scripts.helpers.errors import InvalidValueError, LedgerError
from scripts.helpers.file_bookmark import FileBookmark
from scripts.helpers.spark_bookmark import SparkFileBookmark
from tests.conftest import missing_component, spark_conf

KEYS = st.sampled_from(
    [
        f"{folder}{name}"
        for folder in ("", "a/", "a/b/", "b/", "é/", "z=1/")
        for name in ("1.csv", "2 x.csv", "_h", "🎉")
    ]
)
CHANGES = st.lists(st.tuples(KEYS, st.sampled_from(["put", "other", "delete"])), min_size=1, max_size=12)


@pytest.fixture(autouse=True)
def aws(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let executors find the server as they find AWS: by the environment."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)


def change(s3: Any, bucket: str, changes: list[tuple[str, str]]) -> None:
    for key, what in changes:
        if what == "delete":
            s3.delete_object(Bucket=bucket, Key=f"landing/{key}")
        else:
            s3.put_object(Bucket=bucket, Key=f"landing/{key}", Body=what.encode())


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((row.key, row.etag, row.size, row.status, row.version, row.run_id) for row in frame.collect())


def same_rows(table: Any) -> list[tuple[Any, ...]]:
    names = ("key", "etag", "size", "status", "version", "run_id")
    return sorted(tuple(row[name] for name in names) for row in table.to_pylist())


@settings(
    max_examples=3,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(rounds=st.lists(CHANGES, min_size=2, max_size=3))
def test_executors_find_what_the_driver_finds_when_a_bucket_changes(
    spark: Any, s3: Any, bucket: str, rounds: list[list[tuple[str, str]]]
) -> None:
    ledger = f"s3://{bucket}/ledger/"
    for found in s3.list_objects_v2(Bucket=bucket).get("Contents", []):
        s3.delete_object(Bucket=bucket, Key=found["Key"])
    state = local_state = None

    for version, changes in enumerate(rounds, 1):
        change(s3, bucket, changes)
        taken_by = (version, f"run-{version}")
        source = f"s3://{bucket}/landing/"
        executed = SparkFileBookmark(spark, source, state=state, ledger_uri=ledger, taken_by=taken_by)
        local = FileBookmark(source, state=local_state, s3_client=s3, taken_by=taken_by)
        delta, expected = executed.new_files(), local.new_files()

        assert (delta.count, delta.bytes, delta.gone) == (expected.count, expected.bytes, expected.gone)
        assert rows_of(delta.files) == same_rows(expected.table)
        state, local_state = executed.state_after, local.state_after


def test_driver_goes_on_when_executors_took_the_first_batch(spark: Any, s3: Any, bucket: str) -> None:
    source, ledger = f"s3://{bucket}/landing/", f"s3://{bucket}/ledger/"
    change(s3, bucket, [("a/1.csv", "put"), ("b/1.csv", "put")])
    executed = SparkFileBookmark(spark, source, ledger_uri=ledger, taken_by=(1, "r1"))
    executed.new_files()
    change(s3, bucket, [("a/2.csv", "put")])

    local = FileBookmark(source, state=executed.state_after, s3_client=s3, ledger_uri=ledger)

    assert [file.key for file in local.new_files().files] == ["a/2.csv"]
    assert local.explain("b/1.csv").run_id == "r1"


@pytest.mark.parametrize(
    ("options", "named"),
    [({"max_files": 5}, "max_files"), ({"ready_marker": "_SUCCESS"}, "ready_marker"), ({"mode": "windowed"}, "mode")],
)
def test_option_is_refused_when_it_needs_all_files_at_one_place(spark: Any, options: Any, named: str) -> None:
    with pytest.raises(InvalidValueError, match=f"On Spark {named} cannot be used. Use FileBookmark"):
        SparkFileBookmark(spark, "s3://bucket/landing/", ledger_uri="s3://bucket/ledger/", **options)


def test_bookmark_is_refused_when_it_has_no_ledger_files(spark: Any) -> None:
    with pytest.raises(InvalidValueError, match="Give a ledger_uri"):
        SparkFileBookmark(spark, "s3://bucket/landing/")


def test_nothing_is_returned_when_one_range_cannot_be_compared(spark: Any, s3: Any, bucket: str) -> None:
    source, ledger = f"s3://{bucket}/landing/", f"s3://{bucket}/ledger/"
    change(s3, bucket, [("a/1.csv", "put"), ("b/1.csv", "put")])
    first = SparkFileBookmark(spark, source, ledger_uri=ledger)
    first.new_files()
    assert first.state_after is not None
    file = first.state_after["segments"][0]["files"][0]["file"]
    s3.delete_object(Bucket=bucket, Key=f"ledger/{file}")

    second = SparkFileBookmark(spark, source, state=first.state_after, ledger_uri=ledger)

    with pytest.raises(Exception, match=LedgerError.__name__):
        second.new_files()
    assert second.state_after is None


def test_cluster_finds_new_files_when_the_code_is_shipped_as_the_wheel(
    endpoint: str, s3: Any, bucket: str, wheel: Path, tmp_path: Path
) -> None:
    change(s3, bucket, [(f"day={day}/{name}.csv", "put") for day in range(3) for name in range(4)])
    if not spark_conf(endpoint)["spark.jars"]:
        missing_component("S3A", "pip install --no-deps sagemaker_pyspark==1.4.5")
    package = tmp_path / "glue_watermarks.zip"  # Spark puts no file on the path that is called .whl.
    package.write_bytes(wheel.read_bytes())
    script = tmp_path / "job.py"
    script.write_text(
        "import json, sys\n"
        "from pyspark.sql import SparkSession\n"
        "settings = json.loads(sys.argv[1])\n"
        "builder = SparkSession.builder.master('local-cluster[2,1,1024]')\n"
        "for name, value in settings.items():\n"
        "    builder = builder.config(name, value)\n"
        "spark = builder.getOrCreate()\n"
        "spark.sparkContext.addPyFile(sys.argv[4])\n"
        "from scripts.helpers import spark_bookmark\n"
        "assert '.zip' in spark_bookmark.__file__, spark_bookmark.__file__\n"
        "found = spark_bookmark.SparkFileBookmark(spark, sys.argv[2], ledger_uri=sys.argv[3]).new_files()\n"
        "print('FOUND', found.count, found.files.count())\n"
        "spark.stop()\n"
    )
    settings_ = spark_conf(endpoint) | {
        "spark.executorEnv.AWS_ENDPOINT_URL": endpoint,
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    command = [
        sys.executable, str(script), json.dumps(settings_), f"s3://{bucket}/landing/", f"s3://{bucket}/ledger/",
        str(package),
    ]  # fmt: skip

    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}, capture_output=True, text=True,
        timeout=240, check=False,
    )  # fmt: skip

    assert "FOUND 12 12" in done.stdout, done.stdout + done.stderr[:6000]
