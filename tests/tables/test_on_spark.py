"""Delta and Iceberg tables as sources in Spark, by the real connectors: appended rows, changes, and what expires.

The Delta tables are written by `deltalake`, because a commit by Spark takes seconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from scripts.helpers.errors import InvalidValueError, SourceError, SourceLostError, TargetError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.tables import DeltaTable, IcebergTable
from scripts.helpers.tables.frames import with_feed_literals
from scripts.helpers.tables.spans import FEED_COLUMNS, TableSpan
from scripts.helpers.watermarks import Watermarks
from tests.support.reasons import because
from tests.support.steps import KilledError
from tests.support.versioned_tables import DeltaByHand


class DeltaOnSpark(DeltaByHand):
    """A Delta table that `deltalake` writes and Spark reads."""

    def __init__(self, spark: Any, folder: Path) -> None:
        super().__init__(folder)
        self.spark = spark

    def source(self, **options: Any) -> DeltaTable:
        return DeltaTable(self.path, spark=self.spark, **options)

    def update(self, number: int, to: int) -> None:
        self.files.update(updates={"id": str(to)}, predicate=f"id = {number}")

    def end_feed(self) -> None:
        self.files.alter.set_table_properties({"delta.enableChangeDataFeed": "false"})


class IcebergOnSpark:
    """An Iceberg table that Spark writes and reads."""

    def __init__(self, spark: Any, name: str) -> None:
        self.spark, self.name = spark, f"lake.raw.{name}"
        spark.sql(f"CREATE TABLE {self.name} (id BIGINT, kind STRING) USING iceberg")

    def source(self, **options: Any) -> IcebergTable:
        return IcebergTable(self.name, spark=self.spark, **options)

    def append(self, *ids: int) -> None:
        rows = ", ".join(f"({number}, 'k{number}')" for number in ids)
        # One file, so that a delete has to rewrite it or to mark a row in it.
        self.spark.sql(f"INSERT INTO {self.name} SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}")

    def delete(self, number: int) -> None:
        self.spark.sql(f"DELETE FROM {self.name} WHERE id = {number}")

    def update(self, number: int, to: int) -> None:
        self.spark.sql(f"UPDATE {self.name} SET id = {to} WHERE id = {number}")

    @property
    def newest(self) -> int:
        return int(
            self.spark.sql(f"SELECT snapshot_id FROM {self.name}.history ORDER BY made_current_at DESC").head()[0]
        )

    def set_back(self, to: int) -> None:
        self.spark.sql(f"CALL lake.system.rollback_to_snapshot('{self.name}', {to})")

    def expire(self) -> None:
        options = "older_than => TIMESTAMP '2999-01-01', retain_last => 1"
        self.spark.sql(f"CALL lake.system.expire_snapshots(table => '{self.name}', {options})")

    def end_feed(self) -> None:
        self.spark.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, spark_with_tables: Any, tmp_path: Path) -> Iterator[Any]:
    if request.param == "delta":
        yield DeltaOnSpark(spark_with_tables, tmp_path)
        return
    made = IcebergOnSpark(spark_with_tables, f"t{abs(hash(tmp_path))}")
    yield made
    spark_with_tables.sql(f"DROP TABLE {made.name}")


def ids_in(rows: Any) -> list[int]:
    return sorted(row.id for row in rows.collect())


def test_replay_reads_the_same_rows_when_the_run_died_and_the_table_has_moved_on(
    table: Any, watermarks: Watermarks, tmp_path: Path
) -> None:
    table.append(1)
    with IncrementalJob(watermarks, "sales") as job:
        first = ids_in(job.rows_since(table.source()))
    table.append(2)
    table.append(3)
    with pytest.raises(KilledError), IncrementalJob(watermarks, "sales") as job:
        job.rows_since(table.source())
        job.freeze()
        raise KilledError
    table.append(4)
    table.delete(2)

    with IncrementalJob(watermarks, "sales") as job:
        job.write(job.rows_since(table.source()), f"{tmp_path}/copy")
    with IncrementalJob(watermarks, "sales") as empty:
        empty.write(empty.rows_since(table.source(), on_overwrite="skip", max_versions=1), f"{tmp_path}/copy")

    assert first == [1]
    assert job.metrics["rows_collected"] == 2
    assert ids_in(table.spark.read.parquet(f"{tmp_path}/copy")) == [2, 3, 4]
    assert empty.has_more


# Breaks in Delta's log are reported alike with and without Spark: test_stories.py has the tests without.
@pytest.mark.parametrize("table", ["iceberg"], indirect=True)
def test_each_break_in_the_history_is_reported_when_appended_rows_are_read(table: Any, watermarks: Watermarks) -> None:
    def take(**options: Any) -> Any:
        with IncrementalJob(watermarks, "sales") as job:
            return job.rows_since(table.source(), **options)

    table.append(1)
    before = table.newest
    table.append(2)
    take()
    table.delete(1)
    table.append(3)
    with pytest.raises(SourceError, check=because("rewritten")):
        take()
    skipped = take(on_overwrite="skip")
    found = ids_in(skipped)
    table.set_back(before)
    with pytest.raises(SourceLostError, check=because("rolled_back")):
        take()
    again = take(on_loss="take", write_disposition="merge")
    found += ids_in(again)
    table.append(4)
    table.append(5)
    table.expire()
    with pytest.raises(SourceLostError, check=because("expired")):
        take()
    take(start_from="now", on_loss="take", write_disposition="merge")

    assert found == [3, 1]
    assert take().isEmpty()


def test_changes_say_what_became_of_each_row_when_they_are_read_as_a_feed(table: Any, watermarks: Watermarks) -> None:
    def take() -> list[tuple[Any, ...]]:
        with IncrementalJob(watermarks, "sales") as job:
            frame = job.rows_since(table.source(), changes="feed")
            found = frame.collect()
        # Columns are in the same order in the first batch (the whole table) and in later ones: many write by position.
        assert frame.columns == ["id", "kind", *FEED_COLUMNS]
        versions = sorted({row["_commit_version"] for row in found})
        assert all(row["_commit_timestamp"] is not None for row in found)
        return sorted(
            (versions.index(row["_commit_version"]), row["_change_order"], row.id, row["_change_type"].split("_")[0])
            for row in found
        )

    table.append(1, 2)
    first = take()
    table.update(1, to=10)
    table.delete(2)
    table.append(3)
    second, empty = take(), take()

    # Iceberg records an update as a deleted row and an inserted row.
    was, became = ("update", "update") if isinstance(table, DeltaOnSpark) else ("delete", "insert")
    assert first == [(0, 1, 1, "insert"), (0, 1, 2, "insert")]
    assert second == [(0, 0, 1, was), (0, 1, 10, became), (1, 0, 2, "delete"), (2, 1, 3, "insert")]
    assert empty == []


@pytest.mark.parametrize("change", ["DELETE FROM", "UPDATE"])
def test_change_on_a_branch_comes_after_the_first_rows_when_main_moves_to_it(
    change: str, spark_with_tables: Any, watermarks: Watermarks, tmp_path: Path
) -> None:
    table = IcebergOnSpark(spark_with_tables, f"t{abs(hash(tmp_path))}")
    table.append(1, 2)
    spark_with_tables.sql(f"ALTER TABLE {table.name} CREATE BRANCH audit")
    to = "SET kind = 'new' " if change == "UPDATE" else ""
    spark_with_tables.sql(f"{change} {table.name}.branch_audit {to}WHERE id = 2")

    numbers = []
    for run in range(2):
        if run:
            spark_with_tables.sql(f"CALL lake.system.fast_forward('{table.name}', 'main', 'audit')")
        with IncrementalJob(watermarks, "sales") as job:
            rows = job.rows_since(table.source(), changes="feed")
            numbers.append({row._commit_version for row in rows.collect()})
    spark_with_tables.sql(f"DROP TABLE {table.name}")

    assert max(numbers[0]) < min(numbers[1])


def test_rollback_is_reported_when_an_iceberg_table_was_replaced(
    spark_with_tables: Any, watermarks: Watermarks, tmp_path: Path
) -> None:
    """The replaced table keeps its uuid, and the snapshot that was read is not an ancestor of the new one."""
    table = IcebergOnSpark(spark_with_tables, f"t{abs(hash(tmp_path))}")

    def take() -> list[int]:
        with IncrementalJob(watermarks, "sales") as job:
            return ids_in(job.rows_since(table.source(), on_loss="raise"))

    table.append(1)
    taken = take()
    spark_with_tables.sql(f"CREATE OR REPLACE TABLE {table.name} (id BIGINT, kind STRING) USING iceberg")
    table.append(2)
    with pytest.raises(SourceLostError, check=because("rolled_back")):
        take()
    spark_with_tables.sql(f"DROP TABLE {table.name}")

    assert taken == [1]


def test_feed_that_the_table_does_not_keep_is_refused_before_anything_is_stored(
    table: Any, watermarks: Watermarks
) -> None:
    table.append(1, 2)
    with IncrementalJob(watermarks, "sales") as job:
        job.rows_since(table.source())
    table.end_feed()
    table.delete(1)

    refused = because("change_feed", "merge_on_read")
    with pytest.raises(SourceError, check=refused), IncrementalJob(watermarks, "sales") as job:
        job.rows_since(table.source(), changes="feed")

    assert watermarks.latest("sales").plan is None


def test_remedy_is_not_to_turn_on_the_feed_when_a_column_was_renamed(
    spark_with_tables: Any, watermarks: Watermarks, tmp_path: Path
) -> None:
    table = f"delta.`{tmp_path}`"
    options = "'delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = 'name'"
    spark_with_tables.sql(f"CREATE TABLE {table} (id BIGINT, kind STRING) USING delta TBLPROPERTIES ({options})")

    def take() -> Any:
        with IncrementalJob(watermarks, "sales") as job:
            return job.rows_since(DeltaTable(str(tmp_path), spark=spark_with_tables), changes="feed")

    take()
    spark_with_tables.sql(f"INSERT INTO {table} VALUES (1, 'k1')")
    spark_with_tables.sql(f"ALTER TABLE {table} RENAME COLUMN kind TO sort")
    spark_with_tables.sql(f"INSERT INTO {table} VALUES (2, 'k2')")
    with pytest.raises(
        SourceError, check=because("change_feed"), match=r"Begin after that version .*changes='append'"
    ) as caught:
        take()

    assert "enableChangeDataFeed" not in str(caught.value)


def test_feed_is_refused_when_the_table_has_got_a_column_of_the_same_name(
    spark_with_tables: Any, watermarks: Watermarks, tmp_path: Path
) -> None:
    table = DeltaOnSpark(spark_with_tables, tmp_path)
    table.append(1)

    def take() -> None:
        with IncrementalJob(watermarks, "sales") as job:
            job.rows_since(table.source(), changes="feed")

    take()
    more = pa.table({"id": [2], "kind": ["k2"], "_change_order": [1]})
    write_deltalake(table.path, more, mode="append", schema_mode="merge")

    with pytest.raises(SourceError, check=because("change_feed"), match="it has a column '_change_order' of its own"):
        take()


def test_run_fails_when_a_file_of_its_frozen_plan_is_deleted_before_it_is_read(
    table: Any, watermarks: Watermarks, tmp_path: Path
) -> None:
    table.append(1)
    files = list(Path(table.source().folder().partition(":")[2] or table.source().folder()).rglob("*.parquet"))

    with (
        pytest.raises(SourceLostError, check=because("expired_plan"), match="discard-plan sales"),
        IncrementalJob(watermarks, "sales") as job,
    ):
        rows = job.rows_since(table.source())
        job.freeze()
        for file in files:
            os.unlink(file)
        job.write(rows, f"{tmp_path}/copy")

    assert files


@pytest.mark.parametrize("table", ["delta"], indirect=True)
def test_span_is_lost_when_spark_does_not_find_a_file_of_it(table: Any) -> None:
    table.append(1)
    table.append(2)
    span = TableSpan("delta", 0, 2)
    before = table.source().is_lost(span)
    table.compact()
    table.vacuum()

    assert (before, table.source().is_lost(span)) == (False, True)


@pytest.mark.parametrize("with_spark", [True, False], ids=["spark", "deltalake"])
def test_appended_rows_are_as_they_were_when_the_table_has_other_columns_and_partitions_by_now(
    spark_with_tables: Any, watermarks: Watermarks, tmp_path: Path, with_spark: bool
) -> None:
    path = str(tmp_path / "days")
    source = DeltaTable(path, spark=spark_with_tables if with_spark else None)
    for number in (1, 2):
        write_deltalake(path, pa.table({"id": [number], "day": ["mon"], "note": [f"n{number}"]}), mode="append")
        if number == 1:
            with IncrementalJob(watermarks, "days") as job:
                job.rows_since(source)
    anew = pa.table({"id": [1, 2], "day": ["mon", "mon"]})
    write_deltalake(path, anew, mode="overwrite", schema_mode="overwrite", partition_by=["day"])

    with IncrementalJob(watermarks, "days") as job:
        found: Any = job.rows_since(source, max_versions=1)
        rows = [row.asDict() for row in found.collect()] if with_spark else found.to_dict("records")

    assert rows == [{"id": 2, "day": "mon", "note": "n2"}]


def test_rows_of_a_feed_have_no_time_when_nothing_says_when_they_were_committed(spark_with_tables: Any) -> None:
    rows = with_feed_literals(spark_with_tables.range(1), TableSpan("delta", None, 3, changes="feed", sequence=3), "t")

    assert rows.schema["_commit_timestamp"].dataType.typeName() == "timestamp"
    assert [tuple(row) for row in rows.collect()] == [(0, "insert", 3, None, 1)]


def test_rows_are_not_written_to_the_table_that_they_come_from_when_the_next_run_would_read_them(
    table: Any, watermarks: Watermarks
) -> None:
    table.append(1)

    with pytest.raises(TargetError, match="Write elsewhere"), IncrementalJob(watermarks, "sales") as job:
        rows = job.rows_since(table.source())
        if isinstance(table, DeltaOnSpark):
            job.write(rows, table.path, format="delta")
        job.write(rows, table.name, format="iceberg")


def test_appended_rows_have_the_values_of_their_partitions_when_read_by_either_engine(
    spark_with_tables: Any, watermarks: Watermarks, tmp_path: Path
) -> None:
    path = f"{tmp_path}/days"
    for number, day in enumerate(["x", "a b/ü%20", None]):
        rows = pa.table({"id": pa.array([number], pa.int64()), "day": pa.array([day], pa.string())})
        write_deltalake(path, rows, mode="append", partition_by=["day"])

    found = []
    for context, spark in (("spark", spark_with_tables), ("arrow", None)):
        source = DeltaTable(path, spark=spark, returns=None if spark else "arrow")
        with IncrementalJob(watermarks, "days") as job:
            rows = job.rows_since(source, transformation_ctx=context, start_from=0)
            found.append(sorted((row["id"], row["day"]) for row in (rows.collect() if spark else rows.to_pylist())))

    write_deltalake(path, rows, mode="append")
    with IncrementalJob(watermarks, "days") as job:
        after = job.rows_since(DeltaTable(path, returns="arrow"), transformation_ctx="spark")

    assert found[0] == found[1] == [(1, "a b/ü%20"), (2, None)]
    # Either engine continues from the watermark of the other.
    assert after.num_rows == 2


def test_source_is_refused_when_there_is_no_table_or_returns_is_invalid(spark_with_tables: Any, tmp_path: Path) -> None:
    for source in (
        DeltaTable(f"{tmp_path}/none", spark=spark_with_tables),
        IcebergTable("lake.raw.none", spark=spark_with_tables),
        DeltaTable(f"{tmp_path}/none"),
    ):
        with pytest.raises(SourceError, match="Check the"):
            source.head()
    with pytest.raises(InvalidValueError, check=because("option"), match="'returns'"):
        DeltaTable(f"{tmp_path}/none", spark=spark_with_tables, returns="arrow")
