"""Write a DataFrame of Spark as the files of a batch, counted, and with timestamps that readers can skip by."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

TIMESTAMP_TYPE = "spark.sql.parquet.outputTimestampType"


def write_spark(df: DataFrame, folder: str, format: str, options: Mapping[str, Any]) -> tuple[int, int | None]:
    """Write rows to a folder and return how many, and their bytes if those are known. Again, it is replaced as a whole.

    Rows are counted while they are written (Spark's Observation), without a second pass.

    Parameters
    ----------
    folder
        That of one batch, and of nothing else.
    options
        Of Spark's writer.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    written = Observation()
    counted = df.observe(written, F.count(F.lit(1)).alias("rows"))
    with timestamps_with_statistics(df, format):
        counted.write.format(format).options(**options).mode("overwrite").save(folder)
    return int(written.get["rows"]), bytes_below(df.sparkSession, folder)


def bytes_below(spark: SparkSession, folder: str) -> int | None:
    """Return the bytes of all files below a folder, as its file system adds them up; None where that is unknown."""
    try:
        path: Any = spark._jvm.org.apache.hadoop.fs.Path(folder)  # type: ignore[union-attr]
        files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        return int(files.getContentSummary(path).getLength())
    except Exception as error:
        # The rows are written: a count that is only told must not make that a failure. Spark Connect has no JVM.
        logger.debug("event=bytes_unknown error=%s", type(error).__name__)
        return None


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
