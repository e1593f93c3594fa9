"""A database table as a source of rows, read by Spark's JDBC reader with the window inside the query."""

from __future__ import annotations

import logging
import re
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import Any

from dateutil.parser import isoparse

from scripts.helpers._lazy import DataFrame, SparkSession
from scripts.helpers.databases.queries import ONE_QUERY, TableQueries, shown_columns
from scripts.helpers.errors import CursorError, SourceError, SourceUnavailableError
from scripts.helpers.rows.coverage import slices
from scripts.helpers.rows.cursors import Bound, CursorColumn
from scripts.helpers.rows.identity import WHERE
from scripts.helpers.rows.sources import (
    EARLY,
    STALE,
    UNSEEN,
    Facts,
    NumberSequence,
    OpenWriter,
    OpenWriters,
    RowSource,
    SeenRow,
    named_zone,
)
from scripts.helpers.rows.sql import SQL, sql, written_by_hand
from scripts.helpers.rows.states import check_types
from scripts.helpers.rows.window import RowWindow
from scripts.helpers.spark.jvm import check_jvm
from scripts.helpers.spark.tasks import slots_of
from scripts.helpers.sql.connection import (
    Connections,
    ask,
    columns_of_query,
    jdbc_connection,
    typed_database_errors,
)
from scripts.helpers.sql.database import (
    BEGAN,
    CATALOGUE,
    IDENTITY,
    MAX,
    MIN,
    NUMBERING,
    OWN,
    WRITER,
    Database,
    TableColumn,
    columns_of_catalogue,
)
from scripts.helpers.sql.known import database_of
from scripts.helpers.sql.query_text import Grammar, QueryText

logger = logging.getLogger(__name__)

MANY = 100_000
"""A window with more rows is read by several queries. A smaller one is cheaper in one, as each opens a connection."""
PER_CORE, MAX_PARTITIONS = 2, 128
"""Ranges have equal width, not equal row counts. Two for each core even this out: a core reads a second short range
while another reads a long one. Each costs an index scan. At most 128, because a database would refuse the connections
of a cluster with many cores."""
FIRST_PAUSE, LAST_PAUSE = timedelta(milliseconds=50), timedelta(seconds=1)
"""Pauses between two queries for open transactions: short at first, as most end at once, then ever longer."""
STALE_PAUSES = (0, 0.15, 0.35, 0.75)
"""Seconds to wait before each query for a list that may be stale."""
FETCH_SIZE = 10_000
"""Rows that a driver fetches at a time. By default, PostgreSQL's and MySQL's drivers load all rows of a query into
memory at once, and Oracle's fetches 10 rows with each round trip."""


