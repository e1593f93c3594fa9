"""Files read by pandas whose columns change from batch to batch: each policy, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from scripts.helpers.errors import InvalidValueError, SchemaChangedError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.schemas.kept import shown_schemas
from scripts.helpers.watermarks import Watermarks

FIRST = "id,bay\n1,A\n"
NEW = "colour,ID,bay\nred,2,B\n"


class Nights:
    """Runs of one job over a folder, each of which reads what came since the last."""

    def __init__(self, folder: Path, watermarks: Watermarks) -> None:
        self.folder, self.watermarks = folder, watermarks

    def take(self, body: str, **options: Any) -> pd.DataFrame:
        if body:
            (self.folder / f"{len(list(self.folder.iterdir()))}.csv").write_text(body)
        with IncrementalJob(self.watermarks, "parking") as job:
            return job.new_files(f"{self.folder}/", transformation_ctx="files").read_pandas("csv", **options)

    @property
    def kept(self) -> dict[str, dict[str, str]]:
        return shown_schemas(self.watermarks.get_watermark_values("parking")["files"])


@pytest.fixture
def nights(tmp_path: Path, watermarks: Watermarks) -> Nights:
    return Nights(tmp_path, watermarks)


@pytest.mark.parametrize(
    ("policy", "row", "kept"),
    [
        ("add", {"id": 2, "bay": "B", "colour": "red"}, ["id", "bay", "colour"]),
        ("warn", {"id": 2, "bay": "B"}, ["id", "bay"]),
        ("take", {"colour": "red", "ID": 2, "bay": "B"}, ["colour", "ID", "bay"]),
    ],
)
def test_files_have_the_columns_of_the_policy_when_they_changed(
    nights: Nights, policy: str, row: dict[str, Any], kept: list[str]
) -> None:
    nights.take(FIRST, on_schema_change=policy)

    found = nights.take(NEW, on_schema_change=policy, path_column="file")

    assert found.drop(columns="file").to_dict("records") == [row]
    assert found["file"].tolist() == [f"file://{nights.folder}/1.csv"] and list(found)[-1] == "file"
    assert {name: list(columns) for name, columns in nights.kept.items()} == {"pandas:csv": kept}


@pytest.mark.parametrize(("body", "message"), [(NEW, "'colour' is new"), ("id\n2\n", "'bay' is gone")])
def test_run_stops_when_changes_are_refused(nights: Nights, body: str, message: str) -> None:
    nights.take(FIRST, on_schema_change="raise")

    with pytest.raises(SchemaChangedError, match=message):
        nights.take(body, on_schema_change="raise")

    assert list(nights.kept["pandas:csv"]) == ["id", "bay"]


def test_columns_are_those_of_earlier_batches_when_nothing_is_new(nights: Nights) -> None:
    nights.take(FIRST, on_schema_change="warn")

    found = nights.take("", on_schema_change="warn")

    assert (list(found), len(found)) == (["id", "bay"], 0)


def test_columns_are_those_of_the_files_when_no_policy_is_given(nights: Nights) -> None:
    nights.take(FIRST)

    found = nights.take(NEW)

    assert (list(found), nights.kept) == (["colour", "ID", "bay"], {})


def test_read_is_refused_when_the_policy_is_unknown(nights: Nights) -> None:
    with pytest.raises(InvalidValueError, match="'on_schema_change': 'append' is unknown"):
        nights.take(FIRST, on_schema_change="append")


def test_columns_are_not_kept_and_a_warning_says_so_when_files_are_read_after_the_run(
    nights: Nights, caplog: pytest.LogCaptureFixture
) -> None:
    (nights.folder / "1.csv").write_text(FIRST)
    with IncrementalJob(nights.watermarks, "parking") as job:
        delta = job.new_files(f"{nights.folder}/", transformation_ctx="files")

    rows = delta.read_pandas("csv", on_schema_change="add")

    assert len(rows) == 1
    assert nights.kept == {}
    assert caplog.messages[-1] == (
        "event=schema_not_kept job=parking context=files of=pandas:csv: the run has ended. Read inside the job's with "
        "block"
    )
