"""explain: when and by which run a file was taken, or why it was not."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import boto3
import pytest

from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.files.explanation import Explanation, explained
from scripts.helpers.files.set_aside import RETRY, SKIP, WAITING, SetAside
from tests.support.buckets import NOON, SOURCE, Job, Table

ETAG_X = "9dd4e461268c8034f5c8564e155c67a6"


def test_taken_file_is_explained_with_version_and_run_when_it_is_there() -> None:
    job = Job()
    job.take()
    job.bucket.put("a.csv")
    job.take()

    found = job.bookmark().explain("a.csv")

    assert found == Explanation(
        "a.csv", "taken", "taken at version 2 by run run-2", 2, "run-2", ETAG_X, 1, NOON
    )  # fmt: skip


def test_first_run_of_a_file_is_still_named_when_later_runs_merged_its_segment() -> None:
    job = Job()
    for number in range(20):
        job.bucket.put(f"{number}.csv")
        job.take()

    found = [job.bookmark().explain(f"{number}.csv") for number in range(20)]

    assert [(one.version, one.run_id) for one in found] == [(number, f"run-{number}") for number in range(1, 21)]
    assert len(job.segments()) < 20


def overwrite(job: Job) -> None:
    job.bucket.put("a.csv", body="other")


def delete(job: Job) -> None:
    job.bucket.delete("a.csv")


def delete_and_run(job: Job) -> None:
    job.bucket.put(*(f"other-{number}" for number in range(9)))
    job.take()
    job.bucket.delete("a.csv")
    job.take()


def delete_run_and_put(job: Job) -> None:
    delete_and_run(job)
    job.bucket.put("a.csv")


def take_again(job: Job) -> None:
    overwrite(job)
    job.take()


def ignore(job: Job) -> None:
    job.options["on_modified"] = "skip"
    take_again(job)


@pytest.mark.parametrize(
    ("then", "status", "reason", "version"),
    [
        (overwrite, "taken", "taken at version 1 by run run-1; it has changed since", 1),
        (delete, "taken", "taken at version 1 by run run-1; it is not there any more", 1),
        (delete_and_run, "gone", "gone at version 3 by run run-3", 3),
        (delete_run_and_put, "new", "the next batch may take it", None),
        (take_again, "taken", "taken at version 2 by run run-2", 2),
        (ignore, "ignored", "ignored at version 2 by run run-2", 2),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_taken_file_is_explained_when_something_happened_since(
    then: Any, status: str, reason: str, version: int | None
) -> None:
    job = Job()
    job.bucket.put("a.csv")
    job.take()
    then(job)

    found = job.bookmark().explain("a.csv")

    assert (found.state, found.reason, found.version) == (status, reason, version)


@pytest.mark.parametrize(
    ("options", "key", "status", "reason"),
    [
        ({}, "a.csv", "new", "the next batch may take it"),
        ({}, "none.csv", "unknown", "it is not there, and nothing is remembered of it"),
        ({}, "sub/_x", "unknown", "Spark hides it: a name in its path starts with _ or ., or it marks a folder"),
        ({"min_size": 5}, "a.csv", "unknown", "its 1 bytes are fewer than min_size=5"),
        ({"include": ["*.json"]}, "a.csv", "unknown", "no glob of include=['*.json'] fits"),
        ({"exclude": ["*.csv"]}, "a.csv", "unknown", "a glob of exclude=['*.csv'] fits"),
        ({}, "cold.csv", "unknown", "it is archived (GLACIER)"),
        ({"on_archived": "take"}, "cold.csv", "new", "the next batch may take it"),
    ],
)
def test_file_that_was_not_taken_is_explained_when_a_rule_left_it_or_none_did(
    options: dict[str, Any], key: str, status: str, reason: str
) -> None:
    job = Job(**options)
    job.bucket.put("a.csv", "sub/_x")
    job.bucket.put("cold.csv", storage_class="GLACIER")

    found = job.bookmark().explain(key)

    assert (found.state, found.reason, found.version, found.run_id) == (status, reason, None, None)


LEFT_FOR_GOOD: dict[str, Any] = {
    "kind": "files", "source": SOURCE, "format": 1, "listed": NOON,
    "segments": [{
        "count": 1, "sha256": "31ebf6bae847d9fee0baea16ca8c8e15dabc8c6cb82b6ed095cba9d1df871c15",
        "data": base64.b64decode(
            "eNo9jd0KwjAUg98l11XWrT2tfRURKe2ZFucG7TZQ8d2tP5irQL4kD1z4BrdHmIa4DWXFQYBnf4LDLkbFimRLNtimU70OVpNiqXUg4wkCK+eS"
            "pvGYIty4DINASXeGkwLXKaY+cQ2kMR1Rq5qfKjT7eSn1wudwTmuF/lOfbl6+k2+zkXi+ABN9McE="
        ),
    }],
}  # fmt: skip
"""A state that records the GLACIER object cold.csv as skipped forever, which no current option does."""


def test_archived_file_is_explained_and_stays_when_an_earlier_version_left_it_for_good() -> None:
    job = Job(on_archived="skip")
    job.state, job.version = LEFT_FOR_GOOD, 1
    job.bucket.put("cold.csv", storage_class="STANDARD")

    found, taken = job.bookmark().explain("cold.csv"), job.take()

    assert (found.state, found.reason) == ("archived", "archived at version 1 by run run-1")
    assert taken == []


@pytest.mark.parametrize("key", ["a", "a.csv", "sub/a.csv", "sub/deep/é +%20.csv", "x;y=z", "🎉"])
@pytest.mark.parametrize("place", ["s3", "local"])
def test_file_is_looked_for_at_the_source_when_it_is_explained(
    endpoint: str, bucket: str, tmp_path: Path, key: str, place: str
) -> None:
    client = boto3.client("s3", endpoint_url=endpoint)
    source = f"s3://{bucket}/in/" if place == "s3" else str(tmp_path)
    neighbours = [f"{key}0", f"{key[:-1]}!", f"{key[:-1]}zz", "other"]
    for name in [key, *neighbours]:
        client.put_object(Bucket=bucket, Key=f"in/{name}", Body=b"x")
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    first = FileBookmark(source, s3_client=client, taken_by=(1, "jr_1"))
    before = first.explain(key)
    first.new_files()

    second = FileBookmark(source, s3_client=client, state=Table().stored(first.state_after))

    assert (before.state, before.size) == ("new", 1)
    assert second.explain(key).reason == "taken at version 1 by run jr_1"
    assert second.explain(f"{key}none").state == "unknown"


@pytest.mark.parametrize(
    ("decision", "more"),
    [(WAITING, ""), (RETRY, "; the next batch takes it"), (SKIP, "; a person marked it as done")],
)
def test_file_that_is_set_aside_is_explained_with_what_a_person_decided(decision: str, more: str) -> None:
    aside = SetAside("a.csv", ETAG_X, None, 1, NOON, "it is not a gz file", 3, "run-3", decision)
    options = FileBookmark("s3://raw/").options

    found = explained("a.csv", None, None, options, aside=aside)

    reason = f"it is not a gz file: set aside at version 3 by run run-3{more}"
    assert found == Explanation("a.csv", "set_aside", reason, 3, "run-3", ETAG_X, 1, NOON)
