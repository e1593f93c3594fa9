"""The rules of a merge, by which the winning row of a key does not depend on the order in which batches arrive. Pure.

An **event** is an arriving row or delete. It has a key, and a sequence: its values of `sequence_by`, which order the
events of a key. The content of a target depends only on the set of all events::

    newest     the target has a key's event with the highest sequence, unless that event is a delete
    history    the target has every row, as a version valid from its sequence to that of the next event of the key

So a batch can be merged twice, late, or after newer batches, and the target gets the same rows. Four rules follow:

1. **A row that is older than the target's row changes nothing** (newest), or is inserted between versions (history).
2. **A delete is remembered** with its sequence, in a table next to the target. Otherwise an older row that arrives
   late would bring the key back. Without a history, only the last delete of a key is remembered, until a newer row
   arrives. With a history, all deletes are remembered, because each of them ends a version.
3. **A row replaces the whole row**, so every batch must have all columns. Otherwise a row would mix two events.
4. **Events without an order are refused**: two different events with the same key and sequence (a tie), and an event
   with NULL in its key or sequence. Two equal events count as one.

`Merge` returns the comparisons for these rules in SQL, between an event `s` and a row `t` of the target. The function
`quote` quotes a name for the engine. The sinks write the statements that contain the comparisons.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from tempfile import gettempdir
from typing import Any, Protocol

from scripts.helpers._lazy import DataFrame, F, T, pa
from scripts.helpers.errors import InvalidValueError, KeyColumnError, TargetError
from scripts.helpers.protocol.names import new_token
from scripts.helpers.protocol.outputs import MergeColumns
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.sql import SQL, internal, joined, sql, whole, with_names, without_names_in

DELETED = internal("deleted")
"""Column of arriving rows that marks deletes. No target has this column."""
NOT_DELETED = sql("NOT {}", DELETED)
MOST_SEQUENCES = 10


@dataclass(frozen=True)
class Versions:
    """The columns of a history table, which has a row for each version of a key, that show when a version was valid.

    Valid from `valid_from` to before `valid_to`, NULL if still valid. `valid_from` may be the column of `sequence_by`.
    """

    valid_from: str = "valid_from"
    valid_to: str = "valid_to"

    def __post_init__(self) -> None:
        if self.valid_from == self.valid_to:
            raise InvalidValueError(f"valid_from and valid_to are both {self.valid_from!r}. Name two columns.")


@dataclass(frozen=True)
class Merge:
    """The columns that identify and order rows, and whether the merge keeps all versions of a row.

    Attributes
    ----------
    keys
        Columns that identify a row.
    sequence_by
        Columns that order the rows of a key; the first column is compared first.
    history
        If given, every row of a key is kept, with the time when it was valid; if None, only the newest row.

    Raises
    ------
    KeyColumnError
        There is no key, or a column is named twice, such as in both `keys` and `sequence_by`.
    InvalidValueError
        `sequence_by` names no column or more than 10, `valid_from` or `valid_to` is a key, `valid_to` is `sequence_by`,
        or a history has several columns of `sequence_by`.

    Examples
    --------
    >>> merge = Merge.of("id", ["at", "line"])
    >>> merge.matches(sql)
    't.id = s.id'
    >>> merge.newer(sql)
    '(t.at IS NULL OR s.at > t.at OR (s.at = t.at AND (t.line IS NULL OR s.line > t.line)))'
    """

    keys: tuple[str, ...]
    sequence_by: tuple[str, ...]
    history: Versions | None = None

    def __post_init__(self) -> None:
        if not self.keys:
            raise KeyColumnError("", "no key is given. Name the columns that identify a row: keys=['id'].")
        if not self.sequence_by:
            raise InvalidValueError("sequence_by names no column. Name the one that says which row of a key is newer.")
        # Limit the columns: each nests the comparison once more, and engines would refuse it only after the commit.
        if len(self.sequence_by) > MOST_SEQUENCES:
            raise InvalidValueError(
                f"sequence_by names {len(self.sequence_by)} columns, and at most {MOST_SEQUENCES} are compared. Leave "
                "out those that never decide."
            )
        named = [*self.keys, *self.sequence_by]
        twice = [name for name in named if named.count(name) > 1]
        if twice:
            raise KeyColumnError(twice[0], "it is named twice in keys and sequence_by. Name each column once.")
        if self.history is None:
            return
        if len(self.sequence_by) > 1:
            raise InvalidValueError(
                f"A history is valid from one column on, and sequence_by names {len(self.sequence_by)}. Name one."
            )
        filled = {self.history.valid_from, self.history.valid_to}
        if filled & set(self.keys) or self.history.valid_to in self.sequence_by:
            raise InvalidValueError(
                "valid_from and valid_to are filled by the merge: neither is a key, and valid_to is not sequence_by."
            )

    @classmethod
    def of(cls, keys: str | Sequence[str], sequence_by: str | Sequence[str], history: bool | Versions = False) -> Merge:
        """Return the rules for the arguments of `IncrementalJob.merge`."""
        kept = (Versions() if history is True else history) or None
        return cls(_names(keys), _names(sequence_by), kept)

    @property
    def columns(self) -> MergeColumns:
        """The columns in the form in which an `Output` stores them."""
        history = (self.history.valid_from, self.history.valid_to) if self.history is not None else ()
        return MergeColumns(self.keys, self.sequence_by, history)

    @classmethod
    def by(cls, columns: MergeColumns) -> Merge:
        """Return the rules of a merge, from the columns that an `Output` stores."""
        return cls(columns.keys, columns.sequence_by, Versions(*columns.history) if columns.history else None)

    def ends(self, columns: Sequence[str]) -> dict[str, str]:
        """Map `valid_from` and `valid_to`, if `columns` lacks them, to the sequence column: they get its type."""
        history = self.history
        if history is None:
            return {}
        (sequence,) = self.sequence_by
        return {name: sequence for name in (history.valid_from, history.valid_to) if name not in columns}

    def matches(self, quote: Callable[[str], SQL]) -> SQL:
        """Return the condition that a row `t` of the target and an event `s` have the same key."""
        return joined(" AND ", (sql("t.{0} = s.{0}", quote(name)) for name in self.keys))

    def ties(self, quote: Callable[[str], SQL]) -> SQL:
        """Return the condition that a target's row `t` and an event `s` of the same key have equal `sequence_by`."""
        return joined(" AND ", (sql("t.{0} = s.{0}", quote(name)) for name in self.sequence_by))

    def tied(self, target: str, count: int, where: str) -> InvalidValueError:
        """Return the error for tied rows, which have the same key and sequence, but differ."""
        return InvalidValueError(
            reason="merge_tie", target=target, keys=self.keys, sequence_by=self.sequence_by, count=count, where=where
        )

    def newer(self, quote: Callable[[str], SQL]) -> SQL:
        """Return the condition that the event `s` is newer than the row `t` of the same key.

        A row that the target had before the first merge may have no sequence. It is older than every event.
        """
        written = sql("")
        for name in reversed(self.sequence_by):
            further = sql(" OR (s.{0} = t.{0} AND {1})", quote(name), written) if written else written
            written = sql("(t.{0} IS NULL OR s.{0} > t.{0}{1})", quote(name), further)
        return written


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


