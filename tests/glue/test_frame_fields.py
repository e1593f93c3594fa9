"""Fields of frames found by Glue's paths, and transforms that take only a few lines of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as T  # noqa: N812

from scripts.helpers import glue
from scripts.helpers.errors import InvalidValueError, NotOffGlueError
from scripts.helpers.glue import (
    DropNullFields,
    DynamicFrame,
    DynamicFrameCollection,
    Filter,
    GlueContext,
    Join,
    SelectFromCollection,
)
from scripts.helpers.glue.fields import expression, parts_of, steps_to
from tests.support.reasons import because

AWSGLUE = [line.split()[1] for line in Path(__file__).with_name("awsglue_names.txt").read_text().splitlines()]
"""Classes, functions and methods of awslabs/aws-glue-libs at 0af215e7, without its command-line tools."""
NAMES = sorted({name for name in AWSGLUE if "." not in name})
MEMBERS = {
    of: [name.partition(".")[2] for name in AWSGLUE if name.startswith(f"{of}.")]
    for of in ("DynamicFrame", "GlueContext")
}


@pytest.fixture(scope="module")
def schema(spark: Any) -> Any:
    columns = "`bay.name` INT, bay STRUCT<name: INT, `x.y`: INT>, Town STRING, doors ARRAY<STRUCT<id: INT>>"
    return spark.createDataFrame([], f"{columns}, notes MAP<STRING, STRUCT<day: INT>>").schema


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("bay.name", ("bay.name",)),
        ("`bay.name`", ("bay.name",)),
        ("`bay`.name", ("bay", "name")),
        ("bay.x.y", ("bay", "x.y")),
        ("bay.`x.y`", ("bay", "x.y")),
        ("BAY.`X.y`", ("bay", "x.y")),
        ("town", ("Town",)),
        ("`town`", ("Town",)),
        ("doors.id", ("doors", "id")),
        ("notes.any.day", ("notes", "any", "day")),
        ("bay.gone", None),
        ("`bay.gone`", None),
        ("Town.name", None),
        ("gone", None),
    ],
)
def test_path_leads_to_the_field_or_nowhere_when_it_is_looked_up(
    path: str, steps: tuple[str, ...] | None, schema: Any
) -> None:
    assert steps_to(path, schema) == steps


def test_names_are_quoted_when_written_for_spark() -> None:
    assert expression(["a.b", "c`d"]) == "`a.b`.`c``d`"
    assert [parts_of(path) for path in ("a", "`a.b`", "a.`b.c`")] == [("a",), ("a.b",), ("a", "b.c")]


def test_fields_with_dots_stay_when_frames_are_mapped_and_selected(glue_context: GlueContext, spark: Any) -> None:
    df = spark.sql("SELECT 1 AS `a.val.k`, named_struct('p', 2) AS s, 3 AS B")
    frame = DynamicFrame.fromDF(df, glue_context, "frame")

    mapped = frame.apply_mapping(
        [("`a.val.k`", "int", "k", "long"), ("s.p", "int", "`s.p`", "int"), ("s.q", "int", "q", "int")]
    )
    selected = frame.select_fields(["`a.val.k`", "s.q"])
    renamed = frame.rename_field("`a.val.k`", "k").drop_fields(["`S`", "gone"])
    cast = frame.resolveChoice(specs=[("b", "cast:string"), ("`a.val.k`", "cast:long")])

    assert mapped.schema().simpleString() == "struct<k:bigint,s.p:int>"
    assert selected.toDF().columns == ["a.val.k"]
    assert renamed.toDF().columns == ["k", "B"]
    assert [kind for _, kind in cast.toDF().dtypes] == ["bigint", "struct<p:int>", "string"]


def test_field_of_a_struct_is_refused_when_it_would_have_to_move(glue_context: GlueContext, spark: Any) -> None:
    frame = DynamicFrame.fromDF(spark.sql("SELECT named_struct('p', 2) AS s, map('k', 1) AS m"), glue_context, "frame")

    with pytest.raises(NotOffGlueError, match=r"To move 's\.p' to 'x' is Glue's own and not here"):
        frame.rename_field("s.p", "x")
    with pytest.raises(NotOffGlueError, match=r"To join by 's\.p', a field of a struct"):
        frame.join("s.p", "s.p", frame)
    with pytest.raises(NotOffGlueError, match=r"To change 'k' in a map"):
        frame.drop_fields(["m.k"])


def test_simple_transforms_return_sparks_rows_when_applied_in_turn(glue_context: GlueContext, spark: Any) -> None:
    df = spark.sql("SELECT 1 AS id, 'x' AS name, NULL AS nothing UNION ALL SELECT 2, NULL, NULL")
    frame = DynamicFrame.fromDF(df, glue_context, "frame")

    without = DropNullFields.apply(frame)
    chosen = SelectFromCollection.apply(dfc=DynamicFrameCollection({"a": without}), key="a")
    kept = Filter.apply(frame=chosen, f=lambda row: row["name"] > "a")

    assert chosen.toDF().columns == ["id", "name"]
    assert [tuple(row) for row in kept.toDF().collect()] == [(1, "x")]


def test_fields_that_have_no_value_go_when_they_are_in_structs_and_lists(glue_context: GlueContext, spark: Any) -> None:
    text = "CAST(NULL AS STRING)"
    nulls = f"NULL AS n, {text} AS m, named_struct('x', 1, 'y', NULL, 'z', {text}) AS s, named_struct('z', NULL) AS t"
    data = f"array(named_struct('kind', name, 'pears', NULL, 'figs', {text})) AS data"
    df = spark.sql(f"SELECT id, {nulls}, {data}, CAST(NULL AS INT) AS no FROM VALUES (1, 'a'), (2, NULL) AS (id, name)")
    frame = DynamicFrame.fromDF(df, glue_context, "frame")

    kept = DropNullFields()(frame=frame).toDF()
    no_rows = DropNullFields.apply(DynamicFrame.fromDF(df.limit(0), glue_context, "frame")).toDF()

    assert kept.schema.simpleString() == "struct<id:int,s:struct<x:int>,data:array<struct<kind:string>>,no:int>"
    assert [row["data"][0]["kind"] for row in kept.collect()] == ["a", None]
    assert no_rows.columns == ["id", "m", "s", "data", "no"]


def test_joined_columns_have_distinct_names_when_three_frames_share_a_name(
    glue_context: GlueContext, spark: Any, raw: str
) -> None:
    frames = [
        DynamicFrame.fromDF(spark.sql(f"SELECT 7 AS id, '{name}' AS {name}"), glue_context, name) for name in "abc"
    ]

    joined = Join.apply(Join.apply(frames[0], frames[1], "id", "id"), frames[2], "id", "id")
    glue_context.write_dynamic_frame.from_options(joined, "file", {"path": raw}, "json")

    assert joined.toDF().columns == ["id", "a", ".id", "b", "..id", "c"]
    assert joined.drop_fields(["`.id`"]).toDF().columns == ["id", "a", "b", "..id", "c"]
    assert spark.read.json(raw).count() == 1


def test_names_that_differ_only_by_case_are_refused_when_rows_are_selected_or_written(
    glue_context: GlueContext, spark: Any, raw: str
) -> None:
    df = spark.sql(
        "SELECT * FROM (SELECT 7 AS id, 1 AS a) AS one JOIN (SELECT 7 AS ID, 2 AS b) AS two ON one.id = two.ID"
    )
    frame = DynamicFrame.fromDF(df, glue_context, "frame")

    for asked in (
        lambda: frame.select_fields(["id"]),
        lambda: frame.apply_mapping([("id", "int", "key", "int")]),
        lambda: Filter.apply(frame, lambda record: record["a"] == 1),
        lambda: glue_context.write_dynamic_frame.from_options(frame, "file", {"path": raw}, "json"),
        lambda: glue_context.getSink("file", path=raw, format="parquet").writeDataFrame(df),
    ):
        with pytest.raises(InvalidValueError, check=because("option"), match="drop or rename one of them"):
            asked()
    assert frame.select_fields(["a", "b"]).toDF().columns == ["a", "b"]


def test_fields_in_lists_and_in_another_case_are_found_as_asked_when_they_are_mapped(
    glue_context: GlueContext, spark: Any
) -> None:
    df = spark.sql("SELECT 1 AS id, array(named_struct('p', 2, 'q', 3)) AS bays")
    frame = DynamicFrame.fromDF(df, glue_context, "frame")
    mappings = [("ID", "int", "key", "int"), ("bays[].p", "int", "places", "array"), ("Bays.q", "int", "q", "array")]

    assert frame.apply_mapping(mappings).toDF().collect() == [(1, [2], [3])]
    assert frame.apply_mapping(mappings, case_sensitive=True).toDF().collect() == [([2],)]
    assert frame.drop_fields(["bays[].p"]).schema().simpleString() == "struct<id:int,bays:array<struct<q:int>>>"
    with pytest.raises(NotOffGlueError, match=r"To map to 'bays\[\]\.r', a field inside a list, is Glue's own"):
        frame.apply_mapping([("bays[].p", "int", "bays[].r", "int")])


@pytest.mark.parametrize(
    ("mappings", "found"),
    [
        ([("s.p", "place.p"), ("s.t.q", "place.t.q")], [((1, (2,)),), ((None, None),), (None,)]),
        ([("s.p", "a.p"), ("s.t.q", "b.c.q")], [((1,), ((2,),)), ((None,), (None,)), (None, None)]),
        ([("id", "a.id"), ("s.p", "a.p")], [((1, 1),), ((2, None),), ((3, None),)]),
    ],
    ids=["moved", "divided", "joined by a column"],
)
def test_struct_is_null_when_all_structs_that_it_is_mapped_from_are_null(
    glue_context: GlueContext, spark: Any, mappings: Any, found: Any
) -> None:
    kind = "id int, s struct<p:int,t:struct<q:int>>"
    df = spark.createDataFrame([(1, (1, (2,))), (2, (None, None)), (3, None)], kind)
    frame = DynamicFrame.fromDF(df, glue_context, "frame")

    assert frame.apply_mapping(mappings).toDF().collect() == found


def test_struct_stays_null_when_its_fields_are_selected(glue_context: GlueContext, spark: Any) -> None:
    df = spark.createDataFrame([((1, (2, 3)),), ((1, None),), (None,)], "s struct<p:int,t:struct<q:int,r:int>>")
    frame = DynamicFrame.fromDF(df, glue_context, "frame")

    assert frame.select_fields(["s.t.q"]).toDF().collect() == [(((2,),),), ((None,),), (None,)]


def test_pairs_come_with_all_columns_when_frames_are_joined(glue_context: GlueContext, spark: Any) -> None:
    persons = DynamicFrame.fromDF(spark.sql("SELECT 7 AS id, 'Ada' AS name"), glue_context, "persons")
    members = DynamicFrame.fromDF(spark.sql("SELECT 7 AS person_id, 'x' AS name"), glue_context, "members")
    none = DynamicFrame.fromDF(spark.createDataFrame([], "struct<>"), glue_context, "none")

    joined = Join.apply(persons, members, "id", ["person_id"])

    assert joined.toDF().columns == ["id", "name", "person_id", ".name"]
    assert [tuple(row) for row in joined.toDF().collect()] == [(7, "Ada", 7, "x")]
    assert joined.drop_fields(["person_id", ".name"]).toDF().columns == ["id", "name"]
    assert [Join.apply(*pair, "id", "id").toDF().columns for pair in ((persons, none), (none, persons))] == [[], []]


def test_only_the_named_column_is_dropped_when_joined_names_differ_by_case(
    glue_context: GlueContext, spark: Any
) -> None:
    landed = DynamicFrame.fromDF(spark.sql("SELECT 's1' AS serialNumber, 3 AS distance"), glue_context, "landed")
    curated = DynamicFrame.fromDF(spark.sql("SELECT 's1' AS serialnumber, 'Ada' AS name"), glue_context, "curated")

    joined = Join.apply(landed, curated, "serialNumber", "serialnumber")
    dropped = joined.drop_fields(["serialnumber", "name"])
    renamed = joined.rename_field("serialnumber", "serial")

    assert joined.toDF().columns == ["serialNumber", "distance", "serialnumber", "name"]
    assert [row.asDict() for row in dropped.toDF().collect()] == [{"serialNumber": "s1", "distance": 3}]
    assert renamed.toDF().columns == ["serialNumber", "distance", "serial", "name"]


def test_structs_have_the_chosen_fields_when_paths_lead_into_them(glue_context: GlueContext, spark: Any) -> None:
    df = spark.sql("SELECT 1 AS id, named_struct('p', 2, 'q', named_struct('r', 3, 's', 4)) AS a")
    df = df.selectExpr("*", "array(a) AS b")
    frame = DynamicFrame.fromDF(df, glue_context, "frame")

    nested = frame.select_fields(["a.q.s", "id", "a.p"])
    whole = frame.select_fields(["a", "a.p"])

    assert nested.schema().simpleString() == "struct<a:struct<q:struct<s:int>,p:int>,id:int>"
    assert whole.schema().simpleString() == "struct<a:struct<p:int,q:struct<r:int,s:int>>>"
    with pytest.raises(NotOffGlueError, match=r"To select 'b\.p', a field inside a list or a map"):
        frame.select_fields(["b.p"])


def test_sample_joins_and_relationalizes_when_written_as_by_aws(glue_context: GlueContext, spark: Any) -> None:
    """Run the steps of AWS's sample ``join_and_relationalize``, which has no job and no transformation_ctx."""

    def frame(sql: str) -> DynamicFrame:
        return DynamicFrame.fromDF(spark.sql(sql), glue_context, "frame")

    persons = frame("SELECT 'p' AS id, array(named_struct('note', 'x', 'url', 'y')) AS links")
    memberships = frame("SELECT 'p' AS person_id, 'o' AS organization_id")
    orgs = frame("SELECT 'o' AS id, 'House' AS name, 1 AS identifiers").drop_fields(["other_names", "identifiers"])

    orgs = orgs.rename_field("id", "org_id").rename_field("name", "org_name")
    history = Join.apply(
        orgs, Join.apply(persons, memberships, "id", "person_id"), "org_id", "organization_id"
    ).drop_fields(["person_id", "org_id"])
    frames = history.relationalize("hist_root", "s3://not-used/")
    links = frames.select("hist_root_links").apply_mapping([("`links.val.note`", "string", "note", "string")])

    assert set(frames) == {"hist_root", "hist_root_links"}
    assert frames.select("hist_root").toDF().columns == ["org_name", "id", "links", "organization_id"]
    assert [tuple(row) for row in links.toDF().collect()] == [("x",)]