class DatabaseTable(RowSource):
    """A table, a view or a query as a source of rows: its queries and checks. Subclasses connect to the database.

    See `JdbcTable` for the parameters.
    """

    _connections: Connections
    """The connections for queries other than reading rows."""

    def __init__(
        self,
        url: str,
        table: str | Sequence[str] = (),
        *,
        query: str | None = None,
        partitions: int | None = None,
        zone: str | None = None,
        remade: bool = False,
        columns: Sequence[str] | None = None,
        where: str = "",
    ) -> None:
        self._remade = remade
        self._database = database_of(url)
        parts = table.split(".") if isinstance(table, str) else list(table or ())
        self._query_text: QueryText | None = None
        if query is None:
            self.name = f"{self._database.name} table {'.'.join(parts)}"
            if not all(parts) or not parts or "\0" in self.name:
                raise SourceError(self.name, "its name has an empty part. Give 'table' or 'schema.table'.")
        else:
            if table:
                raise SourceError(f"{self._database.name} query", "a table is named as well. Give one of the two.")
            text = QueryText(query, self._database.grammar, f"{self._database.name} query")
            self._query_text, self.name = text, f"{self._database.name} query {text.digest}"
        if partitions is not None and (type(partitions) is not int or not 1 <= partitions <= 10_000):
            raise SourceError(self.name, f"partitions={partitions!r}; it must be a whole number from 1 to 10,000.")
        # Refuse a string: Python counts 'no' as true, and a table that was created again would raise no error.
        if not isinstance(remade, bool):
            raise SourceError(self.name, f"remade={remade!r} is neither True nor False. Give one of them.")
        self._selected = _checked_columns(self.name, columns)
        self._where = _checked_where(self.name, where, self._database.grammar)
        self._parts, self._partitions = parts, partitions
        self._zone = named_zone("UTC" if zone is None else zone, self.name)
        self._zone_is_known = zone is not None
        self._options: dict[str, str] = {"url": url}

    def __repr__(self) -> str:
        """Return the name of the table, without anything about the connection."""
        return f"{type(self).__name__}({self.name!r})"

    # --- a source of rows -----------------------------------------------------------------------

    def asking(self) -> AbstractContextManager[Any]:
        return self._connections.kept()

    def columns(self, names: Sequence[str], strings: bool) -> tuple[CursorColumn, ...]:
        self._forget()
        return tuple(self._queries.column(name, strings) for name in names)

    def identity(self) -> dict[str, str]:
        """Return what identifies the table: server, database, schema and table, if the database has them.

        For a query: the server, the database and a hash of the text, which ignores spaces and comments. PostgreSQL
        adds the table's ``oid``, and the ``cluster`` if this user may read its system identifier.
        """
        found: dict[str, str | None] = {}
        if self._query_text is not None:
            found["query"] = self._query_text.digest
            if self._database.current_database:
                ask_name = self._database.as_row(found=self._database.current_database)
                ((found["database"],),) = self._query(ask_name, ["found"])
        else:
            for row in self._query(self._database.identity(self._parts), IDENTITY):
                found = dict(zip(("database", "schema", "table", "oid"), row, strict=True))
            if self._remade:
                found["oid"] = None
        if not self._remade:
            found["cluster"] = self._cluster
        if self._where:
            found[WHERE] = str(self._where)
        known = {name: value for name, value in found.items() if value is not None}
        return {**server_of(self._options["url"]), **known}

    def zone_is_known(self, now: datetime) -> bool:
        """Return whether a zone for times without one was given. `now` has no effect: the database has a clock."""
        return self._zone_is_known

    def facts(self, columns: tuple[CursorColumn, ...], low: Bound | None, descending: bool) -> Facts:
        """Find the database's clock, the last cursor value at or past `low`, and the count of NULLs by one query."""
        self._warn_without_index(columns[0])
        probe = RowWindow(columns, low, None, descending=descending)
        past = None if low is None else sql("({})", probe.at_or_past(low, self.dialect))
        last = self._queries.last(columns, past, MIN if descending else MAX)
        row = self._ask(
            now=self.dialect.now,
            nulls=self._queries.nulls(columns),
            uuids=self._queries.other_uuids(columns, past),
            **{f"last_{at}": text for at, text in enumerate([*last, *self._queries.widths(columns[0], past)])},
        )
        if int(row[2]) < 0:
            raise CursorError(
                columns[0].name,
                "this server does not sort UUIDs by their bytes, as MariaDB does from 10.11.5 on. Use a time column.",
            )
        found = self._bound(columns, row[3 : 3 + len(last)])
        return Facts(
            now=moment_of(row[0]).astimezone(self._zone),
            largest=None if descending else found,
            smallest=found if descending else None,
            nulls=int(row[1]),
            other_uuids=int(row[2]),
            widths=tuple(int(width) for width in row[3 + len(last) :] if width is not None),
        )

    def last(self, columns: tuple[CursorColumn, ...], descending: bool) -> Bound | None:
        """Query the last cursor value in the table, by a single index lookup if there is an index."""
        last = self._queries.last(columns, None, MIN if descending else MAX)
        row = self._ask(**{f"last_{position}": expression for position, expression in enumerate(last)})
        return self._bound(columns, row)

    def cursor_at(self, window: RowWindow, position: int) -> Bound | None:
        """Query the cursor of the row at a position of a window, counted from 0; None if the window has fewer rows."""
        names = [f"cursor_{at}" for at in range(len(window.columns))]
        found = self._query(self._queries.cursor_at(window, position), names)
        return self._bound(window.columns, found[0]) if found else None

    def newest(self, window: RowWindow, most: int) -> list[SeenRow] | None:
        """Query the last rows of a window, in reverse order, by a single index lookup; None if there is no index."""
        # Return None for a view, too: if no index serves it, the server would sort all rows in each run.
        if not self._queries.has_index(window.columns[0]):
            return None
        contents, width = self._queries.contents(window.columns), len(window.columns)
        names = [f"text_{at}" for at in range(width + len(contents))]
        found = []
        for row in self._query(self._queries.newest(window, most, contents), names):
            cursor = self._bound(window.columns, row[:width])
            assert cursor is not None
            found.append(SeenRow(cursor, dict(zip(contents, row[width:], strict=True))))
        return found

    def count(self, window: RowWindow) -> int:
        """Return the number of rows in a window."""
        rows = sql("(SELECT COUNT(*) FROM {} WHERE {})", self._table, window.predicate(self.dialect))
        return int(self._ask(counted=rows)[0])

    def writers(self, column: str, longest: timedelta) -> frozenset[str] | None:
        """Return the names of transactions that might still commit a lower number in `column` than the last row has.

        Wait up to `longest` for them to end; return those still open. None if the database does not show them all.
        """
        end = time.monotonic() + longest.total_seconds()
        pause = self._database.writers_lag
        time.sleep(pause.total_seconds())
        found = self._writers(column)
        while found and found - EARLY and time.monotonic() < end:
            pause = min(max(2 * pause, FIRST_PAUSE), LAST_PAUSE)
            time.sleep(pause.total_seconds())
            now_open = self._writers(column)
            # Drop ended transactions. Ignore new ones, which write higher numbers. Without a new list, keep all.
            found = found if now_open is None else found & now_open
        return found

    def open_writers(self, delay: timedelta) -> OpenWriters:
        """Return the open transaction that began first among those that have written rows to the database.

        PostgreSQL does not record when a prepared transaction began: assume a time `delay` before its preparation.
        """
        query = self._database.open_since(self._parts, delay)
        if not query:
            return OpenWriters()
        with self._if_allowed("writers"):
            found = self._listed(query, [WRITER, BEGAN])
            if found is None:
                return OpenWriters(hidden=STALE)
            seen = [OpenWriter(name, moment_of(began)) for name, began in found if began is not None]
            hidden = ". ".join(reason for reason, began in found if began is None)
            return OpenWriters(min(seen, key=lambda writer: writer.began, default=None), hidden)
        return OpenWriters(hidden=UNSEEN)

    def sequences(self, column: str) -> list[NumberSequence]:
        """Return the sequences that number a column; none for a view or query, or if the catalogue lists none."""
        query = None if self._query_text is not None else self._database.sequences(self._parts, column)
        if not query:
            return []
        with self._if_allowed("sequences"):
            found = []
            for name, *numbering in self._query(query, NUMBERING):
                # MariaDB's catalogue has only the name of a sequence, so query the sequence for its step.
                is_named_only = numbering[0] is None
                (told,) = self._query(self._database.sequence(name), NUMBERING[1:]) if is_named_only else [numbering]
                found.append(NumberSequence(name, int(told[0]), told[1] == "1"))
            return found
        return []

    def typed_errors(self) -> AbstractContextManager[None]:
        return typed_database_errors(self.name)

    # --- internals of DatabaseTable -------------------------------------------------------------

    @property
    def dialect(self) -> Database:
        """The SQL dialect for the table."""
        return self._queries.dialect

    @cached_property
    def _queries(self) -> TableQueries:
        """The queries about the table, which depend on its columns in the catalogue."""
        if self._query_text is not None:
            return self._queries_of(self._query_text)
        catalogue = columns_of_catalogue(self._query(self._database.catalogue(self._parts), CATALOGUE))
        if not catalogue:
            raise SourceError(
                self.name, "there is no such table, or this user may not see it. Check the name and the schema."
            )
        self._check_selected(catalogue)
        read = {name: replace(one, declared=one.base or one.declared) for name, one in catalogue.items()}
        known = {**read, **self._database.system_columns}
        return TableQueries(self._database, self._database.table(self._parts), known, self._where, self._selected)

    def _queries_of(self, query: QueryText) -> TableQueries:
        with self.typed_errors():
            columns = self._columns_of(query.text)
        if columns is None:
            raise SourceError(self.name, "its driver cannot report its columns. Create a view and read it.")
        catalogue: dict[str, TableColumn] = {}
        for name, kind, precision, scale in columns:
            # Ignore case, as Spark does.
            if name.lower() in map(str.lower, catalogue):
                raise SourceError(self.name, f"it has the column {name!r} twice. Name one of them otherwise (AS).")
            catalogue[name] = TableColumn(self._database.declared(kind, precision, scale), indexed=None, nullable=True)
        self._check_selected(catalogue)
        return TableQueries(self._database, query.relation, catalogue, self._where, self._selected)

    def _check_selected(self, catalogue: Mapping[str, TableColumn]) -> None:
        if missing := [name for name in self._selected or () if name not in catalogue]:
            raise SourceError(
                self.name, f"it has no column {', '.join(missing)}. It has: {', '.join(catalogue)}. Correct columns=."
            )

    @contextmanager
    def _if_allowed(self, what: str) -> Iterator[None]:
        """Log and suppress the error if a database refuses a query, as MySQL does for users without PROCESS."""
        try:
            yield
        except SourceUnavailableError:
            raise
        except SourceError as error:
            logger.debug("event=%s_unknown source=%s error=%s", what, self.name, type(error).__name__)

    @cached_property
    def _cluster(self) -> str | None:
        if self._database.cluster:
            with self._if_allowed("cluster"):
                return str(self._query(self._database.cluster, ["cluster"])[0][0])
        return None

    def _writers(self, column: str) -> frozenset[str] | None:
        # If the source is a query, its tables and their sequences are unknown (as a view's are), so return None.
        query = None if self._query_text is not None else self._database.writers(self._parts, column)
        if query:
            with self._if_allowed("writers"):
                found = self._listed(query, [WRITER])
                if found is not None and (None,) not in found:
                    return frozenset(name for (name,) in found)
        return None

    def _listed(self, query: SQL, names: Sequence[str]) -> list[Any] | None:
        """Return other open transactions. A list without this query's transaction is stale: warn and return None."""
        options = self._database.listing_options(self._options)
        for pause in STALE_PAUSES:
            time.sleep(pause)
            found = self._query(query, names, options)
            others = [row for row in found if row[0] != OWN]
            if options is None or len(others) < len(found):
                return others
        logger.warning(
            "event=stale_transactions source=%s: the server shows an old list of open transactions, because another "
            "client reads it at least every 0.1 s. Until it stops, delay must cover the longest transaction",
            self.name,
        )  # fmt: skip
        return None

    def _bound(self, columns: tuple[CursorColumn, ...], texts: Sequence[str | None]) -> Bound | None:
        if texts[0] is None:
            return None
        return tuple(self.dialect.value(str(text), column) for column, text in zip(columns, texts, strict=True))

    def _forget(self) -> None:
        """Forget the catalogue, so that each plan reads it again and sees the table as it is.

        Otherwise the values of an altered column would be compared by its old type, and rows would be missed.
        """
        self.__dict__.pop("_queries", None)

    def _columns_now(self, window: RowWindow) -> tuple[CursorColumn, ...]:
        self._forget()
        columns = tuple(self._queries.column(column.name, strings=True) for column in window.columns)
        check_types(columns, window.columns)
        return columns

    @property
    def _table(self) -> SQL:
        """The text after FROM, with the alias ``t``."""
        return sql("{} t", self._queries.table)

    def _warn_without_index(self, column: CursorColumn) -> None:
        if self._queries.has_index(column) is False:
            remedy = "Add an index on it" if self._queries.dialect.serves(column) else "Declare it as TEXT"
            logger.warning(
                "event=no_index source=%s column=%s: without a usable index on the column, each run reads the whole "
                "table several times, even if little is new. %s",
                self.name, column.name, remedy,
            )  # fmt: skip

    def _ranges(self, window: RowWindow) -> list[SQL]:
        """Return filters that split a large window by its first column. The outer ranges are open-ended."""
        if not window.columns:
            return ONE_QUERY
        first = window.columns[0]
        most = self._partitions or min(MAX_PARTITIONS, self._slots())
        holds_rows = (window.high is not None or window.whole) and not window.is_empty
        if most == 1 or not holds_rows or not self.dialect.cuts_by(first):
            return ONE_QUERY
        predicate = window.predicate(self.dialect)
        # Leave out rows with NULL: their condition adds an OR, and the database would walk the index from its start.
        present = replace(window, nulls="skip").predicate(self.dialect)
        source = sql("FROM {} WHERE {}", self._table, present)
        # Count only until the window is large enough to split: counting a billion rows costs as much as reading them.
        smallest, largest, count = self._ask(
            smallest=self.dialect.outermost(first, MIN, source),
            largest=self.dialect.outermost(first, MAX, source),
            counted=sql("({})", self.dialect.count_up_to(MANY + 1, self._table, predicate)),
        )
        if int(count) <= MANY or smallest is None or smallest == largest:
            return ONE_QUERY
        spans = slices(self.dialect.value(smallest, first), self.dialect.value(largest, first), most)
        cuts = [low for low, _ in spans[1:]]
        logger.info("event=parallel_read source=%s column=%s queries=%d", self.name, first.name, len(cuts) + 1)
        return self._queries.ranges(first, cuts, with_nulls=window.nulls == "take")

    def _ask(self, **expressions: SQL) -> Any:
        (row,) = self._query(self.dialect.as_row(**expressions), tuple(expressions))
        return row

    def _query(self, query: SQL, names: Sequence[str], options: Mapping[str, str] | None = None) -> list[Any]:
        with self.typed_errors():
            return self._found(query, names, options)

    @abstractmethod
    def _found(self, query: SQL, names: Sequence[str], options: Mapping[str, str] | None) -> list[Any]:
        """Return the rows of a query, every value as text. With `options`, use a new connection that has them."""

    @abstractmethod
    def _columns_of(self, query: SQL) -> list[tuple[str, str, int, int]] | None:
        """Return name, type, precision and scale of each column of a query, without running it; None if unknown."""

    @abstractmethod
    def _slots(self) -> int:
        """Return how many ranges to split a large window into, unless `partitions` is given."""