# --- merge engines --------------------------------------------------------------------------------
# Engines that run the SQL of a merge: Spark on DataFrames, DuckDB on tables of pyarrow.
#
# The SQL has no names that users chose. It reads **relations**: the columns that it compares, under reserved names, and
# a column `ROW` that stands for the whole row. It returns a relation, which the engine turns back into rows:
#
#     Spark      ROW is the whole row as a struct; Spark runs the query only when the rows are written
#     DuckDB     ROW is the row's number; pyarrow takes the row of that number from its table
#
# So DuckDB gets only keys and the columns of `sequence_by`, as numbers and bytes, and no other column is converted.

ROW = internal("row")
MEMORY, THREADS = "1GB", 4
"""Limits for DuckDB, which writes to temporary files what does not fit in that memory."""


def aliases_of(names: Sequence[str]) -> dict[str, SQL]:
    """Return an alias in SQL for each column; `DELETED` keeps its name.

    >>> aliases_of(["id", "at"])
    {'id': 'glue_watermarks_column_0', 'at': 'glue_watermarks_column_1'}
    """
    columns = {name: sql("{}_{}", internal("column"), whole(number)) for number, name in enumerate(names)}
    return columns | ({DELETED: DELETED} if DELETED in columns else {})


# --- Spark ------------------------------------------------------------------------------------------


