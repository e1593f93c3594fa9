"""Columns of several types, which Glue reads as choices, and what scripts that resolve choices get here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import InvalidValueError, MisfitError, NotOffGlueError
from scripts.helpers.glue import ChoiceType, DynamicFrame, GlueContext, ResolveChoice, ResolveOption
from scripts.helpers.spark.settings import settings
from tests.glue.options import Put
from tests.support.reasons import because

Frame = Callable[[str], DynamicFrame]


@pytest.fixture
def landed(glue_context: GlueContext, put: Put, landing: str) -> Callable[..., DynamicFrame]:
    """Return a function that writes rows as JSON and reads them back."""

    def read(*rows: Any, **options: Any) -> DynamicFrame:
        put("a.json", body="\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
        return glue_context.create_dynamic_frame.from_options(
            "file", {"paths": [landing]}, "json", {"multiline": True} if options.get("whole") else {}
        )

    return read


def rows(frame: DynamicFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.toDF().collect()]


@pytest.fixture(scope="module")
def prices(spark: Any, endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamicFrame]:
    """Return a frame whose `price` has whole numbers, texts and fractions, and whose `bay.no` has two types.

    All tests share it, because Spark reads the file to infer the types.
    """
    folder = tmp_path_factory.mktemp("prices")
    written: list[dict[str, Any]] = [
        {"id": 1, "price": 7, "bay": {"no": 1}}, {"id": 2, "price": "8", "bay": {"no": "x"}}, {"id": 3, "price": 9.5},
        {"id": 4, "price": "free"}, {"id": 5},
    ]  # fmt: skip
    (folder / "a.json").write_text("\n".join(map(json.dumps, written)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        context = GlueContext(spark.sparkContext)
        yield context.create_dynamic_frame.from_options("file", {"paths": [f"file://{folder}/"]}, "json")


@pytest.fixture(scope="module")
def price_rows(prices: DynamicFrame) -> list[dict[str, Any]]:
    """Return the rows of `prices`."""
    return rows(prices)


def test_json_of_mixed_types_is_text_when_it_is_read(prices: DynamicFrame, price_rows: list[dict[str, Any]]) -> None:
    assert prices.toDF().schema.simpleString() == "struct<bay:struct<no:string>,id:bigint,price:string>"
    assert [row["price"] for row in price_rows] == ["7", "8", "9.5", "free", None]


@pytest.mark.parametrize(
    ("specs", "first", "second"),
    [
        ([("price", "cast:long")], 7, 8),
        ([("price", "cast:double"), ("bay.no", "cast:int")], 7.0, 8.0),
        ([("price", "cast:string")], "7", "8"),
        ([("gone", "make_cols"), ("id", "make_cols"), ("id", "project:long")], "7", "8"),
    ],
)
def test_columns_are_cast_and_nothing_else_is_touched_when_specs_name_them(
    specs: Any, first: Any, second: Any, prices: DynamicFrame
) -> None:
    resolved = ResolveChoice.apply(frame=prices, specs=specs)
    found = rows(resolved)

    assert resolved.toDF().columns == ["bay", "id", "price"]
    assert [row["price"] for row in found[:2]] == [first, second]
    assert [row["id"] for row in found] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("action", ["project:double", "make_cols", "make_struct"])
@pytest.mark.parametrize("path", ["price", "bay.no"])
def test_column_of_text_is_refused_when_its_types_are_asked_for(path: str, action: str, prices: DynamicFrame) -> None:
    name = path.rpartition(".")[2]

    with pytest.raises(
        InvalidValueError,
        check=because("option"),
        match=rf"has '{action}' for '{name}', a column of text.* Pass cast:TYPE",
    ):
        prices.resolveChoice(specs=[(path, action)])


@pytest.mark.parametrize("choice", ["make_cols", "make_struct", "cast:long", "project:string"])
def test_warning_is_logged_when_all_choices_are_resolved_and_columns_are_text(
    choice: str, prices: DynamicFrame, price_rows: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    same = prices.resolveChoice(choice=choice)
    of_numbers = prices.select_fields(["id"]).resolveChoice(choice=choice)

    assert (rows(same), len(rows(of_numbers))) == (price_rows, 5)
    (warning,) = [text for text in caplog.messages if text.startswith("event=no_choices")]
    assert warning.startswith(f"event=no_choices choice={choice} texts=1: ")


def test_field_inside_of_a_struct_is_cast_when_its_path_is_named(prices: DynamicFrame) -> None:
    cast = prices.resolveChoice(specs=[("bay.no", "cast:int")])

    assert [row["bay"] for row in rows(cast)[:3]] == [{"no": 1}, {"no": None}, None]


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
        ({"specs": [("price", "project:dat")]}, "'dat', which Spark does not know"),
        ({"choice": "match_catalog"}, "Name the database and the table_name"),
        ({"specs": [("price", "match_catalog")]}, "choice='match_catalog'"),
    ],
)  # fmt: skip
def test_nonsense_is_refused_when_choices_are_resolved(settle: Any, text: str, prices: DynamicFrame) -> None:
    with pytest.raises(InvalidValueError, check=because("option"), match=text):
        prices.resolveChoice(**settle)


@pytest.mark.parametrize("choice", ["match_catalog", "MATCH_CATALOG"])
def test_text_has_the_type_of_the_catalogue_when_that_is_matched(
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
    ("kind", "text"),
    [("struct<no:int>", "'choice' asks for a cast .*cannot cast"), ("uniontype<int,string>", "does not know")],
)
def test_type_of_the_catalogue_is_refused_when_no_text_can_be_cast_to_it(
    kind: str, text: str, prices: DynamicFrame, catalog: Any, landing: str
) -> None:
    storage = {"Location": landing, "Columns": [{"Name": "price", "Type": kind}], "SerdeInfo": {}}
    catalog.create_database(DatabaseInput={"Name": f"of_{kind[:6]}"})
    catalog.create_table(
        DatabaseName=f"of_{kind[:6]}",
        TableInput={"Name": "prices", "StorageDescriptor": storage, "Parameters": {"classification": "json"}},
    )

    with pytest.raises(InvalidValueError, check=because("option"), match=text):
        prices.resolveChoice(choice="match_catalog", database=f"of_{kind[:6]}", table_name="prices")


@pytest.mark.parametrize(
    "asked",
    [
        lambda frame: frame.resolveChoice(specs=[("id", "cast:date")]),
        lambda frame: frame.resolveChoice(specs=[("bay", "cast:int")]),
        lambda frame: frame.apply_mapping([("id", "long", "id", "date")]),
        lambda frame: frame.apply_mapping([("id", "long", "id", "long"), ("bay", "struct", "bay", "double")]),
    ],
    ids=["long to date", "struct to int", "long mapped to date", "struct mapped to double"],
)
def test_cast_is_refused_when_spark_has_none_between_the_two_types(asked: Any, prices: DynamicFrame) -> None:
    with pytest.raises(
        InvalidValueError, check=because("option"), match=r"asks for a cast .*cannot cast .*Leave it out"
    ):
        asked(prices)


def test_struct_is_json_with_names_when_it_is_cast_to_text(prices: DynamicFrame) -> None:
    mapped = prices.apply_mapping([("bay", "struct", "bay", "string")])

    assert rows(mapped)[0] == {"bay": '{"no":"1"}'}


@pytest.mark.parametrize("how", ["cast", "united"])
def test_times_within_a_struct_keep_microseconds_when_it_becomes_text(
    glue_context: GlueContext, spark: Any, how: str
) -> None:
    made = spark.sql("SELECT named_struct('at', TIMESTAMP'2026-03-16 12:00:00.123456') AS bay")
    frame = DynamicFrame.fromDF(made, glue_context, "frame")
    if how == "cast":
        found = frame.resolveChoice(specs=[("bay", "cast:string")])
    else:
        found = frame.union(DynamicFrame.fromDF(spark.sql("SELECT 'none' AS bay"), glue_context, "frame"))

    assert "12:00:00.123456" in rows(found)[0]["bay"]


def test_text_is_cast_when_it_is_mapped_as_a_choice(prices: DynamicFrame) -> None:
    mapped = prices.apply_mapping([("price", "choice", "cost", "double"), ("id", "long", "id", "int")])

    assert rows(mapped)[:2] == [{"cost": 7.0, "id": 1}, {"cost": 8.0, "id": 2}]


def test_option_casts_a_column_when_a_frame_becomes_a_dataframe(prices: DynamicFrame) -> None:
    kept = prices.toDF([ResolveOption("price", "KeepAsStruct")])
    cast = prices.toDF([ResolveOption("price", "Cast", "double")])

    assert [dict(found.dtypes)["price"] for found in (kept, cast)] == ["string", "double"]
    with pytest.raises(InvalidValueError, check=because("option"), match="KeepAsStruct, and Cast and Project"):
        prices.toDF([ResolveOption("price", "Cast")])
    with pytest.raises(InvalidValueError, check=because("option"), match="a column of text"):
        prices.toDF([ResolveOption("price", "Project", "double")])


def test_mixed_json_stays_one_text_column_when_rows_become_related_tables(prices: DynamicFrame) -> None:
    assert [row["price"] for row in rows(prices.relationalize("root")["root"])] == ["7", "8", "9.5", "free", None]


def test_types_are_sparks_when_no_field_has_two(landed: Callable[..., DynamicFrame]) -> None:
    frame = landed('[{"id": 1, "tags": ["a"]},', ' {"id": null, "at": {"x": 1.5}}]', whole=True)

    assert frame.toDF().schema.simpleString() == "struct<at:struct<x:double>,id:bigint,tags:array<string>>"
    assert frame.count() == 2


@pytest.mark.parametrize(
    ("format", "body", "told", "options", "ids"),
    [
        ("json", b'{"id": 1}\n{"id":\n{"id": 3}\n', "'mode': 'DROPMALFORMED'", {"mode": "DROPMALFORMED"}, [1, 3]),
        ("json", b'{"id":\n1}\n', "'multiLine': True", {"multiLine": True}, [1]),
        ("csv", b'id,b\n1,"x \\", y"\n', "'escaper':", {"withHeader": True, "escaper": "\\"}, ["1"]),
        ("csv", b"id,b\n1,\xfc\n", "'encoding'", {"withHeader": True, "encoding": "ISO-8859-1"}, ["1"]),
        ("json", b'{"id": 1, "Id": 2}\n', "Rename one", None, []),
        ("parquet", None, "'exclusions'", {}, ["x"]),
    ],
    ids=["broken line", "record of lines", "backslash", "encoding", "names by case", "files of two types"],
)
def test_error_advises_an_option_of_glue_that_works_when_files_do_not_fit(
    format: str, body: bytes | None, told: str, options: dict[str, Any] | None, ids: list[Any],
    glue_context: GlueContext, spark: Any, tmp_path: Path, raw: str,
) -> None:  # fmt: skip
    landing = tmp_path / "landing"
    if body is None:
        for folder, row in (("a", "1"), ("b", "'x'")):
            spark.sql(f"SELECT {row} AS id").write.parquet(str(landing / folder))
    else:
        landing.mkdir()
        (landing / "a").write_bytes(body)
    given = {"paths": [f"file://{landing}"], "recurse": True}

    with pytest.raises(MisfitError) as caught:
        frame = glue_context.create_dynamic_frame.from_options("file", given, format, {"withHeader": True})
        frame.write("file", {"path": raw}, "json")
    text = str(caught.value)
    assert told in text
    assert not any(name in text for name in ("rescue", "schema=", "delta.", "on_schema_change"))
    if options is not None:
        followed = given if body else given | {"exclusions": ["**/a/**"]}
        found = glue_context.create_dynamic_frame.from_options("file", followed, format, options)
        assert [row["id"] for row in rows(found)] == ids


def test_csv_that_differs_from_the_catalogue_is_an_error_when_it_is_read(
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

    with pytest.raises(Exception, match="column 'id' has a value that is not of type bigint"):
        glue_context.create_dynamic_frame.from_catalog("texts", "ids").toDF().collect()


def test_column_becomes_text_with_a_warning_when_no_type_fits_both_frames(
    glue_context: GlueContext, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def frame(sql: str) -> DynamicFrame:
        return DynamicFrame.fromDF(spark.sql(sql), glue_context, "frame")

    both = frame("SELECT 1 AS id, 'x' AS name").union(frame("SELECT 'a' AS ID, 2L AS size"))
    all_three = both.union(frame("SELECT 1.5D AS id")).union(frame("SELECT NULL AS id"))
    nested = frame("SELECT named_struct('no', 1) AS id").union(frame("SELECT 'a' AS id"))
    wider = frame("SELECT 1 AS id, named_struct('no', 1) AS bay").union(
        frame("SELECT 2L AS id, named_struct('no', 2L, 'x', 3) AS bay")
    )

    assert rows(both) == [{"id": "1", "name": "x", "size": None}, {"id": "a", "name": None, "size": 2}]
    assert [row["id"] for row in rows(all_three)] == ["1", "a", "1.5", None]
    assert [row["id"] for row in rows(nested)] == ['{"no":1}', "a"]
    assert rows(wider) == [{"id": 1, "bay": {"no": 1, "x": None}}, {"id": 2, "bay": {"no": 2, "x": 3}}]
    assert caplog.text.lower().count("event=mixed_types field=id") == 3


@pytest.mark.parametrize("ansi", ["false", "true"])
@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("'2'", "int", 2), ("'x'", "int", None), ("'1.9'", "int", None), ("3000000000L", "int", None),
        ("1e10D", "int", None), ("1", "date", None),
    ],
)  # fmt: skip
def test_cast_is_the_same_in_an_array_and_outside_whatever_the_mode(
    glue_context: GlueContext, spark: Any, value: str, kind: str, expected: Any, ansi: str
) -> None:
    made = f"SELECT {value} AS v, array(named_struct('other', 'a', 'v', {value}), NULL) AS items"

    with settings(spark, {"spark.sql.ansi.enabled": ansi}):
        frame = DynamicFrame.fromDF(spark.sql(made), glue_context, "frame")
        if kind == "date":
            with pytest.raises(InvalidValueError, match="asks for a cast"):
                frame.resolveChoice(specs=[("items[].v", f"cast:{kind}")])
            return
        found = rows(frame.resolveChoice(specs=[("v", f"cast:{kind}"), ("items[].v", f"cast:{kind}")]))

    assert found == [{"v": expected, "items": [{"other": "a", "v": expected}, None]}]


@pytest.mark.parametrize("outer", ["array({})", "map('k', {})", "array(array({}))", "named_struct('s', array({}))"])
def test_nested_values_stay_in_their_fields_when_frames_with_other_fields_are_united(
    glue_context: GlueContext, spark: Any, outer: str
) -> None:
    def frame(number: int, fields: str) -> DynamicFrame:
        made = outer.format(f"named_struct({fields})")
        return DynamicFrame.fromDF(spark.sql(f"SELECT {number} AS id, {made} AS people"), glue_context, "frame")

    one = frame(1, "'name', 'Ada', 'town', 'Hackney'")
    all_three = one.union(frame(2, "'town', 'Leeds', 'name', 'Bob'")).union(frame(3, "'size', 7"))

    found = [json.dumps(row["people"], default=str) for row in rows(all_three)]
    assert [re.findall(r'"(name|town|size)": ("\w+"|7)', text) for text in found] == [
        [("name", '"Ada"'), ("town", '"Hackney"')], [("name", '"Bob"'), ("town", '"Leeds"')], [("size", "7")],
    ]  # fmt: skip


def test_choice_type_says_that_it_is_glues_own_when_it_is_used() -> None:
    with pytest.raises(NotOffGlueError, match="ChoiceType"):
        ChoiceType()