class JdbcTable(DatabaseTable):
    """A table, a view or a query, read by a cursor column.

    A plan uses one connection: one query for the source's clock, the largest cursor and the count of NULLs. For a time
    or UUID with a delay, another query finds the oldest open transaction. A window is read by one query, or by several
    in parallel if it has more than `MANY` rows. Each query sees the data at its own time: a row that is updated
    meanwhile is in the next window, because the update moves its cursor past this window. Plan, read and replay use
    separate connections, which must all reach the same server, never an endpoint with several replicas behind it.

    Parameters
    ----------
    spark
        The session. The driver's jar must be on its class path.
    url
        Such as ``jdbc:postgresql://host:5432/database``. Never shown anywhere.
    table
        ``table`` or ``schema.table``, or its parts in a list if one holds a dot. Each is quoted.
    query
        One SELECT whose rows are read instead of a table's, such as a join. Its text is part of the source's identity,
        like `where`. A window filters its result, so the database must push the condition on the cursor down to the
        tables. As for a view, transactions that may commit lower ids are unknown: ids are taken after the delay, and
        lower ones that are committed later are lost. Never build it from user input.
    properties
        Properties of the connection, such as ``user`` and ``password``, and options of Spark's reader.
    partitions
        Number of ranges to split a large window into, and so of connections at a time, up to the number of
        cores. By default two for each core; 1 for a single query. Use more if the cursor of a few rows
        is far from all others, such as a timestamp of 1970, because the ranges have equal widths.
    zone
        Zone of the wall clock in columns without a zone, and in dates, such as ``Europe/London`` or ``UTC``. Without
        it, a first run by such a column raises CursorError. A job that already has a watermark continues in UTC, with a
        WARNING: if the wall clock is west of Greenwich, and so behind UTC, the delay has no effect.
    remade
        Whether the table is dropped and created again with the same rows, as by dbt or a nightly restore. It is then
        identified by name only. Otherwise a PostgreSQL table that was created again raises SourceLostError.
    columns
        The columns to read, for example without one whose type Spark does not support. The cursors are always read.
        None for all.
    where
        A condition in the database's SQL that rows must meet, such as ``where="region = 'north'"``. It is part of the
        source's identity: if it changes, the run raises SourceLostError, as rows below the watermark would be
        missed. Never build it from user input: nothing in it is quoted. States and errors show it.

    Notes
    -----
    Pass it to a job: ``job.rows_since(JdbcTable(spark, url, "public.repairs", properties=login), "last_modified")``,
    with ``login = {"user": user, "password": password}``.
    """

    def __init__(
        self,
        spark: SparkSession,
        url: str,
        table: str | Sequence[str] = (),
        *,
        query: str | None = None,
        properties: Mapping[str, str] | None = None,
        partitions: int | None = None,
        zone: str | None = None,
        remade: bool = False,
        columns: Sequence[str] | None = None,
        where: str = "",
    ) -> None:
        if query is not None:
            check_jvm(
                spark, "query=, whose columns only a driver can tell,", "Make a view of the query, and read that."
            )
        super().__init__(
            url, table, query=query, partitions=partitions, zone=zone, remade=remade, columns=columns, where=where
        )
        self._spark = spark
        # The order matters: the caller's properties override the database's defaults, but not the URL.
        self._options = {
            "driver": self._database.driver,
            "fetchsize": str(FETCH_SIZE),
            **self._database.options,
            **(properties or {}),
            "url": url,
        }
        # Refuse texts in double quotes: Spark's sessions with MariaDB read them as names of columns (ANSI_QUOTES).
        for what, text in (("query=", query), ("where=", where)):
            if self._database.spark_session and text and self._database.grammar.has_double_quotes(text):
                raise SourceError(
                    self.name,
                    f"{what} has double quotes, which would be names of columns here and are texts in the server. "
                    "Write texts in single quotes, and names in backquotes.",
                )
        session = self._database.spark_session or self._database.session
        if session:
            if "sessioninitstatement" in map(str.lower, self._options):
                raise SourceError(
                    self.name,
                    "sessionInitStatement is taken: it sets each session to UTC. Give settings in the URL, as "
                    "sessionVariables.",
                )
            self._options["sessionInitStatement"] = session
        self._asking_options = self._database.asking_options(self._options)
        self._connections = Connections(partial(jdbc_connection, spark, self._asking_options))

    def rows(self, window: RowWindow) -> DataFrame:
        """Return the rows of a window; CursorError if a cursor column is gone or has another type than in the plan."""
        columns = self._columns_now(window)
        ranges = self._ranges(window)
        texts = self._queries.as_text(columns)
        relation = self._queries.relation(window, texts)
        # Close the open connection, because Spark opens another, and a user may be limited to one.
        self._connections.close()
        with self.typed_errors():
            found = self._read(relation, ranges)
            # Check names inside `typed_errors`: over Spark Connect, the query is sent, and can fail, only now.
            self._check_names(found)
        return found.selectExpr(*shown_columns(found.columns, texts, has_wall_clocks=self._spark.version >= "3.4"))

    def toDF(self) -> DataFrame:  # noqa: N802
        """Return all rows as `rows` does, for `missing_keys`. Spark reads only columns that the caller then selects."""
        return self.rows(RowWindow((), None, None, whole=True))

    def _check_names(self, df: DataFrame) -> None:
        """Raise SourceError for a column name with a quote: Spark does not escape it, and would run the rest as SQL."""
        quotes = {'"', "`", self._database.quotes[1]}
        for name in df.columns:
            if quotes & set(name):
                raise SourceError(
                    self.name,
                    f"the name of its column {name!r} holds a quote, which Spark would send as SQL. Read it through a "
                    "view that names the column otherwise.",
                )

    def _read(self, relation: SQL, ranges: Sequence[SQL]) -> DataFrame:
        options, relation = self._queries.types_for_spark() | self._options, self._database.prepared(relation)
        if len(ranges) == 1:
            return self._spark.read.format("jdbc").options(**options, dbtable=relation).load()
        return self._spark.read.jdbc(options.pop("url"), relation, predicates=list(ranges), properties=options)

    def _found(self, query: SQL, names: Sequence[str], options: Mapping[str, str] | None) -> list[Any]:
        if options is not None:
            return ask(self._spark, options, query, names)
        return ask(self._spark, self._asking_options, query, names, self._connections)

    def _columns_of(self, query: SQL) -> list[tuple[str, str, int, int]] | None:
        return columns_of_query(self._connections, self._database.prepared(query))

    def _slots(self) -> int:
        return PER_CORE * slots_of(self._spark)


