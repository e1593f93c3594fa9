"""How far a rows context got: what was covered, which gaps are left, and which slices are begun.

It knows cursor values and how a state remembers them. Where states are kept, it does not know: whoever
makes a `RowsProgress` passes something that looks them up.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from scripts.helpers.display.tables import Column, Table
from scripts.helpers.errors import CorruptItemError, InvalidValueError, UnknownContextError
from scripts.helpers.rows.coverage import BackfillRecord, backfill_record_id
from scripts.helpers.rows.cursor_ranges import CursorRange, ShownRange, cut_at, merged, shown_range, uncovered
from scripts.helpers.rows.slicing import slice_id
from scripts.helpers.rows.states import SEEN, RowsState, column_values, is_rows

logger = logging.getLogger(__name__)


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
        """Read the state of a rows context; UnknownContextError if there is none."""
        version = self._lookups.latest(job_id)
        found = self._lookups.state_at(version, context)
        if not is_rows(found):
            known = sorted(name for name, state in version.watermarks.items() if is_rows(state))
            kind = found.get("kind") if isinstance(found, Mapping) else None
            raise UnknownContextError(job_id, context, known, None if kind is None else str(kind))
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
