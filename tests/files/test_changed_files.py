"""Planned files that change before the commit: the run raises, skips them until the next batch, or reads versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scripts.helpers.errors import ChangedObjectError, InvalidValueError
from scripts.helpers.files.delta import FileDelta
from scripts.helpers.job import IncrementalJob
from scripts.helpers.listing import listing
from scripts.helpers.watermarks import Watermarks
from tests.support.buckets import keys_of


class Runs:
    """Runs of one job over a bucket; each freezes its plan before it does anything else."""

    def __init__(self, watermarks: Watermarks, job_id: str, s3: Any, bucket: str) -> None:
        self.watermarks, self.job_id, self.s3, self.bucket = watermarks, job_id, s3, bucket

    def put(self, body: str, *keys: str) -> None:
        for key in keys:
            self.s3.put_object(Bucket=self.bucket, Key=f"landing/{key}", Body=body.encode())

    def delete(self, key: str, **version: str) -> None:
        self.s3.delete_object(Bucket=self.bucket, Key=f"landing/{key}", **version)

    def version_of(self, key: str) -> str:
        found: str = self.s3.head_object(Bucket=self.bucket, Key=f"landing/{key}")["VersionId"]
        return found

    def run(self, work: Callable[[FileDelta], Any] = lambda _: None, **options: Any) -> list[str]:
        with IncrementalJob(self.watermarks, self.job_id, s3_client=self.s3) as job:
            delta = job.new_files(f"s3://{self.bucket}/landing/", **options)
            job.freeze()
            work(delta)
        return keys_of(delta)

    @property
    def version(self) -> int:
        return self.watermarks.latest(self.job_id).version


@pytest.fixture
def runs(watermarks: Watermarks, job_id: str, s3: Any, bucket: str) -> Runs:
    found = Runs(watermarks, job_id, s3, bucket)
    found.put("1", "a.csv", "b.csv", "c.csv")
    return found


@pytest.fixture
def versioned(runs: Runs, s3: Any, bucket: str) -> Runs:
    """Return runs over a bucket that keeps versions."""
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    runs.put("1", "a.csv", "b.csv", "c.csv")
    return runs


def change(runs: Runs) -> None:
    runs.put("2", "a.csv")
    runs.delete("b.csv")


def fail_to_commit(runs: Runs, read: Any = lambda _: None, **options: Any) -> ChangedObjectError:
    with pytest.raises(ChangedObjectError) as caught:
        runs.run(lambda delta: (read(delta), change(runs)), **options)
    return caught.value


# --- error ---------------------------------------------------------------------------------------------------------


def test_nothing_is_committed_and_the_replay_raises_at_once_when_planned_files_change(runs: Runs) -> None:
    first = fail_to_commit(runs)

    with pytest.raises(ChangedObjectError) as again:
        runs.run(lambda _: pytest.fail("the replay went on"))

    for error in (first, again.value):
        assert (error.overwritten, error.deleted) == (("a.csv",), ("b.csv",))
        assert "overwritten: 'a.csv'; deleted: 'b.csv'" in str(error)
    assert runs.version == 0


def test_plan_is_committed_as_it_is_when_nobody_looks_again(runs: Runs) -> None:
    taken = runs.run(lambda _: change(runs), on_changed=None)

    assert taken == ["a.csv", "b.csv", "c.csv"]
    assert runs.run(on_changed=None) == ["a.csv"]


# --- objects without a version ----------------------------------------------------------------------------------


@pytest.mark.parametrize("suspended", [False, True])
def test_overwrite_is_new_when_the_bucket_keeps_no_versions(
    runs: Runs, caplog: pytest.LogCaptureFixture, suspended: bool
) -> None:
    if suspended:
        for status in ("Enabled", "Suspended"):
            runs.s3.put_bucket_versioning(Bucket=runs.bucket, VersioningConfiguration={"Status": status})
    first = runs.run(versioned=True)

    runs.put("2", "a.csv")

    assert first == ["a.csv", "b.csv", "c.csv"]
    assert runs.run(versioned=True) == ["a.csv"]
    assert runs.run(versioned=True) == []
    assert "event=without_versions" in caplog.text
    assert "files=3 of=3: the bucket keeps no versions of these, so versioned=True has no effect" in caplog.text


def test_object_is_new_when_it_gets_its_first_version(runs: Runs) -> None:
    runs.run(versioned=True)
    runs.s3.put_bucket_versioning(Bucket=runs.bucket, VersioningConfiguration={"Status": "Enabled"})

    runs.put("1", "a.csv")

    assert runs.run(versioned=True) == ["a.csv"]


# --- skip ----------------------------------------------------------------------------------------------------------


def test_changed_files_come_in_the_next_batch_when_the_replay_skips_them(runs: Runs) -> None:
    fail_to_commit(runs, compare="mtime")

    replayed, after = runs.run(on_changed="skip", compare="mtime"), runs.run(compare="mtime")

    assert (replayed, after) == (["c.csv"], ["a.csv"])
    assert runs.run(compare="mtime") == []


def test_skipped_file_comes_in_the_next_batch_when_its_old_bytes_are_back(versioned: Runs) -> None:
    fail_to_commit_of_a_reader_without_versions(versioned)
    replayed = versioned.run(on_changed="skip", versioned=True)
    versioned.put("1", "a.csv")

    after = versioned.run(versioned=True)

    assert (replayed, after) == (["c.csv"], ["a.csv"])


@pytest.mark.parametrize("is_replay", [True, False])
def test_skip_is_refused_when_the_bucket_keeps_no_versions(runs: Runs, is_replay: bool) -> None:
    if is_replay:
        fail_to_commit(runs, versioned=True)

    with pytest.raises(InvalidValueError) as caught:
        runs.run(on_changed="skip", versioned=True)

    assert "keeps no versions of 3 planned files" in str(caught.value)
    assert runs.version == 0
    assert "c.csv" in runs.run(on_changed="skip", versioned=True, compare="mtime")


def fail_to_commit_of_a_reader_without_versions(runs: Runs) -> None:
    with pytest.raises(ChangedObjectError):
        runs.run(lambda delta: (delta.paths, change(runs)), versioned=True)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "would not see it if its old bytes are back by then. Use versioned=True or compare='mtime' with it"),
        ({"compare": "mtime", "on_modified": "skip"}, "where on_modified='skip' would not take it."),
        ({"versioned": True, "on_modified": "raise"}, "where on_modified='raise' would not take it."),
    ],
    ids=str,
)
def test_skip_is_refused_and_the_plan_stays_when_a_file_could_be_lost(
    runs: Runs, options: dict[str, Any], text: str
) -> None:
    fail_to_commit(runs, **options | {"versioned": False})

    with pytest.raises(InvalidValueError) as caught:
        runs.run(on_changed="skip", **options)

    assert "on_changed='skip' leaves a changed file to the next batch" in str(caught.value)
    assert text in str(caught.value)
    assert runs.version == 0
    assert runs.run(on_changed=None, **options) == ["a.csv", "b.csv", "c.csv"]


def test_on_changed_is_refused_when_it_is_not_known(runs: Runs) -> None:
    with pytest.raises(InvalidValueError, match=r"'on_changed': 'ignore' is unknown\. Use 'raise', 'skip' or None\."):
        runs.run(on_changed="ignore")

    assert runs.version == 0


# --- files that were read as they were planned -----------------------------------------------------------------------


def test_new_content_is_in_the_next_batch_when_a_file_changes_after_pandas_has_read_it(runs: Runs) -> None:
    taken = runs.run(lambda delta: (delta.read_pandas("csv"), change(runs)))

    assert (taken, runs.version) == (["a.csv", "b.csv", "c.csv"], 1)
    assert runs.run() == ["a.csv"]


@pytest.mark.parametrize(
    "read",
    [
        lambda delta: delta.split(lambda key: key)["c.csv"].read_pandas("csv"),
        lambda delta: (delta.read_pandas("csv"), delta.paths),
    ],
    ids=["one of them", "in another way, too"],
)
def test_nothing_is_committed_when_a_file_changes_that_pandas_alone_has_not_read(runs: Runs, read: Any) -> None:
    error = fail_to_commit(runs, read)

    assert (error.overwritten, error.deleted, runs.version) == (("a.csv",), ("b.csv",), 0)


# --- versions ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["heads", "listing"])
def looked_at(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look up objects one by one, or by listing them."""
    if request.param == "listing":
        monkeypatch.setattr(listing, "APART", 0)
        monkeypatch.setattr(listing, "PAYS", 1)


