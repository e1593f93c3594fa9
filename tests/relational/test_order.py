"""Values that differ although Spark treats them as equal: the order of rows distinguishes them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.relational.relations import check_order, exactly
from tests.support.reasons import because

VariantType: Any = getattr(types, "VariantType", type("VariantType", (DataType,), {}))
"""Spark 4's type; in earlier versions, a stand-in with that name."""


def test_zeros_of_either_sign_differ_when_written_exactly(spark: Any) -> None:
    rows = spark.sql("SELECT named_struct('of', array(zero)) AS row FROM VALUES (0.0D), (-0.0D) AS source (zero)")

    written = rows.select(exactly(F.col("row"), rows.schema["row"].dataType).alias("row")).collect()

    assert [found.row.of for found in written] == [["0.0"], ["-0.0"]]


def test_texts_that_a_collation_takes_for_equal_differ_when_written_exactly(spark: Any) -> None:
    """Use a type with a `collation`, as in Spark 4. Earlier versions build the same expression for it."""
    collated: Any = StringType()
    collated.collation = "UTF8_LCASE"
    rows = spark.sql("SELECT name FROM VALUES ('a'), ('A') AS source (name)")

    written = rows.select(exactly(F.col("name"), collated).alias("name")).collect()

    assert [found.name for found in written] == [b"a", b"A"]


@pytest.mark.parametrize("within", [ArrayType, partial(MapType, StringType())], ids=["array", "map"])
def test_error_names_the_field_when_its_type_has_no_order(within: Any) -> None:
    schema = StructType([StructField("at", VariantType())])

    with pytest.raises(InvalidValueError, check=because("no_order")) as caught:
        check_order("b", within(schema))

    assert str(caught.value) == (
        "Field 'b.val.at' is of type variant, which has no order. Cast it to a string or leave it out."
    )
