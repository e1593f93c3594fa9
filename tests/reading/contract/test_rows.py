"""A file is read as the rows that it holds, or raises a typed error, by every call."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.reading.fetched_lines import unmarked
from scripts.helpers.spark.settings import settings
from tests.reading.contract.cases import CASES, EVERY, OWN, Case, in_order, put
from tests.reading.contract.frames import collected, frame_of
from tests.support.long import is_long


def rows_of(frame: Any) -> list[dict[str, str | None]]:
    if hasattr(frame, "dtypes") and not hasattr(frame, "sparkSession"):
        found = frame.astype(object).where(frame.notna(), None).to_dict("records")
    else:
        found = [row.asDict() for row in frame.collect()]
    return [{name: None if value is None else str(value) for name, value in row.items()} for row in found]


GOOD = [case for case in CASES if case.rows is not None]
BAD = [case for case in CASES if case.rows is None]


PARSED = {
    "digits beyond the scale", "digits beyond the scale, within", "impossible date within", "impossible time",
    "whole numbers beside a fraction, within", "nested names that differ by case",
    "name that differs by case from a nested one of the schema", "text behind a closing quote, with a schema",
    "blanks behind a closing quote", "blanks between a closing quote and a separator",
    "zeros beyond the scale, within", "possible date", "large numbers that a double holds, within",
    "numbers of either end", "name that is NULL, and one that is like another within", "all quoted",
    "blanks around quotes and within them", "quote within a value without quotes",
}  # fmt: skip
"""Cases that `make test` reads with `read` only: `read_small` hands its lines on to the same parser, and other cases
show that it does."""


@pytest.mark.parametrize("way", EVERY)
def test_rows_are_those_of_the_files_when_they_are_read(way: str, spark: Any, tmp_path: Path) -> None:
    cases = [case for case in GOOD if way in case.ways]
    if way == "glue" and not is_long():
        cases = cases[::3]  # Glue's names hand on to the same reader.
    elif way == "read_small" and not is_long():
        cases = [case for case in cases if case.name not in PARSED]
    frames = []
    for index, case in enumerate(cases):
        folder = tmp_path / str(index)
        folder.mkdir()
        frames.append(frame_of(way, case, put(case, folder), spark))

    found = collected(frames, rows_of)

    wrong = {case.name: rows for case, rows in zip(cases, found, strict=True) if in_order(rows) != in_order(case.rows)}
    assert wrong == {}


FEW = {at for at in range(len(BAD)) if at % 3 == 0}
"""Of the cases that Glue's names read: they hand on to the same reader."""


@pytest.mark.parametrize(("way", "case"), [
    pytest.param(
        way, case, id=f"{way}-{case.format}-{case.name}",
        marks=[pytest.mark.long]
        if (way == "glue" and at not in FEW) or (way == "read_small" and case.name in PARSED)
        else [],
    )
    for at, case in enumerate(BAD) for way in case.ways
])  # fmt: skip
def test_error_is_typed_when_rows_would_be_lost(way: str, case: Case, spark: Any, tmp_path: Path) -> None:
    put(case, tmp_path)

    with pytest.raises(Exception) as caught:  # noqa: PT011
        rows_of(frame_of(way, case, tmp_path, spark))

    error = unmarked(str(caught.value)) or caught.value
    assert isinstance(error, case.error), error


@pytest.mark.parametrize("condition", ["_rescued IS NOT NULL", "c1 > 1 AND c2 IS NULL"])
def test_plan_grows_by_the_condition_alone_when_rows_of_csv_are_filtered(
    condition: str, spark: Any, tmp_path: Path
) -> None:
    columns = [f"c{number}" for number in range(8)]
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1" / "1.csv").write_text(",".join(columns) + "\n")
    schema = ", ".join([*(f"{name} BIGINT" for name in columns), "day INT"])
    rows = FileBookmark(str(tmp_path)).new_files().read(spark, "csv", schema=schema, header=True, rescue=True)

    def plan(frame: Any) -> str:
        return str(frame._jdf.queryExecution().executedPlan().toString())

    assert len(plan(rows.where(condition))) < 2 * len(plan(rows))
    assert re.search(r"PartitionFilters: \[.*day#\d+ = 2", plan(rows.where("day = 2")))


FIREHOSE = [b'{"id":"}{"} {"id":"b"}{"name":"c"}', b'[{"id":"d"},{"id":"e","tags":[{"x":1},{"x":2}]}]']


