"""Reads files and tables for Glue's readers: the rows that are new to a job, or all rows if the source is untracked."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from scripts.helpers._lazy import DataFrame, SparkSession, T, pa
from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.errors import NotOffGlueError, SourceError, advice_in_errors
from scripts.helpers.glue.catalog import CatalogTable, Partitions
from scripts.helpers.glue.connection_options import FoldersToRead, TableToRead, lake_options
from scripts.helpers.glue.formats import ADVICE, spark_format, spark_options
from scripts.helpers.glue.paths import folder_contexts, glue_option_error
from scripts.helpers.listing.folders import NULL_FOLDER
from scripts.helpers.listing.paths import folder_columns
from scripts.helpers.reading.dialects import check_reader_options
from scripts.helpers.schemas.spark_frames import united
from scripts.helpers.sinks.places import is_same_folder
from scripts.helpers.spark.settings import TEXTS_OF_FOLDERS, settings
from scripts.helpers.sql.connection import jdbc_connection, typed_database_errors
from scripts.helpers.sql.known import database_of
from scripts.helpers.sql.mysql import MySQL
from scripts.helpers.tables.delta import DeltaTable
from scripts.helpers.tables.iceberg import IcebergTable
from scripts.helpers.tables.spans import TableSpan

if TYPE_CHECKING:
    from scripts.helpers.files.bookmark import FileBookmark
    from scripts.helpers.files.delta import FileDelta
    from scripts.helpers.job import IncrementalJob

logger = logging.getLogger(__name__)

REMEDY = "name columns that only grow, or better one that also grows when a row is changed."


@advice_in_errors(ADVICE)
def read_folders(
    spark: SparkSession,
    request: FoldersToRead,
    format: str | None,
    format_options: Mapping[str, Any],
    context: str,
    job: IncrementalJob | None,
    schema: str | None = None,
    partitions: Partitions | None = None,
) -> DataFrame:
    """Return the rows of the files that are new to a job's `context`, or of all files if no job or context is given.

    If no file is new, the DataFrame has no columns, as in Glue, unless a schema is given.
    With `partitions` of a table, the partition keys are columns with the catalogue's types.
    """
    name = spark_format(format)
    options, path_column = spark_options(name, format_options)
    # Check the options here, because the reader checks them only if there are new files.
    check_reader_options(name, options)

    def frame_of(part: FileDelta, folders: Sequence[str]) -> DataFrame:
        # Store no schema: as in Glue, Spark infers the types of each batch by itself.
        read: Callable[..., DataFrame] = partial(replace(part, schemas=None).read, spark, path_column=path_column)
        if schema is None:
            return read(name, **options)
        # The catalogue's columns, used for CSV only, match the columns of the files by position, as in Hive.
        by_place = {**options, "enforceSchema": "true", "short_lines": "take"}
        columns = spark.createDataFrame([], schema).schema
        known = {column.lower() for column in columns.names}
        for folder in folders:
            if folder.lower() not in known:
                columns = columns.add(folder, "string")
        return read(name, schema=columns, **by_place)

    frames = []
    for delta in _new_files(request, context, job):
        for (folders, values), part in delta.split(lambda key: _layout(key, partitions)).items():
            if partitions is None:
                frames.append(frame_of(part, folders))
                continue
            with settings(spark, TEXTS_OF_FOLDERS):
                frame = frame_of(part, folders)
            frames.append(partitions.typed(frame, values))
    if not frames:
        return _no_rows(spark, schema, partitions)
    if name == "csv" and not schema:
        frames = [_named_as_by_glue(frame) for frame in frames]
    return united(frames)


class _GlueTable(JdbcTable):
    """A database table of a Glue script. Scripts cannot set a time zone, so each run assumes UTC, with a WARNING."""

    assumes_utc = True


def read_table(spark: SparkSession, request: TableToRead, context: str, job: IncrementalJob | None) -> DataFrame:
    """Return the rows of a table that are new to a job's `context`, or all rows if no job or context is given."""
    table = _GlueTable(spark, request.url, request.table, properties=request.properties, partitions=request.partitions)
    if job is None or not context or job.mode.name == "disable":
        return table.toDF()
    keys = [bookmark_key(spark, request, context, table)] if request.keys is None else list(request.keys)
    found: DataFrame = job.rows_since(table, keys, transformation_ctx=context, **request.options)
    return found


def read_lake(
    spark: SparkSession, table: CatalogTable, given: Mapping[str, Any], context: str, job: IncrementalJob | None
) -> DataFrame:
    """Return the rows of a Delta Lake or Iceberg table that are new to a job's `context`; without a job, all rows."""
    options = lake_options(given)
    source = DeltaTable(table.location, spark=spark) if table.format == "delta" else _iceberg(spark, table)
    if job is not None and context and job.mode.name != "disable":
        found: DataFrame = job.rows_since(source, transformation_ctx=context, **options)
        return found
    whole: DataFrame = source.rows(TableSpan(source.format, None, source.head().newest, whole=True))
    return whole


def _iceberg(spark: SparkSession, table: CatalogTable) -> IcebergTable:
    """Search the Iceberg catalogs of the Spark session for the table of this name and location, and return it."""
    for key, value in spark.sql("SET").collect():
        catalog = key.removeprefix("spark.sql.catalog.")
        if catalog == key or "." in catalog or not str(value).startswith("org.apache.iceberg.spark."):
            continue
        found = IcebergTable(f"{catalog}.{table.name}", spark=spark)
        with suppress(SourceError):
            if is_same_folder(found.folder(), table.location):
                return found
    raise NotOffGlueError(
        f"The format of table {table.name!r}, Iceberg,",
        "And no Iceberg catalog of the Spark session has it. Configure one: "
        "spark.sql.catalog.glue_catalog=org.apache.iceberg.spark.SparkCatalog, and its catalog-impl.",
    )


