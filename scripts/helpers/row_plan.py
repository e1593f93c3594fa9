"""Fix the window of one batch: options, the stored watermark, and what the source says, into two bounds. Pure."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, get_args

from scripts.helpers.cursors import EXACT, Bound, Cursor, CursorColumn, Tick
from scripts.helpers.errors import CursorError, SourceBehindError
from scripts.helpers.row_sources import Facts, RowSource
from scripts.helpers.row_window import Nulls, RowWindow, check_source, check_types, precedes, read_bound

logger = logging.getLogger(__name__)

Sink = Literal["append", "merge"]

DEFAULT_DELAY = timedelta(minutes=5)
"""How far the upper bound of times stays behind the clock: a transaction that commits up to five
minutes after the time it stamped on its rows is not missed. Kafka's JDBC source defaults to none,
and its issues #172, #915 and #1015 are the rows that were lost."""


@dataclass(frozen=True)
class RowOptions:
    """How `rows_since` chooses rows. The defaults lose nothing and repeat nothing.

    Attributes
    ----------
    delay
        Longest time between a row's stamp and the moment others can see the row. Times only.
    lookback
        How far before the watermark to read again, for rows that show later than `delay`: a
        timedelta, or a number for numbers. Rows come twice, so it needs a sink that merges.
    high
        The upper bound, not itself taken, instead of the one that the source gives; no delay is
        kept from it. A tuple for compound cursors.
    initial_value
        Where a first run starts, itself taken; None for everything.
    nulls
        Rows with NULL in a cursor column: ``raise`` with their count, ``include`` all of them each
        time (needs a sink that merges), or ``exclude`` them, with a WARNING that counts them.
    descending
        The numbers fall from row to row.
    strings
        Take texts as cursors. They compare byte by byte: right for keys of fixed width only.
    sink
        ``merge`` if what is written replaces rows of the same key.
    """

    delay: timedelta = DEFAULT_DELAY
    lookback: Tick | None = None
    high: Any = None
    initial_value: Any = None
    nulls: Nulls = "raise"
    descending: bool = False
    strings: bool = False
    sink: Sink = "append"

    def check(self, columns: tuple[CursorColumn, ...]) -> None:
        """Refuse what cannot be meant, before the source is asked; CursorError names option and remedy."""
        first = columns[0]
        if self.nulls not in get_args(Nulls):
            raise CursorError(first.name, f"nulls={self.nulls!r} is unknown. Use 'raise', 'include' or 'exclude'.")
        if self.sink not in get_args(Sink):
            raise CursorError(first.name, f"sink={self.sink!r} is unknown. Use 'append' or 'merge'.")
        if not isinstance(self.delay, timedelta) or self.delay < timedelta(0):
            raise CursorError(first.name, f"delay={self.delay!r} is no time from 0 on. Give a timedelta.")
        numbers = [column for column in columns if column.is_number]
        if self.descending and len(numbers) < len(columns):
            raise CursorError(first.name, "descending=True is for numbers only. Leave it out.")
        self._check_lookback(first)
        if self.sink == "append" and (self.lookback or self.nulls == "include"):
            why = f"lookback={self.lookback}" if self.lookback else "nulls='include'"
            raise CursorError(
                first.name,
                f"{why} reads rows again, and sink='append' would keep them twice. Write them with a sink that merges "
                "by key and say sink='merge', or leave the option out.",
            )

    def _check_lookback(self, first: CursorColumn) -> None:
        given = self.lookback
        if given is None:
            return
        fitting: type | tuple[type, ...] = (int, Decimal) if first.type.startswith("decimal") else int
        fitting = timedelta if first.is_time else fitting
        finite = not isinstance(given, Decimal) or given.is_finite()
        if first.type == "string" or isinstance(given, bool) or not isinstance(given, fitting) or not finite:
            raise CursorError(
                first.name,
                f"lookback={given!r} does not fit a {first.type}. Give a timedelta for times and dates, a number for "
                "numbers, none for texts.",
            )
        if isinstance(given, Decimal) and isinstance(first.tick, Decimal) and EXACT.remainder(given, first.tick):
            raise CursorError(first.name, f"lookback={given} is finer than a {first.type}. Give whole steps of it.")
        if given != abs(given):
            raise CursorError(first.name, f"lookback={given!r} is below 0. Give how far to read back.")


