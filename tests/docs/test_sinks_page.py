"""The job of docs/sinks.md writes each batch once."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pandas as pd
from deltalake import DeltaTable
from pyarrow.parquet import read_table

from scripts.helpers.watermarks import Watermarks
from tests.docs.pages import run_page


def test_batch_is_there_once_when_the_page_is_followed_again(watermarks: Watermarks, tmp_path: Path) -> None:
    names: dict[str, Any] = {"watermarks": watermarks, "lake": str(tmp_path), "shop": str(tmp_path / "shop.db")}
    names["parts"] = pd.DataFrame({"id": [1, 2], "import_date": ["2026-11-22", "2026-11-23"]})
    shop = sqlite3.connect(names["shop"])
    shop.execute("CREATE TABLE parts (id integer, import_date text)")
    shop.commit()

    found = run_page("sinks.md", names)

    assert found == 1
    assert shop.execute("SELECT id FROM parts ORDER BY id").fetchall() == [(1,), (2,)]
    shop.close()
    assert sorted(
        (path.parent.name, *read_table(path)["id"].to_pylist()) for path in (tmp_path / "files").rglob("part-*")
    ) == [("import_date=2026-11-22", 1), ("import_date=2026-11-23", 2)]
    table = DeltaTable(f"{tmp_path}/table")
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [1, 2]
    assert table.metadata().partition_columns == ["import_date"]
    assert watermarks.latest("parts").version == 1
    assert watermarks.latest("parts").unpublished == ()
