"""Typical typing mistakes of a first-time user: the error names the mistake and what was expected."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pytest

from scripts.helpers.errors import SourceError, StoreUnavailableError, UnknownWatermarkError, WatermarkError
from scripts.helpers.files import FileBookmark
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks

ROWS = pd.DataFrame({"id": [1]})


@pytest.mark.parametrize(
    ("mistake", "expected"),
    [
        (lambda job, _: job.rows_since("repairs", "day"), "a str has no rows. Pass a DataFrame"),
        (lambda job, source: job.new_files(source, delya=1), "Did you mean delay?"),
        (lambda job, _: job.write(ROWS, "s3://"), "The path 's3://' names no folder. Write s3://bucket/prefix/"),
        (lambda job, target: job.write(ROWS, f"{target}/out", format="parqet"), "Did you mean parquet?"),
        (lambda job, source: job.new_files(source).read_pandas("jsn"), "Did you mean json?"),
        (lambda job, _: job.new_files("s4://bucket/landing/"), "Use s3://"),
        (lambda _, table: Watermarks(cast(Any, 3)), "The table's name is of type int. Pass a text"),
    ],
    ids=["text-for-rows", "option", "no-bucket", "format", "format-of-files", "scheme", "number-for-a-table"],
)
def test_error_names_what_was_expected_when_a_call_is_mistyped(
    mistake: Callable[[IncrementalJob, str], Any], expected: str, watermarks: Watermarks, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"id": 1}))

    with pytest.raises(WatermarkError) as raised, IncrementalJob(watermarks, "parking") as job:
        mistake(job, str(tmp_path))

    assert expected in str(raised.value)


def test_error_names_the_address_when_nothing_answers_there() -> None:
    watermarks = Watermarks(region_name="eu-west-2", endpoint_url="http://127.0.0.1:9")

    with pytest.raises(
        StoreUnavailableError,
        match=r"EndpointConnectionError\. http://127\.0\.0\.1:9 gave no answer\. Check the region",
    ):
        watermarks.latest("parking")


def test_names_of_the_item_are_among_those_stored_when_one_of_them_is_mistyped(
    watermarks: Watermarks, job_id: str
) -> None:
    watermarks.add_watermark(watermarks.create_watermark_item(job_id, "jr_1", rows=3))

    with pytest.raises(UnknownWatermarkError, match=r"It has stored: jobName, runId, watermarks, .*rows"):
        watermarks.get_watermark(job_id)["watermark"]


def test_watermark_is_printed_without_bytes_when_it_holds_files(
    watermarks: Watermarks, job_id: str, tmp_path: Path
) -> None:
    for number in range(40):
        (tmp_path / f"{number}.json").write_text("{}")
    with IncrementalJob(watermarks, job_id) as job:
        delta = job.new_files(tmp_path)
    shown = repr(watermarks.get_watermark(job_id))

    assert "\\x" not in shown
    assert " bytes>" in shown
    assert f"{delta!r}".endswith("40 files, 80 bytes>")


@pytest.mark.parametrize(
    ("thing", "inside"),
    [
        (lambda watermarks, _: watermarks, {"clock", "decisions", "lookups", "progress", "store"}),
        (lambda _, source: FileBookmark(source).new_files(), {"readings", "schemas", "unpinned"}),
    ],
    ids=["watermarks", "delta"],
)
def test_completion_offers_only_what_a_script_uses_when_a_name_is_begun(
    thing: Callable[[Watermarks, Path], Any], inside: set[str], watermarks: Watermarks, tmp_path: Path
) -> None:
    offered = {name for name in dir(thing(watermarks, tmp_path)) if not name.startswith("_")}

    assert not inside & offered
    assert {"history", "get_watermark"} <= offered or {"read", "paths", "count"} <= offered


def test_a_file_is_counted_as_one_when_it_is_alone(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")

    assert repr(FileBookmark(tmp_path).new_files()).endswith(": 1 file, 2 bytes>")
    with pytest.raises(SourceError):
        FileBookmark("s4://bucket/")


def test_path_objects_are_accepted_when_a_script_passes_folders(
    watermarks: Watermarks, job_id: str, tmp_path: Path
) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    (landing / "a.json").write_text(json.dumps({"id": 1}))

    with IncrementalJob(watermarks, job_id) as job:
        job.write(job.new_files(landing).read_pandas("json"), tmp_path / "raw")

    assert pd.read_parquet(tmp_path / "raw")["id"].tolist() == [1]


def test_target_is_compared_when_verify_is_given_it_as_a_path(
    watermarks: Watermarks, job_id: str, tmp_path: Path
) -> None:
    with IncrementalJob(watermarks, job_id) as job:
        job.write(job.rows_since(ROWS, "id", delay=timedelta(0)), tmp_path / "raw")

    assert IncrementalJob(watermarks, job_id).verify(ROWS, tmp_path / "raw").is_equal
