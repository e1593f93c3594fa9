"""What a run reports to its reporters when it ends, whatever its outcome."""

from __future__ import annotations

import gc
import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from scripts.helpers.errors import (
    ChangedObjectError,
    CommitUnknownError,
    FencedError,
    InvalidValueError,
    UnknownJobError,
)
from scripts.helpers.job import IncrementalJob
from scripts.helpers.metrics.embedded import EmbeddedMetrics
from scripts.helpers.metrics.report import JobReport
from scripts.helpers.protocol.run import Run
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.events import DirectoryEvents
from tests.support.faults import Faults, head_write, read
from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY


class Told:
    """A reporter that keeps the reports."""

    def __init__(self) -> None:
        self.reports: list[JobReport] = []

    def report(self, report: JobReport) -> None:
        self.reports.append(report)


class Broken:
    """A reporter that fails."""

    def report(self, report: JobReport) -> None:
        raise OSError("no network")


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def start(watermarks: Watermarks, clock: Clock, tmp_path: Path, told: Told) -> Callable[..., IncrementalJob]:
    """Return a function that makes runs of one job over two files."""
    for name in ("1.csv", "2.csv"):
        (tmp_path / name).write_text("a,b\n")

    def make(run_id: str, *, watermarks: Watermarks = watermarks, **options: Any) -> IncrementalJob:
        options = {"clock": clock, "reporters": [told], **options}
        return IncrementalJob(watermarks, "parking", run_id, **options)

    return make


def test_commit_is_reported_with_its_counts_when_a_run_succeeds(
    start: Callable[..., IncrementalJob], told: Told, tmp_path: Path, clock: Clock
) -> None:
    with start("jr_1") as job:
        job.new_files(f"{tmp_path}/")

    [report] = told.reports
    assert (report.job_id, report.run_id, report.outcome, report.at) == ("parking", "jr_1", "committed", clock.now)
    assert report.values.pop("DurationSeconds") >= 0
    assert report.values == {"Committed": 1, "AgeSeconds": 0, "OpenPlanAgeSeconds": 0, "Files": 2, "Bytes": 8}


def test_failure_is_reported_once_with_the_age_of_the_plan_when_runs_die(
    start: Callable[..., IncrementalJob], told: Told, tmp_path: Path, clock: Clock
) -> None:
    with start("jr_1") as job:
        job.new_files(f"{tmp_path}/")
    clock.move(hours=1)
    (tmp_path / "3.csv").touch()
    for run_id in ("jr_2", "jr_3"):
        with pytest.raises(MemoryError), start(run_id) as job:
            job.new_files(f"{tmp_path}/")
            job.freeze()
            raise MemoryError
        clock.move(hours=2)

    assert [report.outcome for report in told.reports] == ["committed", "failed", "failed"]
    assert [report.values["OpenPlanAgeSeconds"] for report in told.reports] == [0, 0, 7200]
    assert [report.values["AgeSeconds"] for report in told.reports] == [0, 3600, 10800]
    assert "Files" not in told.reports[1].values


def test_head_stores_the_error_without_rows_and_secrets_when_a_run_fails(
    start: Callable[..., IncrementalJob], watermarks: Watermarks, tmp_path: Path
) -> None:
    def left(error: BaseException, cause: BaseException | None = None) -> str | None:
        with pytest.raises(type(error)), start("jr_1") as job:
            job.new_files(f"{tmp_path}/")
            raise error from cause
        return watermarks.latest("parking").failure

    refused = ValueError("Key (owner)=(Ada Lovelace, 12 St James's Square)")
    assert left(refused) == "ValueError: the log of the run has its text."
    quoting = InvalidValueError(f"The rows cannot be written: {refused}. Give each column one type.")
    assert left(quoting, refused) == "InvalidValueError: The rows cannot be written: …. Give each column one type."
    secret = left(InvalidValueError("No answer of jdbc:postgresql://me:geheim@db/shop?password=geheim. Check it."))
    assert secret == "InvalidValueError: No answer of jdbc:postgresql://***@db/shop?password=*** Check it."
    assert len((left(InvalidValueError("é" * 2_000)) or "").encode()) in (999, 1_000)
    with start("jr_2") as job:
        job.new_files(f"{tmp_path}/")
    assert watermarks.latest("parking").failure is None


