"""UUIDs as cursors, in memory: version 7 is accepted with a delay, other versions are refused with the reason."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.helpers.errors import CursorError, SourceError
from scripts.helpers.rows.cursors import EPOCH, CursorColumn
from scripts.helpers.rows.memory import PandasRows
from scripts.helpers.rows.options import RowOptions
from scripts.helpers.rows.plan import first_uuid_at, moment_of, plan_window
from tests.support.listed_rows import ListedRows
from tests.support.reasons import behind
from tests.support.row_windows import plan_after, replayed
from tests.support.rows_states import with_coverage

NOW = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)
ID = CursorColumn("id", "string")
UUIDS = CursorColumn("id", "uuid")


def made(minutes_ago: float, low: int = 0) -> str:
    return str(UUID(int=UUID(first_uuid_at(NOW - timedelta(minutes=minutes_ago))).int + low))


def source_of(*values: str, column: CursorColumn = ID) -> ListedRows:
    return ListedRows((column,), [(value,) for value in values], NOW)


def plan(source: Any, before: Any = None, **options: Any) -> Any:
    return plan_after(before, source, ["id"], **{"now": NOW, "strings": True} | options)


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31)), st.integers(0, 2**62 - 1))
def test_uuid_of_a_moment_is_below_all_that_are_made_from_then_on(moment: datetime, random: int) -> None:
    aware = moment.replace(tzinfo=timezone.utc)
    first = first_uuid_at(aware)
    value = str(UUID(int=UUID(first).int | random))

    assert UUID(first).version == 7
    assert first <= value
    assert timedelta(0) <= aware - moment_of(value) < timedelta(milliseconds=1)
    assert first_uuid_at(aware + timedelta(milliseconds=1)) > value


def test_uuids_of_moments_outside_of_what_python_or_they_can_say_are_the_first_and_last() -> None:
    smallest = "00000000-0000-7000-8000-000000000000"
    before = datetime(1969, 12, 31, tzinfo=timezone.utc)

    assert first_uuid_at(before) == first_uuid_at(EPOCH) == smallest
    assert moment_of("ffffffff-ffff-7fff-bfff-ffffffffffff") == datetime.max.replace(tzinfo=timezone.utc)


def test_uuids_stay_a_delay_behind_the_clock_when_newer_ones_are_there() -> None:
    source = source_of(made(9), made(6, 5), made(3))

    first = plan(source)
    source.listed.append((made(4),))
    source.now = NOW + timedelta(minutes=10)
    second = plan(source, first)

    assert source.rows(first) == [(made(9),), (made(6, 5),)]
    assert source.rows(second) == [(made(3),), (made(4),)]
    assert replayed(second) == second


def test_uuids_of_clocks_that_are_ahead_are_left_for_later(caplog: pytest.LogCaptureFixture) -> None:
    window = plan(source_of(made(9), made(-60)))

    assert source_of(made(9), made(-60)).rows(window) == [(made(9),)]
    assert "event=future_stamps context=repairs column=id" in caplog.text


def test_source_is_behind_when_its_clock_is_before_the_last_uuid() -> None:
    column = CursorColumn("id", "binary(16)")
    source = ListedRows((column,), [(made(9),), (made(7),)], NOW)
    state = plan(source).state_after

    with pytest.raises(
        SourceError,
        check=behind,
        match="its clock is behind",
    ):
        plan_window(ListedRows((column,), [], NOW - timedelta(hours=1)), ["id"], now=NOW, state=state)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("55dbdb8d-ac04-42b9-8f67-7b97c7ed0d28", "version 4 is random"),
        ("8741d3ee-e7e9-11f1-a132-02fc00000001", "version 1 begins with the lowest digits of its time"),
        ("1f07e0a0-0000-6000-8000-000000000000", "version 6 is made of another clock"),
        ("00000000-0000-0000-0000-000000000000", "of no known version"),
        ("ffffffff-ffff-ffff-ffff-ffffffffffff", "of no known version"),
        (made(9).upper(), "holds UUIDs in capitals"),
    ],
)
def test_uuid_is_refused_with_the_reason_when_it_does_not_rise(value: str, text: str) -> None:
    with pytest.raises(CursorError, match=text) as caught:
        plan(source_of(value))

    assert value not in str(caught.value)


def test_texts_that_are_no_uuids_are_taken_as_before() -> None:
    source = source_of("01JBMFZ0", "01JBMFZ1", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1")

    assert len(source.rows(plan(source))) == 3


def test_uuids_of_a_frame_stay_behind_the_jobs_clock_when_they_are_texts() -> None:
    rows = PandasRows(pd.DataFrame({"id": [made(9), made(3)]}))

    assert list(rows.rows(plan(rows))["id"]) == [made(9)]


def test_bounds_of_uuids_are_checked_when_they_come_from_the_caller_or_a_state() -> None:
    column = CursorColumn("id", "uuid")

    assert column.from_caller(UUID(made(9)), "high") == made(9)
    assert column.from_text(made(9).replace("-", "").upper()) == made(9)
    assert column.next_above(made(9)) == made(9, 1)
    with pytest.raises(OverflowError):
        column.next_above("ffffffff-ffff-ffff-ffff-ffffffffffff")
    assert moment_of(str(column.shifted(made(9), timedelta(minutes=1), -1))) == moment_of(made(10))
    assert not column.is_time and not column.is_number
    for unfit in ("x", made(9).upper(), made(9)[:-1], "' OR 1=1 --", 7):
        with pytest.raises(CursorError):
            column.from_caller(unfit, "high")
    with pytest.raises(CursorError, match="no value of a uuid"):
        column.from_text("x")
    RowOptions(lookback=timedelta(minutes=1), write_disposition="merge").check((column,))
    with pytest.raises(CursorError, match="does not fit a uuid"):
        RowOptions(lookback=5, write_disposition="merge").check((column,))


@pytest.mark.parametrize("kind", ["uuid", "binary(16)"])
def test_uuids_of_the_time_before_the_watermark_come_again_when_there_is_a_lookback(kind: str) -> None:
    column = CursorColumn("id", kind)
    source = source_of(made(90, 1), made(59, 1), made(9), column=column)
    first = plan(source, lookback=timedelta(hours=1), write_disposition="merge")

    second = plan(source, first, lookback=timedelta(hours=1), write_disposition="merge")

    assert second.lookback == timedelta(hours=1)
    assert source.rows(second) == [(made(59, 1),), (made(9),)]
    assert source.rows(replayed(second)) == source.rows(second)


def test_uuid_is_refused_as_one_of_several_columns() -> None:
    source = ListedRows((CursorColumn("id", "uuid"), CursorColumn("n", "int")), [(made(9), 1)], NOW)

    with pytest.raises(CursorError, match="a UUID names one row by itself"):
        plan_window(source, ["id", "n"], now=NOW)


def test_rows_of_another_version_are_refused_by_their_count_when_the_source_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, facts = source_of(made(9), column=UUIDS), ListedRows.facts
    monkeypatch.setattr(
        ListedRows, "facts", lambda *given: type(found := facts(*given))(**{**vars(found), "other_uuids": 1_200})
    )

    with pytest.raises(CursorError, match="1,200 rows past the watermark have a UUID of another version than 7"):
        plan(source)


def test_coverage_of_uuids_is_kept_when_a_state_is_set() -> None:
    state = {"kind": "rows", "cursor_column": "id", "type": "uuid", "value": made(1), "start": made(9)}

    kept = with_coverage(state, None, [((made(9),), (made(5),))], "o1")

    assert kept["value"] == made(1)
