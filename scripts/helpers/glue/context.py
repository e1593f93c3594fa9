"""`GlueContext`: Glue's readers and writers, built on Spark, with their bookmarks in the table of watermarks."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from scripts.helpers._lazy import DataFrame, SparkSession
from scripts.helpers.errors import NotOffGlueError
from scripts.helpers.glue.catalog import DATABASES, LAKES, Catalog, Partitions, with_login
from scripts.helpers.glue.connection_options import (
    MAX_PARTITIONS,
    FoldersToRead,
    exclusions_of,
    folders_to_read,
    table_to_read,
)
from scripts.helpers.glue.frames import WITHOUT_GLUE, DynamicFrame, DynamicFrameCollection, Named, as_dataframe
from scripts.helpers.glue.job import Job
from scripts.helpers.glue.paths import glue_option_error, is_single_file
from scripts.helpers.glue.runtime import glue_session
from scripts.helpers.glue.sinks import FILES, DataSink, format_named, write_catalog_table, write_table
from scripts.helpers.glue.sources import read_folders, read_lake, read_table
from scripts.helpers.glue_api.runs import on_glue
from scripts.helpers.spark.jvm import check_jvm, is_session
from scripts.helpers.spark.versions import check_version

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)

Frame = TypeVar("Frame", bound="DynamicFrame | DataFrame")

_SERVER = re.compile(r"jdbc:(?P<vendor>\w+):[^?;]*?//[^/?;]+")
"""A JDBC URL up to its server and port, without the name of the database."""
GLUES = ("_ssql_ctx", "_glue_scala_context")
FRAMES = ("create_dynamic_frame", "create_data_frame", "write_dynamic_frame", "write_data_frame")
INSTEAD = "Read with glue_context.spark_session, and give the DataFrame to IncrementalJob.rows_since or Job's own run."


class GlueContext:
    """The readers and writers of scripts for Glue.

    Sources with a ``transformation_ctx`` return what is new since the last commit of `Job`, other
    sources everything. Options have Glue's names; see `connection_options`. Attributes of the Spark
    session work here too. Attributes that only Glue's context has raise a NotOffGlueError that says
    what to do instead.

    Parameters
    ----------
    sparkContext
        The running SparkContext, a SparkSession, or None for the running session.

    Attributes
    ----------
    spark_session : SparkSession
        The Spark session; on Glue, that of Glue's own context.

    Raises
    ------
    NoJvmError
        The session belongs to Spark Connect.
    UnsupportedVersionError
        Spark is older than 3.3.

    Examples
    --------
    >>> glue_context = GlueContext(SparkContext.getOrCreate())
    >>> frame = glue_context.create_dynamic_frame.from_options(
    ...     "file", {"paths": [landing]}, "csv", {"withHeader": True}, transformation_ctx="landed")
    >>> frame.count()
    2
    """

    def __init__(self, sparkContext: SparkContext | SparkSession | None = None, **options: Any) -> None:
        _log_ignored("GlueContext", options)
        self.spark_session = session_of(sparkContext)
        check_jvm(self.spark_session, "GlueContext", WITHOUT_GLUE)
        check_version(self.spark_session)
        self.create_dynamic_frame: Reader[DynamicFrame] = Reader(self, self._as_dynamic)
        self.create_data_frame: Reader[DataFrame] = Reader(self, lambda df, _: df)
        self.write_dynamic_frame = Writer()
        self.write_data_frame = self.write_dynamic_frame

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the readers, the writers or the Spark session; raise NotOffGlueError for others.

        Glue has two names for a call: ``create_dynamic_frame_from_options`` is ``create_dynamic_frame.from_options``.
        """
        from pyspark import SparkContext
        from pyspark.sql import SQLContext

        if name == "spark_session" or (name[0] == "_" and name not in GLUES and not hasattr(self.spark_session, name)):
            raise AttributeError(name)
        frames, separator, source = name.partition("_from_")
        if separator and frames in FRAMES:
            return getattr(getattr(self, frames), f"from_{source}")
        if hasattr(self.spark_session, name):
            return getattr(self.spark_session, name)
        # Glue's context is a subclass of SQLContext, so offer its methods; but no private names such as `_ssql_ctx`.
        if not name.startswith("_") and hasattr(SQLContext, name):
            return getattr(SQLContext(SparkContext.getOrCreate(), self.spark_session), name)
        raise NotOffGlueError(f"GlueContext.{name}", INSTEAD)

    def write_from_options(self, frame_or_dfc: Any, *args: Any, **options: Any) -> Any:
        """Call ``write_dynamic_frame.from_options``."""
        return self.write_dynamic_frame.from_options(frame_or_dfc, *args, **options)

    def getSink(  # noqa: N802
        self, connection_type: str, format: str | None = None, transformation_ctx: str = "", **options: Any
    ) -> DataSink:
        """Return a sink that writes frames once its format is set; see `sinks.DataSink`."""
        return DataSink(connection_type, format, options, self, Job.running)

    def purge_s3_path(
        self, s3_path: str, options: Mapping[str, Any] | None = None, transformation_ctx: str = ""
    ) -> None:
        """Delete files below a folder that are older than ``retentionPeriod`` hours; see `purging.purge`."""
        # Imported here, because listing needs pyarrow.
        from scripts.helpers.glue.purging import purge

        purge(self.spark_session, s3_path, options)

    def extract_jdbc_conf(self, connection_name: str, catalog_id: str | None = None) -> dict[str, str]:
        """Return the settings of a connection of the catalogue.

        Returns
        -------
        dict
            ``vendor`` such as ``postgresql``, ``user``, ``password``, the connection's whole URL as ``fullUrl``, and
            its part up to the server as ``url``, to which scripts append the name of a database.
        """
        known = Catalog(catalog_id).connection(connection_name)
        url = known.get("url", "")
        server = _SERVER.match(url)
        if server is None:
            raise glue_option_error("connection_name", f"is {connection_name!r}, whose JDBC URL names no server.")
        return {**known, "vendor": server["vendor"], "url": server[0], "fullUrl": url}

    def tableNames(self, dbName: str | None = None) -> list[str]:  # noqa: N802
        """Return the names of the tables in a database of the catalogue, by default the database ``default``."""
        return Catalog().table_names(dbName or "default")

    def currentTimeMillis(self) -> int:  # noqa: N802
        """Return the time in milliseconds since 1970, UTC."""
        return round(time.time() * 1000)

    def get_logger(self) -> logging.Logger:
        """Return a logger."""
        return logging.getLogger("glue")

    def _as_dynamic(self, df: DataFrame, name: str) -> DynamicFrame:
        return DynamicFrame.fromDF(df, self, name)


