"""Nested rows as related tables: their names, their ids over runs and replays, and that no row passes the driver."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from scripts.helpers.errors import CorruptItemError, InvalidValueError, PlanConflictError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.relational import relations
from scripts.helpers.relational.ids import BLOCK, STRIDE
from scripts.helpers.watermarks import Watermarks
from tests.support.doctests import run_doctest
from tests.support.places import REPOSITORY
from tests.support.reasons import because
from tests.support.steps import commit

JOB = "people"
SCHEMA = "name string, phones array<struct<kind:string, calls:array<int>>>, tags map<string, double>"
PEOPLE: list[tuple[Any, ...]] = [
    ("Ada", [("fax", [1, 2]), ("home", None), ("work", [3])], {"b": 1.0, "a": -0.0}),
    ("Ada", [("fax", [1, 2]), ("home", None), ("work", [3])], {"a": 0.0, "b": 1.0}),
    ("Bob", [], {}),
    ("Cy", None, None),
    *[("Dee", [("fax", [7])], {"a": 1.0})] * 3,
    *[(f"E{number}", [("fax", [number]), ("home", [number, number])], {"n": float(number)}) for number in range(20)],
]
Tables = dict[str, list[tuple[Any, ...]]]


@pytest.fixture(autouse=True)
def nothing_is_kept(spark: Any) -> Iterator[None]:
    """Check that Spark caches no rows after each test. What tests of other files cached is cleared before."""
    spark.catalog.clearCache()
    yield
    kept = not spark._jsparkSession.sharedState().cacheManager().isEmpty()
    spark.catalog.clearCache()
    assert not kept


@pytest.fixture
def conf(spark: Any) -> Iterator[Callable[[str, Any], None]]:
    """Return a function that sets a Spark option until the end of the test."""
    before: dict[str, Any] = {}

    def change(name: str, value: Any) -> None:
        before.setdefault(name, spark.conf.get(name))
        spark.conf.set(name, value)

    yield change
    for name, value in before.items():
        spark.conf.set(name, value)


def collected(tables: dict[str, Any]) -> Tables:
    return {name: sorted((tuple(row) for row in df.collect()), key=repr) for name, df in tables.items()}


def run(watermarks: Watermarks, df: Any, root: str = "root") -> Tables:
    """Run the job once; return the rows of each table."""
    with IncrementalJob(watermarks, JOB) as job:
        tables = job.relationalize(df, root, transformation_ctx="ids")
        job.freeze()
        return collected(tables)


def people(spark: Any, rows: list[tuple[Any, ...]] = PEOPLE) -> Any:
    return spark.createDataFrame(rows, SCHEMA)


def lists(spark: Any) -> Any:
    return spark.range(20).selectExpr("id % 7 AS name", "array(id, 1) AS a")


def nothing(spark: Any) -> Any:
    return spark.createDataFrame([], StructType([]))


def first_id(spark: Any, watermarks: Watermarks, *, die: bool = False) -> int:
    """Run the job over no rows; return the first id that its plan reserved."""
    with suppress(ZeroDivisionError), IncrementalJob(watermarks, JOB) as job:
        job.relationalize(nothing(spark), "root", transformation_ctx="ids")
        job.freeze()
        plan = watermarks.latest(JOB).plan
        if die:
            raise ZeroDivisionError
    assert plan is not None
    return int(plan.contexts["ids"]["first_id"])


def ids(tables: Tables) -> set[int]:
    return {row[0] for name, rows in tables.items() if name != "root" for row in rows}


def own_ids(tables: dict[str, Any]) -> set[int]:
    """Return the ids that `lists` was given in the column `a`."""
    return {row["a"] for row in next(iter(tables.values())).select("a").collect()}


# --- tables ----------------------------------------------------------------------------------------------


def test_each_array_becomes_a_table_that_joins_its_parent_when_rows_are_nested(
    spark: Any, watermarks: Watermarks
) -> None:
    rows = spark.createDataFrame(
        [("Ada", ("Kent", [10]), [("fax", [1, 2]), ("home", None), None])],
        "name string, address struct<town:string, zips:array<int>>, "
        "phones array<struct<kind:string, calls:array<int>>>",
    )

    with IncrementalJob(watermarks, JOB) as job:
        tables = job.relationalize(rows, "root", transformation_ctx="ids")
        found = collected(tables)

    first = found["root"][0][2]
    assert {name: df.columns for name, df in tables.items()} == {
        "root": ["name", "address.town", "address.zips", "phones"],
        "root_address.zips": ["id", "index", "address.zips.val"],
        "root_phones": ["id", "index", "phones.val.kind", "phones.val.calls"],
        "root_phones.val.calls": ["id", "index", "phones.val.calls.val"],
    }
    assert found == {
        "root": [("Ada", "Kent", first, first)],
        "root_address.zips": [(first, 0, 10)],
        "root_phones": [(first, 0, "fax", first), (first, 1, "home", None), (first, 2, None, None)],
        "root_phones.val.calls": [(first, 0, 1), (first, 1, 2)],
    }
    assert STRIDE <= first < STRIDE + BLOCK


def test_arrays_of_arrays_and_maps_have_a_table_a_level_when_flattened(spark: Any, watermarks: Watermarks) -> None:
    rows = spark.createDataFrame(
        [([["a", "b"], [], None, ["c"]], {"z": [1], "y": None, "x": []})],
        "grid array<array<string>>, lists map<string, array<int>>",
    )

    found = run(watermarks, rows)

    first = found["root"][0][0]
    assert found == {
        "root": [(first, first)],
        "root_grid": [(first, 0, first), (first, 1, first + 1), (first, 2, None), (first, 3, first + 3)],
        "root_grid.val": [(first, 0, "a"), (first, 1, "b"), (first + 3, 0, "c")],
        "root_lists": [(first, 0, "x", first), (first, 1, "y", None), (first, 2, "z", first + 2)],
        "root_lists.val": [(first + 2, 0, 1)],
    }


def test_id_is_null_for_no_array_and_not_for_an_empty_one_when_read(spark: Any, watermarks: Watermarks) -> None:
    found = run(watermarks, spark.createDataFrame([("none", None), ("empty", [])], "name string, a array<int>"))

    assert [(name, value is None) for name, value in found["root"]] == [("empty", False), ("none", True)]
    assert found["root_a"] == []


def test_columns_keep_names_with_dots_spaces_and_quotes_when_flattened(spark: Any, watermarks: Watermarks) -> None:
    rows = spark.createDataFrame([(1, (2,), [(3,)])], "`a.b` int, `c d` struct<`e``f`:int>, g array<struct<`h.i`:int>>")

    with IncrementalJob(watermarks, JOB) as job:
        tables = job.relationalize(rows, "root")
        found = collected(tables)

    assert [df.columns for df in tables.values()] == [["a.b", "c d.e`f", "g"], ["id", "index", "g.val.h.i"]]
    first = found["root"][0][2]
    assert list(found.values()) == [[(1, 2, first)], [(first, 0, 3)]]


def test_rows_without_arrays_are_flattened_alone_when_nothing_needs_an_id(spark: Any, watermarks: Watermarks) -> None:
    rows = spark.createDataFrame([(1, ("x",)), (2, None)], "n int, s struct<t:string>")

    assert run(watermarks, rows) == {"root": [(1, "x"), (2, None)]}


def test_dynamic_frame_is_taken_for_its_rows_when_given(spark: Any, watermarks: Watermarks) -> None:
    class DynamicFrame:
        def toDF(self) -> Any:  # noqa: N802
            return spark.createDataFrame([([1],)], "a array<int>")

    found = run(watermarks, DynamicFrame())

    assert [row[1:] for row in found["root_a"]] == [(0, 1)]


# --- ids -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("partitions", "files", "backwards"), [(1, 1, False), (7, 5, True)])
def test_replay_gives_the_same_ids_to_the_same_rows_when_spark_splits_them_otherwise(
    spark: Any, watermarks: Watermarks, conf: Any, partitions: int, files: int, backwards: bool
) -> None:
    dead: dict[str, Any] = {}
    with pytest.raises(ZeroDivisionError), IncrementalJob(watermarks, JOB) as job:
        tables = job.relationalize(people(spark), "root", transformation_ctx="ids")
        job.freeze()
        dead = collected(tables)
        raise ZeroDivisionError
    conf("spark.sql.shuffle.partitions", partitions)
    conf("spark.sql.adaptive.enabled", "false")
    rows = PEOPLE[::-1] if backwards else PEOPLE

    replay = run(watermarks, people(spark, rows).repartition(files))

    assert repr(replay) == repr(dead)  # compared as text, since -0.0 == 0.0
    assert len(ids(replay)) > len(PEOPLE)


def test_equal_rows_have_ids_of_their_own_when_there_are_some(spark: Any, watermarks: Watermarks) -> None:
    found = run(watermarks, spark.range(30).selectExpr("array('x', 'y') AS a"))

    own = [row[0] for row in found["root"]]
    assert len(set(own)) == 30
    assert found["root_a"] == sorted((one, index, "xy"[index]) for one in own for index in (0, 1))


def test_ids_go_on_and_never_come_twice_when_runs_follow_each_other(spark: Any, watermarks: Watermarks) -> None:
    first, second = (ids(run(watermarks, lists(spark))) for _ in range(2))

    assert max(first) < min(second)
    assert (len(first), len(second)) == (20, 20)
    state = watermarks.get_watermark_values(JOB)["ids"]
    assert (state["kind"], state["next_id"]) == ("ids", 3 * STRIDE)
    assert state["next_id"] > max(second)


@pytest.mark.parametrize("decision", ["rewind", "reset", "discard"])
def test_ids_are_new_when_an_operator_repeats_rows(spark: Any, watermarks: Watermarks, decision: str) -> None:
    before = [first_id(spark, watermarks), first_id(spark, watermarks)]
    if decision == "rewind":
        watermarks.rewind(JOB, to_version=1, why="test")
    elif decision == "reset":
        watermarks.reset(JOB, why="test")
    else:
        before.append(first_id(spark, watermarks, die=True))
        watermarks.discard_plan(JOB, why="test")

    after = first_id(spark, watermarks)

    assert [*before, after] == sorted({*before, after})


def test_ids_start_where_the_bookmark_says_when_it_was_set_ahead(spark: Any, watermarks: Watermarks) -> None:
    watermarks.set_watermark(JOB, {"ids": {"kind": "ids", "next_id": 50 * STRIDE}}, why="taken over from Glue")

    found = run(watermarks, lists(spark))

    assert min(ids(found)) >= 50 * STRIDE
    assert watermarks.get_watermark_values(JOB)["ids"]["next_id"] == 53 * STRIDE


def test_ids_are_apart_when_a_job_has_two_contexts(spark: Any, watermarks: Watermarks) -> None:
    with IncrementalJob(watermarks, JOB) as job:
        tables = [job.relationalize(lists(spark), "root", transformation_ctx=name) for name in ("one", "two")]
        one, two = (own_ids(found) for found in tables)

    assert (len(one), len(two), one & two) == (20, 20, set())
    states = watermarks.get_watermark_values(JOB)
    assert states["one"]["next_id"] == states["two"]["next_id"] > max(two)


def test_ids_are_below_zero_and_their_own_when_the_run_saves_nothing(spark: Any, watermarks: Watermarks) -> None:
    first_id(spark, watermarks)
    first, last = watermarks.get_most_recent_run_id(JOB), "jr_2"
    with IncrementalJob(watermarks, JOB, last) as job:
        job.relationalize(nothing(spark), "root", transformation_ctx="ids")
    unsaved: list[dict[str, Any]] = [{"mode": "disable"}, {"mode": "pause", "from_run": first, "to_run": last}]

    found = []
    for number, options in enumerate(unsaved):
        with IncrementalJob(watermarks, JOB, f"jr_unsaved_{number}", **options) as job:
            found.append(own_ids(job.relationalize(lists(spark), "root", transformation_ctx="ids")))

            # A range does not include contexts that were added after it.
            found += [own_ids(job.relationalize(lists(spark), transformation_ctx=name)) for name in ("new", "newer")]

    assert [len(one) for one in found] == [20] * 6
    assert len(set().union(*found)) == 120
    assert max(set().union(*found)) < 0
    assert watermarks.latest(JOB).version == 2


def test_ids_are_below_zero_and_their_own_when_nothing_is_tracked(spark: Any, watermarks: Watermarks) -> None:
    with IncrementalJob(watermarks, JOB) as job:
        one, two = (own_ids(job.relationalize(lists(spark), transformation_ctx=name)) for name in (None, ""))

    assert (len(one), len(two), one & two) == (20, 20, set())
    assert max(one | two) < 0
    assert (watermarks.latest(JOB).version, watermarks.get_watermark_values(JOB)) == (1, {})


# --- nothing is new --------------------------------------------------------------------------------------


def test_earlier_tables_are_returned_empty_when_the_rows_have_no_columns(spark: Any, watermarks: Watermarks) -> None:
    first = run(watermarks, nothing(spark))
    with IncrementalJob(watermarks, JOB) as job:
        before = list(job.relationalize(people(spark), "root", transformation_ctx="ids"))

    idle = run(watermarks, nothing(spark))
    with IncrementalJob(watermarks, JOB) as job:
        counted = job.relationalize(spark.range(2).select(), "root", transformation_ctx="ids")
        counts = {name: table.count() for name, table in counted.items()}

    assert first == {"root": []}
    assert counts == {name: 2 if name == "root" else 0 for name in before}
    assert idle == {name: [] for name in before}
    assert watermarks.get_watermark_values(JOB)["ids"]["tables"] == before
    assert len(before) == 4


def test_tables_of_another_root_are_forgotten_when_the_rows_have_no_columns(spark: Any, watermarks: Watermarks) -> None:
    with IncrementalJob(watermarks, JOB) as job:
        job.relationalize(lists(spark), "root", transformation_ctx="ids")

    idle = run(watermarks, nothing(spark), root="base")

    assert idle == {"base": []}
    assert watermarks.get_watermark_values(JOB)["ids"]["tables"] == ["base"]


def test_tables_agree_with_each_other_when_the_job_writes_them(
    spark: Any, watermarks: Watermarks, tmp_path: Path
) -> None:
    with IncrementalJob(watermarks, JOB) as job:
        tables = job.relationalize(people(spark), "root")
        for name in ("root", "root_phones"):
            job.write(tables[name], f"{tmp_path}/{name}")

    root, phones = (spark.read.parquet(f"{tmp_path}/{name}") for name in ("root", "root_phones"))
    joined = root.join(phones, root["phones"] == phones["id"]).groupBy("name").count().collect()
    expected: dict[str, int] = {}
    for name, numbers, _ in PEOPLE:
        if numbers:
            expected[name] = expected.get(name, 0) + len(numbers)
    assert {row["name"]: row["count"] for row in joined} == expected


# --- cost ------------------------------------------------------------------------------------------------


def test_source_is_read_once_when_all_tables_are_written(spark: Any, watermarks: Watermarks, tmp_path: Path) -> None:
    read = spark.sparkContext.accumulator(0)

    def count(row: Any) -> Any:
        read.add(1)
        return row

    source = spark.createDataFrame(spark.sparkContext.parallelize(PEOPLE, 2).map(count), SCHEMA)

    with IncrementalJob(watermarks, JOB) as job:
        for name, table in job.relationalize(source, "root").items():
            job.write(table, f"{tmp_path}/{name}")

    assert read.value == len(PEOPLE)


def test_no_row_passes_the_driver_when_there_are_many(
    spark: Any, watermarks: Watermarks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import DataFrame

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a row went through the driver")

    for name in ("collect", "take", "head", "first", "tail", "toPandas", "toLocalIterator", "foreach"):
        monkeypatch.setattr(DataFrame, name, refuse)
    many = spark.range(0, 20_000, 1, 4).selectExpr(
        "id % 1000 AS name",
        "array(struct(id AS n, array(id, id + 1) AS deep), struct(-id AS n, array(id) AS deep)) AS a",
    )

    with IncrementalJob(watermarks, JOB) as job:
        tables = job.relationalize(many, "root")
        written = {name: job.write(table, f"{tmp_path}/{name}") for name, table in tables.items()}
        plans = [table._jdf.queryExecution().toString() for table in tables.values()]

    monkeypatch.undo()
    assert written == {"root": 20_000, "root_a": 40_000, "root_a.val.deep": 60_000}
    assert [re.findall(r"SinglePartition|Exchange (\w+)", plan)[:1] for plan in plans] == [["hashpartitioning"]] * 3
    assert [plan.count("SinglePartition") for plan in plans] == [0, 0, 0]
    deep = spark.read.parquet(f"{tmp_path}/root_a.val.deep").selectExpr("count(DISTINCT id)").head()[0]
    assert deep == 40_000


# --- what is refused -------------------------------------------------------------------------------------


def test_error_names_both_fields_when_they_would_be_one_column(spark: Any, watermarks: Watermarks) -> None:
    rows = spark.createDataFrame([(1, (2,))], "`a.b` int, a struct<b:int>")

    with pytest.raises(InvalidValueError, check=because("name_collision")) as caught:
        run(watermarks, rows)

    assert caught.value.what.startswith("column 'a.b'")
    assert (caught.value.first, caught.value.second) == (("a.b",), ("a", "b"))
    assert (watermarks.latest(JOB).version, watermarks.latest(JOB).plan) == (0, None)


def test_bookmark_is_refused_when_it_was_set_without_a_number(spark: Any, watermarks: Watermarks) -> None:
    commit(watermarks, JOB, "jr_1", {"ids": {"kind": "ids", "next": 7}})

    with pytest.raises(CorruptItemError, match=r"watermarks\.ids\.next_id is missing"):
        run(watermarks, lists(spark))

    assert (watermarks.latest(JOB).version, watermarks.latest(JOB).plan) == (1, None)


def test_ids_are_refused_when_the_inherited_plan_has_none(spark: Any, watermarks: Watermarks) -> None:
    with pytest.raises(ZeroDivisionError), IncrementalJob(watermarks, JOB) as job:
        job.rows_since(spark.range(3), "id", transformation_ctx="rows")
        job.freeze()
        raise ZeroDivisionError

    with pytest.raises(PlanConflictError, match=r"has no ids for context 'ids'\. Run the code that made the plan"):
        run(watermarks, lists(spark))

    head = watermarks.latest(JOB)
    assert (head.version, list(head.plan.contexts if head.plan else [])) == (0, ["rows"])


def test_write_fails_and_nothing_is_committed_when_a_bucket_of_ids_is_full(
    spark: Any, watermarks: Watermarks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relations, "RANK_BITS", 1)

    with (
        pytest.raises(InvalidValueError, check=because("too_many_ids")) as caught,
        IncrementalJob(watermarks, JOB) as job,
    ):
        tables = job.relationalize(people(spark), "root", transformation_ctx="ids")
        job.write(tables["root_phones"], f"{tmp_path}/phones")

    assert str(caught.value) == (
        "Ids of context 'ids': more than 2 are needed for rows of one hash. Add a column that differs for equal "
        "rows, or remove duplicates."
    )
    assert watermarks.latest(JOB).version == 0


# --- the page --------------------------------------------------------------------------------------------

PAGE = (REPOSITORY / "docs" / "relationalize.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_examples_of_the_page_work_when_run_in_order(spark: Any, watermarks: Watermarks, tmp_path: Path) -> None:
    names: dict[str, Any] = {"spark": spark, "watermarks": watermarks, "lake": str(tmp_path)}

    exec(compile(BLOCKS[0], "relationalize.md", "exec"), names)
    report = run_doctest(BLOCKS[1], names)

    assert (len(BLOCKS), report.attempted, report.failed) == (2, 4, 0)
