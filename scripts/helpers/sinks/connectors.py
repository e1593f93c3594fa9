"""Find tables through the connectors of Delta and Iceberg, and raise an error if a connector is missing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from typing import Any
from urllib.parse import quote as quoted

from scripts.helpers._lazy import DataFrame, SparkSession, pa
from scripts.helpers.display.redaction import redact_logs
from scripts.helpers.errors import InvalidValueError, MissingConnectorError, SourceError, TargetError
from scripts.helpers.rows.sql import SQL, joined
from scripts.helpers.sinks.merging import quote
from scripts.helpers.sinks.places import Place, S3Place
from scripts.helpers.spark.java_errors import names_java_class, reason_of
from scripts.helpers.spark.jvm import check_jvm, java_of, java_session

DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_ON_SPARK = (
    "Start Spark with --packages io.delta:delta-spark_2.12:3.3.2 (for Spark 3.5; docs/run-on.md has others) and "
    f"spark.sql.extensions={DELTA_EXTENSION}; on Glue with --datalake-formats delta."
)
ICEBERG_ON_SPARK = (
    "Start Spark with --packages org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.10.0 (for Spark 3.5; "
    "docs/run-on.md has others); on Glue with --datalake-formats iceberg."
)
ICEBERG_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
CLASSIC_OR_NONE = "Run the job with a classic session, or without Spark, by deltalake or pyiceberg."
WITHOUT_SPARK = "Install it: pip install {} pyarrow; or work with Spark."


def check_classic(spark: SparkSession | None, what: str) -> None:
    """Raise NoJvmError for a session of Spark Connect, because the connectors are called through the JVM."""
    check_jvm(spark, what, CLASSIC_OR_NONE)


def check_delta_path(path: str, spark: SparkSession | None) -> None:
    """Raise InvalidValueError if a text cannot be the path of a Delta table, NoJvmError for Spark Connect."""
    if "/" not in path:
        raise InvalidValueError(
            f"{path!r} is not a path, as it has no slash. Write s3://bucket/prefix/, or ./{path} for a folder here."
        )
    check_classic(spark, "A Delta table")


def check_delta_on_spark(spark: SparkSession) -> None:
    """Raise MissingConnectorError if a session lacks Delta's connector, before a query fails for that reason."""
    if not is_delta_on_spark(spark):
        raise MissingConnectorError("delta", DELTA_ON_SPARK)


def is_delta_on_spark(spark: SparkSession) -> bool:
    """Return whether a session has Delta's connector."""
    return DELTA_EXTENSION in str(spark.conf.get("spark.sql.extensions", ""))


def check_installed(format: str, packages: Iterable[str]) -> None:
    """Raise MissingConnectorError if one of the packages that read and write a format without Spark is missing."""
    for package in packages:
        try:
            import_module(package)
        except ImportError as error:
            raise MissingConnectorError(format, WITHOUT_SPARK.format(package.partition(".")[0])) from error


def address_of(uri: str) -> str:
    """Return a table's URI in the form that `deltalake` requires; InvalidValueError if `deltalake` cannot address it.

    `deltalake` parses the URI as a URL: unless escaped, a # or a ? ends the path, and a % begins an escape.

    >>> address_of("s3://lake/raw/a#1")
    's3://lake/raw/a%231'
    """
    scheme, _, path = uri.partition("://")
    # Refuse an escape such as %20, which `deltalake` would decode, and characters that it does not support at all.
    if unfit := re.search(r"%[0-9A-Fa-f]{2}|[\x00-\x1f\x7f\[\]|^\\]", path):
        raise InvalidValueError(
            f"The package deltalake does not take a path with {unfit[0]!r}: {uri!r}. Choose another name, or work "
            "with Spark."
        )
    return f"{scheme}://{quoted(path)}"


def actions_of(text: str) -> Iterator[dict[str, Any]]:
    """Yield the actions in a file of Delta's log. A line ends only at a newline: texts may contain other separators."""
    return (json.loads(line) for line in text.split("\n") if line.strip())


def deltalake_place(place: Place) -> tuple[str, dict[str, str] | None]:
    """Return a table's URI and, on S3, the client's login, region and endpoint, in the form that `deltalake` takes."""
    if isinstance(place, S3Place):
        return f"s3://{place.uri('').partition('://')[2]}", place.login()
    return place.uri(""), None


def delta_schema(table: Any) -> pa.Schema:
    """Return the columns of a table of `deltalake`."""
    return pa.schema(table.schema().to_arrow())


def is_of_deltalake(error: Exception) -> bool:
    """Return whether an error is from `deltalake`, or from a library that reads files or merges rows for it."""
    module = type(error).__module__
    return module.startswith(("deltalake", "_internal", "pyarrow", "arro3", "_duckdb")) or isinstance(error, OSError)


def delta_log_on_spark(uri: str, spark: SparkSession) -> Any:
    """Return a Scala pair: the log of a Delta table, and its newest snapshot."""
    java, session = java_of(spark), java_session(spark)
    # Make this session the active one of the thread, because Delta reads the settings of the active session.
    java.org.apache.spark.sql.SparkSession.setActiveSession(session)
    try:
        return java.org.apache.spark.sql.delta.DeltaLog.forTableWithSnapshot(session, uri)
    except TypeError as error:
        # Delta's jar is missing. py4j then takes DeltaLog for a Java package, and a package cannot be called.
        raise MissingConnectorError("delta", DELTA_ON_SPARK) from error


