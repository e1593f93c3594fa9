"""The pure parts: legal states, ids that sort by start time, and records that survive storage as items."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import botocore.session
import pytest

from scripts.helpers.errors import CorruptItemError, NewerFormatError, TooLargeError
from scripts.helpers.job_runs import ids, last_words
from scripts.helpers.job_runs.job_record import Entry, JobRecord
from scripts.helpers.job_runs.run_record import LEGAL, TERMINAL, RunRecord

NOW = datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc)
LEGAL_MOVES = {
    ("WAITING", "STARTING"), ("WAITING", "STOPPED"), ("WAITING", "EXPIRED"), ("WAITING", "ERROR"),
    ("STARTING", "RUNNING"), ("STARTING", "STOPPING"), ("STARTING", "FAILED"), ("STARTING", "ERROR"),
    ("RUNNING", "STOPPING"), ("RUNNING", "SUCCEEDED"), ("RUNNING", "FAILED"), ("RUNNING", "TIMEOUT"),
    ("RUNNING", "ERROR"),
    ("STOPPING", "STOPPED"), ("STOPPING", "SUCCEEDED"), ("STOPPING", "TIMEOUT"),
}  # fmt: skip


def a_run(**changes: Any) -> RunRecord:
    given: dict[str, Any] = {
        "job_name": "parking", "run_id": "jr_" + "a" * 64, "state": "STARTING", "started_on": NOW, "modified_on": NOW,
        "told": {"Attempt": 0, "Arguments": {"--a": "1"}, "Timeout": 5}, "command": {"ScriptLocation": "/a.py"},
    }  # fmt: skip
    return RunRecord(**(given | changes))


def test_states_are_glue_s_when_compared_with_its_model() -> None:
    shape: Any = botocore.session.get_session().get_service_model("glue").shape_for("JobRunState")

    assert set(shape.enum) == set(LEGAL)
    assert {"STOPPED", "SUCCEEDED", "FAILED", "TIMEOUT", "ERROR", "EXPIRED"} == TERMINAL


@pytest.mark.parametrize(("before", "after"), sorted(itertools.product(LEGAL, repeat=2)))
def test_run_changes_its_state_when_the_move_is_legal_only(before: str, after: str) -> None:
    run = a_run(state=before)

    if (before, after) in LEGAL_MOVES:
        moved = run.to(after, NOW + timedelta(seconds=1))
        assert (moved.state, moved.token != run.token, moved.is_over) == (after, True, after in TERMINAL)
        assert (moved.completed_on is None) == (after not in TERMINAL)
    else:
        with pytest.raises(ValueError, match=f"from {before} to {after}"):
            run.to(after, NOW)


def test_ids_sort_as_starts_when_made_one_after_another() -> None:
    moments = [NOW + timedelta(microseconds=step) for step in (0, 1, 15, 16, 10**9, 10**15)]

    made = [ids.new_id(moment) for moment in moments]

    assert made == sorted(made)
    assert all(ids.is_run_id(run_id) and len(run_id) == 67 for run_id in made)
    assert len({ids.new_id(NOW) for _ in range(100)}) == 100


def test_retry_repeats_the_run_when_it_failed() -> None:
    failed = a_run(max_retries=2, running_since=NOW).to("FAILED", NOW, error="no")

    first = failed.retry(NOW)
    second = first.to("STARTING", NOW).to("FAILED", NOW).retry(NOW)

    assert (first.state, first.attempt, first.error, first.running_since) == ("WAITING", 1, None, None)
    assert [first.run_id, second.run_id] == [f"{failed.run_id}_attempt_1", f"{failed.run_id}_attempt_2"]
    assert [run.told["PreviousRunId"] for run in (first, second)] == [failed.run_id, first.run_id]
    assert first.told["Arguments"] == failed.told["Arguments"]


@pytest.mark.parametrize(
    ("state", "attempt", "running_since", "expected"),
    [
        ("FAILED", 0, NOW, True), ("FAILED", 1, NOW, False), ("FAILED", 0, None, False), ("ERROR", 0, NOW, False),
        ("TIMEOUT", 0, NOW, False), ("SUCCEEDED", 0, NOW, False),
    ],
)  # fmt: skip
def test_run_is_retried_when_its_job_failed_and_it_had_a_launcher_only(
    state: str, attempt: int, running_since: Any, expected: bool
) -> None:
    run = a_run(state="RUNNING", max_retries=1, running_since=running_since, told={"Attempt": attempt})

    assert run.to(state, NOW).is_retried is expected


@pytest.mark.parametrize("state", ["STOPPED", "TIMEOUT", "SUCCEEDED", "FAILED", "ERROR"])
def test_run_is_not_retried_when_it_was_told_to_stop(state: str) -> None:
    ended = a_run(state="STOPPING", max_retries=2, running_since=NOW).ended(state, NOW, "why")

    assert not ended.is_retried
    assert (ended.state, ended.error) == ("STOPPED" if state in ("FAILED", "ERROR") else state, "why")


def test_retry_fits_into_its_item_when_its_run_has_the_largest_size() -> None:
    run = a_run(told={"Attempt": 0, "Arguments": {"--a": "x" * 65_000}, "Timeout": 5}, max_retries=10)
    run.check_new()

    run = replace(run, told={**run.told, "LogGroupName": "/" + "l" * 4_000})
    for _ in range(10):
        run = RunRecord.from_item(run.to("FAILED", NOW).retry(NOW).to("STARTING", NOW).to_item())

    assert run.attempt == 10
    with pytest.raises(TooLargeError, match="65,536"):
        a_run(told={"Arguments": {"--a": "x" * 65_600}}).check_new()


@pytest.mark.parametrize("state", sorted(LEGAL))
def test_run_is_the_same_when_written_and_read(state: str) -> None:
    run = a_run(
        state=state, max_retries=1, running_since=NOW, error="e", detail="d",
        completed_on=NOW if state in TERMINAL else None, lease=timedelta(seconds=1.5), launcher="host:1",
    )  # fmt: skip

    assert RunRecord.from_item(run.to_item()) == run


def test_job_is_the_same_when_written_and_read() -> None:
    entries = tuple(Entry(f"jr_{number}", NOW) for number in range(1_500))
    job = JobRecord("parking", {"MaxRetries": 1, "CreatedOn": NOW}, entries[:2], entries)

    assert JobRecord.from_item(job.to_item()) == job
    assert JobRecord.from_item(JobRecord("gone").to_item()).definition is None


@pytest.mark.parametrize("record", [a_run(), JobRecord("parking")], ids=lambda record: type(record).__name__)
def test_item_is_refused_when_altered_or_of_a_later_format(record: Any) -> None:
    item = record.to_item()

    with pytest.raises(CorruptItemError, match="not readable: 'tok' is missing"):
        type(record).from_item({name: value for name, value in item.items() if name != "tok"})
    with pytest.raises(NewerFormatError, match="format 2"):
        type(record).from_item(item | {"fmt": {"N": "2"}})


def test_retry_has_the_slot_of_its_run_and_another_that_ended_leaves_its_own() -> None:
    job = JobRecord("parking", {"ExecutionProperty": {"MaxConcurrentRuns": 2}})
    job = job.started("a", NOW).started("b", NOW)

    after = job.retried("a", "a_attempt_1", NOW).without([Entry("b", NOW)])

    assert [entry.run_id for entry in after.active] == ["a_attempt_1"]
    assert (job.has_free_slot, after.has_free_slot) == (False, True)


@pytest.mark.parametrize(
    ("output", "code", "expected"),
    [
        (
            'Traceback:\n  File "/jobs/a.py", line 2, in <module>\n    1/0\nZeroDivisionError: division by zero\nINFO',
            1,
            "ZeroDivisionError: division by zero (a.py, line 2). The job ended with exit code 1.",
        ),
        ("Exception: plain\n", 1, "Exception: plain. The job ended with exit code 1."),
        (
            "java.lang.IllegalStateException: cannot read jdbc:postgresql://h/db?password=secret now\n",
            1,
            "java.lang.IllegalStateException: cannot read jdbc:... now. The job ended with exit code 1.",
        ),
        (
            '  File "/jobs/a.py", line 2\nRuntimeError: the URL jdbc:sqlserver://h;user=u;password=a \'secret\n',
            1,
            "RuntimeError: the URL jdbc:... (a.py, line 2). The job ended with exit code 1.",
        ),
        (
            "level=ERROR event=failed error=SourceError: no jdbc:sqlserver://h;password={a secret};x=1 now\n",
            1,
            "SourceError: no jdbc:... now. The job ended with exit code 1.",
        ),
        (
            "cannot open\njdbc:oracle:thin:u/\"a secret\"@//h:1/x\n{user=u, password=a secret}\n",
            1,
            "cannot open | jdbc:... | {user=u, password=***}. The job ended with exit code 1.",
        ),
        (
            "level=ERROR event=failed job=a error=FencedError: Stop this run.\n",
            1,
            "FencedError: Stop this run. The job ended with exit code 1.",
        ),
        ("one\n\ntwo\nthree\nfour\n", 75, "two | three | four. The job ended with exit code 75."),
        ("", -9, "The job was killed by SIGKILL."),
        ("", -1, "The job was killed by signal 1."),
        (
            ('Exception ignored in: <function A.__del__>\nOSError: early\nTraceback:\n  File "/a.py", line 3, in b\n'
            "ValueError: real\nException ignored in: <function X.__del__>\nTraceback (most recent call last):\n"
            '  File "x.py", line 3\nTypeError: no object\n'),
            1,
            "ValueError: real (a.py, line 3). The job ended with exit code 1.",
        ),
    ],
    ids=["traceback", "plain exception", "java with a URL", "URL with a space", "logged with a URL",
         "no error named with a URL", "logged", "no error named", "killed", "another signal",
         "ignored"],
)  # fmt: skip
def test_message_names_the_error_when_the_output_does(output: str, code: int, expected: str) -> None:
    assert last_words.describe([output], code, "/l") == f"{expected} Its output is in /l."


def test_error_of_python_is_named_when_the_other_output_names_one_too() -> None:
    java, python = "java.io.IOException: closed\n", "text\nValueError: bad\n"

    assert last_words.describe([python, java], 1, "/l").startswith("ValueError: bad.")
    assert last_words.describe(["text\n", java], 1, "/l").startswith("java.io.IOException: closed.")
    assert last_words.describe(["data\n", "text\n"], 1, "/l").startswith("text.")


def test_run_is_shown_by_its_id_and_state_when_it_is_printed() -> None:
    run = a_run(told={"Attempt": 2, "Arguments": {"--password": "not-a-secret"}})

    assert repr(run) == f"<Run '{run.run_id}' of 'parking': STARTING, attempt 2>"
