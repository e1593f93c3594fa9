"""Date folders: every folder that can hold new files is listed, in any layout; if there are too many, all are."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.helpers.files.rules import MAX_FOLDERS, folders_since

NEW_YEAR = datetime(2024, 1, 1, 0, 30, tzinfo=timezone.utc)
moments = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(timezone.utc))


@pytest.mark.parametrize(
    ("layout", "folders"),
    [
        ("%Y/%m/%d/", ["2023/12/31/", "2024/01/01/", "2024/01/02/"]),
        ("year=%Y/month=%m/", ["year=2023/month=12/", "year=2024/month=01/"]),
        ("%Y/", ["2023/", "2024/"]),
        ("%Y-%j/", ["2023-365/", "2024-001/", "2024-002/"]),
        ("d=%Y%m%d/", ["d=20231231/", "d=20240101/", "d=20240102/"]),
    ],
)
def test_folders_go_over_the_turn_of_the_year_when_days_decide_them(layout: str, folders: list[str]) -> None:
    assert folders_since(layout, NEW_YEAR - timedelta(days=1), NEW_YEAR) == folders


@pytest.mark.parametrize("layout", ["%Y/%m/%d/%H/", "%Y/%m/%d/%I%p/", "%Y/%m/%d/%-H/"])
def test_folders_are_those_of_all_hours_when_hours_decide_them(layout: str) -> None:
    since = NEW_YEAR - timedelta(hours=2)

    folders = folders_since(layout, since, NEW_YEAR)

    assert folders == [
        (datetime(2023, 12, 31, 22, tzinfo=timezone.utc) + timedelta(hours=hour)).strftime(layout)
        for hour in range(2 + 24 + 1)
    ]


@given(moments, st.timedeltas(timedelta(0), timedelta(days=40)), st.floats(0, 1), st.sampled_from(["%d/", "%d/%H/"]))
def test_folder_of_any_moment_is_listed_when_it_is_between_the_ends(
    now: datetime, span: timedelta, part: float, rest: str
) -> None:
    layout = "%Y/%m/" + rest
    moment = now - span + (span + timedelta(days=1)) * part

    assert moment.strftime(layout) in folders_since(layout, now - span, now)


def test_date_is_that_of_utc_when_times_have_another_zone() -> None:
    zone = timezone(timedelta(hours=5))

    assert folders_since("%Y-%m-%d/", datetime(2024, 1, 1, 2, tzinfo=zone), NEW_YEAR)[0] == "2023-12-31/"


@pytest.mark.parametrize(("days", "whole"), [(MAX_FOLDERS - 2, False), (MAX_FOLDERS + 1, True)])
def test_the_whole_source_is_listed_when_folders_are_too_many(days: int, whole: bool) -> None:
    folders = folders_since("%Y/%m/%d/", NEW_YEAR - timedelta(days=days), NEW_YEAR)

    assert (folders == [""]) is whole
    assert len(folders) <= MAX_FOLDERS


def test_the_whole_source_is_listed_when_nothing_was_listed_before() -> None:
    assert folders_since("%Y/", None, NEW_YEAR) == [""]
