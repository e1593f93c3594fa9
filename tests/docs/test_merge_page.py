"""The jobs of docs/merge.md leave the tables that the page describes."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pandas as pd
from deltalake import DeltaTable

from scripts.helpers.watermarks import Watermarks
from tests.docs.pages import run_page


def test_table_is_that_of_the_page_when_its_jobs_are_run(watermarks: Watermarks, tmp_path: Path) -> None:
    now = datetime.now(timezone.utc)
    repairs = pd.DataFrame(
        {"id": [1, 2, 1, 2], "status": ["open", "open", "done", "deleted"], "changed": ["1", "2", "3", "4"]}
    )
    repairs["last_modified"] = [now - timedelta(hours=hours) for hours in (4, 3, 2, 1)]
    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.execute("CREATE TABLE repairs (id integer PRIMARY KEY, status text, changed text NOT NULL)")
    connection.execute(
        "CREATE TABLE repair_history (id integer, status text, changed text, valid_from text, valid_to text)"
    )
    connection.commit()
    names: dict[str, Any] = {"watermarks": watermarks, "repairs": repairs, "lookback": timedelta(hours=9)}
    names |= {"connect": lambda: sqlite3.connect(tmp_path / "shop.db"), "lake": str(tmp_path)}

    found = run_page("merge.md", names)

    assert found == 1
    assert DeltaTable(f"{tmp_path}/repairs").to_pyarrow_table().to_pylist() == [
        {"id": 1, "status": "done", "changed": "3"}
    ]
    assert connection.execute("SELECT * FROM repairs").fetchall() == [(1, "done", "3")]
    assert connection.execute("SELECT * FROM glue_watermarks_deleted_repairs").fetchall() == [(2, "4")]
    assert sorted(connection.execute("SELECT id, valid_from, valid_to FROM repair_history")) == [
        (1, "1", "3"),
        (1, "3", None),
        (2, "2", "4"),
        (2, "4", None),
    ]
    connection.close()
