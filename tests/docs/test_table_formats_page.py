"""The jobs of docs/table-formats.md run without Spark, and its table of options is complete."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from scripts.helpers.tables import TableOptions
from scripts.helpers.tables.spans import FEED_COLUMNS
from scripts.helpers.watermarks import Watermarks
from tests.docs.pages import run_page, text_of


def test_copies_are_those_of_the_page_when_its_jobs_are_run(watermarks: Watermarks, tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "price": [10, 20]})
    write_deltalake(f"{tmp_path}/sales", rows, configuration={"delta.enableChangeDataFeed": "true"})
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("raw")
    catalog.create_table("raw.stock", rows.schema).append(rows)
    names: dict[str, Any] = {
        "watermarks": watermarks, "lake": str(tmp_path), "spark": None, "catalog": catalog,
        "is_gone": lambda changes: changes["_change_order"] == 0,
    }  # fmt: skip

    found = run_page("table-formats.md", names)

    mirrored = DeltaTable(f"{tmp_path}/mirror/sales").to_pyarrow_table().select(["id", "price"])
    assert found == 2
    for copy in ("sales", "stock"):
        assert sorted(pd.read_parquet(f"{tmp_path}/copy/{copy}")["id"]) == [1, 2]
    assert sorted(mirrored.to_pylist(), key=lambda row: row["id"]) == rows.to_pylist()


def test_page_names_every_option_and_column_when_there_are_some() -> None:
    named = set(re.findall(r"`(\w+)`", text_of("table-formats.md")))

    assert {field.name for field in fields(TableOptions)} | set(FEED_COLUMNS) <= named
