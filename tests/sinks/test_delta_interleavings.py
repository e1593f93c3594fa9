"""Attempts, a person and other jobs at one Delta table: the table is right, whoever moves when.

The tables are real, on local disk. Each look at one, each commit to one and each operation on a staged file is a point
where an actor may be paused, killed or overtaken, beside the requests to DynamoDB.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import deltalake
import pandas as pd
import pytest
from deltalake import DeltaTable
from deltalake.table import TableMerger

from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.sinks import DeltaSink
from scripts.helpers.sinks.given_frames import events_of
from scripts.helpers.sinks.outputs import batch_values, mark_of
from scripts.helpers.sinks.places import LocalPlace
from tests.sinks.interleaving import JOB, Actor, Interleaving, let_number_decide, moving, played
from tests.sinks.merge_reference import Event, expected, frame, rules
from tests.support.long import cases
from tests.support.patience import LONG
from tests.support.staging import staged_by

BATCH = "batch"


class Points:
    """The function that stops an actor, and the one that checks a table after each change; a story sets both."""

    def __init__(self) -> None:
        self._is_inside = False
        self.point: Callable[[str], None] = lambda _what: None
        self.watch: Callable[[], None] = lambda: None

    def around(self, name: str, done: Callable[..., Any], *, changes: bool) -> Callable[..., Any]:
        """Return a function that stops before it calls `done`, and has the table checked after it."""

        def stopped(*given: Any, **named: Any) -> Any:
            # Nested calls, and the check itself, do not stop.
            if self._is_inside:
                return done(*given, **named)
            self.point(name)
            self._is_inside = True
            try:
                result = done(*given, **named)
                if changes:
                    self.watch()
                return result
            finally:
                self._is_inside = False

        return stopped


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> Points:
    found = Points()
    for owner, name, changes in (
        (DeltaTable, "__init__", False),
        (DeltaTable, "delete", True),
        (deltalake, "write_deltalake", True),
        (DeltaTable, "create_write_transaction", True),
        (TableMerger, "execute", True),
        (LocalPlace, "write", False),
        (LocalPlace, "read", False),
        (LocalPlace, "copy", False),
        (LocalPlace, "delete", False),
    ):
        monkeypatch.setattr(owner, name, found.around(name, getattr(owner, name), changes=changes))
    create = found.around("create", DeltaTable.create, changes=True)
    monkeypatch.setattr(DeltaTable, "create", staticmethod(create))
    return found


# --- batches of one job --------------------------------------------------------------------------------


class DeltaInterleaving(Interleaving):
    """A story whose target is a Delta table."""

    def __init__(self, number: int, folder: str) -> None:
        super().__init__(number)
        self.path = f"{folder}/repairs"

    def sink(self) -> DeltaSink:
        return DeltaSink(self.path, batch_column=BATCH)

    def stage(self, sink: DeltaSink, batch: BatchId, fence: int, rows: range) -> Output:
        return staged_by(sink, batch, fence, pd.DataFrame({"id": pd.Series(list(rows), dtype="int64")}))

    def unexplained(self) -> list[str]:
        return [*super().unexplained(), *self.sink().staged(mark_of(JOB))]

    def rows(self, without: Collection[Retraction] = ()) -> Counter[int]:
        return Counter(row for row, batch in self._found() if not any(_is_of(batch, one) for one in without))

    def versions(self) -> set[int]:
        return {int(batch.rpartition("-")[2]) for _, batch in self._found()}

    def _found(self) -> list[tuple[int, str]]:
        if not DeltaTable.is_deltatable(self.path):
            return []
        return [(row["id"], row[BATCH]) for row in DeltaTable(self.path).to_pyarrow_table().to_pylist()]


def _is_of(batch: str, retraction: Retraction) -> bool:
    first, last = batch_values(retraction)
    return first <= batch <= last


def play(number: int, points: Points, monkeypatch: pytest.MonkeyPatch) -> DeltaInterleaving:
    let_number_decide(number, monkeypatch)
    with tempfile.TemporaryDirectory() as folder:
        story = DeltaInterleaving(number, folder)
        points.point, points.watch = story.stop, story.look
        return played(story, number)


MOST = 100
"""Interleavings in which a fault shows that the scheduler must find."""
FIRST = 53
"""Where the search for the fault begins: the interleavings before this number do not show it."""
PARTS = cases(1, long=4)
COUNT = cases(12, long=1_000) // PARTS
"""Interleavings in one test."""


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("part", range(PARTS))
def test_table_equals_the_source_when_attempts_and_a_person_interleave(
    part: int, points: Points, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: Counter[str] = Counter()
    for number in range(part * COUNT, (part + 1) * COUNT):
        refused += play(number, points, monkeypatch).refused

    assert {"RunInProgressError", "FencedError"} <= refused.keys()


def test_interleaving_is_found_when_a_batch_is_appended_to_another_version_than_was_looked_at(
    points: Points, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = DeltaTable.create_write_transaction

    def commit_anywhere(table: DeltaTable, *given: Any, **named: Any) -> None:
        commit(DeltaTable(table.table_uri), *given, **named)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit_anywhere)

    # In some stories the late publisher first finds that its files are gone.
    with pytest.raises(AssertionError, match=r"are there twice|UnpublishedError|target behind"):
        for number in range(FIRST, FIRST + MOST):
            play(number, points, monkeypatch)


# --- merges of two jobs --------------------------------------------------------------------------------


class Merges:
    """Two jobs that merge a batch each into one table at once; a number decides who moves when.

    The jobs record different transactions, which do not conflict. But `deltalake` refuses a MERGE if another commit
    has added rows since it looked. A commit that adds no rows, such as a delete that is only recorded, shows in the
    versions of both tables.
    """

    def __init__(self, number: int, folder: str, points: Points) -> None:
        self.random, self.path = random.Random(number), f"{folder}/repairs"
        self.kind = self.random.choice(["newest", "history"])
        moments = [(key, sequence) for key in range(1, 4) for sequence in range(1, 6)]
        self._known = [Event(*moment, self.random.choice(["a", "b", None])) for moment in moments]
        self.merged: list[Event] = []
        points.point, points.watch = self._stop, lambda: None

    def play(self) -> None:
        if self.random.random() < 0.7:
            self._publish(self._stage("earlier"))
        outputs = [self._stage(job) for job in ("repairs", "parking")]
        actors = [Actor(output.job, partial(self._publish, output)) for output in outputs]
        while left := [actor for actor in actors if not actor.is_over]:
            self.random.choice(left).step()
        for actor in actors:
            if actor.error is not None:
                raise actor.error

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        names = ["id", "at", "word", *(["valid_from", "valid_to"] if self.kind == "history" else [])]
        found = DeltaTable(self.path).to_pyarrow_table().select(names).to_pylist()
        return sorted(tuple(row.values()) for row in found)

    def _stage(self, job: str) -> Output:
        events = self.random.sample(self._known, self.random.randint(1, 4))
        self.merged += events
        marked = events_of(frame(events), rules(self.kind), lambda rows: rows.word == "gone")
        return staged_by(self._sink(), BatchId(job, "e1", 1), 1, marked)

    def _publish(self, output: Output) -> None:
        self._sink().publish(output)

    def _sink(self) -> DeltaSink:
        return DeltaSink(self.path).merging(rules(self.kind))

    def _stop(self, _what: str) -> None:
        actor = moving()
        if actor is not None:
            actor.pause()


MERGES = cases(2, long=300)


@pytest.mark.timeout(LONG)
def test_table_is_what_the_rows_say_when_merges_of_two_jobs_interleave(points: Points) -> None:
    for number in range(MERGES):
        with tempfile.TemporaryDirectory() as folder:
            story = Merges(number, folder, points)
            story.play()
            assert story.rows == expected(story.kind, story.merged), f"merges {number}"
