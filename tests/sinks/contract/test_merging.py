"""A merge leaves the result of the set of all rows, whatever the order of the batches and the types of the keys."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from scripts.helpers.errors import (
    InvalidValueError,
    KeyColumnError,
    TargetError,
    TargetSchemaError,
)
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output
from scripts.helpers.sinks.given_frames import events_of
from scripts.helpers.sinks.merging import TableMerge
from scripts.helpers.sinks.outputs import mark_of
from scripts.helpers.watermarks import Watermarks
from tests.sinks.contract.targets import TARGETS, Copy, Target, every, shown
from tests.sinks.merge_reference import Event, expected, histories, rules
from tests.support.long import cases
from tests.support.staging import staged_by
from tests.support.steps import KilledError

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("word", pa.string())])
BATCHES = [
    [Event(0, 1, "a"), Event(0, 3, "c"), Event(1, 5, None), Event(2, 1, "x"), Event(-1, 2, "y")],
    # Late events: one is older than the delete of its key, and one is a repeat.
    [Event(0, 2, "late"), Event(1, 4, "late"), Event(2, 1, "x"), Event(-1, 3, None)],
    [Event(1, 6, "back"), Event(0, 3, "c"), Event(-1, 1, "late")],
]


def rows_of(events: Sequence[Event]) -> pa.Table:
    """Return events as rows; the word `gone` marks a delete."""
    rows = [{"id": event.key, "at": event.sequence, "word": event.value or "gone"} for event in events]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def options_of(target: Target, **more: Any) -> dict[str, Any]:
    deletes: Any = "word = 'gone'" if target.spark is not None else lambda rows: rows.word == "gone"
    return {"keys": "id", "sequence_by": "at", "deletes": deletes} | more


KEPT = [
    # Merges by Spark are slow. Tests of keys of all types run them without a history.
    pytest.param(name, kind, marks=[pytest.mark.long] if is_slow or (kind, one.engine) == ("newest", "spark") else [])
    for kind in ("newest", "history")
    for name, one in TARGETS.items()
    if "merge" in one.can
    for is_slow in [one.engine == "spark" and one.family != "database"]
    if kind == "history" or not is_slow
]
"""Targets, with what a merge keeps of each key."""
WITHOUT_SPARK = pytest.mark.parametrize(
    ("target", "kind"),
    [(name, kind) for name, one in TARGETS.items() if "merge" in one.can and one.engine == "pandas"
     for kind in ("newest", "history")],
    indirect=["target"],
)  # fmt: skip


def make(target: Target, kind: str = "newest") -> list[str]:
    """Make a table if the sink does not make one; return its columns for the start and end of a version."""
    ends = ["valid_from", "valid_to"] if kind == "history" else []
    target.create(SCHEMA, **dict.fromkeys(ends, pa.int64()))
    return ends


@pytest.mark.parametrize(("target", "kind"), KEPT, indirect=["target"])
def test_target_has_what_all_rows_say_when_they_come_late_again_and_in_any_order(
    target: Target, copy: Copy, kind: str
) -> None:
    make(target, kind)

    for events in BATCHES:
        copy.run(rows_of(events), **options_of(target, history=kind == "history"))

    assert left(target, kind) == expected(kind, [event for events in BATCHES for event in events])


@pytest.mark.parametrize(("target", "kind"), KEPT, indirect=["target"])
def test_batch_is_refused_before_it_is_written_when_nothing_orders_its_rows(
    target: Target, copy: Copy, kind: str
) -> None:
    make(target, kind)
    options = options_of(target, history=kind == "history")
    copy.run(rows_of([Event(1, 1, "a"), Event(2, 1, None)]), **options)
    rows = target.read()

    there, brought = "as a different row in the target", "as a different row of the batch"
    ties = [
        ([Event(1, 1, "b"), Event(3, 1, "x")], f"1 row has the same id, at {there}"),
        ([Event(4, 1, "a"), Event(4, 1, "b")], brought), ([Event(1, 1, None)], there), ([Event(2, 1, "b")], there),
    ]  # fmt: skip
    for events, match in ties[:1] if target.spark is not None else ties:
        copy.refused(rows_of(events), InvalidValueError, match, **options)
    for place, empty in enumerate(["id"] if target.spark is not None else ["id", "at"]):
        nulls = rows_of([Event(1, 1, "a")]).set_column(place, empty, pa.array([None], pa.int64()))
        copy.refused(nulls, KeyColumnError, match=f"{empty!r}: 1 row has NULL", **options)

    assert target.read() == rows
    assert target.sink().staged(mark_of(copy.job_id)) == []


@every("merge", slow=("delta-spark", "iceberg-spark", "postgres-jdbc"))
def test_merge_is_refused_before_it_is_written_when_deletes_are_remembered_by_other_columns(
    target: Target, copy: Copy
) -> None:
    make(target)
    options = options_of(target)
    copy.run(rows_of([Event(1, 1, "a")]), **options)

    error = copy.refused(
        rows_of([Event(2, 1, "a")]), TargetError, "deletes are remembered by at, id",
        **options | {"keys": ["id", "word"]},
    )  # fmt: skip

    assert (error.target, target.ids()) == (target.sink().name, [1])


@WITHOUT_SPARK
def test_whole_row_is_asked_for_when_a_column_is_missing(target: Target, copy: Copy, kind: str) -> None:
    make(target, kind)
    options = {"keys": "id", "sequence_by": "at", "history": kind == "history"}
    copy.run(rows_of([Event(1, 1, "a")]), **options)

    error = TargetError if target.kind.family == "database" else TargetSchemaError
    copy.refused(rows_of([Event(2, 1, "a")]).drop_columns("word"), error, "'word'", **options)

    assert target.ids() == [1]


@every("merge", slow=("delta-spark", "iceberg-spark"))
def test_rows_are_deleted_when_the_source_has_their_keys_no_longer_and_nothing_else_is_new(
    target: Target, copy: Copy
) -> None:
    make(target)
    copy.run(rows_of([Event(1, 1, "a"), Event(2, 1, "b")]), **options_of(target))

    copy.run(rows_of([]), missing=target.frame(pa.table({"id": [1], "at": [3]})), **options_of(target))

    assert target.ids() == [2]


@WITHOUT_SPARK
def test_row_without_a_place_is_older_than_all_when_it_was_there_before_the_first_merge(
    watermarks: Watermarks, target: Target, copy: Copy, kind: str
) -> None:
    ends = make(target, kind)
    places = {name: pa.nulls(1, pa.int64()) for name in ["at", *ends]}
    Copy(watermarks, target, "appends").run(pa.table({"id": [1], "word": ["old"], **places}).select(
        [*SCHEMA.names, *ends]
    ))  # fmt: skip

    copy.run(rows_of([Event(1, 5, "a")]), **options_of(target, history=kind == "history"))

    assert sorted(row["word"] for row in target.read()) == (["a"] if kind == "newest" else ["a", "old"])


@every("merge", where=lambda kind: kind.engine == "pandas")
def test_rows_are_merged_again_when_a_run_that_saves_nothing_is_repeated(
    watermarks: Watermarks, target: Target
) -> None:
    make(target)

    for event in (Event(1, 1, "a"), Event(1, 2, "b")):
        with IncrementalJob(watermarks, "repairs", "jr_1", mode="disable") as job:
            rows = job.rows_since(target.frame(rows_of([event])), "at")
            job.merge(rows, target.sink(), keys="id", sequence_by="at")

    assert [row["word"] for row in target.read()] == ["b"]


# --- attempts at a merge --------------------------------------------------------------------------------


def sink(target: Target, kind: str) -> Any:
    return target.sink().merging(rules(kind))


def stage(target: Target, kind: str, version: int, events: Sequence[Event]) -> Output:
    """Stage events by an attempt that belongs to no job."""
    marked = events_of(target.frame(rows_of(events)), rules(kind), options_of(target)["deletes"])
    return staged_by(sink(target, kind), BatchId("repairs", "e1", version), 1, marked)


def left(target: Target, kind: str) -> list[tuple[Any, ...]]:
    """Return the rows of a target in the form that `expected` has."""
    names = [*SCHEMA.names, *(["valid_from", "valid_to"] if kind == "history" else [])]
    return sorted(tuple(row[name] for name in names) for row in target.read())


_numbers = itertools.count(1)


@pytest.mark.parametrize("kind", ["newest", "history"])
@pytest.mark.parametrize("target", ["deltalake", "pyiceberg", "sqlite"], indirect=True)
@settings(
    max_examples=cases(2, long=100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # fmt: skip
@given(batches=histories())
def test_target_is_what_the_set_of_rows_says_when_batches_are_random(
    target: Target, kind: str, batches: list[list[Event]]
) -> None:
    one = target.another(f"random_{kind}_{next(_numbers)}")
    make(one, kind)

    for version, events in enumerate(batches, 1):
        output = stage(one, kind, version, events)
        sink(one, kind).publish(output)
        sink(one, kind).clear(output)

    assert left(one, kind) == expected(kind, [event for events in batches for event in events])


@pytest.mark.long
@pytest.mark.parametrize("kind", ["newest", "history"])
@pytest.mark.parametrize("target", ["delta-spark", "iceberg-spark"], indirect=True)
def test_spark_leaves_the_same_when_batches_come_in_any_order(target: Target, kind: str) -> None:
    chance = random.Random(7)
    moments = [(key, sequence) for key in range(12) for sequence in range(1, 6)]
    events = [Event(*moment, chance.choice(["a", "b", None])) for moment in chance.sample(moments, 45)]
    batches = [chance.choices(events, k=30) for _ in range(2)]

    for version, batch in enumerate(batches, 1):
        output = stage(target, kind, version, batch)
        sink(target, kind).publish(output)
        sink(target, kind).publish(output)
        sink(target, kind).clear(output)
        sink(target, kind).publish(output)

    assert left(target, kind) == expected(kind, [event for batch in batches for event in batch])
    assert target.sink().staged(output.job) == []


@WITHOUT_SPARK
def test_batch_is_there_once_when_it_is_published_again_after_a_later_one(target: Target, kind: str) -> None:
    make(target, kind)
    first, second = [Event(1, 1, "a"), Event(2, 1, "b")], [Event(1, 3, "c"), Event(2, 2, None)]
    early = stage(target, kind, 1, first)
    before = target.read()
    sink(target, kind).publish(early)
    sink(target, kind).publish(early)
    sink(target, kind).publish(stage(target, kind, 2, second))
    at = target.newest() if "roll_back" in target.kind.can else None

    sink(target, kind).publish(early)
    sink(target, kind).clear(early)
    sink(target, kind).publish(early)

    assert before == []
    assert left(target, kind) == expected(kind, [*first, *second])
    if at is not None:
        assert target.newest() == at


@pytest.mark.parametrize("kind", ["newest", "history"])
@pytest.mark.parametrize("target", ["deltalake", "pyiceberg"], indirect=True)
def test_deletes_are_carried_out_when_a_publisher_dies_after_it_has_remembered_them(
    target: Target, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database records the deletes in the transaction that merges."""
    events = [Event(1, 1, "a"), Event(1, 2, None), Event(1, 3, "b"), Event(2, 4, None)]
    sink(target, kind).publish(stage(target, kind, 1, events[:1]))
    output = stage(target, kind, 2, events[1:])

    def die(*_: Any) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(TableMerge, "source", die)
        with pytest.raises((KilledError, TargetError)):
            sink(target, kind).publish(output)
    seen = left(target, kind)
    sink(target, kind).publish(output)
    sink(target, kind).publish(stage(target, kind, 3, [Event(2, 3, "late")]))

    assert seen == expected(kind, events[:1])
    assert left(target, kind) == expected(kind, [*events, Event(2, 3, "late")])


