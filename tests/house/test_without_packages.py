"""What not only is imported but runs where optional packages are not installed."""

from __future__ import annotations

import pytest

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
COMMAND = "from scripts.cli.main import main\nmain()"


@pytest.fixture
def table(watermarks: Watermarks, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a table with one job, which other processes reach as their default AWS."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("COLUMNS", "120")
    run = watermarks.begin(JOB, RUN)
    run.freeze({}, {"up_to": 42})
    run.commit()
    return watermarks.table_name


def test_job_says_how_it_is_called_when_nothing_optional_is_installed() -> None:
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
