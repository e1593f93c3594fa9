"""Fix the window of one batch: options, the stored watermark, and what the source says, into two bounds. Pure.

Also the two windows that no watermark follows from: everything, and what runs of the past took.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, time, timedelta
from typing import Any

from scripts.helpers.errors import CursorError, SourceBehindError, rows_have
from scripts.helpers.rows.batch_size import limited
from scripts.helpers.rows.cursors import EPOCH, Bound, Cursor, CursorColumn, Tick, earlier, just_past
from scripts.helpers.rows.edge import edge_after
from scripts.helpers.rows.identity import check_same_source, identity_of
from scripts.helpers.rows.open_writers import Undecided, decided
from scripts.helpers.rows.options import RowOptions
from scripts.helpers.rows.sources import Facts, RowSource
from scripts.helpers.rows.uuids import check_uuid, first_at, is_uuid, moment_of
from scripts.helpers.rows.window import Nulls, RowWindow, check_same_cursor, check_types, precedes, read_bound

logger = logging.getLogger(__name__)


def plan_window(
    source: RowSource,
    names: Sequence[str],
    *,
    now: datetime,
    state: Mapping[str, Any] | None = None,
    context: str = "rows",
    job_id: str = "JOB",
    **options: Any,
) -> RowWindow:
    """Find the window of rows that are new, by one query over the rows past the watermark.

    The upper bound is one tick above the source's largest value: while nothing newer is there, a
    lagging replica or a late import loses no row. For times it is also no later than the clock less
    the delay, rounded down to the column's tick; rows that come behind newer ones are safe for as
    long as the delay lasts. Numbers and texts have no clock: their bound stays behind the transactions of
    a database that are open (see `open_writers`). In other sources, a row that shows after one with a larger number is
    lost unless a lookback covers it, or the source has a ceiling.

    Parameters
    ----------
    source
        The rows, such as `spark_frames.DataFrameRows`.
    names
        The cursor columns; more than one compare from the first on.
    now
        The job's time, aware, for a source without a clock.
    state
        What an earlier `RowWindow.state_after` returned; None on a first run.
    context
        Name of the source inside its job, for messages.
    job_id
        The job, for the commands that errors name.
    **options
        See `options.RowOptions`.

    Raises
    ------
    CursorError
        A missing column, NULLs, a type without exact order or another than before, an option that
        does not fit, or `high` before the watermark.
    SourceChangedError
        The state is that of other columns or of files.
    SourceReplacedError
        The state is that of another table, or of one that was dropped and made anew.
    SourceBehindError
        The source's clock is behind the watermark, or nothing is new and its last row is below what was seen, or rows
        came below the watermark.
    """
    chosen = RowOptions(**options)
    columns = source.columns(names, chosen.strings)
    chosen.check(columns)
    if len(columns) > 1 and any(column.is_uuid for column in columns):
        raise CursorError(columns[0].name, "a UUID names one row by itself. Make it the only cursor column.")
    _check_partition(source, columns[0], chosen, context)
    low, start = _ends(columns, state, chosen, context)
    identity = check_same_source(state or {}, identity_of(source), context, job_id)
    asked = None if chosen.high is None else _from_caller(columns, chosen.high, "high")
    if asked is not None and low is not None and precedes(asked, low, descending=chosen.descending):
        raise CursorError(
            columns[0].name, "high is before the watermark, which never moves back. Leave it out, or rewind the job."
        )
    facts = source.facts(columns, low, chosen.descending)
    check_nulls(columns, facts.nulls, chosen.nulls, context)
    _check_slack(columns[0], facts.slack, chosen)
    _check_text(columns, facts.smallest if chosen.descending else facts.largest, "its last value")
    # The source's own clock stamps its rows; that of the job may be minutes off, or hours if its zone is another.
    clock = facts.now or now.astimezone(facts.zone or now.tzinfo)
    # A job whose clock has a zone of its own has said which.
    if columns[0].is_time and columns[0].type != "timestamp" and not (facts.zone_is_known or clock.utcoffset()):
        logger.warning(
            "event=no_zone context=%s column=%s: it has no zone and is taken for UTC. If it is the wall clock of one "
            "west of Greenwich, no delay is kept, and rows that come late are lost. Give the source zone=, even UTC",
            context, columns[0].name,
        )  # fmt: skip
    # Told by their values, as texts may be UUIDs, too.
    has_uuids = _check_uuids(columns, facts, low)
    # Just past a text is no UUID.
    if has_uuids and low is not None and state is not None and is_uuid(low[0]) and moment_of(str(low[0])) > clock:
        raise SourceBehindError(source.name, context, "clock")
    if columns[0].is_time:
        _check_clock(source, columns[0], clock, low, state is None, asked, context)
    # An upper bound that the caller gives is trusted where the clock has been asked (times), or where the caller
    # says that nothing below it can come any more. Otherwise it may not go past the rows that are there.
    undecided: Undecided | None = None
    is_vouched_for = asked is not None and (columns[0].is_time or chosen.settled)
    if facts.ceiling is not None:
        limit = _ceiling(source, columns, facts.ceiling, low, context)
        high = _up_to(asked, limit, columns, chosen, "its ceiling")
    elif is_vouched_for:
        high = asked
    else:
        last = _just_past_last_row(columns, facts, clock, chosen, context, has_uuids)
        if last is not None and not columns[0].is_time and not has_uuids:
            before = Undecided.read((state or {}).get("undecided"), columns)
            last, undecided = decided(source, columns, last, low, before, chosen, clock, context)
        # A watermark never moves back: what the delay leaves for later may end before it.
        if last is None or (low is not None and precedes(last, low, descending=chosen.descending)):
            last = low
        what = "what open transactions leave" if undecided else "one step past the last row"
        high = _up_to(asked, last, columns, chosen, what)
    # A first run has nothing to read again: it starts at the very beginning, or where it was told to.
    lookback = None if state is None else _lookback(columns[0], low, chosen.lookback, clock)
    seen = None if state is None else read_bound(state.get("last"), columns)
    if state is not None and low is not None and low != start:
        _check_last(source, columns, facts, low, seen, chosen, context, job_id)
    window = RowWindow(
        columns, low, high, lookback, chosen.nulls, chosen.descending, start, source=identity,
        undecided=None if undecided is None else undecided.to_state(),
    )  # fmt: skip
    if chosen.max_rows is not None:
        window = limited(source, window, chosen.max_rows, context)
    # Below a ceiling all is decided: it is not the rows that are counted.
    edge = None if facts.ceiling is not None else edge_after(source, window, state, chosen, context, job_id)
    return replace(
        window,
        edge=edge,
        last=_last_seen(columns, facts, window.high, seen, clock, chosen),
        complete=_complete(window, facts, asked, chosen),
    )


def _check_uuids(columns: tuple[CursorColumn, ...], facts: Facts, low: Bound | None) -> bool:
    """Tell whether the cursors are UUIDs of version 7; CursorError if they are UUIDs of another one."""
    first = columns[0]
    last = facts.largest[0] if facts.largest is not None else None
    if is_uuid(last) and len(columns) == 1:
        check_uuid(first, str(last))
    if facts.other_uuids:
        raise CursorError(
            first.name,
            f"{facts.other_uuids:,} rows past the watermark have a UUID of another version than 7, which does not rise "
            "with time. Use a time column.",
        )
    if last is None and low is not None:
        last = low[0]
    return len(columns) == 1 and is_uuid(last)


def _check_partition(source: RowSource, column: CursorColumn, options: RowOptions, context: str) -> None:
    """Refuse a cursor that is the same for all files of a partition, where later files of it would be lost."""
    is_partition = getattr(source, "is_partition", None)
    if options.lookback or options.settled or is_partition is None or not is_partition(column):
        return
    if column.is_time:
        # The delay is kept from the end of a day, so a partition grows until then. Later files are late as rows are.
        logger.warning(
            "event=partition_cursor context=%s column=%s: it is a partition column of files. A partition is taken once "
            "delay=%s is over after it, and files that land in it later are lost. job.new_partitions goes by files",
            context, column.name, options.delay,
        )  # fmt: skip
        return
    raise CursorError(
        column.name,
        "it is a partition column of files, and what lands in a partition after its first file was read would never "
        f"be taken. Use job.new_partitions(path, {column.name!r}), which goes by files. Or read again what may still "
        "grow, with lookback= and sink='merge'; or say settled=True, if nothing is ever added to a partition that was "
        "read.",
    )


def _complete(window: RowWindow, facts: Facts, asked: Bound | None, options: RowOptions) -> Bound | None:
    """Return up to where no row is left, where that is past the watermark that follows; None where it is not.

    The watermark waits at the last row, and a source that stands still would look late for ever. Said only where the
    rows and the time are the source's own: files were listed before the plan, nobody knows when.
    """
    first, reached = window.columns[0], window.low if window.high is None else window.high
    if facts.now is None or not first.is_time or asked is not None or window.has_more:
        return None
    try:
        cap: Bound = (first.floor(earlier(facts.now, options.delay)), *[None] * (len(window.columns) - 1))
    except OverflowError:
        return None
    return cap if reached is None or precedes(reached, cap) else None


def _ends(
    columns: tuple[CursorColumn, ...], state: Mapping[str, Any] | None, options: RowOptions, context: str
) -> tuple[Bound | None, Bound | None]:
    """Return the watermark, and where the first run was told to start."""
    if state is None:
        if options.initial_value is None:
            return None, None
        start = _from_caller(columns, options.initial_value, "initial_value")
        return start, start
    check_same_cursor(state, [column.name for column in columns], context)
    check_types(columns, state.get("type"))
    if bool(state.get("descending")) != options.descending:
        before = "descending" if state.get("descending") else "ascending"
        raise CursorError(
            columns[0].name, f"its order was {before}. Give the other order a transformation_ctx of its own."
        )
    return read_bound(state.get("value"), columns), read_bound(state.get("start"), columns)


def _from_caller(columns: tuple[CursorColumn, ...], value: object, what: str) -> Bound:
    """Return a bound that the caller gives: a value, or a tuple of up to one for each column."""
    values = list(value) if isinstance(value, tuple | list) else [value]
    if not 1 <= len(values) <= len(columns):
        raise CursorError(
            columns[0].name, f"{what} has {len(values)} values for {len(columns)} columns. Give one each."
        )
    found = [column.from_caller(value, what) for column, value in zip(columns, values, strict=False)]
    bound: Bound = (*found, *[None] * (len(columns) - len(found)))
    _check_text(columns, bound, what)
    return bound


def _check_text(columns: tuple[CursorColumn, ...], bound: Bound | None, what: str) -> None:
    # The window is compared byte by byte. Only for ASCII is that the order in which keys rise everywhere: UTF-16
    # puts some letters before others that UTF-8 puts after them, so a later key could be below the watermark.
    for column, value in zip(columns, bound or (), strict=False):
        if isinstance(value, str) and not value.isascii():
            raise CursorError(
                column.name,
                f"{what} has letters beyond ASCII, which databases put in different orders. Use a column of ASCII keys "
                "of fixed width, or a timestamp, date, integer or decimal column.",
            )


def check_nulls(columns: tuple[CursorColumn, ...], count: int, policy: Nulls, context: str) -> None:
    """Raise CursorError, or warn, where rows have NULL in a cursor column, as the policy asks for."""
    names = ", ".join(column.name for column in columns)
    if count and policy == "raise":
        raise CursorError(
            names,
            f"{rows_have(count)} NULL there and no window would ever take them. Fill it or filter them out. "
            "nulls='exclude' leaves them out, nulls='include' takes them each time.",
        )
    if count and policy == "exclude":
        logger.warning("event=nulls_excluded context=%s column=%s rows=%d", context, names, count)


def _check_slack(column: CursorColumn, slack: timedelta | None, options: RowOptions) -> None:
    """Refuse partitions that may be left out although late rows are still to come into them."""
    # No delay is kept from an upper bound that the caller gives.
    late = timedelta(0) if options.high is not None else options.delay
    if isinstance(options.lookback, timedelta):
        late += options.lookback
    if slack is not None and late > slack:
        raise CursorError(
            column.name,
            f"rows may come {late} after their stamp, into a partition of a later date than slack={slack} reaches. "
            "Give DatePartitions a slack of at least delay and lookback together.",
        )


def _check_clock(
    source: RowSource,
    column: CursorColumn,
    clock: datetime,
    low: Bound | None,
    first_run: bool,
    asked: Bound | None,
    context: str,
) -> None:
    """Refuse a clock behind the watermark, and bounds that the caller gives past the clock."""
    # A server whose clock was set back, or another one, stamps rows below the watermark: they would never be read.
    wall: Any = column.at(clock)
    if low is not None and wall < low[0] and not first_run:
        raise SourceBehindError(source.name, context, "clock")
    # Against the lowest stamp that can still be made: just before clocks are turned back, that is up to an hour or
    # more below what they show, and rows of the repeated hour would be lost.
    lowest: Any = column.lowest(clock)
    for what, bound in (("initial_value", low if first_run else None), ("high", asked)):
        if bound is not None and lowest < bound[0]:
            raise CursorError(
                column.name,
                f"{what} is past the source's clock, and rows that come until then would be lost. Give one that has "
                "passed, or leave it out.",
            )


def _check_last(
    source: RowSource,
    columns: tuple[CursorColumn, ...],
    facts: Facts,
    low: Bound,
    seen: Bound | None,
    options: RowOptions,
    context: str,
    job_id: str,
) -> None:
    """Refuse a table whose last row is below rows that were seen: truncated, restored, or rid of an outlier.

    Asked only where nothing is new: whoever finds rows past the watermark has gone past it.
    """
    found = facts.smallest if options.descending else facts.largest
    ask = getattr(source, "last", None)
    # Below a ceiling all is decided, and a source without `last`, such as a DataFrame, would be read whole for it.
    if found is not None or facts.ceiling is not None or not callable(ask):
        return
    last: Bound | None = ask(columns, options.descending)
    if last is None:
        # No error: tables of a staging area are truncated before they are filled. Rows below the watermark are one.
        logger.warning(
            "event=source_empty context=%s source=%s: it had rows. The next run refuses those below the watermark",
            context, source.name,
        )  # fmt: skip
        return
    # Just past the last row is where a person sets the watermark to who has looked; nothing is behind there.
    if not precedes(just_past(columns, last, options.descending), low, descending=options.descending):
        return
    # A watermark of an earlier release, or one set by hand, does not say what was seen: it may be ahead of the rows.
    if seen is not None and not precedes(last, seen, descending=options.descending):
        return
    if seen is not None and options.behind != "warn":
        raise SourceBehindError(source.name, context, "last row", job_id)
    logger.warning(
        "event=source_behind context=%s source=%s: its last row is below the watermark, and rows that come in between "
        "are never read",
        context, source.name,
    )  # fmt: skip


def _last_seen(
    columns: tuple[CursorColumn, ...],
    facts: Facts,
    high: Bound | None,
    before: Bound | None,
    clock: datetime,
    options: RowOptions,
) -> Bound | None:
    """Return up to where rows were seen by now; no further than the window goes, as what is past it may yet change."""
    found = facts.smallest if options.descending else facts.largest
    if found is None or high is None:
        return before
    # A stamp in the future is a mistake, or stands for "never": its row may get another one that is below all others.
    stamp: Any = found[0]
    if columns[0].is_time and stamp > columns[0].at(clock):
        return before
    return high if precedes(high, found, descending=options.descending) else found


def _just_past_last_row(
    columns: tuple[CursorColumn, ...],
    facts: Facts,
    clock: datetime,
    options: RowOptions,
    context: str,
    has_uuids: bool,
) -> Bound | None:
    """Return what is just past the last value there is, and for times no later than the clock less the delay."""
    first = columns[0]
    last = facts.smallest if options.descending else facts.largest
    if last is None:
        return None
    if has_uuids:
        return _just_past_last_uuid(columns, last, clock, options, context)
    if not first.is_time:
        return just_past(columns, last, options.descending)
    stamp: Any = last[0]
    # Rows from the future are not taken: their stamp as watermark would leave out everything until then.
    if stamp > first.at(clock):
        logger.warning("event=future_stamps context=%s column=%s: rows left for later", context, first.name)
    try:
        cap: Any = first.floor(earlier(clock, options.delay))
    except OverflowError:
        raise CursorError(first.name, f"delay={options.delay} reaches before the year 1. Give a shorter one.") from None
    # For compound cursors, the cap without values for the others is below every row of its stamp: those are still
    # within the delay.
    at_cap: Bound = (cap, *[None] * (len(columns) - 1))
    if stamp >= cap:
        return at_cap
    # One step above the last row can be past the cap, where the step of the column is longer than the rest.
    past: Any = just_past(columns, last, False)
    return past if past[0] <= cap else at_cap


def _just_past_last_uuid(
    columns: tuple[CursorColumn, ...], last: Bound, clock: datetime, options: RowOptions, context: str
) -> Bound:
    if moment_of(str(last[0])) > clock:
        logger.warning("event=future_stamps context=%s column=%s: rows left for later", context, columns[0].name)
    try:
        cap: Bound = (first_at(earlier(clock, options.delay)),)
    except OverflowError:
        cap = (first_at(EPOCH),)
    past = just_past(columns, last, False)
    return past if precedes(past, cap) else cap


def _up_to(
    asked: Bound | None, limit: Bound | None, columns: tuple[CursorColumn, ...], options: RowOptions, what: str
) -> Bound | None:
    """Return the bound that the caller gives, if it is not past the limit; else the limit itself."""
    if asked is None:
        return limit
    if limit is None or precedes(limit, asked, descending=options.descending):
        raise CursorError(
            columns[0].name,
            f"high is past {what}, and rows that come below it later would be lost. Leave it out, or give one that is "
            "not.",
        )
    return asked


def _lookback(column: CursorColumn, low: Bound | None, lookback: Tick | None, clock: datetime) -> Tick | None:
    """Return how far to read back; on a wall clock more than asked, where it was put forward meanwhile."""
    # 0 is no lookback, whatever its type. Numbers and instants have no clocks that are put forward.
    if low is None or not lookback or not isinstance(lookback, timedelta) or column.type == "timestamp":
        return lookback or None
    # Two hours before 04:00 on the morning that skips an hour is 01:00 by the wall clock: three hours are read.
    # Never less than asked, as in autumn, where the wall clock shows less than what has passed.
    end: Any = low[0]
    wall = end.replace(tzinfo=None) if isinstance(end, datetime) else datetime.combine(end, time.min)
    try:
        moment = earlier(wall.replace(tzinfo=clock.tzinfo), lookback)
        return max(lookback, wall - moment.replace(tzinfo=None))
    except OverflowError:
        return lookback


def _ceiling(
    source: RowSource, columns: tuple[CursorColumn, ...], ceiling: Cursor, low: Bound | None, context: str
) -> Bound:
    bound: Bound = (columns[0].check(ceiling), *[None] * (len(columns) - 1))
    # A ceiling only rises; one below the watermark is that of another server, or of a restored one.
    if low is not None and precedes(bound, low):
        raise SourceBehindError(source.name, context, "ceiling")
    return bound


def whole_window(source: RowSource, names: Sequence[str], strings: bool) -> RowWindow:
    """Return the window of all rows, those without cursor as well."""
    return RowWindow(source.columns(names, strings), None, None, nulls="include", whole=True)


def window_between(
    source: RowSource,
    names: Sequence[str],
    before: Mapping[str, Any] | None,
    until: Mapping[str, Any],
    options: RowOptions,
    context: str,
    job_id: str = "JOB",
) -> RowWindow:
    """Return the window from one watermark to a later one: what the runs between them took, as it is there now.

    `lookback` and `nulls` are those of the caller; unless they are included, the source is asked how many there are.
    Where the range starts at the very beginning, `initial_value` is that of the first run. Where the later
    watermark is not past the earlier one, as after a rewind or reset in between, the window is empty.

    Parameters
    ----------
    before
        The watermark to start from; None for the very beginning, or where the first run was told to start.
    until
        The watermark to end with.

    Raises
    ------
    SourceChangedError, CursorError
        A watermark is that of other columns, of files, or of another type or order; an option does not fit, or
        is an upper bound, which a range has of its own; or there are NULLs, and nothing was said about them.
    SourceReplacedError
        The later watermark is that of another table.
    """
    for name in ("high", "settled", "max_rows"):
        if getattr(options, name) not in (None, False):
            raise CursorError(
                names[0], f"{name}= is given, but a range of runs ends where they did. Leave it out, or read no range."
            )
    columns = source.columns(names, options.strings)
    options.check(columns)
    for state in (until, before):
        if state is not None:
            check_same_cursor(state, names, context)
            check_types(columns, state.get("type"))
    check_same_source(until, identity_of(source), context, job_id)
    if before is not None and bool(before.get("descending")) != bool(until.get("descending")):
        raise CursorError(columns[0].name, "its order changed between the two runs. Take a range on one side of that.")
    low = until.get("start") if before is None else before.get("value")
    # Both watermarks are read as a plan is, so that they are checked as one is. A watermark has no lookback. The
    # columns are those of the source as it is now, with the ticks that it says.
    stored = {**until, "low": low, "high": until.get("value")}
    window = replace(RowWindow.from_plan(stored, names, context), columns=columns, nulls=options.nulls)
    if options.nulls != "include":
        check_nulls(columns, source.facts(columns, window.low, window.descending).nulls, options.nulls, context)
    if window.low is not None:
        ends_before_it_starts = window.high is None or precedes(window.high, window.low, descending=window.descending)
        if ends_before_it_starts:
            return replace(window, high=window.low)
    return replace(window, lookback=None if before is None else options.lookback)
