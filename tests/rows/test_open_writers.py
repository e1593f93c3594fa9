"""Ids and times that are committed out of order: where a window ends while transactions are open."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from scripts.helpers.errors import CursorError
from scripts.helpers.protocol.values import ImplausibleError
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.rows.plan import LONGEST_WAIT, first_uuid_at, plan_window
from scripts.helpers.rows.sources import CACHED, NO_SEQUENCE, OpenWriter, OpenWriters, RowSource
from scripts.helpers.rows.window import RowWindow
from tests.support.listed_rows import ListedRows
from tests.support.row_windows import plan_after, replayed

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
ID = CursorColumn("id", "bigint")


@dataclass
class Committed(ListedRows):
    """Rows of ids, and the transactions that are open; None if the source cannot show them."""

    open: set[str] | None = field(default_factory=set)
    waits: list[timedelta] = field(default_factory=list)

    def writers(self, column: str, longest: timedelta) -> frozenset[str] | None:
        self.waits.append(longest)
        return None if self.open is None else frozenset(self.open)


def source_of(*ids: int, open: set[str] | None = None) -> Committed:
    return Committed((ID,), [(number,) for number in ids], open=open)


def plan(source: ListedRows, before: RowWindow | None = None, minutes: float = 0, **options: Any) -> RowWindow:
    return plan_after(before, source, ["id"], now=NOW + minutes * MINUTE, **options)


def ids(source: ListedRows, window: RowWindow) -> list[int]:
    return [number for (number,) in source.rows(window)]


def test_every_id_is_taken_when_no_transaction_is_open() -> None:
    source = source_of(1, 3, open=set())

    window = plan(source)

    assert ids(source, window) == [1, 3]
    assert "undecided" not in window.state_after
    assert source.waits == [LONGEST_WAIT]


def test_lower_id_is_taken_when_its_open_transaction_commits_later() -> None:
    source = source_of(1, 3, open={"5/7"})

    first = plan(source)
    source.listed.append((2,))
    source.open = set()
    second = plan(source, first)

    assert (ids(source, first), sorted(ids(source, second))) == ([], [1, 2, 3])


def test_ids_seen_before_are_taken_when_only_younger_transactions_are_open() -> None:
    """Rows are taken even if the table always has an open transaction, because each transaction ends at some time."""
    source = source_of(1, 3, open={"5/7"})
    first = plan(source)
    source.listed += [(2,), (9,)]
    source.open = {"5/8"}

    second = plan(source, first)
    source.open = {"6/1"}
    third = plan(source, second)

    assert sorted(ids(source, second)) == [1, 2, 3]
    assert ids(source, third) == [9]


def test_mark_that_is_waited_for_stays_when_its_transaction_is_open_for_several_runs() -> None:
    """A later mark would make each run wait for newer transactions, so that waiting might never end."""
    source = source_of(1, open={"5/7"})
    windows = [plan(source)]
    for number in range(2, 5):
        source.listed.append((number,))
        source.open = {"5/7", f"6/{number}"}
        windows.append(plan(source, windows[-1]))
    source.open = {"6/4"}

    last = plan(source, windows[-1])

    assert [ids(source, window) for window in windows] == [[]] * 4
    assert ids(source, last) == [1]


def test_ids_are_taken_a_delay_after_they_were_seen_when_transactions_are_unknown() -> None:
    source = source_of(1, 3)

    first = plan(source)
    source.listed += [(2,), (4,)]
    early = plan(source, first, minutes=4.9)
    second = plan(source, early, minutes=5)
    third = plan(source, second, minutes=10)

    assert [ids(source, window) for window in (first, early)] == [[], []]
    assert sorted(ids(source, second)) == [1, 2, 3]
    assert ids(source, third) == [4]


def test_ids_wait_for_transactions_and_for_the_delay_when_numbers_are_made_before_a_transaction() -> None:
    source = source_of(1, 3, open={CACHED, "5/7"})

    first = plan(source)
    held = plan(source, first, minutes=6)
    source.open = {CACHED}
    early = plan(source, first, minutes=4.9)
    late = plan(source, first, minutes=5)

    assert [ids(source, window) for window in (first, held, early, late)] == [[], [], [], [1, 3]]


def test_first_run_logs_a_warning_when_no_sequence_generates_the_ids(caplog: pytest.LogCaptureFixture) -> None:
    source = source_of(1, 3, open={NO_SEQUENCE})

    first = plan(source)
    source.listed += [(4,)]
    second = plan(source, first, minutes=1)

    assert [ids(source, window) for window in (first, second)] == [[1, 3], [4]]
    assert caplog.text.count("event=no_sequence context=repairs column=id") == 1


def test_delay_decides_when_the_source_does_not_report_transactions() -> None:
    class Plain(ListedRows):
        writers = RowSource.writers

    source = Plain((ID,), [(1,), (3,)])

    first = plan(source)

    assert [ids(source, plan(source, first, minutes=minutes)) for minutes in (4, 5)] == [[], [1, 3]]


def test_delay_decides_when_the_source_can_no_longer_report_transactions() -> None:
    source = source_of(1, open={"5/7"})
    first = plan(source)
    source.open = None

    assert [ids(source, plan(source, first, minutes=minutes)) for minutes in (4, 5)] == [[], [1]]


def test_window_goes_no_further_than_rows_when_the_last_ones_were_deleted() -> None:
    source = source_of(1, 9, open={"5/7"})
    first = plan(source)
    source.listed = [(1,), (2,)]
    source.open = {"6/1"}

    assert plan(source, first).high == (3,)


def test_window_stays_at_the_watermark_when_that_was_set_past_what_was_seen() -> None:
    source = source_of(1, 3, open={"5/7"})
    first = plan(source)
    source.listed.append((60,))
    source.open = {"6/1"}

    window = plan_window(source, ["id"], state=first.state_after | {"value": 50}, now=NOW)

    assert window.is_empty
    assert window.high == (50,)


@pytest.mark.parametrize("options", [{"delay": timedelta(0)}, {"high": 9, "settled": True}], ids=["delay", "settled"])
def test_open_transactions_are_not_asked_for_when_the_caller_answers_for_them(options: dict[str, Any]) -> None:
    source = source_of(1, 3, open={"5/7"})

    window = plan(source, **options)

    assert ids(source, window) == [1, 3]
    assert source.waits == []


def test_wait_is_no_longer_than_the_delay_when_that_is_short() -> None:
    source = source_of(1, open=set())

    plan(source, delay=timedelta(seconds=2))

    assert source.waits == [timedelta(seconds=2)]


def test_bound_of_the_caller_is_refused_when_open_transactions_may_come_below_it() -> None:
    with pytest.raises(CursorError, match="high is past what open transactions leave"):
        plan(source_of(1, 3, open={"5/7"}), high=2)


def test_falling_ids_wait_for_open_transactions_too() -> None:
    source = source_of(9, 7, open={"5/7"})
    first = plan(source, descending=True)
    source.listed += [(8,), (2,)]
    source.open = {"6/1"}

    second = plan(source, first, descending=True)

    assert first.is_empty
    assert sorted(ids(source, second)) == [7, 8, 9]


def test_warning_names_the_transactions_when_rows_are_left(caplog: pytest.LogCaptureFixture) -> None:
    plan(source_of(1, open={"5/7", "5/8"}))
    plan(source_of(1))

    assert "event=undecided_rows context=repairs column=id open_transactions=5/7, 5/8: rows past" in caplog.text
    assert "open_transactions=unknown" in caplog.text


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        (5, "undecided is not a map"),
        ({}, "undecided.bound is not a value"),
        ({"bound": "x"}, "undecided.bound is not a value of type bigint"),
        ({"bound": 2, "writers": 5, "at": NOW}, "undecided.writers is not a text of 1 to 65,536 characters"),
        ({"bound": 2, "writers": None, "at": "x"}, "undecided.at is not a time"),
    ],
    ids=str,
)
def test_state_is_refused_when_its_mark_of_waiting_rows_is_damaged(kept: Any, told: str) -> None:
    state = RowWindow((ID,), None, None).state_after | {"undecided": kept}

    with pytest.raises(ImplausibleError, match=f"^rows.{told}$"):
        plan_window(source_of(1, open={"5/7"}), ["id"], state=state, now=NOW)


def test_rows_are_only_delayed_when_the_state_has_no_mark_of_waiting_rows() -> None:
    source = source_of(1, open={"5/7"})

    window = plan_window(source, ["id"], state=RowWindow((ID,), None, None).state_after, now=NOW)

    assert window.is_empty
    assert window.undecided is not None
    assert window.undecided.bound == (2,)


def test_transactions_are_not_asked_for_when_a_plan_is_replayed() -> None:
    source = source_of(1, 3, open=set())

    again = replayed(plan(source))

    assert ids(source, again) == [1, 3]
    assert again.undecided is None


# --- times and UUIDs -------------------------------------------------------------------------------------

AT = CursorColumn("at", "timestamp")


def ago(minutes: float) -> datetime:
    return NOW - minutes * MINUTE


@dataclass
class Stamped(ListedRows):
    """Rows with a time, and the start of an open transaction, if there is one."""

    began: datetime | None = None
    hidden: str = ""
    delays: list[timedelta] = field(default_factory=list)

    def open_writers(self, delay: timedelta) -> OpenWriters:
        self.delays.append(delay)
        return OpenWriters(OpenWriter("pid 7", self.began) if self.began else None, self.hidden)


def stamped(*minutes: float, began: float | None = None) -> Stamped:
    rows: list[tuple[Any, ...]] = [(ago(one),) for one in minutes]
    return Stamped((AT,), rows, now=NOW, began=None if began is None else ago(began))


def plan_of_times(source: Stamped, before: RowWindow | None = None, **options: Any) -> RowWindow:
    return plan_after(
        before, source, [source.cursors[0].name], now=datetime(1999, 1, 1, tzinfo=timezone.utc), **options
    )


def stamps(source: Stamped, window: RowWindow) -> list[Any]:
    return sorted(stamp for (stamp,) in source.rows(window))


def test_stamps_since_a_transaction_began_wait_for_it_when_it_is_open_for_longer_than_the_delay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = stamped(20, 10, began=12)

    first = plan_of_times(source)
    source.listed.append((ago(11),))
    source.began = None
    warned = caplog.text
    second = plan_of_times(source, first)

    assert (stamps(source, first), stamps(source, second)) == ([ago(20)], [ago(11), ago(10)])
    assert "event=long_transaction context=repairs source=public.repairs transaction='pid 7' open_for=0:12:00" in warned
    assert caplog.text == warned


@pytest.mark.parametrize(("minutes", "began"), [((10, 6, 4), 5), ((20, 15), 12)], ids=["short", "newer than all rows"])
def test_transaction_holds_nothing_back_when_no_row_could_be_lost(
    caplog: pytest.LogCaptureFixture, minutes: tuple[float, ...], began: float
) -> None:
    source = stamped(*minutes, began=began)

    assert stamps(source, plan_of_times(source)) == [ago(one) for one in minutes if one > 5]
    assert caplog.text == ""


def test_source_is_complete_no_further_than_an_open_transaction() -> None:
    source = stamped(20, began=12)

    assert plan_of_times(source).complete == (ago(12),)


def test_warning_says_so_when_the_watermark_is_past_the_beginning_of_an_open_transaction(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It may only have read until the watermark passed its start: many transactions read first and stamp that start."""
    source = stamped(20, 10)
    first = plan_of_times(source)
    source.began = ago(12)
    source.listed.append((ago(8),))

    second = plan_of_times(source, first)

    assert second.is_empty
    assert "event=passed_transaction context=repairs source=public.repairs transaction='pid 7'" in caplog.text


