"""The first log lines of a run that saves nothing, for an operator who wonders which rows the run took."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.helpers.batch.modes import Mode, UnsavedRun
from scripts.helpers.errors import PlanConflictError
from scripts.helpers.job import IncrementalJob
from scripts.helpers.rows.cursors import CursorColumn
from scripts.helpers.watermarks import Watermarks
from tests.support.listed_rows import ListedRows
from tests.support.reasons import because
from tests.support.steps import commit


def said(caplog: pytest.LogCaptureFixture, watermarks: Watermarks, **options: str) -> list[str]:
    """Begin a run that saves nothing; return the names of the relevant events that it logs."""
    caplog.clear()
    with caplog.at_level("INFO", logger="scripts"), IncrementalJob(watermarks, "repairs", "jr_9", **options):  # type: ignore[arg-type]
        pass
    texts = [record.getMessage() for record in caplog.records]
    return [
        name for text in texts for name in ("first_run", "bookmark_disabled", "not_saving") if f"event={name}" in text
    ]


def test_first_run_is_said_when_a_paused_job_has_no_watermark(
    watermarks: Watermarks, caplog: pytest.LogCaptureFixture
) -> None:
    before = said(caplog, watermarks, mode="pause")
    commit(watermarks, "repairs", "jr_1", {"seen": "jr_1"})
    between = said(caplog, watermarks, mode="pause")
    watermarks.reset("repairs", why="again")
    after = said(caplog, watermarks, mode="pause")

    assert before == after == ["first_run", "not_saving"]
    assert between == ["not_saving"]


def test_first_run_is_not_said_when_the_bookmark_is_disabled_or_a_range_is_read(
    watermarks: Watermarks, caplog: pytest.LogCaptureFixture
) -> None:
    disabled = said(caplog, watermarks, mode="disable")
    commit(watermarks, "repairs", "jr_1", {"seen": "jr_1"})
    commit(watermarks, "repairs", "jr_2", {"seen": "jr_2"})
    ranged = said(caplog, watermarks, mode="pause", from_run="jr_1", to_run="jr_2")

    assert disabled == ["bookmark_disabled", "not_saving"]
    assert ranged == ["not_saving"]


def test_range_is_no_first_run_when_it_starts_before_all_watermarks(
    watermarks: Watermarks, caplog: pytest.LogCaptureFixture
) -> None:
    with watermarks.begin("repairs", "jr_1") as run:
        run.freeze({"seen": {}}, {})
        run.commit()
    commit(watermarks, "repairs", "jr_2", {"seen": "jr_2"})

    assert said(caplog, watermarks, mode="pause", from_run="jr_1", to_run="jr_2") == ["not_saving"]


def test_limit_is_said_to_have_no_effect_when_the_bookmark_is_disabled(
    watermarks: Watermarks, caplog: pytest.LogCaptureFixture
) -> None:
    source = ListedRows((CursorColumn("id", "bigint"),), [(1,), (2,)])

    with IncrementalJob(watermarks, "repairs", "jr_1", mode="disable") as job:
        rows: Any = job.rows_since(source, "id", transformation_ctx="rows", max_rows=1)

    assert rows == [(1,), (2,)]
    assert "event=limit_without_effect job=repairs" in caplog.text


@pytest.fixture
def unsaved(watermarks: Watermarks) -> UnsavedRun:
    return UnsavedRun(watermarks, "repairs", "jr_9", Mode("pause"))


def test_unsaved_run_says_its_mode_and_whether_it_is_over_when_it_is_shown(unsaved: UnsavedRun) -> None:
    before = repr(unsaved)
    unsaved.commit()

    assert before == "<UnsavedRun 'jr_9' of 'repairs': pause, open>"
    assert repr(unsaved) == "<UnsavedRun 'jr_9' of 'repairs': pause, committed>"


def test_batch_is_refused_when_nothing_is_frozen_yet(unsaved: UnsavedRun) -> None:
    with pytest.raises(PlanConflictError) as caught:
        _ = unsaved.batch_id

    assert str(caught.value) == "Job 'repairs': there is no batch before freeze. Freeze the plan first."


@pytest.mark.parametrize(
    ("end", "how"), [(UnsavedRun.commit, "committed"), (UnsavedRun.abort, "aborted")], ids=["commit", "abort"]
)
@pytest.mark.parametrize(
    ("act", "verb"),
    [(lambda run: run.freeze({}, {}), "freeze"), (lambda run: run.check(), "check")],
    ids=["freeze", "check"],
)
def test_unsaved_run_can_do_nothing_more_when_it_is_over(
    unsaved: UnsavedRun, end: Any, how: str, act: Any, verb: str
) -> None:
    end(unsaved)

    with pytest.raises(PlanConflictError, check=because("run_closed")) as caught:
        act(unsaved)

    assert str(caught.value) == (
        f"Job 'repairs': run 'jr_9' is {how} already, so it cannot {verb}. Do this inside the `with` block of "
        "a new IncrementalJob, or in a new run of begin."
    )


def test_plan_is_another_one_when_it_is_amended_and_not_when_it_is_frozen_again(unsaved: UnsavedRun) -> None:
    first = unsaved.freeze({"rows": {"low": 1}}, {})

    again, amended = unsaved.freeze({"rows": {"low": 2}}, {}), unsaved.amend({"rows": {"low": 3}}, {})

    assert again is first
    assert amended.contexts == {"rows": {"low": 3}}
    assert unsaved.plan is amended
