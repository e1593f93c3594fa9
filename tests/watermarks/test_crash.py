"""Commits whose outcome stays unknown, and runs that die between the head write and the log write."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from scripts.helpers.errors import CommitUnknownError, StoreUnavailableError
from scripts.helpers.protocol.run import Run
from scripts.helpers.watermarks import Watermarks
from tests.support.faults import Faults, after, anything, head_write, log_write, read
from tests.support.steps import add, frozen
from tests.support.table_items import Stored, log_keys

pytestmark = pytest.mark.both_stores

ALWAYS = 10_000


def versions(watermarks: Watermarks, job_id: str) -> list[int]:
    return [entry.version for entry in watermarks.history(job_id)]


# --- the outcome stays unknown -------------------------------------------------------------------------


@pytest.fixture(params=["applied", "not-applied"])
def unknown_commit(
    request: pytest.FixtureRequest, hooked: Watermarks, faults: Faults, job_id: str
) -> tuple[Run, bool, CommitUnknownError]:
    """Return a run whose commit got no answer, whether it was applied, and the error. Then the store works again."""
    run, applied = frozen(hooked, job_id), request.param == "applied"
    if applied:
        faults.reply_lost(head_write)
        faults.drop(read, ALWAYS)
    else:
        faults.drop(anything, ALWAYS)
    with pytest.raises(CommitUnknownError) as caught:
        run.commit()
    faults.heal()
    return run, applied, caught.value


def test_commit_says_unknown_when_the_store_does_not_answer(
    unknown_commit: tuple[Run, bool, CommitUnknownError], hooked: Watermarks, job_id: str
) -> None:
    run, applied, error = unknown_commit

    version = hooked.latest(job_id).version

    assert f"did not say whether run 'r1' of job '{job_id}' was committed. Delete no output. Run the job again" in str(
        error
    )
    assert (error.job_id, error.run_id) == (job_id, "r1")
    assert isinstance(error.__cause__, StoreUnavailableError)
    assert (version, run.closed) == (int(applied), False)


@pytest.mark.parametrize("run_id", ["r1", "r2"])
def test_next_begin_finds_the_truth_when_the_outcome_was_unknown(
    unknown_commit: tuple[Run, bool, CommitUnknownError],
    hooked: Watermarks,
    clock: Any,
    job_id: str,
    stored: Stored,
    run_id: str,
) -> None:
    old, applied, _ = unknown_commit
    clock.move(hours=1)

    run = hooked.begin(job_id, run_id)

    assert run.replay is not applied
    assert (run.version, run.watermarks) == ((1, {"n": 1}) if applied else (0, {}))
    assert run.plan == (None if applied else old.plan)
    assert len(log_keys(stored())) == int(applied)


def test_second_commit_finds_the_truth_when_the_outcome_was_unknown(
    unknown_commit: tuple[Run, bool, CommitUnknownError], hooked: Watermarks, job_id: str
) -> None:
    run, applied, _ = unknown_commit

    outcome = run.commit()

    assert outcome == ("already" if applied else "done")
    assert versions(hooked, job_id) == [1]


def test_with_keeps_the_state_when_the_commit_is_unknown(
    hooked: Watermarks, faults: Faults, job_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = frozen(hooked, job_id)
    faults.drop(anything, ALWAYS)

    with pytest.raises(CommitUnknownError), run:
        run.commit()

    faults.heal()

    head = hooked.latest(job_id)
    assert (head.version, head.plan) == (0, run.plan)
    assert f"event=abort_failed job={job_id} run=r1" in caplog.text


@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not-applied"])
def test_freeze_may_be_called_again_when_it_got_no_answer(
    hooked: Watermarks, faults: Faults, job_id: str, applied: bool
) -> None:
    run = hooked.begin(job_id, "r1")
    if applied:
        faults.reply_lost(head_write)
    faults.drop(read if applied else anything, ALWAYS)
    with pytest.raises(StoreUnavailableError):
        run.freeze({"a": {"low": 1}}, {"n": 1})
    faults.heal()

    plan = run.freeze({"a": {"low": 1}}, {"n": 1})

    assert hooked.latest(job_id).plan == run.plan == plan
    assert run.commit() == "done"


def test_abort_may_be_called_again_when_it_got_no_answer(hooked: Watermarks, faults: Faults, job_id: str) -> None:
    run = frozen(hooked, job_id)
    faults.drop(anything, ALWAYS)
    with pytest.raises(StoreUnavailableError):
        run.abort()
    faults.heal()

    run.abort()

    assert hooked.latest(job_id).claim is None


# --- a crash between head write and log write ----------------------------------------------------------------


@pytest.mark.parametrize("written", [0, 1], ids=["nothing-written", "one-of-two-written"])
def test_next_begin_writes_what_is_missing_when_a_run_died_after_its_commit(
    hooked: Watermarks,
    watermarks: Watermarks,
    faults: Faults,
    job_id: str,
    stored: Stored,
    caplog: pytest.LogCaptureFixture,
    written: int,
) -> None:
    run = frozen(hooked, job_id)
    faults.drop(after(written, log_write), ALWAYS)

    outcome = run.commit(rows=3)

    assert outcome == "done"
    assert f"event=log_deferred job={job_id} version=1" in caplog.text
    assert log_keys(stored()) == []
    found = watermarks.get_watermark(job_id, "r1")
    expected = watermarks.history(job_id)
    watermarks.begin(job_id, "r2")
    assert set(stored()) == {"!c#0000000000000000001", "r1", "~latest"}
    assert watermarks.get_watermark(job_id, "r1") == found
    assert watermarks.history(job_id) == expected
    assert found["metrics"] == {"rows": 3}


def test_next_add_watermark_writes_the_missing_log_when_a_run_died_after_its_commit(
    hooked: Watermarks, watermarks: Watermarks, faults: Faults, job_id: str
) -> None:
    run = frozen(hooked, job_id)
    faults.drop(log_write, ALWAYS)
    run.commit()

    add(watermarks, job_id, "r2", n=2)

    assert versions(watermarks, job_id) == [2, 1]
    assert watermarks.get_watermark_values(job_id, "r1") == {"n": 1}


def test_add_watermark_is_one_commit_when_it_died_before_its_log_and_is_called_again(
    hooked: Watermarks, faults: Faults, job_id: str
) -> None:
    faults.drop(log_write, ALWAYS)
    with pytest.raises(StoreUnavailableError):
        add(hooked, job_id, "r1", n=1)
    faults.heal()

    add(hooked, job_id, "r1", n=1)

    assert versions(hooked, job_id) == [1]
    assert hooked.get_watermark_values(job_id, "r1") == {"n": 1}


def test_run_shows_its_newest_values_when_its_rerun_died_before_the_run_item(
    hooked: Watermarks, faults: Faults, job_id: str
) -> None:
    add(hooked, job_id, "r1", n=0)
    run = frozen(hooked, job_id, "r1")
    faults.drop(log_write, ALWAYS)

    run.commit()

    assert hooked.get_watermark_values(job_id, "r1") == {"n": 1}


def test_commit_warns_of_no_values_when_the_log_is_deferred(
    hooked: Watermarks, faults: Faults, job_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = hooked.begin(job_id, "r1")
    run.freeze({}, {"mark": "a-private-value"})
    faults.drop(log_write, ALWAYS)

    with caplog.at_level(logging.DEBUG, logger="scripts"):
        run.commit()

    assert "log_deferred" in caplog.text
    assert not [r for r in caplog.records if r.name.startswith("scripts") and "a-private-value" in r.getMessage()]
