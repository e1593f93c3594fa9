"""docs/glue.md: its examples run, and its statements about imports and targets are true."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pyarrow.parquet as pq
import pytest

from scripts.helpers import glue
from scripts.helpers.glue import GlueContext, Job
from scripts.helpers.watermarks import Watermarks
from tests.glue.options import Put
from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY

PAGE = (REPOSITORY / "docs" / "glue.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
HERE = "eu-north-1"


def test_example_takes_each_file_once_when_it_runs_again(
    endpoint: str, spark: Any, monkeypatch: pytest.MonkeyPatch, put: Put, landing: str, raw: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_DEFAULT_REGION", HERE)
    table = Watermarks(dynamodb_client=boto3.client("dynamodb", region_name=HERE, endpoint_url=endpoint))
    table.create_table()
    block, _ = BLOCKS
    arguments = ["--JOB_NAME", "page", "--source", landing, "--target", raw]
    monkeypatch.setattr(sys, "argv", ["job.py", *arguments, "--job-bookmark-option", "job-bookmark-enable"])

    for name in ("a", "b"):
        put(name)
        exec(compile(block, "glue.md", "exec"), {})

    table.store.client.delete_table(TableName=table.table_name)
    assert sorted(pq.read_table(raw.removeprefix("file://"))["id"].to_pylist()) == ["a", "b"]


def test_choice_is_settled_when_the_second_block_of_the_page_is_run(
    glue_context: GlueContext, put: Put, landing: str
) -> None:
    put("prices.json", body='{"price": 7}\n{"price": "7.5"}\n')
    found: dict[str, Any] = {"glue_context": glue_context, "args": {"prices": landing}}

    exec(compile(BLOCKS[1], "glue.md", "exec"), found)

    assert sorted(row["price"] for row in found["settled"].toDF().collect()) == [7.0, 7.5]


def test_imports_exist_when_the_sed_command_of_the_page_has_changed_a_script(tmp_path: Path) -> None:
    [command] = re.findall(r"^(sed -i .*) job\.py$", PAGE, re.MULTILINE)
    transforms = [
        name for name in glue.__all__ if isinstance(getattr(glue, name), type) and hasattr(getattr(glue, name), "apply")
    ]
    imports = {
        "awsglue.transforms": "*", "awsglue.utils": "getResolvedOptions", "awsglue.context": "GlueContext",
        "awsglue.job": "Job", "awsglue.dynamicframe": "DynamicFrame", "awsgluedq.transforms": "EvaluateDataQuality",
        "awsglue.transforms.apply_mapping": ", ".join(transforms),
    }  # fmt: skip
    script = tmp_path / "job.py"
    lines = [f"from {module} import {names}\n" for module, names in imports.items()]
    # Glue Studio also writes imports that are indented.
    script.write_text("".join([*lines, "if True:\n    from awsglue.dynamicframe import DynamicFrameCollection\n"]))

    subprocess.run([*shlex.split(command), str(script)], check=True, timeout=PATIENCE)

    found: dict[str, Any] = {}
    exec(compile(script.read_text(), "job.py", "exec"), found)
    assert len(transforms) == 24
    assert {
        "getResolvedOptions",
        "GlueContext",
        "Job",
        "DynamicFrame",
        "DynamicFrameCollection",
        *transforms,
    } <= found.keys()
    assert found["Join"] is glue.Join


def test_page_is_short_when_counted() -> None:
    assert len(PAGE.splitlines()) <= 175


def test_target_keeps_its_rows_when_a_bookmark_is_reset(
    begin: Callable[..., Job],
    glue_context: GlueContext,
    watermarks: Watermarks,
    put_parquet: Put,
    landing: str,
    raw: str,
) -> None:
    put_parquet("a")
    for _ in range(2):
        job = begin()
        frame = glue_context.create_dynamic_frame.from_options(
            "file", {"paths": [landing]}, "parquet", transformation_ctx="landed"
        )
        glue_context.write_dynamic_frame.from_options(frame, "file", {"path": raw}, "parquet")
        job.commit()
        watermarks.reset("parking", why="everything again")

    assert pq.read_table(raw.removeprefix("file://"))["id"].to_pylist() == ["a", "a"]
