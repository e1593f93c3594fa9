"""Attempts at a batch for one table, without Spark: one is stopped in the middle of its write, or killed after it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import RunInProgressError
from scripts.helpers.sinks.outputs import job_hash
from scripts.helpers.watermarks import Watermarks
from tests.sinks.table_attempt import ROWS, attempt, rows_of, sink_of
from tests.support.patience import LONG, PATIENCE
from tests.support.places import REPOSITORY
from tests.support.servers import is_long

FORMATS = ["delta", "iceberg"]


@pytest.fixture
def shared(dynamodb: Any, tmp_path: Path) -> Watermarks:
    """Watermarks in a table that other processes reach."""
    watermarks = Watermarks(f"table-{tmp_path.name}", dynamodb)
    watermarks.create_table()
    return watermarks


@contextmanager
def process_of(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start an attempt, and end it at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.sinks.table_attempt", *arguments],
        cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def newer_attempt(watermarks: Watermarks, format: str, folder: Path, run_id: str) -> str:
    """Run as soon as nobody's lease is in the way: a heartbeat that is stopped lets it end."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return attempt(watermarks, sink_of(format, folder), run_id, "newer")
        except RunInProgressError:
            assert time.monotonic() < end
            time.sleep(0.2)


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("newer", ["jr_1", "jr_2"] if is_long() else ["jr_1"])
@pytest.mark.parametrize("format", FORMATS)
def test_table_holds_the_rows_of_the_winner_alone_when_a_stopped_attempt_goes_on(
    shared: Watermarks, endpoint: str, tmp_path: Path, format: str, newer: str
) -> None:
    gate = tmp_path / "gate"
    gate.mkdir()
    winners = [(row, "newer") for row in range(ROWS)]

    with process_of(shared.table_name, endpoint, format, str(tmp_path), "jr_1", "older", str(gate), "") as older:
        end = time.monotonic() + PATIENCE
        while not (gate / "inside").exists():
            assert older.poll() is None, older.communicate()[1]
            assert time.monotonic() < end, "the attempt never got to the middle of its write"
            time.sleep(0.05)
        os.killpg(older.pid, signal.SIGSTOP)
        outcome = newer_attempt(shared, format, tmp_path, newer)
        seen_meanwhile = rows_of(format, tmp_path)
        shutil.rmtree(gate)
        os.killpg(older.pid, signal.SIGCONT)
        said, errors = older.communicate(timeout=PATIENCE)

    assert outcome == "done"
    assert (older.returncode, said) == (0, "outcome=already\n"), errors
    assert seen_meanwhile == rows_of(format, tmp_path) == winners
    assert (shared.latest("repairs").version, shared.latest("repairs").unpublished) == (1, ())
    assert sink_of(format, tmp_path).staged(job_hash("repairs")) == []


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("death", ["clear", "publish"] if is_long() else ["clear"])
@pytest.mark.parametrize("format", FORMATS)
def test_table_holds_each_row_once_when_the_writer_is_killed_before_the_head_knows_of_its_transaction(
    shared: Watermarks, endpoint: str, tmp_path: Path, format: str, death: str
) -> None:
    arguments = (shared.table_name, endpoint, format, str(tmp_path), "jr_1", "older", str(tmp_path / "no-gate"), death)
    with process_of(*arguments) as older:
        _, errors = older.communicate(timeout=PATIENCE)
    killed, waiting = older.returncode, len(shared.latest("repairs").unpublished)

    # The same rows are there for it, and none is new.
    outcome = newer_attempt(shared, format, tmp_path, "jr_1")

    assert (killed, waiting) == (-signal.SIGKILL, 1), errors
    assert outcome in ("done", "empty")
    assert rows_of(format, tmp_path) == [(row, "older") for row in range(ROWS)]
    assert shared.latest("repairs").unpublished == ()
    assert sink_of(format, tmp_path).staged(job_hash("repairs")) == []
