"""The age of a job, the lag of its cursors, and the thresholds for both."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pytest

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.metrics.freshness import Threshold, age, duration, lag, open_plan_age
from scripts.helpers.metrics.thresholds import threshold_of, thresholds
from scripts.helpers.protocol.head import Change, Claim, Head, Plan

NOW = datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def head(committed: timedelta | None = HOUR, **watermarks: Any) -> Head:
    """Return a job whose last version was committed that long ago."""
    last = None if committed is None else Change("COMMIT", "token", NOW - committed, "jr_1")
    return replace(Head.first("parking"), last=last, watermarks=watermarks)


def rows(value: Any, **more: Any) -> dict[str, Any]:
    return {"kind": "rows", "cursor_column": "at", "type": "timestamp", "value": value} | more


def test_age_is_the_time_since_the_last_version_when_there_is_one() -> None:
    assert age(head(), NOW) == HOUR
    assert age(head(committed=None), NOW) is None


def test_age_is_zero_when_the_clock_is_behind_the_one_that_committed() -> None:
    assert age(head(-HOUR), NOW) == timedelta(0)


@pytest.mark.parametrize(
    ("watermarks", "expected"),
    [
        ({}, None),
        ({"a": rows(NOW - DAY)}, DAY),
        ({"a": rows(NOW - DAY), "b": rows(NOW - 3 * DAY)}, 3 * DAY),
        ({"a": rows([NOW - DAY, 7], cursor_column=["at", "id"], type=["timestamp", "bigint"])}, DAY),
        ({"a": rows(date(2026, 3, 16), type="date", zone="UTC")}, timedelta(hours=15, minutes=45)),
        ({"a": rows(date(2026, 3, 16), type="date", zone="Asia/Tokyo")}, timedelta(hours=24, minutes=45)),
        ({"a": rows(NOW - HOUR, type="timestamp_ntz", zone="UTC-01:00")}, timedelta(0)),
        ({"a": rows(NOW - DAY, type="timestamp_ntz"), "b": rows(NOW)}, None),
        ({"a": rows(NOW - DAY, type="timestamp_ntz", zone="../localtime")}, None),
        ({"a": rows(4711, type="bigint")}, None),
        ({"a": rows(None)}, None),
        ({"a": rows(4711, type="bigint", descending=True)}, None),
        ({"a": {"kind": "files", "prefix": "s3://b/"}}, None),
        ({"latest_data": NOW - DAY}, None),
        ({"a": rows(NOW + DAY)}, timedelta(0)),
    ],
    ids=[
        "nothing",
        "one",
        "oldest-of-two",
        "compound",
        "date",
        "date-elsewhere",
        "offset",
        "no-zone",
        "no-such-zone",
        "id",
        "no-row",
        "descending",
        "files",
        "own",
        "future",
    ],
)
def test_lag_is_that_of_the_oldest_cursor_of_time_when_there_are_any(
    watermarks: dict[str, Any], expected: timedelta | None
) -> None:
    assert lag(head(**watermarks), NOW) == expected


def test_open_plan_is_as_old_as_its_freeze_when_runs_have_begun_since() -> None:
    frozen = Plan("p", {}, {}, NOW - DAY)
    claim = Claim("jr_9", "t", 1, NOW + HOUR, NOW - HOUR)

    assert open_plan_age(replace(head(2 * DAY), plan=frozen, claim=claim), NOW) == DAY
    assert open_plan_age(head(), NOW) is None


def test_open_plan_is_of_no_age_when_it_was_frozen_by_a_clock_ahead_of_ours() -> None:
    later = Plan("p", {}, {}, NOW + HOUR)

    assert open_plan_age(replace(head(committed=None), plan=later), NOW) == timedelta(0)
    assert open_plan_age(replace(head(committed=None), plan=replace(later, at=NOW - HOUR)), NOW) == HOUR


@pytest.mark.parametrize(
    ("committed", "word"),
    [
        (timedelta(minutes=59), None),
        (HOUR, "late"),
        (DAY - HOUR, "late"),
        (DAY, "missing"),
        (None, None),
    ],
    ids=str,
)
def test_job_is_judged_by_its_age_when_the_threshold_says_so(committed: timedelta | None, word: str | None) -> None:
    found = Threshold(warn=HOUR, error=DAY).judge(head(committed), NOW)

    assert (found.word, found.behind) == (word, committed)


def test_job_is_judged_by_its_lag_when_it_has_one() -> None:
    threshold = Threshold(error=DAY, measure="lag")

    assert threshold.judge(head(HOUR, a=rows(NOW - 2 * DAY)), NOW).word == "missing"
    assert threshold.judge(head(HOUR), NOW).behind == HOUR


def test_job_is_fresh_when_its_cursor_is_of_this_moment_and_its_last_version_old() -> None:
    found = Threshold(error=HOUR, measure="lag").judge(head(2 * DAY, a=rows(NOW)), NOW)

    assert (found.word, found.behind) == (None, timedelta(0))


def test_own_name_wins_and_then_the_longest_pattern_when_several_match() -> None:
    given = thresholds({"*": {"error": "3d"}, "parking-*": {"error": "2d"}, "parking-fines": {"error": "1d"}})

    found = [threshold_of(name, given) for name in ("parking-fines", "parking-permits", "rates")]

    assert [threshold.error for threshold in found if threshold] == [DAY, 2 * DAY, 3 * DAY]
    assert threshold_of("rates", {}) is None


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ({"a": {"warn": "2 hours"}}, "The threshold of 'a': '2 hours' is not a duration. Write a number"),
        ({"a": {}}, "The threshold of 'a': A threshold has neither warn nor error."),
        ({"a": {"warn": "2d", "error": "1d"}}, "warn is 2 days, 0:00:00, later than error at 1 day, 0:00:00."),
        ({"a": {"fail": "1d"}}, "A threshold has no 'fail'; it has warn, error and measure."),
        ({"a": {"warn": "1d", "measure": "mood"}}, "The measure is 'mood'; it is 'age' or 'lag'."),
        ({"a": "1d"}, "The threshold of 'a' is not a map"),
    ],
    ids=["duration", "empty", "order", "unknown", "measure", "no-map"],
)  # fmt: skip
def test_threshold_is_refused_when_it_is_wrong(file: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        thresholds(file)

    assert text in str(caught.value)


@pytest.mark.parametrize("text", ["", "2", "h", "-1h", "1.5h", "2H", " 2h", "9999999999d", None, 2, "٣h"], ids=repr)
def test_duration_is_refused_when_it_is_none(text: object) -> None:
    with pytest.raises(InvalidValueError, match="is not a duration"):
        duration(text)


@pytest.mark.parametrize(("since", "word"), [(HOUR, None), (2 * HOUR, "late"), (DAY, "missing")])
def test_job_that_never_committed_is_judged_by_its_run_when_one_has_begun(since: timedelta, word: str | None) -> None:
    begun = replace(head(committed=None), claim=Claim("jr_1", "token", 1, NOW, NOW - since))

    assert Threshold(2 * HOUR, DAY).judge(begun, NOW).word == word


def test_job_that_never_committed_is_judged_by_its_plan_when_a_later_run_has_it() -> None:
    planned = replace(
        head(committed=None), claim=Claim("jr_2", "token", 1, NOW, NOW), plan=Plan("p", {}, {}, NOW - DAY)
    )

    assert Threshold(2 * HOUR, DAY).judge(planned, NOW).word == "missing"
