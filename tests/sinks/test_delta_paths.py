"""Without Spark, a Delta table is in the folder that was named, whatever characters its name has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from scripts.helpers.protocol.names import BatchId
from scripts.helpers.sinks.delta import DeltaSink
from scripts.helpers.sinks.merging import Merge
from scripts.helpers.sinks.targets import target_rows
from tests.support.staging import staged_by
from tests.support.written import EPOCH, JOB

NAMES = ["a#1", "a#2", "a?x", "a b", "a%b", "a%", "a+b", "ä", "a'b", "a&b=c", "a:b"]
"""Folders, in the order in which they are made: none may be taken for one before it."""
UNFIT = ["a%20b", "a[1]", "a|b", "a^b", "a\\b"]


def publish(target: str, rows: dict[str, Any], merge: Merge | None = None, **options: Any) -> None:
    sink = DeltaSink(target, merge=merge, **options)
    for version in (1, 2):
        sink.publish(staged_by(sink, BatchId(JOB, EPOCH, version), 1, pd.DataFrame(rows)))


def test_rows_are_in_the_named_folder_when_its_name_has_signs_of_a_url(tmp_path: Path) -> None:
    for number, name in enumerate(NAMES):
        publish(str(tmp_path / name), {"id": [number]})

    assert sorted(path.name for path in tmp_path.iterdir() if (path / "_delta_log").is_dir()) == sorted(NAMES)
    for number, name in enumerate(NAMES):
        found = [pd.read_parquet(path, engine="pyarrow")["id"] for path in (tmp_path / name).glob("*.parquet")]
        assert [list(ids) for ids in found] == [[number], [number]]
        assert target_rows(str(tmp_path / name), "delta", None, None).columns(["id"], False)


def test_deletes_are_remembered_beside_the_named_folder_when_its_name_has_signs_of_a_url(tmp_path: Path) -> None:
    publish(str(tmp_path / "m#1"), {"id": [1, 2], "at": [1, 1]}, Merge.of("id", "at"))

    assert sorted(path.name for path in tmp_path.iterdir() if (path / "_delta_log").is_dir()) == ["_m#1.deleted", "m#1"]
