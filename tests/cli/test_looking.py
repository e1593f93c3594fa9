"""Read-only commands: what they print as JSON, and as text for people."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from rich.console import Console

from scripts.cli import deciding, surroundings
from scripts.cli.documents import as_json, with_spans
from scripts.cli.progress import progress
from scripts.cli.screen import NONE, value_text
from scripts.helpers.backfill import Backfill
from scripts.helpers.job import IncrementalJob
from scripts.helpers.job_runs.client import JobRuns
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.metrics.urgency import LATE, condition_of
from scripts.helpers.protocol import items
from scripts.helpers.protocol.chunks import Blob
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.values import Spilled
from scripts.helpers.rows.spark_frames import DataFrameRows
from scripts.helpers.watermarks import Watermarks
from scripts.report import build_report
from scripts.report.facts import JobFacts
from scripts.report.page import render_job
from tests.cli.scanned_table import ScannedTable
from tests.cli.stories import NOW, Command, document, job_items, land, rows_state
from tests.report.shown import Details
from tests.support.clock import Clock
from tests.support.known_jobs import UNWELL, known_jobs
from tests.support.rows_states import with_coverage
from tests.support.steps import commit
from tests.support.table_items import item_of, put_item


def test_jobs_come_with_what_is_urgent_first_when_listed(run: Command, world: Watermarks) -> None:
    found = document(run(world, "jobs", "--output", "json"))

    assert [job["job"] for job in found["jobs"]] == [
        "libraries", "repairs", "housing", "parking-permits", "parking-fines", "rents",
    ]  # fmt: skip
    by_name = {job["job"]: job for job in found["jobs"]}
    assert by_name["repairs"]["state"] == "open plan"
    assert by_name["repairs"]["lag_seconds"] == 31 * 3_600
    assert by_name["repairs"]["owner"]["run"] == "jr_repairs_2"
    assert not by_name["repairs"]["owner"]["alive"]
    assert by_name["housing"]["state"] == "at work"
    assert by_name["parking-fines"]["lag_seconds"] is None
    assert by_name["libraries"]["problem"] == "items of the original class; see adopt"
    assert found["cost"]["requests"] > 0
    assert found["cost"]["units"] > 0


def test_last_run_and_failed_ones_are_named_when_the_head_knows_them(
    run: Command, watermarks: Watermarks, clock: Clock
) -> None:
    clock.now = NOW - timedelta(hours=9)
    for job in ("let-go", "died", "at-work", "decided"):
        commit(watermarks, job, "jr_1", {"seen": 1})
    clock.now = NOW - timedelta(hours=3)
    for run_id in ("jr_2", "jr_3"):
        watermarks.begin("let-go", run_id).abort()
    watermarks.begin("died", "jr_2")
    watermarks.set_watermark("decided", {"seen": 2}, why="loaded by hand")
    clock.now = NOW - timedelta(minutes=2)
    watermarks.begin("at-work", "jr_2")
    watermarks.begin("new", "jr_1")

    found = {job["job"]: job for job in document(run(watermarks, "jobs", "--output", "json"))["jobs"]}
    shown = run(watermarks, "jobs", "--sort", "name").stdout.splitlines()

    assert {name: (job["last_run"], job["failed_runs"]) for name, job in found.items()} == {
        "let-go": ({"run": "jr_1", "seconds": 9 * 3_600}, 2),
        "died": ({"run": "jr_2", "seconds": 3 * 3_600}, 1),
        "at-work": ({"run": "jr_2", "seconds": 120}, 0),
        "decided": (None, 0),
        "new": ({"run": "jr_1", "seconds": 120}, 0),
    }
    assert [line.split("  ")[0] for line in shown[:6]] == ["job", "at-work", "decided", "died", "let-go", "new"]
    assert [" ".join(line.split()) for line in shown[1:6]] == [
        "at-work at work 9 h jr_2 2 min -",
        "decided idle SET 3 h - -",
        "died lease over 9 h jr_2 3 h 1",
        "let-go failing 9 h jr_1 9 h 2",
        "new at work never jr_1 2 min -",
    ]


@pytest.fixture(scope="module")
def known(dynamodb: Any) -> Watermarks:
    """Return a table with 61 jobs whose usual intervals are known."""
    made = Watermarks("known-jobs", dynamodb)
    made.create_table()
    for head in known_jobs():
        dynamodb.put_item(TableName="known-jobs", Item=items.head_to_item(head))
    return made


def test_first_12_jobs_are_those_that_need_somebody_when_11_of_61_do(run: Command, known: Watermarks) -> None:
    found = document(run(known, "jobs", "--limit", "12", "--output", "json"))
    shown = run(known, "jobs", "--limit", "12").stdout

    assert {job["job"]: job["state"] for job in found["jobs"][:11]} == UNWELL
    assert found["jobs"][11]["state"] == "idle"
    assert "11 of 61 jobs need attention." in shown
    assert re.search(r"daily-09: missing, usually every 24 h, last 9 d", shown)


def test_jobs_of_a_state_are_listed_alone_when_it_is_asked_for(run: Command, known: Watermarks) -> None:
    late = document(run(known, "jobs", "--late", "--output", "json"))["jobs"]
    small = document(run(known, "jobs", "--state", "unusually small", "--output", "json"))["jobs"]

    assert {job["job"] for job in late} == {name for name, word in UNWELL.items() if word in LATE}
    assert {job["job"] for job in small} == {"daily-few-rows", "daily-no-file"}


@pytest.mark.parametrize(
    ("names", "codes"),
    [
        (["daily-09"], (0, 1, 1)),
        (["daily-03"], (0, 0, 1)),
        (["daily-few-rows"], (0, 0, 1)),
        (["daily-well-1"], (0, 0, 0)),
        (["daily-well-1", "daily-09"], (0, 1, 1)),
        ([], (0, 1, 1)),
    ],
    ids=["missing", "late", "small", "well", "one-of-two", "all"],
)
def test_exit_code_is_1_when_a_job_is_as_bad_as_fail_on_says(
    run: Command, known: Watermarks, names: list[str], codes: tuple[int, ...]
) -> None:
    levels: list[list[str]] = [[], ["--fail-on", "missing"], ["--fail-on", "late"]]

    assert tuple(run(known, "jobs", *names, *level).exit_code for level in levels) == codes
    # Jobs that are not shown count as well.
    shortened = [run(known, "jobs", *names, "--limit", "1", "--state", "idle", *level).exit_code for level in levels]
    assert tuple(shortened) == codes


@pytest.mark.parametrize("arguments", [[], ["defined", "ran"], ["ran"]], ids=["all", "named", "one"])
def test_job_without_a_bookmark_is_no_problem_when_the_job_runs_api_knows_it(
    run: Command, watermarks: Watermarks, arguments: list[str]
) -> None:
    jobs = JobRuns(watermarks, clock=lambda: NOW)
    for name in ("defined", "ran"):
        jobs.create_job(Name=name, Command={"Name": "pythonshell", "ScriptLocation": "script.py"})
    told = {"Attempt": 0, "Timeout": 10, "Arguments": {}}
    record = RunRecord("ran", "jr_1", "SUCCEEDED", NOW, NOW, told, running_since=NOW, completed_on=NOW)
    watermarks.store.put(record.to_item(), if_new=True)

    done = run(watermarks, "jobs", *arguments, "--fail-on", "late")
    found = document(run(watermarks, "jobs", *arguments, "--output", "json"))["jobs"]
    page = build_report(watermarks, jobs=arguments or None, now=NOW)

    assert done.exit_code == 0, done.output
    assert "Nothing needs attention" in done.stdout or arguments == ["ran"]
    assert {job["job"]: (job["state"], job["problem"]) for job in found}["ran"] == ("no commit yet", None)
    assert 'data-name="ran" data-state="no commit yet" data-word="no commit yet"' in page


def test_metrics_have_age_and_lateness_of_each_readable_job_when_asked_for(
    run: Command, world: Watermarks, tmp_path: Path
) -> None:
    file = tmp_path / "thresholds.json"
    file.write_text(json.dumps({"*": {"warn": "1h", "error": "1d"}}))

    done = run(world, "jobs", "--metrics", "--thresholds", str(file), "--fail-on", "missing")

    lines = [json.loads(line) for line in done.stdout.splitlines()]
    names = ("RunId", "AgeSeconds", "LagSeconds", "OpenPlanAgeSeconds", "Late", "Missing")
    assert done.exit_code == 1
    assert {line["Job"]: tuple(line.get(name) for name in names) for line in lines} == {
        "housing": ("jr_housing_1", 300, 600, 0, 0, 0),
        "parking-fines": ("jr_fines_1", 7_200, None, 0, 1, 0),
        "parking-permits": ("jr_permits_3", 86_400, 90_000, 0, 1, 1),
        "rents": ("jr_rents_1", 7_200, None, 0, 1, 0),
        "repairs": ("jr_repairs_1", 108_000, 111_600, 21_600, 1, 1),
    }
    assert {line["_aws"]["Timestamp"] for line in lines} == {NOW.timestamp() * 1_000}


def test_run_of_metrics_is_empty_when_a_job_never_committed(run: Command, watermarks: Watermarks) -> None:
    watermarks.begin("loans", "jr_1")

    (line,) = map(json.loads, run(watermarks, "jobs", "--metrics").stdout.splitlines())

    assert (line["Job"], line["RunId"], line["Outcome"]) == ("loans", "", "looked")


def test_thresholds_win_when_a_file_has_some(run: Command, known: Watermarks, tmp_path: Path) -> None:
    file = tmp_path / "thresholds.json"
    file.write_text(json.dumps({"*-09": {"error": "30d"}, "daily-well-1": {"warn": "1m"}}))

    found = document(run(known, "jobs", "--thresholds", str(file), "--output", "json"))["jobs"]

    states = {job["job"]: job["state"] for job in found}
    assert (states["daily-09"], states["hourly-09"], states["daily-well-1"]) == ("idle", "idle", "late")


def test_job_without_lag_comes_first_when_the_other_one_has_a_lag_of_nothing(
    run: Command, watermarks: Watermarks, clock: Clock
) -> None:
    clock.now = NOW - timedelta(hours=5)
    commit(watermarks, "in-time", "jr_1", {"rows": rows_state(NOW)})
    clock.now = NOW - timedelta(hours=1)
    commit(watermarks, "older", "jr_1", {"seen": 1})

    found = document(run(watermarks, "jobs", "--output", "json"))

    assert [job["job"] for job in found["jobs"]] == ["older", "in-time"]


def test_progress_text_is_not_markup_when_a_name_looks_like_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    class AtOnce:
        """A timer that calls its function as soon as it starts."""

        def __init__(self, interval: float, function: Callable[[], None]) -> None:
            self.start = function

        def cancel(self) -> None:
            """Do nothing: the function was called already."""

        join = cancel

    out = io.StringIO()
    around = surroundings.Surroundings()
    monkeypatch.setitem(around.__dict__, "err", Console(file=out, force_terminal=True, width=80))
    monkeypatch.setattr("scripts.cli.progress.threading.Timer", AtOnce)

    with progress(around, "asking the source of [red]"):
        pass

    assert "asking the source of [red]" in out.getvalue()


def test_jobs_say_what_they_cost_when_shown_to_people(run: Command, world: Watermarks) -> None:
    found = run(world, "jobs")

    last = found.stdout.splitlines()[-1]
    assert last.startswith("Read ")
    assert " requests, " in last
    assert last.endswith(" read units.")


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--prefix", "parking-"], ["parking-permits", "parking-fines"]),
        (["--stale", "20h"], ["libraries", "repairs", "parking-permits"]),
        (["--sort", "name", "--limit", "2"], ["housing", "libraries"]),
        (["--sort", "version", "--limit", "1"], ["parking-permits"]),
        (["--prefix", "nothing"], []),
        (["repairs", "rents", "repairs"], ["repairs", "rents"]),
    ],
    ids=["prefix", "stale", "name", "version", "none", "named"],
)
def test_jobs_are_chosen_when_options_say_which(
    run: Command, world: Watermarks, options: list[str], names: list[str]
) -> None:
    found = document(run(world, "jobs", *options, "--output", "json"))

    assert [job["job"] for job in found["jobs"]] == names


def test_named_jobs_are_read_without_a_scan_when_given(
    run: Command, world: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scripts.helpers.protocol.dynamodb import DynamoTable

    def refuse(*_: Any) -> Any:
        raise AssertionError("scanned")

    monkeypatch.setattr(DynamoTable, "walk", refuse)

    found = document(run(world, "jobs", "rents", "--output", "json"))

    assert [job["job"] for job in found["jobs"]] == ["rents"]
    assert found["cost"] is None


def test_named_jobs_are_shown_with_their_problem_when_one_cannot_be_read(run: Command, world: Watermarks) -> None:
    found = document(run(world, "jobs", "rents", "libraries", "--output", "json"))

    assert {job["job"]: job["state"] for job in found["jobs"]} == {"libraries": "problem", "rents": "idle"}
    assert "has 2 items of the original class" in found["jobs"][0]["problem"]


def test_jobs_say_what_they_read_when_a_table_of_100_000_items_is_listed(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = ScannedTable({f"job-{number:03d}": job_items(f"job-{number:03d}", 500) for number in range(100)})
    monkeypatch.setattr(surroundings, "make_table_client", lambda *_: client)

    found = run("table", "jobs")

    *jobs, attention, cost = found.stdout.splitlines()[1:]
    assert len(jobs) == 100
    assert attention == "Nothing needs attention in 100 jobs."
    assert client.read < 1_000
    assert cost.startswith(f"Read {client.read:,} items in {client.requests:,} requests, ")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("show", "No watermarks: the next run takes everything."),
        ("history", "No versions yet."),
        ("plan", "Everything: the job has no watermarks."),
    ],
)
def test_command_says_that_there_are_no_watermarks_when_a_job_never_committed(
    run: Command, watermarks: Watermarks, command: str, text: str
) -> None:
    watermarks.begin("loans", "jr_1")

    assert text in run(watermarks, command, "loans").stdout.splitlines()


def test_job_is_listed_as_damaged_when_its_state_cannot_be_worked_out(
    run: Command, world: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(head: Head, *given: Any) -> Any:
        if head.job_id == "rents":
            raise KeyError("at")
        return condition_of(head, *given)

    monkeypatch.setattr("scripts.helpers.metrics.urgency.condition_of", broken)

    found = {job["job"]: job for job in document(run(world, "jobs", "--output", "json"))["jobs"]}

    assert len(found) == 6
    assert found["rents"]["problem"] == "damaged (KeyError while reading it); see doctor"


def test_console_shows_the_cells_and_warnings_of_the_command_when_jobs_are_listed(
    run: Command, world: Watermarks
) -> None:
    jobs = world.list_jobs()

    listed = run(world, "jobs", "--sort", "name").stdout.splitlines()
    shown = repr(jobs).splitlines()[1:]

    def cells(line: str) -> list[str]:
        return [cell for cell in line.split() if cell != NONE]

    assert [cells(line) for line in shown[: len(jobs) + 1]] == [cells(line) for line in listed[: len(jobs) + 1]]
    assert shown[len(jobs) + 1 :] == [
        line for line in listed if line.startswith(tuple(f"{job.job_id}: " for job in jobs))
    ]


def test_nothing_is_listed_when_a_table_is_empty(run: Command, watermarks: Watermarks) -> None:
    assert run(watermarks, "jobs").stdout.splitlines()[0] == "No jobs."


def test_next_run_is_said_to_replay_when_nobody_has_the_job_of_an_open_plan(
    run: Command, watermarks: Watermarks
) -> None:
    with pytest.raises(ZeroDivisionError), watermarks.begin("loans", "jr_1") as held:
        held.freeze({"loans": {}}, {"loans": 1})
        raise ZeroDivisionError

    assert "owner    none; the next run replays the open plan" in run(watermarks, "show", "loans").stdout


@pytest.mark.parametrize(
    ("value", "shown", "document"),
    [
        (b"12345", "5 bytes", "MTIzNDU="),
        (Spilled("s1", 2, 3_000, "00"), "3.0 KB in 2 chunks", {"chunks": 2, "bytes": 3_000}),
        (Blob(b"12345"), "bytes in chunks", {"chunks": 0}),
        (Blob(reference=Spilled("s1", 2, 3_000, "00")), "bytes in chunks", {"chunks": 2}),
        ({"b", "a"}, '["a", "b"]', ["a", "b"]),
    ],
    ids=["bytes", "spilled", "new-blob", "blob", "set"],
)
def test_size_or_order_is_shown_when_a_value_is_no_text(value: Any, shown: str, document: Any) -> None:
    assert value_text(value) == shown
    assert as_json(value) == document


def test_state_is_written_as_it_is_when_its_packed_ranges_are_damaged() -> None:
    state = rows_state(5, "bigint") | {"covered": b"no ranges"}

    assert with_spans(state) is state


def test_show_has_watermarks_plan_and_owner_when_asked_for_json(run: Command, world: Watermarks) -> None:
    found = document(run(world, "show", "repairs", "--output", "json"))

    assert found["watermarks"]["repairs"]["value"] == "2026-03-15T08:45:00.000000+00:00"
    assert found["plan"]["repairs"]["high"] == "2026-03-16T08:45:00.000000+00:00"
    assert found["owner"]["lease_until"] == "2026-03-16T10:00:00.000000+00:00"
    assert found["open_plan"]["contexts"] == ["repairs"]


def test_ranges_and_no_packed_bytes_are_shown_when_json_is_asked_for(run: Command, watermarks: Watermarks) -> None:
    state = with_coverage(rows_state(30, "bigint"), None, [((), (10,)), ((20,), (30,))], "o1")
    commit(watermarks, "loans", "jr_1", {"loans": state})

    found = document(run(watermarks, "show", "loans", "--output", "json"))

    assert found["watermarks"]["loans"]["covered"] == [{"low": None, "high": 10}, {"low": 20, "high": 30}]


def test_partition_is_told_in_words_when_a_job_takes_the_latest(run: Command, watermarks: Watermarks) -> None:
    columns = {"columns": ["year", "day"], "types": ["int", "string"], "value": [2026, "24"], "files": 2}
    state = {"kind": "partition", "source": "s3://raw/repairs/", "format": 1, **columns, "sha256": "0" * 64}
    commit(watermarks, "snapshots", "jr_1", {"repairs": state})

    shown, planned = run(watermarks, "show", "snapshots"), run(watermarks, "plan", "snapshots")

    assert "year 2026, day 24, 2 files" in shown.output
    assert "the largest partition by year, day that s3://raw/repairs/ has then" in planned.output


def test_history_names_who_and_why_when_a_person_decided(run: Command, watermarks: Watermarks) -> None:
    commit(watermarks, "rents", "jr_1", {"seen": 1}, rows_collected=10)
    watermarks.reset("rents", why="a column was missing", who="sam")

    found = document(run(watermarks, "history", "rents", "--output", "json"))

    assert [(one["version"], one["op"], one["who"], one["why"]) for one in found["history"]] == [
        (2, "RESET", "sam", "a column was missing"),
        (1, "COMMIT", None, None),
    ]
    assert found["history"][1]["metrics"] == {"rows_collected": 10}


def test_history_has_the_same_columns_as_in_a_repl_when_they_are_filled(run: Command, watermarks: Watermarks) -> None:
    left_out = {"libraries": {"names": ["a", "b"], "count": 3}}
    for number in (1, 2):
        begun = watermarks.begin("libraries", f"jr_{number}")
        begun = watermarks.begin("libraries", f"jr_{number}")
        begun.freeze({}, {"n": number})
        begun.commit(rows=7, bytes=1_234_567, columns_left_out=left_out)
    watermarks.set_watermark("libraries", {"n": 9}, why="a test", who="sam")

    shown = run(watermarks, "history", "libraries").stdout.splitlines()
    printed = repr(watermarks.history("libraries")).splitlines()

    assert re.split(r"  +", shown[0]) == re.split(r"  +", printed[1].replace("at (UTC)", "at"))
    for text in ("1.2 MB", "a, b and 1 more", "jr_2"):
        assert (text in shown[2], text in printed[3]) == (True, True)


@pytest.mark.usefixtures("dynamodb")
def test_history_has_as_many_versions_as_asked_for_when_they_are_more_than_a_page_of_dynamodb(
    run: Command, watermarks: Watermarks
) -> None:
    for number in range(24):
        commit(watermarks, "libraries", f"jr_{number}", {"note": "x" * 60_000})

    shown = run(watermarks, "history", "libraries", "--limit", "22")
    found = document(run(watermarks, "history", "libraries", "--limit", "30", "--output", "json"))

    assert "For older versions: --before 3" in shown.stdout
    assert [one["version"] for one in found["history"]] == list(range(24, 0, -1))


def test_history_goes_on_where_it_ended_when_told_before(run: Command, world: Watermarks) -> None:
    first = run(world, "history", "parking-permits", "--limit", "2")
    older = document(run(world, "history", "parking-permits", "--before", "2", "--output", "json"))

    assert "For older versions: --before 2" in first.stdout
    assert [one["version"] for one in older["history"]] == [1]


@pytest.mark.parametrize(
    ("versions", "ends"),
    [([], (2, 3)), (["1"], (1, 3)), (["1", "2"], (1, 2)), (["3", "1"], (3, 1))],
    ids=["last", "since-one", "two", "backwards"],
)
def test_diff_shows_what_moved_when_versions_are_named(
    run: Command, world: Watermarks, versions: list[str], ends: tuple[int, int]
) -> None:
    found = document(run(world, "history", "parking-permits", "--diff", *versions, "--output", "json"))

    assert (found["from"]["version"], found["to"]["version"]) == ends
    (change,) = found["changes"]
    assert change["watermark"] == "repairs"
    moved = datetime.fromisoformat(change["to"]["value"]) - datetime.fromisoformat(change["from"]["value"])
    assert moved == timedelta(days=ends[1] - ends[0])


def test_diff_says_so_when_nothing_differs(run: Command, world: Watermarks) -> None:
    assert "No watermark differs." in run(world, "history", "rents", "--diff").stdout


@pytest.mark.parametrize(
    ("key", "status"),
    [
        ("s3://landing/parking/1.csv", "taken"),
        ("s3a://landing/parking/3.csv", "new"),
        ("s3://landing/parking/_tmp/4.csv", "unknown"),
    ],
)
def test_explain_says_what_became_of_a_file_when_named(run: Command, world: Watermarks, key: str, status: str) -> None:
    found = document(run(world, "files", "parking-fines", "--explain", key, "--output", "json"))

    assert found["state"] == status
    assert (found["version"], found["run_id"]) == ((1, "jr_fines_1") if status == "taken" else (None, None))


def test_plan_counts_new_files_and_writes_nothing_when_a_source_is_listed(run: Command, world: Watermarks) -> None:
    before = world.latest("parking-fines")

    found = document(run(world, "plan", "parking-fines", "--source", "s3a://landing/parking/", "--output", "json"))

    (context,) = found["contexts"]
    assert (context["files"], context["bytes"], context["first"]) == (1, 17, ["3.csv"])
    assert (found["replay"], found["version"]) == (False, 2)
    assert world.latest("parking-fines") == before


@pytest.mark.parametrize(
    ("options", "first", "has_more"),
    [
        ([], ["late.csv", "a.csv", "b.csv"], False),
        (["--layout", "day=%Y-%m-%d/"], ["a.csv", "b.csv"], False),
        (["--layout", "day=%Y-%m-%d/", "--allowed-lateness", "60d"], ["late.csv", "a.csv", "b.csv"], False),
        (["--max-files", "2"], ["a.csv", "b.csv"], True),
        (["--max-bytes", "1"], ["a.csv"], True),
        (["--ready-marker", "_SUCCESS"], ["a.csv", "b.csv"], False),
        (["--delay", "1d"], [], False),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_plan_cuts_as_the_job_does_when_its_options_are_given(
    run: Command, watermarks: Watermarks, s3: Any, bucket: str, options: list[str], first: list[str], has_more: bool
) -> None:
    today, before = (f"in/{datetime.now(timezone.utc) - timedelta(days=days):day=%Y-%m-%d}/" for days in (0, 40))
    land(s3, bucket, f"{today}old.csv")
    with IncrementalJob(watermarks, "files", "jr_1", s3_client=s3) as job:
        job.new_files(f"s3://{bucket}/in/")
    land(s3, bucket, *(f"{today}{name}" for name in ("_SUCCESS", "a.csv", "b.csv")), f"{before}late.csv")
    # Age these files, because the oldest are taken first and S3 reports times in whole seconds.
    objects = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[bucket].keys
    for name in ("_SUCCESS", "a.csv", "b.csv"):
        objects[f"{today}{name}"].last_modified -= timedelta(minutes=1)

    options = ["--source", f"s3://{bucket}/in/", *options]
    (context,) = document(run(watermarks, "plan", "files", *options, "--output", "json"))["contexts"]

    assert [key.rpartition("/")[2] for key in context["first"]] == first
    assert (context["files"], context["has_more"]) == (len(first), has_more)


def test_plan_names_ten_files_and_counts_the_others_when_shown(
    run: Command, watermarks: Watermarks, s3: Any, bucket: str
) -> None:
    with IncrementalJob(watermarks, "files", "jr_1", s3_client=s3) as job:
        job.new_files(f"s3://{bucket}/in/")
    land(s3, bucket, *(f"in/{number:04d}.csv" for number in range(1_012)))

    lines = run(watermarks, "plan", "files", "--source", f"s3://{bucket}/in/").stdout.splitlines()

    assert lines[-11:] == [*(f"  {number:04d}.csv" for number in range(10)), "  … and 1,002 more"]


def test_plan_writes_no_ledger_when_the_job_keeps_one_in_files(
    run: Command, watermarks: Watermarks, s3: Any, bucket: str
) -> None:
    land(s3, bucket, "in/1.csv")
    ledger = f"s3://{bucket}/ledger/"
    with IncrementalJob(watermarks, "files", "jr_1", s3_client=s3) as job:
        job.new_files(f"s3://{bucket}/in/", ledger_uri=ledger)
    land(s3, bucket, "in/2.csv", "in/3.csv")
    before = s3.list_objects_v2(Bucket=bucket)["KeyCount"]

    options = ["--source", f"s3://{bucket}/in/", "--ledger-uri", ledger, "--exclude", "3*", "--output", "json"]
    found = document(run(watermarks, "plan", "files", *options))

    assert found["contexts"][0]["first"] == ["2.csv"]
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == before


@pytest.mark.parametrize("answer", [None, "n\n", "y\n"])
@pytest.mark.parametrize(
    "command", [["plan", "files"], ["files", "files", "--explain", "letter.txt"]], ids=lambda one: one[0]
)
def test_source_that_only_the_items_name_is_not_listed_when_nobody_confirms_it(
    run: Command, watermarks: Watermarks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    command: list[str], answer: str | None,
) -> None:  # fmt: skip
    """Otherwise anyone who may write a job's items could name any folder that an operator may list."""
    monkeypatch.setattr(deciding, "is_asked", lambda: answer is not None)
    (tmp_path / "landing").mkdir()
    (tmp_path / "alice").mkdir()
    (tmp_path / "alice" / "letter.txt").write_text("Dear Bob")
    with IncrementalJob(watermarks, "files", "jr_1") as job:
        job.new_files(str(tmp_path / "landing"))
    head = json.dumps(item_of(watermarks, "files")).replace(f"{tmp_path}/landing/", f"{tmp_path}/alice/")
    put_item(watermarks, json.loads(head))

    done = run(watermarks, *command, input=answer)

    alice = f"file://{tmp_path}/alice/"
    instead = {"plan": f"--context files --source {alice}", "files": f"the whole name of the file: {alice}letter"}
    assert done.stdout.startswith(f"The job's items say that its source is {alice}.")
    assert ("8 bytes" in done.stdout) is (answer == "y\n")
    assert (f"pass {instead[command[0]]}" in " ".join(done.stderr.split())) is (answer is None)
    assert done.exit_code == {None: 2, "n\n": 1, "y\n": 0}[answer], done.output


