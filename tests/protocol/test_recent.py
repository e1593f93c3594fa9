"""The newest commits that a head keeps: how the list grows, and how it is parsed from text."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from scripts.helpers.protocol.head import Change, Head
from scripts.helpers.protocol.items import head_from_item, head_to_item
from scripts.helpers.protocol.recent import from_text, with_commit

NOW = datetime(2026, 3, 16, 15, 45, 59, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
HEAD = Head("parking", "e1", 1, 1, {}, Change("COMMIT", "c", NOW, "jr_1", fence=1, runs=1, failed=0))


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({"rows_collected": 808}, (808, None)),
        ({"files_read": 0}, (None, 0)),
        ({"rows_collected": 7, "files_read": 2}, (7, 2)),
        ({"rows_written": 3.9, "files": 1}, (3, 1)),
        ({"rows_collected": -1, "files_read": True}, (None, None)),
        ({"rows_collected": 10**15}, (10**15, None)),
        ({"rows_collected": 10**15 + 1}, (None, None)),
        ({}, (None, None)),
    ],
    ids=["rows", "no-file", "both", "others", "implausible", "most", "too-many", "none"],
)
def test_commits_come_back_as_they_were_when_written(metrics: dict[str, Any], expected: tuple[Any, Any]) -> None:
    before = NOW.replace(second=0) - 1440 * MINUTE

    commits = from_text(with_commit(with_commit("", NOW - 1440 * MINUTE, {"rows": 5}), NOW, metrics))

    assert commits == ((before, 5, None), (NOW.replace(second=0), *expected))


def test_newest_28_commits_stay_when_there_are_more() -> None:
    text = ""
    for number in range(33):
        text = with_commit(text, NOW + number * MINUTE, {"rows": number})

    minute = NOW.replace(second=0)
    assert from_text(text) == tuple((minute + number * MINUTE, number, None) for number in range(5, 33))
    assert len(text) < 150


def test_commit_is_not_before_the_one_that_it_follows_when_a_clock_is_behind() -> None:
    before = with_commit(with_commit("", NOW - 9 * MINUTE, {}), NOW, {})

    commits = from_text(with_commit(before, NOW - 5 * MINUTE, {}))

    assert commits[2].at == commits[1].at


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "1:2:3:4",
        "-1:2",
        "1:2 ",
        "9" * 9 + ":1",
        "29560560",
        "1:" + "9" * 17,
        "99999999:1 " * 60,
        "1:1 " + "99999999:1 " * 2,
    ],
    ids=repr,
)
def test_text_yields_no_commits_unless_valid_when_it_was_altered(text: str) -> None:
    assert len(from_text(text)) == (text == "1:2 ")
    assert len(from_text(with_commit(text, NOW, {}))) == 1 + (text == "1:2 ")


def test_head_drops_a_longer_text_than_a_run_writes_when_it_was_altered() -> None:
    texts = {number: replace(HEAD, recent_text="29560560:1 " + "0:1 " * number) for number in (27, 400)}

    kept = {number: len(head_from_item(head_to_item(head)).recent) for number, head in texts.items()}

    assert kept == {27: 28, 400: 0}
