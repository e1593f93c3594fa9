"""How SQL is written for SQL Server and Oracle. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta

from scripts.helpers.cursors import Tick
from scripts.helpers.errors import SourceError
from scripts.helpers.sql_databases import INDEXED, NAME, NULLABLE, TYPE, WHOLE_TYPES, Database, Declared
from scripts.helpers.sql_dialects import wall_text

DATETIME_TICK = timedelta(microseconds=3_333)
"""SQL Server's DATETIME has steps of 1/300 s; what is a whole step above a value is below the next one."""


class SQLServer(Database):
    """SQL Server and Azure SQL."""

    name = "SQL Server"
    quotes = ("[", "]")
    driver = "com.microsoft.sqlserver.jdbc.SQLServerDriver"
    now = "CONVERT(char(26), SYSUTCDATETIME(), 121) + '+00:00'"
    encoding = "utf-16-le"

    def timestamp(self, value: datetime) -> str:
        """Write an instant."""
        return f"CAST('{wall_text(value)}+00:00' AS datetimeoffset(6))".replace(" ", "T", 1)

    def wall_clock(self, value: datetime) -> str:
        """Write a timestamp without zone, in the form that no language setting reads otherwise."""
        return f"CAST('{wall_text(value)}' AS datetime2(6))".replace(" ", "T", 1)

    def date(self, value: date) -> str:
        """Write a date."""
        return f"CAST('{value.isoformat()}' AS date)"

    def bytes_as_text(self, digits: str) -> str:
        """Write the bytes of a text in UTF-16, as the server holds them."""
        return f"0x{bytes.fromhex(digits).decode().encode('utf-16-le').hex()}"

    def binary(self, name: str) -> str:
        """Write the bytes of a text: every collation ignores spaces at the end."""
        return f"CAST(CAST({name} AS nvarchar(4000)) AS varbinary(8000))"

    def exact(self, expression: str, kind: str) -> str:
        """Write the exact text of a value, down to the microsecond."""
        if kind == "timestamp":
            return f"CONVERT(char(26), CAST(SWITCHOFFSET({expression}, '+00:00') AS datetime2(7)), 121) + '+00:00'"
        if kind == "timestamp_ntz":
            return f"CONVERT(char(26), CAST({expression} AS datetime2(7)), 121)"
        if kind == "date":
            return f"CONVERT(char(10), {expression}, 23)"
        return f"CONVERT(varchar(max), {expression}, 2)" if kind == "string" else f"CONVERT(varchar(50), {expression})"

    def cursor_type(self, declared: str) -> tuple[str, Tick | None] | None:
        """Return Spark's type and the tick of a declared type."""
        found = Declared.parse(declared)
        times: dict[str, tuple[str, Tick | None]] = {
            "datetime": ("timestamp_ntz", DATETIME_TICK),
            "datetime2": ("timestamp_ntz", found.tick(6)),
            "smalldatetime": ("timestamp_ntz", timedelta(minutes=1)),
            "datetimeoffset": ("timestamp", found.tick(6)),
            "date": ("date", None),
            "bigint": ("bigint", None),
        }
        if found.base in times:
            return times[found.base]
        if found.base in ("decimal", "numeric"):
            kind = found.decimal("decimal(18,0)")
            return (kind, None) if kind else None
        if found.base in WHOLE_TYPES:
            return "int", None
        return ("string", None) if found.base in ("char", "varchar", "nchar", "nvarchar") else None

    def catalogue(self, parts: Sequence[str]) -> str:
        """Return the query for a table's columns."""
        table = f"CAST({self.text(self.table(parts))} AS nvarchar(4000))"
        return (
            f"SELECT c.name AS {NAME}, y.name + CASE WHEN y.name IN ('decimal', 'numeric') THEN '('"
            " + CAST(c.precision AS varchar(3)) + ',' + CAST(c.scale AS varchar(3)) + ')'"
            " WHEN y.name IN ('datetime2', 'datetimeoffset') THEN '(' + CAST(c.scale AS varchar(3)) + ')'"
            f" ELSE '' END AS {TYPE}, CASE WHEN o.type <> 'U' THEN NULL WHEN EXISTS (SELECT 1 FROM sys.index_columns k"
            " JOIN sys.indexes i ON i.object_id = k.object_id AND i.index_id = k.index_id"
            " WHERE k.object_id = c.object_id AND k.column_id = c.column_id AND k.key_ordinal = 1 AND i.has_filter = 0"
            f" AND i.type IN (1, 2)) THEN 1 ELSE 0 END AS {INDEXED}, CAST(c.is_nullable AS int) AS {NULLABLE}"
            " FROM sys.columns c JOIN sys.types y ON y.user_type_id = c.system_type_id"
            f" JOIN sys.objects o ON o.object_id = c.object_id WHERE c.object_id = OBJECT_ID({table})"
        )

    def count_up_to(self, limit: int, table: str, predicate: str) -> str:
        """Return the query that counts rows, but no further than a limit."""
        return f"SELECT COUNT(*) FROM (SELECT TOP ({limit}) 1 AS one FROM {table} WHERE {predicate}) few"


