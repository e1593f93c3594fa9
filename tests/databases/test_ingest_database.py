"""The ready-made job on a real database with concurrent writes: at the end, the target equals the source."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from scripts.helpers.databases import table as tables
from scripts.helpers.errors import CursorError
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.watermarks import Watermarks
from scripts.jobs import exit_codes, ingest_table
from tests.support.databases import PostgresServer, free_port
from tests.support.listed_rows import ListedRows
from tests.support.patience import PATIENCE
from tests.support.places import REPOSITORY

SECRET = "not-a-secret"
ROWS, MANY = 30_000, 20_000
"""The rows of the table, and how many count as a large window, which several queries read."""
PAUSE = 0.3
"""Seconds for which the writer keeps some transactions open after it has stamped their rows."""
TOO_LATE = 1.0
"""Seconds after which it rolls such a transaction back: the job's delay of two seconds allows for no more."""
Run = Callable[..., int]


@pytest.fixture
def parking(postgres: PostgresServer) -> str:
    """Return a table of many rows stamped an hour ago; a trigger maintains stamps and versions."""
    name = postgres.new_table(
        "id int primary key, version int NOT NULL DEFAULT 1, last_modified timestamptz NOT NULL DEFAULT"
        " clock_timestamp(), changed xid8 NOT NULL DEFAULT pg_current_xact_id()"
    )
    postgres.sql(
        f"INSERT INTO {name} SELECT n, 1, now() - interval '1 hour' - make_interval(secs => n)"
        f" FROM generate_series(1, {ROWS}) n",
        f"CREATE INDEX ON {name} (last_modified)",
        f"CREATE INDEX ON {name} (changed)",
        f"CREATE FUNCTION touch_{name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.version := OLD.version + 1;"
        " NEW.last_modified := clock_timestamp(); NEW.changed := pg_current_xact_id(); RETURN NEW; END $$",
        f"CREATE TRIGGER touch BEFORE UPDATE ON {name} FOR EACH ROW EXECUTE FUNCTION touch_{name}()",
    )
    return name


