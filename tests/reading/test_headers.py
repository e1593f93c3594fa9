"""CSV files are grouped by their headers: which headers can be compared, and where files without one go."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable
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
from scripts.helpers.reading.headers import HEAD, avro_schema, can_compare, csv_header, grouped_by_header


def planned(folder: Path, **bodies: bytes) -> FileDelta:
    for name, body in bodies.items():
        (folder / f"{name}.csv").write_bytes(body)
    return FileBookmark(str(folder)).new_files()


def groups_of(delta: FileDelta, *, skip_changed: bool = False) -> list[list[str]]:
    found = grouped_by_header(delta.location, delta.table, partial(csv_header, {}), None, skip_changed=skip_changed)
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


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "csv.bz2"])
def test_files_are_in_different_groups_when_their_headers_differ_only_behind_what_is_fetched_first(
    tmp_path: Path, ending: str
) -> None:
    many = ",".join(f"column_{number}" for number in range(HEAD // 10))
    for name, rest in {"a": "x,y\n1", "b": "y,x\n1", "c": "x,y"}.items():
        packs: dict[str, Callable[[bytes], bytes]] = {"csv.gz": gzip.compress, "csv.bz2": bz2.compress, "csv": bytes}
        (tmp_path / f"{name}.{ending}").write_bytes(packs[ending](f"{many},{rest}".encode()))

    groups = groups_of(FileBookmark(str(tmp_path)).new_files())

    assert [[name[0] for name in group] for group in groups] == [["a", "c"], ["b"]]


@pytest.mark.parametrize(
    ("options", "head", "header"),
    [
        ({}, b'id,"a\nb",c\n1', b'id,"a'),
        ({"multiline": "true"}, b'\n#\nid,"a\r\nb",c\n1', b"#"),
        ({"multiline": "true", "comment": "#"}, b'\n#\nid,"a\r\n""b",c\n1', b'id,"a\n""b",c'),
        ({"multiline": "true"}, b'id,"a\nb\n1', None),
        ({"multiline": "true", "quote": ""}, b'id,"a\nb",c\n1', b'id,"a'),
        ({"multiline": "true", "escape": "\\"}, b'id,"a\\"\nb"\n1', b'id,"a\\"\nb"'),
        ({"linesep": "|"}, b"id\n,a|1", b"id\n,a"),
        ({"encoding": "UTF-16"}, "po\u010det\n1".encode("utf-16"), "po\u010det".encode()),
        ({"charset": "UTF-32BE"}, "po\u010det\n1".encode("utf-32-be")[:-1], "po\u010det".encode()),
        ({"encoding": "x-Johab"}, b"id,a\n1", b"id,a"),
    ],
)
def test_header_is_the_record_that_spark_uses_when_the_options_say_how_records_end(
    options: dict[str, str], head: bytes, header: bytes | None
) -> None:
    assert csv_header(options, head, False) == header


def test_schema_of_avro_is_whole_or_missing_when_a_file_is_cut() -> None:
    file = b"Obj\x01\x02\x16avro.schema\x08true\0"

    assert [avro_schema(file[:size], False) for size in (3, 20, len(file))] == [file[:3], None, b"true"]
    assert avro_schema(file[:20], True) == b"tr"


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
