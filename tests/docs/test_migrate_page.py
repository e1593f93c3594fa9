"""The ways from elsewhere that docs/migrate.md shows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import boto3
from botocore.stub import Stubber

from scripts.helpers.watermarks import Watermarks
from tests.docs.pages import run_page


def test_jobs_move_as_told_when_the_page_is_followed(
    make_watermarks: Callable[..., Watermarks], dynamodb: Any, tmp_path: Path
) -> None:
    watermarks = make_watermarks()
    for run_id in ("jr_c0ffee", "jr_dead", "jr_beef"):
        item = {"jobName": {"S": "parking"}, "runId": {"S": run_id}, "watermarks": {"M": {"n": {"N": "1"}}}}
        dynamodb.put_item(TableName=watermarks.table_name, Item=item)
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "1.csv").touch()
    glue = boto3.client("glue")
    runs = [
        {"Id": run_id, "StartedOn": datetime(2026, 3, day, tzinfo=timezone.utc)}
        for run_id, day in (("jr_c0ffee", 3), ("jr_dead", 2), ("jr_beef", 1))
    ]
    names: dict[str, Any] = {"watermarks": watermarks, "lake": str(tmp_path), "glue": glue}

    with Stubber(glue) as stubber:
        stubber.add_response("get_job_runs", {"JobRuns": runs}, {"JobName": "parking"})
        found = run_page("migrate.md", names)

    assert found == 4
    assert names["taken"].count == 1
    state = watermarks.progress.state("repairs", "repairs")
    assert state.value == (datetime(2026, 3, 1, tzinfo=timezone.utc),)
