"""What `build_report` reads and writes, without a browser."""

from __future__ import annotations

import base64
import gzip
import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from html import unescape
from itertools import pairwise
from typing import Any

import boto3
import pytest
from markupsafe import Markup

from scripts.helpers.errors import InvalidValueError, TableNotFoundError
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.job_runs.run_store import RunStore
from scripts.helpers.protocol import items
from scripts.helpers.protocol.head import Change, Head, LogEntry
from scripts.helpers.watermarks import Watermarks
from scripts.report import build_report
from scripts.report.facts import JobFacts
from scripts.report.page import JobEntry, attention, make_entry
from scripts.report.periods import in_periods
from scripts.report.reading import look_up, read_facts
from tests.report.listed_histories import ListedHistories
from tests.report.many import NOW, facts_of, names_of
from tests.report.world import JOBS, MARKUP_JOB, SECRET, World, hourly, rows_state
from tests.support.clock import Clock
from tests.support.steps import commit
from tests.support.table_items import put_item


def details_of(html: str) -> dict[str, str]:
    """Return the details of each job, unpacked, as text without tags."""
    packed = re.findall(r'<script type="text/plain" id="details-\d+">([^<]*)</script>', html)
    pages = [gzip.decompress(base64.b64decode(text)).decode() for text in packed]
    texts = [unescape(" ".join(re.sub("<[^>]*>", " ", page).split())) for page in pages]
    return dict(zip(names_of(html), texts, strict=True))


# --- which jobs ---------------------------------------------------------------------------------


def test_report_has_all_jobs_when_none_is_named(world: World) -> None:
    found = names_of(build_report(world.watermarks, now=world.now))

    assert len(found) == JOBS
    assert MARKUP_JOB in found


def test_report_has_the_named_jobs_only_when_some_are_named(world: World) -> None:
    html = build_report(world.watermarks, jobs=["landing", "playbook", "landing"], now=world.now)

    assert sorted(names_of(html)) == ["landing", "playbook"]


def test_report_leaves_out_jobs_of_backfills_when_all_jobs_are_shown(watermarks: Watermarks, clock: Clock) -> None:
    commit(watermarks, "repairs", "jr_1", {"n": rows_state(clock.now)})
    commit(watermarks, "repairs-backfill-0123456789abcdef", "jr_1", {"n": rows_state(clock.now)})

    assert names_of(build_report(watermarks, now=clock.now)) == ["repairs"]


def test_report_says_so_when_the_table_is_empty(watermarks: Watermarks, clock: Clock) -> None:
    html = build_report(watermarks, now=clock.now)

    assert names_of(html) == []
    assert "0 jobs" in html


def test_report_goes_on_when_one_job_cannot_be_read(watermarks: Watermarks, clock: Clock) -> None:
    commit(watermarks, "good", "jr_1", {"n": rows_state(clock.now)})
    newer = {"jobName": {"S": "newer"}, "runId": {"S": "~latest"}, "fmt": {"N": "99"}}
    put_item(watermarks, newer)

    found = details_of(build_report(watermarks, jobs=["newer", "good", "unknown"], now=clock.now))

    assert list(found) == ["newer", "unknown", "good"]
    assert "Problem" in found["newer"]
    assert "holds nothing for job 'unknown'" in found["unknown"]


def test_report_shows_escapes_when_names_and_reasons_have_characters_that_hide_or_reorder(
    watermarks: Watermarks, clock: Clock
) -> None:
    name = "a\x1b\x07\x9b\u202e\u2066\u200b\U000e0001<b>"
    escaped = r"a\x1b\x07\x9b\u202e\u2066\u200b\U000e0001<b>"
    commit(watermarks, "repairs", "jr_1", {"n": rows_state(clock.now)})
    head = watermarks.latest("repairs")
    assert head.last is not None
    spoilt = replace(
        head, job_id=name, watermarks={name: rows_state(clock.now)}, last=replace(head.last, who=name, why=name)
    )
    watermarks.store.put(items.head_to_item(spoilt), if_new=False)

    html = build_report(watermarks, now=clock.now)
    details = details_of(html)

    assert not [char for char in html + "".join(details.values()) if not char.isprintable() and char != "\n"]
    assert sorted(names_of(html)) == [escaped, "repairs"]
    assert escaped in details[escaped]


def test_report_is_refused_when_the_table_is_missing(dynamodb: Any) -> None:
    missing = Watermarks("no-such-table", dynamodb)

    with pytest.raises(TableNotFoundError, match="no-such-table"):
        build_report(missing)


@pytest.mark.parametrize("name", ["now", "since"])
def test_report_is_refused_when_a_time_has_no_zone(watermarks: Watermarks, name: str) -> None:
    with pytest.raises(InvalidValueError, match=f"'{name}' is a time without a zone. Give an aware datetime"):
        build_report(watermarks, **{name: datetime(2026, 3, 16)})  # type: ignore[arg-type]