@pytest.mark.parametrize("schema", [None, "id STRING, name STRING, tags ARRAY<STRUCT<x: BIGINT>>"])
@pytest.mark.parametrize("way", OWN)
def test_all_objects_of_a_line_are_read_whichever_option_treats_their_values(
    way: str, schema: str | None, spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "1.json").write_bytes(b"\n".join(FIREHOSE))
    read = getattr(FileBookmark(str(tmp_path)).new_files(), way)
    asked: list[dict[str, Any]] = [{"rescue": True}, {"mode": "PERMISSIVE"}, {"allowComments": True}]
    asked += [{"on_schema_change": policy} for policy in ("add", "take", *(["warn"] if is_long() else []))]
    if way == "read":
        asked.append({"mode": "DROPMALFORMED"})

    frames = [read(spark, "json", schema=schema, **options) for options in asked]

    of_options = collected([frame.select("id", "name", "tags") for frame in frames], rows_of)
    for options, rows in zip(asked, of_options, strict=True):
        found = sorted((str(row["id"]), str(row["name"]), row["tags"] is None) for row in rows)
        expected = [("None", "c", True), ("b", "None", True), ("d", "None", True), ("e", "None", False)]
        assert found == [*expected, ("}{", "None", True)], options


CUT_OFF = [
    '"n":1234',
    '"n":',
    '"p":10.25',
    '"o":{"a":2},',
    '"o":{"a":2',
    '"n":17]',
    '"n":5;',
    '"n":7x',
    '"x":true,',
    '"s":"a',
]


@pytest.mark.parametrize("multi_line", [False, True], ids=["lines", "whole files"])
@pytest.mark.parametrize("way", OWN)
def test_whole_record_is_rescued_when_json_does_not_end_with_its_brace(
    way: str, multi_line: bool, spark: Any, tmp_path: Path
) -> None:
    bad = [f'{{"id":2,{rest}' for rest in CUT_OFF]
    good = ['{"id":1,"n":3}', '{"id":1,"n":3} ', '[{"id":1,"n":3}]']
    for number, text in enumerate([*bad, *good]):
        (tmp_path / f"{number}.json").write_text(text)
    schema = "id BIGINT, n BIGINT, p DECIMAL(9,2), o STRUCT<a: INT>, x BOOLEAN, s STRING"

    delta = FileBookmark(str(tmp_path)).new_files()
    rows = getattr(delta, way)(spark, "json", schema=schema, rescue=True, multiLine=multi_line).collect()

    found = [(row["id"], row["n"], json.loads(row["_rescued"] or "{}").get("_corrupt_record")) for row in rows]
    expected = [(1, 3, None)] * len(good) + [(None, None, text) for text in bad]
    assert sorted(found, key=str) == sorted(expected, key=str)


OTHER_CASE = [
    '{"id":1,"Ålder":40}',
    '{"id":1,"\\u00c5lder":40}',
    '{"id":1,"Имя":"x"}',
    '{"id":1,"idkey":2}',
    "{'id':1,'IdKey':2}",
    "{id:1, Idkey : 2}",
]
ONE_CASE = ['{"id":1,"ålder":40}', '{"id":1,"\\u00e5lder":40}', '{"id":1,"имя":"x"}', "{id:1, idKey:2}"]


@pytest.mark.parametrize("way", OWN)
def test_record_is_rescued_when_a_name_differs_from_a_column_only_by_case(way: str, spark: Any, tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text("\n".join([*OTHER_CASE, *ONE_CASE]))
    schema = "id BIGINT, idKey BIGINT, `ålder` BIGINT, `имя` STRING"
    options = {"rescue": True, "allowUnquotedFieldNames": True}

    delta = FileBookmark(str(tmp_path)).new_files()
    rows = getattr(delta, way)(spark, "json", schema=schema, **options).select("_rescued").collect()

    rescued = [json.loads(row[0])["_corrupt_record"] for row in rows if row[0] is not None]
    assert (sorted(rescued), len(rows)) == (sorted(OTHER_CASE), len(OTHER_CASE) + len(ONE_CASE))


BAD_RECORDS: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "csv": ("csv", ["1,A", "x7,B", "3,C,more", "4"], {}),
    "csv by header": ("csv", ["id,bay", "1,A", "x7,B", "3,C,more", "4"], {"header": True}),
    "json": ("json", ['{"id":1,"bay":"A"}', '{"id":"x7","bay":"B"}'], {}),
    "json with new columns": ("json", ['{"id":1,"bay":"A"}', '{"id":"x7","bay":"B"}'], {"on_schema_change": "add"}),
}


