"""A scripted source: each row has a stamp and a moment when it becomes visible, updates move rows, clocks are wrong.

No row is lost as long as it becomes visible within delay plus lookback of its stamp, including the error of the
source's clock. Without lookback each version is delivered once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.helpers.protocol.values import decode, encode
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.rows.plan import plan_window
from scripts.helpers.rows.window import RowWindow
from tests.support.listed_rows import ListedRows

START = datetime(2026, 10, 25, tzinfo=timezone.utc)
TICK = timedelta(microseconds=1)
SPAN = 60
SKEW = timedelta(minutes=1)
STAMP, ID = CursorColumn("last_modified", "timestamp"), CursorColumn("id", "int")


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


@dataclass(frozen=True)
class Version:
    """One version of a row: visible from `shown` until the next version of the same row becomes visible."""

    id: int
    stamp: datetime
    shown: datetime

    @property
    def late(self) -> timedelta:
        return self.shown - self.stamp


@dataclass(frozen=True)
class Run:
    """One run: when it plans, the errors of the job's and the source's clocks, and whether it dies."""

    moment: datetime
    wrong: timedelta
    dies: bool
    skew: timedelta = timedelta(0)


def seen(history: list[Version], moment: datetime) -> dict[int, Version]:
    """Return the newest version of each row that is visible at a moment."""
    shown = sorted((version for version in history if version.shown <= moment), key=lambda version: version.shown)
    return {version.id: version for version in shown}


def drive(
    history: list[Version],
    runs: list[Run],
    *,
    delay: timedelta,
    lookback: timedelta = timedelta(0),
    compound: bool = False,
) -> list[tuple[Any, ...]]:
    """Return all rows that the runs delivered, as pairs of stamp and id. The next run replays a run that died.

    The source's clock shows the moment plus its skew, but never goes back.
    """
    columns = (STAMP, ID) if compound else (STAMP,)
    names = [column.name for column in columns]
    source, state, plan, delivered = ListedRows(columns), None, None, []
    for run in runs:
        visible = seen(history, run.moment).values()
        pairs = sorted((version.stamp, version.id) for version in visible)
        source.listed = pairs if compound else sorted({pair[:1] for pair in pairs})
        source.now = max(run.moment + run.skew, source.now or run.moment + run.skew)
        if plan is None:
            disposition = "merge" if lookback else "append"
            # An update may lower the stamp of a row that a fast clock stamped, so the source may be behind.
            window = plan_window(
                source, names, now=run.moment + run.wrong, state=state, delay=delay, lookback=lookback,
                write_disposition=disposition, on_behind="warn", on_late="warn",
            )  # fmt: skip
            plan = decode(*encode(window.to_plan() | {"next": window.state_after}))
        if run.dies:
            continue
        window = RowWindow.from_plan(plan, names, "repairs")
        taken = set(source.rows(window))
        delivered += [pair for pair in pairs if pair[: len(columns)] in taken]
        state, plan = plan["next"], None
    return delivered


seconds = st.integers(0, SPAN).map(float)


@st.composite
def histories(draw: Any, latest: timedelta) -> list[Version]:
    """Draw versions of a few rows, none later than `latest`; some are stamped by clocks that run ahead."""
    late = st.integers(-20, int(latest.total_seconds())).map(lambda number: timedelta(seconds=number))
    made = draw(st.lists(st.tuples(st.integers(1, 4), seconds, late), max_size=10))
    found = {(number, shown): Version(number, at(shown) - by, at(shown)) for number, shown, by in made}
    return list(found.values())


@st.composite
def schedules(draw: Any, skewed: timedelta = timedelta(0)) -> list[Run]:
    """Draw runs at increasing moments; the last two come long after all versions and do not die."""
    moments = sorted(draw(st.lists(st.integers(0, 2 * SPAN), max_size=8)))
    wrong = st.integers(-10_000, 10_000).map(lambda hours: timedelta(hours=hours))
    most = int(skewed.total_seconds())
    skew = st.integers(-most, most).map(lambda number: timedelta(seconds=number))
    runs = [Run(at(moment / 2), draw(wrong), draw(st.booleans()), draw(skew)) for moment in moments]
    end = [Run(at(10 * SPAN + step), draw(wrong), False, draw(skew)) for step in (0, 1)]
    return runs + end


@given(histories(timedelta(seconds=15)), schedules(), st.booleans())
def test_no_row_is_lost_when_each_shows_within_the_delay(
    history: list[Version], runs: list[Run], compound: bool
) -> None:
    delivered = drive(history, runs, delay=timedelta(seconds=15), compound=compound)

    assert {(version.stamp, version.id) for version in seen(history, runs[-1].moment).values()} <= set(delivered)


@given(histories(timedelta(seconds=15)), schedules(), st.booleans())
def test_each_version_comes_once_when_there_is_no_lookback(
    history: list[Version], runs: list[Run], compound: bool
) -> None:
    """A version that becomes visible twice with the same stamp counts as one version."""
    delivered = drive(history, runs, delay=timedelta(seconds=15), compound=compound)

    assert len(delivered) == len(set(delivered))


@given(histories(timedelta(seconds=25)), schedules(), st.booleans())
def test_no_row_is_lost_when_each_shows_within_delay_and_lookback(
    history: list[Version], runs: list[Run], compound: bool
) -> None:
    delivered = drive(history, runs, delay=timedelta(seconds=15), lookback=timedelta(seconds=10), compound=compound)

    assert {(version.stamp, version.id) for version in seen(history, runs[-1].moment).values()} <= set(delivered)


@given(histories(timedelta(seconds=15)), schedules(SKEW), st.booleans(), st.booleans())
def test_no_row_is_lost_when_the_delay_covers_the_error_of_the_sources_clock(
    history: list[Version], runs: list[Run], compound: bool, looks_back: bool
) -> None:
    """Either the delay or the lookback may cover the skew."""
    late = timedelta(seconds=15)
    bounds = {"delay": late, "lookback": SKEW} if looks_back else {"delay": late + SKEW}

    delivered = drive(history, runs, **bounds, compound=compound)

    assert {(version.stamp, version.id) for version in seen(history, runs[-1].moment).values()} <= set(delivered)
    assert looks_back or len(delivered) == len(set(delivered))


def test_row_is_lost_when_the_sources_clock_is_ahead_by_more_than_the_delay_covers() -> None:
    """The property above can fail if the skew exceeds the delay."""
    history = [Version(1, at(0), at(15)), Version(2, at(14), at(14))]

    lost = []
    for skew in (timedelta(0), SKEW):
        runs = [Run(at(14), timedelta(0), False, skew), Run(at(500), timedelta(0), False)]
        lost.append((at(0), 1) not in drive(history, runs, delay=timedelta(seconds=15)))

    assert lost == [False, True]


@given(
    histories(timedelta(seconds=15)),
    schedules(SKEW),
    st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(3, 20_000_000)),
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
    st.booleans(),
)
def test_row_is_lost_when_it_shows_later_than_delay_and_lookback_behind_the_largest(
    history: list[Version], runs: list[Run], times: tuple[int, int, int], where: tuple[int, int], compound: bool
) -> None:
    """Two runs that do not die see the newer row before the late one: the first of them may only replay a plan."""
    delay, lookback, over = timedelta(seconds=times[0]), timedelta(seconds=times[1]), times[2] * TICK
    late = Version(9, at(20 * SPAN), at(20 * SPAN) + delay + lookback + over)
    first = late.stamp + delay + lookback + TICK
    moment = first + where[0] % ((late.shown - first) // TICK) * TICK
    newest = late.stamp + lookback + TICK
    stamp = newest + where[1] % ((moment - newest) // TICK + 1) * TICK
    newer = Version(8, stamp, moment)
    over_again = [Run(moment, timedelta(0), False), Run(moment, timedelta(0), False)]
    after = [Run(late.shown + timedelta(hours=step), timedelta(0), False) for step in (0, 1)]

    delivered = drive(
        [*history, late, newer], [*runs, *over_again, *after], delay=delay, lookback=lookback, compound=compound
    )

    assert (newer.stamp, newer.id) in delivered
    assert (late.stamp, late.id) not in delivered


BOUNDS = [timedelta(0), timedelta(seconds=15)]


@pytest.mark.parametrize("compound", [False, True], ids=["one column", "two columns"])
@pytest.mark.parametrize("lookback", BOUNDS, ids=["no lookback", "lookback"])
@pytest.mark.parametrize("delay", BOUNDS, ids=["no delay", "delay"])
@pytest.mark.parametrize(("over", "lost"), [(timedelta(0), False), (2 * TICK, True)], ids=["in time", "too late"])
def test_row_is_lost_if_and_only_if_it_shows_later_than_delay_and_lookback(
    delay: timedelta, lookback: timedelta, over: timedelta, lost: bool, compound: bool
) -> None:
    """Just before the late row becomes visible, a run takes the newest row that is possible: the worst case."""
    late = Version(1, at(100), at(100) + delay + lookback + over)
    just_before = late.shown - TICK
    newer = Version(2, just_before, just_before)
    runs = [Run(just_before, timedelta(0), False), Run(at(1_000), timedelta(0), False)]

    delivered = drive([late, newer], runs, delay=delay, lookback=lookback, compound=compound)

    assert ((late.stamp, late.id) not in delivered) == lost
    assert (newer.stamp, newer.id) in delivered


def test_row_is_lost_when_the_delay_is_a_second_too_small() -> None:
    """The model can fail: a row that becomes visible 15 s late is lost with a delay of 14 s."""
    history = [Version(1, at(0), at(15)), Version(2, at(14.5), at(14.5))]
    runs = [Run(at(14.5), timedelta(0), False), Run(at(500), timedelta(0), False)]

    assert (at(0), 1) not in drive(history, runs, delay=timedelta(seconds=14))
    assert (at(0), 1) in drive(history, runs, delay=timedelta(seconds=15))


# --- columns coarser than the clock -------------------------------------------------------------------

COARSE = [
    timedelta(milliseconds=1), timedelta(microseconds=3333), timedelta(seconds=1), timedelta(minutes=1),
]  # fmt: skip


def stamped(moment: datetime, tick: timedelta) -> datetime:
    """Return the stamp that a coarse column stores for a moment: rounded down, or to the nearest 1/300 s."""
    if tick == COARSE[1]:
        thirds = round((moment - START) / timedelta(seconds=1) * 300)
        return START + timedelta(microseconds=thirds * 1_000_000 // 300)
    return moment - (moment - START) % tick


@given(
    st.sampled_from(COARSE),
    st.lists(st.tuples(st.integers(0, 3_000_000), st.booleans()), max_size=12),
    st.sampled_from([1, 20, 200]),
)
def test_rows_are_taken_once_when_stamps_are_coarser_than_the_clock(
    tick: timedelta, events: list[tuple[int, bool]], pace: int
) -> None:
    """Rows become visible at the moment of their stamp, the delay is 0, and several runs fall within one tick."""
    column = CursorColumn("at", "timestamp", tick)
    source, state, taken = ListedRows((column,)), None, 0
    moments = sorted({micros // pace: is_row for micros, is_row in events}.items())
    for micros, is_row in [*moments, (10**9, False)]:
        source.now = START + timedelta(microseconds=micros)
        if is_row:
            source.listed.append((stamped(source.now, tick),))
            continue
        window = plan_window(source, ["at"], now=START, state=state, delay=timedelta(0))
        taken += len(source.rows(window))
        state = window.state_after

    assert taken == len(source.listed)


def test_row_of_the_same_second_is_lost_when_the_coarse_tick_is_not_told() -> None:
    """The property above can fail if the tick of the column is unknown."""
    taken = {}
    for tick in (TICK, timedelta(seconds=1)):
        source = ListedRows((CursorColumn("at", "timestamp", tick),), [(at(7),)], at(7.5))
        first = plan_window(source, ["at"], now=START, delay=timedelta(0))
        taken[tick] = len(source.rows(first))
        source.listed.append((at(7),))
        source.now = at(60)
        second = plan_window(source, ["at"], now=START, state=first.state_after, delay=timedelta(0))
        taken[tick] += len(source.rows(second))

    assert taken == {TICK: 1, timedelta(seconds=1): 2}
