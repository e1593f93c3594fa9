"""Glue's writers for files, catalogue tables and databases. They append rows, or write each batch exactly once."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scripts.helpers._lazy import DataFrame, F
from scripts.helpers.errors import NotOffGlueError, PlanConflictError
from scripts.helpers.glue.catalog import DATABASES, Catalog, with_login
from scripts.helpers.glue.catalog_updates import CatalogUpdate
from scripts.helpers.glue.choices import typed_analysis
from scripts.helpers.glue.connection_options import table_to_read
from scripts.helpers.glue.formats import spark_format, spark_options
from scripts.helpers.glue.frames import DynamicFrame, DynamicFrameCollection, as_dataframe
from scripts.helpers.glue.paths import glue_option_error
from scripts.helpers.reading.dialects import with_dialect
from scripts.helpers.schemas.spark_frames import quoted
from scripts.helpers.sinks.database import DatabaseSink
from scripts.helpers.sinks.spark_files import exact_texts, timestamps_with_statistics
from scripts.helpers.sql.connection import typed_database_errors
from scripts.helpers.sql.known import database_of

if TYPE_CHECKING:
    from scripts.helpers.job import IncrementalJob

logger = logging.getLogger(__name__)

FILES = ("s3", "file", "parquet", "orc")
"""Connection types that write files. In older scripts the connection type names the format: ``parquet`` or ``orc``."""
PER_BATCH = "perBatch"
"""An option that only this package has: the target holds each batch once, even if the run fails."""


def format_named(format: str | None, kind: str) -> str | None:
    """Return the format of files: `format` or, if that is not given, the format that the connection type names."""
    return format or (kind if kind in ("parquet", "orc") else None)


def write_files(
    df: DataFrame,
    given: Mapping[str, Any],
    format: str | None,
    format_options: Mapping[str, Any],
    job: IncrementalJob | None,
    update: CatalogUpdate | None = None,
    columns: Sequence[str] = (),
) -> None:
    """Write rows into a folder. A DataFrame without columns (nothing was new) writes no file.

    Parameters
    ----------
    given
        Glue's ``path``, ``partitionKeys`` and ``compression``, and this package's ``perBatch``. With ``perBatch``,
        `IncrementalJob.write` writes: readers see each row once, after the commit, and all sources must be read
        before the first write. Without it rows are appended, as in Glue: if a run dies, the next appends them again.
    job
        The open run, if there is one. A run that was fenced writes nothing.
    update
        The table of the catalogue to create or update after the rows are written.
    columns
        The catalogue table's columns, if there is one. CSV files get their order, because they are read by position.

    Raises
    ------
    InvalidValueError, NotOffGlueError
        The path is missing, the rows lack a partition key, or the format is not supported here.
    PlanConflictError
        ``perBatch`` is used without a run, or twice for one path: the second write would replace the first.
    FencedError
        Another run took over; nothing is written.
    """
    left = dict(given)
    path, keys = left.pop("path", None), left.pop("partitionKeys", None) or []
    if not isinstance(path, str) or not path:
        raise glue_option_error("path", f"is {path!r}. Write a folder such as 's3://bucket/prefix/'.")
    if re.fullmatch("s3[an]?://[^/]+", path):
        path += "/"  # Glue accepts ``s3://bucket``; Hadoop's S3A requires ``s3://bucket/``.
    if isinstance(keys, str) or (df.columns and set(keys) - set(df.columns)):
        raise glue_option_error("partitionKeys", f"is {keys!r}. Write a list of columns that the frame has.")
    per_batch = _is_true(left.pop(PER_BATCH, False))
    name = spark_format(format)
    compression = left.pop("compression", None)
    options, _ = spark_options(name, format_options, writing=True)
    if compression is not None:
        options["compression"] = str(compression)
    if left:
        logger.warning("event=options_unknown sink=s3 options=%s: ignored", ",".join(sorted(left)))
    if update is not None and df.columns:
        columns = update.check(path, name, keys, options)
    if name == "csv" and columns and df.columns:
        df = _in_order(df, columns, keys, may_add=update is not None)
    if per_batch:
        run = _run_of_batch(job)
        if df.columns:
            of_writer: dict[str, Any] = dict(options)
            run.write(df, path, format=name, partition_by=list(keys), **of_writer)
    elif _may_append(df, job):
        with timestamps_with_statistics(df.sparkSession, name), typed_analysis("frame"):
            writer = df.write.format(name).options(**exact_texts(name)).options(**with_dialect(name, options))
            writer.partitionBy(*keys).mode("append").save(path)
    if update is not None and df.columns:
        update.apply(df, path, name, keys, options)


def _in_order(df: DataFrame, columns: Sequence[str], keys: Sequence[str], *, may_add: bool) -> DataFrame:
    """Return the rows with the columns of a table in its order, NULL where the rows lack one, and then new columns."""
    there = {name.lower(): quoted(name) for name in df.columns}
    wanted = [name.lower() for name in columns]
    new = sorted(there.keys() - {*wanted, *map(str.lower, keys)}, key=[*there].index)
    if new and not may_add:
        raise glue_option_error(
            "frame",
            f"has the columns {', '.join(new)}, which the CSV table lacks. Drop them, or pass enableUpdateCatalog.",
        )
    absent = F.lit(None).cast("string")
    return df.select(
        *(there.get(name, absent.alias(name)) for name in wanted), *map(there.__getitem__, new), *map(quoted, keys)
    )


def write_catalog_table(
    df: DataFrame, database: str, table_name: str, given: Mapping[str, Any], catalog_id: str | None,
    job: IncrementalJob | None,
) -> None:  # fmt: skip
    """Write rows to a table of the catalogue: to its folder in its format, or over its connection.

    Parameters
    ----------
    given
        Glue's ``additional_options``: ``partitionKeys`` (by default the table's), ``enableUpdateCatalog``,
        ``updateBehavior``, and this package's ``perBatch``.

    Raises
    ------
    SourceError, InvalidValueError
        The table does not exist, or the options do not fit it.
    """
    catalog, left = Catalog(catalog_id), dict(given)
    table = catalog.table(database, table_name)
    if table.is_database:
        login = catalog.connection(table.connection)
        write_table(df, {**login, "dbtable": table.name_in_database, **left}, job)
        return
    update = catalog_update(left, database, table_name, catalog_id)
    keys = [key for key, _ in table.partition_keys]
    if keys and update is None:
        logger.warning(
            "event=partitions_not_registered table=%s.%s: queries see new partitions only after a crawler or "
            "enableUpdateCatalog registers them", database, table_name,
        )  # fmt: skip
    options = {"path": table.location, "partitionKeys": keys, **left}
    format_options = {**({"withHeader": False} if table.format == "csv" else {}), **table.format_options}
    write_files(df, options, table.format, format_options, job, update, [name for name, _ in table.columns])


def write_table(df: DataFrame, given: Mapping[str, Any], job: IncrementalJob | None) -> None:
    """Write rows to a table of a database, over JDBC.

    Rows are appended, as in Glue. With ``perBatch`` a `DatabaseSink` writes each batch once; the table must exist.

    Parameters
    ----------
    given
        ``url``, ``dbtable``, ``user``, ``password``, and this package's ``perBatch``.

    Raises
    ------
    InvalidValueError
        An option is wrong; nothing is written.
    PlanConflictError, FencedError
        As by `write_files`.
    """
    left = dict(given)
    per_batch = _is_true(left.pop(PER_BATCH, False))
    for option in ("preactions", "postactions"):
        if left.pop(option, None):
            raise NotOffGlueError(f"The option {option!r}", "Run the statement by a connection of your own.")
    database = left.pop("database", None)
    if database:
        left["url"] = url_of_database(str(left.get("url", "")), str(database))
    request = table_to_read(left)
    if per_batch:
        run = _run_of_batch(job)
        if df.columns:
            spark = df.sparkSession
            run.write(df, DatabaseSink(request.table, spark=spark, url=request.url, properties=request.properties))
    elif _may_append(df, job):
        kind = database_of(request.url)
        # Name the driver, because Java's list of drivers lacks those from jars of the session.
        properties = {"driver": kind.driver, **request.properties}
        with typed_database_errors(f"{kind.name} table {request.table}"):
            df.write.jdbc(request.url, request.table, mode="append", properties=properties)


class DataSink:
    """The sink that `GlueContext.getSink` returns: set its options and format first, then write frames.

    Parameters
    ----------
    connection_type
        ``s3``, ``file``, or a database.
    options
        The connection options of ``write_dynamic_frame.from_options``; also ``enableUpdateCatalog`` and
        ``updateBehavior``, which require `setCatalogInfo`.
    running
        A function that returns the open run, or None. It is called when a frame is written.
    """

    def __init__(
        self, connection_type: str, format: str | None, options: Mapping[str, Any], glue_ctx: Any,
        running: Callable[[], IncrementalJob | None],
    ) -> None:  # fmt: skip
        kind = connection_type.lower()
        if kind not in (*FILES, *DATABASES):
            raise NotOffGlueError(f"A sink of {connection_type!r}", "Use toDF().write, with Spark's writer for it.")
        self._kind, self._options, self._glue_ctx, self._running = kind, dict(options), glue_ctx, running
        self._format, self._format_options = format, dict[str, Any]()
        self._table: tuple[str, str, str | None] | None = None

    def setFormat(self, format: str | None, **options: Any) -> None:  # noqa: N802
        """Set the format of the files, and its options."""
        self._format, self._format_options = format, options

    def setAccumulableSize(self, size: int) -> None:  # noqa: N802
        """Do nothing: the size limits how many error records Glue keeps, and none are kept here."""

    def setCatalogInfo(self, catalogDatabase: str, catalogTableName: str, catalogId: str = "") -> None:  # noqa: N802
        """Set the catalogue table that is created or updated if ``enableUpdateCatalog`` is on."""
        self._table = (catalogDatabase, catalogTableName, catalogId or None)

    def writeFrame(self, dynamic_frame: DynamicFrame, info: str = "") -> DynamicFrame:  # noqa: N802
        """Write a frame; return a frame of failed rows, always empty: rows that cannot be written raise an error."""
        self._write(as_dataframe(dynamic_frame))
        errors = dynamic_frame.errorsAsDynamicFrame()
        return DynamicFrame(errors.toDF(), self._glue_ctx, f"{dynamic_frame.name}_errors")

    def writeDataFrame(self, data_frame: DataFrame, glue_context: Any = None, info: str = "") -> DataFrame:  # noqa: N802
        """Write a DataFrame; return one with the same columns and no rows."""
        self._write(data_frame)
        return data_frame.limit(0)

    def write(
        self, dynamic_frame_or_dfc: DynamicFrame | DynamicFrameCollection, info: str = ""
    ) -> DynamicFrame | DynamicFrameCollection:
        """Write a frame, or each frame of a collection."""
        if isinstance(dynamic_frame_or_dfc, DynamicFrameCollection):
            written = [self.writeFrame(frame) for frame in dynamic_frame_or_dfc.values()]
            return DynamicFrameCollection(written, self._glue_ctx)
        return self.writeFrame(dynamic_frame_or_dfc)

    def _write(self, df: DataFrame) -> None:
        left = dict(self._options)
        if self._kind in DATABASES:
            if self._table is not None:
                raise glue_option_error("setCatalogInfo", "goes with files only. Leave it out for a database.")
            write_table(df, with_login(left), self._running())
            return
        database, table, catalog_id = self._table or ("", "", None)
        update = catalog_update(left, database, table, catalog_id)
        named = format_named(self._format, self._kind)
        write_files(df, left, named, self._format_options, self._running(), update)


def catalog_update(options: dict[str, Any], database: str, table: str, catalog_id: str | None) -> CatalogUpdate | None:
    """Remove the catalogue's options from `options`; return the update that they ask for, or None.

    Raises
    ------
    InvalidValueError
        ``enableUpdateCatalog`` is on without a table, or ``updateBehavior`` is unknown.
    """
    wanted = _is_true(options.pop("enableUpdateCatalog", False))
    behaviour = options.pop("updateBehavior", None) or "UPDATE_IN_DATABASE"
    if not wanted:
        if table:
            logger.info("event=catalog_not_updated table=%s.%s: enableUpdateCatalog is off", database, table)
        return None
    if not database or not table:
        raise glue_option_error("enableUpdateCatalog", "is on, but no table is named. Call setCatalogInfo.")
    return CatalogUpdate(database, table, str(behaviour), catalog_id)


def _may_append(df: DataFrame, job: IncrementalJob | None) -> bool:
    """Return False if `df` has no columns, because its source had nothing new. FencedError if another run took over."""
    if not df.columns:
        logger.info("event=nothing_written: the frame has no columns, because nothing was new")
        return False
    if job is not None:
        job.run.check()
    return True


def _run_of_batch(job: IncrementalJob | None) -> IncrementalJob:
    if job is None:
        raise PlanConflictError(
            "(none)", f"{PER_BATCH} needs a run with bookmarks enabled. Call Job.init before, or leave the option out."
        )
    return job


def _is_true(value: Any) -> bool:
    return str(value).lower() == "true"


def url_of_database(url: str, database: str) -> str:
    """Return a JDBC URL with its database replaced, because a catalogue connection names only one: ``…/a`` -> ``…/b``.

    Raises
    ------
    InvalidValueError
        The URL does not have its database right after the server. The error text does not contain the URL.
    """
    match = re.fullmatch(r"(jdbc:(?:postgresql|mysql|mariadb|redshift)://[^/?;]+)(?:/[^?;]*)?(.*)", url)
    if match is None:
        raise glue_option_error(
            "database", "does not go into a URL of this kind. Name it in url, and leave it out here."
        )
    return f"{match[1]}/{database}{match[2]}"
