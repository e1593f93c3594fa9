"""Deleted rows found by comparing keys, with real Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import KeyColumnError
from scripts.helpers.missing_keys import missing_keys


def frame(spark: Any, rows: list[tuple[Any, ...]], schema: str = "id int, site string") -> Any:
    return spark.createDataFrame(rows, schema)


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
    sides = [spark.read.parquet(f"{tmp_path}/{side}") for side in ("source", "target")]

    plan = missing_keys(*sides, "id")._jdf.queryExecution().executedPlan().toString()

    assert plan.count("ReadSchema: struct<id:int>") == 2
    assert "site" not in plan


def test_names_are_taken_as_they_are_when_they_are_odd_or_in_another_case(spark: Any) -> None:
    source = frame(spark, [(1, "a")], "`a.b``c` int, SITE string")
    target = frame(spark, [(1, "a"), (2, "a")], "`a.b``c` int, site string")

    assert found(missing_keys(source, target, ["a.b`c", "Site"])) == [(2, "a")]


class DynamicFrame:
    """Glue's frame as far as it is used here."""

    def __init__(self, df: Any) -> None:
        self._df = df

    def toDF(self) -> Any:  # noqa: N802
        return self._df


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
        ("id bigint", "id int", "id", r"it is a int in the target and a bigint in the source\. Cast one of them\."),
        ("id map<int,int>", "id map<int,int>", "id", r"a map<int,int> cannot be compared\. Choose another key\."),
    ],
    ids=["none", "not in the target", "not in the source", "twice", "types", "maps"],
)
def test_keys_are_refused_when_the_sides_do_not_fit(spark: Any, source: str, target: str, keys: Any, told: str) -> None:
    with pytest.raises(KeyColumnError, match=told):
        missing_keys(frame(spark, [], source), frame(spark, [], target), keys)
