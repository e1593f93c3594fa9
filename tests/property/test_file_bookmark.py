"""Exact mode, for any history of a prefix: each identity is taken once for as long as it stays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from scripts.helpers import file_bookmark
from scripts.helpers.file_bookmark import FileBookmark
from scripts.helpers.identities import Identity
from scripts.helpers.values import decode, encode

KEYS = st.sampled_from(["a.csv", "b.csv", "sub/a.csv", "é +%20.csv", "x\ny.csv", "🎉.csv", "_hidden", ".x/a.csv"])
CHANGES = st.lists(st.tuples(KEYS, st.none() | st.integers(0, 2)), max_size=5)
"""Of one run: put a key with some content, or delete it."""
RUNS = st.lists(st.tuples(CHANGES, st.booleans()), min_size=1, max_size=8)
"""Of one history: the changes before each run, and whether that run commits."""


def identity(key: str, content: int) -> Identity:
    return Identity(key, f"etag-{content}", content % 2)


class Source:
    """A prefix whose listing is what was put and not deleted."""

    def __init__(self) -> None:
        self.objects: dict[str, Identity] = {}

    def change(self, changes: list[tuple[str, int | None]]) -> None:
        for key, content in changes:
            if content is None:
                self.objects.pop(key, None)
            else:
                self.objects[key] = identity(key, content)

    def list_objects(self, *_: Any) -> Iterator[Identity]:
        return iter(sorted(self.objects.values(), reverse=True))


def work_through(runs: list[tuple[list[tuple[str, int | None]], bool]]) -> list[tuple[set[Identity], list[Identity]]]:
    """Run the history; return what was listed and what was taken at each commit."""
    source, state, commits = Source(), None, []
    with patch.object(file_bookmark, "list_objects", source.list_objects):
        for changes, commit in runs:
            source.change(changes)
            bookmark = FileBookmark("s3://bucket/landing/", state=state)
            delta = bookmark.new_files()
            if commit:
                state = decode(*encode(bookmark.state_after))
                commits.append((set(source.objects.values()), list(delta.files)))
    return commits


@given(RUNS)
def test_identity_is_taken_exactly_once_for_as_long_as_it_stays_when_runs_follow_each_other(runs: Any) -> None:
    commits = work_through(runs)

    for subject in {found for listed, _ in commits for found in listed}:
        hidden = subject.key in ("_hidden", ".x/a.csv")
        staying = taken = 0
        for listed, files in commits:
            staying, taken = (staying + 1, taken) if subject in listed else (0, 0)
            taken += files.count(subject)
            assert taken == (1 if staying and not hidden else 0)


@given(RUNS)
def test_identity_is_not_taken_twice_when_it_never_changed(runs: Any) -> None:
    only_puts = [([(key, 0) for key, content in changes if content is not None], commit) for changes, commit in runs]

    commits = work_through(only_puts)

    taken = [file for _, files in commits for file in files]
    assert len(taken) == len(set(taken))


@given(RUNS)
def test_delta_is_in_order_of_key_bytes_when_listing_is_in_any_order(runs: Any) -> None:
    commits = work_through(runs)

    for _, files in commits:
        assert [file.key for file in files] == sorted((file.key for file in files), key=str.encode)
