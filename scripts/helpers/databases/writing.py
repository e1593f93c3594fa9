"""What a database that is written to has beside one that is read: how rows arrive, its types and statements. Pure.

Rows arrive in a **landing** table, every time and every decimal as text, so neither a driver nor the zone of a session
can change them. From there the server copies them into the **staging** table, whose columns have the types of the
target: what does not fit is refused before the commit. Publishing moves them on within one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from scripts.helpers.databases.database import Database, Declared, TableColumn
from scripts.helpers.errors import TargetError
from scripts.helpers.rows.cursors import TIMES, WHOLE
from scripts.helpers.rows.sql import SQL, VALUE, joined, sql, whole

HELD: Mapping[str | None, Sequence[str]] = {
    None: ("string",), "uuid": ("string",), "int": WHOLE, "bigint": WHOLE, "decimal": (*WHOLE, "decimal"),
    "double": ("float", "double"), "year": (),
}  # fmt: skip
"""Which kinds of rows a column takes unchanged, where it is not its own kind alone. What Spark has no type for is read
by the server from text: it refuses what it cannot read before the commit."""


@dataclass(frozen=True)
class Arriving:
    """A column of the rows, by its position among theirs and Spark's name of its type: ``unknown`` if all are NULL."""

    name: str
    kind: str
    position: int

    @property
    def landing(self) -> SQL:
        """What it is called in the landing table, where no name needs quoting."""
        return sql("c{}", whole(self.position))

    @property
    def base(self) -> str:
        """The type without the digits of a decimal."""
        return self.kind.partition("(")[0]

    @property
    def is_text(self) -> bool:
        """Whether it lands as text."""
        return self.base in (*TIMES, "string", "unknown", "decimal")

    @property
    def scale(self) -> int:
        """Digits after the point of a decimal."""
        return Declared.parse(self.kind).numbers[1]


