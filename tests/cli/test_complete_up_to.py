"""`watermarks complete-up-to`: when a scheduler may go ahead, and what keeps it waiting."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from scripts.helpers.job import IncrementalJob
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.rows.memory import ArrowRows
from scripts.helpers.watermarks import Watermarks
from scripts.jobs.exit_codes import BAD_DATA, FAILED
from tests.cli.stories import NOW, Command, commit_rows, rows_state
from tests.support.clock import Clock
from tests.support.listed_rows import ListedRows
from tests.support.outputs import output_of_run
from tests.support.rows_states import with_coverage
from tests.support.steps import commit

JOB = "repairs"
HOUR = timedelta(hours=1)


def source_of(*stamps: datetime, now: datetime) -> ListedRows:
    return ListedRows((CursorColumn("at", "timestamp"),), [(stamp,) for stamp in stamps], now)


def read(watermarks: Watermarks, source: Any, **options: Any) -> None:
    with IncrementalJob(watermarks, JOB, clock=watermarks.clock) as job:
        job.rows_since(source, "at", transformation_ctx="repairs", **options)


@pytest.mark.parametrize(
    ("at", "code"),
    [("2026-03-16T14:45:00Z", 0), ("2026-03-16T14:45:00.000001Z", FAILED), ("2026-03-16T14:44:59+00:00", 0)],
)
def test_exit_code_tells_whether_all_below_is_there_when_asked_for_a_time(
    run: Command, watermarks: Watermarks, at: str, code: int
) -> None:
    commit_rows(watermarks, JOB, "jr_1", NOW - HOUR, 5)

    done = run(watermarks, "complete-up-to", JOB, "--at", at, "--output", "json")

    assert done.exit_code == code
    assert json.loads(done.stdout)["complete"] == (code == 0)
    assert json.loads(done.stdout)["contexts"] == [
        {"context": "repairs", "complete_up_to": "2026-03-16T14:45:00.000000+00:00", "complete": code == 0}
    ]


def test_complete_up_to_is_the_clock_of_the_source_less_the_delay_when_no_row_is_new(
    run: Command, watermarks: Watermarks, clock: Clock
) -> None:
    clock.now = NOW
    source = source_of(NOW - 20 * HOUR, now=NOW - HOUR)
    read(watermarks, source, delay=timedelta(minutes=5))
    source.now = NOW
    read(watermarks, source, delay=timedelta(minutes=5))

    assert watermarks.complete_up_to(JOB, "repairs") == NOW - timedelta(minutes=5)
    assert watermarks.get_watermark_values(JOB)["repairs"]["value"] < NOW - 19 * HOUR
    assert run(watermarks, "complete-up-to", JOB, "--at", "2026-03-16T15:40:00Z").exit_code == 0
    shown = run(watermarks, "complete-up-to", JOB, "--at", "2026-03-16T15:41:00Z")
    assert (shown.exit_code, shown.stdout.splitlines()[-1]) == (FAILED, "Not complete up to 2026-03-16T15:41:00Z.")


def test_nothing_past_the_watermark_is_complete_when_rows_are_left(watermarks: Watermarks, clock: Clock) -> None:
    clock.now = NOW
    stamps = [NOW - hours * HOUR for hours in (5, 4, 3)]
    batches = source_of(*stamps, now=NOW)
    read(watermarks, batches, max_rows=1)
    in_batches = watermarks.complete_up_to(JOB, "repairs")
    read(watermarks, batches, high=NOW - 2 * HOUR)
    as_asked = watermarks.complete_up_to(JOB, "repairs")
    files = source_of(*stamps, now=NOW)
    files.now = None
    read(watermarks, files)

    assert (in_batches, as_asked) == (stamps[1], NOW - 2 * HOUR)
    # A source of files does not know when it was listed (`now` is None), so only its watermark counts.
    assert watermarks.complete_up_to(JOB, "repairs") == NOW - 2 * HOUR


def test_complete_up_to_stops_at_the_gap_when_the_watermark_is_set(watermarks: Watermarks, clock: Clock) -> None:
    clock.now = NOW
    read(watermarks, source_of(NOW - 9 * HOUR, now=NOW))
    state = watermarks.get_watermark_values(JOB)["repairs"]
    watermarks.set_watermark(JOB, {**state, "value": NOW - 8 * HOUR}, transformation_ctx="repairs", why="by hand")

    # The rows between the two watermarks were skipped and never read.
    low = NOW - 9 * HOUR + timedelta(microseconds=1)
    assert watermarks.gaps(JOB, "repairs") == [(low, NOW - 8 * HOUR)]
    assert watermarks.complete_up_to(JOB, "repairs") == low
    assert "complete" not in watermarks.get_watermark_values(JOB)["repairs"]


def test_job_is_complete_where_all_its_sources_are_unless_one_is_named(run: Command, watermarks: Watermarks) -> None:
    commit(watermarks, JOB, "jr_1", {"a": rows_state(NOW), "b": rows_state(NOW - HOUR), "f": {"kind": "files"}})
    asked = ["complete-up-to", JOB, "--at", "2026-03-16T15:00:00Z"]

    assert run(watermarks, *asked).exit_code == FAILED
    assert run(watermarks, *asked, "--context", "a").exit_code == 0
    assert run(watermarks, *asked, "--context", "b").exit_code == FAILED
    assert run(watermarks, "complete-up-to", JOB).exit_code == 0


def test_rows_do_not_count_as_complete_when_their_batch_is_committed_but_not_published(
    run: Command, watermarks: Watermarks, tmp_path: Path
) -> None:
    held = watermarks.begin(JOB, "jr_1")
    held.freeze({"repairs": {**rows_state(None), "low": None, "high": NOW}}, {"repairs": rows_state(NOW)})
    held.commit((output_of_run(held, str(tmp_path)),))

    shown = run(watermarks, "complete-up-to", JOB, "--at", "2026-03-16T15:00:00Z")

    assert shown.exit_code == FAILED
    assert "Committed but not yet published: 1 output, which the next run publishes." in shown.stdout


def test_compound_cursor_is_complete_below_the_first_of_its_values(run: Command, watermarks: Watermarks) -> None:
    state = {"kind": "rows", "cursor_column": ["at", "id"], "type": ["timestamp", "bigint"], "value": [NOW, 7]}
    commit(watermarks, JOB, "jr_1", {"repairs": state})

    assert watermarks.complete_up_to(JOB, "repairs") == (NOW, 7)
    assert run(watermarks, "complete-up-to", JOB, "--at", "2026-03-16T15:45:00Z").exit_code == 0
    shown = run(watermarks, "complete-up-to", JOB, "--at", "2026-03-16T15:46:00Z")
    assert (shown.exit_code, "(2026-03-16 15:45:00Z, 7)" in shown.stdout) == (FAILED, True)


def test_nothing_is_complete_when_a_gap_reaches_down_to_the_beginning(run: Command, watermarks: Watermarks) -> None:
    read_until_20 = with_coverage(rows_state(20, "bigint"), None, [((10,), (20,))], "o1")
    commit(watermarks, JOB, "jr_1", {"rows": read_until_20})

    shown = run(watermarks, "complete-up-to", JOB, "--at", "1")

    assert (shown.exit_code, watermarks.complete_up_to(JOB, "rows")) == (FAILED, None)
    assert "nothing yet" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["no-such-job"], FAILED, "no-such-job"),
        ([JOB, "--context", "no"], BAD_DATA, "has no context 'no' of rows"),
        (["files"], BAD_DATA, "has no context of rows"),
        ([JOB, "--at", "soon"], BAD_DATA, "--at is not of type timestamp"),
        # A compact date, seconds since 1970 and a year: read as microseconds since 1970, each would be a time long ago.
        ([JOB, "--at", "20260110"], BAD_DATA, "--at is not of type timestamp"),
        ([JOB, "--at", "1768003200"], BAD_DATA, "--at is not of type timestamp"),
        ([JOB, "--at", "2027"], BAD_DATA, "--at is not of type timestamp"),
        (["downwards"], BAD_DATA, "reads downwards"),
    ],
)
def test_complete_up_to_says_what_is_wrong_when_it_cannot_tell(
    run: Command, watermarks: Watermarks, arguments: list[str], code: int, text: str
) -> None:
    commit_rows(watermarks, JOB, "jr_1", datetime(2026, 3, 1, tzinfo=timezone.utc), 5)
    commit(watermarks, "files", "jr_1", {"f": {"kind": "files"}})
    commit(watermarks, "downwards", "jr_1", {"rows": {**rows_state(-5, "bigint"), "descending": True}})

    done = run(watermarks, "complete-up-to", *arguments)

    assert (done.exit_code, text in done.stderr) == (code, True)


@pytest.mark.parametrize(
    ("zone", "offset"), [("UTC", "Z"), ("Asia/Kolkata", "+05:30"), ("America/New_York", "-04:00")], ids=str
)
def test_time_without_zone_is_an_instant_of_the_zone_that_its_source_was_given(
    run: Command, watermarks: Watermarks, clock: Clock, zone: str, offset: str, tmp_path: Path
) -> None:
    clock.now = NOW
    wall = (NOW - HOUR).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    read(watermarks, ArrowRows(pa.table({"id": [1], "at": [wall]}), zone=zone))
    limits = tmp_path / "limits.json"
    limits.write_text('{"*": {"warn": "30m", "error": "50m", "measure": "lag"}}')

    judged = run(watermarks, "jobs", "--fail-on", "missing", "--thresholds", str(limits))
    assert (judged.exit_code, "59 min 59 s lag" in judged.stdout) == (FAILED, True)
    complete = wall + timedelta(microseconds=1)
    assert watermarks.complete_up_to(JOB, "repairs") == complete
    assert run(watermarks, "complete-up-to", JOB, "--at", complete.isoformat()).exit_code == 0
    later = complete + timedelta(microseconds=1)
    assert run(watermarks, "complete-up-to", JOB, "--at", later.isoformat()).exit_code == FAILED
    for command in ("show", "backfill", "complete-up-to"):
        assert f"{complete.isoformat(sep=' ')}{offset}" in run(watermarks, command, JOB).stdout
    shown = json.loads(run(watermarks, "show", JOB, "--output", "json").stdout)
    assert shown["watermarks"]["repairs"]["value"] == "2026-03-16T14:45:00.000001+00:00"


def test_lag_is_unknown_until_the_next_run_when_a_state_has_no_time_zone(
    run: Command, watermarks: Watermarks, clock: Clock
) -> None:
    clock.now = NOW
    commit(watermarks, JOB, "jr_1", {"repairs": rows_state(NOW - HOUR, "timestamp_ntz") | {"cursor_column": "at"}})

    shown = run(watermarks, "show", JOB).stdout
    assert "2026-03-16 14:45:00 (zone not known)" in shown
    assert [line.split(maxsplit=1) for line in shown.splitlines() if line.startswith("lag")] == [
        ["lag", "zone not known"]
    ]
    assert watermarks.complete_up_to(JOB, "repairs") == datetime(2026, 3, 16, 14, 45)
    read(watermarks, ArrowRows(pa.table({"id": [1], "at": [datetime(2026, 3, 16, 19)]}), zone="Asia/Kolkata"))
    assert "zone not known" not in run(watermarks, "show", JOB).stdout
