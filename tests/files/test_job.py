"""File bookmarks in a job: exact replay, chunks shared by plan and state, rewinds, and events after the commit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from scripts.helpers.errors import (
    CommitUnknownError,
    FencedError,
    InvalidValueError,
    LedgerError,
    SourceError,
    StoreUnavailableError,
)
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.files.delta import FileDelta
from scripts.helpers.job import IncrementalJob
from scripts.helpers.listing.listing import Lister
from scripts.helpers.protocol.chunks import references
from scripts.helpers.watermarks import DEFAULT_LEASE, Watermarks
from tests.support.buckets import SOURCE, Bucket, keys_of
from tests.support.clock import Clock
from tests.support.events import Events
from tests.support.faults import Faults, Wire, head_write
from tests.support.reasons import because
from tests.support.steps import KilledError
from tests.support.table_items import Stored, all_items, chunk_keys

WHY: dict[str, Any] = {"why": "a test", "who": "tester"}


class Ingestion:
    """A bucket, and the runs of one job over it."""

    def __init__(self, watermarks: Watermarks, job_id: str, clock: Clock) -> None:
        self.watermarks, self.job_id, self.clock = watermarks, job_id, clock
        self.bucket = Bucket()
        self.options: dict[str, Any] = {"listing": self.bucket}
        self.delta: FileDelta

    def land(self, count: int, folder: str = "") -> list[str]:
        """Put objects; 200 or more make their segment large enough to be stored in chunks."""
        keys = [f"{folder}{number:05}.csv" for number in range(count)]
        for key in keys:
            self.bucket.put(key, body=key)
        self.bucket.wait(minutes=1)
        return keys

    def run(self, *, die: bool = False, run_id: str | None = None, **options: Any) -> list[str]:
        with IncrementalJob(self.watermarks, self.job_id, run_id, clock=self.clock) as job:
            self.delta = job.new_files(
                SOURCE, transformation_ctx="parking", on_changed=None, **{**self.options, **options}
            )
            job.freeze()
            if die:
                raise KilledError
        return keys_of(self.delta)

    def die(self, **options: Any) -> list[str]:
        with pytest.raises(KilledError):
            self.run(die=True, **options)
        return keys_of(self.delta)

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.watermarks.get_watermark_values(self.job_id)["parking"]
        return found

    @property
    def version(self) -> int:
        return self.watermarks.latest(self.job_id).version


@pytest.fixture
def landing(watermarks: Watermarks, job_id: str, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Ingestion:
    """Return runs over a bucket in memory; its objects are looked up there too."""
    made = Ingestion(watermarks, job_id, clock)
    monkeypatch.setattr(Lister, "look_at_each", lambda _, keys: made.bucket.look_at_each(keys))
    return made


# --- replay --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 500], ids=["in the head", "in chunks"])
@pytest.mark.parametrize("where", ["table", "files"])
def test_replay_takes_exactly_the_plan_when_the_run_died_after_the_freeze(
    landing: Ingestion, tmp_path: Any, count: int, where: str
) -> None:
    if where == "files":
        landing.options["ledger_uri"] = f"{tmp_path}/ledger/"
    keys = landing.land(count)
    planned = landing.die()
    landing.land(5, "later/")
    landing.bucket.delete(keys[0])
    landing.bucket.put(keys[1], body="overwritten")

    replayed, after = landing.run(), landing.run()

    assert planned == replayed == keys
    assert after == [keys[1], *(f"later/{number:05}.csv" for number in range(5))]
    assert landing.delta.gone == 1
    assert landing.run() == []


def test_replay_is_that_of_a_bounded_batch_when_more_was_left(landing: Ingestion) -> None:
    keys = landing.land(700)
    landing.die(max_files=300)

    batches = [landing.run(max_files=9)]
    more = landing.delta.has_more
    batches += [landing.run(max_files=399), landing.run(max_files=399)]

    assert [len(batch) for batch in batches] == [300, 399, 1]
    assert more
    assert sorted(key for batch in batches for key in batch) == keys


def test_a_job_drains_the_source_when_it_loops_until_there_is_no_more(landing: Ingestion) -> None:
    keys, taken, runs = landing.land(50), [], 0
    while runs == 0 or landing.delta.has_more:
        taken += landing.run(max_files=7)
        runs += 1

    assert (sorted(taken), runs) == (keys, 8)
    assert landing.run() == []


def test_replay_is_refused_and_the_plan_stays_when_ledger_uri_is_not_given_any_more(
    landing: Ingestion, tmp_path: Any
) -> None:
    landing.land(3)
    planned = landing.die(ledger_uri=f"{tmp_path}/ledger/")

    with pytest.raises(LedgerError, match="Give the ledger_uri"):
        landing.run()

    assert landing.version == 0
    assert landing.run(ledger_uri=f"{tmp_path}/ledger/") == planned


# --- chunks --------------------------------------------------------------------------------------------------------


def test_plan_and_state_share_chunks_and_the_commit_keeps_them_when_a_batch_is_large(
    landing: Ingestion, stored: Stored
) -> None:
    landing.land(500)
    landing.die()
    planned = chunk_keys(stored())

    landing.run()

    assert len(planned) == 1
    assert chunk_keys(stored()) == planned
    assert FileBookmark(SOURCE, state=landing.state).new_files(landing.bucket).count == 0
    assert landing.watermarks.doctor(landing.job_id) == []


def test_chunks_of_a_batch_are_deleted_when_its_rows_were_merged_into_another_segment(
    landing: Ingestion, stored: Stored
) -> None:
    landing.land(300)
    landing.run()
    first = chunk_keys(stored())
    landing.land(300, "more/")
    landing.die()
    planned = chunk_keys(stored())

    landing.run()

    assert (len(first), len(planned), len(chunk_keys(stored()))) == (1, 3, 2)
    assert [segment["count"] for segment in landing.state["segments"]] == [600]
    assert landing.watermarks.doctor(landing.job_id) == []
    assert landing.run() == []


def test_commit_writes_less_than_64_kb_when_100_of_100_000_are_new(
    landing: Ingestion, hooked: Watermarks, wire: Wire
) -> None:
    landing.watermarks = hooked
    landing.land(100_000)
    landing.run()
    landing.land(100, "new/")
    wire.clear()

    taken = landing.run()

    assert len(taken) == 100
    assert sum(len(repr(request.body)) for request in wire.writes) < 64 * 1024


def test_retried_freeze_writes_the_chunks_again_when_they_could_not_be_written(
    landing: Ingestion, hooked: Watermarks, faults: Faults
) -> None:
    keys = landing.land(500)
    with IncrementalJob(hooked, landing.job_id, clock=landing.clock) as job:
        job.new_files(SOURCE, transformation_ctx="parking", listing=landing.bucket, on_changed=None)
        faults.drop(lambda request: (request.range_key or "").startswith("!s#"), times=100)
        with pytest.raises(StoreUnavailableError):
            job.freeze()
        faults.heal()
        job.freeze()

    assert keys_of_state(landing) == keys
    assert landing.watermarks.doctor(landing.job_id) == []


def keys_of_state(landing: Ingestion) -> list[str]:
    bookmark = FileBookmark(SOURCE, state=landing.state)
    found: list[str] = bookmark.ledger.known().between(None, None).column("key").to_pylist()
    return sorted(found)


# --- decisions of an operator --------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", [None, "parking"])
def test_rewind_brings_back_the_older_list_when_versions_expire(
    landing: Ingestion, make_watermarks: Callable[..., Watermarks], job_id: str, context: str | None
) -> None:
    landing.watermarks = make_watermarks(retention=timedelta(days=30))
    first = landing.land(300)
    landing.run()
    second = landing.land(300, "second/")
    landing.run()
    third = landing.land(300, "third/")
    landing.run()

    landing.watermarks.rewind(job_id, to_version=1, transformation_ctx=context, **WHY)

    assert keys_of_state(landing) == first
    assert landing.run() == [*second, *third]
    assert landing.watermarks.doctor(job_id) == []
    assert landing.watermarks.doctor(job_id, repair=True) == []
    assert landing.run() == []


def test_discarded_plan_leaves_no_chunks_and_harms_none_when_it_was_large(landing: Ingestion, stored: Stored) -> None:
    landing.land(500)
    landing.run()
    kept = chunk_keys(stored())
    landing.land(2_000, "more/")
    landing.die()

    landing.watermarks.discard_plan(landing.job_id, **WHY)

    assert chunk_keys(stored()) == kept
    assert landing.watermarks.doctor(landing.job_id) == []
    assert len(landing.run()) == 2_000


def test_list_of_one_job_becomes_that_of_another_when_it_is_added_there(landing: Ingestion) -> None:
    landing.land(500)
    landing.run()
    other = Ingestion(landing.watermarks, f"{landing.job_id}-copy", landing.clock)
    other.bucket = landing.bucket
    other.options = {"listing": other.bucket}
    run = landing.watermarks.begin(other.job_id, "r1")
    run.freeze({}, {"parking": landing.state})
    run.commit()
    landing.watermarks.reset(landing.job_id, **WHY)

    assert other.run() == []
    assert landing.watermarks.doctor(other.job_id) == []


def test_list_of_one_job_becomes_that_of_another_when_it_is_set_there(landing: Ingestion) -> None:
    landing.land(500)
    landing.run()
    other = Ingestion(landing.watermarks, f"{landing.job_id}-copy", landing.clock)
    other.bucket = landing.bucket
    other.options = {"listing": other.bucket}

    landing.watermarks.set_watermark(other.job_id, {"parking": landing.state}, **WHY)

    assert other.run() == []
    assert landing.watermarks.doctor(other.job_id) == []


@pytest.mark.parametrize("how", ["set", "freeze"])
def test_list_of_an_old_version_does_not_expire_when_it_is_declared_anew(
    landing: Ingestion, make_watermarks: Callable[..., Watermarks], job_id: str, how: str
) -> None:
    landing.watermarks = make_watermarks(retention=timedelta(days=30))
    first = landing.land(300)
    landing.run(run_id="r1")
    landing.land(300, "second/")
    landing.run()
    old = landing.watermarks.get_watermark_values(job_id, "r1")

    if how == "set":
        landing.watermarks.set_watermark(job_id, old, **WHY)
    else:
        run = landing.watermarks.begin(job_id, "r3")
        run.freeze({}, old)
        run.commit()

    used = {reference.id for reference in references(dict(landing.watermarks.latest(job_id).watermarks))}
    found = all_items(landing.watermarks)
    kept = [item for (_, key), item in found.items() if key.rpartition("#")[0].removeprefix("!") in used]
    assert keys_of_state(landing) == first
    assert [item for item in kept if "expiresAt" in item] == []
    assert len(kept) == 1


# --- another source ------------------------------------------------------------------------------------------------


def test_run_is_refused_and_nothing_changes_when_the_source_has_changed(landing: Ingestion, stored: Stored) -> None:
    landing.land(3)
    landing.run()
    before = stored()["~latest"]["watermarks"]

    with (
        pytest.raises(SourceError, check=because("changed")) as caught,
        IncrementalJob(landing.watermarks, landing.job_id) as job,
    ):
        job.new_files("s3://landing/other/", transformation_ctx="parking", listing=landing.bucket, on_changed=None)

    assert (caught.value.before, caught.value.source) == (SOURCE, "s3://landing/other/")
    assert stored()["~latest"]["watermarks"] == before


def test_replay_is_refused_when_the_source_has_changed_since_the_plan(landing: Ingestion) -> None:
    landing.land(3)
    planned = landing.die()

    with (
        pytest.raises(SourceError, check=because("changed")),
        IncrementalJob(landing.watermarks, landing.job_id) as job,
    ):
        job.new_files("s3://landing/other/", transformation_ctx="parking", listing=landing.bucket, on_changed=None)

    assert landing.run() == planned


# --- events --------------------------------------------------------------------------------------------------------


@pytest.fixture
def events(landing: Ingestion) -> Events:
    found = Events()
    landing.options = {"events": found}
    return found


def test_events_are_acknowledged_after_the_commit_when_all_is_well(landing: Ingestion, events: Events) -> None:
    events.sent += landing.land(3)
    seen: list[int] = []
    acknowledge = events.acknowledge
    events.acknowledge = lambda **given: (seen.append(landing.version), acknowledge(**given))[1]  # type: ignore[method-assign]

    taken = landing.run()

    assert taken == ["00000.csv", "00001.csv", "00002.csv"]
    assert (seen, events.log, events.sent) == ([1], ["receive", "acknowledge but "], [])


def test_left_keys_are_not_acknowledged_when_a_batch_is_bounded(landing: Ingestion, events: Events) -> None:
    events.sent += landing.land(3)

    first, left, second = landing.run(max_files=1), list(events.sent), landing.run(max_files=5)

    assert (first, left, second) == (["00000.csv"], ["00001.csv", "00002.csv"], left)
    assert events.log[1] == "acknowledge but 00001.csv,00002.csv"
    assert events.sent == []


def test_events_are_not_acknowledged_and_come_again_when_the_run_died(landing: Ingestion, events: Events) -> None:
    events.sent += landing.land(2)
    landing.die()
    after_death = list(events.log)
    replayed = landing.run()
    after_replay = list(events.log)

    again = landing.run()

    assert (after_death, after_replay) == (["receive"], ["receive"])
    assert (replayed, again) == (["00000.csv", "00001.csv"], [])
    assert events.sent == []


def test_events_are_not_acknowledged_when_another_run_took_over(landing: Ingestion, events: Events) -> None:
    events.sent += landing.land(2)

    def sleep_over_the_lease() -> None:
        with IncrementalJob(landing.watermarks, landing.job_id, clock=landing.clock) as job:
            job.new_files(SOURCE, transformation_ctx="parking", events=events, on_changed=None)
            landing.clock.move(seconds=DEFAULT_LEASE.total_seconds() + 1)
            landing.watermarks.begin(landing.job_id, "jr_new")
            job.freeze()

    with pytest.raises(FencedError):
        sleep_over_the_lease()

    assert (events.log, len(events.sent)) == (["receive"], 2)


def test_events_are_acknowledged_when_another_run_committed_the_same_plan(landing: Ingestion, events: Events) -> None:
    events.sent += landing.land(2)
    with IncrementalJob(landing.watermarks, landing.job_id, clock=landing.clock) as job:
        job.new_files(SOURCE, transformation_ctx="parking", events=events, on_changed=None)
        job.freeze()
        landing.clock.move(seconds=DEFAULT_LEASE.total_seconds() + 1)
        landing.watermarks.begin(landing.job_id, "jr_new").commit()
        outcome = job.commit()

    assert outcome == "already"
    assert (events.log, events.sent) == (["receive", "acknowledge but "], [])


def test_events_are_not_acknowledged_when_the_outcome_of_the_commit_is_unknown(
    landing: Ingestion, events: Events, hooked: Watermarks, faults: Faults
) -> None:
    events.sent += landing.land(2)

    def lose_the_answer() -> None:
        with IncrementalJob(hooked, landing.job_id, clock=landing.clock) as job:
            job.new_files(SOURCE, transformation_ctx="parking", events=events, on_changed=None)
            job.freeze()
            faults.reply_lost(head_write)
            faults.drop(lambda request: faults.hits > 0 and not faults.healed, times=100)
            job.commit()

    with pytest.raises(CommitUnknownError):
        lose_the_answer()
    faults.heal()

    assert (events.log, len(events.sent)) == (["receive"], 2)
    assert landing.run() == []
    assert events.sent == []


def test_what_was_there_is_known_when_a_job_with_events_begins_now(landing: Ingestion, events: Events) -> None:
    landing.options |= {"start_from": "now", "listing": landing.bucket}
    landing.land(3)
    events.sent.append("00000.csv")
    first = landing.run()
    landing.bucket.put("told.csv")
    events.sent.append("told.csv")

    second = landing.run()
    landing.options = {"listing": landing.bucket}

    assert (first, second, landing.run()) == ([], ["told.csv"], [])


def test_everything_is_taken_when_the_bookmark_is_disabled_wherever_it_would_begin(landing: Ingestion) -> None:
    landing.land(3)

    with IncrementalJob(landing.watermarks, landing.job_id, mode="disable", clock=landing.clock) as job:
        delta = job.new_files(SOURCE, listing=landing.bucket, start_from="now", on_changed=None)

    assert delta.count == 3


def test_source_is_listed_when_the_last_listing_is_older_than_asked(landing: Ingestion, events: Events) -> None:
    landing.options |= {"relist": timedelta(days=1), "listing": landing.bucket}
    landing.bucket.now = landing.clock.now
    keys = landing.land(3)
    first = landing.run()
    landing.bucket.put("lost.csv", "told.csv")
    events.sent.append("told.csv")
    by_events = landing.run()
    received = list(events.log)
    landing.clock.move(hours=25)
    landing.bucket.now = landing.clock.now

    by_listing = landing.run()

    assert (first, by_events, by_listing) == (keys, ["told.csv"], ["lost.csv"])
    assert events.log == received == ["receive", "acknowledge but "]


def test_events_are_read_with_a_warning_when_the_report_is_no_newer_than_the_last_listing(
    landing: Ingestion, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    landing.options |= {"relist": timedelta(days=1), "listing": landing.bucket}
    landing.bucket.now = created = landing.clock.now
    keys = landing.land(3)
    first = landing.run()
    taken = []
    for number in range(3):
        landing.clock.move(hours=25)
        landing.bucket.put(f"told{number}.csv")
        landing.bucket.now = created
        events.sent.append(f"told{number}.csv")
        taken += landing.run()
    weekly = landing.bucket.now = landing.clock.now
    landing.bucket.put("lost.csv")
    landing.bucket.now = weekly

    assert (first, taken) == (keys, ["told0.csv", "told1.csv", "told2.csv"])
    assert caplog.text.count("event=report_too_old") == 3
    assert landing.run() == ["lost.csv"]


@pytest.mark.parametrize("given", [{}, {"events": Events()}])
def test_relist_is_refused_without_events_or_below_zero(landing: Ingestion, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError, match="Give it with events or metadata only"):
        landing.run(relist=timedelta(days=-1 if given else 1), **given)


def test_a_listing_finds_what_no_event_told_of_when_it_follows(landing: Ingestion, events: Events) -> None:
    keys = landing.land(3)
    events.sent += keys[:1]
    told = landing.run()
    landing.options = {"listing": landing.bucket}

    listed = landing.run()

    assert (told, listed) == (keys[:1], keys[1:])
    assert landing.run() == []
