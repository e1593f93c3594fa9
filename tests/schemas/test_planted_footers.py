"""Parquet footers with arbitrary contents: no code in them runs, and the error that a job raises names the file."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from py4j.protocol import Py4JError
from pyspark.sql.utils import (  # type: ignore[attr-defined]
    AnalysisException,
    IllegalArgumentException,
    PythonException,
)

from scripts.helpers.errors import FileContentError, WatermarkError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks
from tests.support.long import cases
from tests.support.planted import GARBAGE, plant_extension, plant_footer, plant_schema

AT_ONCE = 10
SPARK_ERRORS = (AnalysisException, IllegalArgumentException, PythonException)


@pytest.fixture
def markers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the paths of the files that a planted module and a planted pickle would create."""
    imported, unpickled = tmp_path / "imported", tmp_path / "unpickled"
    (tmp_path / "planted_footer.py").write_text(f"open({str(imported)!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    return [imported, unpickled]


def read_by_spark(spark: Any, watermarks: Watermarks, landing: Path, job_id: str) -> None:
    """Read files in a job; an action may raise Spark's own error about a value in a file."""
    with suppress(WatermarkError), IncrementalJob(watermarks, job_id, spark=spark) as job:
        rows = job.new_files(landing).read(spark, "parquet")
        with suppress(Py4JError, *SPARK_ERRORS):
            rows.collect()


def loaded_by_pandas(watermarks: Watermarks, landing: Path, target: Path, job_id: str) -> bool:
    """Load files in a job, setting unreadable ones aside; return False if the package raised one of its errors."""
    with suppress(WatermarkError), IncrementalJob(watermarks, job_id) as job:
        landed = job.new_files(landing, on_unreadable="set_aside")
        job.write(landed.read_pandas("parquet", columns=["id"]), target)
        return True
    return False


@pytest.mark.parametrize("first", range(0, cases(1, long=40) * AT_ONCE, AT_ONCE))
def test_no_code_runs_and_errors_are_typed_when_anything_is_planted_in_a_footer(
    spark: Any, watermarks: Watermarks, tmp_path: Path, markers: list[Path], first: int
) -> None:
    for number in range(first, first + AT_ONCE):
        landing, target = tmp_path / str(number), tmp_path / f"out-{number}"
        landing.mkdir()
        pd.DataFrame({"id": [7]}).to_parquet(landing / "1.parquet")
        plant_footer(landing / "2.parquet", random.Random(number), "planted_footer", markers[1])

        read_by_spark(spark, watermarks, landing, f"spark-{number}")
        is_loaded = loaded_by_pandas(watermarks, landing, target, f"pandas-{number}")

        assert [path for path in markers if path.exists()] == []
        assert not is_loaded or set(pd.read_parquet(target)["id"]) - {1} == {7}


@pytest.mark.parametrize("number", range(len(GARBAGE)))
def test_columns_are_those_of_the_file_when_the_schema_in_its_footer_is_garbage(
    spark: Any, watermarks: Watermarks, tmp_path: Path, number: int
) -> None:
    (tmp_path / "landing").mkdir()
    plant_schema(tmp_path / "landing" / "1.parquet", GARBAGE[number])

    with IncrementalJob(watermarks, "parking", spark=spark) as job:
        rows = job.new_files(tmp_path / "landing").read(spark, "parquet")

    assert rows.collect() == [(1,)]


@pytest.mark.parametrize(
    ("said", "ids"), [(b"\xff", [7]), (b"{}", [7]), (b"null", [7]), (b'{"freq":1}', [7, 1])], ids=str
)
def test_other_files_are_loaded_when_a_type_of_pandas_in_a_footer_is_damaged(
    watermarks: Watermarks, tmp_path: Path, said: bytes, ids: list[int]
) -> None:
    landing, target = tmp_path / "landing", tmp_path / "raw"
    landing.mkdir()
    # pandas registers its types when it first writes or reads one.
    pd.DataFrame({"id": [7], "at": pd.PeriodIndex(["2026-01-01"], freq="D")}).to_parquet(landing / "1.parquet")
    plant_extension(landing / "2.parquet", "pandas.period", said)

    with IncrementalJob(watermarks, "parking") as job:
        landed = job.new_files(landing, on_unreadable="set_aside")
        job.write(landed.read_pandas("parquet", columns=["id"]), target)

    assert pd.read_parquet(target)["id"].tolist() == ids


@pytest.mark.parametrize("options", [{}, {"columns": ["at"]}], ids=["all", "at"])
@pytest.mark.parametrize("said", [b"\xff", b"{}", b"null", b'{"freq":1}'])
def test_error_names_the_file_when_a_type_of_pandas_in_its_footer_is_damaged(
    watermarks: Watermarks, tmp_path: Path, said: bytes, options: dict[str, Any]
) -> None:
    pd.DataFrame({"at": pd.PeriodIndex(["2026-01-01"], freq="D")}).to_parquet(tmp_path / "registers.parquet")
    (tmp_path / "landing").mkdir()
    plant_extension(tmp_path / "landing" / "1.parquet", "pandas.period", said)

    with pytest.raises(FileContentError, match=r"key '1\.parquet'"), IncrementalJob(watermarks, "parking") as job:
        job.new_files(tmp_path / "landing").read_pandas("parquet", **options)
