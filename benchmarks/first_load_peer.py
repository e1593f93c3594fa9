"""A first load of a PostgreSQL table to Parquet by a tool that does not use Spark.

Runs in a Python with the tools. Prints one line of JSON.

    python -m benchmarks.first_load_peer adbc postgresql://user@127.0.0.1:5432/postgres loaded_1000000 1000000 folder
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

PARTS = 2
"""Parallel parts of a load: one per core, as many as Spark runs at once."""


def with_connectorx(url: str, table: str, rows: int, folder: str) -> None:
    """Read two ranges of ids in parallel, as ConnectorX's documentation shows, and write the result."""
    import connectorx

    found = connectorx.read_sql(
        url, f"SELECT * FROM {table}", partition_on="id", partition_num=PARTS, return_type="arrow"
    )
    pq.write_table(found, f"{folder}/0.parquet", compression="snappy")


def with_adbc(url: str, table: str, rows: int, folder: str) -> None:
    """Copy two ranges of ids in parallel, batch by batch, each with its connection: one connection runs one query."""
    from adbc_driver_postgresql import dbapi

    def load(part: int) -> None:
        low, high = part * rows // PARTS, (part + 1) * rows // PARTS
        with dbapi.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table} WHERE id > {low} AND id <= {high}")
            batches: pa.RecordBatchReader = cursor.fetch_record_batch()
            with pq.ParquetWriter(f"{folder}/{part}.parquet", batches.schema, compression="snappy") as writer:
                for batch in batches:
                    writer.write_batch(batch)

    with ThreadPoolExecutor(PARTS) as pool:
        list(pool.map(load, range(PARTS)))


def with_dlt(url: str, table: str, rows: int, folder: str) -> None:
    """Load with dlt's `incremental` and its pyarrow backend, instead of Python rows."""
    import dlt
    from dlt.sources.sql_database import sql_table

    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
    pipeline = dlt.pipeline(
        table, pipelines_dir=f"{folder}-state", dataset_name="raw",
        destination=dlt.destinations.filesystem(f"file://{os.path.abspath(folder)}"),
    )  # fmt: skip
    source = sql_table(
        credentials=url.replace("postgresql:", "postgresql+psycopg2:"), table=table, backend="pyarrow",
        chunk_size=100_000, incremental=dlt.sources.incremental("last_modified"),
    )  # fmt: skip
    pipeline.run(source, loader_file_format="parquet")


TOOLS: dict[str, Callable[[str, str, int, str], None]] = {
    "connectorx": with_connectorx,
    "adbc": with_adbc,
    "dlt": with_dlt,
}

MODULES = {
    "connectorx": ["connectorx"],
    "adbc": ["adbc_driver_postgresql.dbapi"],
    "dlt": ["dlt", "dlt.sources.sql_database", "psycopg2"],
}
"""Modules of each tool, imported before the measurement starts."""


def main() -> None:
    """Load the table with one tool; print how long it took and how many rows were written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", choices=list(TOOLS))
    parser.add_argument("url")
    parser.add_argument("table")
    parser.add_argument("rows", type=int, help="ids are from 1 to this number")
    parser.add_argument("folder", help="an empty one, where the output goes")
    given = parser.parse_args()
    for module in MODULES[given.tool]:
        importlib.import_module(module)
    started = time.perf_counter()
    TOOLS[given.tool](given.url, given.table, given.rows, given.folder)
    seconds = time.perf_counter() - started
    # Leave out dlt's internal tables, whose names begin with _dlt.
    written = [path for path in Path(given.folder).rglob("*.parquet") if "_dlt" not in str(path)]
    counted = sum(pq.ParquetFile(path).metadata.num_rows for path in written)
    sys.stdout.write(json.dumps({"seconds": seconds, "rows": counted}) + "\n")


if __name__ == "__main__":
    main()
