"""An option that a reader does not use raises an error in every call, and no file is blamed for it."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import FileContentError, InvalidValueError, MisfitError
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
        # These options leave files out, and those files would count as read.
        ("csv", "pathGlobFilter", "'pathGlobFilter' is no option of the reader of csv"),
        ("parquet", "modifiedAfter", "'modifiedAfter' is no option of the reader of parquet"),
    ],
)
def test_error_suggests_an_option_when_the_format_does_not_have_the_given_one(
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
def test_error_suggests_an_option_when_pandas_does_not_have_the_given_one(
    format: str, option: str, meant: str, tmp_path: Path
) -> None:
    (tmp_path / "1").write_text("id\n1\n")

    options: dict[str, Any] = {option: ";"}

    with pytest.raises(InvalidValueError, match=f"there is no '{option}'. Did you mean .*{meant}"):
        FileBookmark(str(tmp_path)).new_files().read_pandas(format, **options)


def test_options_are_accepted_when_they_are_documented_or_belong_to_hadoop_or_another_reader() -> None:
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


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("text", {}),
        ("text", {"wholetext": True}),
        ("text", {"encoding": "ISO-8859-1"}),
        ("json", {"schema": "id BIGINT"}),
        ("json", {}),
        ("json", {"schema": "id BIGINT", "multiLine": True, "rescue": True}),
        ("json", {"schema": "id BIGINT", "mode": "DROPMALFORMED"}),
        ("csv", {"schema": "line STRING"}),
        ("csv", {"schema": "line STRING", "encoding": "ISO-8859-1"}),
        ("csv", {"encoding": "windows-1252"}),
    ],
)
def test_gzip_file_stops_the_run_when_its_name_does_not_say_so_and_its_bytes_would_be_lines(
    format: str, options: dict[str, Any], watermarks: Watermarks, tmp_path: Path, spark: Any
) -> None:
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "1").write_bytes(gzip.compress(b'{"id":1}\n', mtime=0))

    with (
        pytest.raises(MisfitError, match=r"a file is not text: it is a gz file, and its name does not end in \.gz"),
        IncrementalJob(watermarks, "parking", spark=spark) as job,
    ):
        job.write(job.new_files(tmp_path / "landing").read(spark, format, **options), tmp_path / "raw")


def test_lines_are_read_when_they_begin_with_a_sign_that_gzip_files_begin_with(tmp_path: Path, spark: Any) -> None:
    lines = ["\x1f", "\x1fa\x1f", "a\x1fb\x08", "\x1f\x08c", "\x1fé\x1f\x08"]
    (tmp_path / "1").write_text("\n".join(lines), newline="")

    assert [row[0] for row in FileBookmark(str(tmp_path)).new_files().read(spark, "text").collect()] == lines


@pytest.mark.parametrize("option", ["header", "multiLine", "enforceSchema", "wholetext"])
def test_option_is_refused_when_it_is_neither_true_nor_false(option: str, tmp_path: Path) -> None:
    (tmp_path / "1").write_text("id\n1\n")
    delta: Any = FileBookmark(str(tmp_path)).new_files()

    for call in (delta.read, delta.read_small):
        with pytest.raises(InvalidValueError, match=rf"{option} is 'yes'\. Pass True or False"):
            call(None, "text" if option == "wholetext" else "csv", schema="id STRING", **{option: "yes"})


@pytest.mark.parametrize("header", ["True", "TRUE", "true", True])
def test_header_is_no_row_when_the_option_is_a_text(header: Any, tmp_path: Path, spark: Any) -> None:
    (tmp_path / "1").write_text("id\n1\n")
    delta: Any = FileBookmark(str(tmp_path)).new_files()

    assert delta.read(spark, "csv", schema="id STRING", header=header).collect() == [("1",)]
    assert delta.read_small(spark, "csv", schema="id STRING", header=header).collect() == [("1",)]
