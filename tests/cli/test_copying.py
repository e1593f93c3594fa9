"""`watermarks copy`: which jobs it copies, what it reports, and what it leaves in the source table."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scripts.helpers.backfill import Backfill
from scripts.helpers.errors import JobMovedError
from scripts.helpers.protocol import items
from scripts.helpers.protocol.requests import Delete
from scripts.helpers.watermarks import Watermarks
from tests.cli.stories import NOW, Command, document, put_runs
from tests.support.clock import Clock
from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY
from tests.support.steps import KilledError, commit
from tests.support.table_items import all_items

Make = Callable[..., Watermarks]


@pytest.fixture
def source(make_watermarks: Make) -> Watermarks:
    """Return a table with three jobs."""
    made = make_watermarks()
    for name in ("parking-fines", "parking-permits", "repairs"):
        commit(made, name, "jr_1", {"n": 1})
    return made


@pytest.fixture
def file(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path}/jobs.db"


def jobs_of(table: str) -> list[str]:
    """Return the names of the jobs in a file."""
    return [job.job_id for job in Watermarks(table).list_jobs()]


def test_what_backfills_have_read_is_no_gap_when_a_job_was_copied_by_its_name(
    run: Command, make_watermarks: Make, file: str, tmp_path: Path
) -> None:
    source, rows = make_watermarks(), pa.table({"id": [1, 5]})
    state = {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": 10}
    source.set_watermark("loans", state, transformation_ctx="rows", why="start here")

    def fill(table: Watermarks, low: int | None, high: int, *, dies: bool = False) -> None:
        with Backfill(table, "loans", low=low, high=high) as backfill:
            found = backfill.rows(rows, "id")
            backfill.freeze()
            if dies:
                raise KilledError
            backfill.write(found, str(tmp_path / "raw"))

    fill(source, None, 5)
    with pytest.raises(KilledError):
        fill(source, 5, 10, dies=True)

    done = document(run(source, "copy", "loans", "--to", file, "--yes", "--output", "json"))

    moved = Watermarks(file)
    assert (len(done["jobs"]), done["refused"]) == (3, {})
    assert moved.coverage("loans", "rows") == [(None, 5)]
    assert [bounds for _, bounds in moved.unfinished("loans", "rows").values()] == [(5, 10)]
    with pytest.raises(JobMovedError):
        fill(source, 5, 10)
    fill(moved, 5, 10)
    assert moved.gaps("loans", "rows") == []
    assert sorted(pq.read_table(tmp_path / "raw")["id"].to_pylist()) == [1, 5]


def test_job_stays_when_a_slice_of_its_backfill_is_being_read(run: Command, make_watermarks: Make, file: str) -> None:
    source = make_watermarks()
    state = {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": 10}
    source.set_watermark("loans", state, transformation_ctx="rows", why="start here")

    with Backfill(source, "loans", low=None, high=5) as backfill:
        backfill.rows(pa.table({"id": [1]}), "id")
        backfill.freeze()
        refused = run(source, "copy", "loans", "--to", file, "--yes")
    beside = jobs_of(file)
    copied = run(source, "copy", "loans", "--to", file, "--yes")

    assert (refused.exit_code != 0, beside, copied.exit_code) == (True, [], 0)
    assert Watermarks(file).coverage("loans", "rows") == [(None, 5)]


def test_job_is_copied_when_the_job_of_a_slice_that_has_begun_is_gone(
    run: Command, make_watermarks: Make, file: str
) -> None:
    source = make_watermarks()
    state = {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": 10}
    source.set_watermark("loans", state, transformation_ctx="rows", why="start here")
    with pytest.raises(KilledError), Backfill(source, "loans", low=None, high=5) as backfill:
        backfill.rows(pa.table({"id": [1]}), "id")
        raise KilledError
    (begun,) = source.unfinished("loans", "rows")
    for job, range_key in all_items(source):
        if job == begun:
            source.store.table.write(Delete(items.key(job, range_key)))

    done = document(run(source, "copy", "loans", "--to", file, "--yes", "--output", "json"))

    assert (done["refused"], begun in done["jobs"], "loans" in jobs_of(file)) == ({}, False, True)


@pytest.mark.parametrize(
    ("chosen", "copied"),
    [
        (["repairs"], ["repairs"]),
        (["repairs", "parking-fines", "repairs"], ["parking-fines", "repairs"]),
        (["--prefix", "parking"], ["parking-fines", "parking-permits"]),
        (["--all"], ["parking-fines", "parking-permits", "repairs"]),
    ],
)
def test_chosen_jobs_are_in_a_new_file_when_they_are_copied(
    run: Command, source: Watermarks, file: str, chosen: list[str], copied: list[str]
) -> None:
    done = document(run(source, "copy", *chosen, "--to", file, "--yes", "--output", "json"))

    assert done["jobs"] == dict.fromkeys(copied, 3)
    assert (done["from"], done["to"], done["refused"], done["left_out"]) == (source.table_name, file, {}, [])
    assert jobs_of(file) == copied


def test_jobs_are_in_another_account_when_they_are_copied_by_a_file(
    run: Command, source: Watermarks, make_watermarks: Make, file: str
) -> None:
    target = make_watermarks()

    run(source, "copy", "--all", "--to", file, "--yes")
    done = run("nowhere", "copy", "--all", "--from", file, "--to", target.table_name, "--yes")

    assert done.exit_code == 0, done.output
    assert "Copied 3 jobs, 9 items." in done.stdout
    assert target.get_watermark_values("repairs") == {"n": 1}


def test_list_says_where_jobs_are_when_they_were_copied(run: Command, source: Watermarks, file: str) -> None:
    run(source, "copy", "repairs", "--to", file, "--yes")

    found = {job["job"]: job for job in document(run(source, "jobs", "--output", "json"))["jobs"]}
    shown = run(source, "show", "repairs")

    assert (found["repairs"]["state"], found["repairs"]["reason"]) == ("moved", f"it is in {file}")
    assert found["parking-fines"]["state"] == "idle"
    assert f"moved, it is in {file}" in shown.stdout
    assert run(source, "reset", "repairs", "--why", "a test", "--yes").exit_code == 78


def test_other_jobs_are_copied_and_the_exit_code_is_1_when_a_job_cannot_be_copied(
    run: Command, source: Watermarks, clock: Clock, file: str
) -> None:
    clock.now = NOW
    source.begin("repairs", "jr_2")
    damaged = items.key("parking-fines", "jr_1") | {"version": {"S": "x"}, "watermarks": {"M": {}}}
    source.store.put(damaged, if_new=False)

    done = run(source, "copy", "--all", "--to", file, "--yes")

    assert done.exit_code == 1
    assert "warning: left out parking-fines: Item 'jr_1' of job 'parking-fines' is not readable" in done.stderr
    assert "warning: left out repairs: Run 'jr_2' works on job 'repairs'" in done.stderr
    assert jobs_of(file) == ["parking-permits"]


def test_error_is_that_of_the_job_when_only_one_is_named(run: Command, source: Watermarks, file: str) -> None:
    done = run(source, "copy", "repair", "--to", file, "--yes")

    assert done.exit_code == 1
    assert "holds nothing for job 'repair'" in done.stderr
    assert "Did you mean repairs?" in done.stderr


def test_jobs_with_records_of_runs_are_named_when_the_rest_is_copied(
    run: Command, source: Watermarks, file: str
) -> None:
    put_runs(source, "repairs")
    put_runs(source, "never-ran")

    done = run(source, "copy", "--all", "--to", file, "--yes")

    assert done.exit_code == 0, done.output
    assert "records of the Job Runs API were not copied, of never-ran, repairs" in done.stderr
    assert jobs_of(file) == ["parking-fines", "parking-permits", "repairs"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--to", "other"], "Give either names of jobs, --prefix or --all."),
        (["repairs", "--all", "--to", "other"], "Give either names of jobs, --prefix or --all."),
        (["repairs"], "Missing option '--to'"),
        (["repairs", "--to", "SAME"], "is the table that has the jobs"),
    ],
)
def test_command_is_refused_when_its_arguments_do_not_fit(
    run: Command, source: Watermarks, arguments: list[str], text: str
) -> None:
    given = [source.table_name if argument == "SAME" else argument for argument in arguments]

    done = run(source, "copy", *given, "--yes")

    assert done.exit_code == 2
    assert text in done.stderr


@pytest.mark.usefixtures("answers")
def test_nothing_is_made_when_the_answer_is_no(run: Command, source: Watermarks, file: str, tmp_path: Path) -> None:
    done = run(source, "copy", "--all", "--to", file, input="n\n")

    assert done.exit_code == 1
    assert f"Copy 3 jobs from {source.table_name} to {file}?" in done.stderr
    assert list(tmp_path.glob("jobs*")) == []
    source.begin("repairs", "jr_2").abort()


def test_copy_makes_one_file_and_needs_no_aws_account_when_its_source_is_a_file(tmp_path: Path) -> None:
    marks = Watermarks(f"sqlite:{tmp_path}/here.db")
    marks.create_table()
    commit(marks, "repairs", "jr_1", {"n": 1})
    (tmp_path / "away").mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    command = ["copy", "--all", "--from", marks.table_name, "--to", "sqlite:jobs.db", "--yes"]

    done = subprocess.run(
        [sys.executable, "-m", "scripts.cli", *command],
        cwd=tmp_path / "away",
        env=environment | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "away").iterdir()] == ["jobs.db"]
    assert Watermarks(f"sqlite:{tmp_path}/away/jobs.db").get_watermark_values("repairs") == {"n": 1}