def test_plan_shows_the_open_plan_when_the_next_run_replays_it(run: Command, world: Watermarks) -> None:
    found = document(run(world, "plan", "repairs", "--output", "json"))

    (context,) = found["contexts"]
    assert found["replay"]
    assert context["low"] == "2026-03-15T08:45:00.000000+00:00"
    assert context["high"] == "2026-03-16T08:45:00.000000+00:00"


def test_plan_refers_to_the_code_of_the_job_when_a_value_has_no_kind(run: Command, world: Watermarks) -> None:
    lines = run(world, "plan", "rents").stdout.splitlines()

    assert [line.split("  ", 1)[0] for line in lines[2:]] == ["latest_data", "rows"]
    for line in lines[2:]:
        assert line.endswith("value  a value of the job's own; what it means is in its code")


@pytest.mark.parametrize(
    ("gone", "text"),
    [(["1.csv"], "1 known file is gone"), (["1.csv", "2.csv"], "2 known files are gone")],
    ids=["one", "two"],
)
def test_files_that_are_gone_are_counted_when_the_job_looks_at_the_whole_source(
    run: Command, watermarks: Watermarks, tmp_path: Path, gone: list[str], text: str
) -> None:
    for name in ("1.csv", "2.csv"):
        (tmp_path / name).write_text("id\n")
    with IncrementalJob(watermarks, "files", "jr_1") as job:
        job.new_files(str(tmp_path))
    for name in gone:
        (tmp_path / name).unlink()

    assert f"0 files, 0 bytes; {text}\n" in run(watermarks, "plan", "files", "--source", str(tmp_path)).stdout


