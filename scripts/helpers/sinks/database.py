"""`DatabaseSink`: a batch as rows of a table in a database, there once, whatever becomes of the attempts that write it.

::

    stage     gw_<owner>_…_v<version>_f<fence>_…, a table beside the target                nobody reads it
    commit    the head names this attempt: not here, and nothing else does
    publish   one transaction: the batch into glue_watermarks_batches, its rows into the target
    sweep     the staging table is dropped; those of losers, too
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

from scripts.helpers._lazy import DataFrame, SparkSession, pd
from scripts.helpers.databases.database import TableColumn, columns_of_catalogue
from scripts.helpers.databases.writing import Arriving, WritableDatabase
from scripts.helpers.errors import (
    InvalidValueError,
    MergeNullError,
    MergeTieError,
    StagedRowsLostError,
    TargetError,
    TargetTableError,
    UnprovenError,
    rows_have,
)
from scripts.helpers.protocol.names import BatchId, new_token
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.rows.cursors import TIMES
from scripts.helpers.rows.sql import SQL, Values, sql
from scripts.helpers.sinks.database_access import (
    Access,
    DriverAccess,
    JdbcAccess,
    Session,
    arriving,
    misfit,
    target_errors,
)
from scripts.helpers.sinks.database_sql import BATCHES, ROW, TAKEN_BACK, Statements
from scripts.helpers.sinks.merging import DELETED, Merge
from scripts.helpers.sinks.outputs import (
    LANDING,
    app_from_batches,
    is_own_table,
    owner_of,
    staging_table,
    value_of_batch,
    version_of,
)
from scripts.helpers.sinks.sink import Witnessed
from scripts.helpers.sinks.staged_rows import check_batch_column, check_frame, with_batch
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

logger = logging.getLogger(__name__)


class DatabaseSink(TableSink):
    """A table of PostgreSQL, MySQL, MariaDB or SQLite.

    Promises: once a batch is committed and published, its rows are in the table exactly once, whatever attempts
    still write, sleep or die; readers see all rows of a batch or none. Each attempt fills a staging table of its
    own beside the target. Publishing is one transaction that inserts the batch's key into
    ``glue_watermarks_batches`` and its rows into the target. Where the key is there already, it does nothing.

    Rows of Spark are written by the executors over JDBC, and the transaction is run by the driver's JVM: give
    `spark` and `url`. Rows of pandas or Arrow are written by a Python driver: give `connect`.

    Parameters
    ----------
    table
        ``table`` or ``schema.table``, or its parts in a list if one holds a dot. It must be there.
    spark, url, properties
        The session; a URL such as ``jdbc:postgresql://host:5432/shop``; options of Spark's writer, such as ``user``
        and ``password``. Neither URL nor properties are shown anywhere.
    connect
        Returns a new connection of a Python driver, such as psycopg, PyMySQL or sqlite3.
    name
        What the database is called in the head, in logs and errors. Needed with `connect`; otherwise server and
        database of the URL. It must be the same in every run: what a dead run left is found by it.
    merge
        Rules by which rows replace others; see `IncrementalJob.merge`. None: rows are appended.
    batch_column
        A column of text in the table that the sink fills with the batch id of each row, so that `rewind` and `reset`
        with ``retract=True`` can delete published rows. None: they cannot. Not for merges, which replace rows.

    Raises
    ------
    InvalidValueError
        Neither or both ways to reach the database are given, or one of them in part.
    TargetTableError
        A table name with an empty part.
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
            raise TargetTableError(self.name, "its name has an empty part. Give 'table' or 'schema.table'.")

    def __repr__(self) -> str:
        """Show the target, and nothing of the connection."""
        return f"{type(self).__name__}({self.name!r})"

    def is_of(self, record: Output | Retraction) -> bool:
        """Return whether a record is of this table: `repairs` and `public.repairs` may be one, or two."""
        place, table = f"{self._log.access.place}/", self._log.table
        # Another database may have a table of the same schema and name.
        if not record.target.startswith(place):
            return False
        if isinstance(record, Output):
            is_named = record.folder.startswith(owner_of(table, record.job))
        else:
            # It has no staging table, and so no hash of the name. If the table `a.repairs` were taken for this one,
            # nothing would be lost: the rows of those versions are all read again.
            is_named = f".{record.target.removeprefix(place)}".endswith(f".{table}")
        return is_named and record.staging == self._log.schema

    def check(self, df: DataFrame | pd.DataFrame) -> None:
        """Raise InvalidValueError for a frame of the other kind, a type that no database holds, or a missing key."""
        check_frame(df, self.name)
        access = self._log.access
        names = [column.name for column in self._log.arriving(access.taken(df, self.name))]
        check_batch_column(self._batch_column, names, merges=self.rules is not None)
        if self.rules is not None and names:
            missing = [name for name in (*self.rules.keys, *self.rules.sequence_by) if name not in names]
            if missing:
                raise InvalidValueError(f"the merge names {missing[0]!r}, which the rows do not have. Name a column.")

    def publish(self, output: Output) -> None:
        """Bring the rows of a committed attempt into the target, in one transaction, unless they are there.

        May be called again, late, and by two at once: the second waits for the first at the batch's key, as long as
        the database lets it. A transaction that a deadlock has ended is done again.

        Raises
        ------
        StagedRowsLostError
            The staging table is gone, and the batch is not in the target.
        UnprovenError
            The staging table is not one that an attempt at this batch makes for this target.
        MergeTieError
            Since the batch was staged, somebody else wrote a row that it is tied with.
        TargetLockedError, TargetUnavailableError, TargetRefusedError, TargetError
            The database does not let it through; nothing is changed.
        """
        if output.rows == 0:
            return
        # The staging table does not say how it was to be published, and a record may be altered: the script decides.
        own = replace(output, batch_column=self._batch_column, merge=self.rules.columns if self.rules else None)
        if own.terms != output.terms:
            raise TargetError(
                self.name,
                f"version {output.version} is recorded with another merge or batch column than this run gives. If the "
                "script was changed, run it once as it was. If not, somebody altered the job's item.",
            )
        self._decided(lambda: self._publish(output))

    def _attempts(self, of: Output | Retraction | None) -> Sequence[Attempts]:
        schema = self._log.schema
        if of is not None and schema not in (None, of.staging):
            version = of.version if isinstance(of, Output) else of.first
            raise UnprovenError(self.name, version, f"its schema is {schema!r}, and not the one that is recorded")
        return [_StagingTables(self._log, of.staging if of is not None else self._staging_now())]

    def _staging_now(self) -> str:
        return self._log.schema or ""

    def _stage(self, batch: BatchId, made: Output, df: Any) -> Output:
        log = self._log
        rows = with_batch(log.access.taken(df, self.name), self._batch_column, value_of_batch(batch))
        table = staging_table(log.table, batch, made.fence, new_token()[:5])
        attempt = _Attempt(log, self.rules, log.arriving(rows), table)
        made = replace(made, staging=attempt.statements.schema, folder=table, files=1)
        # Rows of an append do not say which of the run's attempts has written them.
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
            # Best effort: the error that is under way says more than this one would.
            with suppress(TargetError):
                _StagingTables(log, made.staging).drop(table)
            raise
        return replace(made, rows=count)


