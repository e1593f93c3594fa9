"""CSV files are grouped by their headers: which headers can be compared, and where files without one go."""

from __future__ import annotations

import gzip
from functools import partial
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from scripts.helpers.errors import ChangedObjectError, FileContentError
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.files.delta import FileDelta
from scripts.helpers.listing.listing import Location
from scripts.helpers.listing.objects import LISTED
from scripts.helpers.reading.headers import HEAD, can_compare, csv_header, grouped_by_header


def planned(folder: Path, **bodies: bytes) -> FileDelta:
    for name, body in bodies.items():
        (folder / f"{name}.csv").write_bytes(body)
    return FileBookmark(str(folder)).new_files()


def groups_of(delta: FileDelta, *, skip_changed: bool = False) -> list[list[str]]:
    found = grouped_by_header(delta.location, delta.table, partial(csv_header, None), None, skip_changed=skip_changed)
    return [[key.removesuffix(".csv") for key in group.column("key").to_pylist()] for group, _ in found]


@pytest.mark.parametrize(
    ("source", "key", "size", "can"),
    [
        ("/landing/", "a.csv", HEAD + 1, True),
        ("s3://landing/", "a.csv.gz", HEAD + 1, True),
        ("gs://landing/", "a.csv", 1, False),
        ("s3://landing/", "a.csv.zst", 1, False),
        ("s3://landing/", "a.csv.bz2", HEAD, True),
        ("s3://landing/", "a.csv.bz2", HEAD + 1, False),
    ],
)
def test_headers_are_compared_when_they_can_be_fetched_and_unpacked_here(
    source: str, key: str, size: int, can: bool
) -> None:
    table = pa.Table.from_pylist([{"key": key, "size": size}], LISTED)

    assert can_compare(Location.parse(source), table) is can


def test_files_without_a_line_go_to_the_end_of_the_first_group_when_others_have_headers(tmp_path: Path) -> None:
    delta = planned(tmp_path, a=b"", b=b"id,name\n1,x\n", c=b"name,id\n", d=b"\n \n", e=b"id,name\n")

    assert groups_of(delta) == [["b", "e", "a", "d"], ["c"]]


def test_files_are_one_group_when_none_has_a_line(tmp_path: Path) -> None:
    assert groups_of(planned(tmp_path, a=b"", b=b"\n")) == [["a", "b"]]


def test_file_is_grouped_by_its_bytes_when_it_is_not_packed_as_its_name_says(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(b"id\n1\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"other\n2\n"))
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(b"id\n2\n"))
    delta = FileBookmark(str(tmp_path)).new_files()

    assert groups_of(delta) == [["a.csv.gz", "c.csv.gz"], ["b.csv.gz"]]


def test_file_is_named_when_it_is_compressed_and_its_name_does_not_say_so(tmp_path: Path) -> None:
    delta = planned(tmp_path, a=b"id\n1\n", b=gzip.compress(b"id\n2\n"))

    with pytest.raises(FileContentError, match=r"key 'b.csv' cannot be read as csv: it is a gz file, and its name"):
        groups_of(delta)


def test_file_that_was_overwritten_is_named_or_counts_as_empty_when_its_header_is_asked_for(tmp_path: Path) -> None:
    delta = planned(tmp_path, a=b"id\n", b=b"other\n", c=b"other\n")
    (tmp_path / "a.csv").write_bytes(b"id,new\n")

    with pytest.raises(ChangedObjectError) as raised:
        groups_of(delta)

    assert (raised.value.source, raised.value.overwritten) == (str(delta.location), ("a.csv",))
    assert groups_of(delta, skip_changed=True) == [["b", "c", "a"]]


def test_packed_files_are_one_group_when_their_lines_repeat_what_is_far_above(tmp_path: Path) -> None:
    for seed in (1, 2):
        lines = Random(seed).randbytes(10_000).hex()  # The second time gzip only refers back by 20,000 bytes.
        (tmp_path / f"{seed}.csv.gz").write_bytes(gzip.compress(f"id\n{lines}\n{lines}\n".encode(), mtime=0))

    assert groups_of(planned(tmp_path)) == [["1.csv.gz", "2.csv.gz"]]
