"""Planned files read by Spark, with the columns of their ``name=value`` folders in types that do not change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.listing.folders import KINDS, folder_values, typed_value
from scripts.helpers.reading.spark import read_files, texts_of_folders

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from scripts.helpers.listing.listing import Location


def read_partitions(
    spark: SparkSession,
    location: Location,
    table: pa.Table,
    format: str,
    types: Mapping[str, str],
    *,
    schema: StructType | str | None = None,
    path_column: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Read exactly the planned files, as `read_files` does, and type the columns of their folders.

    Spark takes each value as text, and a query of ours gives it its type. By itself Spark guesses the types from the
    folders of a batch, so that they change with them, and a value that its guess or `schema` does not fit is NULL.

    Parameters
    ----------
    types
        Types of folder columns. Others are string.
    schema
        Of the files; what it says of folder columns goes before `types`.

    Raises
    ------
    InvalidValueError
        A type of a folder column that is not among `folders.KINDS`.
    SourceError
        A folder holds no value of its column's type. Others are those of `read_files`.
    """
    from pyspark.sql import functions

    asked = {name.lower(): (name, kind) for name, kind in types.items()}
    folders = {key.rpartition("/")[0] + "/" for key in table.column("key").to_pylist()}
    values: list[tuple[str, str | None]] = []
    for folder in folders:
        values += folder_values(folder)
    found = {name for name, _ in values}
    names = {name.lower(): name for name in [*types, *sorted(found)]}
    fields = None if schema is None else _fields(spark, schema)
    kinds = {name: asked.get(name, ("", "string"))[1] for name in names}
    for field in fields or []:
        name = field.name.lower()
        if name in names:
            names[name], kinds[name] = field.name, _kind(field.name, field.dataType.simpleString())
    for name, text in values:
        typed_value(str(location), name, kinds[name.lower()], text)
    of_files = None if fields is None else type(fields)([one for one in fields if one.name.lower() not in names])
    with texts_of_folders(spark):
        frame = read_files(
            spark, location, table, format, schema=of_files, path_column=path_column, options=options
        )  # fmt: skip
    there = {name.lower(): name for name in frame.columns}
    for name, shown in names.items():
        if name not in there:
            # An empty batch has no folders, and its frame no columns of them.
            frame = frame.withColumn(shown, functions.lit(None).cast(kinds[name]))
        elif kinds[name] != "string":
            frame = frame.withColumn(there[name], _converted(there[name], kinds[name]))
    return frame


def with_folders(
    spark: SparkSession, table: pa.Table, schema: StructType | str, types: Mapping[str, str]
) -> StructType:
    """Return a schema with all columns that the folders of planned files give, as `read_partitions` reads them."""
    from pyspark.sql.types import StructType

    found = [name for key in table.column("key").to_pylist() for name, _ in folder_values(key)]
    # As the folders are called and in their order; of an empty batch only those with types are known.
    folders = {name.lower(): name for name in [*dict.fromkeys(found), *types]} | {name.lower(): name for name in found}
    asked = {name.lower(): kind for name, kind in types.items()}
    fields = _fields(spark, schema)
    named = {field.name.lower(): field.dataType for field in fields}
    kinds = _fields(spark, ", ".join(f"{kind} {kind}" for kind in KINDS))
    whole = StructType([field for field in fields if field.name.lower() not in folders])
    for name, shown in folders.items():
        whole = whole.add(shown, named.get(name, kinds[asked.get(name, "string")].dataType))
    return whole


def _fields(spark: SparkSession, schema: StructType | str) -> StructType:
    return spark.createDataFrame([], schema).schema


def _kind(name: str, kind: str) -> str:
    if kind not in KINDS:
        raise InvalidValueError(
            f"schema has the partition column {name!r} as {kind}. Use one of {', '.join(KINDS)}, and cast the result."
        )
    return kind


def _converted(name: str, kind: str) -> Column:
    from pyspark.sql import functions

    text = functions.col("`" + name.replace("`", "``") + "`")
    if kind == "date":
        return functions.to_date(functions.regexp_replace(text, "-", ""), "yyyyMMdd")
    return text.cast(kind)
