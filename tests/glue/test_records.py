"""Records that functions of `Filter` and `Map` get and return, and transforms that split and join frames."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from scripts.helpers import glue
from scripts.helpers.errors import InvalidValueError, NotOffGlueError
from scripts.helpers.glue import DynamicFrame, DynamicFrameCollection, GlueContext
from tests.support.reasons import because

Make = Callable[[str], DynamicFrame]


@pytest.fixture
def frame(glue_context: GlueContext, spark: Any) -> Make:
    return lambda sql: DynamicFrame.fromDF(spark.sql(sql), glue_context, "frame")


def rows(frame: DynamicFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.toDF().collect()]


PEOPLE = """
    SELECT 1 AS id, 'Ada' AS name, named_struct('no', 7, 'text', NULL) AS bay, array('a') AS tags
    UNION ALL SELECT 2, NULL, NULL, NULL
"""


@pytest.mark.parametrize(
    ("f", "ids"),
    [
        (lambda record: record["name"] != "Bob", [1]),
        (lambda record: record["name"] is None, []),
        (lambda record: "name" not in record, [2]),
        (lambda record: record.get("name") is None, [2]),
        (lambda record: record["bay"]["no"] == 7 and "text" not in record["bay"], [1]),
        (lambda record: int(record["name"]), []),
        (lambda record: record["tags"] + ["b"] == ["a", "b"], [1]),
        (lambda record: record.name == "Ada" and record.bay.no == 7, [1]),
        (lambda record: record.bay.text is None, []),
    ],
)
def test_absent_field_is_absent_and_not_none_when_records_are_filtered(f: Any, ids: list[int], frame: Make) -> None:
    kept = glue.Filter.apply(frame=frame(PEOPLE), f=f)

    assert [row["id"] for row in rows(kept)] == ids


def test_job_fails_when_the_function_of_a_filter_raises(frame: Make) -> None:
    with pytest.raises(Exception, match="ZeroDivisionError"):
        frame(PEOPLE).filter(lambda record: 1 / 0).count()


@pytest.fixture
def in_london(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/London")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_both_instants_of_the_autumn_hour_stay_when_records_are_filtered_and_mapped(
    in_london: None, frame: Make, spark: Any
) -> None:
    micros = [1761438600000000, 1761442200000000]  # 2025-10-26, 00:30 and 01:30 UTC, both 01:30 in London
    instants = frame(f"SELECT timestamp_micros(x) AS at, x AS id FROM VALUES ({micros[0]}L), ({micros[1]}L) AS t(x)")

    mapped = instants.map(lambda record: record | {"seen": True}).filter(lambda record: record["seen"])

    assert [row[0] for row in mapped.toDF().selectExpr("unix_micros(at)").collect()] == micros


def test_fields_have_the_types_of_what_is_returned_when_records_are_mapped(frame: Make) -> None:
    source = frame(
        "SELECT 1 AS id, 2S AS small, 1.50BD AS price, 'x' AS name, map('k', 1) AS notes, 1F AS size, X'00' AS raw"
    )

    def change(record: dict[str, Any]) -> dict[str, Any]:
        del record["name"]
        record["tags"] = ["a", None]
        record["at"] = {"day": datetime(2026, 1, 1, tzinfo=timezone.utc), "none": None}
        record["id"] += 1
        record["sum"] = Decimal("12.345")
        record["big"] = 2**40
        return record

    found = glue.Map.apply(frame=source, f=change).toDF()

    assert found.schema.simpleString() == (
        "struct<id:int,small:smallint,price:decimal(3,2),notes:map<string,int>,size:double,raw:binary,tags:array<string>,"
        "at:struct<day:timestamp,none:string>,sum:decimal(5,3),big:bigint>"
    )
    assert [row["tags"] for row in found.collect()] == [["a", None]]


def shouted(record: Any) -> Any:
    record.name = record.get("name", "nobody").upper()
    return copy.deepcopy(record)


def test_fields_are_attributes_of_records_when_they_are_mapped(frame: Make) -> None:
    mapped = glue.Map.apply(frame=frame("SELECT 1 AS id, 'Ada' AS name UNION ALL SELECT 2, NULL"), f=shouted)

    assert rows(mapped) == [{"id": 1, "name": "ADA"}, {"id": 2, "name": "NOBODY"}]


def test_field_is_text_and_a_warning_says_so_when_a_function_returns_two_types(
    frame: Make, caplog: pytest.LogCaptureFixture
) -> None:
    mapped = frame("SELECT id FROM range(2)").map(lambda record: {"id": record["id"] or "none"})

    assert sorted(row["id"] for row in rows(mapped)) == ["1", "none"]
    assert "event=mixed_types field=id: " in caplog.text


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (None, "returned NoneType. Return the record"),
        ({"id": object()}, "with a object, a type that Spark does not have"),
        ({"id": 2**70}, "beyond 64 bits"),
        ({"id": [Decimal("1" * 39)]}, "more than 38 digits"),
        ({"id": Decimal("NaN")}, "with the decimal NaN. Use a float, or None"),
        ({"id": [Decimal("-Infinity")]}, "with the decimal -Infinity"),
    ],
)
def test_wrong_record_is_an_error_and_no_row_is_lost_when_records_are_mapped(
    returned: Any, text: str, frame: Make
) -> None:
    with pytest.raises(InvalidValueError, check=because("option"), match=text):
        frame("SELECT 1 AS id").map(lambda record: returned).count()


@pytest.mark.parametrize(
    ("call", "option"),
    [
        (lambda rows: rows.split_rows({"bay": {">": 1}}), "comparison_dict"),
        (lambda rows: rows.split_rows({"id": {">": {"no": 1}}}), "comparison_dict"),
        (lambda rows: rows.unbox("bay", "json"), "path"),
        (lambda rows: rows.join("m", "m", rows), "paths1"),
        (lambda rows: rows.mergeDynamicFrame(rows, "m"), "primary_keys"),
        (lambda rows: rows.repartition(0), "num_partitions"),
        (lambda rows: rows.coalesce(0), "num_partitions"),
        (lambda rows: rows.apply_mapping([("id", "int", "", "int")]), "mappings"),
    ],
    ids=["struct compared", "map compared", "struct unboxed", "map joined", "map merged", "0 repartitioned",
         "0 coalesced", "no target"],
)  # fmt: skip
def test_option_is_named_when_spark_refuses_what_a_transform_asks(call: Any, option: str, frame: Make) -> None:
    with pytest.raises(InvalidValueError, check=because("option")) as caught:
        call(frame("SELECT 1 AS id, named_struct('no', 7) AS bay, map('k', 1) AS m"))

    assert caught.value.option == option


def test_fields_of_structs_are_built_renamed_and_dropped_when_their_paths_are_named(frame: Make) -> None:
    source = frame("SELECT 1 AS id, named_struct('no', 7, 'at', named_struct('x', 1)) AS bay")

    mapped = source.apply_mapping(
        [("id", "int", "key.id", "long"), ("bay.no", "int", "key.bay.no", "string"), ("id", "n")]
    )
    renamed = source.rename_field("bay.no", "bay.number").drop_fields(["bay.at.x"])
    gone = source.drop_fields(["bay.no", "bay.at"])

    assert mapped.toDF().schema.simpleString() == "struct<key:struct<id:bigint,bay:struct<no:string>>,n:int>"
    assert renamed.toDF().schema.simpleString() == "struct<id:int,bay:struct<number:int>>"
    assert gone.toDF().columns == ["id"]


def test_struct_that_is_null_stays_null_when_one_of_its_fields_is_dropped(frame: Make) -> None:
    assert [row["bay"] for row in rows(frame(PEOPLE).drop_fields(["bay.text"]))] == [{"no": 7}, None]


@pytest.mark.parametrize(
    ("mappings", "error", "text"),
    [
        (
            [("id", "int", "a", "long"), ("name", "string", "a", "string")],
            InvalidValueError,
            "names the target 'a' twice",
        ),
        (
            [("id", "int", "a", "long"), ("name", "string", "a.b", "string")],
            InvalidValueError,
            "as a column and as a struct",
        ),
        ([("id",)], InvalidValueError, "Each is"),
        ([("id", "int", "id", "lng")], InvalidValueError, "'lng', which Spark does not know"),
        ([("id", "int", "id", "array")], NotOffGlueError, "To cast 'id' to 'array'"),
    ],
)
def test_wrong_mapping_is_refused_before_a_row_is_read(mappings: Any, error: Any, text: str, frame: Make) -> None:
    with pytest.raises(error, match=text):
        frame(PEOPLE).apply_mapping(mappings)


def test_lists_and_structs_stay_or_are_cast_when_they_are_mapped(frame: Make) -> None:
    source = frame("SELECT array(named_struct('no', 7)) AS doors, named_struct('no', 8) AS bay")

    mapped = source.apply_mapping(
        [
            ("doors.no", "plain"), ("doors.no", "int", "listed", "array"), ("doors.no", "int", "text", "string"),
            ("bay", "struct", "place", "struct"),
        ]
    )  # fmt: skip

    assert rows(mapped) == [{"plain": [7], "listed": [7], "text": "[7]", "place": {"no": 8}}]


def test_frame_is_the_same_when_the_column_to_change_is_not_there(frame: Make) -> None:
    people = frame("SELECT 1 AS id, CAST(NULL AS STRING) AS body")

    assert people.rename_field("gone", "here") is people
    assert people.unbox("gone", "json") is people
    assert people.unbox("body", "json") is people


def test_decimal_has_two_places_when_a_mapping_names_no_precision(frame: Make) -> None:
    mapped = frame("SELECT '1.25' AS price").apply_mapping([("price", "string", "price", "decimal")])

    assert rows(mapped) == [{"price": Decimal("1.25")}]


def test_frames_are_parted_and_put_together_when_scripts_split_them(frame: Make, glue_context: GlueContext) -> None:
    people = frame(PEOPLE)

    fields = glue.SplitFields.apply(frame=people, paths=["id", "bay.no"], name1="one", name2="two")
    parted = glue.SplitRows.apply(people, {"id": {">": 0}, "name": {"=": "Ada"}}, "ada", "rest")
    again = glue.Union.apply(parted["ada"], parted["rest"])
    spread = glue.Coalesce.apply(glue.Repartition.apply(again, 3), num_partitions=2)

    assert [fields[name].toDF().columns for name in ("one", "two")] == [["id", "bay"], ["name", "bay", "tags"]]
    assert [[row["id"] for row in rows(parted[name])] for name in ("ada", "rest")] == [[1], [2]]
    assert (spread.getNumPartitions(), sorted(row["id"] for row in rows(spread))) == (2, [1, 2])
    with pytest.raises(InvalidValueError, check=because("option"), match="It knows ="):
        people.split_rows({"id": {"~": 1}}, "a", "b")
    with pytest.raises(InvalidValueError, check=because("option"), match="which the frame has not"):
        people.split_rows({"gone": {"=": 1}}, "a", "b")


QUIET: dict[str, Callable[[DynamicFrame], Any]] = {
    "ApplyMapping": lambda none: glue.ApplyMapping.apply(none, [("id", "int", "key", "long")]),
    "Coalesce": lambda none: glue.Coalesce.apply(none, 1),
    "DropFields": lambda none: glue.DropFields.apply(none, ["id"]),
    "DropNullFields": glue.DropNullFields.apply,
    "ErrorsAsDynamicFrame": glue.ErrorsAsDynamicFrame.apply,
    "Filter": lambda none: glue.Filter.apply(none, lambda record: record["id"] > 1),
    "Join": lambda none: glue.Join.apply(none, none, "id", "id"),
    "Map": lambda none: glue.Map.apply(none, shouted),
    "Relationalize": lambda none: glue.Relationalize.apply(none, "s3://not-used/", "root").select("root"),
    "RenameField": lambda none: glue.RenameField.apply(none, "id", "key"),
    "Repartition": lambda none: glue.Repartition.apply(none, 1),
    "ResolveChoice": lambda none: glue.ResolveChoice.apply(none, specs=[("id", "cast:long")]),
    "SelectFields": lambda none: glue.SelectFields.apply(none, ["id"]),
    "Spigot": lambda none: glue.Spigot.apply(none, "s3://not-used/"),
    "SplitFields": lambda none: glue.SplitFields.apply(none, ["id"]).select("frame1"),
    "SplitRows": lambda none: glue.SplitRows.apply(none, {"id": {">": 1}}).select("frame2"),
    "Unbox": lambda none: glue.Unbox.apply(none, "body", "json"),
    "Union": lambda none: glue.Union.apply(none, frame2=none),
    "UnnestFrame": glue.UnnestFrame.apply,
    "mergeDynamicFrame": lambda none: none.mergeDynamicFrame(none, ["id"]),
}
"""For each transform, a call as scripts make it."""


@pytest.mark.parametrize("name", QUIET)
def test_frame_has_no_columns_when_nothing_is_new_to_be_transformed(name: str, frame: Make) -> None:
    none = frame("SELECT 1 AS id").drop_fields(["id"])

    assert QUIET[name](none).toDF().columns == []


def test_staged_rows_take_the_place_of_those_with_their_keys_when_frames_are_merged(frame: Make) -> None:
    merged = frame("SELECT * FROM VALUES (1, 'a'), (1, 'b'), (2, 'c') AS t(id, name)").mergeDynamicFrame(
        frame("SELECT * FROM VALUES (2, 'x'), (3, 'y') AS t(id, name)"), ["id"]
    )

    assert sorted(tuple(row.values()) for row in rows(merged)) == [(1, "a"), (1, "b"), (2, "x"), (3, "y")]


def test_rows_are_those_of_the_other_frame_when_one_without_columns_is_merged(frame: Make) -> None:
    people = frame("SELECT 1 AS id")
    empty = people.drop_fields(["id"])

    assert people.mergeDynamicFrame(empty, ["id"]) is people
    assert rows(empty.mergeDynamicFrame(people, ["id"])) == [{"id": 1}]


def test_rows_are_written_and_the_frame_returned_when_it_is_told_to_write_itself(
    frame: Make, raw: str, spark: Any
) -> None:
    people = frame("SELECT 1 AS id")

    assert people.write("file", {"path": raw}, "csv", {"separator": ";", "writeHeader": False}) is people
    assert [row.value for row in spark.read.text(raw).collect()] == ["1"]


def test_structs_become_columns_and_texts_of_json_structs_when_unnested_and_unboxed(frame: Make) -> None:
    flat = glue.UnnestFrame.apply(frame("SELECT named_struct('no', 7, 'at', named_struct('x', 1)) AS bay, 2 AS id"))
    source = frame("""SELECT '{"a": {"b": 1}}' AS body UNION ALL SELECT NULL""")
    boxed = glue.Unbox.apply(frame=source, path="body", format="json")

    assert flat.toDF().columns == ["bay.no", "bay.at.x", "id"]
    assert rows(boxed) == [{"body": {"a": {"b": 1}}}, {"body": None}]
    with pytest.raises(NotOffGlueError, match="Use relationalize"):
        frame("SELECT array(named_struct('x', 1)) AS doors").unnest()
    assert rows(frame("""SELECT '1' AS body UNION ALL SELECT '"x"'""").unbox("body", "json")) == [
        {"body": "1"}, {"body": "x"},
    ]  # fmt: skip
    with pytest.raises(InvalidValueError, check=because("option"), match="is not JSON"):
        frame("SELECT 'x' AS body").unbox("body", "json")
    with pytest.raises(NotOffGlueError, match="To unbox 'csv'"):
        source.unbox("body", "csv")


def test_sample_is_written_and_the_frame_returned_when_spigot_is_called(frame: Make, raw: str, spark: Any) -> None:
    people = frame("SELECT id FROM range(5)")

    same = glue.Spigot.apply(frame=people, path=raw, options={"topk": 2})

    assert (spark.read.json(raw).count(), same.count()) == (2, 5)
    for options in ({"top": 2}, {"topk": 0}, {"prob": 0}, {"prob": 1.5}):
        with pytest.raises(InvalidValueError, check=because("option"), match="It takes topk"):
            people.spigot(raw, options)


def returns_none(frame: DynamicFrame, context: str) -> Any:
    return None


def test_collections_are_made_and_mapped_as_by_glue_when_a_custom_transform_returns_one(
    frame: Make, glue_context: GlueContext, caplog: pytest.LogCaptureFixture
) -> None:
    collection = DynamicFrameCollection({"CustomTransform0": frame(PEOPLE)}, glue_context)
    listed = DynamicFrameCollection(
        [DynamicFrame.fromDF(frame(PEOPLE).toDF(), glue_context, name) for name in ("a", "b")], glue_context
    )

    mapped = glue.MapToCollection.apply(dfc=collection, callable=lambda each, ctx: each.select_fields(["id"]))
    flat = glue.FlatMap.apply(
        dfc=listed, BaseTransform=glue.SelectFields, frame_name="frame", transformation_ctx="flat", paths=["name"]
    )

    assert list(collection.keys()) == ["CustomTransform0"] and len(listed) == 2
    assert mapped.select("CustomTransform0").toDF().columns == ["id"]
    assert [flat[name].toDF().columns for name in ("a", "b")] == [["name"], ["name"]]
    assert collection.select("gone").toDF().columns == []
    assert "event=no_such_frame key=gone frames=CustomTransform0: an empty frame is returned" in caplog.messages
    assert collection.flatmap(lambda each, ctx: listed) == listed
    with pytest.raises(InvalidValueError, check=because("option"), match="Return a frame"):
        collection.map(returns_none)
    with pytest.raises(
        InvalidValueError, check=because("option"), match=r"Option 'f' returned NoneType\. Return a frame"
    ):
        collection.flatmap(returns_none)


def test_no_row_has_an_error_when_a_script_asks_for_errors(frame: Make) -> None:
    people = frame(PEOPLE)

    people.assertErrorThreshold()

    assert (people.errorsCount(), people.stageErrorsCount(), people.errorsAsDynamicFrame().count()) == (0, 0, 0)
    assert glue.ErrorsAsDynamicFrame.apply(people).toDF().columns == []


# --- types ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "text", "found"),
    [
        ([None, None], "string", [None, None]),
        ([True, None], "boolean", [True, None]),
        ([5, -(2**31)], "int", [5, -(2**31)]),
        ([5, -(2**31) - 1], "bigint", [5, -(2**31) - 1]),
        ([1.5, 2], "double", [1.5, 2.0]),
        ([1.5, 2**40], "string", ["1.5", str(2**40)]),
        ([Decimal("1.25"), Decimal("123.5")], "decimal(5,2)", [Decimal("1.25"), Decimal("123.50")]),
        ([Decimal("1E+3"), Decimal("0.001")], "decimal(7,3)", [Decimal(1000), Decimal("0.001")]),
        ([Decimal("1.5"), 7], "decimal(4,1)", [Decimal("1.5"), Decimal(7)]),
        ([Decimal("1.50"), "x"], "string", ["1.50", "x"]),
        ([date(2026, 1, 1), 1], "string", ["2026-01-01", "1"]),
        ([date(2026, 1, 1)], "date", [date(2026, 1, 1)]),
        ([b"x"], "binary", [b"x"]),
        ([{"a": 1}, {"b": "x", "a": 2**40}], "struct<a:bigint,b:string>",
         [{"a": 1, "b": None}, {"a": 2**40, "b": "x"}]),
        ([{"a": 1}, "x"], "string", ['{"a": 1}', "x"]),
        ([{"a": 1}, {"a": [1]}], "struct<a:string>", [{"a": "1"}, {"a": "[1]"}]),
        ([{1: "a"}, {2: "b", 3: None}], "map<int,string>", [{1: "a"}, {2: "b", 3: None}]),
        ([[1, None], (2**40,)], "array<bigint>", [[1, None], [2**40]]),
        ([[1, "a"], []], "array<string>", [["1", "a"], []]),
        ([[], [{"a": 1}]], "array<struct<a:int>>", [[], [{"a": 1}]]),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("parts", [1, 2])
def test_type_has_room_for_all_values_when_records_are_mapped(
    values: list[Any], text: str, found: list[Any], parts: int, glue_context: GlueContext, spark: Any
) -> None:
    numbered = DynamicFrame.fromDF(spark.range(0, len(values), 1, parts), glue_context, "numbered")

    mapped = numbered.map(lambda record: {"value": values[record["id"]]})

    assert mapped.toDF().schema.simpleString() == f"struct<value:{text}>"
    assert [row["value"] for row in rows(mapped)] == found


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("7", None, "int"),
        ("7", [1], "array<int>"),
        ("array(1L)", [None], "array<bigint>"),
        ("named_struct('no', 1, 'text', 'x')", {"no": 1}, "struct<no:int,text:string>"),
        ("named_struct('no', 1, 'text', 'x')", {"other": 1}, "struct<other:int>"),
        ("map('k', 1)", {"k": 1}, "map<string,int>"),
        ("map('k', 1)", {"k": "x"}, "struct<k:string>"),
        ("map(7, 1)", {7: 2}, "map<int,int>"),
        ("map(7, 1)", {}, "map<int,int>"),
        ("array(1L)", [1], "array<bigint>"),
        ("2S", 2**15, "int"),
        ("1D", 2, "double"),
        ("1F", 2, "float"),
        ("CAST(1.5 AS DECIMAL(10,2))", 1, "decimal(10,2)"),
        ("TIMESTAMP_NTZ '2026-01-01 00:00:00'", datetime(2026, 1, 2), "timestamp_ntz"),
        ("DATE '2026-01-01'", datetime(2026, 1, 2), "timestamp"),
    ],
)  # fmt: skip
def test_field_keeps_its_type_only_if_all_values_fit_when_it_is_known(
    column: str, value: Any, text: str, frame: Make
) -> None:
    mapped = frame(f"SELECT {column} AS field").map(lambda record: record | {"field": value})

    (row,) = rows(mapped)
    assert mapped.toDF().schema.simpleString() == f"struct<field:{text}>"
    assert row["field"] == (value | {"text": None} if value == {"no": 1} else value)
