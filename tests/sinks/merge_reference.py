"""The result of a merge, in plain Python: computed from the set of events, whatever their order of arrival."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pandas as pd
from hypothesis import strategies as st

from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output
from scripts.helpers.sinks import Merge
from scripts.helpers.sinks.given_frames import events_of
from tests.support.staging import staged_by

SCHEMA = "id long, at long, word string"
"""That of `frame`, for Spark."""


class Event(NamedTuple):
    """A row, or a delete if `value` is None."""

    key: int
    sequence: int
    value: str | None


def newest(events: Iterable[Event]) -> list[tuple[int, int, str]]:
    """Return the rows of a target that keeps the newest row of each key."""
    last: dict[int, Event] = {}
    for event in events:
        if event.key not in last or event.sequence > last[event.key].sequence:
            last[event.key] = event
    return sorted((event.key, event.sequence, event.value) for event in last.values() if event.value is not None)


def history(events: Iterable[Event]) -> list[tuple[int, int, str, int, int | None]]:
    """Return the rows of a target that keeps every version, with the time in which each was valid."""
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


def expected(kind: str, events: Sequence[Event]) -> list[tuple[Any, ...]]:
    return list(newest(events) if kind == "newest" else history(events))


def rules(kind: str) -> Merge:
    return Merge.of("id", "at", history=kind == "history")


def frame(events: Sequence[Event]) -> pd.DataFrame:
    """Return events as rows; the word `gone` marks a delete."""
    rows = [(event.key, event.sequence, event.value or "gone") for event in events]
    return pd.DataFrame(rows, columns=["id", "at", "word"]).astype({"id": "int64", "at": "int64", "word": "string"})


@st.composite
def histories(draw: Any) -> list[list[Event]]:
    """Generate batches: a key has one event for each sequence; an event may be in several batches, or twice in one."""
    moments = st.tuples(st.integers(1, 3), st.integers(1, 6))
    kinds = draw(st.dictionaries(moments, st.sampled_from(["a", "b", None]), max_size=14))
    events = [Event(key, sequence, value) for (key, sequence), value in kinds.items()]
    if not events:
        return [[]]
    batches: list[list[Event]] = draw(st.lists(st.lists(st.sampled_from(events), max_size=6), min_size=1, max_size=5))
    return batches


class MergedTable:
    """A table, named or at a path, that batches of a job are merged into."""

    def __init__(self, name: str, kind: str, spark: Any = None) -> None:
        self.name, self.kind, self.spark, self.version = name, kind, spark, 0

    @property
    def sink(self) -> Any:
        """A sink that merges by the rules of `kind`."""
        raise NotImplementedError

    def stage(self, events: Sequence[Event], version: int | None = None, job: str = "repairs") -> Output:
        """Stage events as the next batch, or as the given version of a job."""
        self.version = version or self.version + 1
        rows = frame(events)
        if self.spark is None:
            marked = events_of(rows, rules(self.kind), lambda rows: rows.word == "gone")
        else:
            given = self.spark.createDataFrame(rows.to_dict("records"), SCHEMA)
            marked = events_of(given, rules(self.kind), "word = 'gone'")
        output: Output = staged_by(self.sink, BatchId(job, "e1", self.version), 1, marked)
        return output

    def merge(self, events: Sequence[Event]) -> None:
        """Stage, publish and clear a batch."""
        output = self.stage(events)
        self.sink.publish(output)
        self.sink.clear(output)
