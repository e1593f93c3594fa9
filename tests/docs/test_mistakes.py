"""Lines of the README and docs/start.md with one likely mistake each: the error has a type and says what to do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from scripts.helpers.errors import (
    ConfigurationError,
    CursorError,
    InvalidValueError,
    KeyColumnError,
    NothingThereError,
    PlanConflictError,
    RunInProgressError,
    SourceError,
    TableNotFoundError,
    TargetError,
    UnknownJobError,
    WatermarkError,
)
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks

# Untyped, as for a user without a type checker.
Job: Any = IncrementalJob
TABLE = "sqlite:watermarks.db"
DAYS = pd.DataFrame({"id": [1], "last_modified": [datetime(2026, 11, 23)]})


@pytest.fixture
def watermarks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watermarks:
    """Return the README's table, in a working directory with one landed file."""
    monkeypatch.chdir(tmp_path)
    Path("landing").mkdir()
    Path("landing/monday.json").write_text('{"id": 1, "bay": "A"}')
    made = Watermarks(TABLE)
    made.create_table()
    return made


def landed(job: Any) -> Any:
    """Take the new files, as the README does."""
    return job.new_files("landing/")


def rows(job: Any) -> Any:
    """Take the new rows of a DataFrame."""
    return job.rows_since(DAYS, "id", delay=timedelta(0))


def rewind_too_far(watermarks: Watermarks) -> None:
    with Job(watermarks, "parking") as job:
        job.write(landed(job).read_pandas("json"), "raw/")
    watermarks.rewind("parking", to_version=9, why="a test")


def write_after_the_block(watermarks: Watermarks) -> None:
    with Job(watermarks, "parking") as job:
        taken = landed(job).read_pandas("json")
    job.write(taken, "raw/")


def use_a_job_twice(watermarks: Watermarks) -> None:
    job = Job(watermarks, "parking")
    for _ in range(2):
        with job:
            job.write(landed(job).read_pandas("json"), "raw/")


def begin_twice(watermarks: Watermarks) -> None:
    with Job(watermarks, "parking"), Job(watermarks, "parking"):
        pass


def write_twice(job: Any) -> None:
    taken = landed(job).read_pandas("json")
    job.write(taken, "raw/")
    job.write(taken, "raw/")


def plan_after_a_write(job: Any) -> None:
    job.write(rows(job), "raw/")
    landed(job)


def expect(error: type[WatermarkError], words: str, mistake: Callable[[Any], Any], name: str) -> Any:
    return pytest.param(error, words, mistake, id=name)


