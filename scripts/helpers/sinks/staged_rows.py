"""Check, write and read the rows that an attempt stages as Parquet files, before they are published to a table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from io import BytesIO
from typing import Any
from urllib.parse import quote

from scripts.helpers._lazy import DataFrame, F, SparkSession, pa, pc, pq
from scripts.helpers.display.units import count_of
from scripts.helpers.errors import InvalidValueError, TargetError, TargetSchemaError
from scripts.helpers.protocol.outputs import Retraction
from scripts.helpers.rows.arrow_streams import ArrowStream
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.sql import SQL, in_quotes, sql
from scripts.helpers.schemas.frames import arrow_type, arrow_type_at, kind_of_arrow, nested_kind
from scripts.helpers.schemas.kinds import (
    Kind,
    differing_by_case,
    kind_of_text,
    kind_text,
    kind_with,
    kinds_by_path,
    types_by_path,
)
from scripts.helpers.sinks.arrow_files import WrittenFiles, write_batches
from scripts.helpers.sinks.merging import ARROW_ENGINE, ARROW_FRAMES, DELETED, NOT_DELETED, SPARK_FRAMES, Frames, Merge
from scripts.helpers.sinks.outputs import batch_values
from scripts.helpers.sinks.places import Place
from scripts.helpers.sinks.spark_files import (
    BELOW_ZERO,
    LONG,
    NAN,
    NO_FOLDERS,
    Unfit,
    check_partition_types,
    literal_path,
    unfit_values,
    write_spark,
)
from scripts.helpers.sinks.staging import StagedRows
from scripts.helpers.spark.jvm import without_code
from scripts.helpers.spark.settings import check_all_is_read

SPARK_ROWS = b"org.apache.spark.sql.parquet.row.metadata"
"""The key under which Spark stores its own types in a Parquet file: Parquet does not distinguish all of them."""
HELD = frozenset((
    "boolean", "int", "bigint", "float", "double", "decimal", "string", "char", "varchar", "binary", "date",
    "timestamp", "timestamp_ntz", "variant", "struct", "array", "map", "void",
))  # fmt: skip
"""The column types that both Delta and Iceberg have, by Spark's names. `void` is a column without any value."""
WIDER = {
    "tinyint": "smallint", "uint8": "smallint", "smallint": "int", "uint16": "int", "uint32": "bigint",
    "halffloat": "float", "date64[ms]": "date", "time32[s]": "time64[us]", "time32[ms]": "time64[us]",
    "time64[ns]": "time64[us]",
}  # fmt: skip
"""For a type that a table may lack, the next type that has all its values. A type without an entry is refused."""
MOST_DIGITS = 38
"""The most digits of a decimal."""


def spark_of(df: Any) -> Any:
    """Return the session that a frame belongs to; None for a frame of pyarrow."""
    return getattr(df, "sparkSession", None)


def check_rows(
    df: Any, target: str, partition_by: Sequence[str], batch_column: str | None, engine: str, *, merges: bool
) -> None:
    """Raise InvalidValueError if the rows are of another engine, or the sink's arguments do not fit their columns."""
    check_partition_columns(partition_by, columns_of(df))
    check_batch_column(batch_column, columns_of(df), merges=merges)
    if engine != "pyiceberg":
        # Only `pyiceberg` accepts names that differ by case. Check now: other engines would refuse a committed batch.
        check_cases(columns_of(df), target)
    if (spark_of(df) is not None) != (engine == "spark"):
        raise InvalidValueError(
            f"The rows for {target!r} are {'' if engine != 'spark' else 'not '}of Spark, and the sink was made for "
            f"{engine}. Give spark= to the sink for rows of Spark, and leave it out for others."
        )


def check_cases(columns: Sequence[str], target: str) -> None:
    """Raise InvalidValueError for columns whose names differ only in case."""
    alike = differing_by_case(dict.fromkeys(columns, "string"))
    if alike:
        raise InvalidValueError(
            f"The rows for {target!r} have columns {alike[0]!r} and {alike[1]!r}, which differ only in case, and "
            "readers take them for one. Rename one of them."
        )


