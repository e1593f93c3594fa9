"""Settings of a session that differ from Spark's defaults, and a job in it that loads rows of a table and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scripts.helpers.job import IncrementalJob
from scripts.helpers.spark.settings import settings
from scripts.helpers.watermarks import Watermarks

ODD = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "Asia/Kathmandu",
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.outputTimestampType": "INT96",
}
LONG_AGO = "1850-01-01 12:00:00"
"""A time before standard time zones, which Parquet files may also store in another calendar."""
CHANGE = 1_774_746_000
"""2026-03-29 01:00 UTC, when clocks go forward in London, the zone of the tests."""


def set_oddly(session: Any) -> Any:
    # Spark 3.3 has no timestamp type without a zone.
    without_zone = {} if session.version < "3.4" else {"spark.sql.timestampType": "TIMESTAMP_NTZ"}
    return settings(session, ODD | without_zone)


def loaded(spark: Any, watermarks: Watermarks, folder: Path) -> list[tuple[Any, ...]]:
    """Return the rows that two runs load from a table with a time and from a folder of JSON files; see `LOADED`."""
    lake = f"file://{folder}"
    (folder / "landing").mkdir()
    for number in (1, 2):
        changed = spark.range(number, number + 1).selectExpr("id", f"timestamp_seconds({CHANGE} + id) AS last_modified")
        changed.write.mode("append").parquet(f"{lake}/repairs/")
        (folder / "landing" / f"{number}.json").write_text(f'{{"id": {number}, "since": "{LONG_AGO}"}}')
        with IncrementalJob(watermarks, "odd", f"jr_{number}", spark=spark) as job:
            repairs = spark.read.parquet(f"{lake}/repairs/")
            new = job.rows_since(repairs, "last_modified", transformation_ctx="repairs")
            landed = job.new_files(f"{lake}/landing/", transformation_ctx="parking")
            job.write(new, f"{lake}/raw/repairs/")
            job.write(landed.read(spark, "json", schema="id BIGINT, since TIMESTAMP"), f"{lake}/raw/parking/")

    parking = spark.read.parquet(f"{lake}/raw/parking/")
    joined = spark.read.parquet(f"{lake}/raw/repairs/").join(parking, "id")
    shown = joined.selectExpr("id", "unix_seconds(last_modified)", "CAST(since AS STRING)")
    return sorted(map(tuple, shown.collect()))


LOADED = [(number, CHANGE + number, LONG_AGO) for number in (1, 2)]
"""What `loaded` returns if each row is loaded once and as it is."""
