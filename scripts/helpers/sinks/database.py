"""`DatabaseSink`: writes a batch to a table of a database exactly once, even if attempts to write it fail or overlap.

::

    stage     gw_<owner>_…_v<version>_f<fence>_…, a table next to the target               no reader looks there
    commit    the job's head names this attempt; the sink takes no part in that
    publish   one transaction: the batch into glue_watermarks_batches, its rows into the target
    sweep     the staging tables of this attempt and of losing attempts are dropped
"""

from __future__ import annotations

import hashlib
import logging
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

from scripts.helpers._lazy import DataFrame, SparkSession, pa, pd
from scripts.helpers.errors import (
    InvalidValueError,
    KeyColumnError,
    StagedFilesLostError,
    TargetError,
    TargetUnavailableError,
    UnprovenError,
    how_to_read_text,
    rows_have,
)
from scripts.helpers.protocol.names import BatchId, new_token
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.rows.arrow_streams import ArrowStream
from scripts.helpers.rows.cursors import TIMES
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.sql import (
    SQL,
    VALUE,
    Bound,
    Values,
    in_quotes,
    internal,
    joined,
    naming,
    of_catalogue,
    sql,
    whole,
    with_marks,
)
from scripts.helpers.sinks.arrow_files import spooled_to_file
from scripts.helpers.sinks.files import PLAIN
from scripts.helpers.sinks.merging import DELETED, Merge, Versions
from scripts.helpers.sinks.outputs import (
    LANDING,
    MARK_DIGITS,
    app_of_batch_row,
    application_of,
    batch_value,
    epoch_in_batches,
    is_own_table,
    owner_of,
    staging_table,
    value_of_batch,
    version_of,
)
from scripts.helpers.sinks.sink import Witnessed
from scripts.helpers.sinks.staged_rows import (
    ARROW_ROWS,
    SparkRows,
    check_batch_column,
    columns_of,
    spark_of,
    with_batch,
    without_types,
)
from scripts.helpers.sinks.staging import Attempts, StagedRows
from scripts.helpers.sinks.table_sink import (
    Append,
    Meaning,
    MergeRows,
    Nothing,
    TableLog,
    TableShape,
    TableSink,
    check_counts,
)
from scripts.helpers.spark.jvm import check_jvm
from scripts.helpers.sql.connection import BAD_URL, CANCELED, FULL, LOCKED, driver_error, jdbc_connection, rows_of
from scripts.helpers.sql.database import Arriving, TableColumn, WritableDatabase, columns_of_catalogue, writable
from scripts.helpers.sql.known import MODULES, database_of

if TYPE_CHECKING:
    from typing_extensions import LiteralString

logger = logging.getLogger(__name__)

# --- database sql ---------------------------------------------------------------------------------
# The statements that write a batch to a landing table (as it arrives), a staging table (converted), and the target.