class Reader(Named, Generic[Frame]):
    """``create_dynamic_frame``, which returns DynamicFrames, and ``create_data_frame``, which returns DataFrames."""

    called, instead = "create_dynamic_frame", INSTEAD

    def __init__(self, context: GlueContext, wrap: Callable[[DataFrame, str], Frame]) -> None:
        self._context, self._wrap = context, wrap

    def from_options(
        self,
        connection_type: str,
        connection_options: Mapping[str, Any] | None = None,
        format: str | None = None,
        format_options: Mapping[str, Any] | None = None,
        transformation_ctx: str = "",
        push_down_predicate: str = "",
        **further: Any,
    ) -> Frame:
        """Read files or a table of a database.

        Parameters
        ----------
        connection_type
            ``s3``, ``file`` for a local directory, or a database: ``postgresql``, ``mysql``,
            ``mariadb``, ``sqlserver``, ``oracle``.
        connection_options
            See `connection_options.folders_to_read` and `table_to_read`.
        format, format_options
            The format of files, such as ``csv``, and its options; see `formats`.
        transformation_ctx
            Name of the source, as in Glue. Without it, everything is read and nothing is remembered.

        Raises
        ------
        InvalidValueError, NotOffGlueError
            An option is wrong or not supported here. Nothing was read.
        """
        _log_ignored("create_dynamic_frame.from_options", further)
        if push_down_predicate:
            raise glue_option_error("push_down_predicate", "needs a table of the catalogue. Use exclusions, or filter.")
        given = connection_options or {}
        spark, job = self._context.spark_session, Job.tracking(transformation_ctx)
        kind = connection_type.lower()
        if kind in FILES:
            request, named = folders_to_read(given, is_single_file), format_named(format, kind)
            df = read_folders(spark, request, named, format_options or {}, transformation_ctx, job)
        elif kind in DATABASES:
            df = read_table(spark, table_to_read(with_login(given)), transformation_ctx, job)
        else:
            raise NotOffGlueError(f"The connection type {connection_type!r}", INSTEAD)
        return self._wrap(df, transformation_ctx)

    def from_rdd(self, data: Any, name: str, schema: Any = None, **_: Any) -> Frame:
        """Return the rows of an RDD or a list, with the types of `schema` or those that Spark infers."""
        return self._wrap(self._context.spark_session.createDataFrame(data, schema), name)

    def from_catalog(
        self,
        database: str | None = None,
        table_name: str | None = None,
        redshift_tmp_dir: str = "",
        transformation_ctx: str = "",
        push_down_predicate: str = "",
        additional_options: Mapping[str, Any] | None = None,
        catalog_id: str | None = None,
        **further: Any,
    ) -> Frame:
        """Read a table of the Data Catalog: files in S3, a Delta Lake or Iceberg table, or a database table.

        From Delta Lake and Iceberg, a run reads the rows that commits appended, as `IncrementalJob.rows_since` does.

        Parameters
        ----------
        push_down_predicate
            A condition on the partition keys, in Spark's SQL. Files of other partitions are not read and
            not remembered, so they are new to a later run with another predicate. The same holds for
            files in folders that are not yet registered as partitions.
        additional_options
            The connection options of `from_options`, and ``catalogPartitionPredicate``.
        """
        database = database or further.pop("name_space", None)
        _log_ignored("create_dynamic_frame.from_catalog", further)
        _check_named(database, table_name)
        catalog, spark, job = Catalog(catalog_id), self._context.spark_session, Job.tracking(transformation_ctx)
        given = dict(additional_options or {})
        table = catalog.table(str(database), str(table_name))
        if table.is_database:
            login = catalog.connection(table.connection)
            login["dbtable"] = table.name_in_database
            return self._wrap(read_table(spark, table_to_read(login | given), transformation_ctx, job), str(table_name))
        in_catalog = given.pop("catalogPartitionPredicate", "")
        if table.format in LAKES:
            if push_down_predicate or in_catalog:
                raise glue_option_error(
                    "push_down_predicate", f"is given, and {table.name!r} is read by its commits. Filter the rows."
                )
            return self._wrap(read_lake(spark, table, given, transformation_ctx, job), str(table_name))
        left_out = [*exclusions_of(given), *exclusions_of({"exclusions": table.exclusions})]
        request = folders_to_read(
            {"paths": [table.location.rstrip("/") + "/"], "recurse": True, **given, "exclusions": left_out}
        )
        partitions = None
        if table.partition_keys or push_down_predicate or in_catalog:
            partitions = catalog.partitions(spark, table, push_down_predicate, in_catalog)
            request = _limited_to_partitions(request, partitions, given, bool(push_down_predicate or in_catalog))
        df = read_folders(
            spark, request, table.format, table.format_options, transformation_ctx, job, table.schema, partitions,
        )  # fmt: skip
        return self._wrap(df, str(table_name))


