"""`watermarks backfill` shows gaps, prints commands that run and fill every gap, and can abandon a slice."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from scripts.cli import deciding
from scripts.helpers.backfill import Backfill
from scripts.helpers.errors import CursorError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol import items
from scripts.helpers.rows.cursor_ranges import range_end
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.watermarks import Watermarks
from scripts.jobs import ingest_table, session
from scripts.jobs.exit_codes import BAD_DATA
from tests.cli.stories import NOW, Command, document
from tests.support.clock import Clock
from tests.support.listed_rows import ListedRows
from tests.support.rows_states import with_coverage
from tests.support.table_items import all_items

JOB, CONTEXT = "loans", "rows"
FEBRUARY = datetime(2026, 2, 1, tzinfo=timezone.utc)
READ = ["watermarks", "ingest-table"]


def declare(
    watermarks: Watermarks, value: Any, kind: Any = "bigint", column: Any = "id", job: str = JOB, read: Any = None
) -> None:
    """Set the watermark of a job by hand; `read` is the ranges that it has read so far."""
    state: Any = {"kind": "rows", "cursor_column": column, "type": kind}
    state["value"] = list(value) if isinstance(value, tuple) else value
    if read is not None:
        state = with_coverage(state, None, read, "o1")
    watermarks.set_watermark(job, state, transformation_ctx=CONTEXT, why="loaded by hand")


def begin(watermarks: Watermarks, low: int, high: int, name: str = "backfill", leave: bool = True) -> str:
    """Plan a slice without committing it, and return its job. With `leave` the run also aborts and releases the job."""
    source = ListedRows((CursorColumn("id", "bigint"),), [(number,) for number in range(40)])
    slice_of = Backfill(watermarks, JOB, low=low, high=high, name=name, clock=watermarks.clock)
    slice_of.__enter__()
    slice_of.rows(source, "id")
    slice_of.job.freeze()
    if leave:
        slice_of.run.abort()
    return slice_of.job_id


# --- commands that run --------------------------------------------------------------------------


@pytest.fixture
def ingest(spark: Any, watermarks: Watermarks, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], int]:
    """Return a function that runs a printed command line in this process, with its Spark session."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)

    def run(line: str) -> int:
        words = shlex.split(line)
        assert words[:2] == READ
        return ingest_table.main(words[2:])

    return run


def test_every_row_arrives_once_when_the_commands_are_run(
    run: Command, make_watermarks: Callable[..., Watermarks], ingest: Callable[[str], int], spark: Any, tmp_path: Path
) -> None:
    live = make_watermarks(clock=lambda: datetime.now(timezone.utc))
    source, target = f"{tmp_path}/loans here", f"{tmp_path}/raw"
    spark.sql("SELECT id FROM range(30)").write.parquet(source)
    declare(live, 30)
    begun = begin(live, 4, 10, "first try")
    options = ["--slices", "2", "--low", "4", "--", "--source", source, "--target", target]

    written = run(live, "backfill", JOB, *options, now=datetime.now(timezone.utc))
    codes = [ingest(line) for line in written.stdout.splitlines()]
    again = run(live, "backfill", JOB, *options, now=datetime.now(timezone.utc))

    lines = written.stdout.splitlines()
    assert written.exit_code == 0, written.output
    assert "'--backfill-name=first try' --backfill-low=4 --backfill-high=10" in lines[0]
    assert (len(lines), codes) == (3, [0] * 3)
    assert sorted(row.id for row in spark.read.parquet(target).collect()) == list(range(4, 30))
    assert live.gaps(JOB, CONTEXT, 4) == []
    assert live.latest(begun).version == 1
    assert (again.stdout, again.stderr) == ("", "No gaps.\n")


@pytest.mark.parametrize(
    ("kind", "column", "first", "last"),
    [
        ("timestamp", "at", datetime(2026, 1, 2, 3, 4, 5, 6, timezone.utc), FEBRUARY),
        ("timestamp_ntz", "at", datetime(2026, 1, 2, 3, tzinfo=timezone.utc), FEBRUARY),
        ("date", "day", date(2026, 1, 1), date(2026, 2, 1)),
        ("bigint", "id", -5, 7),
        ("decimal(10,2)", "price", Decimal("-1.50"), Decimal("3.25")),
        ("decimal(10,8)", "price", Decimal("0E-8"), Decimal("1E-8")),
        ("string", "key", "a b", "it's"),
        (["date", "bigint"], ["day", "id"], (date(2026, 1, 1), 3), (date(2026, 2, 1), -4)),
    ],
    ids=str,
)  # fmt: skip
def test_bounds_are_unchanged_when_the_printed_command_is_parsed(
    run: Command, watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch, kind: Any, column: Any, first: Any, last: Any
) -> None:
    for value, read in ((first, [((), range_end(first))]), (last, None)):
        declare(watermarks, value, kind, column, "loans@@north", read)
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(ingest_table, "Backfill", lambda _, job, *__, **options: made.append({"job": job, **options}))
    monkeypatch.setattr(session, "run_job", lambda _, arguments, begin: begin(arguments, watermarks) or 0)

    (line,) = run(watermarks, "backfill", "loans@@north", "--", "--source=s", "--target=t").stdout.splitlines()
    ingest_table.main(shlex.split(line)[2:])

    assert watermarks.gaps("loans@@north", CONTEXT) == [(first, last)]
    assert [(range_end(one["low"]), range_end(one["high"])) for one in made] == [(range_end(first), range_end(last))]
    assert made[0]["job"] == "loans@@north"
    assert ("--strings" in shlex.split(line)) == (kind == "string")


