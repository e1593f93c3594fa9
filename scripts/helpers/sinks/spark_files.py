"""Write a Spark DataFrame as the files of a batch, count its rows, and store timestamps with usable statistics."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from scripts.helpers._lazy import Column, DataFrame, F, SparkSession
from scripts.helpers.errors import InvalidValueError
from scripts.helpers.listing.folders import NULL_FOLDER
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.schemas.spark_frames import EXACT_TIMES
from scripts.helpers.sinks.places import S3_SCHEMES
from scripts.helpers.spark.java_errors import names_java_class, reason_of
from scripts.helpers.spark.observed import observe
from scripts.helpers.spark.settings import settings

BYTES = {"binary": "is binary, and a partition is named by a text. Encode it"}
ZONED = "holds times with a zone, and a partition is named by the wall clock of a session. Use a date"
NO_FOLDERS = BYTES | {"timestamp": ZONED, "timestamp[us, tz=UTC]": ZONED}
"""The types of columns whose values readers cannot get back from the name of a folder, and why."""
NAN = "NaN"
NUL, LONG, BELOW_ZERO = "the character U+0000", "a value too long for the name of a folder", "a fraction below zero"
"""More unfit values, as errors name them: a table's log, or the file system below it, does not accept these."""
Unfit = Mapping[str, Sequence[str]]
"""For each type of a partition column, the values that the target does not keep."""
UNFIT: Unfit = {"string": ("", NULL_FOLDER), "float": (NAN,), "double": (NAN,)}
"""Values that readers cannot get back from the name of a folder."""
UNFIT_DELTA: Unfit = {"string": ("", NULL_FOLDER, NUL, LONG)}
UNFIT_ARROW: Unfit = {
    "string": ("", NULL_FOLDER, LONG), "double": (LONG,), "decimal128": (BELOW_ZERO,), "decimal256": (BELOW_ZERO,),
}  # fmt: skip
UNFIT_ICEBERG: Unfit = {"string": (LONG,), "float": (NAN,), "double": (NAN,)}
"""Values that are not kept by Delta on Spark, by `deltalake`, and by `pyiceberg`, in this order."""
MAX_NAME, MAX_KEY = 255, 1_000
"""The most bytes of a folder's name in a file system, and in S3, where the rest of the key needs room as well."""
TIMESTAMP_TYPE = "spark.sql.parquet.outputTimestampType"
EXACT_PARQUET = {
    TIMESTAMP_TYPE: "TIMESTAMP_MICROS", "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
}  # fmt: skip
"""Settings of a session for Parquet files with statistics of times, and with times of any year."""
_ESCAPED = r"""[\x00-\x1f"#%'*/:=?\\\x7f{\[\]^]"""
EXACT_TEXTS: Mapping[str, str | bool] = {
    **EXACT_TIMES, "ignoreLeadingWhiteSpace": False, "ignoreTrailingWhiteSpace": False,
}  # fmt: skip
"""Options of CSV and JSON that keep what Spark cuts by default: parts of times, and outer blanks."""


def exact_texts(format: str) -> Mapping[str, str | bool]:
    """Return the options of a format's writer that keep texts and times as they are; see `EXACT_TEXTS`."""
    return EXACT_TEXTS if format.lower() in ("csv", "json") else {}


def write_spark(
    df: DataFrame, folder: str, format: str, options: Mapping[str, Any], partition_by: Sequence[str] = ()
) -> int:
    """Write rows to a folder that does not exist yet, and return how many. Rows without columns make no file.

    Rows are counted while they are written (Spark's Observation), without a second pass. A version of Spark Connect
    that has no Observation counts them by reading the written files.

    Raises
    ------
    InvalidValueError
        A column of `partition_by` has a value such as an empty text (`UNFIT`): raised after all rows are written. Or,
        with not all rows written: the format cannot hold a column, or a partition value is refused as a folder's name.
    """
    from pyspark.sql.utils import AnalysisException  # type: ignore[attr-defined]

    # Write nothing for a frame without columns, which Spark refuses to write: the source had nothing new.
    if not df.columns:
        return 0
    check_partition_types(partition_by, dict(df.dtypes), NO_FOLDERS)
    for name, kind in df.dtypes:
        if format.lower() == "orc" and "`" in name + kind:
            raise InvalidValueError(f"Column {name!r}: Spark reads NULL from ORC if a name has a backtick. Rename it.")
    unfit = unfit_values(partition_by, dict(df.dtypes), UNFIT, MAX_KEY)
    counted, observed = observe(df, [F.count(F.lit(1)).alias("rows"), *unfit])
    with timestamps_with_statistics(df.sparkSession, format):
        # Do not use the mode "overwrite": it would first delete the folder, and files that another writer put there.
        writer = counted.write.format(format).options(**exact_texts(format)).options(**options).mode("error")
        try:
            writer.partitionBy(*partition_by).save(folder)
        except AnalysisException as error:
            raise InvalidValueError(f"The rows cannot be written as {format}: {reason_of(error)}") from error
        except Exception as error:
            # A partition value does not fit the name of a folder. Find it, because Spark's long error does not name it.
            if names_java_class(error, "Mkdirs failed", "KeyTooLong"):
                asked = unfit_values(partition_by, dict(df.dtypes), {"string": (NUL, LONG)}, longest_folder(folder))
                check_partition_counts(partition_by, df.select(*asked).collect()[0].asDict() if asked else {})
            # Spark Connect 3.5, which has no Observation, cuts off the end of a writer's long error, perhaps with the
            # text of a MisfitError. Compute the rows again without a file ("noop"): that error has it near the start.
            if observed is None:
                df.write.format("noop").mode("overwrite").save()
            raise
    found = None if observed is None else observed.after_action()
    if found is None:
        found = {"rows": _counted_again(df, folder, format, options)}
        if unfit:
            # Count the values unfit for a folder name in `df`, not in the written files, which show '' and NULL alike.
            found |= df.select(*unfit).collect()[0].asDict()
    check_partition_counts(partition_by, found)
    return int(found["rows"])


