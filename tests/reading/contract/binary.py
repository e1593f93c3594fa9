"""Small Parquet, ORC, Avro and XML files that Spark did not write, with the rows that they hold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import pyarrow as pa
from pyarrow import orc
from pyarrow import parquet as pq

from scripts.helpers.errors import FileContentError, SourceError
from tests.reading.contract.cases import Case, Row

SPARK = ("read", "glue")
EVERY = (*SPARK, "read_pandas")
PANDAS = ("read_pandas",)

MOMENT = datetime(2024, 2, 29, 10, 0, 0, 123456)
OLD = (date(1, 1, 1), date(1500, 3, 1), date(1582, 10, 10), date(2024, 2, 29), date(9999, 12, 31))
OLD_TIMES = (datetime(1, 1, 1), datetime(1500, 3, 1), datetime(1899, 3, 1), MOMENT, datetime(9999, 12, 31, 23, 59, 59))
OLD_TEXTS = ("0001-01-01T00:00:00", "1500-03-01T00:00:00", "1899-03-01T00:00:00", "2024-02-29T10:00:00.123456",
             "9999-12-31T23:59:59")  # fmt: skip
NANOS = 1709200800000001000
"""A time in nanoseconds that microseconds hold: 10:00:00.000001 on 29 February 2024, in UTC."""


# --- writers ------------------------------------------------------------------------------------------


def parquet(table: pa.Table, **options: Any) -> bytes:
    body = BytesIO()
    pq.write_table(table, body, **options)
    return body.getvalue()


def orc_of(table: pa.Table) -> bytes:
    body = BytesIO()
    orc.write_table(table, body)
    return body.getvalue()


WRITERS = {"parquet": parquet, "orc": orc_of}


def avro(fields: Mapping[str, Any], *rows: Sequence[Any]) -> bytes:
    """Write Avro as its specification defines it, with one block and no compression."""
    schema = {
        "type": "record",
        "name": "row",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }
    meta = _encoded({"type": "map", "values": "bytes"}, {"avro.schema": json.dumps(schema).encode()})
    block = b"".join(_encoded(kind, value) for row in rows for kind, value in zip(fields.values(), row, strict=True))
    blocks = _long(len(rows)) + _long(len(block)) + block + b"=" * 16 if rows else b""
    return b"Obj\x01" + meta + b"=" * 16 + blocks


def _long(value: int) -> bytes:
    found, left = bytearray(), (value << 1) ^ (value >> 63)
    while left > 127:
        found.append(left & 127 | 128)
        left >>= 7
    return bytes([*found, left])


def _encoded(kind: Any, value: Any) -> bytes:
    if isinstance(kind, list):
        index = kind.index("null") if value is None else next(i for i, one in enumerate(kind) if one != "null")
        return _long(index) + _encoded(kind[index], value)
    name = kind["type"] if isinstance(kind, dict) else kind
    if name in ("int", "long"):
        return _long(value)
    if name == "boolean":
        return bytes([value])
    if name in ("double", "float"):
        return pa.array([value], pa.float64() if name == "double" else pa.float32()).buffers()[1].to_pybytes()
    if name in ("string", "bytes"):
        body = value.encode() if isinstance(value, str) else value
        return _long(len(body)) + body
    if name == "fixed":
        return bytes(value)
    if name == "enum":
        return _long(kind["symbols"].index(value))
    if name == "array":
        return (_long(len(value)) + b"".join(_encoded(kind["items"], one) for one in value) if value else b"") + b"\0"
    if name == "map":
        entries = b"".join(_encoded("string", key) + _encoded(kind["values"], one) for key, one in value.items())
        return (_long(len(value)) + entries if value else b"") + b"\0"
    if name == "record":
        return b"".join(_encoded(field["type"], value[field["name"]]) for field in kind["fields"])
    return b""  # null


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


# --- cases --------------------------------------------------------------------------------------------


def rows(names: str, *values: Sequence[str | None]) -> list[Row]:
    return [dict(zip(names.split(), row, strict=True)) for row in values]


def columnar(name: str, tables: Sequence[Mapping[str, Any]], held: Sequence[Row] | None, **more: Any) -> list[Case]:
    """Return a Parquet case and an ORC case, with one file for each table."""
    found = []
    for kind in more.pop("formats", WRITERS):
        files = {f"{number}.{kind}": WRITERS[kind](pa.table(table)) for number, table in enumerate(tables)}
        ways = [way for way in more.get("ways", EVERY) if kind == "parquet" or way != "read_pandas"]
        found.append(Case(name, kind, files, held, **{**more, "ways": ways}))
    return found


def one(name: str, tables: Sequence[Mapping[str, Any]], held: Sequence[Row] | None, **more: Any) -> list[Case]:
    return columnar(name, tables, held, formats=["parquet"], **more)


A = pa.array
NS = pa.timestamp("ns")
US, US_UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")
BIG = 2**53 + 1
NESTED = pa.struct([("n", pa.int64()), ("tags", pa.list_(pa.string()))])

TOO_NARROW_WITHIN = {
    "n STRUCT<n: SMALLINT>": pa.struct([("n", pa.int32())]), "n ARRAY<TINYINT>": pa.list_(pa.int64()),
    "n MAP<STRING, SMALLINT>": pa.map_(pa.string(), pa.int32()),
}  # fmt: skip
TOO_NARROW = {
    "n SMALLINT": pa.int32(), "n TINYINT": pa.int16(), "N INT": pa.uint32(), "n INT": pa.decimal128(9, 2),
    "n BIGINT": pa.decimal128(18, 2), **TOO_NARROW_WITHIN,
}  # fmt: skip
"""Types of Parquet whose numbers Spark wraps, or reads without their point, by the schema that is given."""

COLUMNAR = [
    *columnar(
        "NULL in whole numbers",
        [{"id": A([1, None]), "n": A([BIG, None]), "s": A([-32768, None], pa.int16())}],
        rows("id n s", ("1", str(BIG), "-32768"), (None, None, None)),
    ),
    *columnar(
        "decimals",
        [{"a": A([Decimal("1.50"), None], pa.decimal128(9, 2)), "b": A([Decimal("9" * 38), None])}],
        rows("a b", ("1.50", "9" * 38), (None, None)),
    ),
    *columnar(
        "fractions",
        [{"f": A([1.5, None, float("inf")]), "g": A([0.1, None, -0.0], pa.float32())}],
        rows("f g", ("1.5", "0.10000000149011612"), (None, None), ("inf", "-0.0")),
    ),
    *columnar(
        "truth values, texts and bytes",
        [{"b": A([True, None]), "s": A(["\u20ac", ""]), "x": A([b"\x00\xff", None])}],
        rows("b s x", ("true", "\u20ac", "00ff"), (None, "", None)),
    ),
    *one("dates from year 1 on", [{"d": A(OLD)}], [{"d": day.isoformat()} for day in OLD]),
    *columnar("dates since 1582", [{"d": A(OLD[3:])}], [{"d": day.isoformat()} for day in OLD[3:]]),
    *one("times without a zone from year 1 on", [{"t": A(OLD_TIMES, US)}], [{"t": text} for text in OLD_TEXTS]),
    *one("times in UTC from year 1 on", [{"t": A(OLD_TIMES, US_UTC)}], [{"t": f"{text}Z"} for text in OLD_TEXTS]),
    *one(
        "times in UTC, in milliseconds and microseconds",
        [{"t": A([MOMENT], US_UTC)}, {"t": A([datetime(2024, 2, 29)], pa.timestamp("ms", "UTC"))}],
        rows("t", ("2024-02-29T10:00:00.123456Z",), ("2024-02-29T00:00:00Z",)),
    ),
    *one(
        "times in milliseconds, without a zone",
        [{"t": A([datetime(2024, 2, 29)], pa.timestamp("ms"))}],
        rows("t", ("2024-02-29T00:00:00",)),
    ),
    *one(
        "times of several zones, which Parquet has as UTC",
        [{"t": A([MOMENT], US_UTC)}, {"t": A([MOMENT], pa.timestamp("us", "America/New_York"))}],
        rows("t", ("2024-02-29T10:00:00.123456Z",), ("2024-02-29T10:00:00.123456Z",)),
    ),
    *one("times with and without a zone", [{"t": A([MOMENT], US)}, {"t": A([MOMENT], US_UTC)}], None),
    *columnar(
        "nested",
        [{
            "s": A([{"n": BIG, "tags": ["x", None]}, None], NESTED),
            "l": A([[BIG, None], []], pa.list_(pa.int64())),
            "m": A([[("k", BIG)], None], pa.map_(pa.string(), pa.int64())),
        }],
        rows(
            "s l m",
            (f"{{'n': {BIG}, 'tags': ['x', None]}}", f"[{BIG}, None]", f"[('k', {BIG})]"),
            (None, "[]", None),
        ),
    ),
    *columnar(
        "fields of structs in another order",
        [{"s": A([{"a": 1, "b": "x"}])}, {"s": A([{"b": "y", "a": 2}])}],
        rows("s", ("{'a': 1, 'b': 'x'}",), ("{'a': 2, 'b': 'y'}",)),
    ),
    *columnar(
        "field that only one file has in a struct",
        [{"s": A([{"a": 1}])}, {"s": A([{"a": 2, "b": "x"}])}],
        rows("s", ("{'a': 1, 'b': None}",), ("{'a': 2, 'b': 'x'}",)),
    ),
    *one(
        "dictionary beside texts",
        [{"s": A(["x", "y", "x", None]).dictionary_encode()}, {"s": A(["z"])}],
        rows("s", ("x",), ("y",), ("x",), (None,), ("z",)),
    ),
    *columnar("file without rows", [{"id": A([], pa.int64()), "s": A([], pa.string())}], []),
    *columnar("file without rows beside one", [{"id": A([], pa.int64())}, {"id": A([1])}], rows("id", ("1",))),
    *columnar("column without values", [{"id": A([1]), "s": A([None], pa.string())}], rows("id s", ("1", None))),
    *columnar(
        "columns in another order",
        [{"id": A([1]), "s": A(["a"])}, {"s": A(["b"]), "id": A([2])}],
        rows("id s", ("1", "a"), ("2", "b")),
    ),
    *columnar(
        "column that only the first file has",
        [{"id": A([1]), "s": A(["a"])}, {"id": A([2])}],
        rows("id s", ("1", "a"), ("2", None)),
    ),
    *columnar(
        "column that only the last and smallest file has",
        [{"id": A([1] * 30)}, {"id": A([2]), "s": A(["b"])}],
        rows("id s", *([("1", None)] * 30), ("2", "b")),
    ),
    *columnar("names with dots and blanks", [{"a.b": A([1]), "x_y": A([2])}], rows("a.b x_y", ("1", "2"))),
    *columnar("names that differ by case in a file", [{"id": A([1]), "ID": A([2])}], None),
    *columnar(
        "names that differ by case over files", [{"id": A([1])}, {"ID": A([2])}], rows("id", ("1",), ("2",))
    ),
    *columnar("int beside bigint", [{"n": A([1], pa.int32())}, {"n": A([2**40])}], None, ways=SPARK),
    *one(
        "int beside bigint",
        [{"n": A([1], pa.int32())}, {"n": A([2**40])}],
        rows("n", ("1",), (str(2**40),)),
        ways=PANDAS,
    ),
    *columnar("bigint beside int", [{"n": A([2**40])}, {"n": A([1], pa.int32())}], None, ways=SPARK),
    *columnar("int beside double", [{"n": A([1], pa.int32())}, {"n": A([1.5])}], None, ways=SPARK),
    *one("int beside double", [{"n": A([1], pa.int32())}, {"n": A([1.5])}], rows("n", ("1.0",), ("1.5",)), ways=PANDAS),
    *columnar("large bigint beside double", [{"n": A([BIG])}, {"n": A([1.5])}], None),
    *columnar("bigint beside text", [{"n": A([1])}, {"n": A(["a"])}], None),
    *columnar("text beside bigint", [{"n": A(["a"])}, {"n": A([1])}], None),
    *columnar("float beside double", [{"n": A([0.1], pa.float32())}, {"n": A([0.1])}], None, ways=SPARK),
    *columnar(
        "decimals of another scale",
        [{"n": A([Decimal("1.50")], pa.decimal128(9, 2))}, {"n": A([Decimal("1.505")], pa.decimal128(9, 3))}],
        None,
        ways=SPARK,
    ),
    *columnar(
        "fractions for which the schema has whole numbers",
        [{"n": A([1.5])}, {"n": A([1], pa.int32())}],
        None,
        formats=["orc"],
        schema="n INT",
        ways=["read"],
    ),
    *(
        case
        for schema, kind in TOO_NARROW.items()
        for case in one(f"{kind} for {schema} of the schema", [{"n": A([], kind)}], None, schema=schema, ways=["read"])
    ),
    *(
        case
        for schema, kind in TOO_NARROW_WITHIN.items()
        for case in columnar(
            f"{kind} for {schema}", [{"n": A([], kind)}], None, formats=["orc"], schema=schema, ways=["read"]
        )
    ),
    *one(
        "numbers that fit, and types of the file alone",
        [{"n": A([7], pa.int8()), "x": A([Decimal("1.50")], pa.decimal128(9, 2)), "t": A([1], pa.time64("us"))}],
        rows("n x", ("7", "1.50")),
        schema="n INT, x DECIMAL(9,2)",
        ways=["read"],
    ),
    *columnar(
        "int and bigint for which the schema has a bigint",
        [{"n": A([1], pa.int32())}, {"n": A([2**40])}],
        rows("n", ("1",), (str(2**40),)),
        formats=["orc"],
        schema="n BIGINT",
        ways=["read"],
    ),
    *one(
        "whole numbers without a sign",
        [{"a": A([2**8 - 1], pa.uint8()), "b": A([2**32 - 1], pa.uint32()), "c": A([2**64 - 1], pa.uint64())}],
        rows("a b c", (str(2**8 - 1), str(2**32 - 1), str(2**64 - 1))),
    ),
    *one("times of day", [{"t": A([36000000005], pa.time64("us"))}], None, ways=SPARK, error=SourceError),
    *one("nanoseconds", [{"t": A([NANOS], pa.timestamp("ns"))}], None, ways=SPARK, error=SourceError),
    *one(
        "nanoseconds as microseconds",
        [
            {"t": A([NANOS, None, -NANOS], NS), "u": A([NANOS, None, -NANOS], pa.timestamp("ns", "UTC"))},
            {"t": A([0], NS), "u": A([-1000], pa.timestamp("ns", "Europe/London"))},
        ],
        rows(
            "t u",
            ("2024-02-29T10:00:00.000001", "2024-02-29T10:00:00.000001Z"),
            (None, None),
            ("1915-11-03T13:59:59.999999", "1915-11-03T13:59:59.999999Z"),
            ("1970-01-01T00:00:00", "1969-12-31T23:59:59.999999Z"),
        ),
        options={"nanoseconds": "microseconds"},
    ),
    *one(
        "nanoseconds beside another column of their name within a struct",
        [{"t": A([NANOS], NS), "s": A([{"t": "x"}])}],
        rows("t s", ("2024-02-29T10:00:00.000001", "{'t': 'x'}")),
        ways=["read"],
        options={"nanoseconds": "microseconds"},
    ),
    *one(
        "nanoseconds as numbers",
        [{"t": A([NANOS + 1, None], pa.timestamp("ns", "UTC")), "n": A([1, 2])}],
        rows("t n", (str(NANOS + 1), "1"), (None, "2")),
        options={"nanoseconds": "bigint"},
    ),
    *one(
        "part of a microsecond",
        [{"t": A([NANOS + 1], pa.timestamp("ns"))}],
        None,
        options={"nanoseconds": "microseconds"},
    ),
    *one(
        "nanoseconds beside whole numbers",
        [{"t": A([NANOS], pa.timestamp("ns"))}, {"t": A([NANOS])}],
        None,
        options={"nanoseconds": "microseconds"},
    ),
    *one(
        "nanoseconds beside milliseconds",
        [{"t": A([NANOS], pa.timestamp("ns"))}, {"t": A([5], pa.timestamp("ms"))}],
        None,
        ways=["read"],
        options={"nanoseconds": "microseconds"},
    ),
    *one(
        "nanoseconds within",
        [{"s": A([{"t": NANOS}], pa.struct([("t", pa.timestamp("ns"))]))}],
        None,
        ways=["read"],
        options={"nanoseconds": "microseconds"},
    ),
    *columnar(
        "zone in ORC", [{"t": A([MOMENT], US_UTC)}], None, formats=["orc"], ways=SPARK, error=SourceError
    ),
    Case(
        "times of INT96",
        "parquet",
        {"1.parquet": parquet(pa.table({"t": A(OLD_TIMES[1:], US)}), use_deprecated_int96_timestamps=True)},
        [{"t": text} for text in OLD_TEXTS[1:]],
        ways=PANDAS,
    ),
    Case(
        "times of INT96",
        "parquet",
        {"1.parquet": parquet(pa.table({"t": A(OLD_TIMES[1:], US)}), use_deprecated_int96_timestamps=True)},
        [{"t": f"{text}Z"} for text in OLD_TEXTS[1:]],
        ways=SPARK,
    ),
]  # fmt: skip

COLUMNS = {"parquet": EVERY, "orc": SPARK}
ONE = {kind: write(pa.table({"id": [1]})) for kind, write in WRITERS.items()}

EMPTY = [
    *(
        Case("0 bytes beside a file", kind, {f"1.{kind}": b"", f"2.{kind}": ONE[kind]}, rows("id", ("1",)), ways=ways)
        for kind, ways in COLUMNS.items()
    ),
    *(Case("file of 0 bytes", kind, {f"1.{kind}": b""}, [], ways=ways) for kind, ways in COLUMNS.items()),
]
BROKEN = [
    Case(what, kind, {f"1.{kind}": ONE[kind], f"2.{kind}": body}, None, FileContentError, ways=ways)
    for kind, ways in COLUMNS.items()
    for what, body in (("text beside a file", b"id\n1\n"), ("file that is cut off beside one", ONE[kind][:-5]))
]

ID = {"id": "long"}
OPTIONAL = ["null", "long"]

AVRO = [
    Case(
        "NULL",
        "avro",
        {"1.avro": avro({"id": "long", "n": OPTIONAL, "s": ["null", "string"]}, (1, BIG, "\u20ac"), (2, None, None))},
        rows("id n s", ("1", str(BIG), "\u20ac"), ("2", None, None)),
    ),
    Case(
        "plain types",
        "avro",
        {"1.avro": avro(
            {"i": "int", "d": "double", "f": "float", "b": "boolean", "x": "bytes"}, (-1, 1.5, 0.5, True, b"\x00\xff")
        )},
        rows("i d f b x", ("-1", "1.5", "0.5", "true", "00ff")),
    ),
    Case(
        "decimals",
        "avro",
        {"1.avro": avro({"n": logical("bytes", "decimal", precision=9, scale=2)}, ((150).to_bytes(2, "big"),))},
        rows("n", ("1.50",)),
    ),
    Case(
        "dates from year 1 on",
        "avro",
        {"1.avro": avro({"d": logical("int", "date")}, *([(day - date(1970, 1, 1)).days] for day in OLD))},
        [{"d": day.isoformat()} for day in OLD],
    ),
    Case(
        "times in UTC from year 1 on",
        "avro",
        {"1.avro": avro(
            {"t": logical("long", "timestamp-micros")},
            *([pa.scalar(time, US).cast(pa.int64()).as_py()] for time in OLD_TIMES),
        )},
        [{"t": f"{text}Z"} for text in OLD_TEXTS],
    ),
    Case(
        "times in milliseconds",
        "avro",
        {"1.avro": avro({"t": logical("long", "timestamp-millis")}, (1709200800000,))},
        rows("t", ("2024-02-29T10:00:00Z",)),
    ),
    Case(
        "times without a zone",
        "avro",
        {"1.avro": avro({"t": logical("long", "local-timestamp-micros")}, (NANOS // 1000,))},
        rows("t", ("2024-02-29T10:00:00.000001",)),
    ),
    Case(
        "nested",
        "avro",
        {"1.avro": avro(
            {
                "s": {"type": "record", "name": "part", "fields": [{"name": "n", "type": "long"}]},
                "l": {"type": "array", "items": OPTIONAL},
                "m": {"type": "map", "values": "long"},
                "e": {"type": "enum", "name": "state", "symbols": ["free", "taken"]},
            },
            ({"n": BIG}, [BIG, None], {"k": 1}, "taken"),
        )},
        rows("s l m e", (f"{{'n': {BIG}}}", f"[{BIG}, None]", "[('k', 1)]", "taken")),
    ),
    Case("file without rows", "avro", {"1.avro": avro(ID)}, []),
    Case("file without rows beside one", "avro", {"1.avro": avro(ID), "2.avro": avro(ID, (1,))}, rows("id", ("1",))),
    Case("file of 0 bytes beside one", "avro", {"1.avro": b"", "2.avro": avro(ID, (1,))}, rows("id", ("1",))),
    Case(
        "columns in another order",
        "avro",
        {
            "1.avro": avro({"id": "long", "s": "string"}, (1, "a")),
            "2.avro": avro({"s": "string", "id": "long"}, ("b", 2)),
        },
        rows("id s", ("1", "a"), ("2", "b")),
    ),
    Case(
        "column that only the last file has",
        "avro",
        {"1.avro": avro(ID, (1,)), "2.avro": avro({"id": "long", "s": "string"}, (2, "b"))},
        rows("id s", ("1", None), ("2", "b")),
    ),
    Case(
        "column that only the first file has",
        "avro",
        {"1.avro": avro({"id": "long", "s": "string"}, (1, "a")), "2.avro": avro(ID, (2,))},
        rows("id s", ("1", "a"), ("2", None)),
    ),
    Case(
        "int beside long",
        "avro",
        {"1.avro": avro({"n": "int"}, (1,)), "2.avro": avro({"n": "long"}, (2**40,))},
        rows("n", ("1",), (str(2**40),)),
    ),
    Case(
        "large long beside double",
        "avro",
        {"1.avro": avro({"n": "long"}, (BIG,)), "2.avro": avro({"n": "double"}, (1.5,))},
        None,
    ),
    Case(
        "long beside text",
        "avro",
        {"1.avro": avro({"n": "long"}, (1,)), "2.avro": avro({"n": "string"}, ("a",))},
        None,
    ),
    Case("text called .avro", "avro", {"1.avro": avro(ID, (1,)), "2.avro": b"id\n1\n"}, None, FileContentError),
]  # fmt: skip
AVRO = [Case(**{**vars(case), "ways": SPARK}) for case in AVRO]


def xml(*records: str) -> bytes:
    return f"<?xml version='1.0' encoding='UTF-8'?>\n<bays>{''.join(records)}</bays>".encode()


BAY = {"rowTag": "bay"}
XML = [
    Case(
        "elements and attributes",
        "xml",
        {"1.xml": xml("<bay id='1'><s>\u20ac &amp; a</s></bay>", "<bay id='2'><s>b</s></bay>")},
        rows("_id s", ("1", "\u20ac & a"), ("2", "b")),
    ),
    Case(
        "element that only one file has",
        "xml",
        {"1.xml": xml("<bay><n>1</n></bay>"), "2.xml": xml("<bay><n>2</n><s>b</s></bay>")},
        rows("n s", ("1", None), ("2", "b")),
    ),
    Case(
        "nested elements and lists",
        "xml",
        {"1.xml": xml("<bay><part><n>1</n></part><tag>x</tag><tag>y</tag></bay>", "<bay><part><n>2</n></part></bay>")},
        rows("part tag", ("{'n': 1}", "['x', 'y']"), ("{'n': 2}", None)),
    ),
    Case(
        "whole numbers beside a fraction",
        "xml",
        {"1.xml": xml("<bay><n>1</n></bay>"), "2.xml": xml("<bay><n>1.5</n></bay>")},
        rows("n", ("1.0",), ("1.5",)),
    ),
    Case(
        "whole numbers beside a text",
        "xml",
        {"1.xml": xml("<bay><n>1</n></bay>"), "2.xml": xml("<bay><n>E8</n></bay>")},
        rows("n", ("1",), ("E8",)),
    ),
    Case(
        "file without rows beside one", "xml", {"1.xml": xml(), "2.xml": xml("<bay><n>1</n></bay>")}, rows("n", ("1",))
    ),
    Case("file of 0 bytes beside one", "xml", {"1.xml": b"", "2.xml": xml("<bay><n>1</n></bay>")}, rows("n", ("1",))),
]
XML += [Case("record that cannot be parsed", "xml", {"1.xml": xml("<bay><n>1</m></bay>", "<bay><n>2</n></bay>")}, None)]
XML = [Case(**{**vars(case), "options": BAY, "ways": SPARK}) for case in XML]
TYPED = {
    "text in BIGINT": ("<n>1</n><n2>x</n2>", "n BIGINT, n2 BIGINT"),
    "fraction in INT": ("<n>1.5</n>", "n INT"),
    "number that is too large": ("<n>3000000000</n>", "n INT"),
    "number and text in DOUBLE": ("<n>12abc</n>", "n DOUBLE"),
    "text in BOOLEAN": ("<n>maybe</n>", "n BOOLEAN"),
    "digits beyond the scale": ("<n>1.005</n>", "n DECIMAL(9,2)"),
    "impossible date": ("<n>2024-02-30</n>", "n DATE"),
    "impossible time": ("<n>2024-02-30T10:00:00</n>", "n TIMESTAMP"),
    "text in a list": ("<n>1</n><n>x</n>", "n ARRAY<BIGINT>"),
    "digits beyond the scale, within": ("<n><x>1</x><y.z><q>1.005</q></y.z></n>",
        "n STRUCT<x: BIGINT, `y.z`: STRUCT<q: DECIMAL(9,2)>>"),
    "text in a map": ("<n><x>1</x><y>b</y></n>", "n MAP<STRING, INT>"),
    "record that cannot be parsed, with a schema": ("<n>1</m>", "n STRING"),
    "several elements in a column of texts": ("<n>a</n><n>b</n>", "n STRING"),
    "several elements in a column of numbers": ("<n>1</n><n>1</n>", "n BIGINT"),
    "several elements in a struct": ("<n><x>1</x></n><n><x>2</x></n>", "n STRUCT<x: INT>"),
    "several elements, within": ("<n><x>1</x></n><n><x>1</x><x>2</x></n>", "n ARRAY<STRUCT<x: INT>>"),
    "several elements in a map": ("<n><x>1</x></n><n><y>2</y></n>", "n MAP<STRING, INT>"),
}  # fmt: skip
"""Values that are none of their type, by what they are."""
XML += [
    Case(name, "xml", {"1.xml": xml(f"<bay>{body}</bay>")}, None, schema=schema, ways=("read",), options=BAY)
    for name, (body, schema) in TYPED.items()
]
XML += [
    Case(
        "text in BIGINT",
        "XML",
        {"1.xml": xml("<bay><n>x</n></bay>")},
        None,
        schema="n BIGINT",
        ways=("read",),
        options=BAY,
    ),
    Case(
        "impossible date of a format",
        "xml",
        {"1.xml": xml("<bay><n>30.02.2024</n></bay>")},
        None,
        schema="n DATE",
        ways=("read",),
        options={**BAY, "dateFormat": "dd.MM.yyyy"},
    ),
    Case(
        "values of all types",
        "xml",
        {
            "1.xml": xml(
                "<bay id='7'><x>1.500</x><day>2024-02-29</day><at>2024-02-29T10:00:00Z</at><is>true</is>"
                "<f>1e3</f></bay>",
                "<bay id=''><x/><day/><at/><is/><f></f></bay>",
            )
        },
        rows(
            "_id x day at is f",
            ("7", "1.50", "2024-02-29", "2024-02-29T10:00:00Z", "true", "1000.0"),
            (None, None, None, None, None, None),
        ),
        schema="_id BIGINT, x DECIMAL(9,2), day DATE, at TIMESTAMP, is BOOLEAN, f DOUBLE",
        ways=("read",),
        options=BAY,
    ),
    Case(
        "values of all types, within",
        "xml",
        {"1.xml": xml("<bay><s><x.y>1.500</x.y><n/></s><l>1</l><l>2</l><m><k>1</k></m></bay>", "<bay><s/></bay>")},
        rows(
            "s l m",
            ("{'x.y': Decimal('1.50'), 'n': None}", "[1, 2]", "[('k', 1)]"),
            ("{'x.y': None, 'n': None}", None, None),
        ),
        schema="s STRUCT<`x.y`: DECIMAL(9,2), n: INT>, l ARRAY<BIGINT>, m MAP<STRING, INT>",
        ways=("read",),
        options=BAY,
    ),
    Case(
        "lists of one, attributes, and text beside elements",
        "xml",
        {
            "1.xml": xml(
                "<bay id='1'><n>a</n><s a='2'>b</s><l><x>1</x><y>2</y></l><t>c<x>3</x></t></bay>", "<bay></bay>"
            )
        },
        rows(
            "_id n s l t",
            ("1", "['a']", "{'_a': 2, '_VALUE': 'b'}", "[Row(x=1)]", "{'x': 3}"),
            (None, None, None, None, None),
        ),
        schema="_id INT, n ARRAY<STRING>, s STRUCT<_a: INT, _VALUE: STRING>, l ARRAY<STRUCT<x: INT>>, t STRUCT<x: INT>",
        ways=("read",),
        options=BAY,
    ),
    Case(
        "dates of a format",
        "xml",
        {"1.xml": xml("<bay><n>29.02.2024</n></bay>")},
        rows("n", ("2024-02-29",)),
        schema="n DATE",
        ways=("read",),
        options={**BAY, "dateFormat": "dd.MM.yyyy"},
    ),
]

CASES = [*COLUMNAR, *EMPTY, *BROKEN, *AVRO, *XML]
