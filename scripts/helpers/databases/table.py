"""A table of a database as a source of rows, read by Spark's JDBC with the window inside the query."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dateutil.parser import isoparse

from scripts.helpers.databases.connection import ask, typed_errors
from scripts.helpers.databases.dialects import (
    CATALOGUE,
    Database,
    MariaDB,
    MySQL,
    Oracle,
    PostgreSQL,
    SQLite,
    SQLServer,
)
from scripts.helpers.errors import SourceError
from scripts.helpers.rows.cursors import Bound, Cursor, CursorColumn, missing_column, unordered
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.slicing import slices
from scripts.helpers.rows.sources import Facts, named_zone
from scripts.helpers.rows.window import RowWindow, check_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

DATABASES: dict[str, Database] = {
    "jdbc:postgresql:": PostgreSQL(),
    "jdbc:mysql:": MySQL(),
    "jdbc:mariadb:": MariaDB(),
    "jdbc:sqlserver:": SQLServer(),
    "jdbc:oracle:": Oracle(),
    "jdbc:sqlite:": SQLite(),
}
MANY = 100_000
"""A window of more rows is read by several queries; a smaller one costs less in one."""
PER_CORE, MAX_PARTITIONS = 2, 128
"""Ranges are of equal width, not of equal count: more of them even out skew, and cost each an index scan of its own."""
FETCH_SIZE = 10_000
"""Rows that a driver takes at a time; some take all at once unless told."""


@dataclass(frozen=True)
class TableColumn:
    """What the catalogue says of a column; `indexed` is None for a view."""

    declared: str
    indexed: bool | None
    nullable: bool


class JdbcTable:
    """A table or view, read by a cursor column.

    Planning is one query, for the source's clock, the largest cursor and the count of NULLs.
    A window is read by one query, or by several side by side if it has more than `MANY` rows. Each
    query sees the data of its own moment: a row that is updated meanwhile is in the next window,
    as its cursor moves past this one. Plan, read and replay are connections of their own: they must
    reach one server, never an endpoint with several replicas behind it.

    Parameters
    ----------
    spark
        The session; the driver's jar is on its class path.
    url
        Such as ``jdbc:postgresql://host:5432/database``. Never shown anywhere.
    table
        ``table`` or ``schema.table``, or its parts in a list if one holds a dot. Each is quoted.
    properties
        Of the connection, such as ``user`` and ``password``; options of Spark's reader as well.
    partitions
        Ranges that a large window is cut into, and so connections at a time, up to the number of
        cores. By default two for each core; 1 for a single query. Give more where a few rows
        lie far from the others, such as at a stamp of 1970.
    zone
        Zone whose wall clock the columns without zone are stamped with.

    Notes
    -----
    Given to a job as ``job.rows_since(JdbcTable(spark, url, "public.repairs", properties=login), "last_modified")``,
    with ``login = {"user": user, "password": password}``.
    """

    def __init__(
        self,
        spark: SparkSession,
        url: str,
        table: str | Sequence[str],
        *,
        properties: Mapping[str, str] | None = None,
        partitions: int | None = None,
        zone: str = "UTC",
    ) -> None:
        self._database = database_of(url)
        parts = table.split(".") if isinstance(table, str) else list(table)
        self.name = f"{self._database.name} table {'.'.join(parts)}"
        if not all(parts) or not parts or "\0" in self.name:
            raise SourceError(self.name, "its name has an empty part. Give 'table' or 'schema.table'.")
        if partitions is not None and (type(partitions) is not int or not 1 <= partitions <= 10_000):
            raise SourceError(self.name, f"partitions={partitions!r}; it must be a whole number from 1 to 10,000.")
        self._spark, self._parts, self._partitions, self._zone = spark, parts, partitions, named_zone(zone, self.name)
        self._options = {
            "driver": self._database.driver,
            "fetchsize": str(FETCH_SIZE),
            **self._database.options,
            **(properties or {}),
            "url": url,
        }
        if self._database.session:
            if "sessioninitstatement" in map(str.lower, self._options):
                raise SourceError(
                    self.name,
                    "sessionInitStatement is taken: it sets each session to UTC. Give settings in the URL, as "
                    "sessionVariables.",
                )
            self._options["sessionInitStatement"] = self._database.session

    def __repr__(self) -> str:
        """Show the table, and nothing of the connection."""
        return f"{type(self).__name__}({self.name!r})"

    # --- a source of rows -----------------------------------------------------------------------

    def columns(self, names: Sequence[str], strings: bool) -> tuple[CursorColumn, ...]:
        """Return the cursor columns; CursorError for one that is missing or has no exact order."""
        self._forget()
        return tuple(self._column(name, strings) for name in names)

    def facts(self, columns: tuple[CursorColumn, ...], low: Bound | None, descending: bool) -> Facts:
        """Ask the database, in one query, for its clock, the last cursor value at `low` or past it, and NULLs."""
        self._warn_without_index(columns)
        probe = RowWindow(columns, low, None, descending=descending)
        past = [] if low is None else [f"({probe.at_or_past(low, self.dialect)})"]
        last = self._last(columns, past, "MIN" if descending else "MAX")
        expressions = {f"last_{position}": expression for position, expression in enumerate(last)}
        row = self._ask(now=self.dialect.now, nulls=self._nulls(columns), **expressions)
        found = None
        if row[2] is not None:
            found = tuple(self.dialect.value(text, column) for column, text in zip(columns, row[2:], strict=True))
        now = isoparse(row[0].replace(" ", "T", 1)).astimezone(self._zone)
        return Facts(now, None if descending else found, found if descending else None, int(row[1]))

    def rows(self, window: RowWindow) -> DataFrame:
        """Return the rows of a window; CursorError if a column is gone or not of the type it was planned with."""
        self._forget()
        columns = tuple(self._column(column.name, strings=True) for column in window.columns)
        check_types(columns, [column.type for column in window.columns])
        ranges = self._ranges(window)
        texts = self._as_text(columns)
        hidden = self._hidden(len(texts))
        shown = [
            f"{text} AS {self.dialect.quote(name)}" for name, (text, _) in zip(hidden, texts.values(), strict=True)
        ]
        predicate = window.predicate(self.dialect)
        relation = f"(SELECT {', '.join(['t.*', *shown])} FROM {self._table} t WHERE {predicate}) window_rows"
        with self.typed_errors():
            if len(ranges) == 1:
                found = self._spark.read.format("jdbc").options(**self._options, dbtable=relation).load()
            else:
                options = dict(self._options)
                found = self._spark.read.jdbc(options.pop("url"), relation, predicates=ranges, properties=options)
        self._check_names(found)
        casts = dict(zip(texts, zip(hidden, (kind for _, kind in texts.values()), strict=True), strict=True))
        names = [name for name in found.columns if name not in hidden]
        return found.selectExpr(*(self._shown(name, casts) for name in [*names, *(set(casts) - set(names))]))

    def typed_errors(self) -> AbstractContextManager[None]:
        """Return what lets the database's errors come out as SourceError, without the driver's text."""
        return typed_errors(self.name)

    def toDF(self) -> DataFrame:  # noqa: N802
        """Return all rows as Spark's own reader shows them, as `missing_keys` needs: only the columns that are used."""
        with self.typed_errors():
            found = self._spark.read.format("jdbc").options(**self._options, dbtable=self._table).load()
        self._check_names(found)
        return found

    # --- within ---------------------------------------------------------------------------------

    @cached_property
    def dialect(self) -> Database:
        """How SQL is written for the table."""
        return self._database.of_table({name: column.declared for name, column in self._catalogue.items()})

    def _forget(self) -> None:
        """Ask the catalogue again at the next need: each plan sees the table as it is."""
        for name in ("_catalogue", "dialect"):
            self.__dict__.pop(name, None)

    @cached_property
    def _catalogue(self) -> dict[str, TableColumn]:
        found = {
            row[0]: TableColumn(row[1], None if row[2] is None else bool(int(row[2])), bool(int(row[3])))
            for row in self._query(self._database.catalogue(self._parts), CATALOGUE)
        }
        if not found:
            raise SourceError(
                self.name, "there is no such table, or this user may not see it. Check the name and the schema."
            )
        return found

    @property
    def _table(self) -> str:
        return self._database.table(self._parts)

    def _column(self, name: str, strings: bool) -> CursorColumn:
        if name not in self._catalogue:
            raise missing_column(name, self._catalogue)
        declared = self._catalogue[name].declared
        kind, tick = self.dialect.cursor_type(declared) or (None, None)
        if kind is None or (kind == "string" and not strings):
            raise unordered(name, declared, as_text=kind is not None)
        return CursorColumn(name, kind, tick)

    def _warn_without_index(self, columns: tuple[CursorColumn, ...]) -> None:
        first = columns[0]
        indexed = self._catalogue[first.name].indexed
        if indexed is False or (indexed and not self.dialect.serves(first)):
            logger.warning(
                "event=no_index source=%s column=%s: each run reads the whole table several times, however little is "
                "new. Add an index on it",
                self.name, first.name,
            )  # fmt: skip

    def _nulls(self, columns: tuple[CursorColumn, ...]) -> str:
        """Write the count of rows with NULL in a cursor column; 0 where the table allows none."""
        nullable = tuple(column for column in columns if self._catalogue[column.name].nullable)
        if not nullable:
            return "0"
        return (
            f"(SELECT COUNT(*) FROM {self._table} WHERE {RowWindow(nullable, None, None).null_predicate(self.dialect)})"
        )

    def _last(self, columns: tuple[CursorColumn, ...], past: list[str], function: str) -> list[str]:
        """Write the last cursor there is, column by column; each query is one step into an index."""
        filters = [*past, *(f"{self.dialect.quote(column.name)} IS NOT NULL" for column in columns[1:])]
        found = []
        for column in columns:
            name = self.dialect.cursor(column)
            source = f"FROM {self._table} WHERE {' AND '.join(filters)}" if filters else f"FROM {self._table}"
            found.append(self.dialect.outermost(column, function, source))
            filters = [*filters, f"{name} = (SELECT {function}({name}) {source})"]
        return found

    def _ranges(self, window: RowWindow) -> list[str]:
        """Cut a large window by its first column, into ranges of which the outer ones are open."""
        first = window.columns[0]
        most = self._partitions or min(MAX_PARTITIONS, PER_CORE * self._spark.sparkContext.defaultParallelism)
        if most == 1 or (window.high is None and not window.whole) or first.type == "string":
            return [""]
        predicate = window.predicate(self.dialect)
        source = f"FROM {self._table} WHERE {predicate}"
        smallest, largest, count = self._ask(
            smallest=self.dialect.outermost(first, "MIN", source),
            largest=self.dialect.outermost(first, "MAX", source),
            counted=f"({self.dialect.count_up_to(MANY + 1, self._table, predicate)})",
        )
        if int(count) <= MANY or smallest is None or smallest == largest:
            return [""]
        spans = slices(self.dialect.value(smallest, first), self.dialect.value(largest, first), most)
        cuts = [low for low, _ in spans[1:]]
        logger.info("event=parallel_read source=%s column=%s queries=%d", self.name, first.name, len(cuts) + 1)
        return self._between(first, cuts, with_nulls=window.nulls == "include")

    def _between(self, column: CursorColumn, cuts: list[Cursor], *, with_nulls: bool) -> list[str]:
        below = [self.dialect.comparison(column, "<", cut) for cut in cuts]
        above = [self.dialect.comparison(column, ">=", cut) for cut in cuts]
        if not cuts:
            return [""]
        lowest = f"({below[0]} OR {self.dialect.quote(column.name)} IS NULL)" if with_nulls else below[0]
        inner = [f"{low} AND {high}" for low, high in zip(above, below[1:], strict=False)]
        return [lowest, *inner, above[-1]]

    def _check_names(self, df: DataFrame) -> None:
        """Refuse names that would end where Spark quotes them and go on as SQL: it does not double quotes."""
        quotes = {'"', "`", self._database.quotes[1]}
        for name in df.columns:
            if quotes & set(name):
                raise SourceError(
                    self.name,
                    f"the name of its column {name!r} holds a quote, which Spark would send as SQL. Read it through a "
                    "view that names the column otherwise.",
                )

    def _as_text(self, columns: tuple[CursorColumn, ...]) -> dict[str, tuple[str, str]]:
        """Return the columns that are read as exact text: how it is written, and Spark's type of them."""
        kinds = {name: self.dialect.read_as_text(column.declared) for name, column in self._catalogue.items()}
        return {
            name: (self.dialect.exact(f"t.{self.dialect.quote(name)}", kind), kind)
            for name, kind in kinds.items()
            if kind is not None
        }

    def _hidden(self, count: int) -> list[str]:
        """Return names that no column has."""
        prefix = "text_"
        while any(name.lower().startswith(prefix) for name in self._catalogue):
            prefix += "_"
        return [f"{prefix}{number}" for number in range(count)]

    def _shown(self, name: str, casts: Mapping[str, tuple[str, str]]) -> str:
        quoted = SPARK.quote(name)
        if name not in casts:
            return quoted
        text, kind = casts[name]
        if kind == "timestamp_ntz" and self._spark.version < "3.4":
            kind = "timestamp"
        return f"CAST({SPARK.quote(text)} AS {kind}) AS {quoted}"

    def _ask(self, **expressions: str) -> Any:
        (row,) = self._query(self.dialect.as_row(**expressions), tuple(expressions))
        return row

    def _query(self, query: str, names: Sequence[str]) -> list[Any]:
        with self.typed_errors():
            return ask(self._spark, self._options, query, names)


def database_of(url: str) -> Database:
    """Return the database that a JDBC URL leads to; SourceError, without the URL, if it is none of ours."""
    for start, database in DATABASES.items():
        if url.lower().startswith(start):
            return database
    raise SourceError("JDBC", f"its URL starts with none of {', '.join(DATABASES)}. Check it.")
