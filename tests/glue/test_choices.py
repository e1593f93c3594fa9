"""Choices: columns of several types, where they come from, and what scripts make of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from scripts.helpers.errors import GlueOptionError, MisfitError, NotOffGlueError
from scripts.helpers.glue import DynamicFrame, GlueContext, ResolveChoice, ResolveOption
from scripts.helpers.glue.choices import _catalog_type
from scripts.helpers.glue.inference import _records, _unboxed
from tests.glue.options import Put

Frame = Callable[[str], DynamicFrame]


@pytest.fixture
def landed(glue_context: GlueContext, put: Put, landing: str) -> Callable[..., DynamicFrame]:
    """Return what reads rows that were landed as JSON."""

    def read(*rows: Any, **options: Any) -> DynamicFrame:
        put("a.json", body="\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
        return glue_context.create_dynamic_frame.from_options(
            "file", {"paths": [landing]}, "json", {"multiline": True} if options.get("whole") else {}
        )

    return read


def rows(frame: DynamicFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.toDF().collect()]


@pytest.fixture
def prices(landed: Callable[..., DynamicFrame]) -> DynamicFrame:
    """Return a frame whose `price` has whole numbers, texts and numbers, and whose `bay.no` has two types, too."""
    return landed(
        {"id": 1, "price": 7, "bay": {"no": 1}}, {"id": 2, "price": "8", "bay": {"no": "x"}}, {"id": 3, "price": 9.5},
        {"id": 4, "price": "free"}, {"id": 5},
    )  # fmt: skip


def test_json_of_mixed_types_is_a_choice_when_it_is_read(prices: DynamicFrame) -> None:
    schema = prices.toDF().schema

    assert schema.simpleString() == (
        "struct<bay:struct<no:struct<int:int,string:string>>,id:bigint,price:struct<double:double,int:int,string:string>>"
    )
    assert [row["price"] for row in rows(prices)] == [
        {"double": None, "int": 7, "string": None},
        {"double": None, "int": None, "string": "8"},
        {"double": 9.5, "int": None, "string": None},
        {"double": None, "int": None, "string": "free"},
        None,
    ]


@pytest.mark.parametrize(
    ("settle", "columns", "first", "second"),
    [
        ({"specs": [("price", "cast:long")]}, ["bay", "id", "price"], 7, 8),
        ({"specs": [("price", "cast:double"), ("bay.no", "cast:int")]}, ["bay", "id", "price"], 7.0, 8.0),
        ({"specs": [("price", "project:string")]}, ["bay", "id", "price"], "7", "8"),
        ({"choice": "cast:string"}, ["bay", "id", "price"], "7", "8"),
        ({"choice": "make_cols"}, ["bay", "id", "price_double", "price_int", "price_string"], None, "8"),
        (
            {"choice": "make_struct"}, ["bay", "id", "price"],
            {"double": None, "int": 7, "string": None}, {"double": None, "int": None, "string": "8"},
        ),
    ],
)  # fmt: skip
def test_choices_are_settled_and_nothing_else_is_touched_when_resolved(
    settle: Any, columns: list[str], first: Any, second: Any, prices: DynamicFrame
) -> None:
    found = ResolveChoice.apply(frame=prices, **settle)

    assert found.toDF().columns == columns
    assert [list(row.values())[-1] for row in rows(found)[:2]] == [first, second]
    assert [row["id"] for row in rows(found)] == [1, 2, 3, 4, 5]


def test_choice_inside_of_a_struct_is_settled_when_its_path_is_named(prices: DynamicFrame) -> None:
    cast = prices.resolveChoice(specs=[("bay.no", "cast:int")])
    parted = prices.resolveChoice(choice="make_cols")

    assert [row["bay"] for row in rows(cast)[:3]] == [{"no": 1}, {"no": None}, None]
    assert [row["bay"] for row in rows(parted)[:3]] == [
        {"no_int": 1, "no_string": None}, {"no_int": None, "no_string": "x"}, None,
    ]  # fmt: skip


def test_warning_says_so_when_options_leave_the_types_to_spark(
    glue_context: GlueContext, put: Put, landing: str, caplog: pytest.LogCaptureFixture
) -> None:
    put("a.json", body='{"price": 7}\n{"price": "8"}')

    frame = glue_context.create_dynamic_frame.from_options(
        "file", {"paths": [landing]}, "json", {"dateFormat": "yyyy", "madeUp": 1}
    )

    assert [row["price"] for row in rows(frame)] == ["7", "8"]
    assert "event=format_options_unknown format=json options=madeUp" in caplog.messages
    assert "event=choices_not_looked_for format=json options=dateFormat: types are Spark's" in caplog.messages


def test_columns_of_one_type_stay_when_all_choices_are_cast(glue_context: GlueContext, spark: Any) -> None:
    frame = DynamicFrame.fromDF(spark.sql("SELECT 'x' AS name, 1.5D AS price"), glue_context, "frame")

    found = frame.resolveChoice(choice="cast:long")

    assert rows(found) == [{"name": "x", "price": 1.5}]


@pytest.mark.parametrize(
    ("settle", "text"),
    [
        ({}, "one without the other"),
        ({"specs": [("price", "cast:int")], "choice": "make_cols"}, "one without the other"),
        ({"specs": [("price", "cast")]}, "The actions are cast:TYPE"),
        ({"specs": [("price", "make_colums")]}, "The actions are"),
        ({"choice": "make_cols:int"}, "The actions are"),
        ({"specs": [("price", "cast:lng")]}, "'lng', which Spark does not know"),
        ({"specs": [("price", "project:date")]}, "has the types|have the types double, int, string"),
        ({"choice": "match_catalog"}, "Name the database and the table_name"),
        ({"specs": [("price", "match_catalog")]}, "choice='match_catalog'"),
    ],
)  # fmt: skip
def test_nonsense_is_refused_when_choices_are_resolved(settle: Any, text: str, prices: DynamicFrame) -> None:
    with pytest.raises(GlueOptionError, match=text):
        prices.resolveChoice(**settle)


@pytest.mark.parametrize("choice", ["match_catalog", "MATCH_CATALOG"])
def test_choice_has_the_type_of_the_catalogue_when_that_is_matched(
    choice: str, prices: DynamicFrame, catalog: Any, landing: str
) -> None:
    columns = [{"Name": "price", "Type": "double"}, {"Name": "id", "Type": "int"}]
    storage = {"Location": landing, "Columns": columns, "SerdeInfo": {}}
    catalog.create_database(DatabaseInput={"Name": f"with_{choice}"})
    catalog.create_table(
        DatabaseName=f"with_{choice}",
        TableInput={"Name": "prices", "StorageDescriptor": storage, "Parameters": {"classification": "json"}},
    )
    flat = prices.drop_fields(["bay"])

    found = flat.resolveChoice(choice=choice, database=f"with_{choice}", table_name="prices")

    assert found.toDF().dtypes == [("id", "bigint"), ("price", "double")]
    assert [row["price"] for row in rows(found)] == [7.0, 8.0, 9.5, None, None]


@pytest.mark.parametrize(
    ("steps", "error", "text"),
    [
        (("bay", "no"), NotOffGlueError,
         "match_catalog for '`bay`.`no`', a field of a struct, is Glue's own and not here. Name it in specs."),
        (("price",), GlueOptionError,
         "Option 'choice' is 'match_catalog', but the catalogue's table has no column 'price'."),
    ],
    ids=["field", "column"],
)  # fmt: skip
def test_catalogue_is_not_matched_when_it_has_no_such_column(steps: tuple[str, ...], error: Any, text: str) -> None:
    with pytest.raises(error) as caught:
        _catalog_type(steps, {"id": "int"})

    assert str(caught.value) == text


def test_struct_is_json_with_names_when_it_is_cast_to_text(prices: DynamicFrame) -> None:
    mapped = prices.resolveChoice(choice="cast:string").apply_mapping([("bay", "struct", "bay", "string")])

    assert rows(mapped)[0] == {"bay": '{"no":"1"}'}


def test_choice_is_cast_when_it_is_mapped(prices: DynamicFrame) -> None:
    mapped = prices.apply_mapping([("price", "choice", "cost", "double"), ("id", "long", "id", "int")])

    assert rows(mapped)[:2] == [{"cost": 7.0, "id": 1}, {"cost": 8.0, "id": 2}]


def test_option_settles_a_choice_when_a_frame_becomes_a_dataframe(prices: DynamicFrame) -> None:
    kept = prices.toDF([ResolveOption("price", "KeepAsStruct")])
    cast = prices.toDF([ResolveOption("price", "Cast", "double")])

    assert [dict(found.dtypes)["price"] for found in (kept, cast)] == [
        "struct<double:double,int:int,string:string>", "double",
    ]  # fmt: skip
    with pytest.raises(GlueOptionError, match="KeepAsStruct, and Cast and Project"):
        prices.toDF([ResolveOption("price", "Cast")])


def test_struct_is_no_choice_when_it_went_through_a_dataframe(prices: DynamicFrame, glue_context: GlueContext) -> None:
    again = DynamicFrame.fromDF(prices.toDF(), glue_context, "again")

    found = again.resolveChoice(choice="cast:string")

    assert found.toDF().schema.json() == prices.toDF().schema.json()


def test_choice_is_refused_when_rows_become_related_tables(prices: DynamicFrame) -> None:
    with pytest.raises(GlueOptionError, match=r"has the choice `bay`\.`no`\. Call resolveChoice before"):
        prices.relationalize("root")


def test_types_are_sparks_when_no_field_has_two(landed: Callable[..., DynamicFrame]) -> None:
    frame = landed('[{"id": 1, "tags": ["a"]},', ' {"id": null, "at": {"x": 1.5}}]', whole=True)

    assert frame.toDF().schema.simpleString() == "struct<at:struct<x:double>,id:bigint,tags:array<string>>"
    assert frame.count() == 2


def test_broken_line_is_an_error_when_json_is_read(landed: Callable[..., DynamicFrame]) -> None:
    with pytest.raises(MisfitError, match="a record cannot be parsed"):
        landed({"id": 1}, {"id": "x"}, '{"id": ')


def test_all_objects_of_a_line_are_read_when_json_has_choices(landed: Callable[..., DynamicFrame]) -> None:
    frame = landed('{"id": 1}{"id": "}{"}')

    assert len(rows(frame)) == 2


def test_elements_of_mixed_lists_are_texts_and_a_warning_says_so_when_a_frame_has_choices(
    landed: Callable[..., DynamicFrame], caplog: pytest.LogCaptureFixture
) -> None:
    frame = landed({"id": 1, "tags": [1, "a"]}, {"id": "x"})

    assert rows(frame)[0]["tags"] == ["1", "a"]
    assert "event=mixed_list field=tags" in caplog.text


def test_csv_that_differs_from_the_catalogue_is_a_choice_when_it_is_read(
    glue_context: GlueContext, catalog: Any, put: Put, landing: str
) -> None:
    put("a.csv", body="1,2026-01-01,7,a\nx,2026-01-02, 8,b\n,,,\n")
    kinds = {"id": "bigint", "day": "date", "no": "int", "name": "string"}
    columns = [{"Name": name, "Type": kind} for name, kind in kinds.items()]
    serde = {"SerializationLibrary": "org.apache.hadoop.hive.serde2.OpenCSVSerde"}
    catalog.create_database(DatabaseInput={"Name": "texts"})
    catalog.create_table(
        DatabaseName="texts",
        TableInput={
            "Name": "ids",
            "StorageDescriptor": {"Location": landing, "Columns": columns, "SerdeInfo": serde},
            "Parameters": {"classification": "csv"},
        },
    )

    frame = glue_context.create_dynamic_frame.from_catalog("texts", "ids")
    found = frame.resolveChoice(choice="cast:string")

    assert dict(frame.toDF().dtypes) == kinds | {"id": "struct<long:bigint,string:string>"}
    assert [(row["id"], row["no"], row["name"]) for row in rows(found)] == [
        ("1", 7, "a"), ("x", 8, "b"), (None, None, None),
    ]  # fmt: skip


def test_column_is_a_choice_when_frames_have_it_in_two_types(glue_context: GlueContext, spark: Any) -> None:
    def frame(sql: str) -> DynamicFrame:
        return DynamicFrame.fromDF(spark.sql(sql), glue_context, "frame")

    both = frame("SELECT 1 AS id, 'x' AS name").union(frame("SELECT 'a' AS ID, 2L AS size"))
    all_three = both.union(frame("SELECT 1.5D AS id")).union(frame("SELECT NULL AS id"))

    assert rows(both.resolveChoice(choice="make_cols")) == [
        {"id_int": 1, "id_string": None, "name": "x", "size": None},
        {"id_int": None, "id_string": "a", "name": None, "size": 2},
    ]
    assert [row["id"] for row in rows(all_three.resolveChoice(choice="cast:string"))] == ["1", "a", "1.5", None]


def test_cast_in_an_array_is_done_or_refused_when_ansi_mode_is_off_or_on(
    landed: Callable[..., DynamicFrame], spark: Any
) -> None:
    frame = landed({"doors": [{"no": 1}, {"no": "2"}, {"no": "x"}]})
    settled = frame.resolveChoice(specs=[("doors[].no", "cast:int")])

    assert rows(settled) == [{"doors": [{"no": 1}, {"no": 2}, {"no": None}]}]
    if not spark.version.startswith("3"):
        return
    spark.conf.set("spark.sql.ansi.enabled", "true")
    try:
        with pytest.raises(NotOffGlueError, match="in ANSI mode"):
            frame.resolveChoice(specs=[("doors[].no", "cast:int")])
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"id": 1}', [{"id": 1, "month": "04"}]),
        ('[{"id": 1}, {"id": 2}]', [{"id": 1, "month": "04"}, {"id": 2, "month": "04"}]),
        ('{"id": 1} {"id": "}{"}', [{"id": 1, "month": "04"}, {"id": "}{", "month": "04"}]),
        (" \n", []),
    ],
    ids=["object", "list", "several", "empty"],
)
def test_records_are_the_objects_of_a_text_with_its_folders_when_json_is_looked_at(
    text: str, found: list[dict[str, Any]]
) -> None:
    assert list(_records(["value", "month"], (text, "04"))) == found


@pytest.mark.parametrize("text", ['[{"id": 1}, 7]', '"x"', '{"id": ', '{"id": 1} x'])
def test_text_is_an_error_when_it_is_not_objects_of_json(text: str) -> None:
    with pytest.raises(RuntimeError, match="a record cannot be parsed"):
        list(_records(["value"], (text,)))


def test_column_is_named_and_no_text_shown_when_it_cannot_be_unboxed() -> None:
    assert _unboxed("body", "[1]") == [1]
    with pytest.raises(GlueOptionError) as caught:
        _unboxed("body", "secret")

    assert str(caught.value) == "Option 'path' is 'body', with a text of 6 letters that is not JSON."