def check_layout(target: str, partition_by: Sequence[str], there: Sequence[str]) -> None:
    """Raise TargetError if a table is partitioned by other columns than the requested ones."""
    if partition_by and partition_by != there:
        raise TargetError(
            target, f"it is partitioned by {there}, not by {partition_by}. Leave partition_by out.", reason="layout"
        )


def check_list(partition_by: object) -> None:
    """Raise InvalidValueError unless `partition_by` is a list. The letters of a text would be taken for names."""
    if isinstance(partition_by, str) or not isinstance(partition_by, Iterable):
        raise InvalidValueError(f"partition_by is a list of columns, not {partition_by!r}. Write [...].")


def check_partition_columns(partition_by: Sequence[str], columns: Collection[str]) -> None:
    """Raise InvalidValueError for a column of `partition_by` that the rows do not have, or that is named twice."""
    missing = [name for name in partition_by if name not in columns]
    # Accept rows without any column: they mean that the source had nothing new.
    if missing and len(columns):
        raise InvalidValueError(f"partition_by names {missing[0]!r}, which the rows do not have. Name a column.")
    twice = [name for name in partition_by if partition_by.count(name) > 1]
    if twice:
        raise InvalidValueError(f"partition_by names {twice[0]!r} twice. Name each column once.")


def check_columns_left(partition_by: Sequence[str], columns: Collection[str]) -> None:
    """Raise InvalidValueError if `partition_by` names all columns of the rows: files do not contain these columns."""
    # pyarrow would write a file without any column, and so without any row, and raise no error.
    if len(columns) and set(columns) <= set(partition_by):
        raise InvalidValueError(
            f"partition_by names all columns of the rows ({', '.join(partition_by)}), so the files would hold no row. "
            "Leave one of them out."
        )


def unfit_counts(rows: Any, partition_by: Sequence[str], unfit: Unfit, longest: int) -> dict[str, int]:
    """Return, for `check_partition_counts`, how many partition values cannot name a folder; see `unfit_values`.

    For rows of Spark this runs a query. In rows of pyarrow, negative decimals are unfit, too (`BELOW_ZERO`): in
    their folder's name, `deltalake` repeats the sign in the fraction, and then no reader can read the table.
    """
    if not partition_by or not columns_of(rows):
        return {}
    if spark_of(rows) is not None:
        asked = unfit_values(partition_by, dict(rows.dtypes), unfit, longest)
        found: dict[str, int] = rows.select(*asked).collect()[0].asDict()
        return found
    table = arrow_rows(rows.select(partition_by))
    types = {name: str(table[name].type) for name in partition_by}
    check_partition_types(partition_by, types, NO_FOLDERS)
    return {
        f"{text}{at}": pc.sum(_is_unfit(table[name], name, text, longest)).as_py() or 0
        for at, name in enumerate(partition_by) for text in unfit.get(types[name].partition("(")[0], ())
    }  # fmt: skip


def _is_unfit(column: pa.ChunkedArray, name: str, text: str, longest: int) -> Any:
    """Return which values cannot name a folder: those equal to `text` (NAN, BELOW_ZERO and LONG mean all of a kind)."""
    if text == NAN:
        return pc.is_nan(column)
    if text == BELOW_ZERO:
        return pc.and_(pc.less(column, pa.scalar(Decimal(0), column.type)), column.type.scale > 0)
    if text == LONG:
        # Measure numbers without an exponent, because `deltalake` writes 1e-300 with all zeros in a folder's name.
        shown = (f"{Decimal(repr(one)):f}" if isinstance(one, float) else one for one in column.drop_null().to_pylist())
        return pa.array([len(quote(name + one, safe="")) >= longest for one in shown], pa.bool_())
    return pc.equal(column, text)


