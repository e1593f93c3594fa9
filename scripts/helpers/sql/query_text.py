"""A query that rows are read from: one SELECT, checked before any database is asked. Pure.

It is put in brackets after FROM. What a subquery cannot hold is refused here, with words, and not by the database with
a number. A person's own text: this finds mistakes, it is no defence.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property, reduce

from scripts.helpers.errors import SourceError
from scripts.helpers.rows.sql import SQL, sql, written_by_hand

_FLAT = r"/\*(?:(?!/\*|\*/).)*\*/"
_NESTED = reduce(lambda inner, _: rf"/\*(?:(?!/\*|\*/).|{inner})*\*/", range(3), _FLAT)


@dataclass(frozen=True)
class Grammar:
    """How the SQL of a database is taken apart.

    Attributes
    ----------
    comment, quoted, opening
        Patterns for a comment, for what is in quotes, and for what begins either of them.
    limits
        A pattern for the clauses that take some of the rows.
    gaps
        A pattern for the clauses that leave out rows at random, or those that another transaction has locked. These
        are refused in subqueries as well, where a limit may be meant, as of the last price of each.
    orders_within
        Whether the database takes ORDER BY, and WITH, in a subquery.
    """

    comment: str = r"--[^\n]*|/\*.*?\*/"
    quoted: str = r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`"""
    opening: str = r"/\*"
    limits: str = ""
    gaps: str = r"\bfor\b[^()]*\bskip locked\b"
    orders_within: bool = True

    @cached_property
    def pieces(self) -> re.Pattern[str]:
        """Matches one piece of a text after the other."""
        groups = f"(?P<comment>{self.comment})|(?P<quoted>{self.quoted})|(?P<open>{self.opening}|['\"`])"
        return re.compile(rf"{groups}|(?P<bare>[^'\"`$/#\[\-]+|.)", re.DOTALL)

    def prepared(self, text: str) -> str:
        """Return a text with the question marks that are operators doubled, which a driver takes for parameters."""
        found = self.pieces.finditer(text)
        return "".join(one[0].replace("?", "??") if one.lastgroup == "bare" else one[0] for one in found)

    def has_double_quotes(self, text: str) -> bool:
        """Return whether a text has double quotes that are not within other quotes or a comment."""
        return any(found["quoted"] and found[0].startswith('"') for found in self.pieces.finditer(text))

    def bare(self, text: str) -> str:
        """Return, in one line, what of a text is in no quotes and no comment."""
        found = (one[0] if one.lastgroup == "bare" else " " for one in self.pieces.finditer(text))
        return re.sub(r"\s+", " ", "".join(found))

    def check_limits(self, what: str, bare: str, source: str) -> None:
        """Raise SourceError if what is `bare` of a text has a clause that takes some of the rows, or wrong brackets."""
        top = _outside_of_brackets(bare, source)
        if re.search(self.limits, top, re.IGNORECASE) or re.search(self.gaps, bare, re.IGNORECASE):
            raise SourceError(
                source,
                f"{what} takes a number of rows only (LIMIT, OFFSET, FETCH, TOP, TABLESAMPLE, SAMPLE, ROWNUM, SKIP "
                "LOCKED or READPAST). Which they are changes from one question to the next, and rows would be lost. "
                "Leave it out; max_rows= reads in batches.",
            )


def _clause(word: str) -> str:
    """Return a pattern for a clause that begins with a reserved word, but for ALL and NULL, and names after a dot."""
    return rf"(?<![.\w$@])(?<!\bas ){word}\b(?! ?(?:all|null)\b)"


