"""A spoiled attribute of any kind of item, chosen one by one or at random, damages only the line of its own job."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.helpers.decisions.copying import copy_job
from scripts.helpers.decisions.doctor import DAMAGED
from scripts.helpers.errors import InvalidValueError, WatermarkError
from scripts.helpers.job_runs.run_record import RunRecord
from scripts.helpers.protocol import items
from scripts.helpers.protocol.changes import Changes
from scripts.helpers.protocol.fields import MAX_COUNT
from scripts.helpers.protocol.outputs import Retraction
from scripts.helpers.protocol.requests import Between
from scripts.helpers.rows.identity import as_text
from scripts.helpers.sinks.outputs import mark_of
from scripts.helpers.watermarks import Watermarks
from scripts.report import build_report
from tests.cli.hostile import called, shown_of
from tests.cli.stories import rows_state
from tests.support.dynamodb import FakeDynamoDB
from tests.support.outputs import output_of
from tests.support.spoiled_table import LATE, SPOILED, TableOfJobs, attribute_at, paths_in, spoiled, spoilt_by
from tests.support.steps import commit

NOW = datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc)
GOOD = "good"
KINDS = ("head", "log", "run", "chunk", "record", "legacy")


def opened(double: Any, now: datetime = NOW) -> Watermarks:
    """Return `Watermarks` on a double of the table."""
    return Watermarks("table", double, clock=lambda: now)


def state(hours: int) -> dict[str, Any]:
    """Return a state of rows with every field that it can have; only runs compare the source that it names."""
    at = NOW - timedelta(hours=hours)
    return rows_state(at) | {"source": as_text({"table": "repairs", "oid": "16400"}), "last": at}


@cache
def sound_items() -> dict[str, Any]:
    """Return the items of a job that has an item of each kind, by range key."""
    double = FakeDynamoDB()
    watermarks = opened(double, NOW - timedelta(hours=1))
    text = "".join(random.Random(1).choices("0123456789abcdef", k=200_000))
    commit(watermarks, GOOD, "jr_1", {"repairs": state(3), "big": text}, rows_collected=7)
    commit(watermarks, GOOD, "jr_2", {"repairs": state(2), "big": text}, rows_collected=9)
    watermarks.set_watermark(GOOD, {"value": NOW}, transformation_ctx="repairs", why="it is so", who="sam")
    watermarks.begin(GOOD, "jr_3").freeze({"repairs": {"kind": "rows"}}, {"repairs": state(0)})
    head = watermarks.latest(GOOD)
    assert head.last is not None
    record = output_of("/x", 2, job_id=GOOD, epoch=head.epoch)
    taken = Retraction("files", "/x", "/_x", mark_of(GOOD), head.epoch, 1, 2, NOW, job_id=GOOD)
    full = replace(
        head, unpublished=(record,), retracting=(taken,), retracted=((1, 1),), epochs={"e0": 3},
        last=replace(head.last, started_at=NOW, outputs=(record,), metrics={"rows": 3, "seconds": 1.5}, why="x"),
    )  # fmt: skip
    found = {key: item for (_, key), item in double.items.items()}
    ended = RunRecord(GOOD, "jr_2", "FAILED", NOW, NOW, {"Attempt": 0}, completed_on=NOW, running_since=NOW, error="x")
    return found | {items.HEAD_KEY: items.head_to_item(full), items.run_record_key("jr_2"): ended.to_item()}


def key_of(kind: str) -> str:
    """Return the range key of the item of the given kind."""
    known = {"head": items.HEAD_KEY, "log": items.log_key(2), "run": "jr_2", "record": items.run_record_key("jr_2")}
    return known.get(kind) or next(key for key in sound_items() if key.startswith("!s#"))


def hostile(kind: str, path: tuple[Any, ...], attribute: Any) -> dict[str, Any]:
    """Return the items of a job, one of which has one altered attribute."""
    if kind == "legacy":
        made = {"watermarks": {"M": {"latest": {"S": "2026"}}}}
        return {"jr_0": spoiled(made, path, attribute)}
    return sound_items() | {key_of(kind): spoiled(sound_items()[key_of(kind)], path, attribute)}


@cache
def spoiled_jobs() -> dict[str, dict[str, Any]]:
    """Return a job for each attribute of each kind of item and each bad value that can replace it."""
    jobs = {}
    for kind in KINDS:
        made = {"watermarks": {"M": {"latest": {"S": "2026"}}}} if kind == "legacy" else sound_items()[key_of(kind)]
        for path in paths_in(made):
            for name in spoilt_by(attribute_at(made, path)):
                jobs[f"{kind}-{'.'.join(map(str, path))}-{name}"] = hostile(kind, path, SPOILED[name])
    # A job without its log entries, so that the charts would begin at the spoiled time.
    late = jobs["head-last.M.at-late"]
    jobs["alone"] = {key: item for key, item in late.items() if not key.startswith(items.LOG_PREFIX)}
    return jobs


@cache
def whole_table() -> TableOfJobs:
    return TableOfJobs({GOOD: sound_items(), **spoiled_jobs()})


def test_page_of_the_others_stays_the_same_when_any_attribute_is_spoiled() -> None:
    alone = build_report(opened(TableOfJobs({GOOD: sound_items()})), now=NOW)

    page = build_report(opened(whole_table()), now=NOW)

    assert shown_of(page, GOOD) == shown_of(alone, GOOD)
    assert all(f'data-name="{job}"' in page for job in spoiled_jobs())
    assert "problem" in shown_of(page, "head-last.M.at-late")
    assert "at is a time of the year 9999" in shown_of(page, "head-last.M.at-late")


def test_list_has_the_others_when_any_attribute_is_spoiled(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = called(monkeypatch, TableOfJobs({GOOD: sound_items()}), "jobs", "--output", "json")

    found = called(monkeypatch, whole_table(), "jobs", "--output", "json")

    by_job = {job["job"]: job for job in json.loads(found.stdout)["jobs"]}
    assert [by_job[GOOD]] == json.loads(alone.stdout)["jobs"]
    assert by_job.keys() == {GOOD, *spoiled_jobs()}
    assert "at is a time of the year 9999" in by_job["head-last.M.at-late"]["problem"]


def test_notebook_shows_the_others_when_any_attribute_is_spoiled() -> None:
    listed = opened(whole_table()).list_jobs()

    html = listed[:90]._repr_html_()  # As many jobs as a notebook shows.

    assert len(listed) == len(spoiled_jobs()) + 1
    assert html.count("<tr>") == 91
    assert len(listed.to_pandas()) == len(listed)


def test_job_is_copied_whole_or_stays_when_any_attribute_is_spoiled(tmp_path: Path) -> None:
    later = NOW + timedelta(days=1)
    source, target = (Watermarks(f"sqlite:{tmp_path}/{name}.db", clock=lambda: later) for name in ("one", "other"))
    source.create_table()
    target.create_table()
    refused = set()

    for name, job in {GOOD: sound_items(), **dict(list(spoiled_jobs().items())[::7])}.items():
        for key, item in job.items():
            source.store.put(item | items.key(name, key), if_new=True)
        before = list(source.store.query(Between(name)))
        try:
            copy_job(Changes(source.lookups), target.store, name)
        except WatermarkError:
            refused.add(name)
            assert list(source.store.query(Between(name))) == before
            assert target.store.read_head(name) is None

    assert GOOD not in refused
    assert len(refused) > 30


def test_doctor_names_each_damaged_item_when_any_attribute_is_spoiled() -> None:
    watermarks = opened(whole_table())

    found = {job: watermarks.doctor(job) for job in spoiled_jobs() if job != "head-fmt-huge"}

    assert [one.detail for one in found["head-last.M.at-late"]] == ["~latest: at is a time of the year 9999"]
    damaged = [one.detail for one in found["log-at-late"] if one.kind == DAMAGED]
    assert damaged == [f"{items.log_key(2)}: at is a time of the year 9999"]
    assert {"open plan", "unpublished"} <= {one.kind for one in found["log-at-late"]}


def test_missing_entries_are_counted_when_a_head_names_a_version_that_never_was() -> None:
    table = TableOfJobs({"far": hostile("head", ("version",), {"N": str(MAX_COUNT)})})

    found = opened(table).doctor("far")

    assert len(found) < 200
    assert any("999,999,999,8" in one.detail for one in found)


def test_doctor_of_the_command_answers_when_what_it_knows_of_targets_makes_no_sense(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = TableOfJobs({"bad": spoiled_jobs()["head-retracting-keyless"]})

    done = called(monkeypatch, table, "doctor", "bad", "--output", "json")

    assert "retracting[0].first is missing" in done.stdout


def test_job_can_begin_and_keeps_its_watermark_when_a_lease_lasts_for_thousands_of_years() -> None:
    made = hostile("head", ("leaseUntil",), {"S": LATE})
    double = FakeDynamoDB()
    for item in made.values():
        double.put_item(TableName="table", Item=item)
    watermarks = opened(double)
    before = watermarks.latest(GOOD)

    run = watermarks.begin(GOOD, "jr_9")

    assert run.plan is not None
    assert watermarks.latest(GOOD).watermarks == before.watermarks


def test_begin_is_refused_when_the_clock_is_centuries_ahead() -> None:
    watermarks = opened(FakeDynamoDB(), NOW.replace(year=2300))

    with pytest.raises(InvalidValueError, match="Set the clock"):
        watermarks.begin("job", "jr_1")


ATTRIBUTES = st.recursive(
    st.one_of(
        st.text(max_size=20).map(lambda text: {"S": text}),
        st.datetimes().map(lambda moment: {"S": f"{moment.isoformat()}+00:00"}),
        st.decimals(allow_nan=False, allow_infinity=False, places=3).map(lambda number: {"N": f"{number:f}"}),
        st.integers(-(10**38), 10**38).map(lambda number: {"N": str(number)}),
        st.sampled_from(list(SPOILED.values())[1:]),
        st.booleans().map(lambda value: {"BOOL": value}),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda found: {"L": found}),
        st.dictionaries(st.sampled_from(["kind", "value", "repairs", "S", "cursor_column"]), inner, max_size=3).map(
            lambda found: {"M": found}
        ),
    ),
    max_leaves=6,
)


@settings(max_examples=60)
@given(data=st.data())
def test_page_of_the_others_stays_the_same_when_items_are_spoiled_at_random(data: Any) -> None:
    kind = data.draw(st.sampled_from(KINDS[:-1]))
    path = data.draw(st.sampled_from(list(paths_in(sound_items()[key_of(kind)]))))
    table = TableOfJobs({GOOD: sound_items(), "evil": hostile(kind, path, data.draw(ATTRIBUTES))})
    watermarks = opened(table)

    page = build_report(watermarks, now=NOW, values=True)

    assert shown_of(page, GOOD) == good_alone()
    assert 'data-name="evil"' in page
    assert repr(watermarks.list_jobs())
    watermarks.doctor("evil")


@cache
def good_alone() -> str:
    return shown_of(build_report(opened(TableOfJobs({GOOD: sound_items()})), now=NOW, values=True), GOOD)
