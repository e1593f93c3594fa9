"""`DatabaseSink` over JDBC: executors write the staging table, and the driver's JVM runs the transaction."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from scripts.helpers.errors import (
    InvalidValueError,
    TargetError,
    TargetUnavailableError,
)
from scripts.helpers.job import IncrementalJob
from scripts.helpers.protocol.names import BatchId
from scripts.helpers.rows.sql import SQL, sql
from scripts.helpers.sinks import DatabaseSink
from scripts.helpers.sinks.database import JdbcAccess, arriving, place_of_url
from scripts.helpers.sql.mysql import MariaDB
from scripts.helpers.watermarks import Watermarks
from tests.support.database_fixtures import written_as
from tests.support.reasons import because
from tests.support.staging import staged_by
from tests.support.written import EPOCH, JOB, PASSWORD, Written

BATCH = BatchId(JOB, EPOCH, 3)


def sink_of(jdbc: Any, written: Written, table: str | list[str], **options: Any) -> DatabaseSink:
    return DatabaseSink(table, spark=jdbc, url=written.url, properties=written.properties, **options)


TYPES = {
    "postgres": 'id bigint, "a""b `c`" text, amount numeric(38,18), wall timestamp, instant timestamptz, day date, '
    "ok boolean, data bytea, ratio double precision, u uuid",
    "maria": 'id bigint, `a"b ``c``` text, amount decimal(38,18), wall datetime(6), instant timestamp(6) NULL, '
    "day date, ok boolean, data longblob, ratio double, u uuid",
    "sqlite": 'id integer, "a""b `c`" text, amount text, wall text, instant text, day text, ok boolean, data blob, '
    "ratio real, u text",
}
OTHERS = pytest.mark.parametrize("written", ["maria", "sqlite"], indirect=True)
"""The databases that the contract suite does not write to over JDBC."""
INSTANT = datetime(2026, 10, 25, 0, 30, 0, 1, tzinfo=timezone.utc)
UUID = "6f4b1d3e-0000-4000-8000-000000000001"


@OTHERS
@pytest.mark.parametrize(("kind", "unfit"), [("float", "nan"), ("float", "inf"), ("double", "nan"), ("double", "-inf")])
def test_nan_or_infinity_is_refused_before_the_commit_when_the_database_cannot_store_it(
    jdbc: Any, written: Written, kind: str, unfit: str
) -> None:
    table = written.new_table("id bigint, ratio double precision")
    rows = jdbc.sql(f"SELECT 1L AS id, CAST('{unfit}' AS {kind}) AS ratio UNION ALL SELECT 2L, 0.5")

    if (written.kind, unfit) in [("sqlite", "inf"), ("sqlite", "-inf")]:
        sink_of(jdbc, written, table).publish(staged_by(sink_of(jdbc, written, table), BATCH, 1, rows))
        assert sorted(written.rows(f"SELECT id, ratio FROM {table}")) == [(1, float(unfit)), (2, 0.5)]
        return
    with pytest.raises(InvalidValueError, match=r"column 'ratio' has nan.* does not hold\. Replace it"):
        staged_by(sink_of(jdbc, written, table), BATCH, 1, rows)
    assert written.rows(f"SELECT * FROM {table}") == []


@OTHERS
@pytest.mark.parametrize("zone", ["Europe/London"], ids=["timestamp_ntz"])
def test_values_arrive_as_they_left_when_executors_write_them(jdbc: Any, written: Written, zone: str) -> None:
    table = written.new_table(TYPES[written.kind])
    before = jdbc.conf.get("spark.sql.session.timeZone")
    jdbc.conf.set("spark.sql.session.timeZone", zone)
    try:
        micros = int(INSTANT.timestamp()) * 1_000_000 + 1
        rows = jdbc.sql(
            f"""SELECT 4611686018427387904L AS id, 'é"%' AS `a"b ``c```, -1.5BD AS amount,
            TIMESTAMP_NTZ'2026-03-29 01:30:00.123456' AS wall, timestamp_micros({micros}L) AS instant,
            DATE'0001-01-01' AS day, true AS ok, X'00FF' AS data, 0.1D AS ratio, '{UUID}' AS u"""
        )
        nulls = rows.selectExpr("id", *(f"CAST(NULL AS {kind})" for _, kind in rows.dtypes[1:])).replace(2**62, 2)
        sink = sink_of(jdbc, written, table)
        output = staged_by(sink, BATCH, 1, rows.union(nulls))
        sink.publish(output)
        sink.publish(output)
        sink.clear(output)
    finally:
        jdbc.conf.set("spark.sql.session.timeZone", before)

    found = sorted(written.rows(f"SELECT * FROM {table}"), key=lambda row: row[1] is None)
    assert (output.rows, written.staged(table), found[1][1:]) == (2, [], (None,) * 9)
    names = ["id", "text", "amount", "wall", "instant", "day", "ok", "data", "ratio", "u"]
    row = dict(zip(names, found[0], strict=True))
    row["amount"], row["u"] = Decimal(row["amount"]), str(row["u"])
    if written.kind == "sqlite":
        row["wall"], row["instant"] = datetime.fromisoformat(row["wall"]), datetime.fromisoformat(row["instant"])
        row["day"] = date.fromisoformat(row["day"])
    if written.kind == "maria":
        ((text,),) = written.rows(f"SELECT CAST(UNIX_TIMESTAMP(instant) AS CHAR) FROM {table} WHERE amount IS NOT NULL")
        row["instant"] = INSTANT if text == "1792888200.000001" else text
    wall = datetime(2026, 3, 29, 1, 30, 0, 123_456)
    expected = [2**62, 'é"%', Decimal("-1.5"), wall, INSTANT, date(1, 1, 1), True, b"\0\xff", 0.1, UUID]
    assert [row[name] for name in names] == expected


@pytest.mark.parametrize("kind", ["postgres", "maria"])
def test_rows_are_taken_once_when_a_task_is_lost_after_its_commit_and_done_again(
    jdbc: Any, request: pytest.FixtureRequest, kind: str
) -> None:
    written = written_as(request, kind)
    table = written.new_table("id bigint")

    class Again(JdbcAccess):
        """Makes each task write its rows a second time, as after the loss of an executor."""

        def fill(self, df: Any, table: SQL, columns: Any) -> None:
            super().fill(df, table, columns)
            super().fill(df, table, columns)

    sink = sink_of(jdbc, written, table)
    sink._log.access = Again(jdbc, written.url, written.properties)

    output = staged_by(sink, BATCH, 1, jdbc.range(0, 100, 1, 3))
    sink.publish(output)

    assert (output.rows, written.rows(f"SELECT COUNT(*), COUNT(DISTINCT id) FROM {table}")) == (100, [(100, 100)])


def test_one_task_writes_all_rows_when_the_database_lets_in_one_writer(
    jdbc: Any, request: pytest.FixtureRequest
) -> None:
    written = written_as(request, "sqlite")
    table = written.new_table("task text")
    sink = sink_of(jdbc, written, table)
    task = "java_method('org.apache.spark.TaskContext', 'getPartitionId') AS task"

    sink.publish(staged_by(sink, BATCH, 1, jdbc.range(0, 8, 1, 4).selectExpr(task)))

    assert written.rows(f"SELECT task, COUNT(*) FROM {table} GROUP BY task") == [("0", 8)]


def test_other_writers_are_kept_out_from_the_first_look_on_when_a_transaction_begins(
    jdbc: Any, request: pytest.FixtureRequest
) -> None:
    """Otherwise a transaction that reads first could not write later, if another one has begun to write in between."""
    written = written_as(request, "sqlite")
    access = JdbcAccess(jdbc, written.url, written.properties)

    with access.session() as session, closing(sqlite3.connect(written.server.path, timeout=0)) as other:
        session.begin()
        with pytest.raises(sqlite3.OperationalError, match="database is locked"):
            other.execute("BEGIN IMMEDIATE")
        session.commit()
        session.rows(sql("SELECT 1"))
        other.execute("BEGIN IMMEDIATE")


def test_batch_is_there_once_when_a_job_writes_it(jdbc: Any, written: Written, watermarks: Watermarks) -> None:
    table = written.new_table("id bigint, word varchar(9) NOT NULL DEFAULT 'x'")
    sink = sink_of(jdbc, written, table)

    with IncrementalJob(watermarks, JOB, "jr_1", spark=jdbc) as job:
        count = job.write(job.rows_since(jdbc.range(10), "id"), sink)
        before = written.rows(f"SELECT COUNT(*) FROM {table}")

    assert (count, before) == (10, [(0,)])
    assert written.rows(f"SELECT COUNT(*) FROM {table} WHERE word = 'x'") == [(10,)]
    assert watermarks.latest(JOB).unpublished == ()


def test_rows_of_a_run_that_saves_nothing_are_refused_when_it_has_written_before(
    jdbc: Any, request: pytest.FixtureRequest
) -> None:
    written = written_as(request, "sqlite")
    sink = sink_of(jdbc, written, written.new_table("id bigint"))
    sink.publish(staged_by(sink, BATCH, 0, jdbc.range(1), replaces=True))

    with pytest.raises(TargetError, match="Use another run id"):
        staged_by(sink, BATCH, 0, jdbc.range(1), replaces=True)


def test_lock_is_told_when_others_hold_it_for_longer_than_the_server_waits(
    jdbc: Any, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = {
        "postgres": f"{written.url}?options=-c%20lock_timeout=100ms",
        "maria": f"{written.url}?sessionVariables=innodb_lock_wait_timeout=1",
        "sqlite": written.url,
    }[written.kind]
    sink = DatabaseSink(written.new_table("id bigint"), spark=jdbc, url=url, properties=written.properties)
    if written.kind == "sqlite":
        monkeypatch.setattr(sink._log.sql, "writing_session", sql("PRAGMA busy_timeout = 100"))
    output = staged_by(sink, BATCH, 1, jdbc.range(1))

    with closing(written.connect()) as holder:
        holder.cursor().execute(*written.marked(*sink._log.statements(output.staging).record(output, 3, output.folder)))
        with pytest.raises(TargetUnavailableError, check=because("locked")):
            sink.publish(output)


def test_sink_is_refused_when_spark_is_to_write_without_a_transaction(jdbc: Any) -> None:
    """PostgreSQL's transaction ids tell attempts at a task apart; otherwise only a task's first batch would count."""
    with pytest.raises(InvalidValueError, match="isolationLevel=NONE"):
        DatabaseSink("t", spark=jdbc, url="jdbc:postgresql://db/shop", properties={"ISOLATIONLEVEL": "none"})


def test_frame_of_the_other_kind_is_refused_when_written(jdbc: Any, written: Written) -> None:
    for rows in (pd.DataFrame({"id": [1]}), pa.table({"id": [1]})):
        with pytest.raises(InvalidValueError, match="Give the sink connect="):
            sink_of(jdbc, written, "t").check(rows)
    with pytest.raises(InvalidValueError, match="spark= and url="):
        written.sink("t").check(jdbc.range(1))
    with pytest.raises(InvalidValueError, match="Column 'a' is of type array, which the table"):
        sink_of(jdbc, written, "t").check(jdbc.sql("SELECT array(1) AS a"))


def test_table_is_refused_when_its_engine_has_no_transactions(jdbc: Any, request: pytest.FixtureRequest) -> None:
    written = written_as(request, "maria")
    table = written.new_table("id bigint")
    written.sql(f"ALTER TABLE {table} ENGINE=MyISAM")

    with pytest.raises(TargetError, check=because("unfit_table"), match="ENGINE=InnoDB"):
        staged_by(sink_of(jdbc, written, table), BATCH, 1, jdbc.range(1))


def test_right_is_named_and_no_secret_when_the_user_may_only_read(jdbc: Any, maria: Any) -> None:
    table = maria.new_table("id bigint")
    sink = DatabaseSink(table, spark=jdbc, url=maria.url, properties=maria.properties)

    with pytest.raises(TargetError, check=because("refused"), match=r"GRANT CREATE, ALTER, DROP.* ON `shop`") as caught:
        staged_by(sink, BATCH, 1, jdbc.range(1))
    assert PASSWORD not in f"{caught.value!r}{sink!r}{sink._log.access!r}"


def test_secret_is_not_shown_when_the_server_is_down(jdbc: Any) -> None:
    url = f"jdbc:postgresql://me:{PASSWORD}@127.0.0.1:1/shop?password={PASSWORD}"
    sink = DatabaseSink("t", spark=jdbc, url=url, properties={"password": PASSWORD})

    with pytest.raises(TargetUnavailableError) as caught:
        staged_by(sink, BATCH, 1, jdbc.range(1))
    assert sink.name == "postgresql://127.0.0.1:1/shop/t"
    assert PASSWORD not in f"{caught.value!r}{sink!r}"


@pytest.mark.parametrize(
    ("given", "variables"),
    [({}, "sql_mode='ANSI_QUOTES'"), ({"sessionVariables": "a=1"}, "sql_mode='ANSI_QUOTES',a=1")],
)
def test_names_are_quoted_as_spark_does_when_mariadb_takes_the_rows(given: dict[str, str], variables: str) -> None:
    assert MariaDB().filling_options(given)["sessionVariables"] == variables


def test_column_is_a_text_or_of_no_type_when_spark_has_a_type_of_its_own_for_it() -> None:
    # Typed by hand, because Spark 3.3 has no classes for the first two types.
    columns = arriving({"code": "char(3)", "word": "varchar(9)", "nothing": "void"})

    assert [(one.name, one.kind) for one in columns] == [("code", "string"), ("word", "string"), ("nothing", "unknown")]


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("jdbc:postgresql://me:secret@db:5432/shop?password=secret", "postgresql://db:5432/shop"),
        ("jdbc:mariadb:aurora://db/shop?user=me", "mariadb://db/shop"),
        ("jdbc:sqlite:/tmp/a b.db", "sqlite:///tmp/a b.db"),
    ],
)
def test_name_holds_no_secret_when_it_is_made_of_a_url(url: str, place: str) -> None:
    assert place_of_url(url) == place


def test_name_is_asked_for_when_a_url_has_a_form_of_its_own() -> None:
    with pytest.raises(InvalidValueError, match="Give name="):
        place_of_url("jdbc:mysql://(host=db,password=secret)/shop")
