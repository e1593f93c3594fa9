"""Spark on two cores of this machine, on loopback, without UI and progress bar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def local_spark(memory: str, settings: Mapping[str, str] | None = None) -> Any:
    """Start a session; `memory` is that of the driver."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("benchmark").config("spark.driver.memory", memory)
    for name, value in {**QUIET, **(settings or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
