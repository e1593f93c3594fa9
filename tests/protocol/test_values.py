"""Values: their form on the wire, what comes back, and every limit with its error text."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any

import pytest

from scripts.helpers.errors import InvalidValueError, TooLargeError
from scripts.helpers.protocol import values
from scripts.helpers.protocol.values import decode, encode, from_utc_string, same_values, size_of, to_utc_string

NOON = datetime(2023, 3, 16, 12, 0, 0, 250, tzinfo=timezone.utc)
PARIS = timezone(timedelta(hours=1))


class NanosecondTime(datetime):
    """A datetime finer than microseconds, like one of pandas."""

    nanosecond = 0


class NotATime(datetime):
    """A datetime that is no time, like pandas' NaT."""

    def __ne__(self, other: object) -> bool:
        return True

    def utcoffset(self) -> timedelta | None:
        raise ValueError("no offset")


class FinerTime(NanosecondTime):
    nanosecond = 1


def kind_of(value: Any) -> str:
    return type(value).__name__


def nested(levels: int, leaf: Any = 1) -> Any:
    """Return a leaf at the given level below a watermark map (1 is its own level)."""
    for _ in range(levels - 1):
        leaf = {"in": leaf}
    return leaf


def refusal(value: Any, error: type[Exception] = InvalidValueError) -> str:
    with pytest.raises(error) as caught:
        encode({"cursor": value})
    return str(caught.value)


CASES = [
    ("", {"S": ""}, None),
    ("2023-03-16 15:45:00", {"S": "2023-03-16 15:45:00"}, None),
    ("\U0001f697", {"S": "\U0001f697"}, None),
    (0, {"N": "0"}, None),
    (808, {"N": "808"}, None),
    (-(10**38) + 1, {"N": "-" + "9" * 38}, None),
    (10**50, {"N": "1E+50"}, None),
    (0.0, {"N": "0.0"}, {"S": "float"}),
    (0.1, {"N": "0.1"}, {"S": "float"}),
    (2.0, {"N": "2.0"}, {"S": "float"}),
    (Decimal("2"), {"N": "2"}, {"S": "decimal"}),
    (Decimal("1.10"), {"N": "1.10"}, {"S": "decimal"}),
    (Decimal("0E-500"), {"N": "0"}, {"S": "decimal"}),
    (Decimal("0E+500"), {"N": "0"}, {"S": "decimal"}),
    (Decimal("9" * 38 + "E+88"), {"N": "9." + "9" * 37 + "E+125"}, {"S": "decimal"}),
    (Decimal("-1E-130"), {"N": "-1E-130"}, {"S": "decimal"}),
    (Decimal("1." + "1" * 35 + "E-130"), {"N": "1." + "1" * 35 + "E-130"}, {"S": "decimal"}),
    (False, {"BOOL": False}, None),
    (True, {"BOOL": True}, None),
    (None, {"NULL": True}, None),
    (b"", {"B": b""}, None),
    (b"\x00\xff", {"B": b"\x00\xff"}, None),
    (date(2023, 3, 16), {"S": "2023-03-16"}, {"S": "date"}),
    (NOON, {"S": "2023-03-16T12:00:00.000250+00:00"}, {"S": "datetime"}),
    (datetime(1, 1, 1, tzinfo=timezone.utc), {"S": "0001-01-01T00:00:00.000000+00:00"}, {"S": "datetime"}),
    ([], {"L": []}, None),
    ({}, {"M": {}}, None),
    ([1, 1.5], {"L": [{"N": "1"}, {"N": "1.5"}]}, {"M": {"1": {"S": "float"}}}),
    (
        {"high": NOON, "name": "x"},
        {"M": {"high": {"S": "2023-03-16T12:00:00.000250+00:00"}, "name": {"S": "x"}}},
        {"M": {"high": {"S": "datetime"}}},
    ),
]


