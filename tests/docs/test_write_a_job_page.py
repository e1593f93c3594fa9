"""The jobs of docs/write-a-job.md: what goes wrong over two runs, what to do instead, and the modes of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from scripts.helpers.sinks import DatabaseSink
from scripts.helpers.watermarks import Watermarks
from tests.docs.pages import run_page
from tests.support.databases import PostgresServer


def test_examples_of_the_page_work_when_run_in_order(jdbc: Any, postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.sql("CREATE TABLE public.day_totals (day text PRIMARY KEY, total bigint, computed_at timestamptz)")
    sink = DatabaseSink("public.day_totals", spark=jdbc, url=postgres.url, properties=postgres.properties)
    # Use the real clock: with a fixed one, two runs would compute their totals at the same time.
    watermarks = Watermarks(f"sqlite:{tmp_path}/watermarks.db")
    watermarks.create_table()
    (tmp_path / "landing").mkdir()

    def land(run_id: str) -> None:
        (tmp_path / "landing" / f"{run_id}.json").write_text('{"bay": "A"}\n')

    names = {"spark": jdbc, "watermarks": watermarks, "lake": str(tmp_path), "sink": sink, "land": land}

    try:
        found = run_page("write-a-job.md", names)

        assert found == 8
        assert postgres.sql("SELECT day, total FROM public.day_totals ORDER BY day") == [("mon", 4), ("tue", 1)]
        assert pd.read_parquet(tmp_path / "raw" / "bays")["bay"].tolist() == ["A", "B"]
    finally:
        # Drop the batches, too: a later table of the same name must not find them.
        postgres.sql("DROP TABLE public.day_totals, public.glue_watermarks_batches")
