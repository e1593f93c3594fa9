"""`Readings` over files of a local directory: which files caused an error, and the reason reported for each."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from scripts.helpers.errors import (
    ArchivedObjectError,
    ChangedObjectError,
    FileContentError,
    InvalidValueError,
    MisfitError,
    SourceError,
    UnreadableFilesError,
    UnreadableObjectError,
)
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.files.delta import FileDelta
from scripts.helpers.files.readings import Readings
from scripts.helpers.reading.probe import ARCHIVED, GONE, OVERWRITTEN


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of two files that can be read."""
    for name in ("1.csv.gz", "2.csv.gz"):
        (tmp_path / name).write_bytes(gzip.compress(b"id\n1\n"))
    return tmp_path


@pytest.fixture
def readings(folder: Path) -> Readings:
    found = FileBookmark(str(folder)).new_files()
    return Readings(found.location, found.table, None, False, lambda reasons: None)


def of_spark(name: str, text: str = "", **attributes: Any) -> Exception:
    """Return an error of a class of that name in PySpark's package."""
    error: Exception = type(name, (Exception,), {"__module__": "pyspark.errors", **attributes})(text)
    return error


def of_java(*names: str, **methods: Any) -> Exception:
    """Return a py4j error whose JVM exceptions each have the next one as their cause."""
    java = None
    for place, name in enumerate(reversed(names)):
        given = {"getMessage": lambda: None, **({} if place else methods)}
        cause = java
        java = SimpleNamespace(
            getClass=partial(SimpleNamespace, getSimpleName=partial(str, name)),
            getCause=partial(lambda cause: cause, cause),
            **given,
        )
    return of_spark("Py4JJavaError", "", java_exception=java)


def read(readings: Readings, fails: Callable[[list[str]], None]) -> None:
    """Read all files lazily; computing the rows calls `fails` with the keys."""
    readings.read(readings.table, "csv", lambda table: None, lambda _, part: fails(part.column("key").to_pylist()))


def raiser(error: Exception, key: str = "2.csv.gz") -> Callable[[list[str]], None]:
    """Return a function that raises an error if a given file is read."""

    def fails(keys: list[str]) -> None:
        if key in keys:
            raise error

    return fails


def test_missing_file_makes_the_run_fail_when_the_caller_has_used_paths(folder: Path, readings: Readings) -> None:
    paths = FileDelta(readings.location, readings.table, readings=readings).paths
    (folder / "2.csv.gz").unlink()

    reasons = readings.found(FileContentError(str(folder), "1.csv.gz", "csv", "it is torn"))
    with pytest.raises(UnreadableFilesError):
        readings.set_aside(reasons)

    assert (len(paths), reasons, readings.is_spoiled) == (2, {"2.csv.gz": GONE}, True)


def test_no_file_is_found_when_another_source_changed(readings: Readings) -> None:
    assert readings.found(ChangedObjectError("s3://other/", [], ["1.csv.gz"])) == {}


def test_files_are_found_when_this_source_changed(readings: Readings) -> None:
    error = ChangedObjectError(str(readings.location), ["1.csv.gz", "unknown"], ["2.csv.gz"])

    assert readings.found(error) == {"1.csv.gz": OVERWRITTEN, "2.csv.gz": GONE}


def test_no_file_is_found_when_reading_them_again_fails_for_another_reason(
    readings: Readings, caplog: pytest.LogCaptureFixture
) -> None:
    read(readings, raiser(ZeroDivisionError()))

    with caplog.at_level(logging.INFO):
        found = readings.found(of_spark("SparkException"))

    assert found == {}
    assert caplog.messages == [f"event=no_file_to_blame source={readings.location} reason=ZeroDivisionError"]


@pytest.mark.parametrize(
    ("raised", "again"),
    [
        (ValueError("an option is wrong"), None),
        (of_spark("SparkException", "a stage failed"), None),
        (of_spark("SparkException", "a stage failed"), ZeroDivisionError()),
    ],
    ids=["not of reading", "not again", "another one"],
)
def test_error_of_the_reader_is_raised_when_no_file_is_to_blame(
    readings: Readings, raised: Exception, again: Exception | None
) -> None:
    calls: list[int] = []

    def reads(table: pa.Table) -> Any:
        calls.append(table.num_rows)
        if len(calls) == 1:
            raise raised
        if again is not None:
            raise again

    with pytest.raises(type(raised), match=str(raised)):
        readings.read(readings.table, "csv", reads, lambda frame, part: None)

    assert readings.reasons == {}


