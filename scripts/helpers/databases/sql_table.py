"""A database table as a source of rows without Spark: ADBC or a Python driver reads it as batches of Arrow."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from importlib import import_module
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from scripts.helpers._lazy import pa
from scripts.helpers.databases.queries import TextColumn
from scripts.helpers.databases.table import FETCH_SIZE, DatabaseTable
from scripts.helpers.errors import SourceError, SourceUnavailableError
from scripts.helpers.rows.arrow_streams import ArrowStream
from scripts.helpers.rows.cursors import TIMES, CursorColumn, decimal_type
from scripts.helpers.rows.sql import SQL, sql
from scripts.helpers.rows.window import RowWindow
from scripts.helpers.sql.connection import Connections, unfit
from scripts.helpers.sql.database import TIME

ARROW = {
    "tinyint": "int8", "smallint": "int16", "int": "int32", "bigint": "int64", "float": "float32", "double": "float64",
    "boolean": "bool_", "string": "string", "binary": "binary", "date": "date32",
}  # fmt: skip
"""pyarrow functions that return a type, by Spark's name of the type."""
NUMBERS = {
    1: "tinyint", 2: "smallint", 3: "int", 4: "float", 5: "double", 8: "bigint", 9: "mediumint", 246: "decimal",
}  # fmt: skip
TEXTS = {**dict.fromkeys(range(249, 253), ("text", "blob")), 253: ("varchar", "varbinary"), 254: ("char", "binary")}
OTHERS = {
    7: "timestamp", 10: "date", 11: "time", 12: "datetime", 13: "year", 16: "bit({})", 245: "json", 255: "geometry",
}  # fmt: skip
"""Types of MySQL by their code in its protocol. In `TEXTS`, a text type and a binary type share each code."""
OPAQUE = {144: "uuid", 156: "inet6", 60: "inet4"}
"""Types that MariaDB sends as text with the flag for unsigned numbers, by their length in bytes of utf8mb4."""
BYTES, UNSIGNED, ENUM, SET = 63, 32, 256, 2048
"""The character set of binary data, and flags, in MySQL's protocol."""
DOUBLE_DIGITS = 15
"""Digits of a decimal that a double always keeps."""
HELD = {"bigint": int, "double": float, "string": str, "binary": bytes}
"""Python types that values of a SQLite column must have, as it may hold any. pyarrow would silently make 1 of 1.5."""


