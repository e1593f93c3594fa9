"""A batch that waits in one staging place is not lost when the script names another staging place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from scripts.helpers.batch.publishing import Publication
from scripts.helpers.errors import UnpublishedError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.sinks import DeltaSink, FileSink, IcebergSink
from scripts.helpers.watermarks import Watermarks
from tests.support.steps import KilledError

Run = Callable[..., list[int]]


@pytest.fixture(params=["files", "delta", "iceberg"])
def run(request: pytest.FixtureRequest, watermarks: Watermarks, tmp_path: Path) -> Run:
    """Return a function that runs the job on a source of so many rows and returns the ids at the target."""
    place = f"{tmp_path}/t"
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/lake")
    catalog.create_namespace("raw")
    sinks: dict[str, tuple[Callable[..., Any], Callable[[], Any]]] = {
        "files": (lambda **given: FileSink(place, **given), lambda: ds.dataset(place).to_table()),
        "delta": (lambda **given: DeltaSink(place, **given), lambda: DeltaTable(place).to_pyarrow_table()),
        "iceberg": (
            lambda **given: IcebergSink("lake.raw.t", catalog=catalog, **given),
            lambda: catalog.load_table("raw.t").scan().to_arrow(),
        ),
    }
    sink, held = sinks[request.param]

    def run_once(rows: int, staging: str) -> list[int]:
        source = pd.DataFrame({"id": range(1, rows + 1)})
        with IncrementalJob(watermarks, "repairs") as job:
            job.write(job.rows_since(source, "id"), sink(staging=f"{tmp_path}/{staging}"))
        return sorted(held()["id"].to_pylist())

    return run_once


def test_run_stops_and_names_the_place_when_a_batch_waits_in_another_staging_place(
    run: Run, watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> None:
        raise KilledError

    run(2, "a")
    with monkeypatch.context() as killed, pytest.raises(KilledError):
        killed.setattr(Publication, "publish", die)
        run(4, "a")

    with pytest.raises(UnpublishedError, match="version 2") as caught:
        run(6, "b")

    assert "/a'" in str(caught.value.__cause__)
    assert [output.version for output in watermarks.latest("repairs").unpublished] == [2]
    assert run(6, "a") == [1, 2, 3, 4, 5, 6]
    assert run(8, "b") == [1, 2, 3, 4, 5, 6, 7, 8]