def check_batch_column(batch_column: str | None, columns: Collection[str], *, merges: bool) -> None:
    """Raise InvalidValueError if a `batch_column` is given for a merge, is empty, or is a column of the rows."""
    if batch_column is not None and merges:
        raise InvalidValueError(
            "batch_column= is for rows that are appended, and a merge replaces those of other batches. Leave it out: "
            "rows that come again are merged again."
        )
    if batch_column is not None and (not batch_column or batch_column in columns):
        raise InvalidValueError(
            f"batch_column={batch_column!r} is filled by the sink. Name a column that the rows do not have."
        )


def with_batch(rows: Any, batch_column: str | None, batch: str) -> Any:
    """Add `batch_column`, filled with `batch`, to rows of Spark or Arrow, unless it is None or they have no columns."""
    if batch_column is None or not columns_of(rows):
        return rows
    if spark_of(rows) is not None:
        return rows.withColumn(batch_column, F.lit(batch))
    if isinstance(rows, ArrowStream):
        return rows.mapped(lambda table: with_batch(table, batch_column, batch))
    return rows.append_column(batch_column, pa.array([batch] * rows.num_rows, pa.string()))


def condition_for_batches(retraction: Retraction) -> SQL:
    """Return the SQL condition, for Spark and DataFusion, that a row is of one of a retraction's batches."""
    # Write the values into the SQL as texts: Spark can bind values only from 3.4 on, and `deltalake` never.
    first, last = map(in_quotes, batch_values(retraction))
    return sql("{} BETWEEN {} AND {}", SPARK.quote(retraction.batch_column), first, last)


def columns_of(df: Any) -> list[str]:
    """Return the names of the columns of a frame of Spark, pandas or pyarrow."""
    # Look for `column_names` in the class: a DataFrame of Spark Connect 4 returns a column for any attribute name.
    names = df.column_names if hasattr(type(df), "column_names") else getattr(df, "columns", [])
    return [str(name) for name in names]


def without_columns_if_empty(df: Any) -> Any:
    """Return a pyarrow table without its columns if it has no rows, because their types then mean nothing."""
    if isinstance(df, ArrowStream) or spark_of(df) is not None or len(df):
        return df
    return df.select([])


def write_rows(rows: Any, place: Place, folder: str) -> WrittenFiles | int:
    """Write rows as Parquet into a folder; return the row count of Spark's writer, or pyarrow's `WrittenFiles`."""
    if spark_of(rows) is not None:
        return write_spark(rows, place.uri(folder), "parquet", {})
    return write_batches(rows, place, folder, {}) if columns_of(rows) else WrittenFiles(0, {})


def read_spark(spark: SparkSession, staged: StagedRows) -> DataFrame:
    """Return the rows of staged files as a DataFrame."""
    check_all_is_read(spark)
    # Escape the paths: otherwise Spark would take a target such as `[raw]/repairs` for a pattern, and find no file.
    return without_code(spark.read.parquet(*map(literal_path, staged.uris)), staged.uris[0])


def read_rows(staged: StagedRows) -> pa.RecordBatchReader:
    """Return the rows of staged files, with one file in memory at a time."""

    def opened(name: str) -> Any:
        return pq.ParquetFile(BytesIO(staged.read(name)))

    def batches() -> Iterator[pa.RecordBatch]:
        for name in staged.names:
            file = opened(name)
            # Read one row group at a time: pyarrow would join groups of few large rows to 65,536 rows, and fill memory.
            for group in range(file.num_row_groups):
                yield from file.iter_batches(row_groups=[group])

    return pa.RecordBatchReader.from_batches(opened(staged.names[0]).schema_arrow.remove_metadata(), batches())


