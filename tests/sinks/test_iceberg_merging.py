"""A merge into an Iceberg table leaves the result of the set of rows, whatever the order of batches and publishers."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from scripts.helpers.errors import (
    InvalidValueError,
    KeyColumnError,
    StagedFilesLostError,
    TargetError,
)
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.sinks import IcebergSink, Merge
from scripts.helpers.sinks.connectors import rows_at
from scripts.helpers.sinks.given_frames import events_of
from scripts.helpers.sinks.iceberg import MEMORY, SparkMerge, make_if_missing, memory_of
from scripts.helpers.sinks.merging import TableMerge
from scripts.helpers.watermarks import Watermarks
from tests.sinks.merge_reference import SCHEMA, Event, MergedTable, expected, frame, rules
from tests.support.long import is_long
from tests.support.reasons import because
from tests.support.staging import staged_by
from tests.support.steps import KilledError

pytestmark = pytest.mark.if_changed("targets")

SINCE = datetime(2026, 11, 23, tzinfo=timezone.utc)
KINDS = pytest.mark.parametrize("kind", ["newest", "history"])


class Table(MergedTable):
    """An Iceberg table that batches are merged into."""

    def __init__(self, engine: Any, kind: str, name: str = "") -> None:
        spark = None if isinstance(engine, SqlCatalog) else engine
        super().__init__(name or f"lake.raw.t{secrets.token_hex(4)}", kind, spark)
        self.catalog: Any = engine if spark is None else None

    @property
    def sink(self) -> IcebergSink:
        return IcebergSink(self.name, spark=self.spark, catalog=self.catalog).merging(rules(self.kind))

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows that readers see."""
        names = ["id", "at", "word", *(["valid_from", "valid_to"] if self.kind == "history" else [])]
        if self.spark is not None:
            self.spark.sql(f"REFRESH TABLE {self.name}")
            return sorted(map(tuple, self.spark.table(self.name).select(*names).collect()), key=str)
        try:
            return sorted(tuple(row.values()) for row in self.stored.select(names).to_pylist())
        except NoSuchTableError:
            return []

    @property
    def stored(self) -> pa.Table:
        """The whole table."""
        return self.loaded.scan().to_arrow()

    @property
    def loaded(self) -> Any:
        """The table as a pyiceberg object, loaded now."""
        return self.catalog.load_table(self.name.partition(".")[2])

    def make(self, rows: Mapping[str, list[Any]]) -> None:
        """Make the table, with rows, before the first merge."""
        types = {name: pa.string() if name in ("word", "kind") else pa.int64() for name in rows}
        made = pa.table(dict(rows), schema=pa.schema(list(types.items())))
        self.catalog.create_table(self.name.partition(".")[2], made.schema).append(made)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("lake")
    made = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    made.create_namespace("raw")
    yield made
    made.close()


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Any:
    """Return a Spark session with Iceberg's connector, or a pyiceberg catalog."""
    return request.getfixturevalue("spark_with_tables" if request.param == "spark" else "catalog")


def engines(*of_spark: str, long: Sequence[str] = ()) -> pytest.MarkDecorator:
    """Run a test for both kinds with pyiceberg, and with Spark, whose merges take seconds, only for the given kinds."""
    kinds = [*of_spark, *(long if is_long() else ())]
    cases = [*((kind, "pyiceberg") for kind in ("newest", "history")), *((kind, "spark") for kind in kinds)]
    return pytest.mark.parametrize(("kind", "engine"), cases, indirect=["engine"])


def staged(output: Output, spark: Any) -> list[str]:
    """Return, with Spark, the names that attempts of an output's job have staged."""
    return IcebergSink(output.target, spark=spark, staging=output.staging).staged(output.job)


def test_versions_are_those_of_the_table_when_the_script_has_cached_it(spark_with_tables: Any) -> None:
    table = Table(spark_with_tables, "history")
    columns = "id bigint, at bigint, word string, valid_from bigint, valid_to bigint"
    spark_with_tables.sql(f"CREATE TABLE {table.name} ({columns}) USING iceberg")
    spark_with_tables.sql(f"CACHE TABLE {table.name}")
    there = spark_with_tables.createDataFrame([(1, 1, "a", 1, None)], columns)
    appending = IcebergSink(table.name, spark=spark_with_tables)
    appending.publish(staged_by(appending, BatchId("other", "e1", 1), 1, there))

    with pytest.raises(InvalidValueError, check=because("merge_tie"), match="in the target"):
        table.stage([Event(1, 1, "b")])
    output = table.stage([Event(1, 2, "b")])
    table.sink.publish(output)
    table.sink.clear(output)

    spark_with_tables.sql(f"UNCACHE TABLE {table.name}")
    assert table.rows == expected("history", [Event(1, 1, "a"), Event(1, 2, "b")])
    assert staged(output, spark_with_tables) == []


