"""Spark settings that skip the rows of unreadable files are refused wherever rows count as read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.rows import missing_keys
from scripts.helpers.sinks.staged_rows import read_spark
from scripts.helpers.sinks.staging import StagedRows
from scripts.helpers.watermarks import Watermarks


@pytest.fixture(params=["ignoreCorruptFiles", "ignoreMissingFiles"])
def ignoring(spark: Any, request: pytest.FixtureRequest) -> Any:
    """Return a session that skips unreadable files."""
    session = spark.newSession()
    session.conf.set(f"spark.sql.files.{request.param}", "true")
    return session


def rows_since(job: IncrementalJob, rows: Any) -> Any:
    return job.rows_since(rows, "id")


def missing(_: IncrementalJob, rows: Any) -> Any:
    return missing_keys(rows, rows, "id")


def staged(_: IncrementalJob, rows: Any) -> Any:
    return read_spark(rows.sparkSession, StagedRows("x"))


@pytest.mark.parametrize("call", [rows_since, missing, staged])
def test_rows_are_refused_when_the_session_passes_over_files(
    ignoring: Any, watermarks: Watermarks, job_id: str, tmp_path: Path, call: Callable[[IncrementalJob, Any], Any]
) -> None:
    ignoring.range(2).write.parquet(str(tmp_path / "rows"))
    rows = ignoring.read.parquet(str(tmp_path / "rows"))

    with pytest.raises(InvalidValueError, match="is true: Spark would leave out the rows"):
        with IncrementalJob(watermarks, job_id, spark=ignoring) as job:
            call(job, rows)

    assert watermarks.latest(job_id).version == 0