@pytest.mark.usefixtures("looked_at")
def test_batch_is_committed_when_its_versions_are_there_although_others_followed(versioned: Runs) -> None:
    taken = versioned.run(lambda _: change(versioned), versioned=True)

    assert taken == ["a.csv", "b.csv", "c.csv"]
    assert versioned.version == 1
    assert versioned.run(versioned=True) == ["a.csv"]


@pytest.mark.usefixtures("looked_at")
def test_nothing_is_committed_when_a_planned_version_is_gone(versioned: Runs) -> None:
    planned = versioned.version_of("b.csv")

    with pytest.raises(ChangedObjectError) as caught:
        versioned.run(lambda _: (change(versioned), versioned.delete("b.csv", VersionId=planned)), versioned=True)

    assert (caught.value.overwritten, caught.value.deleted) == ((), ("b.csv",))
    assert versioned.version == 0


@pytest.mark.parametrize("read", [lambda delta: delta.paths, lambda delta: delta.split(len)[5].paths])
@pytest.mark.usefixtures("looked_at")
def test_nothing_is_committed_when_files_were_read_without_their_version_and_others_followed(
    versioned: Runs, read: Any
) -> None:
    with pytest.raises(ChangedObjectError) as caught:
        versioned.run(lambda delta: (read(delta), change(versioned)), versioned=True)

    assert (caught.value.overwritten, caught.value.deleted) == (("a.csv",), ("b.csv",))
    assert versioned.version == 0
