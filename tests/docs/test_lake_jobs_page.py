"""The jobs of docs/lake-jobs.md: many tables, one of which fails, and a replay on the next day."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.watermarks import Watermarks
from tests.docs.pages import run_page
from tests.support.clock import Clock
from tests.support.databases import PostgresServer

DAY = "import_year=2026/import_month=03/import_day={0}/import_date=202603{0}"


@pytest.fixture
def landing(jdbc: Any, tmp_path: Path) -> Iterator[Path]:
    """Return the folder of a landing zone of four tables, one with a stray file, and one that nobody chose."""
    folder, names = tmp_path / "landing", ("housing_people", "housing_rents", "housing_repairs", "parking")
    jdbc.sql("CREATE DATABASE IF NOT EXISTS landing")
    for name in names:
        jdbc.sql(
            f"CREATE TABLE landing.{name} (id BIGINT, import_year STRING, import_month STRING, import_day STRING, "
            "import_date STRING) USING parquet "
            f"PARTITIONED BY (import_year, import_month, import_day, import_date) LOCATION '{folder / name}'"
        )
        put(jdbc, folder / name, "15", 1)
    put(jdbc, folder / "housing_people", "16", 2)
    (folder / "housing_rents" / "stray.parquet").write_bytes(b"x")
    yield folder
    for name in names:
        jdbc.sql(f"DROP TABLE landing.{name}")


def put(spark: Any, table: Path, day: str, rows: int) -> None:
    spark.range(rows).coalesce(1).write.mode("append").parquet(f"{table}/{DAY.format(day)}")


def rows_by_day(spark: Any, target: str) -> dict[str, int]:
    frame = spark.read.parquet(target)
    return {str(row.import_date): row["count"] for row in frame.groupBy("import_date").count().collect()}


def test_tables_are_loaded_beside_one_that_fails_when_the_page_is_followed(
    watermarks: Watermarks, jdbc: Any, postgres: PostgresServer, landing: Path, clock: Clock, tmp_path: Path
) -> None:
    for name in ("tenancies", "arrears"):
        postgres.sql(
            f"CREATE TABLE public.{name} (id bigint PRIMARY KEY, last_modified timestamptz)",
            f"INSERT INTO public.{name} VALUES (1, '2026-01-01 12:00Z'), (2, '2026-01-02 12:00Z')",
        )
    postgres.sql(
        "INSERT INTO public.arrears VALUES (3, NULL)",
        "CREATE TABLE public.streets (id bigint PRIMARY KEY, name text)",
        "INSERT INTO public.streets VALUES (1, 'Mare Street'), (2, 'Well Street')",
    )
    lake = str(tmp_path)
    names: dict[str, Any] = {
        "spark": jdbc, "watermarks": watermarks, "lake": lake, "url": postgres.url, "login": postgres.properties,
        "run_id": "jr_1",
    }  # fmt: skip

    # Half an hour before midnight in London, where summer time begins in between.
    clock.now = clock.now.replace(hour=23, minute=30)
    found = run_page("lake-jobs.md", names)

    assert found == 8
    assert rows_by_day(jdbc, f"{lake}/raw/housing_people") == {"20260315": 1, "20260316": 2}
    assert rows_by_day(jdbc, f"{lake}/raw/tenancies") == rows_by_day(jdbc, f"{lake}/raw/streets") == {"20260316": 2}
    (kept,) = Path(lake, "raw/ingestion_details").glob("part-*")
    assert [json.loads(line)["table"] for line in kept.read_text().splitlines()] == [
        "housing_people", "housing_rents", "housing_repairs", "tenancies", "arrears", "streets",
    ]  # fmt: skip

    # The causes are mended, and files of old dates come late. Another batch is planned, and its target is taken.
    postgres.sql(
        "DELETE FROM public.arrears WHERE id = 3",
        "UPDATE public.tenancies SET last_modified = now() - interval '1 hour'",
    )
    (landing / "housing_rents" / "stray.parquet").unlink()
    put(jdbc, landing / "housing_people", "01", 4)
    foreign = Path(lake, "raw/arrears/foreign.csv")
    foreign.parent.mkdir(parents=True)
    foreign.write_text("x")
    again = names["load_each"](["arrears"], names["ingest_table"])
    assert again[0]["error"].startswith("TargetTakenError")
    foreign.unlink()
    clock.move(days=1)
    copied = names["load_each"](names["chosen"], names["copy_table"])
    ingested = names["load_each"](["tenancies", "arrears", "streets"], names["ingest_table"])

    assert [(line["rows"], line["error"]) for line in copied] == [(4, None), (1, None), (0, None)]
    assert [(line["rows"], line["error"]) for line in ingested] == [(2, None), (2, None), (2, None)]
    assert rows_by_day(jdbc, f"{lake}/raw/housing_people") == {"20260301": 4, "20260315": 1, "20260316": 2}
    assert rows_by_day(jdbc, f"{lake}/raw/arrears") == {"20260316": 2}
    assert rows_by_day(jdbc, f"{lake}/raw/tenancies") == {"20260316": 2, "20260317": 2}
    assert {str(row.import_timestamp) for row in jdbc.read.parquet(f"{lake}/raw/arrears").collect()} == {
        str((clock.now.replace(day=16)).timestamp())
    }
