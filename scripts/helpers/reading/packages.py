"""Use readers from separate Spark packages: Avro, and XML on Spark 3, whose reader accepts only one path."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any

from scripts.helpers._lazy import DataFrame, F, SparkSession, T
from scripts.helpers.display.options import nearest
from scripts.helpers.errors import MissingConnectorError, SourceError
from scripts.helpers.listing.folders import folder_values
from scripts.helpers.reading.dialects import READERS
from scripts.helpers.reading.misfits import folder_column, folder_misfit
from scripts.helpers.spark.jvm import has_jvm, java_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader

    from scripts.helpers.listing.listing import Location

_FOLDER_MISFIT = re.compile(r"""Failed to cast value .* to (?:data type )?[`"](\w+)[`"] for partition column `(.*?)`""")
_NOT_FOUND = ("Failed to find data source", "Failed to find the data source")


def is_xml_of_spark_3(spark: SparkSession, format: str) -> bool:
    """Return whether a format is XML and Spark needs the package spark-xml to read it, as Spark 3 does."""
    return format == "xml" and int(spark.version.partition(".")[0]) < 4


@contextmanager
def typed_errors(spark: SparkSession, location: Location, format: str) -> Iterator[None]:
    """Translate Spark's errors from before the read, such as a missing reader, to errors of this package."""
    try:
        yield
    except Exception as error:
        if folder := _FOLDER_MISFIT.search(str(error)):
            kind, name = folder.groups()
            raise folder_misfit(str(location), name, kind) from error
        if not any(words in str(error) for words in _NOT_FOUND):
            raise
        package = package_of(spark, format)
        remedy = f"Start Spark with --packages {package}." if package else nearest(READERS, format)
        other = "Check its name, or start Spark with the package of its reader."
        raise MissingConnectorError(format, remedy or other) from error


def package_of(spark: SparkSession, format: str) -> str | None:
    """Return the Maven coordinate of the package with a format's reader for this Spark; None if unknown."""
    if has_jvm(spark):
        scala = ".".join(java_of(spark).scala.util.Properties.versionNumberString().split(".")[:2])
    else:
        # Spark Connect's server does not report its version of Scala. Assume that of Spark's own distributions.
        scala = "2.12" if int(spark.version.partition(".")[0]) < 4 else "2.13"
    if format == "avro":
        # Cut off a vendor's suffix, as in 3.5.2-amzn-1: the package has no such version.
        return f"org.apache.spark:spark-avro_{scala}:{spark.version.partition('-')[0]}"
    if is_xml_of_spark_3(spark, format):
        return f"com.databricks:spark-xml_{scala}:0.18.0"
    return None


def read_xml(
    spark: SparkSession,
    location: Location,
    paths: Mapping[str, str],
    columns: Sequence[str],
    schema: T.StructType | str | None,
    options: Mapping[str, Any],
) -> DataFrame:
    """Read all XML files at once with the package for Spark 3, and add the columns of their folders.

    The package passes a single string of paths to Hadoop, which splits it at commas and expands globs in each part. It
    does not support ``name=value`` folders, so their columns are added here, with the types that Spark would infer.

    Raises
    ------
    SourceError
        There are several files, and the name of one has an unmatched brace, after which Hadoop splits at no comma.
    """
    if len(paths) > 1:
        for key in paths:
            if not _has_matched_braces(key):
                raise SourceError(
                    str(location), f"key {key!r} has braces that are not in pairs, which the XML reader of Spark 3 "
                    "cannot read beside other files. Rename it, or read it alone: delta.split.",
                )  # fmt: skip
    reader = spark.read.format("xml").options(**options)
    whole = None if schema is None else spark.createDataFrame([], schema).schema
    if not columns:
        return _load(reader if whole is None else reader.schema(whole), list(paths.values()))
    lower = [name.lower() for name in columns]
    if whole is None:
        # Infer from all files: the files of one folder alone might have another schema.
        of_files = _load(reader, list(paths.values())).schema
    else:
        of_files = type(whole)([field for field in whole if field.name.lower() not in lower])
    given = {} if whole is None else {field.name.lower(): field for field in whole}
    # Let Spark infer the types of the folder columns by reading the files as text. It adds these columns last.
    text = spark.read.format("text").option("basePath", str(location)).load(list(paths.values()))
    kinds = [given.get(field.name.lower(), field) for field in list(text.schema)[-len(columns) :]]
    folders: dict[tuple[str | None, ...], list[str]] = {}
    for key, path in paths.items():
        folders.setdefault(tuple(value for _, value in folder_values(key)), []).append(path)
    frames = []
    for values, those in folders.items():
        frame = _load(reader.schema(of_files), those)
        for field, value in zip(kinds, values, strict=True):
            frame = frame.withColumn(field.name, folder_column(str(location), F.lit(value), field.name, field.dataType))
        frames.append(frame)
    return reduce(lambda one, other: one.union(other), frames)


def _load(reader: DataFrameReader, paths: Sequence[str]) -> DataFrame:
    # Write a path's comma as {\,}: Hadoop splits at a comma outside braces, and inside braces at an unescaped one.
    return reader.load(",".join(path.replace(",", "{\\,}") for path in paths))


def _has_matched_braces(key: str) -> bool:
    """Return whether every brace of a key has its counterpart."""
    depth = 0
    for character in key:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth < 0:
            return False
    return depth == 0
