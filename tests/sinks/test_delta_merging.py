"""A merge into a Delta table leaves the result of the set of rows, whatever the order of batches and of publishers."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.table import TableMerger

from scripts.helpers.batch.leftovers import examine_targets
from scripts.helpers.errors import (
    InvalidValueError,
    TargetError,
)
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output
from scripts.helpers.sinks import DeltaSink, Merge, delta
from scripts.helpers.sinks.given_frames import events_of
from scripts.helpers.sinks.merging import DELETED, SPARK_FRAMES, TableMerge
from scripts.helpers.watermarks import Watermarks
from tests.sinks.merge_reference import SCHEMA, Event, MergedTable, expected, frame, rules
from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY
from tests.support.staging import staged_by


class Table(MergedTable):
    """A Delta table that batches are merged into."""

    @property
    def sink(self) -> DeltaSink:
        return DeltaSink(self.name, spark=self.spark).merging(rules(self.kind))

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows that readers see, by a reader that is neither Spark nor this package."""
        if not DeltaTable.is_deltatable(self.name):
            return []
        names = ["id", "at", "word", *(["valid_from", "valid_to"] if self.kind == "history" else [])]
        found = DeltaTable(self.name).to_pyarrow_table().select(names).to_pylist()
        return sorted(tuple(row.values()) for row in found)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Any:
    """Return a Spark session with Delta's connector, or None for `deltalake`."""
    return request.getfixturevalue("spark_with_tables") if request.param == "spark" else None


def test_versions_are_those_of_the_table_when_the_script_has_cached_it(tmp_path: Path, spark_with_tables: Any) -> None:
    name = f"{tmp_path}/repairs"
    elsewhere, table = Table(name, "history"), Table(name, "history", spark_with_tables)
    events = [Event(1, 1, "a"), Event(1, 2, "b"), Event(1, 3, "c")]
    elsewhere.merge(events[:1])
    cached = spark_with_tables.read.format("delta").load(name).cache()
    cached.count()
    elsewhere.merge(events[1:2])

    table.sink.publish(table.stage(events[2:], version=3))

    cached.unpersist()
    assert table.rows == expected("history", events)


def test_versions_that_the_table_has_are_marked_when_spark_works_out_where_they_end(spark: Any) -> None:
    events = spark.createDataFrame([(1, 3, "c", False)], f"{SCHEMA}, {DELETED} boolean")
    there = spark.createDataFrame([(1, 1, "a", 1, None)], f"{SCHEMA}, valid_from long, valid_to long")
    gone = spark.createDataFrame([(1, 2)], "id long, at long")

    found = SPARK_FRAMES.versions(events, there, gone, rules("history")).collect()

    assert sorted((row.valid_from, row.valid_to, row[DELETED]) for row in found) == [(1, 2, True), (3, None, False)]


