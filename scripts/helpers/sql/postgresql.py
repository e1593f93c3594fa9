"""Read and write PostgreSQL: its names and types, SQL, catalogue and settings. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType

from scripts.helpers.rows.cursors import TIMES, CursorColumn
from scripts.helpers.rows.sources import CACHED, ELSEWHERE, NO_SEQUENCE, UNSEEN
from scripts.helpers.rows.sql import SQL, in_quotes, sql, written_by_hand
from scripts.helpers.sql.database import (
    MAX,
    TIME_OUTSIDE,
    Arriving,
    Declared,
    TableColumn,
    WritableDatabase,
    can_reach_end,
)
from scripts.helpers.sql.query_text import POSTGRESQL

WIDE = {
    "bit": "bit varying", "character": "text", "bpchar": "text", '"char"': "text", "name": "text", "money": "numeric",
}  # fmt: skip
"""For types that cut or round values when declared without a length: a type that holds each value as it arrives."""
TYPES_WITHOUT_EQUALITY = ("json", "xml", "point", "box", "polygon", "line", "path")
"""Types without an equality operator."""
ALIKE = ("citext", "text", "character")
"""Types whose equality operator may treat different texts as equal."""
ENDS = {
    "timestamp": (sql("TIMESTAMPTZ '0001-01-01 00:00+00'"), sql("TIMESTAMPTZ '9999-12-31 23:59:59.999999+00'")),
    "timestamp_ntz": (sql("TIMESTAMP '0001-01-01 00:00'"), sql("TIMESTAMP '9999-12-31 23:59:59.999999'")),
    "date": (sql("DATE '0001-01-01'"), sql("DATE '9999-12-31'")),
}
"""The first and the last value of each type of times that every reader can represent: the years 1 to 9999."""
AS_JDBC: Mapping[str, tuple[Callable[[SQL], SQL], str]] = {
    "bit(1)": (lambda column: sql("CAST(CAST({} AS integer) AS boolean)", column), "boolean"),
    "bit": (lambda column: sql("convert_to(CAST({} AS text), 'UTF8')", column), "binary"),
    "oid": (lambda column: sql("CAST({} AS text)", column), "decimal(20,0)"),
    "inet": (lambda column: sql("CAST(inet_out({}) AS text)", column), "string"),
}
"""For types that have no `kind` and are not read as text: SQL and a type that give the same values as `JdbcTable`."""
NOT_EXACT = ("point", "box", "bit")
"""Types not read exactly: Java formats the numbers of point and box; bit without a length may be boolean or binary."""
HAS_MATERIALIZED_VIEW = sql("EXISTS (SELECT 1 FROM kin k JOIN pg_class r ON r.oid = k.oid AND r.relkind = 'm')")
"""Condition that some of ``kin`` are materialized views, which show the rows committed before their last REFRESH."""
FOREIGN = sql("EXISTS (SELECT 1 FROM kin k JOIN pg_class r ON r.oid = k.oid AND r.relkind = 'f')")
"""Condition that some of ``kin`` are foreign tables."""
WRITTEN_ELSEWHERE = sql(
    "(pg_is_in_recovery() OR {} OR {} OR EXISTS (SELECT 1 FROM kin k JOIN pg_subscription_rel s"
    " ON s.srrelid = k.oid))",
    FOREIGN, HAS_MATERIALIZED_VIEW,
)  # fmt: skip
"""Condition that this server's locks and activity do not show all transactions that write to ``kin``: these run on a
replica's primary, a subscriber's publisher or a foreign table's server, or ran before a REFRESH."""
WORDS = sql("regexp_split_to_table(lower(c.body), '[^[:alnum:]_$]+') w (word)")
CODE = sql(
    "code (body) AS (SELECT pg_get_triggerdef(g.oid) FROM pg_trigger g JOIN kin k ON k.oid = g.tgrelid"
    " WHERE g.tgtype & 7 = 7 UNION SELECT pg_get_expr(a.adbin, a.adrelid) FROM pg_attrdef a"
    " JOIN numbered c ON c.oid = a.adrelid AND c.place = a.adnum"
    " UNION SELECT pg_get_functiondef(p.oid) FROM code c CROSS JOIN LATERAL {}"
    " JOIN pg_proc p ON lower(p.proname) = w.word AND p.prokind IN ('f', 'p') JOIN pg_namespace n"
    " ON n.oid = p.pronamespace AND n.nspname NOT IN ('pg_catalog', 'information_schema'))",
    WORDS,
)
"""Code that may number a column of ``kin``: BEFORE INSERT triggers with their arguments, the column's default, and all
functions that these name, recursively. Its text is searched because no catalogue lists what it calls."""


