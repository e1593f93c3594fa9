"""An option that a reader does not use is an error, whichever call reads, and never a file's fault."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import FileContentError, InvalidValueError
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.job import IncrementalJob
from scripts.helpers.reading.dialects import TABLE, unknown_options
from scripts.helpers.watermarks import Watermarks


@pytest.mark.parametrize(
    ("format", "option", "meant"),
    [
        ("csv", "seperator", "Did you mean sep"),
        ("CSV", "hedaer", "Did you mean header"),
        ("json", "multiline_", "Did you mean multiLine"),
        ("json", "header", "'header' is no option of the reader of json"),
        ("parquet", "inferSchema", "Did you mean mergeSchema"),
        ("csv", "compression", "'compression' is no option of the reader of csv"),
        ("xml", "rowtags", "Did you mean rowTag"),
        ("text", "wholeText_", "Did you mean wholetext"),
        # Files that they leave out would count as read.
        ("csv", "pathGlobFilter", "'pathGlobFilter' is no option of the reader of csv"),
        ("parquet", "modifiedAfter", "'modifiedAfter' is no option of the reader of parquet"),
    ],
)
def test_option_is_refused_with_what_was_meant_when_the_format_has_none(
    format: str, option: str, meant: str, watermarks: Watermarks, tmp_path: Path
) -> None:
    (tmp_path / "1").write_text("id\n1\n")

    with IncrementalJob(watermarks, "parking") as job:
        delta = job.new_files(str(tmp_path), on_unreadable="set_aside")
        calls: list[Any] = [delta.read, delta.read_small]
        for call in calls:
            with pytest.raises(InvalidValueError, match=meant):
                call(None, format, schema="id BIGINT", **{option: "x"})
        assert dict(delta.set_aside) == {}


@pytest.mark.parametrize("options", [{"encoding": "UTF-16"}, {"charset": "utf_32le", "multiLine": False}])
@pytest.mark.parametrize("format", ["csv", "json"])
def test_wide_encoding_is_refused_when_files_are_cut_into_lines(
    format: str, options: dict[str, Any], tmp_path: Path
) -> None:
    delta: Any = FileBookmark(str(tmp_path)).new_files()

    for call in (delta.read, delta.read_small):
        with pytest.raises(InvalidValueError, match=r"UTF.(16|32) cannot be cut into lines.* Pass multiLine=True"):
            call(None, format, schema="id STRING", **options)


@pytest.mark.parametrize(
    ("format", "option", "meant"), [("csv", "seperator", "operator|sep"), ("parquet", "column", "columns")]
)
def test_option_of_pandas_is_refused_with_what_was_meant_when_there_is_none(
    format: str, option: str, meant: str, tmp_path: Path
) -> None:
    (tmp_path / "1").write_text("id\n1\n")

    options: dict[str, Any] = {option: ";"}

    with pytest.raises(InvalidValueError, match=f"there is no '{option}'. Did you mean .*{meant}"):
        FileBookmark(str(tmp_path)).new_files().read_pandas(format, **options)


def test_options_are_known_when_they_are_of_the_page_or_of_hadoop_or_of_another_reader() -> None:
    assert [option for option in TABLE if unknown_options(option.format, [option.name.upper()])] == []
    assert unknown_options("parquet", ["parquet.crypto.factory.class", "basePath"]) == []
    assert unknown_options("com.example.excel", ["sheet"]) == []


@pytest.mark.parametrize("files", [1, 2])
def test_gzip_file_is_named_when_its_name_does_not_say_so_and_any_byte_is_a_sign(
    files: int, tmp_path: Path, spark: Any
) -> None:
    for number in range(files):
        (tmp_path / f"{number}.csv").write_bytes(gzip.compress(b"id,bay\n1,north\n"))
    delta: Any = FileBookmark(str(tmp_path)).new_files()

    with pytest.raises(FileContentError, match=r"key '0.csv' cannot be read as csv: it is a gz file, and its name"):
        delta.read(spark, "csv", header=True, encoding="ISO-8859-1")
