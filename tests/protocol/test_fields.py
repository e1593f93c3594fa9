"""Stored data is read field by field: an error names the field and what was expected, and never shows the value."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

from scripts.helpers.protocol.fields import Fields, ImplausibleError, attribute_of

SECRET = "hunter2"
TIME = "a time with its zone, of the years 1900 to 2199"
FAR = datetime(2200, 1, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("found", "read", "told"),
    [
        ({}, lambda fields: fields.text("a"), "x.a is missing"),
        ({"a": None}, lambda fields: fields.whole("a"), "x.a is missing"),
        ({"a": ""}, lambda fields: fields.text("a"), "x.a is not a text of 1 to 2,048 characters"),
        ({"a": SECRET}, lambda fields: fields.text("a", longest=6), "x.a is not a text of 1 to 6 characters"),
        ({"a": SECRET}, lambda fields: fields.text("a", pattern="[0-9]+", what="digits"), "x.a is not digits"),
        ({"a": 7}, lambda fields: fields.text("a"), "x.a is not a text of 1 to 2,048 characters"),
        ({"a": SECRET}, lambda fields: fields.whole("a"), "x.a is not a whole number from 0 to 1,000,000,000,000,000"),
        ({"a": True}, lambda fields: fields.whole("a", most=7), "x.a is not a whole number from 0 to 7"),
        ({"a": 0}, lambda fields: fields.whole("a", least=1, most=7), "x.a is not a whole number from 1 to 7"),
        ({"a": 8.0}, lambda fields: fields.whole("a", most=9), "x.a is not a whole number from 0 to 9"),
        ({"a": 1}, lambda fields: fields.flag("a"), "x.a is not True or False"),
        ({"a": SECRET}, lambda fields: fields.names("a"), "x.a is not a list of up to 2,000 texts"),
        ({"a": [SECRET, 1]}, lambda fields: fields.names("a"), "x.a is not a list of up to 2,000 texts"),
        ({"a": ["a"] * 2_001}, lambda fields: fields.names("a"), "x.a is not a list of up to 2,000 texts"),
        ({"a": SECRET}, lambda fields: fields.moment("a"), "x.a is not a time"),
        ({"a": datetime(2026, 1, 1)}, lambda fields: fields.moment("a"), f"x.a is not {TIME}"),
        ({"a": FAR}, lambda fields: fields.moment("a"), f"x.a is not {TIME}"),
        ({"a": SECRET}, lambda fields: fields.one_of("a", ("b", "c")), "x.a is not one of b, c"),
        ({"a": 0}, lambda fields: fields.map("a"), "x.a is not a map"),
        ({"a": SECRET}, lambda fields: fields.maps("a"), "x.a is not a list of up to 2,000 maps"),
        ({"a": [{}, {}]}, lambda fields: fields.maps("a", 1), "x.a is not a list of up to 1 maps"),
        ({"a": [{}, SECRET]}, lambda fields: fields.maps("a"), "x.a[1] is not a map"),
        ({"a": SECRET}, lambda fields: fields.map("a"), "x.a is not a map"),
    ],
)
def test_field_is_refused_by_name_when_it_differs_from_what_is_written(
    found: dict[str, Any], read: Callable[[Fields], Any], told: str
) -> None:
    with pytest.raises(ImplausibleError) as caught:
        read(Fields(found, "x"))

    assert str(caught.value) == told
    assert SECRET not in str(caught.value)


def test_field_is_read_when_it_has_the_form_that_is_written() -> None:
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    fields = Fields({"text": "t", "zero": 0, "no": False, "names": ["a"], "at": at, "map": {"a": 1}}, "x")

    assert (fields.text("text"), fields.whole("zero"), fields.flag("no")) == ("t", 0, False)
    assert (fields.names("names"), fields.moment("at"), fields.map("map").whole("a")) == (("a",), at, 1)
    assert (fields.text("other", None), fields.whole("other", 3), fields.names("other", ())) == (None, 3, ())
    assert "zero" in fields
    assert (fields.any("zero"), fields.any("other")) == (0, None)
    assert [one.text("b") for one in Fields({"a": [{"b": "c"}]}, "x").maps("a")] == ["c"]


@pytest.mark.parametrize(
    ("item", "told"),
    [
        ({}, "a is missing"),
        ({"a": {"N": "7"}}, "a is not a text"),
        ({"a": {"S": 7}}, "a is not a text"),
        ({"a": {"S": "t", "N": "7"}}, "a is not a text"),
        ({"a": "t"}, "a is not a text"),
    ],
)
def test_attribute_is_refused_by_name_when_it_is_of_another_type(item: dict[str, Any], told: str) -> None:
    with pytest.raises(ImplausibleError, match=f"^{told}$"):
        attribute_of(item, "a", "S")
