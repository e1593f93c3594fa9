"""Work of executors on ranges and files of a ledger, run in this process; the tests with Spark are in `tests/jobs`."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from scripts.helpers.errors import InvalidValueError, LedgerError, SourceError
from scripts.helpers.files import spark as on_spark
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.files.diff import Known
from scripts.helpers.files.ledger import FileLedger
from scripts.helpers.files.partitions import PartitionColumns, PartitionRule
from scripts.helpers.files.segment_files import SegmentFiles, from_bytes, merged_segments, to_bytes
from scripts.helpers.files.set_aside import RETRY, SKIP, WAITING, entry_of
from scripts.helpers.files.spark import (
    Executors,
    PlaceInOrder,
    SparkFileDelta,
    Stretch,
    _blocks,
    _header_of_first,
    _look,
    _marked_errors,
    _merge,
    _OfEach,
    _Planned,
    _sample,
    _Share,
    _slices,
    _store,
    _Taken,
)
from scripts.helpers.files.states import files_of
from scripts.helpers.listing.listing import Location
from scripts.helpers.listing.objects import GONE, IGNORED, LEDGER, LISTED, TAKEN
from scripts.helpers.reading.fetched_lines import unmarked
from tests.support.buckets import NOON
from tests.support.files_states import state_of, with_list

SOURCE = "s3://raw/parking/"


def table(**statuses: str) -> pa.Table:
    """Return rows of a ledger from keys and statuses; the size of each row is the length of its key."""
    rows = [
        {
            "key": key, "etag": "e", "version_id": None, "size": len(key), "modified": NOON, "status": status,
            "version": 1, "run_id": "r",
        }
        for key, status in statuses.items()
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, LEDGER)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"{tmp_path}/ledger/"


@pytest.fixture
def stored(uri: str) -> Callable[..., Any]:
    """Return a function that stores rows in a ledger and returns their segment."""
    return lambda rows: FileLedger(SOURCE, (), SegmentFiles(uri)).stored(rows)


def called(share: Callable[[Any], Any], *parts: Any) -> list[Any]:
    """Return the unpacked results of a task for the given parts."""
    batch = pa.RecordBatch.from_arrays([pa.array([json.dumps(part) for part in parts], pa.string())], ["part"])
    return [json.loads(text) for found in _OfEach(share)(iter([batch])) for text in found.column(0).to_pylist()]


def keys(rows: pa.Table) -> list[str]:
    found: list[str] = rows.column("key").to_pylist()
    return found


def test_counts_are_summed_over_all_pieces_when_a_share_is_stored(uri: str) -> None:
    share = _Share(FileLedger(SOURCE, (), SegmentFiles(uri)))
    share.add((None, "c"), table(a=TAKEN, bb=TAKEN, c=GONE), 2)
    share.add(("c", "d"), table(), 0)
    share.add(("d", None), table(ddd=TAKEN, e=IGNORED, f=IGNORED, g=GONE), 3)

    found = share.stored("0", 0, has_more=True)

    (file,) = found.pop("files")
    assert file["count"] == 7
    assert found == {
        "after": "0", "rows": None, "has_more": True, "count": 3, "bytes": 6, "gone": 2, "ignored": 2, "left": 5,
    }  # fmt: skip


def test_rows_are_sent_and_no_file_is_written_when_they_are_few(uri: str) -> None:
    share = _Share(FileLedger(SOURCE, (), SegmentFiles(uri)))
    share.add((None, None), table(a=GONE), 0)

    found = share.stored(None, 1)

    assert (found["files"], found["rows"] is None, found["has_more"]) == ([], False, False)
    assert (found["count"], found["bytes"], found["gone"]) == (0, 0, 1)
    assert not Path(uri).exists()


@pytest.mark.parametrize(
    ("after", "until", "left"),
    [(None, None, "abcd"), ("b", None, "cd"), (None, "b", "ab"), ("a", "c", "bc"), ("d", None, "")],
)
def test_rows_are_above_one_key_and_not_above_another_when_a_range_is_merged(
    after: str | None, until: str | None, left: str
) -> None:
    known = Known([table(a=TAKEN, b=TAKEN, c=TAKEN, d=TAKEN)])

    assert keys(merged_segments(known.parts(after, until), oldest=True)) == list(left)


@pytest.mark.parametrize(
    ("oldest", "left"), [(True, ["b", "c"]), (False, ["b", "c", "gone"])], ids=["oldest", "newer ones"]
)
def test_range_is_one_file_when_segments_are_merged(
    uri: str, stored: Callable[..., Any], oldest: bool, left: list[str]
) -> None:
    segments = [stored(table(a=TAKEN, b=TAKEN, gone=TAKEN)), stored(table(c=TAKEN, gone=GONE, z=TAKEN))]
    merge = partial(_merge, SOURCE, uri, oldest)

    merged, none = called(
        merge,
        {"after": "a", "until": "gone", "segments": segments},
        {"after": "z", "until": None, "segments": segments},
    )

    assert none == []
    assert [keys(SegmentFiles(uri).rows(file)) for file in merged] == [left]


def test_every_nth_key_from_the_start_is_returned_when_a_file_is_sampled(uri: str, stored: Callable[..., Any]) -> None:
    (file,) = files_of(stored(table(a=TAKEN, b=TAKEN, c=TAKEN, d=TAKEN, e=TAKEN)))

    assert called(partial(_sample, uri), {"file": file, "start": 1, "step": 2}) == [["b", "d"]]


def test_only_taken_rows_of_a_slice_are_planned(uri: str, stored: Callable[..., Any]) -> None:
    (file,) = files_of(stored(table(a=TAKEN, b=GONE, c=TAKEN, d=TAKEN)))
    part = {"file": file, "start": 1, "length": 2}
    batch = pa.RecordBatch.from_arrays([pa.array([json.dumps([part])], pa.string())], ["parts"])

    found = list(_Planned(_Taken(uri, SOURCE))(batch))

    assert [one.key for one in found] == ["c"]
    assert keys(_Taken(uri, SOURCE).rows(file)) == ["a", "c", "d"]


def test_files_are_cut_into_shares_of_so_many_rows_when_they_have_more() -> None:
    files = [{"file": "1", "count": 3}, {"file": "2", "count": 2}]

    found = _slices(files, 2)

    assert [[(one["file"]["file"], one["start"], one["length"]) for one in share] for share in found] == [
        [("1", 0, 2)], [("1", 2, 1), ("2", 0, 1)], [("2", 1, 1)],
    ]  # fmt: skip


def kept(rows: pa.Table, left: int) -> dict[str, Any]:
    """Return the candidates of a range that a task keeps until the end of the batch is known."""
    return {"after": "0", "until": "z", "rows": b64encode(to_bytes(rows)).decode(), "left": left}


@pytest.mark.parametrize(
    ("end", "count", "left", "has_more"), [("b", 1, 6, True), ("c", 2, 5, True), (None, 3, 4, False)]
)
def test_candidates_before_the_end_of_a_batch_are_stored_with_gone_and_ignored_rows(
    uri: str, end: str | None, count: int, left: int, has_more: bool
) -> None:
    candidates = kept(table(a=TAKEN, b=TAKEN, bb=GONE, c=TAKEN, d=IGNORED), 4)
    place = None if end is None else PlaceInOrder(int(NOON.timestamp()) * 1_000_000, end)

    (found,) = called(partial(_store, SOURCE, uri, place, 0), candidates)
    (few,) = called(partial(_store, SOURCE, uri, place, 10), candidates)

    (file,) = found["files"]
    assert (
        keys(SegmentFiles(uri).rows(file)) == [*"abc"[:count], "bb", "d"] if count < 3 else ["a", "b", "bb", "c", "d"]
    )
    facts = {"after": "0", "has_more": has_more, "count": count, "bytes": count, "gone": 1, "ignored": 1, "left": left}
    assert {name: value for name, value in found.items() if name not in ("files", "rows")} == facts
    assert (few["files"], keys(from_bytes(b64decode(few["rows"])))) == ([], keys(SegmentFiles(uri).rows(file)))


def test_only_taken_candidates_are_in_blocks(uri: str) -> None:
    (found,) = called(partial(_blocks, Stretch(), 2), kept(table(a=TAKEN, b=GONE, cc=TAKEN), 0))

    blocks = found["blocks"]
    assert sum(files for _, _, files, _ in blocks) == 2
    assert sum(size for _, _, _, size in blocks) == 3


def test_few_changed_files_are_named_when_executors_look(
    uri: str, stored: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = files_of(stored(table(b10=TAKEN, c=GONE, d=TAKEN)))
    asked: list[Any] = []

    def find(location: Location, rows: pa.Table, client: Any, **given: Any) -> Any:
        asked.append((str(location), keys(rows), client, given))
        return [f"o{number}" for number in range(9)], [f"d{number}" for number in range(9)]

    monkeypatch.setattr(on_spark, "find_changed", find)
    monkeypatch.setattr(on_spark, "_client", lambda: "client")
    monkeypatch.setattr(on_spark, "NAMED_CHANGES", 2)

    (found,) = called(partial(_look, _Taken(uri, SOURCE), True), file)

    assert found == {"overwritten": ["o0", "o1"], "deleted": ["d0", "d1"]}
    assert asked == [(str(Location.parse(SOURCE)), ["b10", "d"], "client", {"request_payer": True})]


def test_error_can_be_found_in_sparks_when_an_executor_raises_it() -> None:
    error = LedgerError(SOURCE, "its file is damaged.")

    with pytest.raises(RuntimeError) as caught, _marked_errors():
        raise error

    found = unmarked(f"Job aborted: {caught.value}")
    assert (type(found), str(found)) == (LedgerError, str(error))


def first(key: str, size: int) -> pa.Table:
    return pa.Table.from_pylist([{"key": key, "etag": "e", "size": size, "modified": NOON}], LISTED)


@pytest.mark.parametrize(("size", "header"), [(0, None), (5, b"id")], ids=["empty", "header"])
def test_header_is_that_of_the_first_file_when_it_has_one(
    size: int, header: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def read(location: Any, one: Any, *given: Any) -> bytes | None:
        asked.append((location, one.key, *given))
        return header

    monkeypatch.setattr(on_spark, "header_of", read)
    delta: Any = SimpleNamespace(location="location", s3_client="client", request_payer=True)

    assert _header_of_first(delta, first("1.csv", size), {"sep": ";"}) == header
    assert asked == [("location", "1.csv", {"sep": ";"}, "client", True)]


def test_file_is_named_when_it_has_no_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_spark, "header_of", lambda *_: None)
    delta: Any = SimpleNamespace(location=Location.parse(SOURCE), s3_client=None, request_payer=False)

    with pytest.raises(SourceError) as caught:
        _header_of_first(delta, first("1.csv", 5), {})

    assert str(caught.value) == (
        f"Source {str(delta.location)!r}: key '1.csv' has no header. Read with to_driver().read_small, or pass "
        "enforceSchema=True."
    )


def test_counts_are_shown_when_a_delta_of_executors_is_printed() -> None:
    files: Any = None

    delta = SparkFileDelta(Location.parse(SOURCE), files, 1_234, 5_678, 0, "s3://ledger/")

    assert repr(delta) == f"<SparkFileDelta '{SOURCE}': 1,234 files, 5,678 bytes>"
    assert (delta.request_payer, delta.has_more) == (False, False)


def test_delta_has_no_files_when_there_is_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    monkeypatch.setattr(Executors, "_read", lambda _, files: read.append(files))
    spark: Any = None

    delta = Executors(spark, FileBookmark(SOURCE, ledger_uri="s3://ledger/parking/")).nothing()

    assert (delta.count, delta.bytes, delta.gone, delta.has_more, delta.ledger_files, read) == (
        0,
        0,
        0,
        False,
        (),
        [[]],
    )


@pytest.mark.parametrize(
    "options",
    [{"partitions": PartitionRule(SOURCE, PartitionColumns.of("day"))}, {"clears": True}],
    ids=["partitions", "clears"],
)
def test_bookmark_is_refused_when_executors_would_take_other_files_than_it(options: dict[str, Any]) -> None:
    no_spark: Any = None
    bookmark = FileBookmark(SOURCE, ledger_uri="s3://ledger/parking/", **options)

    with pytest.raises(InvalidValueError, match="On Spark partitions and clears cannot be used"):
        bookmark.new_files_on_spark(no_spark)


class Source:
    """A prefix of a bucket, and the state that a job keeps."""

    def __init__(self, client: Any, bucket: str) -> None:
        self.client, self.bucket = client, bucket
        self.state: Any = None

    def put(self, *names: str) -> None:
        for name in names:
            self.client.put_object(Bucket=self.bucket, Key=f"in/{name}", Body=b"id")

    def delete(self, *names: str) -> None:
        for name in names:
            self.client.delete_object(Bucket=self.bucket, Key=f"in/{name}")

    def bookmark(self, **options: Any) -> FileBookmark:
        return FileBookmark(f"s3://{self.bucket}/in/", state=self.state, s3_client=self.client, **options)

    def take(self, **options: Any) -> None:
        bookmark = self.bookmark(taken_by=(1, "run-1"), **options)
        bookmark.new_files()
        self.state = bookmark.state_after


@pytest.fixture
def source(s3: Any, bucket: str) -> Source:
    return Source(s3, bucket)


def taken_in(bookmark: FileBookmark, after: str | None, until: str | None, most_rows: int = 9) -> dict[str, str]:
    """Return the statuses of a range's files by key."""
    found: dict[str, str] = {}
    for _, _, choice in bookmark.parts(after, until, datetime.now(timezone.utc), most_rows):
        found |= dict(zip(keys(choice.rows), choice.rows.column("status").to_pylist(), strict=True))
    return found


