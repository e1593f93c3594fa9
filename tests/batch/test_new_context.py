"""A context that is new to an existing job is logged: it reads everything, and may be a renamed context."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from scripts.helpers.batch.modes import ModeName
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks


def run(
    watermarks: Watermarks, run_id: str, *contexts: str, folder: Path | None = None, mode: ModeName = "enable"
) -> None:
    rows = pd.DataFrame({"id": [1, 2]})
    with IncrementalJob(watermarks, "repairs", run_id, mode=mode) as job:
        for context in contexts:
            job.rows_since(rows, "id", transformation_ctx=context)
        if folder is not None:
            job.new_files(str(folder), transformation_ctx="landed")


def test_nothing_is_said_of_a_new_context_when_it_is_the_first_run_or_known(
    watermarks: Watermarks, caplog: pytest.LogCaptureFixture
) -> None:
    run(watermarks, "jr_1", "a", "b")
    run(watermarks, "jr_2", "a", "b")
    run(watermarks, "jr_3", "new", mode="disable")

    assert "event=new_context" not in caplog.text


def test_contexts_of_the_job_are_named_when_rows_are_read_under_a_new_one(
    watermarks: Watermarks, caplog: pytest.LogCaptureFixture
) -> None:
    run(watermarks, "jr_1", "a", "b")
    watermarks.set_watermark("repairs", {"by_hand": 1}, why="a value")

    run(watermarks, "jr_2", "a", "renamed")

    (line,) = [record for record in caplog.records if "event=new_context" in record.getMessage()]
    assert line.levelname == "WARNING"
    assert "job=repairs context=renamed: the context has no watermark" in line.getMessage()
    assert "The job has a, b." in line.getMessage()


def test_contexts_of_the_job_are_named_when_files_are_read_under_a_new_one(
    watermarks: Watermarks, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    run(watermarks, "jr_1", "a")

    run(watermarks, "jr_2", "a", folder=tmp_path)

    assert "event=new_context job=repairs context=landed" in caplog.text
