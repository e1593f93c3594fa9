"""Deleted rows are found by comparing keys, with real Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import KeyColumnError
from scripts.helpers.rows.missing import missing_keys
from tests.rows.dynamic_frames import DynamicFrame


def frame(spark: Any, rows: list[tuple[Any, ...]], schema: str = "id int, site string") -> Any:
    return spark.createDataFrame(rows, schema)


def executions_of(spark: Any) -> dict[int, str]:
    """Return the physical plans that Spark has run and still keeps, by number."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(10_000)
    known = spark._jsparkSession.sharedState().statusStore().executionsList()
    ran = [known.apply(number) for number in range(known.size())]
    return {one.executionId(): one.physicalPlanDescription() for one in ran}


def found(df: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in df.collect()), key=repr)


def test_deleted_keys_are_found_once_when_the_target_has_them_more_than_once(spark: Any) -> None:
    source = frame(spark, [(1, "a"), (3, "a"), (3, "b")])
    target = frame(spark, [(1, "x"), (2, "a"), (2, "b"), (3, "a")])

    assert found(missing_keys(source, target, "id")) == [(2,)]


def test_keys_are_compared_together_when_there_are_several(spark: Any) -> None:
    source = frame(spark, [(1, "a"), (2, "b")])
    target = frame(spark, [(1, "a"), (1, "b"), (2, "b")])

    assert found(missing_keys(source, target, ["site", "id"])) == [("b", 1)]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ([(None, "a")], [(None, "a")], []),
        ([(1, "a")], [(None, "a"), (1, None)], [(1, None), (None, "a")]),
        ([], [(None, None)], [(None, None)]),
    ],
    ids=["on both sides", "in the target", "in an empty source"],
)
def test_null_equals_null_when_it_is_a_key(spark: Any, source: Any, target: Any, expected: Any) -> None:
    assert found(missing_keys(frame(spark, source), frame(spark, target), ["id", "site"])) == expected


@pytest.mark.parametrize("rows", [[], [(1, "a"), (2, "b")]], ids=["empty", "the same"])
def test_nothing_is_found_when_nothing_was_deleted(spark: Any, rows: Any) -> None:
    assert found(missing_keys(frame(spark, [(1, "a"), (2, "b")]), frame(spark, rows), "id")) == []


def test_only_the_key_columns_are_read_when_sources_are_wide(spark: Any, tmp_path: Path) -> None:
    for side in ("source", "target"):
        frame(spark, [(1, "a")]).write.parquet(f"{tmp_path}/{side}")
    source, target = (spark.read.parquet(f"{tmp_path}/{side}") for side in ("source", "target"))

    before = executions_of(spark)
    plan = missing_keys(source, target, "id")._jdf.queryExecution().executedPlan().toString()

    assert plan.count("ReadSchema: struct<id:int>") == 1
    assert "site" not in plan
    plans = [text for number, text in executions_of(spark).items() if number not in before]
    assert any("ReadSchema: struct<id:int>" in text for text in plans)
    assert not any("site" in text for text in plans)


def test_names_are_taken_as_they_are_when_they_are_odd_or_in_another_case(spark: Any) -> None:
    source = frame(spark, [(1, "a")], "`a.b``c` int, SITE string")
    target = frame(spark, [(1, "a"), (2, "a")], "`a.b``c` int, site string")

    assert found(missing_keys(source, target, ["a.b`c", "Site"])) == [(2, "a")]


def test_row_that_came_after_the_call_is_no_false_find_when_both_sides_grow(spark: Any, tmp_path: Path) -> None:
    for side in ("source", "target"):
        frame(spark, [(1, "a"), (2, "a")]).write.parquet(f"{tmp_path}/{side}")
    source, target = (read_late(spark, f"{tmp_path}/{side}") for side in ("source", "target"))
    frame(spark, [(9, "a")]).write.mode("append").parquet(f"{tmp_path}/target")

    gone = missing_keys(source, target, "id")
    for side in ("source", "target"):
        frame(spark, [(3, "a")]).write.mode("append").parquet(f"{tmp_path}/{side}")
    frame(spark, [(4, "a")]).write.mode("append").parquet(f"{tmp_path}/target")

    assert found(gone) == [(9,)]


def read_late(spark: Any, folder: str) -> Any:
    """Return a DataFrame that lists its files on every read, as a database looks up its rows on every read."""

    def ids(_: int) -> list[tuple[int]]:
        import pyarrow.parquet

        return [(number,) for number in pyarrow.parquet.read_table(folder)["id"].to_pylist()]

    return spark.createDataFrame(spark.sparkContext.parallelize([0], 1).flatMap(ids), "id int")


@pytest.mark.parametrize("schema", ["id struct<map_id:int>", "id array<struct<variant:int>>"])
def test_keys_are_taken_when_only_their_names_are_those_of_types(spark: Any, schema: str) -> None:
    assert found(missing_keys(frame(spark, [], schema), frame(spark, [], schema), "id")) == []


def test_case_counts_when_spark_is_told_so(spark: Any) -> None:
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        gone = missing_keys(frame(spark, [], "id int, ID int"), frame(spark, [(1, 2)], "id int, ID int"), "ID")

        assert found(gone) == [(2,)]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_frames_of_glue_are_taken_when_given(spark: Any) -> None:
    source, target = DynamicFrame(frame(spark, [])), DynamicFrame(frame(spark, [(1, "a")]))

    assert found(missing_keys(source, target, "id")) == [(1,)]


@pytest.mark.parametrize(
    ("source", "target", "keys", "told"),
    [
        ("id int", "id int", [], "no key is given"),
        ("id int", "other int", "id", r"Key column 'id': the target has no such column\. It has: other\."),
        ("other int", "id int", "id", r"Key column 'id': the source has no such column\. It has: other\."),
        ("id int, ID int", "id int", "Id", "the source has 2 such column"),
        ("id int, ID int", "id int", "id", "the source has 2 such column"),
        ("id int", "id int, id int", "id", "the target has 2 such column"),
        ("id bigint", "id int", "id", r"it is a int in the target and a bigint in the source\. Cast one of them\."),
        ("id map<int,int>", "id map<int,int>", "id", r"a map<int,int> cannot be compared\. Choose another key\."),
        ("id struct<a:array<map<int,int>>>", "id struct<a:array<map<int,int>>>", "id", "cannot be compared"),
    ],
    ids=[
        "none",
        "not in the target",
        "not in the source",
        "twice",
        "twice, one as it is",
        "the same twice",
        "types",
        "maps",
        "maps within",
    ],
)
def test_keys_are_refused_when_the_sides_do_not_fit(spark: Any, source: str, target: str, keys: Any, told: str) -> None:
    with pytest.raises(KeyColumnError, match=told):
        missing_keys(frame(spark, [], source), frame(spark, [], target), keys)
