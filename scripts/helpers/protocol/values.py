"""Convert Python values to DynamoDB attributes and back, and check every limit before anything is sent. Pure.

The original class can read what is stored: a datetime is a fixed-width ISO string, and an int, a float or a
Decimal is a number. A separate `types` map stores the types that DynamoDB does not distinguish.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from datetime import date, datetime, timezone
from decimal import Context, Decimal, InvalidOperation
from typing import Any, NamedTuple

from scripts.helpers.errors import InvalidValueError, TooLargeError
from scripts.helpers.protocol.fields import SHA256, Fields
from scripts.helpers.protocol.fields import ImplausibleError as ImplausibleError
from scripts.helpers.protocol.fields import from_utc_string as from_utc_string

Attribute = dict[str, Any]
"""A DynamoDB attribute value as the low-level client takes it, such as ``{"S": "text"}``."""

MAX_BYTES = 64 * 1024
"""Size of one encoded map. The head holds the map, and each KB of it costs a write unit at every step of a run."""
MAX_DEPTH = 16
"""DynamoDB allows 32 levels, and a map is already nested a few levels deep in an item and its plan."""
MAX_ENTRIES = 2_000
"""Enough for 200 sources, as a state of rows has at most eight entries. Maps with longer values reach `MAX_BYTES`."""
MAX_DIGITS = 38
MAX_EXPONENT, MIN_EXPONENT = 125, -130
"""DynamoDB's limits for the digits of a number, and for the exponent of its first digit."""
LAST_PLACE = -165
"""boto3's deserializer cannot read a number with digits after this decimal place."""
MAX_CHUNKS, MAX_RAW_BYTES = 1_000, 256 * 1024 * 1024
"""Limits for a reference: its number of chunks, and the bytes that they decompress to."""
_CHUNKS_ID = "[ps]#[0-9A-Za-z]{1,64}-b?[0-9]{1,5}"
"""Pattern of the ids that `chunks` makes. An id of another form could be the key of an item that is not a chunk."""
_CONTEXT = Context(prec=MAX_DIGITS)
SPILLED = "spilled"
_SETS = ("SS", "NS", "BS")
"""Types of DynamoDB sets: the first letter is the type of each member."""
RESERVED_NAMES = ("jobName", "runId", "watermarks")


class Spilled(NamedTuple):
    """A reference to a value that is too large for its item and is stored in chunks beside it."""

    id: str
    chunks: int
    length: int
    sha256: str


def to_utc_string(moment: datetime) -> str:
    """Write an aware datetime as fixed-width UTC text, so that texts sort as their times do.

    >>> to_utc_string(datetime(2023, 3, 16, 15, 45, tzinfo=timezone.utc))
    '2023-03-16T15:45:00.000000+00:00'
    """
    return moment.astimezone(timezone.utc).isoformat(timespec="microseconds")


def encode(
    values: Mapping[str, Any], *, what: str = "watermark", limit: int = MAX_BYTES
) -> tuple[Attribute, Attribute]:
    """Turn a map of values into two attributes: the values and their types.

    Parameters
    ----------
    values
        str, int, float, Decimal, bool, None, bytes, date, aware datetime, list, dict, and sets of texts, of bytes
        or of numbers of one type, nested up to 16 levels and 2,000 entries. Trailing zeros of a Decimal are not
        kept: DynamoDB trims them.
    what
        The kind of map, for error texts.
    limit
        Largest size in bytes, as DynamoDB counts it (names and values).

    Returns
    -------
    tuple
        ``({"M": values}, {"M": types})``; the second has only the types that the first does not show.

    Raises
    ------
    InvalidValueError
        A value cannot be stored; the message names its key, the limit and the remedy. Numbers may have 38 digits and
        a magnitude from 1E-130 to 9.9E+125 (DynamoDB Developer Guide, "Supported data types").
    TooLargeError
        The two attributes have more than `limit` bytes.
    """
    for name in values:
        if name in RESERVED_NAMES:
            raise InvalidValueError(reason="reserved_name", name=name, reserved=RESERVED_NAMES)
    encoder = _Encoder(what)
    attribute, types = encoder.encode(values, "", 0)
    size = size_of(attribute) + size_of(types or {"M": {}})
    if size > limit:
        largest = max(attribute["M"], key=lambda name: size_of(attribute["M"][name]))
        remedy = "Store a reference to the data instead of the data."
        raise TooLargeError(f"The {what} map, most of it in {largest!r}", size, limit, remedy)
    return attribute, types or {"M": {}}


