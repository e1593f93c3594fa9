"""Attempts and a person at one table of a database: the table is right, whoever moves when.

The database is a file of SQLite. Each statement outside a transaction, and each transaction as a whole, is a point
where an actor may be paused, killed or overtaken, as is each request to DynamoDB. An actor that is killed at the end of
a transaction has changed nothing. No actor is paused within one, because SQLite lets no other write then: for this case
see `test_live_databases`.
"""

from __future__ import annotations

import sqlite3
import tempfile
import weakref
from collections import Counter
from collections.abc import Collection
from typing import Any

import pandas as pd
import pytest

from scripts.helpers.batch.publishing import SWEEP_EVERY
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.rows.sql import sql
from scripts.helpers.sinks import DatabaseSink
from scripts.helpers.sinks.database import DriverSession, Statements
from scripts.helpers.sinks.outputs import batch_values, mark_of
from scripts.helpers.sql.sqlite import SQLite
from tests.sinks.interleaving import JOB, Interleaving, let_number_decide, played
from tests.support.dynamodb import Died
from tests.support.long import cases
from tests.support.patience import LONG
from tests.support.staging import staged_by

BATCH = "batch"
MOST = 100
"""Interleavings in which each fault shows that the scheduler must find."""
FIRST = {"published_rows_stay": 25, "batch_is_not_looked_for": 30}
"""Where the search for a fault begins: the interleavings before this number do not show it."""
PARTS = cases(1, long=4)
COUNT = cases(25, long=2_000) // PARTS
"""Interleavings in one test."""


class DatabaseInterleaving(Interleaving):
    """A story whose target is a database table."""

    def __init__(self, number: int, folder: str) -> None:
        super().__init__(number)
        self._file = f"{folder}/shop.db"
        connection = self.connect()
        connection.execute(f"CREATE TABLE repairs (id integer, {BATCH} text)")
        connection.close()

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._file, check_same_thread=False)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    def sink(self) -> DatabaseSink:
        return DatabaseSink("repairs", connect=self.connect, name="shop", batch_column=BATCH)

    def stage(self, sink: DatabaseSink, batch: BatchId, fence: int, rows: range) -> Output:
        return staged_by(sink, batch, fence, pd.DataFrame({"id": pd.Series(list(rows), dtype="int64")}))

    def rows(self, without: Collection[Retraction] = ()) -> Counter[int]:
        return Counter(row for row, batch in self._found() if not any(_is_of(batch, one) for one in without))

    def versions(self) -> set[int]:
        return {int(batch.rpartition("-")[2]) for _, batch in self._found()}

    def unexplained(self) -> list[str]:
        # The doctor cannot log in. Publishing a batch sweeps what was staged for it and for earlier ones. What a
        # suspended attempt stages after that stays until the next version that sweeps, at most the tenth.
        for number in range(SWEEP_EVERY):
            if not self.sink().staged(mark_of(JOB)):
                break
            self.source += 1
            self.attempt(f"later_{number}")
        return self.sink().staged(mark_of(JOB))

    def dies(self) -> bool:
        """Return whether the current actor is killed before the end of its transaction."""
        return self.is_faulty and self.random.random() < 0.01

    def _found(self) -> list[tuple[int, str]]:
        connection = self.connect()
        found = connection.execute(f"SELECT id, {BATCH} FROM repairs").fetchall()
        connection.close()
        return found


def _is_of(batch: str, retraction: Retraction) -> bool:
    first, last = batch_values(retraction)
    return first <= batch <= last


class Stops:
    """Makes the actors of a story stop where they talk to the database."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.story: DatabaseInterleaving | None = None
        self._open: weakref.WeakSet[DriverSession] = weakref.WeakSet()
        for name in ("run", "rows", "begin", "commit"):
            patch.setattr(DriverSession, name, self._around(name, getattr(DriverSession, name)))

    def _around(self, name: str, do: Any) -> Any:
        def done(session: DriverSession, *given: Any) -> Any:
            story = self.story
            assert story is not None
            if session not in self._open:
                # Not while a connection begins: before Python 3.12, `cached_property` lets in one thread at a time.
                if not given or not given[0].startswith("PRAGMA"):
                    story.stop(name)
            elif name == "commit" and story.dies():
                raise Died(name)
            if name == "begin":
                self._open.add(session)
            result = do(session, *given)
            if name == "commit":
                self._open.discard(session)
                story.look()
            return result

        return done


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> Stops:
    return Stops(monkeypatch)


def play(number: int, stops: Stops, monkeypatch: pytest.MonkeyPatch) -> DatabaseInterleaving:
    let_number_decide(number, monkeypatch)
    with tempfile.TemporaryDirectory() as folder:
        stops.story = story = DatabaseInterleaving(number, folder)
        return played(story, number)


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("part", range(PARTS))
def test_table_equals_the_source_when_attempts_and_a_person_interleave(
    part: int, stops: Stops, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: Counter[str] = Counter()
    for number in range(part * COUNT, (part + 1) * COUNT):
        refused += play(number, stops, monkeypatch).refused

    assert {"RunInProgressError", "FencedError"} <= refused.keys()


def published_rows_stay(patch: pytest.MonkeyPatch) -> None:
    """A decision takes back staged rows, but leaves the rows that readers have seen."""
    statements_by_batch = Statements.statements_by_batch
    patch.setattr(
        Statements,
        "statements_by_batch",
        lambda to, verb, *of: [] if verb == "DELETE" else statements_by_batch(to, verb, *of),
    )


def batch_is_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    """A publisher does not notice that the batch is already there."""
    patch.setattr(SQLite, "insert", sql("INSERT OR REPLACE"))


def losers_are_left(patch: pytest.MonkeyPatch) -> None:
    """Rows that losers staged are not swept."""
    patch.setattr(DatabaseSink, "sweep", lambda *_: 0)


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("fault", [published_rows_stay, batch_is_not_looked_for, losers_are_left])
def test_interleaving_is_found_when_the_code_has_a_fault(
    fault: Any, stops: Stops, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    first = FIRST.get(fault.__name__, 0)

    with pytest.raises(AssertionError, match=r"WrongTarget|StagedRowsLost"):
        for number in range(first, first + MOST):
            play(number, stops, monkeypatch)