def with_later_columns(target: str, rows: pa.RecordBatchReader, table: pa.Schema) -> pa.RecordBatchReader:
    """Return rows with a NULL column for each column that was added to the table after the rows were staged.

    Raises
    ------
    TargetSchemaError
        The table also lacks a column of the rows: it may have been renamed, and then its values would be lost.
    """
    later = [pa.field(field.name, field.type) for field in table if field.name not in rows.schema.names]
    if not later:
        return rows
    gone = [name for name in rows.schema.names if name not in table.names]
    if gone:
        raise TargetSchemaError(target, [field.name for field in later], gone, {})
    schema = pa.schema([*rows.schema, *later])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            nothing = [pa.nulls(batch.num_rows, field.type) for field in later]
            yield pa.RecordBatch.from_arrays([*batch.columns, *nothing], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def check_fits(target: str, rows: Mapping[str, str], table: Mapping[str, str]) -> None:
    """Raise TargetSchemaError unless rows have exactly a table's columns, in any order; types are compared as texts."""
    missing = [name for name in table if name not in rows]
    unknown = [name for name in rows if name not in table]
    changed = {name: (kind, table[name]) for name, kind in rows.items() if name in table and kind != table[name]}
    if missing or unknown or changed:
        raise TargetSchemaError(target, missing, unknown, changed)


def with_required(target: str, rows: Any, required: Collection[str]) -> Any:
    """Return rows of pyarrow unchanged; InvalidValueError if a column in `required` has a NULL.

    Check this before the commit: after it, the table would refuse the batch forever. For an `ArrowStream`, the error is
    raised when the batch with the NULL is read.
    """
    if not required:
        return rows
    if isinstance(rows, ArrowStream):
        return rows.mapped(lambda table: with_required(target, table, required))
    check_required(target, {name: rows[name].null_count for name in required})
    return rows


def with_required_within(target: str, rows: Any, schema: pa.Schema) -> Any:
    """Return rows of pyarrow unchanged; InvalidValueError for a NULL in a nested field that the table requires.

    `pyarrow` cannot write such a NULL. For an `ArrowStream`, the error is raised when the batch with the NULL is read.
    """
    if isinstance(rows, ArrowStream):
        return rows.mapped(lambda table: with_required_within(target, table, schema))
    for name in set(rows.column_names) & set(schema.names):
        check_required(target, dict(_nulls_within(schema.field(name).type, rows[name], name)))
    return rows


def _nulls_within(kind: pa.DataType, values: Any, path: str) -> Iterator[tuple[str, int]]:
    """Yield, for each nested field that `kind` declares NOT NULL, its path and its number of NULLs in `values`."""
    if pa.types.is_struct(kind):
        parts = [(field, field.name, pc.struct_field(values, field.name)) for field in kind]
    elif pa.types.is_map(kind):
        entries = pc.list_flatten(values.cast(pa.list_(pa.struct([values.type.key_field, values.type.item_field]))))
        parts = [(kind.item_field, "value", pc.struct_field(entries, [1]))]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parts = [(kind.value_field, "element", pc.list_flatten(values))]
    else:
        return
    for field, name, part in parts:
        if not field.nullable:
            yield f"{path}.{name}", part.null_count
        yield from _nulls_within(field.type, part, f"{path}.{name}")


def check_required(target: str, nulls: Mapping[str, int]) -> None:
    """Raise InvalidValueError for the first required column with NULLs; `nulls` has their number by column."""
    for name, count in nulls.items():
        if count:
            raise InvalidValueError(
                f"Column {name!r} has {count_of(count, 'NULL')}, and the table {target!r} has it as NOT NULL. "
                "Filter or fill those rows. Nothing is written."
            )


# --- pyarrow ------------------------------------------------------------------------------------


def arrow_rows(df: Any, held: Collection[str] | None = None) -> Any:
    """Return Arrow rows cast to types that tables have, such as times in microseconds; see `plain_type`.

    For an `ArrowStream`, the result is a stream, and errors are raised when a batch is read.

    Parameters
    ----------
    held
        The types that the table can hold, by pyarrow's names, such as `HELD`. None: all types.

    Raises
    ------
    InvalidValueError
        A column has values that its new type cannot hold, such as nanoseconds.
    """
    if isinstance(df, ArrowStream):
        return df.mapped(lambda table: arrow_rows(table, held))
    names = df.schema.names
    return pa.table([exact_cast(name, df[name], plain_type(df[name].type, held)) for name in names], names=names)


def exact_cast(name: str, column: Any, kind: pa.DataType) -> Any:
    """Return a column in another type; InvalidValueError if a value would change."""
    try:
        return column if column.type == kind else column.cast(kind)
    except pa.ArrowException:
        found = str(column.type)
        raise InvalidValueError(
            f"Column {name!r} has times with nanoseconds, and targets hold microseconds. Round them first: "
            "df[column].dt.floor('us')."
            if "[ns" in found
            else f"Column {name!r} is of type {found}, and has values that {kind} does not hold. Cast it."
        ) from None


def plain_type(kind: pa.DataType, held: Collection[str] | None = None) -> pa.DataType:
    """Return one type for all types that tables treat alike, such as `string` for `large_string` and `string_view`.

    If a table cannot hold that type, return the next wider type that it can hold.
    """
    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(kind.value_type, held)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(plain_type(kind.value_type, held))
    if types.is_map(kind):
        return pa.map_(plain_type(kind.key_type, held), plain_type(kind.item_type, held))
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain_type(field.type, held)) for field in kind])
    if types.is_decimal(kind) and kind.precision <= MOST_DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    wider = kind_text(kind_of_arrow(str(kind)))
    if held is None or wider == _held_kind(wider, held):
        return kind
    wider = _held_kind(wider, held)
    return arrow_type(wider) or pa.type_for_alias(wider)


