"""Read a job's target as rows: Parquet, Delta, Iceberg, and any other format that Spark reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any
from uuid import uuid4

from scripts.helpers._lazy import DataFrame, S3Client, SparkSession, pa, pq
from scripts.helpers.errors import InvalidValueError, MissingConnectorError, SourceError, TargetError
from scripts.helpers.listing.paths import is_hidden
from scripts.helpers.rows.memory import ArrowRows
from scripts.helpers.rows.sources import RowSource
from scripts.helpers.rows.spark_frames import DataFrameRows
from scripts.helpers.sinks.connectors import (
    address_of,
    arrow_catalog,
    check_installed,
    deltalake_place,
    is_catalog,
    is_delta_on_spark,
)
from scripts.helpers.sinks.delta import delta_rows
from scripts.helpers.sinks.iceberg import iceberg_rows
from scripts.helpers.sinks.places import place_of
from scripts.helpers.spark.jvm import has_jvm, without_code

FILES = ("parquet", "orc", "csv", "json", "text", "avro", "xml")
"""Formats of files, whose readers in Spark ignore unknown options."""
OWN_OPTION = "glueWatermarksRead"


def target_rows(target: str, format: str, spark: SparkSession | None, s3_client: S3Client | None) -> RowSource:
    """Return the rows that readers see at a target. Without Spark, all rows are read into memory.

    Parameters
    ----------
    target
        A path, or for ``iceberg`` a name, ``catalog.namespace.table``.
    format
        ``parquet``, ``delta`` or ``iceberg``; with Spark any that it reads.

    Raises
    ------
    TargetError
        There is nothing at the target, or it cannot be read.
    MissingConnectorError, InvalidValueError
        No reader of the format is installed, or only Spark reads it.
    """
    name = format.lower()
    if spark is not None:
        with _typed(target):
            return DataFrameRows(without_code(_on_spark(spark, target, name), target), name=target)
    readers: dict[str, Callable[[str, S3Client | None], Any]] = {
        "parquet": _parquet, "delta": _delta, "iceberg": _iceberg
    }  # fmt: skip
    if name not in readers:
        raise InvalidValueError(f"format={format!r} is read by Spark only. Give the job spark=.")
    with _typed(target):
        return ArrowRows(readers[name](target, s3_client), name=target)


def _on_spark(spark: SparkSession, target: str, name: str) -> DataFrame:
    """Return the rows of a target as they are now, even if the script has cached its own read of the target.

    If two reads have the same options, Spark may return cached rows for the second one. So each read of files here gets
    an option with a new value.
    """
    if name in FILES:
        return spark.read.format(name).option(OWN_OPTION, uuid4().hex).load(target)
    if name == "iceberg":
        if has_jvm(spark) and is_catalog(target.partition(".")[0], spark):
            return iceberg_rows(spark, target)
        return spark.table(target)
    if name == "delta" and has_jvm(spark) and is_delta_on_spark(spark):
        return delta_rows(spark, target)
    # This read may return cached rows: connectors other than those for files may refuse the option `OWN_OPTION`, which
    # avoids them. For Delta, Spark Connect does not show the table's version, which `delta_rows` needs.
    return spark.read.format(name).load(target)


def _parquet(target: str, s3_client: S3Client | None) -> pa.Table:
    place = place_of(target, None, s3_client)
    # Skip files that Spark ignores because of their names, such as staged files and records of the sink.
    names = sorted(name for name in place.files() if not any(map(is_hidden, name.split("/"))))
    tables = [pq.ParquetFile(BytesIO(data)).read() for data in map(place.read, names) if data]
    if not tables:
        raise TargetError(target, "it has no file. Check the name.")
    # Older files lack columns that were added later: these become NULL there.
    return pa.concat_tables(tables, promote_options="permissive")


def _delta(target: str, s3_client: S3Client | None) -> pa.Table:
    check_installed("delta", ["deltalake"])
    from deltalake import DeltaTable

    uri, options = deltalake_place(place_of(target, None, s3_client))
    return pa.table(DeltaTable(address_of(uri), storage_options=options).to_pyarrow_table())


def _iceberg(target: str, s3_client: S3Client | None) -> pa.Table:
    catalog = arrow_catalog(target, None, TargetError, "give the rows of the table as target=")
    return catalog.load_table(target.partition(".")[2]).scan().to_arrow()


@contextmanager
def _typed(target: str) -> Iterator[None]:
    try:
        yield
    except (TargetError, InvalidValueError, MissingConnectorError, SourceError):
        raise
    except Exception as error:
        # Do not show the error's text: texts of Spark, Java and Rust have stack traces, and some have host names.
        raise TargetError(
            target, f"it cannot be read ({type(error).__name__}). Check the name, the format and the rights."
        ) from error