class Oracle(Database):
    """Oracle 12.1 and later. Names are case-sensitive here and mostly written in capitals there."""

    name = "Oracle"
    driver = "oracle.jdbc.OracleDriver"
    now = "TO_CHAR(SYS_EXTRACT_UTC(SYSTIMESTAMP), 'YYYY-MM-DD HH24:MI:SS.FF6') || '+00:00'"
    from_nothing = " FROM DUAL"

    def quote(self, name: str) -> str:
        """Quote a name; SourceError for a double quote, which no name there may hold."""
        if '"' in name:
            raise SourceError(name, "Oracle has no names with a double quote. Check the name.")
        return super().quote(name)

    def timestamp(self, value: datetime) -> str:
        """Write an instant."""
        return f"TIMESTAMP '{wall_text(value)} +00:00'"

    def wall_clock(self, value: datetime) -> str:
        """Write a timestamp without zone; in whole seconds as a DATE, so that an index on a DATE serves it."""
        if value.microsecond:
            return super().wall_clock(value)
        return f"TO_DATE('{wall_text(value)[:19]}', 'YYYY-MM-DD HH24:MI:SS')"

    def bytes_as_text(self, digits: str) -> str:
        """Write bytes."""
        return f"HEXTORAW('{digits}')"

    def binary(self, name: str) -> str:
        """Write the bytes of a text."""
        return f"UTL_RAW.CAST_TO_RAW({name})"

    def exact(self, expression: str, kind: str) -> str:
        """Write the exact text of a value, down to the microsecond."""
        if kind == "timestamp":
            return f"TO_CHAR(SYS_EXTRACT_UTC({expression}), 'YYYY-MM-DD HH24:MI:SS.FF6') || '+00:00'"
        if kind == "timestamp_ntz":
            return f"TO_CHAR(CAST({expression} AS TIMESTAMP(9)), 'YYYY-MM-DD HH24:MI:SS.FF6')"
        if kind == "string":
            return f"RAWTOHEX({expression})"
        return f"TO_CHAR({expression}, 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')"

    def cursor_type(self, declared: str) -> tuple[str, Tick | None] | None:
        """Return Spark's type and the tick of a declared type; a DATE has seconds."""
        found = Declared.parse(declared)
        if found.base == "date":
            return "timestamp_ntz", timedelta(seconds=1)
        if found.base == "timestamp":
            return "timestamp" if found.has_zone else "timestamp_ntz", found.tick(6)
        if found.base == "number":
            kind = found.decimal("decimal(38,10)")
            return (kind, None) if kind else None
        return ("string", None) if found.base in ("varchar2", "nvarchar2", "char", "nchar") else None

    def catalogue(self, parts: Sequence[str]) -> str:
        """Return the query for a table's columns."""
        names = [f"UTL_RAW.CAST_TO_VARCHAR2({self.text(part)})" for part in parts]
        owner = names[-2] if len(names) > 1 else "SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')"
        return (
            f"SELECT c.COLUMN_NAME AS {NAME}, c.DATA_TYPE || CASE WHEN c.DATA_TYPE = 'NUMBER'"
            " AND c.DATA_SCALE IS NOT NULL THEN '(' || COALESCE(c.DATA_PRECISION, 38) || ',' || c.DATA_SCALE || ')'"
            f" END AS {TYPE}, CASE WHEN EXISTS (SELECT 1 FROM ALL_VIEWS v WHERE v.OWNER = c.OWNER"
            " AND v.VIEW_NAME = c.TABLE_NAME) THEN NULL WHEN EXISTS (SELECT 1 FROM ALL_IND_COLUMNS i"
            " WHERE i.TABLE_OWNER = c.OWNER AND i.TABLE_NAME = c.TABLE_NAME AND i.COLUMN_NAME = c.COLUMN_NAME"
            f" AND i.COLUMN_POSITION = 1) THEN 1 ELSE 0 END AS {INDEXED},"
            f" CASE WHEN c.NULLABLE = 'N' THEN 0 ELSE 1 END AS {NULLABLE}"
            f" FROM ALL_TAB_COLUMNS c WHERE c.OWNER = {owner} AND c.TABLE_NAME = {names[-1]}"
        )

    def count_up_to(self, limit: int, table: str, predicate: str) -> str:
        """Return the query that counts rows, but no further than a limit."""
        return (
            f"SELECT COUNT(*) FROM (SELECT 1 AS one FROM {table} WHERE {predicate} FETCH FIRST {limit} ROWS ONLY) few"
        )
