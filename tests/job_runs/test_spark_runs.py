"""Runs on real spark-submit: this package's file job up to its bookmark, and runs on a standalone master."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from scripts.demo.local_s3 import find_jars, spark_conf
from scripts.helpers.watermarks import Watermarks
from tests.support.components import missing_component
from tests.support.job_runs import Jobs, gone, is_alive
from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY
from tests.support.standalone import standalone_cluster

ON_AN_EXECUTOR = """
import os, time
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
(executor,) = spark.sparkContext.parallelize([0], 1).map(lambda _: os.getppid()).collect()
print(spark.sparkContext.master, executor, flush=True)
time.sleep(200)
"""


@pytest.fixture
def submitted(make_jobs: Callable[..., Jobs], moto_process: str, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """Return jobs on a Spark whose s3a:// is the moto server."""
    if not find_jars():
        missing_component("S3A", "pip install --no-deps sagemaker_pyspark==1.4.5")
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_process)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    conf = spark_conf(moto_process) | {"spark.ui.enabled": "false"}
    return make_jobs(master="local[1]", conf=conf, lease_seconds=30)


def test_bookmark_is_committed_under_the_id_of_the_run_when_spark_runs_it(
    submitted: Jobs, table: Watermarks, moto_process: str, bucket_of_process: str
) -> None:
    s3, lake = boto3.client("s3", endpoint_url=moto_process), bucket_of_process
    s3.put_object(Bucket=lake, Key="landing/1.json", Body=json.dumps({"id": 1}).encode())
    submitted.create_job(
        Name="ingest",
        Command={"Name": "glueetl", "ScriptLocation": str(REPOSITORY / "scripts/jobs/ingest_files.py")},
        DefaultArguments={
            "--table": table.table_name, "--source": f"s3a://{lake}/landing/", "--target": f"s3a://{lake}/raw/",
            "--format": "json", "--schema": "id BIGINT",
        },
    )  # fmt: skip

    run_id = submitted.start("ingest")
    run = submitted.wait("ingest", run_id, seconds=PATIENCE)

    logs = Path(run["LogGroupName"])
    assert run["JobRunState"] == "SUCCEEDED", (logs / "stderr").read_text()[-3000:]
    assert table.get_most_recent_run_id("ingest") == run_id
    lines = (logs / "stdout").read_text().splitlines()  # Spark 3.3 also logs to stdout.
    assert [json.loads(line)["rows_written"] for line in lines if line.startswith('{"')] == [1]
    assert any(found["Key"].startswith("raw/") for found in s3.list_objects_v2(Bucket=lake)["Contents"])
    assert run["ExecutionTime"] >= 1


def test_run_has_failed_with_the_error_of_python_when_spark_runs_a_broken_script(
    submitted: Jobs, tmp_path: Path
) -> None:
    script = tmp_path / "broken.py"
    script.write_text("x = 1\ndef (\n")
    submitted.create_job(Name="broken", Command={"Name": "glueetl", "ScriptLocation": str(script)})

    run: dict[str, Any] = submitted.wait("broken", submitted.start("broken"), seconds=PATIENCE)

    assert run["JobRunState"] == "FAILED"
    assert run["ErrorMessage"].startswith(
        "SyntaxError: invalid syntax (broken.py, line 2). The job ended with exit code"
    )


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """Return the URL of a standalone master with one worker, on loopback."""
    with standalone_cluster(tmp_path / "standalone") as url:
        yield url


def test_executors_work_and_are_gone_when_a_run_is_stopped_on_a_standalone_master(
    make_jobs: Callable[..., Jobs], standalone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    conf = {"spark.ui.enabled": "false", "spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"}
    jobs = make_jobs(master=standalone, conf=conf, lease_seconds=PATIENCE)
    script = tmp_path / "on_an_executor.py"
    script.write_text(ON_AN_EXECUTOR)
    jobs.create_job(Name="busy", Command={"Name": "glueetl", "ScriptLocation": str(script)})

    run_id = jobs.start("busy")
    stdout = Path(jobs.until("busy", run_id, "RUNNING").told["LogGroupName"]) / "stdout"
    told: list[tuple[str, str]] = []
    while not told:
        # A run is in the state RUNNING before its launcher has opened the log.
        written = stdout.read_text() if stdout.exists() else ""
        told = re.findall(r"^(spark:\S+) (\d+)\n", written, re.MULTILINE)
        assert (run := jobs.run("busy", run_id))["JobRunState"] == "RUNNING", run
        time.sleep(0.1)
    master, executor = told[0]
    was_alive = is_alive(int(executor))
    jobs.batch_stop_job_run(JobName="busy", JobRunIds=[run_id])
    stopped = jobs.wait("busy", run_id, seconds=PATIENCE)

    assert (master, was_alive) == (standalone, True)
    assert stopped["JobRunState"] == "STOPPED"
    assert gone(int(executor))
