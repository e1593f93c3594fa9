"""The jobs of docs/batches.md: what goes wrong over two runs, and what to do instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scripts.helpers.sinks import DatabaseSink
from scripts.helpers.watermarks import Watermarks
from tests.docs.pages import run_page
from tests.support.databases import PostgresServer


def test_totals_are_those_of_the_whole_source_when_the_page_is_followed(
    jdbc: Any, postgres: PostgresServer, tmp_path: Path
) -> None:
    postgres.sql("CREATE TABLE public.day_totals (day text PRIMARY KEY, total bigint, computed_at timestamptz)")
    sink = DatabaseSink("public.day_totals", spark=jdbc, url=postgres.url, properties=postgres.properties)
    # By the clock of this machine: runs of one moment would compute two totals at the same time.
    watermarks = Watermarks(f"sqlite:{tmp_path}/watermarks.db")
    watermarks.create_table()
    names = {"spark": jdbc, "watermarks": watermarks, "lake": str(tmp_path), "sink": sink}

    try:
        found = run_page("batches.md", names)

        assert found == 5
        assert postgres.sql("SELECT day, total FROM public.day_totals ORDER BY day") == [("mon", 25), ("tue", 1)]
    finally:
        # Another table of that name has no batch of this one.
        postgres.sql("DROP TABLE public.day_totals, public.glue_watermarks_batches")
