"""The jobs of docs/sinks.md."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pandas as pd
from deltalake import DeltaTable
from pyarrow.parquet import read_table

from scripts.helpers.watermarks import Watermarks
from tests.docs.pages import run_page


def test_batch_is_there_once_when_the_page_is_followed_again(watermarks: Watermarks, tmp_path: Path) -> None:
    now = datetime.now(timezone.utc)
    stamps = [now - timedelta(hours=hours) for hours in (2, 1)]
    names: dict[str, Any] = {"watermarks": watermarks, "lake": str(tmp_path)}
    names["repairs"] = pd.DataFrame({"id": [1, 2], "last_modified": stamps})
    names["parts"] = pd.DataFrame({"id": [1, 2], "import_date": ["2026-11-22", "2026-11-23"]})
    names["shifts"] = names["parts"]
    names["bookings"], names["shop"] = pd.DataFrame({"id": [1, 2]}), str(tmp_path / "shop.db")
    shop = sqlite3.connect(names["shop"])
    shop.execute("CREATE TABLE bookings (id integer)")
    shop.commit()

    found = run_page("sinks.md", names)

    assert found == 5
    assert shop.execute("SELECT id FROM bookings ORDER BY id").fetchall() == [(1,), (2,)]
    shop.close()
    assert {path.parent.name for path in (tmp_path / "parts").rglob("part-*")} == {
        "import_date=2026-11-22",
        "import_date=2026-11-23",
    }
    assert [read_table(path).to_pydict() for path in (tmp_path / "bays").rglob("part-*")] == [{"id": [1, 2, 3]}]
    assert watermarks.latest("bays").unpublished == ()
    assert sorted(DeltaTable(f"{tmp_path}/repairs").to_pyarrow_table()["id"].to_pylist()) == [1, 2]
    assert DeltaTable(f"{tmp_path}/shifts").metadata().partition_columns == ["import_date"]
    assert watermarks.latest("repairs").version == watermarks.latest("shifts").version == 1