def check_name(name: str, catalog: Any = None) -> None:
    """Raise InvalidValueError unless a name is ``catalog.namespace.table``, with the catalog's name if one is given."""
    parts = name.split(".")
    if len(parts) < 3 or not all(parts) or "/" in name:
        raise InvalidValueError(f"{name!r} is not the name of an Iceberg table. Write catalog.namespace.table.")
    if catalog is not None and catalog.name != parts[0]:
        raise InvalidValueError(
            f"The catalog given is {catalog.name!r}, and {name!r} begins with {parts[0]!r}. Write "
            f"{catalog.name}.{'.'.join(parts[1:])}."
        )


def quoted_table(name: str, branch: str = "main") -> SQL:
    """Return the name of a table, or of one of its branches, quoted for Spark's SQL."""
    parts = name.split(".") if branch == "main" else [*name.split("."), f"branch_{branch}"]
    return joined(".", map(quote, parts))


def rows_at(spark: SparkSession, format: str, table: str, version: int | None) -> DataFrame:
    """Return a Delta or Iceberg table's rows at a version or snapshot; if `version` is None, its columns without rows.

    Both formats know the option ``versionAsOf`` from Spark 3.3 on, but Iceberg's ``snapshot-id`` is gone in Spark 4.1.
    Use `load`, because `table` ignores the option before Spark 4. Do not use ``VERSION AS OF`` in SQL: if the script
    has cached the table, that returns the cached rows.
    """
    reader = spark.read.format(format)
    return reader.load(table).limit(0) if version is None else reader.option("versionAsOf", str(version)).load(table)


def is_catalog(name: str, spark: SparkSession) -> bool:
    """Return whether a session has a catalog of the name `name`."""
    return spark.conf.get(f"spark.sql.catalog.{name}", None) is not None


def check_iceberg_on_spark(name: str, spark: SparkSession) -> None:
    """Raise MissingConnectorError if Iceberg's connector is missing, InvalidValueError if the table's catalog is."""
    catalog = name.partition(".")[0]
    if not is_catalog(catalog, spark):
        raise InvalidValueError(
            f"{name!r} begins with {catalog!r}, and Spark has no catalog of that name. Set "
            f"spark.sql.catalog.{catalog}=org.apache.iceberg.spark.SparkCatalog with its type and warehouse."
        )
    try:
        java = java_of(spark)
        loader = java.java.lang.Thread.currentThread().getContextClassLoader()
        java.java.lang.Class.forName("org.apache.iceberg.spark.Spark3Util", True, loader)
    except Exception as error:
        if names_java_class(error, "ClassNotFoundException"):
            raise MissingConnectorError("iceberg", ICEBERG_ON_SPARK) from error
        raise MissingConnectorError("iceberg", f"It cannot be loaded: {reason_of(error)}") from error


def spark_table(name: str, spark: SparkSession) -> Any:
    """Return a table of Iceberg's Java API, refreshed, because Spark's catalog caches tables for half a minute."""
    java = java_of(spark)
    # Make this session the active one of the thread, because Spark looks up the catalog in the active session.
    session = java_session(spark)
    java.org.apache.spark.sql.SparkSession.setActiveSession(session)
    table = java.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session, quoted_table(name))
    table.refresh()
    return table


@cache
def keep_null_lists() -> None:
    """Make `pyiceberg` keep NULL in a column of lists of structs, or of maps to structs, in this process.

    Without this it reads and writes an empty list or map: https://github.com/apache/iceberg-python/issues/3833.
    """
    from pyiceberg.io.pyarrow import ArrowProjectionVisitor

    def keeping(projected: Callable[..., Any]) -> Callable[..., Any]:
        def keep(visitor: Any, kind: Any, values: Any, *parts: Any) -> Any:
            found = projected(visitor, kind, values, *parts)
            if found is None or found.null_count == values.null_count:
                return found
            inner = (found.keys, found.items) if isinstance(found, pa.MapArray) else (found.values,)
            # Copy the offsets, because Arrow refuses a mask if the offsets are a slice of a longer array.
            offsets = pa.array(found.offsets.to_numpy())
            return type(found).from_arrays(offsets, *inner, type=found.type, mask=values.is_null())

        return keep

    for name in ("list", "map"):
        setattr(ArrowProjectionVisitor, name, keeping(getattr(ArrowProjectionVisitor, name)))


def arrow_catalog(name: str, given: Any, of: type[SourceError | TargetError], instead: str) -> Any:
    """Return the catalog `given`; if that is None, load the catalog of `pyiceberg` that the table's `name` begins with.

    If it cannot be reached, the error is of the class `of`. Errors suggest `instead`: "use IcebergSink(…, catalog=…)".
    """
    catalog = name.partition(".")[0]
    check_installed("iceberg", ["pyiceberg.catalog"])
    from pyiceberg.catalog import load_catalog

    keep_null_lists()
    if given is not None:
        return given
    redact_logs()  # The catalog's clients have loggers of their own: remove secrets from their records, too.
    try:
        return load_catalog(catalog)
    except ValueError as error:
        raise InvalidValueError(
            f"{name!r} begins with {catalog!r}, and pyiceberg has no catalog of that name. Describe it in "
            f"~/.pyiceberg.yaml, or {instead}."
        ) from error
    except Exception as error:
        # Catch every error: the catalog's HTTP client, driver or login may raise any when the catalog is loaded.
        raise of(name, f"its catalog cannot be reached: {reason_of(error)}") from error
