"""Values that Spark takes for equal though they are not the same: what keeps them apart in the order of rows."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F  # noqa: N812

from scripts.helpers.relational.order import exactly


def test_zeros_of_either_sign_differ_when_written_exactly(spark: Any) -> None:
    rows = spark.sql("SELECT named_struct('of', array(zero)) AS row FROM VALUES (0.0D), (-0.0D) AS source (zero)")

    written = rows.select(exactly(F.col("row"), rows.schema["row"].dataType).alias("row")).collect()

    assert [found.row.of for found in written] == [["0.0"], ["-0.0"]]
