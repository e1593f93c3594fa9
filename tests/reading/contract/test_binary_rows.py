"""Parquet, ORC, Avro and XML files are read as the rows that they hold, or raise a typed error, by every call."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.reading.fetched_lines import unmarked
from tests.reading.contract.binary import CASES, EVERY
from tests.reading.contract.cases import Case, in_order, put
from tests.reading.contract.frames import collected, frame_of, rows_of
from tests.support.long import is_long

GOOD = [case for case in CASES if case.rows is not None]
BAD = [case for case in CASES if case.rows is None]


def cased(case: Case) -> str:
    return f"{case.format}-{case.name}"


@pytest.mark.parametrize("way", EVERY)
def test_rows_are_those_of_the_files_when_they_are_read(way: str, spark_with_packages: Any, tmp_path: Path) -> None:
    cases = [case for case in GOOD if way in case.ways]
    if way == "glue" and not is_long():
        cases = cases[::3]  # Glue's names hand on to the same reader.
    frames: dict[str, tuple[Case, Any]] = {}
    wrong: dict[str, Any] = {}
    for case in cases:
        folder = tmp_path / str(len(frames) + len(wrong))
        folder.mkdir()
        try:
            frames[cased(case)] = case, frame_of(way, case, put(case, folder), spark_with_packages)
        except Exception as error:
            wrong[cased(case)] = f"{type(error).__name__}: {error}"[:500]

    found = collected([frame for _, frame in frames.values()], rows_of)

    wrong |= {
        name: rows for (name, (case, _)), rows in zip(frames.items(), found, strict=True)
        if in_order(rows) != in_order(case.rows)
    }  # fmt: skip
    assert wrong == {}


@pytest.mark.parametrize(("way", "case"), [
    pytest.param(way, case, id=f"{way}-{cased(case)}") for case in BAD for way in case.ways if way != "glue"
])  # fmt: skip
def test_error_is_typed_and_names_a_file_or_column_when_rows_would_be_lost(
    way: str, case: Case, spark_with_packages: Any, tmp_path: Path
) -> None:
    put(case, tmp_path)

    with pytest.raises(Exception) as caught:  # noqa: PT011
        rows_of(frame_of(way, case, tmp_path, spark_with_packages))

    error = unmarked(str(caught.value)) or caught.value
    assert isinstance(error, case.error), error
    # A misfit in a row is found by Spark's tasks: the error names the column, unless the whole record does not fit.
    of_rows = "column 't' has nanoseconds" if case.format.lower() != "xml" else "column 'n|a record cannot be parsed"
    assert any(name in str(error) for name in case.files) or re.search(of_rows, str(error)), error