def test_report_changes_nothing_when_it_is_made(world: World, dynamodb: Any) -> None:
    sent: list[str] = []
    client = boto3.client("dynamodb", endpoint_url=dynamodb.meta.endpoint_url)
    client.meta.events.register("before-call.dynamodb", lambda model, **_: sent.append(model.name))

    build_report(Watermarks(world.watermarks.table_name, client, job_id_rule=".+"), now=world.now)

    assert set(sent) == {"GetItem", "Query", "Scan"}


def test_job_of_the_original_class_is_shown_when_the_next_run_would_take_it_over(
    watermarks: Watermarks, clock: Clock
) -> None:
    item = {"jobName": {"S": "old"}, "runId": {"S": "jr_1"}, "watermarks": {"M": {"latest": {"S": "x"}}}}
    put_item(watermarks, item)
    put_item(watermarks, item | {"jobName": {"S": "olds"}})
    put_item(watermarks, item | {"jobName": {"S": "olds"}, "runId": {"S": "jr_2"}})

    found = details_of(build_report(watermarks, now=clock.now))

    assert "Version 1" in found["old"]
    assert "Problem items of the original class" in found["olds"]


# --- values -------------------------------------------------------------------------------------


def test_report_shows_no_watermark_when_it_is_not_asked_to(world: World) -> None:
    html = build_report(world.watermarks, now=world.now)

    shown = html + "".join(details_of(html).values())
    assert str(SECRET) not in shown
    assert "2026-03-08 21:45:00" not in shown
    assert "9 d" in details_of(html)["with-gap"]


def test_report_shows_watermarks_and_ends_of_gaps_when_it_is_asked_to(world: World) -> None:
    found = details_of(build_report(world.watermarks, now=world.now, values=True))

    assert str(SECRET) in found["parking/permits"]
    assert "2026-03-08 21:45:00+00:00" in found["with-gap"]


# --- what is counted ----------------------------------------------------------------------------


def test_lag_and_age_are_those_of_the_command_line_when_shown(watermarks: Watermarks, clock: Clock) -> None:
    hourly(watermarks, clock, "repairs", 2, lambda _: False)
    clock.move(minutes=10)

    found = details_of(build_report(watermarks, now=clock.now))["repairs"]

    assert "Lag 15 min" in found
    assert "Age 10 min" in found


def test_report_reads_no_older_versions_when_since_is_given(watermarks: Watermarks, clock: Clock) -> None:
    hourly(watermarks, clock, "repairs", 6, lambda _: False)

    html = build_report(watermarks, now=clock.now, since=clock.now - timedelta(hours=2))

    assert "The newest 3 versions of 6." in details_of(html)["repairs"]


def test_failures_before_the_last_commit_do_not_count_when_one_died_since(watermarks: Watermarks, clock: Clock) -> None:
    hourly(watermarks, clock, "repairs", 3, lambda number: number == 1)
    watermarks.begin("repairs", "jr_dead")
    clock.move(hours=1)

    facts = read_facts(watermarks, look_up(watermarks, "repairs"), clock.now)

    assert (facts.state, facts.failed_since) == ("lease over", 1)


def test_run_at_work_is_no_failure_when_its_lease_lives(watermarks: Watermarks, clock: Clock) -> None:
    watermarks.begin("repairs", "jr_1")

    facts = read_facts(watermarks, look_up(watermarks, "repairs"), clock.now)

    assert (facts.state, facts.failed_since) == ("at work", 0)


def test_job_runs_without_success_are_named_when_there_are_records(watermarks: Watermarks, clock: Clock) -> None:
    commit(watermarks, "repairs", "jr_1", {"n": rows_state(clock.now)})
    started = RunRecord("repairs", "jr_" + "0" * 64, "STARTING", clock.now, clock.now, {})
    failed = started.to("FAILED", clock.now, error="the bucket is gone <b>")
    store = RunStore(watermarks.store)
    store.write_run(None, started)
    store.write_run(started, failed)

    found = details_of(build_report(watermarks, now=clock.now))["repairs"]

    assert "FAILED 0 2026-03-16 15:45:00 the bucket is gone <b>" in found


@pytest.mark.parametrize(("most", "found", "is_whole"), [(5, 5, False), (7, 7, True), (9, 7, True)])
def test_history_is_read_page_by_page_when_it_is_long(
    watermarks: Watermarks, clock: Clock, monkeypatch: pytest.MonkeyPatch, most: int, found: int, is_whole: bool
) -> None:
    hourly(watermarks, clock, "repairs", 7, lambda _: False)
    monkeypatch.setattr("scripts.report.reading.MOST_VERSIONS", most)

    facts = read_facts(watermarks, look_up(watermarks, "repairs"), clock.now)

    assert (len(facts.entries), facts.is_whole) == (found, is_whole)


