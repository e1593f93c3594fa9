"""Attempts at a batch for one table, without Spark: one is stopped in the middle of its write, or killed after it."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.sinks.outputs import mark_of
from scripts.helpers.watermarks import Watermarks
from tests.sinks.processes import attempt_of, wait_for, when_free
from tests.sinks.table_attempt import ROWS, attempt, rows_of, sink_of
from tests.support.long import is_long
from tests.support.patience import LONG, PATIENCE

FORMATS = ["delta", "iceberg"]


@pytest.fixture
def shared(dynamodb: Any, tmp_path: Path) -> Watermarks:
    """Return watermarks in a table that other processes can reach."""
    watermarks = Watermarks(f"table-{tmp_path.name}", dynamodb)
    watermarks.create_table()
    return watermarks


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("newer", ["jr_1", "jr_2"] if is_long() else ["jr_1"])
@pytest.mark.parametrize("format", FORMATS)
def test_table_holds_the_rows_of_the_winner_alone_when_a_stopped_attempt_goes_on(
    shared: Watermarks, endpoint: str, tmp_path: Path, format: str, newer: str
) -> None:
    gate = tmp_path / "gate"
    gate.mkdir()
    winners = [(row, "newer") for row in range(ROWS)]

    with attempt_of(
        "table_attempt", shared.table_name, endpoint, format, str(tmp_path), "jr_1", "older", str(gate), ""
    ) as older:
        wait_for(gate / "inside", older)
        os.killpg(older.pid, signal.SIGSTOP)
        outcome = when_free(lambda: attempt(shared, sink_of(format, tmp_path), newer, "newer"))
        seen_meanwhile = rows_of(format, tmp_path)
        shutil.rmtree(gate)
        os.killpg(older.pid, signal.SIGCONT)
        said, errors = older.communicate(timeout=PATIENCE)

    assert outcome == "done"
    assert (older.returncode, said.splitlines()[-1:]) == (0, ["outcome=already"]), errors
    assert seen_meanwhile == rows_of(format, tmp_path) == winners
    assert (shared.latest("repairs").version, shared.latest("repairs").unpublished) == (1, ())
    assert sink_of(format, tmp_path).staged(mark_of("repairs")) == []


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("death", ["clear", "publish"] if is_long() else ["clear"])
@pytest.mark.parametrize("format", FORMATS)
def test_table_holds_each_row_once_when_the_writer_is_killed_before_the_head_knows_of_its_transaction(
    shared: Watermarks, endpoint: str, tmp_path: Path, format: str, death: str
) -> None:
    arguments = (shared.table_name, endpoint, format, str(tmp_path), "jr_1", "older", str(tmp_path / "no-gate"), death)
    with attempt_of("table_attempt", *arguments) as older:
        _, errors = older.communicate(timeout=PATIENCE)
    killed, waiting = older.returncode, len(shared.latest("repairs").unpublished)

    # This attempt has the same source, so it finds no new row.
    outcome = when_free(lambda: attempt(shared, sink_of(format, tmp_path), "jr_1", "newer"))

    assert (killed, waiting) == (-signal.SIGKILL, 1), errors
    assert outcome in ("done", "empty")
    assert rows_of(format, tmp_path) == [(row, "older") for row in range(ROWS)]
    assert shared.latest("repairs").unpublished == ()
    assert sink_of(format, tmp_path).staged(mark_of("repairs")) == []