def decode(attribute: Attribute, types: Attribute | None = None) -> dict[str, Any]:
    """Return the values that `encode` turned into these two attributes, with the types that they had.

    Without `types` (an item of the original class) a whole number becomes an int, any other a Decimal.
    Raises ValueError, TypeError or KeyError if the two maps do not match.
    """
    if set(attribute) != {"M"}:
        raise ValueError("a map was expected")
    decoded = _decode(attribute, types)
    assert isinstance(decoded, dict)
    return decoded


def as_stored(given: Mapping[str, Any], what: str = "watermark", limit: int = MAX_BYTES) -> dict[str, Any]:
    """Check values and return a copy that equals what a later read returns, and shares no list or dict with `given`."""
    return decode(*encode(given, what=what, limit=limit))


def same_values(left: Any, right: Any) -> bool:
    """Return whether two stored values are equal in value and type: 1, 1.0 and True are different values."""
    # Do not compare the types of dicts: look-ups return subclasses of dict (see `watermark_item`).
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_values(left[name], right[name]) for name in left)
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same_values, left, right))
    if isinstance(left, set):
        return left == right and {type(one) for one in left} == {type(one) for one in right}
    return bool(left == right)


def size_of(attribute: Attribute) -> int:
    """Return the size of an attribute value in bytes, as DynamoDB counts it or slightly larger."""
    ((tag, value),) = attribute.items()
    if tag == "S":
        return len(value.encode("utf-8"))
    if tag == "N":
        return len(value) + 1
    if tag == "B":
        return len(value)
    if tag == "M":
        return 3 + sum(1 + len(name.encode("utf-8")) + size_of(item) for name, item in value.items())
    if tag == "L":
        return 3 + sum(1 + size_of(item) for item in value)
    if tag in _SETS:
        return 3 + sum(1 + size_of({tag[0]: item}) for item in value)
    return 1