def _new_files(request: FoldersToRead, context: str, job: IncrementalJob | None) -> list[FileDelta]:
    """Return the new files of each folder. Limits apply to all folders together; the oldest files come first."""
    names = folder_contexts(job, context, [folder for folder, _ in request.folders])
    sources = [
        _Source(folder, name, {**request.options, **own})
        for (folder, own), name in zip(request.folders, names, strict=True)
    ]
    given = {"max_files": request.max_files, "max_bytes": request.max_bytes}
    limits = {name: limit for name, limit in given.items() if limit is not None}
    if len(sources) == 1:
        return [sources[0].new_files(job, limits)]
    fixed = job is not None and (job.run.replay or job.mode.is_range)
    if not limits or fixed or not sources:
        return [source.new_files(job) for source in sources]
    shares = _files_per_folder(sources, job, request)
    return [
        source.new_files(job, {"max_files": shares[index]}) for index, source in enumerate(sources) if shares[index]
    ]


@dataclass(frozen=True)
class _Source:
    folder: str
    context: str | None
    options: Mapping[str, Any]

    def new_files(self, job: IncrementalJob | None, limits: Mapping[str, Any] = MappingProxyType({})) -> FileDelta:
        if job is None:
            return self.bookmark(None, limits).new_files()
        return job.new_files(self.folder, transformation_ctx=self.context, **self.options, **limits)

    def bookmark(self, job: IncrementalJob | None, limits: Mapping[str, Any] = MappingProxyType({})) -> FileBookmark:
        from scripts.helpers.files.bookmark import FileBookmark

        state = job.run.state(self.context) if job is not None and self.context else None
        context = self.context or "files"
        return FileBookmark(self.folder, state=state, transformation_ctx=context, saves=False, **self.options, **limits)


def _files_per_folder(sources: Sequence[_Source], job: IncrementalJob | None, request: FoldersToRead) -> Counter[int]:
    """Return how many files to take from each folder: the limits select the oldest files across all folders."""
    from scripts.helpers.files.rules import oldest_first

    found = [source.bookmark(job).new_files().table.select(["key", "size", "modified"]) for source in sources]
    numbered = [
        table.append_column("source", pa.array([index] * table.num_rows, pa.int64()))
        for index, table in enumerate(found)
    ]
    first, _ = oldest_first(pa.concat_tables(numbered), request.max_files, request.max_bytes)
    return Counter(first.column("source").to_pylist())


def _layout(key: str, partitions: Partitions | None) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Return a file's ``name=value`` columns and its partition values. Files that share both are read together."""
    columns = folder_columns(key.rpartition("/")[0] + "/")
    return columns, None if partitions is None else partitions.values_of(key)


def _no_rows(spark: SparkSession, schema: str | None, partitions: Partitions | None) -> DataFrame:
    empty = spark.createDataFrame([], schema or T.StructType([]))
    if partitions is None or not schema:
        return empty
    # Use NULL for the keys: Spark casts the value even without rows, and in ANSI mode it cannot cast an empty text.
    return partitions.typed(empty, (NULL_FOLDER,) * len(partitions.keys))


def _named_as_by_glue(frame: DataFrame) -> DataFrame:
    """Rename Spark's columns of a file without a header to col0, col1, …, as in Glue."""
    return frame.toDF(*(re.sub(r"^_c(\d+)$", r"col\1", name) for name in frame.columns))


# --- the primary key, which Glue uses if a script names no key ---------------------------------------


def bookmark_key(spark: SparkSession, request: TableToRead, context: str, table: JdbcTable) -> str:
    """Return the one column of a table's primary key, with a WARNING.

    Raises
    ------
    InvalidValueError
        The database reports no primary key, as for a view, or one with several columns.
    SourceError
        The database cannot be queried, or has no such table.
    """
    with typed_database_errors(f"{database_of(request.url).name} table {request.table}"):
        found = _primary_key(spark, request)
    if not found:
        table.toDF()  # If the table does not exist, this raises SourceError; the key error below would mislead.
    if len(found) != 1:
        told = f"has several columns: {', '.join(found)}" if found else "is missing or unknown"
        raise glue_option_error("jobBookmarkKeys", f"is missing, and the primary key {told}. In the option, {REMEDY}")
    logger.warning(
        "event=primary_key_taken context=%s table=%s column=%s: the run reads by primary key and misses changed rows "
        "and new rows with lower keys. Name the key in jobBookmarkKeys, or a column that also grows when a row changes",
        context, request.table, found[0],
    )  # fmt: skip
    return found[0]


def _primary_key(spark: SparkSession, request: TableToRead) -> list[str]:
    """Return the columns of the primary key, from JDBC's metadata."""
    database = database_of(request.url)
    with jdbc_connection(spark, {"driver": database.driver, **request.properties, "url": request.url}) as connection:
        *above, table = request.table.split(".")
        if isinstance(database, MySQL):  # JDBC calls a database of MySQL a catalogue, not a schema.
            catalog, schema = (above[-1] if above else connection.getCatalog()), None
        else:
            catalog = above[-2] if len(above) > 1 else connection.getCatalog()
            schema = above[-1] if above else connection.getSchema()
        rows = connection.getMetaData().getPrimaryKeys(catalog, schema, table)
        found = []
        while rows.next():
            found.append(str(rows.getString("COLUMN_NAME")))
        return found
