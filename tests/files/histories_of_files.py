"""Random histories of a source of files: the files put and deleted before each run, and the limits of its batches."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import strategies as st

from tests.support.buckets import Bucket

NAMES = ["a.csv", "b.csv", "sub/a.csv", "sub/ab.csv", "é +%20.csv", "x\ny.csv", "🎉.csv", "\ue000.csv", "_no", ".x/a"]
KEYS = st.sampled_from(NAMES) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="/"), min_size=1, max_size=3
)
CHANGES = st.lists(st.tuples(KEYS, st.none() | st.integers(0, 2), st.integers(-100_000, 0)), max_size=6)
"""The changes before one run: a key is put, with some content and an age in seconds, or deleted."""
RUNS = st.lists(st.tuples(CHANGES, st.booleans()), min_size=1, max_size=6)
"""One history: the changes before each run, and whether the run commits."""
LIMITS = st.fixed_dictionaries(
    {}, optional={"max_files": st.integers(1, 4), "max_bytes": st.integers(1, 4), "workers": st.just(1)}
)


def change(bucket: Bucket, changes: list[tuple[str, int | None, int]]) -> None:
    for key, content, age in changes:
        if content is None:
            bucket.delete(key)
        else:
            bucket.put(key, body="x" * content, at=bucket.now + timedelta(seconds=age))