def test_plan_says_from_where_rows_are_read_when_nothing_is_frozen(run: Command, world: Watermarks) -> None:
    found = run(world, "plan", "parking-permits")

    assert "rows of last_modified from 2026-03-15 14:45:00Z on; the job asks its source" in found.stdout


@pytest.fixture
def gappy(watermarks: Watermarks, clock: Clock) -> Watermarks:
    """Return a table with a rows context that has read up to 10 and was then set to 30."""
    commit(watermarks, "loans", "jr_1", {"rows": rows_state(10, "bigint")})
    watermarks.set_watermark("loans", rows_state(30, "bigint"), transformation_ctx="rows", why="loaded by hand")
    return watermarks


def test_gaps_and_coverage_fit_together_when_a_watermark_was_set(run: Command, gappy: Watermarks) -> None:
    found = document(run(gappy, "backfill", "loans", "--output", "json"))

    assert found["gaps"] == [{"low": 10, "high": 30}]
    assert found["coverage"] == [{"low": None, "high": 10}]


def test_gaps_begin_later_when_told_from_where(run: Command, gappy: Watermarks) -> None:
    assert document(run(gappy, "backfill", "loans", "--low", "25", "--output", "json"))["gaps"] == [
        {"low": 25, "high": 30}
    ]


def test_backfill_cuts_gaps_and_names_slices_at_work_when_planned(
    run: Command, gappy: Watermarks, spark: Any, clock: Clock
) -> None:
    rows = spark.sql("SELECT id, id AS last_modified FROM range(40)")
    backfill = Backfill(gappy, "loans", transformation_ctx="rows", low=10, high=14, clock=clock)
    backfill.__enter__()
    backfill.rows(DataFrameRows(rows), "last_modified")
    backfill.job.freeze()

    found = document(run(gappy, "backfill", "loans", "--slices", "2", "--output", "json"))
    shown = run(gappy, "backfill", "loans")
    backfill.run.abort()

    assert found["slices"] == [{"low": 14, "high": 22}, {"low": 22, "high": 30}]
    (begun,) = found["begun"]
    assert (begun["low"], begun["high"], begun["state"]) == (10, 14, "at work")
    assert begun["job"] == backfill.job_id
    assert "In progress:" in shown.stdout