class _SparkEngine:
    """Spark, in the session of the first relation. In the SQL, ``{name}`` stands for the relation of that name."""

    def relation(self, rows: DataFrame, columns: Mapping[str, SQL], beside: Collection[str] = ()) -> DataFrame:
        """Return a frame for the SQL of a merge: `columns` (alias by name), and the whole row as one struct, `ROW`.

        `ROW` has all columns. With `beside`, it omits these, and has sorted lists for maps, which SQL cannot compare.
        """
        fields = {field.name: SPARK.quote(field.name) for field in rows.schema if field.name not in beside}
        if beside:
            fields = {name: _sorted_maps_on_spark(value, rows.schema[name].dataType) for name, value in fields.items()}
        row = F.struct(*(F.expr(value).alias(f"c{at}") for at, value in enumerate(fields.values())))
        return rows.select(*(F.col(SPARK.quote(name)).alias(alias) for name, alias in columns.items()), row.alias(ROW))

    def sql(self, text: SQL, **relations: Any) -> DataFrame:
        found: DataFrame = next(iter(relations.values())).sparkSession.sql(text, **relations)
        return found

    def one(self, text: SQL, **relations: DataFrame) -> tuple[Any, ...]:
        return tuple(self.sql(text, **relations).collect()[0])

    def rows(self, found: DataFrame, of: DataFrame, filled: Mapping[str, SQL], like: str) -> DataFrame:
        """Turn the structs in `ROW` of `found` into rows with the columns of `of`; take `filled` columns from `found`.

        A column of `filled` that is not in `of` gets the type of the column `like` in `of`.
        """
        columns = {name: F.col(ROW)[f"c{at}"] for at, name in enumerate(of.columns)}
        columns |= {name: F.col(alias) for name, alias in filled.items()}
        return found.select(*(column.alias(name) for name, column in columns.items()))

    def together(self, events: DataFrame, rows: DataFrame, *, deleted: bool) -> DataFrame:
        """Return events and rows in one frame with the events' columns; with `deleted`, the rows count as deletes."""
        shared = [SPARK.quote(name) for name in rows.columns if name in events.columns]
        return events.unionByName(rows.select(*shared).withColumn(DELETED, F.lit(deleted)), allowMissingColumns=True)


def _sorted_maps_on_spark(value: SQL, kind: T.DataType, depth: int = 0) -> SQL:
    """Return the SQL of a value with each map as a sorted list of its entries, because Spark 3 cannot compare maps."""
    item = sql("{}_{}", internal("item"), whole(depth))
    if isinstance(kind, T.MapType):
        key = _sorted_maps_on_spark(sql("{}.key", item), kind.keyType, depth + 1)
        entry = sql("STRUCT({}, {})", key, _sorted_maps_on_spark(sql("{}.value", item), kind.valueType, depth + 1))
        return sql("ARRAY_SORT(TRANSFORM(MAP_ENTRIES({}), {} -> {}))", value, item, entry)
    if isinstance(kind, T.ArrayType):
        element = _sorted_maps_on_spark(item, kind.elementType, depth + 1)
        return value if element == item else sql("TRANSFORM({}, {} -> {})", value, item, element)
    if isinstance(kind, T.StructType):
        names = [sql("{}.{}", value, SPARK.quote(field.name)) for field in kind.fields]
        fields = [
            _sorted_maps_on_spark(name, field.dataType, depth) for name, field in zip(names, kind.fields, strict=True)
        ]
        return value if fields == names else sql("IF({0} IS NULL, NULL, STRUCT({1}))", value, joined(", ", fields))
    return value


