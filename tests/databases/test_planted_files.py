"""A SQLite file with altered bytes and values, as the package's table and as a source: errors are typed."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.databases.sql_table import SqlTable
from scripts.helpers.errors import WatermarkError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks
from tests.support.long import cases
from tests.support.planted import altered_bytes
from tests.support.steps import commit

FEW = 30
ROWS = 200
VALUES = [
    "NULL", "x'ff00'", "CAST(x'ff80' AS text)", "1e999", "-9223372036854775808", "1.5", "'2026-13-45'", "char(0)",
    "'99999-01-01'", "'NaN'", "zeroblob(100)", "1767225600000",
]  # fmt: skip
DOORS: list[Callable[[Watermarks, str], Any]] = [
    lambda watermarks, _: watermarks.exists(),
    lambda watermarks, _: list(watermarks.list_jobs()),
    lambda watermarks, job: watermarks.latest(job),
    lambda watermarks, job: list(watermarks.history(job)),
    lambda watermarks, job: watermarks.doctor(job, repair=True),
    lambda watermarks, job: commit(watermarks, job, "jr_9", {"n": 9}),
    lambda watermarks, job: watermarks.rewind(job, to_version=1, why="a test"),
]


def ids_read(watermarks: Watermarks, shop: Path, job_id: str) -> list[int]:
    """Return the ids that a job reads from a SQLite source."""
    with IncrementalJob(watermarks, job_id) as job:
        rows = job.rows_since(SqlTable(f"sqlite:{shop}", "repairs", zone="UTC"), "id", delay=timedelta(0))
        return sorted(rows.read_all()["id"].to_pylist())


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Return a SQLite source whose rows take several pages."""
    with closing(sqlite3.connect(tmp_path / "shop.db")) as there:
        there.executescript("CREATE TABLE repairs (id integer PRIMARY KEY, price numeric(12,2), note text, day date)")
        rows = ((number, number / 4, "n" * 100, "2026-01-01") for number in range(ROWS))
        there.executemany("INSERT INTO repairs VALUES (?, ?, ?, ?)", rows)
        there.commit()
    return tmp_path / "shop.db"


def test_errors_are_typed_when_bytes_of_a_table_in_a_file_are_altered(tmp_path: Path) -> None:
    made = Watermarks(f"sqlite:{tmp_path}/made.db")
    made.create_table()
    for number in range(3):
        commit(made, "job", f"jr_{number}", {"n": number, "text": "x" * 9_000})
        commit(made, "other", f"jr_{number}", {"n": number})
    with closing(sqlite3.connect(tmp_path / "made.db")) as there:
        there.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole = (tmp_path / "made.db").read_bytes()

    for number in range(cases(FEW, long=600)):
        path = tmp_path / f"{number}.db"
        path.write_bytes(altered_bytes(whole, random.Random(number)))
        watermarks = Watermarks(f"sqlite:{path}")
        watermarks.store.sleep = lambda _: None
        for door in DOORS:
            for job_id in ("job", "other"):
                with suppress(WatermarkError):
                    door(watermarks, job_id)


def test_errors_are_typed_when_bytes_of_a_source_are_altered(
    watermarks: Watermarks, shop: Path, tmp_path: Path
) -> None:
    whole = shop.read_bytes()

    for number in range(cases(FEW, long=600)):
        path = tmp_path / f"{number}.db"
        path.write_bytes(altered_bytes(whole, random.Random(number)))
        with suppress(WatermarkError):
            ids_read(watermarks, path, f"job-{number}")


@pytest.mark.parametrize("column", ["price", "note", "day"])
def test_all_rows_are_read_or_none_when_another_program_wrote_a_value_of_a_source(
    watermarks: Watermarks, shop: Path, column: str
) -> None:
    for number, value in enumerate(VALUES):
        with closing(sqlite3.connect(shop)) as there:
            there.execute(f"UPDATE repairs SET {column} = {value} WHERE id = 7")
            there.commit()
        try:
            found = ids_read(watermarks, shop, f"job-{number}")
        except WatermarkError:
            assert watermarks.latest(f"job-{number}").version == 0
        else:
            assert found == list(range(ROWS))
