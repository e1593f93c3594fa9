"""Spilling: which values go to chunks, which stay, and which damage is noticed when they are read."""

from __future__ import annotations

import hashlib
import json
import random
import zlib
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from scripts.helpers.errors import TooLargeError
from scripts.helpers.protocol import chunks as spill
from scripts.helpers.protocol.chunks import (
    CHUNK_BYTES,
    INLINE_BYTES,
    Blob,
    cut,
    join,
    lazy_blobs,
    references,
    spill_large,
    take_blobs,
)
from scripts.helpers.protocol.values import MAX_BYTES, Spilled, encode, same_values

VALUE = {
    "files": random.Random(1).randbytes(900_000),
    "count": 3,
    "ratio": 0.5,
    "price": Decimal("1.50"),
    "at": datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc),
    "day": date(2026, 3, 16),
    "nothing": None,
    "flags": [True, False, 0, "", b""],
    "marks": {b"\x00", b"\xff"},
}


def noise(size: int, seed: int = 0) -> bytes:
    """Return bytes that do not compress."""
    return random.Random(seed).randbytes(size)


def test_blob_is_read_once_when_its_bytes_are_needed() -> None:
    asked: list[Spilled] = []

    def read(reference: Spilled) -> bytes:
        asked.append(reference)
        return b"names"

    reference, _ = cut(b"names", "s#t-b0", "watermark")
    blob = lazy_blobs({"files": [reference]}, "parking", read)["files"][0]
    assert asked == []

    assert (blob.data, blob.data) == (b"names", b"names")
    assert asked == [reference]


def test_blob_is_stored_once_when_two_plans_have_it() -> None:
    blob, first, second = Blob(noise(INLINE_BYTES + 1)), dict[str, list[bytes]](), dict[str, list[bytes]]()
    taken = take_blobs({"names": blob}, "parking", "t1", first)

    again = take_blobs({"names": blob}, "parking", "t2", second, kept=first)

    assert (again, list(first), second) == (taken, [taken["names"].id], {})


@pytest.mark.parametrize(("size", "kind"), [(INLINE_BYTES, bytes), (INLINE_BYTES + 1, Spilled)])
def test_blob_is_stored_where_it_stands_when_it_is_small(size: int, kind: type) -> None:
    taken = take_blobs({"names": Blob(noise(size))}, "parking", "t", {})

    assert type(taken["names"]) is kind


def test_chunks_are_full_and_at_most_the_limit_when_a_value_is_large() -> None:
    reference, parts = cut(VALUE, "p#t-0", "plan 'a'")

    assert (reference.id, reference.chunks, len(parts)) == ("p#t-0", 3, 3)
    assert [len(part) for part in parts[:-1]] == [CHUNK_BYTES] * 2
    assert 0 < len(parts[-1]) <= CHUNK_BYTES <= 350_000


# --- which entries are spilled -----------------------------------------------------------------------------------


def test_nothing_is_spilled_when_the_map_fits() -> None:
    entries = {"a": noise(MAX_BYTES - 2_000), "b": 1}

    kept, chunks = spill_large(entries, "p", "t", "plan")

    assert (kept, chunks) == (entries, {})


def test_only_the_largest_is_spilled_when_the_rest_fits_then() -> None:
    entries = {"small": noise(30_000), "large": noise(60_000), "tiny": 1}

    kept, chunks = spill_large(entries, "s", "t", "watermark")

    assert [name for name in kept if isinstance(kept[name], Spilled)] == ["large"]
    assert list(kept) == list(entries)
    assert list(chunks) == [kept["large"].id] == ["s#t-0"]
    assert join(kept["large"], chunks["s#t-0"]) == entries["large"]


@pytest.mark.parametrize("count", [2, 10, 90])
def test_map_fits_into_the_head_when_many_entries_are_large(count: int) -> None:
    entries = {f"{number:02}" + "n" * 100: noise(40_000, number) for number in range(count)}

    kept, chunks = spill_large(entries, "s", "t", "watermark")

    encode(kept, limit=MAX_BYTES)
    assert len(chunks) == len(references(kept)) >= count - 1
    restored = {name: join(v, chunks[v.id]) if isinstance(v, Spilled) else v for name, v in kept.items()}
    assert restored == entries


def test_reference_stays_as_it_is_when_its_entry_has_not_changed() -> None:
    first, chunks = spill_large({"a": noise(70_000)}, "s", "t1", "watermark")

    kept, again = spill_large({**first, "b": noise(70_000, 1)}, "s", "t2", "watermark")

    assert kept["a"] == first["a"]
    assert list(chunks) == ["s#t1-0"]
    assert list(again) == [kept["b"].id]


@pytest.mark.parametrize(
    "known", [{}, {"a": 1}, {"a": Spilled("s#t1-0", 1, 5, "0" * 64)}], ids=["none", "small", "other"]
)
def test_chunks_are_made_when_another_value_is_known(known: dict[str, Any]) -> None:
    kept, chunks = spill_large({"a": noise(70_000)}, "s", "t2", "watermark", known)

    assert list(chunks) == [kept["a"].id] == ["s#t2-0"]


