"""Windows over a scripted source: options, clocks, ceilings, NULLs, stored states, and log lines."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
import pytest

from scripts.helpers.errors import CursorError, InvalidValueError, SourceError
from scripts.helpers.protocol.values import ImplausibleError
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.rows.memory import PandasRows
from scripts.helpers.rows.options import RowOptions
from scripts.helpers.rows.plan import plan_window, window_between
from scripts.helpers.rows.window import RowWindow
from tests.support.listed_rows import ListedRows
from tests.support.reasons import because, behind
from tests.support.row_windows import plan_after, replayed

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
AT, ID, DAY = CursorColumn("at", "timestamp"), CursorColumn("id", "bigint"), CursorColumn("day", "date")
PRICE, KEY = CursorColumn("price", "decimal(10,2)"), CursorColumn("key", "string")


def ago(minutes: float) -> datetime:
    return NOW - minutes * MINUTE


def source_of(column: CursorColumn, *values: Any, now: datetime | None = NOW, **options: Any) -> ListedRows:
    return ListedRows((column,), [(value,) for value in values], now, **options)


def plan(source: ListedRows, before: RowWindow | None = None, **options: Any) -> RowWindow:
    return plan_after(before, source, [column.name for column in source.cursors], **({"now": NOW} | options))


def refused(source: ListedRows, before: RowWindow | None = None, **options: Any) -> str:
    """Return the text of the CursorError that planning raises."""
    with pytest.raises(CursorError) as caught:
        plan(source, before, **options)
    assert caught.value.column == source.cursors[0].name
    return str(caught.value)


# --- the upper bound ----------------------------------------------------------------------------------


def test_high_is_just_above_the_largest_when_that_is_older_than_the_delay() -> None:
    window = plan(source_of(AT, ago(60), ago(30)), delay=5 * MINUTE)

    assert window.high == (ago(30) + timedelta(microseconds=1),)


def test_high_is_the_clock_less_the_delay_when_rows_are_younger() -> None:
    assert plan(source_of(AT, ago(60), ago(1)), delay=5 * MINUTE).high == (ago(5),)


def test_high_is_five_minutes_before_the_clock_when_no_delay_is_given() -> None:
    assert plan(source_of(AT, ago(60), ago(1))).high == (ago(5),)


def test_clock_of_the_source_counts_when_the_jobs_clock_is_wrong() -> None:
    source = source_of(AT, ago(60), ago(1))

    assert [plan(source, now=NOW + skew).high for skew in (timedelta(days=-9), timedelta(days=9))] == [(ago(5),)] * 2


def test_jobs_clock_counts_when_the_source_has_none() -> None:
    assert plan(source_of(AT, ago(60), ago(1), now=None)).high == (ago(5),)


def test_row_of_a_lagging_replica_is_taken_later_when_the_clock_is_ahead_of_its_data() -> None:
    source = source_of(AT, ago(120))
    first = plan(source)
    source.listed.append((ago(60),))

    second = plan(source, first)

    assert source.rows(second) == [(ago(60),)]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (CursorColumn("at", "timestamp", timedelta(seconds=1)), datetime(2026, 11, 1, 11, 59, 59, tzinfo=timezone.utc)),
        (CursorColumn("at", "timestamp", MINUTE), datetime(2026, 11, 1, 11, 59, tzinfo=timezone.utc)),
        (CursorColumn("at", "timestamp"), datetime(2026, 11, 1, 11, 59, 59, 500_000, tzinfo=timezone.utc)),
    ],
    ids=["seconds", "minutes", "microseconds"],
)
def test_clock_is_rounded_down_when_the_column_is_coarser(column: CursorColumn, expected: datetime) -> None:
    source = source_of(column, NOW, now=NOW - timedelta(milliseconds=500))

    assert plan(source, delay=timedelta(0)).high == (expected,)


def test_high_is_no_later_than_the_clock_when_stamps_are_finer_than_the_source_says() -> None:
    column = CursorColumn("at", "timestamp", timedelta(seconds=1))
    source = source_of(column, NOW - timedelta(milliseconds=500), now=NOW + timedelta(milliseconds=200))

    assert plan(source, delay=timedelta(0)).high == (NOW,)


@pytest.mark.parametrize(("hours", "day"), [(11, date(2026, 11, 1)), (13, date(2026, 10, 31))])
def test_day_is_left_for_later_when_it_has_not_ended_less_the_delay(hours: int, day: date) -> None:
    source = source_of(DAY, date(2026, 10, 30), date(2026, 11, 1))

    assert plan(source, delay=timedelta(hours=hours)).high == (day,)


@pytest.mark.parametrize(
    ("column", "high"),
    [(DAY, date(2026, 10, 31)), (CursorColumn("at", "timestamp_ntz"), datetime(2026, 10, 31, 23, tzinfo=timezone.utc))],
    ids=["date", "timestamp_ntz"],
)
def test_wall_clock_of_the_source_counts_when_the_column_has_no_zone(column: CursorColumn, high: Any) -> None:
    """At 07:00 UTC it is 23:00 of the day before in the source's time zone."""
    there = timezone(timedelta(hours=-8))
    source = source_of(column, date(2026, 11, 3) if column is DAY else NOW, now=NOW.replace(hour=7).astimezone(there))

    assert plan(source, delay=timedelta(0)).high == (high,)


def test_clock_caps_the_first_column_when_the_cursor_is_compound() -> None:
    source = ListedRows((AT, ID), [(ago(60), 7), (ago(1), 3)], NOW)

    first = plan(source)
    source.listed.append((ago(5), 1))
    source.now = NOW + 60 * MINUTE
    second = plan(source, first)

    assert (first.high, second.high) == ((ago(5), None), (ago(1), 4))
    assert source.rows(second) == [(ago(1), 3), (ago(5), 1)]


def test_first_column_steps_on_when_the_second_is_at_its_end() -> None:
    source = ListedRows((ID, DAY), [(1, date(2026, 10, 1)), (1, date.max)], NOW)
    first = plan(source)
    source.listed.append((2, date.min))

    assert first.high == (2, None)
    assert [source.rows(window) for window in (first, plan(source, first))] == [source.listed[:2], source.listed[2:]]


def test_ceiling_is_the_bound_when_the_source_knows_one() -> None:
    source = source_of(ID, 3, 9, ceiling=5)

    first = plan(source)
    source.ceiling = 12
    second = plan(source, first)

    assert [source.rows(window) for window in (first, second)] == [[(3,)], [(9,)]]


