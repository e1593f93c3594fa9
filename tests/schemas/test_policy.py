"""Which type holds two others, what counts as a change, and what each policy does about it."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.helpers.errors import InvalidValueError, SchemaChangedError
from scripts.helpers.schemas.kept import MAX_BYTES, schemas_of, shown_schemas, with_schema
from scripts.helpers.schemas.kinds import common, kind_text, new_fields
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
        (ROWS, {"id": "long", "new": "date"}, "report", {"id": "long"}, ["new"]),
        (ROWS, {"new": "date"}, "add", {"id": "long", "new": "date"}, []),
        (ROWS, {"new": "date"}, "accept", {"new": "date"}, []),
        (ROWS, {"ID": "integer"}, "refuse", {"id": "long"}, []),
        (ROWS, {"id": "decimal(20,0)"}, "add", {"id": "decimal(20,0)"}, []),
        (ROWS, {"id": "string"}, "accept", {"id": "string"}, []),
        (CSV, {"id": "string"}, "refuse", {"id": "long"}, []),
        (CSV, {"id": "double"}, "add", {"id": "long"}, []),
        (CSV, {"id": "decimal(20,0)"}, "report", {"id": "long"}, []),
        (JSON, {}, "refuse", {"id": "long"}, []),
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
        (ROWS, {"id": "long", "new": "date"}, "refuse", "'new' is new (date)"),
        (ROWS, {}, "refuse", "'id' is gone (it was bigint)"),
        (ROWS, {"id": "decimal(20,0)"}, "report", "'id' was bigint and is decimal(20,0)"),
        (ROWS, {"id": "string"}, "add", "'id' was bigint and is string"),
        (CSV, {"id": "double"}, "refuse", "'id' was bigint and is double"),
        (CSV, {}, "refuse", "'id' is gone"),
    ],
)
def test_run_is_stopped_with_the_column_and_both_types_when_the_policy_says_so(
    given: Given, found: Any, policy: Any, told: str
) -> None:
    with pytest.raises(SchemaChangedError) as caught:
        decide(given, {"id": "long"}, found, policy)

    assert told in str(caught.value) and "on_schema_change='accept'" in str(caught.value)
    assert caught.value.policy == policy


def test_error_counts_the_columns_when_there_are_many() -> None:
    with pytest.raises(SchemaChangedError, match="; and 3 more") as caught:
        decide(ROWS, {}, {f"c{number}": "long" for number in range(8)}, "refuse")

    assert len(caught.value.columns) == 8


@pytest.mark.parametrize("policy", ["", "ADD", None, True, 1, ["add"]])
def test_policy_is_refused_when_there_is_none_of_that_name(policy: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"on_schema_change is .*'add', 'report', 'refuse', 'accept'"):
        check_policy(policy)


def test_state_is_the_same_when_the_same_schema_is_kept_again() -> None:
    wide = {f"column_{number:04d}": "string" for number in range(1_000)}

    once = with_schema({"kind": "rows"}, "spark", wide)
    twice = with_schema(once, "spark", wide)

    assert once == twice
    assert list(schemas_of(once)["spark"]) == list(wide)
    assert len(once["schemas"]) < 5_000
    assert shown_schemas(with_schema({}, "json", {"id": "long"})) == {"json": {"id": "bigint"}}


@pytest.mark.parametrize("damaged", [b"", b"no zlib", "text", 5, None, {"a": 1}])
def test_no_schema_is_known_when_the_entry_is_damaged(damaged: Any) -> None:
    assert schemas_of({"schemas": damaged}) == {}


def test_no_schema_is_known_when_the_entry_unfolds_to_more_than_is_ever_kept() -> None:
    import zlib

    bomb = zlib.compress(b"[" + b" " * (MAX_BYTES + 10) + b"]")

    assert schemas_of({"schemas": bomb}) == {}