def moment_of(text: str) -> datetime:
    """Parse an instant in UTC, as a dialect writes it."""
    return isoparse(text.replace(" ", "T", 1))


def _checked_columns(source: str, columns: Sequence[str] | None) -> tuple[str, ...] | None:
    if columns is None:
        return None
    names = () if isinstance(columns, str) else tuple(columns)
    if not names or not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise SourceError(source, f"columns={columns!r}; give a list of different names, or leave it out for all.")
    return names


def _checked_where(source: str, where: str, grammar: Grammar) -> SQL:
    if not isinstance(where, str) or (where and not where.strip()):
        raise SourceError(source, f"where={where!r}; give a condition in SQL, or leave it out for all rows.")
    # Allow only a single condition, because the rest of the query follows it.
    for token in (";", "--", "/*", "\0"):
        if token in where:
            raise SourceError(
                source, f"where= holds {token!r}, which could end the query. Write it as one condition, or make a view."
            )
    grammar.check_limits("where=", grammar.bare(where), source)
    return written_by_hand(where.strip())


def server_of(url: str) -> dict[str, str]:
    """Return the server in a JDBC URL, or the file of SQLite, without user and password; an empty map if unknown.

    >>> server_of("jdbc:postgresql://me:secret@db.example:5432/shop?password=secret")
    {'server': 'db.example:5432'}
    >>> server_of("jdbc:sqlite:/tmp/copy-17/shop.db")
    {'database': 'shop.db'}
    """
    file = re.match(r"jdbc:sqlite:([^?]+)", url, re.IGNORECASE)
    # Return only the name of SQLite's file: a job that fetches the file for each run may use another folder each time.
    if file is not None:
        return {"database": file[1].replace("\\", "/").rpartition("/")[2]}
    found = re.match(r"jdbc:[\w:]+?[/\w]*@?//([^/;?]+)|jdbc:oracle:thin:[^@]*@([^/;?]+)", url, re.IGNORECASE)
    server = "(" if found is None else (found[1] or found[2]).rpartition("@")[2]
    # Return nothing of a connect descriptor in parentheses, as Oracle has, because it may contain anything.
    return {} if "(" in server else {"server": server}
