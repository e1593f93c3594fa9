"""Identities of objects: their parts, their order, and their rows in a ledger."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest

from scripts.helpers.listing.objects import LEDGER, LISTED, TAKEN, Identity, byte_order, is_same, ledger_rows

KEYS = ["\ue000", "\U0001f697", "a", "a/b", "a-b", "é", "Z"]
IN_ORDER = ["Z", "a", "a-b", "a/b", "é", "\ue000", "\U0001f697"]
MOMENT = datetime(2023, 3, 16, 15, 45, tzinfo=timezone.utc)


def listed(*keys: str) -> pa.Table:
    rows = [
        {"key": key, "etag": f"e-{key}", "version_id": None, "size": 5, "modified": MOMENT, "storage_class": "STANDARD"}
        for key in keys
    ]
    return pa.Table.from_pylist(rows, LISTED)


@pytest.mark.parametrize("other", [("a", "e2", 1), ("a", "e1", 2), ("b", "e1", 1)])
def test_identity_differs_when_key_etag_or_size_does(other: tuple[str, str, int]) -> None:
    assert Identity("a", "e1", 1) != Identity(*other)


def test_byte_order_is_that_of_utf8_when_utf16_would_differ() -> None:
    assert sorted(KEYS, key=byte_order) == IN_ORDER


def test_rows_are_in_byte_order_when_arrow_sorts_them() -> None:
    found = listed(*KEYS).sort_by("key")

    assert found.column("key").to_pylist() == IN_ORDER


@pytest.mark.parametrize("keys", [[], ["a"], ["a", "b"]])
@pytest.mark.parametrize("as_batch", [True, False])
def test_ledger_rows_tell_what_became_of_objects_when_they_were_listed(keys: list[str], as_batch: bool) -> None:
    table = listed(*keys)
    source = table.combine_chunks().to_batches()[0] if as_batch and keys else table

    found = ledger_rows(source, TAKEN, 3, "jr_1")

    assert found.schema == LEDGER
    assert found.to_pylist() == [
        {
            "key": key, "etag": f"e-{key}", "version_id": None, "size": 5, "modified": MOMENT,
            "status": "taken", "version": 3, "run_id": "jr_1",
        }
        for key in keys
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("e", "v1", 1), ("other", "v1", 2), True),
        (("e", "v1", 1), ("e", "v2", 1), False),
        (("e", "null", 1), ("e", "v2", 1), False),
        (("e", "null", 1), ("e", "null", 1), True),
        (("e", "null", 1), ("other", "null", 1), False),
        (("e", None, 1), ("e", "v2", 1), True),
        (("e", None, 1), ("e", "v2", 2), False),
        (("e", None, 1), ("other", "v2", 1), False),
    ],
)
def test_object_is_the_same_when_its_version_or_without_one_its_bytes_are(
    one: tuple[Any, ...], other: tuple[Any, ...], same: bool
) -> None:
    rows = [dict(zip(("etag", "version_id", "size"), facts, strict=True)) for facts in (one, other)]

    assert (is_same(*rows), is_same(*reversed(rows))) == (same, same)