def test_watermark_moves_to_the_ceiling_when_there_is_no_row() -> None:
    assert plan(source_of(ID, ceiling=5)).state_after["value"] == 5


# --- given bounds ---------------------------------------------------------------------------------------


def test_high_is_as_given_when_one_is() -> None:
    source = source_of(ID, 3, 9, 20)
    first = plan(source, high=9)

    assert (first.high, source.rows(first)) == ((9,), [(3,)])
    assert source.rows(plan(source, first)) == [(9,), (20,)]


def test_rows_start_at_the_start_from_when_it_is_the_first_run() -> None:
    source = source_of(ID, 3, 9)
    first = plan(source, start_from=9)
    source.listed.append((4,))

    assert source.rows(first) == [(9,)]
    assert plan(source, first, start_from=1).is_empty


def test_start_from_is_kept_when_the_first_run_finds_no_row() -> None:
    source = source_of(ID)
    first = plan(source, start_from=5)
    source.listed += [(4,), (5,)]

    assert source.rows(plan(source, first)) == [(5,)]


def test_given_bounds_may_name_the_first_column_only_when_the_cursor_is_compound() -> None:
    source = ListedRows((AT, ID), [(ago(9), 1), (ago(8), 0), (ago(7), 9)], NOW)

    window = plan(source, start_from=ago(8), high=(ago(7), 9))

    assert (window.low, window.high) == ((ago(8), None), (ago(7), 9))
    assert source.rows(window) == [(ago(8), 0)]


def test_plan_is_refused_when_high_is_before_the_watermark() -> None:
    source = source_of(ID, 3, 9)

    assert "high is before the watermark, which never moves back. Leave it out, or rewind the job." in refused(
        source, plan(source), high=9
    )


def test_plan_is_refused_when_high_is_before_the_start_from() -> None:
    assert "high is before the watermark" in refused(source_of(ID, 3), start_from=5, high=4)


@pytest.mark.parametrize("what", ["high", "start_from"])
def test_plan_is_refused_when_a_given_time_has_not_come_yet(what: str) -> None:
    given: dict[str, Any] = {what: NOW + MINUTE}

    text = refused(source_of(AT, ago(9)), **given)

    assert f"{what} is past the source's clock, and rows that come until then would be lost." in text


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        (AT, datetime(2026, 1, 1), "high is a datetime without zone. Give an aware one."),
        (AT, "2026-01-01", "high is a str that does not fit a timestamp. Give one that does."),
        (AT, date(2026, 1, 1), "high is a date that does not fit a timestamp."),
        (DAY, NOW, "high is a datetime that does not fit a date."),
        (ID, True, "high is a bool that does not fit a bigint."),
        (ID, 1.5, "high is a float that does not fit a bigint."),
        (PRICE, Decimal("0.001"), "high is a Decimal that does not fit a decimal(10,2)."),
        (ID, (1, 2), "high has 2 values for 1 columns. Give one each."),
        (ID, (), "high has 0 values for 1 columns."),
    ],
    ids=str,
)
def test_plan_is_refused_when_a_given_value_does_not_fit_the_column(
    column: CursorColumn, value: Any, text: str
) -> None:
    assert text in refused(source_of(column), high=value)


def test_first_column_is_named_when_a_compound_value_has_one_too_many() -> None:
    text = refused(ListedRows((AT, ID), [], NOW), high=(ago(9), 1, 2))

    assert text.startswith(refused(source_of(AT), high=()).partition("high")[0])
    assert "high has 3 values for 2 columns. Give one each." in text


@pytest.mark.parametrize(
    ("column", "given", "kept"),
    [
        (PRICE, 3, Decimal(3)),
        (AT, NOW.replace(hour=10).astimezone(timezone(timedelta(hours=5))), NOW.replace(hour=10)),
        (CursorColumn("at", "timestamp_ntz"), datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=timezone.utc)),
    ],
    ids=["int for a decimal", "other zone", "wall clock"],
)
def test_given_value_is_taken_as_the_column_holds_it_when_it_is_written_otherwise(
    column: CursorColumn, given: Any, kept: Any
) -> None:
    source = source_of(column, *([Decimal("2.99")] if column is PRICE else []))

    (high,) = plan(source, high=given).high or ()

    assert (high, type(high)) == (kept, type(kept))


@pytest.mark.parametrize(
    ("column", "values", "last", "options"),
    [
        (ID, [3, 9], 10, {}),
        (PRICE, [Decimal(3)], Decimal("3.01"), {}),
        (KEY, ["a", "b"], "b\x01", {}),
        (ID, [-3], -4, {"descending": True}),
    ],
    ids=["bigint", "decimal", "string", "descending"],
)
def test_plan_is_refused_when_high_is_past_the_last_row(
    column: CursorColumn, values: list[Any], last: Any, options: dict[str, Any]
) -> None:
    source = source_of(column, *values)
    past = column.next_below(last) if options else column.next_above(last)

    window = plan(source, high=last, **options)

    assert source.rows(window) == source.listed
    for before in (None, window):
        text = refused(source, before, high=past, **options)
        assert "high is past one step past the last row, and rows that come below it later would be lost." in text
        assert "Leave it out, or give one that is not." in text


def test_plan_is_refused_when_there_is_no_row_below_a_high_that_is_given() -> None:
    assert "high is past one step past the last row" in refused(source_of(ID), high=1)


def test_high_may_be_past_the_last_row_when_it_is_settled() -> None:
    source = source_of(ID, 3)

    assert plan(source, high=9, settled=True).state_after["value"] == 9


@pytest.mark.parametrize("settled", [False, True])
def test_plan_is_refused_when_high_is_past_the_ceiling(settled: bool) -> None:
    """Id 6 may still be committed."""
    source = source_of(ID, 3, 8, ceiling=5)

    assert "high is past its ceiling, and rows that come below it later would be lost." in refused(
        source, high=9, settled=settled
    )
    assert [plan(source, high=high).high for high in (4, 5)] == [(4,), (5,)]


# --- clocks that are turned ---------------------------------------------------------------------------------

LONDON = ZoneInfo("Europe/London")
WALL = CursorColumn("at", "timestamp_ntz")
HALF = timedelta(minutes=30)


