"""Attempts at a batch for a PostgreSQL table: one is stopped at some point, and continues after the other."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.rows.sql import sql
from scripts.helpers.sinks.outputs import mark_of
from scripts.helpers.sql.postgresql import PostgreSQL
from scripts.helpers.watermarks import Watermarks
from tests.sinks.postgres_attempt import JOB, ROWS, attempt, sink_of
from tests.sinks.processes import attempt_of, wait_for, when_free
from tests.support.databases import PostgresServer
from tests.support.long import is_long
from tests.support.patience import LONG, PATIENCE

FENCED = "FencedError"
ALREADY, DONE = "outcome=already\n", "outcome=done\n"


@pytest.fixture
def shared(dynamodb: Any, tmp_path: Path) -> Watermarks:
    """Return watermarks in a table that other processes can reach."""
    watermarks = Watermarks(f"table-{tmp_path.name}", dynamodb)
    watermarks.create_table()
    return watermarks


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    folder = tmp_path / "gate"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait in this process for tables that a stopped attempt has locked: the lock would never be released."""
    monkeypatch.setattr(PostgreSQL, "impatient", sql("SET LOCAL lock_timeout = '100ms'"))


def rows_of(postgres: PostgresServer, target: str) -> list[tuple[int, str]]:
    """Return the id and attempt of each row that a reader of the table sees."""
    return postgres.sql(f"SELECT id, attempt FROM {target} ORDER BY id, attempt")


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("newer", ["jr_1", "jr_2"] if is_long() else ["jr_1"])
@pytest.mark.parametrize(
    ("where", "winner", "code", "said"),
    [
        ("landing", "newer", 0, ALREADY),
        # The rows that it sent are swept, so the older attempt cannot continue.
        ("landed", "newer", 1, ""),
        ("staged", "newer", 0, ALREADY),
        ("committed", "older", 0, DONE),
    ],
)
def test_table_holds_the_rows_of_the_winner_alone_when_a_stopped_attempt_goes_on(
    shared: Watermarks, endpoint: str, postgres: PostgresServer, gate: Path, where: str, winner: str, code: int,
    said: str, newer: str, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    target = postgres.new_table("id integer, attempt text")
    arguments = (shared.table_name, endpoint, str(postgres.port), target, "jr_1", "older", where, str(gate))

    with attempt_of("postgres_attempt", *arguments) as older:
        wait_for(gate / "inside", older)
        os.killpg(older.pid, signal.SIGSTOP)
        outcome = when_free(lambda: attempt(shared, sink_of(postgres.port, target), newer, "newer"))
        seen_meanwhile = rows_of(postgres, target)
        shutil.rmtree(gate)
        os.killpg(older.pid, signal.SIGCONT)
        output, errors = older.communicate(timeout=PATIENCE)

    assert outcome == "done"
    assert (older.returncode, output, FENCED in errors) == (code, said, code == 1), errors
    assert seen_meanwhile == rows_of(postgres, target) == [(row, winner) for row in range(ROWS)]
    assert shared.latest(JOB).unpublished == ()
    assert sink_of(postgres.port, target).staged(mark_of(JOB)) == []
    assert ("event=staging_left" in caplog.text) == (where == "landing")


@pytest.mark.timeout(LONG)
def test_second_publisher_waits_and_adds_nothing_when_the_first_is_stopped_in_its_transaction(
    shared: Watermarks, endpoint: str, postgres: PostgresServer, gate: Path
) -> None:
    target = postgres.new_table("id integer, attempt text")
    arguments = (shared.table_name, endpoint, str(postgres.port), target, "jr_1", "older", "publishing", str(gate))
    outcomes: list[str] = []

    def run() -> None:
        sink = sink_of(postgres.port, target)
        outcomes.append(when_free(lambda: attempt(shared, sink, "jr_1", "newer")))

    newer = threading.Thread(target=run)
    with attempt_of("postgres_attempt", *arguments) as older:
        wait_for(gate / "inside", older)
        os.killpg(older.pid, signal.SIGSTOP)
        newer.start()
        end = time.monotonic() + PATIENCE
        while not postgres.sql("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
            assert newer.is_alive()
            assert time.monotonic() < end
            time.sleep(0.05)
        seen_meanwhile = rows_of(postgres, target)
        shutil.rmtree(gate)
        os.killpg(older.pid, signal.SIGCONT)
        said, errors = older.communicate(timeout=PATIENCE)
        newer.join(PATIENCE)

    assert (older.returncode, said, outcomes) == (0, DONE, ["done"]), errors
    assert (seen_meanwhile, rows_of(postgres, target)) == ([], [(row, "older") for row in range(ROWS)])
    assert shared.latest(JOB).unpublished == ()
    assert sink_of(postgres.port, target).staged(mark_of(JOB)) == []
