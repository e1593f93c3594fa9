"""How a job's modes and commands work when a context reads a table by its versions."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.watermarks import Watermarks
from tests.support.reasons import because
from tests.support.steps import KilledError
from tests.support.versioned_tables import DeltaByHand, IcebergByHand


@pytest.fixture(params=[DeltaByHand, IcebergByHand], ids=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return request.param(tmp_path)


def take(watermarks: Watermarks, table: Any, run_id: str, context: str | None = "rows", **job_options: Any) -> Any:
    options = job_options.pop("options", {})
    with IncrementalJob(watermarks, "sales", run_id, **job_options) as job:
        rows = job.rows_since(table.source(returns="arrow"), transformation_ctx=context, **options)
    return sorted(rows["id"].to_pylist())


def test_run_saves_nothing_and_reads_what_its_mode_says_when_it_is_paused_or_disabled(
    table: Any, watermarks: Watermarks, caplog: pytest.LogCaptureFixture
) -> None:
    table.append(1)
    take(watermarks, table, "jr_1")
    table.append(2)
    before = watermarks.latest("sales").version

    paused = take(watermarks, table, "jr_2", mode="pause")
    with caplog.at_level(logging.WARNING):
        disabled = take(watermarks, table, "jr_3", mode="disable", options={"max_versions": 1})
    untracked = take(watermarks, table, "jr_4", context=None)

    assert (paused, disabled, untracked) == ([2], [1, 2], [1, 2])
    assert "event=limit_without_effect" in caplog.text
    # The run without a context commits, since its batch may consist of nothing else; its source stores no state.
    assert watermarks.latest("sales").version == before + 1
    assert take(watermarks, table, "jr_5") == [2]


def test_range_of_runs_is_read_again_as_they_took_it_when_the_table_has_moved_on(
    table: Any, watermarks: Watermarks, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1, 2, 3, 4):
        table.append(number)
        take(watermarks, table, f"jr_{number}")

    def again(first: str, last: str) -> Any:
        return take(watermarks, table, "jr_9", mode="pause", from_run=first, to_run=last)

    assert again("jr_1", "jr_3") == [2, 3]
    assert again("jr_2", "jr_2") == []
    range_ = {"mode": "pause", "from_run": "jr_1", "to_run": "jr_3"}
    assert take(watermarks, table, "jr_9", context="late", **range_) == []
    assert "event=not_in_range job=sales context=late: no run of the range read it" in caplog.messages
    with pytest.raises(InvalidValueError, check=because("option"), match="'max_versions'"):
        take(watermarks, table, "jr_9", **range_, options={"max_versions": 1})


def test_range_from_the_beginning_is_the_table_as_it_was_when_the_first_run_took_everything(
    table: Any, watermarks: Watermarks
) -> None:
    watermarks.add_watermark(watermarks.create_watermark_item(job_id="sales", run_id="jr_0", other=1))
    for number in (1, 2, 3):
        table.append(number)
        take(watermarks, table, f"jr_{number}")

    assert take(watermarks, table, "jr_9", mode="pause", from_run="jr_0", to_run="jr_2") == [1, 2]


def test_context_that_the_open_plan_does_not_know_is_left_for_the_next_run_when_a_run_died(
    table: Any, watermarks: Watermarks, caplog: pytest.LogCaptureFixture
) -> None:
    table.append(1)
    with pytest.raises(KilledError), IncrementalJob(watermarks, "sales") as job:
        job.rows_since(table.source())
        job.freeze()
        raise KilledError

    with IncrementalJob(watermarks, "sales") as job:
        job.rows_since(table.source())
        late = job.rows_since(table.source(), transformation_ctx="late")

    assert len(late) == 0
    assert list(late.columns) == ["id", "kind"]
    assert "event=not_in_plan job=sales context=late: the next run reads it" in caplog.messages
    assert take(watermarks, table, "jr_2", context="late") == [1]
