"""Types of columns as in Spark's JSON: check that a type is known, and find the common type of two types. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from scripts.helpers.errors import InvalidValueError

Kind = Any
"""A type: a name such as ``long`` or ``decimal(10,2)``, or the map of a struct, an array or a map."""
Columns = Mapping[str, Kind]
"""The types of a source's columns by name, in the order of the columns."""

_SHOWN = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint", "null": "void"}
"""Spark SQL's names of types, which users know, by the names in Spark's JSON; only those that differ."""
_JSON = {shown: name for name, shown in _SHOWN.items()}
_MARKS = {"elementType": "[]", "keyType": "{key}", "valueType": "{value}"}
"""How a path names the parts of an array or a map."""
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
"""Decimal digits of each type's largest value. The types are ordered: each holds all values of the ones before it."""
_WHOLE = list(_DIGITS)
_IN_FLOAT = ("byte", "short")
_IN_DOUBLE = ("byte", "short", "integer", "float")
"""Types whose values a float or a double holds exactly, in 24 or 53 bits."""
_DECIMAL = re.compile(r"decimal\((\d{1,2}),(-?\d{1,2})\)")
_MOST_DIGITS = 38
"""Maximum number of digits of Spark's decimal."""
_NAME = re.compile(
    r"string|binary|boolean|byte|short|integer|long|float|double|date|timestamp|timestamp_ntz|void|null|variant"
    r"|interval( (day|hour|minute|second|year|month)( to (hour|minute|second|month))?)?"
    r"|(var)?char\([1-9]\d{0,8}\)|time\([0-6]\)|string collate \w{1,60}|geo(metry|graphy)\([\w:, ]{1,60}\)"
)
"""Names of plain types in Spark 3.3 to 4.1, except decimals."""
MAX_DEPTH, MAX_FIELDS, MAX_NAME = 100, 50_000, 8_192
"""Limits: the depth of nested types, the fields of one struct, and the characters of a name."""


def known_kind(found: Any, depth: int = 0) -> Kind:
    """Return a type if all names and shapes in it are known; InvalidValueError for any other type.

    A user-defined type (UDT) is replaced by its storage type, because Spark imports the class that a UDT names, and
    some versions unpickle it. Metadata of fields is dropped: this package does not read it, but Spark 4 does, so forged
    metadata could change how texts are compared (their collation).
    """
    if isinstance(found, str) and (_NAME.fullmatch(found) or decimal_size(found)):
        return found
    match found if depth < MAX_DEPTH else None:
        case {"type": "udt", "sqlType": kind}:
            return known_kind(kind, depth + 1)
        case {"type": "array", "elementType": kind, "containsNull": bool(null), **more} if not more:
            return {"type": "array", "elementType": known_kind(kind, depth + 1), "containsNull": null}
        case {"type": "map", "keyType": key, "valueType": kind, "valueContainsNull": bool(null), **more} if not more:
            kinds = {"keyType": known_kind(key, depth + 1), "valueType": known_kind(kind, depth + 1)}
            return {"type": "map", **kinds, "valueContainsNull": null}
        case {"type": "struct", "fields": list(fields), **more} if not more and len(fields) <= MAX_FIELDS:
            return {"type": "struct", "fields": [_known_field(field, depth + 1) for field in fields]}
    raise InvalidValueError(f"a type is none that Spark writes, or it is nested deeper than {MAX_DEPTH} levels")


def _known_field(found: Any, depth: int) -> dict[str, Any]:
    match found:
        case {"name": str(name), "type": kind, "nullable": bool(null), "metadata": dict(), **more} if not more:
            return {"name": known_name(name), "type": known_kind(kind, depth), "nullable": null, "metadata": {}}
    raise InvalidValueError("a field of a struct has other parts than Spark writes")


def known_name(found: Any) -> str:
    """Return a text unchanged: a column's name or a type of pyarrow. InvalidValueError if it is too long or no text."""
    if not isinstance(found, str) or len(found) > MAX_NAME:
        raise InvalidValueError(f"a name is not a text of up to {MAX_NAME:,} characters")
    return found


def kind_text(kind: Kind) -> str:
    """Return a type as Spark SQL writes it, such as ``struct<id:bigint>``."""
    if not isinstance(kind, Mapping):
        return _SHOWN.get(str(kind), str(kind))
    name = kind.get("type")
    if name == "struct":
        fields = [f"{field['name']}:{kind_text(field['type'])}" for field in kind["fields"]]
        return f"struct<{','.join(fields)}>"
    if name == "array":
        return f"array<{kind_text(kind['elementType'])}>"
    if name == "map":
        return f"map<{kind_text(kind['keyType'])},{kind_text(kind['valueType'])}>"
    return str(name)