@pytest.mark.parametrize(("value", "attribute", "kind"), CASES, ids=kind_of)
def test_value_is_a_plain_attribute_and_a_type_and_comes_back_when_it_is_supported(
    value: Any, attribute: Any, kind: Any
) -> None:
    written, types = encode({"cursor": value})
    back = decode(written, types)

    assert written == {"M": {"cursor": attribute}}
    assert types == {"M": {"cursor": kind} if kind else {}}
    assert back == {"cursor": value}
    assert type(back["cursor"]) is type(value)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ({1, 2}, {2, 1}, True),
        ({1, 2}, {1, 3}, False),
        ({1}, {1.0}, False),
        ([1, {"a": True}], [1, {"a": True}], True),
        ([1, {"a": True}], [1, {"a": 1}], False),
        ([1], [1, 1], False),
    ],
)
def test_values_are_the_same_when_they_are_equal_in_type_as_well(left: Any, right: Any, same: bool) -> None:
    assert same_values(left, right) is same


def test_bytearray_comes_back_as_bytes_when_stored() -> None:
    assert decode(*encode({"cursor": bytearray(b"ab")})) == {"cursor": b"ab"}


@pytest.mark.parametrize(
    ("member", "attribute"),
    [
        (Enum("Text", {"A": "plain"}, type=str).A, {"S": "plain"}),  # type: ignore[attr-defined]
        (IntEnum("Number", {"A": 7}).A, {"N": "7"}),  # type: ignore[attr-defined]
    ],
)
def test_encode_writes_value_of_member_when_value_is_an_enum(member: Any, attribute: Any) -> None:
    assert encode({"cursor": member})[0] == {"M": {"cursor": attribute}}


