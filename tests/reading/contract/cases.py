"""Small CSV and JSON files, each with the rows that it holds or the error that it must raise, written down by hand."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.helpers.errors import MisfitError, SourceError

Row = Mapping[str, str | None]

EVERY = ("read", "read_small", "read_pandas", "glue")
SPARK = ("read", "read_small", "glue")
OWN = ("read", "read_small")


@dataclass(frozen=True)
class Case:
    """Files of one batch.

    Attributes
    ----------
    rows
        The rows that the files hold, each value as a text; None if reading raises `error`.
    schema
        DDL that is passed to ``read`` and ``read_small``, or None.
    ways
        The calls that the case is read with.
    options
        Options of the readers. ``header`` is left out, since it is set for all CSV.
    """

    name: str
    format: str
    files: Mapping[str, bytes]
    rows: Sequence[Row] | None
    error: type[Exception] = MisfitError
    schema: str | None = None
    ways: Sequence[str] = EVERY
    options: Mapping[str, Any] = field(default_factory=dict)


def in_order(rows: Any) -> list[tuple[tuple[str, str], ...]]:
    return sorted(tuple(sorted((name, str(value)) for name, value in row.items())) for row in rows)


def put(case: Case, folder: Path) -> Path:
    for name, body in case.files.items():
        (folder / name).write_bytes(body)
    return folder


def written(rows: Sequence[Sequence[str]], **options: Any) -> bytes:
    """Return CSV as Python's csv module writes it, which follows RFC 4180."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n", **options).writerows(rows)
    return out.getvalue().encode()


def texts(names: str, *rows: Sequence[str | None]) -> list[Row]:
    return [dict(zip(names.split(), row, strict=True)) for row in rows]


QUOTED = [
    ["id", "say", "x"],
    ["a", 'he said "hi", ok', "z"],
    ["b", '"', "y"],
    ["c", 'say "hi" now', "x"],
    ["d", "C:\\temp\\", "w"],
    ["e", '"start', 'end"'],
    ["f", "plain", "v"],
]

