"""Times, durations, sizes, counts and names in readable form."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from scripts.helpers.display.units import count_text, duration_text, id_text, printable, size_text, time_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (9.96, "9.9 s"), (10, "10 s"), (10.9, "10 s"), (-90, "-1 min 30 s"), (86_700, "1 d"), (0, "0 s"),
        (59.9, "59 s"), (60, "1 min"), (3_599, "59 min 59 s"), (3_600, "1 h"), (86_399, "23 h 59 min"),
        (90_000, "1 d 1 h"),
    ],
)  # fmt: skip
def test_duration_is_never_rounded_up_when_written(seconds: float, text: str) -> None:
    assert duration_text(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"), (999, "999 bytes"), (1_000, "1.0 KB"), (99_949, "99.9 KB"), (99_950, "100 KB"),
        (999_499, "999 KB"), (999_500, "1.0 MB"), (-999_500, "-1.0 MB"), (-99_950, "-100 KB"),
        (2 * 10**12, "2.0 TB"), (10**19, "10000 PB"),
    ],
)  # fmt: skip
def test_size_has_the_unit_in_which_it_is_below_a_thousand_when_rounded(size: int, text: str) -> None:
    assert size_text(size) == text


def test_time_is_in_utc_when_it_has_another_zone() -> None:
    paris = timezone(timedelta(hours=2))

    assert time_text(datetime(2026, 3, 17, 1, 2, 3, 999_999, tzinfo=paris)) == "2026-03-16 23:02:03"


@pytest.mark.parametrize(
    ("count", "text"), [(1_234, "1,234"), (1_234.5, "1,234.5"), (True, "True"), ("1234", "1234")], ids=repr
)
def test_only_numbers_have_commas_when_counts_are_written(count: object, text: str) -> None:
    assert count_text(count) == text


def test_id_ends_in_an_ellipsis_when_it_is_longer_than_sixteen() -> None:
    assert id_text("jr_0123456789abc") == "jr_0123456789abc"
    assert id_text("jr_0123456789abcd") == "jr_0123456789ab…"


def test_text_cannot_move_the_cursor_when_it_is_printed() -> None:
    assert printable("stationné 'a'\n\x1b[2J") == r"stationné 'a'\n\x1b[2J"