def check_partition_types(partition_by: Sequence[str], types: Mapping[str, str], unfit: Mapping[str, str]) -> None:
    """Raise InvalidValueError if a column of `partition_by` has one of the types `unfit`, which maps type to reason."""
    for name in partition_by:
        if why := unfit.get(types.get(name, "")):
            raise InvalidValueError(f"Partition column {name!r} {why}, or leave partition_by out.")


def longest_folder(uri: str) -> int:
    """Return how many bytes a partition folder's name may have at a URI: S3 allows more than file systems."""
    return MAX_KEY if uri.partition(":")[0] in S3_SCHEMES else MAX_NAME


def unfit_values(columns: Sequence[str], types: Mapping[str, str], unfit: Unfit, longest: int) -> list[Column]:
    """Return aggregates that count, for each column, the rows with each value that `unfit` lists for its type.

    `check_partition_counts` reads the counts. `LONG` means any value whose folder's name exceeds `longest` bytes.
    """
    counted = []
    for at, name in enumerate(columns):
        value = F.col(SPARK.quote(name))
        escaped = F.regexp_replace(F.concat(F.lit(f"{name}="), value), _ESCAPED, "%00")
        asked = {NAN: F.isnan(value), NUL: value.contains("\0"), LONG: F.octet_length(escaped) > longest}
        for text in unfit.get(types[name], ()):
            counted.append(F.count(F.when(asked.get(text, value == text), 1)).alias(f"{text}{at}"))
    return counted


def check_partition_counts(columns: Sequence[str], counts: Mapping[str, Any]) -> None:
    """Raise InvalidValueError for a column with values unfit to name folders; `counts` are those of `unfit_values`."""
    for at, column in enumerate(columns):
        for text in ("", NULL_FOLDER, NAN, NUL, LONG, BELOW_ZERO):
            if count := int(counts.get(f"{text}{at}") or 0):
                value = text or "an empty text"
                raise InvalidValueError(reason="unfit_partition", column=column, count=count, value=value)


def _counted_again(df: DataFrame, folder: str, format: str, options: Mapping[str, Any]) -> int:
    """Count rows by reading the files that were just written."""
    # Read CSV as multi-line, because a quoted value may contain a line end.
    reader = df.sparkSession.read.format(format).options(**options).option("multiLine", format.lower() == "csv")
    # Convert the count to int: over Spark Connect it is an integer of NumPy.
    return int(reader.schema(df.schema).load(literal_path(folder)).count())


def literal_path(path: str) -> str:
    """Return a path with `*`, `?`, `[` and so on escaped, because Spark's reader takes a path as a pattern."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)


def timestamps_with_statistics(spark: SparkSession, format: str = "parquet") -> AbstractContextManager[None]:
    """Return a context in which Spark writes Parquet timestamps as TIMESTAMP_MICROS, and accepts those of any year.

    Spark's own default is INT96, whose values have no usable order, so readers could not skip row groups. And Spark
    refuses dates before 1582 and times before 1900 by default.
    """
    # Change only settings that have Spark's default: the user may have set INT96 or LEGACY for an old reader.
    wanted = EXACT_PARQUET if format.lower() == "parquet" else {}
    unset = (None, "EXCEPTION")
    return settings(spark, {name: value for name, value in wanted.items() if spark.conf.get(name, None) in unset})
