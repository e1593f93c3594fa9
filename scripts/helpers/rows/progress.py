"""How far a rows context got: what was covered, which gaps are left, and which slices are begun.

It knows cursor values and how a state remembers them. Where states are kept, it does not know: whoever
makes a `RowsProgress` passes something that looks them up.
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
from scripts.helpers.rows.cursors import SECOND, Bound, CursorColumn, earlier
from scripts.helpers.rows.plan import oldest_writer, settled_moment
from scripts.helpers.rows.sources import UNKNOWN, Facts, ForwardingRows, RowSource, Unknown
from scripts.helpers.rows.states import SEEN, RowsState, column_values, is_rows
from scripts.helpers.rows.window import RowWindow

logger = logging.getLogger(__name__)

# --- slice source ---------------------------------------------------------------------------------
# A slice of a backfill as a source of rows: what its source knows, and that its rows are decided.


@dataclass
class SliceSource(ForwardingRows):
    """A source that answers for one slice.

    Attributes
    ----------
    source, context
        What is read, and the name of it for messages.
    high
        Where the slice ends; None is above everything.
    delay
        How long rows may come after their stamp.
    clock
        The job's time, for a source without a clock.
    is_done
        The slice was read, and nothing is asked any more.
    """

    source: RowSource
    context: str
    high: RangeEnd | None
    delay: timedelta
    clock: Callable[[], datetime]
    is_done: bool

    assumes_utc = True
    """A slice ends below a watermark, which the live job placed by the zone that it has, or by UTC."""

    def identity(self) -> Mapping[str, Any] | None:
        """Return what the source says of itself; nothing once the slice was read."""
        return None if self.is_done else self.source.identity()

    def zone_is_known(self, now: datetime) -> bool | None:
        """Tell whether the source knows its zone, or is asked nothing any more."""
        return self.is_done or self.source.zone_is_known(now)

    # A slice is read once, below the watermark of a live job: that job looks after the rows past it, and the last ones.

    def last(self, columns: tuple[CursorColumn, ...], descending: bool) -> Unknown:
        """Say nothing of rows past the slice."""
        return UNKNOWN

    def newest(self, window: RowWindow, most: int) -> Unknown:
        """Let nothing be remembered for a later run, as there is none."""
        return UNKNOWN

    def sequences(self, column: str) -> tuple[()]:
        """Say nothing of numbers that are still to come."""
        return ()

    def facts(self, columns: tuple[CursorColumn, ...], low: Bound | None, descending: bool) -> Facts:
        """Ask the source; BoundsError if rows of the slice may still come."""
        if self.is_done:
            return Facts()
        found = self.source.facts(columns, low, descending)
        # Only times have a clock; a slice without an upper end belongs to a cursor that descends, of numbers.
        if columns[0].is_time and self.high is not None:
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
        # What a live run would take as its cap. A slice is read once and never again, so a row that comes into it
        # later would be lost for good.
        settled: Any = column.floor(moment)
        if high <= (settled,):
            return
        end: Any = high[0]
        if not isinstance(end, datetime):
            end, settled = datetime.combine(end, time.min), moment.replace(tzinfo=None)
        # Rounded up to a whole second, and never "0:00:00 from now".
        wait = max(SECOND, -((settled - end) // SECOND) * SECOND)
        raise BoundsError(
            self.context,
            f"rows up to high may still come, until delay={self.delay} is over. Run it again {wait} from now, or end "
            "earlier.",
        )

    def _check_transactions(self, column: CursorColumn, high: RangeEnd, clock: datetime) -> None:
        """Refuse a slice that a transaction may still commit rows to, as it is open for longer than the delay."""
        oldest = oldest_writer(self.source, self.delay, self.context, warns=False).oldest
        settled: Any = column.floor(settled_moment(clock, self.delay, oldest))
        if oldest is not None and high > (settled,):
            raise BoundsError(
                self.context,
                f"rows up to high may still come from the transaction {oldest.name!r}, which is open since "
                f"{oldest.began.isoformat(sep=' ', timespec='seconds')}. Run it again once that has ended, or end "
                "earlier.",
            )


# --- progress -------------------------------------------------------------------------------------


class Spans(Table[ShownRange]):
    """Ranges of cursor values, half-open and in order, as `gaps` and `coverage` return them.

    Who asks for them asks for values, so they are shown.
    """

    columns = (
        Column("low", lambda span: "the very beginning" if span[0] is None else span[0]),
        Column("high (not included)", lambda span: "the very end" if span[1] is None else span[1]),
    )

    __repr__ = list.__repr__

    def all_columns(self) -> Sequence[Column]:
        """Return the bounds as they are; an end that is open is None."""
        return Column("low", lambda span: span[0]), Column("high", lambda span: span[1])


class JobState(Protocol):
    """One version of a job, as look-ups return it."""

    @property
    def job_id(self) -> str:
        """The job's name."""

    @property
    def watermarks(self) -> Mapping[str, Any]:
        """The state of each context; large ones are references."""