class WritableDatabase(Database):
    """A database that batches are written to."""

    modules: tuple[str, ...] = ()
    """Python drivers by the packages that their connections are of."""
    writing_options: Mapping[str, str] = MappingProxyType({})
    """What the JDBC driver is told, so that it sends many rows at once."""
    has_one_writer, holds_nul = False, True
    """Whether transactions that write come one after the other, and whether texts may have NUL."""
    unfit_floats: Sequence[str] = ()
    """Numbers that it has none for, or makes NULL of."""
    held: Mapping[str | None, Sequence[str]] = HELD
    open_scale = 0
    """Digits after the point of a decimal that is declared without digits."""
    types: Mapping[str, SQL]
    """What a column is declared as, by Spark's type; ``unknown`` where all values are NULL."""
    landing_text: SQL | None = None
    """What a landing table declares texts as; None for the type of texts."""
    longest_name = 0
    """Bytes of a name that it takes; 0 is no limit."""
    writing_session: SQL | None = None
    """Statement that each connection starts with."""
    impatient: SQL | None = None
    """Statement after which a transaction waits for a lock no longer than a while."""
    begins = sql("BEGIN")
    """Statement that begins a transaction, where the driver does not."""
    insert, unless_there = sql("INSERT"), sql("")
    """How an INSERT begins and ends that does nothing if its key exists."""
    isolation: SQL | None = None
    """The first statement of a publication, for how much it sees of others."""
    engine = sql("")
    """What follows a CREATE TABLE, so that it takes part in transactions."""
    by_bytes, moment = sql(""), sql("timestamptz")
    """What follows a type of texts that are compared byte by byte; the type of a time with a zone."""
    attempt = sql("")
    """Expression for the connection or transaction that inserts: one attempt of a Spark task has one of its own."""
    compares_staged = False
    """Whether `changes` needs the staged row, `s`, beside the one that landed."""
    rights = ""
    """What a user needs to have staging tables, with ``{schema}`` in it: for texts of errors."""

    # --- the catalogue --------------------------------------------------------------------------

    def schema_of(self, parts: Sequence[str]) -> SQL:
        """Return the query for the schema that a table is found in."""
        return sql("SELECT schema_name FROM ({}) found", self.identity(parts))

    def tables_like(self, schema: str, start: str) -> SQL:
        """Return the query for the tables of a schema whose names begin with a text."""
        raise NotImplementedError

    def constraints(self, parts: Sequence[str]) -> Sequence[SQL]:
        """Return the queries for the unique keys of a table and for its CHECK constraints.

        Of a unique key each part is a row: the name of the key, the part in SQL or NULL if the database cannot say it,
        and the condition of the key. In other rows the second column has CHECK constraints, among other text. None is
        found where a row may be changed, or ignored, as it is inserted: a staged row is not what is checked then.
        """
        raise NotImplementedError

    def is_transactional(self, parts: Sequence[str]) -> SQL | None:
        """Return the query for whether a table has transactions: 1 or 0, no row for a view. None where all have."""
        return None

    # --- types ----------------------------------------------------------------------------------

    def takes(self, column: Arriving, declared: str) -> bool:
        """Return whether a declared type holds every value of an arriving column as it is."""
        kind, numbers = self.kind(declared), Declared.parse(declared).numbers
        if kind == column.base == "decimal":
            return column.scale <= ((*numbers, 0)[1] if numbers else self.open_scale)
        return column.kind == "unknown" or column.base in self.held.get(kind, (kind,))

    def arrived(self, column: Arriving, declared: str) -> SQL:
        """Write the value of a landing column in the type of its target column."""
        return sql("l.{}", column.landing)

    def changes(self, column: Arriving, target: TableColumn) -> SQL | None:
        """Write that a staged value, `s`, is another than the one that arrived, `l`; None where it is the same.

        What a type writes in its own way, as json or a uuid, is the same. What is cut, padded, rounded or put into
        another case is not: whoever reads it back does not find it.
        """
        return None

    def landing_type(self, column: Arriving) -> SQL:
        """Return what a column is declared as in the landing table."""
        if column.is_text:
            return self.landing_text or self.types["string"]
        return self.types["bigint" if column.kind in WHOLE else column.kind]

    def declaration(self, column: Arriving) -> str:
        """Return what a column of the rows would be declared as in a target: for texts of errors."""
        name = self.types[column.base]
        return name if name == self.types["string"] else name + column.kind.removeprefix(column.base)

    def filling_options(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the options of Spark's writer, of those of a connection."""
        return dict(options)

    # --- statements -----------------------------------------------------------------------------

    def batches_table(self, table: SQL) -> SQL:
        """Return the CREATE TABLE for the batches that are published."""
        return sql(
            "CREATE TABLE IF NOT EXISTS {0} (target varchar(64){1} NOT NULL, job varchar(8){1} NOT NULL, "
            "epoch varchar(64){1} NOT NULL, version bigint NOT NULL, job_name varchar(255){1}, "
            "staged varchar(64) NOT NULL, published_at {2} NOT NULL DEFAULT CURRENT_TIMESTAMP, "
            "PRIMARY KEY (target, job, epoch, version)){3}",
            table, self.by_bytes, self.moment, self.engine,
        )  # fmt: skip

    def create_like(self, table: SQL, columns: Sequence[SQL], like: SQL, own: Sequence[SQL] = ()) -> SQL:
        """Return the CREATE TABLE for columns of another table, all of them nullable, and for numbers of ours."""
        values = joined(", ", [*columns, *(sql("CAST(0 AS bigint) AS {}", name) for name in own)])
        return sql("CREATE TABLE {} AS SELECT {} FROM {} WHERE 1 = 0", table, values, like)

    def insert_once(self, into: SQL) -> SQL:
        """Return an INSERT of a batch that waits for concurrent inserts of its key, and does nothing if it exists."""
        columns, marks = sql("target, job, epoch, job_name, version, staged"), joined(", ", [VALUE] * 6)
        return sql("{} INTO {} ({}) VALUES ({}){}", self.insert, into, columns, marks, self.unless_there)

    def differ(self, one: SQL, other: SQL, declared: str) -> SQL:
        """Write that two values are not the same, NULL included, whatever a collation takes for equal."""
        raise NotImplementedError

    def update_from(self, table: SQL, source: SQL, on: SQL, sets: Mapping[str, SQL], where: SQL) -> SQL:
        """Return an UPDATE of a table, called ``t``, by a source with an alias of its own."""
        listed = joined(", ", (sql("{} = {}", self.quote(name), value) for name, value in sets.items()))
        return sql("UPDATE {} AS t SET {} FROM {} WHERE ({}) AND ({})", table, listed, source, on, where)

    def delete_where(self, table: SQL, condition: SQL) -> SQL:
        """Return a DELETE from a table, called ``t``."""
        return sql("DELETE FROM {} AS t WHERE {}", table, condition)


def writable(database: Database) -> WritableDatabase:
    """Return a database as one that is written to; TargetError for one that is only read."""
    if isinstance(database, WritableDatabase):
        return database
    raise TargetError(
        database.name, "batches are written to PostgreSQL, MySQL, MariaDB and SQLite. Write files, and load them there."
    )
