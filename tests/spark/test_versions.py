"""Versions older than the oldest supported Python or Spark are refused by name, before any work is done."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from scripts.helpers.errors import UnsupportedVersionError
from scripts.helpers.glue.context import GlueContext
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks
from tests.support.places import REPOSITORY

DOORS: dict[str, Callable[[Any, Watermarks], object]] = {
    "job": lambda spark, watermarks: IncrementalJob(watermarks, "parking", spark=spark),
    "context": lambda spark, watermarks: GlueContext(spark),
}
OLD = "import sys\nsys.version_info = (3, 9, 18)\nimport scripts.helpers.watermarks"


def say(monkeypatch: pytest.MonkeyPatch, spark: Any, version: str) -> None:
    """Make a session report another version. Spark 4 caches the version, so only a property can replace it."""
    monkeypatch.setattr(type(spark), "version", property(lambda _: version))


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("version", ["3.2.4", "3.2.1-amzn-0", "2.4.8"])
def test_session_is_refused_when_its_spark_is_too_old(
    spark: Any, watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch, door: str, version: str
) -> None:
    say(monkeypatch, spark, version)

    with pytest.raises(UnsupportedVersionError) as caught:
        DOORS[door](spark, watermarks)

    assert str(caught.value).startswith(f"This is Spark {version}, and glue-watermarks needs Spark 3.3 or newer.")


@pytest.mark.parametrize("version", ["3.3.0-amzn-1", "3.5.9", "4.1.0", "4.10.0", "10.0", "client.2.0"])
def test_session_is_taken_when_its_spark_is_new_enough(
    spark: Any, watermarks: Watermarks, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    say(monkeypatch, spark, version)

    job = IncrementalJob(watermarks, "parking", spark=spark)

    assert job.spark is spark


def test_python_is_named_and_no_error_of_syntax_when_it_is_too_old() -> None:
    done = subprocess.run([sys.executable, "-c", OLD], cwd=REPOSITORY, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "UnsupportedVersionError: This is Python 3.9.18, and glue-watermarks needs Python 3.10" in done.stderr
