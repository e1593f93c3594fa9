"""How the session's settings change while files are read, and which schema is refused before a file is read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from scripts.helpers.errors import SourceError
from scripts.helpers.listing.listing import Location
from scripts.helpers.reading.small_files import SmallFiles
from scripts.helpers.spark.settings import TEXTS_OF_FOLDERS, settings

INFERENCE = "spark.sql.sources.partitionColumnTypeInference.enabled"


class Settings(dict[str, str]):
    """The settings of a session, by name."""

    def set(self, name: str, value: str) -> None:
        self[name] = value

    def unset(self, name: str) -> None:
        del self[name]


@pytest.mark.parametrize("before", [{}, {INFERENCE: "true"}, {INFERENCE: "false"}], ids=["none", "true", "false"])
def test_setting_of_the_user_is_restored_after_folders_were_read_as_texts(before: dict[str, str]) -> None:
    conf = Settings(before)
    spark: Any = SimpleNamespace(conf=conf)

    with settings(spark, TEXTS_OF_FOLDERS):
        within = dict(conf)

    assert within == {INFERENCE: "false"}
    assert conf == before


def test_schema_is_refused_when_text_is_to_have_two_columns() -> None:
    fields = StructType(
        [StructField("line", StringType()), StructField("id", LongType()), StructField("day", LongType())]
    )
    spark: Any = SimpleNamespace(createDataFrame=lambda _, schema: SimpleNamespace(schema=schema))
    reader = SmallFiles(spark, Location.parse("s3://landing/"), "text")

    with pytest.raises(SourceError) as caught:
        reader.read_shares(spark, lambda _: [], ["day"], fields, {})

    assert str(caught.value) == "Source 's3://landing/': text has one column, and the schema names 2: ['line', 'id']."
