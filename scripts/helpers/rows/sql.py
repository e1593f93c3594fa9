"""A type for SQL text, so that no value can become part of SQL by mistake. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from scripts.helpers.errors import InvalidValueError

if TYPE_CHECKING:
    from typing_extensions import LiteralString


class SQL(str):
    """Text that a database or Spark may run.

    `sql` makes it from a literal, a dialect from a name or a typed value, and `joined` from other SQL. Any other text,
    including an f-string, is a `str`, and mypy refuses a `str` where SQL is run. Two kinds of text are used unchanged:
    SQL that a user wrote, such as a source's `where` (`written_by_hand`), and a table's constraint (`of_catalogue`).
    """

    __slots__ = ()


VALUE = SQL("\0")
"""Placeholder for a bound value. Names and texts cannot contain it, because databases do not allow NUL in them."""
Values = Sequence[str | int]
Bound = tuple[SQL, Values]
"""A statement, and a value for each `VALUE` in it."""


def sql(template: LiteralString, *parts: SQL, **named: SQL) -> SQL:
    """Return a literal template with SQL inserted for its fields.

    >>> sql("{} IS NULL", SQL('"id"'))
    '"id" IS NULL'

    Raises
    ------
    TypeError
        A part is not SQL but plain text.
    """
    for part in (*parts, *named.values()):
        if not isinstance(part, SQL):
            raise TypeError(f"a part of SQL is a {type(part).__name__}. Quote it as a name, or bind it as a value.")
    return SQL(template.format(*parts, **named))


def internal(name: LiteralString) -> SQL:
    """Return a name for a column or an alias of this package that no column of a user has.

    If a column had the name of an alias, databases would differ in which they use: MariaDB orders by the alias.

    >>> internal("place")
    'glue_watermarks_place'
    """
    return SQL(f"glue_watermarks_{name}")


def joined(separator: LiteralString, parts: Iterable[SQL]) -> SQL:
    """Return parts of SQL as one, joined by a literal separator."""
    found = list(parts)
    return sql(separator.join(["{}"] * len(found)), *found)


def in_quotes(text: str) -> SQL:
    """Return a text in single quotes; raise InvalidValueError if it contains a quote, a backslash or NUL.

    >>> in_quotes("2026-10-25")
    "'2026-10-25'"
    """
    if set(text) & set("'\\\0"):
        raise InvalidValueError("A text with a quote, a backslash or NUL cannot be written in quotes.")
    return SQL(f"'{text}'")


def whole(number: int) -> SQL:
    """Return a whole number as SQL; raise TypeError for anything else."""
    if type(number) is not int:
        raise TypeError(f"a {type(number).__name__} is no whole number")
    return SQL(number)


def with_marks(statement: SQL, mark: LiteralString, percent: LiteralString, count: int) -> SQL:
    """Return a statement with the placeholders that a driver uses.

    >>> with_marks(sql("a% = {}", VALUE), "%s", "%%", 1)
    'a%% = %s'

    Parameters
    ----------
    mark, percent
        The driver's placeholder, and how to write a percent sign that is not a placeholder.
    count
        How many values there are.

    Raises
    ------
    InvalidValueError
        The statement has another number of placeholders, for example because a name contains NUL, which is `VALUE`.
    """
    if statement.count(VALUE) != count:
        raise InvalidValueError("A name holds NUL, which no database takes. Correct the name.")
    return SQL(statement.replace("%", percent).replace(VALUE, mark))


def with_names(statement: SQL, names: Mapping[str, SQL]) -> SQL:
    """Fill the fields of a statement, such as ``{events}``, with tables' names. Not for Spark, which does it itself.

    >>> with_names(sql("SELECT * FROM {{events}}"), {"events": internal("relation")})
    'SELECT * FROM glue_watermarks_relation'
    """
    return SQL(statement.format(**names))


def without_names_in(text: SQL) -> SQL:
    """Return SQL with its braces escaped, so that `with_names` finds no field in it.

    >>> with_names(without_names_in(SQL("word = '{a}'")), {})
    "word = '{a}'"
    """
    return SQL(text.replace("{", "{{").replace("}", "}}"))


def written_by_hand(text: str) -> SQL:
    """Return text that the author of a script wrote as SQL: it runs with the script's own rights."""
    return SQL(text)


def of_catalogue(text: str) -> SQL:
    """Return a constraint from the catalogue as trusted SQL: each INSERT evaluates it anyway, with the same rights."""
    return SQL(text)


def naming(columns: Iterable[str]) -> Callable[[str], object]:
    """Return a function whose result is true if a text names one of the columns, even inside quotes.

    >>> bool(naming(["id"])("ID < 5")), bool(naming(["id"])("paid < 5")), bool(naming([])("id < 5"))
    (True, False, False)
    """
    names = "|".join([*map(re.escape, columns), "(?!)"])
    return re.compile(rf"(?<!\w)(?:{names})(?!\w)", re.IGNORECASE).search