BATCHES = "glue_watermarks_batches"
"""The table next to the target that records the published batches."""
GONE = "glue_watermarks_deleted_"
"""The prefix of the table of remembered deletes; the name of the target follows."""
TAKEN_BACK = "taken back"
"""The value of the column `staged`, which else names a staging table, for a batch that must never be published."""
LOCK = "lock of merges"
"""The value of the column `staged` in the lock row, which each merge into a target locks, so that they run in turn."""
OF_JOB = sql("target = {0} AND job = {0} AND epoch = {0} AND job_name = {0}", VALUE)
"""The condition for the batches of a job and epoch in the table of batches."""
OF_BATCH = sql("{} AND version = {}", OF_JOB, VALUE)
RECORDED = sql("{0} AND version BETWEEN {1} AND {1}", OF_JOB, VALUE)
KEPT = sql("{} AND staged <> {}", RECORDED, in_quotes(TAKEN_BACK))
OF_LOCK = sql("target = {} AND job = '' AND epoch = '' AND version = 0", VALUE)
BATCHES_AT_ONCE = 10_000
"""Batches in one statement, with two values each: SQLite takes 32,766 values, and PostgreSQL 65,535."""
ROW = internal("row")
"""The column of a staging table that numbers its rows."""
PLACE, STARTED, ENDED = internal("place"), internal("started"), internal("ended")
"""Names of columns that statements compute."""
_TOKENS = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/|\w+|.""", re.DOTALL)


def checks_in(definition: str) -> list[str]:
    """Return the conditions of the CHECK constraints in a table's definition, each in its parentheses.

    >>> checks_in("CREATE TABLE t (id int CHECK (id > 0), word text DEFAULT 'CHECK (', CHECK ((id < 9) OR word = ')'))")
    ['(id > 0)', "((id < 9) OR word = ')')"]
    """
    # Return no condition if a backslash in the definition may escape a quote, or if a constraint is not enforced.
    is_clear = "\\" not in definition and "NOT ENFORCED" not in definition
    found, tokens = [], iter(_TOKENS.findall(definition) if is_clear else ())
    for word in tokens:
        if word.upper() == "CHECK":
            depth, text = 0, ""
            for token in tokens:
                depth += (token == "(") - (token == ")")
                text += token
                if not depth and text.strip():
                    break
            found.append(text.strip())
    return found


class Statements:
    """The SQL statements for one target and its staging tables. All these tables are in the schema of the target."""

    def __init__(self, database: WritableDatabase, schema: str, table: str, digits: int = MARK_DIGITS) -> None:
        self.sql, self.schema, self.table, self._digits = database, schema, table, digits
        self.target, self.batches = self.beside(table), self.beside(BATCHES)

    def beside(self, table: str) -> SQL:
        """Return the quoted name of a table in the schema of the target."""
        return self.sql.table([self.schema, table])

    @property
    def deletes_table(self) -> str:
        """The name of the table of keys that merges deleted, so that later merges ignore older rows of these keys."""
        name = GONE + self.table
        limit = self.sql.longest_name
        if limit and len(name.encode()) > limit:
            return GONE + hashlib.sha256(self.table.encode()).hexdigest()[:16]
        return name

    # --- staging --------------------------------------------------------------------------------

    def create_landing(self, staging: str, columns: Sequence[Arriving]) -> SQL:
        """Return the CREATE TABLE for the landing table, which takes rows before they are converted and checked."""
        # p: a Spark task. a: its attempt: Spark may run it again after it committed. n: row number. d: 1 for a delete.
        declared = [sql("{} {}", column.landing, self.sql.landing_type(column)) for column in columns]
        listed = joined(", ", [*declared, sql("a bigint DEFAULT ({}), p bigint, n bigint, d bigint", self.sql.attempt)])
        return sql("CREATE TABLE {} ({}){}", self.beside(staging + LANDING), listed, self.sql.engine)

    def create_staging(self, staging: str, columns: Sequence[Arriving]) -> SQL:
        """Return the CREATE TABLE for a staging table: the target's columns that the rows have, `DELETED` and `ROW`."""
        # Do not make the table UNLOGGED or temporary: a crash of the server would delete the rows of a committed batch.
        table = self.beside(staging)
        names = [self.sql.quote(column.name) for column in columns]
        if not names:
            return sql("CREATE TABLE {} ({} bigint, {} bigint){}", table, DELETED, ROW, self.sql.engine)
        return self.sql.create_like(table, names, self.target, (DELETED, ROW))

    def copy(self, staging: str, columns: Sequence[tuple[Arriving, TableColumn]]) -> SQL:
        """Return the INSERT from the landing to the staging table. It skips rows that a Spark task wrote again."""
        names = self._list([*(column.name for column, _ in columns), DELETED, ROW])
        values = [self.sql.arrived(column, found.declared) for column, found in columns]
        return sql(
            "INSERT INTO {} ({}) SELECT {} FROM {landing} l JOIN "
            "(SELECT p, MIN(a) AS a FROM {landing} GROUP BY p) taken ON taken.p = l.p AND taken.a = l.a",
            self.beside(staging), names, joined(", ", [*values, sql("COALESCE(l.d, 0), l.n")]),
            landing=self.beside(staging + LANDING),
        )  # fmt: skip

    def nulls(self, staging: str, column: Arriving, *, in_deletes: bool) -> SQL:
        """Return the query that counts NULL in a column of the landing table, in deletes only with `in_deletes`."""
        count = sql("SELECT COUNT(*) FROM {} l WHERE l.{} IS NULL", self.beside(staging + LANDING), column.landing)
        return count if in_deletes else sql("{} AND COALESCE(l.d, 0) = 0", count)

    def changed(self, staging: str, columns: Sequence[tuple[Arriving, TableColumn]]) -> SQL | None:
        """Return a query that counts, by column, values changed by conversion in `copy`; None if none can change."""
        changes = [self.sql.changes(*pair) for pair in columns]
        if not any(changes):
            return None
        counts = [sql("COUNT(CASE WHEN {} THEN 1 END)", change or sql("1 = 0")) for change in changes]
        if not self.sql.compares_staged:
            return sql("SELECT {} FROM {} l", joined(", ", counts), self.beside(staging + LANDING))
        return sql(
            "SELECT {} FROM {landing} l JOIN (SELECT p, MIN(a) AS a FROM {landing} GROUP BY p) taken "
            "ON taken.p = l.p AND taken.a = l.a JOIN {} s ON s.{} = l.n",
            joined(", ", counts), self.beside(staging), ROW, landing=self.beside(staging + LANDING),
        )  # fmt: skip

    def refused(
        self, staging: str, constraints: Sequence[Sequence[str | None]], absent: Collection[str], *, has_keys: bool
    ) -> dict[str, SQL]:
        """Return, by constraint, the query that counts the staged rows that the constraint refuses.

        Parameters
        ----------
        constraints
            The result rows of the queries of `WritableDatabase.constraints`.
        absent
            Columns that the rows lack. The database fills them on INSERT, so constraints on them are not checked here.
        has_keys
            Whether to check unique keys as well, which two staged rows must not share.
        """
        lacks, staged = naming(absent), self.beside(staging)
        counts: dict[str, SQL] = {}
        keys: dict[str, list[tuple[str, str]]] = {}
        for name, text, *condition in constraints:
            for check in checks_in(text or ""):
                if not lacks(check):
                    # Skip events that are deletes, because they leave no row in the target.
                    where = sql("{} = 0 AND NOT {}", DELETED, of_catalogue(check))
                    counts[f"CHECK {check}"] = sql("SELECT COUNT(*) FROM {} WHERE {}", staged, where)
            if name is not None and condition and has_keys:
                keys.setdefault(name, []).append((text or "", condition[0] or "(1 = 1)"))
        for parts in keys.values():
            if all(part and not lacks(f"{part} {condition}") for part, condition in parts):
                listed = [of_catalogue(part) for part, _ in parts]
                where = _all(of_catalogue(parts[0][1]), *(sql("({}) IS NOT NULL", part) for part in listed))
                counts[f"unique key ({joined(', ', listed)})"] = sql(
                    "SELECT COALESCE(SUM({0}), 0) FROM (SELECT COUNT(*) AS {0} FROM {1} WHERE {2} GROUP BY {3} "
                    "HAVING COUNT(*) > 1) copies",
                    PLACE, staged, where, joined(", ", listed),
                )  # fmt: skip
        return counts

    def count(self, table: str) -> SQL:
        """Return the query that counts all rows of a table in the target's schema, such as a staging table."""
        return sql("SELECT COUNT(*) FROM {}", self.beside(table))

    def drop(self, table: str) -> SQL:
        """Return the DROP of one of this package's tables."""
        return sql("DROP TABLE IF EXISTS {}", self.beside(table))

    # --- publishing -----------------------------------------------------------------------------

    def record(self, of: Output | Retraction, version: int, staging: str) -> Bound:
        """Return the INSERT that records a batch; it does nothing if the batch is recorded already."""
        return self.sql.insert_once(self.batches), self._of(of, version, staging)

    def _of(self, of: Output | Retraction, *more: str | int) -> Values:
        """Return the values for the condition `OF_JOB` on a record's job and epoch, followed by the values `more`."""
        return [self.table, of.job[: self._digits], epoch_in_batches(of), of.job_id[:255], *more]

    def forget(self, output: Output) -> Bound:
        """Return the DELETE of a batch's record."""
        return sql("DELETE FROM {} WHERE {}", self.batches, OF_BATCH), self._of(output, output.version)

    def versions(self, of: Output | Retraction, kept: SQL = KEPT) -> Bound:
        """Return the query for versions in the table of batches; for a retraction, by default those not taken back."""
        which, values = (OF_BATCH, [of.version]) if isinstance(of, Output) else (kept, [of.first, of.last])
        return sql("SELECT version FROM {} WHERE {}", self.batches, which), self._of(of, *values)

    def recorded(self, job: str) -> Bound:
        """Return the query for each epoch's last recorded version; `job` is a job id's hash (`mark_of`), '' for all."""
        of_job = sql("AND job = {}", VALUE) if job else sql("")
        statement = sql(
            "SELECT job, epoch, MAX(version) FROM {} WHERE target = {} {} GROUP BY job, epoch",
            self.batches, VALUE, of_job,
        )  # fmt: skip
        return statement, [self.table, *filter(None, [job[: self._digits]])]

    def take_back(self, of: Retraction) -> Bound:
        """Return the UPDATE that records published batches as taken back."""
        statement = sql("UPDATE {} SET staged = {} WHERE {}", self.batches, in_quotes(TAKEN_BACK), KEPT)
        return statement, self._of(of, of.first, of.last)

    def statements_by_batch(self, verb: SQL, of: Output | Retraction, versions: Sequence[int]) -> list[Bound]:
        """Return statements that begin with `verb` (DELETE), for rows whose batch column names one of `versions`."""
        found: list[Bound] = []
        column = self.sql.quote(of.batch_column or "")
        for start in range(0, len(versions), BATCHES_AT_ONCE):
            batches = [batch_value(of, version) for version in versions[start : start + BATCHES_AT_ONCE]]
            # Compare twice: the first condition can use an index, the second is exact where the collation is not.
            statement = sql(
                "{} FROM {} WHERE {} IN ({marks}) AND {} IN ({marks})",
                verb, self.target, column, self.sql.binary(column), marks=joined(", ", [VALUE] * len(batches)),
            )  # fmt: skip
            found.append((statement, [*batches, *batches]))
        return found

    def lock_row(self) -> Bound:
        """Return the INSERT of the lock row. A merge updates it first, so that merges into this target run in turn."""
        return self.sql.insert_once(self.batches), [self.table, "", "", "", 0, LOCK]

    def has_lock_row(self) -> Bound:
        """Return the query that finds the lock row (see `lock`), or nothing if the row does not exist."""
        return sql("SELECT staged FROM {} WHERE {}", self.batches, OF_LOCK), [self.table]

    def lock(self) -> Bound:
        """Return the UPDATE of the lock row, which waits until no other merge into this target is running."""
        # Without the lock, two merges could both find that the target has no row of a key, and both insert one.
        return sql("UPDATE {} SET staged = {} WHERE {}", self.batches, in_quotes(LOCK), OF_LOCK), [self.table]

    def append(self, staging: str, names: Sequence[str]) -> list[SQL]:
        """Return the statements that insert all staged rows into the target."""
        insert = sql("INSERT INTO {0} ({1}) SELECT {1} FROM {2}", self.target, self._list(names), self.beside(staging))
        return [insert] if names else []

    # --- merging --------------------------------------------------------------------------------

    def create_gone(self, merge: Merge) -> SQL:
        """Return the CREATE TABLE for `deletes_table`: keys that merges deleted, with `sequence_by` of the deletes."""
        names = [self.sql.quote(name) for name in (*merge.keys, *merge.sequence_by)]
        return self.sql.create_like(self.beside(self.deletes_table), names, self.target)

    def other_scales(self, column: Arriving) -> list[SQL]:
        """Return queries that count decimals stored with another scale than `column`'s: as text, 1.50 is not 1.5."""
        # Skip texts with an exponent, which Spark writes for very small numbers.
        where = sql(
            "LENGTH(SUBSTR({0}, INSTR({0} || '.', '.') + 1)) <> {1} AND {0} NOT LIKE '%E%'",
            self.sql.quote(column.name), whole(column.scale),
        )  # fmt: skip
        tables = (self.target, self.beside(self.deletes_table))
        return [sql("SELECT COUNT(*) FROM {} WHERE {}", table, where) for table in tables]

    def drop_older(self, staging: str, merge: Merge) -> SQL:
        """Return the DELETE of staged rows whose key has a newer staged row."""
        newest_first = joined(", ", (sql("{} DESC", self.sql.quote(name)) for name in merge.sequence_by))
        return self._drop_ranked(staging, sql("RANK"), merge.keys, newest_first)

    def drop_copies(self, staging: str, merge: Merge) -> SQL:
        """Return the DELETE of duplicate staged rows, which leaves one row for each value of keys and `sequence_by`."""
        return self._drop_ranked(staging, sql("ROW_NUMBER"), (*merge.keys, *merge.sequence_by), ROW)

    def _drop_ranked(self, staging: str, function: SQL, partition: Sequence[str], order: SQL) -> SQL:
        return sql(
            "DELETE FROM {table} WHERE {row} IN (SELECT {row} FROM (SELECT {row}, "
            "{}() OVER (PARTITION BY {} ORDER BY {}) AS {place} FROM {table}) ranked WHERE {place} > 1)",
            function, self._list(partition), order, table=self.beside(staging), row=ROW, place=PLACE,
        )  # fmt: skip

    def ties_within(self, staging: str, merge: Merge, declared: Mapping[str, str]) -> SQL:
        """Return the query that counts pairs of unlike staged rows with the same keys and the same `sequence_by`."""
        unequal, differ = sql("s.{0} <> t.{0}", DELETED), self._differ(merge, declared)
        # Two rows are also compared by their columns besides keys and `sequence_by`, but two deletes are not.
        if differ:
            unequal = sql("{} OR (s.{} = 0 AND ({}))", unequal, DELETED, joined(" OR ", differ))
        return sql(
            "SELECT COUNT(*) FROM {table} t JOIN {table} s ON {} AND s.{row} < t.{row} WHERE {}",
            self._tied(merge), unequal, table=self.beside(staging), row=ROW,
        )  # fmt: skip

    def ties_beside(self, staging: str, merge: Merge, declared: Mapping[str, str]) -> SQL:
        """Return a query: how many staged rows differ from a target row or delete of equal keys and `sequence_by`."""
        unequal = joined(" OR ", [sql("s.{} <> 0", DELETED), *self._differ(merge, declared)])
        return sql(
            "SELECT (SELECT COUNT(*) FROM {} t JOIN {staged} s ON {same} WHERE {}) + "
            "(SELECT COUNT(*) FROM {} t JOIN {staged} s ON {same} WHERE s.{} = 0)",
            self.target, unequal, self.beside(self.deletes_table), DELETED,
            staged=self.beside(staging), same=self._tied(merge),
        )  # fmt: skip

    def _differ(self, merge: Merge, declared: Mapping[str, str]) -> list[SQL]:
        """Return, for each column besides keys and `sequence_by`, the condition that two rows differ in that column."""
        return [
            self.sql.differ(sql("s.{}", self.sql.quote(name)), sql("t.{}", self.sql.quote(name)), declared[name])
            for name in declared
            if name not in (*merge.keys, *merge.sequence_by)
        ]

    def _tied(self, merge: Merge) -> SQL:
        return sql("{} AND {}", merge.matches(self.sql.quote), merge.ties(self.sql.quote))

    def merge(self, staging: str, merge: Merge, names: Sequence[str]) -> list[SQL]:
        """Return statements to merge staged rows: the newest of each key or, for a history table, all versions."""
        return self._versions(staging, merge, names) if merge.history else self._newest(staging, merge, names)

    def _newest(self, staging: str, merge: Merge, names: Sequence[str]) -> list[SQL]:
        writing, staged, gone = self.sql, self.beside(staging), self.beside(self.deletes_table)
        match, newer = merge.matches(writing.quote), merge.newer(writing.quote)
        row, delete = sql("s.{} = 0", DELETED), sql("s.{} <> 0", DELETED)
        named, source = [*merge.keys, *merge.sequence_by], sql("{} s", staged)
        not_there, not_remembered = _not_exists(self.target, match), _not_exists(gone, match)
        no_newer_delete = _not_exists(gone, match, sql("NOT {}", newer))

        def from_staged(columns: Sequence[str]) -> dict[str, SQL]:
            return {name: sql("s.{}", writing.quote(name)) for name in columns}

        return [
            # Update the keys, too: if the collation ignores case, a row with the key "A" replaces one with the key "a".
            writing.update_from(self.target, source, match, from_staged(names), _all(row, newer)),
            writing.delete_where(self.target, _some(staged, match, delete, newer)),
            writing.update_from(gone, source, match, from_staged(named), _all(delete, newer)),
            self._insert(gone, named, staged, _all(delete, not_there, not_remembered)),
            self._insert(self.target, names, staged, _all(row, not_there, no_newer_delete)),
            # Forget a delete once the target has a newer row of the key: from then on, older rows change nothing.
            writing.delete_where(gone, _some(staged, match, row, newer)),
        ]

    def _versions(self, staging: str, merge: Merge, names: Sequence[str]) -> list[SQL]:
        assert merge.history is not None
        writing, staged, gone = self.sql, self.beside(staging), self.beside(self.deletes_table)
        match = merge.matches(writing.quote)
        (by,) = merge.sequence_by
        from_, to = merge.history.valid_from, merge.history.valid_to
        start, end, sequence = map(writing.quote, (from_, to, by))
        # Do not fill `valid_from` if it is the column of `sequence_by`, which the rows have.
        started = [] if from_ in names else [from_]
        following = sql(
            "(SELECT {keys}, {started}, LEAD({started}) OVER (PARTITION BY {keys} ORDER BY {started}) AS {ended} FROM "
            "(SELECT {of_t}, t.{} AS {started} FROM {} t WHERE {touched} UNION "
            "SELECT {of_t}, t.{} FROM {} t WHERE {touched}) events) s",
            start, self.target, sequence, gone, keys=self._list(merge.keys), of_t=self._list(merge.keys, sql("t.")),
            touched=_some(staged, match), started=STARTED, ended=ENDED,
        )  # fmt: skip
        # Set each time column, even to its present value: MySQL may have declared one ON UPDATE CURRENT_TIMESTAMP.
        sets = {to: sql("s.{}", ENDED), from_: sql("t.{}", start), by: sql("t.{}", sequence)}
        new_delete = sql("s.{} <> 0 AND {}", DELETED, _not_exists(gone, match, merge.ties(writing.quote)))
        same_start = sql("t.{} = s.{}", start, sequence)
        new_row = sql("s.{} = 0 AND {}", DELETED, _not_exists(self.target, match, same_start))
        return [
            self._insert(gone, [*merge.keys, by], staged, new_delete),
            self._insert(self.target, [*names, *started], staged, new_row, [*names, *(by for _ in started)]),
            writing.update_from(
                self.target,
                following,
                _all(match, sql("t.{} = s.{}", start, STARTED)),
                sets,
                writing.differ(sql("t.{}", end), sql("s.{}", ENDED), "timestamp"),
            ),
        ]

    def _insert(
        self, into: SQL, names: Sequence[str], staged: SQL, condition: SQL, values: Sequence[str] | None = None
    ) -> SQL:
        columns, listed = self._list(names), self._list(values or names, sql("s."))
        return sql("INSERT INTO {} ({}) SELECT {} FROM {} s WHERE {}", into, columns, listed, staged, condition)

    def _list(self, names: Sequence[str], side: SQL | None = None) -> SQL:
        return joined(", ", (sql("{}{}", side or sql(""), self.sql.quote(name)) for name in names))