FORKING = """
import os
import sys
from tests.sinks.merge_reference import Event
from tests.sinks.test_delta_merging import Table
Table(sys.argv[1], "newest").merge([Event(1, 1, "a")])
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_child_ends_when_the_process_has_merged_without_spark_before_it_forks(tmp_path: Path) -> None:
    name = f"{tmp_path}/repairs"
    subprocess.run([sys.executable, "-c", FORKING, name], cwd=REPOSITORY, check=True, timeout=PATIENCE)

    assert Table(name, "newest").rows == [(1, 1, "a")]


def publish_between(monkeypatch: pytest.MonkeyPatch, table: Table, output: Output, *others: list[Event]) -> int:
    """Publish an output while another job merges a batch after each look. Return how often the publisher looked."""
    other, source, looks = Table(table.name, table.kind, table.spark), TableMerge.source, []
    # Use another job's name: these batches must not count as later batches of the first job.
    pending = [other.stage(events, version=77 + number, job="other") for number, events in enumerate(others)]

    def late(merge: TableMerge, distinct: Any) -> Any:
        found = source(merge, distinct)
        if table.spark is not None:
            found = found.localCheckpoint()  # Otherwise Spark would read only as it writes.
        looks.append(found)
        if pending:
            between = pending.pop(0)
            with monkeypatch.context() as within:
                within.setattr(TableMerge, "source", source)
                other.sink.publish(between)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(TableMerge, "source", late)
        table.sink.publish(output)
    return len(looks)


@pytest.mark.parametrize(
    ("word", "kind", "engine"),
    [
        (None, "newest", "deltalake"),
        (None, "history", "deltalake"),
        ("b", "newest", "deltalake"),
        # Deletes and rows of another job come between in the same way, and a merge by Spark takes seconds.
        pytest.param("b", "history", "deltalake", marks=pytest.mark.long),
        pytest.param(None, "history", "spark", marks=pytest.mark.long),
        pytest.param("b", "history", "spark", marks=pytest.mark.long),
    ],
    indirect=["engine"],
)
def test_event_of_another_job_counts_when_it_comes_between_look_and_write(
    kind: str, tmp_path: Path, engine: Any, monkeypatch: pytest.MonkeyPatch, word: str | None
) -> None:
    """Two jobs merge into one table: the one that writes last looked before the other's event was there."""
    table = Table(f"{tmp_path}/repairs", kind, engine)
    table.merge([Event(9, 9, "there")])
    output = table.stage([Event(1, 1, "a")])

    publish_between(monkeypatch, table, output, [Event(1, 2, word)])

    assert table.rows == expected(kind, [Event(9, 9, "there"), Event(1, 1, "a"), Event(1, 2, word)])


@pytest.mark.parametrize("kind", [pytest.param("newest", marks=pytest.mark.long), "history"])
def test_delete_of_another_job_is_carried_out_when_a_third_comes_between_the_second_look_and_write(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(f"{tmp_path}/repairs", kind)
    table.merge([Event(9, 9, "there")])
    output, third = table.stage([Event(1, 1, "a")]), table.stage([Event(5, 1, "b")], version=88, job="third")
    pending, execute = [third], TableMerger.execute

    def late(merger: TableMerger) -> Any:
        if pending and (1, 1, "a") in [row[:3] for row in table.rows]:
            table.sink.publish(pending.pop())
        return execute(merger)

    monkeypatch.setattr(TableMerger, "execute", late)
    publish_between(monkeypatch, table, output, [Event(1, 2, None)])

    assert pending == []
    assert table.rows == expected(kind, [Event(9, 9, "there"), Event(1, 1, "a"), Event(1, 2, None), Event(5, 1, "b")])


def test_table_is_looked_at_once_when_nobody_comes_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(f"{tmp_path}/repairs", "newest")
    table.merge([Event(9, 9, "there")])

    assert publish_between(monkeypatch, table, table.stage([Event(1, 1, "a")])) == 1


def test_error_blames_others_when_each_try_meets_their_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "TRIES", 2)
    table = Table(f"{tmp_path}/repairs", "newest")
    table.merge([Event(9, 9, "there")])
    output = table.stage([Event(1, 1, "a")])

    with pytest.raises(TargetError, match=f"^Target 'file://{table.name}': others came between 2 times"):
        publish_between(monkeypatch, table, output, [Event(1, 2, None)], [Event(1, 3, None)])


def test_error_says_what_to_do_when_others_write_between_each_look_and_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(f"{tmp_path}/repairs", "newest")
    output = table.stage([Event(1, 1, "a")])
    source = TableMerge.source

    def late(merge: TableMerge, distinct: Any) -> Any:
        found = source(merge, distinct)
        for _ in range(2):
            write_deltalake(table.name, pa.table({"id": [9], "at": [9], "word": ["theirs"]}), mode="append")
        return found

    monkeypatch.setattr(delta, "TRIES", 2)
    monkeypatch.setattr(TableMerge, "source", late)

    with pytest.raises(TargetError, match=r"others came between 2 times\. Let one job at a time merge"):
        table.sink.publish(output)


