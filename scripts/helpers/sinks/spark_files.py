"""Write Parquet whose timestamps can be found again without reading everything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIMESTAMP_TYPE = "spark.sql.parquet.outputTimestampType"


@contextmanager
def timestamps_with_statistics(df: DataFrame, format: str) -> Iterator[None]:
    """Let Parquet timestamps be TIMESTAMP_MICROS within, unless the session says otherwise.

    Spark's own default, INT96, has no usable order: row groups of it cannot be skipped.
    """
    conf = df.sparkSession.conf
    if format.lower() != "parquet" or conf.get(TIMESTAMP_TYPE, None) is not None:
        yield
        return
    conf.set(TIMESTAMP_TYPE, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        conf.unset(TIMESTAMP_TYPE)
