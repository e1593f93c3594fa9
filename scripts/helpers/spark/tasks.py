"""Return the number of tasks that Spark runs at once, and give each task its own share of work."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.helpers._lazy import DataFrame, SparkSession
from scripts.helpers.spark.jvm import frame_of_java, is_connect, java_context, java_of, java_session

MOST_SLOTS = 10_000
"""Most slots that are counted over Spark Connect: each slot is a row of the query that counts them."""


def slots_of(spark: SparkSession) -> int:
    """Return Spark's default number of partitions, which is its number of cores unless set otherwise.

    Over Spark Connect, a query counts the partitions into which Spark distributes rows by default.
    """
    if not is_connect(spark):
        return int(spark.sparkContext.defaultParallelism)
    spread_rows = spark.range(MOST_SLOTS).selectExpr("spark_partition_id() AS slot")
    counted = spread_rows.selectExpr("max(slot) + 1").head()
    assert counted is not None
    return int(counted[0])


def spread(spark: SparkSession, parts: Sequence[bytes]) -> DataFrame:
    """Return a DataFrame of one binary column, `value`, with each part in a partition of its own.

    The JVM holds the parts: `createDataFrame` and `SparkContext.parallelize` of Python objects would run a
    Python worker in every task to pass them on. That worker ends, and returns to Spark's pool, while the
    task's second worker (of `mapInArrow`) is still running. If Spark kills the task because another task failed,
    it kills both workers of the task some seconds later. By then the first may serve the next job, which
    fails with ``java.net.SocketException: Socket is closed`` (PythonRunner.MonitorThread, Spark 3.3 to 3.5).

    Spark Connect sends the parts with the plan, without a Python worker. Its server distributes them round-robin
    over as many partitions as there are parts, so one may get two parts and another none.
    """
    if is_connect(spark):
        rows = spark.createDataFrame([(bytearray(part),) for part in parts], "value binary")
        return rows.repartition(max(1, len(parts)))
    java = java_of(spark)
    of_java = java.java.util.ArrayList()
    for part in parts:
        of_java.add(part)
    # Spark does not accept 0 partitions here; without parts there is one empty partition.
    rdd = java_context(spark).parallelize(of_java, max(1, len(parts))).rdd()
    dataset = java_session(spark).createDataset(rdd, java.org.apache.spark.sql.Encoders.BINARY())
    return frame_of_java(dataset.toDF(), spark)