@KINDS
def test_rows_of_all_are_there_when_many_publish_at_once(kind: str, catalog: Any) -> None:
    table = Table(catalog, kind)
    mine, others = [Event(1, 1, "a"), Event(2, 5, None)], [Event(1, 2, None), Event(2, 4, "b"), Event(3, 1, "c")]
    output, other = table.stage(mine), table.stage(others, job="other")
    threads = [threading.Thread(target=table.sink.publish, args=(each,)) for each in (output, other, output)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert table.rows == expected(kind, [*mine, *others])


@KINDS
def test_delete_is_remembered_once_when_two_batches_bring_it(kind: str, catalog: Any) -> None:
    table = Table(catalog, kind)

    for _ in range(2):
        table.merge([Event(1, 2, None)])

    memory = catalog.load_table(memory_of(table.name).partition(".")[2])
    assert memory.scan().to_arrow().to_pylist() == [{"id": 1, "at": 2}]


@KINDS
def test_later_delete_is_remembered_when_it_comes_while_an_earlier_one_is_written_down(
    kind: str, catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(catalog, kind)
    other = Table(catalog, kind, table.name)
    table.merge([Event(1, 1, None)])
    output, between = table.stage([Event(1, 3, None)]), other.stage([Event(1, 5, None)], version=77, job="other")
    commit, pending = type(catalog).commit_table, [between]

    def late(catalog: Any, into: Any, *given: Any) -> Any:
        if pending and MEMORY in into.name()[-1]:
            other.sink.publish(pending.pop())
        return commit(catalog, into, *given)

    with monkeypatch.context() as patch:
        patch.setattr(type(catalog), "commit_table", late)
        table.sink.publish(output)
    table.merge([Event(1, 4, "late")])

    assert pending == []
    assert table.rows == expected(kind, [Event(1, 3, None), Event(1, 4, "late"), Event(1, 5, None)])


@engines("newest")
def test_loss_is_told_when_what_was_staged_is_gone(kind: str, engine: Any) -> None:
    table = Table(engine, kind)
    output = table.stage([Event(1, 1, "a")])
    table.sink.drop(output)

    with pytest.raises(StagedFilesLostError, match="of version 1 are gone"):
        table.sink.publish(output)


@engines("newest", long=["history"])
def test_delete_is_carried_out_when_it_comes_between_look_and_write(
    kind: str, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs merge into one table: the one that writes last looked before the other's delete was there."""
    table = Table(engine, kind)
    other = Table(engine, kind, table.name)
    table.merge([Event(9, 9, "there")])
    output, between = table.stage([Event(1, 1, "a")]), other.stage([Event(1, 2, None)], version=77, job="other")
    source = TableMerge.source
    pending = [between]

    def late(merge: TableMerge, distinct: Any) -> Any:
        found = source(merge, distinct)
        if pending:
            # Use another job's name: the delete must not count as a later batch of the first job.
            other.sink.publish(pending.pop())
        return found

    with monkeypatch.context() as patch:
        patch.setattr(TableMerge, "source", late)
        table.sink.publish(output)

    assert table.rows == expected(kind, [Event(9, 9, "there"), Event(1, 1, "a"), Event(1, 2, None)])


@engines(long=["history"])
def test_batch_is_not_merged_when_it_is_retracted_between_look_and_write(
    kind: str, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(engine, kind)
    output = table.stage([Event(1, 1, "a")])
    source = TableMerge.source

    def late(merge: TableMerge, distinct: Any) -> Any:
        found = source(merge, distinct)
        taken = Retraction("iceberg", output.target, output.staging, output.job, output.epoch, 1, 1, SINCE)
        table.sink.retract(taken)
        return found

    monkeypatch.setattr(TableMerge, "source", late)
    table.sink.publish(output)

    assert table.rows == []


def test_staged_rows_go_and_the_table_changes_once_when_a_merge_is_taken_back_twice(spark_with_tables: Any) -> None:
    table = Table(spark_with_tables, "newest")
    output = table.stage([Event(1, 1, "a")])
    taken = Retraction("iceberg", output.target, output.staging, output.job, output.epoch, 1, 1, SINCE)

    counts = [spark_with_tables.sql(f"SELECT * FROM {table.name}.snapshots").count()]
    for _ in range(2):
        table.sink.retract(taken)
        counts.append(spark_with_tables.sql(f"SELECT * FROM {table.name}.snapshots").count())

    assert [count - counts[0] for count in counts] == [0, 1, 1]
    assert staged(output, spark_with_tables) == []


def test_row_at_the_target_stays_when_one_of_the_same_moment_was_staged_before_it_came(catalog: Any) -> None:
    table = Table(catalog, "newest")
    first, second = table.stage([Event(1, 1, "first")]), table.stage([Event(1, 1, "second")])

    table.sink.publish(first)
    table.sink.publish(second)

    assert table.rows == [(1, 1, "first")]
    assert len(table.loaded.snapshots()) == 2


def test_last_snapshot_has_the_rows_of_the_batch_when_they_replace_others(catalog: Any) -> None:
    table = Table(catalog, "newest")

    table.merge([Event(1, 1, "a")])
    table.merge([Event(1, 2, "b")])

    assert table.loaded.current_snapshot().summary["added-records"] == "1"


def test_folder_of_staged_rows_is_among_the_places_when_spark_merges(spark_with_tables: Any) -> None:
    table, rows = Table(spark_with_tables, "newest"), spark_with_tables.createDataFrame([], SCHEMA)

    (location,) = IcebergSink(table.name, spark=table.spark).places(rows)

    start, _, name = location.rpartition("/")
    assert table.sink.places(rows) == [location, f"{start}/_{name}.staging"]


def test_no_file_is_staged_when_spark_merges_what_has_nothing_new(spark_with_tables: Any) -> None:
    table = Table(spark_with_tables, "newest")
    table.spark.sql(f"CREATE TABLE {table.name} (id bigint, at bigint, word string) USING iceberg")

    output = staged_by(table.sink, BatchId("repairs", "e1", 1), 1, table.spark.range(0).select())

    assert (output.files, output.rows) == (0, 0)


def test_batch_is_not_lost_when_another_has_merged_and_cleared_it_after_the_look(
    catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = Table(catalog, "newest").stage([Event(1, 1, "a")])
    Table(catalog, "newest", output.target).sink.clear(output)
    session: Any = SimpleNamespace()
    sink, recorded = IcebergSink(output.target, spark=session, staging=output.staging), [1]
    monkeypatch.setattr(sink._log, "recorded", lambda _: recorded.pop())

    sink.publish(replace(output, engine="spark"))

    assert recorded == []


def test_rows_of_other_keys_stay_when_a_key_has_several_columns(catalog: Any) -> None:
    """The first column of one key and the second column of another make a third key, whose row must stay."""
    table = Table(catalog, "newest")
    merge = Merge.of(["id", "kind"], "at")
    sink = IcebergSink(table.name, catalog=catalog).merging(merge)
    table.make({"id": [1, 1, 2, 2], "kind": ["x", "y", "x", "y"], "at": [1, 1, 1, 1], "word": list("abcd")})
    rows = pd.DataFrame({"id": [1, 2], "kind": ["x", "y"], "at": [2, 2], "word": ["new", "gone"]})

    sink.publish(
        staged_by(sink, BatchId("repairs", "e1", 1), 1, events_of(rows, merge, lambda rows: rows.word == "gone"))
    )

    assert table.rows == [(1, 1, "b"), (1, 2, "new"), (2, 1, "c")]


@pytest.mark.parametrize(
    "key", [datetime(2026, 1, 2, tzinfo=timezone.utc), Decimal("1.50"), date(2026, 1, 2), b"\x00", "a'b"]
)
def test_rows_are_found_by_key_when_the_key_is_no_whole_number(catalog: Any, key: Any) -> None:
    """A new table is partitioned as requested, and a batch also replaces a row in another partition."""
    table, merge = Table(catalog, "newest"), Merge.of("id", "at")
    sink = IcebergSink(table.name, catalog=catalog, partition_by=["word"]).merging(merge)
    for version, word in ((1, "old"), (2, "new")):
        rows = pd.DataFrame({"id": [key], "at": [datetime(2026, 1, version, tzinfo=timezone.utc)], "word": [word]})
        sink.publish(staged_by(sink, BatchId("repairs", "e1", version), 1, events_of(rows, merge)))

    assert [row[::2] for row in table.rows] == [(key, "new")]
    assert [field.name for field in table.loaded.spec().fields] == ["word"]


@engines(long=["newest"])
def test_rows_are_there_once_when_two_publish_and_columns_may_not_be_null(kind: str, engine: Any) -> None:
    """A delete of a missing key has no value for `word`."""
    table = Table(engine, kind)
    if table.spark is not None:
        table.spark.sql(f"CREATE TABLE {table.name} (id bigint NOT NULL, at bigint NOT NULL, word string NOT NULL)")
    else:
        fields = [
            pa.field("id", pa.int64(), False),
            pa.field("at", pa.int64(), False),
            pa.field("word", pa.string(), False),
        ]
        ends = (
            [pa.field("valid_from", pa.int64(), False), pa.field("valid_to", pa.int64())] if kind == "history" else []
        )
        table.catalog.create_table(table.name.partition(".")[2], pa.schema([*fields, *ends]))
    first, missing = [Event(1, 1, "a"), Event(2, 1, "b")], pd.DataFrame({"id": [1], "at": [2]})
    rows: Any = frame([Event(3, 1, "c")])
    table.merge(first)
    if table.spark is not None:
        rows = table.spark.createDataFrame(rows.to_dict("records"), SCHEMA)
        missing = table.spark.createDataFrame(missing.to_dict("records"), "id long, at long")
    marked = events_of(rows, rules(kind), missing=missing)
    output = staged_by(table.sink, BatchId("repairs", "e1", 2), 1, marked)
    threads = [threading.Thread(target=table.sink.publish, args=(output,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert table.rows == expected(kind, [*first, Event(1, 2, None), Event(3, 1, "c")])


@pytest.mark.long
def test_branch_of_a_dead_publisher_is_dropped_when_the_batch_is_swept(
    spark_with_tables: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(spark_with_tables, "newest")
    output = table.stage([Event(1, 1, "a")])

    def die(*_: Any) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        # A process that is killed cannot even drop the branch.
        patch.setattr(SparkMerge, "_take_over", die)
        patch.setattr(SparkMerge, "_head", lambda merge, branch: (_ for _ in ()).throw(KilledError))
        with pytest.raises((KilledError, TargetError)):
            table.sink.publish(output)
    left = table.sink.staged(output.job)
    table.sink.publish(output)
    table.sink.sweep(output, [output.folder])

    assert len(left) == 1
    assert table.sink.staged(output.job) == []
    assert table.rows == [(1, 1, "a")]


def test_batch_is_merged_later_when_spark_puts_its_rows_aside(spark_with_tables: Any) -> None:
    table = Table(spark_with_tables, "newest")
    columns, properties = "(id bigint, at bigint, word string)", "('write.wap.enabled' = 'true')"
    table.spark.sql(f"CREATE TABLE {table.name} {columns} USING iceberg TBLPROPERTIES {properties}")
    output = table.stage([Event(1, 1, "a")])
    table.spark.conf.set("spark.wap.id", "audit")
    try:
        with pytest.raises(TargetError, match=rf"^Target '{table.name}': Spark added no .* Unset spark\.wap\.id"):
            table.sink.publish(output)
    finally:
        table.spark.conf.unset("spark.wap.id")
    before, branches = table.rows, table.sink.staged(output.job)

    table.sink.publish(output)

    assert (before, branches, table.rows) == ([], [], [(1, 1, "a")])
    assert table.spark.sql("SHOW VIEWS LIKE 'glue_watermarks_*'").collect() == []


def test_batch_is_not_merged_by_spark_when_a_later_one_was_recorded_after_the_look(
    spark_with_tables: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(spark_with_tables, "newest")
    table.spark.sql(f"CREATE TABLE {table.name} USING iceberg AS SELECT 1L AS id, 1L AS at, 'a' AS word")
    early, late = table.stage([Event(2, 1, "early")]), table.stage([Event(1, 2, "b")])
    has_looked_before = table.sink
    monkeypatch.setattr(has_looked_before._log, "recorded", lambda _: 0)

    table.sink.publish(late)
    snapshots = spark_with_tables.sql(f"SELECT * FROM {table.name}.snapshots").count()
    has_looked_before.publish(early)
    has_looked_before.publish(late)
    swept = table.sink.sweep(late, [late.folder])

    assert (table.rows, swept) == ([(1, 2, "b")], 1)
    assert spark_with_tables.sql(f"SELECT * FROM {table.name}.snapshots").count() == snapshots


def test_batch_is_there_once_when_another_publishes_and_sweeps_it_while_spark_merges(
    spark_with_tables: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(spark_with_tables, "newest")
    output = table.stage([Event(1, 1, "a")])
    merge_into = SparkMerge._merge_into

    def overtaken(merge: SparkMerge, branch: str, events: Any) -> None:
        monkeypatch.undo()
        table.sink.publish(output)
        table.sink.sweep(output, [])
        merge_into(merge, branch, events)

    monkeypatch.setattr(SparkMerge, "_merge_into", overtaken)

    table.sink.publish(output)

    assert table.rows == [(1, 1, "a")]


def test_times_keep_their_zone_when_a_table_is_made_in_a_session_that_reads_them_without(
    spark_with_tables: Any,
) -> None:
    name, rows = (
        Table(spark_with_tables, "zoned").name,
        spark_with_tables.range(1).selectExpr("timestamp_seconds(id) t"),
    )
    spark_with_tables.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        make_if_missing(spark_with_tables, name, rows)
    finally:
        spark_with_tables.conf.unset("spark.sql.timestampType")

    assert dict(spark_with_tables.table(name).dtypes) == {"t": "timestamp"}


def test_rows_stay_when_another_has_made_the_table_meanwhile(spark_with_tables: Any) -> None:
    name = Table(spark_with_tables, "newest").name
    rows = spark_with_tables.range(2)
    rows.writeTo(name).using("iceberg").create()

    make_if_missing(spark_with_tables, name, rows)
    with pytest.raises(Exception, match="day"):
        make_if_missing(spark_with_tables, f"{name}_99", rows, ["day"])

    assert spark_with_tables.table(name).count() == 2
    assert rows_at(spark_with_tables, "iceberg", name, None).collect() == []


def test_error_is_not_hidden_when_spark_cannot_tell_whether_deletes_are_remembered(spark_with_tables: Any) -> None:
    def refuse(_: str) -> None:
        raise ConnectionError("reset by peer")

    with pytest.raises(ConnectionError):
        SparkMerge("lake.raw.one", rules("newest"), spark_with_tables, refuse).has("lake.raw.any")


def test_merge_is_refused_before_the_plan_is_frozen_when_its_key_has_a_dot_and_pyiceberg_takes_it_for_a_struct(
    catalog: Any, watermarks: Watermarks
) -> None:
    sink = IcebergSink(f"lake.raw.t{secrets.token_hex(4)}", catalog=catalog)
    rows = pd.DataFrame({"a.b": [1, 2], "at": [1, 2]})

    with (
        pytest.raises(KeyColumnError, match=r"'a\.b': .* Rename the column, or give the sink spark="),
        IncrementalJob(watermarks, "parts", "jr_1") as job,
    ):
        job.merge(job.rows_since(rows, "at"), sink, keys="a.b", sequence_by="at")

    assert watermarks.latest("parts").plan is None


def test_batch_column_is_refused_when_it_has_a_dot_and_pyiceberg_takes_it_for_a_struct(catalog: Any) -> None:
    sink = IcebergSink(f"lake.raw.t{secrets.token_hex(4)}", catalog=catalog, batch_column="batch.id")

    with pytest.raises(KeyColumnError, match=r"'batch\.id'"):
        sink.check(pd.DataFrame({"id": [1]}))


def test_row_is_replaced_when_its_key_is_no_number(catalog: Any) -> None:
    sink = IcebergSink(f"lake.raw.t{secrets.token_hex(4)}", catalog=catalog, merge=Merge.of("k", "at"))

    for version in (1, 2):
        rows = pa.table({"k": [float("nan"), float("inf"), 1.0], "at": [version] * 3})
        sink.publish(staged_by(sink, BatchId("repairs", "e1", version), 1, rows.to_pandas(types_mapper=pd.ArrowDtype)))

    found = catalog.load_table(sink.name.partition(".")[2]).scan().to_arrow()
    assert sorted((str(row["k"]), row["at"]) for row in found.to_pylist()) == [("1.0", 2), ("inf", 2), ("nan", 2)]
