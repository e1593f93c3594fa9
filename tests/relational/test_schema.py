"""Names of tables and columns, as in Glue's Relationalize, and names that would collide."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.relational.relations import tables_of
from tests.support.reasons import because


def struct(**fields: Any) -> dict[str, Any]:
    return named(fields.items())


def named(fields: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def array(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element}


def by_key(value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": "string", "valueType": value}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        pytest.param(struct(a="int", b="string"), {"root": ["a", "b"]}, id="flat"),
        pytest.param(struct(a=struct(b=struct(c="int"))), {"root": ["a.b.c"]}, id="structs"),
        pytest.param(struct(a=array("int")), {"root": ["a"], "root_a": ["a.val"]}, id="array"),
        pytest.param(
            struct(contact_details=array(struct(type="string", value="string"))),
            {
                "root": ["contact_details"],
                "root_contact_details": ["contact_details.val.type", "contact_details.val.value"],
            },
            id="legislators",
        ),
        pytest.param(
            struct(entities=struct(hashtags=array(struct(tag="string")))),
            {"root": ["entities.hashtags"], "root_entities.hashtags": ["entities.hashtags.val.tag"]},
            id="array in struct",
        ),
        pytest.param(
            struct(a=array(struct(b=array(struct(c="int"))))),
            {"root": ["a"], "root_a": ["a.val.b"], "root_a.val.b": ["a.val.b.val.c"]},
            id="array in array of structs",
        ),
        pytest.param(
            struct(a=array(array("int"))),
            {"root": ["a"], "root_a": ["a.val"], "root_a.val": ["a.val.val"]},
            id="array of arrays",
        ),
        pytest.param(struct(m=by_key("int")), {"root": ["m"], "root_m": ["m.key", "m.val"]}, id="map"),
        pytest.param(
            struct(m=by_key(struct(x="int", y=array("int")))),
            {"root": ["m"], "root_m": ["m.key", "m.val.x", "m.val.y"], "root_m.val.y": ["m.val.y.val"]},
            id="map of structs",
        ),
        pytest.param(named([("a.b", "int"), ("", "int")]), {"root": ["a.b", ""]}, id="odd names"),
        pytest.param(struct(u={"type": "udt", "class": "x"}), {"root": ["u"]}, id="type of a user"),
    ],
)
def test_tables_are_named_as_glue_names_them_when_rows_are_nested(
    schema: dict[str, Any], expected: dict[str, list[str]]
) -> None:
    tables = tables_of(schema, "root")

    assert {table.name: [column.name for column in table.columns] for table in tables} == expected


def test_column_names_its_table_when_it_is_an_array() -> None:
    root, child = tables_of(struct(a=array("int"), b="int"), "people")

    assert [(column.name, column.table) for column in root.columns] == [("a", "people_a"), ("b", None)]
    assert (child.parent, root.has_children, child.has_children) == (root, True, False)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        pytest.param(
            named([("a.b", "int"), ("a", struct(b="int"))]),
            "Fields 'a.b' and 'a' > 'b' would both be column 'a.b' of table 'root'. Rename one of them first.",
            id="dot",
        ),
        pytest.param(
            named([("a", "int"), ("A", "int")]),
            "Fields 'a' and 'A' would both be column 'A' of table 'root'. Rename one of them first.",
            id="case",
        ),
        pytest.param(
            named([("a.val", array("int")), ("a", array(array("int")))]),
            "Fields 'a.val' and 'a' would both be table 'root_a.val'. Rename one of them first.",
            id="table",
        ),
        pytest.param(
            struct(a=array(named([("b.c", "int"), ("b", struct(c="int"))]))),
            "Fields 'a' > 'b.c' and 'a' > 'b' > 'c' would both be column 'a.val.b.c' of table 'root_a'. "
            "Rename one of them first.",
            id="within an array",
        ),
    ],
)
def test_names_are_refused_when_two_fields_would_have_one(schema: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidValueError, check=because("name_collision")) as caught:
        tables_of(schema, "root")

    assert str(caught.value) == text


def test_names_are_distinct_when_they_differ_in_case_and_spark_is_case_sensitive() -> None:
    (table,) = tables_of(named([("a", "int"), ("A", "int")]), "root", case_sensitive=True)

    assert [column.name for column in table.columns] == ["a", "A"]
