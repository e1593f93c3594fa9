"""The rules of a merge; a table ends up as they say, whatever the order of the batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from scripts.helpers.errors import (
    InvalidValueError,
    KeyColumnError,
    TargetError,
)
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output
from scripts.helpers.sinks import DatabaseSink, Merge, Versions
from scripts.helpers.sinks.database import GONE, Statements
from scripts.helpers.sinks.given_frames import events_of
from scripts.helpers.sinks.merging import DELETED
from scripts.helpers.sql.database import WritableDatabase
from scripts.helpers.sql.mysql import MySQL
from scripts.helpers.sql.postgresql import PostgreSQL
from tests.sinks.merge_reference import Event, expected, frame, rules
from tests.support.database_fixtures import written_as
from tests.support.patience import PATIENCE
from tests.support.reasons import because
from tests.support.staging import staged_by
from tests.support.written import EPOCH, JOB, Written

COLUMNS = {
    "newest": "id integer PRIMARY KEY, at integer NOT NULL, word varchar(20) NOT NULL",
    "history": "id integer NOT NULL, at integer NOT NULL, word varchar(20) NOT NULL, valid_from integer NOT NULL, "
    "valid_to integer, PRIMARY KEY (id, valid_from)",
}
KINDS = pytest.mark.parametrize("kind", list(COLUMNS))


class Table:
    """A target, and the number of the last batch that was merged into it."""

    def __init__(self, kind: str, name: str, connect: Callable[[], Any]) -> None:
        self.kind, self.name, self.connect, self.version = kind, name, connect, 0
        self.sink = DatabaseSink(name, connect=connect, name="shop", merge=rules(kind))

    def merge(self, events: Sequence[Event], rows: pd.DataFrame | None = None) -> None:
        """Stage, publish and clear a batch."""
        self.version += 1
        marked = events_of(frame(events) if rows is None else rows, rules(self.kind), lambda rows: rows.word == "gone")
        output = staged_by(self.sink, BatchId(JOB, EPOCH, self.version), 1, marked)
        self.sink.publish(output)
        self.sink.clear(output)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        more = ", valid_from, valid_to" if self.kind == "history" else ""
        connection = self.connect()
        cursor = connection.cursor()
        cursor.execute(f"SELECT id, at, word{more} FROM {self.name}")
        found = sorted(tuple(row) for row in cursor.fetchall())
        connection.close()
        return found


# --- one rule each -------------------------------------------------------------------------------------


@pytest.fixture(params=list(COLUMNS))
def table(request: pytest.FixtureRequest) -> Table:
    """Return a SQLite target; the contract suite and the test of ties cover what is special to the servers."""
    written = written_as(request, "sqlite")
    return Table(request.param, written.new_table(COLUMNS[request.param]), written.connect)


@pytest.mark.parametrize(("server", "other"), [("sqlite", None), ("postgres", "A"), ("maria", "A"), ("maria", "a ")])
@KINDS
def test_tie_is_refused_before_anything_is_written_when_two_rows_differ(
    request: pytest.FixtureRequest, kind: str, server: str, other: str | None
) -> None:
    """On MariaDB, also where the collation treats the two rows as equal."""
    written = written_as(request, server)
    table = Table(kind, written.new_table(COLUMNS[kind]), written.connect)
    table.merge([Event(1, 1, "a")])
    before = table.rows

    with pytest.raises(
        InvalidValueError,
        check=because("merge_tie"),
        match="1 row has the same id, at as a different row in the target",
    ):
        table.merge([Event(1, 1, other), Event(2, 1, "x")])
    with pytest.raises(InvalidValueError, check=because("merge_tie"), match="as a different row of the batch"):
        table.merge([Event(3, 1, other), Event(3, 1, "a")])

    assert table.rows == before
    assert table.sink.staged("5e8c9902") == []


@pytest.mark.parametrize("sequence", [pa.decimal128(9, 2), pa.decimal128(20, 0), pa.uint64()], ids=str)
@KINDS
def test_sequence_is_refused_when_the_database_would_compare_it_as_text(
    request: pytest.FixtureRequest, kind: str, sequence: pa.DataType
) -> None:
    """As texts '10' is before '9', so that an older row would win."""
    written = written_as(request, "sqlite")
    sink = written.sink(written.new_table("id integer, at text, valid_from text, valid_to text"), merge=rules(kind))
    rows = pa.table({"id": [1], "at": pa.array([9], sequence)}).to_pandas(types_mapper=pd.ArrowDtype)

    with pytest.raises(TargetError, match=r"column 'at' .* SQLite compares decimals as text, .* Cast it to bigint"):
        staged_by(sink, BatchId(JOB, EPOCH, 1), 1, rows)


def test_key_is_refused_when_the_database_would_take_the_same_number_for_another_key(
    request: pytest.FixtureRequest,
) -> None:
    """Decimals of Python take the precision of their batch, so 1.5 is the text '1.5' in one, and '1.50' in the next."""
    written = written_as(request, "sqlite")
    sink = written.sink(name := written.new_table("id text, at integer"), merge=rules("newest"))

    def stage(version: int, *ids: str) -> Output:
        rows = pd.DataFrame({"id": [*map(Decimal, ids)], "at": [version] * len(ids)})
        return staged_by(sink, BatchId(JOB, EPOCH, version), 1, rows)

    sink.publish(stage(1, "1.5", "7.0"))
    sink.publish(stage(2, "1.5"))
    with pytest.raises(TargetError, match=r"key 'id' is decimal\(3,2\) in the rows, and 2 rows have another .* Cast"):
        stage(3, "1.5", "2.25")

    assert written.rows(f"SELECT id, at FROM {name} ORDER BY id") == [("1.5", 2), ("7.0", 1)]


@pytest.mark.parametrize(
    ("server", "whole", "finer", "alter"),
    [("postgres", "timestamp(0)", "timestamp(6)", "ALTER at TYPE"), ("maria", "datetime", "datetime(6)", "MODIFY at")],
    ids=["postgres", "mariadb"],
)
def test_row_newer_than_the_delete_of_its_key_is_there_when_the_times_of_the_target_were_made_finer(
    request: pytest.FixtureRequest, server: str, whole: str, finer: str, alter: str
) -> None:
    """Remembered with the old type, the delete would be rounded to a time after the row."""
    written = written_as(request, server)
    sink = written.sink(name := written.new_table(f"id integer, at {whole}, word varchar(9)"), merge=rules("newest"))

    def merge(version: int, at: str, word: str) -> None:
        rows = pd.DataFrame({"id": [1], "at": [pd.Timestamp(f"2026-11-30 10:00:{at}")], "word": [word]})
        marked = events_of(rows, rules("newest"), lambda rows: rows.word == "gone")
        sink.publish(staged_by(sink, BatchId(JOB, EPOCH, version), 1, marked))

    merge(1, "00", "first")
    written.sql(f"ALTER TABLE {name} {alter} {finer}")
    with pytest.raises(TargetError, match=rf"by at, id \({whole[:8]}.* in '{GONE}{name}', .* by at, id \({finer[:8]}"):
        merge(2, "00.6", "gone")
    written.sql(f"ALTER TABLE {GONE}{name} {alter} {finer}")
    merge(2, "00.6", "gone")
    merge(3, "00.8", "new")

    assert written.rows(f"SELECT word FROM {name}") == [("new",)]


@pytest.mark.parametrize(
    ("server", "at", "coarser"),
    [
        ("postgres", "timestamp", "timestamp(0)"), ("postgres", "timestamp", "date"),
        ("postgres", "numeric(9,2)", "numeric(9,1)"), ("maria", "datetime(6)", "datetime"),
    ],
    ids=["timestamp", "date", "numeric", "datetime"],
)  # fmt: skip
@pytest.mark.parametrize("place", ["valid_from", "valid_to"])
def test_history_is_refused_when_its_columns_would_round_the_sequence(
    request: pytest.FixtureRequest, server: str, at: str, coarser: str, place: str
) -> None:
    """The rounded start would differ from the row's sequence, so the same row would be inserted again."""
    written, types = written_as(request, server), {"at": at, "valid_from": at, "valid_to": at}
    one = Decimal("1.25") if at.startswith("numeric") else pd.Timestamp("2026-11-30 10:00:00.6")
    tables = [
        written.new_table("id integer, " + ", ".join(map(" ".join, {**types, **wrong}.items())))
        for wrong in ({place: coarser}, {})
    ]
    refused, taken = (written.sink(name, merge=rules("history")) for name in tables)
    rows = pd.DataFrame({"id": [1], "at": [one]})

    with pytest.raises(
        TargetError, match=rf"column '{place}' is .*, and a history fills it from 'at', .* Declare it as"
    ):
        staged_by(refused, BatchId(JOB, EPOCH, 1), 1, rows)
    for version in (1, 2):
        taken.publish(staged_by(taken, BatchId(JOB, EPOCH, version), 1, rows))

    assert written.rows(f"SELECT valid_from = at, valid_to FROM {tables[1]}") == [(True, None)]


