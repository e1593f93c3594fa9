"""Jobs, bookmarks and commands that also run, not only import, if optional packages are not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks
from tests.support.blocked_packages import run_without

ALL_OPTIONAL = ("click", "pandas", "pyarrow", "pyspark")
JOB, RUN = "parking", "jr_1"

INGEST = "from scripts.jobs.ingest_table import main\nmain(['--help'])"
BOOKMARKS = f"""
from scripts.helpers.glue.bookmarks import JobBookmarks
from scripts.helpers.watermarks import Watermarks

bookmarks = JobBookmarks(Watermarks(sys.argv[1]))
now = bookmarks.get_job_bookmark(JobName={JOB!r})["JobBookmarkEntry"]
left = bookmarks.get_job_bookmark(JobName={JOB!r}, RunId={RUN!r})["JobBookmarkEntry"]
page = bookmarks.get_job_bookmarks(JobName={JOB!r})["JobBookmarkEntries"]
pages = list(bookmarks.get_paginator("get_job_bookmarks").paginate(JobName={JOB!r}))
reset = bookmarks.reset_job_bookmark(JobName={JOB!r})["JobBookmarkEntry"]
print(now == left, page == [now], len(pages), now["JobBookmark"], reset["Version"])
"""
NOTHING_NEW = """
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks

table, source, *heavy = sys.argv[1:]
with IncrementalJob(Watermarks(table), "nothing new") as job:
    landed = job.new_files(source)
print(landed.count, [name for name in heavy if name in sys.modules])
"""
HEAVY = (
    "pandas", "pyspark", "pyarrow.dataset", "pyarrow.parquet", "deltalake", "duckdb", "obstore", "sqlite3",
    "scripts.helpers.batch.rows", "scripts.helpers.batch.writing", "scripts.helpers.sinks.files",
    "scripts.helpers.files.partitions", "scripts.helpers.files.readings", "scripts.helpers.reading.by_schema",
    "scripts.helpers.reading.small_files", "scripts.helpers.reading.pandas_files",
    "scripts.helpers.decisions.doctor", "scripts.helpers.metrics.freshness", "scripts.helpers.protocol.jobs",
)  # fmt: skip
"""Modules that a run without new files does not need. Importing some takes as long as the rest of such a run."""
COMMAND = "from scripts.cli.main import main\nmain()"


@pytest.fixture
def table(watermarks: Watermarks, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a table with one job, and set the endpoint so that child processes reach it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("COLUMNS", "120")
    run = watermarks.begin(JOB, RUN)
    run.freeze({}, {"up_to": 42})
    run.commit()
    return watermarks.table_name


def test_job_prints_its_help_when_no_optional_package_is_installed() -> None:
    done = run_without(ALL_OPTIONAL, INGEST)

    assert (done.returncode, done.stderr) == (0, "")
    assert "--cursor-column NAME" in done.stdout


def test_bookmarks_are_read_and_reset_when_nothing_optional_is_installed(table: str) -> None:
    done = run_without(ALL_OPTIONAL, BOOKMARKS, table)

    assert done.stderr == ""
    assert done.stdout == 'True True 1 {"up_to": {"kind": "value", "type": "int", "value": 42}} 2\n'


@pytest.mark.parametrize(("arguments", "shown"), [(["jobs"], JOB), (["history", JOB], RUN)], ids=["jobs", "history"])
def test_command_shows_the_table_when_only_click_is_installed(table: str, arguments: list[str], shown: str) -> None:
    done = run_without({"pandas", "pyarrow", "pyspark"}, COMMAND, "--table", table, *arguments)

    assert (done.returncode, done.stderr) == (0, "")
    assert shown in done.stdout


@pytest.mark.usefixtures("dynamodb")
@pytest.mark.parametrize("is_local", [True, False], ids=["folder", "bucket"])
@pytest.mark.parametrize("files", [0, 3])
def test_job_imports_nothing_heavy_when_nothing_is_new(
    watermarks: Watermarks, table: str, s3: Any, bucket: str, tmp_path: Path, files: int, is_local: bool
) -> None:
    for number in range(files):
        (tmp_path / f"{number}.json").write_text("{}")
        (tmp_path / "_SUCCESS").touch()
        s3.put_object(Bucket=bucket, Key=f"landing/{number}.json", Body=b"{}")
    source = str(tmp_path) if is_local else f"s3://{bucket}/landing/"
    with IncrementalJob(watermarks, "nothing new", s3_client=s3) as job:
        assert job.new_files(source).count == files

    done = run_without((), NOTHING_NEW, table, source, *HEAVY)

    assert (done.returncode, done.stdout, done.stderr) == (0, "0 []\n", "")