class _Log(TableLog):
    """A table of a database, and the one beside it that has a row for each batch that was published, or taken back."""

    format, engine, title, way_back, decides_again = "database", None, "database", "a backup", True

    def __init__(self, access: Access, parts: Sequence[str]) -> None:
        self.access, self.parts = access, parts
        self.target, self.table = f"{access.place}/{'.'.join(parts)}", parts[-1] if parts else ""

    @cached_property
    def sql(self) -> WritableDatabase:
        """How the database is written to."""
        with target_errors(self.target, "the database cannot be reached"):
            return self.access.sql

    @cached_property
    def schema(self) -> str | None:
        """The schema of the target; None if there is no such table."""
        with self.session("the table cannot be looked at") as session:
            found = session.rows(self.sql.schema_of(self.parts))
        return str(found[0][0]) if found else None

    @contextmanager
    def session(self, doing: str, rights: str = "") -> Iterator[Session]:
        """Open a connection; what the driver raises is a TargetError that says what failed."""
        with target_errors(self.target, doing, rights), self.access.session() as session:
            yield session

    def arriving(self, rows: Any) -> list[Arriving]:
        return arriving(self.access.rows.by_path(rows.schema))

    def statements(self, schema: str) -> Statements:
        return Statements(self.sql, schema, self.table)

    def catalogue(self, session: Session, parts: Sequence[str]) -> dict[str, TableColumn]:
        """Return the columns of a table by name; none if there is no such table."""
        return columns_of_catalogue(session.rows(self.sql.catalogue(parts)))

    def exists(self) -> bool:
        return True  # What is recorded is in a table of its own, which may outlive the target: see `_versions`.

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
            there = self.catalogue(session, [self.schema, BATCHES])
            rows = session.rows(*self.statements(self.schema).recorded("" if others else job)) if there else []
        versions = {app_from_batches(job, str(of), str(epoch)): int(str(last)) for of, epoch, last in rows}
        return Witnessed(job, versions)

    def commit(self, of: Output | Retraction, version: int, change: Append | MergeRows | Nothing) -> None:
        # What is staged for a retraction is refused by a row of its own for each version: see `withdraw`.
        if isinstance(change, Nothing):
            return
        assert isinstance(of, Output)
        statements, table = self.statements(of.staging), change.staged.folder
        with self.session("the batch cannot be published") as session:
            _begin(session, statements)
            if isinstance(change, MergeRows):
                session.run(*statements.lock())
                if change.repeats:
                    session.run(*statements.forget(of))
            # Before any row: another publisher waits at this key until the end of this transaction, and finds it then.
            if not session.run(*statements.record(of, version, table)):
                session.commit()
                return
            staged = self.catalogue(session, [of.staging, table])
            if not staged:
                raise StagedRowsLostError(of.target, version, table)
            names = [name for name in staged if name not in (DELETED, ROW)]
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

    def check_ties(self, session: Session, query: SQL, rules: Merge, where: str) -> None:
        """Raise MergeTieError if a query counts rows that are tied."""
        count = _count(session, query)
        if count:
            raise MergeTieError(self.target, rules.keys, rules.sequence_by, count, where)

    def delete(self, retraction: Retraction) -> int:
        statements = self.statements(retraction.staging)
        with self.session("a batch cannot be taken back") as session:
            _begin(session, statements)
            # These versions alone, not from the first to the last: a collation might take others for in between.
            versions = self._versions(session, retraction)
            deleted = sum(session.run(*delete) for delete in statements.delete_of(retraction, versions))
            # The record stays, under another name: it refuses a publisher that wakes up late.
            session.run(*statements.take_back(retraction))
            session.commit()
        return deleted

    def count(self, retraction: Retraction) -> int:
        with self.session("published batches cannot be read") as session:
            queries = self.statements(retraction.staging).count_of(retraction, self._versions(session, retraction))
            return sum(_count(session, *query) for query in queries)

    def meaning(self, error: Exception) -> Meaning | None:
        return None  # Each session translates what its driver raises.

    def _versions(self, session: Session, of: Output | Retraction) -> list[int]:
        there = self.catalogue(session, [of.staging, BATCHES])
        found = session.rows(*self.statements(of.staging).versions(of)) if there else []
        return [int(str(version)) for (version,) in found]


