"""Text becomes SQL only as a literal, a quoted name or a typed value."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.sql import SQL, VALUE, in_quotes, joined, sql, whole, with_marks
from scripts.helpers.sql.postgresql import PostgreSQL


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


@pytest.mark.parametrize("text", ["a'b", "a\\", "\0", "' OR '1' = '1"])
def test_text_is_not_written_in_quotes_when_something_in_it_may_end_them(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be written in quotes"):
        in_quotes(text)

    assert in_quotes('2026-10-25 "a"') == "'2026-10-25 \"a\"'"


def test_values_have_the_places_of_a_driver_when_a_name_holds_its_signs() -> None:
    statement = sql("UPDATE {} SET a = {value} WHERE b = {value}", SPARK.quote("?%s{}"), value=VALUE)

    assert with_marks(statement, "?", "%", 2) == "UPDATE `?%s{}` SET a = ? WHERE b = ?"
    assert with_marks(statement, "%s", "%%", 2) == "UPDATE `?%%s{}` SET a = %s WHERE b = %s"


@pytest.mark.parametrize("values", [1, 3])
def test_statement_is_refused_when_it_has_another_number_of_places_than_of_values(values: int) -> None:
    statement = sql("UPDATE {} SET a = {}", SPARK.quote("a\0b"), VALUE)

    with pytest.raises(InvalidValueError, match="A name holds NUL"):
        with_marks(statement, "?", "%", values)


TYPES = [
    "int", "decimal(10,2)", "decimal(10, 2)", "timestamp(3) without time zone", "numeric(10,2)[]", "public.mood",
    "array<struct<a:int,b:map<string,decimal(9,2)>>>", "numeric(5,-3)",
    "enum('a','it''s; --')", '"Mood"', "double precision",
]  # fmt: skip


@pytest.mark.parametrize("text", TYPES)
def test_type_is_written_as_it_is_when_it_is_only_the_name_of_one(text: str) -> None:
    assert SPARK.type_name(text) == text


@pytest.mark.parametrize(
    "text",
    ["", "int) AS a, (b", "int, b int", "int) OR (1 = 1", "int -- x", "int/**/", "int; DROP TABLE t", "int = 1",
     "numeric(5 --3)", "numeric(-", "int)", "(int",
     "array<int", "struct<a:int)", "int]", "int[", "enum('a\\')", "int 'x", "int `x", "a\nb", "int #",
     "struct<a:int>) AS b, (c>"],
)  # fmt: skip
def test_type_is_refused_when_more_than_a_name_is_in_it(text: str) -> None:
    with pytest.raises(InvalidValueError, match="is not the name of a type"):
        SPARK.type_name(text)


def test_type_with_quotes_of_another_database_is_refused_when_they_are_no_quotes_here() -> None:
    text = "`) FROM t; DROP TABLE t; --`"

    assert SPARK.type_name(text) == text
    with pytest.raises(InvalidValueError):
        PostgreSQL().type_name(text)
