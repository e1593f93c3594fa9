"""All the work that docs/permissions.md lists for each role of the table."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from scripts.cli.main import cli
from scripts.helpers.backfill import Backfill
from scripts.helpers.decisions.copying import copy_job
from scripts.helpers.job_runs.client import JobRuns, SparkSubmit
from scripts.helpers.protocol import items
from scripts.helpers.protocol.changes import Changes
from scripts.helpers.protocol.jobs import list_jobs
from scripts.helpers.protocol.store import Store
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.watermarks import Watermarks
from scripts.report import build_report
from tests.infra.roles import BUCKET, FOREIGN, OWN, TABLE
from tests.support.job_runs import gone, process_of
from tests.support.listed_rows import ListedRows
from tests.support.patience import PATIENCE

ROWS, OLD, FILES = "parking-rows", "parking-old", "parking-viewed"
FIRST = "parking-first"
LARGE = [f"{number:0100d}" for number in range(900)]
STATE = {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": 10}
Work = Callable[[Watermarks], None]


def store_of(marks: Watermarks) -> Store:
    """Return the store of the items, with the rights of the role."""
    return marks.store


def as_job(marks: Watermarks) -> None:
    """Commit in one call and with a large plan and state, expire a version, send a heartbeat, abort and take over."""
    marks.add_watermark(marks.create_watermark_item(job_id=OWN, run_id="jr_1", latest_data="2026-03-16"))
    for number in (2, 3):
        with marks.begin(OWN, f"jr_{number}") as run:
            run.freeze({"files": LARGE}, {"files": [*LARGE, str(number)]})
            run.state("files"), run.planned("files")
            assert run.heartbeat()
            run.commit(rows_collected=number)
    marks.begin(OWN, "jr_4").abort()
    marks.begin(OWN, "jr_5")
    marks.begin(OWN, "jr_6", take_over=True).abort()
    assert marks.exists()


def as_backfill(marks: Watermarks) -> None:
    """Backfill an old range while the live job continues."""
    marks.set_watermark(ROWS, STATE, transformation_ctx="rows", why="start from here")
    with Backfill(marks, ROWS, low=0, high=5) as backfill:
        backfill.rows(ListedRows((CursorColumn("id", "bigint"),), [(number,) for number in range(8)]), "id")
    assert marks.gaps(ROWS, "rows")


def as_job_runs(marks: Watermarks) -> None:
    """Define a job, and start, retry, inspect and stop its runs with a real launcher."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "script.py")
        script.write_text("import sys\nsys.exit('_attempt_' not in sys.argv[-1])")
        logs = str(Path(folder, "logs"))
        jobs = JobRuns(marks, SparkSubmit(logs, scripts=[str(script)], beat_seconds=0.2, lease_seconds=PATIENCE))
        command = {"Name": "pythonshell", "ScriptLocation": str(script)}
        jobs.create_job(Name=FIRST, Command=command, MaxRetries=1)
        run_id = jobs.start_job_run(JobName=FIRST)["JobRunId"]
        assert jobs.wait(FIRST, run_id, seconds=PATIENCE)["JobRunState"] == "FAILED"
        record = jobs.scheduler.records.run(FIRST, run_id)
        assert record is not None
        assert gone(process_of(record))
        retry, _ = jobs.get_job_runs(JobName=FIRST)["JobRuns"]
        assert retry["JobRunState"] == "SUCCEEDED"
        assert jobs.batch_stop_job_run(JobName=FIRST, JobRunIds=[run_id])["Errors"]
        jobs.delete_job(JobName=FIRST)


def as_copy(marks: Watermarks) -> None:
    """Copy a job to a file, run it there, and copy it back."""
    with tempfile.TemporaryDirectory() as folder:
        file = Watermarks(f"sqlite:{folder}/jobs.db", clock=marks.clock)
        file.create_table()
        copy_job(Changes(marks.lookups), file.store, OWN)
        with file.begin(OWN, "jr_7") as run:
            run.freeze({}, {"files": LARGE})
            run.commit()
        assert copy_job(Changes(file.lookups), store_of(marks), OWN).items


def as_dashboard(marks: Watermarks) -> None:
    """Look up everything about single jobs."""
    run_id = marks.get_most_recent_run_id(OWN)
    marks.get_watermark(OWN, run_id)
    marks.get_watermark_values(OWN)
    marks.latest(OWN)
    marks.history(OWN)
    marks.coverage(ROWS, "rows")
    marks.doctor(OWN)
    assert marks.exists()
    assert OWN in build_report(marks, jobs=[OWN, ROWS])


def as_person_who_looks(marks: Watermarks) -> None:
    """Call the commands that only look, one of which lists the source."""
    for command in (
        ["show", OWN],
        ["jobs", OWN],
        ["history", OWN],
        ["history", OWN, "--diff", "1", "2"],
        ["backfill", ROWS],
        ["history", FIRST, "--runs"],
        ["doctor", OWN],
        ["jobs", OWN, "--fail-on", "missing"],
        ["plan", FILES, "--source", f"s3://{BUCKET}/parking/"],
        ["files", FILES, "--explain", f"s3://{BUCKET}/parking/a.json"],
    ):
        done = CliRunner().invoke(cli, ["--table", TABLE, *command], prog_name="watermarks")
        assert done.exit_code == 0, (command, done.output)


def as_admin(marks: Watermarks) -> None:
    """Make every decision that an admin can make."""
    assert marks.exists()
    marks.rewind(OWN, to_version=1, why="a test")
    marks.set_watermark(OWN, {"latest_data": "2026-03-17"}, why="a test")
    marks.begin(OWN, "jr_8").freeze({"files": LARGE}, {"latest_data": "2026-03-18"})
    marks.release(OWN, why="a test")
    marks.discard_plan(OWN, why="a test")
    marks.doctor(OWN, repair=True)
    marks.reset(OWN, why="a test")
    marks.adopt(OLD, "jr_old_1", why="a test")


def as_lister(marks: Watermarks) -> None:
    """List and report all jobs, including jobs of the original class, which have no head."""
    assert marks.exists()
    found = list_jobs(store_of(marks))
    assert {FOREIGN, "waste-original"} <= {job.job_id for job in found.jobs}
    assert FOREIGN in build_report(marks)


WORK: dict[str, list[Work]] = {
    "writer": [as_job, as_backfill, as_job_runs, as_copy],
    "reader": [as_dashboard, as_person_who_looks],
    "admin": [as_admin],
    "lister": [as_lister],
}
"""The work of each role, in the order in which it must be done."""


def prepare(root: Watermarks) -> None:
    """Store items of the original class, and jobs of another team."""
    store = store_of(root)
    for job, run_id in ((OLD, "jr_old_1"), (OLD, "jr_old_2"), ("waste-original", "jr_1")):
        store.put(items.key(job, run_id) | {"watermarks": {"M": {"rows_collected": {"N": "808"}}}}, if_new=True)
    root.set_watermark(FOREIGN, {"latest_data": "2026-03-16"}, why="a test")
    jobs = JobRuns(root)
    jobs.create_job(Name=FOREIGN, Command={"Name": "pythonshell", "ScriptLocation": "script.py"})
