"""How many tasks Spark runs at once, and how each of some tasks gets its own share of work."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.helpers._lazy import DataFrame, SparkSession
from scripts.helpers.spark.jvm import frame_of_java, is_connect, java_context, java_of, java_session

MOST_SLOTS = 10_000
"""Of Spark Connect no more are counted: each is a row of the query that counts them."""


def slots_of(spark: SparkSession) -> int:
    """Return Spark's default number of partitions, which is that of its cores where nobody has set another.

    Over Spark Connect a query counts the partitions of rows that Spark has spread by itself.
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
    Python worker in every task to hand them on. That worker is done, and back in Spark's pool, while the
    task's second one (of `mapInArrow`) still works. If Spark kills the task, since another task failed, it
    kills after some seconds both workers that the task ever had. By then the first may serve the next job,
    which fails with ``java.net.SocketException: Socket is closed`` (PythonRunner.MonitorThread, Spark 3.3 to 3.5).

    Spark Connect sends the parts with the plan, without a Python worker. Its server deals them out to as many
    partitions, in turn: one may get two parts and another none.
    """
    if is_connect(spark):
        rows = spark.createDataFrame([(bytearray(part),) for part in parts], "value binary")
        return rows.repartition(max(1, len(parts)))
    java = java_of(spark)
    of_java = java.java.util.ArrayList()
    for part in parts:
        of_java.add(part)
    # Spark takes no RDD of 0 partitions here; without parts its single one is empty.
    rdd = java_context(spark).parallelize(of_java, max(1, len(parts))).rdd()
    dataset = java_session(spark).createDataset(rdd, java.org.apache.spark.sql.Encoders.BINARY())
    return frame_of_java(dataset.toDF(), spark)
