"""Write the SQL that examines and reads one table, or a query in its place, in the dialect of its database. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from scripts.helpers.errors import CursorError, SourceError
from scripts.helpers.rows.cursors import Cursor, CursorColumn, decimal_type, missing_column, unordered
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.sql import SQL, joined, sql, whole
from scripts.helpers.rows.window import RowWindow
from scripts.helpers.sql.database import MAX, MIN, NO_DECIMAL, TIME, Database, TableColumn

ONE_QUERY = [sql("")]
"""The ranges of a window that is not split: a single one, without an additional filter."""


@dataclass(frozen=True)
class TextColumn:
    """A column that is read as exact text under the name `hidden`, and then cast to the Spark type `kind`.

    `hidden` is a name that no column has. `written` is the expression for the text in the database's SQL. If
    `is_whole` is False, the text is NULL for values that the driver returns unchanged.
    """

    name: str
    hidden: str
    written: SQL
    kind: str
    is_whole: bool = True


class TableQueries:
    """Writes the SQL that examines a table (or a query in its place), and the SQL that reads its rows.

    Parameters
    ----------
    database
        Writes SQL in the database's dialect.
    table
        The text after FROM: the quoted name of the table, or a query in parentheses.
    catalogue
        The columns of the table, by name.
    where
        A condition in the database's SQL that every row must meet; None or empty for all rows.
    selected
        The columns to read in addition to the cursors; None for all.
    """

    def __init__(
        self,
        database: Database,
        table: SQL,
        catalogue: Mapping[str, TableColumn],
        where: SQL | None = None,
        selected: Sequence[str] | None = None,
    ) -> None:
        self.catalogue, self._selected = catalogue, selected
        self.dialect = database.for_table({name: column.declared for name, column in catalogue.items()})
        # With a filter, ``t.*`` would include system columns, whose types Spark lacks, so select columns by name.
        self._star_is_plain = not (where and self.dialect.system_columns)
        self.table = filtered(table, where, [database.quote(name) for name in database.system_columns])
        """The text to select from: the name of the table, or a subquery with its filtered rows and no alias."""

    # --- columns --------------------------------------------------------------------------------

    def column(self, name: str, strings: bool) -> CursorColumn:
        """Return a cursor column; CursorError if it is missing or has no exact order."""
        if name not in self.catalogue:
            raise missing_column(name, self.catalogue)
        declared = self.catalogue[name].declared
        if declared in self.dialect.unfit:
            raise CursorError(name, f"{self.dialect.unfit[declared]}. Use a time column, or an integer that rises.")
        kind, tick = self.dialect.cursor_type(declared) or (None, None)
        if kind is None or (kind == "string" and not strings):
            raise unordered(name, declared or "column without a declared type", as_text=kind is not None)
        return CursorColumn(name, kind, tick)

    def has_index(self, column: CursorColumn) -> bool | None:
        """Return whether an index serves a cursor column; None for a view, where this is unknown."""
        indexed = self.catalogue[column.name].indexed
        return None if indexed is None else indexed and self.dialect.serves(column)

    def as_text(self, cursors: Sequence[CursorColumn]) -> list[TextColumn]:
        """Return the columns to read as exact text, because a driver may shift or refuse their values."""
        written: dict[str, tuple[SQL, str]] = {}
        wanted = self.catalogue if self._selected is None else {*self._selected, *(cursor.name for cursor in cursors)}
        for name, column in self.catalogue.items():
            kind = self.dialect.read_as_text(column.declared)
            if kind is not None and name in wanted:
                if kind == NO_DECIMAL:
                    raise SourceError(
                        self.dialect.name,
                        f"column {name!r} is a {column.declared}, and Spark has no decimal of such a scale. Leave it "
                        "out with columns=, or read it through a view that casts it.",
                    )
                written[name] = (self.dialect.corrected(sql("t.{}", self.dialect.quote(name)), kind, name), kind)
        for cursor in cursors:
            # ``t.*`` leaves out system columns, so select a cursor separately if it is a system column.
            if cursor.name in self.dialect.system_columns:
                written[cursor.name] = (self.dialect.exact(self.dialect.cursor(cursor), cursor.type), cursor.type)
        prefix = self._unused_prefix()
        return [
            TextColumn(name, f"{prefix}{at}", text, kind, kind not in self.dialect.corrected_kinds)
            for at, (name, (text, kind)) in enumerate(written.items())
        ]

    def types_for_spark(self) -> dict[str, str]:
        """Return Spark's option customSchema for the columns for which Spark would choose a wrong type."""
        kinds = {name: self.dialect.spark_type(column.declared) for name, column in self.catalogue.items()}
        given = [sql("{} {}", SPARK.quote(name), SPARK.type_name(kind)) for name, kind in kinds.items() if kind]
        return {"customSchema": str(joined(", ", given))} if given else {}

    def _unused_prefix(self) -> str:
        # The query adds columns of text. Their names must differ from all others even for Spark, which ignores case.
        prefix = "text_"
        while any(name.lower().startswith(prefix) for name in self.catalogue):
            prefix += "_"
        return prefix

    # --- questions ------------------------------------------------------------------------------

    def nulls(self, columns: tuple[CursorColumn, ...]) -> SQL:
        """Write SQL that counts rows with NULL, or a placeholder such as MySQL's zero date, in a cursor column.

        If no cursor column can have such a value, write the number 0, for which no row is read.
        """
        lacking = [
            column for column in columns if self.catalogue[column.name].nullable or self.dialect.has_void(column)
        ]
        if not lacking:
            return sql("0")
        predicate = RowWindow(tuple(lacking), None, None).null_predicate(self.dialect)
        return sql("(SELECT COUNT(*) FROM {} t WHERE {})", self.table, predicate)

    def other_uuids(self, columns: tuple[CursorColumn, ...], past: SQL | None) -> SQL:
        """Return SQL that counts UUIDs not of version 7: 0 for other types, -1 if the server cannot sort them."""
        first = columns[0]
        if not first.is_uuid:
            return sql("0")
        conditions = [sql("{} <> '7'", self.dialect.uuid_version(first)), *([past] if past else [])]
        count = sql("(SELECT COUNT(*) FROM {} t WHERE {})", self.table, joined(" AND ", conditions))
        # Check that the server sorts values of the type uuid by their bytes, as every server sorts columns of bytes.
        if first.type != "uuid" or not self.dialect.sorts_uuids:
            return count
        return sql("CASE WHEN {} THEN {} ELSE -1 END", self.dialect.sorts_uuids, count)

    def widths(self, column: CursorColumn, past: SQL | None) -> list[SQL]:
        """Write queries for the lengths of the shortest and the longest text in a column; [] for other types."""
        if column.type != "string":
            return []
        rows = sql("FROM {} t WHERE {}", self.table, past or self.dialect.has(column))
        length = sql("{}({})", self.dialect.length, self.dialect.quote(column.name))
        return [sql("(SELECT {}({}) {})", function, length, rows) for function in (MIN, MAX)]

    def last(self, columns: tuple[CursorColumn, ...], past: SQL | None, function: SQL) -> list[SQL]:
        """Write a query for each cursor column of the last row; each query is a single index lookup.

        The second column is queried among the rows with the last value of the first column, and so on. A MAX of each
        column alone would mix different rows, and an ORDER BY would need a sort if no index covers all columns.
        """
        filters = [] if past is None else [past]
        filters += map(self.dialect.has, columns[1:])
        found = []
        for column in columns:
            name = self.dialect.cursor(column)
            source = sql("FROM {} t", self.table)
            if filters:
                source = sql("{} WHERE {}", source, joined(" AND ", filters))
            found.append(self.dialect.outermost(column, function, source))
            filters = [*filters, sql("{0} = (SELECT {1}({0}) {2})", name, function, source)]
        return found

    def cursor_at(self, window: RowWindow, position: int) -> SQL:
        """Write the query for the cursor of the row at a position in a window, counted from 0 in reading order."""
        return self.dialect.some_rows(1, self._ordered(window, window.descending, "cursor"), position)

    def _ordered(self, window: RowWindow, descending: bool, names: str, contents: Iterable[SQL] = ()) -> SQL:
        """Write a window's query: columns ``<names>_0``, … are the cursors' exact texts, then the other `contents`."""
        cursors = [self.dialect.cursor(column) for column in window.columns]
        exact = [self.dialect.exact(name, column.type) for name, column in zip(cursors, window.columns, strict=True)]
        named = [
            sql("{} AS {}", text, self.dialect.quote(f"{names}_{at}")) for at, text in enumerate([*exact, *contents])
        ]
        keys = [sql("{} DESC" if descending else "{} ASC", name) for name in cursors]
        return sql(
            "SELECT {} FROM {} t WHERE {} ORDER BY {}",
            joined(", ", named), self.table, window.predicate(self.dialect), joined(", ", keys),
        )  # fmt: skip

    def contents(self, cursors: Sequence[CursorColumn]) -> dict[str, SQL]:
        """Write the exact text of each column other than the cursors, by name; skip columns without an exact text."""
        found = {}
        for name, column in self.catalogue.items():
            kind, tick = self.dialect.cursor_type(column.declared) or (None, None)
            beside = name not in {cursor.name for cursor in cursors} and name not in self.dialect.system_columns
            if kind is not None and beside and (self._selected is None or name in self._selected):
                found[name] = self.dialect.exact(self.dialect.cursor(CursorColumn(name, kind, tick)), kind)
        return found

    def newest(self, window: RowWindow, most: int, contents: Mapping[str, SQL]) -> SQL:
        """Write the query for the last rows of a window in reverse order: their cursors, then `contents`."""
        return self.dialect.some_rows(most, self._ordered(window, not window.descending, "text", contents.values()))

    # --- rows -----------------------------------------------------------------------------------

    def relation(self, window: RowWindow, texts: Sequence[TextColumn]) -> SQL:
        """Write the subquery from which Spark reads a window: its rows, with the columns `texts` also as exact text."""
        selected = self._plain_columns([column.name for column in window.columns])
        for text in texts:
            selected.append(sql("{} AS {}", text.written, self.dialect.quote(text.hidden)))
        predicate = window.predicate(self.dialect)
        return sql("(SELECT {} FROM {} t WHERE {}) window_rows", joined(", ", selected), self.table, predicate)

    def rows_as(self, window: RowWindow, written: Mapping[str, SQL], within: SQL) -> SQL:
        """Write the query for rows of a window that meet `within`; `written` has the expression of each column."""
        selected = (sql("{} AS {}", text, self.dialect.quote(name)) for name, text in written.items())
        predicate = window.predicate(self.dialect)
        predicate = sql("({}) AND ({})", predicate, within) if within else predicate
        return sql("SELECT {} FROM {} t WHERE {}", joined(", ", selected), self.table, predicate)

    def wanted(self, cursors: Sequence[str]) -> list[str]:
        """Return the columns to read, in table order: all columns, or the selected ones and the cursors."""
        chosen = {*(self.catalogue if self._selected is None else self._selected), *cursors}
        return [name for name in self.catalogue if name in chosen and name not in self.dialect.system_columns]

    def _plain_columns(self, cursors: Sequence[str]) -> list[SQL]:
        """Write the columns that are selected unchanged: all columns, or the selected ones and the cursors."""
        if self._selected is None and self._star_is_plain:
            return [sql("t.*")]
        return [sql("t.{}", self.dialect.quote(name)) for name in self.wanted(cursors)]

    def ranges(self, column: CursorColumn, cuts: Sequence[Cursor], *, with_nulls: bool) -> list[SQL]:
        """Write the filters for the ranges between cuts. Together they select every row exactly once.

        The first range has no lower end and the last no upper end, so they include rows beyond the smallest and the
        largest value that were just measured. NULL is neither below nor above a cut: such rows are in the first range.
        """
        if not cuts:
            return ONE_QUERY
        below = [self.dialect.comparison(column, "<", cut) for cut in cuts]
        above = [self.dialect.comparison(column, ">=", cut) for cut in cuts]
        lowest = sql("({} OR {} IS NULL)", below[0], self.dialect.quote(column.name)) if with_nulls else below[0]
        inner = [sql("{} AND {}", low, high) for low, high in zip(above[:-1], below[1:], strict=True)]
        return [lowest, *inner, above[-1]]


