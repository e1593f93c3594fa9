"""dlt's `incremental` on a PostgreSQL table: loads the rows past the largest cursor value in its state, to Parquet.

Runs in a Python with dlt and SQLAlchemy. Prints one line of JSON.

    python -m benchmarks.dlt_rows postgresql://user@127.0.0.1:5432/postgres changed_1000000 folder --backend pyarrow
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

import dlt
from dlt.sources.sql_database import sql_table

CHUNK = 100_000


def main() -> None:
    """Load the new rows, and print how long it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("table")
    parser.add_argument("folder", help="where state and output lie")
    parser.add_argument("--backend", default="sqlalchemy", choices=("sqlalchemy", "pyarrow"))
    given = parser.parse_args()
    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
    pipeline = dlt.pipeline(
        given.table, pipelines_dir=given.folder, dataset_name="raw",
        destination=dlt.destinations.filesystem(f"file://{os.path.abspath(given.folder)}/out"),
    )  # fmt: skip
    started = time.perf_counter()
    rows = sql_table(
        credentials=given.url, table=given.table, backend=given.backend, chunk_size=CHUNK,
        incremental=dlt.sources.incremental("last_modified"),
    )  # fmt: skip
    pipeline.run(rows, loader_file_format="parquet")
    seconds = time.perf_counter() - started
    counts = pipeline.last_trace.last_normalize_info.row_counts
    sys.stdout.write(json.dumps({"seconds": seconds, "rows": counts.get(given.table, 0)}) + "\n")


if __name__ == "__main__":
    main()