@pytest.mark.parametrize(
    ("keys", "text"),
    [(("gone", "id"), "'keys' has 'gone', which the frame has not. It has: id."), (("id", []), "has 0 keys")],
    ids=["no column", "no pair"],
)
def test_bad_keys_are_refused_when_frames_are_joined(
    keys: tuple[Any, Any], text: str, glue_context: GlueContext, spark: Any
) -> None:
    frame = DynamicFrame.fromDF(spark.range(1), glue_context, "frame")

    with pytest.raises(InvalidValueError, check=because("option")) as caught:
        frame.join(*keys, frame)

    assert text in str(caught.value)


def test_all_names_can_be_imported_when_a_script_takes_them_by_star() -> None:
    names: dict[str, Any] = {}

    exec("from scripts.helpers.glue import *", names)

    assert {"SplitFields", "Map", "Join", "Job"} <= set(names)
    assert not hasattr(glue, "NoSuchTransform")


def test_types_equal_sparks_and_no_value_is_a_choice_when_a_script_imports_glues_types() -> None:
    schema = glue.StructType([glue.Field("id", glue.LongType()), glue.Field("bay", glue.StringType())])

    assert schema == T.StructType([T.StructField("id", T.LongType()), T.StructField("bay", T.StringType())])
    assert [isinstance(field.dataType, glue.ChoiceType) for field in schema] == [False, False]


@pytest.mark.parametrize("name", NAMES)
def test_name_of_glues_library_is_there_or_refuses_when_a_script_imports_it(name: str) -> None:
    found = getattr(glue, name)

    assert isinstance(found, type) or callable(found)


@pytest.mark.parametrize("of", ["DynamicFrame", "GlueContext"])
def test_method_of_glues_is_there_or_refuses_by_its_name_when_a_script_asks_for_it(
    of: str, glue_context: GlueContext, spark: Any
) -> None:
    owner: Any = {"GlueContext": glue_context, "DynamicFrame": DynamicFrame.fromDF(spark.range(1), glue_context)}[of]
    wrong = {}
    for name in MEMBERS[of]:
        try:
            getattr(owner, name)
        except NotOffGlueError as error:
            if name.partition("_from_")[2] not in str(error):
                wrong[name] = str(error)
        except Exception as error:
            wrong[name] = repr(error)

    assert wrong == {}
