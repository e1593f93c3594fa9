"""The common type of two types, what counts as a change of schema, and how each policy handles a change."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from scripts.helpers.errors import InvalidValueError, SchemaChangedError
from scripts.helpers.protocol.packed_json import pack_json
from scripts.helpers.protocol.values import ImplausibleError
from scripts.helpers.schemas.kept import MAX_BYTES, schemas_of, shown_schemas, with_schema
from scripts.helpers.schemas.kinds import MAX_DEPTH, MAX_NAME, common, kind_text, known_kind, new_fields
from scripts.helpers.schemas.policy import Given, check_policy, decide

ROWS, CSV, JSON = Given("s", "ctx"), Given("s", "ctx", is_text=True), Given("s", "ctx", is_text=True, may_lack=True)


def struct(**fields: Any) -> dict[str, Any]:
    named = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields.items()]
    return {"type": "struct", "fields": named}


def array(kind: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": True}


def texts_to(kind: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": "string", "valueType": kind, "valueContainsNull": True}


@pytest.mark.parametrize(
    ("one", "other", "holds_both"),
    [
        ("integer", "long", "long"),
        ("byte", "short", "short"),
        ("integer", "double", "double"),
        ("long", "double", None),
        ("integer", "float", None),
        ("float", "double", "double"),
        ("decimal(10,2)", "decimal(12,2)", "decimal(12,2)"),
        ("decimal(10,2)", "decimal(10,4)", "decimal(12,4)"),
        ("decimal(38,0)", "decimal(38,2)", None),
        ("integer", "decimal(10,2)", "decimal(12,2)"),
        ("double", "decimal(10,2)", None),
        ("string", "integer", None),
        ("date", "timestamp", None),
        ("void", "date", "date"),
        (struct(a="integer"), struct(a="long", b="string"), struct(a="long", b="string")),
        (struct(a="integer"), struct(a="string"), None),
        (struct(a="integer"), "integer", None),
        (array("integer"), array("long"), array("long")),
        (array("integer"), struct(a="integer"), None),
        ({"type": "udt"}, {"type": "udt", "class": "x"}, None),
    ],
)
def test_common_type_holds_every_value_of_both_when_there_is_one(one: Any, other: Any, holds_both: Any) -> None:
    assert common(one, other) == common(other, one) == holds_both


def test_fields_of_the_first_come_first_when_two_structs_become_one() -> None:
    found = common(struct(b="integer", a="date"), struct(c="string", b="long"))

    assert found == struct(b="long", a="date", c="string")


def test_type_is_written_as_in_sql_when_it_is_nested() -> None:
    kind = struct(a=array("long"), b={"type": "map", "keyType": "string", "valueType": "integer"})

    assert kind_text(kind) == "struct<a:array<bigint>,b:map<string,int>>"
    assert kind_text({"type": "udt", "class": "x"}) == "udt"


def test_new_fields_are_named_by_their_path_when_they_are_inside_of_columns() -> None:
    before, now = array(struct(a=struct(x="long"))), array(struct(a=struct(x="long", y="long"), b="string"))

    assert new_fields(before, now, "rows") == ["rows.a.y", "rows.b"]
    assert new_fields(texts_to(before), texts_to(now), "map") == ["map.a.y", "map.b"]
    assert new_fields({"type": "udt"}, {"type": "udt", "class": "x"}, "point") == []


@pytest.mark.parametrize(
    ("given", "found", "policy", "target", "left_out"),
    [
        (ROWS, {"id": "long", "new": "date"}, "add", {"id": "long", "new": "date"}, []),
        (ROWS, {"id": "long", "new": "date"}, "warn", {"id": "long"}, ["new"]),
        (ROWS, {"new": "date"}, "add", {"id": "long", "new": "date"}, []),
        (ROWS, {"new": "date"}, "take", {"new": "date"}, []),
        (ROWS, {"ID": "integer"}, "raise", {"id": "long"}, []),
        (ROWS, {"id": "decimal(20,0)"}, "add", {"id": "decimal(20,0)"}, []),
        (ROWS, {"id": "string"}, "take", {"id": "string"}, []),
        (CSV, {"id": "string"}, "raise", {"id": "long"}, []),
        (CSV, {"id": "double"}, "add", {"id": "long"}, []),
        (CSV, {"id": "decimal(20,0)"}, "warn", {"id": "long"}, []),
        (JSON, {}, "raise", {"id": "long"}, []),
    ],
)
def test_decision_has_the_columns_of_the_policy_when_the_source_changed(
    given: Given, found: Any, policy: Any, target: Any, left_out: list[str]
) -> None:
    decision = decide(given, {"id": "long"}, found, policy)

    assert (decision.target, list(decision.left_out)) == (target, left_out)


@pytest.mark.parametrize(
    ("given", "found", "policy", "told"),
    [
        (ROWS, {"id": "long", "new": "date"}, "raise", "'new' is new (date)"),
        (ROWS, {}, "raise", "'id' is gone (it was bigint)"),
        (ROWS, {"id": "decimal(20,0)"}, "warn", "'id' was bigint and is decimal(20,0)"),
        (ROWS, {"id": "string"}, "add", "'id' was bigint and is string"),
        (CSV, {"id": "double"}, "raise", "'id' was bigint and is double"),
        (CSV, {}, "raise", "'id' is gone"),
    ],
)
def test_run_is_stopped_with_the_column_and_both_types_when_the_policy_says_so(
    given: Given, found: Any, policy: Any, told: str
) -> None:
    with pytest.raises(SchemaChangedError) as caught:
        decide(given, {"id": "long"}, found, policy)

    assert told in str(caught.value) and "on_schema_change='take'" in str(caught.value)
    assert caught.value.policy == policy


def test_error_counts_the_columns_when_there_are_many() -> None:
    with pytest.raises(SchemaChangedError, match="; and 3 more") as caught:
        decide(ROWS, {}, {f"c{number}": "long" for number in range(8)}, "raise")

    assert len(caught.value.columns) == 8


@pytest.mark.parametrize("policy", ["", "ADD", None, True, 1, ["add"]])
def test_policy_is_refused_when_there_is_none_of_that_name(policy: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"'on_schema_change': .* Use 'add', 'warn', 'raise' or 'take'\."):
        check_policy(policy)


def test_state_is_the_same_when_the_same_schema_is_kept_again() -> None:
    wide = {f"column_{number:04d}": "string" for number in range(1_000)}

    once = with_schema({"kind": "rows"}, "spark", wide)
    assert once is not None
    twice = with_schema(once, "spark", wide)

    assert once == twice
    assert list(schemas_of(once)["spark"]) == list(wide)
    assert len(once["schemas"]) < 5_000
    assert shown_schemas(with_schema({"kind": "rows"}, "json", {"id": "long"})) == {"json": {"id": "bigint"}}


BOMB = zlib.compress(b"[" + b" " * (MAX_BYTES + 10) + b"]")


@pytest.mark.parametrize("damaged", [b"", b"no zlib", "text", 5, {"a": 1}, BOMB])
def test_state_is_refused_when_its_schemas_are_damaged(damaged: Any) -> None:
    with pytest.raises(ImplausibleError, match=r"^watermarks\.x\.schemas is not columns with types that are known: "):
        schemas_of({"kind": "rows", "schemas": damaged}, "watermarks.x")


def test_no_schema_is_known_when_a_state_keeps_none() -> None:
    assert schemas_of({"kind": "rows", "schemas": None}) == schemas_of({}) == schemas_of("2026-03-16") == {}


# --- types that are known ---------------------------------------------------------------------------


def udt(kind: Any) -> dict[str, Any]:
    return {"type": "udt", "class": "x.Point", "pyClass": "x.Point", "serializedClass": "", "sqlType": kind}


NAMES = (
    "string", "boolean", "long", "decimal(38,18)", "decimal(5,-2)", "timestamp_ntz", "void", "interval",
    "interval year to month", "interval day to second", "interval hour", "char(3)", "varchar(65535)", "time(6)",
    "variant", "string collate UNICODE_CI", "geometry(OGC:CRS84)", "geography(OGC:CRS84, SPHERICAL)",
)  # fmt: skip


@pytest.mark.parametrize("kind", [*NAMES, struct(), struct(a=array(texts_to("long")), b=struct(c="date"))], ids=str)
def test_type_is_read_as_it_is_when_spark_writes_it(kind: Any) -> None:
    assert known_kind(kind) == kind


def test_type_is_the_one_that_it_is_stored_as_when_it_is_a_users_own() -> None:
    assert known_kind(struct(a=udt(array(udt("double"))))) == struct(a=array("double"))


def test_metadata_is_left_out_when_a_field_has_some() -> None:
    kind = struct(a="string")
    kind["fields"][0]["metadata"] = {"comment": "of the bay", "__COLLATIONS": {"a": "icu.UNICODE"}}

    assert known_kind(kind) == struct(a="string")


DEEP: Any = "long"
for _ in range(MAX_DEPTH + 2):
    DEEP = array(DEEP)


@pytest.mark.parametrize(
    "kind",
    [
        "", "strings", "decimal(39,2)", "decimal(0,0)", "decimal(99999999999,2)", "char(0)", "long\n", 5, None, True,
        ["long"], {}, {"type": "long"}, {"type": ["struct"]}, {"type": "udt"}, udt({"type": "udt"}), DEEP,
        array("long") | {"more": 1}, array("longs"), array("long") | {"containsNull": 1},
        texts_to("longs"), texts_to("long") | {"valueContainsNull": None}, {"type": "struct", "fields": {}},
        {"type": "struct", "fields": ["a"]}, struct(a="long", b="longs"), struct(**{"x" * (MAX_NAME + 1): "long"}),
        {"type": "struct", "fields": [struct(a="long")["fields"][0] | {"metadata": []}]},
        {"type": "struct", "fields": [struct(a="long")["fields"][0] | {"nullable": "yes"}]},
        {"type": "struct", "fields": [struct(a="long")["fields"][0] | {"more": 1}]},
        {"type": "struct", "fields": [{"name": "a", "type": "long"}]},
    ],
    ids=lambda kind: str(kind)[:60],
)  # fmt: skip
def test_type_is_refused_when_spark_does_not_write_it(kind: Any) -> None:
    with pytest.raises(InvalidValueError):
        known_kind(kind)
    with pytest.raises(ImplausibleError, match=r"^state\.schemas is not columns with types that are known: "):
        schemas_of({"kind": "rows", "schemas": pack_json([["spark", [["a", kind]]]])})


@pytest.mark.parametrize("of", ["arrow", "pandas", "pandas:csv"])
def test_type_is_any_text_when_spark_never_sees_it(of: str) -> None:
    assert schemas_of({"kind": "rows", "schemas": pack_json([[of, [["a", "list<item: int64>"]]]])}) == {
        of: {"a": "list<item: int64>"}
    }
    with pytest.raises(ImplausibleError, match="a name is not a text"):
        schemas_of({"kind": "rows", "schemas": pack_json([[of, [["a", array("long")]]]])})


@pytest.mark.parametrize(
    "rows", [{}, 5, [5], [[]], [["spark"]], [["spark", 5]], [["spark", [5]]], [["spark", [["a"]]]], [[5, []]],
             [["spark", [[5, "long"]]]], [[f"csv:{part}", []] for part in range(17)]],
    ids=lambda rows: str(rows)[:40],
)  # fmt: skip
def test_schemas_are_refused_when_they_are_no_lists_of_names_and_types(rows: Any) -> None:
    with pytest.raises(ImplausibleError, match=r"^state\.schemas is not "):
        schemas_of({"kind": "rows", "schemas": pack_json(rows)})


def test_schemas_cannot_be_changed_when_they_are_read() -> None:
    kept: Any = schemas_of(with_schema({"kind": "rows"}, "spark", {"a": "long"}))

    with pytest.raises(TypeError):
        kept["spark"] = {}
    with pytest.raises(TypeError):
        kept["spark"]["a"] = "string"


def test_columns_are_not_kept_when_they_could_not_be_read_back() -> None:
    assert with_schema({"kind": "rows"}, "spark", {"x" * (MAX_NAME + 1): "long"}) is None


@pytest.mark.parametrize("policy", ["add", "warn", "raise"])
@pytest.mark.parametrize("kept", [None, {"id": "long"}])
def test_columns_are_refused_when_a_policy_would_take_two_of_them_for_one(policy: Any, kept: Any) -> None:
    with pytest.raises(InvalidValueError, match="Columns id, Id of 's' differ only by case"):
        decide(ROWS, kept, {"id": "long", "Id": "long"}, policy)

    assert list(decide(ROWS, kept, {"id": "long", "Id": "long"}, "take").target) == ["id", "Id"]