def types_by_path(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return the types of a struct's fields, at all depths, by path. Whether a field may be NULL is left out.

    >>> ids = {"type": "array", "elementType": "long"}
    >>> types_by_path({"type": "struct", "fields": [{"name": "ids", "type": ids}]})
    {'ids': 'array', 'ids[]': 'bigint'}
    """
    found = kinds_by_path(schema)
    return {path: kind_text(kind["type"] if isinstance(kind, Mapping) else kind) for path, kind in found.items()}


def kinds_by_path(schema: Mapping[str, Any]) -> dict[str, Kind]:
    """Return the types by path as `types_by_path` does, but in the form of Spark's JSON, which may be a map."""
    return {path: kind for field in schema["fields"] for path, kind in _walk(field["name"], field["type"])}


def _walk(path: str, kind: Kind) -> Iterator[tuple[str, Kind]]:
    parts = {}
    if isinstance(kind, Mapping):
        kind = kind.get("sqlType", kind)  # Replace a user-defined type by its storage type.
    if isinstance(kind, Mapping):
        parts = {f".{field['name']}": field["type"] for field in kind.get("fields", ())}
        parts |= {mark: kind[part] for part, mark in _MARKS.items() if part in kind}
    yield path, kind
    for mark, within in parts.items():
        yield from _walk(path + mark, within)


def narrowed_numbers(given: Columns, found: Columns) -> Iterator[tuple[str, Kind, Kind]]:
    """Yield path and both types of each number in `given` that cannot hold every value of its type in `found`."""
    there = {path.lower(): kind for column in found.items() for path, kind in _walk(*column)}
    for path, kind in (at for column in given.items() for at in _walk(*column)):
        other = there.get(path.lower(), kind)
        if is_number(kind) and common(kind, other) != kind:
            yield path, kind, other


def kind_with(kind: Kind, wanted: Mapping[str, Kind], path: str) -> Kind:
    """Return the type `kind`, found at `path`, with each part whose path is in `wanted` replaced by the type there."""
    if path in wanted or not isinstance(kind, Mapping):
        return wanted.get(path, kind)
    found = {**kind, **{part: kind_with(kind[part], wanted, path + _MARKS[part]) for part in _MARKS.keys() & kind}}
    if "fields" in kind:
        found["fields"] = [
            {**field, "type": kind_with(field["type"], wanted, f"{path}.{field['name']}")} for field in kind["fields"]
        ]
    return found


def kind_of_text(text: str) -> Kind:
    """Return the name in Spark's JSON of a type that is not nested, by its name in SQL: ``bigint`` is ``long``."""
    return _JSON.get(text, text)


def is_nested(kind: Kind) -> bool:
    """Return whether a type is a struct, an array or a map."""
    return isinstance(kind, Mapping)


def is_number(kind: Kind) -> bool:
    """Return whether a type is numeric."""
    return str(kind) in (*_WHOLE, "float", "double") or decimal_size(str(kind)) is not None


def common(one: Kind, other: Kind) -> Kind | None:
    """Return the smallest type that holds every value of two types exactly; None if there is none."""
    if one == other:
        return one
    if one in ("null", "void"):
        return other
    if other in ("null", "void"):
        return one
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return _common_nested(one, other)
    if isinstance(one, Mapping) or isinstance(other, Mapping):
        return None
    return _common_numbers(str(one), str(other))


def _common_numbers(one: str, other: str) -> str | None:
    if one in _WHOLE and other in _WHOLE:
        return max(one, other, key=_WHOLE.index)
    for name, within in (("float", _IN_FLOAT), ("double", _IN_DOUBLE)):
        if name in (one, other) and (one in within or other in within):
            return name
    sizes = [_size_of(one), _size_of(other)]
    if None in sizes or not (one.startswith("decimal") or other.startswith("decimal")):
        return None
    (before, scale), (other_before, other_scale) = [size for size in sizes if size is not None]
    before, scale = max(before, other_before), max(scale, other_scale)
    return f"decimal({before + scale},{scale})" if before + scale <= _MOST_DIGITS else None


def _size_of(kind: str) -> tuple[int, int] | None:
    """Return a type's digits before and after the decimal point; None if the type is not an exact number."""
    if kind in _DIGITS:
        return _DIGITS[kind], 0
    found = decimal_size(kind)
    return None if found is None else (found[0] - found[1], found[1])


def decimal_size(kind: str) -> tuple[int, int] | None:
    """Return precision and scale of a valid decimal type; None for any other type."""
    found = _DECIMAL.fullmatch(kind)
    precision, scale = (int(found[1]), int(found[2])) if found else (0, 0)
    return (precision, scale) if 0 < precision <= _MOST_DIGITS and abs(scale) <= _MOST_DIGITS else None


def _common_nested(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any] | None:
    if one.get("type") != other.get("type"):
        return None
    parts = {"array": ("elementType",), "map": ("keyType", "valueType")}.get(str(one["type"]))
    if parts is not None:
        found = dict(one)
        for part in parts:
            kind = common(one[part], other[part])
            if kind is None:
                return None
            found[part] = kind
        return found
    if one["type"] != "struct":
        return None
    return _common_structs(one, other)


def _common_structs(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any] | None:
    others = {field["name"]: field for field in other["fields"]}
    fields = []
    for field in one["fields"]:
        beside = others.pop(field["name"], field)
        kind = common(field["type"], beside["type"])
        if kind is None:
            return None
        fields.append({**field, "type": kind})
    return {"type": "struct", "fields": [*fields, *others.values()]}


def new_fields(before: Kind, now: Kind, name: str) -> list[str]:
    """Return the dotted names of fields inside the column `name` that its type `now` has but `before` does not."""
    if not isinstance(before, Mapping) or not isinstance(now, Mapping) or before.get("type") != now.get("type"):
        return []
    if before["type"] == "array":
        return new_fields(before["elementType"], now["elementType"], name)
    if before["type"] == "map":
        return new_fields(before["valueType"], now["valueType"], name)
    if before["type"] != "struct":
        return []
    known = {field["name"]: field["type"] for field in before["fields"]}
    found = []
    for field in now["fields"]:
        inner = f"{name}.{field['name']}"
        if field["name"] in known:
            found += new_fields(known[field["name"]], field["type"], inner)
        else:
            found.append(inner)
    return found


def differing_by_case(columns: Columns) -> list[str]:
    """Return the paths of columns and of fields within them that differ from another path only by case."""
    fields = [{"name": name, "type": kind} for name, kind in columns.items()]
    spelled: dict[str, list[str]] = {}
    for path in types_by_path({"fields": fields}):
        spelled.setdefault(path.lower(), []).append(path)
    return [path for paths in spelled.values() if len(paths) > 1 for path in paths]
