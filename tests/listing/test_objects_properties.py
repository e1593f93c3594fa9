"""The order of identities, for any key that S3 can list."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from scripts.helpers.listing.objects import byte_order

odd = st.sampled_from(["a b", "%20", "+", "[x]", "*", "{a,b}", "\n", "\r", "\x01", "\U0001f697", "\ue000", "\uffff"])
keys = st.lists(odd | st.text(min_size=1, max_size=10), min_size=1, max_size=4).map("/".join)


@given(st.sets(keys, max_size=30))
def test_order_of_arrow_is_that_of_bytes_when_keys_are_odd(keys: set[str]) -> None:
    found = pa.table({"key": pa.array(list(keys), pa.string())}).sort_by("key").column("key").to_pylist()

    assert found == sorted(keys, key=byte_order)
    assert all(first.encode() < second.encode() for first, second in pairwise(found))