def test_rows_may_tie_when_a_newer_one_of_their_key_comes_with_them(tmp_path: Path) -> None:
    table = Table(f"{tmp_path}/repairs", "newest")

    table.merge([Event(1, 1, "a"), Event(1, 1, "b"), Event(1, 2, "c")])

    assert table.rows == [(1, 2, "c")]


@pytest.mark.parametrize(("kind", "kept"), [("newest", [(1, 2), (2, 1)]), ("history", [(1, 1), (1, 2), (2, 1)])])
def test_one_row_of_each_moment_is_kept_when_spark_finds_the_newest_or_all(
    spark: Any, kind: str, kept: list[tuple[int, int]]
) -> None:
    rows = [(1, 1, "a", False), (1, 1, "b", False), (1, 2, "c", False), (2, 1, "d", False), (2, 1, "d", False)]
    events = spark.createDataFrame(rows, f"{SCHEMA}, {DELETED} boolean")

    distinct = SPARK_FRAMES.distinct(events, rules(kind)).collect()

    assert sorted((row.id, row.at) for row in distinct) == kept


def test_events_are_deletes_where_they_are_marked_when_spark_joins_them(spark: Any) -> None:
    events = spark.createDataFrame([(1, 1, "a", False)], f"{SCHEMA}, {DELETED} boolean")
    gone = spark.createDataFrame([(2, 3)], "id long, at long")

    found = SPARK_FRAMES.together(events, gone, deleted=True)

    assert sorted(map(tuple, found.collect())) == [(1, 1, "a", False), (2, 3, None, True)]
    assert [SPARK_FRAMES.has_deletes(frame) for frame in (events, found)] == [False, True]


def test_reason_is_told_at_once_when_the_table_refuses_what_is_merged_again(tmp_path: Path) -> None:
    table = Table(f"{tmp_path}/repairs", "newest")
    outputs = [
        staged_by(table.sink, BatchId("repairs", "jr_paused", 1), 1, frame([Event(1, at, word)]), replaces=True)
        for word, at in (("a", 1), ("b", 2))
    ]
    table.sink.publish(outputs[0])
    DeltaTable(table.name).alter.add_constraint({"first": "word = 'a'"})

    with pytest.raises(TargetError, match="Publishing again is safe") as caught:
        table.sink.publish(outputs[1])

    assert ("others came between" in str(caught.value), table.rows) == (False, [(1, 1, "a")])


@pytest.mark.parametrize("engine", ["spark", "deltalake"], indirect=True)
def test_rows_are_refused_when_a_needed_value_is_missing(tmp_path: Path, engine: Any) -> None:
    table = Table(f"{tmp_path}/repairs", "newest", engine)
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64()), pa.field("word", pa.string(), nullable=False)])
    write_deltalake(table.name, schema.empty_table())
    rows: Any = pd.DataFrame({"id": [1], "at": [1], "word": pd.Series([None], dtype="string")})
    if engine is not None:
        rows = engine.createDataFrame([(1, 1, None)], SCHEMA)

    with pytest.raises(InvalidValueError, match="'word' has 1 NULL"):
        staged_by(table.sink, BatchId("repairs", "e1", 1), 1, rows)


# Both kinds of merge find rows by the same filter, so in `make test` each type of key has one of them.
@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        pytest.param("newest", ["a", "b", "ß"], id="newest-text", marks=pytest.mark.long),
        pytest.param("newest", [b"a", b"b", b"\xff"], id="newest-binary"),
        pytest.param("newest", [1, 2, 3], id="newest-number", marks=pytest.mark.long),
        pytest.param("history", ["a", "b", "ß"], id="history-text"),
        pytest.param("history", [b"a", b"b", b"\xff"], id="history-binary", marks=pytest.mark.long),
        pytest.param("history", [1, 2, 3], id="history-number"),
    ],
)
def test_rows_of_a_key_are_found_when_their_file_was_merged_and_has_several(
    tmp_path: Path, keys: list[Any], kind: str
) -> None:
    rule = Merge.of("k", "at", history=kind == "history")
    sink = DeltaSink(str(tmp_path / "t"), merge=rule)

    for version in (1, 2, 3):
        rows = pd.DataFrame({"k": keys, "at": version, "word": [f"{version}"] * 3})
        events = events_of(rows, rule, deletes=lambda found, last=version == 3: (found["k"] == keys[1]) & last)
        sink.publish(staged_by(sink, BatchId("repairs", "e1", version), 1, events))

    found = DeltaTable(str(tmp_path / "t")).to_pyarrow_table().to_pylist()
    newest = {row["k"]: row["word"] for row in sorted(found, key=lambda row: row["at"])}
    ended = "3" if kind == "newest" else "2"
    assert newest == {keys[0]: "3", keys[2]: "3"} | ({keys[1]: ended} if kind == "history" else {})


