"""`JobBookmark`: the state of a job as JSON that people can read."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from scripts.helpers.glue.bookmarks import job_bookmark
from scripts.helpers.protocol.chunks import Blob
from scripts.helpers.protocol.values import Spilled

NOON = datetime(2026, 3, 16, 12, tzinfo=timezone.utc)
REFERENCE = Spilled("s#t-0", 3, 900_000, "0" * 64)


def shown(state: Any) -> Any:
    return json.loads(job_bookmark({"context": state}))["context"]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("bigint", 42, 42),
        ("timestamp", NOON, "2026-03-16T12:00:00+00:00"),
        ("date", date(2026, 3, 16), "2026-03-16"),
        ("decimal(10,2)", Decimal("12.50"), "12.50"),
        ("string", "A-7", "A-7"),
        ("bigint", None, None),
    ],
    ids=["bigint", "timestamp", "date", "decimal", "string", "nothing-yet"],
)
def test_rows_show_column_type_and_value_when_typed(kind: str, value: Any, text: Any) -> None:
    state = {"kind": "rows", "cursor_column": "c", "type": kind, "value": value, "covered": b"\x00\x01"}

    assert shown(state) == {"kind": "rows", "column": "c", "type": kind, "value": text}


def test_rows_show_every_column_order_and_start_when_compound_and_descending() -> None:
    state = {
        "kind": "rows", "cursor_column": ["price", "id"], "type": ["decimal(9,2)", "bigint"],
        "descending": True, "start": [Decimal("12.5"), None], "value": [Decimal("9.25"), 7],
    }  # fmt: skip

    assert shown(state) == {
        "kind": "rows", "column": ["price", "id"], "type": ["decimal(9,2)", "bigint"], "descending": True,
        "start": ["12.5", None], "value": ["9.25", 7],
    }  # fmt: skip


def test_files_show_mode_counts_and_prefix_and_no_chunks_when_they_are_many() -> None:
    segments = [
        {"count": 1_000_000, "sha256": "f" * 64, "data": Blob(None, REFERENCE)},
        {"count": 2, "sha256": "e" * 64, "data": REFERENCE},
    ]
    state = {
        "kind": "files", "source": "s3://landing/parking/", "format": 1, "listed": NOON,
        "segments": segments,
    }  # fmt: skip

    assert shown(state) == {
        "kind": "files", "prefix": "s3://landing/parking/", "version": 1, "objects": 1_000_002,
        "segments": 2, "listed": "2026-03-16T12:00:00+00:00",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        ("x", "str", "x"),
        (0, "int", 0),
        (False, "bool", False),
        (None, "NoneType", None),
        (1.5, "float", 1.5),
        (b"\x00\xff", "bytes", "AP8="),
        ([NOON, {"d": Decimal("1.0")}], "list", ["2026-03-16T12:00:00+00:00", {"d": "1.0"}]),
        ({"a": 1}, "dict", {"a": 1}),
        ({2, 1}, "set", [1, 2]),
    ],
    ids=["str", "zero", "false", "none", "float", "bytes", "list", "dict", "set"],
)
def test_value_shows_its_type_when_the_job_has_no_contexts(value: Any, kind: str, text: Any) -> None:
    assert shown(value) == {"kind": "value", "type": kind, "value": text}


def test_state_shows_its_size_only_when_it_is_stored_in_chunks() -> None:
    assert shown(REFERENCE) == {"kind": "large", "bytes": 900_000, "chunks": 3}


def test_state_shows_its_fields_when_its_kind_has_no_short_form() -> None:
    state = {
        "kind": "relationalize", "next": {"root_parts": 12}, "packed": Blob(None, REFERENCE), "new": Blob(b"x"),
        "large": REFERENCE,
    }  # fmt: skip

    assert shown(state) == {
        "kind": "relationalize", "next": {"root_parts": 12}, "packed": {"bytes": 900_000}, "new": {},
        "large": {"bytes": 900_000},
    }  # fmt: skip


def test_text_is_one_json_object_when_names_are_not_ascii() -> None:
    assert job_bookmark({"größe": 1}) == '{"größe": {"kind": "value", "type": "int", "value": 1}}'
    assert job_bookmark({}) == "{}"
