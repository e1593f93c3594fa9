"""What the ready-made jobs share, without Spark: how they repeat a batch, pause, stop and exit."""

from __future__ import annotations

import argparse
import logging
import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from scripts.helpers.errors import UnreadableFilesError
from scripts.helpers.files.rules import FileOptions
from scripts.helpers.job import IncrementalJob
from scripts.helpers.rows.options import RowOptions
from scripts.helpers.watermarks import Watermarks
from scripts.jobs import ingest_files, session
from scripts.jobs.exit_codes import OK, STOPPED, TRY_LATER

JOB = "parking"


@pytest.fixture
def table(watermarks: Watermarks, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the name of a table that a job finds by the environment; restore the log level afterwards."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    level = logging.getLogger("scripts").level
    yield watermarks.table_name
    logging.getLogger("scripts").setLevel(level)


def parsed(table: str, *options: str) -> argparse.Namespace:
    given = ["--JOB_NAME", JOB, "--JOB_RUN_ID", "jr_1", "--table", table, "--source", "s", "--target", "t", *options]
    return session.parse(session.parser("a test"), given)


def test_arguments_of_the_bookmark_stand_under_their_name_when_help_is_shown() -> None:
    shown = session.parser("a test").format_help()

    assert "\nbookmark:\n  the same arguments as in AWS Glue\n" in shown


ARGUMENTS: list[tuple[type, str, list[str], Any, Any, str]] = [
    (RowOptions, "delay", ["--delay", "90s"], timedelta(minutes=5), timedelta(seconds=90), "longest time between"),
    (RowOptions, "nulls", ["--nulls", "skip"], "raise", "skip", "skip them, with a WARNING"),
    (RowOptions, "strings", ["--strings"], False, True, "allow texts as cursors"),
    (RowOptions, "high", ["--high", "7"], None, "7", "the upper bound, exclusive"),
    (FileOptions, "max_files", ["--max-files", "3"], None, 3, "most files and most bytes of one batch"),
    (FileOptions, "include", ["--include", "a", "--include", "b"], [], ["a", "b"], "matches a glob"),
    (FileOptions, "layout", ["--layout", "%Y/"], None, "%Y/", "such as import_year=%Y/import_month=%m/"),
    (FileOptions, "on_unreadable", ["--on-unreadable", "set_aside"], "raise", "set_aside", "set_aside to list it"),
]


@pytest.mark.parametrize(
    ("options", "name", "given", "default", "value", "told"), ARGUMENTS, ids=[name for _, name, *_ in ARGUMENTS]
)
def test_argument_has_type_default_and_help_of_the_options_field_when_added(
    options: type, name: str, given: list[str], default: Any, value: Any, told: str
) -> None:
    parser = argparse.ArgumentParser()
    session.add_options(parser, options, **{name: {"help": "; see the page"}})

    found = [getattr(parser.parse_args(words), name) for words in ([], given)]

    assert found == [default, value]
    shown = " ".join(parser.format_help().split())
    assert told in shown
    assert "; see the page" in shown


@pytest.mark.parametrize("words", [["--nulls", "ignore"], ["--max-rows", "0"], ["--delay", "5"]], ids=" ".join)
def test_parser_ends_with_a_usage_error_when_an_option_does_not_have_the_value(words: list[str]) -> None:
    parser = argparse.ArgumentParser()
    session.add_options(parser, RowOptions, nulls={}, max_rows={}, delay={})

    with pytest.raises(SystemExit) as ended:
        parser.parse_args(words)

    assert ended.value.code == 2


def test_batch_is_taken_again_by_the_same_run_when_files_of_it_were_set_aside(
    table: str, watermarks: Watermarks, caplog: pytest.LogCaptureFixture
) -> None:
    error = UnreadableFilesError("s3://raw/", {"2.csv": "it is not a gz file"})
    runs: list[str] = []

    def work(job: IncrementalJob, arguments: argparse.Namespace) -> bool:
        runs.append(job.run_id)
        if len(runs) == 1:
            raise error
        return False

    code = session.run_job(work, parsed(table))

    assert (code, runs) == (OK, ["jr_1", "jr_1"])
    assert f"event=batch_again job=parking error={error}" in caplog.messages


def test_run_pauses_before_its_commit_when_it_is_told_to(
    table: str, watermarks: Watermarks, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners: list[Any] = []

    def sleep(seconds: float) -> None:
        owners.append((seconds, watermarks.latest(JOB).claim.run_id))  # type: ignore[union-attr]

    monkeypatch.setattr(session, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic, gmtime=time.gmtime))

    session.run_job(lambda *_: False, parsed(table, "--pause-before-commit", "200s"))

    assert owners == [(200, "jr_1")]
    assert "event=pausing job=parking seconds=200" in caplog.messages


def test_first_signal_ends_the_block_and_a_second_one_does_nothing_when_a_run_is_stopped() -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    reached = []

    with pytest.raises(SystemExit) as ended, session.stoppable():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            reached.append(signal.getsignal(signal.SIGTERM))

    assert (ended.value.code, reached) == (STOPPED, [signal.SIG_IGN])
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_process_ends_with_the_code_of_a_job_unless_it_is_that_of_success() -> None:
    session.leave(OK)

    with pytest.raises(SystemExit) as ended:
        session.leave(TRY_LATER)

    assert ended.value.code == TRY_LATER


def test_session_is_that_of_glue_when_the_job_runs_there(monkeypatch: pytest.MonkeyPatch) -> None:
    glues: Any = object()
    monkeypatch.setattr(session, "on_glue", lambda: True)
    monkeypatch.setattr(session, "glue_session", lambda: glues)

    assert session.make_session(JOB, {}) is glues


class Landed:
    """A job whose source has the files a test chooses. It keeps the options that `new_files` was called with."""

    def __init__(self, count: int, columns: list[str]) -> None:
        self.asked: dict[str, Any] = {}
        self.written: list[Any] = []
        self.job_id = JOB
        frame = SimpleNamespace(columns=columns)
        part = SimpleNamespace(read=lambda *_, **__: frame)
        self.landed = SimpleNamespace(count=count, has_more=False, split=lambda _: {"csv": part})

    def new_files(self, source: str, **options: Any) -> Any:
        self.asked = options
        return self.landed

    def write(self, rows: Any, target: Any, **_: Any) -> Any:
        self.written.append(rows)


@pytest.fixture
def ingest(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return a function that runs `ingest_files` on a given job, with arguments of a command line."""

    def call(job: Landed, *options: str) -> int:
        monkeypatch.setattr(session, "run_job", lambda work, arguments: work(job, arguments))
        monkeypatch.setattr(session, "make_session", lambda *_: None)
        return ingest_files.main(["--JOB_NAME", JOB, "--source", "s3://raw/", "--target", "s3://out/", *options])

    return call


@pytest.mark.parametrize(
    ("given", "age"),
    [([], timedelta(0)), (["--min-age", "36h"], timedelta(hours=36))],
    ids=["no age", "hours"],
)
def test_files_are_cleared_after_as_many_hours_as_the_option_says(
    ingest: Callable[..., int], given: list[str], age: timedelta
) -> None:
    job = Landed(0, [])

    ingest(job, "--after-commit", "archive", "--archive-to", "s3://old/", *given)

    asked = {name: job.asked[name] for name in ("after_commit", "archive_to", "min_age")}
    assert asked == {"after_commit": "archive", "archive_to": "s3://old/", "min_age": age}


@pytest.mark.parametrize(("columns", "written"), [([], 0), (["id"], 1)], ids=["none", "one"])
def test_nothing_is_written_when_no_file_has_columns(
    ingest: Callable[..., int], columns: list[str], written: int
) -> None:
    job = Landed(1, columns)

    ingest(job)

    assert len(job.written) == written