def types_of_arrow(schema: pa.Schema) -> dict[str, str]:
    """Return the types of a schema by path, under Spark's names, or pyarrow's names if Spark has no such type."""
    return types_by_path(nested_kind(plain_type(pa.struct(list(schema))), _plain_kind))


def _plain_kind(kind: pa.DataType) -> Kind:
    """Return the type that Spark gives to a Parquet column of a plain pyarrow type."""
    return "date" if pa.types.is_date64(kind) else kind_of_arrow(str(kind))


# --- columns without values -----------------------------------------------------------------------


def without_types(table: Any) -> Any:
    """Return a table in which a column without any value has no type: pandas reads an empty CSV column as numbers.

    An `ArrowStream` keeps the types of its source.
    """
    if isinstance(table, ArrowStream):
        return table
    for place, name in enumerate(table.column_names):
        if table[name].null_count == len(table):
            table = table.set_column(place, name, pa.nulls(len(table)))
    return table


def filled(rows: Any, wanted: Mapping[str, Any], parted: Collection[str] = ()) -> Any:
    """Return rows whose columns without a value get the target's type, or are left out.

    Parameters
    ----------
    wanted
        The target's type (in Spark's JSON for Spark) for the path of each column without a value; None to leave it out.
    parted
        The columns of `partition_by`, which files do not contain. At least one other column must remain.

    Raises
    ------
    InvalidValueError
        The target has no type for a path that cannot be left out.
    """
    names = columns_of(rows)
    left = [name for name in names if wanted.get(name, name) is not None]
    for path, kind in wanted.items():
        # A whole column can be left out if the files keep another one. A field inside a column cannot be left out.
        if kind is None and (path not in names or set(left) <= set(parted)):
            raise InvalidValueError(f"{path!r} has no value in any row, and the target has no type for it. Cast it.")
    if isinstance(rows, ArrowStream):
        return rows.mapped(lambda table: filled(table, wanted, parted))
    if spark_of(rows) is None:
        # Build a new table, without the metadata in which pandas stores its own types.
        return pa.table({name: rows[name].cast(_filled_type(rows[name].type, name, wanted)) for name in left})
    return _cast_at(rows.select(*map(SPARK.quote, left)), wanted)


