"""Sets of identities: what holds for every key that S3 can list."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scripts.helpers.identities import Identity, in_order, pack, unpack
from scripts.helpers.values import decode, encode

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

odd = st.sampled_from(["a b", "%20", "+", "[x]", "*", "{a,b}", "\n", "\r", "\x01", "\U0001f697", "\ue000", "\uffff"])
keys = st.lists(odd | st.text(min_size=1, max_size=10), min_size=1, max_size=4).map("/".join)
identities = st.builds(Identity, keys, st.text(max_size=40), st.integers(0, 5 * 2**40))
files = st.lists(identities, max_size=30, unique_by=lambda identity: identity.key)


@patient
@given(files)
def test_unpack_returns_the_same_set_in_order_when_packed(files: list[Identity]) -> None:
    assert unpack(pack(files)) == in_order(files)


@patient
@given(files)
def test_unpack_returns_the_same_set_when_stored_as_values(files: list[Identity]) -> None:
    stored = decode(*encode({"files": pack(files)}))

    assert unpack(stored["files"]) == in_order(files)


@patient
@given(files)
def test_order_is_that_of_utf8_bytes_when_keys_are_odd(files: list[Identity]) -> None:
    ordered = in_order(files)

    assert sorted(ordered) == sorted(files)
    assert all(first.key.encode() < second.key.encode() for first, second in pairwise(ordered))


@patient
@given(files, st.randoms())
def test_pack_is_the_same_when_files_come_in_another_order(files: list[Identity], random: object) -> None:
    shuffled = list(files)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert pack(shuffled) == pack(files)


@patient
@given(files, st.integers(0), st.integers(1, 255))
def test_unpack_never_returns_other_files_when_a_byte_was_altered(files: list[Identity], at: int, flip: int) -> None:
    packed = pack(files)
    data = bytearray(packed["packed"])
    data[at % len(data)] ^= flip

    try:
        found = unpack(packed | {"packed": bytes(data)})
    except ValueError:
        return
    assert found == in_order(files)