def test_jobs_of_backfills_are_left_out_when_not_asked_for(run: Command, watermarks: Watermarks) -> None:
    commit(watermarks, "loans", "jr_1", {"seen": 1})
    commit(watermarks, "loans-backfill-0123456789abcdef", "jr_1", {"seen": 1})

    few = document(run(watermarks, "jobs", "--output", "json"))
    all_of_them = document(run(watermarks, "jobs", "--backfills", "--output", "json"))

    one = run(watermarks, "jobs").stdout
    commit(watermarks, "loans-backfill-0123456789abcdee", "jr_1", {"seen": 1})
    two = run(watermarks, "jobs").stdout

    assert [job["job"] for job in few["jobs"]] == ["loans"]
    assert few["backfills"] == 1
    assert len(all_of_them["jobs"]) == 2
    assert "1 job of a backfill is not shown; see --backfills" in one
    assert "2 jobs of backfills are not shown; see --backfills" in two


def test_doctor_fails_when_something_is_wrong(run: Command, world: Watermarks) -> None:
    found = run(world, "doctor", "repairs", "--output", "json")

    assert found.exit_code == 1
    assert [one["kind"] for one in json.loads(found.stdout)["findings"]] == ["open plan"]


def test_doctor_succeeds_when_nothing_is_wrong(run: Command, world: Watermarks) -> None:
    assert document(run(world, "doctor", "rents", "--output", "json"))["findings"] == []