def test_history_is_refused_when_no_version_could_be_valid_now(written: Written) -> None:
    name = written.new_table("id integer, at integer, valid_from integer, valid_to integer NOT NULL")
    sink = written.sink(name, merge=rules("history"))

    with pytest.raises(TargetError, match="column 'valid_to' must have a value, and a history needs NULL there"):
        staged_by(sink, BatchId(JOB, EPOCH, 1), 1, pd.DataFrame({"id": [1], "at": [1]}))


def test_rows_are_compared_when_the_server_has_no_equality_for_a_column(request: pytest.FixtureRequest) -> None:
    written = written_as(request, "postgres")
    sink = written.sink(written.new_table("id integer PRIMARY KEY, at integer, doc json"), merge=rules("newest"))
    rows = pd.DataFrame({"id": [1, 1], "at": [1, 1], "doc": ['{"a": 1}'] * 2})

    sink.publish(staged_by(sink, BatchId(JOB, EPOCH, 1), 1, rows))
    with pytest.raises(InvalidValueError, check=because("merge_tie"), match="as a different row in the target"):
        staged_by(sink, BatchId(JOB, EPOCH, 2), 1, rows.assign(doc="[]"))


def test_tie_is_refused_when_the_other_row_was_published_after_the_batch_was_staged(table: Table) -> None:
    first, second = (
        staged_by(table.sink, BatchId(JOB, EPOCH, version), 1, events_of(frame([Event(1, 1, word)]), rules(table.kind)))
        for version, word in enumerate("ab", 1)
    )
    table.sink.publish(first)
    before = table.rows

    with pytest.raises(InvalidValueError, check=because("merge_tie"), match="as a different row in the target"):
        table.sink.publish(second)

    assert (len(before), table.rows) == (1, before)