_FETCH = r"\bfetch (?:first|next)\b"
_OFFSET_ROWS = r"\boffset\b[^,=<>]*?\brows? ?(?:$|\bfetch\b)"
"""Where OFFSET may be the name of a column as well."""
_READPAST = r"\bwith ?\((?:[^()]|\([^()]*\))*\breadpast\b|\( ?readpast ?\)"
"""Of a table, also in its old form without WITH."""
STANDARD = Grammar(limits=f"{_FETCH}|{_OFFSET_ROWS}")
SQLITE = Grammar(quoted=rf"{Grammar.quoted}|\[[^\]]*\]", limits=_clause("limit"))
SQL_SERVER = Grammar(
    comment=rf"--[^\n]*|{_NESTED}",
    quoted=rf"{Grammar.quoted}|\[(?:[^\]]|\]\])*\]",
    limits=rf"{_FETCH}|{_OFFSET_ROWS}|\bselect (?:(?:all|distinct) )?top\b",
    gaps=f"{_clause('tablesample')}|{_READPAST}",
    orders_within=False,
)
_BETWEEN_MARKS = r"\[.*?\]|\(.*?\)|\{.*?\}|<.*?>|(?P<mark>\S).*?(?P=mark)"
ORACLE = Grammar(
    quoted=rf"(?:(?<=\W[qQ])|(?<=\W[nN][qQ]))'(?:{_BETWEEN_MARKS})'|{Grammar.quoted}",
    limits=rf"{STANDARD.limits}|\brownum\b",
    gaps=rf"{STANDARD.gaps}|\bsample(?: block)? ?\(",
    orders_within=False,
)
POSTGRESQL = Grammar(
    comment=rf"--[^\n]*|{_NESTED}",
    quoted=rf"(?:(?<=\W[eE])|(?<=^[eE]))'(?:[^'\\]|\\.|'')*'|{Grammar.quoted}|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$",
    limits="|".join([*map(_clause, ("limit", "offset")), _FETCH]),
    gaps=f"{_clause('tablesample')}|{STANDARD.gaps}",
)
MYSQL = Grammar(
    # What is in such a comment with an exclamation mark is run.
    comment=r"--(?=\s|$)[^\n]*|\#[^\n]*|/\*(?!M?!).*?\*/",
    quoted=r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`""",
    opening=r"/\*(?!M?!)",
    limits=f"{_clause('limit')}|{STANDARD.limits}",
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
    grammar
        That of its database.
    source
        For messages.

    Raises
    ------
    SourceError
        It is no single SELECT, or one whose rows change with what is asked of it.

    Examples
    --------
    >>> QueryText("SELECT id FROM repairs", STANDARD, "query").relation
    '(\nSELECT id FROM repairs\n)'
    """

    def __init__(self, text: str, grammar: Grammar, source: str) -> None:
        if not isinstance(text, str) or not text.strip():
            raise SourceError(source, "query= is empty. Give a SELECT, or name a table.")
        self.text = written_by_hand(text.strip())
        pieces = _pieces(self.text, grammar, source)
        bare = grammar.bare(self.text)
        if ";" in bare:
            raise SourceError(
                source, "query= holds a semicolon outside of quotes. Give one SELECT and nothing after it."
            )
        if "\0" in self.text:
            raise SourceError(source, "query= contains NUL, which is not allowed. Remove it.")
        top = _outside_of_brackets(bare, source)
        is_select = re.match(r"\s*(?:select|with)\b", bare, re.IGNORECASE)
        if not is_select or re.search(_clause("into"), top, re.IGNORECASE):
            raise SourceError(
                source,
                "query= is not a SELECT that only reads. Give a query that starts with SELECT or WITH and has no INTO, "
                "or name a table.",
            )
        grammar.check_limits("query=", bare, source)
        if not grammar.orders_within and (_ORDER.search(top) or re.match(r"\s*with\b", bare, re.IGNORECASE)):
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


def _pieces(text: str, grammar: Grammar, source: str) -> list[tuple[bool, str]]:
    """Return the text in runs, of which each is in quotes or is not; a comment is a space."""
    found: list[tuple[bool, str]] = []
    for match in grammar.pieces.finditer(text):
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


def _outside_of_brackets(bare: str, source: str) -> str:
    """Return what is in no brackets; SourceError where brackets do not match."""
    depth, top = 0, []
    for letter in bare:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            break
        top.append(letter if not depth else " ")
    if depth:
        raise SourceError(source, "the brackets in query= or where= do not match. Fix them.")
    return "".join(top)