def test_doctor_repairs_when_told_to(run: Command, watermarks: Watermarks, dynamodb: Any) -> None:
    commit(watermarks, "rents", "jr_1", {"seen": 1})
    key = items.key("rents", items.log_key(1))
    dynamodb.delete_item(TableName=watermarks.table_name, Key=key)

    found = document(run(watermarks, "doctor", "rents", "--repair", "--yes", "--output", "json"))

    assert [one["repaired"] for one in found["findings"]] == [True]
    assert "Item" in dynamodb.get_item(TableName=watermarks.table_name, Key=key)


def test_doctor_starts_a_new_epoch_when_told_of_a_restore(run: Command, watermarks: Watermarks) -> None:
    commit(watermarks, "rents", "jr_1", {"seen": 1})
    before = watermarks.latest("rents")

    done = run(watermarks, "doctor", "rents", "--after-restore", "--why", "restored", "--yes")

    after = watermarks.latest("rents")
    assert done.exit_code == 0
    assert after.epoch != before.epoch
    assert after.last is not None
    assert after.last.why == "restored"


def test_runs_are_those_of_the_table_when_shown(run: Command, watermarks: Watermarks, dynamodb: Any) -> None:
    for number, state in ((1, "SUCCEEDED"), (2, "RUNNING")):
        told = {"Attempt": 0, "Timeout": 10, "Arguments": {}}
        lease = timedelta(minutes=1) if state == "RUNNING" else None
        last_sign = NOW - timedelta(minutes=17)
        record = RunRecord(
            "rents", "jr_" + str(number) * 64, state, NOW - timedelta(hours=1), last_sign, told,
            running_since=NOW - timedelta(hours=1), completed_on=None if lease else NOW, lease=lease,
        )  # fmt: skip
        dynamodb.put_item(TableName=watermarks.table_name, Item=record.to_item())

    found = document(run(watermarks, "history", "rents", "--runs", "--output", "json"))
    shown = run(watermarks, "history", "rents", "--runs")

    assert [(one["JobRunState"], one.get("Lost", False)) for one in found["runs"]] == [
        ("RUNNING", True),
        ("SUCCEEDED", False),
    ]
    assert "LOST" in shown.stdout