def test_subclass_of_datetime_comes_back_as_datetime_when_it_has_whole_microseconds() -> None:
    back = decode(*encode({"cursor": NanosecondTime(2023, 3, 16, 12, 0, 0, 250, tzinfo=timezone.utc)}))

    assert back == {"cursor": NOON}
    assert type(back["cursor"]) is datetime


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        (datetime(2023, 3, 16), ["without a time zone", "tzinfo=timezone.utc"]),
        (float("nan"), ["NaN or infinite", "store None"]),
        (float("inf"), ["NaN or infinite", "store None"]),
        (float("-inf"), ["NaN or infinite", "store None"]),
        (Decimal("NaN"), ["NaN or infinite", "store None"]),
        (Decimal("sNaN"), ["NaN or infinite", "store None"]),
        (Decimal("-Infinity"), ["NaN or infinite", "store None"]),
        (int("1" * 39), ["39 digits", "limit is 38", "store it as a string"]),
        (Decimal("1." + "1" * 38), ["39 digits", "limit is 38", "store it as a string"]),
        (10**126, ["1E-130 to 9.9E+125", "store it as a string"]),
        (10**160, ["is too large a number", "9.9E+125", "Store it as a string"]),
        (10**5000, ["9.9E+125", "Store it as a string"]),
        (Decimal("-1E+126"), ["1E-130 to 9.9E+125", "store it as a string"]),
        (1e126, ["1E-130 to 9.9E+125", "store it as a string"]),
        (Decimal("9E-131"), ["1E-130 to 9.9E+125", "store it as a string"]),
        (5e-324, ["1E-130 to 9.9E+125", "store it as a string"]),
        (Decimal("1." + "1" * 37 + "E-130"), ["decimal place 165", "Round it"]),
        ("\ud83d", ["surrogate", "Fix the text"]),
        ((1, 2), ["is a tuple", "a list, a dict or a set"]),
        ({1, "a"}, ["is a set of int, str", "Store a list"]),
        (object(), ["is a object", "a list, a dict or a set"]),
        (1j, ["is a complex", "a list, a dict or a set"]),
        (timedelta(1), ["is a timedelta", "a list, a dict or a set"]),
        (FinerTime(2023, 3, 16, tzinfo=timezone.utc), ["nanoseconds", "Round it down"]),
        (NotATime(2023, 3, 16), ["NaT", "store None"]),
        (datetime(1, 1, 1, tzinfo=PARIS), ["years 1 to 9999", "nearer time"]),
        (datetime.max.replace(tzinfo=timezone(-timedelta(hours=1))), ["years 1 to 9999", "nearer time"]),
        (nested(17), ["deeper than 16 levels", "Flatten it"]),
        ([0] * 2_000, ["past entry 2,000", "Store fewer"]),
        (set(range(2_000)), ["past entry 2,000", "Store fewer"]),
        (set(), ["is an empty set", "Store an empty list or None"]),
        ({1: "x"}, ["'cursor.1'", "non-empty str", "Rename it"]),
        ({"": "x"}, ["\"cursor.''\"", "non-empty str", "Rename it"]),
        ({"\udc00": "x"}, ["surrogate", "Fix the text"]),
    ],
    ids=kind_of,
)
def test_encode_refuses_naming_key_limit_and_remedy_when_value_breaks_a_limit(value: Any, texts: list[str]) -> None:
    message = refusal(value)

    assert message.startswith(("The watermark 'cursor", 'The watermark "cursor'))
    assert [text for text in texts if text not in message] == []


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("chunks", {"N": "1001"}, "chunks is not a whole number from 1 to 1,000"),
        ("length", {"N": str(256 * 1024 * 1024 + 1)}, "length is not a whole number from 1 to 268,435,456"),
        ("chunks", {"N": "-1"}, "chunks is not a whole number from 1 to 1,000"),
        ("chunks", {"N": "0"}, "chunks is not a whole number from 1 to 1,000"),
        ("length", {"N": "1.5"}, "length is not a whole number from 1 to 268,435,456"),
        ("chunks", {"S": "1"}, "chunks is not a whole number from 1 to 1,000"),
        ("id", {"N": "1"}, "id is not an id of chunks"),
        ("id", {"S": "c#0000000000000000001"}, "id is not an id of chunks"),
        ("id", {"S": "s#1-0\n"}, "id is not an id of chunks"),
        ("sha256", {"N": "1"}, "sha256 is not a hash"),
        ("sha256", {"S": "0" * 63}, "sha256 is not a hash"),
        ("sha256", {"S": "A" * 64}, "sha256 is not a hash"),
        ("sha256", {"NULL": True}, "sha256 is missing"),
        ("more", {"N": "1"}, "more is not a part of a reference to chunks"),
    ],
)
def test_reference_to_chunks_is_refused_when_a_field_has_a_form_that_is_never_written(
    field: str, value: Any, text: str
) -> None:
    reference = values.Spilled("s#1-0", 1_000, 256 * 1024 * 1024, "0" * 64)
    attribute, types = encode({"state": {"segments": [{"data": reference}]}})
    assert decode(attribute, types) == {"state": {"segments": [{"data": reference}]}}

    attribute["M"]["state"]["M"]["segments"]["L"][0]["M"]["data"]["M"][field] = value

    with pytest.raises(values.ImplausibleError, match=f"^state.segments.0.data.reference.{text}$"):
        decode(attribute, types)


@pytest.mark.parametrize("id", ["s#0123456789abcdef-0", "p#0123456789abcdef-1999", "s#0123456789abcdef-b12"])
def test_reference_to_chunks_is_read_when_its_id_is_a_chunk_id(id: str) -> None:
    reference = values.Spilled(id, 1, 1, "0" * 64)

    assert decode(*encode({"state": reference})) == {"state": reference}


def test_encode_names_path_when_bad_value_is_nested() -> None:
    assert "'cursor.rows[1].high'" in refusal({"rows": [1, {"high": float("nan")}]})


def test_refusal_does_not_show_the_value_when_it_is_secret() -> None:
    assert "54321" not in refusal(Decimal("54321" * 10 + "." + "1" * 40))


def test_encode_names_what_the_map_is_when_it_is_not_a_watermark() -> None:
    with pytest.raises(InvalidValueError, match="The metric 'rows'"):
        encode({"rows": object()}, what="metric")


def test_reserved_name_is_accepted_when_it_is_nested() -> None:
    assert decode(*encode({"table": {"runId": 1}})) == {"table": {"runId": 1}}


