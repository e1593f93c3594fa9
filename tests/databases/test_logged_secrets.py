"""Values on their way to a database: no password is logged, even if py4j logs everything it sends to the JVM."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from scripts.helpers.databases.table import JdbcTable
from scripts.helpers.errors import SourceError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.rows.sql import sql
from scripts.helpers.sinks.database import DatabaseSink
from scripts.helpers.sql.connection import ask
from scripts.helpers.watermarks import Watermarks

PASSWORD = "pass-word-of-a-test/1"


def test_password_is_in_no_line_when_a_job_reads_and_writes_a_database_and_everything_is_logged(
    watermarks: Watermarks, jdbc: Any, postgres: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = postgres.new_table("id bigint primary key")
    target = postgres.new_table("id bigint")
    postgres.sql(f"INSERT INTO {source} SELECT n FROM generate_series(1, 4) n")
    login = {**postgres.properties, "password": PASSWORD}  # The server accepts any password from this machine.
    url = f"{postgres.url}?password={PASSWORD}"
    caplog.set_level(logging.DEBUG)

    with IncrementalJob(watermarks, "repairs", "jr_1", spark=jdbc) as job:
        rows = job.rows_since(JdbcTable(jdbc, url, source, properties=login), "id", settled=True)
        job.write(rows, DatabaseSink(target, spark=jdbc, url=url, properties=login))

    shown = caplog.text
    assert postgres.sql(f"SELECT count(*) FROM {target}") == [(4,)]
    assert "Command to send" in shown
    assert "password\ns***" in shown
    assert PASSWORD not in shown

    for name in ("py4j.clientserver", "py4j.java_gateway"):
        monkeypatch.setattr(logging.getLogger(name), "filters", [])
    ask(jdbc, {"driver": "org.postgresql.Driver", "url": url, **login}, sql("SELECT 1 AS one"), ["one"])

    assert PASSWORD in caplog.text  # So the password is sent, and would be logged without the filter.


@pytest.mark.parametrize(
    "url",
    [
        f"jdbc:oracle:thin:scott/{PASSWORD}@//127.0.0.1:1/shop",
        f"jdbc:sqlserver://127.0.0.1:1;user=u;password=a'{PASSWORD};encrypt=false",
        f"jdbc:sqlserver://127.0.0.1:1;user=u;password=a {PASSWORD};encrypt=false",
        f"jdbc:sqlserver://127.0.0.1:1;user=u;password={{a}}}} {PASSWORD}}};encrypt=false",
        f"jdbc:postgresql://u:{PASSWORD.replace('/', '-')}@127.0.0.1:1/shop?password=a {PASSWORD}",
    ],
    ids=["oracle", "quote", "space", "braces", "user-info"],
)
def test_password_of_a_url_is_in_no_line_and_no_error_when_the_table_cannot_be_opened(
    jdbc: Any, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    caplog.set_level(logging.DEBUG)
    table = JdbcTable(jdbc, url, "repairs", properties={"driver": "org.postgresql.Driver"})

    with pytest.raises(SourceError) as caught:
        table.toDF()

    assert "Command to send" in caplog.text
    assert "pass-word" not in f"{caplog.text} {caught.value!r} {vars(caught.value)}"
