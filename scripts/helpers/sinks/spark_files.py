"""Write a DataFrame of Spark as the files of a batch, counted, and with timestamps that readers can skip by."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from scripts.helpers.errors import EmptyPartitionError
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.spark.observed import observe

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TIMESTAMP_TYPE = "spark.sql.parquet.outputTimestampType"


def write_spark(
    df: DataFrame, folder: str, format: str, options: Mapping[str, Any], partition_by: Sequence[str] = ()
) -> int:
    """Write rows to a folder that is not there yet, and return how many. Rows without columns make no file.

    Rows are counted while they are written (Spark's Observation), without a second pass; where Spark Connect has no
    such thing, by reading what was written.

    Parameters
    ----------
    folder
        Its URI.
    options
        Of Spark's writer.

    Raises
    ------
    EmptyPartitionError
        Rows with an empty text in a column of `partition_by`. They are written by then, and so are all others.
    """
    from pyspark.sql import functions as F  # noqa: N812

    # A frame without columns is that of a source where nothing is new, and Spark refuses to write one.
    if not df.columns:
        return 0
    empty = empty_texts(partition_by)
    counted, observed = observe(df, [F.count(F.lit(1)).alias("rows"), *empty])
    with timestamps_with_statistics(df, format):
        # Not "overwrite": it would begin by deleting, and nothing here may be anybody else's.
        writer = counted.write.format(format).options(**options).mode("error")
        (writer.partitionBy(*partition_by) if partition_by else writer).save(folder)
    found = None if observed is None else observed.after_action()
    if found is None:
        found = {"rows": _counted_again(df, folder, format, options)}
        if empty:
            # By the rows themselves: of what was written nobody can tell an empty text from NULL.
            found |= df.select(*empty).collect()[0].asDict()
    check_empty_texts(partition_by, found)
    return int(found["rows"])


def empty_texts(columns: Sequence[str]) -> list[Column]:
    """Return what counts the rows with an empty text in each of some columns, for `check_empty_texts`."""
    from pyspark.sql import functions as F  # noqa: N812

    counts = []
    for number, column in enumerate(columns):
        # As a text whatever its type: that is how the name of a folder is made.
        is_empty = F.col(SPARK.quote(column)).cast("string") == ""
        counts.append(F.count(F.when(is_empty, 1)).alias(f"empty_{number}"))
    return counts


def check_empty_texts(columns: Sequence[str], counts: Mapping[str, Any]) -> None:
    """Raise EmptyPartitionError for the first of some columns in which `empty_texts` has counted a row."""
    for number, column in enumerate(columns):
        if counts[f"empty_{number}"]:
            raise EmptyPartitionError(column, int(counts[f"empty_{number}"]))


def _counted_again(df: DataFrame, folder: str, format: str, options: Mapping[str, Any]) -> int:
    """Count the rows of files that were just written."""
    reader = df.sparkSession.read.format(format).schema(df.schema).options(**options)
    # A value of CSV may hold the end of a line, and then ends no row.
    if format.lower() == "csv":
        reader = reader.option("multiLine", True)
    # Over Spark Connect it is a number of numpy.
    return int(reader.load(literal_path(folder)).count())


def literal_path(path: str) -> str:
    """Escape what Spark's reader globs, and its writer does not."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)


@contextmanager
def timestamps_with_statistics(df: DataFrame, format: str) -> Iterator[None]:
    """Let Parquet timestamps be TIMESTAMP_MICROS within, unless the session says otherwise.

    Spark's own default, INT96, has no usable order: row groups of it cannot be skipped.
    """
    conf = df.sparkSession.conf
    # Set by the user, it stays, and so does INT96: an old reader may need it.
    if format.lower() != "parquet" or conf.get(TIMESTAMP_TYPE, None) is not None:
        yield
        return
    conf.set(TIMESTAMP_TYPE, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        conf.unset(TIMESTAMP_TYPE)