def test_no_transaction_is_passed_when_the_watermark_is_at_no_row_yet(caplog: pytest.LogCaptureFixture) -> None:
    source = stamped(began=12)
    state = RowWindow((AT,), None, None).state_after

    window = plan_window(source, ["at"], state=state, now=NOW, context="repairs")

    assert (window.high, caplog.messages) == (None, [])


@pytest.mark.parametrize(
    "options", [{"delay": timedelta(0)}, {"high": ago(1)}, {"start_from": ago(15), "high": ago(9)}], ids=str
)
def test_transactions_are_not_asked_for_when_no_delay_is_kept(options: dict[str, Any]) -> None:
    source = stamped(10, 3, began=12)

    plan_of_times(source, **options)

    assert source.delays == []


def test_first_run_warns_when_transactions_of_others_are_hidden(caplog: pytest.LogCaptureFixture) -> None:
    source = stamped(20, 10)
    source.hidden = "it is a replica"

    first = plan_of_times(source)
    warned = caplog.text
    plan_of_times(source, first)

    assert stamps(source, first) == [ago(20), ago(10)]
    assert "event=hidden_transactions context=repairs source=public.repairs: rows" in warned
    assert "stamp are lost, because it is a replica" in warned
    assert caplog.text == warned


def test_transaction_is_compared_as_an_instant_when_the_clocks_go_back_meanwhile() -> None:
    """At 01:30 after the clocks go back, a transaction that began at 01:40 before the change is 50 minutes old."""
    london = ZoneInfo("Europe/London")
    now = datetime(2026, 10, 25, 1, 30, tzinfo=timezone.utc).astimezone(london)
    began = datetime(2026, 10, 25, 0, 40, tzinfo=timezone.utc).astimezone(london)
    wall = [(datetime(2026, 10, 25, hour, minute, tzinfo=timezone.utc),) for hour, minute in ((0, 50), (1, 10))]
    source = Stamped((CursorColumn("at", "timestamp_ntz"),), list(wall), now=now, began=began)

    assert stamps(source, plan_of_times(source)) == [wall[0][0]]


def test_uuids_since_a_transaction_began_wait_for_it() -> None:
    old, held = first_uuid_at(ago(20)), first_uuid_at(ago(10))
    source = Stamped((CursorColumn("id", "uuid"),), [(old,), (held,)], now=NOW, began=ago(12))

    first = plan_of_times(source)
    source.began = None

    assert (stamps(source, first), stamps(source, plan_of_times(source, first))) == ([old], [held])
