"""Files read by pandas whose columns change from batch to batch, under each policy, without Spark."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from scripts.helpers.errors import InvalidValueError, MisfitError, SchemaChangedError, TargetSchemaError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.listing.paths import suffix
from scripts.helpers.schemas.kept import shown_schemas
from scripts.helpers.watermarks import Watermarks

FIRST = "id,bay\n1,A\n"
NEW = "colour,ID,bay\nred,2,B\n"


class Nights:
    """Runs of one job over a folder; each reads the files added since the last run."""

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


def test_refused_files_come_in_the_next_run_when_the_script_goes_on_without_them(nights: Nights) -> None:
    nights.take(FIRST, on_schema_change="raise")
    (nights.folder / "1.csv").write_text(NEW)
    (nights.folder / "1.json").write_text('{"id": 3}')

    def load(policy: Any) -> list[int]:
        found: list[int] = []
        with IncrementalJob(nights.watermarks, "parking") as job:
            parts = job.new_files(f"{nights.folder}/", transformation_ctx="files").split(suffix)
            with suppress(SchemaChangedError):
                found += parts["csv"].read_pandas("csv", on_schema_change=policy)["ID"].tolist()
            found += parts["json"].read_pandas("json")["id"].tolist()
        return found

    with pytest.raises(SchemaChangedError, match="'colour' is new"):
        load("raise")

    assert load("take") == [2, 3]


def test_refused_files_are_committed_when_the_script_reads_them_in_another_way(nights: Nights) -> None:
    nights.take(FIRST, on_schema_change="raise")
    (nights.folder / "1.csv").write_text(NEW)

    with IncrementalJob(nights.watermarks, "parking") as job:
        landed = job.new_files(f"{nights.folder}/", transformation_ctx="files")
        with pytest.raises(SchemaChangedError):
            landed.read_pandas("csv", on_schema_change="raise")
        assert landed.read_pandas("csv", on_schema_change="add")["id"].tolist() == [2]

    assert nights.take("", on_schema_change="add").empty


def test_columns_are_those_of_earlier_batches_when_nothing_is_new(nights: Nights) -> None:
    nights.take(FIRST, on_schema_change="warn")

    found = nights.take("", on_schema_change="warn")

    assert (list(found), len(found)) == (["id", "bay"], 0)


def test_columns_are_those_of_the_files_when_no_policy_is_given(nights: Nights) -> None:
    nights.take(FIRST)

    found = nights.take(NEW)

    assert list(found) == ["colour", "ID", "bay"]
    assert nights.kept == {"pandas:csv": {"id": "any", "bay": "string", "colour": "string"}}


@pytest.mark.parametrize("policy", [None, "add", "warn"])
def test_run_stops_when_a_file_has_none_of_the_columns_of_earlier_batches(nights: Nights, policy: Any) -> None:
    nights.take("id,name\n1,a\n2,b\n", on_schema_change=policy)

    with pytest.raises(MisfitError, match=r"header of key '1.csv' shares no column with earlier batches, id, name\."):
        nights.take("3,c\n4,d\n", on_schema_change=policy)

    assert nights.watermarks.latest("parking").version == 1


def test_file_of_other_columns_is_read_when_the_policy_takes_what_there_is(nights: Nights) -> None:
    nights.take("id,name\n1,a\n", on_schema_change="take")

    assert list(nights.take("sale,price\n4,d\n", on_schema_change="take")) == ["sale", "price"]


@pytest.mark.parametrize("policy", [None, "add"])
def test_column_stays_text_when_it_was_text_in_an_earlier_batch(nights: Nights, policy: Any) -> None:
    nights.take("zip,bay\n01234,\n", on_schema_change=policy)
    nights.take("ZIP,bay\n,\n", on_schema_change=policy)

    found = nights.take("zip,bay\n500,7\n", on_schema_change=policy)

    assert found.iloc[0].to_dict() == {"zip": "500", "bay": 7}


def test_column_has_the_type_of_the_caller_when_it_was_text_in_an_earlier_batch(nights: Nights) -> None:
    nights.take("zip\nE8\n")

    assert nights.take("zip\n500\n", dtype={"zip": "Int64"})["zip"].tolist() == [500]
    assert nights.take("zip\n600\n")["zip"].tolist() == [600]


def test_remedy_for_a_target_of_numbers_names_dtype_when_later_values_are_text(nights: Nights, tmp_path: Path) -> None:
    def run(body: str, **options: Any) -> None:
        landing = tmp_path / "landing"
        landing.mkdir(exist_ok=True)
        (landing / f"{len(body)}.csv").write_text(body)
        with IncrementalJob(nights.watermarks, "parking") as job:
            job.write(job.new_files(f"{landing}/").read_pandas("csv", **options), str(tmp_path / "raw"))

    run("zip\n1234\n")

    with pytest.raises(TargetSchemaError, match=r'dtype=\{"zip": "string"\}.*reset JOB --retract'):
        run("zip\nE8 1AA\n")


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