@pytest.fixture
def run(
    jdbc: Any,
    postgres: PostgresServer,
    live: Watermarks,
    endpoint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Return the job's main function, with the arguments that all tests share."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("SHOP_USER", postgres.properties["user"])
    monkeypatch.setenv("SHOP_PASSWORD", SECRET)

    url = f"{postgres.url}?connectTimeout={postgres.properties['connectTimeout']}"

    def main(*arguments: str) -> int:
        return ingest_table.main(
            ["--JOB_NAME", "parking", "--table", live.table_name, "--source", url,
             "--jdbc-user-from", "SHOP_USER", "--jdbc-password-from", "SHOP_PASSWORD",
             "--target", str(tmp_path / "raw"), *arguments]
        )  # fmt: skip

    return main


def keep_writing(postgres: PostgresServer, name: str, stop: threading.Event) -> None:
    """Insert and update rows in short transactions, and in some that commit long after their stamps."""
    late = threading.Thread(target=_commit_late, args=(postgres, name, stop))
    late.start()
    with postgres.connect() as connection:
        number = ROWS
        while not stop.wait(0.01):
            number += 1
            connection.execute(f"INSERT INTO {name} (id) VALUES ({number})")
            connection.execute(f"UPDATE {name} SET id = id WHERE id IN ({number * 7 % ROWS + 1}, {number - 5})")
    late.join()


def _commit_late(postgres: PostgresServer, name: str, stop: threading.Event) -> None:
    from psycopg import Rollback

    with postgres.connect() as connection:
        number = 0
        while not stop.is_set():
            number -= 1
            with connection.transaction():
                since = time.monotonic()
                connection.execute(f"INSERT INTO {name} (id) VALUES ({number})")
                connection.execute(f"UPDATE {name} SET id = id WHERE id = {number + 1}")
                stop.wait(PAUSE)
                if time.monotonic() - since > TOO_LATE:
                    raise Rollback


def ids_in(folder: Path) -> list[int]:
    return sorted(pq.read_table(folder, columns=["id"])["id"].to_pylist())


def with_rows(live: Watermarks) -> list[int]:
    """Return the number of rows written by each run that wrote any."""
    written = [int(entry.change.metrics.get("rows_written", 0)) for entry in live.history("parking")]
    return [count for count in written if count]


@pytest.mark.parametrize(
    ("cursor", "delay", "more"),
    [("last_modified", "2s", ["--partitions", "6"]), ("changed", "0s", ["--snapshot"])],
    ids=["delay", "snapshot"],
)
def test_sink_equals_source_and_each_version_came_once_when_rows_change_all_the_while(
    postgres: PostgresServer, parking: str, run: Run, live: Watermarks, tmp_path: Path,
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, cursor: str, delay: str, more: list[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(tables, "MANY", MANY)
    arguments = ["--jdbc-table", f"public.{parking}", "--cursor-column", cursor, *more]
    stop = threading.Event()
    writer = threading.Thread(target=keep_writing, args=(postgres, parking, stop))
    writer.start()

    codes: list[int] = []
    try:
        while len(codes) < 4 or (len(with_rows(live)) < 3 and len(codes) < 60):
            codes.append(run(*arguments, "--delay", delay))
    finally:
        stop.set()
        writer.join()
    codes.append(run(*arguments, "--delay", "0s"))

    assert set(codes) == {0}
    columns = pq.read_table(tmp_path / "raw", columns=["id", "version"])
    rows = list(zip(columns["id"].to_pylist(), columns["version"].to_pylist(), strict=True))
    assert len(rows) == len(set(rows))
    latest: dict[int, int] = {}
    for number, version in rows:
        latest[number] = max(latest.get(number, 0), version)
    assert latest == dict(postgres.sql(f"SELECT id, version FROM {parking}"))
    assert max(with_rows(live)) > ROWS - 5_000
    assert len(with_rows(live)) >= 3
    assert "queries=6" in caplog.text or cursor == "changed"


def test_job_ends_with_try_later_and_shows_no_secret_when_the_database_is_down(
    live: Watermarks, jdbc: Any, endpoint: str, tmp_path: Path
) -> None:
    settings = {"spark.master": "local[1]", "spark.ui.enabled": "false", "spark.jars": jdbc.conf.get("spark.jars")}
    command = [
        sys.executable, "-m", "scripts.jobs.ingest_table", "--JOB_NAME", "parking", "--table", live.table_name,
        "--source", f"jdbc:postgresql://127.0.0.1:{free_port()}/shop", "--jdbc-table", "parking",
        "--cursor-column", "id", "--target", str(tmp_path / "raw"), "--spark-conf", json.dumps(settings),
    ]  # fmt: skip
    environment = os.environ | {
        "AWS_ENDPOINT_URL": endpoint, "SPARK_LOCAL_IP": "127.0.0.1", "JDBC_USER": "reader", "JDBC_PASSWORD": SECRET,
    }  # fmt: skip

    done = subprocess.run(
        command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE, check=False
    )

    assert done.returncode == exit_codes.TRY_LATER, done.stderr
    assert "event=failed job=parking error=SourceUnavailableError" in done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert live.latest("parking").version == 0


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--cursor-column", "id"], exit_codes.BAD_DATA, "Pass --jdbc-table"),
        (["--cursor-column", "id", "--jdbc-table", "no_such"], exit_codes.BAD_DATA, "there is no such table"),
        (["--cursor-column", "nix", "--jdbc-table", "{}"], exit_codes.BAD_DATA, "no such column"),
        (
            ["--cursor-column", "id", "--jdbc-table", "{}", "--snapshot"],
            exit_codes.BAD_DATA,
            "holds no transaction ids",
        ),
        (
            ["--cursor-column", "last_modified", "--jdbc-table", "{}", "--lookback", "60s"],
            exit_codes.BAD_DATA,
            "write_disposition='merge'",
        ),
    ],
    ids=["no_table", "unknown_table", "unknown_column", "no_ids", "lookback"],
)
def test_job_ends_with_a_telling_code_and_state_stays_when_input_is_bad(
    run: Run, postgres: PostgresServer, live: Watermarks, caplog: pytest.LogCaptureFixture,
    arguments: list[str], code: int, text: str,
) -> None:  # fmt: skip
    name = postgres.new_table("id int primary key, last_modified timestamptz")

    with caplog.at_level(logging.INFO):
        found = run(*(argument.format(name) for argument in arguments))

    assert found == code
    assert text in caplog.text
    assert SECRET not in caplog.text and "127.0.0.1" not in caplog.text
    assert live.latest("parking").version == 0
    assert live.latest("parking").plan is None


def test_compound_cursor_is_taken_when_the_argument_is_repeated(
    run: Run, postgres: PostgresServer, live: Watermarks, capsys: pytest.CaptureFixture[str]
) -> None:
    name = postgres.new_table("id int NOT NULL, last_modified date NOT NULL")
    postgres.sql(f"INSERT INTO {name} VALUES (1, '2026-01-01'), (2, '2026-01-01')")
    arguments = ["--jdbc-table", name, "--cursor-column", "last_modified", "--cursor-column", "id", "--zone", "UTC"]

    first = run(*arguments)
    postgres.sql(f"INSERT INTO {name} VALUES (3, '2026-01-01')")
    second = run(*arguments)

    assert (first, second) == (0, 0)
    assert [entry.change.metrics["rows_written"] for entry in live.history("parking")] == [1, 2]
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [report["rows_written"] for report in reports] == [2, 1]
    assert "2026-01-01" not in str(reports)


DAYS = "(1, '2026-01-01'), (2, '2026-01-02'), (3, '2026-01-03')"


@pytest.mark.parametrize(
    ("declared", "values", "arguments", "written"),
    [
        ("timestamptz", DAYS, ["--start-from", "2026-01-02T00:00:00Z", "--high", "2026-01-03T00:00:00Z"], [2]),
        ("timestamp", DAYS, ["--start-from", "2026-01-02T00:00:00", "--zone", "UTC"], [2, 3]),
        ("date", DAYS, ["--high", "2026-01-03", "--zone", "UTC"], [1, 2]),
        ("numeric(5,1)", "(1, 1.5), (2, 1.6)", ["--high", "1.6"], [1]),
        ("int", "(1, -1), (2, -2), (3, -3)", ["--descending", "--start-from", "-2", "--delay", "0s"], [2, 3]),
        ("varchar(3)", "(1, '001'), (2, '002')", ["--strings", "--start-from", "002", "--delay", "0s"], [2]),
    ],
    ids=["timestamptz", "timestamp", "date", "numeric", "descending", "strings"],
)
def test_rows_are_those_of_the_bounds_when_they_are_given(
    run: Run, postgres: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    declared: str, values: str, arguments: list[str], written: list[int],
) -> None:  # fmt: skip
    name = postgres.new_table(f"id int NOT NULL, at {declared} NOT NULL")
    postgres.sql("SET timezone = 'UTC'", f"INSERT INTO {name} VALUES {values}")

    code = run("--jdbc-table", name, "--cursor-column", "at", *arguments)

    assert code == 0, caplog.text
    assert ids_in(tmp_path / "raw") == written


def test_rows_wait_for_the_delay_by_the_clock_of_their_zone_when_it_is_named(
    run: Run, postgres: PostgresServer, tmp_path: Path
) -> None:
    """Read as UTC, the row would be hours old."""
    name = postgres.new_table("id int NOT NULL, at timestamp NOT NULL")
    postgres.sql(
        f"INSERT INTO {name} VALUES (1, timezone('Pacific/Honolulu', now()) - interval '1 hour'),"
        " (2, timezone('Pacific/Honolulu', now()))"
    )

    code = run("--jdbc-table", name, "--cursor-column", "at", "--zone", "Pacific/Honolulu")

    assert code == 0
    assert ids_in(tmp_path / "raw") == [1]


def test_first_run_is_refused_when_the_zone_of_its_column_is_not_named(
    run: Run, postgres: PostgresServer, live: Watermarks, caplog: pytest.LogCaptureFixture
) -> None:
    name = postgres.new_table("id int NOT NULL, at timestamp NOT NULL")
    arguments = ["--jdbc-table", name, "--cursor-column", "at"]

    first, named, later = run(*arguments), run(*arguments, "--zone", "UTC"), run(*arguments)

    assert (first, named, later) == (exit_codes.BAD_DATA, 0, 0)
    assert "its values have no time zone" in caplog.text and "(ingest-table: --zone)" in caplog.text
    assert caplog.text.count("event=no_zone") == 1
    assert live.latest("parking").version == 2


@pytest.mark.parametrize("name", ["high", "start_from"])
def test_bound_is_read_as_the_columns_type_says_when_it_is_given(name: str) -> None:
    source = ListedRows((CursorColumn("at", "timestamp"),))
    arguments = Namespace(**{name: "2026-01-31T10:00:00+01:00"}, cursor_column=["at"], strings=True)

    assert ingest_table.value_of(source, arguments, name) == (datetime(2026, 1, 31, 9, tzinfo=timezone.utc),)


def test_bound_is_refused_with_its_option_when_it_is_no_value_of_the_column() -> None:
    source = ListedRows((CursorColumn("at", "timestamp"),))
    arguments = Namespace(start_from="2026-01-31T10:00:00", cursor_column=["at"], strings=False)

    with pytest.raises(CursorError) as caught:
        ingest_table.value_of(source, arguments, "start_from")

    told = "'at': --start-from is not of type timestamp. Write a timestamp as 2026-01-31T10:00:00+00:00"
    assert told in str(caught.value)


def test_rows_of_a_query_are_loaded_when_one_is_given_in_place_of_a_table(
    postgres: PostgresServer, run: Run, tmp_path: Path
) -> None:
    name = postgres.new_table("id int PRIMARY KEY, at timestamptz NOT NULL")
    postgres.sql(f"INSERT INTO {name} SELECT n, '2026-01-01Z' FROM generate_series(1, 4) n")
    query = f"SELECT id, at FROM {name} WHERE id > 1"

    done = run("--query", query, "--cursor-column", "at")
    wrong = [
        run("--query", f"{query};", "--cursor-column", "at"),
        run("--query", query, "--jdbc-table", name, "--cursor-column", "at"),
        run("--query", query, "--snapshot", "--cursor-column", "xmin"),
        run("--query", f"{query} AND id < 9", "--cursor-column", "at"),
    ]

    assert (done, wrong) == (exit_codes.OK, [exit_codes.BAD_DATA] * 4)
    assert ids_in(tmp_path / "raw") == [2, 3, 4]
