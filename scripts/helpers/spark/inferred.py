"""Infer the schema of texts that are in a column, not in files, with Spark's readers of JSON and CSV."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scripts.helpers._lazy import DataFrame, T
from scripts.helpers.spark.jvm import frame_of_java, java_frame, java_of


def inferred_schema(texts: DataFrame, format: str, options: Mapping[str, Any]) -> T.StructType:
    """Return the schema that Spark infers from texts, as it would from files. This runs a Spark job.

    Call this only if `has_jvm`: PySpark itself accepts texts only as RDDs, whose rows all pass through a Python worker.

    `texts` has one column; each text is a record of ``json`` or ``csv``. `options` are those of Spark's reader.
    """
    spark = texts.sparkSession
    lines = getattr(java_frame(texts), "as")(java_of(spark).org.apache.spark.sql.Encoders.STRING())
    reader: Any = spark.read.options(**options)._jreader
    found = reader.json(lines) if format == "json" else reader.csv(lines)
    return frame_of_java(found, spark).schema