def utc(month: int, day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("column", "now", "delay", "high"),
    [
        (AT, utc(3, 29, 1, 10), HALF, utc(3, 29, 0, 40)),
        (WALL, utc(3, 29, 1, 10), HALF, utc(3, 29, 0, 40)),
        (WALL, utc(3, 29, 1, 40), HALF, utc(3, 29, 2, 10)),
        (DAY, utc(3, 29, 23, 10), HALF, date(2026, 3, 29)),
        (DAY, utc(3, 29, 23, 40), HALF, date(2026, 3, 30)),
        (DAY, utc(3, 29, 23, 10), timedelta(hours=24), date(2026, 3, 28)),
        (AT, utc(10, 25, 1, 10), HALF, utc(10, 25, 0, 40)),
        (WALL, utc(10, 25, 0, 20), HALF, utc(10, 25, 0, 50)),
        (WALL, utc(10, 25, 1, 10), HALF, utc(10, 25, 1, 0)),
        (WALL, utc(10, 25, 1, 50), HALF, utc(10, 25, 1, 20)),
        (WALL, utc(10, 25, 2, 10), HALF, utc(10, 25, 1, 40)),
        (DAY, utc(10, 26, 0, 10), HALF, date(2026, 10, 25)),
    ],
    ids=lambda value: value.type if isinstance(value, CursorColumn) else str(value),
)  # fmt: skip
def test_delay_is_kept_in_full_when_london_changes_its_clocks(
    column: CursorColumn, now: datetime, delay: timedelta, high: Any
) -> None:
    source = source_of(column, date(2026, 12, 1) if column is DAY else utc(12, 1, 0), now=now.astimezone(LONDON))

    assert plan(source, delay=delay).high == (high,)


@pytest.mark.parametrize("change", [utc(3, 29, 1), utc(10, 25, 1)], ids=["spring", "autumn"])
@pytest.mark.parametrize("column", [AT, WALL, DAY], ids=lambda column: column.type)
@pytest.mark.parametrize("delay", [MINUTE, HALF, timedelta(hours=2)], ids=str)
def test_no_row_is_lost_and_no_clock_is_refused_when_london_changes_its_clocks(
    column: CursorColumn, change: datetime, delay: timedelta
) -> None:
    """Each row has a wall-clock stamp and becomes visible exactly one delay later, in whole minutes."""
    source, taken, window, stamps = ListedRows((column,)), 0, None, 0
    for minute in range(-200, 400, 7):
        moment = change + minute * MINUTE
        source.listed.append((column.at((moment - delay).astimezone(LONDON)),))
        source.now, stamps = moment.astimezone(LONDON), stamps + 1
        window = plan(source, window, delay=delay)
        taken += len(source.rows(window))
    assert source.now is not None
    source.now += timedelta(days=3)

    assert taken + len(source.rows(plan(source, window, delay=delay))) == stamps


@pytest.mark.parametrize(
    ("column", "value", "lookback", "wanted"),
    [
        (WALL, utc(3, 29, 2, 5), 10 * MINUTE, 70 * MINUTE),
        (WALL, utc(3, 29, 4, 0), 10 * MINUTE, 10 * MINUTE),
        (WALL, utc(10, 25, 2, 5), 10 * MINUTE, 10 * MINUTE),
        (AT, utc(3, 29, 2, 5), 10 * MINUTE, 10 * MINUTE),
        (DAY, date(2026, 3, 30), timedelta(hours=24), timedelta(hours=25)),
        (DAY, date(1, 1, 1), timedelta(hours=24), timedelta(hours=24)),
    ],
    ids=["spring", "later", "autumn", "with zone", "date", "first day there is"],
)
def test_lookback_covers_the_time_that_passed_when_clocks_were_put_forward_meanwhile(
    column: CursorColumn, value: Any, lookback: timedelta, wanted: timedelta
) -> None:
    source = source_of(column, now=NOW.astimezone(LONDON))
    state = plan(source).state_after | {"value": value}

    window = plan(source, state=state, lookback=lookback, write_disposition="merge")

    assert window.lookback == wanted


@pytest.mark.parametrize("what", ["high", "start_from"])
def test_plan_is_refused_when_a_given_time_is_in_the_hour_that_comes_again(what: str) -> None:
    """It is 01:50 in London, ten minutes before the clocks go back to 01:00."""
    source = source_of(WALL, utc(10, 25, 0), now=utc(10, 25, 0, 50).astimezone(LONDON))
    too_late: dict[str, Any] = {what: datetime(2026, 10, 25, 1, 30)}
    in_time: dict[str, Any] = {what: datetime(2026, 10, 25, 1)}

    assert f"{what} is past the source's clock" in refused(source, **too_late)
    assert plan(source, **in_time).columns == (WALL,)


def test_zone_of_the_source_counts_when_only_the_job_has_a_clock() -> None:
    source = source_of(WALL, NOW, now=None, zone=ZoneInfo("America/Los_Angeles"))

    assert plan(source, delay=timedelta(0)).high == (utc(11, 1, 4),)


# --- clocks that go back, stamps that are ahead ------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value"), [(AT, ago(10)), (CursorColumn("at", "timestamp_ntz"), ago(10)), (DAY, date(2026, 10, 31))]
)
def test_plan_is_refused_when_the_sources_clock_is_behind_the_watermark(column: CursorColumn, value: Any) -> None:
    source = source_of(column, value)
    first = plan(source)
    source.now = NOW - timedelta(days=2)

    with pytest.raises(SourceError, check=behind) as caught:
        plan(source, first)

    assert (caught.value.source, caught.value.context, caught.value.what) == ("public.repairs", "repairs", "clock")
    assert "2026" not in str(caught.value)


def test_watermark_stays_when_the_clock_went_back_by_less_than_the_delay() -> None:
    source = source_of(AT, ago(1))
    first = plan(source, delay=5 * MINUTE)
    source.now = ago(4)

    second = plan(source, first, delay=5 * MINUTE)

    assert (second.is_empty, second.state_after) == (True, first.state_after)


def test_watermark_stays_when_the_delay_grew() -> None:
    source = source_of(AT, ago(1))
    first = plan(source, delay=timedelta(0))

    second = plan(source, first, delay=60 * MINUTE)

    assert (second.is_empty, second.state_after["value"]) == (True, first.state_after["value"])


@pytest.mark.parametrize("options", [{}, {"high": 9}], ids=["no bound", "bound"])
def test_plan_is_refused_when_the_ceiling_is_behind_the_watermark(options: dict[str, Any]) -> None:
    source = source_of(ID, ceiling=9)
    first = plan(source)
    source.ceiling = 8

    with pytest.raises(
        SourceError,
        check=behind,
        match="its ceiling is behind the watermark of context 'repairs'",
    ):
        plan(source, first, **options)


