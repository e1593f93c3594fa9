"""Spark and DuckDB compute the same result from the rows of a merge, and from values of every type."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.sinks import Merge, merging
from scripts.helpers.sinks.merging import ARROW_FRAMES, DELETED, SPARK_FRAMES, Frames
from tests.sinks.merge_reference import history, newest
from tests.support.long import cases

Moment = tuple[int, int]
State = dict[tuple[int, Moment], str | None]
"""All that happened, by key and moment; a delete is None."""
KINDS = pytest.mark.parametrize("kind", ["newest", "history"])
CASES = cases(60, long=250)
UTC = timezone.utc


class Frame:
    """Makes frames of one engine from plain rows."""

    def __init__(self, frames: Frames, make: Callable[[list[tuple[Any, ...]], dict[str, str]], Any]) -> None:
        self.frames, self.make = frames, make

    def rows(self, found: Any, names: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return some columns of a frame."""
        if isinstance(found, pa.Table):
            return [tuple(row.values()) for row in found.select(list(names)).to_pylist()]
        return [tuple(row[name] for name in names) for row in found.collect()]


def of_arrow(rows: list[tuple[Any, ...]], types: dict[str, str]) -> pa.Table:
    kinds = {"long": pa.int64(), "string": pa.string(), "boolean": pa.bool_()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in types.items()])
    return pa.Table.from_pylist([dict(zip(types, row, strict=True)) for row in rows], schema=schema)


@pytest.fixture(params=["duckdb", "spark", "spark, strict"])
def engine(request: pytest.FixtureRequest) -> Iterator[Frame]:
    """Yield an engine; Spark also with settings that change what SQL means."""
    if request.param == "duckdb":
        yield Frame(ARROW_FRAMES, of_arrow)
        return
    spark = request.getfixturevalue("spark")
    settings = ["spark.sql.ansi.enabled", "spark.sql.caseSensitive", "spark.sql.ansi.enforceReservedKeywords"]
    before = {name: spark.conf.get(name) for name in settings}
    for name in settings if "strict" in request.param else []:
        spark.conf.set(name, "true")
    yield Frame(SPARK_FRAMES, lambda rows, types: spark.createDataFrame(rows, ", ".join(map(" ".join, types.items()))))
    for name, value in before.items():
        spark.conf.set(name, value)


