"""What a run tells its reporters at its end, however it ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import ChangedObjectError, FencedError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.job_report import JobReport
from scripts.helpers.watermarks import Watermarks
from tests.conftest import Clock


class Told:
    """A reporter that remembers."""

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
    """Return a maker of runs of one job that reads two files."""
    for name in ("1.csv", "2.csv"):
        (tmp_path / name).write_text("a,b\n")

    def make(run_id: str, **options: Any) -> IncrementalJob:
        return IncrementalJob(watermarks, "parking", run_id, clock=clock, **({"reporters": [told]} | options))

    return make


def test_commit_is_told_with_its_counts_when_a_run_ends_well(
    start: Callable[..., IncrementalJob], told: Told, tmp_path: Path, clock: Clock
) -> None:
    with start("jr_1") as job:
        job.new_files(f"{tmp_path}/")

    [report] = told.reports
    assert (report.job_id, report.run_id, report.outcome, report.at) == ("parking", "jr_1", "committed", clock.now)
    assert report.values.pop("DurationSeconds") >= 0
    assert report.values == {"Committed": 1, "AgeSeconds": 0, "OpenPlanAgeSeconds": 0, "Files": 2, "Bytes": 8}


def test_failure_is_told_once_with_the_age_of_the_plan_when_runs_die(
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


def test_fenced_run_is_told_as_fenced_when_another_one_took_over(
    start: Callable[..., IncrementalJob], told: Told, tmp_path: Path, watermarks: Watermarks
) -> None:
    with pytest.raises(FencedError), start("jr_1") as job:
        job.new_files(f"{tmp_path}/")
        job.freeze()
        watermarks.begin("parking", "jr_2", take_over=True)

    assert [report.outcome for report in told.reports] == ["fenced"]
    assert told.reports[0].values["Fenced"] == 1


def test_refused_commit_is_told_as_failed_when_a_file_changed(
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


def test_nothing_is_told_when_the_run_saves_nothing(
    start: Callable[..., IncrementalJob], told: Told, tmp_path: Path
) -> None:
    with start("jr_1", mode="pause") as job:
        job.new_files(f"{tmp_path}/")

    assert told.reports == []