def test_watermark_stays_when_the_largest_row_was_deleted_and_that_is_a_matter_of_course() -> None:
    source = source_of(ID, 3, 9)
    first = plan(source)
    source.listed.pop()

    assert plan(source, first, on_behind="warn").state_after == first.state_after


def test_warning_is_logged_and_the_watermark_is_not_pinned_when_a_stamp_is_in_the_future(caplog: Any) -> None:
    source = source_of(AT, ago(60), NOW + timedelta(days=3000))
    first = plan(source)
    source.listed.append((ago(4),))
    source.now = NOW + 10 * MINUTE

    second = plan(source, first)

    assert source.rows(second) == [(ago(4),)]
    assert [record.getMessage() for record in caplog.records] == [
        "event=future_stamps context=repairs column=at: rows with a time in the future are left for a later run"
    ] * 2
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_no_warning_is_logged_when_a_stamp_is_of_this_very_moment(caplog: Any) -> None:
    window = plan(source_of(AT, NOW), delay=timedelta(0))

    assert (window.high, caplog.records) == ((NOW,), [])


# --- lookback -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "values", "lookback", "again"),
    [
        (AT, [ago(30), ago(20), ago(10)], 11 * MINUTE, [ago(20), ago(10)]),
        (DAY, [date(2026, 10, 28), date(2026, 10, 29)], timedelta(hours=1), [date(2026, 10, 29)]),
        (ID, [1, 5, 9], 5, [5, 9]),
        (PRICE, [Decimal(1), Decimal(5)], Decimal("0.01"), [Decimal(5)]),
        (PRICE, [Decimal(1), Decimal(5)], 5, [Decimal(1), Decimal(5)]),
    ],
    ids=["timestamp", "date", "bigint", "decimal", "decimal by int"],
)
def test_rows_before_the_watermark_come_again_when_there_is_a_lookback(
    column: CursorColumn, values: list[Any], lookback: Any, again: list[Any]
) -> None:
    source = source_of(column, *values)
    first = plan(source, lookback=lookback, write_disposition="merge")

    second = plan(source, first, lookback=lookback, write_disposition="merge")

    assert (second.low, second.state_after) == (first.high, first.state_after)
    assert source.rows(second) == [(value,) for value in again]
    stored = replayed(second)
    assert (stored.lookback, source.rows(stored)) == (lookback, source.rows(second))


def test_lookback_goes_by_the_first_column_when_the_cursor_is_compound() -> None:
    source = ListedRows((AT, ID), [(ago(30), 1), (ago(20), 9), (ago(10), 3)], NOW)
    first = plan(source)

    second = plan(source, first, lookback=10 * MINUTE, write_disposition="merge")

    assert source.rows(second) == [(ago(20), 9), (ago(10), 3)]


@pytest.mark.parametrize(
    ("column", "value", "lookback"),
    [
        (AT, ago(9), timedelta(days=2_000_000)),
        (ID, 1, 10**30),
        (PRICE, Decimal(1), 10**9),
        (DAY, date(9, 1, 1), timedelta(9999)),
    ],
    ids=["timestamp", "bigint", "decimal", "date"],
)
def test_everything_comes_again_when_the_lookback_reaches_before_all_there_can_be(
    column: CursorColumn, value: Any, lookback: Any
) -> None:
    source = source_of(column, value)

    window = plan(source, plan(source), lookback=lookback, write_disposition="merge")

    assert source.rows(window) == [(value,)]


@pytest.mark.parametrize(("lookback", "empty"), [(None, True), (0, True), (1, False)])
def test_window_without_new_rows_is_empty_when_nothing_is_read_again(lookback: int | None, empty: bool) -> None:
    source = source_of(ID, 1)

    assert plan(source, plan(source), lookback=lookback, write_disposition="merge").is_empty == empty


def test_first_run_starts_at_the_start_from_when_there_is_a_lookback() -> None:
    source = source_of(ID, 1, 5, 9)

    assert source.rows(plan(source, start_from=5, lookback=4, write_disposition="merge")) == [(5,), (9,)]


@pytest.mark.parametrize(
    ("values", "initial", "lookback", "options", "again"),
    [
        ([1, 5, 9], 5, 9, {}, [5, 9]),
        ([1, 5, 9], 5, 2, {}, [9]),
        ([1, 5, 9], 5, 10**30, {}, [5, 9]),
        ([-1, -5, -9], -5, 9, {"descending": True}, [-5, -9]),
    ],
    ids=["past it", "less far", "past all", "descending"],
)
def test_lookback_goes_no_further_than_the_start_from_when_there_was_one(
    values: list[int], initial: int, lookback: int, options: dict[str, Any], again: list[int]
) -> None:
    source = source_of(ID, *values)
    options |= {"lookback": lookback, "write_disposition": "merge"}
    windows = [plan(source, start_from=initial, **options)]
    windows += [plan(source, windows[-1], **options)]
    windows += [plan(source, windows[-1], **options)]

    assert [[value for (value,) in source.rows(window)] for window in windows[1:]] == [again, again]
    stored = replayed(windows[-1])
    assert stored == windows[-1]


def test_lookback_goes_no_further_than_the_start_from_when_the_cursor_is_compound() -> None:
    source = ListedRows((ID, DAY), [(1, date(2026, 1, number)) for number in (1, 2, 3)], NOW)
    options: dict[str, Any] = {"lookback": 7, "write_disposition": "merge"}
    first = plan(source, start_from=(1, date(2026, 1, 2)), **options)

    assert source.rows(plan(source, first, **options)) == source.listed[1:]


