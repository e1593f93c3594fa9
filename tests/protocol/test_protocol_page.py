"""The sinks of docs/protocol.md, run as they stand: a batch that is written twice is there once."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from scripts.helpers.protocol.names import BatchId
from tests.conftest import REPOSITORY, missing_component

PAGE = (REPOSITORY / "docs" / "protocol.md").read_text()
ROWS = pa.table({"id": [1, 2]})
FIRST, SECOND = BatchId("repairs", "e1f00ba42", 1), BatchId("repairs", "e1f00ba42", 2)


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """Return what the page's examples define."""
    names: dict[str, Any] = {}
    try:
        for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
            exec(compile(block, "protocol.md", "exec"), names)
    except ImportError as error:
        missing_component(str(error.name), "pip install 'glue-watermarks[test]'")
    return names


def test_delta_takes_a_batch_once_when_it_is_written_again(page: dict[str, Any], tmp_path: Path) -> None:
    for batch_id in (FIRST, FIRST, SECOND, FIRST):
        page["write_to_delta"](str(tmp_path), ROWS, batch_id)

    assert page["DeltaTable"](str(tmp_path)).to_pyarrow_table().num_rows == 4


def test_delta_takes_a_lower_version_when_the_epoch_is_new(page: dict[str, Any], tmp_path: Path) -> None:
    for batch_id in (SECOND, BatchId("repairs", "e2", 1)):
        page["write_to_delta"](str(tmp_path), ROWS, batch_id)

    assert page["DeltaTable"](str(tmp_path)).to_pyarrow_table().num_rows == 4


def test_iceberg_takes_a_batch_once_when_it_is_written_again(page: dict[str, Any], tmp_path: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("raw")
    schema = ROWS.schema.append(pa.field("batch_id", pa.string()))
    table = catalog.create_table("raw.repairs", schema=schema)

    for batch_id in (FIRST, FIRST, SECOND, FIRST):
        page["write_to_iceberg"](table, ROWS, batch_id)

    found = table.scan().to_arrow()
    assert sorted(zip(found["batch_id"].to_pylist(), found["id"].to_pylist(), strict=True)) == [
        (str(batch_id), number) for batch_id in (FIRST, SECOND) for number in (1, 2)
    ]


@pytest.fixture
def connection() -> sqlite3.Connection:
    made = sqlite3.connect(":memory:")
    made.execute("CREATE TABLE repairs (id INTEGER PRIMARY KEY, status TEXT, last_modified TEXT)")
    return made


OLD, NEW = (1, "open", "2026-03-01"), (1, "done", "2026-03-02")


def test_database_keeps_the_newer_row_when_a_late_run_writes_the_older(
    page: dict[str, Any], connection: sqlite3.Connection
) -> None:
    for row in (OLD, NEW, OLD):
        page["write_to_database"](connection, [row])

    assert connection.execute("SELECT * FROM repairs").fetchall() == [NEW]


def test_database_goes_back_when_the_guard_is_left_out(page: dict[str, Any], connection: sqlite3.Connection) -> None:
    unguarded = page["UPSERT"].rpartition("WHERE")[0]

    for row in (OLD, NEW, OLD):
        connection.execute(unguarded, row)

    assert connection.execute("SELECT * FROM repairs").fetchall() == [OLD]


def test_diagram_names_every_transition_when_compared_with_the_records() -> None:
    diagram = re.search(r"```mermaid\n(.*?)```", PAGE, re.DOTALL)

    assert diagram is not None
    for verb in ("first run", "begin", "freeze", "commit", "abort", "rewind", "reset", "set", "discard_plan"):
        assert verb in diagram.group(1)
