"""The schema that Spark's readers of JSON and CSV find in texts that are no files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scripts.helpers._lazy import DataFrame, T
from scripts.helpers.spark.jvm import frame_of_java, java_frame, java_of


def inferred_schema(texts: DataFrame, format: str, options: Mapping[str, Any]) -> T.StructType:
    """Return the columns of texts, as Spark infers them of files; a job of Spark reads them for it.

    To be called where `has_jvm`: PySpark takes texts as RDDs only, each row through a Python worker.

    Each text of the one column is a record, of ``json`` or ``csv``. Options are those of Spark's reader.
    """
    spark = texts.sparkSession
    lines = getattr(java_frame(texts), "as")(java_of(spark).org.apache.spark.sql.Encoders.STRING())
    reader: Any = spark.read.options(**options)._jreader
    found = reader.json(lines) if format == "json" else reader.csv(lines)
    return frame_of_java(found, spark).schema