# --- options that are refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "options", "text"),
    [
        (AT, {"lookback": MINUTE}, "reads rows again, and write_disposition='append' would keep them twice."),
        (ID, {"lookback": 3}, "lookback=3 reads rows again"),
        (ID, {"nulls": "take"}, "nulls='take' reads rows again"),
        (AT, {"lookback": -MINUTE, "write_disposition": "merge"}, "is below 0. Give how far to read back."),
        (AT, {"lookback": 5, "write_disposition": "merge"}, "does not fit a timestamp. Give a timedelta for times"),
        (ID, {"lookback": MINUTE, "write_disposition": "merge"}, "does not fit a bigint."),
        (ID, {"lookback": Decimal(1), "write_disposition": "merge"}, "does not fit a bigint."),
        (ID, {"lookback": True, "write_disposition": "merge"}, "lookback=True does not fit a bigint."),
        (PRICE, {"lookback": Decimal("NaN"), "write_disposition": "merge"}, "does not fit a decimal(10,2)."),
        (PRICE, {"lookback": Decimal("0.001"), "write_disposition": "merge"}, "is finer than a decimal(10,2)."),
        (KEY, {"lookback": 1, "write_disposition": "merge"}, "lookback=1 does not fit a string."),
        (AT, {"delay": -MINUTE}, "is not a duration of 0 or more. Give a timedelta."),
        (AT, {"delay": 300}, "delay=300 is not a duration of 0 or more."),
        (AT, {"descending": True}, "descending=True is for numbers only. Leave it out."),
        (KEY, {"descending": True}, "descending=True is for numbers only."),
        (ID, {"max_rows": True}, "max_rows=True is not a whole number of 1 or more."),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)  # fmt: skip
def test_plan_is_refused_before_the_source_is_asked_when_an_option_cannot_be_meant(
    column: CursorColumn, options: dict[str, Any], text: str
) -> None:
    source = source_of(column)

    assert text in refused(source, **options)
    assert source.asked == []


def test_plan_is_refused_when_the_delay_reaches_before_the_first_year() -> None:
    assert "reaches before the year 1. Give a shorter one." in refused(
        source_of(AT, ago(1)), delay=timedelta(days=999_999)
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "its last value has letters beyond ASCII, which databases put in different orders."),
        ({"high": "\u00e9"}, "high has letters beyond ASCII"),
        ({"start_from": "\u00e9"}, "start_from has letters beyond ASCII"),
    ],
    ids=["row", "high", "start_from"],
)
def test_plan_is_refused_when_a_text_is_not_ascii(options: dict[str, Any], text: str) -> None:
    found = refused(source_of(KEY, "\u00e9", "a"), **options)

    assert text in found
    assert "Use a column of ASCII keys of fixed width" in found


@pytest.mark.parametrize(
    ("slack", "options", "late"),
    [
        (timedelta(days=1), {"delay": timedelta(days=1, minutes=1)}, "1 day, 0:01:00"),
        (timedelta(days=1), {"lookback": timedelta(days=1), "write_disposition": "merge"}, "1 day, 0:05:00"),
        (timedelta(0), {}, "0:05:00"),
    ],
    ids=["delay", "delay and lookback", "no slack"],
)
def test_plan_is_refused_when_rows_may_come_later_than_their_partitions_are_read(
    slack: timedelta, options: dict[str, Any], late: str
) -> None:
    source = source_of(AT, ago(9_999), slack=slack)

    text = refused(source, **options)
    source.slack = timedelta(days=3)

    assert (
        f"rows may come {late} after their stamp, into a partition of a later date than slack={slack} reaches" in text
    )
    assert "Give DatePartitions a slack of at least delay and lookback together." in text
    assert source.rows(plan(source, **options)) == [(ago(9_999),)]


def test_slack_may_be_as_long_as_the_delay_when_there_is_no_lookback() -> None:
    source = source_of(AT, ago(60), slack=5 * MINUTE)

    assert source.rows(plan(source, delay=5 * MINUTE)) == [(ago(60),)]


def test_slack_may_be_less_than_the_delay_when_high_is_given() -> None:
    assert plan(source_of(AT, ago(60), slack=timedelta(0)), high=ago(1)).high == (ago(1),)


# --- NULLs ----------------------------------------------------------------------------------------------------


def test_plan_is_refused_with_the_count_when_cursors_are_null() -> None:
    assert "2 rows have NULL there" in refused(source_of(ID, None, 3, None))


def test_rows_with_null_come_each_time_when_they_are_included() -> None:
    source = source_of(ID, None, 3)
    options: dict[str, Any] = {"nulls": "take", "write_disposition": "merge"}
    first = plan(source, **options)
    second = plan(source, first, **options)

    assert [source.rows(window) for window in (first, second)] == [[(None,), (3,)], [(None,)]]
    assert not second.is_empty


def test_rows_with_null_come_when_there_is_no_other_row() -> None:
    source = source_of(ID, None)
    window = plan(source, nulls="take", write_disposition="merge")

    assert (source.rows(window), window.state_after["value"]) == ([(None,)], None)


def test_rows_with_null_are_counted_in_a_warning_when_they_are_excluded(caplog: Any) -> None:
    source = source_of(ID, None, 3, None)

    window = plan(source, nulls="skip")

    assert source.rows(window) == [(3,)]
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "event=nulls_excluded context=repairs column=id rows=2")
    ]


@pytest.mark.parametrize("nulls", ["skip", "take"])
def test_null_in_the_second_column_counts_when_the_cursor_is_compound(nulls: str) -> None:
    source = ListedRows((AT, ID), [(ago(20), None), (None, 3), (ago(30), 1), (ago(10), 2)], NOW)

    window = plan(source, nulls=nulls, write_disposition="merge")

    rest = [] if nulls == "skip" else source.listed[:2]
    assert source.rows(window) == [*rest, *source.listed[2:]]


# --- descending -----------------------------------------------------------------------------------------------


def test_windows_go_down_when_the_cursor_is_descending() -> None:
    source = source_of(ID, -1, -2)
    first = plan(source, descending=True)
    source.listed.append((-3,))
    second = plan(source, first, descending=True)
    third = plan(source, second, descending=True)

    assert [source.rows(window) for window in (first, second, third)] == [[(-1,), (-2,)], [(-3,)], []]
    stored = replayed(second)
    assert stored == second


def test_lookback_goes_up_when_the_cursor_is_descending() -> None:
    source = source_of(ID, -1, -2, -3)

    window = plan(source, plan(source, descending=True), descending=True, lookback=2, write_disposition="merge")

    assert source.rows(window) == [(-2,), (-3,)]


def test_plan_is_refused_when_high_is_above_the_watermark_of_a_descending_cursor() -> None:
    source = source_of(ID, -1, -2)

    assert "high is before the watermark" in refused(source, plan(source, descending=True), descending=True, high=0)


@pytest.mark.parametrize("descending", [False, True])
def test_plan_is_refused_when_the_order_changed(descending: bool) -> None:
    source = source_of(ID, -1)
    before = plan(source, descending=not descending)

    was = "ascending" if descending else "descending"
    assert f"its order was {was}." in refused(source, before, descending=descending)