def run_merge(watermarks: Watermarks, folder: Path, number: int, rows: Any, is_deleted: bool, **options: Any) -> None:
    """Merge rows, which are all deletes or all rows to keep, in run `number`."""
    source = pd.DataFrame({"id": range(number + 1)})
    with IncrementalJob(watermarks, "repairs") as job:
        job.rows_since(source, "id", delay=timedelta(0))
        job.merge(
            rows, DeltaSink(f"{folder}/t"), keys="k", sequence_by="n",
            deletes=lambda found: [is_deleted] * len(found), **options,
        )  # fmt: skip


HARD_KEYS = {
    "digits": (Decimal("123456789012345.67"), pa.decimal128(18, 2)),
    "places": (Decimal("0.1234567890123456789"), pa.decimal128(38, 19)),
    "all-digits": (Decimal("9" * 38), pa.decimal128(38, 0)),
    "nan": (float("nan"), pa.float64()),
    "infinity": (float("-inf"), pa.float64()),
    "time": (datetime(2026, 1, 1, microsecond=1, tzinfo=timezone.utc), pa.timestamp("us", "UTC")),
    "text": ("\U0001f6b2" * 40, pa.string()),
}


# Both kinds of merge find rows by the same filter, so `make test` tries all keys with one kind and some with the other.
@pytest.mark.parametrize(
    ("history", "key", "kind"),
    [
        pytest.param(
            history,
            *HARD_KEYS[name],
            id=f"{'history' if history else 'newest'}-{name}",
            marks=[] if history or name in ("places", "nan", "text") else [pytest.mark.long],
        )
        for history in (False, True)
        for name in HARD_KEYS
    ],
)
def test_row_of_a_key_is_found_when_statistics_do_not_hold_its_value(
    key: Any, kind: Any, history: bool, tmp_path: Path, watermarks: Watermarks
) -> None:
    for run, (number, is_deleted) in enumerate([(1, False), (2, False)] if history else [(2, True), (1, False)]):
        rows = pa.table({"k": pa.array([key], kind), "n": [number]}).to_pandas(types_mapper=pd.ArrowDtype)
        run_merge(watermarks, tmp_path, run, rows, is_deleted, history=history)

    found = DeltaTable(f"{tmp_path}/t").to_pyarrow_table()
    ends = sorted(zip(found["n"].to_pylist(), found["valid_to"].to_pylist(), strict=True)) if history else []
    assert (found.num_rows, ends) == ((2, [(1, 2), (2, None)]) if history else (0, []))


def test_batch_is_recorded_when_its_deletes_change_nothing(
    tmp_path: Path, watermarks: Watermarks, caplog: pytest.LogCaptureFixture
) -> None:
    for number, (key, is_deleted) in enumerate([(1, False), (9, True), (2, False)]):
        run_merge(watermarks, tmp_path, number, pd.DataFrame({"k": [key], "n": [number]}), is_deleted)

    assert "event=target_behind" not in caplog.text
    assert examine_targets(watermarks, "repairs") == []
    assert sorted(DeltaTable(f"{tmp_path}/t").to_pyarrow_table()["k"].to_pylist()) == [1, 2]
