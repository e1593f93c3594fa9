"""What the first and last bytes of a file show, and which findings set a file aside."""

from __future__ import annotations

import bz2
import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest

from scripts.helpers.errors import ArchivedObjectError, ChangedObjectError, UnreadableObjectError
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.listing.listing import Location
from scripts.helpers.reading.probe import FOOTER, GONE, OVERWRITTEN, keys_named_in, probe, why

SOURCE = "s3://landing/parking/"


def written(write: Callable[[pa.Table, io.BytesIO], None]) -> bytes:
    file = io.BytesIO()
    write(pa.table({"id": range(100)}), file)
    return file.getvalue()


PARQUET, ORC = written(pq.write_table), written(po.write_table)
LENGTH = int.from_bytes(PARQUET[-8:-4], "little")
"""Of the footer, without the eight bytes that say it."""
NO_FOOTER = "it is not a complete parquet file: it has no footer"
CUT_OFF = "it is not a complete parquet file: its footer is cut off"
DAMAGED = "it is not a complete parquet file: its footer is damaged"
LARGE = FOOTER.to_bytes(4, "little") + b"PAR1"
"""The end of a file whose footer is longer than what is fetched."""


@pytest.mark.parametrize(
    ("format", "name", "body", "reason"),
    [
        ("parquet", "whole", PARQUET, None),
        ("parquet", "only the footer", PARQUET[-LENGTH - 8 :], None),
        ("parquet", "a byte less", PARQUET[-LENGTH - 7 :], CUT_OFF),
        ("parquet", "no end", PARQUET[:-1], NO_FOOTER),
        ("parquet", "eleven bytes", bytes(7) + b"PAR1", NO_FOOTER),
        ("parquet", "twelve bytes", bytes(8) + b"PAR1", DAMAGED),
        ("parquet", "other bytes in the footer", bytes(99) + bytes(LENGTH) + PARQUET[-8:], DAMAGED),
        ("parquet", "encrypted", bytes(8) + b"PARE", None),
        ("parquet", "large footer", bytes(FOOTER) + LARGE, None),
        ("parquet", "large footer that is cut off", bytes(FOOTER - 9) + LARGE, CUT_OFF),
        ("parquet", "empty", b"", None),
        ("orc", "whole", ORC, None),
        ("orc", "mark at the start only, as of Hive 0.11", b"ORC" + bytes(300), None),
        ("orc", "mark in the postscript only", bytes(300) + b"ORC\x03", None),
        ("orc", "mark before the postscript", bytes(300) + b"ORC\x02", "it is not an orc file"),
        ("avro", "whole", b"Obj\x01" + bytes(9), None),
        ("avro", "another version", b"Obj\x02" + bytes(9), "it is not an avro file"),
        ("csv", "a.csv.gz", gzip.compress(b"id\n1\n", mtime=0), None),
        ("csv", "b.csv.gz", b"id\n1\n", "it is not a gz file"),
        ("json", "a.json.bz2", bz2.compress(b"{}"), None),
        ("json", "b.json.bz2", b"BZ", "it is not a bz2 file"),
        ("csv", "a.csv", b"\x1f\x8b", None),
        ("csv", "b.csv", gzip.compress(b"id\n1\n", mtime=0), "it is a gz file, and its name does not end in .gz"),
        ("json", "b.json.GZ", gzip.compress(b"{}", mtime=0), "it is a gz file, and its name does not end in .gz"),
        ("binaryFile", "b.bin", gzip.compress(b"id\n1\n", mtime=0), None),
        ("parquet", "a.parquet.gz", PARQUET, None),
        ("csv", "empty.csv.gz", b"", None),
    ],
)
def test_file_is_named_only_when_its_ends_show_that_no_reader_can_read_it(
    tmp_path: Path, format: str, name: str, body: bytes, reason: str | None
) -> None:
    (tmp_path / name).write_bytes(body)
    delta = FileBookmark(str(tmp_path)).new_files()

    found = probe(delta.location, delta.table, format, None)

    assert found == ({} if reason is None else {name: reason})


def test_file_is_named_when_it_was_overwritten_or_is_gone_since_it_was_planned(tmp_path: Path) -> None:
    for name in ("same", "other", "gone"):
        (tmp_path / name).write_bytes(PARQUET)
    delta = FileBookmark(str(tmp_path)).new_files()

    (tmp_path / "other").write_bytes(PARQUET + PARQUET)
    (tmp_path / "gone").unlink()

    assert probe(delta.location, delta.table, "parquet", None) == {"other": OVERWRITTEN, "gone": GONE}


@pytest.mark.parametrize(
    ("format", "name", "ranges"),
    [
        ("parquet", "a.parquet", ["bytes=-65536"]),
        ("orc", "a.orc", ["bytes=0-2", "bytes=-256"]),
        ("avro", "a.avro", ["bytes=0-3"]),
        ("csv", "a.csv.gz", ["bytes=0-1"]),
        ("text", "a.txt.bz2", ["bytes=0-2"]),
        ("csv", "a.csv", ["bytes=0-2"]),
        ("binaryFile", "a.csv", ["bytes=0-0"]),
    ],
)
def test_no_more_of_an_object_is_fetched_than_its_format_needs(
    s3: Any, bucket: str, format: str, name: str, ranges: list[str]
) -> None:
    s3.put_object(Bucket=bucket, Key=f"in/{name}", Body=b"x" * 100)
    client, asked = boto3.client("s3", endpoint_url=s3.meta.endpoint_url), list[str]()
    client.meta.events.register(
        "before-parameter-build.s3.GetObject", lambda params, **_: asked.append(params["Range"])
    )
    delta = FileBookmark(f"s3://{bucket}/in/", s3_client=client).new_files()

    probe(delta.location, delta.table, format, client)

    assert asked == ranges


def test_store_is_not_looked_at_when_it_is_neither_s3_nor_a_folder() -> None:
    table = pa.table({"key": ["a"]})

    assert probe(Location.parse("gs://landing/parking/"), table, "parquet", None) == {}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ChangedObjectError(SOURCE, [], ["a"]), "it is not there any more"),
        (ChangedObjectError(SOURCE, ["a"], []), "it was overwritten since it was planned"),
        (ArchivedObjectError(SOURCE, ["a"], 1), "it is archived"),
        (UnreadableObjectError(SOURCE, "a", "AccessDenied", ""), "it is forbidden to this login (AccessDenied)"),
        (UnreadableObjectError(SOURCE, "a", "KMS.DisabledException", ""),
         "its key cannot be used (KMS.DisabledException)"),
    ],
)  # fmt: skip
def test_reason_is_told_in_a_few_words_when_the_object_is_to_blame(
    error: ChangedObjectError | ArchivedObjectError | UnreadableObjectError, reason: str
) -> None:
    assert why(error) == reason


def test_error_is_raised_again_when_the_next_object_would_meet_the_same() -> None:
    error = UnreadableObjectError(SOURCE, "a", "NoSuchBucket", "")

    with pytest.raises(UnreadableObjectError) as caught:
        why(error)

    assert caught.value is error


def test_files_are_found_in_a_text_when_it_names_them_as_they_are_or_url_encoded() -> None:
    keys = ["a b.csv", "c d.csv", "e%20f.csv", "g.csv"]

    text = "cannot read s3a://landing/a b.csv, s3a://landing/c%20d.csv, s3a://landing/e%2520f.csv"

    assert keys_named_in(text, keys) == ["a b.csv", "c d.csv", "e%20f.csv"]
