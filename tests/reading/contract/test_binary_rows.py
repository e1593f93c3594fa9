"""Parquet, ORC, Avro and XML give the rows that they hold, or a typed error, whichever call reads them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.glue import GlueContext
from scripts.helpers.reading.fetched_lines import unmarked
from tests.reading.contract.binary import CASES, EVERY
from tests.reading.contract.cases import Case, Row, in_order, put

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
GOOD = [case for case in CASES if case.rows is not None]
BAD = [case for case in CASES if case.rows is None]


def frame_of(way: str, case: Case, folder: Path, spark: Any) -> Any:
    """Return what one way reads of a case, lazily where it is Spark's."""
    if way == "glue":
        context = GlueContext(spark.sparkContext)
        sources = {"paths": [str(folder)]}
        return context.create_data_frame.from_options("file", sources, case.format, dict(case.options))
    delta = FileBookmark(str(folder)).new_files()
    if way == "read_pandas":
        return delta.read_pandas(case.format, **case.options)
    return delta.read(spark, case.format, schema=case.schema, **case.options)


def rows_of(frame: Any) -> list[Row]:
    """Return the rows of a frame, each value as a text: times of instants in UTC, with a Z."""
    if hasattr(frame, "sparkSession"):
        from pyspark.sql import functions

        quoted = {name: f"`{name}`" for name, _ in frame.dtypes}
        times = {name for name, kind in frame.dtypes if kind == "timestamp"}
        micros = [
            functions.expr(f"unix_micros({quoted[name]})").alias(name) if name in times else frame[quoted[name]]
            for name in frame.columns
        ]
        found = [dict(zip(frame.columns, row, strict=True)) for row in frame.select(*micros).collect()]
        for row in found:
            row |= {name: EPOCH + timedelta(microseconds=row[name]) for name in times if row[name] is not None}
    else:
        found = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [{name: None if value is None else text_of(value) for name, value in row.items()} for row in found]


def text_of(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    if hasattr(value, "to_pydatetime"):
        value = value.to_pydatetime()
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(plain(value))


def plain(value: Any) -> Any:
    """Return structs as maps and maps as lists of pairs, as Arrow has them."""
    if hasattr(value, "asDict"):
        return {name: plain(one) for name, one in value.asDict().items()}
    return [*value.items()] if isinstance(value, dict) and "k" in value else value


def cased(case: Case) -> str:
    return f"{case.format}-{case.name}"


@pytest.mark.parametrize("way", EVERY)
def test_rows_are_those_of_the_files_when_they_are_read(way: str, spark_with_packages: Any, tmp_path: Path) -> None:
    wrong: dict[str, Any] = {}
    for number, case in enumerate(case for case in GOOD if way in case.ways):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            found: Any = in_order(rows_of(frame_of(way, case, put(case, folder), spark_with_packages)))
        except Exception as error:
            found = f"{type(error).__name__}: {error}"[:500]
        if found != in_order(case.rows):
            wrong[cased(case)] = found

    assert wrong == {}


@pytest.mark.parametrize(("way", "case"), [
    pytest.param(way, case, id=f"{way}-{cased(case)}") for case in BAD for way in case.ways if way != "glue"
])  # fmt: skip
def test_error_is_typed_and_names_a_file_or_column_when_rows_would_be_lost(
    way: str, case: Case, spark_with_packages: Any, tmp_path: Path
) -> None:
    put(case, tmp_path)

    with pytest.raises(Exception) as caught:  # noqa: PT011
        rows_of(frame_of(way, case, tmp_path, spark_with_packages))

    error = unmarked(str(caught.value)) or caught.value
    assert isinstance(error, case.error), error
    # What a row shows is raised by Spark's tasks, and names the column.
    assert any(name in str(error) for name in case.files) or "column 't' has nanoseconds" in str(error), error
