"""Problems of a job: late, missing, of an unusual size, left open; and which of them is most urgent."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from scripts.helpers.metrics.freshness import Threshold
from scripts.helpers.metrics.urgency import WORDS, condition_of, without_head
from scripts.helpers.protocol.head import Claim, Head, Plan
from scripts.helpers.protocol.items import head_from_item, head_to_item
from scripts.helpers.protocol.recent import with_commit
from tests.support.known_jobs import DAY, HOUR, MINUTE, NOW, UNWELL, known_jobs


@pytest.fixture(scope="module")
def jobs() -> dict[str, Head]:
    """Return the heads of 61 jobs as they are read from the table."""
    return {head.job_id: head_from_item(head_to_item(head)) for head in known_jobs()}


def test_exactly_the_right_jobs_are_unwell_when_61_have_a_known_rhythm(jobs: dict[str, Head]) -> None:
    found = {name: condition_of(head, NOW) for name, head in jobs.items()}

    unwell = {name: condition.word for name, condition in found.items() if condition.needs_somebody}
    assert unwell == UNWELL


def test_no_job_of_workdays_is_late_when_it_is_sunday(jobs: dict[str, Head]) -> None:
    friday = NOW - 3 * DAY
    workdays = [head for name, head in jobs.items() if name.startswith("workdays-well")]
    until_friday = []
    for head in workdays:
        recent = [commit for commit in head.recent if commit.at <= friday]
        text = ""
        for commit in recent:
            text = with_commit(text, commit.at, {"rows": commit.rows, "files": commit.files})
        assert head.last is not None
        until_friday.append(replace(head, recent_text=text, last=replace(head.last, at=recent[-1].at)))

    on_sunday = [condition_of(head, NOW - DAY).word for head in until_friday]
    on_monday = [condition_of(head, NOW + 5 * HOUR).word for head in until_friday]

    assert (set(on_sunday), set(on_monday)) == ({"idle"}, {"late"})


def test_reason_says_what_is_usual_when_a_job_is_late_or_of_an_unusual_size(jobs: dict[str, Head]) -> None:
    reasons = {name: condition_of(jobs[name], NOW).reason for name in ("daily-09", "daily-few-rows", "daily-no-file")}

    assert reasons["daily-09"].startswith("usually every 24 h, last 9 d")
    assert reasons["daily-few-rows"].startswith("12 rows, usually 4,")
    assert reasons["daily-no-file"] == "0 files, usually 4"


def test_reason_names_the_weekday_when_another_time_is_usual_after_it(jobs: dict[str, Head]) -> None:
    head = jobs["workdays-well-0"]
    assert head.last is not None
    friday = [commit for commit in head.recent if commit.at.weekday() == 4][-1].at
    waiting = replace(head, last=replace(head.last, at=friday))

    assert condition_of(waiting, friday + 4 * DAY).reason == "usually 3 d after a Friday, last 4 d ago"


def test_threshold_wins_when_one_is_given(jobs: dict[str, Head]) -> None:
    well, late = jobs["daily-well-1"], jobs["daily-09"]

    strict = condition_of(well, NOW, Threshold(warn=10 * MINUTE, error=DAY))
    lenient = condition_of(late, NOW, Threshold(error=30 * DAY))

    assert (strict.word, lenient.word) == ("late", "idle")
    assert strict.reason.endswith(" age, the limit is 10 min")


def test_failures_since_the_last_commit_are_told_when_a_job_is_late_or_not(jobs: dict[str, Head]) -> None:
    well, late = jobs["daily-well-1"], jobs["daily-09"]

    failing = condition_of(replace(well, fence=well.fence + 2), NOW)
    failing_late = condition_of(replace(late, fence=late.fence + 1), NOW)

    assert (failing.word, failing.reason) == ("failing", "2 runs failed since the last commit")
    assert failing_late.reason.endswith("; 1 run failed since the last commit")


def test_run_that_is_at_work_is_told_when_its_job_is_late(jobs: dict[str, Head]) -> None:
    at_work = Claim("jr_9", "t", 1, NOW + HOUR, NOW - HOUR)

    found = condition_of(replace(jobs["daily-03"], claim=at_work), NOW)

    assert (found.word, found.command) == ("late", "watermarks show daily-03")
    assert found.reason.endswith("; a run is at work")


def test_most_urgent_word_is_told_when_several_are_true(jobs: dict[str, Head]) -> None:
    well = jobs["daily-well-1"]
    plan, gone = Plan("p", {}, {}, NOW - HOUR), Claim("jr_9", "t", 1, NOW - HOUR, NOW - 2 * HOUR)
    alive = replace(gone, lease_until=NOW + HOUR)

    words = {
        "open": condition_of(replace(well, plan=plan, claim=gone), NOW).word,
        "gone": condition_of(replace(well, claim=gone), NOW).word,
        "small": condition_of(replace(jobs["daily-few-rows"], plan=plan), NOW).word,
        "late": condition_of(replace(jobs["daily-03"], plan=plan, claim=gone), NOW).word,
        "work": condition_of(replace(well, plan=plan, claim=alive), NOW).word,
        "new": condition_of(Head.first("parking"), NOW).word,
    }

    assert words == {
        "open": "open plan", "gone": "lease over", "small": "open plan", "late": "late", "work": "at work",
        "new": "no commit yet",
    }  # fmt: skip


def test_command_can_be_pasted_when_a_name_has_spaces() -> None:
    found = without_head("two words", "damaged")

    assert (found.rank, found.command) == (0, "watermarks doctor 'two words'")
    assert WORDS[0] == found.word


def test_size_is_not_judged_when_a_person_made_the_last_version(jobs: dict[str, Head]) -> None:
    head = jobs["daily-few-rows"]
    assert head.last is not None

    assert condition_of(replace(head, last=replace(head.last, op="REWIND")), NOW).word == "idle"
    assert condition_of(head, NOW - timedelta(0)).word == "unusually small"
