"""Files found through the journal of S3 Metadata: the same as by a listing, without listing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.helpers.errors import InvalidValueError
from scripts.helpers.files import bookmark as bookmark_module
from scripts.helpers.job import IncrementalJob
from scripts.helpers.listing import listing
from scripts.helpers.listing.listing import Location
from scripts.helpers.listing.metadata_tables import CHANGES, S3MetadataInventory, S3MetadataJournal
from scripts.helpers.listing.objects import Interval
from scripts.helpers.watermarks import Watermarks
from tests.support.buckets import Job
from tests.support.long import cases
from tests.support.metadata_tables import NAMESPACE, MetadataTables

JOB = "parking"


class World:
    """An S3 bucket with its metadata tables, and a job on it. Requests to S3 are counted by their names."""

    def __init__(self, watermarks: Watermarks, endpoint: str, bucket: str, folder: Path) -> None:
        self.watermarks, self.bucket, self.source = watermarks, bucket, f"s3://{bucket}/in/"
        self.s3 = boto3.client("s3", endpoint_url=endpoint)
        self.asked: list[str] = []
        self.s3.meta.events.register("before-call.s3", lambda model, **_: self.asked.append(model.name))
        self.tables = MetadataTables(folder / "tables", bucket)
        self._runs = 0

    def put(self, *names: str, body: str = "id\n1\n", recorded: bool = True, storage_class: Any = "STANDARD") -> None:
        for name in names:
            made = self.s3.put_object(
                Bucket=self.bucket, Key=f"in/{name}", Body=body.encode(), StorageClass=storage_class
            )
            etag = made["ETag"].strip('"')
            if recorded:
                self.tables.record(self.tables.row(f"in/{name}", e_tag=etag, size=len(body)))

    def delete(self, name: str) -> None:
        self.s3.delete_object(Bucket=self.bucket, Key=f"in/{name}")
        self.tables.record(self.tables.deleted(f"in/{name}"))

    @property
    def journal(self) -> S3MetadataJournal:
        return S3MetadataJournal(self.tables.catalog, NAMESPACE, clock=lambda: self.tables.now)

    def run(self, mode: Any = "enable", **options: Any) -> list[str]:
        """Run the job, commit, and return the names of the files it took."""
        self._runs += 1
        self.asked.clear()
        given: dict[str, Any] = {"on_changed": None, "metadata": self.journal} | options
        with IncrementalJob(self.watermarks, JOB, f"jr_{self._runs}", s3_client=self.s3, mode=mode) as job:
            return [file.key for file in job.new_files(self.source, **given).files]

    @property
    def state(self) -> Any:
        return self.watermarks.get_watermark_values(JOB)["files"]


@pytest.fixture
def world(make_watermarks: Callable[..., Watermarks], endpoint: str, bucket: str, tmp_path: Path) -> World:
    return World(make_watermarks(clock=lambda: datetime.now(timezone.utc)), endpoint, bucket, tmp_path)


def test_nothing_is_listed_and_only_changes_are_asked_when_the_journal_was_read_before(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.put("a.csv", "b.csv", "c.csv")
    with caplog.at_level(logging.WARNING):
        first = world.run()
    assert "ListObjectsV2" in world.asked
    world.put("d.csv")
    world.put("a.csv", body="another")
    world.delete("b.csv")

    second, asked = world.run(), sorted(world.asked)
    third, idle = world.run(), list(world.asked)

    assert (first, second, third) == (["a.csv", "b.csv", "c.csv"], ["a.csv", "d.csv"], [])
    assert asked == ["HeadObject"] * 3
    # Records of the last day are read again. The old record of a.csv and that of b.csv do not match the ledger.
    assert idle == ["HeadObject"] * 2
    assert "event=journal_not_enough" in caplog.text
    assert "the whole source is listed, because the journal is read for the first time" in caplog.text


def test_what_s3_says_counts_when_the_journal_is_behind(world: World) -> None:
    world.put("a.csv")
    world.run()
    world.put("b.csv", "gone.csv")
    world.put("b.csv", body="newer than its record", recorded=False)
    world.s3.delete_object(Bucket=world.bucket, Key="in/gone.csv")
    world.tables.record(world.tables.deleted("in/a.csv"))  # It was put back, but the record of that is not there yet.
    world.tables.record(world.tables.deleted("in/never seen.csv"))

    taken, asked = world.run(), len(world.asked)

    assert (taken, asked) == (["b.csv"], 3)
    assert world.run(metadata=None) == []


def test_new_version_is_taken_when_an_older_one_was_deleted_after_it(world: World) -> None:
    world.run()
    world.put("a.csv")
    world.tables.record(world.tables.deleted("in/a.csv", version_id="v1"))

    assert world.run() == ["a.csv"]


def test_position_is_that_of_the_plan_when_a_run_dies_and_is_replayed(world: World) -> None:
    world.put("a.csv")
    world.run()
    before = world.state["metadata"]
    world.tables.wait(minutes=5)
    world.put("b.csv")
    with (
        pytest.raises(ZeroDivisionError),
        IncrementalJob(world.watermarks, JOB, "jr_dead", s3_client=world.s3) as job,
    ):
        job.new_files(world.source, metadata=world.journal, on_changed=None)
        job.freeze()
        raise ZeroDivisionError
    planned_until = world.tables.now
    kept = world.state["metadata"]
    world.tables.wait(minutes=5)
    world.put("c.csv")

    replayed, after, next_run = world.run(), world.state["metadata"], world.run()

    assert (kept, replayed, next_run) == (before, ["b.csv"], ["c.csv"])
    assert after["until"] == planned_until


def test_position_stays_when_a_limit_leaves_files(world: World) -> None:
    world.put("a.csv")
    world.run()
    before = world.state["metadata"]
    world.tables.wait(days=3)
    world.put("b.csv", "c.csv")

    first, between, second = world.run(max_files=1), world.state["metadata"], world.run(max_files=1)

    assert (first, between, second) == (["b.csv"], before, ["c.csv"])
    assert world.state["metadata"]["until"] == world.tables.now


def test_position_moves_on_when_an_archived_file_is_skipped(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.put("a.csv")
    world.put("cold.csv", storage_class="GLACIER")
    first, position = world.run(on_archived="skip"), world.state["metadata"]
    world.tables.wait(days=3)
    world.put("b.csv")
    world.put("colder.csv", storage_class="DEEP_ARCHIVE")
    caplog.clear()

    second, later = world.run(on_archived="skip"), world.state["metadata"]
    world.tables.wait(days=3)
    world.put("cold.csv")
    back = world.run(on_archived="skip")

    assert (first, second, back) == (["a.csv"], ["b.csv"], ["cold.csv"])
    assert later["until"] - position["until"] == timedelta(days=3)
    assert "event=journal_not_enough" not in caplog.text
    assert "ListObjectsV2" not in world.asked


@pytest.mark.parametrize(
    ("lose", "why"),
    [
        (lambda world: world.tables.make(), "the journal is another table than before: it was created again"),
        (lambda world: world.tables.expire_records(world.tables.now), "have expired"),
    ],
    ids=["made anew", "records expired"],
)
def test_everything_is_looked_at_when_the_journal_does_not_say_all(
    world: World, caplog: pytest.LogCaptureFixture, lose: Callable[[World], None], why: str
) -> None:
    world.put("a.csv")
    world.run()
    world.put("unrecorded.csv", recorded=False)
    world.tables.wait(days=10)
    lose(world)
    world.put("b.csv")

    with caplog.at_level(logging.WARNING):
        taken = world.run()
    world.put("c.csv")
    following = world.run()

    assert (taken, following) == (["b.csv", "unrecorded.csv"], ["c.csv"])
    assert why in caplog.text
    assert "ListObjectsV2" not in world.asked


class OldReport:
    """A report that lacks what was written in the last two days."""

    created = datetime.now(timezone.utc) - timedelta(days=2)

    def list_objects(self, location: Location) -> list[Interval]:
        return []


class ReportBeforeTheListing(OldReport):
    """A report created an hour before the first run listed the source."""

    created = datetime.now(timezone.utc) - timedelta(hours=1)


def test_source_is_listed_when_the_report_is_older_than_the_last_listing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.put("a.csv")
    world.run()
    world.tables.wait(days=-1)
    world.put("late.csv", recorded=False)
    world.tables.make("journal")
    world.tables.record(world.tables.row("in/a.csv", e_tag="e", size=5))

    taken = world.run(listing=ReportBeforeTheListing())

    assert taken == ["late.csv"]
    assert "listing= ends before the last listing or the journal's next record, and is not read" in caplog.text


@pytest.mark.parametrize("cause", ["journal made anew", "report is old"])
def test_source_is_listed_when_neither_the_journal_nor_a_report_shows_what_was_written_in_between(
    world: World, caplog: pytest.LogCaptureFixture, cause: str
) -> None:
    inventory = S3MetadataInventory(world.tables.catalog, NAMESPACE)
    listing: Any = inventory if cause == "journal made anew" else OldReport()
    world.put("a.csv")
    world.run()
    world.tables.list(world.tables.row("out/a.csv", e_tag="e", size=1))
    world.put("late.csv")
    world.tables.wait(days=2)
    world.tables.make("journal") if listing is inventory else world.tables.expire_records(world.tables.now)
    world.put("b.csv", recorded=cause == "report is old")

    taken = world.run(listing=listing)

    assert taken == ["b.csv", "late.csv"]
    assert "listing= ends before the last listing or the journal's next record, and is not read" in caplog.text


def test_source_is_listed_when_it_was_not_for_so_long_or_too_many_are_named(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.put("a.csv")
    world.run()
    world.put("lost.csv", recorded=False)

    soon = world.run(relist=timedelta(days=1))
    due = world.run(relist=timedelta(0))
    monkeypatch.setattr(bookmark_module, "MAX_ASKED", 1)
    world.put("b.csv", "c.csv")
    many = world.run()

    assert (soon, due, many) == ([], ["lost.csv"], ["b.csv", "c.csv"])
    assert "because it was not listed for 0:00:00" in caplog.text
    assert "more objects than S3 is asked about one by one" in caplog.text


def test_nothing_is_ever_listed_when_the_live_inventory_shows_all_of_a_first_run(world: World) -> None:
    world.put("a.csv", "b.csv")
    etag = world.s3.head_object(Bucket=world.bucket, Key="in/a.csv")["ETag"]
    rows = [world.tables.row(f"in/{name}.csv", e_tag=etag, size=5) for name in "ab"]
    world.tables.list(*rows)

    taken = world.run(listing=S3MetadataInventory(world.tables.catalog, NAMESPACE))
    asked = list(world.asked)
    world.put("c.csv")

    assert (taken, asked) == (["a.csv", "b.csv"], ["HeadObject", "HeadObject"])
    assert world.run(listing=S3MetadataInventory(world.tables.catalog, NAMESPACE)) == ["c.csv"]


def test_neighbours_are_looked_at_by_one_page_when_the_journal_names_many(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "PAYS", 3)
    monkeypatch.setattr(listing, "APART", 5)
    world.run()
    names = [f"day=1/{number}.csv" for number in range(8)]
    world.put("day=1/0.old.csv", recorded=False)
    world.put(*names)
    world.delete(names[4])

    assert world.run() == [*names[:4], *names[5:]]
    assert world.asked == ["ListObjectsV2", "HeadObject", "HeadObject"]


def test_nothing_is_saved_when_the_job_is_paused(world: World) -> None:
    world.put("a.csv")
    world.run()
    world.put("b.csv")
    before = world.state

    paused = world.run("pause")

    assert (paused, world.state, world.run()) == (["b.csv"], before, ["b.csv"])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"events": object()}, "events and metadata both name changed objects"),
        ({"relist": timedelta(-1)}, "relist is"),
        ({"relist": timedelta(1), "metadata": None}, "Give it with events or metadata only"),
    ],
)
def test_error_is_raised_before_anything_is_read_when_options_do_not_fit(
    world: World, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidValueError, match=text):
        world.run(**options)

    assert world.asked == []


KEYS = st.sampled_from(["a.csv", "b.csv", "day=1/c.csv"])
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, st.sampled_from(["1", "2", "3"])),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("read"), st.lists(st.integers(0, 30), max_size=4)),
    st.tuples(st.just("list")),
)


@settings(max_examples=cases(30, long=2_000), deadline=None)
@given(steps=st.lists(STEPS, max_size=25), versioned=st.booleans())
def test_journal_brings_what_a_listing_brings_when_records_are_late_or_repeated(
    steps: list[tuple[Any, ...]], versioned: bool
) -> None:
    """Each read shows any of the records, in any order and any number of times; the last one shows all of them."""
    job = Job(versioned=versioned)
    records: list[dict[str, Any]] = []
    taken: list[tuple[str, Any]] = []

    def read(chosen: list[dict[str, Any]]) -> None:
        found = job.bookmark().find_recorded(pa.Table.from_pylist(chosen, CHANGES), job.bucket.now, {})
        assert found is not None
        count(found.delta.files)
        job.commit(found)

    def count(files: Any) -> None:
        for file in files:
            row = job.bucket.objects[file.key]
            taken.append((file.key, row["version_id"] or row["etag"]))

    for number, step in enumerate(steps):
        job.bucket.wait(minutes=1)
        if step[0] == "put":
            job.bucket.put(step[1], body=step[2])
            job.bucket.objects[step[1]]["version_id"] = f"v{number}" if versioned else None
            row = job.bucket.objects[step[1]]
            records.append({name: row.get(name) for name in CHANGES.names} | {"deleted": False})
        elif step[0] == "delete":
            job.bucket.delete(step[1])
            records.append({"key": step[1], "deleted": True})
        elif step[0] == "read":
            read([records[place % len(records)] for place in step[1]] if records else [])
        else:
            job.take()
            count(job.last.files)

    read(records)
    assert job.take() == []
    there = {key: row["version_id"] or row["etag"] for key, row in job.bucket.objects.items()}
    assert {key for key in there if (key, there[key]) not in taken} == set()
    if versioned:
        assert len(taken) == len(set(taken)), "a version is taken twice"
