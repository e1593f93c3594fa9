"""Batches with a maximum number of rows: each row once, ties stay together, and the watermark moves batch by batch."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from typing import Any

import pandas as pd
import pytest

from scripts.helpers.errors import CursorError
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.rows.memory import PandasRows
from scripts.helpers.rows.options import RowOptions
from scripts.helpers.rows.plan import plan_window, window_between
from scripts.helpers.rows.sources import RowSource
from scripts.helpers.rows.window import RowWindow
from tests.support.listed_rows import ListedRows
from tests.support.row_windows import plan_after, replayed

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
AT, ID = CursorColumn("at", "timestamp"), CursorColumn("id", "bigint")


def source_of(*ids: int) -> ListedRows:
    return ListedRows((ID,), [(number,) for number in ids])


def batches(source: Any, names: list[str], **options: Any) -> list[list[Any]]:
    """Take batches until no row is left."""
    found: list[list[Any]] = []
    window: RowWindow | None = None
    while window is None or window.has_more:
        window = plan_after(window, source, names, now=NOW, **options)
        found.append(list(source.rows(window)))
        assert len(found) <= 1_000
    return found


def test_batches_end_at_the_limit_when_there_are_more_rows() -> None:
    found = batches(source_of(5, 1, 4, 2, 3), ["id"], max_rows=2)

    assert [sorted(batch) for batch in found] == [[(1,), (2,)], [(3,), (4,)], [(5,)]]


@pytest.mark.parametrize("count", [2, 3])
def test_nothing_is_left_when_the_rows_are_within_the_limit(count: int) -> None:
    window = plan_after(None, source_of(1, 2), ["id"], now=NOW, max_rows=count)

    assert window.high == (3,)
    assert not window.has_more


def test_rows_of_one_cursor_stay_together_when_they_are_at_the_limit() -> None:
    found = batches(source_of(1, 2, 2, 2, 3), ["id"], max_rows=3)

    assert found == [[(1,)], [(2,), (2,), (2,)], [(3,)]]


def test_tie_is_one_batch_when_it_is_larger_than_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    found = batches(source_of(1, 1, 1, 2), ["id"], max_rows=2)

    assert found == [[(1,), (1,), (1,)], [(2,)]]
    assert "event=large_tie context=repairs column=id max_rows=2" in caplog.text


def test_nothing_is_left_when_the_last_rows_are_one_large_tie() -> None:
    assert batches(source_of(7, 7, 7), ["id"], max_rows=2) == [[(7,), (7,), (7,)]]


def test_falling_numbers_are_taken_from_above_when_a_batch_is_limited() -> None:
    found = batches(source_of(1, 2, 3), ["id"], max_rows=2, descending=True)

    assert [sorted(batch) for batch in found] == [[(2,), (3,)], [(1,)]]


def test_last_batch_keeps_the_delay_when_batches_are_limited() -> None:
    stamps = [(NOW - hours * HOUR,) for hours in (4, 3, 2, 0)]

    found = batches(ListedRows((AT,), stamps, NOW), ["at"], max_rows=2)

    assert found == [stamps[:2], stamps[2:3]]


def test_rows_that_are_read_again_do_not_count_when_there_is_a_lookback() -> None:
    source = source_of(1, 2, 3, 4, 5, 6)
    options: dict[str, Any] = {"lookback": 2, "write_disposition": "merge", "max_rows": 2}
    first = plan_after(None, source, ["id"], now=NOW, **options)

    second = plan_after(first, source, ["id"], now=NOW, **options)

    assert source.rows(second) == [(1,), (2,), (3,), (4,)]
    assert second.has_more


def test_every_row_is_taken_once_when_cursors_and_limits_are_random() -> None:
    rng = random.Random(3)
    for _ in range(200):
        rows = [(rng.randint(0, 9), rng.randint(0, 4)) for _ in range(rng.randint(0, 40))]
        most = rng.randint(1, 12)
        source = ListedRows((CursorColumn("a", "bigint"), CursorColumn("b", "bigint")), list(rows))

        found = batches(source, ["a", "b"], max_rows=most)

        assert sorted(row for batch in found for row in batch) == sorted(rows)
        assert all(len(batch) <= most or len(set(batch)) == 1 for batch in found)


def test_frames_of_pandas_are_taken_in_batches_too() -> None:
    frame = pd.DataFrame({"id": pd.array([3, 1, None, 2, 2], dtype="Int64")})

    found = batches(PandasRows(frame), ["id"], max_rows=2, nulls="skip")

    assert found == [["id"]] * 3
    windows = []
    window: RowWindow | None = None
    while window is None or window.has_more:
        window = plan_after(window, PandasRows(frame), ["id"], now=NOW, max_rows=2, nulls="skip")
        windows.append(sorted(PandasRows(frame).rows(window)["id"]))
    assert windows == [[1], [2, 2], [3]]


def test_replay_reports_has_more_when_its_plan_left_rows() -> None:
    window = plan_after(None, source_of(1, 2, 3), ["id"], now=NOW, max_rows=2)

    assert replayed(window) == window
    assert replayed(window).has_more


@pytest.mark.parametrize("most", [0, -1, 2.0, True, "5"])
def test_limit_is_refused_when_it_is_not_a_positive_whole_number(most: Any) -> None:
    with pytest.raises(CursorError, match=r"max_rows=.* is not a whole number of 1 or more"):
        plan_after(None, source_of(1), ["id"], now=NOW, max_rows=most)


def test_limit_is_refused_when_the_source_does_not_support_it() -> None:
    class Plain(ListedRows):
        cursor_at = RowSource.cursor_at  # type: ignore[assignment]

    with pytest.raises(CursorError, match="cannot be read in batches of max_rows=2"):
        plan_window(Plain((ID,), [(1,)]), ["id"], now=NOW, max_rows=2)


def test_limit_is_refused_when_a_range_of_runs_is_read() -> None:
    state = plan_after(None, source_of(1, 2), ["id"], now=NOW).state_after

    with pytest.raises(CursorError, match="max_rows= is given, but a range of runs ends where they did"):
        window_between(source_of(1, 2), ["id"], None, state, RowOptions(max_rows=2), "repairs")
