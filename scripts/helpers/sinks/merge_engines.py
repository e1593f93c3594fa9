"""Engines that run the SQL of a merge: Spark on DataFrames, DuckDB on tables of pyarrow.

The SQL has no names of users. It reads **relations**: some columns under reserved names, and `ROW`. It returns a
relation, which the engine turns back into rows::

    Spark      ROW is the whole row as a struct, and no query runs before its rows are written
    DuckDB     ROW is the number of the row, by which pyarrow takes it from the table it came from

So DuckDB converts no values but keys and sequences, and these are numbers and bytes to it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from tempfile import gettempdir
from typing import Any

from scripts.helpers._lazy import DataFrame, F, T, pa
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.protocol.names import new_token
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.sql import SQL, internal, joined, sql, whole, with_names, without_names_in
from scripts.helpers.sinks.merging import DELETED

ROW = internal("row")
MEMORY, THREADS = "1GB", 4
"""Of DuckDB, which writes what is more to temporary files."""


def aliases_of(names: Sequence[str]) -> dict[str, SQL]:
    """Return a name in SQL for each column; that of `DELETED` is its own.

    >>> aliases_of(["id", "at"])
    {'id': 'glue_watermarks_column_0', 'at': 'glue_watermarks_column_1'}
    """
    columns = {name: sql("{}_{}", internal("column"), whole(number)) for number, name in enumerate(names)}
    return columns | ({DELETED: DELETED} if DELETED in columns else {})


# --- Spark ------------------------------------------------------------------------------------------


class _SparkEngine:
    """Spark, in the session of the first relation. It runs SQL in which ``{name}`` is the relation of that name."""

    def relation(self, rows: DataFrame, columns: Mapping[str, SQL], beside: Collection[str] = ()) -> DataFrame:
        """Return a relation with columns under other names; InvalidValueError for one that cannot be compared.

        If there are names in `beside`, `ROW` has the columns beside these, in a form that SQL compares.
        """
        fields = {field.name: SPARK.quote(field.name) for field in rows.schema if field.name not in beside}
        if beside:
            fields = {name: _in_order_on_spark(value, rows.schema[name].dataType) for name, value in fields.items()}
        row = F.struct(*(F.expr(value).alias(f"c{at}") for at, value in enumerate(fields.values())))
        return rows.select(*(F.col(SPARK.quote(name)).alias(alias) for name, alias in columns.items()), row.alias(ROW))

    def sql(self, text: SQL, **relations: Any) -> DataFrame:
        found: DataFrame = next(iter(relations.values())).sparkSession.sql(text, **relations)
        return found

    def one(self, text: SQL, **relations: DataFrame) -> tuple[Any, ...]:
        return tuple(self.sql(text, **relations).collect()[0])

    def rows(self, found: DataFrame, of: DataFrame, filled: Mapping[str, SQL], like: str) -> DataFrame:
        """Return the rows of a relation made of some rows, with columns filled from the relation.

        A filled column that the rows did not have is of the type of their column `like`.
        """
        columns = {name: F.col(ROW)[f"c{at}"] for at, name in enumerate(of.columns)}
        columns |= {name: F.col(alias) for name, alias in filled.items()}
        return found.select(*(column.alias(name) for name, column in columns.items()))

    def together(self, events: DataFrame, rows: DataFrame, *, deleted: bool) -> DataFrame:
        """Return events, and rows as events that are deletes or not, with the columns of the first."""
        shared = [SPARK.quote(name) for name in rows.columns if name in events.columns]
        return events.unionByName(rows.select(*shared).withColumn(DELETED, F.lit(deleted)), allowMissingColumns=True)


def _in_order_on_spark(value: SQL, kind: T.DataType, depth: int = 0) -> SQL:
    """Write a value with the entries of maps as ordered lists: Spark 3 compares no maps."""
    item = sql("{}_{}", internal("item"), whole(depth))
    if isinstance(kind, T.MapType):
        key = _in_order_on_spark(sql("{}.key", item), kind.keyType, depth + 1)
        entry = sql("STRUCT({}, {})", key, _in_order_on_spark(sql("{}.value", item), kind.valueType, depth + 1))
        return sql("ARRAY_SORT(TRANSFORM(MAP_ENTRIES({}), {} -> {}))", value, item, entry)
    if isinstance(kind, T.ArrayType):
        element = _in_order_on_spark(item, kind.elementType, depth + 1)
        return value if element == item else sql("TRANSFORM({}, {} -> {})", value, item, element)
    if isinstance(kind, T.StructType):
        names = [sql("{}.{}", value, SPARK.quote(field.name)) for field in kind.fields]
        fields = [
            _in_order_on_spark(name, field.dataType, depth) for name, field in zip(names, kind.fields, strict=True)
        ]
        return value if fields == names else sql("IF({0} IS NULL, NULL, STRUCT({1}))", value, joined(", ", fields))
    return value


# --- DuckDB -----------------------------------------------------------------------------------------


class _ArrowEngine:
    """DuckDB in memory, for tables of pyarrow."""

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
        import duckdb

        # No extension is fetched. What does not fit is in a folder that DuckDB deletes with the connection.
        config: dict[str, Any] = {
            "memory_limit": MEMORY, "threads": min(THREADS, os.cpu_count() or 1),
            "temp_directory": f"{gettempdir()}/glue-watermarks-{new_token()}", "autoinstall_known_extensions": False,
            "autoload_known_extensions": False, "python_enable_replacements": False,
            "integer_division": True,
        }  # fmt: skip
        names = {name: sql("{}_{}", internal("relation"), whole(number)) for number, name in enumerate(relations)}
        with duckdb.connect(":memory:", config=config) as connection:
            # A condition of a table, which others wrote, opens no file.
            connection.execute("SET enable_external_access = false")
            for name, relation in relations.items():
                connection.register(names[name], relation)
            found: pa.Table = connection.sql(with_names(text, names)).to_arrow_table()
        return found

    def refused(self, rows: pa.Table, conditions: Mapping[str, SQL]) -> dict[str, int]:
        """Count the rows of which a condition of their table is not true, by condition.

        One that DuckDB does not read is left out.
        """
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
        # A column that is NULL in all events, as that of keys that are missing is, has no type of its own.
        kinds = {
            field.name: rows.schema.field(field.name).type if pa.types.is_null(field.type) else field.type
            for field in events.schema
            if field.name in rows.column_names
        }
        more = rows.select(list(kinds)).cast(pa.schema(list(kinds.items())))
        more = more.append_column(DELETED, pa.array([deleted] * rows.num_rows, pa.bool_()))
        return pa.concat_tables([events, more], promote_options="default")


def _comparable(column: pa.ChunkedArray, *, as_text: bool) -> pa.ChunkedArray | None:
    """Return a column as DuckDB compares it without loss, as text if there is no such type; None if text may not be."""
    kind = _type_in_duckdb(column.type)
    if kind is not None:
        return column.cast(kind)
    texts = [None if value is None else repr(_in_order(value)).encode() for value in column.to_pylist()]
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


def _in_order(value: Any) -> Any:
    """Return a value of Python with the entries of maps in order, and without a negative zero."""
    if isinstance(value, dict):
        return {name: _in_order(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        found = [_in_order(one) for one in value]
        # Only entries of maps are tuples.
        return sorted(found, key=repr) if value and isinstance(value[0], tuple) else found
    return value + 0.0 if isinstance(value, float) else value


SPARK_ENGINE, ARROW_ENGINE = _SparkEngine(), _ArrowEngine()
MergeEngine = _SparkEngine | _ArrowEngine
