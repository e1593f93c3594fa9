"""What the reader of Delta's log makes of a commit file, and which files of a span a vacuum may have deleted."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import pytest

from scripts.helpers.tables.delta import DeltaCommit, possibly_vacuumed_files, read_commit, taken_by

AT = datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc)
MILLISECONDS = int(AT.timestamp() * 1_000)


def commit(version: int, *actions: dict[str, Any]) -> DeltaCommit:
    """Parse the commit that consists of these actions, with an empty line between them."""
    return read_commit(version, "\n\n".join(map(json.dumps, actions)))


def add(*paths: str, moves: bool = False) -> list[dict[str, Any]]:
    return [{"add": {"path": path, "dataChange": not moves}} for path in paths]


def remove(*paths: str, moves: bool = False) -> list[dict[str, Any]]:
    return [{"remove": {"path": path, "dataChange": not moves}} for path in paths]


def feed(*paths: str) -> list[dict[str, Any]]:
    return [{"cdc": {"path": path, "dataChange": False}} for path in paths]


@pytest.mark.parametrize(
    ("actions", "kind"),
    [
        ([], "nothing"),
        (add("a"), "append"),
        ([{"add": {"path": "a"}}], "append"),
        (add("a", moves=True), "nothing"),
        (remove("a"), "overwrite"),
        ([{"remove": {"path": "a"}}], "overwrite"),
        ([*add("b"), *remove("a")], "overwrite"),
        ([*add("b", moves=True), *remove("a", moves=True)], "nothing"),
        ([*add("a"), {"commitInfo": {"operation": "RESTORE"}}], "rollback"),
        ([{"txn": {"path": "a"}}, {"add": None}, {"protocol": {}}], "nothing"),
    ],
)
def test_kind_of_a_commit_depends_on_the_files_whose_rows_it_changes(actions: list[Any], kind: str) -> None:
    assert commit(3, *actions).kind == kind


def test_in_commit_timestamp_is_used_when_a_commit_has_both_timestamps() -> None:
    info = {"operation": "WRITE", "timestamp": MILLISECONDS - 5, "inCommitTimestamp": MILLISECONDS}

    told = commit(3, {"commitInfo": info}, *add("a")).told

    assert (told.number, told.kind, told.operation, told.at) == (3, "append", "WRITE", AT)


@pytest.mark.parametrize(
    ("info", "operation", "at"),
    [
        ([], "UNKNOWN", None),
        ([{"commitInfo": {"timestamp": MILLISECONDS}}], "UNKNOWN", AT),
        ([{"commitInfo": {"operation": "WRITE", "timestamp": "today"}}], "WRITE", None),
    ],
)
def test_commit_has_no_operation_or_time_when_its_writer_left_them_out(
    info: list[Any], operation: str, at: datetime | None
) -> None:
    found = commit(3, *info)

    assert (found.operation, found.at) == (operation, at)


def test_commit_is_read_when_a_string_in_it_holds_a_unicode_line_separator() -> None:
    action = {"add": {"path": "a", "partitionValues": {"kind": "x\u2028y\u0085z"}}}

    found = read_commit(3, json.dumps(action, ensure_ascii=False))

    assert [one["partitionValues"] for one in found.added] == [action["add"]["partitionValues"]]


def test_files_are_those_that_commits_after_the_watermark_have_appended() -> None:
    commits = [commit(1, *add("a")), commit(2, *add("b")), commit(3, *remove("a"), *add("c")), commit(4, *add("d"))]

    assert [action["path"] for action in taken_by(commits, 1, 3)] == ["b"]
    assert [action["path"] for action in taken_by(commits, 0, 4)] == ["a", "b", "d"]


APPENDED = commit(1, *add("a", "b", "c"))
DELETED = commit(2, *remove("a"), *feed("f"))
COMPACTED = commit(3, *remove("b", moves=True), *add("large", moves=True))
REWRITTEN = commit(4, *remove("c"), *add("d"))
OVER = commit(5, *remove("d"))


@pytest.mark.parametrize(
    ("commits", "after", "until", "of_feed", "gone"),
    [
        ([APPENDED], 0, 1, False, set()),
        ([APPENDED, DELETED], 0, 1, False, {"a"}),
        ([APPENDED, DELETED, COMPACTED, REWRITTEN], 0, 1, False, {"a", "b", "c"}),
        ([APPENDED, DELETED, COMPACTED, REWRITTEN], 1, 4, False, set()),
        ([APPENDED, DELETED, COMPACTED], 0, 1, True, {"a", "b"}),
        ([DELETED, COMPACTED], 1, 2, True, {"f"}),
        ([REWRITTEN], 3, 4, True, {"c"}),
        ([REWRITTEN, OVER], 3, 4, True, {"c", "d"}),
        ([APPENDED, DELETED, COMPACTED], None, 1, False, {"a", "b"}),
        ([APPENDED, DELETED, COMPACTED], None, 2, False, {"b"}),
        ([APPENDED, DELETED], None, 2, False, set()),
        ([APPENDED, REWRITTEN, OVER], None, 1, False, {"c"}),
    ],
)
def test_files_may_be_gone_when_the_table_has_them_no_longer_and_the_span_needs_them(
    commits: list[DeltaCommit], after: int | None, until: int, of_feed: bool, gone: set[str]
) -> None:
    assert possibly_vacuumed_files(commits, after, until, feed=of_feed) == gone
