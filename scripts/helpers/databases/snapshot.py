"""Read a PostgreSQL table up to the oldest open transaction, so that no commit is missed, however late it is."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from scripts.helpers._lazy import SparkSession
from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.errors import CursorError, SourceError
from scripts.helpers.rows.cursors import Bound, Cursor, CursorColumn, Tick, check_value
from scripts.helpers.rows.dialect import SIGNS
from scripts.helpers.rows.sources import Facts
from scripts.helpers.rows.sql import SQL, in_quotes, sql, whole
from scripts.helpers.sql.database import MAX, Database, TableColumn
from scripts.helpers.sql.known import database_of
from scripts.helpers.sql.postgresql import PostgreSQL

logger = logging.getLogger(__name__)

SYSTEM = "xmin"
"""PostgreSQL's system column: the transaction that wrote the present version of the row."""
NEXT = sql("CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint)")
OLDEST = sql("CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text)")
WRAP = 2**32
"""Number of transactions after which xmin, of 32 bits, restarts. The upper half of an xid8 (64 bits) is the epoch."""


class TransactionIds(PostgreSQL):
    """PostgreSQL with transaction ids as cursors: in columns of type xid8 or bigint, or in `xmin`."""

    system_columns = MappingProxyType({SYSTEM: TableColumn("bigint", indexed=False, nullable=False)})

    def __init__(self, xid8: frozenset[str] = frozenset()) -> None:
        self._xid8 = xid8

    def for_table(self, declared: Mapping[str, str]) -> Database:
        return TransactionIds(frozenset(name for name, kind in declared.items() if kind == "xid8"))

    def cursor(self, column: CursorColumn) -> SQL:
        if column.name != SYSTEM:
            return super().cursor(column)
        # xmin has only the lower 32 bits of an id. Add the upper bits (the epoch) of the next id. No row is from the
        # future, so an xmin above the lower bits of the next id is from the previous epoch.
        return sql(
            "({following} - {following} % {wrap} + {number}"
            " - CASE WHEN {number} > {following} % {wrap} THEN {wrap} ELSE 0 END)",
            number=sql("CAST(CAST(xmin AS text) AS bigint)"), following=sql("(SELECT {})", NEXT), wrap=whole(WRAP),
        )  # fmt: skip

    def comparison(self, column: CursorColumn, sign: str, value: Cursor) -> SQL:
        # Compare in the column's own type, so that its index can be used.
        if column.name in self._xid8:
            check_value(value, column.type)
            number = in_quotes(f"{value:d}")
            return sql("{} {} CAST({} AS xid8)", self.quote(column.name), SIGNS[sign], number)
        return super().comparison(column, sign, value)

    def has_maximum(self, column: CursorColumn) -> bool:
        """Return whether the server supports MIN and MAX of a column; PostgreSQL 13 and 14 do not for xid8."""
        return column.name not in self._xid8 and super().has_maximum(column)

    def cursor_type(self, declared: str) -> tuple[str, Tick | None] | None:
        # A bigint holds 63 of the 64 bits of an id. It would take centuries until an id needs the last bit.
        return ("bigint", None) if declared == "xid8" else super().cursor_type(declared)

    def cuts_by(self, column: CursorColumn) -> bool:
        # Do not split by xmin: each range would read the whole table.
        return column.name != SYSTEM and super().cuts_by(column)

    def read_as_text(self, declared: str) -> str | None:
        return "bigint" if declared == "xid8" else super().read_as_text(declared)


