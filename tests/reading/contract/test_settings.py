"""Files are read as the same rows under each session setting for which this package promises it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructField, StructType, TimestampType

from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.job import IncrementalJob
from scripts.helpers.spark.settings import settings
from scripts.helpers.watermarks import Watermarks
from tests.reading.contract import binary, cases
from tests.reading.contract.cases import Case, in_order, put
from tests.reading.contract.frames import collected, frame_of, rows_of
from tests.support.long import is_long

NAMES = {
    "dates from year 1 on", "times in UTC from year 1 on", "times in milliseconds, without a zone", "nested",
    "column that only the last and smallest file has", "names that differ by case over files",
    "nanoseconds as microseconds", "quotes of RFC 4180", "possible date", "zeros beyond the scale",
    "large numbers that a double holds",
}  # fmt: skip
CASES = [case for case in (*binary.CASES, *cases.CASES) if case.name in NAMES and case.format != "avro"]
CHANGED = {
    "spark.sql.parquet.mergeSchema": "true",
    "spark.sql.orc.mergeSchema": "true",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.enableVectorizedReader": "false",
    "spark.sql.orc.enableVectorizedReader": "false",
    "spark.sql.csv.parser.columnPruning.enabled": "false",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.jsonGenerator.ignoreNullFields": "false",
    "spark.sql.legacy.timeParserPolicy": "EXCEPTION",
}


ON = {
    "spark.sql.timestampType": {"dates", "times", "nanoseconds", "possible", "zeros", "large"},
    "spark.sql.ansi.enabled": {"nanoseconds", "quotes", "possible", "zeros", "large", "names"},
    "spark.sql.sources.partitionColumnTypeInference.enabled": {"quotes", "large", "nested"},
    "spark.sql.legacy.timeParserPolicy": {"quotes", "possible", "zeros", "large"},
}
"""The first words of the cases that `make test` reads with a setting that names no format: what it could change."""


def concerned(name: str) -> list[Case]:
    """Return the cases of the formats that a setting names, or those of `ON` if it names none."""
    named = {kind for kind in ("parquet", "orc", "csv", "json") if kind in name.lower()}
    if named or is_long():
        return [case for case in CASES if case.format in named or not named]
    return [case for case in CASES if case.name.split()[0] in ON[name]]


@pytest.mark.parametrize("name", CHANGED)
def test_rows_are_the_same_when_a_setting_of_the_session_is_another(name: str, spark: Any, tmp_path: Path) -> None:
    cases, frames = concerned(name), []
    with settings(spark, {name: CHANGED[name]}):
        for number, case in enumerate(cases):
            folder = tmp_path / f"day={number}"
            folder.mkdir()
            frames.append(frame_of("read", case, put(case, folder), spark))
        found = collected(frames, rows_of)

    # Compare times in UTC: a time with a zone and one without are then the same.
    pairs = [(case, in_order(in_utc(rows))) for case, rows in zip(cases, found, strict=True)]
    assert cases
    assert {f"{case.format}-{case.name}": rows for case, rows in pairs if rows != in_order(in_utc(case.rows))} == {}


def in_utc(rows: Any) -> Any:
    return [{key: value if value is None else value.removesuffix("Z") for key, value in row.items()} for row in rows]


def test_folders_have_their_values_when_types_of_folders_are_not_inferred(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "day=3").mkdir()
    put(Case("one", "json", {"1.json": b'{"id":"a"}\n'}, None), tmp_path / "day=3")

    with settings(spark, {"spark.sql.sources.partitionColumnTypeInference.enabled": "false"}):
        found = FileBookmark(str(tmp_path)).new_files().read(spark, "json").collect()

    assert [row.asDict() for row in found] == [{"id": "a", "day": "3"}]


@pytest.mark.parametrize("options", [{}, {"timestampFormat": "yyyy-MM-dd HH:mm:ssXXX"}], ids=["ISO 8601", "own format"])
@pytest.mark.parametrize("format", ["csv", "json"])
def test_times_are_instants_when_the_schema_says_so_and_times_of_the_session_are_not(
    format: str, options: dict[str, Any], spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "1.csv").write_text("2026-03-29 03:30:00+02:00\n")
    (tmp_path / "1.json").write_text('{"t": "2026-03-29 03:30:00+02:00"}\n')
    schema = StructType([StructField("t", TimestampType())])

    with settings(spark, {"spark.sql.timestampType": "TIMESTAMP_NTZ"}):
        delta = FileBookmark(str(tmp_path), include=[f"*.{format}"]).new_files()
        found = rows_of(delta.read(spark, format, schema=schema, **options))

    assert found == [{"t": "2026-03-29T01:30:00Z"}]


def test_rescued_text_has_only_the_misfit_when_the_session_writes_nulls_to_json(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text('{"id":"x"}\n{"id":1,"n":2}\n')

    with settings(spark, {"spark.sql.jsonGenerator.ignoreNullFields": "false"}):
        delta = FileBookmark(str(tmp_path)).new_files()
        found = delta.read(spark, "json", schema="id BIGINT, n BIGINT", rescue=True).collect()

    assert sorted(str(row["_rescued"]) for row in found) == ["None", '{"id":"x"}']


def test_rows_are_there_once_when_the_session_overwrites_partitions_by_default(
    watermarks: Watermarks, spark: Any, tmp_path: Path
) -> None:
    landing, target = tmp_path / "landing", str(tmp_path / "raw")
    landing.mkdir()

    with settings(spark, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
        for number in (1, 2):
            (landing / f"{number}.json").write_text(f'{{"id":{number},"day":"a"}}\n{{"id":{number},"day":"b"}}\n')
            with IncrementalJob(watermarks, "parking", spark=spark) as job:
                rows = job.new_files(str(landing)).read(spark, "json", schema="id BIGINT, day STRING")
                job.write(rows, target, partition_by=["day"])

    found = spark.read.parquet(target).select("id", "day").collect()
    assert sorted(map(tuple, found)) == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