# --- deletes, keys and names ----------------------------------------------------------------------------


@every("merge", where=lambda kind: kind.engine == "pandas")
def test_batch_is_refused_before_it_is_written_when_deletes_have_another_index_than_the_rows(
    target: Target, copy: Copy
) -> None:
    target.create(SCHEMA)
    copy.run(rows_of([Event(1, 1, "a"), Event(2, 1, "a")]), **options_of(target))
    rows, later = target.read(), rows_of([Event(1, 2, "b"), Event(2, 2, "b")])

    def deletes(index: list[int]) -> Any:
        return lambda _: pd.Series([True, False], index=index)

    for index in ([7, 8], [1, 0]):
        copy.refused(later, InvalidValueError, "another index", **options_of(target, deletes=deletes(index)))
    left = target.read()
    copy.run(later, **options_of(target, deletes=deletes([0, 1])))

    assert left == rows
    assert target.ids() == [2]


UTC = timezone.utc
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole": (pa.int64(), [0, 2**53, 2**53 + 1, -(2**63), 2**63 - 1]),
    "text": (
        pa.string(),
        ["", " ", "a", "A", "a ", "\u00e9", "e\u0301", "\U0001f600", "\U0001f601", "0", "00", "NULL", "'"],
    ),
    "data": (pa.binary(), [b"", b"\0", b"\0\0", b"a", b"A", b"\xff\xfe"]),
    "price": (
        pa.decimal128(38, 18),
        [Decimal(0), Decimal("1E-18"), Decimal(10) ** 19, Decimal("10000000000000000000.000000000000000001")],
    ),
    "day": (
        pa.date32(),
        [date(1500, 1, 1), date(1500, 1, 10), date(1582, 10, 4), date(1582, 10, 15), date(2026, 10, 25)],
    ),
    "moment": (
        pa.timestamp("us", "UTC"),
        [datetime(2026, 10, 25, hour, 30, 0, micros, UTC) for hour in (0, 1) for micros in (0, 1)],
    ),
}
"""Of each type values that are nearly the same, or were taken for the same somewhere."""


