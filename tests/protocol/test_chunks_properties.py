"""Spilled values come back as they were, and any cut or altered chunk is noticed."""

from __future__ import annotations

import random
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scripts.helpers.protocol import chunks as spill
from scripts.helpers.protocol.chunks import cut, join, spill_large
from scripts.helpers.protocol.values import MAX_BYTES, Spilled, encode, same_values
from tests.support.long import cases

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**37), 10**37),
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e100, max_value=1e100).filter(
        lambda number: number == 0 or abs(number) > 1e-100
    ),
    st.decimals(-(10**9), 10**9, places=4).map(Decimal),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.binary(max_size=50),
    st.dates(date(1, 1, 1)),
    st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.just(timezone.utc)),
)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(names, inner, max_size=4)),
    max_leaves=15,
)
NOTICED = r"of \d+ chunks|not compressed data|compressed stream|length or checksum differ"
quick = settings(deadline=None, max_examples=cases(20, long=300), suppress_health_check=[HealthCheck.too_slow])


def small_chunks(size: int = 64) -> Any:
    """Make chunks so small that every value takes several."""
    return mock.patch.object(spill, "CHUNK_BYTES", size)


@quick
@given(values, st.integers(1, 200))
def test_value_comes_back_with_its_types_when_it_is_cut_anywhere(value: Any, size: int) -> None:
    with small_chunks(size):
        reference, parts = cut(value, "p#t-0", "plan")

    assert len(parts) == reference.chunks
    assert max(map(len, parts)) <= size
    assert same_values(join(reference, parts), value)


@quick
@given(values, st.data())
def test_any_flipped_byte_is_noticed_when_chunks_are_joined(value: Any, data: st.DataObject) -> None:
    with small_chunks():
        reference, parts = cut([value, "something to flip"], "p#t-0", "plan")
    index = data.draw(st.integers(0, len(parts) - 1))
    place = data.draw(st.integers(0, len(parts[index]) - 1))
    flip = data.draw(st.integers(1, 255))
    altered = bytearray(parts[index])
    altered[place] ^= flip
    parts[index] = bytes(altered)

    try:
        found = join(reference, parts)
    except ValueError:
        return

    # Some bits of zlib's header and of the last byte before its checksum carry no data: the value is intact.
    before, whole = sum(map(len, parts[:index])), sum(map(len, parts))
    assert before + place in (0, 1, whole - 5)
    assert same_values(found, [value, "something to flip"])


@quick
@given(values, st.data())
def test_any_cut_is_noticed_when_chunks_are_joined(value: Any, data: st.DataObject) -> None:
    with small_chunks():
        reference, parts = cut([value, "something to cut"], "p#t-0", "plan")
    index = data.draw(st.integers(0, len(parts) - 1))
    length = data.draw(st.integers(0, len(parts[index]) - 1))
    parts[index] = parts[index][:length]

    with pytest.raises(ValueError, match=NOTICED):
        join(reference, parts)


@quick
@given(values, st.data())
def test_any_other_order_or_number_is_noticed_when_chunks_are_joined(value: Any, data: st.DataObject) -> None:
    with small_chunks(24):
        reference, parts = cut([value, "something to order"], "p#t-0", "plan")
    chosen = data.draw(st.lists(st.sampled_from(range(len(parts))), max_size=len(parts) + 1))
    other = [parts[index] for index in chosen]

    if other == parts:
        assert same_values(join(reference, other), [value, "something to order"])
        return
    with pytest.raises(ValueError, match=NOTICED):
        join(reference, other)


@quick
@given(st.lists(st.integers(0, 40_000), min_size=1, max_size=12))
def test_head_fits_and_everything_comes_back_when_entries_have_any_sizes(sizes: list[int]) -> None:
    entries = {f"context-{index}": random.Random(index).randbytes(size) for index, size in enumerate(sizes)}

    kept, chunks = spill_large(entries, "s", "t", "watermark")

    encode(kept, limit=MAX_BYTES)
    restored = {name: join(v, chunks[v.id]) if isinstance(v, Spilled) else v for name, v in kept.items()}
    assert restored == entries
    assert bool(chunks) == (len(chunks) > 0 and sum(sizes) > MAX_BYTES - 2_000)
