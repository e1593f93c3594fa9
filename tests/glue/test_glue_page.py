"""docs/glue.md: its example runs, and each of its lines names a test that is there."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from typing import Any

import boto3
import pytest

from scripts.helpers import glue
from scripts.helpers.glue import GlueContext, Job
from scripts.helpers.watermarks import Watermarks
from tests.conftest import REPOSITORY
from tests.glue.conftest import Put

PAGE = (REPOSITORY / "docs" / "glue.md").read_text()
ROWS = [re.split(r"(?<!\\)\|", line)[1:-1] for line in PAGE.splitlines() if line.startswith("|") and "---" not in line]
HERE = "eu-north-1"


def test_example_takes_each_file_once_when_it_runs_again(
    endpoint: str, spark: Any, monkeypatch: pytest.MonkeyPatch, put: Put, landing: str, raw: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_DEFAULT_REGION", HERE)
    table = Watermarks(dynamodb_client=boto3.client("dynamodb", region_name=HERE, endpoint_url=endpoint))
    table.create_table()
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    arguments = ["--JOB_NAME", "page", "--source", landing, "--target", raw]
    monkeypatch.setattr(sys, "argv", ["job.py", *arguments, "--job-bookmark-option", "job-bookmark-enable"])

    for name in ("a", "b"):
        put(name)
        exec(compile(block, "glue.md", "exec"), {})

    table._store.client.delete_table(TableName=table.table_name)
    assert sorted(row["id"] for row in spark.read.parquet(raw).collect()) == ["a", "b"]


def test_every_row_names_a_test_that_is_there_when_the_tables_are_read() -> None:
    named = [row[2] for row in ROWS if "shown by" not in row[2]]

    missing = [name for cell in named for name in [cell.strip().strip("`")] if not is_test(name)]

    assert len(named) > 30
    assert missing == []


def is_test(name: str) -> bool:
    """Tell whether a test of this name is in the file."""
    path, _, function = name.partition("::")
    file = REPOSITORY / "tests" / path
    return file.is_file() and any(
        isinstance(node, ast.FunctionDef) and node.name == function and function.startswith("test_")
        for node in ast.parse(file.read_text()).body
    )


def test_sed_of_the_page_leads_to_names_that_are_there_when_a_script_is_changed() -> None:
    pattern = re.search(r"s/\^from (.*?)/from (\S+) import/'", PAGE)
    assert pattern is not None

    script = "from awsglue.utils import getResolvedOptions"
    changed = re.sub("^from awsglue[.a-z]* import", f"from {pattern[2]} import", script)

    assert changed == "from scripts.helpers.glue import getResolvedOptions"
    assert set(
        re.findall(r"`(ApplyMapping|SelectFields|DropFields|RenameField|ResolveChoice|Relationalize)`", PAGE)
    ) <= set(glue.__all__)


def test_page_is_short_when_counted() -> None:
    assert len(PAGE.splitlines()) <= 150


def test_target_keeps_its_rows_when_a_bookmark_is_reset(
    begin: Callable[..., Job],
    glue_context: GlueContext,
    watermarks: Watermarks,
    put: Put,
    landing: str,
    raw: str,
    spark: Any,
) -> None:
    put("a")
    for _ in range(2):
        job = begin()
        frame = glue_context.create_dynamic_frame.from_options(
            "file", {"paths": [landing]}, "json", transformation_ctx="landed"
        )
        glue_context.write_dynamic_frame.from_options(frame, "file", {"path": raw}, "json")
        job.commit()
        watermarks.reset("parking", why="everything again")

    assert [row["id"] for row in spark.read.json(raw).collect()] == ["a", "a"]