class _StagingTables(Attempts):
    """The staging tables beside a target, one for each attempt."""

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
                raise StagedRowsLostError(output.target, output.version, output.folder)
        return StagedRows(output.folder)

    def left(self, job: str) -> list[str]:
        if not self._schema:
            return []  # There is no target.
        with self._log.session("staging tables cannot be listed") as session:
            found = session.rows(self._log.sql.tables_like(self._schema, owner_of(self._log.table, job)))
        return sorted({(table or "").removesuffix(LANDING) for (table,) in found})

    def left_at(self, folder: str) -> str:
        return f"table {folder} beside {self._log.target}"

    def drop(self, folder: str) -> None:
        statements = self._log.statements(self._schema)
        with self._log.session(f"staging table {folder!r} cannot be dropped") as session:
            _begin(session, statements)
            # An attempt that is stopped, and not dead, holds its own open for as long as that lasts: nobody waits for
            # it, as no reader sees the table, and the next run sweeps it.
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
                # Under its key: a publisher that sleeps finds it there, and one at work is waited for.
                session.run(*self._log.statements(self._schema).record(retraction, version, TAKEN_BACK))
        return bool(tables)

    def retract(self, retraction: Retraction) -> None:
        for table in self.covered(retraction):
            try:
                self.drop(table)
            except TargetError as error:
                # Nobody publishes it any more. A run that stopped here would wait for an attempt that is stopped.
                logger.warning("event=staging_left target=%s error=%s", self._log.target, error)


