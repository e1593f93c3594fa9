"""Values: what holds for every supported value, however nested."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from hypothesis import HealthCheck, given, settings

from scripts.helpers.protocol.values import decode, encode, size_of, to_utc_string
from tests.protocol.any_values import maps, moments

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def typed(value: Any) -> Any:
    """Return a form in which values are equal only if their types are too."""
    if isinstance(value, dict):
        return {name: typed(item) for name, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return type(value), value


def legacy_view(value: Any) -> Any:
    """Return what a program with boto3's resource reads; written without using our encoder."""
    if isinstance(value, dict):
        return {name: legacy_view(item) for name, item in value.items()}
    if isinstance(value, list):
        return [legacy_view(item) for item in value]
    if isinstance(value, set):
        return {legacy_view(item) for item in value}
    if isinstance(value, datetime):
        utc = value.astimezone(timezone.utc)
        return f"{utc.year:04d}-" + utc.strftime("%m-%dT%H:%M:%S.%f+00:00")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    return value


def comparable(attribute: Any) -> Any:
    ((tag, value),) = attribute.items()
    if tag == "M":
        return {"M": {name: comparable(item) for name, item in value.items()}}
    if tag == "L":
        return {"L": [comparable(item) for item in value]}
    if tag in ("SS", "NS", "BS"):
        return {tag: set(map(Decimal, value)) if tag == "NS" else set(value)}
    return {"N": Decimal(value)} if tag == "N" else attribute


def real_size(attribute: Any) -> int:
    """Return the size by the Developer Guide: two digits a byte, one byte more if they cross byte borders."""
    ((tag, value),) = attribute.items()
    if tag == "N":
        digits = "".join(map(str, Decimal(value).as_tuple().digits)).strip("0")
        return (len(digits) + 2) // 2 + 1 + value.startswith("-") if digits else 1
    if tag == "M":
        return 3 + sum(1 + len(name.encode()) + real_size(item) for name, item in value.items())
    if tag == "L":
        return 3 + sum(1 + real_size(item) for item in value)
    if tag in ("SS", "NS", "BS"):
        return 3 + sum(1 + real_size({tag[0]: item}) for item in value)
    return {"S": lambda: len(value.encode()), "B": lambda: len(value)}.get(tag, lambda: 1)()


@patient
@given(maps)
def test_decode_returns_every_value_with_its_type_when_encoded(given_map: dict[str, Any]) -> None:
    back = decode(*encode(given_map))

    assert typed(back) == typed(given_map)


@patient
@given(maps)
def test_boto3_reads_the_plain_values_when_encoded(given_map: dict[str, Any]) -> None:
    attribute: Any = encode(given_map)[0]

    assert TypeDeserializer().deserialize(attribute) == legacy_view(given_map)


@patient
@given(maps)
def test_wire_is_what_boto3_writes_for_the_plain_values_when_encoded(given_map: dict[str, Any]) -> None:
    attribute: Any = encode(given_map)[0]

    assert comparable(attribute) == comparable(TypeSerializer().serialize(TypeDeserializer().deserialize(attribute)))


@patient
@given(maps)
def test_size_estimate_is_never_below_the_real_size_when_encoded(given_map: dict[str, Any]) -> None:
    for part in encode(given_map):
        assert size_of(part) >= real_size(part)


@patient
@given(moments, moments)
def test_utc_strings_sort_as_their_times_when_zones_differ(first: datetime, second: datetime) -> None:
    texts = to_utc_string(first), to_utc_string(second)

    assert (texts[0] < texts[1], texts[0] == texts[1]) == (first < second, first == second)
    assert [len(text) for text in texts] == [32, 32]