@pytest.mark.parametrize("column", ["_corrupt_record", "bad"])
@pytest.mark.parametrize(("format", "lines", "options"), BAD_RECORDS.values(), ids=BAD_RECORDS)
@pytest.mark.parametrize("way", OWN)
def test_bad_records_are_in_the_column_of_the_schema_that_spark_writes_them_to(
    way: str, format: str, lines: list[str], options: dict[str, Any], column: str, spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "1").write_text("\n".join(lines))
    (tmp_path / "2").write_text("")
    if column == "bad":
        options = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": column}

    delta = FileBookmark(str(tmp_path)).new_files()
    rows = getattr(delta, way)(spark, format, schema=f"id INT, bay STRING, {column} STRING", **options).collect()

    good = 2 if "header" in options else 1
    assert sorted(row[column] for row in rows if row[column] is not None) == sorted(lines[good:])
    assert (1, "A", None) in rows


FRACTIONS = {
    '{"t":12345678901234567.89}': "12345678901234567.89",
    '{"t":"1e3","x":0.1000000000000000000001}': "1e3",
    '{"t":-1E400}': "-1E400",
    '{"t":0.30000000000000004}': "0.30000000000000004",
    '{"t":"12345678901234567.89"}': "12345678901234567.89",
    '{"t":{"a":[0.30000000000000004,"\\"1.00000000000000001"]}}': (
        '{"a":[0.30000000000000004,"\\"1.00000000000000001"]}'
    ),
    '{"x":1.5,"t":17}': "17",
}


