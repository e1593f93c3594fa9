"""A query that rows are read from: one SELECT, checked before any database is asked. Pure.

It is put in brackets after FROM. What a subquery cannot hold is refused here, with words, and not by the database with
a number. A person's own text: this finds mistakes, it is no defence.
"""

from __future__ import annotations

import hashlib
import re

from scripts.helpers.errors import SourceError
from scripts.helpers.rows.sql import SQL, sql, written_by_hand

_PIECES = re.compile(
    r"""
      (?P<comment> --[^\n]* | /\*.*?\*/ )
    | (?P<quoted> '(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*` | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ )
    | (?P<open> /\* | ['"`] )
    | (?P<bare> [^'"`$/-]+ | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_LIMITS = re.compile(
    r"\blimit\s+[\d(:?]|\boffset\s+\d|\bfetch\s+(?:first|next)\b|^\s*select\s+(?:distinct\s+)?top\b", re.IGNORECASE
)
_ORDER = re.compile(r"\border\s+by\b", re.IGNORECASE)
DIGITS = 16
"""Hex digits of a digest: 64 bits, with which a query that was changed is never taken for the one before."""


class QueryText:
    r"""One query, without what is around it.

    Parameters
    ----------
    text
        A SELECT, or WITH and a SELECT.
    orders_within
        Whether the database takes ORDER BY, and WITH, in a subquery.
    source
        For messages.

    Raises
    ------
    SourceError
        It is no single SELECT, or one whose rows change with what is asked of it.

    Examples
    --------
    >>> QueryText("SELECT id FROM repairs", True, "query").relation
    '(\nSELECT id FROM repairs\n)'
    """

    def __init__(self, text: str, orders_within: bool, source: str) -> None:
        if not isinstance(text, str) or not text.strip():
            raise SourceError(source, "query= is empty. Give a SELECT, or name a table.")
        self.text = written_by_hand(text.strip())
        pieces = _pieces(self.text, source)
        bare = "".join(" " if is_quoted else piece for is_quoted, piece in pieces)
        if ";" in bare:
            raise SourceError(
                source, "query= holds a semicolon outside of quotes. Give one SELECT and nothing after it."
            )
        if "\0" in self.text:
            raise SourceError(source, "query= contains NUL, which is not allowed. Remove it.")
        if not re.match(r"\s*(?:select|with)\b", bare, re.IGNORECASE):
            raise SourceError(
                source, "query= is not a SELECT. Give a query that starts with SELECT or WITH, or name a table."
            )
        top = _at_the_top(bare, source)
        if _LIMITS.search(top):
            raise SourceError(
                source,
                "query= takes a number of rows only (LIMIT, OFFSET, FETCH or TOP). Which they are changes from one "
                "question to the next, and rows would be lost. Leave it out; max_rows= reads in batches.",
            )
        if not orders_within and (_ORDER.search(top) or re.match(r"\s*with\b", bare, re.IGNORECASE)):
            raise SourceError(
                source,
                "query= has ORDER BY at its end or starts with WITH, which this database takes in no subquery. Leave "
                "out the order, which no reader of rows needs, or make a view.",
            )
        # Neither comments nor line breaks make another query of it; what is quoted does.
        words = "".join(piece if is_quoted else re.sub(r"\s+", " ", piece) for is_quoted, piece in pieces)
        self.digest = hashlib.sha256(words.strip().encode()).hexdigest()[:DIGITS]

    @property
    def relation(self) -> SQL:
        """The query as what may follow FROM; it needs a name after it."""
        # On lines of its own: a comment at its end would hide the bracket.
        return sql("(\n{}\n)", self.text)


def _pieces(text: str, source: str) -> list[tuple[bool, str]]:
    """Return the text in runs, of which each is in quotes or is not; a comment is a space."""
    found: list[tuple[bool, str]] = []
    for match in _PIECES.finditer(text):
        kind, piece = match.lastgroup, match[0]
        if kind == "open":
            raise SourceError(source, f"query= opens {piece} and never closes it. Fix the query.")
        is_quoted = kind == "quoted"
        if kind == "comment":
            piece = " "
        if found and found[-1][0] == is_quoted:
            piece = found.pop()[1] + piece
        found.append((is_quoted, piece))
    return found


def _at_the_top(bare: str, source: str) -> str:
    """Return what is in no brackets; SourceError where brackets do not match."""
    depth, top = 0, []
    for letter in bare:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            break
        top.append(letter if not depth else " ")
    if depth:
        raise SourceError(source, "the brackets in query= do not match. Fix the query.")
    return "".join(top)
