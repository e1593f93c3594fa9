"""Find how far a job has read a source of rows: what is covered, which gaps remain, and which slices have begun.

This module works with cursor values and their form in states. It does not depend on where states are stored:
the caller of `RowsProgress` passes an object that looks them up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from typing import Any, Protocol

from scripts.helpers.display.tables import Column, Table
from scripts.helpers.errors import BoundsError, CorruptItemError, InvalidValueError, NothingThereError
from scripts.helpers.rows.coverage import BackfillRecord, backfill_record_id, slice_id
from scripts.helpers.rows.cursor_ranges import CursorRange, RangeEnd, ShownRange, cut_at, merged, shown_range, uncovered
from scripts.helpers.rows.cursors import ABOVE, SECOND, Bound, Cursor, CursorColumn, earlier
from scripts.helpers.rows.plan import first_uuid_at, is_uuid, moment_of, oldest_writer, settled_moment
from scripts.helpers.rows.sources import UNKNOWN, Facts, ForwardingRows, RowSource, Unknown
from scripts.helpers.rows.states import SEEN, RowsState, column_values, is_rows
from scripts.helpers.rows.window import RowWindow

logger = logging.getLogger(__name__)

# --- slice source ---------------------------------------------------------------------------------
# The source of rows for a slice of a backfill: it checks that no more rows can come into the slice.


@dataclass
class SliceSource(ForwardingRows):
    """The source of rows for one slice.

    Attributes
    ----------
    source, context
        The source that is read, and its name for messages.
    high
        The end of the slice, exclusive; None is above all values.
    delay
        How long after its stamp a row may still come.
    clock
        The job's time, for a source without a clock.
    is_done
        Whether the slice has been read; the source is then not queried any more.
    """

    source: RowSource
    context: str
    high: RangeEnd | None
    delay: timedelta
    clock: Callable[[], datetime]
    is_done: bool

    assumes_utc = True
    """True because a slice ends below the live job's watermark: the live job has checked the zone, or assumed UTC."""

    def identity(self) -> Mapping[str, Any] | None:
        """Return the identity of the source; None after the slice was read, because the source is then not queried."""
        return None if self.is_done else self.source.identity()

    def zone_is_known(self, now: datetime) -> bool | None:
        """Return whether the source was given a time zone; True, without a query, after the slice was read."""
        return self.is_done or self.source.zone_is_known(now)

    # The next three methods switch off checks that the live job makes: for a restored source, and ids assigned twice.

    def last(self, columns: tuple[CursorColumn, ...], descending: bool) -> Unknown:
        """Return UNKNOWN, so that the source's last row, which is past the slice of the backfill, is not checked."""
        return UNKNOWN

    def newest(self, window: RowWindow, most: int) -> Unknown:
        """Return UNKNOWN, so that no last rows are stored for the next run: a slice of a backfill is read only once."""
        return UNKNOWN

    def sequences(self, column: str) -> tuple[()]:
        """Return no sequences, because numbers that the source assigns in future do not matter to a slice."""
        return ()

    def facts(self, columns: tuple[CursorColumn, ...], low: Bound | None, descending: bool) -> Facts:
        """Return the source's facts; raise BoundsError if rows may still arrive in the range of this backfill slice."""
        if self.is_done:
            return Facts()
        found = self.source.facts(columns, low, descending)
        # Compare only times and UUIDs with a clock. `high` is None only for numbers that are read in descending order.
        if self.high is not None and (columns[0].is_time or _is_uuid_bound(self.high)):
            now = self.clock()
            source_now = found.now or now.astimezone(found.zone or now.tzinfo)
            self._check_age(columns[0], self.high, source_now)
            self._check_transactions(columns[0], self.high, source_now)
        return found

    def _check_age(self, column: CursorColumn, high: RangeEnd, clock: datetime) -> None:
        try:
            moment = earlier(clock, self.delay)
        except OverflowError:
            raise BoundsError(self.context, f"delay={self.delay} reaches before the year 1. Shorten it.") from None
        # Below `settled` no row can still come. The slice of the backfill must not end later, because it is read only
        # once: a row that came into the slice afterwards would never be read.
        settled: Any = _smallest_at(moment, column, high)
        if high <= (settled,):
            return
        end: Any = high[0]
        if isinstance(end, str):
            end, settled = moment_of(end.rstrip(ABOVE)), moment
        elif not isinstance(end, datetime):
            end, settled = datetime.combine(end, time.min), moment.replace(tzinfo=None)
        # Round up to whole seconds, so that the message never shows "0:00:00 from now".
        wait = max(SECOND, -((settled - end) // SECOND) * SECOND)
        raise BoundsError(
            self.context,
            f"rows up to high may still come, until delay={self.delay} is over. Run it again {wait} from now, or end "
            "earlier.",
        )

    def _check_transactions(self, column: CursorColumn, high: RangeEnd, clock: datetime) -> None:
        """Raise BoundsError if a transaction that is open longer than the delay may still commit rows to the slice."""
        oldest = oldest_writer(self.source, self.delay, self.context, warns=False).oldest
        settled: Any = _smallest_at(settled_moment(clock, self.delay, oldest), column, high)
        if oldest is not None and high > (settled,):
            raise BoundsError(
                self.context,
                f"rows up to high may still come from the transaction {oldest.name!r}, which is open since "
                f"{oldest.began.isoformat(sep=' ', timespec='seconds')}. Run it again once that has ended, or end "
                "earlier.",
            )


def _is_uuid_bound(end: RangeEnd) -> bool:
    """Return whether a bound is a UUID, or a UUID plus `ABOVE`, which ends a range whose last value is the UUID."""
    return isinstance(end[0], str) and is_uuid(end[0].rstrip(ABOVE))


def _smallest_at(moment: datetime, column: CursorColumn, beside: RangeEnd) -> Cursor:
    """Return the smallest value that a row from `moment` or later can have; a UUID if the bound `beside` is a UUID."""
    return first_uuid_at(moment) if _is_uuid_bound(beside) else column.floor(moment)


# --- progress -------------------------------------------------------------------------------------


class Spans(Table[ShownRange]):
    """Ranges of cursor values, half-open and in order, as `gaps` and `coverage` return them.

    Printing them shows cursor values, because the caller has asked for them.
    """

    columns = (
        Column("low", lambda span: "the very beginning" if span[0] is None else span[0]),
        Column("high (not included)", lambda span: "the very end" if span[1] is None else span[1]),
    )

    __repr__ = list.__repr__

    def all_columns(self) -> Sequence[Column]:
        """Return the columns ``low`` and ``high`` with the cursor values at the ranges' ends; None for an open end."""
        return Column("low", lambda span: span[0]), Column("high", lambda span: span[1])


class JobState(Protocol):
    """One version of a job, as look-ups return it."""

    @property
    def job_id(self) -> str:
        """The job's name."""

    @property
    def watermarks(self) -> Mapping[str, Any]:
        """The state of each context; in place of a large state, a reference to it."""


class StateLookups(Protocol):
    """The look-ups of versions and states that this module needs; `protocol.lookups.Lookups` implements them."""

    def latest(self, job_id: str) -> JobState:
        """Return the current version; raise UnknownJobError if there is none."""

    def head(self, job_id: str) -> JobState | None:
        """Return the current version with one request; None if there is none."""

    def state_at(self, version: Any, context: str) -> Any:
        """Return the whole state of a context in a version; None if the context has no state there."""


class RowsProgress:
    """The coverage, gaps and slices of sources of rows, from their states and the records of their backfills.

    Parameters
    ----------
    lookups
        Looks up versions of jobs and their states.
    """

    def __init__(self, lookups: StateLookups) -> None:
        self._lookups = lookups

    # --- look-ups -------------------------------------------------------------------------------

    def state(self, job_id: str, context: str) -> RowsState:
        """Return the state of a rows context; raise NothingThereError if there is none."""
        version = self._lookups.latest(job_id)
        found = self._lookups.state_at(version, context)
        if not is_rows(found):
            known = sorted(name for name, state in version.watermarks.items() if is_rows(state))
            kind = found.get("kind") if isinstance(found, Mapping) else None
            reason = "unknown_context" if kind is None else "no_cursor"
            raise NothingThereError(reason=reason, job_id=job_id, context=context, known=known, kind=kind)
        return RowsState.read(found, context)

    def backfills(self, job_id: str, context: str, state: RowsState) -> BackfillRecord:
        """Return which slices backfills have begun and which ranges they have read since a context's last reset."""
        # Use `head`, one request: if the record's job has no head (no backfill began), `latest` sends another request
        # for items of the original `Watermarks` class. That job has no such items, because only backfills write it.
        version = self._lookups.head(backfill_record_id(job_id, context, state))
        return BackfillRecord.read(self._lookups.state_at(version, context) if version else None)

    def coverage(self, job_id: str, context: str) -> Spans:
        """Return which cursor values were read; see `Watermarks.coverage`."""
        state = self.state(job_id, context)
        covered = merged([*state.ranges, *self.backfills(job_id, context, state).covered])
        return Spans(_shown(state, covered), f"{job_id}, {context}: covered")

    def gaps(self, job_id: str, context: str, start: Any = None) -> Spans:
        """Return the ranges that a context has passed without reading them; see `Watermarks.gaps`."""
        state = self.state(job_id, context)
        record = self.backfills(job_id, context, state)
        low, high = state.passed
        low = max(low, state.end_that_fits(start, "start"))
        gaps = uncovered((low, high), [*state.ranges, *record.covered])
        # Show a slice that has begun as a gap of its own, which its job can finish. As part of a longer gap, its rows
        # would be read by another slice's job, and rows that the first job has already written would be doubled.
        parted = cut_at(gaps, record.ends())
        return Spans(_shown(state, parted), f"{job_id}, {context}: gaps")

    def complete_up_to(self, job_id: str, context: str) -> Any:
        """Return the cursor below which every row was taken; see `Watermarks.complete_up_to`."""
        state = self.state(job_id, context)
        if state.descending:
            raise InvalidValueError(
                f"Context {context!r} of job {job_id!r} reads downwards, and rows above its first one come later. Look "
                "at its gaps and coverage."
            )
        gaps = self.gaps(job_id, context)
        bound = state.value if state.complete is None else state.complete
        return column_values(state.columns, gaps[0][0] if gaps else bound)

    def unfinished(self, job_id: str, context: str) -> dict[str, tuple[str, ShownRange]]:
        """Return the slices that have begun and are not finished; see `Watermarks.unfinished`."""
        state = self.state(job_id, context)
        found = {}
        for name, bounds in self.backfills(job_id, context, state).slices():
            job_of_slice = slice_id(job_id, context, state, bounds, name)
            found[job_of_slice] = (name, shown_range(bounds, len(state.columns)))
        return found

    def jobs_of_backfills(self, job_id: str) -> list[str]:
        """Return, context by context, ids of the jobs of unfinished slices and of the job that records backfills."""
        version, found = self._lookups.latest(job_id), list[str]()
        for context in version.watermarks:
            state = self._lookups.state_at(version, context)
            if is_rows(state):
                record = backfill_record_id(job_id, context, RowsState.read(state, context))
                found += [*self.unfinished(job_id, context), record]
        return [one for one in found if self._lookups.head(one) is not None]

    # --- states set by hand ---------------------------------------------------------------------

    def states_to_set(self, version: JobState, states: Mapping[str, Any], origin: str) -> dict[str, Any]:
        """Return states set by hand; a state for rows keeps the ranges read (coverage) of the state that it replaces.

        Call this again, with the newest version, each time you try to store the result. If a run commits between two
        tries, the earlier result lacks the coverage that the run added, and storing that result would lose it.
        """
        found = dict(states)
        for name, state in states.items():
            if is_rows(state):
                before = None
                # If the former state is damaged, ignore it, so that an operator can replace it.
                with suppress(CorruptItemError):
                    stored = self._lookups.state_at(version, name)
                    before = RowsState.read(stored, name) if is_rows(stored) else None
                if "value" not in state and before:
                    raise InvalidValueError(
                        f"The state of {name!r} has no 'value': the next run would read everything again. Give the "
                        "value to continue from, or reset the context to read everything."
                    )
                # Drop the last rows seen (`SEEN`) unless edited, or runs might refuse rows that the operator checked.
                after = RowsState.read(state, name)
                seen: dict[str, Any] = {
                    field: None for field in SEEN if before and getattr(after, field) == getattr(before, field)
                }
                found[name] = replace(after, **seen).with_coverage_kept(before, origin).to_store()
        return found

    def warn_of_backfills(self, version: JobState, contexts: Iterable[str]) -> None:
        """Log a WARNING for each context whose next runs will read rows again that a backfill has read already."""
        for context in contexts:
            if not is_rows(version.watermarks.get(context)):
                continue
            state = RowsState.read(self._lookups.state_at(version, context), context)
            covered = self.backfills(version.job_id, context, state).covered
            if any(uncovered(interval, [state.passed]) for interval in covered):
                logger.warning(
                    "event=backfilled_again job=%s context=%s record=%s: the next runs read rows again that slices in "
                    "its history read", version.job_id, context, backfill_record_id(version.job_id, context, state),
                )  # fmt: skip


def _shown(state: RowsState, ranges: Iterable[CursorRange]) -> list[ShownRange]:
    return [shown_range(one, len(state.columns)) for one in ranges]
