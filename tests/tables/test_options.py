"""Options of a table that is read by its versions: each wrong value, and the calls that do not accept a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from scripts.helpers.backfill import Backfill
from scripts.helpers.errors import InvalidValueError, WatermarkError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.tables import DeltaTable, IcebergTable, TableOptions
from scripts.helpers.watermarks import Watermarks
from tests.support.reasons import because
from tests.support.versioned_tables import DeltaByHand

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"changes": "all"}, "changes"),
    ({"changes": None}, "changes"),
    ({"changes": True}, "changes"),
    ({"on_overwrite": "ignore"}, "on_overwrite"),
    ({"on_overwrite": "take"}, "on_overwrite"),
    ({"on_overwrite": "skip", "changes": "feed"}, "on_overwrite"),
    ({"on_loss": "skip"}, "on_loss"),
    ({"on_loss": "take"}, "on_loss"),
    ({"on_loss": "take", "write_disposition": "append"}, "on_loss"),
    ({"on_loss": 1}, "on_loss"),
    ({"on_loss": ["raise"]}, "on_loss"),
    ({"write_disposition": "upsert"}, "write_disposition"),
    ({"max_versions": 0}, "max_versions"),
    ({"max_versions": -1}, "max_versions"),
    ({"max_versions": True}, "max_versions"),
    ({"max_versions": 1.5}, "max_versions"),
    ({"max_versions": "2"}, "max_versions"),
    ({"start_from": "yesterday"}, "start_from"),
    ({"start_from": -1}, "start_from"),
    ({"start_from": True}, "start_from"),
    ({"start_from": 1.0}, "start_from"),
    ({"max_rows": 10}, "max_rows"),
    ({"delay": None}, "delay"),
    ({"nulls": "take"}, "nulls"),
    ({"changed": "feed"}, "changed"),
]


@pytest.mark.parametrize(("options", "named"), WRONG)
def test_error_names_the_option_when_its_value_makes_no_sense(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidValueError, check=because("option")) as raised:
        TableOptions.of(options)

    assert raised.value.option == named


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, "changes=append start_from=everything max_versions=all on_overwrite=raise"),
        ({"start_from": "now", "changes": "feed"}, "changes=feed start_from=now max_versions=all on_overwrite=raise"),
        # The log does not show a commit number, because it is a value of a watermark.
        ({"start_from": 0, "max_versions": 2, "on_overwrite": "skip"},
         "changes=append start_from=given max_versions=2 on_overwrite=skip"),
    ],
)  # fmt: skip
def test_log_shows_options_without_the_commit_to_start_from(options: dict[str, Any], shown: str) -> None:
    text = str(TableOptions.of(options))

    assert text == f"{shown} on_loss=raise write_disposition=append"


@pytest.mark.parametrize(
    "make",
    [
        lambda: DeltaTable("sales"),
        lambda: DeltaTable(""),
        lambda: DeltaTable("gs://lake/sales"),
        lambda: DeltaTable("/lake/sales", returns="polars"),  # type: ignore[arg-type]
        lambda: IcebergTable("raw.sales"),
        lambda: IcebergTable("lake..sales"),
        lambda: IcebergTable("s3://lake/raw.sales.x"),
        lambda: IcebergTable("lake.raw.sales", catalog=type("Other", (), {"name": "other"})()),
        lambda: IcebergTable("nobody.raw.sales").head(),
    ],
)
def test_source_is_refused_when_it_names_no_table(make: Any) -> None:
    with pytest.raises(InvalidValueError):
        make()


def test_column_is_refused_for_a_table_and_required_for_a_frame_when_rows_are_asked_for(
    watermarks: Watermarks, tmp_path: Path
) -> None:
    frame = pd.DataFrame({"id": [1]})
    with (
        pytest.raises(InvalidValueError, check=because("option"), match=r"^Option 'cursor_column': .* Leave it out"),
        IncrementalJob(watermarks, "sales") as job,
    ):
        job.rows_since(DeltaByHand(tmp_path).source(), "id")
    with (
        pytest.raises(InvalidValueError, check=because("option"), match=r"^Option 'cursor_column': .* Name it"),
        IncrementalJob(watermarks, "sales") as job,
    ):
        job.rows_since(frame)


def test_calls_for_cursors_are_refused_when_a_context_reads_a_table(watermarks: Watermarks, tmp_path: Path) -> None:
    table = DeltaByHand(tmp_path)
    with IncrementalJob(watermarks, "sales") as job:
        job.rows_since(table.source())

    refused = []
    for ask in (
        lambda: watermarks.gaps("sales", "rows"),
        lambda: watermarks.coverage("sales", "rows"),
        lambda: watermarks.complete_up_to("sales", "rows"),
        lambda: Backfill(watermarks, "sales", low=None, high=5).__enter__(),
    ):
        with pytest.raises(WatermarkError) as raised:
            ask()
        refused.append(raised.value.kind)
        assert "of kind 'table'" in str(raised.value)
    with IncrementalJob(watermarks, "by id") as job:
        job.rows_since(pd.DataFrame({"id": [1, 2, 3]}), "id", start_from=3)
    with (
        pytest.raises(InvalidValueError, check=because("option"), match="mode='pause'"),
        Backfill(watermarks, "by id", low=None, high=3) as past,
    ):
        past.rows(table.source(), "id")

    assert refused == ["NothingThereError[no_cursor]"] * 4