def test_runs_have_the_columns_of_the_page_when_they_failed(run: Command, watermarks: Watermarks) -> None:
    since = NOW - timedelta(hours=1)
    told = {"Attempt": 1, "Timeout": 10, "Arguments": {}}
    record = RunRecord(
        "rents", "jr_1", "FAILED", since, NOW, told, running_since=since, completed_on=NOW, error="no disk"
    )
    put_item(watermarks, record.to_item())
    commit(watermarks, "rents", "jr_2", {"seen": 1})
    facts = JobFacts("rents", NOW, watermarks.latest("rents"), unsuccessful=[record])

    shown = run(watermarks, "history", "rents", "--runs").stdout.splitlines()
    (row,) = Details(render_job(facts, 1)).tables["Job runs that ended without success, newest first"]

    cells = [re.split(r"  +", line) for line in shown]
    assert cells == [
        ["run", "state", "attempt", "started", "took", "error"],
        ["jr_1", "FAILED", "1", "2026-03-16 14:45:00Z", "1 h", "no disk"],
    ]
    assert row == {head.capitalize(): cell.removesuffix("Z") for head, cell in zip(*cells, strict=True)}


def test_existing_page_is_not_overwritten_when_nobody_confirms(run: Command, world: Watermarks, tmp_path: Any) -> None:
    path = tmp_path / "page.html"
    path.write_text("of last week")

    done = run(world, "report", "--html", str(path))

    assert (done.exit_code, path.read_text()) == (2, "of last week")
    assert "Pass --yes." in done.stderr


@pytest.mark.parametrize("command", ["jobs", "show", "history", "backfill", "plan", "doctor"])
def test_options_of_all_commands_work_before_and_after_the_name_when_given(
    run: Command, world: Watermarks, command: str
) -> None:
    job = [] if command == "jobs" else ["parking-permits"]

    before, after = run(world, "--output", "json", command, *job), run(world, command, *job, "--output", "json")

    assert json.loads(before.stdout) == json.loads(after.stdout)


def test_names_cannot_move_the_cursor_when_the_table_holds_control_characters(
    run: Command, watermarks: Watermarks, dynamodb: Any
) -> None:
    from tests.cli.stories import put_legacy

    put_legacy(dynamodb, watermarks.table_name, "a\x1b[2Jb\nc", "jr_1")

    found = run(watermarks, "jobs")

    assert "\x1b" not in found.stdout
    assert r"a\x1b[2Jb\nc" in found.stdout
