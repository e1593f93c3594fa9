"""How executors cut files into records, read folder values, and send typed errors through Spark's own errors."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.helpers.errors import (
    AccessRefusedError,
    ChangedObjectError,
    ConfigurationError,
    CredentialsError,
    FileContentError,
    InvalidValueError,
    LedgerError,
    SourceError,
    SourceUnavailableError,
    WatermarkError,
)
from scripts.helpers.listing.folders import folder_values
from scripts.helpers.listing.listing import Listing, Location
from scripts.helpers.listing.objects import LISTED, local_etag
from scripts.helpers.reading import fetched_lines
from scripts.helpers.reading.fetch import ObjectFetcher, Planned
from scripts.helpers.reading.fetched_lines import (
    Fetching,
    LineRules,
    decompressed,
    marked,
    pack,
    unmarked,
    unpacked,
)

KEYS = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1)


@pytest.mark.parametrize(
    ("rules", "body", "records"),
    [
        (LineRules(), b"", []),
        (LineRules(), b"\n", [b""]),
        (LineRules(), b"a\nb", [b"a", b"b"]),
        (LineRules(), b"a\r\nb\rc\r\r\nd\n\re", [b"a", b"b", b"c", b"", b"d", b"", b"e"]),
        (LineRules(), "a\u2028b\x85c\x0bd\x0ce".encode(), ["a\u2028b\x85c\x0bd\x0ce".encode()]),
        (LineRules(), b"\xef\xbb\xbfa\n\xef\xbb\xbfb", [b"a", b"\xef\xbb\xbfb"]),
        (LineRules(separator=b"||"), b"a||b\nc||", [b"a", b"b\nc"]),
        (LineRules(separator=b"|"), b"a||b", [b"a", b"", b"b"]),
        (LineRules(whole=True), b"a\nb\n", [b"a\nb\n"]),
        (LineRules(whole=True), b"", []),
        (LineRules(blank=b" \t"), b"a\n \t\n\x0b\nb", [b"a", b"\x0b", b"b"]),
        (LineRules(blank=b" ", header=True), b" \nh\na\nh\n", [b"a", b"h"]),
        (LineRules(blank=b" ", comment=b"#", header=True), b"#c\nh\n#c\na\n #b\n", [b"a", b" #b"]),
        (LineRules(header=True), b"h", []),
        (LineRules(blank=b" ", whole=True), b"\xef\xbb\xbfa\n", [b"a\n"]),
        (LineRules(), b"b\xffc", [b"b\xffc"]),
    ],
)
def test_cut_gives_the_records_of_sparks_reader_when_file_is(
    rules: LineRules, body: bytes, records: list[bytes]
) -> None:
    assert rules.cut(body) == records


@given(st.lists(st.text(st.characters(blacklist_characters="\r\n", blacklist_categories=["Cs"]))), st.booleans())
def test_cut_returns_the_lines_when_they_were_joined_by_line_feeds(lines: list[str], ended: bool) -> None:
    records = [line.encode() for line in lines]
    body = b"\n".join(records) + (b"\n" if ended and lines else b"")

    found = LineRules().cut(body)

    without_mark = [
        record.removeprefix(b"\xef\xbb\xbf") if not index else record for index, record in enumerate(records)
    ]
    if not ended and without_mark and not without_mark[-1]:
        without_mark.pop()
    assert found == without_mark


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("a.json", []),
        ("year=2013/a=b.json", ["2013"]),
        ("x/year=2013/day=01/a", ["2013", "01"]),
        ("day=a%3Ab/a", ["a:b"]),
        ("day=%zz%2/a", ["%zz%2"]),
        ("day=/a", [""]),
        ("day=a=b/a", ["a=b"]),
        ("day=__HIVE_DEFAULT_PARTITION__/a", [None]),
    ],
)
def test_folder_values_are_those_of_spark_when_key_is(key: str, values: list[str | None]) -> None:
    assert [value for _, value in folder_values(key)] == values


@given(st.lists(KEYS), st.lists(KEYS, min_size=1), KEYS)
def test_changed_objects_are_restored_when_an_error_is_read_from_the_text_of_another(
    overwritten: list[str], deleted: list[str], source: str
) -> None:
    error = ChangedObjectError(source, overwritten, deleted)

    found = unmarked(f"Job aborted:\nRuntimeError: {marked(error)}\n\tat java.lang.Thread.run\n]")

    assert isinstance(found, ChangedObjectError)
    assert (found.source, found.overwritten, found.deleted) == (source, tuple(overwritten), tuple(deleted))
    assert str(found) == str(error)


@pytest.mark.parametrize(
    "error",
    [
        SourceError("s3://b/", "key 'a' cannot be read (AccessDenied)."),
        SourceUnavailableError("s3://b/", "SlowDown"),
        AccessRefusedError("s3:ListBucket", "s3://b/"),
        CredentialsError("AWS does not accept the credentials (ExpiredToken). Renew them."),
        LedgerError("s3://b/", "it is damaged."),
        InvalidValueError("Option 'a' is wrong."),
        ConfigurationError("A package is missing."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_error_is_restored_when_it_is_read_from_the_text_of_another(error: WatermarkError) -> None:
    found = unmarked(f"RuntimeError: {marked(error)}\n")

    assert type(found) is type(error)
    assert str(found) == str(error)


@pytest.mark.parametrize("text", ["", "RuntimeError: other", "[glue-watermarks error]"])
def test_no_error_is_found_when_a_text_has_none(text: str) -> None:
    assert unmarked(text) is None


def test_records_keep_the_order_of_the_plan_when_many_are_fetched_at_once(tmp_path: object) -> None:
    location = Location.parse(str(tmp_path))
    for number in range(300):
        with open(f"{location.prefix}{number:03d}", "wb") as file:
            file.write(b"%d\n" % number * (number % 3))
    plan = pa.Table.from_batches([part.rows for part in Listing(location)], LISTED)
    halves = [pack(plan.slice(0, 150)), pack(plan.slice(150))]

    batches = list(fetching(location)([pa.RecordBatch.from_arrays([pa.array(halves)], ["planned"])]))

    table = pa.Table.from_batches(batches)
    expected = [(b"%d" % number, location.uri(f"{number:03d}")) for number in range(300) for _ in range(number % 3)]
    assert list(zip(*(column.to_pylist() for column in table.columns), strict=True)) == expected


def test_error_is_marked_with_the_key_when_a_file_is_gone(tmp_path: object) -> None:
    location = Location.parse(str(tmp_path))
    plan = pa.Table.from_pylist([{"key": "gone", "etag": "1", "size": 1}], LISTED)
    batch = pa.RecordBatch.from_arrays([pa.array([pack(plan)])], ["planned"])

    with pytest.raises(RuntimeError) as caught:
        list(fetching(location)([batch]))

    found = unmarked(str(caught.value))
    assert isinstance(found, ChangedObjectError)
    assert found.deleted == ("gone",)


def test_input_is_read_to_its_end_when_the_first_object_fails(tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path))
    plan = pa.Table.from_pylist([{"key": "gone", "etag": "1", "size": 1}], LISTED)
    written: list[str] = []

    def written_by_spark() -> Iterator[pa.RecordBatch]:
        for name in ("first", "second"):
            written.append(name)
            yield pa.RecordBatch.from_arrays([pa.array([pack(plan)])], ["planned"])
        written.append("end")

    with pytest.raises(RuntimeError, match="gone"):
        next(fetching(location)(written_by_spark()))

    assert written == ["first", "second", "end"]


@pytest.mark.parametrize(
    ("limit", "size", "rows"), [("_BATCH", 5, [3, 3, 1]), ("_BATCH", 6, [3, 3, 1]), ("_IN_FLIGHT", 6, [7])]
)
def test_records_are_all_sent_when_files_are_more_than_one_batch_or_than_may_be_fetched_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, size: int, rows: list[int]
) -> None:
    monkeypatch.setattr(fetched_lines, limit, size)
    bodies = {f"{number}": b"%d\n" % number for number in range(7)}

    batches = read(fetching(Location.parse(str(tmp_path))), bodies)

    assert [batch.num_rows for batch in batches] == rows
    assert [(row["record"], row["path"]) for batch in batches for row in batch.to_pylist()] == [
        (b"%d" % number, f"file://{tmp_path}/{number}") for number in range(7)
    ]


def test_next_file_is_asked_for_when_one_has_arrived_and_its_bytes_are_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetched_lines, "_IN_FLIGHT", 6)
    location, asked = Location.parse(str(tmp_path)), []
    for number in range(6):
        (tmp_path / f"{number}").write_bytes(b"%d\n" % number)

    def planned() -> Iterator[Planned]:
        for number in range(6):
            asked.append(number)
            yield Planned(f"{number}", local_etag((tmp_path / f"{number}").stat()), None, 2)

    bodies = fetching(location)._bodies(ObjectFetcher(location, None), planned())

    # Three files of two bytes are being fetched; the fourth is requested once the first has arrived.
    assert [(len(asked), body) for _, body in bodies] == [
        (4, b"0\n"), (5, b"1\n"), (6, b"2\n"), (6, b"3\n"), (6, b"4\n"), (6, b"5\n"),
    ]  # fmt: skip


def test_folders_are_columns_of_their_records_when_keys_have_them(tmp_path: Path) -> None:
    bodies = {"x=0/day=1/hour=a/1": b"one\ntwo", "x=0/day=1/hour=__HIVE_DEFAULT_PARTITION__/2": b"three"}

    (batch,) = read(fetching(Location.parse(str(tmp_path)), folders=2), bodies)

    assert batch.schema.names == ["record", "path", "folder_0", "folder_1"]
    found = [(row["record"], row["folder_0"], row["folder_1"]) for row in batch.to_pylist()]
    assert sorted(found) == [(b"one", "1", "a"), (b"three", "1", None), (b"two", "1", "a")]


def test_records_come_without_the_header_when_all_files_have_it(tmp_path: Path) -> None:
    bodies = {"1": b"id\n1\nid", "2": b"", "3": b"id"}

    (batch,) = read(fetching(Location.parse(str(tmp_path)), header=b"id"), bodies)

    assert batch.column("record").to_pylist() == [b"1", b"id"]


def test_file_is_named_when_it_has_another_header_than_the_first(tmp_path: Path) -> None:
    location = Location.parse(str(tmp_path))

    with pytest.raises(RuntimeError) as caught:
        read(fetching(location, header=b"id"), {"1": b"id\n1", "2": b"other\n2"})

    assert str(unmarked(str(caught.value))) == (
        f"Source {str(location)!r}: key '2' has another header than the first file, by which columns are found. Read "
        "with to_driver().read_small, which finds them in each file, or pass enforceSchema=True to go by position."
    )


@pytest.mark.parametrize("key", ["a.csv", "a.csv.GZ", "a.csv.gzip", "a"])
def test_file_is_named_when_it_is_compressed_and_its_name_does_not_say_so(key: str) -> None:
    with pytest.raises(FileContentError, match=rf"key '{key}' cannot be read as \w+: it is a gz file, and its name"):
        decompressed(Location.parse("s3://landing/"), key, gzip.compress(b"id\n1\n"))


@pytest.mark.parametrize("ending", ["zst", "snappy", "lz4"])
def test_reader_of_spark_is_named_when_a_compression_is_not_undone_here(ending: str) -> None:
    with pytest.raises(SourceError) as caught:
        decompressed(Location.parse("s3://landing/"), f"a.json.{ending}", b"")

    assert str(caught.value) == (
        f"Source 's3://landing/': key 'a.json.{ending}' is compressed ({ending}). Read it with Spark's own reader."
    )


def read(fetching: Fetching, bodies: dict[str, bytes]) -> list[pa.RecordBatch]:
    """Write files, and return their records in the form in which they are sent to Spark."""
    for key, body in bodies.items():
        path = Path(fetching.location.prefix, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    plan = pa.Table.from_batches([part.rows for part in Listing(fetching.location)], LISTED)
    return list(fetching([pa.RecordBatch.from_arrays([pa.array([pack(plan)])], ["planned"])]))


def fetching(location: Location, folders: int = 0, header: bytes | None = None) -> Fetching:
    return Fetching(
        location, LineRules(), folders=folders, skip_changed=False, client_options=(), request_payer=False,
        planned=unpacked, header=header,
    )  # fmt: skip