# --- what is stored -------------------------------------------------------------------------------------------


def test_state_of_one_column_has_the_shape_that_others_read() -> None:
    assert plan(source_of(AT, ago(60))).state_after == {
        "kind": "rows", "cursor_column": "at", "type": "timestamp", "value": ago(60) + timedelta(microseconds=1),
        "last": ago(60), "complete": ago(5),
    }  # fmt: skip


def test_plan_goes_on_from_a_state_that_an_earlier_release_stored() -> None:
    source = source_of(AT, ago(60), ago(30))
    state = {"kind": "rows", "cursor_column": "at", "type": "timestamp", "value": ago(30)}

    assert source.rows(plan(source, state=state)) == [(ago(30),)]


def test_window_is_read_from_a_plan_that_an_earlier_release_stored() -> None:
    source = source_of(ID, 1, 2, 3)
    stored = {"kind": "rows", "cursor_column": "id", "type": "bigint", "low": 2, "high": 3}

    assert source.rows(RowWindow.from_plan(stored, ["id"], "repairs")) == [(2,)]


def test_compound_state_reads_back_when_the_clock_capped_it() -> None:
    source = ListedRows((AT, ID), [(ago(1), 7)], NOW)
    first = plan(source)

    assert first.state_after == {
        "kind": "rows", "cursor_column": ["at", "id"], "type": ["timestamp", "bigint"], "value": [ago(5), None],
        "last": [ago(5), None],
    }  # fmt: skip
    assert plan(source, first).low == first.high
    assert replayed(first) == first


@pytest.mark.parametrize(
    ("stored", "column"),
    [
        ({"value": [1, 2]}, ID),
        ({"value": [1]}, ID),
        ({"value": "1; DROP TABLE x"}, ID),
        ({"value": True}, ID),
        ({"value": 1.5}, ID),
        ({"value": b"1"}, ID),
        ({"value": "2026-01-01"}, AT),
        ({"value": 2**70}, ID),
        ({"value": Decimal("NaN")}, PRICE),
        ({"value": Decimal("Infinity")}, PRICE),
        ({"value": Decimal("1E-100")}, PRICE),
        ({"value": Decimal("-1E+100")}, PRICE),
    ],
    ids=lambda value: value.type if isinstance(value, CursorColumn) else str(value),
)
def test_plan_is_refused_when_the_stored_watermark_was_tampered_with(
    stored: dict[str, Any], column: CursorColumn
) -> None:
    source = source_of(column)
    state = plan(source).state_after | stored

    with pytest.raises(ImplausibleError, match=f"value is not a value of type {re.escape(column.type)}$"):
        plan(source, state=state)

    assert source.asked == [None]


@pytest.mark.parametrize("key", ["low", "high"])
def test_window_is_refused_when_a_stored_bound_has_no_value_before_another(key: str) -> None:
    columns = (ID, CursorColumn("part", "int"), CursorColumn("piece", "int"))
    stored = RowWindow(columns, (1, 2, None), (1, None, None)).to_plan()
    names = [column.name for column in columns]

    assert RowWindow.from_plan(stored, names, "repairs").low == (1, 2, None)
    with pytest.raises(ImplausibleError, match=f"^repairs.{key} is not a value of type bigint, int, int$"):
        RowWindow.from_plan(stored | {key: [1, None, 3]}, names, "repairs")


@pytest.mark.parametrize("key", ["low", "high", "start"])
def test_window_is_refused_when_a_stored_bound_has_too_few_values(key: str) -> None:
    columns = (ID, CursorColumn("part", "int"))
    stored = plan(ListedRows(columns, [(1, 2)], NOW)).to_plan() | {key: [1]}

    with pytest.raises(ImplausibleError, match=f"^repairs.{key} is not a value of type bigint, int$"):
        RowWindow.from_plan(stored, ["id", "part"], "repairs")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"lookback": "1 day"}, "lookback is not a number"),
        ({"lookback": [1]}, "lookback is not a number"),
        ({"lookback": True}, "lookback is not a number from 0"),
        ({"lookback": -1}, "lookback is not a number from 0"),
        ({"low": 1.5}, "low is not a value of type bigint"),
        ({"low": date(2026, 1, 1)}, "low is not a value of type bigint"),
        ({"type": 7}, "cursor_column is not a name, or a list of names, with a type for each"),
        ({"type": []}, "cursor_column is not a name, or a list of names, with a type for each"),
        ({"type": "map"}, "type is not a type that has an exact order"),
        ({"type": ["bigint", "int"]}, "cursor_column is not a name, or a list of names, with a type for each"),
        ({"nulls": "all"}, "nulls is not one of raise, include, exclude"),
        ({"descending": "no"}, "descending is not True or False"),
        ({"has_more": 1}, "has_more is not True or False"),
        ({"source": "{}"}, "source is not the JSON of a map"),
        ({"source": "[" * 10_000}, "source is not the JSON of a map"),
    ],
    ids=str,
)
def test_window_is_refused_when_the_stored_plan_was_tampered_with(changed: dict[str, Any], told: str) -> None:
    stored = plan(source_of(ID, 1)).to_plan() | changed

    with pytest.raises(ImplausibleError, match=f"^repairs.{told}$"):
        RowWindow.from_plan(stored, ["id"], "repairs")


@pytest.mark.parametrize(
    ("column", "lookback", "told"),
    [
        (AT, 1.5, "a whole number from 0 to 86,399,999,999,999,999,999"),
        (AT, 10**30, "a whole number from 0 to 86,399,999,999,999,999,999"),
        (CursorColumn("id", "string"), 1, "a whole number from 0 to 0"),
    ],
    ids=["part", "huge", "text"],
)
def test_window_is_refused_when_its_lookback_is_no_duration(column: CursorColumn, lookback: Any, told: str) -> None:
    stored = RowWindow((column,), None, None).to_plan() | {"lookback": lookback}

    with pytest.raises(ImplausibleError, match=f"lookback is not {told}$"):
        RowWindow.from_plan(stored, [column.name], "repairs")


def test_plan_is_refused_when_the_state_is_that_of_fewer_columns() -> None:
    first = plan(source_of(AT, ago(9)))

    with pytest.raises(SourceError, check=because("changed")) as caught:
        plan(ListedRows((AT, ID), [], NOW), first)

    assert (caught.value.before, caught.value.source) == ("at", "at, id")


