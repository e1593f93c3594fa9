"""The remembered last rows below a watermark: which changes to them are reported, how, and when no query is needed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from scripts.helpers.errors import SourceError
from scripts.helpers.protocol.values import ImplausibleError
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.rows.plan import edge_of, plan_window
from scripts.helpers.rows.sources import SeenRow
from scripts.helpers.rows.window import RowWindow
from tests.support.listed_rows import ListedRows
from tests.support.reasons import behind
from tests.support.row_windows import plan_after

NOW = datetime(2026, 11, 1, tzinfo=timezone.utc)
ID = CursorColumn("id", "bigint")


@dataclass
class Remembered(ListedRows):
    """Rows that consist of an id and content; `has_index` says whether an index finds the last rows directly."""

    contents: dict[Any, str] = field(default_factory=dict)
    other: str = "note"
    has_index: bool = True
    asked_for: list[int] = field(default_factory=list)
    counted: int = 0

    def newest(self, window: RowWindow, most: int) -> list[SeenRow] | None:
        self.asked_for.append(most)
        if not self.has_index:
            return None
        found = sorted(self.rows(window), reverse=not window.descending)[:most]
        return [SeenRow(row, {self.other: self.contents.get(row[0], "first")}) for row in found]

    def count(self, window: RowWindow) -> int:
        self.counted += 1
        return len(self.rows(window))


def source_of(*ids: int) -> Remembered:
    return Remembered((ID,), [(number,) for number in ids], NOW)


def plan(source: ListedRows, before: RowWindow | None = None, **options: Any) -> RowWindow:
    return plan_after(before, source, ["id"], **{"now": NOW} | options)


def test_nothing_is_said_when_rows_were_added_above_or_changed_far_below(caplog: pytest.LogCaptureFixture) -> None:
    source = source_of(*range(1, 11))
    first = plan(source)
    source.contents = {1: "other", 8: "other"}
    source.listed.remove((7,))
    source.listed.append((11,))

    second = plan(source, first)

    assert source.rows(second) == [(11,)]
    assert "WARNING" not in {record.levelname for record in caplog.records}
    assert source.asked_for == [5, 6, 5]


def test_no_decimal_is_reported_when_an_earlier_version_stored_trailing_zeros(
    caplog: pytest.LogCaptureFixture,
) -> None:
    prices = (CursorColumn("price", "decimal(9,2)"),)
    rows = [(Decimal("1.50"),), (Decimal("2.00"),)]
    source = Remembered(prices, rows, NOW, contents={row[0]: "0.10" for row in rows})
    first = plan_after(None, source, ["price"], now=NOW)
    assert first.high is not None
    kept = edge_of(list(reversed([SeenRow(row, {"note": "0.10"}) for row in rows])), 5, as_written=True)
    source.listed.append((Decimal("3.00"),))

    second = plan_after(replace(first, edge=kept), source, ["price"], now=NOW, on_changed="raise")

    assert source.rows(second) == [(Decimal("3.00"),)]
    assert "WARNING" not in {record.levelname for record in caplog.records}


def test_last_rows_are_kept_and_not_read_again_when_nothing_is_new() -> None:
    source = source_of(1, 2)
    first = plan(source)

    second = plan(source, first)

    assert second.state_after == first.state_after
    assert source.asked_for == [5, 6]


@pytest.mark.parametrize(
    ("options", "is_error"),
    [({}, True), ({"on_changed": "raise"}, True), ({"on_behind": "warn"}, True),
     ({"on_late": "warn"}, False), ({"delay": timedelta(0)}, False), ({"high": 999, "settled": True}, False)],
)  # fmt: skip
def test_row_below_the_watermark_is_an_error_unless_the_caller_answers_for_it(
    options: Any, is_error: bool, caplog: pytest.LogCaptureFixture
) -> None:
    source = source_of(1, 2, 3, 900)
    first = plan(source)
    source.listed += [(4,), (5,)]

    if is_error:
        with pytest.raises(
            SourceError,
            check=behind,
            match="watermarks set JOB --context repairs edge:null=",
        ) as caught:
            plan(source, first, **options)
        assert caught.value.reason == "rows_behind"
    else:
        assert plan(source, first, **options).low == (901,)
        assert "event=rows_below context=repairs source=public.repairs rows=2" in caplog.text


@pytest.mark.parametrize("rows", [1, 4, 5, 6, 900])
@pytest.mark.parametrize("descending", [False, True])
def test_row_of_the_last_value_is_an_error_when_it_comes_after_the_run_took_that_value(
    rows: int, descending: bool
) -> None:
    batch = -7 if descending else 7
    source = Remembered((ID,), [(0,)] + [(batch,)] * rows, NOW)
    first = plan(source, descending=descending)
    source.listed += [(batch + (-1 if descending else 1),)] * 3
    second = plan(source, first, descending=descending)
    source.listed.append((batch,))

    assert len(source.rows(second)) == 3
    with pytest.raises(
        SourceError,
        check=behind,
        match="rows came below the watermark",
    ):
        plan(source, first, descending=descending)


@pytest.mark.parametrize("gone", [0, 3])
def test_nothing_is_said_when_a_value_has_more_rows_than_are_kept(gone: int, caplog: pytest.LogCaptureFixture) -> None:
    source = Remembered((ID,), [(1,)] * 9 + [(2,), (3,), (4,), (5,)], NOW)
    window = plan(source)
    for batch in (6, 7, 8):
        source.listed = source.listed[gone:] + [(batch,)] * 7
        window = plan(source, window)
        assert len(source.rows(window)) == 7

    assert "event=rows_below" not in caplog.text


def test_rows_are_not_counted_when_each_value_has_one_row() -> None:
    source = source_of(*range(1, 20))

    plan(source, plan(source))

    assert source.counted == 0


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("number", [4, 7, 9])
def test_row_that_comes_within_the_lookback_is_read_and_no_error_when_it_was_not_there_before(
    number: int, descending: bool
) -> None:
    sign = -1 if descending else 1
    source = source_of(*(sign * other for other in (1, 2, 3, 5, 6, 8, 10)))
    options: dict[str, Any] = {"lookback": 8, "write_disposition": "merge", "descending": descending}
    first = plan(source, **options)
    source.listed.append((sign * number,))

    second = plan(source, first, **options)

    assert (sign * number,) in source.rows(second)
    assert plan(source, second, **options).state_after == second.state_after


def test_row_that_comes_below_the_lookback_is_an_error_when_others_came_within_it() -> None:
    source = source_of(1, 10, 20, 900)
    first = plan(source, lookback=10, write_disposition="merge")
    source.listed += [(number,) for number in (5, *range(891, 899))]

    with pytest.raises(
        SourceError,
        check=behind,
        match="rows came below the watermark",
    ):
        plan(source, first, lookback=10, write_disposition="merge")


@pytest.mark.parametrize("change", ["gone", "changed"])
@pytest.mark.parametrize("policies", [{}, {"on_behind": "warn", "on_late": "warn"}, {"on_changed": "raise"}], ids=str)
def test_last_row_that_is_gone_or_changed_is_a_warning_or_an_error_as_asked(
    change: str, policies: Any, caplog: pytest.LogCaptureFixture
) -> None:
    source = source_of(1, 2, 3)
    first = plan(source)
    source.listed.append((4,))
    if change == "gone":
        source.listed.remove((3,))
    else:
        source.contents = {3: "again"}

    if "on_changed" in policies:
        with pytest.raises(
            SourceError,
            check=behind,
            match="is gone or has other values",
        ):
            plan(source, first, **policies)
    else:
        assert source.rows(plan(source, first, **policies)) == [(4,)]
        assert "event=last_row_changed context=repairs source=public.repairs" in caplog.text


def test_rows_are_compared_by_their_cursor_only_when_a_column_was_added(caplog: pytest.LogCaptureFixture) -> None:
    source = source_of(1, 2)
    first = plan(source)
    source.other, source.contents = "remark", {2: "none"}

    plan(source, first)

    assert "event=last_row_changed" not in caplog.text


def test_falling_ids_are_compared_from_the_other_end() -> None:
    source = source_of(90, 80, 1)
    first = plan(source, descending=True)
    source.listed.append((70,))

    with pytest.raises(
        SourceError,
        check=behind,
        match="rows came below the watermark",
    ):
        plan(source, first, descending=True)


PAIR = f"{'0' * 12}-{'1' * 12}"


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        (5, "edge is not a map"),
        ({}, "edge.rows is missing"),
        ({"start": "x", "names": "0" * 12, "rows": PAIR}, "edge.start is not a value of type bigint"),
        ({"start": 1, "names": 5, "rows": PAIR}, "edge.names is not a digest"),
        ({"start": None, "names": "0" * 12, "rows": ""}, "edge.rows is not pairs of digests"),
        ({"start": None, "names": "0" * 12, "rows": f"{PAIR}  {PAIR}"}, "edge.rows is not pairs of digests"),
        ({"start": None, "names": "0" * 12, "rows": 7}, "edge.rows is not pairs of digests"),
        ({"start": 1, "names": "0" * 12, "rows": PAIR, "ties": -1}, "edge.ties is not a whole number.*"),
    ],
    ids=str,
)
def test_state_is_refused_when_its_stored_last_rows_are_damaged(kept: Any, told: str) -> None:
    source = source_of(1, 2, 3)
    state = plan(source).state_after | {"edge": kept}

    with pytest.raises(ImplausibleError, match=f"^rows.{told}$"):
        plan_window(source, ["id"], now=NOW, state=state)


def test_last_rows_are_recorded_when_the_state_keeps_none(caplog: pytest.LogCaptureFixture) -> None:
    source = source_of(1, 2, 3)
    state = plan(source).state_after
    del state["edge"]
    source.listed[0] = (4,)

    window = plan_window(source, ["id"], now=NOW, state=state)

    assert window.state_after["edge"]["rows"].count("-") == 3
    assert "event=last_row" not in caplog.text


def test_nothing_is_kept_of_times_of_a_source_without_index_and_below_a_ceiling() -> None:
    at, hour_ago = CursorColumn("at", "timestamp"), NOW - timedelta(hours=1)
    times, times_with_ids = Remembered((at,), [(hour_ago,)], NOW), Remembered((at, ID), [(hour_ago, 1)], NOW)
    no_index, ceiling = source_of(1, 2), source_of(1, 2)
    no_index.has_index, ceiling.ceiling = False, 9

    windows = [plan_window(times, ["at"], now=NOW), plan_window(times_with_ids, ["at", "id"], now=NOW)]
    windows += [plan(no_index), plan(ceiling)]

    assert [window.edge for window in windows] == [None, None, None, None]
    assert (times.asked_for, times_with_ids.asked_for, ceiling.asked_for) == ([], [], [])