def _cast_at(rows: DataFrame, wanted: Mapping[str, Kind]) -> DataFrame:
    """Return rows in which each path in `wanted` is cast to its type."""
    from scripts.helpers.schemas.spark_frames import type_of

    columns = []
    for field in rows.schema.fields:
        kind, column = field.dataType.jsonValue(), F.col(SPARK.quote(field.name))
        other = kind_with(kind, wanted, field.name)
        columns.append(column if other == kind else column.cast(type_of(other)).alias(field.name))
    return rows.select(*columns)


def _filled_from(rows: Any, types: Mapping[str, str], type_at: Callable[[str], Any], named: Collection[str]) -> Any:
    """Give each column without a value the type that `type_at` returns for its path; see `SparkRows.filled`."""
    wanted = {path: type_at(path) for path, kind in types.items() if kind == "void"}
    wanted = {path: kind for path, kind in wanted.items() if kind is not None or path not in named}
    return filled(rows, wanted) if wanted else rows


def check_typed(types: Mapping[str, str], target: str) -> None:
    """Raise InvalidValueError if a column of a new table has no type because no row has a value."""
    untyped = [path for path, kind in types.items() if kind == "void"]
    if untyped:
        raise InvalidValueError(
            f"Column {untyped[0]!r} has no value in any row, so the new table {target!r} has no type for it. Cast it."
        )


def _filled_type(kind: pa.DataType, path: str, wanted: Mapping[str, Any]) -> pa.DataType:
    if path in wanted:
        return wanted[path]
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _filled_type(field.type, f"{path}.{field.name}", wanted)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_filled_type(kind.value_type, f"{path}[]", wanted))
    return kind


# --- types of tables ------------------------------------------------------------------------------


def _held_kind(kind: str, held: Collection[str]) -> str:
    """Return a type if it is in `held`, otherwise the next wider type that is: `smallint` may become `int`."""
    while kind not in held and kind in WIDER:
        kind = WIDER[kind]
    return kind


def check_held(types: Mapping[str, str], held: Collection[str], target: str) -> None:
    """Raise InvalidValueError for a column whose type is not in `held` (the table's types) or is an empty struct."""
    for path, kind in types.items():
        base = kind.partition("(")[0].partition(" ")[0]
        is_empty = kind == "struct" and not any(other.startswith(f"{path}.") for other in types)
        if is_empty or base not in held or ",-" in kind:
            raise InvalidValueError(
                f"Column {path!r} is {'a struct without fields' if is_empty else f'of type {kind}'}, which the table "
                f"{target!r} cannot hold. Cast it, or leave it out."
            )


# --- engines ------------------------------------------------------------------------------------