class _Encoder:
    def __init__(self, what: str) -> None:
        self.what = what
        self.entries = 0

    def refuse(self, path: str, problem: str, remedy: str) -> InvalidValueError:
        return InvalidValueError(f"The {self.what} {path!r} {problem}. {remedy}")

    def encode(self, value: Any, path: str, depth: int) -> tuple[Attribute, Attribute | None]:
        """Return a value's attribute, and its Python type, such as "float"; None if the attribute shows the type."""
        if depth > MAX_DEPTH:
            raise self.refuse(path, f"is nested deeper than {MAX_DEPTH} levels", "Flatten it.")
        self.entries += 1
        if self.entries > MAX_ENTRIES + 1:
            raise self.refuse(path, f"is past entry {MAX_ENTRIES:,} of its map", "Store fewer entries.")
        if type(value) is dict:
            return self.mapping(value, path, depth)
        if value is None:
            return {"NULL": True}, None
        # Test for bool before int, and for datetime before date: True is also an int, and a datetime is also a date.
        if isinstance(value, bool):
            return {"BOOL": bool(value)}, None
        if isinstance(value, str):
            return {"S": self.text(value, path)}, None
        if isinstance(value, int):
            return {"N": self.integer(value, path)}, None
        if isinstance(value, float):
            return {"N": self.floating(value, path)}, {"S": "float"}
        if isinstance(value, Decimal):
            return {"N": self.decimal(value, path)}, {"S": "decimal"}
        if isinstance(value, (bytes, bytearray)):
            return {"B": bytes(value)}, None
        if isinstance(value, datetime):
            return {"S": self.moment(value, path)}, {"S": "datetime"}
        if isinstance(value, date):
            return {"S": value.isoformat()}, {"S": "date"}
        if isinstance(value, Spilled):  # Encode a reference here: it is a tuple, and `nested` refuses tuples.
            return self.mapping(value._asdict(), path, depth)[0], {"S": SPILLED}
        return self.nested(value, path, depth)

    def nested(self, value: Any, path: str, depth: int) -> tuple[Attribute, Attribute | None]:
        if isinstance(value, Mapping):
            return self.mapping(value, path, depth)
        if isinstance(value, list):
            return self.listing(value, path, depth)
        if isinstance(value, Set):
            return self.members(value, path)
        raise self.refuse(
            path,
            f"is a {type(value).__name__}, which cannot be stored",
            "Use str, int, float, Decimal, bool, None, bytes, date, an aware datetime, a list, a dict or a set.",
        )

    def text(self, value: str, path: str) -> str:
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise self.refuse(path, "holds half a surrogate pair, which UTF-8 cannot write", "Fix the text.") from None
        return str.__str__(value)

    def integer(self, value: int, path: str) -> str:
        if abs(value) < 10**MAX_DIGITS:
            return str(int(value))
        # Refuse a huge int by its number of bits, because converting it to a Decimal would take long.
        if value.bit_length() > 4 * (MAX_EXPONENT + 1):
            raise self.refuse(path, "is too large a number: the limit is 9.9E+125", "Store it as a string.")
        number = Decimal(int(value))
        self.check_number(number, path)
        return _number_text(number)

    def floating(self, value: float, path: str) -> str:
        text = repr(float(value))
        self.check_number(Decimal(text), path)
        return text

    def decimal(self, value: Decimal, path: str) -> str:
        self.check_number(value, path)
        return _number_text(value)

    def check_number(self, value: Decimal, path: str) -> None:
        if not value.is_finite():
            raise self.refuse(path, "is NaN or infinite; stored numbers are finite", "Leave it out or store None.")
        if value.is_zero():
            return
        digits = len("".join(map(str, value.as_tuple().digits)).strip("0"))
        if digits > MAX_DIGITS:
            raise self.refuse(
                path, f"has {digits} digits; the limit is {MAX_DIGITS}", "Round it or store it as a string."
            )
        if not MIN_EXPONENT <= value.adjusted() <= MAX_EXPONENT:
            raise self.refuse(path, "is outside 1E-130 to 9.9E+125", "Scale it or store it as a string.")
        if int(value.normalize(_CONTEXT).as_tuple().exponent) < LAST_PLACE:
            raise self.refuse(path, f"has digits after decimal place {-LAST_PLACE}", "Round it.")

    def moment(self, value: datetime, path: str) -> str:
        # Refuse pandas' NaT, a datetime that does not equal itself: it would be stored as the text "NaT".
        if value != value:
            raise self.refuse(path, "is NaT, which is not a time", "Leave it out or store None.")
        if value.utcoffset() is None:
            raise self.refuse(
                path, "is a datetime without a time zone", "Give it one, such as value.replace(tzinfo=timezone.utc)."
            )
        if getattr(value, "nanosecond", 0):
            raise self.refuse(path, "has nanoseconds; the limit is microseconds", "Round it down to microseconds.")
        try:
            return to_utc_string(value)
        except OverflowError:
            raise self.refuse(path, "falls outside the years 1 to 9999 in UTC", "Use a nearer time.") from None

    def mapping(self, value: Mapping[Any, Any], path: str, depth: int) -> tuple[Attribute, Attribute | None]:
        attributes: dict[str, Attribute] = {}
        types: dict[str, Attribute] = {}
        for name, item in value.items():
            if not isinstance(name, str) or not name:
                inner = f"{path}.{name!r}" if path else repr(name)
                raise self.refuse(inner, "has a name that is not a non-empty str", "Rename it.")
            inner = f"{path}.{name}" if path else name
            key = self.text(name, inner)
            attributes[key], kind = self.encode(item, inner, depth + 1)
            if kind:
                types[key] = kind
        return {"M": attributes}, {"M": types} if types else None

    def listing(self, value: list[Any], path: str, depth: int) -> tuple[Attribute, Attribute | None]:
        attributes: list[Attribute] = []
        types: dict[str, Attribute] = {}
        for index, item in enumerate(value):
            attribute, kind = self.encode(item, f"{path}[{index}]", depth + 1)
            attributes.append(attribute)
            if kind:
                types[str(index)] = kind
        return {"L": attributes}, {"M": types} if types else None

    def members(self, value: Set[Any], path: str) -> tuple[Attribute, Attribute | None]:
        """Encode a set. Its members are sorted, so that equal sets are equal attributes."""
        if not value:
            raise self.refuse(path, "is an empty set, which a table cannot hold", "Store an empty list or None.")
        self.entries += len(value)
        if self.entries > MAX_ENTRIES + 1:
            raise self.refuse(path, f"is past entry {MAX_ENTRIES:,} of its map", "Store fewer entries.")
        kinds = {type(one) for one in value}
        if kinds == {str}:
            return {"SS": sorted(self.text(one, path) for one in value)}, None
        if kinds == {bytes}:
            return {"BS": sorted(value)}, None
        if kinds == {int}:
            return {"NS": sorted(self.integer(one, path) for one in value)}, None
        if kinds == {float}:
            return {"NS": sorted(self.floating(one, path) for one in value)}, {"S": "float"}
        if kinds == {Decimal}:
            return {"NS": sorted(self.decimal(one, path) for one in value)}, {"S": "decimal"}
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise self.refuse(path, f"is a set of {names}", "Sets hold texts, bytes, or numbers of one type. Store a list.")


