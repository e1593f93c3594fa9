"""A run on real spark-submit: the file job of this package from start to its committed bookmark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest

from scripts.demo.local_s3 import find_jars, spark_conf
from scripts.helpers.watermarks import Watermarks
from tests.conftest import REGION, REPOSITORY, missing_component
from tests.runs.conftest import Jobs


@pytest.fixture
def submitted(make_jobs: Callable[..., Jobs], moto_process: str, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """Return jobs on a Spark whose s3a:// is the server."""
    if not find_jars():
        missing_component("S3A", "pip install --no-deps sagemaker_pyspark==1.4.5")
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_process)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    conf = spark_conf(moto_process) | {"spark.ui.enabled": "false"}
    return make_jobs(master="local[1]", conf=conf, lease_seconds=30)


def test_bookmark_is_committed_under_the_id_of_the_run_when_spark_runs_it(
    submitted: Jobs, table: Watermarks, moto_process: str
) -> None:
    s3 = boto3.client("s3", endpoint_url=moto_process)
    s3.create_bucket(Bucket="lake", CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_object(Bucket="lake", Key="landing/1.json", Body=json.dumps({"id": 1}).encode())
    submitted.create_job(
        Name="ingest",
        Command={"Name": "glueetl", "ScriptLocation": str(REPOSITORY / "scripts/jobs/ingest_files.py")},
        DefaultArguments={
            "--table": table.table_name, "--source": "s3a://lake/landing/", "--target": "s3a://lake/raw/",
            "--format": "json", "--schema": "id BIGINT",
        },
    )  # fmt: skip

    run_id = submitted.start("ingest")
    run = submitted.wait("ingest", run_id, seconds=240)

    logs = Path(run["LogGroupName"])
    assert run["JobRunState"] == "SUCCEEDED", (logs / "stderr").read_text()[-3000:]
    assert table.get_most_recent_run_id("ingest") == run_id
    assert json.loads((logs / "stdout").read_text().splitlines()[-1])["rows_written"] == 1
    assert any(found["Key"].startswith("raw/") for found in s3.list_objects_v2(Bucket="lake")["Contents"])
    assert run["ExecutionTime"] >= 1


def test_run_has_failed_with_the_error_of_python_when_spark_runs_a_broken_script(
    submitted: Jobs, tmp_path: Path
) -> None:
    script = tmp_path / "broken.py"
    script.write_text("x = 1\ndef (\n")
    submitted.create_job(Name="broken", Command={"Name": "glueetl", "ScriptLocation": str(script)})

    run: dict[str, Any] = submitted.wait("broken", submitted.start("broken"), seconds=240)

    assert run["JobRunState"] == "FAILED"
    assert run["ErrorMessage"].startswith(
        "SyntaxError: invalid syntax (broken.py, line 2). The job ended with exit code"
    )