def test_columns_of_a_history_are_those_that_are_named_when_it_is_given(written: Written) -> None:
    name = written.new_table("id integer, since integer, word varchar(9), until integer")
    merge = Merge.of("id", "since", Versions("since", "until"))
    sink = written.sink(name, merge=merge)

    for version, since in enumerate((5, 3), 1):
        output = staged_by(
            sink, BatchId(JOB, EPOCH, version), 1, pd.DataFrame({"id": [1], "since": [since], "word": ["x"]})
        )
        sink.publish(output)

    assert sorted(written.rows(f"SELECT since, until FROM {name}")) == [(3, 5), (5, None)]


def test_rows_compare_from_the_first_column_on_when_several_order_them(written: Written) -> None:
    name = written.new_table("id integer, at integer, line integer")
    sink = written.sink(name, merge=Merge.of("id", ["at", "line"]))
    # A row from before the first merge has no sequence, and counts as older than all others.
    written.sql(f"INSERT INTO {name} VALUES (1, NULL, NULL)")

    for version, (at, line) in enumerate([(1, 9), (2, 1), (2, 3), (2, 2), (1, 99)], 1):
        output = staged_by(sink, BatchId(JOB, EPOCH, version), 1, pd.DataFrame({"id": [1], "at": [at], "line": [line]}))
        sink.publish(output)

    assert written.rows(f"SELECT * FROM {name}") == [(1, 2, 3)]


@KINDS
def test_spellings_are_one_key_when_the_collation_of_the_target_says_so(
    request: pytest.FixtureRequest, kind: str
) -> None:
    """Staging tables on SQLite do not have that collation."""
    written = written_as(request, "sqlite")
    versions = kind == "history"
    ends = ", valid_from integer, valid_to integer" if versions else ""
    name = written.new_table(f"id text COLLATE NOCASE, at integer{ends}")
    sink = written.sink(name, merge=rules(kind))

    for version, key in enumerate(("a", "A"), 1):
        rows = pd.DataFrame({"id": [key], "at": [version]})
        sink.publish(staged_by(sink, BatchId(JOB, EPOCH, version), 1, rows))

    found = written.rows(f"SELECT * FROM {name} ORDER BY at")
    assert found == ([("a", 1, 1, 2), ("A", 2, 2, None)] if versions else [("A", 2)])


