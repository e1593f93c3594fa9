"""Archive the classes that a JVM loads for Spark, so that it starts in half the time: see `local_s3.short_lived`."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from scripts.demo.local_s3 import CLASSES, SHORT_LIVED


def main() -> None:
    """Write and read a few rows, then exit the JVM normally: at its exit it archives the classes that it has loaded."""
    CLASSES.unlink(missing_ok=True)
    os.environ["SPARK_SUBMIT_OPTS"] = f"{SHORT_LIVED} -Xlog:disable -XX:ArchiveClassesAtExit={CLASSES}"
    settings = {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    builder = SparkSession.builder.master("local[2]").appName("classes")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("parquet", "json", "csv"):
            spark.range(10).selectExpr("id", "cast(id AS string) AS name").write.format(kind).save(f"{folder}/{kind}")
            spark.read.format(kind).load(f"{folder}/{kind}").groupBy().count().collect()
    jvm: Any = spark.sparkContext._jvm
    spark.stop()
    with suppress(Py4JError, OSError):
        jvm.System.exit(0)


if __name__ == "__main__":
    main()