# --- DuckDB -----------------------------------------------------------------------------------------


def _database() -> Any:
    import duckdb

    # Let DuckDB download no extension. It deletes its own temporary folder when the database is closed.
    config: dict[str, Any] = {
        "memory_limit": MEMORY, "threads": min(THREADS, os.cpu_count() or 1),
        "temp_directory": f"{gettempdir()}/glue-watermarks-{new_token()}", "autoinstall_known_extensions": False,
        "autoload_known_extensions": False, "python_enable_replacements": False, "integer_division": True,
    }  # fmt: skip
    # Let no SQL open a file: the target table's CHECK constraints run here, and anyone may have written them.
    return duckdb.connect(":memory:", config=config).execute("SET enable_external_access = false")


_connect: ContextVar[Callable[[], Any]] = ContextVar("connect", default=_database)


@contextmanager
def one_database() -> Iterator[None]:
    """Open DuckDB at most once for the statements of this block: opening takes longer than most statements do.

    DuckDB is closed at the end of the block: a process forked while it is open crashes or hangs when it exits.
    """
    with ExitStack() as stack:
        database = cache(lambda: stack.enter_context(_database()))
        stack.callback(_connect.reset, _connect.set(lambda: database().cursor()))
        yield


class _ArrowEngine:
    """DuckDB in memory, for tables of pyarrow. `relation` raises InvalidValueError if a column cannot be compared."""

    def relation(self, rows: pa.Table, columns: Mapping[str, SQL], beside: Collection[str] = ()) -> pa.Table:
        found: dict[str, Any] = {}
        for name, alias in columns.items():
            found[alias] = column = _comparable(rows[name], as_text=False)
            if column is None:
                raise InvalidValueError(
                    f"Column {name!r} is of type {rows[name].type}, by which a merge cannot order rows or tell them "
                    "apart. Name other columns in keys and sequence_by."
                )
        row: Any = pa.array(range(rows.num_rows), pa.int64())
        if beside:
            contents = [_comparable(rows[name], as_text=True) for name in rows.column_names if name not in beside]
            row = pa.table(contents, [f"c{at}" for at in range(len(contents))]).to_struct_array()
        return pa.table(found | {ROW: row})

    def sql(self, text: SQL, **relations: pa.Table) -> pa.Table:
        names = {name: sql("{}_{}", internal("relation"), whole(number)) for number, name in enumerate(relations)}
        with _connect.get()() as connection:
            for name, relation in relations.items():
                connection.register(names[name], relation)
            found: pa.Table = connection.sql(with_names(text, names)).to_arrow_table()
        return found

    def refused(self, rows: pa.Table, conditions: Mapping[str, SQL]) -> dict[str, int]:
        """Return how many rows make each condition false or NULL. Conditions that DuckDB cannot read are left out."""
        import duckdb

        found = {}
        for name, text in conditions.items():
            with suppress(duckdb.Error):
                query = sql("SELECT COUNT(*) FROM {{rows}} AS found WHERE ({}\n) IS NOT TRUE", without_names_in(text))
                (found[name],) = self.one(query, rows=rows)
        return found

    def one(self, text: SQL, **relations: pa.Table) -> tuple[Any, ...]:
        return tuple(column[0].as_py() for column in self.sql(text, **relations).columns)

    def rows(self, found: pa.Table, of: pa.Table, filled: Mapping[str, SQL], like: str) -> pa.Table:
        kinds = {field.name: field.type for field in of.schema}
        columns = dict(zip(of.column_names, of.take(found[ROW].combine_chunks()).columns, strict=True))
        columns |= {name: found[alias].cast(kinds.get(name, kinds[like])) for name, alias in filled.items()}
        return pa.table(columns)

    def together(self, events: pa.Table, rows: pa.Table, *, deleted: bool) -> pa.Table:
        # A column that is NULL in all events, such as deletes from `merge(missing=…)`, has no type: use that of `rows`.
        kinds = {
            field.name: rows.schema.field(field.name).type if pa.types.is_null(field.type) else field.type
            for field in events.schema
            if field.name in rows.column_names
        }
        more = rows.select(list(kinds)).cast(pa.schema(list(kinds.items())))
        more = more.append_column(DELETED, pa.array([deleted] * rows.num_rows, pa.bool_()))
        return pa.concat_tables([events, more], promote_options="default")