class Writer(Named):
    """``write_dynamic_frame`` and ``write_data_frame``. Each call writes a frame, or every frame of a collection."""

    called, instead = "write_dynamic_frame", "Use from_options or toDF().write."

    def from_options(
        self,
        frame: Any,
        connection_type: str,
        connection_options: Mapping[str, Any] | None = None,
        format: str | None = None,
        format_options: Mapping[str, Any] | None = None,
        transformation_ctx: str = "",
        **further: Any,
    ) -> Any:
        """Append a frame to a folder in S3, a local folder or a database table; return the frame.

        See `sinks.write_files` and `sinks.write_table`.
        """
        _log_ignored("write_dynamic_frame.from_options", further)
        sink = DataSink(connection_type, format, connection_options or {}, None, Job.running)
        sink.setFormat(format, **(format_options or {}))
        for df in _dataframes(frame):
            sink.writeDataFrame(df)
        return frame

    def from_catalog(
        self,
        frame: Any,
        database: str | None = None,
        table_name: str | None = None,
        redshift_tmp_dir: str = "",
        transformation_ctx: str = "",
        additional_options: Mapping[str, Any] | None = None,
        catalog_id: str | None = None,
        **further: Any,
    ) -> Any:
        """Append a frame to a table of the Data Catalog; return the frame. See `sinks.write_catalog_table`."""
        database = database or further.pop("name_space", None)
        _log_ignored("write_dynamic_frame.from_catalog", further)
        _check_named(database, table_name)
        for df in _dataframes(frame):
            write_catalog_table(df, str(database), str(table_name), additional_options or {}, catalog_id, Job.running())
        return frame

    def from_jdbc_conf(
        self,
        frame: Any,
        catalog_connection: str,
        connection_options: Mapping[str, Any] | None = None,
        redshift_tmp_dir: str = "",
        transformation_ctx: str = "",
        catalog_id: str | None = None,
    ) -> Any:
        """Append a frame to a database table over a connection of the catalogue; return the frame.

        Parameters
        ----------
        connection_options
            ``dbtable``; ``database``, by default that of the connection; ``perBatch``: True writes each batch once.
        """
        login = Catalog(catalog_id).connection(catalog_connection)
        for df in _dataframes(frame):
            write_table(df, {**login, **(connection_options or {})}, Job.running())
        return frame