def _text_in_utc(instant: SQL) -> SQL:
    """Return SQL for the text, in UTC, of an instant (a timestamptz)."""
    return sql("to_char(({}) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') || '+00:00'", instant)


def _text_of_time(time: SQL, kind: str) -> SQL:
    """Write the exact text of a time or date of the years 1 to 9999."""
    if kind == "timestamp":
        return _text_in_utc(time)
    form = sql("YYYY-MM-DD" if kind == "date" else "YYYY-MM-DD HH24:MI:SS.US")
    return sql("to_char({}, {})", time, in_quotes(form))


def _clamped_time(time: SQL, kind: str, early: SQL, late: SQL) -> SQL:
    """Write a time; replace one before year 1 with `early` and one after year 9999 with `late`."""
    first, last = ENDS[kind]
    return sql("CASE WHEN {0} < {1} THEN {2} WHEN {0} > {3} THEN {4} ELSE {0} END", time, first, early, last, late)


class PostgreSQL(WritableDatabase):
    """PostgreSQL 13 and later, and compatible servers such as Aurora."""

    name = "PostgreSQL"
    grammar = POSTGRESQL
    url = "jdbc:postgresql:"
    modules = ("psycopg", "psycopg2", "pg8000")
    driver = "org.postgresql.Driver"
    options = MappingProxyType({"prepareThreshold": "-1"})
    """Transfer values in binary: the driver reads them in two thirds of the time that text takes."""
    now = _text_in_utc(sql("now()"))
    cluster = sql("SELECT CAST(system_identifier AS text) AS cluster FROM pg_control_system()")

    current_database = sql("current_database()")
    plain_decimal, open_scale = "decimal(38,18)", 38
    corrected_kinds = ("timestamp",)
    kinds = MappingProxyType({
        "timestamp with time zone": "timestamp", "timestamp without time zone": "timestamp_ntz", "date": "date",
        "smallint": "int", "integer": "int", "bigint": "bigint", "numeric": "decimal", "real": "float",
        "double precision": "double", "boolean": "boolean", "bytea": "binary", "text": "string", "character": "string",
        "uuid": "uuid",
    })  # fmt: skip
    types = MappingProxyType({
        "tinyint": sql("smallint"), "smallint": sql("smallint"), "int": sql("integer"), "bigint": sql("bigint"),
        "decimal": sql("numeric"), "float": sql("real"), "double": sql("double precision"), "boolean": sql("boolean"),
        "binary": sql("bytea"), "date": sql("date"), "timestamp": sql("timestamptz"),
        "timestamp_ntz": sql("timestamp"), "string": sql("text"), "unknown": sql("text"),
    })  # fmt: skip

    writing_options = MappingProxyType({"reWriteBatchedInserts": "true"})
    holds_nul = False
    longest_name = 63  # PostgreSQL cuts longer names without an error, so two of them may become the same name.
    writing_session = sql("SET TIME ZONE 'UTC'")
    impatient = sql("SET LOCAL lock_timeout = '10s'")
    on_conflict = sql(" ON CONFLICT DO NOTHING")
    # Publish with READ COMMITTED. With REPEATABLE READ, which may be a user's default, a run that waited for another
    # run to publish would fail instead of seeing that the batch was published.
    isolation = sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    attempt = sql("txid_current()")
    rights = "GRANT CREATE ON SCHEMA {schema}"

    def declared(self, kind: str, precision: int, scale: int) -> str:
        # Translate the driver's names of types, such as bigserial, to the catalogue's names, such as bigint.
        zones = {"timestamptz": "with time zone", "timestamp": "without time zone"}
        if kind in zones:
            return f"timestamp({scale}) {zones[kind]}"
        names = {
            "int2": "smallint", "smallserial": "smallint", "int4": "integer", "serial": "integer", "int8": "bigint",
            "bigserial": "bigint", "varchar": "character varying", "bpchar": "character", "float4": "real",
            "float8": "double precision", "bool": "boolean",
        }  # fmt: skip
        # The driver names an array after its element type, with a leading underscore.
        if kind.startswith("_"):
            return f"{kind[1:]}[]"
        return names.get(kind) or super().declared(kind, precision, scale)

    def serves(self, column: CursorColumn) -> bool:
        # Indexes on texts serve, too: texts are compared by bytes; the catalogue query reports only indexes by bytes.
        return True

    def bytes_as_text(self, digits: str) -> SQL:
        return sql("convert_from(decode({}, 'hex'), 'UTF8')", in_quotes(digits))

    def binary(self, name: SQL) -> SQL:
        return sql('CAST({} AS text) COLLATE "C"', name)

    def uuid(self, value: str, kind: str) -> SQL:
        return sql("CAST({} AS uuid)", in_quotes(value))

    def uuid_version(self, column: CursorColumn) -> SQL:
        return sql("substr(CAST({} AS text), 15, 1)", self.quote(column.name))

    def has_maximum(self, column: CursorColumn) -> bool:
        """Return whether MIN and MAX accept the column's type; before PostgreSQL 18 they do not accept a UUID."""
        return not column.is_uuid

    def outermost(self, column: CursorColumn, function: SQL, rows: SQL) -> SQL:
        if self.has_maximum(column):
            return super().outermost(column, function, rows)
        name = sql("found.{}", self.quote(column.name))
        return sql(
            "(SELECT {} FROM (SELECT {} {}) found WHERE {name} IS NOT NULL ORDER BY {name} {order} LIMIT 1)",
            self.exact(name, column.type), self.quote(column.name), rows,
            name=name, order=sql("DESC" if function == MAX else "ASC"),
        )  # fmt: skip

    def exact(self, expression: SQL, kind: str) -> SQL:
        if kind in TIMES:
            # Clamp times to years that readers can hold (1 to 9999): rows with later times wait, like all future rows.
            return _text_of_time(_clamped_time(expression, kind, *ENDS[kind]), kind)
        if kind == "string":
            return sql("encode(convert_to({}, 'UTF8'), 'hex')", expression)
        return sql("CAST({} AS text)", expression)

    def corrected(self, expression: SQL, kind: str, name: str) -> SQL:
        if kind not in TIMES:
            return super().corrected(expression, kind, name)
        text = _text_of_time(self.inside(expression, kind, name), kind)
        if kind not in self.corrected_kinds:
            return text
        # Spark and the driver read a day before 1582-10-15 (in the JVM's zone) by the Julian calendar. Only such days
        # are read as text, because reading all values as text takes three times as long.
        years = sql("{} BETWEEN '1582-10-16 00:00:00+00' AND {}", expression, ENDS[kind][1])
        return sql("CASE WHEN NOT {} THEN {} END", years, text)

    def prepared(self, query: SQL) -> SQL:
        # Double the question marks that are operators, as in `doc ? 'key'`: the driver reads single ones as parameters.
        return written_by_hand(self.grammar.prepared(query))

    def plain(self, column: SQL, declared: str) -> tuple[SQL, str] | None:
        kind = self.kind(declared)
        if declared.endswith("[]") or declared in NOT_EXACT:
            return None
        if declared == "smallint":
            return column, declared
        if other := AS_JDBC.get(declared) or AS_JDBC.get(declared.partition("(")[0]):
            return other[0](column), other[1]
        # Cast a type that Spark lacks to text: every type has that cast, and drivers return such types as text anyway.
        return (
            (sql("CAST({} AS text)", column), "string") if kind in (None, "uuid") else super().plain(column, declared)
        )

    def inside(self, expression: SQL, kind: str, name: str) -> SQL:
        # Infinity becomes the first or last time of the years 1 to 9999. For other times outside of these years a cast
        # raises an error. The cast contains the row's value, as a constant would fail before any row is read.
        error = sql("left(CAST({} AS text), 0) || {}", expression, self.text(TIME_OUTSIDE.format(name, kind)))
        failing = sql("CAST({} AS {})", error, self.types[kind])
        ends = (sql("CASE WHEN isfinite({}) THEN {} ELSE {} END", expression, failing, end) for end in ENDS[kind])
        return _clamped_time(expression, kind, *ends)

    def catalogue(self, parts: Sequence[str]) -> SQL:
        # Resolve a domain to its base type, because its values have that type.
        base = sql(
            "WITH RECURSIVE base (oid, length) AS (SELECT a.atttypid, a.atttypmod UNION ALL SELECT y.typbasetype,"
            " y.typtypmod FROM base b JOIN pg_type y ON y.oid = b.oid WHERE y.typtype = 'd')"
            " SELECT b.* FROM base b JOIN pg_type y ON y.oid = b.oid WHERE y.typtype <> 'd'"
        )
        return sql(
            "SELECT CAST(a.attname AS text) AS column_name, format_type(a.atttypid, a.atttypmod) AS declared,"
            " CASE WHEN r.relkind NOT IN ('r', 'p', 'm') THEN NULL WHEN EXISTS (SELECT 1 FROM pg_index i"
            " JOIN pg_class b ON b.oid = i.indexrelid JOIN pg_am m ON m.oid = b.relam AND m.amname = 'btree'"
            " WHERE i.indrelid = a.attrelid AND i.indkey[0] = a.attnum AND i.indisvalid AND i.indpred IS NULL"
            " AND i.indcollation[0] IN (0, 950)) THEN 1 ELSE 0 END AS indexed,"
            " CASE WHEN a.attnotnull THEN 0 ELSE 1 END AS nullable,"
            " CASE WHEN a.attgenerated <> '' OR a.attidentity = 'a' THEN 'always'"
            " WHEN a.atthasdef OR a.attidentity <> '' THEN 'default' END AS filled,"
            " format_type(t.oid, NULL) AS wide, format_type(t.oid, t.length) AS base"
            " FROM pg_attribute a JOIN pg_class r ON r.oid = a.attrelid CROSS JOIN LATERAL ({}) t"
            " WHERE a.attrelid = {} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
            base, self._oid(parts),
        )  # fmt: skip

    def _oid(self, parts: Sequence[str]) -> SQL:
        return sql("to_regclass({})", self.text(self.table(parts)))

    def identity(self, parts: Sequence[str]) -> SQL:
        # Identify views by name only: a view can be dropped and created again without losing rows.
        return sql(
            "SELECT CAST(current_database() AS text) AS database_name, CAST(n.nspname AS text) AS schema_name,"
            " CAST(r.relname AS text) AS table_name,"
            " CASE WHEN r.relkind IN ('r', 'p') THEN CAST(r.oid AS text) END AS table_oid"
            " FROM pg_class r JOIN pg_namespace n ON n.oid = r.relnamespace WHERE r.oid = {}",
            self._oid(parts),
        )

    def writers(self, parts: Sequence[str], column: str) -> SQL:
        # Find transactions that lock the table as an INSERT does, or that lock its sequence: `nextval` keeps this lock
        # until its transaction ends, even if no row is inserted yet. NULL means that some transactions are not shown.
        is_table = sql(
            "EXISTS (SELECT 1 FROM pg_class r WHERE r.oid = {} AND r.relkind IN ('r', 'p'))", self._oid(parts)
        )
        # These sequences may number the column: those that it owns (serial, identity), that its default calls, or that
        # the code of its default or of triggers names.
        owned = sql(
            "SELECT d.objid AS oid FROM pg_depend d JOIN numbered c ON d.refobjid = c.oid AND d.refobjsubid = c.place"
            " WHERE d.classid = CAST('pg_class' AS regclass) AND d.refclassid = CAST('pg_class' AS regclass)"
        )
        called = sql(
            "SELECT d.refobjid FROM pg_attrdef a JOIN numbered c ON a.adrelid = c.oid AND a.adnum = c.place"
            " JOIN pg_depend d ON d.classid = CAST('pg_attrdef' AS regclass) AND d.objid = a.oid"
            " WHERE d.refclassid = CAST('pg_class' AS regclass)"
        )
        named = sql(
            "SELECT r.oid FROM code c CROSS JOIN LATERAL {} JOIN pg_class r ON lower(r.relname) = w.word", WORDS
        )
        numbers = sql(
            "numbers (oid, cache) AS (SELECT s.seqrelid, s.seqcache FROM pg_sequence s"
            " WHERE s.seqrelid IN ({} UNION {} UNION {}))",
            owned, called, named,
        )  # fmt: skip
        # Whether a session may have taken numbers for transactions that it has not begun, so that no lock shows them: a
        # sequence with CACHE allows it. Assume CACHE if a default or trigger computes a sequence's name for `nextval`.
        is_early = sql(
            "EXISTS (SELECT 1 FROM numbers WHERE cache > 1)"
            " OR EXISTS (SELECT 1 FROM code WHERE body ~* 'nextval[[:space:](]+[^[:space:]('']')"
        )
        return sql(
            "WITH RECURSIVE {}, numbered (oid, place) AS (SELECT a.attrelid, a.attnum"
            " FROM pg_attribute a JOIN kin k ON k.oid = a.attrelid WHERE a.attname = {}), {}, {},"
            " locks AS (SELECT l.* FROM pg_locks l WHERE l.database = 0 OR l.database IS NULL OR l.database ="
            " (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())),"
            " holders AS (SELECT l.virtualtransaction, l.pid FROM locks l WHERE l.locktype = 'relation'"
            " AND l.mode = 'RowExclusiveLock' AND l.relation IN (SELECT oid FROM kin UNION SELECT oid FROM numbers))"
            " SELECT CAST(h.virtualtransaction AS text) AS writer FROM holders h"
            # Name lock holders by transaction id, too: a server's restart changes a prepared transaction's virtual id.
            " UNION SELECT 'transaction ' || l.transactionid FROM holders h JOIN locks l"
            " ON l.virtualtransaction = h.virtualtransaction AND l.pid IS NOT DISTINCT FROM h.pid"
            " WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock'"
            " UNION SELECT {} WHERE {} UNION SELECT {} WHERE NOT EXISTS (SELECT 1 FROM numbers)"
            " UNION SELECT NULL WHERE NOT {} OR {}",
            self._kin(parts), self.text(column), CODE, numbers, in_quotes(CACHED), is_early, in_quotes(NO_SEQUENCE),
            is_table, WRITTEN_ELSEWHERE,
        )  # fmt: skip

    def has_foreign(self, parts: Sequence[str]) -> SQL:
        """Return SQL for 1 if a table, one of its partitions or, for a view, a table it reads is foreign, else 0."""
        return sql("(WITH RECURSIVE {} SELECT CASE WHEN {} THEN 1 ELSE 0 END)", self._kin(parts), FOREIGN)

    def _kin(self, parts: Sequence[str]) -> SQL:
        """Return CTE ``kin``: a table (all without `parts`), its partitions, a view's sources, and parents of these."""
        # Select the relations that hold the rows of `f`: a table's partitions, or the tables that a view reads.
        parents = sql(
            "SELECT i.inhrelid AS oid FROM pg_inherits i WHERE i.inhparent = f.oid UNION ALL SELECT d.refobjid"
            " FROM pg_rewrite w JOIN pg_depend d ON d.classid = CAST('pg_rewrite' AS regclass) AND d.objid = w.oid"
            " WHERE d.refclassid = CAST('pg_class' AS regclass) AND w.ev_class = f.oid AND w.rulename = '_RETURN'"
        )
        return sql(
            "family (oid) AS ({} UNION SELECT m.oid FROM family f CROSS JOIN LATERAL ({}) m),"
            " kin (oid) AS (SELECT f.oid FROM family f"
            " UNION SELECT CAST(a.relid AS oid) FROM family f CROSS JOIN LATERAL pg_partition_ancestors(f.oid) a)",
            sql("SELECT CAST({} AS oid)", self._oid(parts)) if parts else sql("SELECT r.oid FROM pg_class r"), parents,
        )  # fmt: skip

    def sequences(self, parts: Sequence[str], column: str) -> SQL:
        # Find the sequence of an identity column, or of a default that is only a call of `nextval`. Skip a longer
        # default, which may negate the number or use it as a part of the value.
        identity = sql(
            "SELECT d.objid FROM pg_depend d WHERE d.classid = CAST('pg_class' AS regclass) AND d.deptype = 'i'"
            " AND d.refclassid = CAST('pg_class' AS regclass) AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum"
        )
        called = sql(
            "SELECT d.refobjid FROM pg_attrdef f JOIN pg_depend d ON d.classid = CAST('pg_attrdef' AS regclass)"
            " AND d.objid = f.oid AND d.refclassid = CAST('pg_class' AS regclass)"
            " WHERE f.adrelid = a.attrelid AND f.adnum = a.attnum AND pg_get_expr(f.adbin, f.adrelid)"
            " ~ '^[(]*nextval[(]''[^'']+''::regclass[)]+(::[a-z]+)?$'"
        )
        ends = can_reach_end(sql("s.seqincrement"), sql("s.seqmin"), sql("s.seqmax"))
        return sql(
            "SELECT CAST(CAST(s.seqrelid AS regclass) AS text) AS sequence_name, CAST(s.seqincrement AS text) AS step,"
            " CASE WHEN s.seqcycle AND {} THEN 1 ELSE 0 END AS starts_again"
            " FROM pg_attribute a JOIN pg_sequence s ON s.seqrelid IN ({} UNION {})"
            " WHERE a.attrelid = {} AND a.attname = {}",
            ends, identity, called, self._oid(parts), self.text(column),
        )  # fmt: skip

    def open_since(self, parts: Sequence[str], delay: timedelta) -> SQL:
        # Find the transactions of this database that have an id, or that wait for a lock to write and so have none yet.
        # Include writers of other tables: a row that they insert here later may have `now()`, which is the beginning of
        # the transaction. The server keeps no beginning of a prepared transaction: assume `delay` before its PREPARE.
        # Without pg_read_all_stats, a user cannot see when others' transactions began: return UNSEEN, a text, as a row.
        # Look at locks on tables only: VACUUM, which writes no row, takes a writer's lock on indexes and is left out.
        waiting = sql(
            "SELECT l.pid FROM pg_locks l JOIN pg_class r ON r.oid = l.relation WHERE l.locktype = 'relation'"
            " AND l.database = a.datid AND l.mode = 'RowExclusiveLock' AND r.relkind IN ('r', 'p')"
        )
        prepared = sql("p.prepared - INTERVAL {}", in_quotes(f"{delay.total_seconds():f} seconds"))
        # Read pg_prepared_xacts last: otherwise neither read shows a transaction that is prepared between them.
        return sql(
            "WITH RECURSIVE {} SELECT 'pid ' || a.pid AS writer, {began} AS began FROM pg_stat_activity a"
            " WHERE {began} IS NOT NULL AND a.datname = current_database() AND a.pid <> pg_backend_pid()"
            " AND a.backend_type IS DISTINCT FROM 'autovacuum worker'"
            " AND (a.backend_xid IS NOT NULL OR a.pid IN ({}))"
            " UNION ALL SELECT 'prepared ' || p.transaction, {} FROM pg_prepared_xacts p"
            " WHERE p.database = current_database()"
            " UNION ALL SELECT {}, NULL WHERE NOT pg_has_role('pg_read_all_stats', 'USAGE')"
            " UNION ALL SELECT {}, NULL WHERE {}",
            self._kin(parts), waiting, _text_in_utc(prepared), in_quotes(UNSEEN),
            in_quotes(ELSEWHERE), WRITTEN_ELSEWHERE,
            # If track_activities is off and hides a transaction's beginning, use the session's, which is never later.
            began=_text_in_utc(sql("COALESCE(a.xact_start, a.backend_start)")),
        )  # fmt: skip

    def asking_options(self, options: Mapping[str, str]) -> Mapping[str, str]:
        # Switch JIT off: compiling the query of `writers` takes more than a second, running it some milliseconds.
        # Servers before PostgreSQL 11 do not have the setting.
        given = {name.lower(): name for name in options}.get("sessioninitstatement", "sessionInitStatement")
        no_jit = sql("SELECT set_config(name, 'off', false) FROM pg_settings WHERE name = 'jit'")
        return {**options, given: "; ".join(filter(None, [options.get(given), no_jit]))}

    def tables_like(self, schema: str, start: str) -> SQL:
        return sql(
            "SELECT CAST(tablename AS text) FROM pg_tables WHERE schemaname = {} "
            "AND starts_with(CAST(tablename AS text), {})",
            self.text(schema), self.text(start),
        )  # fmt: skip

    def constraints(self, parts: Sequence[str]) -> Sequence[SQL]:
        query = sql(
            "SELECT x.* FROM pg_class c CROSS JOIN LATERAL (SELECT CAST(i.indexrelid AS text), "
            "pg_get_indexdef(i.indexrelid, k, true), pg_get_expr(i.indpred, i.indrelid) FROM pg_index i CROSS JOIN "
            "generate_series(1, i.indnkeyatts) k WHERE i.indisunique AND i.indrelid = c.oid UNION ALL SELECT NULL, "
            "pg_get_constraintdef(o.oid), NULL FROM pg_constraint o WHERE o.contype = 'c' AND o.conrelid = c.oid) x "
            "WHERE c.oid = {} AND NOT c.relhasrules AND NOT EXISTS (SELECT 1 FROM pg_trigger t "
            "WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgtype & 7 = 7)",
            self._oid(parts),
        )
        return [query]

    def changes(self, column: Arriving, target: TableColumn) -> SQL | None:
        base, array = (target.wide.removesuffix("[]"), target.wide.endswith("[]"))
        wide = WIDE.get(base, base)
        if wide == target.declared.removesuffix("[]") or not base:
            return None
        name = self.type_name(wide + "[]" * array)
        # Do not join the staging table, which takes longer: a CAST of the landing table's value gives the same value.
        landed = self._landed(column)
        staged = sql("CAST({} AS {})", landed, self.type_name(target.declared))
        arrived, staged = (sql("CAST({} AS {})", side, name) for side in (landed, staged))
        if wide in TYPES_WITHOUT_EQUALITY:
            arrived, staged = (sql("CAST({} AS text)", side) for side in (arrived, staged))
        return sql("{} IS DISTINCT FROM {}", staged, arrived)

    def _landed(self, column: Arriving) -> SQL:
        value = super().arrived(column, "")
        # Write the offset: a pooler may run this on a connection whose time zone was not set to UTC.
        return sql("{} || '+00'", value) if column.kind == "timestamp" else value

    def arrived(self, column: Arriving, declared: str) -> SQL:
        value = self._landed(column)
        # Do not cast to the declared type: a cast to varchar(5) or numeric(9,2) cuts or rounds instead of failing.
        if column.base == "decimal":
            return sql("CAST({} AS numeric)", value)
        if self.kind(declared) == "string" or not column.is_text:
            return value
        return sql("CAST({} AS {})", value, self.type_name(declared))

    def differ(self, one: SQL, other: SQL, declared: str) -> SQL:
        if Declared.parse(declared.removesuffix("[]")).base in (*TYPES_WITHOUT_EQUALITY, *ALIKE):
            one, other = map(self.binary, (one, other))
        return sql("{} IS DISTINCT FROM {}", one, other)
