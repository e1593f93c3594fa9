"""Keys that Hadoop would read as glob patterns, where Spark infers the schema of whole files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import SourceError
from scripts.helpers.files.bookmark import FileBookmark

BODIES = {"json": ('{"id": 1}', '{"other": 2}'), "csv": ("id\n1\n", "other\n2\n")}


def read(folder: Path, spark: Any, format: str, key: str, **options: Any) -> Any:
    """Read one file of a folder whose other file would match the key if the key were a pattern."""
    for name, body in zip((f"a[1].{format}", f"a1.{format}"), BODIES[format], strict=True):
        (folder / name).write_text(body)
    planned = FileBookmark(f"{folder}/").new_files().split(lambda each: each == key)[True]
    header: dict[str, Any] = {"header": True} if format == "csv" else {}
    return planned.read(spark, format, **header, **options)


@pytest.mark.parametrize("name", ["multiLine", "multiline"])
def test_key_is_refused_when_it_is_a_pattern_and_the_columns_of_whole_files_are_inferred(
    tmp_path: Path, spark: Any, name: str
) -> None:
    with pytest.raises(SourceError, match=r"a\[1\]\.\w+' has '\[', which Spark takes for a pattern .* [Rr]ename it"):
        read(tmp_path, spark, "csv", "a[1].csv", **{name: True})


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("json", {"multiLine": "false"}),
        ("csv", {"multiLine": "false"}),
        ("json", {"multiLine": True}),
    ],
)
def test_rows_are_those_of_the_file_when_its_key_is_a_pattern_and_nothing_of_whole_files_is_inferred(
    tmp_path: Path, spark: Any, format: str, options: dict[str, Any]
) -> None:
    frame = read(tmp_path, spark, format, f"a[1].{format}", **options)

    assert [(name, int(value)) for row in frame.collect() for name, value in row.asDict().items()] == [("id", 1)]


def test_columns_of_whole_files_are_inferred_when_no_key_is_a_pattern(tmp_path: Path, spark: Any) -> None:
    assert read(tmp_path, spark, "json", "a1.json", multiLine=True).columns == ["other"]