class SparkRows:
    """The operations on rows that a table sink needs before it publishes them, for DataFrames of Spark."""

    frames: Frames = SPARK_FRAMES

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def taken(self, df: DataFrame, target: str, held: Collection[str]) -> DataFrame:
        """Return a script's frame. Cast types missing in `held`, the types that the table can store, to a wider one.

        InvalidValueError if the table can store no type for a column, or the new type cannot hold a value.
        """
        wider = {path: _held_kind(kind, held) for path, kind in self.by_path(df.schema).items() if kind in WIDER}
        df = _cast_at(df, {path: kind_of_text(kind) for path, kind in wider.items()})
        check_held(self.by_path(df.schema), held, target)
        return df

    def types(self, schema: Any) -> dict[str, str]:
        """Return the type of each column of a schema, as texts that can be compared; nullability is left out."""
        return {field.name: field.dataType.simpleString() for field in schema.fields}

    def by_path(self, schema: Any) -> dict[str, str]:
        """Return the types of columns and of the fields within them, by path; see `types_by_path`."""
        return types_by_path(schema.jsonValue())

    def required(self, schema: Any) -> list[str]:
        """Return the columns of a schema that must not be NULL."""
        return [field.name for field in schema.fields if not field.nullable]

    def filled(self, rows: DataFrame, schema: Any, named: Collection[str]) -> DataFrame:
        """Return rows in which a column without a value gets the table's type, or is left out if the table lacks it.

        A column in `named` is never left out. In Spark's rows only columns of type void count as columns without a
        value: to find others, Spark would have to read the rows.
        """
        there = kinds_by_path(schema.jsonValue())
        found: DataFrame = _filled_from(rows, self.by_path(rows.schema), there.get, named)
        return found

    def read(self, staged: StagedRows) -> DataFrame:
        """Return staged rows as a frame."""
        return read_spark(self._spark, staged)

    def parts(self, staged: StagedRows) -> Iterable[DataFrame]:
        """Return frames that together hold all staged rows; only one of the frames is in memory at a time."""
        return [self.read(staged)]

    def empty(self, staged: StagedRows) -> DataFrame:
        """Return a frame with the columns of staged rows, and no rows."""
        return self.read(staged).limit(0)

    def refused(self, rows: DataFrame, conditions: Mapping[str, SQL]) -> dict[str, int]:
        """Return how many rows make each condition false or NULL (in `_ArrowRows`, only those that DuckDB can run)."""
        counts = (
            F.expr(sql("COUNT(CASE WHEN ({}\n) IS TRUE THEN NULL ELSE 1 END)", text)) for text in conditions.values()
        )
        return dict(zip(conditions, rows.select(*counts).collect()[0], strict=True))

    def kept(self, rows: DataFrame, rules: Merge) -> DataFrame:
        """Drop deletes and the column `DELETED`. Add `valid_from`, `valid_to` as NULL if a history table lacks them."""
        found = rows.where(NOT_DELETED).drop(DELETED)
        types = {field.name: field.dataType for field in found.schema.fields}
        ends = {name: F.lit(None).cast(types[like]) for name, like in rules.ends(found.columns).items()}
        return found.select("*", *(column.alias(name) for name, column in ends.items()))


class _ArrowRows:
    """The same operations as `SparkRows`, for tables of pyarrow. `given_frames` converts frames of pandas to these."""

    frames = ARROW_FRAMES

    def taken(self, df: Any, target: str, held: Collection[str]) -> Any:
        rows = arrow_rows(df, held)
        check_held(self.by_path(rows.schema), held, target)
        return rows

    def types(self, schema: Any) -> dict[str, str]:
        return {field.name: str(plain_type(field.type)) for field in schema}

    def by_path(self, schema: Any) -> dict[str, str]:
        return types_of_arrow(schema)

    def required(self, schema: Any) -> list[str]:
        return [field.name for field in schema if not field.nullable]

    def filled(self, rows: Any, schema: Any, named: Collection[str]) -> Any:
        rows, there = without_types(rows), types_of_arrow(schema)
        types = {field.name: plain_type(field.type) for field in schema}
        found = self.by_path(rows.schema)
        return _filled_from(rows, found, lambda path: types.get(path) or arrow_type_at(path, there), named)

    def read(self, staged: StagedRows) -> pa.Table:
        return self.stream(staged).read_all()

    def stream(self, staged: StagedRows) -> pa.RecordBatchReader:
        return read_rows(staged)

    def parts(self, staged: StagedRows) -> Iterable[pa.Table]:
        return (pa.Table.from_batches([batch]) for batch in self.stream(staged))

    def empty(self, staged: StagedRows) -> pa.Table:
        return self.stream(staged).schema.empty_table()

    def refused(self, rows: pa.Table, conditions: Mapping[str, SQL]) -> dict[str, int]:
        return ARROW_ENGINE.refused(rows, conditions)

    def kept(self, rows: pa.Table, rules: Merge) -> pa.Table:
        found = rows.filter(pc.invert(rows[DELETED])).drop_columns([DELETED])
        for name, like in rules.ends(found.column_names).items():
            found = found.append_column(name, pa.nulls(found.num_rows, found.schema.field(like).type))
        return found


ARROW_ROWS = _ArrowRows()
Rows = SparkRows | _ArrowRows