def test_slice_is_left_out_when_a_run_is_at_work_on_it(run: Command, watermarks: Watermarks, clock: Clock) -> None:
    clock.now = NOW
    declare(watermarks, 30)
    begun = begin(watermarks, 0, 10, leave=False)

    done = run(watermarks, "backfill", JOB, "--low", "0", "--", "--source=s", "--target=t")
    found = document(
        run(watermarks, "backfill", JOB, "--low", "0", "--output", "json", "--", "--source=s", "--target=t")
    )

    assert f"Slice {begun} is left out: run " in done.stderr
    assert [line.endswith("--backfill-low=10 --backfill-high=30 --source=s --target=t")
            for line in done.stdout.splitlines()] == [True]  # fmt: skip
    assert found["begun"][0]["command"][:2] == READ
    assert found["slices"][0]["command"][-4:] == ["--backfill-low=10", "--backfill-high=30", "--source=s", "--target=t"]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--", "--source", "s"], 2, "Missing --target. Pass the arguments of watermarks ingest-table after --."),
        (["--", "x"], 2, "Missing --source and --target."),
        (["--", "--source=s", "--target=t", "--write_disposition=merge"], 2, "unrecognized arguments: --write_disp"),
        (["--", "--source=s", "--target=t", "--query=SELECT 1"], 2, "--source is not a database URL: omit --query"),
        (["--abandon", "x"], 2, "--abandon needs --why."),
        (["--abandon", "x", "--why", "y", "--yes"], 65, "Job 'loans' has no slice 'x' in progress."),
    ],
    ids=["target", "both", "unknown", "database", "why", "slice"],
)  # fmt: skip
def test_backfill_is_refused_when_its_arguments_do_not_fit(
    run: Command, watermarks: Watermarks, arguments: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    declare(watermarks, 30)

    done = run(watermarks, "backfill", JOB, *arguments)

    assert (done.exit_code, done.stdout) == (code, "")
    assert text in done.stderr + capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--high", "9"], "leave out --high"),
        (["--start-from", "9", "--descending"], "leave out --start-from, --descending"),
        (["--job-bookmark-option", "job-bookmark-pause"], "leave out --job-bookmark-option"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_job_is_refused_when_its_options_do_not_fit_a_slice(
    options: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    slice_of = ["--JOB_NAME=a", "--source=s", "--target=t", "--cursor-column=id", "--backfill-high=9"]

    with pytest.raises(SystemExit) as caught:
        ingest_table.main([*slice_of, *options])

    assert caught.value.code == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        (["--backfill-high=soon"], "--backfill-high is not of type bigint."),
        (["--backfill-low=1", "--backfill-low=2"], "--backfill-low has 2 values for 1 columns."),
        (["--backfill-low=1", "--backfill-high=99"], "past the live watermark"),
    ],
    ids=["no-number", "too-many", "too-far"],
)
def test_slice_ends_with_bad_data_and_stores_nothing_when_its_bounds_do_not_fit(
    watermarks: Watermarks, endpoint: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    bounds: list[str], text: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    declare(watermarks, 30)

    names = [f"--JOB_NAME={JOB}", f"--table={watermarks.table_name}", "--cursor-column=id"]

    code = ingest_table.main([*names, "--source=s", "--target=t", *bounds])

    assert code == BAD_DATA
    assert text in caplog.text
    assert [job.job_id for job in watermarks.list_jobs()] == [JOB]


def test_first_column_is_named_when_a_bound_has_more_values_than_the_cursor_has_columns() -> None:
    columns = (CursorColumn("day", "date"), CursorColumn("id", "bigint"))
    arguments = argparse.Namespace(backfill_low=["2026-03-01", "2", "3"])

    with pytest.raises(CursorError) as caught:
        ingest_table.option_bound(columns, arguments, "backfill_low")

    assert str(caught.value) == "Cursor column 'day': --backfill-low has 3 values for 2 columns. Give one each."


# --- slices that are begun ----------------------------------------------------------------------


def test_slice_becomes_a_gap_again_when_it_is_abandoned(
    run: Command, watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(watermarks, 30)
    begun = begin(watermarks, 0, 10)
    monkeypatch.setattr(deciding, "is_asked", lambda: True)
    abandon = ["backfill", JOB, "--abandon", begun, "--why", "another source"]

    refused = run(watermarks, *abandon, input="n\n")
    kept = watermarks.latest(begun)
    done = run(watermarks, *abandon, "--who", "sam", input="y\n")
    shown = run(watermarks, "backfill", JOB, "--low", "0")

    assert (refused.exit_code, kept.version, kept.plan is not None) == (1, 0, True)
    assert "This drops the open plan (rows). Data that a sink of your own wrote for it stays." in done.stdout
    assert done.exit_code == 0, done.output
    assert watermarks.history(begun)[0].change.why == "another source"
    assert "Begun" not in shown.stdout
    begin(watermarks, 5, 15)


def test_run_cannot_commit_when_its_slice_is_abandoned(run: Command, watermarks: Watermarks, clock: Clock) -> None:
    clock.now = NOW
    declare(watermarks, 30)
    begun = begin(watermarks, 0, 10, leave=False)
    before = watermarks.latest(begun)

    done = document(run(watermarks, "backfill", JOB, "--abandon", begun, "--why", "x", "--yes", "--output", "json"))

    assert (done["before"]["state"], done["after"]["state"]) == ("at work", "idle")
    assert watermarks.latest(begun).fence > before.fence
    assert watermarks.coverage(JOB, CONTEXT) == []


@pytest.mark.parametrize("reads_on", [False, True], ids=["waits", "reads on"])
def test_slice_has_no_command_when_the_live_job_was_set_back_into_it(
    run: Command, watermarks: Watermarks, reads_on: bool
) -> None:
    declare(watermarks, 30)
    begun = begin(watermarks, 2, 12)
    declare(watermarks, 7)
    if reads_on:
        with IncrementalJob(watermarks, JOB) as job:
            job.rows_since(ListedRows((CursorColumn("id", "bigint"),), [(19,)]), "id", transformation_ctx=CONTEXT)
    command = ["backfill", JOB, "--low", "2", "--", "--source=jdbc:s", "--target=t"]

    written = run(watermarks, *command, "--jdbc-table", "merge")
    merged = [
        run(watermarks, *command, *option).stdout
        for option in (["--write-disposition=merge"], ["--write-disposition", "merge"])
    ]
    facts: Any = json.loads(run(watermarks, command[0], "--output", "json", *command[1:]).stdout)

    assert "--backfill-low=2 --backfill-high=7" in written.stdout
    assert "--backfill-high=12" not in written.stdout
    assert f"backfill {JOB} --abandon {begun} --why TEXT" in written.stderr
    assert ["--backfill-low=2 --backfill-high=12" in printed for printed in merged] == [True, True]
    assert [("command" in one, one["job"]) for one in facts["begun"]] == [(False, begun)]


def test_slice_is_a_gap_when_it_ended_before_it_could_read(run: Command, watermarks: Watermarks) -> None:
    declare(watermarks, 30)
    slice_of = Backfill(watermarks, JOB, low=0, high=10, clock=watermarks.clock)
    with pytest.raises(ZeroDivisionError), slice_of:
        slice_of.rows(ListedRows((CursorColumn("id", "bigint"),), [(1,)]), "id")
        raise ZeroDivisionError

    found: Any = json.loads(run(watermarks, "backfill", JOB, "--low", "0", "--output", "json").stdout)

    assert found["begun"] == []
    assert found["slices"] == [{"low": 0, "high": 10}, {"low": 10, "high": 30}]


def test_slice_is_no_longer_in_progress_when_its_job_is_gone(
    run: Command, watermarks: Watermarks, dynamodb: Any
) -> None:
    declare(watermarks, 30)
    begun = begin(watermarks, 0, 10)
    for _, range_key in [key for key in all_items(watermarks) if key[0] == begun]:
        dynamodb.delete_item(TableName=watermarks.table_name, Key=items.key(begun, range_key))

    found: Any = document(run(watermarks, "backfill", JOB, "--low", "0", "--output", "json"))

    assert (found["begun"], found["slices"][0]["low"]) == ([], 0)


def test_gap_stays_whole_when_its_values_cannot_be_cut(run: Command, watermarks: Watermarks) -> None:
    declare(watermarks, "m", "string", "name")

    found = document(run(watermarks, "backfill", JOB, "--low", "a", "--slices", "3", "--output", "json"))

    assert found["slices"] == [{"low": "a", "high": "m"}]