class StateLookups(Protocol):
    """What is looked up: `protocol.lookups.Lookups` does it."""

    def latest(self, job_id: str) -> JobState:
        """Return the version in force; UnknownJobError if there is none."""

    def head(self, job_id: str) -> JobState | None:
        """Return the version in force in one request; None if there is none."""

    def state_at(self, version: Any, context: str) -> Any:
        """Return the whole state of a context in a version; None if it has none there."""


class RowsProgress:
    """What the states and the backfills of rows contexts say about cursor values.

    Parameters
    ----------
    lookups
        Where versions of jobs and their states are looked up.
    """

    def __init__(self, lookups: StateLookups) -> None:
        self._lookups = lookups

    # --- what is there ----------------------------------------------------------------------------

    def state(self, job_id: str, context: str) -> RowsState:
        """Read the state of a rows context; NothingThereError if there is none."""
        version = self._lookups.latest(job_id)
        found = self._lookups.state_at(version, context)
        if not is_rows(found):
            known = sorted(name for name, state in version.watermarks.items() if is_rows(state))
            kind = found.get("kind") if isinstance(found, Mapping) else None
            reason = "unknown_context" if kind is None else "no_cursor"
            raise NothingThereError(reason=reason, job_id=job_id, context=context, known=known, kind=kind)
        return RowsState.read(found, context)

    def backfills(self, job_id: str, context: str, state: RowsState) -> BackfillRecord:
        """Return what backfills have begun and covered in the life of a context that a state belongs to."""
        # The record is a job that only backfills write: no item of the original class can stand for it, so
        # its head alone is asked for. `latest` would look for such items, in every job that has no backfill.
        version = self._lookups.head(backfill_record_id(job_id, context, state))
        return BackfillRecord.read(self._lookups.state_at(version, context) if version else None)

    def coverage(self, job_id: str, context: str) -> Spans:
        """Return which cursor values were read; see `Watermarks.coverage`."""
        state = self.state(job_id, context)
        covered = merged([*state.ranges, *self.backfills(job_id, context, state).covered])
        return Spans(_shown(state, covered), f"{job_id}, {context}: covered")

    def gaps(self, job_id: str, context: str, start: Any = None) -> Spans:
        """Return what a context has gone past and never read; see `Watermarks.gaps`."""
        state = self.state(job_id, context)
        record = self.backfills(job_id, context, state)
        low, high = state.passed
        low = max(low, state.end_that_fits(start, "start"))
        gaps = uncovered((low, high), [*state.ranges, *record.covered])
        # A slice that is begun has a job under just these bounds. Joined with its neighbours, it could only
        # be read by another slice, and what it has written already would be there twice.
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
        """Return the slices that are begun and not done; see `Watermarks.unfinished`."""
        state = self.state(job_id, context)
        found = {}
        for name, bounds in self.backfills(job_id, context, state).slices():
            job_of_slice = slice_id(job_id, context, state, bounds, name)
            found[job_of_slice] = (name, shown_range(bounds, len(state.columns)))
        return found

    # --- what a decision does to it ---------------------------------------------------------------

    def states_to_set(self, version: JobState, states: Mapping[str, Any], origin: str) -> dict[str, Any]:
        """Return states set by hand, rows contexts with the coverage of what they replace in this version.

        It must be asked again for each version that a decision is tried on: a run that commits in
        between has covered more, and coverage taken from the version before would forget that.
        """
        found = dict(states)
        for name, state in states.items():
            if is_rows(state):
                before = None
                # Of a state that is damaged nothing can be kept, and people must be able to repair it.
                with suppress(CorruptItemError):
                    stored = self._lookups.state_at(version, name)
                    before = RowsState.read(stored, name) if is_rows(stored) else None
                if "value" not in state and before:
                    raise InvalidValueError(
                        f"The state of {name!r} has no 'value': the next run would read everything again. Give the "
                        "value to continue from, or reset the context to read everything."
                    )
                # Who sets a watermark has looked: what was seen before says nothing any more of the rows to come.
                after = RowsState.read(state, name)
                seen: dict[str, Any] = {
                    field: None for field in SEEN if before and getattr(after, field) == getattr(before, field)
                }
                found[name] = replace(after, **seen).with_coverage_kept(before, origin).to_store()
        return found

    def warn_of_backfills(self, version: JobState, contexts: Iterable[str]) -> None:
        """Log that the next runs read rows again that a backfill has read past the watermarks of this version."""
        for context in contexts:
            if not is_rows(version.watermarks.get(context)):
                continue
            state = RowsState.read(self._lookups.state_at(version, context), context)
            covered = self.backfills(version.job_id, context, state).covered
            if any(uncovered(interval, [state.passed]) for interval in covered):
                logger.warning(
                    "event=backfilled_again job=%s context=%s record=%s: its history names the slices whose rows the "
                    "next runs read again", version.job_id, context, backfill_record_id(version.job_id, context, state),
                )  # fmt: skip


def _shown(state: RowsState, ranges: Iterable[CursorRange]) -> list[ShownRange]:
    return [shown_range(one, len(state.columns)) for one in ranges]