def _all(*conditions: SQL) -> SQL:
    return joined(" AND ", conditions)


def _some(staged: SQL, *conditions: SQL) -> SQL:
    """Return the SQL condition that a staged row or delete `s` exists for which all `conditions` are true."""
    return sql("EXISTS (SELECT 1 FROM {} s WHERE {})", staged, _all(*conditions))


def _not_exists(table: SQL, *conditions: SQL) -> SQL:
    """Return the SQL condition that a table has no row `t` for which all `conditions` are true."""
    return sql("NOT EXISTS (SELECT 1 FROM {} t WHERE {})", table, _all(*conditions))


# --- database access ------------------------------------------------------------------------------
# Two ways to write to a database: over JDBC with Spark, and through a Python driver with Arrow.
#
# Each way fills a landing table with rows, and opens sessions that run statements one by one or in a transaction.

Connect = Callable[[], Any]
PLACEHOLDERS: Mapping[str, tuple[LiteralString, LiteralString]] = {
    "qmark": ("?", "%"), "format": ("%s", "%%"), "pyformat": ("%s", "%%"), "pg8000": ("%s", "%"), "mysql": ("%s", "%"),
}  # fmt: skip
"""How drivers, by paramstyle or name, write the placeholder of a value, and a ``%`` that is none.

pg8000 ignores both within quotes. mysql.connector takes each ``%s`` for a placeholder, even in names: no escape.
"""
HELD = frozenset((*PLAIN, "char", "varchar", "uint64", "void"))
"""The types that columns of databases have, by the names in Spark and pyarrow."""
ARRIVING_AS = {"void": "unknown", "char": "string", "varchar": "string", "uint64": "decimal(20,0)"}
"""For types in `HELD` that are written as another type: that type."""
UNFIT = internal("unfit")
"""The text in a Spark error that marks a number which the database cannot hold."""
ROWS_AT_ONCE = 10_000
"""Rows in one call of a driver's `executemany`, and in a batch of Spark's JDBC writer, whose default of 1,000 needs ten
times as many round trips."""


def arriving(types: Mapping[str, str]) -> list[Arriving]:
    """Return the columns of the landing table, into which rows are written before staging. Leave out `DELETED`."""
    found = []
    for position, (name, kind) in enumerate(types.items()):
        base = kind.partition("(")[0].partition(" ")[0]
        if name != DELETED:
            found.append(Arriving(name, ARRIVING_AS.get(base, kind if base == "decimal" else base), position))
    return found


# --- over JDBC, with Spark ----------------------------------------------------------------------------


