"""Chunks and packed state may come from any writer of the table, so their size is limited before they are unpacked."""

from __future__ import annotations

import hashlib
import json
import resource
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.helpers.errors import LedgerError
from scripts.helpers.files.segment_files import SegmentFiles, from_bytes
from scripts.helpers.files.states import files_of
from scripts.helpers.protocol import items
from scripts.helpers.protocol.attributes import from_json, to_json
from scripts.helpers.protocol.chunks import cut, join
from scripts.helpers.protocol.packed_json import pack_json, plain_json, unpack_json
from scripts.helpers.protocol.values import Spilled

MEGABYTE = 1024 * 1024


def packed(raw: bytes) -> tuple[Spilled, list[bytes]]:
    """Return chunks and a matching reference, as only a principal who may write to the head can make them."""
    data = zlib.compress(raw)
    return Spilled("s#1-0", 1, len(raw), hashlib.sha256(raw).hexdigest()), [data]


@pytest.mark.parametrize(
    "raw",
    [b"[" * MEGABYTE, b"[" + b"[]," * (6 * MEGABYTE) + b"[]]", b'["' + b'","' * (3 * MEGABYTE) + b'"]'],
    ids=["nested", "many-lists", "many-texts"],
)
def test_chunks_are_refused_before_they_take_the_memory_when_they_unfold_to_many_values(raw: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with pytest.raises(ValueError, match=r"nested too deeply|not what was written|values, and the limit is"):
        join(*packed(raw))

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 250 * 1024  # `ru_maxrss` is in KB.


def test_chunks_are_read_when_their_texts_are_full_of_brackets() -> None:
    value = {"a": '{"x": [1, 2], "\\"": {}},' * 20_000, "b": "\\" * 1_001}

    assert join(*cut(value, "s#1-0", "state")) == value


@settings(max_examples=100)
@given(st.binary(max_size=60) | st.text(alphabet='[]{}",:1\\SNML', max_size=60).map(str.encode))
def test_chunks_are_read_or_refused_when_they_hold_anything(raw: bytes) -> None:
    with suppress(ValueError):
        join(*packed(raw))
    for data in (raw, zlib.compress(raw)):
        with suppress(ValueError):
            from_bytes(data)


@pytest.mark.parametrize("text", [b"[" * MEGABYTE, b"[" + b"[]," * (2 * MEGABYTE) + b"[]]"], ids=["nested", "many"])
def test_packed_names_are_refused_when_they_unpack_to_too_many_or_too_deep_values(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"nested too deeply|values, and the limit is"):
        unpack_json(zlib.compress(text), 64 * MEGABYTE)


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner, max_size=4), max_leaves=20))
def test_json_is_read_when_it_has_no_more_values_than_the_limit(value: Any) -> None:
    text = json.dumps(value).encode()
    marks = sum(map(text.count, (b",", b"[", b"{")))

    assert plain_json(text, marks) == value
    assert unpack_json(pack_json(value), 10_000) == value


def test_json_is_read_when_each_value_has_a_name_and_texts_have_commas() -> None:
    assert plain_json(b'{"a,":"b","c":"d"}', 2) == {"a,": "b", "c": "d"}


def test_json_is_refused_with_the_number_of_its_values_when_texts_have_commas_too() -> None:
    with pytest.raises(ValueError, match=r"^3 values, and the limit is 2$"):
        plain_json(b'["a,",1,2]', 2)


# --- ledgers ------------------------------------------------------------------------------------


def test_no_more_of_a_ledger_file_is_read_than_was_written(tmp_path: Path) -> None:
    name = f"{'a' * 32}.parquet"
    (tmp_path / name).write_bytes(b"x" * 1_000)

    with pytest.raises(LedgerError, match="not what was written"):
        SegmentFiles(f"{tmp_path}/").get({"file": name, "length": 10, "sha256": ""})


def test_ledger_file_is_refused_when_it_is_known_as_huge() -> None:
    file = {"file": f"{'0' * 32}.parquet", "length": 10**12, "sha256": "0" * 64, "count": 1}
    file |= {"first": "a", "last": "a"}

    with pytest.raises(ValueError, match=r"^segment.files\[0\].length is not a whole number from 0 to 1,073,741,824$"):
        files_of({"count": 1, "files": [file]})


def test_item_is_the_same_when_it_was_written_with_sets() -> None:
    key = items.key("parking", "jr_1")
    values: dict[str, Any] = {
        "bytes": {"BS": [b"b", b"a"]},
        "list": {"L": [{"BS": [b"c"]}]},
        "names": {"SS": ["b", "a"]},
    }

    kept = json.loads(json.dumps({name: to_json(value) for name, value in (key | values).items()}))

    assert kept["bytes"] == {"BS": ["YQ==", "Yg=="]}
    assert {name: from_json(value) for name, value in kept.items()} == key | {
        "bytes": {"BS": [b"a", b"b"]}, "list": {"L": [{"BS": [b"c"]}]}, "names": {"SS": ["a", "b"]},
    }  # fmt: skip
