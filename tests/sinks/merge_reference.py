"""What a merge leaves, in plain Python: from the set of events, without any order of arrival."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Event(NamedTuple):
    """A row, or a delete where `value` is None."""

    key: int
    sequence: int
    value: str | None


def newest(events: Iterable[Event]) -> list[tuple[int, int, str]]:
    """Return the rows of a target that keeps the newest one of each key."""
    last: dict[int, Event] = {}
    for event in events:
        if event.key not in last or event.sequence > last[event.key].sequence:
            last[event.key] = event
    return sorted((event.key, event.sequence, event.value) for event in last.values() if event.value is not None)


def history(events: Iterable[Event]) -> list[tuple[int, int, str, int, int | None]]:
    """Return the rows of a target that keeps every version, with when it was valid."""
    by_key: dict[int, list[Event]] = {}
    for event in sorted(set(events), key=lambda event: event[:2]):
        by_key.setdefault(event.key, []).append(event)
    found = []
    for key, ordered in by_key.items():
        ends = [event.sequence for event in ordered[1:]]
        for event, end in zip(ordered, [*ends, None], strict=True):
            if event.value is not None:
                found.append((key, event.sequence, event.value, event.sequence, end))
    return sorted(found)
