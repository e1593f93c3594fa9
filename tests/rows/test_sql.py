"""A text becomes SQL as a literal, a quoted name or a typed value, and in no other way."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.helpers.rows.sql import SQL, joined, sql, whole


def test_part_is_refused_when_it_is_plain_text() -> None:
    with pytest.raises(TypeError, match="a part of SQL is a str"):
        sql("SELECT {}", "1; DROP TABLE victim")  # type: ignore[arg-type]


def test_part_stays_as_it_is_when_it_holds_braces() -> None:
    assert sql("SELECT {name}", name=SQL('"{0}"')) == 'SELECT "{0}"'


def test_parts_are_joined_when_there_are_none_or_several() -> None:
    assert joined(", ", []) == ""
    assert joined(" AND ", [SQL("a"), SQL("{b}")]) == "a AND {b}"


@pytest.mark.parametrize("number", [True, "7", 7.0, None])
def test_number_is_refused_when_it_is_not_whole(number: Any) -> None:
    with pytest.raises(TypeError):
        whole(number)

    assert whole(-7) == "-7"