def test_create_table_has_key_and_history_when_the_target_is_missing(written: Written) -> None:
    name = f"versions_{written.kind}"
    written.sql(f"DROP TABLE IF EXISTS {name}")
    sink = written.sink(name, merge=rules("history"))
    with pytest.raises(TargetError, check=because("unfit_table"), match="PRIMARY KEY") as caught:
        staged_by(sink, BatchId(JOB, EPOCH, 1), 1, frame([Event(1, 1, "a")]))

    written.sql(str(caught.value).partition("Create it: ")[2])
    sink.publish(staged_by(sink, BatchId(JOB, EPOCH, 1), 1, frame([Event(1, 1, "a"), Event(1, 2, "b")])))

    assert written.rows(f"SELECT valid_from, valid_to FROM {name} ORDER BY valid_from") == [(1, 2), (2, None)]


@pytest.mark.parametrize("server", ["postgres", "maria"])
def test_key_is_there_once_when_two_batches_bring_it_at_once(
    request: pytest.FixtureRequest, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a table without a unique constraint on its key."""
    written = written_as(request, server)
    table = Table("newest", written.new_table("id integer, at integer, word varchar(9)"), written.connect)
    inside, go_on = threading.Event(), threading.Event()

    outputs = []
    for version in (1, 2):
        rows = events_of(frame([Event(1, version, "a")]), rules("newest"))
        outputs.append(staged_by(table.sink, BatchId(JOB, EPOCH, version), 1, rows))
    held = DatabaseSink(table.name, connect=written.connect, name="shop", merge=rules("newest"))
    check = held._log.check_ties

    def stopped(*given: Any) -> None:
        """Wait in the transaction, before it looks for the keys."""
        check(*given)
        inside.set()
        go_on.wait(PATIENCE)

    monkeypatch.setattr(held._log, "check_ties", stopped)
    newer = threading.Thread(target=held.publish, args=[outputs[1]])
    older = threading.Thread(target=table.sink.publish, args=[outputs[0]])
    newer.start()
    assert inside.wait(PATIENCE)
    older.start()
    older.join(0.5)
    waits = older.is_alive()
    go_on.set()
    for thread in (newer, older):
        thread.join(PATIENCE)

    assert (waits, table.rows) == (True, [(1, 2, "a")])


@pytest.mark.parametrize(
    ("table", "is_whole"), [("t" * 39, True), ("t" * 40, False), ("é" * 19, True), ("é" * 20, False)]
)
@pytest.mark.parametrize(("server", "longest"), [(PostgreSQL(), 63), (MySQL(), 64)], ids=["postgres", "mysql"])
def test_table_of_deletes_is_called_after_its_target_when_the_server_takes_the_name(
    server: WritableDatabase, longest: int, table: str, is_whole: bool
) -> None:
    table += "t" * (longest - 63)

    name = Statements(server, "public", table).deletes_table

    assert (name == GONE + table, len(name.encode()) <= longest) == (is_whole, True)


def test_table_of_deletes_is_the_one_of_earlier_versions_when_its_target_has_a_long_name() -> None:
    name = Statements(PostgreSQL(), "public", "t" * 40).deletes_table

    assert name == GONE + "6a87499eebbac686"


@pytest.mark.parametrize(
    ("columns", "rows", "message"),
    [
        (
            "id integer, at integer, valid_from integer",
            {"id": [1], "at": [1]},
            r"a history needs a column 'valid_to'\. Add it, or name another one",
        ),
        (
            "id integer, at integer, valid_from integer, valid_to integer",
            {"id": [1], "at": [1], "valid_to": [2]},
            r"column 'valid_to' is filled by the merge\. Leave it out of the rows",
        ),
    ],
)
def test_history_is_refused_when_the_target_or_the_rows_do_not_have_its_columns(
    request: pytest.FixtureRequest, columns: str, rows: dict[str, Any], message: str
) -> None:
    written = written_as(request, "sqlite")
    sink = written.sink(written.new_table(columns), merge=rules("history"))

    with pytest.raises(TargetError, check=because("unfit_table"), match=message) as caught:
        staged_by(sink, BatchId(JOB, EPOCH, 1), 1, pd.DataFrame(rows))

    assert caught.value.target == sink.name


# --- what a merge is told -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"keys": []}, KeyColumnError, "^Key column '': no key is given"),
        ({"sequence_by": []}, InvalidValueError, "sequence_by names no column"),
        (
            {"sequence_by": [f"c{n}" for n in range(11)]},
            InvalidValueError,
            "names 11 columns, and at most 10 are compared",
        ),
        ({"keys": ["id", "id"]}, KeyColumnError, "named twice"),
        ({"sequence_by": "id"}, KeyColumnError, "named twice"),
        ({"keys": ["id", "at", "id"]}, KeyColumnError, "'id': it is named twice"),
        ({"sequence_by": ["at", "line"], "history": True}, InvalidValueError, "names 2. Name one"),
        ({"history": Versions("id", "until")}, InvalidValueError, "neither is a key"),
        ({"history": Versions("since", "at")}, InvalidValueError, "valid_to is not sequence_by"),
    ],
)
def test_merge_is_refused_when_its_columns_do_not_go_together(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Merge.of(**({"keys": "id", "sequence_by": "at"} | options))


def test_history_is_refused_when_both_ends_are_one_column() -> None:
    with pytest.raises(InvalidValueError, match="Name two columns"):
        Versions("at", "at")


@pytest.mark.parametrize("history", [False, True, Versions("since", "until")])
def test_merge_is_the_same_when_read_from_its_record(history: bool | Versions) -> None:
    merge = Merge.of(["id", "site"], "at", history)

    assert Merge.by(merge.columns) == merge


def test_deletes_are_marked_when_they_are_told_in_any_way() -> None:
    rows = pd.DataFrame({"id": [1, 2, 3], "at": [1, 1, 1], "gone": [True, None, False]})
    merge = Merge.of("id", "at")

    assert list(events_of(rows, merge)[DELETED]) == [False] * 3
    assert list(events_of(rows, merge, "gone")[DELETED]) == [True, False, False]
    assert list(events_of(rows, merge, lambda rows: rows.id > 1)[DELETED]) == [False, True, True]
    missing = pd.DataFrame({"id": [9], "at": [7], "more": ["x"]})
    found = events_of(rows, merge, missing=missing)
    assert (list(found[DELETED]), list(found.index)) == ([False, False, False, True], [0, 1, 2, 3])
    assert (list(found["id"]), str(found["id"].dtype), "more" in found) == ([1, 2, 3, 9], "Int64", False)


def test_deletes_of_spark_are_marked_when_they_are_told_in_any_way(spark: Any) -> None:
    rows = spark.createDataFrame([(1, 1, True), (2, 1, None), (3, 1, False)], "id long, at long, gone boolean")
    merge = Merge.of("id", "at")

    found = [events_of(rows, merge, deletes).orderBy("id") for deletes in (None, "gone", "id > 1")]

    marked = [[row[DELETED] for row in events.collect()] for events in found]
    assert marked == [[False] * 3, [True, False, False], [False, True, True]]
    with pytest.raises(
        InvalidValueError, match=r"deletes is a function, .* for frames of pandas\. Give a condition in SQL"
    ):
        events_of(rows, merge, lambda rows: rows.id > 1)


def test_deletes_are_refused_when_the_columns_or_frames_do_not_fit() -> None:
    rows, merge = pd.DataFrame({"id": [1], "at": [1]}), Merge.of("id", "at")
    with pytest.raises(InvalidValueError, match="deletes='gone' is not a column"):
        events_of(rows, merge, "gone")
    with pytest.raises(KeyColumnError, match="'at': missing have no such column"):
        events_of(rows, merge, missing=rows[["id"]])
    with pytest.raises(InvalidValueError, match=r"missing is a frame of another kind .*\. Give both of one kind"):
        events_of(rows, merge, missing=pa.Table.from_pandas(rows))
    with pytest.raises(KeyColumnError, match="'line': the rows have no such column"):
        events_of(rows, Merge.of("id", "line"))
    with pytest.raises(InvalidValueError, match="Give a DataFrame of Spark or pandas to a merge"):
        events_of(pa.Table.from_pandas(rows), merge)
    with pytest.raises(InvalidValueError, check=because("reserved_name"), match=f"'{DELETED}' is a reserved name"):
        events_of(rows.assign(**{DELETED: 1}), merge)


def test_missing_rows_are_deleted_when_they_are_given_with_the_batch(table: Table) -> None:
    table.merge([Event(1, 1, "a"), Event(2, 1, "b")])
    rows = events_of(frame([Event(3, 2, "c")]), rules(table.kind), missing=pd.DataFrame({"id": [1], "at": [3]}))

    output = staged_by(table.sink, BatchId(JOB, EPOCH, 9), 1, rows)
    table.sink.publish(output)

    events = [Event(1, 1, "a"), Event(2, 1, "b"), Event(3, 2, "c"), Event(1, 3, None)]
    assert table.rows == expected(table.kind, events)