CSV = [
    Case("quotes of RFC 4180", "csv", {"1.csv": written(QUOTED)}, texts("id say x", *QUOTED[1:])),
    Case("all quoted", "csv", {"1.csv": written(QUOTED, quoting=csv.QUOTE_ALL)}, texts("id say x", *QUOTED[1:])),
    Case(
        "backslash before the closing quote",
        "csv",
        {"1.csv": b'id,path,x\n1a,"C:\\temp\\",a\n2a,"D:\\",b\n3a,plain,c\n'},
        texts("id path x", ("1a", "C:\\temp\\", "a"), ("2a", "D:\\", "b"), ("3a", "plain", "c")),
    ),
    Case(
        "quote within a value without quotes",
        "csv",
        {"1.csv": b'id,size\na,5" pipe\nb,6"\n'},
        texts("id size", ("a", '5" pipe'), ("b", '6"')),
    ),
    Case("quotes escaped by a backslash", "csv", {"1.csv": b'id,say\na,"say \\"hi\\" now"\n'}, None, ways=SPARK),
    Case("text behind a closing quote", "csv", {"1.csv": b'id,say\na,"x"y\n'}, None, ways=SPARK),
    Case(
        "text behind a closing quote, with a schema",
        "csv",
        {"1.csv": b'id,say\na,"x"y\n'},
        None,
        ways=OWN,
        schema="id STRING, say STRING",
    ),
    Case(
        "quotes escaped by a backslash, and said so",
        "csv",
        {"1.csv": b'id,say,x\na,"say \\"hi\\", now",y\n'},
        texts("id say x", ("a", 'say "hi", now', "y")),
        ways=OWN,
        options={"escape": "\\"},
    ),
    Case("line end within quotes, one column", "csv", {"1.csv": b'say\n"a\nb"\nc\n'}, None, ways=SPARK),
    Case("line end within quotes", "csv", {"1.csv": b'id,say\na,"b\nc"\n'}, None, ways=SPARK),
    Case(
        "headers in another order",
        "csv",
        {"1.csv": b"id,name\n1a,Ann\n", "2.csv": b"name,id\nBob,2a\n"},
        texts("id name", ("1a", "Ann"), ("2a", "Bob")),
    ),
    Case(
        "headers in another order behind a line end",
        "csv",
        {"1.csv": b'id,"a\nb",c,d\n1x,2x,3x,4x\n', "2.csv": b'id,"a\nb",d,c\n1x,2x,4x,3x\n'},
        [{"id": "1x", "a\nb": "2x", "c": "3x", "d": "4x"}] * 2,
        ways=("read", "glue"),
        options={"multiLine": True},
    ),
    Case(
        "headers in another order behind a sign with a byte of a line end",
        "csv",
        {
            f"{number}.csv": text.encode("utf-16")
            for number, text in enumerate(["\u010d,c,d\n2x,3x,4x\n", "\u010d,d,c\n2x,4x,3x\n"])
        },
        texts("\u010d c d", ("2x", "3x", "4x"), ("2x", "3x", "4x")),
        ways=("read", "glue"),
        options={"encoding": "UTF-16", "multiLine": True},
    ),
    Case(
        "column that only the smaller file has",
        "csv",
        {"1.csv": b"id,name\n" + b"1a,Ann\n" * 30, "2.csv": b"name,id,mail\nBob,2a,m\n"},
        texts("id name mail", *([("1a", "Ann", None)] * 30), ("2a", "Bob", "m")),
    ),
    Case(
        "first member of gzip is empty",
        "csv",
        {"1.csv": b"price,cost\n1a,2a\n", "2.csv.gz": gzip.compress(b"") + gzip.compress(b"cost,price\n20a,10a\n")},
        texts("price cost", ("1a", "2a"), ("10a", "20a")),
    ),
    Case(
        "second member of bzip2",
        "csv",
        {"1.csv.bz2": bz2.compress(b"id,x\n") + bz2.compress(b"1a,y\n")},
        texts("id x", ("1a", "y")),
    ),
    Case(
        "second stream of deflate",
        "csv",
        {"1.csv.deflate": zlib.compress(b"id,x\n1a,y\n") + zlib.compress(b"2a,z\n")},
        texts("id x", ("1a", "y"), ("2a", "z")),
        ways=SPARK,
    ),
    Case("gzip called .csv", "csv", {"1.csv": gzip.compress(b"id\nabc\n")}, None, SourceError),
    Case("latin-1", "csv", {"1.csv": "id,name\na,Zo\xeb\n".encode("latin-1")}, None, SourceError),
    Case("latin-1 in the header", "csv", {"1.csv": "id,na\xefve\na,b\n".encode("latin-1")}, None, SourceError),
    Case(
        "bytes that do not fit the encoding",
        "csv",
        {"1.csv": "id,say\na,\u201chi\u201d\n".encode()},
        None,
        ways=("read", "glue"),
        options={"encoding": "US-ASCII"},
    ),
    Case(
        "latin-1, and said so",
        "csv",
        {"1.csv": "id,na\xefve\na,Zo\xeb\n".encode("latin-1")},
        texts("id na\xefve", ("a", "Zo\xeb")),
        ways=("read", "glue"),
        options={"encoding": "ISO-8859-1"},
    ),
    Case("UTF-16", "csv", {"1.csv": "id,name\na,b\n".encode("utf-16")}, None, SourceError),
    Case(
        "UTF-8 with a byte order mark and signs of all lengths",
        "csv",
        {"1.csv": "\ufeffid,name\na,Zo\xeb \u20ac \U0001f642 \ufffd\n".encode()},
        texts("id name", ("a", "Zo\xeb \u20ac \U0001f642 \ufffd")),
    ),
    Case(
        "digits beyond the scale",
        "csv",
        {"1.csv": b"id,x\na,1.005\n"},
        None,
        ways=OWN,
        schema="id STRING, x DECIMAL(9,2)",
    ),
    Case(
        "zeros beyond the scale",
        "csv",
        {"1.csv": b"id,x\na,1.500\nb,2\n"},
        texts("id x", ("a", "1.50"), ("b", "2.00")),
        ways=OWN,
        schema="id STRING, x DECIMAL(9,2)",
    ),
    Case(
        "impossible date",
        "csv",
        {"1.csv": b"id,day\na,2024-02-30\n"},
        None,
        ways=OWN,
        schema="id STRING, day DATE",
    ),
    Case(
        "possible date",
        "csv",
        {"1.csv": b"id,day\na,2024-02-29\nb,\n"},
        texts("id day", ("a", "2024-02-29"), ("b", None)),
        ways=OWN,
        schema="id STRING, day DATE",
    ),
    Case("values beyond the header", "csv", {"1.csv": b"id,name\n1a,ann,x\n"}, None, ways=SPARK),
    Case("blanks behind a closing quote", "csv", {"1.csv": b'id,say\na,"x"  \n'}, None, ways=SPARK),
    Case("blanks between a closing quote and a separator", "csv", {"1.csv": b'id,say\n"x" ,a\n'}, None, ways=SPARK),
    Case(
        "blanks around quotes and within them",
        "csv",
        {"1.csv": b'id,say\n "x" ,"a "\n"b "" ","c ""  "" d"\n'},
        texts("id say", (' "x" ', "a "), ('b " ', 'c "  " d')),
        ways=OWN,
    ),
    Case(
        "NUL at the start of a line",
        "csv",
        {"1.csv": b"id,n\n\0abc,1x\n\0,2x\n\0d\0,\0\n"},
        texts("id n", ("\0abc", "1x"), ("\0", "2x"), ("\0d\0", "\0")),
        ways=OWN,
    ),
    Case(
        "NUL where nothing has quotes",
        "csv",
        {"1.csv": b"id,n\n\0abc\0,1x\n"},
        texts("id n", ("\0abc\0", "1x")),
        ways=OWN,
        options={"quote": ""},
    ),
    Case("values missing", "csv", {"1.csv": b"id,name\n1a\n"}, None, ways=SPARK),
]