def test_plan_is_refused_when_the_type_of_the_second_column_changed() -> None:
    first = plan(ListedRows((AT, ID), [(ago(9), 1)], NOW))

    with pytest.raises(CursorError, match="'key': its type was bigint and is string now") as caught:
        plan(ListedRows((AT, KEY), [], NOW), state=first.state_after | {"cursor_column": ["at", "key"]})

    assert caught.value.column == "key"


# --- between two watermarks ---------------------------------------------------------------------------


def test_range_is_refused_when_the_order_changed_within_it() -> None:
    source = source_of(ID, 1, 2)
    up, down = plan(source).state_after, plan(source, descending=True).state_after

    for before, until in ((up, down), (down, up)):
        with pytest.raises(CursorError) as caught:
            window_between(source, ["id"], before, until, RowOptions(), "repairs")

        assert str(caught.value) == (
            "Cursor column 'id': its order changed between the two runs. Take a range on one side of that."
        )


def test_range_is_refused_when_it_starts_at_the_watermark_of_another_column() -> None:
    source = source_of(ID, 1, 2)
    until = plan(source).state_after

    with pytest.raises(SourceError, check=because("changed")) as caught:
        window_between(source, ["id"], until | {"cursor_column": "no"}, until, RowOptions(), "repairs")

    assert (caught.value.before, caught.value.source) == ("no", "id")


@pytest.mark.parametrize("value", [2, None])
def test_range_is_empty_when_the_later_watermark_is_below_the_earlier_one(value: int | None) -> None:
    source = source_of(ID, 1, 2, 3, 4)
    state, options = plan(source).state_after, RowOptions(lookback=3, write_disposition="merge")

    window = window_between(source, ["id"], state, state | {"value": value}, options, "repairs")

    assert (window.low, window.high, source.rows(window)) == ((5,), (5,), [])


# --- a last row below what was seen -------------------------------------------------------------------


def after(source: ListedRows, *left: Any, **options: Any) -> RowWindow:
    """Plan once, replace the rows of the source, and plan again."""
    first = plan(source, **options)
    source.listed = [(value,) for value in left]
    return plan(source, first, **options)


@pytest.mark.parametrize(
    ("column", "seen", "left"),
    [
        (ID, [1, 2, 900], [1, 2]),
        (ID, [1, 2], [1]),
        (AT, [ago(90), ago(60)], [ago(90)]),
        (AT, [ago(90), ago(1)], [ago(90)]),
        (AT, [ago(90), NOW], [ago(90)]),
    ],
    ids=["outlier", "restored", "restored_times", "capped", "of_this_moment"],
)
def test_source_is_behind_when_its_last_row_is_below_what_was_seen(
    column: CursorColumn, seen: list[Any], left: list[Any]
) -> None:
    with pytest.raises(
        SourceError,
        check=behind,
        match="context 'repairs' of job 'JOB' has seen",
    ) as caught:
        after(source_of(column, *seen), *left)

    assert caught.value.reason == "last_row_behind"
    for command in ("reset", "rewind", "set"):
        assert f"`watermarks {command} JOB --context repairs" in str(caught.value)


def test_source_is_behind_when_falling_numbers_end_above_what_was_seen() -> None:
    with pytest.raises(SourceError, check=behind):
        after(source_of(ID, 9, 8, 7), 9, 8, descending=True)


