"""A bookmark compared with a model, for any history of a source: no file is lost, none is taken twice."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.helpers.files.delta import FileDelta
from scripts.helpers.listing.objects import byte_order
from scripts.helpers.listing.paths import is_hidden
from tests.files.histories_of_files import LIMITS, RUNS, change
from tests.support.buckets import Bucket, Job, keys_of
from tests.support.long import cases

Object = tuple[str, str, int]


class Model:
    """A model of exact mode: the identity of each key that was taken and still exists."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self.most = limits.get("max_files", 10**9)
        self.bytes = limits.get("max_bytes", 10**9)
        self.known: dict[str, Object] = {}

    def take(self, bucket: Bucket, commit: bool) -> tuple[list[str], int, bool]:
        """Return the keys of a batch, the number of known objects that are gone, and whether files are left."""
        there = {row["key"]: row for row in bucket.objects.values()}
        gone = [key for key in self.known if key not in there]
        new = [
            row for key, row in there.items()
            if not is_hidden(key) and self.known.get(key) != (key, row["etag"], row["size"])
        ]  # fmt: skip
        new.sort(key=lambda row: (row["modified"], byte_order(row["key"])))
        batch: list[dict[str, Any]] = []
        size = 0
        for row in new[: self.most]:
            size += row["size"]
            if batch and size > self.bytes:
                break
            batch.append(row)
        if commit:
            for key in gone:
                del self.known[key]
            self.known |= {row["key"]: (row["key"], row["etag"], row["size"]) for row in batch}
        return sorted((row["key"] for row in batch), key=byte_order), len(gone), len(batch) < len(new)


def run(job: Job, commit: bool) -> FileDelta:
    if commit:
        job.take()
        return job.last
    return job.bookmark().new_files()


quick = settings(max_examples=cases(20, long=400))


@settings(max_examples=cases(40, long=800))
@given(RUNS, LIMITS, st.integers(1, 5))
def test_each_batch_is_that_of_the_model_when_a_source_changes_at_random(runs: Any, limits: Any, page: int) -> None:
    job, model = Job(Bucket(page=page), **limits), Model(limits)

    for changes, commit in runs:
        change(job.bucket, changes)
        expected = model.take(job.bucket, commit)
        delta = run(job, commit)

        assert (keys_of(delta), delta.gone, delta.has_more) == expected
        job.bucket.wait(minutes=1)


@quick
@given(RUNS, LIMITS)
def test_drained_batches_are_complete_and_disjoint_when_there_are_limits(runs: Any, limits: Any) -> None:
    job = Job(Bucket(), **limits)

    for changes, _ in runs:
        change(job.bucket, changes)
        whole = Job(job.bucket)
        whole.state = job.state
        expected = set(keys_of(whole.bookmark().new_files()))
        batches = [job.take()]
        while job.last.has_more:
            batches.append(job.take())

        taken = [key for batch in batches for key in batch]
        assert len(taken) == len(set(taken))
        assert set(taken) == expected
        assert job.take() == []


@quick
@given(RUNS, LIMITS)
def test_times_never_fall_from_batch_to_batch_when_there_are_limits(runs: Any, limits: Any) -> None:
    job = Job(Bucket(), **limits)
    for changes, _ in runs:
        change(job.bucket, changes)

    times: list[tuple[datetime, datetime]] = []
    more = True
    while more:
        job.take()
        modified = job.last.table.column("modified").to_pylist()
        times += [(min(modified), max(modified))] if modified else []
        more = job.last.has_more

    assert all(earlier[1] <= later[0] for earlier, later in pairwise(times))


@quick
@given(RUNS)
def test_segments_stay_few_and_hold_nothing_gone_in_the_oldest_when_runs_follow_each_other(runs: Any) -> None:
    job = Job(Bucket())

    for changes, _ in runs:
        change(job.bucket, changes)
        job.take()

        counts = [segment["count"] for segment in job.segments()]
        assert all(older > 2 * newer for older, newer in pairwise(counts))
        if counts:
            oldest = job.bookmark().ledger.read(job.segments()[0])
            assert "gone" not in oldest.column("status").to_pylist()