@pytest.mark.parametrize("way", OWN)
def test_fraction_of_json_keeps_its_digits_when_its_column_is_text(way: str, spark: Any, tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text("\n".join(FRACTIONS))
    delta = FileBookmark(str(tmp_path)).new_files()

    rows = getattr(delta, way)(spark, "json", schema="t STRING, x DOUBLE").collect()

    assert sorted(row[0] for row in rows) == sorted(FRACTIONS.values())


@pytest.mark.parametrize("way", OWN)
def test_fraction_of_json_is_rescued_with_its_digits_when_it_does_not_fit(way: str, spark: Any, tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text('{"x":1.00500000000000000001}\n{"t":{"a":1.00500000000000000001}}\n')
    delta = FileBookmark(str(tmp_path)).new_files()

    rows = getattr(delta, way)(spark, "json", schema="x DECIMAL(9,2), t STRING", rescue=True).collect()

    exact = "1.00500000000000000001"
    found = [(row["t"], row["_rescued"]) for row in rows if exact in str(row)]
    assert len(found) == len(rows) == 2
    assert found[0] == (None, f'{{"x":"{exact}"}}')


TOO_LARGE: list[dict[str, Any]] = [
    {"n": 200}, {"n": -129}, {"l": [1, 200]},
    *({"t": number} for number in (253402300800, 1709200800000, 1709200800000000, -9223372036855)),
    {"s": {"t": 1709200800000000000, "u": "2024-02-29 10:00:00"}},
]  # fmt: skip
"""Numbers that Spark's parser wraps around, and times in other units than seconds."""
FITS = [
    {"n": -128, "l": [127], "t": 253402300799, "id": 1709200800000000000},
    {"t": "2024-02-29 10:00:00", "id": 1709200800000000000, "s": {"t": -1, "u": None}},
]


@pytest.mark.parametrize("way", OWN)
def test_number_of_json_is_rescued_when_its_type_is_too_narrow(way: str, spark: Any, tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text("\n".join(json.dumps(row) for row in [*TOO_LARGE, *FITS]))
    schema = "n TINYINT, l ARRAY<TINYINT>, t TIMESTAMP, s STRUCT<t: TIMESTAMP, u: TIMESTAMP>, id BIGINT"
    delta = FileBookmark(str(tmp_path)).new_files()

    frame = getattr(delta, way)(spark, "json", schema=schema, rescue=True)
    rows = frame.selectExpr("_rescued", "CAST(t AS BIGINT)", "n").collect()

    lost = [{name: json.dumps(value, separators=(",", ":"))} for row in TOO_LARGE for name, value in row.items()]
    assert [json.loads(row[0]) for row in rows if row[0] is not None] == lost
    assert [row[1:] for row in rows if row[0] is None] == [(253402300799, -128), (1709200800, None)]


@pytest.mark.parametrize("way", OWN)
def test_digits_of_json_are_a_time_when_a_format_for_them_is_given(way: str, spark: Any, tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text('{"t":"20240229100000"}\n{"t":20240229100000}\n{"t":1709200800}\n')
    delta = FileBookmark(str(tmp_path)).new_files()

    frame = getattr(delta, way)(spark, "json", schema="t TIMESTAMP", timestampFormat="yyyyMMddHHmmss", rescue=True)

    assert frame.selectExpr("CAST(t AS STRING)", "_rescued").collect() == [
        ("2024-02-29 10:00:00", None), (None, '{"t":"20240229100000"}'), ("2024-02-29 10:00:00", None)
    ]  # fmt: skip


OVER_LINES = (
    'id,t,n\n1,"first\n2,of,3\n\u00e4,""x"", y\nlast",9\n4,x,5\n5,"y ""z",6\n9,5" pipe,1\n6,"never\n7,closed,8\n'
)
WITHIN = ['1,"first', "2,of,3", '\u00e4,""x"", y', 'last",9', '6,"never', "7,closed,8"]


@pytest.mark.parametrize("is_split", [False, True], ids=["whole", "split"])
@pytest.mark.parametrize("way", OWN)
def test_all_lines_of_a_quoted_value_are_rescued_when_it_has_line_ends(
    way: str, is_split: bool, spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1" / "1.csv").write_text(OVER_LINES)
    (tmp_path / "day=1" / "2.csv").write_text('id,t,n\n8,"a",9\n')
    delta = FileBookmark(str(tmp_path)).new_files()
    schema = "id INT, t STRING, n INT, day INT"

    with settings(spark, {"spark.sql.files.maxPartitionBytes": "16"} if is_split else {}):
        rows = getattr(delta, way)(spark, "csv", schema=schema, header=True, rescue=True).collect()

    found = [(*row[:4], row[4] and json.loads(row[4])["_corrupt_record"]) for row in rows]
    good = [(4, "x", 5, 1, None), (5, 'y "z', 6, 1, None), (8, "a", 9, 1, None), (9, '5" pipe', 1, 1, None)]
    assert sorted(found, key=str) == sorted([*good, *((None, None, None, 1, line) for line in WITHIN)], key=str)
    # With read_small, the warning is in the log of the executor that reads the file.
    assert ("event=quotes_over_lines" in caplog.text and "multiLine=True" in caplog.text) == (way == "read")


LOSES_A_PART = {
    "t": ["2026-03-08 02:30:00", "2026-03-08T02:00:00.5"],
    "d": ["2026-01-01T10:30:00", "2026-01-01 xyz", "2026-01-01T00:00:01"],
}
IS_WHOLE = {
    "t": [
        "2026-03-08 01:59:59", "2026-03-08 03:00:00", "2026-03-08 02:30:00Z", "2026-03-08 02:30:00 Europe/London",
        "-290308-12-21T19:59:06.224192Z", "+294247-01-10T04:00:54.775807Z",
    ],
    "d": ["2026-01-01T00:00:00", "2026-01-01T00:00:00.000Z", "2026-01-01 00:00", "2026-01-01"],
}  # fmt: skip


@pytest.mark.parametrize("format", ["csv", "json", "nested"])
@pytest.mark.parametrize("way", OWN)
def test_time_is_rescued_when_a_part_of_it_would_be_lost_or_no_clock_shows_it(
    way: str, format: str, spark: Any, tmp_path: Path
) -> None:
    lost, kept = ([{one: text} for one in "td" for text in texts[one]] for texts in (LOSES_A_PART, IS_WHOLE))
    lines, schema = [json.dumps(row) for row in [*lost, *kept]], "t TIMESTAMP, d DATE"
    if format == "csv":
        lines = [f"{row.get('t', '')},{row.get('d', '')}" for row in [*lost, *kept]]
    elif format == "nested":
        lines, schema = (
            [f'{{"x":[{line}]}}' for line in lines],
            "x ARRAY<STRUCT<t: TIMESTAMP, d: DATE, n: DECIMAL(9,2)>>",
        )
    (tmp_path / "1.txt").write_text("\n".join(lines))

    with settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        delta = FileBookmark(str(tmp_path)).new_files()
        frame = getattr(delta, way)(spark, "csv" if format == "csv" else "json", schema=schema, rescue=True)
        rescued = [json.loads(row[0]) for row in frame.select("_rescued").collect() if row[0] is not None]

    found = [json.loads(row["x"])[0] for row in rescued] if format == "nested" else rescued
    assert sorted(found, key=str) == sorted(lost, key=str)
