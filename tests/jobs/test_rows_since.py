"""`rows_since` inside a job: options, kinds of sources, replays, and the line it logs for a plan."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from scripts.helpers.errors import CursorError, InvalidValueError, SourceError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.fields import ImplausibleError
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.rows.options import check_rows_plan
from scripts.helpers.watermarks import Watermarks
from tests.support.listed_rows import ListedRows
from tests.support.reasons import behind

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=timezone.utc)
AT, ID = CursorColumn("at", "timestamp"), CursorColumn("id", "bigint")


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def run(watermarks: Watermarks, source: Any, column: Any = "at", *, die: bool = False, **options: Any) -> list[Any]:
    """Run the job once over one source; return what it took. `die` kills the run after it froze the plan."""
    with IncrementalJob(watermarks, "repairs", clock=lambda: NOW) as job:
        taken = job.rows_since(source, column, transformation_ctx="public", **options)
        job.freeze()
        if die:
            raise ZeroDivisionError
        found: list[Any] = taken if isinstance(taken, list) else sorted(tuple(row) for row in taken.collect())
        return found


def state(watermarks: Watermarks) -> Any:
    return watermarks.latest("repairs").watermarks


def test_rows_are_taken_once_when_the_source_is_a_class_of_the_user(watermarks: Watermarks) -> None:
    source = ListedRows((AT,), [(ago(60),), (ago(1),)], NOW)
    first = run(watermarks, source)
    source.now = NOW + timedelta(hours=1)

    assert (first, run(watermarks, source), run(watermarks, source)) == ([(ago(60),)], [(ago(1),)], [])


def test_same_rows_come_again_when_the_run_died_after_rows_were_added(watermarks: Watermarks) -> None:
    source = ListedRows((AT, ID), [(ago(60), 1), (ago(60), 3)], NOW)
    with pytest.raises(ZeroDivisionError):
        run(watermarks, source, ["at", "id"], die=True)
    source.listed += [(ago(60), 2), (ago(50), 1)]

    replay, after = run(watermarks, source, ["at", "id"]), run(watermarks, source, ["at", "id"])

    assert replay == [(ago(60), 1), (ago(60), 3), (ago(60), 2)]
    assert after == [(ago(50), 1)]


def test_overlap_is_kept_in_the_plan_when_a_replay_has_other_options(watermarks: Watermarks) -> None:
    source = ListedRows((ID,), [(1,), (5,)])
    merge: dict[str, Any] = {"write_disposition": "merge", "lookback": 2}
    run(watermarks, source, "id", **merge)
    source.listed.append((9,))
    with pytest.raises(ZeroDivisionError):
        run(watermarks, source, "id", die=True, **merge)

    assert run(watermarks, source, "id", write_disposition="merge") == [(5,), (9,)]


@pytest.mark.parametrize(
    ("options", "why"),
    [({"lookback": 2}, "lookback=2"), ({"nulls": "take"}, "nulls='take'")],
    ids=["lookback", "nulls"],
)
def test_replay_is_refused_when_its_sink_appends_what_the_plan_reads_again(
    watermarks: Watermarks, options: dict[str, Any], why: str
) -> None:
    source = ListedRows((ID,), [(1,), (5,)])
    merge = options | {"write_disposition": "merge"}
    run(watermarks, source, "id", **merge)
    with pytest.raises(ZeroDivisionError):
        run(watermarks, source, "id", die=True, **merge)
    before = watermarks.latest("repairs")

    with pytest.raises(CursorError) as caught:
        run(watermarks, source, "id")

    assert f"{why} reads rows again" in str(caught.value)
    assert "discard the plan" in str(caught.value)
    assert (watermarks.latest("repairs").plan, state(watermarks)) == (before.plan, before.watermarks)
    run(watermarks, source, "id", **merge)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"nulls": "ignore"}, InvalidValueError, "'ignore' is unknown"),
        ({"delay": 300}, CursorError, "delay=300 is not a duration"),
        ({"lookback": 3}, CursorError, "say write_disposition='merge', or leave the option out"),
        ({"unknown": 3}, InvalidValueError, "unknown"),
    ],
    ids=str,
)
def test_replay_is_refused_when_an_option_is_invalid(
    watermarks: Watermarks, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    source = ListedRows((ID,), [(1,), (5,)])
    with pytest.raises(ZeroDivisionError):
        run(watermarks, source, "id", die=True)

    with pytest.raises(error, match=text):
        run(watermarks, source, "id", **options)

    assert run(watermarks, source, "id") == [(1,), (5,)]


def test_lookback_goes_no_further_than_the_start_from_when_runs_follow_each_other(watermarks: Watermarks) -> None:
    source = ListedRows((ID,), [(1,), (5,)])
    options: dict[str, Any] = {"lookback": 9, "write_disposition": "merge", "start_from": 5}
    taken = [run(watermarks, source, "id", **options)]
    source.listed.append((9,))

    taken += [run(watermarks, source, "id", **options) for _ in range(2)]

    assert taken == [[(5,)], [(5,), (9,)], [(5,), (9,)]]


def test_watermark_is_stored_without_the_lookback_when_there_is_one(watermarks: Watermarks) -> None:
    source = ListedRows((ID,), [(1,), (5,)])
    for _ in range(2):
        run(watermarks, source, "id", write_disposition="merge", lookback=3)

    assert state(watermarks)["public"]["value"] == 6


def test_line_of_the_plan_says_all_options_and_no_value_when_rows_are_planned(
    watermarks: Watermarks, caplog: Any
) -> None:
    caplog.set_level(logging.INFO, logger="scripts.helpers.batch")
    source = ListedRows((ID, CursorColumn("part", "int")), [(777123, 1)])

    run(watermarks, source, ["id", "part"], write_disposition="merge")
    run(
        watermarks,
        source,
        ["id", "part"],
        write_disposition="merge",
        lookback=2,
        nulls="skip",
        delay=timedelta(minutes=1),
    )

    first, second = (line for line in caplog.messages if "event=planned" in line)
    assert first == (
        "event=planned job=repairs context=public kind=rows replay=False column=id,part first_run=True "
        "empty=False has_more=False lookback=None nulls=raise descending=False delay=0:05:00 write_disposition=merge "
        "high=no start_from=no settled=no strings=no"
    )
    assert second.endswith(
        "lookback=2 nulls=skip descending=False delay=0:01:00 write_disposition=merge high=no start_from=no "
        "settled=no strings=no"
    )
    assert "777123" not in caplog.text


def test_line_of_the_plan_says_the_plans_options_when_it_is_replayed(watermarks: Watermarks, caplog: Any) -> None:
    caplog.set_level(logging.INFO, logger="scripts.helpers.batch")
    source = ListedRows((ID,), [(777123,)])
    options = {"high": 777124, "start_from": 777000, "strings": True, "delay": timedelta(hours=1)}
    with pytest.raises(ZeroDivisionError):
        run(watermarks, source, "id", die=True, **options)

    run(watermarks, source, "id", write_disposition="merge")

    first, replay = (line for line in caplog.messages if "event=planned" in line)
    assert replay == first.replace("replay=False", "replay=True")
    assert "delay=1:00:00 write_disposition=append high=yes start_from=yes settled=no strings=yes" in replay
    assert "777" not in first


@pytest.mark.parametrize("kept", [7, "", "delay=0\nevent=planned", "x" * 300], ids=["number", "none", "line", "long"])
def test_plan_is_refused_when_its_options_were_tampered_with(kept: object) -> None:
    plan = {"kind": "rows", "cursor_column": "id", "type": "bigint", "low": 1, "high": 2, "options": kept}

    with pytest.raises(ImplausibleError, match=r"^plan.contexts.rows.options is not words of options$"):
        check_rows_plan(plan, "plan.contexts.rows")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"lookback": 3}, CursorError),
        ({"high": 1}, CursorError),
        ({"delay": -timedelta(1)}, CursorError),
        ({"unknown": 3}, InvalidValueError),
    ],
    ids=str,
)
def test_nothing_is_stored_when_an_option_is_refused(
    watermarks: Watermarks, options: dict[str, Any], error: type[Exception]
) -> None:
    source = ListedRows((ID,), [(1,), (5,)])
    run(watermarks, source, "id")
    before = state(watermarks)
    source.listed.append((9,))

    with pytest.raises(error):
        run(watermarks, source, "id", **options)

    assert state(watermarks) == before
    assert run(watermarks, source, "id") == [(9,)]


def test_watermark_stays_and_rows_come_later_when_the_sources_clock_went_back(watermarks: Watermarks) -> None:
    source = ListedRows((AT,), [(ago(60),)], NOW)
    run(watermarks, source)
    before = state(watermarks)
    source.listed.append((ago(50),))
    source.now = ago(500)

    with pytest.raises(SourceError, check=behind) as caught:
        run(watermarks, source)

    assert (caught.value.source, caught.value.what) == ("public.repairs", "clock")
    assert state(watermarks) == before
    source.now = NOW
    assert run(watermarks, source) == [(ago(50),)]


@pytest.mark.parametrize(
    ("options", "first", "second"),
    [({"delay": timedelta(hours=3)}, [1], [2, 3]), ({}, [1, 2], [])],
    ids=["delay of the landing lag", "default"],
)
def test_rows_of_a_file_that_lands_late_are_taken_when_the_delay_is_the_lag_of_the_lake(
    spark: Any, watermarks: Watermarks, tmp_path: Path, options: Any, first: list[int], second: list[int]
) -> None:
    """With the default delay they are lost, as the README says; `job.verify` finds them if it is called."""
    lake = tmp_path / "lake"

    def land(number: int, minutes: float) -> None:
        frame = pd.DataFrame({"id": [number], "at": pd.to_datetime([ago(minutes)]).as_unit("us")})
        frame.to_parquet(lake / f"{number}.parquet")

    def take(now: datetime) -> list[int]:
        with IncrementalJob(watermarks, "repairs", spark=spark, clock=lambda: now) as job:
            rows = job.rows_since(spark.read.parquet(str(lake)), "at", transformation_ctx="public", **options)
            job.write(rows, str(tmp_path / "raw"))
            return sorted(row.id for row in rows.collect())

    lake.mkdir()
    land(1, minutes=300)
    land(2, minutes=10)
    before = take(NOW)
    land(3, minutes=130)
    after = take(NOW + timedelta(hours=4))

    assert (before, after) == (first, second)
    job = IncrementalJob(watermarks, "repairs", spark=spark)
    verified = job.verify(
        spark.read.parquet(str(lake)), str(tmp_path / "raw"), transformation_ctx="public", everything=True
    )
    assert verified.is_equal == (3 in after)
