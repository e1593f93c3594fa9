"""The record of what backfills of a rows context have begun and read, and how coverage prints. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from scripts.helpers.errors import DAMAGE, CursorError, SourceChangedError
from scripts.helpers.protocol.fields import Fields
from scripts.helpers.protocol.names import derived_id
from scripts.helpers.rows.cursor_ranges import CursorRange, RangeEnd, merged, uncovered
from scripts.helpers.rows.packed_ranges import decode_ranges, encode_ranges
from scripts.helpers.rows.states import RowsState, columns_in, is_rows, stored_identity

# --- what people see ----------------------------------------------------------------------------

MOST_PRINTED = 5
"""Ranges that are printed of a state; `watermarks coverage` shows all."""


class PackedRanges(bytes):
    """The packed ranges of a state, which print as ranges.

    They stay the bytes that the table holds, so that a state that was looked up can be set again as it is.
    """

    ranges: tuple[CursorRange, ...] | None = None
    """None where they cannot be read."""

    def __repr__(self) -> str:
        if self.ranges is None:
            return f"<{len(self):,} bytes that are no ranges>"
        told = [f"{_end_text(low, 'the beginning')} to {_end_text(high, 'the end')}" for low, high in self.ranges]
        if len(told) > MOST_PRINTED:
            told[MOST_PRINTED:] = [f"{len(told) - MOST_PRINTED:,} more"]
        return f"<{', '.join(told) or 'nothing'}>"

    __str__ = __repr__


def with_ranges(state: object) -> object:
    """Return a state whose coverage prints as ranges; any other value as it is."""
    if not isinstance(state, Mapping) or not is_rows(state) or not isinstance(state.get("covered"), bytes):
        return state
    packed = PackedRanges(state["covered"])
    # A damaged state is looked up to find out what is wrong with it, so it must come back.
    with suppress(CursorError, *DAMAGE):
        packed.ranges = tuple(RowsState.read(state, "state").ranges)
    return {**state, "covered": packed}


def _end_text(end: RangeEnd | None, none: str) -> str:
    """Write one end of a range; a compound one in brackets."""
    if not end:
        return none
    values = [value.isoformat(" ") if isinstance(value, datetime) else str(value) for value in end]
    return values[0] if len(values) == 1 else f"({', '.join(values)})"


# --- names --------------------------------------------------------------------------------------


def backfill_record_id(job_id: str, context: str, state: RowsState) -> str:
    """Return the job whose watermarks are what backfills of a context have begun and covered.

    The origin is part of its name, so a reset of the live job leads to another record, which is empty.
    """
    return derived_id(job_id, "coverage", context, state.origin)


# --- the record of backfills ---------------------------------------------------------------------

RECORD, DONE = "backfills", "done"


@dataclass(frozen=True)
class BackfillRecord:
    """The state of the job that keeps the record.

    Attributes
    ----------
    covered
        What slices that are done have read, merged.
    begun
        The bounds of slices that may have written something, by the name of their backfill.
    """

    covered: list[CursorRange] = field(default_factory=list)
    begun: Mapping[str, list[CursorRange]] = field(default_factory=dict)

    @classmethod
    def read(cls, stored: Any, name: str = "record") -> BackfillRecord:
        """Read a stored record, or none; SourceChangedError for a value that is not one."""
        if stored is None:
            return cls()
        if not isinstance(stored, Mapping) or stored.get("kind") != RECORD:
            raise SourceChangedError(name, "something else", "a record of backfills")
        types = [column.type for column in columns_in(Fields(stored, name))]
        covered = decode_ranges(stored.get("covered"), types, f"{name}.covered").get(DONE, [])
        return cls(merged(covered), decode_ranges(stored.get("begun"), types, f"{name}.begun"))

    def to_store(self, live: RowsState) -> dict[str, Any]:
        """Return the record as it is stored, with the cursor of the live job's state."""
        return {
            **stored_identity(live.columns, False, None),
            "kind": RECORD,
            "covered": encode_ranges({DONE: self.covered}, live.types),
            "begun": encode_ranges(self.begun, live.types, len(self.covered)),
        }

    def slices(self) -> Iterator[tuple[str, CursorRange]]:
        """Return the name and the bounds of each slice that is begun."""
        for name, ranges in self.begun.items():
            for bounds in ranges:
                yield name, bounds

    def ends(self) -> list[RangeEnd | None]:
        """Return the ends of the slices that are begun."""
        return [end for _, bounds in self.slices() for end in bounds]

    def is_covered(self, bounds: CursorRange) -> bool:
        """Tell whether slices that are done have read all of this."""
        return not uncovered(bounds, self.covered)

    def has_begun(self, name: str, bounds: CursorRange) -> bool:
        """Tell whether this slice is begun."""
        return bounds in self.begun.get(name, ())

    def begin(self, name: str, bounds: CursorRange) -> BackfillRecord:
        """Enter a slice before it writes anything."""
        return replace(self, begun={**self.begun, name: [*self.begun.get(name, ()), bounds]})

    def drop(self, gone: Sequence[tuple[str, CursorRange]]) -> BackfillRecord:
        """Forget slices that have begun and read nothing."""
        left: dict[str, list[CursorRange]] = {}
        dropped = set(gone)
        for name, bounds in self.slices():
            if (name, bounds) not in dropped:
                left.setdefault(name, []).append(bounds)
        return replace(self, begun=left)

    def finish(self, name: str, bounds: CursorRange) -> BackfillRecord:
        """Move a slice from what is begun to what is covered."""
        return replace(self.drop([(name, bounds)]), covered=merged([*self.covered, bounds]))
