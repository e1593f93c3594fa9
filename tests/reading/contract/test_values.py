"""A value of text that would change in its column's type is rescued, and types are inferred that change none."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.files.bookmark import FileBookmark
from tests.reading.contract.cases import OWN

TIMES_OF_DAY = ["09:00", "17:30:15", "16:9", "T08:00", " 7:15"]


def put(folder: Path, format: str, column: str, texts: list[str]) -> None:
    """Write a file with the texts as values of one column; lists of JSON have the texts within."""
    lines = {
        "csv": [f'"{text}"' for text in texts],
        "json": [json.dumps({column: text}) for text in texts],
        "nested": [json.dumps({column: [text]}) for text in texts],
        "xml": ["<rows>", *(f"<bay><{column}>{text}</{column}></bay>" for text in texts), "</rows>"],
    }
    (folder / "1.txt").write_text("\n".join(lines[format]))


def rescued(
    folder: Path, way: str, format: str, schema: str | None, spark: Any, **options: Any
) -> list[tuple[Any, Any]]:
    """Return the first value of each row, and the rescued texts."""
    asked = {"rowTag": "bay", **options} if format == "xml" else options
    delta = FileBookmark(str(folder)).new_files()
    found = getattr(delta, way)(spark, "json" if format == "nested" else format, schema=schema, rescue=True, **asked)
    return [(row[0], row["_rescued"]) for row in found.collect()]


@pytest.mark.parametrize("options", [{}, {"timeZone": "UTC"}], ids=["session's zone", "zone"])
@pytest.mark.parametrize("format", ["csv", "json", "nested"])
@pytest.mark.parametrize("way", OWN)
def test_time_of_day_is_rescued_when_its_column_is_a_timestamp(
    way: str, format: str, options: dict[str, str], spark: Any, tmp_path: Path
) -> None:
    put(tmp_path, format, "at", TIMES_OF_DAY)
    schema = "at ARRAY<TIMESTAMP>" if format == "nested" else "at TIMESTAMP"

    found = rescued(tmp_path, way, format, schema, spark, **options)

    texts = [json.loads(text)["at"] for _, text in found if text is not None]
    assert sorted(texts) == sorted(f'["{text}"]' if format == "nested" else text for text in TIMES_OF_DAY)


@pytest.mark.parametrize("way", OWN)
def test_times_of_day_are_texts_when_types_are_inferred(way: str, spark: Any, tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("opens,at\n,2024-02-29 10:00:00\n09:00,\n17:30,2024-02-29 10:00:00\n")

    rows = getattr(FileBookmark(str(tmp_path)).new_files(), way)(spark, "csv", header=True, inferSchema=True)

    assert rows.dtypes == [("opens", "string"), ("at", "timestamp")]
    assert sorted(str(row[0]) for row in rows.collect()) == ["09:00", "17:30", "None"]


@pytest.mark.parametrize("schema", [None, "at TIMESTAMP"])
def test_no_date_is_added_when_a_time_of_day_is_in_xml(
    schema: str | None, spark_with_packages: Any, tmp_path: Path
) -> None:
    put(tmp_path, "xml", "at", ["09:00"])

    [(value, text)] = rescued(tmp_path, "read", "xml", schema, spark_with_packages)

    assert (value, text) == (None, '{"at":"09:00"}') if schema else ("09:00", None)


LONG = [
    ("DECIMAL(38,2)", "1.005"),
    ("DECIMAL(38,0)", "1.5"),
    ("DECIMAL(38,0)", "15E-1"),
    ("DECIMAL(38,18)", "0.1234567890123456789"),
    ("DECIMAL(37,2)", "1.2304"),
]
WHOLE = [("DECIMAL(38,2)", "1.500"), ("DECIMAL(38,2)", "-15E-1"), ("DECIMAL(38,0)", "1.5E3"), ("DECIMAL(38,2)", "0E-9")]


@pytest.mark.parametrize("format", ["csv", "json", "nested"])
@pytest.mark.parametrize("way", OWN)
def test_decimal_is_rescued_when_its_type_has_all_38_digits_and_would_round_it(
    way: str, format: str, spark: Any, tmp_path: Path
) -> None:
    is_nested, pairs = format == "nested", [*LONG, *WHOLE]
    shown = [f"[null,{text}]" if is_nested else text for _, text in pairs]
    lines = [f'{{"c{at}":{text}}}' for at, text in enumerate(shown)]
    if format == "csv":
        lines = ["," * at + text + "," * (len(pairs) - 1 - at) for at, text in enumerate(shown)]
    (tmp_path / "1.txt").write_text("\n".join(lines))
    schema = ", ".join(f"c{at} {f'ARRAY<{kind}>' if is_nested else kind}" for at, (kind, _) in enumerate(pairs))

    found = rescued(tmp_path, way, "csv" if format == "csv" else "json", schema, spark)

    texts = [json.loads(text) for _, text in found if text is not None]
    assert [next(iter(text.values())).replace('"', "") for text in texts] == shown[: len(LONG)]


COMMAS = ["1,50", "1,234.50", "-1,5", ",5"]


@pytest.mark.parametrize("format", ["csv", "json", "nested"])
@pytest.mark.parametrize("way", OWN)
def test_number_with_a_comma_is_rescued_when_its_column_is_a_decimal_and_no_locale_is_given(
    way: str, format: str, spark: Any, tmp_path: Path
) -> None:
    put(tmp_path, format, "x", [*COMMAS, "1.50"])
    kind = "DECIMAL(9,2)"

    found = rescued(tmp_path, way, format, f"x ARRAY<{kind}>" if format == "nested" else f"x {kind}", spark)

    texts = [json.loads(text)["x"] for _, text in found if text is not None]
    assert sorted(texts) == sorted(f'["{text}"]' if format == "nested" else text for text in COMMAS)


@pytest.mark.parametrize("way", OWN)
def test_decimal_comma_is_read_when_a_locale_is_given(way: str, spark: Any, tmp_path: Path) -> None:
    put(tmp_path, "csv", "x", ["1,50", "1.234,5", "1,505"])

    found = rescued(tmp_path, way, "csv", "x DECIMAL(9,2)", spark, locale="de-DE")

    assert found == [(Decimal("1.50"), None), (Decimal("1234.50"), None), (None, '{"x":"1,505"}')]


def test_decimal_of_xml_is_rescued_when_its_type_has_all_38_digits_and_would_round_it(
    spark_with_packages: Any, tmp_path: Path
) -> None:
    put(tmp_path, "xml", "x", ["1.005", "15E-1", "1.5E3"])

    found = rescued(tmp_path, "read", "xml", "x DECIMAL(38,0)", spark_with_packages)

    assert found == [(None, '{"x":"1.005"}'), (None, '{"x":"15E-1"}'), (Decimal(1500), None)]


def test_time_of_xml_keeps_its_microseconds_when_a_date_beside_it_has_a_format(
    spark_with_packages: Any, tmp_path: Path
) -> None:
    day, text = "<day>29.02.2024</day>", "2024-02-29T10:00:00.123456+02:00"
    (tmp_path / "1.xml").write_text(f"<rows><bay><x>{day}<at>{text}</at></x></bay></rows>")
    schema = "x STRUCT<day: DATE, at: TIMESTAMP>"

    [(value, lost)] = rescued(tmp_path, "read", "xml", schema, spark_with_packages, dateFormat="dd.MM.yyyy")

    assert (value.day, value.at.microsecond, lost) == (date(2024, 2, 29), 123456, None)


TOO_LARGE = {"DOUBLE": ["1e400", "-1e400"], "FLOAT": ["1e400", "-1e400", "1e39"], None: ["1e400", "-1e400"]}


@pytest.mark.parametrize("kind", TOO_LARGE)
@pytest.mark.parametrize("format", ["csv", "json", "nested"])
@pytest.mark.parametrize("way", OWN)
def test_number_is_rescued_when_its_type_would_make_it_infinite(
    way: str, format: str, kind: str | None, spark: Any, tmp_path: Path
) -> None:
    shown = {"csv": "{}", "json": '{{"x":{}}}', "nested": '{{"x":[{}]}}'}[format]
    lines = [shown.format(text) for text in (*TOO_LARGE[kind], "1.5")]
    (tmp_path / "1.txt").write_text("\n".join(["x", *lines] if format == "csv" else lines))
    schema = kind and (f"x ARRAY<{kind}>" if format == "nested" else f"x {kind}")
    options = {"header": True, "inferSchema": schema is None} if format == "csv" else {}

    found = rescued(tmp_path, way, format, schema, spark, **options)

    texts = [json.loads(text)["x"].strip('[]"') for value, text in found if value is None]
    assert texts == TOO_LARGE[kind]
    assert found[-1] == ([1.5] if format == "nested" else 1.5, None)


@pytest.mark.parametrize("schema", [None, "x DOUBLE"])
def test_number_of_xml_is_rescued_when_a_double_would_make_it_infinite(
    schema: str | None, spark_with_packages: Any, tmp_path: Path
) -> None:
    put(tmp_path, "xml", "x", ["1e400", "1.5"])

    assert rescued(tmp_path, "read", "xml", schema, spark_with_packages) == [(None, '{"x":"1e400"}'), (1.5, None)]


def test_infinity_stays_when_a_file_of_csv_says_so(spark: Any, tmp_path: Path) -> None:
    put(tmp_path, "csv", "x", ["Inf", "-Inf"])

    found = rescued(tmp_path, "read", "csv", "x DOUBLE", spark)

    assert found == [(float("inf"), None), (float("-inf"), None)]
