"""Write SQL for the databases that are only read: SQL Server and Oracle. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from types import MappingProxyType

from scripts.helpers.errors import SourceError
from scripts.helpers.rows.dialect import wall_text
from scripts.helpers.rows.sql import SQL, in_quotes, sql, whole
from scripts.helpers.sql.database import Database
from scripts.helpers.sql.query_text import ORACLE, SQL_SERVER


class FetchingDatabase(Database):
    """A database whose SQL has ``FETCH NEXT`` instead of ``LIMIT``."""

    def some_rows(self, count: int, ordered: SQL, skipped: int = 0) -> SQL:
        return sql("{} OFFSET {} ROWS FETCH NEXT {} ROWS ONLY", ordered, whole(skipped), whole(count))


DATETIME_TICK = timedelta(microseconds=3_333)
"""Step of SQL Server's DATETIME, 1/300 s, rounded down, so that a value plus the step is below the next value. If it
were rounded up, a bound just past a row would also be past the next value, and a later row with it would be lost."""


class SQLServer(FetchingDatabase):
    """SQL Server and Azure SQL."""

    name = "SQL Server"
    url = "jdbc:sqlserver:"
    quotes = ("[", "]")
    driver = "com.microsoft.sqlserver.jdbc.SQLServerDriver"
    now = sql("CONVERT(char(26), SYSUTCDATETIME(), 121) + '+00:00'")
    encoding, length = "utf-16-le", sql("DATALENGTH")
    unfit = MappingProxyType(
        {"uniqueidentifier": "SQL Server sorts a uniqueidentifier by its last six bytes first, whatever its version"}
    )
    grammar = SQL_SERVER
    current_database = sql("DB_NAME()")
    plain_decimal = "decimal(18,0)"
    kinds = MappingProxyType({
        "datetime": "timestamp_ntz", "datetime2": "timestamp_ntz", "smalldatetime": "timestamp_ntz",
        "datetimeoffset": "timestamp", "date": "date", "decimal": "decimal", "numeric": "decimal", "bigint": "bigint",
        "int": "int", "smallint": "int", "tinyint": "int",
        **dict.fromkeys(("char", "varchar", "nchar", "nvarchar"), "string"),
    })  # fmt: skip
    ticks = MappingProxyType({"datetime": DATETIME_TICK, "smalldatetime": timedelta(minutes=1)})

    def timestamp(self, value: datetime) -> SQL:
        return sql("CAST({} AS datetimeoffset(6))", in_quotes(f"{wall_text(value)}+00:00".replace(" ", "T")))

    def wall_clock(self, value: datetime) -> SQL:
        # With a T between date and time, the text means the same under every language setting.
        return sql("CAST({} AS datetime2(6))", in_quotes(wall_text(value).replace(" ", "T")))

    def date(self, value: date) -> SQL:
        return sql("CAST({} AS date)", in_quotes(value.isoformat()))

    def bytes_as_text(self, digits: str) -> SQL:
        return SQL(f"0x{bytes.fromhex(digits).decode().encode('utf-16-le').hex()}")

    def binary(self, name: SQL) -> SQL:
        # Compare bytes, because every collation ignores trailing spaces.
        return sql("CAST(CAST({} AS nvarchar(4000)) AS varbinary(8000))", name)

    def exact(self, expression: SQL, kind: str) -> SQL:
        if kind == "timestamp":
            return sql("{} + '+00:00'", self.exact(sql("SWITCHOFFSET({}, '+00:00')", expression), "timestamp_ntz"))
        if kind == "timestamp_ntz":
            return sql("CONVERT(char(26), CAST({} AS datetime2(7)), 121)", expression)
        if kind == "date":
            return sql("CONVERT(char(10), {}, 23)", expression)
        return sql("CONVERT(varchar(max), {}, 2)" if kind == "string" else "CONVERT(varchar(50), {})", expression)

    def catalogue(self, parts: Sequence[str]) -> SQL:
        return sql(
            "SELECT c.name AS column_name, y.name + CASE WHEN y.name IN ('decimal', 'numeric') THEN '('"
            " + CAST(c.precision AS varchar(3)) + ',' + CAST(c.scale AS varchar(3)) + ')'"
            " WHEN y.name IN ('datetime2', 'datetimeoffset') THEN '(' + CAST(c.scale AS varchar(3)) + ')'"
            " ELSE '' END AS declared, CASE WHEN o.type <> 'U' THEN NULL WHEN EXISTS (SELECT 1 FROM sys.index_columns k"
            " JOIN sys.indexes i ON i.object_id = k.object_id AND i.index_id = k.index_id"
            " WHERE k.object_id = c.object_id AND k.column_id = c.column_id AND k.key_ordinal = 1 AND i.has_filter = 0"
            " AND i.type IN (1, 2)) THEN 1 ELSE 0 END AS indexed, CAST(c.is_nullable AS int) AS nullable"
            " FROM sys.columns c JOIN sys.types y ON y.user_type_id = c.system_type_id"
            " JOIN sys.objects o ON o.object_id = c.object_id"
            " WHERE c.object_id = OBJECT_ID(CAST({} AS nvarchar(4000)))",
            self.text(self.table(parts)),
        )

    def identity(self, parts: Sequence[str]) -> SQL:
        return sql(
            "SELECT DB_NAME() AS database_name, s.name AS schema_name, o.name AS table_name, NULL AS table_oid"
            " FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id"
            " WHERE o.object_id = OBJECT_ID(CAST({} AS nvarchar(4000)))",
            self.text(self.table(parts)),
        )

    def count_up_to(self, limit: int, table: SQL, predicate: SQL) -> SQL:
        rows = sql("SELECT TOP ({}) 1 AS one FROM {} WHERE {}", whole(limit), table, predicate)
        return sql("SELECT COUNT(*) FROM ({}) few", rows)


class Oracle(FetchingDatabase):
    """Oracle 12.1 and later. Names are quoted, so they are case-sensitive; Oracle stores most names in capitals."""

    name = "Oracle"
    grammar = ORACLE
    url = "jdbc:oracle:"
    driver = "oracle.jdbc.OracleDriver"
    now = sql("TO_CHAR(SYS_EXTRACT_UTC(SYSTIMESTAMP), 'YYYY-MM-DD HH24:MI:SS.FF6') || '+00:00'")
    from_nothing = sql(" FROM DUAL")
    current_database = sql("SYS_CONTEXT('USERENV', 'DB_NAME')")
    plain_decimal = "decimal(38,10)"
    kinds = MappingProxyType({
        "date": "timestamp_ntz", "timestamp": "timestamp_ntz", "timestamp with time zone": "timestamp",
        # Map FLOAT, also declared as REAL or DOUBLE PRECISION, like NUMBER: Spark rounds both to 10 decimal places.
        "timestamp with local time zone": "timestamp", "number": "decimal", "float": "decimal",
        **dict.fromkeys(("varchar2", "nvarchar2", "char", "nchar"), "string"),
    })  # fmt: skip
    ticks = MappingProxyType({"date": timedelta(seconds=1)})

    def quote(self, name: str) -> SQL:
        if '"' in name:
            raise SourceError(name, "Oracle has no names with a double quote. Check the name.")
        return super().quote(name)

    def timestamp(self, value: datetime) -> SQL:
        return sql("TIMESTAMP {}", in_quotes(f"{wall_text(value)} +00:00"))

    def wall_clock(self, value: datetime) -> SQL:
        # Write whole seconds as a DATE, so that Oracle can use an index on a DATE column. To compare the column with a
        # TIMESTAMP, Oracle would cast every DATE of the table and use no index.
        if value.microsecond:
            return super().wall_clock(value)
        return sql("TO_DATE({}, 'YYYY-MM-DD HH24:MI:SS')", in_quotes(wall_text(value)[:19]))

    def bytes_as_text(self, digits: str) -> SQL:
        return sql("HEXTORAW({})", in_quotes(digits))

    def binary(self, name: SQL) -> SQL:
        return sql("UTL_RAW.CAST_TO_RAW({})", name)

    def exact(self, expression: SQL, kind: str) -> SQL:
        if kind == "timestamp":
            return sql("TO_CHAR(SYS_EXTRACT_UTC({}), 'YYYY-MM-DD HH24:MI:SS.FF6') || '+00:00'", expression)
        if kind == "timestamp_ntz":
            return sql("TO_CHAR(CAST({} AS TIMESTAMP(9)), 'YYYY-MM-DD HH24:MI:SS.FF6')", expression)
        if kind == "string":
            return sql("RAWTOHEX({})", expression)
        return sql("TO_CHAR({}, 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')", expression)

    def catalogue(self, parts: Sequence[str]) -> SQL:
        return sql(
            "SELECT c.COLUMN_NAME AS column_name, c.DATA_TYPE || CASE WHEN c.DATA_TYPE = 'NUMBER'"
            " AND c.DATA_SCALE IS NOT NULL THEN '(' || COALESCE(c.DATA_PRECISION, 38) || ',' || c.DATA_SCALE || ')'"
            " END AS declared, CASE WHEN EXISTS (SELECT 1 FROM ALL_VIEWS v WHERE v.OWNER = c.OWNER"
            " AND v.VIEW_NAME = c.TABLE_NAME) THEN NULL WHEN EXISTS (SELECT 1 FROM ALL_IND_COLUMNS i"
            " WHERE i.TABLE_OWNER = c.OWNER AND i.TABLE_NAME = c.TABLE_NAME AND i.COLUMN_NAME = c.COLUMN_NAME"
            " AND i.COLUMN_POSITION = 1) THEN 1 ELSE 0 END AS indexed,"
            " CASE WHEN c.NULLABLE = 'N' THEN 0 ELSE 1 END AS nullable"
            " FROM ALL_TAB_COLUMNS c WHERE c.OWNER = {} AND c.TABLE_NAME = {}",
            *self._owner_and_name(parts),
        )

    def _owner_and_name(self, parts: Sequence[str]) -> tuple[SQL, SQL]:
        names = [sql("UTL_RAW.CAST_TO_VARCHAR2({})", self.text(part)) for part in parts]
        return names[-2] if len(names) > 1 else sql("SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')"), names[-1]

    def identity(self, parts: Sequence[str]) -> SQL:
        return sql(
            "SELECT SYS_CONTEXT('USERENV', 'DB_NAME') AS database_name, {} AS schema_name, {} AS table_name,"
            " NULL AS table_oid FROM DUAL",
            *self._owner_and_name(parts),
        )