# --- limits ------------------------------------------------------------------------------------------------------


def test_entry_is_refused_when_it_is_over_the_limit() -> None:
    most = 64 * 1024 * 1024

    with pytest.raises(TooLargeError, match=r"The plan map, most of it in 'a': .* the limit is 67,108,864\.") as caught:
        spill_large({"a": bytes(most + 1)}, "p", "t", "plan")

    assert caught.value.size > most


def test_value_is_refused_with_its_remedy_when_its_text_is_over_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "MAX_RAW_BYTES", 100_000)

    with pytest.raises(TooLargeError, match=r"plan 'a': .* is 100,000\. Part the source into several"):
        cut("\x01" * 50_000, "p#t-0", "plan 'a'")


def test_value_comes_back_when_it_is_as_large_as_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    reference, parts = cut(VALUE, "p#t-0", "plan 'a'")
    monkeypatch.setattr(spill, "MAX_SPILL_BYTES", sum(map(len, parts)))
    monkeypatch.setattr(spill, "MAX_RAW_BYTES", reference.length)

    found = join(*cut(VALUE, "p#t-0", "plan 'a'"))

    assert same_values(found, VALUE)
    assert list(found) == list(VALUE)


def test_chunks_are_refused_when_they_are_more_than_is_ever_written(monkeypatch: pytest.MonkeyPatch) -> None:
    reference, parts = cut([1, 2, 3], "p#t-0", "plan 'a'")
    size = len(parts[0])
    monkeypatch.setattr(spill, "MAX_SPILL_BYTES", size - 1)

    with pytest.raises(ValueError, match=f"^{size} bytes, and the limit is {size - 1}$"):
        join(reference, parts)


def test_no_more_than_the_stored_length_is_decompressed_when_a_chunk_is_a_bomb(monkeypatch: pytest.MonkeyPatch) -> None:
    raw, asked = b"0" * 50_000_000, list[int]()
    bomb = zlib.compress(raw, 9)

    real = zlib.decompressobj()
    monkeypatch.setattr("scripts.helpers.protocol.packed_json.zlib.decompressobj", lambda: _wrap(real, asked))

    with pytest.raises(ValueError, match="more or less than one compressed stream"):
        join(Spilled("p#t-0", 1, 1_000, hashlib.sha256(raw).hexdigest()), [bomb])

    assert asked == [1_001]
    assert real.eof is False


def _wrap(real: Any, asked: list[int]) -> Any:
    class Inflate:
        eof, unused_data = False, b""

        def decompress(self, data: bytes, limit: int) -> bytes:
            asked.append(limit)
            found: bytes = real.decompress(data, limit)
            assert len(found) <= limit
            self.eof, self.unused_data = real.eof, real.unused_data
            return found

    return Inflate()


# --- what is noticed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", [{"length": 1}, {"sha256": "0" * 64}], ids=["length", "sha256"])
def test_altered_reference_is_noticed_when_chunks_are_joined(field: dict[str, Any]) -> None:
    reference, parts = cut([1, 2, 3], "p#t-0", "plan 'a'")

    with pytest.raises(ValueError, match=r"length or checksum differ|compressed stream"):
        join(reference._replace(**field), parts)


@pytest.mark.parametrize(
    "content",
    [
        "not json",
        "[]",
        "[1,2]",
        '[{"M":1},{"M":{}}]',
        '[{"M":{}},{"M":{}}]',
        '[{"M":{"value":{"B":"!"}}},{"M":{}}]',
        '[{"M":{"value":{"B":5}}},{"M":{}}]',
        '[{"M":{"value":{"N":"x"}}},{"M":{}}]',
        '[{"M":{"value":{"Q":"x"}}},{"M":{}}]',
        '[{"M":{"value":{}}},{"M":{}}]',
        '[{"L":[]},{"M":{}}]',
        '[{"M":{"value":' + '{"L":[' * 5_000 + "]}" * 5_000 + "}},null]",
    ],
    ids=lambda text: text[:30],
)
def test_content_that_is_never_written_is_a_value_error_when_its_checksum_fits(content: str) -> None:
    raw = content.encode()
    reference = Spilled("p#t-0", 1, len(raw), hashlib.sha256(raw).hexdigest())

    with pytest.raises(ValueError) as caught:  # noqa: PT011 - each has another text
        join(reference, [zlib.compress(raw)])

    assert not isinstance(caught.value, UnicodeError)


def test_stored_text_is_plain_json_when_a_value_holds_bytes() -> None:
    _, parts = cut({"b": b"\x00\xff"}, "p#t-0", "plan 'a'")

    attribute, types = json.loads(zlib.decompress(b"".join(parts)))

    assert attribute == {"M": {"value": {"M": {"b": {"B": "AP8="}}}}}
    assert types == {"M": {}}