class JdbcSession:
    """A session through a ``java.sql.Connection`` of the driver's JVM.

    Each statement commits by itself, unless it is between `begin` and `commit`. Uncommitted changes are rolled back
    when the session ends.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, statement: SQL, values: Values = ()) -> int:
        """Run a statement, with one value for each `VALUE` in it, and return the number of rows that it changed."""
        with self._prepared(statement, values) as running:
            running.execute()
            return int(running.getUpdateCount())

    def rows(self, query: SQL, values: Values = ()) -> list[tuple[str | None, ...]]:
        """Return the rows of a query, with every value as text."""
        with self._prepared(query, values) as running:
            return rows_of(running.executeQuery())

    @contextmanager
    def _prepared(self, statement: SQL, values: Values) -> Iterator[Any]:
        running = self._connection.prepareStatement(with_marks(statement, "?", "%", len(values)))
        try:
            for position, value in enumerate(values, 1):
                running.setObject(position, value)
            yield running
        finally:
            running.close()

    def begin(self) -> None:
        """Begin a transaction."""
        self._connection.setAutoCommit(False)

    def commit(self) -> None:
        """Commit the transaction."""
        self._connection.commit()
        self._connection.setAutoCommit(True)


class JdbcAccess:
    """Access over JDBC: executors write the rows, and the driver's JVM runs the statements.

    `place` names the database in the names of targets, without any secret.
    """

    def __init__(
        self, spark: SparkSession, url: str, properties: Mapping[str, str] | None = None, name: str | None = None
    ) -> None:
        check_jvm(
            spark, "A database sink over JDBC",
            "Give the sink connect=, set spark.sql.session.timeZone=UTC and write df.toPandas(), or run the job with a "
            "classic session.",
        )  # fmt: skip
        levels = [value for option, value in (properties or {}).items() if option.lower() == "isolationlevel"]
        if any(level.upper() == "NONE" for level in levels):
            # Refuse NONE: Spark would commit each batch of a task's rows, so a failed task would leave some rows.
            raise InvalidValueError(
                "isolationLevel=NONE is refused: rows that a task has written in parts cannot be told from those of "
                "its other attempts. Leave the option out."
            )
        self.sql = database = writable(database_of(url))
        self.place = name or place_of_url(url)
        self._spark, self.rows = spark, SparkRows(spark)
        by_default = {"driver": database.driver, "batchsize": str(ROWS_AT_ONCE), **database.writing_options}
        self._options = {**by_default, **database.options, **(properties or {}), "url": url}

    def __repr__(self) -> str:
        """Return the place only, because the connection's properties are secret."""
        return f"{type(self).__name__}({self.place!r})"

    def taken(self, df: Any, target: str) -> DataFrame:
        """Return a Spark frame cast to types that databases have; InvalidValueError if the frame is not of Spark."""
        if spark_of(df) is None:
            raise InvalidValueError(
                "the rows are not of Spark, and the sink reaches its database over JDBC. Give the sink connect= "
                "instead of spark= and url=, or write spark.createDataFrame(rows)."
            )
        return self.rows.taken(df, target, HELD)

    @contextmanager
    def session(self) -> Iterator[JdbcSession]:
        """Open a connection, and close it at the end."""
        with jdbc_connection(self._spark, self._options) as connection:
            session = JdbcSession(connection)
            if self.sql.writing_session:
                session.run(self.sql.writing_session)
            yield session

    def fill(self, rows: DataFrame, table: SQL, columns: Sequence[Arriving]) -> None:
        """Write rows to an existing landing table, from which the server then fills the staging table."""
        unfit = self.sql.unfit_floats
        written = [sql("{} AS {}", _landed_in_spark(column, unfit), column.landing) for column in columns]
        written.append(sql("CAST(spark_partition_id() AS BIGINT) AS p"))
        written.append(sql("monotonically_increasing_id() AS n"))
        written.append(sql("CAST({} AS BIGINT) AS d", DELETED if DELETED in rows.columns else sql("0")))
        landed = rows.selectExpr(*written)
        landed = landed.coalesce(1) if self.sql.has_one_writer else landed
        options = self.sql.filling_options(self._options)
        try:
            landed.write.format("jdbc").options(**options, dbtable=table).mode("append").save()
        except Exception as error:
            for column in columns:
                if f"{UNFIT}_{column.position}." in str(error):
                    check_unfit(self.sql, column, " or ".join(unfit))
            found = driver_error(error)
            # Search for a NUL in texts only after a failure, because the search reads all rows.
            if found is not None and not found.is_outage and not self.sql.holds_nul:
                self._check_nul(rows, [column for column in columns if column.kind == "string"])
            raise

    def _check_nul(self, rows: DataFrame, columns: Sequence[Arriving]) -> None:
        places = [sql("MAX(instr({}, CAST(X'00' AS STRING)))", SPARK.quote(column.name)) for column in columns]
        found = rows.selectExpr(*places).first() if places else None
        for column, place in zip(columns, found or (), strict=False):
            check_unfit(self.sql, column, "a text with NUL" if place else None)


def _landed_in_spark(column: Arriving, unfit: Sequence[str]) -> SQL:
    """Return Spark's SQL for the value of a column in the landing table. Times become text, those with a zone in UTC.

    For a number in `WritableDatabase.unfit_floats`, the SQL raises an error with `UNFIT` and the column's position.
    """
    quoted = SPARK.quote(column.name)
    if column.kind in ("float", "double") and unfit:
        listed = joined(", ", (sql("CAST({} AS DOUBLE)", in_quotes(one)) for one in unfit))
        error = sql("raise_error({})", in_quotes(f"{UNFIT}_{column.position}."))
        return sql("IF({0} IN ({1}), CAST({2} AS DOUBLE), {0})", quoted, listed, error)
    if column.kind == "timestamp":
        # Compute the text in UTC here, because Spark's own functions convert a timestamp in the session's time zone.
        micros = sql("unix_micros({})", quoted)
        inside = sql("pmod({}, 86400000000L)", micros)
        day = sql("CAST(date_add(DATE'1970-01-01', CAST(({} - {}) div 86400000000L AS INT)) AS STRING)", micros, inside)
        return sql(
            "concat({}, ' ', format_string('%02d:%02d:%02d.%06d', {inside} div 3600000000L, "
            "({inside} div 60000000L) % 60, ({inside} div 1000000L) % 60, {inside} % 1000000L))",
            day, inside=inside,
        )  # fmt: skip
    text = sql("CAST({} AS STRING)", quoted)
    if column.kind == "timestamp_ntz":
        # Do not use date_format: it reads the time in the session's zone, and shifts it if that zone skips the hour.
        return sql("rpad(concat({0}, if(locate('.', {0}) = 0, '.', '')), 26, '0')", text)
    if column.is_text:
        return text
    if column.kind in ("float", "double", "boolean", "binary"):
        return quoted
    return sql("CAST({} AS BIGINT)", quoted)


def place_of_url(url: str) -> str:
    """Return the server and the database in a JDBC URL, without user, password and options.

    >>> place_of_url("jdbc:postgresql://me:secret@db.example:5432/shop?password=secret")
    'postgresql://db.example:5432/shop'
    """
    found = re.fullmatch(r"jdbc:(\w+):(?:\w+:)?(?://)?([^?;]*).*", url, re.DOTALL | re.IGNORECASE)
    if found is None or "(" in found[2]:
        raise InvalidValueError("the server cannot be read from the URL of the database. Give name=.")
    return f"{found[1].lower()}://{found[2].rpartition('@')[2]}"


def check_unfit(database: WritableDatabase, column: Arriving, found: str | None) -> None:
    """Raise InvalidValueError if `found` describes a value that the database cannot hold, such as "a text with NUL"."""
    if found:
        text = f"column {column.name!r} has {found}, which {database.name} does not hold. Replace it."
        raise InvalidValueError(text) from None


# --- by a Python driver, with Arrow ------------------------------------------------------------------