def filtered(table: SQL, where: SQL | None, system_columns: Sequence[SQL]) -> SQL:
    """Write the text after FROM for a table, or for its rows that meet a condition, as a subquery without alias."""
    if not where:
        return table
    # Give a subquery the alias that it needs. A table keeps its name, which the condition may use.
    if table.startswith("("):
        table = sql("{} query_rows", table)
    # Name the system columns, which a star leaves out: a query around this one could not select them otherwise.
    return sql("(SELECT {} FROM {} WHERE {})", joined(", ", [sql("*"), *system_columns]), table, where)


def shown_columns(names: Sequence[str], texts: Sequence[TextColumn], *, has_wall_clocks: bool) -> Iterator[SQL]:
    """Yield the columns that Spark selects after the read: a column read as text is cast, and gets its own name again.

    Parameters
    ----------
    names
        The columns that were read, including hidden ones.
    texts
        The columns that were read as text.
    has_wall_clocks
        Whether this Spark has TIMESTAMP_NTZ. Before 3.4, a column without zone becomes a timestamp of the session.
    """
    by_name = {text.name: text for text in texts}
    hidden = {text.hidden for text in texts}
    there = [name for name in names if name not in hidden]
    beside = [text.name for text in texts if text.name not in there]
    for name in [*there, *beside]:
        quoted = SPARK.quote(name)
        text = by_name.get(name)
        if text is None:
            yield quoted
            continue
        kind = "timestamp" if text.kind == "timestamp_ntz" and not has_wall_clocks else text.kind
        found = SPARK.quote(text.hidden)
        cast = found if kind == TIME else sql("CAST({} AS {})", found, SPARK.type_name(kind))
        if not text.is_whole:
            cast = sql("COALESCE({}, {})", cast, quoted)
        if kind.startswith("decimal"):
            cast = _checked(cast, found, text)
        elif kind.startswith(("date", "timestamp")):
            # Spark casts a date such as 1975-06-00, which MySQL can store, to NULL.
            error = SPARK.text(f"column {name!r} has a time that does not fit {kind} (with month and day)")
            cast = sql("COALESCE({}, IF({} IS NULL, NULL, raise_error({})))", cast, found, error)
        yield sql("{} AS {}", cast, quoted)


def _checked(cast: SQL, text: SQL, column: TextColumn) -> SQL:
    """Write a cast of a text to a decimal, with an error if the text has too many digits."""
    precision, scale = decimal_type(column.kind)
    fits = sql("{} RLIKE '^-?0*[0-9]{{0,{}}}([.][0-9]{{0,{}}}0*)?$'", text, whole(precision - scale), whole(scale))
    error = SPARK.text(f"column {column.name!r} has a number that does not fit {column.kind}")
    return sql("CASE WHEN {0} IS NULL OR {1} THEN {2} ELSE raise_error({3}) END", text, fits, cast, error)
