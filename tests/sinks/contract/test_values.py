"""Values are read back as they were written, or are refused before the commit."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from scripts.helpers.errors import InvalidValueError, TargetError, WatermarkError
from scripts.helpers.watermarks import Watermarks
from tests.sinks.contract.targets import (
    EPOCH,
    IN_A_BUCKET,
    TARGETS,
    Copy,
    Database,
    Files,
    Kind,
    Target,
    every,
    in_one_place,
    shown,
)

TEXTS = [
    "", " ", "  blanks ", "\ttab\t", '"', "'", "a\"b'c", "a,b;c|d", "one\ntwo", "one\r\ntwo", "\\", "a\\b", '\\"',
    "\u00e9", "\U0001f600", "NULL", "null", "None", "NaN", "__HIVE_DEFAULT_PARTITION__", "%20", "{}", "[]", "#", "-",
    "007", "true", "1e5",
]  # fmt: skip
OLD_DAYS = [date(1, 1, 1), date(1500, 1, 1), date(1582, 10, 4), date(1582, 10, 10)]
OLD_MOMENTS = [
    datetime(1, 1, 1), datetime(1500, 2, 28, 12), datetime(1883, 11, 18, 12, 3, 58, 1),
    datetime(1899, 12, 31, 23, 59, 59, 999_999),
]  # fmt: skip
# These include hours that summer time skips or repeats in London, the time zone of the Spark session.
MOMENTS = [
    datetime(1970, 1, 1, 0, 0, 1), datetime(2026, 3, 29, 1, 30, 0, 123_456), datetime(2026, 10, 25, 0, 30, 0, 1),
    datetime(2026, 10, 25, 1, 30),
]  # fmt: skip
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999)


def instants(moments: list[datetime]) -> list[datetime]:
    return [moment.replace(tzinfo=timezone.utc) for moment in moments]


VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole": (pa.int64(), [-(2**63), 2**63 - 1, 2**53 + 1, -(2**53) - 1, 0]),
    "small": (pa.int32(), [-(2**31), 2**31 - 1]),
    "price": (pa.decimal128(38, 18), [Decimal(f"{sign}12345678901234567890.123456789012345678") for sign in ("", "-")]),
    "ratio": (pa.float64(), [0.1, 1 / 3, 1e308, 5e-324, -0.0, float("nan"), float("inf"), float("-inf")]),
    "text": (pa.string(), TEXTS),
    "data": (pa.binary(), [b"", b"\0\xff", b"'\"\\\n", bytes(range(256))]),
    "flag": (pa.bool_(), [True, False]),
    "day": (pa.date32(), [*OLD_DAYS, date(1582, 10, 15), date(1899, 12, 31), date(2026, 3, 29), date(9999, 12, 31)]),
    "wall": (pa.timestamp("us"), [*OLD_MOMENTS, *MOMENTS, LAST]),
    "moment": (pa.timestamp("us", "UTC"), instants([*OLD_MOMENTS, *MOMENTS, LAST])),
    "items": (pa.list_(pa.int64()), [[1, 2], [], [None]]),
    "inner": (pa.struct([("n", pa.int64()), ("t", pa.string())]), [{"n": 2**53 + 1, "t": "x"}, {"n": None, "t": ""}]),
}


def refused(kind: Kind) -> dict[str, tuple[type[WatermarkError], list[Any]]]:
    """Return, by column, the error for the values that a target refuses, and these values."""
    nested: dict[str, tuple[type[WatermarkError], list[Any]]] = {
        name: (InvalidValueError, VALUES[name][1]) for name in ("items", "inner")
    }
    if kind.form == "csv":
        return nested | {"data": (InvalidValueError, VALUES["data"][1])}
    if kind.form == "maria":
        # MariaDB's timestamps go from 1970 to 2038, and its numbers are all finite.
        too_far = instants([*OLD_MOMENTS, LAST])
        return nested | {"moment": (TargetError, too_far), "ratio": (InvalidValueError, VALUES["ratio"][1][-3:])}
    if kind.form == "sqlite":
        return nested | {"ratio": (InvalidValueError, VALUES["ratio"][1][5:6])}
    return nested if kind.family == "database" else {}


def changed(kind: Kind) -> dict[str, dict[Any, Any]]:
    """Return the values that are known to change on the way, with the values that are read back."""
    if kind.form == "csv":
        return {"text": {"": None}}  # Spark's reader reads an empty text as NULL.
    if kind.form == "orc":
        return {"day": {date(1582, 10, 10): date(1582, 10, 15)}}  # ORC's calendar skips this day.
    return {"ratio": {-0.0: 0.0}} if kind.form in ("sqlite", "maria") else {}  # Zero has no sign in these databases.


def rows_of(values: dict[str, list[Any]]) -> pa.Table:
    """Return a row for each value, with NULL in its other columns, and a row with only an id."""
    longest = max(map(len, values.values())) + 1
    columns = {name: pa.array(of + [None] * (longest - len(of)), VALUES[name][0]) for name, of in values.items()}
    return pa.table({"id": pa.array(range(longest), pa.int64()), **columns})


@every(where=in_one_place, slow=IN_A_BUCKET)
def test_values_are_read_back_as_they_were_when_they_are_of_any_type(target: Target, copy: Copy) -> None:
    missing, other = refused(target.kind), changed(target.kind)
    outside = {name: missing.get(name, (None, []))[1] for name in VALUES}
    # Compare texts, because NaN is not equal to itself.
    kept = {name: [one for one in of if repr(one) not in map(repr, outside[name])] for name, (_, of) in VALUES.items()}
    values = {name: of for name, of in kept.items() if of}
    rows = rows_of(values)
    target.create(rows.schema)

    copy.run(rows)

    as_read = {name: [other.get(name, {}).get(_key(one), one) for one in of] for name, of in values.items()}
    assert shown(target.read()) == shown(rows_of(as_read).to_pylist())
    counted = copy.watermarks.history(copy.job_id)[0].change.metrics["rows_written"]
    assert counted == target.added() == len(rows)


def _key(value: Any) -> Any:
    return repr(value) if isinstance(value, list | dict) else value


# The test of values of any type has these too, where Spark has all types.
@every(where=lambda kind: kind.engine == "spark" and in_one_place(kind), slow=("delta-spark", "postgres-jdbc"))
def test_days_and_times_of_long_ago_are_read_back_when_a_target_is_of_spark(target: Target, copy: Copy) -> None:
    """Also runs on the Sparks of `.ci/small`, which lack times without a zone and have other rules for old times."""
    days = [day for day in OLD_DAYS if day not in changed(target.kind).get("day", {})]
    rows = rows_of({"day": [*days, date(9999, 12, 31)], "moment": instants([*OLD_MOMENTS, LAST])})
    target.create(rows.schema)

    copy.run(rows)

    assert shown(target.read()) == shown(rows.to_pylist())


@every(where=lambda kind: kind == TARGETS["parquet"])
@pytest.mark.parametrize("kind", ["TIMESTAMP_MICROS", "INT96"])
def test_days_and_times_of_long_ago_are_read_back_when_the_session_would_refuse_them(
    target: Target, copy: Copy, kind: str
) -> None:
    assert isinstance(target, Files)
    spark, prefix = target.spark, "spark.sql.parquet."
    asked = {
        "outputTimestampType": kind, "datetimeRebaseModeInWrite": "EXCEPTION", "int96RebaseModeInWrite": "EXCEPTION",
    }  # fmt: skip
    rows = rows_of({"day": OLD_DAYS, "moment": instants(OLD_MOMENTS)})
    for name, value in asked.items():
        spark.conf.set(f"{prefix}{name}", value)
    try:
        copy.run(rows)
    finally:
        for name in asked:
            spark.conf.unset(f"{prefix}{name}")

    read = spark.read.options(datetimeRebaseMode="CORRECTED", int96RebaseMode="CORRECTED").parquet(target.place.uri)
    found = read.selectExpr("id", "CAST(day AS STRING) AS day", "unix_micros(moment) AS moment").collect()
    micros = [(moment - EPOCH) // timedelta(microseconds=1) for moment in instants(OLD_MOMENTS)]
    wanted = [*zip(map(str, OLD_DAYS), micros, strict=True), (None, None)]
    assert sorted(tuple(row) for row in found) == [(at, *values) for at, values in enumerate(wanted)]


@pytest.mark.parametrize("target", [name for name, kind in TARGETS.items() if refused(kind)], indirect=True)
def test_value_is_refused_before_the_commit_when_the_target_cannot_keep_it(target: Target, copy: Copy) -> None:
    names = ["text", *({"moment", "ratio"} & refused(target.kind).keys())]
    target.create(rows_of({name: [] for name in names}).schema)
    before = target.contents()

    for name, (error, values) in refused(target.kind).items():
        for value in values:
            copy.refused(rows_of({"text": ["x"], name: [value]}), error, match=f"[Cc]olumn ['`]{name}")
    left = target.contents()
    copy.run(rows_of({"text": ["x"]}))

    assert left == before
    assert target.ids() == [0, 1]


NAMED: dict[str, list[tuple[str, pa.DataType, Any, Any, str]]] = {
    "postgres": [
        ("varchar(3)", pa.string(), "four", "six", r"is character varying\(3\).* a text is too long.* as text"),
        ("smallint", pa.int64(), 40_000, 7, "is smallint.* a number is out of range.* as bigint"),
        ("integer", pa.int64(), 3_000_000_000, 7, "is integer.* a number is out of range.* as bigint"),
        ("numeric(5,2)", pa.decimal128(9, 2), Decimal("1234567.25"), Decimal("1.25"),
         r"is numeric\(5,2\).* a number is out of range.* as numeric\(9,2\)"),
        ("contract_mood", pa.string(), "dreary", "glad", "is contract_mood.* the type has no such value.* as text"),
        ("uuid", pa.string(), "dreary", "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed", "is uuid.* no such value.* as text"),
        ("contract_short", pa.string(), "dreary", "glad", "is contract_short.* a CHECK of its type.* as text"),
        ("text", pa.string(), "a\0b", "ab", "has a text with NUL, which PostgreSQL does not hold. Replace it"),
    ],
    "maria": [
        ("varchar(3)", pa.string(), "four", "six", r"is varchar\(3\).* a text is too long.* as text"),
        ("smallint", pa.int64(), 40_000, 7, r"is smallint.* a number is out of range.* as bigint"),
        ("int", pa.int64(), 3_000_000_000, 7, r"is int\(11\).* a number is out of range.* as bigint"),
        ("decimal(5,2)", pa.decimal128(9, 2), Decimal("1234567.25"), Decimal("1.25"),
         r"is decimal\(5,2\).* a number is out of range.* as decimal\(9,2\)"),
        ("enum('glad')", pa.string(), "dreary", "glad", r"is enum\('glad'\).* the type has no such value.* as text"),
    ],
}  # fmt: skip
"""Types of a database, with a value that its server refuses, one that it takes, and what the error says."""


@every(where=lambda kind: kind.form in NAMED)
def test_column_and_remedy_are_named_and_the_value_is_not_when_the_server_refuses_it(
    target: Target, watermarks: Watermarks
) -> None:
    assert isinstance(target, Database)
    if target.kind.form == "postgres":
        target.written.sql(
            "DROP TYPE IF EXISTS contract_mood CASCADE", "CREATE TYPE contract_mood AS ENUM ('glad')",
            "DROP DOMAIN IF EXISTS contract_short CASCADE",
            "CREATE DOMAIN contract_short AS text CHECK (length(VALUE) < 5)",
        )  # fmt: skip

    named = {f"odd_{at}": of for at, of in enumerate(NAMED[target.kind.form])}
    schema = pa.schema([("id", pa.int64()), *((name, kind) for name, (_, kind, *_) in named.items())])
    taken = {"id": 1, **{name: fit for name, (_, _, _, fit, _) in named.items()}}
    target.declare(schema, id="bigint", **{name: declared for name, (declared, *_) in named.items()})
    copy = Copy(watermarks, target)

    for name, (_, _, unfit, _, message) in named.items():
        refused = pa.Table.from_pylist([taken | {name: unfit}], schema)
        copy.refused(refused, WatermarkError, f"^(?!.*{unfit})(?s:.*)column '{name}' {message}")
    copy.run(pa.Table.from_pylist([taken], schema))

    assert target.ids() == [1]


WIDENED: dict[str, tuple[pa.DataType, list[Any], list[Any] | None]] = {
    "byte": (pa.int8(), [-128, 127], None),
    "short": (pa.int16(), [-(2**15), 2**15 - 1], None),
    "ubyte": (pa.uint8(), [0, 255], None),
    "ushort": (pa.uint16(), [0, 2**16 - 1], None),
    "uint": (pa.uint32(), [0, 2**32 - 1], None),
    "half": (pa.float16(), [1.5, -2.0], None),
    "date64": (pa.date64(), [date(1500, 1, 1), date(9999, 12, 31)], None),
    "pair": (pa.list_(pa.uint8(), 2), [[1, 255], [3, 4]], None),
    "packed": (pa.decimal256(20, 2), [Decimal("1.10"), Decimal("-9.99")], None),
    "whole_nanos": (pa.timestamp("ns"), [1_700_000_000_123_456_000, 0], [datetime(2023, 11, 14, 22, 13, 20, 123_456),
                                                                        datetime(1970, 1, 1)]),
}  # fmt: skip
"""Types that not every table has, with values that one of its types holds, and how these are read."""
UNHELD: dict[str, tuple[pa.DataType, list[Any]]] = {
    "ulong": (pa.uint64(), [2**64 - 1]),
    "long_decimal": (pa.decimal256(60, 0), [Decimal("1" * 50)]),
    "duration": (pa.duration("us"), [1]),
    "no_fields": (pa.struct([]), [{}]),
    "durations": (pa.list_(pa.duration("us")), [[1]]),
}
TIMES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "seconds": (pa.time32("s"), [3723]),
    "micros": (pa.time64("us"), [3_723_000_001]),
}


def has_tables_without_spark(kind: Kind) -> bool:
    return kind.family in ("delta", "iceberg") and kind.engine != "spark"


@every(where=has_tables_without_spark, slow=IN_A_BUCKET)
def test_values_are_read_back_when_a_table_has_a_wider_type_for_them(target: Target, copy: Copy) -> None:
    columns = {name: pa.array([*values, None]).cast(kind) if name == "whole_nanos" else pa.array([*values, None], kind)
               for name, (kind, values, _) in WIDENED.items()}  # fmt: skip
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), **columns})
    read = {name: [*(wanted or values), None] for name, (_, values, wanted) in WIDENED.items()}
    wanted = [{"id": at + 1, **{name: values[at] for name, values in read.items()}} for at in range(3)]

    copy.run(rows)
    copy.run(rows.set_column(0, "id", pa.array([4, 5, 6], pa.int64())))

    assert shown(target.read()) == shown(wanted + [{**row, "id": row["id"] + 3} for row in wanted])


@every(where=has_tables_without_spark, slow=IN_A_BUCKET)
def test_column_is_refused_before_there_is_a_table_when_no_type_of_a_table_holds_it(target: Target, copy: Copy) -> None:
    before = target.contents()
    held = TIMES if target.kind.family == "iceberg" else {}

    for name, (kind, values) in {**UNHELD, **TIMES}.items():
        if name not in held:
            rows = pa.table({"id": pa.array([1], pa.int64()), name: pa.array(values, kind)})
            copy.refused(rows, InvalidValueError, match=f"Column '{name}(\\[])?' is (of type|a struct without)")
    left = target.contents()
    copy.run(
        pa.table({"id": pa.array([1], pa.int64()), **{name: pa.array(of, kind) for name, (kind, of) in held.items()}})
    )

    assert left == before
    assert [len(row) for row in target.read()] == [1 + len(held)]


@every(where=lambda kind: kind.engine != "spark", slow=IN_A_BUCKET)
def test_times_are_refused_when_they_have_nanoseconds_and_read_back_when_they_have_none(
    target: Target, copy: Copy
) -> None:
    def rows_with(nanos: int) -> pa.Table:
        return pa.table({"id": pa.array([1], pa.int64()), "at": pa.array([nanos], pa.timestamp("ns"))})

    target.create(pa.schema([("id", pa.int64()), ("at", pa.timestamp("us"))]))
    before = target.contents()

    copy.refused(rows_with(1_700_000_000_123_456_001), InvalidValueError, "Column 'at' has times with nanoseconds")
    left = target.contents()
    copy.run(rows_with(1_700_000_000_123_456_000))

    assert left == before
    assert shown(target.read()) == shown([{"id": 1, "at": datetime(2023, 11, 14, 22, 13, 20, 123_456)}])


@every(where=lambda kind: kind.engine == "pandas")
def test_frame_is_refused_when_it_has_an_index_with_a_name_or_a_decimal_that_is_none(
    target: Target, copy: Copy
) -> None:
    target.create(pa.schema([("id", pa.int64()), ("price", pa.decimal128(5, 2))]))
    before = target.contents()
    fine = pd.DataFrame({"id": [1, 2], "price": [Decimal("1.10"), None]}, index=[5, 3])
    unfit = {
        "reset_index": fine.set_index("id"), "df.reset_index\\(drop=True": fine.rename_axis("at"),
        "'price' has Decimal": fine.assign(price=[Decimal("1.10"), Decimal("NaN")]),
        "Column 'price' has": fine.assign(price=[None, Decimal("NaN")]),
    }  # fmt: skip

    for match, frame in unfit.items():
        with pytest.raises(InvalidValueError, match=match), copy.job() as job:
            job.rows_since(pd.DataFrame({"number": [1]}), "number")
            job.write(frame, target.sink())
    left = target.contents()
    with copy.job() as job:
        job.rows_since(pd.DataFrame({"number": [1]}), "number")
        job.write(fine, target.sink())

    assert left == before
    assert target.ids() == [1, 2]


@every(where=lambda kind: kind.family == "iceberg")
def test_column_without_a_name_is_refused_when_a_table_has_none(target: Target, copy: Copy) -> None:
    before = target.contents()

    copy.refused(pa.table({"id": pa.array([1], pa.int64()), "": ["x"]}), InvalidValueError, "a column without a name")

    assert target.contents() == before


@every(where=lambda kind: kind.family == "files" and in_one_place(kind))
def test_new_target_is_not_called_a_table_when_columns_differ_only_in_case(target: Target, copy: Copy) -> None:
    copy.refused(
        pa.table({"id": pa.array([1], pa.int64()), "v": ["x"], "V": ["y"]}), InvalidValueError,
        "columns 'v' and 'V', which differ only in case",
    )  # fmt: skip

    assert target.read() == []


@every(where=lambda kind: kind.family in ("delta", "iceberg") and kind.engine == "spark")
def test_whole_numbers_of_spark_are_read_back_and_intervals_refused_when_a_table_is_new(
    target: Target, copy: Copy
) -> None:
    rows = pa.table({
        "id": pa.array([1], pa.int64()), "byte": pa.array([-128], pa.int8()),
        "short": pa.array([2**15 - 1], pa.int16()), "bytes": pa.array([[-128, None]], pa.list_(pa.int8())),
        "in.ner": pa.array([{"n.x": 7, "m": [{"s": -1}]}],
                           pa.struct([("n.x", pa.int16()), ("m", pa.list_(pa.struct([("s", pa.int8())])))])),
    })  # fmt: skip
    before = target.contents()

    copy.refused(rows.append_column("gap", pa.array([1], pa.duration("us"))), InvalidValueError, "Column 'gap' is of")
    left = target.contents()
    copy.run(rows)
    copy.run(rows.set_column(0, "id", pa.array([2], pa.int64())))

    assert left == before
    assert shown(target.read()) == shown([*rows.to_pylist(), {**rows.to_pylist()[0], "id": 2}])


PARTITIONS = [
    " ", "  x ", "a b", "\u00e9", "\U0001f600", "a/b", "a=b", "a%b", "%41", "NULL", "null", "a\nb", "'", '"', "a:b",
    "a\\b", "?", "#", "+", "{x}", "[x]", "*", ".", "..", "~", "007", "1.0", "true", None,
]  # fmt: skip


@every("partition_by", where=in_one_place, slow=("pyarrow-s3",))
def test_texts_are_read_back_as_they_were_when_a_target_is_partitioned_by_them(target: Target, copy: Copy) -> None:
    rows = pa.table({"id": pa.array(range(len(PARTITIONS)), pa.int64()), "v": PARTITIONS})

    copy.run(rows, partition_by=["v"])

    assert shown(target.read()) == shown(rows.to_pylist())


@every("partition_by", where=in_one_place, slow=IN_A_BUCKET)
def test_texts_that_readers_take_for_null_are_refused_where_partitions_are_folders(target: Target, copy: Copy) -> None:
    def rows_with(value: Any) -> pa.Table:
        return pa.table({"id": pa.array([1, 2, 3], pa.int64()), "v": ["x", value, value]})

    empty, null = rows_with(""), rows_with("__HIVE_DEFAULT_PARTITION__")

    if target.kind.family != "iceberg":
        copy.refused(empty, InvalidValueError, match="'v': 2 rows have", partition_by=["v"])
        copy.refused(null, InvalidValueError, match="'v': 2 rows have", partition_by=["v"])
    if target.kind.family == "files":
        copy.refused(
            rows_with(b"x").set_column(1, "v", pa.array([b"x"] * 3)), InvalidValueError, "'v'", partition_by=["v"]
        )
    nothing = target.read()
    if target.kind.family == "iceberg":
        copy.run(empty, partition_by=["v"])
        copy.run(null.set_column(0, "id", pa.array([4, 5, 6], pa.int64())))

    assert nothing == []
    wanted = ["", "", "__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__", "x", "x"]
    assert sorted(row["v"] for row in target.read()) == (wanted if target.kind.family == "iceberg" else [])


ODD: dict[str, tuple[pa.DataType, list[Any]]] = {
    "ratio": (pa.float64(), [1.5, float("nan"), None]),
    "data": (pa.binary(), [b"a", b"\xff\xfe", b"\xff\xfd"]),
    "moment": (
        pa.timestamp("us", "UTC"),
        [*instants(MOMENTS), None],
    ),
}
"""Of each type values that a name of a folder, or of a partition, does not tell apart somewhere."""


def unfit_partitions(kind: Kind) -> set[str]:
    """Return the types that cannot be partition columns of a target."""
    if kind.family == "files":
        return set(ODD)
    if kind.family == "delta":
        return {"data", "moment"} if kind.engine == "spark" else {"data"}
    return {"ratio"} if kind.engine != "spark" else set()


@every("partition_by", where=in_one_place, slow=IN_A_BUCKET)
def test_values_are_read_back_or_refused_when_a_target_is_partitioned_by_numbers_bytes_or_times(
    watermarks: Watermarks, target: Target
) -> None:
    for name, (kind, values) in ODD.items():
        one = target.another(f"by_{name}_{target.kind.form}_{target.kind.engine}")
        copy = Copy(watermarks, one, f"by-{name}", partition_by=["v"])
        rows = pa.table({"id": pa.array(range(len(values)), pa.int64()), "v": pa.array(values, kind)})

        if name in unfit_partitions(target.kind):
            copy.refused(rows, InvalidValueError, match="Partition column 'v'")
            assert one.read() == [], name
        else:
            copy.run(rows)
            assert shown(one.read()) == shown(rows.to_pylist()), name


NAMES = [
    "a.b", "a'b", 'a"b', "a`b", "a%b", "a%41", "%s", "\u00fc", "CamelCase", "a/b", "a:b", "a\\b", "a?b", "a#b", "$1",
    ":x", "a-b", "1a", "place", "one", "row_id", "started", "ended", "s", "t", "l", "p", "a", "n", "d", "c0", "deleted",
    "taken", "ranked", "events", "version", "batch_id", "select", "order", "valid_from", "_x", ".", "a b", " a", "a ",
    "a=b", "a,b", "a;b", "a{b}", "a(b)", "a\nb", "a\tb", "\U0001f600",
]  # fmt: skip


def unfit(kind: Kind) -> str:
    """Return the characters that a target refuses in names, or that are not tested with it."""
    if (kind.family, kind.engine) == ("delta", "spark"):
        return " =,;{}()\n\t"
    if kind.form == "maria":
        return "\U0001f600"  # MariaDB refuses these, and a name that ends in a blank.
    return "`" if kind.form == "orc" else ""


@every(where=in_one_place, slow=IN_A_BUCKET)
def test_values_are_read_back_by_their_names_when_columns_have_names_of_ours_or_odd_signs(
    target: Target, copy: Copy
) -> None:
    names = [name for name in NAMES if not set(name) & set(unfit(target.kind))]
    names = [name for name in names if not (target.kind.form == "maria" and name.endswith(" "))]
    columns = {name: pa.array([f"value of {name!r}", None], pa.string()) for name in names}
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), **columns})
    target.create(rows.schema)

    if (target.kind.family, target.kind.engine) == ("delta", "spark"):
        for sign in unfit(target.kind):
            inner = pa.array([{f"a{sign}b": 1}] * 2, pa.struct([(f"a{sign}b", pa.int64())]))
            for name, values in ((f"a{sign}b", rows["place"]), ("inner", inner)):
                few = pa.table({"id": rows["id"], name: values})
                copy.refused(few, InvalidValueError, match="no name in a new Delta table")
    copy.run(rows)
    if target.kind.form == "orc":
        copy.refused(rows.rename_columns({"place": "a`b"}), InvalidValueError, match="'a`b'")

    assert shown(target.read()) == shown(rows.to_pylist())


@every("merge", where=lambda kind: kind.family in ("delta", "iceberg") and kind.engine != "spark", slow=IN_A_BUCKET)
def test_lists_and_maps_of_structs_stay_null_or_empty_when_a_row_of_their_file_is_merged(
    watermarks: Watermarks, target: Target
) -> None:
    inner = pa.struct([("n", pa.int64())])
    kinds = {"many": pa.list_(inner), "by_name": pa.map_(pa.string(), inner), "deep": pa.list_(pa.list_(inner))}
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64()), *kinds.items()])
    rows: list[dict[str, Any]] = [
        {"many": None, "by_name": None, "deep": None},
        {"many": [], "by_name": [], "deep": [None, []]},
        {"many": [None, {"n": None}, {"n": 1}], "by_name": [("a", None), ("b", {"n": 1})], "deep": [[{"n": 1}], None]},
    ]
    rows = [{"id": number, "at": 1, **row} for number, row in enumerate([*rows, rows[0]])]
    copy = Copy(watermarks, target, keys="id", sequence_by="at")

    copy.run(pa.Table.from_pylist(rows, schema=schema))
    later = {**rows[3], "at": 2}
    copy.run(pa.Table.from_pylist([later], schema=schema))

    assert shown(target.read()) == shown(pa.Table.from_pylist([*rows[:3], later], schema=schema).to_pylist())


@every(where=lambda kind: kind.family in ("delta", "iceberg"), slow=IN_A_BUCKET)
def test_rows_are_refused_before_a_table_is_made_when_a_field_of_a_column_has_no_type(
    target: Target, copy: Copy
) -> None:
    inner = pa.array([{"n": None, "m": 1}], pa.struct([("n", pa.null()), ("m", pa.int64())]))

    copy.refused(pa.table({"id": pa.array([1], pa.int64()), "inner": inner}), InvalidValueError, match="'inner.n'")

    assert target.read() == []


@every(where=lambda kind: kind.family == "delta", slow=IN_A_BUCKET)
def test_rows_are_refused_before_the_commit_when_names_of_columns_differ_only_in_case(
    target: Target, copy: Copy
) -> None:
    ids = pa.array([1], pa.int64())

    copy.refused(pa.table({"id": ids, "a": ids, "A": ids}), InvalidValueError, match="(?i)`?'?a'?`? ")

    assert target.read() == []
