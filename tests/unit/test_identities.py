"""Identities of objects: their order, and how altered lists are refused."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
import zlib
from typing import Any

import pytest

from scripts.helpers.identities import MAX_UNPACKED_BYTES, Identity, in_order, pack, unpack

FILES = [Identity("b/2.csv", '"e2"', 20), Identity("a/1.csv", '"e1-3"', 0), Identity("a b%+[*{\n\U0001f697", "", 5)]


def packed(**changes: Any) -> dict[str, Any]:
    return pack(FILES) | changes


def repacked(raw: bytes, **changes: Any) -> dict[str, Any]:
    """Return a packed map whose length and checksum fit any content."""
    fitting = {"packed": zlib.compress(raw), "length": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    return {"count": 1, "bytes": 0} | fitting | changes


def test_in_order_sorts_by_utf8_bytes_when_utf16_would_differ() -> None:
    keys = ["\ue000", "\U0001f697", "a", "a/b", "a-b", "é", "Z"]

    ordered = [found.key for found in in_order(Identity(key, "e", 1) for key in keys)]

    assert ordered == ["Z", "a", "a-b", "a/b", "é", "\ue000", "\U0001f697"]


@pytest.mark.parametrize("other", [("a", "e2", 1), ("a", "e1", 2), ("b", "e1", 1)])
def test_identity_differs_when_key_etag_or_size_does(other: tuple[str, str, int]) -> None:
    assert Identity("a", "e1", 1) != Identity(*other)


def test_pack_counts_objects_and_bytes_when_given_files() -> None:
    found = pack(FILES)

    assert (found["count"], found["bytes"]) == (3, 25)


def test_pack_is_the_same_when_the_listing_came_in_another_order() -> None:
    assert pack(FILES) == pack(reversed(FILES))


def test_unpack_returns_nothing_when_the_set_is_empty() -> None:
    assert unpack(pack([])) == []


def test_unpack_returns_the_files_in_order_when_packed() -> None:
    assert unpack(pack(FILES)) == in_order(FILES)


@pytest.mark.parametrize(
    ("altered", "text"),
    [
        (packed(count=2), "count differs"),
        (packed(sha256="0" * 64), "length or checksum differ"),
        (packed(length=pack(FILES)["length"] + 1), "length or checksum differ"),
        (packed(length=pack(FILES)["length"] - 1), "length or checksum differ"),
        (packed(length=-1), "a length of -1"),
        (packed(length=MAX_UNPACKED_BYTES + 1), f"a length of {MAX_UNPACKED_BYTES + 1}"),
        (packed(packed=b"plain"), "not compressed data"),
        (packed(packed=b""), "one compressed stream"),
        (packed(packed=pack(FILES)["packed"][:-2]), "one compressed stream"),
        (packed(packed=pack(FILES)["packed"] + b"more"), "one compressed stream"),
        (packed(packed=pack(FILES[:2])["packed"]), "length or checksum differ"),
        (repacked(b"no json"), "Expecting value"),
        (repacked(b"[[1, 2]]"), "not enough values"),
    ],
)
def test_unpack_raises_when_the_stored_map_was_altered(altered: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        unpack(altered)


@pytest.mark.parametrize("name", ["count", "packed", "length", "sha256"])
def test_unpack_raises_when_a_part_is_gone(name: str) -> None:
    found = packed()
    del found[name]

    with pytest.raises(KeyError, match=name):
        unpack(found)


def test_unpack_uses_little_memory_when_the_data_is_a_decompression_bomb() -> None:
    bomb = zlib.compress(bytes(64 * 1024 * 1024), 9)
    tracemalloc.start()

    with pytest.raises(ValueError, match="one compressed stream"):
        unpack(packed(packed=bomb))

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 1024 * 1024


def test_packed_content_is_plain_json_when_looked_at() -> None:
    raw = zlib.decompress(pack([Identity("é", "e", 1)])["packed"])

    assert json.loads(raw) == [["é", "e", 1]]
