"""Read and write MySQL and MariaDB: their names and types, SQL, catalogue and settings. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from types import MappingProxyType

from scripts.helpers.errors import SourceError
from scripts.helpers.rows.cursors import UUIDS, WHOLE, CursorColumn, Tick
from scripts.helpers.rows.sources import ELSEWHERE
from scripts.helpers.rows.sql import SQL, in_quotes, internal, joined, sql, whole
from scripts.helpers.sql.database import HELD, OWN, Arriving, Declared, TableColumn, WritableDatabase, can_reach_end
from scripts.helpers.sql.query_text import MYSQL

UTC = sql("SET SESSION time_zone = '+00:00'")
NOTHING = internal("nothing")
STATES: Mapping[int, str] = {
    **dict.fromkeys((1044, 1045, 1142, 1143, 1227, 1370), "42501"), **dict.fromkeys((2002, 2003, 2006, 2013), "08001"),
    1060: "42S21", 1064: "42601", 1205: "55P03", 1213: "40P01", 1264: "22003", 1406: "22001",
    **dict.fromkeys((1265, 1292, 1366), "22P02"),
}  # fmt: skip
"""SQLSTATEs by error number, for errors that have only a general SQLSTATE, or none in a Python driver: a missing login
or privilege, an unreachable server, a duplicate column, a syntax error, a lock time-out, a deadlock, a value that does
not fit its column."""
TEXT_LIKE = ("uuid", "enum", "set", "json", "inet4", "inet6")
"""Types that are read as text."""
COLLATED_BY_BYTES = sql(" CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
TEXT_NULL = sql("CAST(NULL AS CHAR)")
"""NULL with a type: over Spark Connect, Spark needs the type of each column and refuses an untyped NULL."""

IS_REPLICA = sql(
    "(@@read_only = 1 OR EXISTS (SELECT 1 FROM information_schema.PROCESSLIST p"
    " WHERE p.USER = 'system user' AND p.COMMAND <> 'Daemon'))"
)
"""Condition that the server is a replica. A writable replica shows only in the threads that follow its primary. In
older versions of MariaDB, InnoDB's own threads have the same user, but their command is Daemon."""
BLANK = sql("^([[:space:](]|/[*]([^*!]|[*]+[^*/!])*[*]+/|--[^{0}]*{0}|#[^{0}]*{0})*", sql("\\n"))
STATEMENT = sql(
    "LOWER(CASE WHEN LENGTH(trx_query) < 1000 THEN trx_query ELSE COALESCE((SELECT p.INFO"
    " FROM information_schema.PROCESSLIST p WHERE p.ID = trx_mysql_thread_id"
    " AND LEFT(p.INFO, CHAR_LENGTH(trx_query)) = trx_query), '') END)"
)
"""Statement that a transaction runs. The process list has it in full, as InnoDB's list cuts it after 1,024 bytes."""
READS = sql(
    "({0} REGEXP '{1}(select|table|values|show)[^a-z0-9_]' AND ({0} NOT REGEXP '[^a-z0-9_]into[^a-z0-9_]'"
    " OR {0} REGEXP '[^a-z0-9_]into[[:space:]]+(outfile|dumpfile)[^a-z0-9_]')"
    " OR {0} REGEXP '{1}with[^a-z0-9_]' AND {0} NOT REGEXP '[^a-z0-9_](into|update|delete)[^a-z0-9_]')",
    STATEMENT, BLANK,
)  # fmt: skip
"""Condition that the client's own statement only reads. A SELECT INTO a variable does not count: it may run in a
function or trigger that an INSERT has called, and the list then hides the INSERT."""
WRITES = sql(
    "(trx_mysql_thread_id = CONNECTION_ID() OR trx_is_read_only = 0 AND (trx_rows_modified > 0"
    " OR trx_query IS NULL AND trx_tables_in_use > 0 OR trx_query IS NOT NULL AND NOT {}))",
    READS,
)
"""Condition that a transaction has written, or that its statement may write: it gets its numbers and stamps before its
first row is written. Includes the transaction of this query itself, which shows that the list is not an old one."""


