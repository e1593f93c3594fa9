"""What is asked about one table or query, written in the SQL of its database. Pure."""

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
"""The ranges of a window that is not cut: one, without a filter of its own."""


@dataclass(frozen=True)
class TextColumn:
    """A column whose rows are read as exact text, called `hidden` on the way, and cast to a type of Spark, its `kind`.

    `hidden` is a name that no column has, and `written` the expression for the text in the database's SQL. Unless it
    `is_whole`, it is NULL for values that are read as they are.
    """

    name: str
    hidden: str
    written: SQL
    kind: str
    is_whole: bool = True


class TableQueries:
    """The questions about one table or query, and how its rows are selected.

    Parameters
    ----------
    database
        How SQL is written there.
    table
        What follows FROM: the table's name, quoted, or a query in brackets.
    catalogue
        Its columns, by name.
    where
        A condition in the database's SQL that every row meets; none, or an empty one, for all rows.
    selected
        The columns that are read beside the cursors; None for all.
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
        self.dialect = database.of_table({name: column.declared for name, column in catalogue.items()})
        # Of filtered rows a star has system columns, too, whose types Spark does not know.
        self._star_is_plain = not (where and self.dialect.system_columns)
        self.table = filtered(table, where, [database.quote(name) for name in database.system_columns])
        """What rows are asked from: the table by its name, or its filtered rows as a table without a name."""

    # --- columns --------------------------------------------------------------------------------

    def column(self, name: str, strings: bool) -> CursorColumn:
        """Return a cursor column; CursorError for one that is missing or has no exact order."""
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
        """Tell whether an index serves a cursor column; None of a view, where nobody knows."""
        indexed = self.catalogue[column.name].indexed
        return None if indexed is None else indexed and self.dialect.serves(column)

    def as_text(self, cursors: Sequence[CursorColumn]) -> list[TextColumn]:
        """Return the columns that are read as exact text, since a driver may shift or refuse their values."""
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
            # ``t.*`` leaves out system columns. One that is the cursor is selected by itself.
            if cursor.name in self.dialect.system_columns:
                written[cursor.name] = (self.dialect.exact(self.dialect.cursor(cursor), cursor.type), cursor.type)
        prefix = self._unused_prefix()
        return [
            TextColumn(name, f"{prefix}{at}", text, kind, kind not in self.dialect.corrected_kinds)
            for at, (name, (text, kind)) in enumerate(written.items())
        ]

    def types_for_spark(self) -> dict[str, str]:
        """Return the option of Spark's reader with the types of columns for which it would choose others."""
        kinds = {name: self.dialect.spark_type(column.declared) for name, column in self.catalogue.items()}
        given = [sql("{} {}", SPARK.quote(name), SPARK.type_name(kind)) for name, kind in kinds.items() if kind]
        return {"customSchema": str(joined(", ", given))} if given else {}

    def _unused_prefix(self) -> str:
        # Whatever the case of letters, as Spark compares names without it: a hidden text would hide a column.
        prefix = "text_"
        while any(name.lower().startswith(prefix) for name in self.catalogue):
            prefix += "_"
        return prefix

    # --- questions ------------------------------------------------------------------------------

    def nulls(self, columns: tuple[CursorColumn, ...]) -> SQL:
        """Write the count of rows with NULL, or what stands for it, in a cursor column; 0 where the table allows none.

        Where it allows none, no row is read for the count.
        """
        lacking = [
            column for column in columns if self.catalogue[column.name].nullable or self.dialect.has_void(column)
        ]
        if not lacking:
            return sql("0")
        predicate = RowWindow(tuple(lacking), None, None).null_predicate(self.dialect)
        return sql("(SELECT COUNT(*) FROM {} t WHERE {})", self.table, predicate)

    def other_uuids(self, columns: tuple[CursorColumn, ...], past: SQL | None) -> SQL:
        """Write the count of rows whose UUID is of another version than 7; 0 of other columns, -1 where none sorts."""
        first = columns[0]
        if not first.is_uuid:
            return sql("0")
        conditions = [sql("{} <> '7'", self.dialect.uuid_version(first)), *([past] if past else [])]
        count = sql("(SELECT COUNT(*) FROM {} t WHERE {})", self.table, joined(" AND ", conditions))
        # Of bytes the order is always theirs.
        if first.type != "uuid" or not self.dialect.sorts_uuids:
            return count
        return sql("CASE WHEN {} THEN {} ELSE -1 END", self.dialect.sorts_uuids, count)

    def widths(self, column: CursorColumn, past: SQL | None) -> list[SQL]:
        """Write the lengths of the shortest and the longest text of a column; nothing of another type."""
        if column.type != "string":
            return []
        rows = sql("FROM {} t WHERE {}", self.table, past or self.dialect.has(column))
        length = sql("{}({})", self.dialect.length, self.dialect.quote(column.name))
        return [sql("(SELECT {}({}) {})", function, length, rows) for function in (MIN, MAX)]

    def last(self, columns: tuple[CursorColumn, ...], past: SQL | None, function: SQL) -> list[SQL]:
        """Write the last cursor there is, column by column; each query is one step into an index.

        The second column is asked for among the rows that have the last value of the first, and so on: MAX of each
        by itself would be a row that is not there, and an ORDER BY over all of them a sort where no index holds all.
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
        """Write the query for the cursor of one row of a window, counted from 0 in the order of reading."""
        return self.dialect.some_rows(1, self._ordered(window, window.descending, "cursor"), position)

    def _ordered(self, window: RowWindow, descending: bool, names: str, contents: Iterable[SQL] = ()) -> SQL:
        """Write the query for the cursors of a window and other texts, as exact texts under numbered names."""
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
        """Write the exact texts of the columns beside the cursors, by name; of those that have one."""
        found = {}
        for name, column in self.catalogue.items():
            kind, tick = self.dialect.cursor_type(column.declared) or (None, None)
            beside = name not in {cursor.name for cursor in cursors} and name not in self.dialect.system_columns
            if kind is not None and beside and (self._selected is None or name in self._selected):
                found[name] = self.dialect.exact(self.dialect.cursor(CursorColumn(name, kind, tick)), kind)
        return found

    def newest(self, window: RowWindow, most: int, contents: Mapping[str, SQL]) -> SQL:
        """Write the query for the last rows of a window, the last one first: cursors, then contents."""
        return self.dialect.some_rows(most, self._ordered(window, not window.descending, "text", contents.values()))

    # --- rows -----------------------------------------------------------------------------------

    def relation(self, window: RowWindow, texts: Sequence[TextColumn]) -> SQL:
        """Write the rows of a window as a table that Spark can read from, with the exact texts beside the columns."""
        selected = self._plain_columns([column.name for column in window.columns])
        for text in texts:
            selected.append(sql("{} AS {}", text.written, self.dialect.quote(text.hidden)))
        predicate = window.predicate(self.dialect)
        return sql("(SELECT {} FROM {} t WHERE {}) window_rows", joined(", ", selected), self.table, predicate)

    def rows_as(self, window: RowWindow, written: Mapping[str, SQL], within: SQL) -> SQL:
        """Write the query for the rows of a window within a range, each column as it is written for its name."""
        selected = (sql("{} AS {}", text, self.dialect.quote(name)) for name, text in written.items())
        predicate = window.predicate(self.dialect)
        predicate = sql("({}) AND ({})", predicate, within) if within else predicate
        return sql("SELECT {} FROM {} t WHERE {}", joined(", ", selected), self.table, predicate)

    def wanted(self, cursors: Sequence[str]) -> list[str]:
        """Return the columns to read, in their order: every one, or those asked for and the cursors."""
        chosen = {*(self.catalogue if self._selected is None else self._selected), *cursors}
        return [name for name in self.catalogue if name in chosen and name not in self.dialect.system_columns]

    def _plain_columns(self, cursors: Sequence[str]) -> list[SQL]:
        """Write what is selected as it stands: every column, or those asked for and the cursors."""
        if self._selected is None and self._star_is_plain:
            return [sql("t.*")]
        return [sql("t.{}", self.dialect.quote(name)) for name in self.wanted(cursors)]

    def ranges(self, column: CursorColumn, cuts: Sequence[Cursor], *, with_nulls: bool) -> list[SQL]:
        """Write the filters of the ranges between cuts; together they take every row, and each row once.

        The outer two have no end of their own, so rows past the smallest and largest value of a moment ago are in
        one of them. NULL is neither below nor above a cut: such rows go with the lowest.
        """
        if not cuts:
            return ONE_QUERY
        below = [self.dialect.comparison(column, "<", cut) for cut in cuts]
        above = [self.dialect.comparison(column, ">=", cut) for cut in cuts]
        lowest = sql("({} OR {} IS NULL)", below[0], self.dialect.quote(column.name)) if with_nulls else below[0]
        inner = [sql("{} AND {}", low, high) for low, high in zip(above[:-1], below[1:], strict=True)]
        return [lowest, *inner, above[-1]]


def filtered(table: SQL, where: SQL | None, system_columns: Sequence[SQL]) -> SQL:
    """Write a table, or its rows that meet a condition, as what may follow FROM; the latter needs a name after it."""
    if not where:
        return table
    # A query needs a name; a table keeps its own, which the condition may use.
    if table.startswith("("):
        table = sql("{} query_rows", table)
    # A star leaves out system columns, and outside of these brackets nobody could ask for them.
    return sql("(SELECT {} FROM {} WHERE {})", joined(", ", [sql("*"), *system_columns]), table, where)


def shown_columns(names: Sequence[str], texts: Sequence[TextColumn], *, has_wall_clocks: bool) -> Iterator[SQL]:
    """Yield what Spark selects of the columns that it has read: the texts cast, under the names of their columns.

    Parameters
    ----------
    names
        The columns as they were read, hidden ones among them.
    texts
        Those that were read as text.
    has_wall_clocks
        This Spark has TIMESTAMP_NTZ; before 3.4 a column without zone is a timestamp of the session.
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
        yield sql("{} AS {}", _checked(cast, found, text) if kind.startswith("decimal") else cast, quoted)


def _checked(cast: SQL, text: SQL, column: TextColumn) -> SQL:
    """Write a cast of a text to a decimal; an error for one that has more digits."""
    precision, scale = decimal_type(column.kind)
    fits = sql("{} RLIKE '^-?0*[0-9]{{0,{}}}([.][0-9]{{0,{}}}0*)?$'", text, whole(precision - scale), whole(scale))
    error = SPARK.text(f"column {column.name!r} has a number that does not fit {column.kind}")
    return sql("CASE WHEN {0} IS NULL OR {1} THEN {2} ELSE raise_error({3}) END", text, fits, cast, error)
