"""The sinks of docs/protocol.md run as they are on the page: a batch that is written twice exists once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from scripts.helpers.sinks import DeltaSink, IcebergSink
from scripts.helpers.watermarks import Watermarks
from tests.support.components import missing_component
from tests.support.places import REPOSITORY

PAGE = (REPOSITORY / "docs" / "protocol.md").read_text()
ROWS = pa.table({"id": [1, 2]})


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """Return what the page's examples define."""
    names: dict[str, Any] = {}
    try:
        for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
            exec(compile(block, "protocol.md", "exec"), names)
    except ImportError as error:
        missing_component(str(error.name), "make test, which installs it")
    return names


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_table_has_a_batch_once_when_the_loop_of_the_page_writes_it(
    page: dict[str, Any], watermarks: Watermarks, tmp_path: Path, kind: str
) -> None:
    sink: Any = DeltaSink(f"{tmp_path}/repairs")
    if kind == "iceberg":
        catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
        catalog.create_namespace("raw")
        sink = IcebergSink("lake.raw.repairs", catalog=catalog)
    for run_id in ("jr_1", "jr_2"):
        run = watermarks.begin("repairs", run_id)
        run.freeze({"rows": {}}, {"rows": {}})
        page["write_and_commit"](run, sink, ROWS)
    head = watermarks.latest("repairs")
    (last,) = watermarks.history("repairs")[0].change.outputs
    sink.publish(last)

    if kind == "iceberg":
        found = catalog.load_table("raw.repairs").scan().to_arrow()
    else:
        found = DeltaTable(f"{tmp_path}/repairs").to_pyarrow_table()
    assert (sorted(found["id"].to_pylist()), head.unpublished) == ([1, 1, 2, 2], ())


def test_diagram_names_every_transition_when_compared_with_the_records() -> None:
    diagram = re.search(r"```mermaid\n(.*?)```", PAGE, re.DOTALL)

    assert diagram is not None
    for verb in ("first run", "begin", "freeze", "commit", "abort", "rewind", "reset", "set", "discard_plan"):
        assert verb in diagram.group(1)