@pytest.mark.parametrize(
    ("raised", "is_raised"),
    [
        (of_spark("SparkException", "a stage failed"), False),
        (of_java("SparkException", "SocketException"), True),
        (of_java("SparkException"), True),
        (of_java("SparkException", "IOException", "OutOfMemoryError"), True),
        (of_java("SparkException", "AmazonS3Exception", getErrorCode=lambda: "SlowDown"), True),
        (of_java("SparkException", "AmazonS3Exception", getErrorCode=lambda: "AccessDenied"), False),
        (of_java("SparkException", "ParquetDecodingException"), False),
        (of_spark("SparkException", "column cancelled_at: Connection reset, No space left on device"), False),
        (ValueError("an option is wrong"), True),
    ],
    ids=[
        "of reading",
        "of the network",
        "of a lost machine",
        "of memory",
        "of S3",
        "of a right",
        "of a page",
        "of a text",
        "another",
    ],
)
def test_file_that_goes_while_a_reader_looks_into_it_is_set_aside_when_it_may_be_the_cause(
    folder: Path, readings: Readings, raised: Exception, is_raised: bool
) -> None:
    def reads(table: pa.Table) -> list[str]:
        found: list[str] = table.column("key").to_pylist()
        if "2.csv.gz" in found:
            (folder / "2.csv.gz").unlink()
            raise raised
        return found

    with pytest.raises(type(raised)) if is_raised else nullcontext():
        frame = readings.read(readings.table, "csv", reads, lambda frame, part: None)
        assert frame == ["1.csv.gz"]

    assert readings.reasons == ({} if is_raised else {"2.csv.gz": GONE})


@pytest.mark.parametrize(
    ("error", "is_found"),
    [
        (of_spark("AnalysisException", "[PATH_NOT_FOUND] Path does not exist: file:/x"), True),
        (of_spark("AnalysisException", "Path does not exist: file:/x"), True),
        (of_spark("AnalysisException", "[PATH_NOT_FOUND] x"), True),
        (of_spark("AnalysisException", "[UNRESOLVED_COLUMN] id"), False),
        (of_spark("IllegalArgumentException", "an option is wrong"), False),
        (of_spark("SparkException", "Job aborted"), True),
        (UnreadableFilesError("s3://a/", {"1": "x"}), False),
        (ZeroDivisionError(), False),
    ],
    ids=["both", "text", "condition", "column", "option", "job", "known", "own"],
)
def test_files_are_searched_when_spark_may_have_met_a_bad_one(
    readings: Readings, folder: Path, error: Exception, is_found: bool
) -> None:
    readings.note_all_given()
    (folder / "2.csv.gz").unlink()

    assert readings.found(error) == ({"2.csv.gz": GONE} if is_found else {})


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ChangedObjectError("s3://a/", ["2.csv.gz"], []), OVERWRITTEN),
        (ArchivedObjectError("s3://a/", ["2.csv.gz"], 1), ARCHIVED),
        (
            UnreadableObjectError("s3://a/", "2.csv.gz", "AccessDenied", "x"),
            "it is forbidden to this login (AccessDenied)",
        ),
        (MisfitError("s3://a/", "id", "int"), "column 'id' has a value that is not of type int"),
        (MisfitError("s3://a/", "cancelled_at", "date"), "column 'cancelled_at' has a value that is not of type date"),
        (MisfitError("s3://a/", None, "int"), "a record cannot be parsed"),
        (MisfitError("s3://a/", None, "", detail="line 3 has 1 value"), "line 3 has 1 value"),
        (FileContentError("s3://a/", "2.csv.gz", "csv", "it is torn"), "it cannot be read as csv: it is torn"),
        (of_spark("SparkException", "aborted\nat x"), "it cannot be read as csv (SparkException: aborted)"),
        (of_spark("Py4JJavaError", "lost", java_exception=object()), "it cannot be read as csv (Py4JJavaError: lost)"),
        (
            UnreadableObjectError("s3://a/", "2.csv.gz", "InvalidRequest", "x"),
            "S3 refuses it (InvalidRequest), as it does where it is encrypted with a key of the customer (SSE-C)",
        ),
    ],
    ids=[
        "changed", "archived", "forbidden", "column", "cancelled", "record", "line", "content", "spark", "no-jvm",
        "SSE-C",
    ],
)  # fmt: skip
def test_reason_says_what_reading_the_file_raised_when_it_looks_well(
    readings: Readings, error: Exception, reason: str
) -> None:
    read(readings, raiser(error))

    assert readings.found(of_spark("SparkException")) == {"2.csv.gz": reason}


def test_reason_is_the_first_cause_when_java_tells_it(readings: Readings) -> None:
    error = of_java("SparkException", "ZipException", getMessage=lambda: "invalid block\nat x")
    read(readings, raiser(error))

    assert readings.found(error) == {"2.csv.gz": "it cannot be read as csv (ZipException: invalid block)"}


@pytest.mark.parametrize(
    "error",
    [SourceError("s3://a/", "the folders differ"), InvalidValueError("an option is wrong"), TypeError("an option")],
    ids=["source", "value", "type"],
)
def test_no_file_is_searched_when_the_caller_is_to_blame(readings: Readings, folder: Path, error: Exception) -> None:
    readings.note_all_given()
    (folder / "2.csv.gz").unlink()

    assert readings.found(error) == {}