class MySQL(WritableDatabase):
    """MySQL and MariaDB. Sessions are set to UTC, because a TIMESTAMP is compared with text in the session's zone."""

    name = "MySQL"
    grammar = MYSQL
    url = "jdbc:mysql:"
    modules: tuple[str, ...] = ("pymysql", "MySQLdb", "mysql", "mariadb")
    quotes = ("`", "`")
    driver = "com.mysql.cj.jdbc.Driver"
    # Without the last two options the drivers return True for 2 and -5 in a TINYINT(1), and a date for a YEAR.
    options = MappingProxyType({"useCursorFetch": "true", "tinyInt1isBit": "false", "yearIsDateType": "false"})
    session: SQL | None = UTC
    now = sql("CONCAT(DATE_FORMAT(UTC_TIMESTAMP(6), '%Y-%m-%d %H:%i:%s.%f'), '+00:00')")
    current_database = sql("DATABASE()")
    writers_lag = timedelta(milliseconds=200)
    """InnoDB assigns a number just before its transaction begins, and refreshes its list every tenth of a second."""
    plain_decimal, digits = "decimal(10,0)", 0
    kinds = MappingProxyType({
        **dict.fromkeys(("smallint", "mediumint", "int", "integer"), "int"), "tinyint": "tinyint", "bigint": "bigint",
        "decimal": "decimal", "float": "float", "double": "double", "bit": "boolean", "date": "date",
        "datetime": "timestamp_ntz", "timestamp": "timestamp", "year": "year", "uuid": "uuid",
        **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), "string"),
        **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), "binary"),
    })  # fmt: skip
    held = MappingProxyType({**HELD, "tinyint": (*WHOLE, "boolean")})
    types = MappingProxyType({
        **dict.fromkeys(WHOLE, sql("bigint")), "int": sql("int"), "decimal": sql("decimal"), "float": sql("double"),
        "double": sql("double"), "boolean": sql("boolean"), "binary": sql("longblob"), "date": sql("date"),
        "timestamp": sql("timestamp(6)"), "timestamp_ntz": sql("datetime(6)"), "string": sql("text"),
        "unknown": sql("text"),
    })  # fmt: skip

    writing_options = MappingProxyType({"rewriteBatchedStatements": "true"})
    longest_name = 64
    # Without these settings MySQL truncates values, shifts times to the server's zone, and replaces a key of 0.
    writing_session = sql(
        "{}, sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES,NO_ZERO_DATE,NO_AUTO_VALUE_ON_ZERO')", UTC
    )
    # Limit the wait for a lock: by default MySQL waits a year, and MariaDB a day.
    impatient = sql("SET SESSION lock_wait_timeout = 10")
    begins = sql("START TRANSACTION")
    unfit_floats = ("nan", "inf", "-inf")
    insert = sql("INSERT IGNORE")
    engine = sql(" ENGINE=InnoDB")
    by_bytes, moment, landing_text = COLLATED_BY_BYTES, sql("timestamp"), sql("longtext{}", COLLATED_BY_BYTES)
    compares_staged = True  # MySQL cannot CAST to most types, so `changes` compares values with the staged ones.
    attempt = sql("CONNECTION_ID()")
    rights = "GRANT CREATE, ALTER, DROP, SELECT, INSERT, UPDATE, DELETE ON {schema}.*"

    def timestamp(self, value: datetime) -> SQL:
        # Write an instant like a wall clock, because the session is set to UTC.
        return self.wall_clock(value)

    def has_void(self, column: CursorColumn) -> bool:
        # Treat even NOT NULL time columns as nullable: the zero date ``0000-00-00``, below every date, means no value.
        return column.is_time

    def lacks(self, column: CursorColumn) -> SQL:
        if not column.is_time:
            return super().lacks(column)
        return sql("({} OR {})", super().lacks(column), self.comparison(column, "<", _first_value(column)))

    def has(self, column: CursorColumn) -> SQL:
        return self.comparison(column, ">=", _first_value(column)) if column.is_time else super().has(column)

    def bytes_as_text(self, digits: str) -> SQL:
        return sql("x{}", in_quotes(digits))

    def binary(self, name: SQL) -> SQL:
        return sql("CAST(CONVERT({} USING utf8mb4) AS BINARY)", name)

    def uuid(self, value: str, kind: str) -> SQL:
        if kind == "uuid":
            return sql("CAST({} AS UUID)", in_quotes(value))
        return self.bytes_as_text(value.replace("-", ""))

    def uuid_version(self, column: CursorColumn) -> SQL:
        name = self.quote(column.name)
        return sql("SUBSTR(CAST({} AS CHAR), 15, 1)" if column.type == "uuid" else "SUBSTR(HEX({}), 13, 1)", name)

    def exact(self, expression: SQL, kind: str) -> SQL:
        # Return NULL for the zero date, which means "no value". It is the MAX only if the column has no other date.
        if kind in ("timestamp", "timestamp_ntz"):
            text = sql("NULLIF(DATE_FORMAT({}, '%Y-%m-%d %H:%i:%s.%f'), '0000-00-00 00:00:00.000000')", expression)
            return sql("CONCAT({}, '+00:00')", text) if kind == "timestamp" else text
        if kind == "date":
            return sql("NULLIF(DATE_FORMAT({}, '%Y-%m-%d'), '0000-00-00')", expression)
        if kind == "double":
            # Add a double, so that the server writes all digits. Of a FLOAT alone it writes only 6.
            return sql("CAST({} + 0e0 AS CHAR)", expression)
        return sql("HEX({})" if kind in ("string", "binary(16)") else "CAST({} AS CHAR)", expression)

    def read_as_text(self, declared: str) -> str | None:
        return "double" if Declared.parse(declared).base == "float" else super().read_as_text(declared)

    def cursor_type(self, declared: str) -> tuple[str, Tick | None] | None:
        if declared in UUIDS:
            return declared, None
        kind, tick = super().cursor_type(declared) or ("", None)
        # An unsigned type needs the next larger Spark type: values in the upper half of its range would be negative.
        larger = {"tinyint": "bigint", "int": "bigint", "bigint": "decimal(20,0)"}
        kind = larger.get(kind, kind) if "unsigned" in declared.lower() else kind.replace("tinyint", "int")
        return (kind, tick) if kind else None

    def plain(self, column: SQL, declared: str) -> tuple[SQL, str] | None:
        base, kind, is_unsigned = Declared.parse(declared).base, self.kind(declared), "unsigned" in declared
        if base == "bit":
            return (sql("{} + 0", column), "boolean") if declared in ("bit", "bit(1)") else None
        if base in TEXT_LIKE:
            return sql("CAST({} AS CHAR)", column), "string"
        if kind == "year" or (is_unsigned and base in ("tinyint", "smallint", "mediumint")):
            return column, "smallint" if base == "tinyint" else "int"
        is_same = kind in ("tinyint", "binary") and not is_unsigned
        return (column, str(kind)) if is_same else super().plain(column, declared)

    def catalogue(self, parts: Sequence[str]) -> SQL:
        # DEFAULT_GENERATED in EXTRA marks a default that is an expression; VIRTUAL and STORED mark computed columns.
        return sql(
            "SELECT COLUMN_NAME AS column_name, COLUMN_TYPE AS declared, CASE WHEN (SELECT TABLE_TYPE"
            " FROM information_schema.TABLES WHERE {0}) <> 'BASE TABLE' THEN NULL WHEN EXISTS"
            " (SELECT 1 FROM information_schema.STATISTICS s WHERE {0} AND s.COLUMN_NAME = c.COLUMN_NAME"
            " AND s.SEQ_IN_INDEX = 1) THEN 1 ELSE 0 END AS indexed,"
            " CASE WHEN IS_NULLABLE = 'NO' THEN 0 ELSE 1 END AS nullable,"
            " CASE WHEN EXTRA LIKE '%VIRTUAL%' OR EXTRA LIKE '%STORED%' OR EXTRA LIKE '%PERSISTENT%' THEN 'always'"
            " WHEN EXTRA LIKE '%auto_increment%' OR EXTRA LIKE '%GENERATED%'"
            " OR COALESCE(COLUMN_DEFAULT, 'NULL') <> 'NULL' THEN 'default' END AS filled"
            " FROM information_schema.COLUMNS c WHERE {0} ORDER BY ORDINAL_POSITION",
            self._is_table(parts),
        )

    def _is_table(self, parts: Sequence[str]) -> SQL:
        # Compare names by their bytes: the catalogue's collation ignores case.
        schema = self.text(parts[-2]) if len(parts) > 1 else self.current_database
        return sql("TABLE_SCHEMA = {} AND TABLE_NAME = {}", schema, self.text(parts[-1]))

    def identity(self, parts: Sequence[str]) -> SQL:
        # database_name is NULL: a schema of MySQL is a database. table_oid is NULL: an ALTER changes a table's number.
        return sql(
            "SELECT {0} AS database_name, TABLE_SCHEMA AS schema_name, TABLE_NAME AS table_name, {0} AS table_oid"
            " FROM information_schema.TABLES WHERE {1}",
            TEXT_NULL, self._is_table(parts),
        )  # fmt: skip

    def writers(self, parts: Sequence[str], column: str) -> SQL:
        # List transactions on any table: MySQL and MariaDB share no list of the tables that a transaction wrote to.
        # A transaction has three names: (1) its start, (2) its id, and (3) its thread with its start. An XA transaction
        # keeps (1) and (2) when its client disconnects. States of earlier versions of this package contain (3).
        return sql(
            "SELECT CASE WHEN trx_mysql_thread_id = CONNECTION_ID() THEN {} WHEN kind = 1 THEN CONCAT('since ',"
            " trx_started) WHEN kind = 2 THEN CONCAT('transaction ', trx_id)"
            " ELSE CONCAT(trx_mysql_thread_id, ' ', trx_started) END AS writer FROM information_schema.INNODB_TRX"
            " CROSS JOIN (SELECT 1 AS kind UNION ALL SELECT 2 UNION ALL SELECT 3) kinds"
            " WHERE {} AND (kind <> 2 OR trx_id <> '0')"
            " UNION SELECT NULL AS writer FROM (SELECT 1 AS one) nothing WHERE {}",
            in_quotes(OWN), WRITES, IS_REPLICA,
        )  # fmt: skip

    def sequences(self, parts: Sequence[str], column: str) -> SQL:
        # Find the sequence of a default that is only `nextval(…)`, as in MariaDB. The name is quoted.
        return sql(
            "SELECT SUBSTR(c.COLUMN_DEFAULT, 9, CHAR_LENGTH(c.COLUMN_DEFAULT) - 9) AS sequence_name, {0} AS step,"
            " {0} AS starts_again FROM information_schema.COLUMNS c WHERE {1}"
            " AND c.COLUMN_NAME = {2} AND c.COLUMN_DEFAULT REGEXP '^nextval[(].*[)]$'",
            TEXT_NULL, self._is_table(parts), self.text(column),
        )  # fmt: skip

    def sequence(self, name: str) -> SQL:
        # The name comes from a catalogue and is used as SQL after FROM, so only quoted names are accepted.
        if not re.fullmatch(r'(`[^`]+`|"[^"]+")(\.(`[^`]+`|"[^"]+"))?', name):
            raise SourceError(self.name, "a default of it calls nextval in a form that is not known.")
        ends = can_reach_end(sql("increment"), sql("minimum_value"), sql("maximum_value"))
        return sql(
            "SELECT increment AS step, CASE WHEN cycle_option AND {} THEN 1 ELSE 0 END AS starts_again FROM {}",
            ends, SQL(name),
        )  # fmt: skip

    def open_since(self, parts: Sequence[str], delay: timedelta) -> SQL:
        # Subtract a second: a statement may stamp rows just before trx_started, which InnoDB keeps in whole seconds.
        began = sql("{} - INTERVAL 1 SECOND", self.instant_of_server(sql("trx_started")))
        return sql(
            "SELECT CASE WHEN trx_mysql_thread_id = CONNECTION_ID() THEN {} WHEN trx_mysql_thread_id = 0"
            " THEN CONCAT('transaction ', trx_id) ELSE CONCAT('thread ', trx_mysql_thread_id) END AS writer,"
            " CONCAT(DATE_FORMAT({}, '%Y-%m-%d %H:%i:%s.%f'), '+00:00') AS began FROM information_schema.INNODB_TRX"
            " WHERE {} UNION ALL SELECT {} AS writer, {} AS began FROM (SELECT 1 AS one) nothing WHERE {}",
            in_quotes(OWN), began, WRITES, in_quotes(ELSEWHERE), TEXT_NULL, IS_REPLICA,
        )  # fmt: skip

    def listing_options(self, options: Mapping[str, str]) -> Mapping[str, str]:
        # InnoDB refreshes its list of transactions only if nobody read it for 0.1 s. Begin a transaction: a list that
        # has it (as OWN) is new. Never reuse the connection: its earlier transaction, also OWN, may be in an old list.
        begins = sql("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        return {**self.filling_options(options), "sessionInitStatement": begins}

    def instant_of_server(self, wall_clock: SQL) -> SQL:
        """Return SQL for the UTC instant of a time in the server machine's zone, as in InnoDB's transaction list."""
        instant = sql("CONVERT_TZ({}, 'SYSTEM', '+00:00')", wall_clock)
        # When clocks go back, an hour occurs twice. Take its first time, because the transaction may have begun then.
        hour_before = sql("{} - INTERVAL 1 HOUR", instant)
        is_repeated = sql("CONVERT_TZ({}, '+00:00', 'SYSTEM') = {}", hour_before, wall_clock)
        return sql("CASE WHEN {} THEN {} ELSE {} END", is_repeated, hour_before, instant)

    def tables_like(self, schema: str, start: str) -> SQL:
        return sql(
            "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = {} AND LEFT(TABLE_NAME, {}) = {}",
            self.text(schema), whole(len(start)), self.text(start),
        )  # fmt: skip

    def number_of(self, parts: Sequence[str]) -> SQL:
        # If this time has changed, the table is new or was altered: callers then search the table for the batch's rows.
        return sql("SELECT CAST(CREATE_TIME AS CHAR) FROM information_schema.TABLES WHERE {}", self._is_table(parts))

    def is_transactional(self, parts: Sequence[str]) -> SQL:
        return sql(
            "SELECT CASE WHEN e.TRANSACTIONS = 'YES' THEN 1 ELSE 0 END FROM information_schema.TABLES t "
            "JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE WHERE {}",
            self._is_table(parts),
        )

    def constraints(self, parts: Sequence[str]) -> Sequence[SQL]:
        keys = sql(
            "SELECT INDEX_NAME, CASE WHEN SUB_PART IS NULL THEN {0} ELSE CONCAT('LEFT(', {0}, ', ', SUB_PART, ')') END,"
            " NULL FROM information_schema.STATISTICS WHERE NON_UNIQUE = 0 AND {1} AND NOT EXISTS (SELECT 1 FROM "
            "information_schema.TRIGGERS WHERE ACTION_TIMING = 'BEFORE' AND EVENT_MANIPULATION = 'INSERT' AND "
            "EVENT_OBJECT_SCHEMA = TABLE_SCHEMA AND EVENT_OBJECT_TABLE = TABLE_NAME)",
            sql("CONCAT('`', REPLACE(COLUMN_NAME, '`', '``'), '`')"), self._is_table(parts),
        )  # fmt: skip
        return [keys, sql("SHOW CREATE TABLE {}", self.table(parts))]

    def _is_text(self, declared: str) -> bool:
        return self.kind(declared) == "string" or Declared.parse(declared).base in ("enum", "set")

    def changes(self, column: Arriving, target: TableColumn) -> SQL | None:
        base = Declared.parse(target.declared).base
        staged, arrived = sql("s.{}", self.quote(column.name)), sql("l.{}", column.landing)
        if base in ("datetime", "timestamp", "time") and column.is_text:
            return sql("NOT ({} <=> CAST({} AS {}(6)))", staged, arrived, sql("TIME" if base == "time" else "DATETIME"))
        if column.kind == "string" and self._is_text(target.declared):
            # Compare bytes: a collation may ignore case and trailing blanks.
            return sql("NOT ({} <=> {})", self.binary(staged), self.binary(arrived))
        is_short = base in ("float", "double") and "(" in target.declared
        return sql("NOT ({} <=> {})", staged, arrived) if is_short or base == "binary" else None

    def create_like(self, table: SQL, columns: Sequence[SQL], like: SQL, own: Sequence[SQL] = ()) -> SQL:
        numbers = joined(", ", (sql("{} bigint", name) for name in own))
        # The outer join makes every copied column nullable; a plain copy of a NOT NULL column would be NOT NULL.
        return sql(
            "CREATE TABLE {}{}{} AS SELECT {} FROM (SELECT 1 AS {}) {} LEFT JOIN {} t ON 1 = 0 WHERE 1 = 0",
            table, sql(" ({})", numbers) if own else numbers, self.engine, joined(", ", columns), NOTHING, NOTHING,
            like,
        )  # fmt: skip

    def differ(self, one: SQL, other: SQL, declared: str) -> SQL:
        if self._is_text(declared) or declared == "json":
            one, other = (sql("CAST({} AS BINARY)", side) for side in (one, other))
        return sql("NOT ({} <=> {})", one, other)

    def update_from(self, table: SQL, source: SQL, on: SQL, sets: Mapping[str, SQL], where: SQL) -> SQL:
        listed = joined(", ", (sql("t.{} = {}", self.quote(name), value) for name, value in sets.items()))
        return sql("UPDATE {} AS t JOIN {} ON {} SET {} WHERE {}", table, source, on, listed, where)

    def delete_where(self, table: SQL, condition: SQL) -> SQL:
        return sql("DELETE t FROM {} AS t WHERE {}", table, condition)


class MariaDB(MySQL):
    """MariaDB with a ``jdbc:mariadb:`` URL, for which Spark writes names in double quotes."""

    name = "MariaDB"
    url = "jdbc:mariadb:"
    modules = ()
    sorts_uuids = sql(
        "CAST('01900000-0000-7000-8000-000000000000' AS UUID) > CAST('01800000-ffff-7000-8000-000000000000' AS UUID)"
    )
    driver = "org.mariadb.jdbc.Driver"
    spark_session = sql("{}, sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')", UTC)

    def filling_options(self, options: Mapping[str, str]) -> dict[str, str]:
        # Set ANSI_QUOTES, because otherwise the server reads names in double quotes as strings.
        given = options.get("sessionVariables")
        return {**options, "sessionVariables": "sql_mode='ANSI_QUOTES'" + (f",{given}" if given else "")}


def _first_value(column: CursorColumn) -> date:
    first = datetime(1, 1, 1, tzinfo=timezone.utc)
    return first.date() if column.type == "date" else first
