"""Options by their names: a misspelt one is refused before anything is read, and editors know the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from scripts.helpers.batch.rows import RowsSinceOptions
from scripts.helpers.errors import SourceOptionError
from scripts.helpers.files.rules import FileOptions, FileOptionsGiven
from scripts.helpers.job import IncrementalJob
from scripts.helpers.rows.options import RowOptions
from scripts.helpers.tables import DeltaTable, TableOptions
from scripts.helpers.watermarks import Watermarks

ROWS = pd.DataFrame({"id": [1]})
Call = Callable[[IncrementalJob, str], Any]


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda job, _: job.rows_since(ROWS, "id", delya=None), "delay"),
        (lambda job, folder: job.rows_since(DeltaTable(folder), max_version=1), "max_versions"),
        (lambda job, folder: job.new_files(folder, max_file=1), "max_files"),
        (lambda job, folder: job.new_partitions(folder, "day", readymarker="_SUCCESS"), "ready_marker"),
        (lambda job, folder: job.latest_partition(folder, "day", Include=["*.csv"]), "include"),
    ],
    ids=["rows", "table", "files", "partitions", "latest partition"],
)
def test_option_that_was_meant_is_named_when_one_is_misspelt(
    watermarks: Watermarks, tmp_path: Path, call: Call, meant: str
) -> None:
    with IncrementalJob(watermarks, "repairs") as job:
        with pytest.raises(SourceOptionError, match=rf"there is none of that name\. Did you mean {meant}\?"):
            call(job, f"{tmp_path}/")
        job.abort()


@pytest.mark.parametrize(
    ("typed", "kinds"), [(RowsSinceOptions, (RowOptions, TableOptions)), (FileOptionsGiven, (FileOptions,))]
)
def test_editors_know_every_option_when_a_call_takes_them(typed: Any, kinds: tuple[Any, ...]) -> None:
    known = {field.name for kind in kinds for field in fields(kind)}

    assert typed.__optional_keys__ == known
