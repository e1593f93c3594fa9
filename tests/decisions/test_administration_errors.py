"""Refused decisions: the error names what is wrong, and nothing changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from scripts.helpers.errors import (
    InvalidIdError,
    InvalidValueError,
    NothingThereError,
    NoWatermarkError,
    PlanConflictError,
    StaleError,
    StoreUnavailableError,
    TooLargeError,
    UnknownJobError,
    UnknownRunError,
    WatermarkError,
)
from scripts.helpers.protocol.store import Store
from scripts.helpers.watermarks import Watermarks
from tests.support.faults import Faults, head_write, log_write
from tests.support.steps import commit, frozen
from tests.support.table_items import Stored

pytestmark = pytest.mark.both_stores

WHY: dict[str, Any] = {"why": "bad rows in May", "who": "duty officer"}
Call = Callable[[Watermarks, str], Any]
PutLegacy = Callable[..., None]


@pytest.fixture
def two(watermarks: Watermarks, job_id: str) -> Watermarks:
    """Return `Watermarks` with a job that r1 and r2 have committed, and whose plan r3 has frozen."""
    for number in (1, 2):
        commit(watermarks, job_id, f"r{number}", {"repairs": {"n": number}})
    frozen(watermarks, job_id, "r3", plan={"repairs": [2, 3]}, following={"repairs": {"n": 3}})
    return watermarks


REFUSED: dict[str, tuple[Call, type[WatermarkError], str]] = {
    "both": (
        lambda w, job: w.rewind(job, to_version=1, to_run="r1", **WHY),
        InvalidValueError,
        "A rewind takes one of to_version and to_run.",
    ),
    "neither": (lambda w, job: w.rewind(job, **WHY), InvalidValueError, "A rewind takes one of to_version and to_run."),
    "version-0": (
        lambda w, job: w.rewind(job, to_version=0, **WHY),
        InvalidValueError,
        "A rewind goes to version 1 or later, not 0. To forget everything call reset.",
    ),
    "version--1": (
        lambda w, job: w.rewind(job, to_version=-1, **WHY),
        InvalidValueError,
        "A rewind goes to version 1 or later, not -1.",
    ),
    "version-True": (
        lambda w, job: w.rewind(job, to_version=True, **WHY),
        InvalidValueError,
        "A rewind goes to version 1 or later, not True.",
    ),
    "version-text": (
        lambda w, job: w.rewind(job, to_version="1", **WHY),  # type: ignore[arg-type]
        InvalidValueError,
        "A rewind goes to version 1 or later, not '1'.",
    ),
    "version-open": (
        lambda w, job: w.rewind(job, to_version=3, **WHY),
        NothingThereError,
        "which is at version 2: it never existed, or its log entry expired. history(job_id) lists the versions",
    ),
    "version-far": (
        lambda w, job: w.rewind(job, to_version=10**18, **WHY),
        NothingThereError,
        "Version 1000000000000000000 of job",
    ),
    "run-never": (
        lambda w, job: w.rewind(job, to_run="r9", **WHY),
        UnknownRunError,
        "it never committed, or its item expired. history(job_id) lists the runs",
    ),
    "run-uncommitted": (
        lambda w, job: w.rewind(job, to_run="r3", **WHY),
        UnknownRunError,
        "Run 'r3' of job",
    ),
    "run-reserved": (lambda w, job: w.rewind(job, to_run="~latest", **WHY), InvalidIdError, "Run id '~latest'"),
    "rewind-context": (
        lambda w, job: w.rewind(job, to_version=1, transformation_ctx="trees", **WHY),
        InvalidValueError,
        "Neither version 1 nor the present one has a context 'trees'.",
    ),
    "context-name": (
        lambda w, job: w.rewind(job, to_version=1, transformation_ctx="", **WHY),
        InvalidIdError,
        "Context ''",
    ),
    "reset-context": (
        lambda w, job: w.reset(job, transformation_ctx="trees", **WHY),
        InvalidValueError,
        "has no context 'trees'. It has: ",
    ),
    "set-list": (
        lambda w, job: w.set_watermark(job, [1], **WHY),  # type: ignore[arg-type]
        InvalidValueError,
        "Watermarks are a map of names to values, not a list.",
    ),
    "set-nan": (
        lambda w, job: w.set_watermark(job, {"n": float("nan")}, **WHY),
        InvalidValueError,
        "The watermark 'n' is NaN or infinite",
    ),
    "set-reserved": (
        lambda w, job: w.set_watermark(job, {"runId": 1}, **WHY),
        InvalidValueError,
        "'runId' is a reserved name",
    ),
    "set-reserved-context": (
        lambda w, job: w.set_watermark(job, {"n": 1}, transformation_ctx="watermarks", **WHY),
        InvalidValueError,
        "'watermarks' is a reserved name",
    ),
    "set-large": (
        lambda w, job: w.set_watermark(job, {"n": "x" * 66_000}, transformation_ctx="repairs", **WHY),
        TooLargeError,
        "and the limit is 65,536",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_decision_is_refused_and_changes_nothing_when_its_arguments_are_wrong(
    two: Watermarks, job_id: str, stored: Stored, case: str
) -> None:
    call, error, text = REFUSED[case]
    before = stored()

    with pytest.raises(error, match=re.escape(text)) as caught:
        call(two, job_id)

    assert type(caught.value) is error
    assert stored() == before


DECISIONS: dict[str, Callable[..., Any]] = {
    "rewind": lambda w, job, **said: w.rewind(job, to_version=1, **said),
    "reset": lambda w, job, **said: w.reset(job, **said),
    "set": lambda w, job, **said: w.set_watermark(job, {"n": 1}, **said),
    "discard": lambda w, job, **said: w.discard_plan(job, **said),
    "after-restore": lambda w, job, **said: w.decisions.restore(job, {}, **said),
}


@pytest.mark.parametrize(
    ("name", "text"),
    [("why", ""), ("why", "two\nlines"), ("why", 5), ("who", " "), ("who", "x" * 1_001), ("who", "bell\x07")],
    ids=["no why", "why of two lines", "why that is no text", "blank who", "long who", "who with a bell"],
)
@pytest.mark.parametrize("decision", DECISIONS)
def test_decision_is_refused_when_who_or_why_is_not_one_line(
    two: Watermarks, job_id: str, stored: Stored, decision: str, name: str, text: Any
) -> None:
    before = stored()

    with pytest.raises(InvalidValueError, match=f"'{name}' must be one printable line of 1 to 1,000 characters"):
        DECISIONS[decision](two, job_id, **WHY | {name: text})

    assert stored() == before


@pytest.mark.parametrize("decision", [name for name in DECISIONS if name != "set"])
def test_decision_says_that_the_job_is_unknown_when_it_never_ran(
    watermarks: Watermarks, job_id: str, stored: Stored, decision: str
) -> None:
    with pytest.raises(UnknownJobError, match=f"holds nothing for job '{job_id}'. Check the name") as caught:
        DECISIONS[decision](watermarks, job_id, **WHY)

    assert (caught.value.job_id, caught.value.table_name) == (job_id, watermarks.table_name)
    assert stored() == {}


def test_rewind_says_that_nothing_is_committed_when_the_first_run_is_at_work(
    watermarks: Watermarks, job_id: str, stored: Stored
) -> None:
    watermarks.begin(job_id, "r1")
    before = stored()

    with pytest.raises(NoWatermarkError) as caught:
        watermarks.rewind(job_id, to_version=1, **WHY)

    assert caught.value.job_id == job_id
    assert stored() == before


@pytest.mark.parametrize(("gone", "to", "error", "text"), [
    (["!c#0000000000000000001"], {"to_version": 1}, NothingThereError, "Version 1 of job"),
    (["!c#0000000000000000001"], {"to_run": "r1"}, NothingThereError, "Version 1 of job"),
    (["!c#0000000000000000001", "r1"], {"to_run": "r1"}, UnknownRunError, "Run 'r1' of job"),
], ids=["version", "entry-of-the-run", "run"])  # fmt: skip
def test_rewind_is_refused_when_what_it_goes_to_has_expired(
    two: Watermarks,
    job_id: str,
    stored: Stored,
    delete: Callable[[str], None],
    gone: list[str],
    to: dict[str, Any],
    error: type[WatermarkError],
    text: str,
) -> None:
    for range_key in gone:
        delete(range_key)
    before = stored()

    with pytest.raises(error, match=f"{text} .*expired") as caught:
        two.rewind(job_id, **to, **WHY)

    assert type(caught.value) is error
    assert stored() == before


# --- failures of the store ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["drop", "reply_lost", "resend", "throttle"])
@pytest.mark.parametrize("decision", DECISIONS)
def test_decision_is_one_version_when_its_write_fails_once(
    two: Watermarks, hooked: Watermarks, faults: Faults, job_id: str, decision: str, fault: str
) -> None:
    faults.by_name(fault, head_write)

    DECISIONS[decision](hooked, job_id, **WHY)

    assert faults.hits == 1
    assert [entry.version for entry in two.history(job_id)] == [3, 2, 1]
    assert two.latest(job_id).fence == 4


def test_decision_is_reported_unknown_when_the_store_does_not_answer(
    two: Watermarks, hooked: Watermarks, faults: Faults, job_id: str, stored: Stored
) -> None:
    before = stored()
    faults.drop(head_write, times=100)

    with pytest.raises(StoreUnavailableError, match=r"on table .* failed: (ConnectTimeoutError|database is locked)"):
        hooked.reset(job_id, **WHY)

    assert stored() == before


def test_decision_stands_and_is_logged_later_when_only_its_log_entry_fails(
    two: Watermarks, hooked: Watermarks, faults: Faults, job_id: str, stored: Stored, caplog: pytest.LogCaptureFixture
) -> None:
    faults.drop(log_write, times=1)

    head = hooked.reset(job_id, **WHY)

    assert head.version == 3
    assert f"event=log_deferred job={job_id} version=3" in caplog.text
    assert "!c#0000000000000000003" not in stored()
    assert [entry.version for entry in two.history(job_id)] == [3, 2, 1]
    two.begin(job_id, "r4")
    assert "!c#0000000000000000003" in stored()


def test_decision_gives_up_when_the_job_changes_every_time(
    two: Watermarks, hooked: Watermarks, faults: Faults, job_id: str
) -> None:
    faults.meanwhile(head_write, lambda: two.begin(job_id, "r3"), times=100)

    with pytest.raises(StaleError, match=f"Job '{job_id}' changed 10 times meanwhile; nothing was decided. Try again"):
        hooked.reset(job_id, **WHY)

    assert (two.latest(job_id).version, two.latest(job_id).fence) == (2, 13)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda w, job: w.release(job, **WHY), "changed 10 times meanwhile; nothing was released. Try again."),
        (
            lambda w, job: w.decisions.change_watermark(job, lambda state: {"n": 9}, context="repairs", why="x"),
            "kept changing; nothing was decided. Try again.",
        ),
    ],
    ids=["release", "change"],
)
def test_nothing_is_written_when_every_write_comes_too_late(
    two: Watermarks, job_id: str, stored: Stored, call: Call, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, pauses = stored(), list[float]()
    monkeypatch.setattr(Store, "swap", lambda *_, **__: None)
    monkeypatch.setattr(two.store, "sleep", pauses.append)

    with pytest.raises(StaleError) as caught:
        call(two, job_id)

    assert str(caught.value) == f"Job {job_id!r} {text}"
    assert stored() == before


def test_adopt_is_refused_when_a_run_commits_meanwhile(
    watermarks: Watermarks, job_id: str, put_legacy: PutLegacy, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_legacy("jr_a")
    put_legacy("jr_b")
    monkeypatch.setattr(Store, "swap", lambda *_, **__: None)

    with pytest.raises(PlanConflictError) as caught:
        watermarks.adopt(job_id, "jr_a")

    assert str(caught.value) == f"Job {job_id!r}: it has a committed state already; there is nothing to adopt."