def keyed(names: Sequence[str], at: int) -> pa.Table:
    """Return a first row, and rows whose keys differ from it in one column, by one other value of that column."""
    first = {name: KEYS[name][1][0] for name in names}
    rows = [first, *(first | {name: value} for name in names for value in KEYS[name][1][1:])]
    fields = [*((name, KEYS[name][0]) for name in names), ("id", pa.int64()), ("at", pa.int64())]
    return pa.Table.from_pylist([row | {"id": id_, "at": at} for id_, row in enumerate(rows)], schema=pa.schema(fields))


@every("merge", slow=("iceberg-spark",))
def test_each_key_is_there_once_when_keys_are_of_any_type_and_nearly_the_same(
    watermarks: Watermarks, target: Target
) -> None:
    # With pandas, also each key alone: the search for the rows of a batch uses only the first key column. The rows that
    # are there first are appended, because a merge takes longer.
    for number, names in enumerate([list(KEYS), *([[name] for name in KEYS] if target.spark is None else [])]):
        one = target.another(f"keys_{number}_{target.kind.form}") if number else target
        copy = Copy(watermarks, one, f"repairs-{number}", keys=names, sequence_by="at")
        one.create(keyed(names, 1).schema)
        Copy(watermarks, one, f"appends-{number}").run(keyed(names, 2))

        copy.run(pa.concat_tables([keyed(names, 3), keyed(names, 1)]))

        assert shown(one.read()) == shown(keyed(names, 3).to_pylist()), names