@pytest.mark.parametrize("most_rows", [1, 9])
def test_range_has_what_is_new_or_gone_between_its_keys(source: Source, most_rows: int) -> None:
    source.put("a.csv", "b.csv", "c.csv", "d.csv")
    source.take()
    source.delete("a.csv", "b.csv", "d.csv")
    source.put("bb.csv", "e.csv")
    bookmark = source.bookmark(taken_by=(2, "run-2"))

    assert taken_in(bookmark, "a.csv", "c.csv", most_rows) == {"b.csv": GONE, "bb.csv": TAKEN}
    assert taken_in(bookmark, None, "a.csv", most_rows) == {"a.csv": GONE}
    assert taken_in(bookmark, "c.csv", None, most_rows) == {"d.csv": GONE, "e.csv": TAKEN}


@pytest.mark.parametrize(
    ("after", "until", "taken"),
    [
        ("a/1.csv", "a/Z", ["a/2.csv"]),
        (None, "a/2.csv", ["a/1.csv", "a/2.csv"]),
        ("a/_z", "b/1.csv", []),
        ("b/1.csv", None, []),
    ],
)
def test_folder_is_ready_when_its_marker_lies_in_another_range(
    source: Source, after: str | None, until: str | None, taken: list[str]
) -> None:
    source.put("a/1.csv", "a/2.csv", "a/_SUCCESS", "b/1.csv", "b/2.csv")

    assert list(taken_in(source.bookmark(ready_marker="_SUCCESS"), after, until)) == taken