def test_rows_are_not_on_the_head_when_a_write_refuses_a_value(
    start: Callable[..., IncrementalJob], watermarks: Watermarks, tmp_path: Path
) -> None:
    rows = pd.DataFrame({"id": [1, 2], "owner": [5, "Ada Lovelace"]})

    with (
        pytest.raises(InvalidValueError, match="'owner' has values of several types: int, str"),
        start("jr_1") as job,
    ):
        job.write(job.rows_since(rows, "id"), str(tmp_path / "raw"))

    failure = watermarks.latest("parking").failure
    assert failure is not None
    assert failure.startswith("InvalidValueError: Column ")
    assert "Ada" not in failure


def test_fenced_run_is_reported_as_fenced_when_another_one_took_over(
    start: Callable[..., IncrementalJob], told: Told, tmp_path: Path, watermarks: Watermarks
) -> None:
    with pytest.raises(FencedError), start("jr_1") as job:
        job.new_files(f"{tmp_path}/")
        job.freeze()
        watermarks.begin("parking", "jr_2", take_over=True)

    assert [report.outcome for report in told.reports] == ["fenced"]
    assert told.reports[0].values["Fenced"] == 1


def test_outcome_is_unknown_when_the_answer_to_the_commit_is_lost(
    start: Callable[..., IncrementalJob],
    told: Told,
    tmp_path: Path,
    watermarks: Watermarks,
    hooked: Watermarks,
    faults: Faults,
) -> None:
    written = io.StringIO()

    with pytest.raises(CommitUnknownError, match="did not say whether run 'jr_1' of job 'parking' was committed"):
        with start("jr_1", watermarks=hooked, reporters=[told, EmbeddedMetrics(written)]) as job:
            job.new_files(f"{tmp_path}/")
            job.freeze()
            faults.reply_lost(head_write)
            faults.drop(read, times=99)

    [report], line = told.reports, json.loads(written.getvalue())
    outcomes = {"Committed", "Failed", "Fenced", "Unknown"}
    assert report.outcome == line["Outcome"] == "unknown"
    assert {name: value for name, value in report.values.items() if name in outcomes} == {"Unknown": 1}
    assert {name: value for name, value in line.items() if name in outcomes} == {"Unknown": 1}
    assert "Files" not in report.values
    assert watermarks.latest("parking").version == 1


def test_refused_commit_is_reported_as_failed_when_a_file_changed(
    start: Callable[..., IncrementalJob], told: Told, tmp_path: Path
) -> None:
    with pytest.raises(ChangedObjectError), start("jr_1") as job:
        job.new_files(f"{tmp_path}/")
        (tmp_path / "1.csv").write_text("another\n")

    assert [report.outcome for report in told.reports] == ["failed"]


def test_run_is_committed_all_the_same_when_a_reporter_fails(
    start: Callable[..., IncrementalJob], told: Told, tmp_path: Path, watermarks: Watermarks, caplog: Any
) -> None:
    with start("jr_1", reporters=[Broken(), told]) as job:
        job.new_files(f"{tmp_path}/")

    assert watermarks.latest("parking").version == 1
    assert [report.outcome for report in told.reports] == ["committed"]
    assert "event=report_failed job=parking" in caplog.text


def test_lag_is_that_of_the_cursor_when_rows_were_read(
    start: Callable[..., IncrementalJob], told: Told, clock: Clock, watermarks: Watermarks
) -> None:
    pandas = pytest.importorskip("pandas")
    rows = pandas.DataFrame({"at": [clock.now - timedelta(hours=5), clock.now - timedelta(hours=3)]})

    with start("jr_1") as job:
        job.rows_since(rows, "at")

    assert told.reports[0].values["LagSeconds"] == pytest.approx(3 * 3600, abs=1)


def test_nothing_is_reported_when_the_run_saves_nothing(
    start: Callable[..., IncrementalJob], told: Told, tmp_path: Path
) -> None:
    with start("jr_1", mode="pause") as job:
        job.new_files(f"{tmp_path}/")

    assert told.reports == []


def test_run_is_reported_as_failed_when_a_script_forgets_to_commit(
    start: Callable[..., IncrementalJob], told: Told, tmp_path: Path
) -> None:
    job = start("jr_1").init("parking", {"JOB_RUN_ID": "jr_1"})
    job.new_files(f"{tmp_path}/")

    del job
    gc.collect()

    assert [(report.run_id, report.outcome) for report in told.reports] == [("jr_1", "failed")]
    assert told.reports[0].values["Failed"] == 1


