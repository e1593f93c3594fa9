"""A table that transactions write to and that people truncate, restore and recreate; its cursor is an id or a time.

Every row that is in the table at the end was delivered, or a run reported a problem with the table: by an error, or by
a WARNING that is not about waiting. The model then resets the job, as an operator would. Runs wait for transactions
that open, stamp, commit and abort in any order, so these alone raise no alarm. The model ignores rows that were deleted
before a run took them and were restored from a backup: they cannot be told apart from rows that were taken.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from scripts.helpers.errors import PlanConflictError, SourceError, SourceLostError
from scripts.helpers.protocol.values import decode, encode
from scripts.helpers.rows import plan as planning
from scripts.helpers.rows.cursors import Bound, CursorColumn
from scripts.helpers.rows.identity import check_same_plan
from scripts.helpers.rows.options import RaiseOrWarn
from scripts.helpers.rows.plan import plan_window
from scripts.helpers.rows.sources import Facts, OpenWriter, OpenWriters, RowSource, SeenRow
from scripts.helpers.rows.window import RowWindow
from tests.support.reasons import behind

NOW = datetime(2026, 11, 1, tzinfo=timezone.utc)
DELAY = timedelta(minutes=5)
TICK = timedelta(microseconds=1)
ID, AT = CursorColumn("id", "bigint"), CursorColumn("at", "timestamp")
OUTLIER = 10**6
WAITING = (
    "event=undecided_rows", "event=source_empty", "event=future_stamps", "event=large_tie", "event=long_transaction",
)  # fmt: skip
"""WARNINGs that need no action."""


@dataclass(frozen=True)
class Row:
    """One row: the insert that created it, and the number of updates since."""

    birth: int
    updates: int = 0


@dataclass
class Transactions(RowSource):
    """A table, its sequence and its open transactions; a source that answers every question a database can answer.

    Times are stored as microseconds, so that they are numbers too. Falling numbers are stored negated, so above 0.
    """

    column: CursorColumn = ID
    tells_writers: bool = True
    descending: bool = False
    name: str = "public.repairs"
    now: datetime = NOW
    oid: int = 1
    following: int = 1
    shown: dict[int, Row] = field(default_factory=dict)
    open: dict[int, tuple[datetime, dict[int, Row]]] = field(default_factory=dict)

    def columns(self, names: Sequence[str], strings: bool) -> tuple[CursorColumn, ...]:
        return (self.column,)

    def identity(self) -> Mapping[str, Any]:
        return {"table": "repairs", "oid": self.oid}

    def facts(self, columns: tuple[CursorColumn, ...], low: Bound | None, descending: bool) -> Facts:
        past = [number for number in self.shown if low is None or number >= self.number(low[0])]
        found = self.bound(max(past)) if past else None
        return Facts(self.now, largest=None if descending else found, smallest=found if descending else None)

    def cursor_at(self, window: RowWindow, position: int) -> Bound | None:
        found = sorted(self.rows(window))[position:]
        return self.bound(found[0]) if found else None

    def last(self, columns: tuple[CursorColumn, ...], descending: bool) -> Bound | None:
        return self.bound(max(self.shown)) if self.shown else None

    def newest(self, window: RowWindow, most: int) -> list[SeenRow]:
        found = sorted(self.rows(window), reverse=True)[:most]
        return [SeenRow(self.bound(number), {"row": str(self.shown[number])}) for number in found]

    def writers(self, column: str, longest: timedelta) -> frozenset[str] | None:
        return frozenset(map(str, self.open)) if self.tells_writers else None

    def open_writers(self, delay: timedelta) -> OpenWriters:
        began = [(since, name) for name, (since, rows) in self.open.items() if rows and self.tells_writers]
        return OpenWriters(OpenWriter(f"pid {min(began)[1]}", min(began)[0]) if began else None)

    def rows(self, window: RowWindow) -> list[int]:
        if window.high is None:
            return []
        low = -1 if window.low is None else self.number(window.low[0])
        high = self.number(window.high[0])
        return [number for number in self.shown if low <= number < high]

    def bound(self, number: int) -> Bound:
        if self.column.is_time:
            return (NOW + number * TICK,)
        return (-number if self.descending else number,)

    def number(self, value: Any) -> int:
        if self.column.is_time:
            return (value - NOW) // TICK
        return -int(value) if self.descending else int(value)

    def next_number(self) -> int:
        """Return the number or time of a row that is inserted now."""
        number = self.following
        if self.column.is_time:
            number = max(number, (self.now - NOW) // TICK)
        self.following = number + 1
        return number


POLICIES = st.sampled_from(get_args(RaiseOrWarn))


class Numbers(RuleBasedStateMachine):
    """Every row that is in the table at the end is delivered, or a problem is reported."""

    @initialize(
        column=st.sampled_from([ID, AT]), tells_writers=st.booleans(), descending=st.booleans(),
        on_behind=POLICIES, on_late=POLICIES, on_changed=POLICIES, max_rows=st.sampled_from([None, 1, 3]),
    )  # fmt: skip
    def start(
        self,
        column: CursorColumn,
        tells_writers: bool,
        descending: bool = False,
        on_behind: RaiseOrWarn = "raise",
        on_late: RaiseOrWarn = "raise",
        on_changed: RaiseOrWarn = "warn",
        max_rows: int | None = None,
    ) -> None:
        is_number = not column.is_time
        self.table = Transactions(column, tells_writers, descending and is_number)
        self.options: dict[str, Any] = {
            "delay": DELAY, "descending": self.table.descending, "max_rows": max_rows,
            "on_behind": on_behind, "on_late": on_late, "on_changed": on_changed,
        }  # fmt: skip
        self.came_back: set[tuple[int, int]] = set()
        self.births, self.begun = 0, 0
        self.was_meddled_with = False
        self.backups: list[tuple[dict[int, Row], int]] = []
        self.forget()

    def forget(self) -> None:
        """Reset the job and empty the target."""
        self.state: dict[str, Any] | None = None
        self.plan: dict[str, Any] | None = None
        self.delivered: set[tuple[int, int]] = set()

    def born(self) -> Row:
        self.births += 1
        return Row(self.births)

    # --- what writes to the table -----------------------------------------------------------------

    @rule()
    def begin(self) -> None:
        self.begun += 1
        self.table.open[self.begun] = (self.table.now, {})

    @precondition(lambda self: self.table.open)
    @rule(which=st.integers(0, 9))
    def insert(self, which: int) -> None:
        name = list(self.table.open)[which % len(self.table.open)]
        since, rows = self.table.open[name]
        # As in InnoDB, a transaction begins with its first row, so no row has an earlier stamp.
        self.table.open[name] = (since if rows else self.table.now, rows)
        rows[self.table.next_number()] = self.born()

    @rule(count=st.integers(1, 7))
    def insert_and_commit(self, count: int) -> None:
        for _ in range(count):
            self.table.shown[self.table.next_number()] = self.born()

    @precondition(lambda self: self.table.open)
    @rule(which=st.integers(0, 9), commits=st.booleans())
    def end(self, which: int, commits: bool) -> None:
        name = list(self.table.open)[which % len(self.table.open)]
        _, rows = self.table.open.pop(name)
        if commits:
            self.table.shown |= rows

    @precondition(lambda self: self.table.shown)
    @rule(which=st.integers(0, 99), deletes=st.booleans())
    def update_or_delete(self, which: int, deletes: bool) -> None:
        number = sorted(self.table.shown)[which % len(self.table.shown)]
        row = self.table.shown.pop(number)
        # A run cannot tell an update or delete of the last taken row from a restore.
        self.was_meddled_with = True
        if not deletes:
            self.table.shown[number] = Row(row.birth, row.updates + 1)

    @precondition(lambda self: max(self.table.shown, default=0) < OUTLIER and not self.table.column.is_time)
    @rule()
    def insert_an_outlier(self) -> None:
        self.table.shown[OUTLIER] = self.born()
        self.was_meddled_with = True

    # --- what operators do to it ------------------------------------------------------------------

    @precondition(lambda self: not self.table.open)
    @rule(restarts=st.booleans())
    def truncate(self, restarts: bool) -> None:
        self.table.shown = {}
        self.was_meddled_with = True
        if restarts:
            self.table.following = 1

    @rule()
    def make_anew(self) -> None:
        self.table.oid += 1
        self.was_meddled_with = True
        self.table.shown, self.table.open, self.table.following = {}, {}, 1

    @rule()
    def back_up(self) -> None:
        self.backups.append((dict(self.table.shown), self.table.following))

    @precondition(lambda self: self.backups)
    @rule(which=st.integers(0, 9))
    def restore(self, which: int) -> None:
        rows, following = self.backups[which % len(self.backups)]
        there = {(number, row.birth) for number, row in self.table.shown.items()}
        self.was_meddled_with = True
        self.came_back |= {(number, row.birth) for number, row in rows.items()} - there - self.delivered
        self.table.shown, self.table.open, self.table.following = dict(rows), {}, following

    # --- the job ----------------------------------------------------------------------------------

    @rule(minutes=st.integers(1, 6))
    def wait(self, minutes: int) -> None:
        """Let time pass. If the table does not show its open transactions, none stays open longer than the delay."""
        self.table.now += minutes * timedelta(minutes=1)
        for name, (since, rows) in list(self.table.open.items()):
            if not self.table.tells_writers and self.table.now - since >= DELAY:
                del self.table.open[name]
                self.table.shown |= rows

    @rule(dies=st.booleans())
    def run(self, dies: bool) -> None:
        """Plan a batch, or replay the plan of a run that died; commit it unless this run dies too."""
        heard = Heard()
        logger = logging.getLogger("scripts.helpers.rows")
        logger.addHandler(heard)
        try:
            if self.plan is None:
                window = plan_window(self.table, [self.table.column.name], now=NOW, state=self.state, **self.options)
                self.plan = decode(*encode(window.to_plan() | {"next": window.state_after}))
            else:
                check_same_plan(self.plan, self.table, "JOB")
        except (SourceError, PlanConflictError) as error:
            if not isinstance(error, (SourceLostError, PlanConflictError)) and not behind(error):
                raise
            heard.announced = True
        finally:
            logger.removeHandler(heard)
        if heard.announced:
            assert self.was_meddled_with, "transactions alone raise no alarm: they are waited for"
            self.forget()
        elif not dies and self.plan is not None:
            window = RowWindow.from_plan(self.plan, [self.table.column.name], "rows")
            self.delivered |= {(number, self.table.shown[number].birth) for number in self.table.rows(window)}
            self.state, self.plan = self.plan["next"], None

    def teardown(self) -> None:
        """Commit every open transaction, and run until nothing is left."""
        for _, rows in self.table.open.values():
            self.table.shown |= rows
        self.table.open = {}
        # A run may take as little as one row, and each reported problem resets the job.
        for _ in range(6 + 2 * len(self.table.shown)):
            self.table.now += DELAY
            self.run(dies=False)
        there = {(number, row.birth) for number, row in self.table.shown.items()}
        lost = there - self.delivered - self.came_back
        assert not lost, sorted(lost)


class Heard(logging.Handler):
    """Record whether a WARNING was logged that an operator must look at."""

    announced = False

    def emit(self, record: logging.LogRecord) -> None:
        self.announced |= not record.getMessage().startswith(WAITING)


def search(examples: int) -> None:
    run_state_machine_as_test(Numbers, settings=settings(max_examples=examples, stateful_step_count=30, deadline=None))


def test_every_row_is_delivered_or_announced_when_tables_go_back() -> None:
    search(60)


@pytest.mark.long
def test_every_row_is_delivered_or_announced_when_tables_go_back_over_and_over() -> None:
    search(5_000)


def test_rows_are_lost_when_nothing_is_kept_of_the_last_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The property above can fail: a table was truncated and has grown past the watermark."""
    monkeypatch.setattr(planning, "edge_after", lambda *arguments: None)
    story = Numbers()
    story.start(ID, tells_writers=True)
    for rows in (5, 7):
        story.insert_and_commit(rows)
        story.run(dies=False)
        story.truncate(restarts=True)
    story.insert_and_commit(20)

    with pytest.raises(AssertionError):
        story.teardown()


def test_alarm_is_raised_when_no_transaction_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The property above can fail: number 1 is committed after number 2 was taken."""
    monkeypatch.setattr(planning, "reachable_high", lambda source, columns, past_last, *rest: (past_last, None))
    story = Numbers()
    story.start(ID, tells_writers=True)
    story.begin()
    story.insert(0)
    story.insert_and_commit(1)
    story.run(dies=False)
    story.end(0, commits=True)

    with pytest.raises(AssertionError, match="transactions alone raise no alarm"):
        story.run(dies=False)


def test_stamp_is_lost_when_no_open_transaction_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The property above can fail: a transaction stays open for longer than the delay."""
    monkeypatch.setattr(planning, "oldest_writer", lambda *arguments, **options: OpenWriters())
    story = Numbers()
    story.start(AT, tells_writers=True)
    story.begin()
    story.insert(0)
    story.wait(6)
    story.insert_and_commit(1)
    story.wait(6)
    story.run(dies=False)
    story.end(0, commits=True)

    with pytest.raises(AssertionError):
        story.teardown()