def session_of(spark: SparkContext | SparkSession | None) -> SparkSession:
    """Return `spark` if it is a session; for a SparkContext or None, return the running session or make one."""
    from pyspark.sql import SparkSession

    # Do not use isinstance: Spark Connect's session has another class, and would be replaced by a new session.
    given: Any = spark
    if is_session(given):
        session: SparkSession = given
        return session
    return glue_session(given) if on_glue() else SparkSession.builder.getOrCreate()


def _dataframes(frame: DynamicFrame | DataFrame | DynamicFrameCollection) -> list[DataFrame]:
    """Return the DataFrames to write: one for a frame, or one for each frame of a collection."""
    if isinstance(frame, DynamicFrameCollection):
        return [each.toDF() for each in frame.values()]
    return [as_dataframe(frame)]


def _limited_to_partitions(
    request: FoldersToRead, partitions: Partitions, given: Mapping[str, Any], has_predicate: bool
) -> FoldersToRead:
    """Return the folders to read, limited to files of registered partitions unless these are too many to check."""
    for option in sorted({"path", "paths"} & set(given)):
        raise glue_option_error(
            option,
            "does not go with partition keys: files of other partitions would be lost. Leave it out, or read the "
            "folder by from_options.",
        )
    if not has_predicate and len(partitions.values) > MAX_PARTITIONS:
        logger.warning(
            "event=partitions_not_checked table=%s partitions=%d: too many to check, so folders that are not "
            "partitions are read as well. Pass a push_down_predicate", partitions.table, len(partitions.values),
        )  # fmt: skip
        return request
    return request.only(partitions.values)


def _check_named(database: str | None, table_name: str | None) -> None:
    for name, value in (("database", database), ("table_name", table_name)):
        if not value:
            raise glue_option_error(name, "is missing. Name the database and the table of the catalogue.")


def _log_ignored(call: str, given: Iterable[str]) -> None:
    """Log a WARNING that names the keyword arguments of a call that have no effect here."""
    if given:
        logger.warning("event=options_unknown call=%s options=%s: ignored", call, ",".join(sorted(given)))