class PostgresSnapshot(JdbcTable):
    """A table in which each row has the id of the transaction that wrote it last.

    A window ends at the oldest transaction that is still open. All earlier transactions have ended, so
    no row is lost, however long transactions last, and no delay must be guessed. Rows of newer
    transactions are in a later window, after the open one has ended.

    The cursor column is one of:

    - an ``xid8`` or ``bigint`` column that a default and a trigger on update fill with
      ``pg_current_xact_id()``. Add an index: then the cost of a run depends only on what is new;
    - ``xmin``, which every table has. It cannot have an index, so each run reads the whole table on the
      server, though only new rows are transferred; after 2^32 transactions, old rows are read once again.

    Neither of them sees deletes. Ids belong to one cluster: after a restore or a move by dump, or on a
    logical replica, reset the job. If the ids show this, the run is refused. Foreign tables, and tables
    with foreign partitions, are refused as well: their rows have ids of another cluster, or none.

    Parameters
    ----------
    spark, url, table, properties, partitions, where, columns
        See `JdbcTable`.

    Notes
    -----
    Pass it to a job: ``job.rows_since(PostgresSnapshot(spark, url, "public.repairs", properties=login), "xmin")``.
    """

    def __init__(
        self,
        spark: SparkSession,
        url: str,
        table: str | Sequence[str],
        *,
        properties: Mapping[str, str] | None = None,
        partitions: int | None = None,
        where: str = "",
        columns: Sequence[str] | None = None,
    ) -> None:
        if not isinstance(database_of(url), PostgreSQL):
            raise SourceError(str(table), "only PostgreSQL has snapshots to read up to. Use JdbcTable with a delay.")
        super().__init__(spark, url, table, properties=properties, partitions=partitions, where=where, columns=columns)
        self._database = TransactionIds()

    def columns(self, names: Sequence[str], strings: bool) -> tuple[CursorColumn, ...]:
        """Return the cursor column; CursorError if it holds no transaction ids."""
        if len(names) != 1:
            raise CursorError(", ".join(names), "a snapshot bounds one column of transaction ids. Name that only.")
        found = super().columns(names, strings)
        declared = self._queries.catalogue[names[0]].declared
        if declared not in ("xid8", "bigint"):
            raise CursorError(
                names[0],
                f"a {declared} holds no transaction ids. Use 'xmin', or a column of type xid8 or bigint that is filled "
                "with pg_current_xact_id().",
            )
        return found

    def facts(self, columns: tuple[CursorColumn, ...], low: Bound | None, descending: bool) -> Facts:
        """Query the oldest open transaction and the count of NULLs in one statement."""
        (column,) = columns
        if descending:
            raise CursorError(column.name, "transaction ids rise. Leave out descending.")
        self._warn_without_index(column)
        # `last`, the column's largest id, shows whether users have written ids that the server has not given out yet.
        # Do not query `last` for xmin: the query would read the whole table, and PostgreSQL itself writes xmin.
        last = sql("NULL")
        if column.name != SYSTEM:
            last = self.dialect.outermost(column, MAX, sql("FROM {}", self._table))
        # Get `last` and the server's next id in one query: an id given out between two queries would seem too high.
        row = self._ask(
            ceiling=OLDEST, following=sql("CAST({} AS text)", NEXT), nulls=self._queries.nulls(columns), last=last,
            foreign=PostgreSQL().has_foreign(self._parts),
        )  # fmt: skip
        if int(row[4]):
            raise CursorError(
                column.name,
                "the table is a foreign table or has foreign partitions. Transactions of another server write their "
                "rows, and no transaction id of this one bounds them. Use JdbcTable with a delay, or read that server.",
            )
        if row[3] is not None and int(row[3]) >= int(row[1]):
            raise CursorError(
                column.name,
                "it holds transaction ids that the server has not given out yet: it is not filled with "
                "pg_current_xact_id(), or its rows came from another cluster. Fill it again, then reset the job.",
            )
        return Facts(nulls=int(row[2]), ceiling=int(row[0]))

    # --- internals of PostgresSnapshot ----------------------------------------------------------

    def _warn_without_index(self, column: CursorColumn) -> None:
        if column.name != SYSTEM:
            super()._warn_without_index(column)
            return
        logger.warning(
            "event=no_index source=%s column=%s: this column cannot have an index, so each run reads the whole table "
            "on the server. A column that is filled with pg_current_xact_id() can have one",
            self.name, SYSTEM,
        )  # fmt: skip