def plan_window(
    source: RowSource,
    names: Sequence[str],
    *,
    now: datetime,
    state: Mapping[str, Any] | None = None,
    context: str = "rows",
    **options: Any,
) -> RowWindow:
    """Find the window of rows that are new, by one query over the rows past the watermark.

    The upper bound is one tick above the source's largest value, so that a lagging replica or a
    late import loses no row; for times it is also no later than the clock less the delay, rounded
    down to the column's tick, so that a stamp which is still being written to is left for later.
    Numbers and texts have no clock: a row that shows after one with a larger number is lost unless
    a lookback covers it, or the source has a ceiling.

    Parameters
    ----------
    source
        The rows, such as `dataframe_rows.DataFrameRows`.
    names
        The cursor columns; more than one compare from the first on.
    now
        The job's time, aware, for a source without a clock.
    state
        What an earlier `RowWindow.state_after` returned; None on a first run.
    context
        Name of the source inside its job, for messages.
    **options
        See `RowOptions`.

    Raises
    ------
    CursorError
        A missing column, NULLs, a type without exact order or another than before, an option that
        does not fit, or `high` before the watermark.
    SourceChangedError
        The state is that of other columns or of files.
    SourceBehindError
        The source's clock is behind the watermark.
    """
    chosen = RowOptions(**options)
    columns = source.columns(names, chosen.strings)
    chosen.check(columns)
    low = _low(columns, state, chosen, context)
    given = None if chosen.high is None else _given(columns, chosen.high, "high")
    if given is not None and low is not None and precedes(given, low, descending=chosen.descending):
        raise CursorError(
            columns[0].name, "high is before the watermark, which never moves back. Leave it out, or rewind the job."
        )
    facts = source.facts(columns, low, chosen.descending)
    _check_nulls(columns, facts.nulls, chosen.nulls, context)
    clock = facts.now or now
    if columns[0].is_time:
        _check_clock(source, columns[0], clock, low, state is None, given, context)
    if given is not None:
        high: Bound | None = given
    elif facts.ceiling is not None:
        high = _ceiling(source, columns, facts.ceiling, low, context)
    else:
        high = _high(columns, facts, clock, chosen, context)
        if high is None or (low is not None and precedes(high, low, descending=chosen.descending)):
            high = low
    lookback = chosen.lookback or None
    return RowWindow(columns, low, high, None if state is None else lookback, chosen.nulls, chosen.descending)


def _low(
    columns: tuple[CursorColumn, ...], state: Mapping[str, Any] | None, options: RowOptions, context: str
) -> Bound | None:
    if state is None:
        return None if options.initial_value is None else _given(columns, options.initial_value, "initial_value")
    check_source(state, [column.name for column in columns], context)
    check_types(columns, state.get("type"))
    if bool(state.get("descending")) != options.descending:
        before = "descending" if state.get("descending") else "ascending"
        raise CursorError(
            columns[0].name, f"its order was {before}. Give the other order a transformation_ctx of its own."
        )
    return read_bound(state.get("value"), columns)


def _given(columns: tuple[CursorColumn, ...], value: object, what: str) -> Bound:
    """Return a bound that the caller gives: a value, or a tuple of up to one for each column."""
    values = list(value) if isinstance(value, tuple | list) else [value]
    if not 1 <= len(values) <= len(columns):
        raise CursorError(
            columns[0].name, f"{what} has {len(values)} values for {len(columns)} columns. Give one each."
        )
    found = [column.given(value, what) for column, value in zip(columns, values, strict=False)]
    return (*found, *[None] * (len(columns) - len(found)))


def _check_nulls(columns: tuple[CursorColumn, ...], count: int, policy: Nulls, context: str) -> None:
    names = ", ".join(column.name for column in columns)
    if count and policy == "raise":
        raise CursorError(
            names,
            f"{count:,} rows have NULL there and no window would ever take them. Fill it or filter them out. "
            "nulls='exclude' leaves them out, nulls='include' takes them each time.",
        )
    if count and policy == "exclude":
        logger.warning("event=nulls_excluded context=%s column=%s rows=%d", context, names, count)


def _check_clock(
    source: RowSource,
    column: CursorColumn,
    clock: datetime,
    low: Bound | None,
    first_run: bool,
    given: Bound | None,
    context: str,
) -> None:
    """Refuse a clock behind the watermark, and bounds that the caller gives past the clock."""
    wall: Any = column.at(clock)
    if low is not None and wall < low[0] and not first_run:
        raise SourceBehindError(source.name, context, "clock")
    for what, bound in (("initial_value", low), ("high", given)):
        if bound is not None and wall < bound[0]:
            raise CursorError(
                column.name,
                f"{what} is past the source's clock, and rows that come until then would be lost. Give one that has "
                "passed, or leave it out.",
            )


def _high(
    columns: tuple[CursorColumn, ...],
    facts: Facts,
    clock: datetime,
    options: RowOptions,
    context: str,
) -> Bound | None:
    """Return what is just past the last value there is, and for times no later than the clock less the delay."""
    first = columns[0]
    last = facts.smallest if options.descending else facts.largest
    if last is None:
        return None
    if not first.is_time:
        return _just_past(columns, last, options.descending)
    stamp: Any = last[0]
    if stamp > first.at(clock):
        logger.warning("event=future_stamps context=%s column=%s: rows left for later", context, first.name)
    try:
        cap: Any = first.floor(clock - options.delay)
    except OverflowError:
        raise CursorError(first.name, f"delay={options.delay} reaches before the year 1. Give a shorter one.") from None
    if stamp >= cap:
        return (cap, *[None] * (len(columns) - 1))
    past = _just_past(columns, last, False)
    return past if past[0] <= cap else (cap, *[None] * (len(columns) - 1))


def _just_past(columns: tuple[CursorColumn, ...], last: Bound, descending: bool) -> Bound:
    """Return the bound next to the last values; where the last column can go no further, by the ones before it."""
    column, value = columns[-1], last[-1]
    assert value is not None
    try:
        return (*last[:-1], column.next_below(value) if descending else column.next_above(value))
    except OverflowError:
        return (*_just_past(columns[:-1], last[:-1], descending), None)


def _ceiling(
    source: RowSource, columns: tuple[CursorColumn, ...], ceiling: Cursor, low: Bound | None, context: str
) -> Bound:
    bound: Bound = (columns[0].check(ceiling), *[None] * (len(columns) - 1))
    if low is not None and precedes(bound, low):
        raise SourceBehindError(source.name, context, "ceiling")
    return bound
