"""What the backfills of a rows context have covered, and which slices are begun. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scripts.helpers.rows.coverage import pack, types_of, unpack
from scripts.helpers.rows.intervals import Interval, Point, merged, missing

DONE = "done"


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

    covered: list[Interval] = field(default_factory=list)
    begun: Mapping[str, list[Interval]] = field(default_factory=dict)

    @classmethod
    def read(cls, stored: Any) -> BackfillRecord:
        """Read a stored record, or none; CursorError for one that somebody altered."""
        if not isinstance(stored, Mapping):
            return cls()
        types, name = types_of(stored), str(stored.get("cursor_column"))
        covered = unpack(stored.get("covered"), types, name).get(DONE, [])
        return cls(merged(covered), unpack(stored.get("begun"), types, name))

    def to_store(self, live: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record as it is stored, with the cursor of the live job's state."""
        types = types_of(live)
        return {
            "kind": "backfills",
            "cursor_column": live.get("cursor_column"),
            "type": live.get("type"),
            "covered": pack({DONE: self.covered}, types),
            "begun": pack(self.begun, types),
        }

    def slices(self) -> Iterator[tuple[str, Interval]]:
        """Return the name and the bounds of each slice that is begun."""
        for name, intervals in self.begun.items():
            yield from ((name, bounds) for bounds in intervals)

    def ends(self) -> list[Point | None]:
        """Return the ends of the slices that are begun."""
        return [end for _, bounds in self.slices() for end in bounds]

    def is_covered(self, bounds: Interval) -> bool:
        """Tell whether slices that are done have read all of this."""
        return not missing(bounds, self.covered)

    def has_begun(self, name: str, bounds: Interval) -> bool:
        """Tell whether this slice is begun."""
        return bounds in self.begun.get(name, ())

    def begin(self, name: str, bounds: Interval) -> BackfillRecord:
        """Enter a slice before it writes anything."""
        return replace(self, begun={**self.begun, name: [*self.begun.get(name, ()), bounds]})

    def drop(self, gone: Sequence[tuple[str, Interval]]) -> BackfillRecord:
        """Forget slices that have begun and read nothing."""
        left = {name: [one for one in all_of if (name, one) not in gone] for name, all_of in self.begun.items()}
        return replace(self, begun={name: intervals for name, intervals in left.items() if intervals})

    def finish(self, name: str, bounds: Interval) -> BackfillRecord:
        """Move a slice from what is begun to what is covered."""
        return replace(self.drop([(name, bounds)]), covered=merged([*self.covered, bounds]))