@pytest.mark.parametrize(
    ("column", "seen", "left", "options"),
    [
        (ID, [1, 2], [1, 2], {}),
        (ID, [1, 5], [1, 7], {}),
        (ID, [1, 2], [1, 2], {"high": 50, "settled": True}),
        (AT, [ago(60), ago(1)], [ago(60), ago(1)], {}),
        (ID, [1, 5], [1, 5], {"lookback": 3, "write_disposition": "merge"}),
    ],
    ids=["same", "later", "settled", "within_the_delay", "lookback"],
)
def test_source_is_not_behind_when_its_last_row_is_where_it_was(
    column: CursorColumn, seen: list[Any], left: list[Any], options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    after(source_of(column, *seen), *left, **options)

    assert "source_behind" not in caplog.text


def test_source_is_not_refused_when_the_row_that_is_gone_was_stamped_in_the_future() -> None:
    assert after(source_of(AT, ago(60), ago(-500)), ago(60)).is_empty


def test_empty_source_is_a_warning_and_rows_below_the_watermark_are_refused_when_it_had_rows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = source_of(ID, 1, 2, 3)
    first = plan(source)
    source.listed = []

    second = plan(source, first)
    source.listed = [(1,)]

    assert "event=source_empty context=repairs source=public.repairs" in caplog.text
    assert second.state_after == first.state_after
    with pytest.raises(SourceError, check=behind):
        plan(source, second)


def test_source_that_is_behind_is_an_error_when_the_caller_allows_rows_below_only() -> None:
    with pytest.raises(
        SourceError,
        check=behind,
        match="context 'repairs' of job 'JOB' has seen",
    ):
        after(source_of(ID, 1, 2, 3), 1, on_late="warn")


def test_source_that_is_behind_is_a_warning_when_the_caller_says_so(caplog: pytest.LogCaptureFixture) -> None:
    second = after(source_of(ID, 1, 2, 3), 1, on_behind="warn")

    assert second.is_empty
    assert "event=source_behind context=repairs" in caplog.text


def test_warning_is_logged_when_the_source_is_behind_a_state_of_an_earlier_release(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state = plan(source_of(ID, 1, 2, 900)).state_after
    del state["last"]
    source = source_of(ID, 1, 2)

    window = plan(source, state=state)

    assert "event=source_behind" in caplog.text
    assert window.is_empty
    source.listed.append((1_000,))
    assert plan(source, window).state_after["last"] == 1_000


def test_last_row_is_asked_for_only_when_nothing_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    source, last = source_of(ID, 1, 2), ListedRows.last

    def counted(self: ListedRows, *arguments: Any) -> Any:
        asked.append(1)
        return last(self, *arguments)

    monkeypatch.setattr(ListedRows, "last", counted)
    first = plan(source)
    source.listed.append((3,))

    second = plan(source, first)
    before = len(asked)
    plan(source, second)

    assert (before, len(asked)) == (0, 1)


@pytest.mark.parametrize(
    ("option", "choices"),
    [
        ("on_behind", "'raise' or 'warn'"), ("on_late", "'raise' or 'warn'"), ("on_changed", "'raise' or 'warn'"),
        ("nulls", "'raise', 'take' or 'skip'"),
        ("write_disposition", "'append' or 'merge'"), ("settled", "True or False"), ("descending", "True or False"),
        ("strings", "True or False"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", ["no", None, 1])
def test_choice_is_refused_with_the_others_when_there_is_none_of_that_name(
    option: str, choices: str, value: Any
) -> None:
    with pytest.raises(InvalidValueError, check=because("option")) as caught:
        plan(source_of(ID, 1), **{option: value})

    assert str(caught.value) == f"Option {option!r}: {value!r} is unknown. Use {choices}."


# --- columns without zone ---------------------------------------------------------------------------------

BY_WALL_CLOCK = pytest.mark.parametrize("column", [DAY, WALL], ids=["date", "wall clock"])


def frame_by(column: CursorColumn) -> pd.DataFrame:
    """Return one row stamped now and one stamped a day ago, in the type of the column."""
    stamps = pd.Series([NOW.replace(tzinfo=None), ago(60 * 24).replace(tzinfo=None)])
    values = stamps.dt.date if column is DAY else stamps.astype("datetime64[us]")
    return pd.DataFrame({column.name: values.dt.tz_localize("UTC") if column is AT else values})


class UnaskedRows(PandasRows):
    """Rows that fail the test if they are read."""

    def facts(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("the rows were looked at")


@BY_WALL_CLOCK
@pytest.mark.parametrize(
    "options", [{}, {"delay": timedelta(0)}, {"high": True}, {"start_from": True}], ids=lambda given: str([*given])
)
def test_first_run_is_refused_before_it_reads_when_nobody_said_the_zone(
    column: CursorColumn, options: dict[str, Any]
) -> None:
    early = date(2026, 1, 1) if column is DAY else datetime(2026, 1, 1)
    chosen: dict[str, Any] = {name: early if value is True else value for name, value in options.items()}

    with pytest.raises(CursorError) as caught:
        plan_window(UnaskedRows(frame_by(column)), [column.name], now=NOW, **chosen)

    assert str(caught.value) == (
        f"Cursor column {column.name!r}: its values have no time zone, and with a wrong one rows that come late are "
        "lost. Pass the zone to the source: UnaskedRows(..., zone='Europe/London'), or zone='UTC' (ingest-table: "
        "--zone)."
    )


@BY_WALL_CLOCK
def test_later_run_is_a_warning_until_somebody_says_the_zone(
    column: CursorColumn, caplog: pytest.LogCaptureFixture
) -> None:
    frame = frame_by(column)
    state = plan_window(PandasRows(frame, zone="UTC"), [column.name], now=NOW).state_after
    assert "event=no_zone" not in caplog.text

    plan_window(PandasRows(frame, zone="UTC"), [column.name], now=NOW, state=state)
    assert "event=no_zone" not in caplog.text
    plan_window(PandasRows(frame), [column.name], now=NOW, state=state, context="repairs")

    assert f"column={column.name}: the column has no time zone; its zone is taken to be UTC" in caplog.text


@pytest.mark.parametrize(
    ("column", "zone"),
    [(WALL, "Asia/Tokyo"), (WALL, "Europe/London"), (DAY, "Europe/London"), (AT, "UTC")],
    ids=["wall clock", "winter", "date", "with zone"],
)
def test_first_run_is_planned_when_the_clock_of_the_job_says_the_zone_or_the_column_has_one(
    column: CursorColumn, zone: str, caplog: pytest.LogCaptureFixture
) -> None:
    """London's winter offset is that of UTC, but its clock still names a zone."""
    plan_window(PandasRows(frame_by(column)), [column.name], now=NOW.astimezone(ZoneInfo(zone)))

    assert "event=no_zone" not in caplog.text


def test_second_column_needs_no_zone_when_only_the_first_meets_the_clock() -> None:
    frame = pd.DataFrame({"id": [1, 2], "at": [NOW.replace(tzinfo=None)] * 2})

    assert plan_window(PandasRows(frame), ["id", "at"], now=NOW).high is not None


# --- ids that come from no database ------------------------------------------------------------------------


WarnedOf = Callable[..., tuple[RowWindow, bool]]


@pytest.fixture
def ids_warned_of(caplog: pytest.LogCaptureFixture) -> WarnedOf:
    """Return a function that plans a window by ids and reports whether a WARNING said that no delay covers late ids."""

    def planned(source: Any, before: RowWindow | None = None, **options: Any) -> tuple[RowWindow, bool]:
        caplog.clear()
        window = plan_after(before, source, ["id"], now=NOW, context="repairs", **options)
        return window, "event=ids_without_database context=repairs column=id" in caplog.text

    return planned


@pytest.mark.parametrize("ids", [[1, 2], [Decimal("1.50")], ["a"]], ids=["whole", "decimal", "text"])
def test_late_ids_are_warned_of_once_when_rows_are_in_no_database(ids_warned_of: WarnedOf, ids: list[Any]) -> None:
    nothing, frame = pd.DataFrame({"id": pd.Series([], dtype="int64")}), pd.DataFrame({"id": ids})
    options = {"strings": True} if ids == ["a"] else {}

    empty, before = ids_warned_of(PandasRows(nothing))
    first, warned = ids_warned_of(PandasRows(frame), empty if ids == [1, 2] else None, **options)
    _, again = ids_warned_of(PandasRows(frame), first, **options)

    assert (before, warned, again) == (False, True, False)


@pytest.mark.parametrize(
    "options",
    [{"delay": timedelta(0)}, {"settled": True}, {"lookback": 5, "write_disposition": "merge"}],
    ids=["no delay", "settled", "lookback"],
)
def test_late_ids_are_not_warned_of_when_the_caller_has_said_how_late_they_are(
    ids_warned_of: WarnedOf, options: dict[str, Any]
) -> None:
    assert not ids_warned_of(PandasRows(pd.DataFrame({"id": [1, 2]})), **options)[1]


def test_late_ids_are_not_warned_of_when_a_database_or_a_clock_bounds_them(ids_warned_of: WarnedOf) -> None:
    uuids = pd.DataFrame({"id": ["019a0000-0000-7000-8000-000000000001"]})

    assert not ids_warned_of(source_of(ID, 1, 2))[1]
    assert not ids_warned_of(source_of(ID, 1, 2, now=None, ceiling=2))[1]
    assert not ids_warned_of(PandasRows(uuids), strings=True)[1]