def test_forgotten_run_is_reported_when_its_lease_cannot_be_released(
    start: Callable[..., IncrementalJob],
    told: Told,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = start("jr_1").init("parking", {"JOB_RUN_ID": "jr_1"})
    job.new_files(f"{tmp_path}/")

    def refused(self: Run) -> None:
        raise FencedError("parking", "jr_1", 1, 2)

    monkeypatch.setattr(Run, "abort", refused)
    del job
    gc.collect()

    (failed,) = [text for text in caplog.messages if text.startswith("event=abort_failed")]
    assert failed.startswith("event=abort_failed job=parking run=jr_1 error=Run 'jr_1' of job 'parking' has fence 1")
    assert [report.outcome for report in told.reports] == ["failed"]


def test_run_is_reported_as_failed_once_when_it_is_aborted(
    start: Callable[..., IncrementalJob], told: Told, tmp_path: Path
) -> None:
    with start("jr_1") as job:
        job.new_files(f"{tmp_path}/")
        job.abort()
        job.abort()

    assert [report.outcome for report in told.reports] == ["failed"]


def test_abort_reports_nothing_more_when_the_run_was_committed(
    start: Callable[..., IncrementalJob], told: Told, tmp_path: Path
) -> None:
    with start("jr_1") as job:
        job.new_files(f"{tmp_path}/")
        job.commit()
        job.abort()

    assert [report.outcome for report in told.reports] == ["committed"]


def test_run_is_reported_as_committed_when_its_events_cannot_be_acknowledged(
    start: Callable[..., IncrementalJob], told: Told, tmp_path: Path, watermarks: Watermarks, caplog: Any
) -> None:
    class Unreachable(DirectoryEvents):
        def acknowledge(self, *, but: Any = ()) -> int:
            raise OSError("no network")

    with start("jr_1") as job:
        job.new_files(f"{tmp_path}/", events=Unreachable())
        outcome = job.commit()

    assert (outcome, watermarks.latest("parking").version) == ("done", 1)
    assert [report.outcome for report in told.reports] == ["committed"]
    assert "event=after_commit_failed job=parking run=jr_1 error=no network" in caplog.text


def test_run_is_refused_before_it_begins_when_its_clock_has_no_zone(
    start: Callable[..., IncrementalJob], watermarks: Watermarks
) -> None:
    with pytest.raises(InvalidValueError) as caught, start("jr_1", clock=lambda: datetime(2026, 3, 16)):
        pass

    assert str(caught.value) == (
        "clock returns a datetime without zone. Return an aware one, as lambda: datetime.now(timezone.utc) does."
    )
    with pytest.raises(UnknownJobError):
        watermarks.latest("parking")


def test_run_is_committed_all_the_same_when_its_clock_fails_at_the_end(
    start: Callable[..., IncrementalJob], told: Told, tmp_path: Path, watermarks: Watermarks, clock: Clock, caplog: Any
) -> None:
    of_table = datetime.fromisoformat("2026-03-16T16:00:00+00:00")
    timed = Watermarks(watermarks.table_name, watermarks.store.client, clock=lambda: of_table)

    with start("jr_1", watermarks=timed) as job:
        job.new_files(f"{tmp_path}/")
        clock.now = clock.now.replace(tzinfo=None)
        outcome = job.commit()

    assert (outcome, watermarks.latest("parking").version, told.reports) == ("done", 1, [])
    assert "event=report_failed job=parking" in caplog.text


# --- SIGTERM ------------------------------------------------------------------------------------------

STOPPABLE = """
import sys, time
from scripts.jobs.session import leave, parse, parser, run_job

def work(job, arguments):
    job.new_files(arguments.source)
    job.freeze()
    print("frozen", flush=True)
    time.sleep(60)
    return False

leave(run_job(work, parse(parser("test"), None)))
"""


def test_lease_is_released_and_the_plan_kept_when_a_job_gets_sigterm(
    watermarks: Watermarks, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    (tmp_path / "1.csv").write_text("a,b\n")
    arguments = {"--JOB_NAME": "parking", "--source": f"{tmp_path}/", "--target": "x", "--table": watermarks.table_name}
    command = [sys.executable, "-c", STOPPABLE, "--metrics", *(part for pair in arguments.items() for part in pair)]

    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=PATIENCE)

    head = watermarks.latest("parking")
    assert (line, process.returncode) == ("frozen\n", 143)
    assert (head.version, head.claim, head.plan is not None) == (0, None, True)
    assert '"Outcome": "failed"' in said
