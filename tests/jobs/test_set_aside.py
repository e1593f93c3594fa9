"""Files that turn out to be unreadable while Spark works: the run fails, and the next one takes the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from scripts.helpers.errors import UnreadableFilesError
from scripts.helpers.files.readings import Readings
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks
from tests.support.files_states import set_aside_of

GOOD = (1, 3, 4)


class Landing:
    """Three good files and a bad one, and a job that reads them."""

    def __init__(self, folder: Path, watermarks: Watermarks, job_id: str, spark: Any) -> None:
        self.folder, self.target = folder / "landing", folder / "raw"
        self.folder.mkdir()
        self.watermarks, self.job_id, self.spark = watermarks, job_id, spark

    def put(self, bad: pd.DataFrame) -> Path:
        for number in GOOD:
            pd.DataFrame({"id": [number] * 2_000}).to_parquet(self.folder / f"{number}.parquet", compression="gzip")
        path = self.folder / "2.parquet"
        bad.to_parquet(path, compression="gzip")
        return path

    def run(self, schema: str | None = None) -> Any:
        with IncrementalJob(self.watermarks, self.job_id, spark=self.spark) as job:
            delta = job.new_files(str(self.folder), on_unreadable="set_aside")
            job.write(delta.read(self.spark, "parquet", schema=schema), str(self.target))
        return delta

    @property
    def listed(self) -> dict[str, str]:
        state = self.watermarks.get_watermark_values(self.job_id)["files"]
        return {key: entry.reason for key, entry in set_aside_of(state).items()}

    @property
    def ids(self) -> set[int]:
        return {int(one) for path in self.target.glob("*.parquet") for one in pd.read_parquet(path)["id"].unique()}


@pytest.fixture
def landing(tmp_path: Path, watermarks: Watermarks, job_id: str, spark: Any) -> Landing:
    return Landing(tmp_path, watermarks, job_id, spark)


def test_next_run_takes_the_rest_when_spark_meets_a_damaged_page(landing: Landing) -> None:
    path = landing.put(pd.DataFrame({"id": range(2_000)}))
    body = bytearray(path.read_bytes())
    body[60:260] = bytes(200)  # Damage the only page but not the footer, so that checking the footer finds nothing.
    path.write_bytes(bytes(body))

    with pytest.raises(UnreadableFilesError, match=r"set aside 1 file that could not be read: '2\.parquet'"):
        landing.run()
    delta = landing.run()

    assert (landing.ids, delta.count) == (set(GOOD), 3)
    assert list(landing.listed) == ["2.parquet"]
    assert landing.listed["2.parquet"].startswith("it cannot be read as parquet (")


def test_next_run_takes_the_rest_when_a_file_has_another_schema(landing: Landing) -> None:
    landing.put(pd.DataFrame({"id": ["two"]}))

    with pytest.raises(UnreadableFilesError, match=r"2\.parquet"):
        landing.run("id BIGINT")
    landing.run("id BIGINT")

    assert (landing.ids, list(landing.listed)) == (set(GOOD), ["2.parquet"])


def test_rest_commits_in_the_same_run_when_a_file_has_no_footer(landing: Landing) -> None:
    path = landing.put(pd.DataFrame({"id": [2]}))
    path.write_bytes(path.read_bytes()[:-20])

    delta = landing.run()

    assert landing.ids == set(GOOD)
    assert (
        dict(delta.set_aside) == {"2.parquet": "it is not a complete parquet file: it has no footer"} == landing.listed
    )


def test_error_of_the_job_is_raised_as_it_is_when_all_files_are_well(landing: Landing) -> None:
    landing.put(pd.DataFrame({"id": [2]}))

    with pytest.raises(Exception, match="because of the job") as caught:
        with IncrementalJob(landing.watermarks, landing.job_id, spark=landing.spark) as job:
            rows = job.new_files(str(landing.folder), on_unreadable="set_aside").read(landing.spark, "parquet")
            rows.selectExpr("raise_error('because of the job')").collect()

    assert not isinstance(caught.value, UnreadableFilesError)
    landing.run()
    assert (landing.ids, landing.listed) == ({*GOOD, 2}, {})


def test_error_of_the_job_is_raised_as_it_is_when_the_search_for_its_files_fails_too(
    landing: Landing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    landing.put(pd.DataFrame({"id": [2]}))

    def gone(*_: Any) -> Any:
        raise FileNotFoundError(landing.folder)

    monkeypatch.setattr(Readings, "found", gone)
    with pytest.raises(Exception, match="because of the job"):
        with IncrementalJob(landing.watermarks, landing.job_id, spark=landing.spark) as job:
            rows = job.new_files(str(landing.folder), on_unreadable="set_aside").read(landing.spark, "parquet")
            rows.selectExpr("raise_error('because of the job')").collect()

    assert f"event=search_failed job={landing.job_id} error=FileNotFoundError" in caplog.messages


def test_small_file_is_set_aside_when_its_end_is_missing(landing: Landing) -> None:
    import gzip

    for number in (1, 2, 3):
        body = gzip.compress(f'{{"id": {number}}}\n'.encode())
        (landing.folder / f"{number}.json.gz").write_bytes(body[:-9] if number == 2 else body)

    def run() -> None:
        with IncrementalJob(landing.watermarks, landing.job_id, spark=landing.spark) as job:
            delta = job.new_files(str(landing.folder), on_unreadable="set_aside")
            job.write(delta.read_small(landing.spark, "json", "id BIGINT"), str(landing.target))

    with pytest.raises(UnreadableFilesError, match=r"2\.json\.gz"):
        run()
    run()

    assert (landing.ids, list(landing.listed)) == ({1, 3}, ["2.json.gz"])
