"""`DatabaseSink`: a batch as rows of a table in a database, there once, whatever becomes of the attempts that write it.

::

    stage     gw_<owner>_…_v<version>_f<fence>_…, a table beside the target                nobody reads it
    commit    the head names this attempt: not here, and nothing else does
    publish   one transaction: the batch into glue_watermarks_batches, its rows into the target
    sweep     the staging table is dropped; those of losers, too
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from scripts.helpers.databases.dialects import TableColumn
from scripts.helpers.display.units import count_of
from scripts.helpers.errors import (
    InvalidValueError,
    MergeNullError,
    MergeTieError,
    StagedRowsLostError,
    TargetError,
    TargetLockedError,
    TargetTableError,
    UnprovenError,
    rows_have,
)
from scripts.helpers.protocol.names import BatchId, new_token
from scripts.helpers.protocol.outputs import Output, Retraction
from scripts.helpers.rows.sql import SQL, Values
from scripts.helpers.sinks.database_access import Access, DriverAccess, JdbcAccess, Session, target_errors
from scripts.helpers.sinks.database_sql import (
    BATCHES,
    ROW,
    TAKEN_BACK,
    Arriving,
    Statements,
    TargetColumn,
    WritingSQL,
    target_columns,
)
from scripts.helpers.sinks.merging import DELETED, Merge
from scripts.helpers.sinks.outputs import (
    LANDING,
    app_from_batches,
    is_own_table,
    mark_of,
    owner_of,
    staging_table,
    value_of_batch,
    version_of,
)
from scripts.helpers.sinks.sink import Witnessed
from scripts.helpers.sinks.staged_rows import check_batch_column, with_batch

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

T = TypeVar("T")

KIND = "database"
TRIES = 5
"""A transaction that a deadlock has ended is done again so often: the other one goes on meanwhile, and ends."""


class DatabaseSink:
    """A table of PostgreSQL, MySQL, MariaDB or SQLite.

    Promises: once a batch is committed and published, its rows are in the table exactly once, whatever attempts
    still write, sleep or die; readers see all rows of a batch or none. Each attempt fills a staging table of its
    own beside the target. Publishing is one transaction that inserts the batch's key into
    ``glue_watermarks_batches`` and its rows into the target. Where the key is there already, it does nothing.

    Rows of Spark are written by the executors over JDBC, and the transaction is run by the driver's JVM: give
    `spark` and `url`. Rows of pandas are written by a Python driver: give `connect`.

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
        self._parts = table.split(".") if isinstance(table, str) else list(table)
        self._access = _access(spark, url, properties, connect, name)
        self.rules, self._batch_column = merge, batch_column
        if not self._parts or not all(self._parts) or any("\0" in part for part in self._parts):
            raise TargetTableError(self.name, "its name has an empty part. Give 'table' or 'schema.table'.")

    def __repr__(self) -> str:
        """Show the target, and nothing of the connection."""
        return f"{type(self).__name__}({self.name!r})"

    @property
    def name(self) -> str:
        """Database and table, without user, password and options."""
        return f"{self._access.place}/{'.'.join(self._parts)}"

    def is_of(self, record: Output | Retraction) -> bool:
        """Return whether a record is of this table: `repairs` and `public.repairs` may be one, or two."""
        place, table = f"{self._access.place}/", self._parts[-1]
        # Another database may have a table of the same schema and name.
        if not record.target.startswith(place):
            return False
        if isinstance(record, Output):
            is_named = record.folder.startswith(owner_of(table, record.job))
        else:
            # It has no staging table, and so no hash of the name. If the table `a.repairs` were taken for this one,
            # nothing would be lost: the rows of those versions are all read again.
            is_named = f".{record.target.removeprefix(place)}".endswith(f".{table}")
        return is_named and record.staging == self._schema

    def merging(self, rules: Merge) -> DatabaseSink:
        """Return a sink for the same table that merges."""
        made = object.__new__(type(self))
        made._parts, made._access, made.rules, made._batch_column = self._parts, self._access, rules, self._batch_column
        return made

    # --- before the commit ----------------------------------------------------------------------

    def check(self, df: DataFrame | pd.DataFrame) -> None:
        """Raise InvalidValueError for a frame of the other kind, a type that no database holds, or a missing key."""
        columns = self._access.check(df)
        names = [column.name for column in columns]
        check_batch_column(self._batch_column, names, merges=self.rules is not None)
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise InvalidValueError(f"the rows have {names.count(twice[0])} columns {twice[0]!r}. Rename one of them.")
        if self.rules is not None and names:
            missing = [name for name in (*self.rules.keys, *self.rules.sequence_by) if name not in names]
            if missing:
                raise InvalidValueError(f"the merge names {missing[0]!r}, which the rows do not have. Name a column.")

    def stage(self, batch: BatchId, fence: int, df: DataFrame | pd.DataFrame, *, replaces: bool = False) -> Output:
        """Write rows to a staging table of this attempt alone. Nobody sees them yet.

        Whatever speaks against the rows is raised here, before the commit: the server has then read every value in
        the type of its column, and a merge has looked for ties.

        Raises
        ------
        InvalidValueError
            See `check`.
        TargetTableError
            The table is missing, or lacks a column, or holds one in another type.
        MergeNullError, MergeTieError
            Rows that a merge cannot decide about.
        TargetRefusedError
            A right is missing; the text names it.
        TargetUnavailableError, TargetError
            The database is down, or refuses a value.
        """
        self.check(df)
        df = with_batch(df, self._batch_column, value_of_batch(batch))
        arriving = self._access.check(df)
        target = self._look(arriving)
        statements = target.statements
        table = staging_table(self._parts[-1], batch, fence, new_token()[:5])
        made = Output(
            KIND, self.name, statements.schema, table, mark_of(batch.job_id), batch.epoch, batch.version, fence,
            files=1, replaces=replaces, batch_column=self._batch_column, job_id=batch.job_id,
            merge=self.rules.columns if self.rules is not None else None,
        )  # fmt: skip
        if replaces and self.rules is None:
            self._refuse_again(statements, made)
        self._prepare(statements)
        try:
            rows = self._fill(target, table, arriving, df)
        except BaseException:
            # Best effort: the error that is under way says more than this one would.
            with suppress(TargetError):
                self._drop(statements, table, made.job)
            raise
        return replace(made, rows=rows)

    # --- after the commit -----------------------------------------------------------------------

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
        if output.rows != 0:
            self._tried(lambda: self._publish(output))

    def _publish(self, output: Output) -> None:
        # The staging table does not say how it was to be published, and a record may be altered: the script decides.
        own = replace(output, batch_column=self._batch_column, merge=self.rules.columns if self.rules else None)
        if own.terms != output.terms:
            raise TargetError(
                self.name,
                f"version {output.version} is recorded with another merge or batch column than this run gives. If the "
                "script was changed, run it once as it was. If not, somebody altered the job's item.",
            )
        statements, table = self._statements(output), output.folder
        merge = Merge.by(output.merge) if output.merge is not None else None
        # Before anything is written: it may be published and cleared, or there is nothing of this job here.
        if not self._is_staged(statements, output):
            return
        with self._session("the batch cannot be published") as session:
            _begin(session, statements)
            if merge is not None:
                session.run(*statements.lock())
                if output.replaces:
                    # Attempts of a run that saves nothing share a version. To merge the same rows again does no harm.
                    session.run(*statements.forget(output))
            # Before any row: another publisher waits at this key until the end of this transaction, and finds it then.
            if not session.run(*statements.record(output, output.version, table)):
                session.commit()
                return
            staged = self._catalogue(session, [output.staging, table])
            if not staged:
                raise StagedRowsLostError(output.target, output.version, table)
            names = [name for name in staged if name not in (DELETED, ROW)]
            if merge is None:
                moves = statements.append(table, names)
            else:
                declared = {name: staged[name].declared for name in names}
                moves = statements.merge(table, merge, names) if names else []
                if names:
                    self._check_ties(session, statements.ties_beside(table, merge, declared), merge, "in the target")
            for move in moves:
                session.run(move)
            session.commit()
        logger.info("event=rows_published target=%s version=%d rows=%s", self.name, output.version, output.rows)

    def clear(self, output: Output) -> None:
        """Drop what is left of a published attempt."""
        self.drop(output)

    def drop(self, output: Output) -> None:
        """Drop what an attempt staged that is never to be published."""
        self._drop(self._statements(output), output.folder, output.job)

    def sweep(self, output: Output, kept: Collection[str], recorded: Witnessed | None = None) -> int:
        """Drop what losers staged for batches up to this one; see `Sink`."""
        statements = self._statements(output)
        losers = []
        for table in self._staged(statements, output.job):
            version = version_of(table, output.epoch)
            # Versions above this one may be at work, or have won: a process that slept for a day is here, too.
            if version is not None and version <= output.version and table not in kept:
                losers.append(table)
        for table in losers:
            self._drop(statements, table, output.job)
            logger.info("event=staging_swept target=%s table=%s", output.target, table)
        return len(losers)

    def staged(self, job: str) -> list[str]:
        """Return the staging tables that attempts of a job have left."""
        return [] if self._schema is None else self._staged(Statements(self._sql, self._schema, self._parts[-1]), job)

    def recorded(self, job: str, *, others: bool = False) -> Witnessed:
        """Return the last version that was published here, of each epoch of a job; see `Sink`."""
        if self._schema is None:
            return Witnessed(job, {})
        statements = Statements(self._sql, self._schema, self._parts[-1])
        with self._session("published batches cannot be read") as session:
            there = self._catalogue(session, [self._schema, BATCHES])
            rows = session.rows(*statements.recorded("" if others else job)) if there else []
        return Witnessed(job, {app_from_batches(job, str(of), str(epoch)): int(str(last)) for of, epoch, last in rows})

    def retraction(self, job_id: str, epoch: str, first: int, last: int, since: datetime) -> Retraction:
        """Return the record by which some versions of a job are taken back here."""
        column, schema = self._batch_column or "", self._schema or ""
        return Retraction(KIND, self.name, schema, mark_of(job_id), epoch, first, last, since, column, job_id=job_id)

    def retract(self, retraction: Retraction) -> int:
        """Drop what attempts staged for some versions, and delete published rows by the batch column; return how many.

        Rows and records of a batch go in one transaction. Without that column published rows stay, with a WARNING. A
        merge of the same rows again leaves them as they are.

        Raises
        ------
        TargetLockedError, TargetUnavailableError, TargetRefusedError, TargetError
            The database does not let it through. Call again.
        """
        return self._tried(lambda: self._retract(retraction))

    def _retract(self, retraction: Retraction) -> int:
        statements = self._statements(retraction)
        for table in self._covered(statements, retraction):
            version = version_of(table, retraction.epoch) or 0
            with self._session("a batch cannot be taken back") as session:
                # Under its key: a publisher that sleeps finds it there, and one at work is waited for.
                session.run(*statements.record(retraction, version, TAKEN_BACK))
            try:
                self._drop(statements, table, retraction.job)
            except TargetError as error:
                # Nobody publishes it any more. A run that stopped here would wait for an attempt that is stopped.
                logger.warning("event=staging_left target=%s error=%s", self.name, error)
        with self._session("published batches cannot be read") as session:
            if not self._catalogue(session, [statements.schema, BATCHES]):
                return 0
            _begin(session, statements)
            kept = [int(str(version)) for (version,) in session.rows(*statements.kept(retraction))]
            deleted = 0
            if kept and retraction.batch_column in self._catalogue(session, self._parts):
                # These versions alone, not from the first to the last: a collation might take others for in between.
                deleted = sum(session.run(*delete) for delete in statements.delete_of(retraction, kept))
                # The record stays, under another name: it refuses a publisher that wakes up late.
                session.run(*statements.take_back(retraction))
                kept = []
            session.commit()
        if kept:
            logger.warning(
                "event=rows_kept target=%s versions=%d-%d batches=%d rows=%s: their rows are in the table, and nothing "
                "in them says so. Delete them by hand, unless they are merged again",
                self.name, retraction.first, retraction.last, len(kept), retraction.rows_until(max(kept)),
            )  # fmt: skip
        return deleted

    def to_retract(self, retraction: Retraction) -> list[str]:
        """Return what `retract` would delete, as it is found here; see `Sink`."""
        statements = self._statements(retraction)
        found = [self.left_at(table) for table in self._covered(statements, retraction)]
        with self._session("published batches cannot be read") as session:
            if not self._catalogue(session, [statements.schema, BATCHES]):
                return found
            kept = [int(str(version)) for (version,) in session.rows(*statements.kept(retraction))]
            if kept and retraction.batch_column in self._catalogue(session, self._parts):
                count = sum(_count(session, *query) for query in statements.count_of(retraction, kept))
                found.insert(0, f"{count_of(count, 'row')} in {self.name}")
        return found

    def left_at(self, folder: str) -> str:
        """Return which staging table an attempt has left."""
        return f"table {folder} beside {self.name}"

    # --- within ---------------------------------------------------------------------------------

    def _tried(self, action: Callable[[], T]) -> T:
        """Do what leaves nothing behind when it fails, again where a deadlock has ended it."""
        # Not where others hold a lock: it was waited for already, as long as whoever set the time-out wants to wait.
        for left in reversed(range(TRIES)):
            try:
                return action()
            except TargetLockedError as error:
                if not error.is_deadlock or not left:
                    raise
                logger.info("event=deadlock_retried target=%s error=%s", self.name, error)
        raise AssertionError("the last try returns or raises")

    @contextmanager
    def _session(self, doing: str, rights: str = "") -> Iterator[Session]:
        with target_errors(self.name, doing, rights), self._access.session() as session:
            yield session

    @cached_property
    def _sql(self) -> WritingSQL:
        with target_errors(self.name, "the database cannot be reached"):
            return self._access.sql

    def _staged(self, statements: Statements, job: str) -> list[str]:
        start = owner_of(self._parts[-1], job)
        with self._session("staging tables cannot be listed") as session:
            found = session.rows(*statements.sql.tables_like(statements.schema, start))
        return sorted({(table or "").removesuffix(LANDING) for (table,) in found})

    def _covered(self, statements: Statements, retraction: Retraction) -> list[str]:
        """Return the staging tables of attempts at the versions of a retraction."""
        staged = self._staged(statements, retraction.job)
        return [table for table in staged if retraction.covers(version_of(table, retraction.epoch))]

    def _statements(self, of: Output | Retraction) -> Statements:
        """Return the statements for the schema of the target; UnprovenError if a record names another one."""
        schema = self._schema
        if schema is not None and schema != of.staging:
            version = of.version if isinstance(of, Output) else of.first
            raise UnprovenError(self.name, version, f"its schema is {schema!r}, and not the one that is recorded")
        return Statements(self._sql, of.staging, self._parts[-1])

    @cached_property
    def _schema(self) -> str | None:
        """The schema of the target; None if there is no such table."""
        with self._session("the table cannot be looked at") as session:
            found = session.rows(*self._sql.schema_of(self._parts))
        return str(found[0][0]) if found else None

    def check_staged(self, output: Output) -> None:
        """Raise what speaks against publishing an output; see `Sink`."""
        self._is_staged(self._statements(output), output)

    def _is_staged(self, statements: Statements, output: Output) -> bool:
        """Return whether the table of an attempt is there; False if the batch is published, errors as of `publish`."""
        if not is_own_table(output, self._parts[-1]):
            raise UnprovenError(
                self.name, output.version, "its staging table is not one that an attempt at its batch makes"
            )
        with self._session("the batch cannot be published") as session:
            if self._catalogue(session, [output.staging, output.folder]):
                return True
            there = self._catalogue(session, [output.staging, BATCHES])
            if there and session.rows(*statements.published(output)):
                return False
        raise StagedRowsLostError(output.target, output.version, output.folder)

    def _catalogue(self, session: Session, parts: Sequence[str]) -> dict[str, TableColumn]:
        found = {}
        for name, declared, indexed, nullable in session.rows(self._sql.database.catalogue(parts)):
            found[str(name)] = TableColumn.parse(str(declared), indexed, str(nullable))
        return found

    def _look(self, arriving: Sequence[Arriving]) -> _Target:
        """Return the target as it is; TargetTableError where it does not take the rows."""
        sql = self._sql
        self._check_name()
        with self._session("the table cannot be looked at", f"GRANT SELECT, INSERT ON {self._written}") as session:
            catalogue = self._catalogue(session, self._parts)
            if not catalogue:
                raise TargetTableError(self.name, f"there is no such table. Create it: {self._create(arriving)}")
            ((schema,),) = session.rows(*sql.schema_of(self._parts))
            filled = {str(name): str(how) for name, how in session.rows(*sql.filled(self._parts))}
            query = sql.wide_types(self._parts)
            wide = {str(name): str(kind) for name, kind in session.rows(*query)} if query is not None else {}
            transactional = sql.is_transactional(self._parts)
            if transactional is not None and session.rows(*transactional) == [("0",)]:
                raise TargetTableError(
                    self.name, f"its engine has no transactions. Run ALTER TABLE {self._written} ENGINE=InnoDB."
                )
        target = _Target(Statements(sql, str(schema), self._parts[-1]), target_columns(catalogue, filled, wide))
        self._check_columns(target, arriving)
        return target

    @property
    def _written(self) -> str:
        return str(self._sql.database.table(self._parts))

    def _check_name(self) -> None:
        limit = self._sql.longest_name
        for part in self._parts:
            if limit and len(part.encode()) > limit:
                raise TargetTableError(
                    self.name,
                    f"{part!r} has {len(part.encode())} bytes, and {self._sql.name} has names of up to {limit}."
                    " Check the name.",
                )

    def _create(self, arriving: Sequence[Arriving]) -> str:
        sql, rules = self._sql, self.rules
        declared = [f"{sql.quote(column.name)} {sql.declaration(column)}" for column in arriving]
        key = list(rules.keys) if rules else []
        if rules and rules.history:
            (sequence,) = [column for column in arriving if column.name == rules.sequence_by[0]]
            names = [column.name for column in arriving]
            for name in (rules.history.valid_from, rules.history.valid_to):
                if name not in names:
                    declared.append(f"{sql.quote(name)} {sql.declaration(sequence)}")
            key.append(rules.history.valid_from)
        if key:
            declared.append(f"PRIMARY KEY ({', '.join(map(sql.quote, key))})")
        return f"CREATE TABLE {self._written} ({', '.join(declared)})"

    def _check_columns(self, target: _Target, arriving: Sequence[Arriving]) -> None:
        columns = target.columns
        for column in arriving:
            found = columns.get(column.name)
            if found is None:
                near = [name for name in columns if name.lower() == column.name.lower()]
                remedy = f"It has {near[0]!r}: rename it" if near else "Add it to the table, or leave it out of"
                raise TargetTableError(
                    self.name,
                    f"it has no column {column.name!r}. {remedy} {'in ' if near else ''}the rows. "
                    f"Its columns are {', '.join(columns)}.",
                )
            if found.filled == "always":
                raise TargetTableError(
                    self.name, f"column {column.name!r} is computed by the database. Leave it out of the rows."
                )
            if not self._sql.takes(column, found.declared):
                raise TargetTableError(
                    self.name,
                    f"column {column.name!r} is {found.declared}, and the rows have it as {column.kind}, which does "
                    f"not fit there unchanged. Cast it, or declare the column as {self._sql.declaration(column)}.",
                )
        if arriving:
            self._check_others(columns, {column.name for column in arriving})

    def _check_others(self, columns: Mapping[str, TargetColumn], given: set[str]) -> None:
        """Raise TargetTableError for columns of the target that the rows would have to have."""
        history = self.rules.history if self.rules else None
        versions = (history.valid_from, history.valid_to) if history else ()
        for name in versions:
            if name not in columns:
                raise TargetTableError(self.name, f"a history needs a column {name!r}. Add it, or name another one.")
        if history and history.valid_to in given:
            raise TargetTableError(
                self.name, f"column {history.valid_to!r} is filled by the merge. Leave it out of the rows."
            )
        for name, column in columns.items():
            if name in given or name in versions or column.filled:
                continue
            if not column.nullable:
                raise TargetTableError(
                    self.name,
                    f"column {name!r} must have a value, and the rows do not have the column. Add it to them, "
                    "or give it a default.",
                )
            # A row stands for the whole row: else values of two rows would mix, by the order in which they come.
            if self.rules is not None:
                raise TargetTableError(
                    self.name,
                    f"column {name!r} is missing in the rows, and a merge replaces whole rows. Add it to them, "
                    "as NULL if need be.",
                )

    def _refuse_again(self, statements: Statements, made: Output) -> None:
        """Raise TargetError for a run that saves nothing and wrote here before: rows of an append have no batch."""
        with self._session("published batches cannot be read") as session:
            there = self._catalogue(session, [statements.schema, BATCHES])
            if there and session.rows(*statements.published(made)):
                raise TargetError(
                    self.name,
                    "this run, which saves nothing, has written to it before, and those rows cannot be "
                    "distinguished. Use another run id, or job.merge.",
                )

    def _prepare(self, statements: Statements) -> None:
        """Make the tables of ours beside the target that are not there yet."""
        sql = statements.sql
        rights = sql.rights.format(schema=sql.quote(statements.schema))
        with self._session(f"table {BATCHES!r} cannot be made beside it", rights) as session:
            needed = [(BATCHES, sql.batches_table(statements.batches))]
            if self.rules is not None:
                needed.append((statements.gone_table, statements.create_gone(self.rules)))
            for table, create in needed:
                if self._catalogue(session, [statements.schema, table]):
                    continue
                try:
                    session.run(create)
                except Exception:
                    # Somebody else may have made it at the same moment.
                    if not self._catalogue(session, [statements.schema, table]):
                        raise
            if self.rules is not None:
                self._check_gone(session, statements, self.rules)
                # MySQL's INSERT waits for a merge that is being published, also where the row is there.
                if not session.rows(*statements.has_lock_row()):
                    session.run(*statements.lock_row())

    def _check_gone(self, session: Session, statements: Statements, rules: Merge) -> None:
        """Raise TargetTableError where deletes were remembered by another key or order."""
        found = set(self._catalogue(session, [statements.schema, statements.gone_table]))
        named = {*rules.keys, *rules.sequence_by}
        if found != named:
            raise TargetTableError(
                self.name,
                f"its deletes are remembered by {', '.join(sorted(found))} in {statements.gone_table!r}, and this one "
                f"goes by {', '.join(sorted(named))}. Merge as before, or drop that table once no older row can come.",
            )

    def _fill(self, target: _Target, table: str, arriving: Sequence[Arriving], df: Any) -> int:
        """Write rows to a landing table, check them there, and copy them to the staging table; return how many."""
        statements = target.statements
        sql = statements.sql
        rights = sql.rights.format(schema=sql.quote(statements.schema))
        with self._session("its staging table cannot be made", rights) as session:
            session.run(statements.create_landing(table, arriving))
            session.run(statements.create_staging(table, arriving))
        with target_errors(self.name, "rows cannot be written to its staging table, or not be read for it"):
            self._access.fill(df, statements.beside(table + LANDING), arriving)
        with self._session("rows do not fit the table") as session:
            self._check_landed(session, target, table, arriving)
            _begin(session, statements)
            pairs = [(column, target.columns[column.name].declared) for column in arriving]
            session.run(statements.copy(table, pairs))
            self._check_staged(session, target, table, arriving)
            if self.rules is not None and arriving:
                self._reduce(session, target, table, arriving)
            rows = _count(session, statements.count(table))
            session.commit()
            session.run(statements.drop(table + LANDING))
        self._check_constraints(target, table, arriving)
        return rows

    def _check_landed(self, session: Session, target: _Target, table: str, arriving: Sequence[Arriving]) -> None:
        named = (*self.rules.keys, *self.rules.sequence_by) if self.rules else ()
        for column in arriving:
            declared = target.columns[column.name]
            is_named = column.name in named
            if is_named or not declared.nullable:
                count = _count(session, target.statements.nulls(table, column, in_deletes=is_named))
                if count and is_named:
                    raise MergeNullError(column.name, count)
                if count:
                    raise TargetTableError(
                        self.name,
                        f"column {column.name!r} must have a value, and {rows_have(count)} NULL there. Fill "
                        "or filter them. Nothing is written.",
                    )

    def _check_staged(self, session: Session, target: _Target, table: str, arriving: Sequence[Arriving]) -> None:
        """Raise TargetTableError where the target's column would hold another value than the one that arrived."""
        columns = [(column, target.columns[column.name]) for column in arriving]
        query = target.statements.changed(table, columns)
        counts = session.rows(query)[0] if query is not None else ()
        for (column, declared), count in zip(columns, counts, strict=False):
            if count != "0":
                raise TargetTableError(
                    self.name,
                    f"column {column.name!r} is {declared.declared}, which would cut, round, pad or otherwise change "
                    f"the value in {int(count or 0):,} rows. Declare it as {self._sql.declaration(column)}, or change "
                    "the rows. Nothing is written.",
                )

    def _check_constraints(self, target: _Target, table: str, arriving: Sequence[Arriving]) -> None:
        """Raise TargetTableError for staged rows that a CHECK constraint or a unique key of the target refuses."""
        statements, sql = target.statements, target.statements.sql
        absent = target.columns.keys() - {column.name for column in arriving}
        counts: dict[str, int] = {}
        # A condition may call what this user may not call. Then the publication finds out.
        with suppress(TargetError), self._session("constraints cannot be looked at") as session:
            found = [row for query in sql.constraints(self._parts) for row in session.rows(*query)]
            # A merge stages several rows of one key, and leaves one.
            for constraint, query in statements.refused(table, found, absent, has_keys=self.rules is None).items():
                counts[constraint] = _count(session, query)
        for constraint, count in counts.items():
            if count:
                raise TargetTableError(
                    self.name,
                    f"its {constraint} refuses {count_of(count, 'row')}. Correct or filter them, or use job.merge to "
                    "have one row of each key. Nothing is written.",
                )

    def _reduce(self, session: Session, target: _Target, table: str, arriving: Sequence[Arriving]) -> None:
        """Leave the rows that count in a staging table: of each key the newest, or of each event one."""
        assert self.rules is not None
        statements, rules = target.statements, self.rules
        declared = {column.name: target.columns[column.name].declared for column in arriving}
        if rules.history is None:
            session.run(statements.drop_older(table, rules))
        self._check_ties(session, statements.ties_within(table, rules, declared), rules, "of the batch")
        session.run(statements.drop_copies(table, rules))
        self._check_ties(session, statements.ties_beside(table, rules, declared), rules, "in the target")

    def _check_ties(self, session: Session, query: SQL, rules: Merge, where: str) -> None:
        count = _count(session, query)
        if count:
            raise MergeTieError(self.name, rules.keys, rules.sequence_by, count, where)

    def _drop(self, statements: Statements, table: str, job: str) -> None:
        # Whatever a record says, no other table is dropped.
        if not table.startswith(owner_of(self._parts[-1], job)):
            raise UnprovenError(self.name, 0, f"{table!r} is not a staging table of the job")
        with self._session(f"staging table {table!r} cannot be dropped") as session:
            _begin(session, statements)
            # An attempt that is stopped, and not dead, holds its own open for as long as that lasts: nobody waits for
            # it, as no reader sees the table, and the next run sweeps it.
            for statement in statements.sql.impatient:
                session.run(statement)
            session.run(statements.drop(table + LANDING))
            session.run(statements.drop(table))
            session.commit()


@dataclass(frozen=True)
class _Target:
    """A target as it was looked at: its statements, and its columns by name."""

    statements: Statements
    columns: dict[str, TargetColumn]


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
