"""A range of runs read again, for rows and for files: AWS calls its ends job-bookmark-from and job-bookmark-to.

Each end means all input that was processed up to the last successful run before and including the named run.
The input of "from" is left out, and that of "to" is the last that is read.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from scripts.helpers.errors import (
    ArchivedObjectError,
    CursorError,
    InvalidValueError,
    NothingThereError,
    SourceError,
    UnknownJobError,
)
from scripts.helpers.job import IncrementalJob
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.watermarks import Watermarks
from tests.jobs.world import ID, JOB, Taken, World, taken
from tests.support.clock import Clock
from tests.support.listed_rows import ListedRows
from tests.support.reasons import because
from tests.support.steps import KilledError

RUNS = ["jr_c", "jr_a", "jr_d", "jr_b"]
"""Ids of four runs in the order in which they ran. The ids themselves do not sort in this order."""


def between(world: World, from_run: str, to_run: str, **options: Any) -> Taken:
    """Read a range of runs again."""
    return world.run("jr_again", mode="pause", from_run=from_run, to_run=to_run, **options)


@pytest.fixture
def ran(world: World) -> World:
    """Return a job that ran four times."""
    for run_id in RUNS:
        world.grow()
        world.run(run_id)
    return world


# --- (from, to] ---------------------------------------------------------------------------------------


def test_range_excludes_from_and_includes_to_when_all_runs_succeeded(ran: World) -> None:
    pairs = [(first, last) for last in range(4) for first in range(last + 1)]

    found = {pair: between(ran, *(RUNS[number] for number in pair)) for pair in pairs}

    assert found == {(first, last): taken(*range(first + 2, last + 2)) for first, last in pairs}


def test_range_is_refused_when_it_ends_before_it_starts(ran: World) -> None:
    with pytest.raises(InvalidValueError) as caught:
        between(ran, "jr_b", "jr_a")

    assert str(caught.value) == (
        "Run 'jr_a' of job 'parking' stands for version 2 and run 'jr_b' for version 4: the range ends before it "
        "starts. Exchange the two."
    )


def test_range_leaves_out_what_came_after_its_last_run_when_there_is_more(ran: World) -> None:
    ran.grow()

    assert between(ran, "jr_c", "jr_b") == taken(2, 3, 4)


def test_nothing_is_saved_and_the_next_run_goes_on_when_a_range_was_read(ran: World) -> None:
    before = ran.watermarks.history(JOB)
    between(ran, "jr_c", "jr_d")
    ran.grow()

    after = ran.watermarks.history(JOB)
    assert [entry.version for entry in after] == [entry.version for entry in before]
    assert ran.run("jr_e") == taken(5)


def test_range_is_that_of_the_job_arguments_when_they_name_one(ran: World) -> None:
    args = {
        "JOB_NAME": JOB,
        "job_bookmark_option": "job-bookmark-pause",
        "job_bookmark_from": "jr_c",
        "job_bookmark_to": "jr_d",
    }

    with IncrementalJob.from_args(args, ran.watermarks) as job:
        assert ran.take(job) == taken(2, 3)


def test_run_stands_for_its_last_batch_when_it_committed_several(world: World) -> None:
    for run_id in ("jr_1", "jr_2", "jr_2", "jr_3"):
        world.grow()
        world.run(run_id)

    assert between(world, "jr_1", "jr_2") == taken(2, 3)
    assert between(world, "jr_2", "jr_3") == taken(4)


# --- runs that never committed ------------------------------------------------------------------------


def test_failed_run_stands_for_the_last_success_before_it_when_its_start_is_known(world: World) -> None:
    world.grow()
    world.run("jr_1")
    world.grow()
    world.clock.move(minutes=10)
    with pytest.raises(KilledError), IncrementalJob(world.watermarks, JOB, "jr_failed", clock=world.clock) as job:
        world.take(job)
        raise KilledError
    runs = [{"Id": "jr_failed", "StartedOn": world.clock.now}, {"Id": "jr_1", "StartedOn": None}]
    world.run("jr_2")
    world.grow()
    world.run("jr_3")

    assert between(world, "jr_failed", "jr_3", job_runs=runs) == taken(2, 3)
    assert between(world, "jr_1", "jr_failed", job_runs=runs) == taken()


def test_run_at_work_stands_for_the_last_success_before_it_when_it_has_not_committed(ran: World) -> None:
    ran.grow()

    with IncrementalJob(ran.watermarks, JOB, "jr_live", lease=timedelta(days=1)):
        assert between(ran, "jr_d", "jr_live") == taken(4)


def test_first_failed_run_stands_for_nothing_when_no_success_came_before_it(ran: World) -> None:
    runs = [{"Id": "jr_failed", "StartedOn": datetime(2020, 1, 1, tzinfo=timezone.utc)}]

    assert between(ran, "jr_failed", "jr_a", job_runs=runs) == taken(1, 2)
    assert between(ran, "jr_failed", "jr_failed", job_runs=runs) == taken()


@pytest.mark.parametrize(
    ("started", "kind"),
    [("2026-03-16T15:45:00Z", "str"), (datetime(2026, 3, 16), "datetime without zone"), (1773675900, "int")],
    ids=["text", "naive", "number"],
)
def test_range_is_refused_when_a_start_is_no_aware_datetime(ran: World, started: Any, kind: str) -> None:
    runs = [{"Id": "jr_failed", "StartedOn": started}]

    with pytest.raises(InvalidValueError) as caught:
        between(ran, "jr_failed", "jr_b", job_runs=runs)

    assert str(caught.value) == (
        f"job_runs: StartedOn of run 'jr_failed' of job 'parking' is a {kind}. Give an aware datetime, as get_job_runs "
        "returns."
    )


def test_range_is_refused_when_one_of_its_runs_is_unknown(ran: World) -> None:
    with pytest.raises(NothingThereError, check=because("unplaced_run")) as caught:
        between(ran, "jr_c", "jr_404")

    assert (caught.value.job_id, caught.value.run_id) == (JOB, "jr_404")
    assert "Run 'jr_404' of job 'parking' never committed" in str(caught.value)
    assert ran.watermarks.latest(JOB).claim is None


def test_range_is_refused_when_the_history_of_its_runs_has_expired(ran: World) -> None:
    runs = [{"Id": "jr_failed", "StartedOn": datetime(2020, 1, 1, tzinfo=timezone.utc)}]
    for key in (f"!c#{1:019d}", "jr_c"):
        ran.watermarks.store.delete(JOB, key)

    for run_id in ("jr_c", "jr_failed"):
        with pytest.raises(
            NothingThereError, check=because("unplaced_run"), match="or the history of that time has expired"
        ):
            between(ran, run_id, "jr_b", job_runs=runs)


def test_range_is_refused_when_the_job_is_unknown(world: World) -> None:
    with pytest.raises(UnknownJobError):
        between(world, "jr_1", "jr_2")


# --- contexts that come and go, rewinds and resets ----------------------------------------------------


def test_context_starts_at_the_beginning_when_it_was_not_there_at_from(world: World) -> None:
    with IncrementalJob(world.watermarks, JOB, "jr_1") as job:
        job.rows_since(ListedRows((ID,)), "id", transformation_ctx="other")
    for run_id in ("jr_2", "jr_3"):
        world.grow()
        world.run(run_id)

    assert between(world, "jr_1", "jr_3") == taken(1, 2)


def test_context_starts_at_start_from_when_its_first_run_had_one(world: World) -> None:
    def run(run_id: str, **options: Any) -> list[Any]:
        with IncrementalJob(world.watermarks, JOB, run_id, **options) as job:
            job.rows_since(ListedRows((ID,)), "id", transformation_ctx="other")
            if run_id == "jr_1":
                return []
            found: list[Any] = job.rows_since(world.rows, "id", transformation_ctx="rows", start_from=3)
            return found

    world.rows.listed = [(1,), (3,), (4,)]
    run("jr_1")
    run("jr_2")

    assert run("jr_again", mode="pause", from_run="jr_1", to_run="jr_2") == [(3,), (4,)]


def test_context_takes_nothing_when_no_run_up_to_the_end_had_it(ran: World) -> None:
    with IncrementalJob(ran.watermarks, JOB, mode="pause", from_run="jr_c", to_run="jr_b") as job:
        rows = job.rows_since(ran.rows, "id", transformation_ctx="new rows")
        files = job.new_files(str(ran.landing), transformation_ctx="new files")
        assert (rows, files.count) == ([], 0)


def test_range_follows_the_history_when_a_rewind_came_between(ran: World) -> None:
    ran.watermarks.rewind(JOB, to_run="jr_a", why="a column was missing")
    ran.grow()
    ran.run("jr_e")

    assert between(ran, "jr_a", "jr_e") == taken(3, 4, 5)
    assert between(ran, "jr_b", "jr_e") == taken(5)
    assert between(ran, "jr_c", "jr_d") == taken(2, 3)


def test_range_is_that_of_the_commit_when_one_context_was_rewound_or_set_after_it(ran: World) -> None:
    ran.watermarks.rewind(JOB, to_version=1, transformation_ctx="rows", why="a column was missing")

    assert between(ran, "jr_a", "jr_b") == taken(3, 4)


def test_range_has_no_rows_when_the_job_was_reset_and_has_not_reached_it_again(ran: World) -> None:
    ran.watermarks.reset(JOB, why="start again")
    del ran.rows.listed[2:]
    ran.run("jr_e")

    rows, files = between(ran, "jr_a", "jr_e")

    assert (rows, files) == ([], ["3.json", "4.json"])


# --- rows ---------------------------------------------------------------------------------------------


def test_range_includes_rows_of_a_lookback_when_the_caller_gives_one(world: World) -> None:
    merge: dict[str, Any] = {"write_disposition": "merge", "lookback": 1}

    def run(run_id: str, **options: Any) -> list[Any]:
        with IncrementalJob(world.watermarks, JOB, run_id, **options) as job:
            found: list[Any] = job.rows_since(world.rows, "id", **merge)
            return found

    for number in (1, 5, 9):
        world.rows.listed.append((number,))
        run(f"jr_{number}")

    run("jr_10")

    assert run("jr_again", mode="pause", from_run="jr_5", to_run="jr_9") == [(5,), (9,)]
    assert run("jr_again", mode="pause", from_run="jr_9", to_run="jr_10") == [(9,)]
    assert run("jr_again", mode="pause", from_run="jr_9", to_run="jr_9") == []


@pytest.mark.parametrize(
    ("column", "options", "error", "text"),
    [
        (CursorColumn("id", "int"), {}, CursorError, "its type was bigint"),
        (CursorColumn("key", "bigint"), {}, SourceError, "context 'rows' remembers 'id'"),
        (ID, {"lookback": 3}, CursorError, "say write_disposition='merge'"),
        (ID, {"nulls": "ignore"}, InvalidValueError, "'ignore' is unknown"),
        (ID, {"high": 3}, CursorError, "high= is given, but a range of runs ends where they did. Leave it out"),
        (ID, {"settled": True}, CursorError, "settled= is given, but a range of runs ends where they did."),
    ],
    ids=["type", "column", "sink", "option", "high", "settled"],
)
def test_range_of_rows_is_refused_when_the_column_or_an_option_differs(
    ran: World, column: CursorColumn, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with (
        pytest.raises(error, match=text),
        IncrementalJob(ran.watermarks, JOB, mode="pause", from_run="jr_c", to_run="jr_b") as job,
    ):
        job.rows_since(ListedRows((column,)), column.name, transformation_ctx="rows", **options)


@pytest.mark.parametrize(
    ("options", "rows"),
    [({"nulls": "skip"}, [(2,), (3,)]), ({"nulls": "take", "write_disposition": "merge"}, [(2,), (3,), (None,)])],
    ids=["skip", "take"],
)
def test_rows_without_cursor_follow_the_nulls_option_when_a_range_is_read(
    ran: World, options: dict[str, Any], rows: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    ran.rows.listed.append((None,))

    with IncrementalJob(ran.watermarks, JOB, mode="pause", from_run="jr_c", to_run="jr_d") as job:
        found = job.rows_since(ran.rows, "id", transformation_ctx="rows", **options)

    assert found == rows
    assert ("event=nulls_excluded context=rows column=id rows=1" in caplog.text) == (options["nulls"] == "skip")


def test_rows_without_cursor_are_an_error_that_counts_them_when_a_range_is_read(ran: World) -> None:
    ran.rows.listed += [(None,), (None,)]

    with pytest.raises(CursorError, match="2 rows have NULL there"):
        between(ran, "jr_c", "jr_d")


def test_dataframe_is_read_within_the_range_when_its_rows_were_updated_since(
    watermarks: Watermarks, clock: Clock, spark: Any
) -> None:
    noon = datetime(2026, 10, 25, 0, 30, tzinfo=timezone.utc)
    clock.now = noon + timedelta(days=2)

    def run(run_id: str, *minutes: int, **options: Any) -> list[Any]:
        stamps = ", ".join(f"(timestamp'{noon + timedelta(minutes=count)}', {count})" for count in minutes)
        df = spark.sql(f"SELECT * FROM VALUES {stamps} AS t(at, minutes)")
        with IncrementalJob(watermarks, JOB, run_id, clock=clock, **options) as job:
            return sorted(row.minutes for row in job.rows_since(df, "at").collect())

    for count in range(1, 5):
        assert run(f"jr_{count}", *range(0, count * 30, 30)) == [count * 30 - 30]

    again = run("jr_again", 0, 30, 60, 61, 200, mode="pause", from_run="jr_1", to_run="jr_3")

    assert again == [30, 60]


# --- files --------------------------------------------------------------------------------------------


def test_range_leaves_out_files_when_they_were_overwritten_or_deleted_since(ran: World) -> None:
    ran.put("2.json", '{"changed": 1}')
    (ran.landing / "3.json").unlink()

    assert between(ran, "jr_c", "jr_b")[1] == ["4.json"]


def test_file_is_in_the_range_of_its_present_version_when_it_was_taken_twice(ran: World) -> None:
    ran.put("1.json", '{"changed": 1}')
    ran.run("jr_e")

    assert between(ran, "jr_c", "jr_b")[1] == ["2.json", "3.json", "4.json"]
    assert between(ran, "jr_b", "jr_e")[1] == ["1.json"]


def test_file_is_in_no_range_when_its_change_was_skipped(ran: World) -> None:
    ran.options = {"on_modified": "skip"}
    ran.put("1.json", '{"changed": 1}')
    ran.run("jr_e")

    assert between(ran, "jr_b", "jr_e")[1] == []


def test_range_has_all_its_files_when_options_would_limit_a_batch(ran: World) -> None:
    ran.options = {"max_files": 1, "delay": timedelta(hours=1), "ready_marker": "_SUCCESS"}

    assert between(ran, "jr_c", "jr_b")[1] == ["2.json", "3.json", "4.json"]


def test_archived_object_is_no_error_when_it_came_after_the_range(watermarks: Watermarks, s3: Any, bucket: str) -> None:
    def run(run_id: str, **options: Any) -> list[str]:
        with IncrementalJob(watermarks, JOB, run_id, s3_client=s3, **options) as job:
            return [file.key for file in job.new_files(f"s3://{bucket}/landing/").files]

    for number in (1, 2, 3):
        s3.put_object(Bucket=bucket, Key=f"landing/{number}.json", Body=b"{}")
        run(f"jr_{number}")
    s3.put_object(Bucket=bucket, Key="landing/4.json", Body=b"{}", StorageClass="GLACIER")

    assert run("jr_again", mode="pause", from_run="jr_1", to_run="jr_3") == ["2.json", "3.json"]
    with pytest.raises(ArchivedObjectError):
        run("jr_again", mode="pause")


@pytest.mark.parametrize("on_spark", [False, True], ids=["driver", "executors"])
def test_range_is_the_same_when_the_ledger_is_in_files_and_executors_list(
    watermarks: Watermarks,
    s3: Any,
    bucket: str,
    spark: Any,
    endpoint: str,
    monkeypatch: pytest.MonkeyPatch,
    on_spark: bool,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    ledger = f"s3://{bucket}/ledger/"

    def run(run_id: str, **options: Any) -> list[str]:
        with IncrementalJob(watermarks, JOB, run_id, spark=spark, s3_client=s3, **options) as job:
            if on_spark:
                files = job.new_files_on_spark(f"s3://{bucket}/landing/", ledger_uri=ledger).files
                return sorted(row.key for row in files.collect())
            return [file.key for file in job.new_files(f"s3://{bucket}/landing/", ledger_uri=ledger).files]

    for number in (1, 2, 3):
        s3.put_object(Bucket=bucket, Key=f"landing/{number}.json", Body=b"{}")
        run(f"jr_{number}")
    s3.put_object(Bucket=bucket, Key="landing/4.json", Body=b"{}")

    assert run("jr_again", mode="pause", from_run="jr_1", to_run="jr_2") == ["2.json"]
    assert run("jr_again", mode="pause") == ["4.json"]