def _comparable(column: pa.ChunkedArray, *, as_text: bool) -> pa.ChunkedArray | None:
    """Return a column in a type that DuckDB compares exactly; for other types, as text if `as_text`, else None."""
    kind = _type_in_duckdb(column.type)
    if kind is not None:
        return column.cast(kind)
    texts = [None if value is None else repr(_with_sorted_maps(value)).encode() for value in column.to_pylist()]
    return pa.chunked_array([pa.array(texts, pa.large_binary())]) if as_text else None


def _type_in_duckdb(kind: pa.DataType) -> pa.DataType | None:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType) or types.is_dictionary(kind):
        return _type_in_duckdb(kind.value_type if types.is_dictionary(kind) else kind.storage_type)
    if types.is_temporal(kind):
        return {32: pa.int32(), 64: pa.int64()}.get(kind.bit_width)
    if types.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale) if kind.precision <= 38 else None
    texts = {pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()}
    if kind in texts or types.is_fixed_size_binary(kind):
        return pa.large_binary()
    if types.is_float16(kind):
        return pa.float32()
    return kind if types.is_null(kind) or types.is_primitive(kind) else None


def _with_sorted_maps(value: Any) -> Any:
    """Return a Python value with the entries of maps sorted and -0.0 as 0.0, so that equal values have equal texts."""
    if isinstance(value, dict):
        return {name: _with_sorted_maps(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        found = [_with_sorted_maps(one) for one in value]
        # Sort tuples only: they are the entries of a map, which have no order.
        return sorted(found, key=repr) if value and isinstance(value[0], tuple) else found
    return value + 0.0 if isinstance(value, float) else value


SPARK_ENGINE, ARROW_ENGINE = _SparkEngine(), _ArrowEngine()
MergeEngine = _SparkEngine | _ArrowEngine


# --- table merge ----------------------------------------------------------------------------------
# The common part of merges into Delta and Iceberg tables: the checks, and the changes to the rows of a batch's keys.
#
# To publish a batch, a sink reads the target's rows that have a key of the batch, and the earlier deletes of these
# keys, which the table `TableMerge.memory` remembers, and computes the changes from them: see `TableMerge.source`. Each
# format has its own way to write the changes, and to detect that another writer changed the table after the read.

quote = SPARK.quote
"""Quotes a name so that both Spark and DataFusion can read it."""
PLACE = internal("place")


@dataclass(frozen=True)
class Step:
    """What one MERGE does with a row `t` of the table and a row `s` of the source.

    Attributes
    ----------
    on
        The condition by which `t` and `s` match, such as equal keys.
    delete_when, update_when
        The conditions to delete a matching `t`, and to set its columns `sets` to the values of `s`. None: never.
    insert_when
        The condition to insert an `s` that matches no `t`. The new row gets the columns `inserts`.
    """

    on: SQL
    insert_when: SQL
    inserts: Sequence[str]
    update_when: SQL | None = None
    sets: Sequence[str] = ()
    delete_when: SQL | None = None


class Tables(Protocol):
    """The tables that a merge reads, by name or URI."""

    def has(self, table: str) -> bool:
        """Return whether there is such a table."""

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns."""

    def read(self, table: str, events: Any, merge: Merge) -> Any:
        """Return a table's rows, at least those whose key is in `events`, the rows and deletes of the batch."""


class Frames:
    """The computations of a merge in SQL, on frames of one engine. An event is a row, or a delete if `DELETED`."""

    def __init__(self, engine: MergeEngine) -> None:
        self._engine = engine
        self.together = engine.together

    def nulls(self, events: Any, names: Sequence[str]) -> dict[str, int]:
        """Return the number of events with NULL in a column, for each of the columns `names`."""
        column = aliases_of(names)
        counts = joined(", ", (sql("COUNT(CASE WHEN {} IS NULL THEN 1 END)", alias) for alias in column.values()))
        text = sql("SELECT {} FROM {{events}}", counts)
        return dict(zip(column, self._engine.one(text, events=self._engine.relation(events, column)), strict=True))

    def has_deletes(self, events: Any) -> bool:
        """Return whether any event is a delete."""
        text = sql("SELECT COUNT(*) FROM (SELECT 1 FROM {{events}} WHERE {} LIMIT 1) AS found", DELETED)
        (count,) = self._engine.one(text, events=self._engine.relation(events, {DELETED: DELETED}))
        return bool(count)

    def distinct(self, events: Any, merge: Merge) -> Any:
        """Return the newest event (row or delete) of each key, or for a history table one of each key and sequence.

        Of a row and a delete with equal keys and `sequence_by`, return the delete. `check` refuses such pairs.
        """
        column = aliases_of([*merge.keys, *merge.sequence_by, DELETED])
        together = merge.keys if merge.history is None else [*merge.keys, *merge.sequence_by]
        text = sql(
            "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {} ORDER BY {}, {} DESC) AS {place} "
            "FROM {{events}}) AS found WHERE {place} = 1",
            _list(column, together), _newest_first(column, merge), DELETED, place=PLACE,
        )  # fmt: skip
        found = self._engine.sql(text, events=self._engine.relation(events, column))
        return self._engine.rows(found, events, {}, merge.sequence_by[0])

    def ties(self, events: Any, merge: Merge) -> int:
        """Return the number of ties: events that have key and sequence of another event, but differ from it.

        If the target is not a history table, compare only the newest events of each key. Two deletes never differ.
        """
        named = [*merge.keys, *merge.sequence_by]
        column = aliases_of([*named, DELETED])
        candidates = sql("{{events}} AS found")
        if merge.history is None:
            candidates = sql(
                "(SELECT *, RANK() OVER (PARTITION BY {} ORDER BY {}) AS {place} FROM {{events}}) AS found "
                "WHERE {place} = 1", _list(column, merge.keys), _newest_first(column, merge), place=PLACE,
            )  # fmt: skip
        text = sql(
            "SELECT COALESCE(SUM({count} - 1), 0) FROM (SELECT {named}, COUNT(*) AS {count} FROM (SELECT DISTINCT "
            "{named}, {deleted}, CASE WHEN {deleted} THEN NULL ELSE {row} END AS {row} FROM {candidates}) AS found "
            "GROUP BY {named}) AS found",
            named=_list(column, named), count=internal("count"), deleted=DELETED, row=ROW, candidates=candidates,
        )  # fmt: skip
        return int(self._engine.one(text, events=self._engine.relation(events, column, named))[0])

    def versions(self, events: Any, there: Any, gone: Any, merge: Merge) -> Any:
        """Return the versions (rows of a history table) of the events' keys, with start and end.

        `DELETED` is true for the versions in `there`, so that the MERGE sets only their end, and inserts only new ones.
        Rows from before the first merge, which have no start, are left out, so that they stay unchanged.

        Parameters
        ----------
        events
            The events of the batch, without duplicates.
        there
            The table's rows (versions) with these keys.
        gone
            The remembered deletes of these keys, with key and sequence. They include the deletes in `events`.
        """
        assert merge.history is not None
        (sequence,), start, end = merge.sequence_by, merge.history.valid_from, merge.history.valid_to
        moment, until = internal("moment"), internal("until")
        column = aliases_of(merge.keys)
        text = sql(
            "WITH known AS (SELECT {keys}, {moment} FROM {{there}} WHERE {moment} IS NOT NULL), "
            "arrived AS (SELECT s.* FROM {{events}} AS s WHERE NOT s.{deleted} AND NOT EXISTS "
            "(SELECT 1 FROM known AS t WHERE {match} AND t.{moment} = s.{moment})), "
            "ends AS (SELECT {keys}, {moment}, LEAD({moment}) OVER (PARTITION BY {keys} ORDER BY {moment}) AS {until} "
            "FROM (SELECT {keys}, {moment} FROM known UNION SELECT {keys}, {moment} FROM {{gone}} "
            "UNION SELECT {keys}, {moment} FROM arrived) AS moments) "
            "SELECT {of_t}, t.{moment}, t.{until}, s.{deleted}, s.{row} FROM (SELECT {keys}, {moment}, {deleted}, "
            "{row} FROM arrived UNION ALL SELECT {keys}, {moment}, TRUE, NULL FROM known) AS s "
            "JOIN ends AS t ON {match} AND t.{moment} = s.{moment}",
            keys=_list(column, merge.keys), of_t=joined(", ", (sql("t.{}", column[name]) for name in merge.keys)),
            match=merge.matches(column.__getitem__), moment=moment, until=until, deleted=DELETED, row=ROW,
        )  # fmt: skip
        relation, ends = self._engine.relation, {sequence: moment, start: moment, end: until}
        found = self._engine.sql(
            text, events=relation(events, {**column, sequence: moment, DELETED: DELETED}),
            there=relation(there, {**column, start: moment}), gone=relation(gone, {**column, sequence: moment}),
        )  # fmt: skip
        return self._engine.rows(found, events, {**column, **ends, DELETED: DELETED}, sequence)

    def rows_with_keys(self, rows: Any, events: Any, merge: Merge) -> Any:
        """Return those of the rows whose key is the key of at least one event."""
        column = aliases_of(merge.keys)
        text = sql(
            "SELECT * FROM {{rows}} AS t WHERE EXISTS (SELECT 1 FROM {{events}} AS s WHERE {})",
            merge.matches(column.__getitem__),
        )
        relation = self._engine.relation
        found = self._engine.sql(text, rows=relation(rows, column), events=relation(events, column))
        return self._engine.rows(found, rows, {}, merge.keys[0])


def _list(column: Mapping[str, SQL], names: Sequence[str]) -> SQL:
    return joined(", ", (column[name] for name in names))


def _newest_first(column: Mapping[str, SQL], merge: Merge) -> SQL:
    # Sort NULL last: rows from before the first merge, which are the oldest, may have no sequence.
    return joined(", ", (sql("{} DESC NULLS LAST", column[name]) for name in merge.sequence_by))


SPARK_FRAMES = Frames(SPARK_ENGINE)
ARROW_FRAMES = Frames(ARROW_ENGINE)


class TableMerge:
    """Merges batches into the table `target`. The table next to it that remembers deletes is `memory`."""

    def __init__(self, target: str, memory: str, rules: Merge, tables: Tables, frames: Frames) -> None:
        self.target, self.memory, self.rules = target, memory, rules
        self._tables, self._frames = tables, frames

    @property
    def named(self) -> list[str]:
        """The columns of the table that remembers deletes."""
        return [*self.rules.keys, *self.rules.sequence_by]

    @one_database()
    def check(self, events: Any) -> None:
        """Raise if events (rows and deletes to merge) have no order among themselves, or with earlier rows and deletes.

        Raises
        ------
        KeyColumnError, InvalidValueError
            An event has NULL in a key or in `sequence_by`. Or an event differs from another event, a row of the target
            or a remembered delete that has the same values in these columns.
        TargetError
            The table `memory`, which remembers deletes, has other columns than the keys and `sequence_by` of `rules`.
        """
        tables, frames = self._tables, self._frames
        remembered = tables.columns(self.memory) if tables.has(self.memory) else []
        if remembered and set(remembered) != set(self.named):
            raise TargetError(
                self.target,
                f"its deletes are remembered by {', '.join(sorted(remembered))}, in {self.memory}. Merge by these, "
                "or delete that table: then a row from before a delete brings its key back.",
                reason="unfit_table",
            )
        for name, count in frames.nulls(events, self.named).items():
            if count:
                raise KeyColumnError(name, reason="merge_null", count=count)
        self._check_ties(events, "of the batch")
        for table, deleted in ((self.target, False), (self.memory, True)):
            if tables.has(table):
                self._check_ties(frames.together(events, self._read(table, events), deleted=deleted), "in the target")

    def _check_ties(self, events: Any, where: str) -> None:
        count = self._frames.ties(events, self.rules)
        if count:
            raise self.rules.tied(self.target, count, where)

    def _read(self, table: str, events: Any) -> Any:
        return self._frames.rows_with_keys(self._tables.read(table, events, self.rules), events, self.rules)

    def source(self, distinct: Any) -> Any:
        """Return the source of a batch's MERGE: each key's newest row or delete; for a history table, its versions."""
        frames, gone = self._frames, self._read(self.memory, distinct)
        if self.rules.history is not None:
            return frames.versions(distinct, self._read(self.target, distinct), gone, self.rules)
        # Add the remembered deletes to the events, because the newest event of a key may be one of them.
        return frames.distinct(frames.together(distinct, gone, deleted=True), self.rules)

    def remembering(self, quote: Callable[[str], SQL] = quote) -> Step:
        """Return the step that merges deletes into `memory`, which remembers them; `quote` quotes columns' names."""
        rules, on, named = self.rules, self.rules.matches(quote), self.named
        if rules.history is not None:
            # For a history table (a row for each version of a key), keep every delete: it ends the version before it.
            return Step(sql("{} AND {}", on, rules.ties(quote)), IS_DELETE, named)
        return Step(on, IS_DELETE, named, sql("{} AND {}", IS_DELETE, rules.newer(quote)), named)

    def step(self, columns: Sequence[str], quote: Callable[[str], SQL] = quote) -> Step:
        """Return the step that merges a source into the target. `columns` are those of the staged rows and deletes."""
        rules, on = self.rules, self.rules.matches(quote)
        columns = [*(name for name in columns if name != DELETED), *rules.ends(columns)]
        if rules.history is None:
            update, delete = (sql("{} AND {}", what, rules.newer(quote)) for what in (IS_ROW, IS_DELETE))
            return Step(on, IS_ROW, columns, update, columns, delete)
        on = sql("{0} AND t.{1} = s.{1}", on, quote(rules.history.valid_from))
        changed = sql("t.{0} IS DISTINCT FROM s.{0}", quote(rules.history.valid_to))
        return Step(on, IS_ROW, columns, changed, [rules.history.valid_to])


IS_DELETE = sql("s.{}", DELETED)
IS_ROW = sql("NOT {}", IS_DELETE)


def from_source(names: Iterable[str]) -> dict[str, str]:
    """Return, for each column, the SQL of the source's value, by quoted name: ``{"`id`": "s.`id`"}``."""
    return {quote(name): sql("s.{}", quote(name)) for name in names}