def test_range_of_runs_has_what_they_took_when_its_keys_are_between_two(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.put("a.csv")
    source.take()
    before = source.state
    source.put("b.csv", "d.csv")
    source.take()
    source.put("c.csv")
    asked, known = list[Any](), FileLedger.known_in

    def noted(self: FileLedger, ranges: Any) -> Any:
        asked.append(ranges)
        return known(self, ranges)

    monkeypatch.setattr(FileLedger, "known_in", noted)
    until, source.state = source.state, before

    assert taken_in(source.bookmark(until=until), None, "c.csv") == {"b.csv": TAKEN}
    assert asked == [[(None, "c.csv")]] * 2


def test_files_of_other_ranges_are_not_read_when_a_range_is_looked_at(source: Source, uri: str) -> None:
    segments = []
    for names in ("ab", "yz"):
        source.put(*names)
        source.take(ledger_uri=uri)
        (segment,) = source.bookmark(ledger_uri=uri).state.segments
        segments.append(segment)
        source.state = None
        source.delete(*names)
    (other,) = files_of(segments[1])
    Path(uri, other["file"]).unlink()
    source.put("a", "b", "c")
    until = state_of(f"s3://{source.bucket}/in/", NOON, segments)

    assert taken_in(source.bookmark(until=until, ledger_uri=uri), None, "c") == {"a": TAKEN, "b": TAKEN}


def test_range_of_runs_has_no_file_when_none_is_listed(source: Source) -> None:
    source.put("a.csv")
    source.take()
    until, source.state = source.state, None
    source.delete("a.csv")

    assert taken_in(source.bookmark(until=until), None, None) == {}


def test_only_files_to_retry_are_taken_when_a_range_has_files_set_aside(source: Source) -> None:
    source.put("a.csv")
    source.take()
    decisions = {"retry.csv": RETRY, "skip.csv": SKIP, "waits.csv": WAITING}
    source.put(*decisions)
    listed = source.bookmark().new_files().table.to_pylist()
    entries = {row["key"]: entry_of(row, "it is no gz file", 1, "run-1") for row in listed}
    kept = {key: replace(entry, decision=decisions[key]) for key, entry in entries.items()}
    source.state = with_list(source.state, kept)

    assert taken_in(source.bookmark(), None, None) == {"retry.csv": TAKEN}


def test_markers_are_looked_up_only_for_folders_that_a_range_cuts(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.put("a/1.csv", "a/2.csv", "b/1.csv", "c/1.csv", "c/2.csv")
    bookmark, asked = source.bookmark(ready_marker="_SUCCESS"), list[set[str]]()
    look = bookmark.lister.look_at_each

    def looked(names: set[str]) -> pa.Table:
        asked.append(names)
        return look(names)

    monkeypatch.setattr(bookmark.lister, "look_at_each", looked)

    assert taken_in(bookmark, "a/1.csv", "c/1.csv") == {}
    assert asked == [{"a/_SUCCESS", "c/_SUCCESS"}]
