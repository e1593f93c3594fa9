"""Read planned files with Spark, and give the columns of their ``name=value`` folders fixed types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from scripts.helpers._lazy import Column, DataFrame, F, SparkSession, T, pa
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.listing.folders import KINDS, folder_values, typed_value
from scripts.helpers.reading.spark import read_files
from scripts.helpers.schemas.spark_frames import quoted
from scripts.helpers.spark.settings import TEXTS_OF_FOLDERS, settings

if TYPE_CHECKING:
    from scripts.helpers.listing.listing import Location


def read_partitions(
    spark: SparkSession,
    location: Location,
    table: pa.Table,
    format: str,
    types: Mapping[str, str],
    *,
    schema: T.StructType | str | None = None,
    path_column: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Read exactly the planned files, as `read_files` does, and cast the columns of their folders.

    Spark here reads each folder value as text, and this function casts it. By default Spark guesses the types by the
    folders of a batch, so they vary by batch, and a value that does not fit the guess or `schema` becomes NULL.

    Parameters
    ----------
    types
        Types of folder columns; string for folder columns that are not in it.
    schema
        Schema of the files. A folder column in it overrides `types`.

    Raises
    ------
    InvalidValueError
        The type of a folder column is not one of `folders.KINDS`.
    SourceError
        The value of a folder is not of its column's type; or as `read_files` raises it.
    """
    values = _values(table)
    columns = _columns(values, types)
    of_files = None
    if schema is not None:
        fields = _fields(spark, schema)
        columns |= _folder_columns_in_schema(fields, columns)
        of_files = type(fields)([field for field in fields if field.name.lower() not in columns])
    for name, text in values:
        # Check before Spark reads, because the cast turns a text that does not fit into NULL.
        typed_value(str(location), name, columns[name.lower()].kind, text)
    with settings(spark, TEXTS_OF_FOLDERS):
        frame = read_files(
            spark, location, table, format, schema=of_files, path_column=path_column, options=options
        )  # fmt: skip
    return _typed(frame, columns)


def with_folders(
    spark: SparkSession, table: pa.Table, schema: T.StructType | str, types: Mapping[str, str]
) -> T.StructType:
    """Return a schema with the columns of planned files' folders added, as `read_partitions` reads them."""
    # Use names and order as in the folders. An empty batch has no folders, so use the columns in `types`.
    folders = {name.lower(): name for name, _ in _values(table)}
    for name in types:
        folders.setdefault(name.lower(), name)
    asked = {name.lower(): kind for name, kind in types.items()}
    fields = _fields(spark, schema)
    named = {field.name.lower(): field.dataType for field in fields}
    kinds = _fields(spark, ", ".join(f"{kind} {kind}" for kind in KINDS))
    whole = T.StructType([field for field in fields if field.name.lower() not in folders])
    for name, shown in folders.items():
        whole = whole.add(shown, named.get(name, kinds[asked.get(name, "string")].dataType))
    return whole


class _Column(NamedTuple):
    """A folder column: its name as shown to the user, and its type, one of `folders.KINDS`."""

    name: str
    kind: str


def _values(table: pa.Table) -> list[tuple[str, str | None]]:
    """Return names and values of the folders of planned files; each folder counts once, however many files it has."""
    folders = {key.rpartition("/")[0] + "/" for key in table.column("key").to_pylist()}
    return [value for folder in folders for value in folder_values(folder)]


def _columns(values: Iterable[tuple[str, str | None]], types: Mapping[str, str]) -> dict[str, _Column]:
    """Return the folder columns by their names in lower case, because Spark ignores the case of names."""
    columns = {name.lower(): _Column(name, kind) for name, kind in types.items()}
    for name in sorted({name for name, _ in values}):
        given = columns.get(name.lower())
        # Spell the name as the folders do; a batch without folders keeps the caller's spelling.
        columns[name.lower()] = _Column(name, given.kind if given is not None else "string")
    return columns


def _folder_columns_in_schema(fields: T.StructType, columns: Mapping[str, _Column]) -> dict[str, _Column]:
    """Return the folder columns that a schema names, with the name and type from the schema."""
    found: dict[str, _Column] = {}
    for field in fields:
        if field.name.lower() in columns:
            found[field.name.lower()] = _Column(field.name, _kind(field.name, field.dataType.simpleString()))
    return found


def _typed(frame: DataFrame, columns: Mapping[str, _Column]) -> DataFrame:
    """Return a frame that Spark read, with the folder columns cast to their types."""
    there = {name.lower(): name for name in frame.columns}
    for name, column in columns.items():
        if name not in there:
            # Spark adds columns for folders. An empty batch has no folders, so add the column here.
            frame = frame.withColumn(column.name, F.lit(None).cast(column.kind))
        elif column.kind != "string":
            frame = frame.withColumn(there[name], _converted(there[name], column.kind))
    return frame


def _fields(spark: SparkSession, schema: T.StructType | str) -> T.StructType:
    return spark.createDataFrame([], schema).schema


def _kind(name: str, kind: str) -> str:
    if kind not in KINDS:
        raise InvalidValueError(
            f"schema has the partition column {name!r} as {kind}. Use one of {', '.join(KINDS)}, and cast the result."
        )
    return kind


def _converted(name: str, kind: str) -> Column:
    text = quoted(name)
    if kind == "date":
        return F.to_date(F.regexp_replace(text, "-", ""), "yyyyMMdd")
    return text.cast(kind)
