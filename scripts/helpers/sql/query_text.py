"""Check a query that rows are read from, which must be one SELECT, before it is sent to a database. Pure.

The query becomes a subquery after FROM. What a subquery cannot contain is refused here, with a clearer message than the
database's error number. The text is the user's own: the checks find mistakes and are not a defence against attacks.
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
    """Patterns that split a database's SQL into comments, quoted text and the rest.

    Attributes
    ----------
    comment, quoted, opening
        Patterns for a comment, for quoted text, and for the characters that open a comment.
    limits
        A pattern for the clauses that limit the number of rows. They are refused outside of nested subqueries, which
        may need them, as for the last price of each item.
    gaps
        A pattern for clauses that skip rows at random or rows locked by others. They are refused in subqueries as well.
    orders_within
        Whether the database accepts ORDER BY and WITH in a subquery.
    """

    comment: str = r"--[^\n]*|/\*.*?\*/"
    quoted: str = r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`"""
    opening: str = r"/\*"
    limits: str = ""
    gaps: str = r"\bfor\b[^()]*\bskip locked\b"
    orders_within: bool = True

    @cached_property
    def pieces(self) -> re.Pattern[str]:
        """A pattern that matches each piece of a text in turn: a comment, quoted text, an open quote, or the rest."""
        groups = f"(?P<comment>{self.comment})|(?P<quoted>{self.quoted})|(?P<open>{self.opening}|['\"`])"
        return re.compile(rf"{groups}|(?P<bare>[^'\"`$/#\[\-]+|.)", re.DOTALL)

    def prepared(self, text: str) -> str:
        """Return a text with its operators ``?`` doubled, because a driver would take a single one for a parameter."""
        found = self.pieces.finditer(text)
        return "".join(one[0].replace("?", "??") if one.lastgroup == "bare" else one[0] for one in found)

    def has_double_quotes(self, text: str) -> bool:
        """Return whether a text has a string in double quotes outside of other quotes and comments."""
        return any(found["quoted"] and found[0].startswith('"') for found in self.pieces.finditer(text))

    def bare(self, text: str) -> str:
        """Return a text on one line, without its comments and quoted parts."""
        found = (one[0] if one.lastgroup == "bare" else " " for one in self.pieces.finditer(text))
        return re.sub(r"\s+", " ", "".join(found))

    def check_limits(self, what: str, bare: str, source: str) -> None:
        """Raise SourceError if a text without comments and quotes limits or skips rows, or has unbalanced brackets."""
        top = _outside_of_brackets(bare, source)
        if re.search(self.limits, top, re.IGNORECASE) or re.search(self.gaps, bare, re.IGNORECASE):
            raise SourceError(
                source,
                f"{what} takes a number of rows only (LIMIT, OFFSET, FETCH, TOP, TABLESAMPLE, SAMPLE, ROWNUM, SKIP "
                "LOCKED or READPAST). Which they are changes from one question to the next, and rows would be lost. "
                "Leave it out; max_rows= reads in batches.",
            )


def _clause(word: str) -> str:
    """Return a pattern for a clause such as LIMIT 5. It matches neither a name such as t.limit, nor LIMIT ALL."""
    return rf"(?<![.\w$@])(?<!\bas ){word}\b(?! ?(?:all|null)\b)"


_FETCH = r"\bfetch (?:first|next)\b"
_OFFSET_ROWS = r"\boffset\b[^,=<>]*?\brows? ?(?:$|\bfetch\b)"
"""OFFSET as a clause, for databases in which a column may be called OFFSET."""
_READPAST = r"\bwith ?\((?:[^()]|\([^()]*\))*\breadpast\b|\( ?readpast ?\)"
"""The table hint READPAST, also in its old form without WITH."""
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
    # MySQL and MariaDB run the text of comments that begin with /*! or /*M!, so these are not comments here.
    comment=r"--(?=\s|$)[^\n]*|\#[^\n]*|/\*(?!M?!).*?\*/",
    quoted=r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`""",
    opening=r"/\*(?!M?!)",
    limits=f"{_clause('limit')}|{STANDARD.limits}",
)
_ORDER = re.compile(r"\border\s+by\b", re.IGNORECASE)
DIGITS = 16
"""Hex digits of a digest: 64 bits, enough that a changed query never has the digest of the former one."""


class QueryText:
    r"""One query, checked to be a single SELECT that can be a subquery.

    Parameters
    ----------
    text
        A SELECT, or WITH and a SELECT.
    grammar
        The grammar of its database.
    source
        The name of the source, for messages.

    Raises
    ------
    SourceError
        The text is not a single SELECT, or has a clause that can return other rows each time it runs.

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
        # Ignore comments and line breaks in the digest, but not quoted text: a change there makes it another query.
        words = "".join(piece if is_quoted else re.sub(r"\s+", " ", piece) for is_quoted, piece in pieces)
        self.digest = hashlib.sha256(words.strip().encode()).hexdigest()[:DIGITS]

    @property
    def relation(self) -> SQL:
        """The query in brackets, as it can follow FROM; an alias must follow it."""
        # Write the query on lines of its own, because a comment at its end would hide the closing bracket.
        return sql("(\n{}\n)", self.text)


def _pieces(text: str, grammar: Grammar, source: str) -> list[tuple[bool, str]]:
    """Return the text as runs of quoted and unquoted text, each with whether it is quoted; comments become spaces."""
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
    """Return the text with everything in brackets blanked out; raise SourceError if brackets do not match."""
    depth, top = 0, []
    for letter in bare:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            break
        top.append(letter if not depth else " ")
    if depth:
        raise SourceError(source, "the brackets in query= or where= do not match. Fix them.")
    return "".join(top)