def _decode(attribute: Attribute, types: Attribute | None) -> Any:
    ((tag, value),) = attribute.items()
    if tag == "M" and types and types.get("S") == SPILLED:
        return _spilled(_decode(attribute, None))
    if tag in ("M", "L"):
        inner = types["M"] if types else {}
        found = {}
        for name, item in value.items() if tag == "M" else enumerate(value):
            try:
                found[name] = _decode(item, inner.get(str(name)))
            except ImplausibleError as error:
                raise ImplausibleError(f"{name}.{error}") from error
        return found if tag == "M" else list(found.values())
    kind = types["S"] if types else None
    if tag in _SETS:
        return {_decode({tag[0]: one}, types) for one in value}
    if tag == "N":
        return _number(value, kind)
    if tag == "S" and kind == "datetime":
        return from_utc_string(value)
    if tag == "S" and kind == "date":
        return date.fromisoformat(value)
    if kind is not None:
        raise ValueError(f"type {kind!r} does not fit a {tag}")
    if tag == "NULL":
        return None
    if tag in ("S", "BOOL"):
        return value
    if tag == "B":
        return bytes(value)
    raise ValueError(f"a {tag} is not one of our values")


def _number_text(number: Decimal) -> str:
    """Return a number as text that boto3's deserializer can read: "0", not "0E-500", and no long run of zeros."""
    if number.is_zero():
        return "0"
    _, digits, exponent = number.as_tuple()
    long = len(digits) > MAX_DIGITS or int(exponent) < LAST_PLACE
    return str(number.normalize(_CONTEXT) if long else number)


def _spilled(found: dict[str, Any]) -> Spilled:
    fields = Fields(found, "reference")
    for name in sorted(found.keys() - set(Spilled._fields)):
        raise fields.wrong(name, "a part of a reference to chunks")
    return Spilled(
        fields.text("id", pattern=_CHUNKS_ID, what="an id of chunks"),
        # Limit the number of chunks: readers request them one by one, and an altered item could name a billion.
        fields.whole("chunks", least=1, most=MAX_CHUNKS),
        fields.whole("length", least=1, most=MAX_RAW_BYTES),
        fields.text("sha256", pattern=SHA256, what="a hash"),
    )


def _number(text: str, kind: str | None) -> int | float | Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError("not a number") from None
    # Refuse numbers such as 1E+999999999, because int() of it would use up all memory.
    if not number.is_finite() or number.adjusted() > MAX_EXPONENT:
        raise ValueError("not a number that a table can hold")
    if kind == "float":
        return float(text)
    if kind == "decimal":
        return _trimmed(number)
    if kind is not None:
        raise ValueError(f"type {kind!r} does not fit a number")
    if number == number.to_integral_value():
        return int(number)
    return _trimmed(number)


def _trimmed(number: Decimal) -> Decimal:
    """Drop trailing zeros, as DynamoDB does: 1.50 -> 1.5. So a value to be stored already equals what is read later."""
    trimmed = number.normalize(_CONTEXT)
    return trimmed if int(trimmed.as_tuple().exponent) <= 0 else Decimal(int(trimmed))