def test_encode_accepts_up_to_the_limit_and_no_byte_more_when_map_is_large() -> None:
    overhead = sum(size_of(part) for part in encode({"cursor": ""}))
    fits = "x" * (values.MAX_BYTES - overhead)

    assert decode(*encode({"cursor": fits})) == {"cursor": fits}
    assert "65,537 bytes" in refusal(fits + "x", TooLargeError)


def test_size_counts_names_and_entries_when_values_are_nested() -> None:
    assert size_of({"M": {"ab": {"L": [{"S": "é"}, {"N": "12"}]}, "c": {"NULL": True}}}) == 19
    assert size_of({"SS": ["é", "abc"]}) == 10


@pytest.mark.parametrize(
    "value", [nested(16), [0] * 1_999, nested(16, "x"), [[[[[[[[[[[[[[[1]]]]]]]]]]]]]]], set(range(1_999))], ids=kind_of
)
def test_encode_accepts_value_when_it_is_at_the_limit_of_shape(value: Any) -> None:
    assert decode(*encode({"cursor": value})) == {"cursor": value}


def test_encode_accepts_2000_entries_and_refuses_2001_when_map_is_flat() -> None:
    full = {f"k{number}": number for number in range(2_000)}

    assert decode(*encode(full)) == full
    with pytest.raises(InvalidValueError, match=r"'one more' is past entry 2,000 .*Store fewer"):
        encode(full | {"one more": 1})


def test_encode_leaves_input_alone_when_it_refuses() -> None:
    given = {"good": [1, {"a": NOON}], "cursor": float("nan")}
    copy = {"good": [1, {"a": NOON}]}

    with pytest.raises(InvalidValueError):
        encode(given)

    assert {"good": given["good"]} == copy


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ({"N": "808"}, 808),
        ({"N": "2.0"}, 2),
        ({"N": "1.5"}, Decimal("1.5")),
        ({"S": "2023-03-16T12:00:00.000250+00:00"}, "2023-03-16T12:00:00.000250+00:00"),
        ({"B": b"x"}, b"x"),
        ({"L": [{"NULL": True}, {"BOOL": False}]}, [None, False]),
    ],
)
def test_decode_guesses_no_more_than_the_attribute_says_when_item_is_legacy(attribute: Any, value: Any) -> None:
    back = decode({"M": {"cursor": attribute}})

    assert back == {"cursor": value}
    assert type(back["cursor"]) is type(value)


@pytest.mark.parametrize(
    ("attribute", "kind"),
    [
        ({"S": "text"}, {"S": "float"}),
        ({"S": "text"}, {"S": "datetime"}),
        ({"S": "2023-03-16T12:00:00"}, {"S": "datetime"}),
        ({"S": "16/03/2023"}, {"S": "date"}),
        ({"N": "1"}, {"S": "datetime"}),
        ({"N": "Infinity"}, None),
        ({"N": "NaN"}, None),
        ({"N": "1E+999999"}, None),
        ({"N": "one"}, {"S": "decimal"}),
        ({"SS": ["a"]}, {"S": "float"}),
        ({"S": "a", "N": "1"}, None),
        ({"BOOL": True}, {"S": "float"}),
        ({"M": {}}, {"S": "float"}),
        ({"S": "text"}, {"M": {}}),
    ],
)
def test_decode_raises_when_attribute_and_type_do_not_fit(attribute: Any, kind: Any) -> None:
    with pytest.raises((ValueError, KeyError)):
        decode({"M": {"cursor": attribute}}, {"M": {"cursor": kind} if kind else {}})


def test_decode_raises_when_attribute_is_not_a_map() -> None:
    with pytest.raises(ValueError, match="a map was expected"):
        decode({"L": []})


def test_from_utc_string_raises_when_zone_is_missing() -> None:
    with pytest.raises(ValueError, match="without a zone"):
        from_utc_string("2023-03-16T12:00:00.000000")


def test_to_utc_string_has_microseconds_and_zone_when_time_is_whole() -> None:
    assert to_utc_string(datetime(2023, 3, 16, 13, tzinfo=PARIS)) == "2023-03-16T12:00:00.000000+00:00"
