"""Segments of a file list as bytes: small ones as JSON, large ones as Parquet; foreign bytes; when segments merge."""

from __future__ import annotations

import io
import json
import random
import zlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.helpers.files.segment_files import (
    MAX_JSON_BYTES,
    SMALL_ROWS,
    from_bytes,
    merged_segments,
    merges,
    to_bytes,
)
from scripts.helpers.listing.objects import LEDGER
from tests.support.buckets import NOON

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": TEXT,
            "etag": st.none() | TEXT,
            "version_id": st.none() | TEXT,
            "size": st.integers(0, 2**62),
            "modified": st.integers(0, 10**9).map(lambda micros: NOON + timedelta(microseconds=micros)),
            "status": st.sampled_from(["taken", "gone", "ignored", "archived"]),
            "version": st.integers(0, 2**62),
            "run_id": TEXT,
        }
    ),
    max_size=20,
    unique_by=lambda row: row["key"],
)


def table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), LEDGER).sort_by("key")


def numbered(count: int, status: str = "taken", version: int = 1) -> pa.Table:
    return table(
        [
            {"key": f"{number:06}", "etag": "e", "size": 1, "modified": NOON, "status": status, "version": version,
             "run_id": "r"}
            for number in range(count)
        ]
    )  # fmt: skip


@given(ROWS, st.booleans())
def test_rows_come_back_as_they_were_when_they_are_odd(rows: list[dict[str, Any]], parquet: bool) -> None:
    given_rows = table(rows)

    assert from_bytes(to_bytes(given_rows, parquet)).equals(given_rows)


@pytest.mark.parametrize("parquet", [False, True], ids=["json", "parquet"])
@pytest.mark.parametrize("name", ["key", "size", "modified", "status", "version", "run_id"])
def test_segment_is_refused_when_a_row_lacks_what_each_has(name: str, parquet: bool) -> None:
    rows = table([numbered(1).to_pylist()[0] | {name: None}])

    with pytest.raises(ValueError, match=f"^{name} is missing in a row$"):
        from_bytes(to_bytes(rows, parquet))


@pytest.mark.parametrize("micros", [2**63 - 1, 10**30], ids=["of-no-year", "of-no-number"])
def test_segment_is_refused_when_a_time_is_outside_all_years(micros: int) -> None:
    columns = json.loads(zlib.decompress(to_bytes(numbered(1))))

    with pytest.raises(ValueError, match="OverflowError"):
        from_bytes(packed(json.dumps(columns | {"modified": micros})))


def test_segment_is_refused_when_a_text_of_its_parquet_is_no_utf8() -> None:
    out = io.BytesIO()
    pq.write_table(numbered(1).set_column(0, "key", pa.array(["aXb"])), out, compression="none", use_dictionary=False)

    with pytest.raises(ValueError, match="Arrow"):
        from_bytes(out.getvalue().replace(b"aXb", b"a\xffb"))


@pytest.mark.parametrize("count", [0, 1, SMALL_ROWS - 1, SMALL_ROWS, SMALL_ROWS + 1])
def test_segment_is_parquet_when_it_has_many_rows(count: int) -> None:
    data = to_bytes(numbered(count))

    assert (data[:4] == b"PAR1") is (count >= SMALL_ROWS)
    assert from_bytes(data).equals(numbered(count))


def packed(text: str) -> bytes:
    return zlib.compress(text.encode())


FOREIGN = {
    "nothing": b"",
    "noise": random.Random(1).randbytes(300),
    "no Parquet": b"PAR1" + random.Random(1).randbytes(300) + b"PAR1",
    "cut": to_bytes(numbered(5))[:-3],
    "cut Parquet": to_bytes(numbered(500))[:-30],
    "no JSON": packed("{"),
    "a list": packed("[]"),
    "a number": packed("5"),
    "no columns": packed("{}"),
    "deep": packed("[" * 100_000),
    "other types": packed(json.dumps({name: ["x"] for name in LEDGER.names})),
    "other lengths": packed(json.dumps({name: ["1"] if name == "key" else [] for name in LEDGER.names})),
    "a bomb": packed(json.dumps({"key": "0" * (MAX_JSON_BYTES + 1)})),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_bytes_are_refused_when_they_are_no_segment(kind: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each has another text
        from_bytes(FOREIGN[kind])


# --- merging -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "merging"),
    [
        ([1], 1),
        ([2, 1], 2),
        ([3, 1], 1),
        ([100_000, 100], 1),
        ([100_000, 100, 100], 2),
        ([100_000, 400, 100, 100], 3),
        ([15, 4, 2, 1], 3),
        ([6, 4, 2, 1], 4),
        ([3_000_000, 1_600_000], 2),
    ],
)
def test_last_segments_merge_when_they_are_not_much_smaller_than_those_before(counts: list[int], merging: int) -> None:
    assert merges(counts) == merging


@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=200))
def test_segments_stay_few_and_rows_are_seldom_written_again_when_batches_have_any_size(batches: list[int]) -> None:
    counts: list[int] = []
    written = 0
    for batch in batches:
        counts.append(batch)
        number = merges(counts)
        counts[-number:] = [sum(counts[-number:])]
        written += counts[-1]
        assert all(older > 2 * newer for older, newer in zip(counts, counts[1:], strict=False))  # noqa: RUF007

    assert len(counts) <= sum(batches).bit_length()
    assert written <= sum(batches) * (sum(batches).bit_length() + 1)


def test_newest_row_of_each_key_is_kept_and_gone_keys_are_dropped_when_the_oldest_segment_is_merged() -> None:
    tables = [numbered(4), numbered(3, version=2), numbered(1, "gone", 3)]

    oldest, later = merged_segments(tables, oldest=True), merged_segments(tables, oldest=False)

    assert oldest.select(["key", "version"]).to_pylist() == [
        {"key": "000001", "version": 2}, {"key": "000002", "version": 2}, {"key": "000003", "version": 1},
    ]  # fmt: skip
    assert later.column("status").to_pylist() == ["gone", "taken", "taken", "taken"]