class DriverSession:
    """Like `JdbcSession`, but for a connection of a Python driver (DB API 2.0)."""

    def __init__(self, connection: Any, database: WritableDatabase, style: str) -> None:
        self._connection, self._sql, self._marks = connection, database, PLACEHOLDERS[style]

    def run(self, statement: SQL, values: Values = ()) -> int:
        with self._cursor() as cursor:
            cursor.execute(with_marks(statement, *self._marks, len(values)), values)
            return int(cursor.rowcount)

    def rows(self, query: SQL, values: Values = ()) -> list[tuple[str | None, ...]]:
        with self._cursor() as cursor:
            cursor.execute(with_marks(query, *self._marks, len(values)), values)
            return [tuple(None if value is None else _text(value) for value in row) for row in cursor.fetchall()]

    def insert(self, statement: SQL, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows within a transaction."""
        with self._cursor() as cursor:
            cursor.executemany(with_marks(statement, *self._marks, len(rows[0])), rows)

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        cursor = self._connection.cursor()
        try:
            yield cursor
        finally:
            with suppress(Exception):  # After a lost connection, an error of `close` would hide the first error.
                cursor.close()

    def begin(self) -> None:
        self.run(self._sql.begins)

    def commit(self) -> None:
        self.run(sql("COMMIT"))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


class DriverAccess:
    """Access by a Python driver, like `JdbcAccess`: connections from `connect` write rows and run statements."""

    rows = ARROW_ROWS

    def __init__(self, connect: Connect, name: str) -> None:
        self._connect = connect
        self.place = f"database://{name}"
        self._sql: WritableDatabase | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.place!r})"

    @property
    def sql(self) -> WritableDatabase:
        # Only an open connection shows whether the driver is for PostgreSQL, MySQL, MariaDB or SQLite.
        if self._sql is None:
            with self.session():
                pass
        assert self._sql is not None
        return self._sql

    def taken(self, df: Any, target: str) -> Any:
        if spark_of(df) is not None:
            raise InvalidValueError(
                "the rows are of Spark, and the sink reaches its database by a Python driver. Give the sink spark= and "
                "url= instead of connect=, or write a frame of pandas or a table of pyarrow."
            )
        # A column without any value gets no type: pandas reads an empty CSV column as numbers, which may be wrong.
        return without_types(self.rows.taken(df, target, HELD))

    @contextmanager
    def session(self) -> Iterator[DriverSession]:
        connection = self._connect()
        try:
            package = type(connection).__module__.partition(".")[0]
            if package not in MODULES:
                raise InvalidValueError(
                    f"connect returns a {package}.{type(connection).__name__}, whose database is not known. It must be "
                    f"of one of {', '.join(MODULES)}."
                )
            self._sql = self._sql or MODULES[package]
            _commit_each(connection)
            style = package if package in PLACEHOLDERS else sys.modules[package].paramstyle
            session = DriverSession(connection, self._sql, style)
            if self._sql.writing_session:
                session.run(self._sql.writing_session)
            try:
                yield session
            except BaseException:
                # Roll back, because `close` may only return the connection to a pool, with its transaction still open.
                with suppress(Exception):
                    connection.rollback()
                raise
        finally:
            with suppress(Exception):  # After a lost connection, an error of `close` would hide the first error.
                connection.close()

    def fill(self, rows: Any, table: SQL, columns: Sequence[Arriving]) -> None:
        names = joined(", ", [*(column.landing for column in columns), sql("p, n, d")])
        marks = joined(", ", [VALUE] * (len(columns) + 3))
        insert, count = sql("INSERT INTO {} ({}) VALUES ({})", table, names, marks), 0
        there = spooled_to_file(rows) if isinstance(rows, ArrowStream) else rows.to_reader(ROWS_AT_ONCE)
        with there as batches, self.session() as session:
            session.begin()
            for batch in batches:
                # Insert 10,000 rows at a time, because as Python objects they take many times the memory.
                for start in range(0, len(batch), ROWS_AT_ONCE):
                    part = batch.slice(start, ROWS_AT_ONCE)
                    session.insert(insert, self._landed(part, columns, count))
                    count += len(part)
            session.commit()

    def _landed(self, rows: pa.RecordBatch, columns: Sequence[Arriving], first: int) -> list[Sequence[Any]]:
        """Return rows for the landing table, numbered from `first`; InvalidValueError if a value cannot be stored."""
        values = [_landed(column, rows.column(column.position)) for column in columns]
        for column, found in zip(columns, values, strict=True):
            if column.kind == "string" and not self.sql.holds_nul:
                check_unfit(self.sql, column, next(("a text with NUL" for text in found if "\0" in (text or "")), None))
            if column.kind in ("float", "double"):
                unfit = self.sql.unfit_floats
                check_unfit(self.sql, column, " or ".join(unfit) if any(str(one) in unfit for one in found) else None)
        count = len(rows)
        deleted = map(int, rows[DELETED].to_pylist()) if DELETED in rows.schema.names else [0] * count
        return list(zip(*values, [0] * count, range(first, first + count), deleted, strict=True))


def _commit_each(connection: Any) -> None:
    """Switch a connection to autocommit, so that only this module begins transactions."""
    if hasattr(connection, "isolation_level") and type(connection).__module__.startswith("sqlite3"):
        connection.isolation_level = None
    elif callable(connection.autocommit):
        connection.autocommit(True)
    else:
        connection.autocommit = True


def _landed(column: Arriving, array: Any) -> list[Any]:
    """Return a column's values for the landing table (before staging); InvalidValueError for dates Python lacks."""
    try:
        values = array.to_pylist()
    except OverflowError:
        years = "before the year 1 or after 9999, which drivers of Python do not have"
        raise InvalidValueError(f"column {column.name!r} has a date or time {years}. Replace it.") from None
    return [None if value is None else _plain(value) for value in values] if column.is_text else values


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ", "microseconds")
    # Never write exponents: a text column of SQLite would keep them.
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


Session = JdbcSession | DriverSession
Access = JdbcAccess | DriverAccess

# --- errors -------------------------------------------------------------------------------------------

MISFITS = {
    "22001": "a text is too long for it",
    "22003": "a number is out of range there",
    "22007": "the type has no such value",
    "22P02": "the type has no such value",
    "23514": "a value does not meet a CHECK of its type",
}
MEANINGS = {
    BAD_URL: "the driver does not accept the URL",
    "22": "a value does not fit its column",
    "23": "a constraint of the table is violated (NOT NULL, unique, foreign key or check)",
    "42P01": "a table is gone",
    "42S02": "a table is gone",
    CANCELED: "the statement was canceled, by a time-out of the server or by a person",
    "0A": "the database cannot do this",
    FULL: "its disk is full. Free space there",
}


def misfit(error: Exception) -> str | None:
    """Return the reason if a server's error is that a value does not fit its column; None for any other error."""
    found = driver_error(error)
    return MISFITS.get(found.meaning) if found is not None else None


@contextmanager
def target_errors(target: str, doing: str, rights: str = "") -> Iterator[None]:
    """Translate a driver's errors to TargetError, without their text, which may hold a host, a query or values.

    `doing` is the failed action, and `rights` the GRANT to run if a right is missing.

    Raises
    ------
    TargetUnavailableError
        The database is down, too busy or disconnected; another session holds a lock; or a deadlock ended this one.
    TargetError
        Anything else, such as a right that the user lacks.
    """
    try:
        yield
    except Exception as error:
        found = driver_error(error)
        if found is None:
            raise
        shown = found.shown
        if found.is_refused:
            remedy = rights or "Check the user, the password and the user's rights"
            raise TargetError(target, remedy, reason="refused", doing=doing, shown=shown, rights=rights) from None
        if found.is_deadlock or found.meaning == LOCKED:
            facts: dict[str, Any] = {"doing": doing, "shown": shown, "is_deadlock": found.is_deadlock}
            raise TargetUnavailableError(target, reason="locked", **facts) from None
        if found.is_outage:
            raise TargetUnavailableError(target, reason="unreachable", doing=doing, shown=shown) from None
        why = next((text for start, text in MEANINGS.items() if found.meaning.startswith(start)), "")
        more = "" if found.meaning == FULL else " Its log says more."
        raise TargetError(target, f"{doing}: {why or 'the database refused it'} ({shown}).{more}") from None


# --- database -------------------------------------------------------------------------------------


class DatabaseSink(TableSink):
    """A table of PostgreSQL, MySQL, MariaDB or SQLite.

    Guarantees: each row of a published batch is in the table exactly once, and readers see all rows of a batch or
    none. This holds even if other attempts at the batch run, pause or crash, because each attempt writes to a staging
    table of its own, next to the target. One transaction then inserts the batch's key into ``glue_watermarks_batches``
    and the rows of the committed attempt into the target. If the key is there already, it inserts nothing.

    For rows of Spark, give `spark` and `url`: the executors write the rows over JDBC, and the driver's JVM runs the
    transaction. For rows of pandas or Arrow, give `connect`: a Python driver writes them.

    Parameters
    ----------
    table
        ``table`` or ``schema.table``, or its parts in a list if a part has a dot. The table must exist.
    spark, url, properties
        The session; a URL such as ``jdbc:postgresql://host:5432/shop``; options of Spark's writer, such as ``user``
        and ``password``. URL and properties are never shown.
    connect
        A function that returns a new connection of a Python driver, such as psycopg, PyMySQL or sqlite3.
    name
        The name of the database in the head, in logs and errors. Required with `connect`; by default the server and
        database of the URL. Use the same name in every run: a run finds by name what a run that died has staged.
    merge
        The keys and the order by which a new row replaces an old one; see `IncrementalJob.merge`. None: append rows.
    batch_column
        A text column of the table that the sink fills with the batch id of each row, so that `rewind` and `reset`
        with ``retract=True`` can delete published rows. None: published rows stay. Not allowed together with `merge`.

    Raises
    ------
    InvalidValueError
        Neither or both ways to reach the database are given, or one of them is incomplete.
    TargetError
        A part of the table's name is empty.
    """

    _log: _Log

    needs_script = True

    def __init__(
        self,
        table: str | Sequence[str],
        *,
        spark: SparkSession | None = None,
        url: str | None = None,
        properties: Mapping[str, str] | None = None,
        connect: Callable[[], Any] | None = None,
        name: str | None = None,
        merge: Merge | None = None,
        batch_column: str | None = None,
    ) -> None:
        parts = table.split(".") if isinstance(table, str) else list(table)
        log = _Log(_access(spark, url, properties, connect, name), parts)
        super().__init__(log.target, log, merge, batch_column)
        if not parts or not all(parts) or any("\0" in part for part in parts):
            raise TargetError(
                self.name, "its name has an empty part. Give 'table' or 'schema.table'.", reason="unfit_table"
            )

    def __repr__(self) -> str:
        """Return the target only, because the connection's properties are secret."""
        return f"{type(self).__name__}({self.name!r})"

    def is_of(self, record: Output | Retraction) -> bool:
        """Return whether a record is of this table, even if only one of the names has a schema (`public.repairs`)."""
        place, table = f"{self._log.access.place}/", self._log.table
        # Compare the database, too, because another one may have a table of the same schema and name.
        if not record.target.startswith(place):
            return False
        if isinstance(record, Output):
            is_named = record.folder.startswith(owner_of(table, record.job))
        else:
            # An output's staging table has a hash of the target in its name. A retraction has no staging table, so
            # compare the end of its target. A target named `a.repairs` (one name with a dot) also matches `repairs`.
            # Still no row is lost: only rows of retracted versions are deleted, and the job reads these versions again.
            is_named = f".{record.target.removeprefix(place)}".endswith(f".{table}")
        return is_named and record.staging == self._log.schema

    def check(self, df: DataFrame | pd.DataFrame) -> Any:
        """Return the rows for `stage`; InvalidValueError for a frame of the other engine, or a type no database has."""
        rows = self._log.access.taken(super().check(df), self.name)
        check_batch_column(self._batch_column, columns_of(rows), merges=self.rules is not None)
        return rows

    def publish(self, output: Output) -> None:
        """Insert or merge the rows of a committed attempt into the target in one transaction, unless they are there.

        Late, repeated and concurrent calls do no harm: the second call to insert the batch's key waits for the first,
        up to the database's time-out, and then does nothing. After a deadlock the transaction is retried.

        Raises
        ------
        StagedFilesLostError
            The staging table is gone, and the batch is not in the target.
        UnprovenError
            The output names a staging table of another schema, or one whose name is not made of this batch and target.
        InvalidValueError
            Since staging, another writer added a row with the key and sequence of a row of the batch, but other values.
        TargetUnavailableError, TargetError
            The database refuses or fails. Nothing is changed.
        """
        if output.rows == 0:
            return
        # Use the merge and the batch column that the script gives: the record of the output may be forged.
        own = replace(output, batch_column=self._batch_column, merge=self.rules.columns if self.rules else None)
        if own.terms != output.terms:
            raise TargetError(
                self.name,
                f"version {output.version} is recorded with another merge or batch column than this run gives. If the "
                "script was changed, run it once as it was. If not, somebody altered the job's item.",
            )
        self._decided(lambda: self._publish(output))

    def recorded(self, job: str, *, others: bool = False, newest: Output | None = None) -> Witnessed:
        found = super().recorded(job, others=others)
        # If the target was recreated, distrust the table of batches: the batch column shows which batches have rows.
        if newest is None or not newest.table or not newest.batch_column or self._log.has(newest):
            return found
        made = [self.retraction(newest.job_id, epoch, 1, last, datetime.min) for epoch, last in found.epochs.items()]
        counted = [replace(one, batch_column=newest.batch_column) for one in made]
        kept = {application_of(of): self._log.last_kept(of) if self._has_column(of) else 0 for of in counted}
        return replace(found, rolled_back=kept)

    def _attempts(self, of: Output | Retraction | None) -> Sequence[Attempts]:
        schema = self._log.schema
        if of is not None and schema not in (None, of.staging):
            version = of.version if isinstance(of, Output) else of.first
            raise UnprovenError(self.name, version, f"its schema is {schema!r}, and not the one that is recorded")
        return [_StagingTables(self._log, of.staging if of is not None else self._staging_now())]

    def _staging_now(self) -> str:
        return self._log.schema or ""

    def _stage(self, batch: BatchId, made: Output, rows: Any) -> Output:
        log = self._log
        rows = with_batch(rows, self._batch_column, value_of_batch(batch))
        table = staging_table(log.table, batch, made.fence, new_token()[:5])
        attempt = _Attempt(log, self.rules, log.arriving(rows), table)
        made = replace(made, staging=attempt.statements.schema, folder=table, files=1, table=attempt.number)
        # Refuse a second attempt of a run that saves no watermarks: no column would show which attempt appended a row.
        if made.replaces and self.rules is None and self._has(made):
            raise TargetError(
                self.name,
                "this run, which saves nothing, has written to it before, and those rows cannot be distinguished. Use "
                "another run id, or job.merge.",
            )
        attempt.prepare()
        try:
            count = attempt.fill(rows)
        except BaseException:
            # Ignore an error while the staging table is dropped, because the error of `fill` says more.
            with suppress(TargetError):
                _StagingTables(log, made.staging).drop(table)
            raise
        return replace(made, rows=count)


class _Log(TableLog):
    """A table of a database, and the table next to it that records each batch as published or taken back."""

    format, engine, title, restore_command, retries_decisions = "database", None, "database", "a backup", True

    def __init__(self, access: Access, parts: Sequence[str]) -> None:
        self.access, self.parts = access, parts
        self.target, self.table = f"{access.place}/{'.'.join(parts)}", parts[-1] if parts else ""

    @cached_property
    def sql(self) -> WritableDatabase:
        """The dialect for writing to the database."""
        with target_errors(self.target, "the database cannot be reached"):
            return self.access.sql

    @cached_property
    def schema(self) -> str | None:
        """The schema of the target table; None if there is no such table."""
        with self.session("the table cannot be looked at") as session:
            found = session.rows(self.sql.schema_of(self.parts))
        return str(found[0][0]) if found else None

    @contextmanager
    def session(self, doing: str, rights: str = "") -> Iterator[Session]:
        """Open a connection; translate the driver's errors to a TargetError that names the failed action."""
        with target_errors(self.target, doing, rights), self.access.session() as session:
            yield session

    def arriving(self, rows: Any) -> list[Arriving]:
        return arriving(self.access.rows.by_path(rows.schema))

    def statements(self, schema: str) -> Statements:
        return Statements(self.sql, schema, self.table)

    def batches(self, session: Session, schema: str) -> Statements | None:
        """Return the statements for the target and the table of batches; None if there is no table of batches.

        A job's mark (the hash of its id) has 8 digits in a table of batches that an earlier version of this package
        created. The statements then cut marks that they look for to 8 digits, so that they find the table's batches.
        """
        found = self.catalogue(session, [schema, BATCHES])
        digits = 8 if found and "(8)" in found["job"].declared else MARK_DIGITS
        return Statements(self.sql, schema, self.table, digits) if found else None

    def catalogue(self, session: Session, parts: Sequence[str]) -> dict[str, TableColumn]:
        """Return the columns of a table by name; empty if there is no such table."""
        return columns_of_catalogue(session.rows(self.sql.catalogue(parts)))

    def exists(self) -> bool:
        return True  # True even without the target, because batches are recorded in another table: see `_versions`.

    def shape(self) -> TableShape | None:
        with self.session("the table cannot be looked at") as session:
            found = self.catalogue(session, self.parts)
        return TableShape({name: column.declared for name, column in found.items()}, [], []) if found else None

    def recorded(self, of: Output | Retraction) -> int:
        with self.session("published batches cannot be read") as session:
            return max(self._versions(session, of), default=0)

    def witnessed(self, job: str, *, others: bool) -> Witnessed:
        if self.schema is None:
            return Witnessed(job, {})
        with self.session("published batches cannot be read") as session:
            batches = self.batches(session, self.schema)
            rows = session.rows(*batches.recorded("" if others else job)) if batches else []
        versions = {app_of_batch_row(job, str(of), str(epoch)): int(str(last)) for of, epoch, last in rows}
        return Witnessed(job, versions)

    def commit(self, of: Output | Retraction, version: int, change: Append | MergeRows | Nothing) -> None:
        # Do nothing for a retraction (`Nothing`): `withdraw` has already recorded its staged versions as taken back.
        if isinstance(change, Nothing):
            return
        assert isinstance(of, Output)
        table = change.staged.folder
        with self.session("the batch cannot be published") as session:
            _begin(session, self.sql)
            statements = self.batches(session, of.staging) or self.statements(of.staging)
            if isinstance(change, MergeRows):
                session.run(*statements.lock())
                if change.repeats:
                    session.run(*statements.forget(of))
            # Record the batch before its rows: the same INSERT by another publisher waits until this transaction ends.
            if not session.run(*statements.record(of, version, table)):
                session.commit()
                return
            staged = self.catalogue(session, [of.staging, table])
            if not staged:
                raise StagedFilesLostError(of.target, version, [table], is_table=True)
            names = [name for name in staged if name not in (DELETED, ROW)]
            self._check_altered(session, statements, {name: staged[name].declared for name in names})
            if isinstance(change, Append):
                moves = statements.append(table, names)
            else:
                moves = statements.merge(table, change.rules, names) if names else []
                if names:
                    declared = {name: staged[name].declared for name in names}
                    self.check_ties(
                        session, statements.ties_beside(table, change.rules, declared), change.rules, "in the target"
                    )
            for move in moves:
                session.run(move)
            session.commit()
        logger.info("event=rows_published target=%s version=%d rows=%s", self.target, version, of.rows)

    def _check_altered(self, session: Session, statements: Statements, staged: Mapping[str, str]) -> None:
        """Raise TargetError if a column's type was altered since rows were staged, so that values could change."""
        # Read the table, so that no ALTER TABLE comes between this check and the end of the transaction.
        session.rows(sql("SELECT 1 FROM {} WHERE 1 = 0", statements.target))
        now = self.catalogue(session, [statements.schema, statements.table])
        for name, declared in staged.items():
            if name in now and not self.sql.keeps(declared, now[name].declared):
                raise TargetError(
                    self.target,
                    f"column {name!r} is {now[name].declared} now, and the batch was staged for {declared}, so its "
                    f"values could change. Alter the column back to {declared}, publish the batch, and alter it again.",
                    reason="unfit_table",
                )

    def check_ties(self, session: Session, query: SQL, rules: Merge, where: str) -> None:
        """Raise InvalidValueError if a query counts tied rows: the same key and sequence, but other values."""
        count = _count(session, query)
        if count:
            raise rules.tied(self.target, count, where)

    def delete(self, retraction: Retraction) -> int:
        with self.session("a batch cannot be taken back") as session:
            _begin(session, self.sql)
            statements = self.batches(session, retraction.staging) or self.statements(retraction.staging)
            # Select each version by its value, not a range of values: a collation might sort other batches into that.
            versions = self._versions(session, retraction)
            if versions:
                # Include versions that are taken back already: a backup of the target may have restored their rows.
                versions = self._versions(session, retraction, RECORDED)
            deleted = sum(
                session.run(*delete) for delete in statements.statements_by_batch(sql("DELETE"), retraction, versions)
            )
            # Keep the record, marked as taken back, so that a paused publisher of the batch finds it and does nothing.
            session.run(*statements.take_back(retraction))
            session.commit()
        return deleted

    def count(self, retraction: Retraction) -> int:
        with self.session("published batches cannot be read") as session:
            statements, versions = self.statements(retraction.staging), self._versions(session, retraction)
            queries = statements.statements_by_batch(sql("SELECT COUNT(*)"), retraction, versions)
            return sum(_count(session, *query) for query in queries)

    def number(self, session: Session) -> str | None:
        """Return a text that changes if the table is dropped and made again; None if the database has no such text."""
        return next((number for (number,) in session.rows(self.sql.number_of(self.parts))), None)

    def has(self, output: Output) -> bool:
        """Return whether the target is still the table that an output was written to, or has rows of the batch."""
        with self.session("the table cannot be looked at") as session:
            if self.number(session) == output.table:
                return True
            if output.batch_column not in self.catalogue(session, self.parts):
                return False
            ((query, values),) = self.statements(output.staging).statements_by_batch(
                sql("SELECT 1"), output, [output.version]
            )
            return bool(session.rows(sql("{}{} LIMIT 1", query, self.sql.last_first), values))

    def last_kept(self, of: Retraction) -> int:
        """Return the last version up to `of.last` with rows in the table, judged by the batch column; 0 for none."""
        return bisect_left(range(1, of.last + 1), True, key=lambda first: not self.count(replace(of, first=first)))

    def meaning(self, error: Exception) -> Meaning | None:
        return None  # Sessions turn their driver's errors into TargetErrors, so no driver's error arrives here.

    def _versions(self, session: Session, of: Output | Retraction, kept: SQL = KEPT) -> list[int]:
        batches = self.batches(session, of.staging)
        found = session.rows(*batches.versions(of, kept)) if batches else []
        return [int(str(version)) for (version,) in found]


class _StagingTables(Attempts):
    """The staging tables next to a target, one for each attempt."""

    called = "table"

    def __init__(self, log: _Log, schema: str) -> None:
        self._log, self._schema = log, schema

    def has(self, folder: str, job: str) -> bool:
        return folder.startswith(owner_of(self._log.table, job))

    def find(self, output: Output) -> StagedRows:
        if not is_own_table(output, self._log.table):
            raise UnprovenError(
                self._log.target, output.version, "its staging table is not one that an attempt at its batch makes"
            )
        with self._log.session("the batch cannot be published") as session:
            if not self._log.catalogue(session, [self._schema, output.folder]):
                raise StagedFilesLostError(output.target, output.version, [output.folder], is_table=True)
        return StagedRows(output.folder)

    def left(self, job: str) -> list[str]:
        if not self._schema:
            return []  # The target does not exist, so it is unknown which schema may have staging tables.
        with self._log.session("staging tables cannot be listed") as session:
            found = session.rows(self._log.sql.tables_like(self._schema, owner_of(self._log.table, job)))
        return sorted({(table or "").removesuffix(LANDING) for (table,) in found})

    def left_at(self, folder: str) -> str:
        return f"table {folder} beside {self._log.target}"

    def drop(self, folder: str) -> None:
        statements = self._log.statements(self._schema)
        with self._log.session(f"staging table {folder!r} cannot be dropped") as session:
            _begin(session, self._log.sql)
            # Do not wait: a paused attempt may lock the table long. No reader sees the table; the next run sweeps it.
            if statements.sql.impatient:
                session.run(statements.sql.impatient)
            session.run(statements.drop(folder + LANDING))
            session.run(statements.drop(folder))
            session.commit()

    clear = drop

    def withdraw(self, retraction: Retraction) -> bool:
        tables = self.covered(retraction)
        for table in tables:
            version = version_of(table, retraction.epoch) or 0
            with self._log.session("a batch cannot be taken back") as session:
                # Insert the batch's key, so that a late publisher does nothing. If one publishes now, the INSERT waits.
                batches = self._log.batches(session, self._schema) or self._log.statements(self._schema)
                session.run(*batches.record(retraction, version, TAKEN_BACK))
        return bool(tables)

    def retract(self, retraction: Retraction) -> None:
        for table in self.covered(retraction):
            try:
                self.drop(table)
            except TargetError as error:
                # Only warn: no run publishes this staging table any more, and a paused attempt may keep it locked.
                logger.warning("event=staging_left target=%s error=%s", self._log.target, error)


class _Attempt:
    """The rows that one attempt stages, checked against the target as it is now.

    The server converts values to the columns' types. Then a merge refuses unequal rows of equal keys and `sequence_by`.

    Raises
    ------
    TargetError
        The rows do not fit the target.
    """

    def __init__(self, log: _Log, rules: Merge | None, arriving: Sequence[Arriving], table: str) -> None:
        self._log, self._rules, self._arriving, self._table = log, rules, arriving, table
        self._sql = sql = log.sql
        self._written = sql.table(log.parts)
        self._check_name()
        with log.session("the table cannot be looked at", f"GRANT SELECT, INSERT ON {self._written}") as session:
            self._columns = log.catalogue(session, log.parts)
            if not self._columns:
                raise self._unfit(
                    "there is no such table. If it had rows of this job before, run `watermarks reset` for the job as "
                    f"well: a new table gets new rows only. Create it: {self._create()}"
                )
            ((schema,),) = session.rows(sql.schema_of(log.parts))
            self.number = log.number(session)
            transactional = sql.is_transactional(log.parts)
            if transactional is not None and session.rows(transactional) == [("0",)]:
                raise self._unfit(f"its engine has no transactions. Run ALTER TABLE {self._written} ENGINE=InnoDB.")
        self.statements = log.statements(str(schema))
        self._check_columns()

    def _unfit(self, detail: str) -> TargetError:
        return TargetError(self._log.target, detail, reason="unfit_table")

    def _check_name(self) -> None:
        limit = self._sql.longest_name
        for part in self._log.parts:
            if limit and len(part.encode()) > limit:
                raise self._unfit(
                    f"{part!r} has {len(part.encode())} bytes, and {self._sql.name} has names of up to {limit}."
                    " Check the name.",
                )

    def _create(self) -> str:
        sql, rules = self._sql, self._rules
        declared = {column.name: sql.declaration(column) for column in self._arriving}
        key = list(rules.keys) if rules else []
        if rules and rules.history:
            declared |= {name: declared[like] for name, like in rules.ends(list(declared)).items()}
            key.append(rules.history.valid_from)
        listed = [f"{sql.quote(name)} {kind}" for name, kind in declared.items()]
        if key:
            listed.append(f"PRIMARY KEY ({', '.join(map(sql.quote, key))})")
        return f"CREATE TABLE {self._written} ({', '.join(listed)})"

    def _check_columns(self) -> None:
        columns, rules = self._columns, self._rules
        named = [*rules.keys, *rules.sequence_by] if rules is not None else []
        if any(column.name in columns for column in self._arriving):
            # Leave out each column that the table lacks if no row has a value in it, as other sinks do.
            self._arriving = [
                column
                for column in self._arriving
                if column.name in columns or column.kind != "unknown" or column.name in named
            ]
        for column in self._arriving:
            found = columns.get(column.name)
            if found is None:
                near = [name for name in columns if name.lower() == column.name.lower()]
                remedy = f"It has {near[0]!r}: rename it" if near else "Add it to the table, or leave it out of"
                raise self._unfit(
                    f"it has no column {column.name!r}. {remedy} {'in ' if near else ''}the rows. "
                    f"Its columns are {', '.join(columns)}.",
                )
            if found.filled == "always":
                raise self._unfit(f"column {column.name!r} is computed by the database. Leave it out of the rows.")
            if not self._sql.takes(column, found.declared):
                is_text = column.kind == "string" or self._sql.takes(replace(column, kind="string"), found.declared)
                raise self._unfit(
                    f"column {column.name!r} is {found.declared}, and the rows have it as {column.kind}, which does "
                    f"not fit there unchanged. Cast it, or declare the column as {self._sql.declaration(column)}."
                    + (how_to_read_text(column.name) if is_text else "")
                )
            if column.base in self._sql.compared_as_text and rules is not None and column.name in rules.sequence_by:
                raise self._unfit(
                    f"column {column.name!r} orders the rows of a key and is {column.kind} in the rows, and "
                    f"{self._sql.name} compares decimals as text, so that '10' comes before '9'. Cast it to bigint or "
                    "double, and declare the column as integer or real.",
                )
        if self._arriving:
            self._check_others({column.name for column in self._arriving})

    def _check_others(self, given: set[str]) -> None:
        """Raise TargetError if the rows lack a column that the target requires, or have one that the merge fills."""
        history = self._rules.history if self._rules else None
        versions = (history.valid_from, history.valid_to) if history else ()
        for name in versions:
            if name not in self._columns:
                raise self._unfit(f"a history needs a column {name!r}. Add it, or name another one.")
        if history and history.valid_to in given:
            raise self._unfit(f"column {history.valid_to!r} is filled by the merge. Leave it out of the rows.")
        if self._rules is not None and history:
            self._check_versions(self._rules, history)
        for name, column in self._columns.items():
            if name in given or name in versions or column.filled:
                continue
            if not column.nullable:
                raise self._unfit(
                    f"column {name!r} must have a value, and the rows do not have the column. Add it to them, "
                    "or give it a default.",
                )
            # A merge replaces whole rows. Without this column in them, the target would keep the old row's value.
            if self._rules is not None:
                raise self._unfit(
                    f"column {name!r} is missing in the rows, and a merge replaces whole rows. Add it to them, "
                    "as NULL if need be.",
                )

    def _check_versions(self, rules: Merge, history: Versions) -> None:
        """Raise TargetError if a history table cannot hold `sequence_by` in validity columns, or NULL in `valid_to`."""
        (by,) = (column for column in self._arriving if column.name in rules.sequence_by)
        for name in (history.valid_from, history.valid_to):
            declared, wanted = self._columns[name].declared, self._columns[by.name].declared
            is_fit = by.kind == "date" or self._sql.takes(by, declared)
            if not is_fit or self._sql.step(declared) > self._sql.step(wanted):
                raise self._unfit(
                    f"column {name!r} is {declared}, and a history fills it from {by.name!r}, which is {wanted}. "
                    f"Declare it as {wanted}.",
                )
        if not self._columns[history.valid_to].nullable:
            raise self._unfit(
                f"column {history.valid_to!r} must have a value, and a history needs NULL there for versions that are "
                "valid now. Let the column be NULL.",
            )

    def prepare(self) -> None:
        """Create this package's tables next to the target if they are missing."""
        log, statements, sql, rules = self._log, self.statements, self._sql, self._rules
        rights = sql.rights.format(schema=sql.quote(statements.schema))
        with log.session(f"table {BATCHES!r} cannot be made beside it", rights) as session:
            needed = [(BATCHES, sql.batches_table(statements.batches))]
            if rules is not None:
                needed.append((statements.deletes_table, statements.create_gone(rules)))
            for table, create in needed:
                if log.catalogue(session, [statements.schema, table]):
                    continue
                try:
                    session.run(create)
                except Exception:
                    # Ignore the error if the table is there now, because another process created it meanwhile.
                    if not log.catalogue(session, [statements.schema, table]):
                        raise
            # Look for the lock row first: in MySQL, an INSERT of an existing row would wait for any running merge.
            if rules is not None and not session.rows(*statements.has_lock_row()):
                session.run(*statements.lock_row())

    def _check_gone(self, session: Session, rules: Merge) -> None:
        """Raise TargetError if the table of remembered deletes has other columns than the merge, or other types."""
        schema, table = self.statements.schema, self.statements.deletes_table
        # Compare with the staging table's types, not the rows': the catalogue spells a type alike for both tables.
        found, staged = (self._log.catalogue(session, [schema, name]) for name in (table, self._table))
        named = {name: staged[name] for name in (*rules.keys, *rules.sequence_by)}
        there, here = ({name: one[name].declared for name in sorted(one)} for one in (found, named))
        if there != here:
            raise self._unfit(
                f"its deletes are remembered by {', '.join(there)} ({', '.join(there.values())}) in {table!r}, and "
                f"this one goes by {', '.join(here)} ({', '.join(here.values())}). Merge as before, alter that table "
                "as this one, or drop it once no older row can come.",
            )

    def fill(self, given: Any) -> int:
        """Write rows to a landing table, check them, and copy them to the staging table; return the row count."""
        log, statements, sql, table, arriving = self._log, self.statements, self._sql, self._table, self._arriving
        rights = sql.rights.format(schema=sql.quote(statements.schema))
        with log.session("its staging table cannot be made", rights) as session:
            session.run(statements.create_landing(table, arriving))
            session.run(statements.create_staging(table, arriving))
            if self._rules is not None and arriving:
                self._check_gone(session, self._rules)
        with target_errors(log.target, "rows cannot be written to its staging table, or not be read for it"):
            log.access.fill(given, statements.beside(table + LANDING), arriving)
        with log.session("rows do not fit the table") as session:
            self._check_nulls(session)
            _begin(session, sql)
            pairs = [(column, self._columns[column.name]) for column in arriving]
            try:
                session.run(statements.copy(table, pairs))
            except Exception as error:
                if misfit(error):
                    self._check_each(pairs)
                raise
            self._check_values(session, pairs)
            if self._rules is not None and arriving:
                self._reduce(session, self._rules)
            rows = _count(session, statements.count(table))
            session.commit()
            session.run(statements.drop(table + LANDING))
        self._check_constraints()
        return rows

    def _check_nulls(self, session: Session) -> None:
        named = (*self._rules.keys, *self._rules.sequence_by) if self._rules else ()
        for column in self._arriving:
            is_named = column.name in named
            if not is_named and self._columns[column.name].nullable:
                continue
            count = _count(session, self.statements.nulls(self._table, column, in_deletes=is_named))
            if count and is_named:
                raise KeyColumnError(column.name, reason="merge_null", count=count)
            if count:
                raise self._unfit(
                    f"column {column.name!r} must have a value, and {rows_have(count)} NULL there. Fill or filter "
                    "them. Nothing is written.",
                )

    def _check_each(self, pairs: Sequence[tuple[Arriving, TableColumn]]) -> None:
        """Raise TargetError that names the first column with a value that the server refuses: its error names none."""
        for column, found in pairs:
            with self._log.session("rows do not fit the table") as session:
                _begin(session, self._sql)
                try:
                    session.run(self.statements.copy(self._table, [(column, found)]))
                except Exception as error:
                    why, wider = misfit(error), f"Declare it as {self._sql.declaration(column)}, or change"
                    if why is None:
                        raise
                    # Do not advise to declare a wider type for a column of times: the database has none.
                    raise self._unfit(
                        f"column {column.name!r} is {found.declared}, and the rows have it as {column.kind}: {why}. "
                        f"{'Change' if column.kind in TIMES else wider} the rows. Nothing is written."
                    ) from None
                session.run(sql("ROLLBACK"))

    def _check_values(self, session: Session, columns: Sequence[tuple[Arriving, TableColumn]]) -> None:
        """Raise TargetError if a column of the target would store another value than the rows have, such as rounded."""
        query = self.statements.changed(self._table, columns)
        counts = session.rows(query)[0] if query is not None else ()
        for (column, found), count in zip(columns, counts, strict=False):
            if count != "0":
                raise self._unfit(
                    f"column {column.name!r} is {found.declared}, which would cut, round, pad or otherwise change "
                    f"the value in {int(count or 0):,} rows. Declare it as {self._sql.declaration(column)}, or change "
                    "the rows. Nothing is written.",
                )

    def _check_constraints(self) -> None:
        """Raise TargetError if a CHECK constraint or a unique key of the target refuses staged rows."""
        absent = self._columns.keys() - {column.name for column in self._arriving}
        counts: dict[str, int] = {}
        # Ignore errors, such as for a CHECK with a function that the user may not call. INSERT checks it later anyway.
        with suppress(TargetError), self._log.session("constraints cannot be looked at") as session:
            found = [row for query in self._sql.constraints(self._log.parts) for row in session.rows(query)]
            # Skip unique keys for a merge: several staged rows may have one key, and only one of them is merged.
            refused = self.statements.refused(self._table, found, absent, has_keys=self._rules is None)
            for constraint, query in refused.items():
                counts[constraint] = _count(session, query)
        check_counts(self._log.target, counts, ", or use job.merge to have one row of each key")

    def _reduce(self, session: Session, rules: Merge) -> None:
        """Reduce a staging table to the rows to merge: the newest of each key or, for a history table, each version."""
        statements, table = self.statements, self._table
        for column in self._arriving:
            is_text = column.base in self._sql.compared_as_text and column.name in rules.keys
            if is_text and (count := sum(_count(session, query) for query in statements.other_scales(column))):
                raise self._unfit(
                    f"key {column.name!r} is {column.kind} in the rows, and {rows_have(count)} another scale there "
                    f"or in {statements.deletes_table!r}. {self._sql.name} compares decimals as text, so '1.50' is not "
                    "'1.5'. Cast it to the same decimal type for every batch.",
                )
        declared = {column.name: self._columns[column.name].declared for column in self._arriving}
        if rules.history is None:
            session.run(statements.drop_older(table, rules))
        self._log.check_ties(session, statements.ties_within(table, rules, declared), rules, "of the batch")
        session.run(statements.drop_copies(table, rules))
        self._log.check_ties(session, statements.ties_beside(table, rules, declared), rules, "in the target")


def _begin(session: Session, database: WritableDatabase) -> None:
    """Begin a transaction. Run the database's `isolation`, if any, which sets what commits of others are visible."""
    session.begin()
    if database.isolation is not None:
        session.run(database.isolation)


def _count(session: Session, query: SQL, values: Values = ()) -> int:
    ((count,),) = session.rows(query, values)
    return int(count or 0)


def _access(
    spark: SparkSession | None,
    url: str | None,
    properties: Mapping[str, str] | None,
    connect: Callable[[], Any] | None,
    name: str | None,
) -> Access:
    if connect is not None:
        if spark is not None or url is not None or properties is not None:
            raise InvalidValueError("connect is given with spark, url or properties. Give one way to the database.")
        if not name:
            raise InvalidValueError(
                "connect= says nothing of the database that could be kept. Give its name as well, such as name='shop'."
            )
        return DriverAccess(connect, name)
    if spark is None or url is None:
        raise InvalidValueError(
            "the sink has no way to its database. Give spark= and url= for frames of Spark, or connect= and name= for "
            "frames of pandas."
        )
    return JdbcAccess(spark, url, properties, f"database://{name}" if name else None)
