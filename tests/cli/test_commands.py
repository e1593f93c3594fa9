"""Every command, from one table: on a file without AWS, in JSON, on an unknown or hostile job, and without rights."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
import tempfile
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from scripts.cli.commands import JobName
from scripts.cli.main import cli
from scripts.helpers.job import IncrementalJob
from scripts.helpers.job_runs.client import JobRuns, SparkSubmit
from scripts.helpers.watermarks import Watermarks
from scripts.jobs.exit_codes import BAD_SET_UP, FAILED, OK, TRY_LATER
from tests.cli.between import between, denied
from tests.cli.hostile import SENT, put_evil
from tests.cli.stories import Command, leave_open
from tests.support.read_only import as_somebody, make_read_only
from tests.support.steps import add
from tests.support.table_items import all_items

pytestmark = pytest.mark.usefixtures("here")
NAME, VARIABLE = "sqlite:watermarks.db", "WATERMARKS_TABLE"
NOW = datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc)
WHY = "--why because --yes"
NAMED = re.compile(r"\b(parking|repairs|roads|rents)\b")
"""Matches the name of a job of `marks`."""
Call = Callable[..., Result]


@pytest.fixture
def call() -> Call:
    """Return a function that runs a command line, with the table as an option or as a variable."""

    def run(line: str, table: str | None = NAME, **variables: str | None) -> Result:
        given = [*shlex.split(line)]
        given[1:1] = ["--table", table] if table else []
        return CliRunner(env={"COLUMNS": "200", **variables}).invoke(cli, given, prog_name="watermarks")

    return run


@pytest.fixture
def marks(here: Path) -> Watermarks:
    """Return a table in a file with jobs of files and of rows, at work and dead, and one set by hand."""
    made = Watermarks(NAME, clock=lambda: NOW)
    made.create_table()
    (here / "landing").mkdir()
    for number in (1, 2):
        (here / "landing" / f"{number}.json").write_text(json.dumps({"id": number}))
        with IncrementalJob(made, "parking", clock=lambda: NOW) as job:
            landed = job.new_files("landing/", transformation_ctx="files")
            job.write(landed.read_pandas("json"), "raw/parking")
    rows = pa.table({"id": [1, 2], "at": [NOW - timedelta(hours=3), NOW - timedelta(hours=2)]})
    pq.write_table(rows, here / "repairs.parquet")
    with IncrementalJob(made, "repairs", clock=lambda: NOW) as job:
        job.write(job.rows_since(rows, "at", transformation_ctx="repairs"), "raw/repairs")
    leave_open(made, "roads", "jr_dead", NOW - timedelta(hours=3), NOW - timedelta(hours=2))
    add(made, "rents", "jr_1", latest_data="2026-03-15")
    (here / "scripts").mkdir()
    (here / "scripts" / "a.py").touch()
    runs = JobRuns(made, SparkSubmit("logs", scripts=["scripts"]), clock=lambda: NOW)
    runs.create_job(Name="parking", Command={"Name": "pythonshell", "ScriptLocation": str(here / "scripts" / "a.py")})
    return made


LINES: dict[str, tuple[str, int, str]] = {
    "create-table": ("create-table", OK, "Table sqlite:watermarks.db exists already"),
    "jobs": ("jobs", OK, "Nothing needs attention in 4 jobs."),
    "jobs-named": ("jobs parking", OK, "idle"),
    "jobs-failing": ("jobs --fail-on missing", OK, "Nothing needs attention in 4 jobs."),
    "show": ("show parking", OK, "2 files known"),
    "history": ("history parking", OK, "COMMIT"),
    "diff": ("history parking --diff", OK, "+1 file"),
    "runs": ("history parking --runs", OK, "No runs."),
    "explain": ("files parking --explain landing/1.json", OK, "taken at version 1"),
    "files": ("files parking", OK, "No file is set aside."),
    "plan": ("plan parking --context files --source landing/", OK, "as version 3"),
    "doctor": ("doctor parking", OK, "No problems found."),
    "doctor-repair": ("doctor parking --repair --yes", OK, "No problems found."),
    "verify": ("verify repairs", 2, "The source is missing."),
    "backfill": ("backfill repairs", OK, "the very beginning"),
    "complete-up-to": (
        "complete-up-to repairs --at 2026-03-16T13:00:00Z", OK, "Complete up to 2026-03-16T13:00:00Z.",
    ),
    "report": ("report --html page.html", OK, "Wrote page.html."),
    "report-named": ("report parking --html page.html", OK, "Wrote page.html."),
    "rewind": (f"rewind parking --to-version 1 --retract {WHY}", OK, "Deleted 1 file"),
    "reset": (f"reset parking {WHY}", OK, "RESET"),
    "set": (f"set rents latest_data=2026-03-16 {WHY}", OK, "version 2, SET"),
    "rename-cursor": (f"set repairs --rename-cursor at changed_at {WHY}", OK, "version 2, SET"),
    "discard-plan": (f"discard-plan roads {WHY}", OK, "version 1, DISCARD"),
    "release": (f"release roads {WHY}", OK, "the next run can begin"),
    "adopt": (f"adopt rents --run jr_1 {WHY}", FAILED, "there is nothing to adopt"),
    "copy": ("copy rents --to sqlite:other.db --yes", OK, "Copied 1 job, 3 items."),
    "ingest-files": ("ingest-files --JOB_NAME none --source empty/ --target raw/none", OK, '"version": 1'),
    "completion": ("completion bash", OK, "_WATERMARKS_COMPLETE"),
}  # fmt: skip
"""The table of commands: a line for each thing that they do, how it ends on the file of `marks`, and what it prints."""
OF_SPARK = {"ingest-table"}
WITHOUT_JSON = {"ingest-files", "completion", "verify"}
OF_A_JOB = [name for name, (line, *_) in LINES.items() if NAMED.search(line)]
OF_A_TABLE = [name for name in LINES if name not in ("ingest-files", "completion")]


def on(name: str, job: str) -> str:
    """Return a line of the table of commands, for another job."""
    return NAMED.sub(job, LINES[name][0], count=1)


@pytest.mark.parametrize("name", LINES)
def test_command_works_without_aws_when_its_table_is_a_file(
    marks: Watermarks, call: Call, here: Path, name: str
) -> None:
    line, code, text = LINES[name]
    (here / "empty").mkdir()
    at = "" if line.startswith("ingest") else f" --now {NOW.isoformat()}"

    done = call(line + at, None, **{VARIABLE: NAME})

    assert (done.exit_code, text in done.output) == (code, True), done.output


@pytest.mark.parametrize("name", [name for name in LINES if name not in WITHOUT_JSON])
def test_command_prints_one_document_when_json_is_asked_for(marks: Watermarks, call: Call, name: str) -> None:
    line, code, _ = LINES[name]

    done = call(f"{line} --now {NOW.isoformat()} --output json")

    assert done.exit_code == code, done.output
    assert isinstance(json.loads(done.stderr if code else done.stdout), dict)


@pytest.mark.parametrize("name", OF_A_JOB)
@pytest.mark.parametrize("output", ["text", "json"])
def test_nearest_names_are_offered_and_nothing_is_written_when_a_job_is_unknown(
    marks: Watermarks, call: Call, here: Path, name: str, output: str
) -> None:
    before, files = all_items(marks), sorted(here.iterdir())

    done = call(f"{on(name, 'parkin')} --output {output}")

    assert (done.exit_code, done.stdout) == (FAILED, "")
    text = " ".join(done.stderr.split())
    if output == "json":
        said = json.loads(done.stderr)
        assert said["error"] == "UnknownJobError"
        text = f"{said['message']} {said['hint']}"
    assert "Table 'sqlite:watermarks.db' holds nothing for job 'parkin'." in text
    assert "Did you mean parking?" in text
    assert ("--new" in text) == (name == "set")
    assert (all_items(marks), sorted(here.iterdir())) == (before, files)


@pytest.mark.parametrize("name", OF_A_JOB)
@pytest.mark.parametrize("output", ["text", "json"])
def test_nothing_moves_the_cursor_when_the_table_holds_control_characters(
    marks: Watermarks, call: Call, name: str, output: str
) -> None:
    put_evil(marks, "evil")

    done = call(f"{on(name, 'evil')} --now {NOW.isoformat()} --output {output}")

    assert done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert [sent for sent in SENT if sent in done.output] == []


@pytest.mark.parametrize("name", OF_A_TABLE)
def test_action_is_named_when_the_role_lacks_it(
    run: Command, endpoint: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "none")

    with between(endpoint, {"*": denied("GetItem")}) as url:
        done = run("council", *shlex.split(LINES[name][0]), "--region", "eu-west-2", "--endpoint-url", url)

    assert done.exit_code == BAD_SET_UP
    assert "Missing in the role's policy: dynamodb:" in done.stderr


def test_no_command_is_left_out_here_when_one_is_added() -> None:
    takes_a_job = {
        name for name, command in cli.commands.items()
        if any(isinstance(one.type, JobName) for one in command.params if isinstance(one, click.Argument))
    }  # fmt: skip

    assert {line.split(" ")[0] for line, *_ in LINES.values()} == cli.commands.keys() - OF_SPARK
    assert {LINES[name][0].split(" ")[0] for name in OF_A_JOB} == takes_a_job


def test_overview_counts_the_jobs_of_the_file_when_no_command_is_named(marks: Watermarks) -> None:
    done = CliRunner(env={VARIABLE: NAME}).invoke(cli, ["--now", NOW.isoformat()], prog_name="watermarks")

    assert (done.exit_code, "Nothing needs attention in 4 jobs." in done.output) == (OK, True), done.output


@pytest.mark.parametrize("is_after", [False, True])
def test_typed_table_is_used_when_the_variable_names_another_one(marks: Watermarks, call: Call, is_after: bool) -> None:
    other = Watermarks("sqlite:dev.db", clock=lambda: NOW)
    other.create_table()
    add(other, "rents", "jr_1", latest_data="2026-03-01")
    line, typed = f"reset rents {WHY}", "--table sqlite:dev.db"

    done = call(f"{line} {typed}" if is_after else f"{typed} {line}", None, **{VARIABLE: NAME})

    assert (done.exit_code, "in table sqlite:dev.db" in done.output) == (OK, True), done.output
    assert (other.latest("rents").version, marks.latest("rents").version) == (2, 1)


def test_table_after_the_command_is_used_when_one_is_before_it_and_one_in_the_variable(
    marks: Watermarks, call: Call
) -> None:
    done = call(f"--table sqlite:dev.db show parking --table {NAME}", None, **{VARIABLE: "sqlite:prod.db"})

    assert (done.exit_code, "2 files known" in done.output) == (OK, True), done.output


def test_names_of_jobs_are_completed_when_the_table_is_a_file(marks: Watermarks) -> None:
    asked = {"_WATERMARKS_COMPLETE": "bash_complete", "COMP_WORDS": "watermarks show ", "COMP_CWORD": "2"}

    done = CliRunner(env={VARIABLE: NAME, "WATERMARKS_COMPLETE_JOBS": "1"} | asked).invoke(
        cli, [], prog_name="watermarks", complete_var="_WATERMARKS_COMPLETE"
    )

    assert [line.split(",")[1] for line in done.output.split()] == ["parking", "rents", "repairs", "roads"]


def test_table_is_made_as_a_file_when_none_is_there(call: Call, here: Path) -> None:
    done = call("create-table")

    assert (done.exit_code, done.output) == (OK, "Created table sqlite:watermarks.db.\n")
    assert (here / "watermarks.db").stat().st_mode & 0o777 == 0o600


def test_target_is_compared_with_its_source_when_the_table_is_a_file(
    marks: Watermarks, call: Call, here: Path, spark: Any
) -> None:
    done = call(f"verify repairs --target {here}/raw/repairs -- --source {here}/repairs.parquet")

    assert done.exit_code == OK, done.output
    assert "1 of 1 interval" in done.output


def test_rows_of_a_table_are_loaded_by_the_command_when_the_table_is_a_file(
    marks: Watermarks, call: Call, here: Path, spark: Any
) -> None:
    given = f"ingest-table --JOB_NAME more --source {here}/repairs.parquet --target {here}/raw/more --cursor-column at"

    done = call(given, None, **{VARIABLE: NAME})

    assert done.exit_code == OK, done.output
    assert spark.read.parquet(f"{here}/raw/more").count() == 2
    assert marks.latest("more").version == 1


# --- messages -------------------------------------------------------------------------------------


def test_list_names_no_price_when_a_file_has_none(marks: Watermarks, call: Call) -> None:
    done = call("jobs")

    assert "unit" not in done.output


@pytest.mark.parametrize("option", ["--region eu-west-2", "--profile nobody", "--endpoint-url http://127.0.0.1:9"])
def test_option_of_aws_is_said_to_be_without_effect_when_the_table_is_a_file(
    marks: Watermarks, call: Call, option: str, caplog: pytest.LogCaptureFixture
) -> None:
    done = call(f"history parking {option}")

    assert done.exit_code == OK, done.output
    assert f"event=without_effect table={NAME} options={option.split(' ')[0]}:" in caplog.text


def test_nothing_is_said_of_options_when_none_of_aws_is_given(
    marks: Watermarks, call: Call, caplog: pytest.LogCaptureFixture
) -> None:
    call("history parking")

    assert caplog.text == ""


def test_missing_file_is_named_whole_with_the_command_that_makes_it(call: Call, here: Path) -> None:
    done = call("show parking", "sqlite:data of mine.db")

    assert done.exit_code == BAD_SET_UP
    assert " ".join(done.output.split()) == (
        f"error: There is no table 'sqlite:data of mine.db': no file {str(here / 'data of mine.db')!r}. Make it with "
        "`watermarks create-table --table 'sqlite:data of mine.db'`, or for local use with "
        "Watermarks(...).create_table(). "
        "hint: Check --table, WATERMARKS_TABLE and the folder that you are in."
    )


def test_where_the_file_was_looked_for_is_in_json_when_it_is_not_there(call: Call, here: Path) -> None:
    done = call("show parking --output json")

    found = json.loads(done.stderr)
    assert (found["error"], "used" in found) == ("TableNotFoundError", False)
    assert str(here / "watermarks.db") in found["message"]


def test_folder_is_named_when_it_is_not_there_for_a_new_file(call: Call, here: Path) -> None:
    done = call("create-table", "sqlite:no/such/watermarks.db")

    assert done.exit_code == BAD_SET_UP
    assert f"folder {str(here / 'no' / 'such')!r} does not exist" in done.output


def test_error_names_the_file_and_no_iam_policy_when_the_file_is_read_only(call: Call) -> None:
    with tempfile.TemporaryDirectory() as folder, as_somebody(folder):
        marks = Watermarks(f"sqlite:{folder}/t.db")
        marks.create_table()
        add(marks, "rents", "jr_1", n=1)
        make_read_only(Path(folder, "t.db"))

        done = call(f"reset rents {WHY}", f"sqlite:{folder}/t.db")

    assert done.exit_code == BAD_SET_UP
    assert f"The file system refuses to write '{folder}/t.db'" in done.output
    assert "policy" not in done.output


def test_error_names_the_lock_and_no_region_when_another_program_locks_the_file(
    marks: Watermarks, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.helpers.protocol.sqlite.BUSY_SECONDS", 0.01)
    monkeypatch.setattr("scripts.helpers.protocol.store.BACKOFF_SECONDS", 0.0)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-2")
    holder = sqlite3.connect("watermarks.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")

    done = call(f"reset parking {WHY}")
    holder.close()

    assert done.exit_code == TRY_LATER, done.output
    assert "database is locked" in done.output
    assert "eu-west-2" not in done.output


def test_region_is_asked_for_when_glue_is_asked_and_none_is_set(marks: Watermarks, call: Call) -> None:
    done = call("history parking --runs --glue")

    assert (done.exit_code, "Give --region" in done.output) == (BAD_SET_UP, True), done.output


@pytest.mark.parametrize(
    "text", ["not JSON", "[1]", b"\xff", '{"version": {"X": 1}}', '{"version": 1}', '{"jobName": {"S": "rents"}}']
)
def test_only_one_job_is_damaged_when_another_program_altered_its_item(
    marks: Watermarks, call: Call, text: str | bytes
) -> None:
    with sqlite3.connect("watermarks.db") as db:
        db.execute("UPDATE items SET item = ? WHERE job = 'parking' AND key = '~latest'", (text,))

    shown, listed, other = (call(f"{line} --now {NOW.isoformat()}") for line in ("show parking", "jobs", "show rents"))

    assert (shown.exit_code, "Item '~latest' of job 'parking' is not readable" in shown.output) == (BAD_SET_UP, True)
    assert (listed.exit_code, "parking: damaged: its head is not readable" in listed.output) == (OK, True)
    assert other.exit_code == OK, other.output
