"""The jobs of docs/lake-jobs.md: many tables, some of which fail and are replayed on the next day."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from scripts.helpers.sinks import DatabaseSink
from scripts.helpers.watermarks import Watermarks
from tests.docs.pages import run_page
from tests.support.clock import Clock
from tests.support.databases import PostgresServer

DAY = "import_year=2026/import_month=03/import_day={0}/import_date=202603{0}"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def landing(jdbc: Any, lake: Path) -> Iterator[Path]:
    """Return the folder of a landing zone of four tables. One has a stray file, and one is not chosen by the page."""
    folder, names = lake / "landing", ("housing_people", "housing_rents", "housing_repairs", "parking")
    jdbc.sql("CREATE DATABASE IF NOT EXISTS landing")
    for name in names:
        jdbc.sql(
            f"CREATE TABLE landing.{name} (id BIGINT, import_year STRING, import_month STRING, import_day STRING, "
            "import_date STRING) USING parquet "
            f"PARTITIONED BY (import_year, import_month, import_day, import_date) LOCATION '{folder / name}'"
        )
        put(folder / name, "15", 1)
    put(folder / "housing_people", "16", 2)
    (folder / "housing_rents" / "stray.parquet").write_bytes(b"x")
    yield folder
    for name in names:
        jdbc.sql(f"DROP TABLE landing.{name}")


def put(table: Path, day: str, rows: int) -> None:
    folder = table / DAY.format(day)
    folder.mkdir(parents=True)
    pd.DataFrame({"id": range(rows)}).to_parquet(folder / "1.parquet")


def rows_by_day(target: str) -> dict[str, int]:
    found = pd.read_parquet(target)["import_date"].astype("string").value_counts()
    return {str(day): int(count) for day, count in found.items()}


@pytest.fixture(scope="module")
def clock() -> Clock:
    """Return a clock at half an hour before midnight in London, so that a replay on the next day must keep its day."""
    clock = Clock()
    clock.now = clock.now.replace(hour=23, minute=30)
    return clock


@pytest.fixture(scope="module")
def names(jdbc: Any, postgres: PostgresServer, landing: Path, lake: Path, clock: Clock) -> Iterator[dict[str, Any]]:
    """Run the page; return its names: those of a landing zone, a database and a sink that merges, and its own.

    The tests go on from there, each with tables of its own.
    """
    watermarks = Watermarks(f"sqlite:{lake}/watermarks.db", clock=clock)
    watermarks.create_table()
    stamped = "last_modified timestamptz"
    tables = {
        "tenancies": f"id bigint PRIMARY KEY, {stamped}",
        "arrears": f"id bigint PRIMARY KEY, {stamped}",
        "streets": "id bigint PRIMARY KEY, name text",
        "inspections": f"id bigint PRIMARY KEY, building bigint, {stamped}",
        "buildings": f"building bigint PRIMARY KEY, name text, {stamped}",
        "joined": "id bigint PRIMARY KEY, building bigint, name text, inspections_modified timestamptz, "
        "buildings_modified timestamptz",
    }
    postgres.sql(*(f"CREATE TABLE public.{name} ({columns})" for name, columns in tables.items()))
    two = "(1, '2026-01-01 12:00Z'), (2, '2026-01-02 12:00Z')"
    postgres.sql(
        f"INSERT INTO public.tenancies VALUES {two}",
        f"INSERT INTO public.arrears VALUES {two}, (3, NULL)",
        "INSERT INTO public.streets VALUES (1, 'Mare Street'), (2, 'Well Street')",
        "INSERT INTO public.inspections VALUES (1, 10, '2026-01-01 12:00Z'), (2, 20, '2026-01-02 12:00Z')",
        "INSERT INTO public.buildings VALUES (10, 'Library', '2026-01-01 12:00Z'), (30, 'Pool', '2026-01-03 12:00Z')",
    )
    names = {
        "spark": jdbc, "watermarks": watermarks, "lake": str(lake), "url": postgres.url,
        "login": postgres.properties,
        "sink": DatabaseSink("public.joined", spark=jdbc, url=postgres.url, properties=postgres.properties),
    }  # fmt: skip
    assert run_page("lake-jobs.md", names) == 6
    yield names
    # Drop the batches, too: a later table of the same name must not find them.
    postgres.sql(*(f"DROP TABLE public.{name}" for name in [*tables, "glue_watermarks_batches"]))


def test_tables_are_loaded_beside_one_that_fails_when_the_page_is_followed(
    names: dict[str, Any], postgres: PostgresServer, landing: Path, clock: Clock
) -> None:
    lake, started = names["lake"], clock.now

    assert names["exit_code"] == 1
    assert [line["rows"] for line in names["report"]] == [3, 0, 1, 2, 0, 2, 1]
    assert rows_by_day(f"{lake}/raw/housing_people") == {"20260315": 1, "20260316": 2}
    assert rows_by_day(f"{lake}/raw/tenancies") == rows_by_day(f"{lake}/raw/streets") == {"20260316": 2}
    (kept,) = Path(lake, "raw/ingestion_details").glob("part-*")
    assert [json.loads(line)["table"] for line in kept.read_text().splitlines()] == [
        "housing_people", "housing_rents", "housing_repairs", "tenancies", "arrears", "streets", "inspections",
    ]  # fmt: skip

    # The causes are fixed and late files of old dates arrive. A new batch fails on a target with a foreign file.
    postgres.sql(
        "DELETE FROM public.arrears WHERE id = 3",
        "UPDATE public.tenancies SET last_modified = now() - interval '1 hour'",
    )
    (landing / "housing_rents" / "stray.parquet").unlink()
    put(landing / "housing_people", "01", 4)
    foreign = Path(lake, "raw/arrears/foreign.csv")
    foreign.parent.mkdir(parents=True)
    foreign.write_text("x")
    again = names["load_each"](["arrears"], names["ingest_table"])
    assert again[0]["error"].startswith("TargetError: ")
    assert "'foreign.csv', which no job of this package wrote" in again[0]["error"]
    foreign.unlink()
    clock.move(days=1)
    copied = names["load_each"](names["chosen"], names["copy_table"])
    ingested = names["load_each"](["tenancies", "arrears", "streets"], names["ingest_table"])

    assert [(line["rows"], line["error"]) for line in copied] == [(4, None), (1, None), (0, None)]
    assert [(line["rows"], line["error"]) for line in ingested] == [(2, None), (2, None), (2, None)]
    assert rows_by_day(f"{lake}/raw/housing_people") == {"20260301": 4, "20260315": 1, "20260316": 2}
    assert rows_by_day(f"{lake}/raw/arrears") == {"20260316": 2}
    assert rows_by_day(f"{lake}/raw/tenancies") == {"20260316": 2, "20260317": 2}
    assert set(pd.read_parquet(f"{lake}/raw/arrears")["import_timestamp"]) == {str(started.timestamp())}


def test_joined_table_has_each_pair_when_its_halves_arrive_in_different_runs(
    names: dict[str, Any], postgres: PostgresServer
) -> None:
    # The building of inspection 2 and the row of inspection 3 arrive late; building 10 has been renamed.
    postgres.sql(
        "INSERT INTO public.inspections VALUES (3, 30, '2026-01-04 12:00Z'), (4, 40, '2026-01-04 12:00Z')",
        "INSERT INTO public.buildings VALUES (20, 'School', '2026-01-04 12:00Z'), (40, 'Hall', '2026-01-04 12:00Z')",
        "UPDATE public.buildings SET name = 'Museum', last_modified = '2026-01-05 12:00Z' WHERE building = 10",
    )

    names["load_each"](["inspections"], names["join_table"])

    whole = postgres.sql(
        "SELECT id, building, name, i.last_modified, b.last_modified "
        "FROM public.inspections i JOIN public.buildings b USING (building) ORDER BY id"
    )
    assert [row[0] for row in whole] == [1, 2, 3, 4]
    assert postgres.sql("SELECT * FROM public.joined ORDER BY id") == whole