@pytest.mark.parametrize(
    ("error", "words", "mistake"),
    [
        expect(
            InvalidValueError, "Write sqlite:watermarks.db", lambda _: Watermarks("sqlite:"), "table without a path"
        ),
        expect(
            TableNotFoundError,
            "watermarks create-table --table sqlite:water.db",
            lambda _: Job(Watermarks("sqlite:water.db"), "parking").__enter__(),
            "misspelt table",
        ),
        expect(ConfigurationError, "exists already", lambda table: table.create_table(), "table made twice"),
        expect(
            InvalidValueError, "The table comes first", lambda table: Job("parking", table), "swapped table and job"
        ),
        expect(
            InvalidValueError,
            "'enable', 'pause' or 'disable'",
            lambda table: Job(table, "parking", mode="pauze"),
            "mode",
        ),
        expect(PlanConflictError, "in a `with` statement", lambda table: landed(Job(table, "parking")), "no with"),
        expect(PlanConflictError, "inside the `with` block", write_after_the_block, "write after the block"),
        expect(PlanConflictError, "a new IncrementalJob", use_a_job_twice, "job used twice"),
        expect(RunInProgressError, "watermarks release parking", begin_twice, "second run at once"),
        expect(UnknownJobError, "Check the name", lambda table: table.get_watermark_values("parkng"), "misspelt job"),
        expect(
            NothingThereError,
            "history(job_id)",
            rewind_too_far,
            "rewind too far",
        ),
    ],
)
def test_error_leads_on_when_a_line_about_the_table_or_the_run_has_a_mistake(
    watermarks: Watermarks, error: type[WatermarkError], words: str, mistake: Callable[[Any], Any]
) -> None:
    with pytest.raises(error) as raised:
        mistake(watermarks)

    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("error", "words", "mistake"),
    [
        expect(SourceError, "No such file or directory", lambda job: job.new_files("landign/"), "misspelt folder"),
        expect(SourceError, "Use s3://", lambda job: job.new_files("s4://lake/landing/"), "misspelt scheme"),
        expect(
            InvalidValueError,
            "Did you mean transformation_ctx?",
            lambda job: job.new_files("landing/", transformtion_ctx="parking"),
            "misspelt context",
        ),
        expect(
            InvalidValueError, "a whole number from 1", lambda job: job.new_files("landing/", max_files="5"), "text"
        ),
        expect(
            PlanConflictError, "Give each source its own", lambda job: [landed(job) for _ in range(2)], "shared context"
        ),
        expect(
            PlanConflictError, "Call rows_since or new_files", lambda job: job.freeze(), "freeze before the sources"
        ),
        expect(PlanConflictError, "Plan all sources before writing", plan_after_a_write, "source after a write"),
        expect(SourceError, "Did you mean csv?", lambda job: landed(job).read_pandas("cvs"), "misspelt format"),
        expect(
            InvalidValueError,
            "Did you mean dtype?",
            lambda job: landed(job).read_pandas("csv", dtyp={}),
            "reader option",
        ),
        expect(
            InvalidValueError, "Did you mean cursor_column?", lambda job: job.rows_since(DAYS, cursor="id"), "cursor"
        ),
        expect(InvalidValueError, "Name it", lambda job: job.rows_since(DAYS), "no cursor column"),
        expect(
            CursorError,
            "It has: id, last_modified",
            lambda job: job.rows_since(DAYS, "lastmodified"),
            "misspelt column",
        ),
        expect(CursorError, "Give a timedelta", lambda job: job.rows_since(DAYS, "id", delay=5), "delay in seconds"),
        expect(CursorError, "zone=", lambda job: job.rows_since(DAYS, "last_modified"), "times without a zone"),
        expect(InvalidValueError, "Pass a DataFrame", lambda job: job.rows_since("landing/", "id"), "path for rows"),
        expect(
            InvalidValueError, "job.write(rows, target)", lambda job: job.write("raw/", rows(job)), "swapped target"
        ),
        expect(InvalidValueError, "not a DataFrame", lambda job: job.write(landed(job), "raw/"), "files for rows"),
        expect(
            InvalidValueError,
            "to append is what write does",
            lambda job: job.write(rows(job), "raw/", mode="append"),
            "mode of Spark's writer",
        ),
        expect(
            InvalidValueError,
            "Did you mean partition_by?",
            lambda job: job.write(rows(job), "raw/", partitionBy=["id"]),
            "partitions as Spark's writer has them",
        ),
        expect(
            InvalidValueError, "Write [...]", lambda job: job.write(rows(job), "raw/", partition_by="id"), "no list"
        ),
        expect(
            InvalidValueError,
            "Did you mean parquet?",
            lambda job: job.write(rows(job), "raw/", format="parqet"),
            "misspelt format of a target",
        ),
        expect(PlanConflictError, "Union the frames", write_twice, "two writes to a target"),
        expect(
            TargetError,
            "Write elsewhere",
            lambda job: job.write(landed(job).read_pandas("json"), "landing/raw/"),
            "in the source",
        ),
        expect(
            InvalidValueError,
            "DeltaSink",
            lambda job: job.merge(rows(job), "raw/", keys="id", sequence_by="day"),
            "merge into a path",
        ),
        expect(
            KeyColumnError,
            "Name each column once",
            lambda job: job.merge(rows(job), "raw/", keys="id", sequence_by="id"),
            "key as its own sequence",
        ),
    ],
)
def test_error_leads_on_when_a_line_of_a_job_has_a_mistake(
    watermarks: Watermarks, error: type[WatermarkError], words: str, mistake: Callable[[Any], Any]
) -> None:
    with pytest.raises(error) as raised, Job(watermarks, "parking") as job:
        mistake(job)

    assert words in str(raised.value)
    assert not Path("raw").exists()
