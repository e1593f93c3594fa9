"""Columns whose names differ only by case, where Spark compares names exactly: they are refused, never mixed up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import InvalidValueError, MisfitError
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks

JSON, CSV = '{"id":1,"Id":2}\n{"Id":3}\n', "id,Id\n1,2\n"


@pytest.fixture
def exact(spark: Any) -> Iterator[Any]:
    """Return a session in which `id` and `Id` are two columns."""
    spark.conf.set("spark.sql.caseSensitive", "true")
    yield spark
    spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.parametrize("way", ["read", "read_small"])
@pytest.mark.parametrize(
    ("format", "text", "options", "error"),
    [
        ("json", JSON, {}, MisfitError),
        ("json", JSON, {"schema": "id BIGINT, Id BIGINT"}, InvalidValueError),
        ("csv", CSV, {"header": True}, MisfitError),
        ("csv", CSV, {"header": True, "schema": "id STRING, Id STRING"}, InvalidValueError),
    ],
    ids=["json", "json with a schema", "csv", "csv with a schema"],
)
def test_files_are_refused_when_names_of_columns_differ_only_by_case(
    exact: Any, tmp_path: Path, way: str, format: str, text: str, options: dict[str, Any], error: Any
) -> None:
    (tmp_path / f"1.{format}").write_text(text)
    delta = FileBookmark(f"{tmp_path}/").new_files()

    with pytest.raises(error, match="differ only by case"):
        getattr(delta, way)(exact, format, **options).collect()


def test_rows_are_refused_when_a_policy_would_take_two_of_their_columns_for_one(
    exact: Any, watermarks: Watermarks
) -> None:
    rows = exact.sql("SELECT 1 AS id, 10 AS Id, 100 AS ID")

    with pytest.raises(InvalidValueError, match="differ only by case"), IncrementalJob(watermarks, "repairs") as job:
        job.rows_since(rows, "id", on_schema_change="add")
