"""The job of docs/sinks.md, with the sink of docs/protocol.md."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from scripts.helpers.protocol.names import BatchId
from scripts.helpers.watermarks import Watermarks
from tests.docs.pages import fences, run_page


def recipe() -> dict[str, Any]:
    """Return the names of the page's code for Delta."""
    [sink] = [text for language, text in fences("protocol.md") if language == "python" and "def write_to_delta" in text]
    names: dict[str, Any] = {}
    exec(compile(sink, "protocol.md", "exec"), names)
    return names


def test_batch_is_there_once_when_the_page_is_followed_again(watermarks: Watermarks, tmp_path: Path) -> None:
    now = datetime.now(timezone.utc)
    stamps = [now - timedelta(hours=hours) for hours in (2, 1)]
    names: dict[str, Any] = {"watermarks": watermarks, "lake": str(tmp_path)}
    names["repairs"] = pd.DataFrame({"id": [1, 2], "last_modified": stamps})
    names["parts"] = pd.DataFrame({"id": [1, 2], "import_date": ["2026-11-22", "2026-11-23"]})
    names |= recipe()

    found = run_page("sinks.md", names)
    names["write_to_delta"](f"{tmp_path}/repairs", names["pa"].table({"id": [3]}), names["batch_id"])

    assert found == 3
    assert {path.parent.name for path in (tmp_path / "parts").rglob("part-*")} == {
        "import_date=2026-11-22",
        "import_date=2026-11-23",
    }
    assert [path.read_bytes() for path in (tmp_path / "bays").iterdir()] == [b"id\n1\n2\n3\n"]
    assert watermarks.latest("bays").unpublished == ()
    assert sorted(DeltaTable(f"{tmp_path}/repairs").to_pyarrow_table()["id"].to_pylist()) == [1, 2]
    assert watermarks.latest("repairs").version == names["batch_id"].version == 1


@pytest.mark.parametrize("batch", [1, 2], ids=["first-of-the-table", "later"])
def test_batch_is_there_once_when_another_attempt_writes_between_the_look_and_the_append(
    tmp_path: Path, batch: int
) -> None:
    names = recipe()
    path, write = str(tmp_path / "repairs"), names["write_to_delta"]
    for version in range(1, batch):
        write(path, pa.table({"id": [version]}), BatchId("repairs", "e1", version))
    others = [pa.table({"id": [batch]})]
    looked_at = "is_deltatable" if batch == 1 else "transaction_version"

    class Overtaken(DeltaTable):
        """Lets the other attempt write right after this one has looked."""

        @classmethod
        def is_deltatable(cls, path: str) -> bool:  # type: ignore[override]
            return overtake("is_deltatable", DeltaTable.is_deltatable(path))

        def transaction_version(self, app_id: str) -> int | None:
            return overtake("transaction_version", super().transaction_version(app_id))

    def overtake(call: str, found: Any) -> Any:
        if call == looked_at and others:
            recipe()["write_to_delta"](path, others.pop(), BatchId("repairs", "e1", batch))
        return found

    names["DeltaTable"] = Overtaken
    write(path, pa.table({"id": [batch]}), BatchId("repairs", "e1", batch))

    assert others == []
    assert sorted(DeltaTable(path).to_pyarrow_table()["id"].to_pylist()) == list(range(1, batch + 1))