NAMES = [
    "one", "row_id", "started", "ended", "s", "t", "l", "p", "a", "n", "d", "c0", "deleted", "taken", "order", "a.b",
    "a'b", 'a"b', "a`b", "a%s", "\u00fc", "a?", ":x",
]  # fmt: skip
"""Names in statements of the sinks, or in those of earlier versions, and signs of SQL."""


@pytest.mark.parametrize(("target", "kind"), KEPT, indirect=["target"])
def test_newest_row_of_each_key_is_there_when_the_columns_have_names_of_ours_or_signs_of_sql(
    target: Target, copy: Copy, kind: str
) -> None:
    # Pyiceberg reads a name with a dot as the field of a struct, so a key with a dot is refused.
    is_refused = (target.kind.family, target.kind.engine != "spark") == ("iceberg", True)
    names = [name for name in NAMES if not (is_refused and "." in name)]
    ends = ["valid_from", "valid_to"] if kind == "history" else []

    def rows_at(*moments: int) -> pa.Table:
        ids, ones = pa.array(range(len(moments)), pa.int64()), pa.array([1] * len(moments), pa.int64())
        return pa.table({"id": ids, **dict.fromkeys(names, ones), "place": pa.array(moments, pa.int64())})

    target.create(rows_at(1).schema, **dict.fromkeys(ends, pa.int64()))

    for moments in ([10, 30, 20], [40, 5]):
        copy.run(rows_at(*moments), keys=names, sequence_by="place", history=kind == "history")

    found = sorted([row[name] for name in ("place", *ends)] for row in target.read())
    history = [[5, 5, 10], [10, 10, 20], [20, 20, 30], [30, 30, 40], [40, 40, None]]
    assert found == (history if kind == "history" else [[40]])


@every("merge", slow=("delta-spark", "iceberg-spark", "postgres-jdbc"))
def test_newest_row_is_there_when_the_columns_that_order_them_have_names_of_ours(target: Target, copy: Copy) -> None:
    # The condition for "newer" gets deeper with each sequence column, and servers limit its depth.
    names = ["row_id", "one", "started", "ended", "s", "t", "a", "n"]

    def rows_at(*moments: int) -> pa.Table:
        ids, ones = pa.array([1] * len(moments), pa.int64()), pa.array([1] * len(moments), pa.int64())
        return pa.table({"id": ids, **dict.fromkeys(names, ones), "place": pa.array(moments, pa.int64())})

    target.create(rows_at(1).schema)
    found = []

    for moments in ([10, 30, 20], [40, 5]):
        copy.run(rows_at(*moments), keys="id", sequence_by=[*names, "place"])
        found += [row["place"] for row in target.read()]

    assert found == [30, 40]