def random_states(kind: str) -> list[tuple[State, State]]:
    """Return, for many keys, the events before a batch and the events of the batch, some of which are repeats."""
    chance, found = random.Random(11), []
    for _ in range(CASES):
        moments = [(at, line) for at in range(4) for line in range(1 if kind == "history" else 3)]
        events = {(0, moment): chance.choice(["a", "b", None]) for moment in chance.sample(moments, len(moments) // 2)}
        before = {event: word for event, word in events.items() if chance.random() < 0.6}
        batch = {event: word for event, word in events.items() if event not in before or chance.random() < 0.3}
        found.append((before, batch))
    return found


def left_by(kind: str, state: State) -> list[tuple[Any, ...]]:
    events: Any = [Event(key, moment, word) for (key, moment), word in state.items()]
    return list(newest(events) if kind == "newest" else history(events))


class Event(tuple[Any, ...]):
    """An event of the model, with a sequence of two columns."""

    key = property(lambda self: self[0])
    sequence = property(lambda self: self[1])
    value = property(lambda self: self[2])

    def __new__(cls, *values: Any) -> Event:
        return super().__new__(cls, values)


@KINDS
def test_target_is_what_all_events_say_when_they_are_random_and_keys_have_two_columns(engine: Frame, kind: str) -> None:
    """Every case has a key of its own, so that one query covers all cases."""
    is_history = kind == "history"
    merge = Merge.of(["part", "ID"], "at" if is_history else ["at", "line"], history=is_history)
    types = {"part": "long", "ID": "long", "at": "long", "line": "long", "id_": "string"}
    states = list(enumerate(random_states(kind)))
    events = [
        (case, key, *moment, word, word is None)
        for case, (_, batch) in states
        for (key, moment), word in batch.items()
        for _ in range(1 + case % 2)
    ]
    there, gone = [], []
    for case, (before, batch) in states:
        there += [(case, *flat(row)) for row in left_by(kind, before)]
        deletes = [(case, key, *moment) for (key, moment), word in (before | batch).items() if word is None]
        gone += deletes if is_history else [max(deletes)] if deletes else []

    frames, brought = engine.frames, engine.make(events, types | {DELETED: "boolean"})
    ends = {"valid_from": "long", "valid_to": "long"} if is_history else {}
    target = engine.make(there, types | ends)
    named = ["part", "ID", "at", *([] if is_history else ["line"])]
    memory = engine.make([row[: len(named)] for row in gone], dict.fromkeys(named, "long"))
    distinct = frames.distinct(brought, merge)
    memory = frames.rows_with_keys(memory, distinct, merge)
    if is_history:
        source = frames.versions(distinct, frames.rows_with_keys(target, distinct, merge), memory, merge)
    else:
        source = frames.distinct(frames.together(distinct, memory, deleted=True), merge)
    found = engine.rows(source, [*types, DELETED, *ends])

    after = {case: merged(kind, left_by(kind, before), []) for case, (before, _) in states}
    for case, (before, _) in states:
        after[case] = merged(kind, left_by(kind, before), [row[1:] for row in found if row[0] == case])
    assert after == {case: left_by(kind, before | batch) for case, (before, batch) in states}
    assert frames.ties(brought, merge) == 0


def flat(row: tuple[Any, ...]) -> tuple[Any, ...]:
    key, (at, line), word, *ends = row
    return (key, at, line, word, *(end and end[0] for end in ends))


def merged(kind: str, there: list[tuple[Any, ...]], source: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the rows of a target after a MERGE of the source."""
    rows = {row[:2]: row for row in there} if kind == "history" else {row[0]: row for row in there}
    for key, at, line, word, deleted, *ends in source:
        moment = (at, line)
        if kind == "history":
            start, end = ends
            until = None if end is None else (end, 0)
            assert (key, (start, 0)) in rows or not deleted
            kept = rows[key, (start, 0)][2] if deleted else word
            rows[key, (start, 0)] = (key, (start, 0), kept, (start, 0), until)
        elif key not in rows or moment > rows[key][1]:
            rows.pop(key, None)
            if not deleted:
                rows[key] = (key, moment, word)
    return sorted(rows.values())


@pytest.mark.parametrize(("kind", "expected"), [("newest", 2), ("history", 3)])
def test_ties_are_counted_when_rows_of_a_moment_differ(engine: Frame, kind: str, expected: int) -> None:
    merge = Merge.of("id", "at", history=kind == "history")
    rows = [
        (1, 1, "a", False), (1, 1, "b", False), (1, 2, "c", False),  # The tie is between older rows.
        (2, 1, "d", False), (2, 1, "d", False), (3, 1, None, True), (3, 1, "x", True),  # These are no ties.
        (4, 1, "x", False), (4, 1, None, True), (5, 1, None, False), (5, 1, "", False),
    ]  # fmt: skip
    events = engine.make(rows, {"id": "long", "at": "long", "word": "string", DELETED: "boolean"})

    assert engine.frames.ties(events, merge) == expected


def test_row_without_a_sequence_is_the_oldest_when_it_is_there(engine: Frame) -> None:
    types = {"id": "long", "at": "long", "line": "long"}
    events = engine.make([(1, 1, 1, False), (2, 0, -5, False)], types | {DELETED: "boolean"})
    there = engine.make([(1, 1, None), (1, None, 9), (2, None, None)], types)

    every = engine.frames.together(events, there, deleted=False)
    found = engine.frames.distinct(every, Merge.of("id", ["at", "line"]))

    assert sorted(engine.rows(found, list(types))) == [(1, 1, 1), (2, 0, -5)]


NAN = float("nan")
VALUES: dict[str, tuple[pa.DataType, str, list[list[Any]]]] = {
    "double": (pa.float64(), "double", [[NAN, -NAN], [0.0, -0.0], [1.0], [1.0000000000000002], [float("inf")], [None]]),
    "float": (pa.float32(), "float", [[NAN], [0.0, -0.0], [1.5]]),
    "text": (pa.string(), "string", [[""], ["a"], ["A"], ["a "], ["\u00e9"], ["e\u0301"], ["a\0"], ["NULL"], [None]]),
    "data": (pa.binary(), "binary", [[b""], [b"\0"], [b"\xff"], [None]]),
    "price": (pa.decimal128(38, 18), "decimal(38,18)", [[Decimal("1E-18")], [Decimal(0), Decimal("-0")], [None]]),
    "moment": (
        pa.timestamp("us", "UTC"),
        "timestamp",
        [[datetime(2026, 10, 25, hour, 30, 0, micros, UTC)] for hour in (0, 1) for micros in (0, 1)],
    ),
    "day": (pa.date32(), "date", [[date(1582, 10, 4)], [date(1582, 10, 15)], [None]]),
    "list": (pa.list_(pa.float64()), "array<double>", [[[]], [[None]], [[NAN]], [[0.0], [-0.0]], [[1.0, 2.0]], [None]]),
    "struct": (
        pa.struct([("a", pa.float64()), ("b", pa.string())]),
        "struct<a: double, b: string>",
        [[{"a": None, "b": None}], [{"a": NAN, "b": "x"}], [{"a": 0.0, "b": ""}, {"a": -0.0, "b": ""}], [None]],
    ),
    "map": (
        pa.map_(pa.string(), pa.float64()),
        "map<string, double>",
        [[{"a": 1.0, "b": NAN}, {"b": NAN, "a": 1.0}], [{"a": 0.0}, {"a": -0.0}], [{}], [{"a": None}], [None]],
    ),
    "nested": (
        pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.int64())))])),
        "array<struct<m: map<string, array<bigint>>>>",
        [[[{"m": {"a": [1], "b": []}}], [{"m": {"b": [], "a": [1]}}]], [[{"m": None}]], [[None]], [[]], [None]],
    ),
}
"""Types of a column, and values in groups of equal ones."""


def pairs_of(name: str) -> list[tuple[Any, Any, bool]]:
    """Return each pair of a type's values, and whether the two are equal."""
    values = [(value, group) for group, of in enumerate(VALUES[name][2]) for value in of]
    return [(one, other, a == b) for one, a in values for other, b in values]


def entries(value: Any) -> Any:
    """Return a value with its maps as lists of entries, as pyarrow expects them."""
    if isinstance(value, list):
        return [entries(one) for one in value]
    if isinstance(value, dict) and set(value) & {"m"}:
        return {"m": entries(value["m"])}
    return list(value.items()) if isinstance(value, dict) else value


@pytest.mark.parametrize("name", VALUES)
def test_rows_tie_when_duckdb_compares_values_that_differ(name: str) -> None:
    kind, _, _ = VALUES[name]
    is_map = "map" in str(kind)
    ties, pairs = {}, {True: list[Any](), False: list[Any]()}
    for one, other, equal in pairs_of(name):
        pairs[equal].append((one, other))
    for equal, of in pairs.items():
        values = pa.array([entries(value) if is_map else value for pair in of for value in pair], kind)
        ids = [number for number in range(len(of)) for _ in range(2)]
        rows = pa.table({"id": ids, "at": [1] * len(ids), "v": values, DELETED: [False] * len(ids)})
        ties[equal] = ARROW_FRAMES.ties(rows, Merge.of("id", "at"))

    # Each pair has a key of its own: no pair of equal values ties, and every other pair does.
    assert ties == {True: 0, False: len(pairs[False])}


def test_rows_tie_when_spark_compares_values_that_differ(spark: Any) -> None:
    columns = ", ".join(f"{name} {kind}" for name, (_, kind, _) in VALUES.items())
    pairs = [(name, *pair) for name in VALUES for pair in pairs_of(name)]
    rows = []
    for number, (name, one, other, equal) in enumerate(pairs):
        for value in (one, other):
            others = [value if name == column else None for column in VALUES]
            rows.append((number, equal, 1, False, *others))
    events = spark.createDataFrame(rows, f"id long, equal boolean, at long, {DELETED} boolean, {columns}")

    merge = Merge.of("id", "at")
    ties = {equal: SPARK_FRAMES.ties(events.where(f"equal = {equal}"), merge) for equal in (True, False)}

    # Each pair has a key of its own: no pair of equal values ties, and every other pair does.
    assert ties == {True: 0, False: sum(not equal for *_, equal in pairs)}


KEPT: dict[str, pa.Array] = {
    "uint8": pa.array([1, 255], pa.uint8()), "uint64": pa.array([0, 2**64 - 1], pa.uint64()),
    "int8": pa.array([-128, 127], pa.int8()),
    "half": pa.array([1.5, 2.5], pa.float16()), "float": pa.array([0.1, 0.2], pa.float32()),
    "bool": pa.array([False, True]), "decimal": pa.array([Decimal(-1), Decimal(9)], pa.decimal128(38, 0)),
    "text": pa.array(["a", "\u00e9"]), "large": pa.array(["a", "b"], pa.large_string()),
    "fixed": pa.array([b"ab", b"cd"], pa.binary(2)),
    "uuid": pa.array([b"\0" * 16, b"\xff" * 16], pa.binary(16)).cast(pa.uuid()),
    "nanos": pa.array([1, 2], pa.timestamp("ns")), "zoned": pa.array([1, 2], pa.timestamp("ns", "Europe/London")),
    "seconds": pa.array([-(2**40), 2], pa.timestamp("s")), "day": pa.array([-800000, 1], pa.date32()),
    "ms": pa.array([0, 86400000], pa.date64()), "time": pa.array([1, 2], pa.time64("ns")),
    "minute": pa.array([1, 2], pa.time32("s")), "span": pa.array([1, 2], pa.duration("ns")),
}  # fmt: skip
"""Values in their order."""
WIDE: dict[str, pa.Array] = KEPT | {
    "wide": pa.array([Decimal(10) ** 60, None], pa.decimal256(70, 3)), "null": pa.nulls(2),
    "coded": pa.array(["a", None]).dictionary_encode(),
    "list": pa.array([[[1], None], None], pa.list_(pa.list_(pa.uint8()))),
    "fixed_list": pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
    "map": pa.array([[("a", None)], None], pa.map_(pa.string(), pa.null())),
    "struct": pa.array([{"a": "x", "A": 1}, None], pa.struct([("a", pa.large_string()), ("A", pa.int8())])),
}  # fmt: skip


@pytest.mark.parametrize("name", WIDE)
def test_values_and_types_are_those_that_came_when_rows_pass_through_duckdb(name: str) -> None:
    events = pa.table({"id": [1, 2], "at": [1, 1], "v": WIDE[name], DELETED: [False, False]})
    twice = pa.concat_tables([events, events])
    merge = Merge.of("id", "at")

    found = ARROW_FRAMES.distinct(twice, merge)

    assert found.sort_by("id").equals(events)
    assert ARROW_FRAMES.ties(twice, merge) == 0


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("role", ["key", "sequence"])
def test_keys_and_sequences_have_their_type_and_order_when_they_come_back_from_duckdb(name: str, role: str) -> None:
    values, ones = KEPT[name], pa.array([1, 1])
    key, at = (values, ones) if role == "key" else (ones, values)
    events = pa.table({"k": key, "at": at, DELETED: [False, False]})
    merge = Merge.of("k", "at", history=True)
    there = pa.table({"k": key, "at": at, "valid_from": at, "valid_to": pa.nulls(2, at.type)})

    one, other = events.slice(0, 1), there.slice(1)
    found = ARROW_FRAMES.versions(one, other, other.select(["k", "at"]).slice(1), merge)
    newest = ARROW_FRAMES.distinct(events, Merge.of("k", "at"))

    row, kept = (found.filter(pc.equal(found[DELETED], deleted)) for deleted in (False, True))
    ends = [row["valid_to"], kept["valid_to"]]
    assert found.schema.field("k").type == key.type
    assert {found.schema.field(name).type for name in ("at", "valid_from", "valid_to")} == {at.type}
    assert [row["k"], row["valid_from"]] == [chunked(key[:1]), chunked(at[:1])]
    assert [kept["k"], kept["valid_from"]] == [chunked(key[1:]), chunked(at[1:])]
    assert ends == [chunked(pa.nulls(1, at.type)) if role == "key" else chunked(at[1:]), chunked(pa.nulls(1, at.type))]
    assert newest["at"] == (chunked(at) if role == "key" else chunked(at[1:]))


def chunked(values: pa.Array) -> pa.ChunkedArray:
    return pa.chunked_array([values])


@pytest.mark.parametrize("name", ["wide", "list", "map", "struct"])
def test_key_is_refused_when_nothing_orders_its_type(name: str) -> None:
    events = pa.table({"k": WIDE[name], "at": [1, 1], DELETED: [False, False]})

    with pytest.raises(InvalidValueError, match=r"Column 'k' is of type .*Name other columns in keys"):
        ARROW_FRAMES.nulls(events, ["k", "at"])


def test_rows_of_a_key_are_found_when_it_is_no_number_or_a_negative_zero() -> None:
    rows = pa.table({"k": [NAN, 0.0, 1.0, None]})
    events = pa.table({"k": [NAN, -0.0]})

    found = ARROW_FRAMES.rows_with_keys(rows, events, Merge.of("k", "at"))["k"].to_pylist()

    assert list(map(str, found)) == ["nan", "0.0"]


def test_query_spills_to_the_temporary_directory_when_it_needs_more_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, here = tmp_path / "temporary", tmp_path / "here"
    temporary.mkdir()
    here.mkdir()
    # By default, DuckDB spills into a folder of this name in the current directory; this file makes that fail.
    (here / ".tmp").write_text("")
    monkeypatch.chdir(here)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(merging, "MEMORY", "100MB")
    count = 800_000
    numbers = pa.array(range(count))
    words = pa.array([f"{number:>150}" for number in range(count)])
    events = pa.table({"id": numbers, "at": numbers, "word": words, DELETED: pa.array([False] * count)})

    assert ARROW_FRAMES.ties(events, Merge.of("id", "at")) == 0
    assert list(temporary.iterdir()) == []
