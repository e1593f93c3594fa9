"""Each cursor type in each database that runs here: bounds are exact, and rows are returned unchanged."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.errors import CursorError, SourceError
from scripts.helpers.rows import missing_keys
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.rows.dialect import SPARK
from scripts.helpers.rows.spark_frames import DataFrameRows
from tests.support.row_windows import plan, taken

UTC = timezone.utc
AUTUMN = ["2026-10-25 00:30:00", "2026-10-25 00:30:00.000001", "2026-10-25 01:30:00"]
SPRING = ["2026-03-29 00:59:59.999", "2026-03-29 01:30:00", "2026-03-29 01:30:00.001"]
WIDE = "1234567890123456789012345678.0123456789"
RISING = {
    ("postgres", "timestamptz"): [f"{text}+00" for text in AUTUMN],
    ("postgres", "timestamp"): AUTUMN,
    ("postgres", "timestamp(3)"): SPRING,
    ("postgres", "date"): ["0001-01-01", "2026-10-25", "2026-10-26"],
    ("postgres", "smallint"): ["-32768", "0", "32767"],
    ("postgres", "integer"): ["-2147483648", "0", "2147483647"],
    ("postgres", "bigint"): ["-9223372036854775808", "0", "9223372036854775807"],
    ("postgres", "numeric(38,10)"): ["-0.0000000001", "0", WIDE],
    ("postgres", "numeric"): ["-0.000000000000000001", "0", "7.5"],
    ("postgres", "text"): ["B", "a'); DROP TABLE x; --", "b\\"],
    ("postgres", "varchar(20)"): ["A ", "A b", "a"],
    ("maria", "timestamp(6)"): AUTUMN,
    ("maria", "timestamp"): [AUTUMN[0], "2026-10-25 00:30:01", AUTUMN[2]],
    ("maria", "datetime(6)"): AUTUMN,
    ("maria", "datetime(3)"): SPRING,
    ("maria", "date"): ["1000-01-01", "2026-10-25", "2026-10-26"],
    ("maria", "tinyint"): ["-128", "0", "127"],
    ("maria", "int unsigned"): ["0", "1", "4294967295"],
    ("maria", "bigint unsigned"): ["0", "1", "18446744073709551615"],
    ("maria", "decimal(38,10)"): ["-0.0000000001", "0", WIDE],
    ("maria", "varchar(40) collate utf8mb4_general_ci"): ["B", "a''); DROP TABLE x; --", "b"],
    ("maria", "varchar(9) character set latin1"): ["A", "A b", "B"],
    ("sqlite", "INTEGER"): ["-9223372036854775808", "0", "9223372036854775807"],
    ("sqlite", "TEXT COLLATE NOCASE"): ["B", "a''); DROP TABLE x; --", "b"],
    ("sqlite", "DATE"): ["20261025", "20261026", "20261101"],
    ("sqlite", "TIMESTAMP"): ["1790000000", "1790000001.5", "2026-10-25"],
    ("sqlite", "DATETIME"): ["2026-10-25T00:30:00Z", "2026-10-25T00:30:01Z", "2026-10-25T01:30:00Z"],
}
"""Three values of each type, in order; where it matters, one step apart or at an end of the type."""
TYPES = pytest.mark.parametrize(("database", "declared"), RISING, ids=lambda text: text.replace(" ", "_"))


def rows_of(database: Any, name: str, texts: list[str], first_id: int = 0) -> None:
    for number, text in enumerate(texts, first_id):
        value = text if "''" in text else text.replace("'", "''")
        zone = ["SET time_zone = '+00:00'"] if "Maria" in type(database).__name__ else []
        if type(database).__name__ != "PostgresServer":
            value = value.replace("\\", "\\\\")
        database.sql(*zone, f"INSERT INTO {name} VALUES ({number}, '{value}')")


@TYPES
def test_each_row_is_taken_once_when_rows_come_between_runs(
    jdbc: Any, request: pytest.FixtureRequest, database: str, declared: str
) -> None:
    server = request.getfixturevalue(database)
    name = server.new_table(f"id int, at {declared} NOT NULL")
    source = JdbcTable(jdbc, server.url, name, properties=server.properties, zone="UTC")
    rows_of(server, name, RISING[database, declared][:1])

    first = plan(source, "at", strings=True)
    rows_of(server, name, RISING[database, declared][1:], 1)
    second = plan(source, "at", first, strings=True)
    third = plan(source, "at", second, strings=True)

    assert third.is_empty and second.low == first.high
    # One job of Spark reads all windows, because each job costs more than the few rows.
    frames = [source.rows(window) for window in (first, second, third)]
    by_spark = jdbc.version >= "3.4" or first.columns[0].type != "timestamp_ntz"
    if first.columns[0].type not in ("string", "decimal(20,0)") and by_spark:
        frames.append(frames[1].where(f"NOT ({second.predicate(SPARK)})"))
    numbered = [frame.selectExpr(f"{at} AS run", "id") for at, frame in enumerate(frames)]
    found = functools.reduce(lambda some, more: some.union(more), numbered)
    assert sorted(map(tuple, found.collect())) == [(0, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize("database", ["postgres", "maria", "sqlite"])
def test_each_run_warns_of_texts_when_their_lengths_differ(
    jdbc: Any, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture, database: str
) -> None:
    server = request.getfixturevalue(database)
    name = server.new_table("id int, at varchar(20) NOT NULL")
    source = JdbcTable(jdbc, server.url, name, properties=server.properties)
    window, warned = None, []
    for number, texts in enumerate((["aa", "ab"], ["b", "cc", "d"], ["ee", "ff"], ["g"])):
        rows_of(server, name, texts, 10 * number)
        caplog.clear()
        window = plan(source, "at", window, strings=True)
        warned.append("event=unordered_texts context=repairs column=at" in caplog.text)

    assert warned == [False, True, True, True]


@pytest.fixture
def zones(jdbc: Any) -> Iterator[Callable[[str, str], None]]:
    """Return a function that sets the zones of the Spark session and of Java."""
    timezones = jdbc._jvm.java.util.TimeZone
    before, java = jdbc.conf.get("spark.sql.session.timeZone"), timezones.getDefault()

    def put(session: str, of_java: str) -> None:
        jdbc.conf.set("spark.sql.session.timeZone", session)
        timezones.setDefault(timezones.getTimeZone(of_java))

    yield put
    jdbc.conf.set("spark.sql.session.timeZone", before)
    timezones.setDefault(java)


@pytest.mark.parametrize(
    ("session", "java"), [("UTC", "UTC"), ("Europe/London", "Europe/London"), ("America/Los_Angeles", "Asia/Kathmandu")]
)
@pytest.mark.parametrize(
    ("database", "with_zone", "without_zone"),
    [("postgres", "timestamptz", "timestamp"), ("maria", "timestamp(6)", "datetime(6)")],
)
def test_both_hours_of_the_change_come_back_as_they_are_when_sessions_are_in_any_zone(
    jdbc: Any,
    request: pytest.FixtureRequest,
    database: str,
    with_zone: str,
    without_zone: str,
    session: str,
    java: str,
    zones: Callable[[str, str], None],
) -> None:
    server = request.getfixturevalue(database)
    name = server.new_table(f"id int, at {with_zone} NOT NULL, wall {without_zone} NOT NULL")
    skipped, repeated = "2026-03-29 01:30:00.000001", "2026-10-25 01:30:00"
    instants = [f"2026-10-25 0{hour}:30:00" + ("+00" if database == "postgres" else "") for hour in (0, 1)]
    server.sql(
        *(["SET time_zone = '+00:00'"] if database == "maria" else []),
        f"INSERT INTO {name} VALUES (0, '{instants[0]}', '{skipped}'), (1, '{instants[1]}', '{repeated}')",
    )
    source = JdbcTable(jdbc, server.url, name, properties=server.properties, zone="UTC")
    zones(session, java)

    window = plan(source, "at")
    found = source.rows(window).selectExpr("id", "unix_micros(at) AS at", "CAST(wall AS string) AS wall").orderBy("id")
    rows = [tuple(row) for row in found.collect()]
    wall = plan(source, "wall", start_from=datetime(2026, 3, 29, 1, 30, 0, 1), high=datetime(2026, 10, 25, 1, 30))
    by_wall = taken(source, wall)

    micros = [int(datetime(2026, 10, 25, hour, 30, tzinfo=UTC).timestamp()) * 10**6 for hour in (0, 1)]
    assert rows == [(0, micros[0], skipped), (1, micros[1], repeated)]
    assert window.high == (datetime(2026, 10, 25, 1, 30, 0, 1, tzinfo=UTC),)
    assert by_wall == [0]


@pytest.mark.parametrize(
    ("database", "declared", "values"),
    [
        ("maria", "timestamp(6)", AUTUMN),
        ("maria", "datetime(6)", [*SPRING, *AUTUMN]),
        ("postgres", "timestamp", [*SPRING, "1500-02-28 00:00:00"]),
    ],
)
def test_only_deleted_keys_are_missing_when_java_is_in_another_zone(
    jdbc: Any,
    request: pytest.FixtureRequest,
    database: str,
    declared: str,
    values: list[str],
    zones: Callable[[str, str], None],
) -> None:
    server = request.getfixturevalue(database)
    name = server.new_table(f"id int NOT NULL, at {declared} NOT NULL, word text")
    server.sql(
        *(["SET time_zone = '+00:00'"] if database == "maria" else []),
        *(f"INSERT INTO {name} VALUES ({number}, '{value}', 'x')" for number, value in enumerate(values)),
    )
    source = JdbcTable(jdbc, server.url, name, properties=server.properties, zone="UTC")
    zones("UTC", "Europe/London")
    target = source.rows(plan(source, "id")).localCheckpoint()
    server.sql(f"DELETE FROM {name} WHERE id = 1")

    gone = missing_keys(source, target, ["id", "at"])

    assert "word" not in gone._jdf.queryExecution().executedPlan().toString()
    assert [row.id for row in gone.collect()] == [1]


@pytest.mark.parametrize(
    ("database", "declared", "high"),
    [
        ("postgres", "timestamp(0)", datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)),
        ("postgres", "timestamptz", datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
        ("postgres", "date", date(2026, 1, 2)),
        ("postgres", "numeric(10,2)", Decimal("1.51")),
        ("maria", "datetime", datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)),
        ("maria", "timestamp(3)", datetime(2026, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)),
        ("maria", "decimal(10,2)", Decimal("1.51")),
    ],
)
def test_window_ends_one_step_above_the_largest_when_the_column_is_coarse(
    jdbc: Any, request: pytest.FixtureRequest, database: str, declared: str, high: Any
) -> None:
    server = request.getfixturevalue(database)
    name = server.new_table(f"id int, at {declared}")
    value = "1.5" if "(10,2)" in declared else "2026-01-01"
    server.sql(
        *(["SET time_zone = '+00:00'"] if database == "maria" else ["SET timezone = 'UTC'"]),
        f"INSERT INTO {name} VALUES (1, '{value}')",
    )

    window = plan(JdbcTable(jdbc, server.url, name, properties=server.properties, zone="UTC"), "at")

    assert window.high == (high,)


@pytest.mark.parametrize("database", ["postgres", "maria", "sqlite"])
def test_clock_is_that_of_the_database_when_facts_are_asked(
    jdbc: Any, request: pytest.FixtureRequest, database: str
) -> None:
    server = request.getfixturevalue(database)
    source = JdbcTable(jdbc, server.url, server.new_table("id int NOT NULL"), properties=server.properties)

    columns = source.columns(["id"], strings=False)
    before = datetime.now(UTC)
    facts = source.facts(columns, None, descending=False)
    after = datetime.now(UTC)

    millisecond = timedelta(milliseconds=1)  # SQLite's clock has no microseconds.
    assert facts.now is not None and facts.now.utcoffset() == timedelta(0)
    assert before - millisecond <= facts.now <= after + millisecond
    assert (facts.largest, facts.nulls) == (None, 0)


@pytest.mark.parametrize(
    ("database", "declared"),
    [("postgres", "double precision"), ("postgres", "jsonb"), ("postgres", "time"), ("postgres", "text"),
     ("postgres", "numeric(60,2)"), ("maria", "double"), ("maria", "year"), ("maria", "decimal(60,2)"),
     ("postgres", "timestamp[]"), ("postgres", "numeric(10,2)[]"), ("postgres", "varchar(9)[]"),
     ("sqlite", "REAL"), ("sqlite", "NUMERIC(10,2)"), ("sqlite", "STRING"), ("sqlite", "TIME"), ("sqlite", "DATETIME")],
)  # fmt: skip
def test_column_is_refused_when_its_type_has_no_exact_order(
    jdbc: Any, request: pytest.FixtureRequest, database: str, declared: str
) -> None:
    server = request.getfixturevalue(database)
    source = JdbcTable(jdbc, server.url, server.new_table(f"at {declared}"), properties=server.properties)

    with pytest.raises(CursorError) as caught:
        plan(source, "at")

    assert "no exact order" in str(caught.value)
    assert ("strings=True" in str(caught.value)) == (declared in ("text", "DATETIME"))


AS_THEY_ARE = {
    ("maria", "tinyint(1)"): (["0", "1", "2", "-5", "100"], None),
    ("maria", "tinyint(1) unsigned"): (["255"], None),
    ("maria", "year"): (["2026", "0000"], ["2026", "0"]),
    ("maria", "time"): (["838:59:59", "-10:00:00", "01:30:00"], None),
    ("maria", "time(6)"): (["12:00:01.123456"], None),
    ("maria", "date"): (["1582-10-10", "2026-03-29"], None),
    ("maria", "decimal(65,30)"): (["12345678.123456789012345678901234567890"], None),
    ("maria", "decimal(40,0)"): (["-" + "9" * 38], None),
    ("postgres", "time"): (["24:00:00", "12:00:01.123456"], None),
    ("postgres", "timetz"): (["12:00:01+02"], None),
    ("postgres", "numeric"): (["0.123456789012345678", "-7"], ["0.123456789012345678", "-7.000000000000000000"]),
    ("postgres", "numeric(60,2)"): (["9" * 36 + ".12"], None),
    ("postgres", "numeric(60,50)"): (["0.5"], ["0.5" + "0" * 37]),
}
"""Values that Spark or a driver would read as another type, and the values read; None if the text is the same."""


@pytest.mark.parametrize(("database", "declared"), AS_THEY_ARE, ids=lambda text: text.replace(" ", "_"))
def test_value_is_as_in_the_table_when_a_driver_would_change_it(
    jdbc: Any, request: pytest.FixtureRequest, database: str, declared: str
) -> None:
    server = request.getfixturevalue(database)
    name = server.new_table(f"id int NOT NULL, v {declared}, last int")
    values, expected = AS_THEY_ARE[database, declared]
    rows = [f"({number}, '{value}', 1)" for number, value in enumerate(values)]
    server.sql(f"INSERT INTO {name} VALUES {', '.join(rows)}, ({len(rows)}, NULL, 1)")
    source = JdbcTable(jdbc, server.url, name, properties=server.properties)

    found = source.rows(plan(source, "id"))

    assert found.columns == ["id", "v", "last"]
    texts = [row.v for row in found.selectExpr("id", "CAST(v AS STRING) AS v").orderBy("id").collect()]
    assert texts == [*(expected or values), None]


@pytest.mark.parametrize(
    ("database", "declared", "value", "read_as"),
    [
        ("postgres", "numeric", "0.1234567890123456789012", "decimal(38,18)"),
        ("postgres", "numeric", "123456789012345678901234567890", "decimal(38,18)"),
        ("postgres", "numeric", "NaN", "decimal(38,18)"),
        ("postgres", "numeric(60,2)", "9" * 37, "decimal(38,2)"),
        ("maria", "decimal(65,30)", "123456789.5", "decimal(38,30)"),
    ],
)
def test_source_error_names_the_column_when_a_number_does_not_fit_what_it_is_read_as(
    jdbc: Any, request: pytest.FixtureRequest, database: str, declared: str, value: str, read_as: str
) -> None:
    server = request.getfixturevalue(database)
    name = server.new_table(f"id int NOT NULL, price {declared}, note int")
    server.sql(f"INSERT INTO {name} VALUES (1, '{value}', 7)")
    source = JdbcTable(jdbc, server.url, name, properties=server.properties)
    found = source.rows(plan(source, "id"))

    with pytest.raises(SourceError) as caught, source.typed_errors():
        found.collect()

    assert f"column 'price' has a number that does not fit {read_as}" in str(caught.value)
    assert "through a view that casts it" in str(caught.value) and value not in str(caught.value)
    assert [row.note for row in found.select("note").collect()] == [7]


@pytest.mark.parametrize("declared", ["numeric(3,5)", "numeric(3,-2)"])
def test_source_error_names_the_column_when_spark_has_no_decimal_of_its_scale(
    jdbc: Any, postgres: Any, declared: str
) -> None:
    name = postgres.new_table(f"id int NOT NULL, price {declared}")
    every, chosen = (
        JdbcTable(jdbc, postgres.url, name, properties=postgres.properties, columns=columns)
        for columns in (None, ["id"])
    )

    with pytest.raises(SourceError, match=r"column 'price' is a numeric.* columns="):
        every.rows(plan(every, "id"))
    assert chosen.rows(plan(chosen, "id")).columns == ["id"]


def test_table_is_read_when_it_has_arrays_of_times(jdbc: Any, postgres: Any) -> None:
    name = postgres.new_table("id int NOT NULL, times timestamp[], prices numeric(10,2)[]")
    postgres.sql(f"INSERT INTO {name} VALUES (1, '{{2026-10-25 00:30:00}}', '{{1.50,2.25}}')")
    source = JdbcTable(jdbc, postgres.url, name, properties=postgres.properties)

    row = source.rows(plan(source, "id")).selectExpr("size(times)", "CAST(prices AS string)").head()

    assert row is not None and tuple(row) == (1, "[1.50, 2.25]")


@pytest.mark.parametrize("value", ["0.0000000000000000001", "100000000000000000000.5"], ids=["decimals", "digits"])
def test_cursor_error_names_column_and_remedy_when_a_number_has_more_digits_than_it_is_read_with(
    jdbc: Any, postgres: Any, value: str
) -> None:
    name = postgres.new_table("id int, price numeric NOT NULL")
    postgres.sql(f"INSERT INTO {name} VALUES (1, {value})")

    with pytest.raises(CursorError) as caught:
        plan(JdbcTable(jdbc, postgres.url, name, properties=postgres.properties), "price")

    assert "'price'" in str(caught.value) and "does not fit the decimal(38,18)" in str(caught.value)
    assert "through a view that casts it to a decimal of its own precision and scale" in str(caught.value)
    assert "watermark" not in str(caught.value) and value not in str(caught.value)


@pytest.mark.parametrize("database", ["postgres", "maria", "sqlite"])
def test_nothing_is_taken_and_nothing_is_stored_when_a_table_of_texts_is_empty(
    jdbc: Any, request: pytest.FixtureRequest, database: str
) -> None:
    server = request.getfixturevalue(database)
    name = server.new_table("id int, at varchar(9) NOT NULL")
    source = JdbcTable(jdbc, server.url, name, properties=server.properties)

    first = plan(source, "at", strings=True)
    rows_of(server, name, ["", "a"])
    second = plan(source, "at", first, strings=True)

    assert (first.high, first.state_after["value"]) == (None, None)
    assert taken(source, second) == [0, 1]


def test_cursor_error_says_so_when_bytes_are_among_the_texts_of_sqlite(jdbc: Any, sqlite: Any) -> None:
    name = sqlite.new_table("id int, at text NOT NULL")
    sqlite.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, x'62')")

    with pytest.raises(CursorError, match="its largest value is not a text"):
        plan(JdbcTable(jdbc, sqlite.url, name), "at", strings=True)


def test_row_is_left_for_later_when_its_finite_stamp_is_past_what_spark_can_hold(jdbc: Any, postgres: Any) -> None:
    name = postgres.new_table("id int, at timestamp NOT NULL")
    postgres.sql(f"INSERT INTO {name} VALUES (0, '2026-01-01'), (1, '20000-01-01')")
    source = JdbcTable(jdbc, postgres.url, name, properties=postgres.properties, zone="UTC")

    assert taken(source, plan(source, "at")) == [0]


@pytest.mark.parametrize("far", ["infinity", "-infinity"])
def test_rows_are_read_and_watermark_is_not_pinned_when_a_stamp_is_past_what_spark_can_hold(
    jdbc: Any, postgres: Any, far: str
) -> None:
    name = postgres.new_table("id int, at timestamp NOT NULL, other timestamp")
    postgres.sql(f"INSERT INTO {name} VALUES (0, '2026-01-01', '{far}'), (1, '{far}', NULL)")
    source = JdbcTable(jdbc, postgres.url, name, properties=postgres.properties, zone="UTC")

    window = plan(source, "at")
    row = source.rows(window).selectExpr("id", "year(other) AS year").where("id = 0").head()

    assert row is not None
    before = far.startswith("-")
    assert row["year"] == (1 if before else 9999)
    assert taken(source, window) == ([0, 1] if before else [0])
    assert window.high is not None
    assert isinstance(window.high[0], datetime)
    assert window.high[0] < datetime(2100, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("far", ["infinity", "-infinity"])
def test_rows_are_read_when_a_date_is_infinite(jdbc: Any, postgres: Any, far: str) -> None:
    name = postgres.new_table("id int, at date NOT NULL, other date")
    postgres.sql(f"INSERT INTO {name} VALUES (0, '2026-01-01', '{far}'), (1, '{far}', NULL)")
    source = JdbcTable(jdbc, postgres.url, name, properties=postgres.properties, zone="UTC")

    window = plan(source, "at")
    row = source.rows(window).selectExpr("id", "year(other) AS year").where("id = 0").head()

    assert row is not None
    assert row["year"] == (1 if far == "-infinity" else 9999)
    assert taken(source, window) == ([0, 1] if far == "-infinity" else [0])


@pytest.mark.parametrize(
    ("database", "without_zone", "with_zone"),
    [("postgres", "timestamp", "timestamptz"), ("maria", "datetime", "timestamp")],
)
def test_column_without_zone_is_refused_when_sparks_own_reader_made_instants_of_it(
    jdbc: Any,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    database: str,
    without_zone: str,
    with_zone: str,
) -> None:
    server = request.getfixturevalue(database)
    name = server.new_table(f"id int, wall {without_zone}, at {with_zone}")
    server.sql(f"INSERT INTO {name} VALUES (1, '2026-01-01 10:00:00', '2026-01-01 10:00:00')")
    options = {
        "maria": {"driver": "org.mariadb.jdbc.Driver", "sessionInitStatement": "SET sql_mode = 'ANSI_QUOTES'"},
        "postgres": {"driver": "org.postgresql.Driver"},
    }
    frame = jdbc.read.jdbc(server.url, name, properties={**server.properties, **options[database]})
    chosen = frame.where("id > 0").selectExpr("id", "wall AS w", "at AS a", "wall + INTERVAL 5 HOURS AS utc")
    source = DataFrameRows(chosen)

    for column in ("w", "W"):
        with pytest.raises(CursorError, match=r"no time zone.*JdbcTable\(.*zone="):
            plan(source, column)
    known, by_hand = plan(source, "a"), plan(source, "utc")
    assert "event=no_zone" not in caplog.text
    plan(source, "w", replace(known, columns=(CursorColumn("w", "timestamp"),)))

    assert None not in (known.high, by_hand.high)
    assert "event=no_zone context=repairs column=w" in caplog.text
