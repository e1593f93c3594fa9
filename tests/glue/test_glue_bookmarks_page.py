"""The examples of docs/glue-bookmarks.md, run as they stand."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import boto3
from botocore.stub import Stubber

from scripts.helpers.glue.glue_states import path_hash
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks
from tests.support.doctests import run_doctest
from tests.support.places import REPOSITORY
from tests.support.steps import commit

PAGE = (REPOSITORY / "docs" / "glue-bookmarks.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ON_GLUE = "parking on glue"


def commit_rows(watermarks: Watermarks, run_id: str, value: int) -> None:
    state = {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": value}
    commit(watermarks, "parking", run_id, {"repairs": state})


def stubbed_glue(s3: Any, bucket: str, answers: int) -> Any:
    """Return a client for Glue with a bookmark that has read two of three files, and rows up to id 5."""
    for name in "abc":
        s3.put_object(Bucket=bucket, Key=f"parking/{name}.csv", Body=b"id\n1\n")
    objects = s3.list_objects_v2(Bucket=bucket)["Contents"]
    hashes = [path_hash(f"s3://{bucket}/{found['Key']}", found["LastModified"]) for found in objects[:2]]
    started = max(found["LastModified"] for found in objects) + timedelta(seconds=1)
    stamps = {
        "RUN": "2", "HIGH_BAND": "900000", "CURR_LATEST_PARTITION": "0", "CURR_LATEST_PARTITIONS": "",
        "CURR_RUN_START_TIME": started.isoformat(), "INCLUDE_LIST": ",".join(f"{number:x}" for number in hashes),
    }  # fmt: skip
    bookmark = {
        "landed": {"jsonClass": "HadoopDataSourceJobBookmarkState", "timestamps": stamps},
        "repairs": {"jsonClass": "JDBC", "keys": {"id": "5"}},
    }
    client = boto3.client("glue")
    stubber = Stubber(client)
    entry = {"JobName": ON_GLUE, "Version": 4, "Run": 3, "RunId": "jr_7", "JobBookmark": json.dumps(bookmark)}
    for _ in range(answers):
        stubber.add_response("get_job_bookmark", {"JobBookmarkEntry": entry}, {"JobName": ON_GLUE})
    stubber.activate()
    return client


def test_examples_of_the_page_work_when_run_in_order(
    watermarks: Watermarks, s3: Any, bucket: str, endpoint: str, monkeypatch: Any
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    glue = stubbed_glue(s3, bucket, answers=2)
    commit_rows(watermarks, "jr_1", 7)
    watermarks.begin("parking", "jr_2").abort()
    commit_rows(watermarks, "jr_3", 42)
    names: dict[str, Any] = {"watermarks": watermarks, "glue": glue, "IncrementalJob": IncrementalJob}

    report = run_doctest("\n".join(BLOCKS).replace("s3://landing/", f"s3://{bucket}/"), names)

    assert (len(BLOCKS), report.attempted, report.failed) == (3, 14, 0)
    assert watermarks.get_watermark_values(ON_GLUE)["repairs"]["value"] == 6
