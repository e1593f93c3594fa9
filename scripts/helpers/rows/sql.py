"""SQL as a type of its own, which no value can become part of by mistake. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from scripts.helpers.errors import InvalidValueError

if TYPE_CHECKING:
    from typing_extensions import LiteralString


class SQL(str):
    """Text that a database or Spark may run.

    It is made by `sql` of a literal, by a dialect of a name or a typed value, and by joins of such. A text of any other
    origin is a `str`, an f-string as well, and mypy refuses a `str` where SQL is run. Two texts are taken as they are:
    what a person wrote, such as the `where` of a source, by `written_by_hand`, and a constraint by `of_catalogue`.
    """

    __slots__ = ()


VALUE = SQL("\0")
"""Where a session binds a value. No name and no text has it in it: no database takes NUL there."""
Values = Sequence[str | int]
Bound = tuple[SQL, Values]
"""A statement, and a value for each `VALUE` in it."""


def sql(template: LiteralString, *parts: SQL, **named: SQL) -> SQL:
    """Return a literal with SQL in the place of its fields.

    >>> sql("{} IS NULL", SQL('"id"'))
    '"id" IS NULL'

    Raises
    ------
    TypeError
        A part is plain text.
    """
    for part in (*parts, *named.values()):
        if not isinstance(part, SQL):
            raise TypeError(f"a part of SQL is a {type(part).__name__}. Quote it as a name, or bind it as a value.")
    return SQL(template.format(*parts, **named))


def internal(name: LiteralString) -> SQL:
    """Return a name of this package for a column or an alias, which no column of a user has.

    Databases resolve some names to a column, and others to an alias: MariaDB orders a window by the alias.

    >>> internal("place")
    'glue_watermarks_place'
    """
    return SQL(f"glue_watermarks_{name}")


def joined(separator: LiteralString, parts: Iterable[SQL]) -> SQL:
    """Return parts with a literal between them."""
    found = list(parts)
    return sql(separator.join(["{}"] * len(found)), *found)


def in_quotes(text: str) -> SQL:
    """Return a text in single quotes; InvalidValueError if it holds what may end them: a quote, a backslash or NUL.

    >>> in_quotes("2026-10-25")
    "'2026-10-25'"
    """
    if set(text) & set("'\\\0"):
        raise InvalidValueError("A text with a quote, a backslash or NUL cannot be written in quotes.")
    return SQL(f"'{text}'")


def whole(number: int) -> SQL:
    """Return a whole number; TypeError for anything else."""
    if type(number) is not int:
        raise TypeError(f"a {type(number).__name__} is no whole number")
    return SQL(number)


def with_marks(statement: SQL, mark: LiteralString, percent: LiteralString, count: int) -> SQL:
    """Return a statement as a driver takes it.

    >>> with_marks(sql("a% = {}", VALUE), "%s", "%%", 1)
    'a%% = %s'

    Parameters
    ----------
    mark, percent
        The driver's placeholder, and how it reads a percent sign that is none.
    count
        How many values there are.

    Raises
    ------
    InvalidValueError
        The statement has another number of places for values, as where a name holds NUL.
    """
    if statement.count(VALUE) != count:
        raise InvalidValueError("A name holds NUL, which no database takes. Correct the name.")
    return SQL(statement.replace("%", percent).replace(VALUE, mark))


def with_names(statement: SQL, names: Mapping[str, SQL]) -> SQL:
    """Return a statement with a name in place of each relation, where Spark would take the relation itself.

    >>> with_names(sql("SELECT * FROM {{events}}"), {"events": internal("relation")})
    'SELECT * FROM glue_watermarks_relation'
    """
    return SQL(statement.format(**names))


def without_names_in(text: SQL) -> SQL:
    """Return SQL in which `with_names` finds no name.

    >>> with_names(without_names_in(SQL("word = '{a}'")), {})
    "word = '{a}'"
    """
    return SQL(text.replace("{", "{{").replace("}", "}}"))


def written_by_hand(text: str) -> SQL:
    """Return what the author of a script gave as SQL: it runs with the script's own rights, as the script does."""
    return SQL(text)


def of_catalogue(text: str) -> SQL:
    """Return a constraint of a table as its catalogue has it: each INSERT runs it, with the same rights."""
    return SQL(text)


def naming(columns: Iterable[str]) -> Callable[[str], object]:
    """Return what finds out whether a text names one of some columns. A word of a text in quotes counts as well.

    >>> bool(naming(["id"])("ID < 5")), bool(naming(["id"])("paid < 5")), bool(naming([])("id < 5"))
    (True, False, False)
    """
    names = "|".join([*map(re.escape, columns), "(?!)"])
    return re.compile(rf"(?<!\w)(?:{names})(?!\w)", re.IGNORECASE).search