class SqlTable(DatabaseTable):
    """A table, a view or a query, read by a cursor column without Spark.

    Plans, checks and windows are the same as in `JdbcTable`, and so is the stored state: a job may switch from one
    to the other. `rows` returns an `ArrowStream`, which reads the window again each time it is used. Values are the
    same, too. Columns whose type Arrow lacks, such as JSON and UUIDs, are returned as text. A type without an exact
    form, such as an array, raises SourceError.

    Parameters
    ----------
    url
        ``postgresql://host:5432/database``, ``mysql://host/database``, ``mariadb://host/database`` or ``sqlite:PATH``.
        Never shown anywhere. PostgreSQL requires the package ``adbc-driver-postgresql``, and MySQL and MariaDB
        ``PyMySQL``.
    properties
        Properties of the connection, such as ``user`` and ``password``: libpq parameters or PyMySQL arguments.
    partitions
        Number of ranges to split a large window of PostgreSQL into; by default one for each core. As many ranges are
        read at a time as there are cores.
    table, query, zone, remade, columns, where
        See `JdbcTable`.

    Notes
    -----
    Pass it to a job: ``job.rows_since(SqlTable(url, "public.repairs", properties=login), "last_modified")``.
    """

    def __init__(
        self,
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
        url = re.sub("^postgres:", "postgresql:", str(url))
        scheme = url.partition(":")[0]
        if not is_sql_url(url):
            starts = ", ".join(f"{one}:" for one in SESSIONS)
            raise SourceError("SqlTable", f"its URL starts with none of {starts}. Check it; JdbcTable reads others.")
        self._session_of = SESSIONS[scheme]
        super().__init__(
            f"jdbc:{url}", table,
            query=query, partitions=partitions, zone=zone, remade=remade, columns=columns, where=where,
        )  # fmt: skip
        self._url, self._login = url, properties or {}
        if self._database.session:
            self._options["sessionInitStatement"] = self._database.session
        self._connections = Connections(partial(self._session, self._options))

    def rows(self, window: RowWindow) -> ArrowStream:
        """Return the rows of a window; CursorError if a cursor column is gone or has another type than in the plan."""
        cursors = self._columns_now(window)
        planned = self._planned(cursors)
        written = {column.name: column.written for column in planned}
        queries = [self._queries.rows_as(window, written, within) for within in self._ranges(window)]
        schema = pa.schema([(column.name, _type_of(column.kind)) for column in planned])
        return ArrowStream(schema, partial(self._batches, window, queries, planned, schema))

    # --- internals of SqlTable ------------------------------------------------------------------

    def _planned(self, cursors: Sequence[CursorColumn]) -> list[TextColumn]:
        """Return the columns to read, each with its expression in SQL and the type to read it as."""
        texts = {text.name: text for text in self._queries.as_text(cursors)}
        found = []
        for name in self._queries.wanted([cursor.name for cursor in cursors]):
            column, declared = sql("t.{}", self.dialect.quote(name)), self._queries.catalogue[name].declared
            plain = self.dialect.plain(column, declared)
            if name in texts:
                written, kind = texts[name].written, texts[name].kind
                # Do not read times as text if the driver returns them unchanged.
                written = self.dialect.inside(column, kind, name) if kind in TIMES else written
            elif plain is not None:
                written, kind = plain
            else:
                raise SourceError(
                    self.name,
                    f"column {name!r} is {declared or 'without a type'}, which has no exact type in Arrow. Leave it "
                    "out with columns=, or read it through a view that casts it.",
                )
            found.append(TextColumn(name, name, written, "string" if kind == TIME else kind))
        return found

    def _batches(
        self, window: RowWindow, queries: Sequence[SQL], planned: Sequence[TextColumn], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        # Check at each read: values of a column altered after the plan would be compared by its old type.
        self._columns_now(window)

        def read(query: SQL) -> Iterator[pa.RecordBatch]:
            with self._session(self._options) as session:
                for found in session.columns_of_rows(query):
                    arrays = [self._array(session, column, one) for column, one in zip(planned, found, strict=True)]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)

        try:
            with self.typed_errors():
                yield from side_by_side([partial(read, query) for query in queries], self._session_of.most)
        except OSError as error:
            # Errors of PostgreSQL while rows arrive have no SQLSTATE. Do not show their text: it may contain values.
            if "ERROR:" not in str(error) or "conflict with recovery" in str(error):
                raise SourceUnavailableError(self.name, "the connection broke off") from None
            raise SourceError(self.name, "the database failed while rows were read. Its own log says why.") from None

    def _array(self, session: _Session, column: TextColumn, values: Any) -> pa.Array:
        try:
            array, kind = session.array(column.kind, values), _type_of(column.kind)
            return array if array.type == kind else array.cast(kind)
        except pa.ArrowException:
            raise unfit(self.name, f"column {column.name!r} has a value that does not fit {column.kind}") from None

    def _found(self, query: SQL, names: Sequence[str], options: Mapping[str, str] | None) -> list[Any]:
        with self._connections.one() if options is None else self._session(options) as session:
            return session.texts(query)

    def _columns_of(self, query: SQL) -> list[tuple[str, str, int, int]]:
        with self._connections.one() as session:
            return list(session.columns(query))

    def _slots(self) -> int:
        return self._session_of.most

    @contextmanager
    def _session(self, options: Mapping[str, str]) -> Iterator[_Session]:
        """Open a connection, and yield its session."""
        try:
            module = import_module(self._session_of.module)
        except ImportError:
            package = self._session_of.package
            raise SourceError(self.name, f"it requires {package}. Install it: pip install {package}") from None
        try:
            opened = self._session_of(module, self._url, self._login)
        except FileNotFoundError:
            missing = "there is no such file. Check the path; a URL of SQLite has no options."
            raise SourceError(self.name, missing) from None
        except (ValueError, TypeError) as error:
            # Do not show the text of the error, which may contain the URL with a password.
            refused = f"the driver does not accept the URL or properties= ({type(error).__name__}). Check both."
            raise SourceError(self.name, refused) from None
        with closing(opened) as session:
            if "sessionInitStatement" in options:
                with session.ran(options["sessionInitStatement"]):
                    pass
            yield session


def _type_of(kind: str) -> pa.DataType:
    precision, scale = decimal_type(kind)
    if precision:
        return pa.decimal128(precision, scale)
    if kind in ("timestamp", "timestamp_ntz"):
        return pa.timestamp("us", "UTC" if kind == "timestamp" else None)
    return getattr(pa, ARROW[kind])()


# --- drivers ----------------------------------------------------------------------------------------


class _Session:
    """A connection of a Python driver. Each statement is its own transaction."""

    module = package = ""
    most = 1
    """How many connections read in parallel: 1, because Python drivers hold the interpreter lock while they read."""

    def __init__(self, module: Any, url: str, given: Mapping[str, Any]) -> None:
        self._connection: Any

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def ran(self, statement: str) -> Iterator[Any]:
        """Run a statement, and yield its cursor."""
        with closing(self._connection.cursor()) as cursor:
            cursor.execute(str(statement))
            yield cursor

    def texts(self, query: SQL) -> list[Any]:
        """Return the rows of a query, every value as text."""
        with self.ran(query) as cursor:
            return [tuple(map(_text, row)) for row in cursor.fetchall()]

    def columns(self, query: SQL) -> list[tuple[str, str, int, int]]:
        """Return name, type, precision and scale of each column of a query, without running it."""
        raise NotImplementedError

    def columns_of_rows(self, query: SQL) -> Iterator[Sequence[Any]]:
        """Yield one batch of rows after the other, as the values of each column."""
        with self.ran(query) as cursor:
            while rows := cursor.fetchmany(FETCH_SIZE):
                yield list(zip(*rows, strict=True))

    def array(self, kind: str, values: Any) -> pa.Array:
        """Return values as an array that can be cast to the Spark type `kind`."""
        return pa.array(values, pa.binary() if kind == "binary" else pa.string())


class _Adbc(_Session):
    """Reads PostgreSQL through ADBC, which uses COPY, batch by batch."""

    module, package = "adbc_driver_postgresql.dbapi", "adbc-driver-postgresql"
    most = os.cpu_count() or 1

    def __init__(self, module: Any, url: str, given: Mapping[str, Any]) -> None:
        # Set the encoding: otherwise texts arrive in the database's encoding, but are decoded as UTF-8.
        options = urlencode({**given, "client_encoding": "utf8"}, quote_via=quote)
        self._connection = module.connect(f"{url}{'&' if '?' in url else '?'}{options}", autocommit=True)

    def columns(self, query: SQL) -> list[tuple[str, str, int, int]]:
        with closing(self._connection.cursor()) as cursor:
            schema = cursor.adbc_execute_schema(str(query))
        return [(field.name, *_declared(field.metadata)) for field in schema]

    def columns_of_rows(self, query: SQL) -> Iterator[Sequence[Any]]:
        with self.ran(query) as cursor, closing(cursor.fetch_record_batch()) as reader:
            for batch in reader:
                yield batch.columns

    def array(self, kind: str, values: Any) -> pa.Array:
        # Take the values without ADBC's extension type, which it uses for types that Arrow lacks.
        return values.storage if isinstance(values, pa.ExtensionArray) else values


class _PyMySQL(_Session):
    """Reads MySQL and MariaDB through PyMySQL. Values arrive row by row as the server's texts."""

    module, package = "pymysql", "PyMySQL"

    def __init__(self, module: Any, url: str, given: Mapping[str, Any]) -> None:
        parts = urlsplit(url)
        login = {"user": unquote(parts.username or ""), "password": unquote(parts.password or "")}
        login = {**login, **dict(parse_qsl(parts.query)), **given}
        self._connection = module.connect(
            host=parts.hostname, port=parts.port or 3306, database=unquote(parts.path[1:]), charset="utf8mb4",
            autocommit=True, conv={}, cursorclass=module.cursors.SSCursor, **login,
        )  # fmt: skip

    def columns(self, query: SQL) -> list[tuple[str, str, int, int]]:
        # Use a subquery, as reads of rows do: inside a subquery, expressions may have other types.
        with self.ran(sql("SELECT * FROM (\n{}\n) t LIMIT 0", query)) as cursor:
            # Use `_result`, as `description` has neither the flags nor the character set.
            return [
                (
                    field.name,
                    *_mysql_column_type(field.type_code, field.flags, field.charsetnr, field.length, field.scale),
                )
                for field in cursor._result.fields
            ]


class _SQLite(_Session):
    """Reads SQLite with Python's module, and never creates a file. ADBC's driver would guess types from a few rows."""

    module = package = "sqlite3"

    def __init__(self, module: Any, url: str, given: Mapping[str, Any]) -> None:
        path = url.partition(":")[2]
        if not os.path.isfile(path):
            raise FileNotFoundError
        # Allow several threads: different ones may read batches, but only one at a time.
        self._connection = module.connect(
            f"file:{quote(path)}?mode=ro", uri=True, isolation_level=None, check_same_thread=False, **given
        )

    @contextmanager
    def ran(self, statement: str) -> Iterator[Any]:
        with closing(self._connection.cursor()) as cursor:
            try:
                cursor.execute(str(statement))
            except UnicodeDecodeError as error:
                # If another program damaged the schema, SQLite's error quotes schema bytes that cannot be decoded.
                raise self._connection.DatabaseError("malformed database schema") from error
            yield cursor

    def columns(self, query: SQL) -> list[tuple[str, str, int, int]]:
        with self.ran(sql("CREATE TEMPORARY VIEW IF NOT EXISTS glue_watermarks_asked AS {}", query)):
            pass
        asked = self.texts(sql("SELECT name, type FROM pragma_table_info('glue_watermarks_asked')"))
        return [(name, kind, 0, 0) for name, kind in asked]

    def array(self, kind: str, values: Any) -> pa.Array:
        precision, scale = decimal_type(kind)
        if precision:
            values = [_number_text(value, scale) for value in values]
        # Check the types first, because pyarrow would silently make 1 of 1.5.
        if {type(value) for value in values} - {HELD.get(kind, str), type(None)}:
            raise pa.ArrowInvalid
        return pa.array(values, _type_of(kind) if kind in HELD else pa.string())


SESSIONS: Mapping[str, type[_Session]] = {
    "postgresql": _Adbc, "mysql": _PyMySQL, "mariadb": _PyMySQL, "sqlite": _SQLite,
}  # fmt: skip
"""The class that reads a database, by the scheme of its URL."""


def is_sql_url(url: str) -> bool:
    """Return whether `SqlTable` can read the database of a URL."""
    return url.partition(":")[0] in {*SESSIONS, "postgres"}


def _number_text(value: Any, scale: int) -> Any:
    """Return a number as text, and any other value unchanged.

    A double is rounded to 15 digits, so that 0.1 + 0.2 is 0.3, unless whole part and `scale` decimals need more.
    """
    if isinstance(value, float) and len(f"{value:.0f}".lstrip("-")) + scale <= DOUBLE_DIGITS:
        return f"{value:.{DOUBLE_DIGITS}g}"
    return str(value) if isinstance(value, (int, float)) else value


def _text(value: Any) -> str | None:
    return value.decode() if isinstance(value, bytes) else None if value is None else str(value)


def _declared(metadata: Mapping[bytes, bytes] | None) -> tuple[str, int, int]:
    """Return type, precision and scale of a column from PostgreSQL's `typmod`."""
    found = metadata or {}
    kind, numbers = found.get(b"POSTGRESQL:type", b"").decode(), int(found.get(b"POSTGRESQL:typmod", b"-1")) - 4
    if kind == "numeric" and numbers >= 0:
        # The scale has 11 bits, one of which is the sign.
        return kind, numbers >> 16, ((numbers & 0x7FF) ^ 0x400) - 0x400
    return kind, 0, 6


def _mysql_column_type(code: int, flags: int, charset: int, length: int, scale: int) -> tuple[str, int, int]:
    """Return type, precision and scale of a column of MySQL, from a connection that uses utf8mb4.

    An unknown type gets a name that no reader supports, so that the later error names the column.
    """
    is_unsigned, is_bytes = bool(flags & UNSIGNED), charset == BYTES
    if code in NUMBERS:
        # The length includes the decimal point and the sign.
        return NUMBERS[code] + " unsigned" * is_unsigned, length - (scale > 0) - (not is_unsigned), scale
    if flags & (ENUM | SET):
        return "enum" if flags & ENUM else "set", 0, 0
    unknown = f"type {code}"
    if code not in TEXTS:
        return OTHERS.get(code, unknown).format(length), 0, scale
    return OPAQUE.get(length, unknown) if is_unsigned and not is_bytes else TEXTS[code][is_bytes], length, 0


def side_by_side(reads: Sequence[Callable[[], Any]], most: int) -> Iterator[Any]:
    """Yield the items of generators as they arrive, running `most` generators at a time.

    Each generator is one item ahead: it reads the next one while the caller uses the previous one.
    """
    with ExitStack() as stack, ThreadPoolExecutor(most) as pool:
        left = [stack.enter_context(closing(read())) for read in reads]
        running: dict[Future[Any], Any] = {}

        def go_on(finds: Any) -> None:
            running[pool.submit(next, finds, None)] = finds

        for finds in left[:most]:
            go_on(finds)
        del left[:most]
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                finds, found = running.pop(future), future.result()
                if found is not None:
                    go_on(finds)
                    yield found
                elif left:
                    go_on(left.pop())