TWO = texts("id", ("a",), ("b",))

JSON = [
    Case("an object a line", "json", {"1.json": b'{"id":"a"}\n{"id":"b"}\n'}, TWO),
    Case("packed by a name in capitals", "json", {"1.json.GZ": b'{"id":"a"}\n{"id":"b"}\n'}, TWO),
    Case("objects on one line", "json", {"1.json": b'{"id":"a"}{"id":"b"}\n'}, TWO),
    Case("objects on one line, blanks between", "json", {"1.json": b'{"id":"a"} {"id":"b"}'}, TWO),
    Case(
        "objects on one line, with a schema",
        "json",
        {"1.json": b'{"id":"a"}{"id":"b"}'},
        TWO,
        schema="id STRING",
        ways=OWN,
    ),
    Case(
        "braces within a text, objects on one line",
        "json",
        {"1.json": b'{"id":"}{"}{"id":"\\"} {"}\n{"id":"}{"}\n'},
        texts("id", ("}{",), ('"} {',), ("}{",)),
    ),
    Case(
        "columns that only the second object of a line has",
        "json",
        {"1.json": b'{"id":"a"}{"name":"b","tags":[{"x":"1"},{"x":"}{"}]}'},
        texts("id name tags", ("a", None, None), (None, "b", "[Row(x='1'), Row(x='}{')]")),
        ways=SPARK,
    ),
    Case(
        "objects of whole files, one after the other",
        "json",
        {"1.json": b'\xef\xbb\xbf{"id":\n"a"}\n{"id":"}{"}', "2.json": b'{"name":\n"b"}'},
        texts("id name", ("a", None), ("}{", None), (None, "b")),
        ways=SPARK,
        options={"multiLine": True},
    ),
    Case(
        "lists of whole files, with lists and long fractions within",
        "json",
        {"1.json": b'[\n{"x":1.123456789012345678901,"y":[{"a":"},{"},{"a":"2"}]},\n{"x":2}]\n', "2.json": b" [ ]\n"},
        texts("x y", ("1.123456789012345678901", "[Row(a='},{'), Row(a='2')]"), ("2.000000000000000000000", None)),
        ways=OWN,
        schema="x DECIMAL(25,21), y ARRAY<STRUCT<a: STRING>>",
        options={"multiLine": True},
    ),
    Case(
        "text between objects of whole files",
        "json",
        {"1.json": b'{"id":"a"}\nx\n{"id":"b"}'},
        None,
        ways=SPARK,
        options={"multiLine": True},
    ),
    Case("list that is cut off", "json", {"1.json": b'[{"id":"a"},{"id":"b"}\n'}, None, SourceError),
    Case("list with a number", "json", {"1.json": b'[{"id":"a"},1]\n'}, None, SourceError),
    Case(
        "digits beyond the scale, within",
        "json",
        {"1.json": b'{"s":{"x":1.5},"m":{"k":[1.25,1.005]}}\n'},
        None,
        ways=OWN,
        schema="s STRUCT<x: DECIMAL(9,2)>, m MAP<STRING, ARRAY<DECIMAL(9,2)>>",
    ),
    Case(
        "zeros beyond the scale, within",
        "json",
        {"1.json": b'{"m":{"k":[1.250,null,10]}}\n{"m":null}\n'},
        texts("m", ("{'k': [Decimal('1.25'), None, Decimal('10.00')]}",), (None,)),
        ways=OWN,
        schema="m MAP<STRING, ARRAY<DECIMAL(9,2)>>",
    ),
    Case(
        "whole numbers beside a fraction, within",
        "json",
        {"1.json": b'{"s":[{"x":9007199254740993}]}\n{"s":[{"x":1.5}]}\n'},
        None,
        ways=SPARK,
    ),
    Case(
        "large numbers that a double holds, within",
        "json",
        {"1.json": b'{"s":[{"x":9007199254740992},{"x":-1.5},null]}\n{"s":[{"x":1e300}]}\n'},
        texts("s", ("[Row(x=9007199254740992.0), Row(x=-1.5), None]",), ("[Row(x=1e+300)]",)),
        ways=SPARK,
    ),
    Case("braces within a text", "json", {"1.json": b'{"id":"}{"}\n{"id":"}"}\n'}, texts("id", ("}{",), ("}",))),
    Case("text behind an object", "json", {"1.json": b'{"id":"a"} xyz\n{"id":"b"}\n'}, None, SourceError),
    Case(
        "text behind an object, with a schema",
        "json",
        {"1.json": b'{"id":"a"} xyz\n'},
        None,
        ways=OWN,
        schema="id STRING",
    ),
    Case("brace behind an object", "json", {"1.json": b'{"id":"a"}}\n'}, None, SourceError),
    Case("comma behind an object", "json", {"1.json": b'{"id":"a"},\n{"id":"b"}\n'}, None, SourceError),
    Case("half an object", "json", {"1.json": b'{"id":"a"}\n{"id":"b\n'}, None, SourceError),
    Case(
        "object that is cut off, with a schema",
        "json",
        {"1.json": b'{"id":1,"n":17}\n{"id":2,"n":1234'},
        None,
        ways=OWN,
        schema="id BIGINT, n BIGINT",
    ),
    Case("blank lines", "json", {"1.json": b'\n{"id":"a"}\n  \n{"id":"b"}  \n\n'}, TWO, ways=OWN),
    Case("a list on a line", "json", {"1.json": b'[{"id":"a"},{"id":"b"}]\n'}, TWO, ways=OWN),
    Case("empty object", "json", {"1.json": b'{}\n{"id":"b"}\n'}, texts("id", (None,), ("b",)), ways=OWN),
    Case(
        "names that differ by case", "json", {"1.json": b'{"id":"a"}\n{"Id":"b"}\n'}, None, ways=(*OWN, "read_pandas")
    ),
    Case(
        "name that differs by case from the schema",
        "json",
        {"1.json": b'{"ID":"b"}\n'},
        None,
        ways=OWN,
        schema="id STRING",
    ),
    Case(
        "nested names that differ by case",
        "json",
        {"1.json": b'{"d":{"a":"1"}}\n{"d":{"A":"2"}}\n'},
        None,
        ways=OWN,
    ),
    Case(
        "name that differs by case from a nested one of the schema",
        "json",
        {"1.json": b'{"d":[{"A":"2"}]}\n'},
        None,
        ways=OWN,
        schema="d ARRAY<STRUCT<a: STRING>>",
    ),
    Case(
        "name that is NULL, and one that is like another within",
        "json",
        {"1.json": b'{"id":null,"d":{"ID":"x"}}\n'},
        texts("id d", (None, "Row(ID='x')")),
        ways=OWN,
        schema="id STRING, d STRUCT<ID: STRING>",
    ),
    Case("latin-1", "json", {"1.json": '{"id":"Zo\xeb"}\n'.encode("latin-1")}, None, SourceError),
    Case(
        "bytes that do not fit the encoding",
        "json",
        {"1.json": '{"id":"Zo\xeb"}\n'.encode("latin-1")},
        None,
        SourceError,
        ways=("read", "glue"),
        options={"encoding": "US-ASCII"},
    ),
    Case("UTF-16", "json", {"1.json": '{"id":"a"}\n'.encode("utf-16")}, None, SourceError),
    Case(
        "whole numbers beside a fraction",
        "json",
        {"1.json": b'{"id":9007199254740993}\n{"id":1.5}\n'},
        None,
        ways=OWN,
    ),
    Case(
        "large numbers that a double holds",
        "json",
        {"1.json": b'{"id":9007199254740992}\n{"id":1.5}\n{"id":1e300}\n'},
        texts("id", ("9007199254740992.0",), ("1.5",), ("1e+300",)),
        ways=OWN,
    ),
    Case("digits beyond the scale", "json", {"1.json": b'{"x":1.005}\n'}, None, ways=OWN, schema="x DECIMAL(9,2)"),
    Case("impossible date", "json", {"1.json": b'{"x":"2024-02-30"}\n'}, None, ways=OWN, schema="x DATE"),
    Case("format in capitals", "JSON", {"1.json": b'{"x":"a"}\n'}, None, ways=OWN, schema="x BIGINT"),
    Case("impossible time", "json", {"1.json": b'{"x":"2024-02-30 10:00:00"}\n'}, None, ways=OWN, schema="x TIMESTAMP"),
    Case(
        "impossible date within",
        "json",
        {"1.json": b'{"s":{"x":"2024-02-30"}}\n'},
        None,
        ways=OWN,
        schema="s STRUCT<x: DATE>",
    ),
    Case(
        "numbers of either end",
        "json",
        {"1.json": b'{"id":18446744073709551615}\n{"id":-1}\n'},
        texts("id", ("18446744073709551615",), ("-1",)),
    ),
    Case(
        "second stream of deflate",
        "json",
        {"1.json.deflate": zlib.compress(b'{"id":"a"}\n') + zlib.compress(b'{"id":"b"}\n')},
        TWO,
    ),
]

STOPPED = [
    Case("malformed line", "json", {"1.json": b'{"id":"a"}\nabc\n'}, None, ways=SPARK),
]
"""What not every way reads: it stops there."""

CASES = [*CSV, *JSON, *STOPPED]
