"""Live runs, jumps and backfills in any order, each of which may die at any request: no row is lost or duplicated."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scripts.helpers.backfill import Backfill
from scripts.helpers.errors import BoundsError, CommitUnknownError, StoreUnavailableError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.watermarks import Watermarks
from tests.support.dynamodb import Died, FakeDynamoDB
from tests.support.listed_rows import ListedRows
from tests.support.long import cases

JOB, CONTEXT = "parking", "repairs"
NOW = datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc)
END = 40
FAULTS = st.none() | st.tuples(
    st.integers(1, 32), st.sampled_from(["die-before", "die-after", "drop", "reply-lost", "re-send"])
)


class Backfills(RuleBasedStateMachine):
    """A job whose source only appends numbered rows, its sink, and the ranges that must and that may be covered."""

    def __init__(self) -> None:
        super().__init__()
        self.client = FakeDynamoDB("table")
        self.source = ListedRows((CursorColumn("id", "bigint"),), [])
        self.sink: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
        self.covered: set[int] = set()
        self.unfinished: dict[tuple[int, int], set[int]] = {}
        self.finished: set[tuple[int, int]] = set()

    def process(self) -> Watermarks:
        made = Watermarks("table", self.client, clock=lambda: NOW)  # type: ignore[arg-type]
        made.store.sleep = lambda seconds: None
        return made

    def attempt(self, fault: tuple[int, str] | None, work: Callable[[], None]) -> bool:
        """Run `work` with a fault at one request, after which the process may be dead; return whether it finished."""
        start, dead = len(self.client.requests), False

        def spoil(number: int, *_: object) -> str | None:
            nonlocal dead
            if dead:
                return "die-before"
            if fault is None or number - start != fault[0]:
                return None
            dead = fault[1].startswith("die")
            return fault[1]

        self.client.fault = spoil
        try:
            work()
        except (Died, StoreUnavailableError, CommitUnknownError):
            return False
        finally:
            self.client.fault = None
        return not dead

    @property
    def value(self) -> int | None:
        """The live watermark, or None if there is none."""
        item = self.client.items.get((JOB, "~latest"))
        state = item["watermarks"]["M"].get(CONTEXT) if item else None
        return int(state["M"]["value"]["N"]) if state and "N" in state["M"]["value"] else None

    @property
    def is_planned(self) -> bool:
        return "planId" in self.client.items.get((JOB, "~latest"), {})

    @initialize(value=st.integers(0, 12))
    def start(self, value: int) -> None:
        self.source.listed = [(number,) for number in range(value)]
        if value:
            self.jump(value)

    # --- rules ------------------------------------------------------------------------------------------

    @rule(rows=st.integers(1, 5))
    def grow(self, rows: int) -> None:
        first = len(self.source.listed)
        self.source.listed += [(number,) for number in range(first, min(first + rows, END))]

    @rule(fault=FAULTS)
    def run_live(self, fault: tuple[int, str] | None) -> None:
        before = self.value

        def work() -> None:
            with IncrementalJob(self.process(), JOB, "live", clock=lambda: NOW) as job:
                rows: Any = job.rows_since(self.source, "id", transformation_ctx=CONTEXT)
                self.sink[JOB, str(job.freeze().id)] = rows

        self.attempt(fault, work)
        if self.value is not None:
            self.covered |= set(range(-1 if before is None else before, self.value))

    @precondition(lambda self: not self.is_planned)
    @rule(by=st.integers(1, 10))
    def jump(self, by: int) -> None:
        value = min((self.value or 0) + by, len(self.source.listed))
        state = {"kind": "rows", "cursor_column": "id", "type": "bigint", "value": value}
        self.process().set_watermark(JOB, state, transformation_ctx=CONTEXT, why="a jump")

    @precondition(lambda self: (self.value or 0) > 0)
    @rule(data=st.data(), fault=FAULTS)
    def backfill(self, data: st.DataObject, fault: tuple[int, str] | None) -> None:
        low = data.draw(st.integers(0, (self.value or 0) - 1))
        high = data.draw(st.integers(low + 1, self.value or 0))
        wanted = set(range(low, high))
        others = [bounds for bounds, taken in self.unfinished.items() if bounds != (low, high) and wanted & taken]
        begun = (low, high) in self.unfinished
        is_refused = bool(wanted & self.covered) and not begun
        try:
            done = self.attempt(fault, lambda: self.read(low, high))
        except BoundsError:
            assert is_refused or others
            return
        if done:
            assert not is_refused or (low, high) in self.finished
            self.covered |= wanted
            for bounds in [*others, (low, high)]:  # No other slice can have read anything.
                self.unfinished.pop(bounds, None)
        elif not is_refused:
            self.unfinished[low, high] = wanted

    def read(self, low: int, high: int) -> None:
        with Backfill(
            self.process(), JOB, "slice", transformation_ctx=CONTEXT, low=low, high=high, clock=lambda: NOW
        ) as backfill:
            rows: Any = backfill.rows(self.source, "id")
            self.sink[backfill.job_id, str(backfill.freeze().id)] = rows
        self.finished.add((low, high))

    @rule()
    def fill(self) -> None:
        """Fill every gap that is listed, which also finishes slices that were begun."""
        if self.value is None:
            return
        for low, high in self.process().gaps(JOB, CONTEXT, start=0):
            self.read(low, high)
            self.covered |= set(range(low, high))
        # A slice that is no longer listed was committed before its process died.
        self.covered = self.covered.union(*self.unfinished.values())
        self.unfinished.clear()

        assert self.process().gaps(JOB, CONTEXT, start=0) == []
        assert self.process().unfinished(JOB, CONTEXT) == {}

    # --- invariants -------------------------------------------------------------------------------------

    @invariant()
    def coverage_is_what_was_read(self) -> None:
        if self.value is None:
            return
        found = set()
        for low, high in self.process().coverage(JOB, CONTEXT):
            found |= set(range(-1 if low is None else low, high))
        maybe = set().union(*self.unfinished.values())
        assert self.covered - {-1} <= found - {-1} <= (self.covered | maybe) - {-1}

    @invariant()
    def gaps_are_the_rest(self) -> None:
        if self.value is None:
            return
        gaps = set()
        for low, high in self.process().gaps(JOB, CONTEXT, start=0):
            gaps |= set(range(low, high))
        maybe = set().union(*self.unfinished.values())
        rest = set(range(self.value)) - self.covered
        assert rest - maybe <= gaps <= rest

    def teardown(self) -> None:
        """Take all that is left: then the sink holds every row once."""
        self.run_live(None)
        self.run_live(None)  # The first run may only replay an older plan.
        self.fill()
        rows = sorted(row for batch in self.sink.values() for row in batch)
        assert rows == self.source.listed


TestBackfills = Backfills.TestCase
TestBackfills.settings = settings(
    max_examples=cases(40, long=100),
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