def test_requests_are_five_a_job_when_500_jobs_have_1000_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only requests are counted. To save time, each distinct item is parsed once, and the details stay empty."""
    client, read = ListedHistories(500, 1_000), dict[int, LogEntry]()
    log_from_item = items.log_from_item
    seen: list[int] = []

    def read_once(item: items.Item) -> LogEntry:
        if id(item) not in read:
            read[id(item)] = log_from_item(item)
        return read[id(item)]

    def entry(facts: JobFacts, *_: Any) -> JobEntry:
        seen.append(len(facts.entries))
        return JobEntry(replace(facts, entries=()), len(facts.entries), Markup(""), "")

    monkeypatch.setattr("scripts.helpers.protocol.lookups.items.log_from_item", read_once)
    monkeypatch.setattr("scripts.report.page.make_entry", entry)

    html = build_report(Watermarks("table", client), now=NOW)  # type: ignore[arg-type]

    assert (len(names_of(html)), set(seen)) == (500, {1_000})
    assert (client.calls["get_item"], client.calls["query"]) == (3 * 500, 2 * 500)
    assert client.calls["scan"] < 20


DAMAGED = "Its items are damaged (KeyError while reading them). See doctor."


def broken(*_: Any, **__: Any) -> Any:
    raise KeyError("a watermark")


def test_job_is_damaged_when_its_history_makes_no_sense(
    watermarks: Watermarks, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(watermarks, "repairs", "jr_1", {"n": 1})
    job = look_up(watermarks, "repairs")
    monkeypatch.setattr(watermarks, "history", broken)

    assert read_facts(watermarks, job, clock.now) == JobFacts("repairs", clock.now, None, DAMAGED)


def test_job_is_damaged_when_its_entry_cannot_be_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.report.page.attention", broken)
    facts = facts_of(1, 3)

    entry = make_entry(facts, 7)

    assert entry.facts == JobFacts(facts.job_id, facts.now, None, DAMAGED)
    assert (entry.versions, bool(entry.details)) == (0, True)


# --- periods ------------------------------------------------------------------------------------


def test_periods_hold_every_version_once_when_summed() -> None:
    facts = facts_of(3, 1_000)

    found = in_periods(facts)

    assert found is not None
    assert len(found.periods) <= 60
    assert sum(period.versions for period in found.periods) == 1_000
    assert sum(period.failed for period in found.periods) == sum(entry.change.failed for entry in facts.entries)
    starts = [period.start for period in found.periods]
    assert {later - one for one, later in pairwise(starts)} == {found.length}


def test_lag_of_a_period_is_the_highest_when_a_version_was_late(watermarks: Watermarks, clock: Clock) -> None:
    hourly(watermarks, clock, "repairs", 3, lambda _: False)
    clock.move(hours=9)
    hourly(watermarks, clock, "repairs", 3, lambda _: False)

    found = in_periods(read_facts(watermarks, look_up(watermarks, "repairs"), clock.now))

    assert found is not None and found.measure == "lag"
    assert max(period.lag for period in found.periods if period.lag) == timedelta(hours=10, minutes=5)


def test_lag_falls_when_two_versions_have_the_same_time(world: World) -> None:
    found = in_periods(read_facts(world.watermarks, look_up(world.watermarks, "with-gap"), world.now))

    assert found is not None
    assert (found.periods[0].lag, found.periods[-1].lag) == (timedelta(days=9), timedelta(minutes=54))


def test_periods_are_none_when_nothing_was_committed() -> None:
    assert in_periods(JobFacts("repairs", datetime(2026, 3, 16, tzinfo=timezone.utc), None)) is None


def test_job_without_lag_comes_first_when_the_other_one_has_a_lag_of_nothing() -> None:
    now = datetime(2026, 3, 16, tzinfo=timezone.utc)
    state = {"kind": "rows", "cursor_column": "at", "type": "timestamp", "value": now}

    def entry(job_id: str, hours: int, **watermarks: Any) -> JobEntry:
        last = Change("COMMIT", "token", now - timedelta(hours=hours), "jr_1", fence=0)
        head = replace(Head.first(job_id), version=1, last=last, watermarks=watermarks)
        return JobEntry(JobFacts(job_id, now, head), 1, Markup(""), "")

    found = sorted([entry("in-time", 5, rows=state), entry("older", 1)], key=attention)

    assert [one.facts.job_id for one in found] == ["older", "in-time"]


def test_periods_are_of_48_weeks_and_more_than_asked_for_when_the_history_is_longer() -> None:
    facts = facts_of(1, 3)

    found = in_periods(facts, most=2, span=timedelta(days=3_000))

    assert found is not None
    assert {period.end - period.start for period in found.periods[1:]} == {timedelta(weeks=48)}
    assert len(found.periods) == 10