class _Attempt:
    """What one attempt stages: its rows, checked against the target as it is now.

    When they are staged, the server has read each value in the type of its column, and a merge has looked for ties.

    Raises
    ------
    TargetTableError
        The target does not take the rows.
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
            transactional = sql.is_transactional(log.parts)
            if transactional is not None and session.rows(transactional) == [("0",)]:
                raise self._unfit(f"its engine has no transactions. Run ALTER TABLE {self._written} ENGINE=InnoDB.")
        self.statements = log.statements(str(schema))
        self._check_columns()

    def _unfit(self, detail: str) -> TargetTableError:
        return TargetTableError(self._log.target, detail)

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
            # A column without a value that the table lacks is left out, as at every target.
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
                raise self._unfit(
                    f"column {column.name!r} is {found.declared}, and the rows have it as {column.kind}, which does "
                    f"not fit there unchanged. Cast it, or declare the column as {self._sql.declaration(column)}.",
                )
        if self._arriving:
            self._check_others({column.name for column in self._arriving})

    def _check_others(self, given: set[str]) -> None:
        """Raise TargetTableError for columns of the target that the rows would have to have."""
        history = self._rules.history if self._rules else None
        versions = (history.valid_from, history.valid_to) if history else ()
        for name in versions:
            if name not in self._columns:
                raise self._unfit(f"a history needs a column {name!r}. Add it, or name another one.")
        if history and history.valid_to in given:
            raise self._unfit(f"column {history.valid_to!r} is filled by the merge. Leave it out of the rows.")
        for name, column in self._columns.items():
            if name in given or name in versions or column.filled:
                continue
            if not column.nullable:
                raise self._unfit(
                    f"column {name!r} must have a value, and the rows do not have the column. Add it to them, "
                    "or give it a default.",
                )
            # A row stands for the whole row: else values of two rows would mix, by the order in which they come.
            if self._rules is not None:
                raise self._unfit(
                    f"column {name!r} is missing in the rows, and a merge replaces whole rows. Add it to them, "
                    "as NULL if need be.",
                )

    def prepare(self) -> None:
        """Make the tables of ours beside the target that are not there yet."""
        log, statements, sql, rules = self._log, self.statements, self._sql, self._rules
        rights = sql.rights.format(schema=sql.quote(statements.schema))
        with log.session(f"table {BATCHES!r} cannot be made beside it", rights) as session:
            needed = [(BATCHES, sql.batches_table(statements.batches))]
            if rules is not None:
                needed.append((statements.gone_table, statements.create_gone(rules)))
            for table, create in needed:
                if log.catalogue(session, [statements.schema, table]):
                    continue
                try:
                    session.run(create)
                except Exception:
                    # Somebody else may have made it at the same moment.
                    if not log.catalogue(session, [statements.schema, table]):
                        raise
            if rules is not None:
                self._check_gone(session, rules)
                # MySQL's INSERT waits for a merge that is being published, also where the row is there.
                if not session.rows(*statements.has_lock_row()):
                    session.run(*statements.lock_row())

    def _check_gone(self, session: Session, rules: Merge) -> None:
        """Raise TargetTableError where deletes were remembered by another key or order."""
        found = set(self._log.catalogue(session, [self.statements.schema, self.statements.gone_table]))
        named = {*rules.keys, *rules.sequence_by}
        if found != named:
            raise self._unfit(
                f"its deletes are remembered by {', '.join(sorted(found))} in {self.statements.gone_table!r}, and this "
                f"one goes by {', '.join(sorted(named))}. Merge as before, or drop that table once no older row can "
                "come.",
            )

    def fill(self, given: Any) -> int:
        """Write rows to a landing table, check them there, and copy them to the staging table; return how many."""
        log, statements, sql, table, arriving = self._log, self.statements, self._sql, self._table, self._arriving
        rights = sql.rights.format(schema=sql.quote(statements.schema))
        with log.session("its staging table cannot be made", rights) as session:
            session.run(statements.create_landing(table, arriving))
            session.run(statements.create_staging(table, arriving))
        with target_errors(log.target, "rows cannot be written to its staging table, or not be read for it"):
            log.access.fill(given, statements.beside(table + LANDING), arriving)
        with log.session("rows do not fit the table") as session:
            self._check_nulls(session)
            _begin(session, statements)
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
                raise MergeNullError(column.name, count)
            if count:
                raise self._unfit(
                    f"column {column.name!r} must have a value, and {rows_have(count)} NULL there. Fill or filter "
                    "them. Nothing is written.",
                )

    def _check_each(self, pairs: Sequence[tuple[Arriving, TableColumn]]) -> None:
        """Raise TargetTableError for the first column of which the server refuses a value: it names none."""
        for column, found in pairs:
            with self._log.session("rows do not fit the table") as session:
                _begin(session, self.statements)
                try:
                    session.run(self.statements.copy(self._table, [(column, found)]))
                except Exception as error:
                    why, wider = misfit(error), f"Declare it as {self._sql.declaration(column)}, or change"
                    if why is None:
                        raise
                    # There is no wider type of a time.
                    raise self._unfit(
                        f"column {column.name!r} is {found.declared}, and the rows have it as {column.kind}: {why}. "
                        f"{'Change' if column.kind in TIMES else wider} the rows. Nothing is written."
                    ) from None
                session.run(sql("ROLLBACK"))

    def _check_values(self, session: Session, columns: Sequence[tuple[Arriving, TableColumn]]) -> None:
        """Raise TargetTableError where the target's column would hold another value than the one that arrived."""
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
        """Raise TargetTableError for staged rows that a CHECK constraint or a unique key of the target refuses."""
        absent = self._columns.keys() - {column.name for column in self._arriving}
        counts: dict[str, int] = {}
        # A condition may call what this user may not call. Then the publication finds out.
        with suppress(TargetError), self._log.session("constraints cannot be looked at") as session:
            found = [row for query in self._sql.constraints(self._log.parts) for row in session.rows(query)]
            # A merge stages several rows of one key, and leaves one.
            refused = self.statements.refused(self._table, found, absent, has_keys=self._rules is None)
            for constraint, query in refused.items():
                counts[constraint] = _count(session, query)
        check_counts(self._log.target, counts, ", or use job.merge to have one row of each key")

    def _reduce(self, session: Session, rules: Merge) -> None:
        """Leave the rows that count in a staging table: of each key the newest, or of each event one."""
        statements, table = self.statements, self._table
        declared = {column.name: self._columns[column.name].declared for column in self._arriving}
        if rules.history is None:
            session.run(statements.drop_older(table, rules))
        self._log.check_ties(session, statements.ties_within(table, rules, declared), rules, "of the batch")
        session.run(statements.drop_copies(table, rules))
        self._log.check_ties(session, statements.ties_beside(table, rules, declared), rules, "in the target")


def _begin(session: Session, statements: Statements) -> None:
    """Begin a transaction that sees what others have committed."""
    session.begin()
    if statements.sql.isolation is not None:
        session.run(statements.sql.isolation)


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
