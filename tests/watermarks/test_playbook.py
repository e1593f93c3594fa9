"""The playbook's calls, with the names, arguments and answers that its readers know."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.types import TypeDeserializer

from scripts.helpers.protocol.names import new_run_id
from scripts.helpers.protocol.requests import Between
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.steps import add

pytestmark = pytest.mark.both_stores

VALUES = [
    "2023-03-16 15:45:00",
    "",
    0,
    -7,
    10**37,
    0.0,
    0.1,
    1e-7,
    Decimal("1.5"),
    Decimal("3"),
    True,
    False,
    None,
    b"\x00\xff",
    date(2023, 3, 16),
    datetime(2023, 3, 16, 15, 45, 0, 1, tzinfo=timezone.utc),
    [],
    {},
    [1, 1.0, True, None, [Decimal("1")]],
    {"a": {"b": [date(2023, 3, 16)]}},
]


def original_query(watermarks: Watermarks, job_id: str) -> dict[str, Any]:
    """Query as the original class does: the last item of the job by sort order."""
    item: Any
    [item] = watermarks.store.table.query(Between(job_id, newest_first=True, limit=1)).items
    return {name: TypeDeserializer().deserialize(value) for name, value in item.items()}


# --- the example ------------------------------------------------------------------------------------


def test_example_reads_back_the_key_it_wrote_when_one_run_was_added(watermarks: Watermarks, job_id: str) -> None:
    run_id = new_run_id()
    item = watermarks.create_watermark_item(
        job_id=job_id, run_id=run_id, latest_data="2023-03-16 15:45:00", rows_collected=808
    )

    watermarks.add_watermark(item)
    found = watermarks.get_most_recent_run_id(job_id=job_id)

    assert found == run_id
    assert watermarks.get_watermark(job_id=job_id, run_id=found)["watermarks"]["latest_data"] == "2023-03-16 15:45:00"
    assert watermarks.get_watermark_values(job_id=job_id) == {
        "latest_data": "2023-03-16 15:45:00",
        "rows_collected": 808,
    }


def test_item_has_the_playbooks_shape_when_it_is_created(watermarks: Watermarks, job_id: str) -> None:
    item = watermarks.create_watermark_item(job_id=job_id, run_id="r1", n=0)

    assert item == {"jobName": job_id, "runId": "r1", "watermarks": {"n": 0}}


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_value_comes_back_with_its_type_when_it_was_added(watermarks: Watermarks, job_id: str, value: Any) -> None:
    add(watermarks, job_id, "r1", mark=value)

    found = [watermarks.get_watermark_values(job_id, run_id) for run_id in ("r1", None)]

    assert repr(found) == repr([{"mark": value}] * 2)


@pytest.mark.parametrize(("given", "kept"), [("1.50", "1.5"), ("-100", "-100"), ("1E+2", "100"), ("0.00", "0")])
def test_decimal_comes_back_as_dynamodb_keeps_it_when_it_has_zeros_at_its_end(
    watermarks: Watermarks, job_id: str, given: str, kept: str
) -> None:
    add(watermarks, job_id, "r1", mark=Decimal(given))

    found = watermarks.get_watermark_values(job_id)

    assert repr(found) == repr({"mark": Decimal(kept)})


def test_datetime_comes_back_in_utc_when_it_went_in_with_another_zone(watermarks: Watermarks, job_id: str) -> None:
    moment = datetime(2023, 7, 1, 1, 30, tzinfo=timezone(timedelta(hours=1)))

    add(watermarks, job_id, "r1", mark=moment)

    assert repr(watermarks.get_watermark_values(job_id)["mark"]) == repr(moment.astimezone(timezone.utc))


@pytest.mark.parametrize("run_id", [None, "r1"], ids=["most-recent", "by-run"])
def test_get_watermark_says_version_status_and_time_when_the_run_committed(
    watermarks: Watermarks, clock: Clock, job_id: str, run_id: str | None
) -> None:
    add(watermarks, job_id, "r1", n=1)

    found = watermarks.get_watermark(job_id, run_id)

    assert found == {
        "jobName": job_id,
        "runId": "r1",
        "watermarks": {"n": 1},
        "version": 1,
        "status": "COMMITTED",
        "committedAt": clock.now,
        "metrics": {},
    }


def test_latest_run_answers_after_each_commit_when_no_run_is_named(
    watermarks: Watermarks, job_id: str, run_ids: list[str]
) -> None:
    answers = []
    for number, run_id in enumerate(run_ids):
        add(watermarks, job_id, run_id, n=number)
        answers.append(watermarks.get_most_recent_run_id(job_id))

    found = watermarks.get_watermark(job_id)

    assert answers == run_ids
    assert (found["runId"], found["watermarks"], found["version"]) == (run_ids[-1], {"n": 4}, 5)


def test_get_watermark_answers_for_an_older_run_when_it_is_named(
    watermarks: Watermarks, job_id: str, run_ids: list[str]
) -> None:
    for number, run_id in enumerate(run_ids):
        add(watermarks, job_id, run_id, n=number)

    found = [watermarks.get_watermark_values(job_id, run_id)["n"] for run_id in run_ids]

    assert found == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("named", [False, True], ids=["own-table", "by-name"])
def test_exists_is_true_when_the_table_is_there(watermarks: Watermarks, named: bool) -> None:
    assert watermarks.exists(*[watermarks.table_name] * named) is True


def test_exists_is_false_when_the_table_is_not_there(watermarks: Watermarks) -> None:
    assert watermarks.exists("no-table-of-this-name") is False


# --- the same item twice ------------------------------------------------------------------------------


def test_add_watermark_is_one_commit_when_the_same_item_is_added_twice(watermarks: Watermarks, job_id: str) -> None:
    add(watermarks, job_id, "r1", n=1)
    before = watermarks.latest(job_id)

    add(watermarks, job_id, "r1", n=1)

    assert watermarks.latest(job_id) == before
    assert [entry.version for entry in watermarks.history(job_id)] == [1]


def test_add_watermark_changes_nothing_when_other_runs_committed_since(watermarks: Watermarks, job_id: str) -> None:
    for number, run_id in enumerate(["r1", "r2", "r3"]):
        add(watermarks, job_id, run_id, n=number)
    before = watermarks.latest(job_id)

    add(watermarks, job_id, "r1", n=0)

    assert watermarks.latest(job_id) == before
    assert watermarks.get_most_recent_run_id(job_id) == "r3"


def test_add_watermark_commits_again_when_a_person_has_reset_the_job_since(watermarks: Watermarks, job_id: str) -> None:
    add(watermarks, job_id, "r1", n=1)
    watermarks.reset(job_id, why="read all again")

    add(watermarks, job_id, "r1", n=1)

    assert (watermarks.latest(job_id).version, watermarks.get_watermark_values(job_id)) == (3, {"n": 1})


def test_add_watermark_commits_again_when_another_run_brings_an_equal_mark(watermarks: Watermarks, job_id: str) -> None:
    add(watermarks, job_id, "r1", n=1)

    add(watermarks, job_id, "r2", n=1)

    assert [entry.change.run_id for entry in watermarks.history(job_id)] == ["r2", "r1"]


@pytest.mark.parametrize(
    ("first", "second"),
    [(1, 2), (1, 1.0), (1, True), (0, False), (0, ""), (1, Decimal(1)), ("1", 1), (None, ""), ([1], [True])],
    ids=repr,
)
def test_add_watermark_commits_again_when_the_same_run_brings_another_value(
    watermarks: Watermarks, job_id: str, first: Any, second: Any
) -> None:
    add(watermarks, job_id, "r1", n=first)

    add(watermarks, job_id, "r1", n=second)

    assert watermarks.latest(job_id).version == 2
    assert repr(watermarks.get_watermark_values(job_id)) == repr({"n": second})
    assert repr(watermarks.get_watermark_values(job_id, "r1")) == repr({"n": second})


def test_add_watermark_stores_a_copy_when_the_caller_changes_the_item_later(
    watermarks: Watermarks, job_id: str
) -> None:
    item = watermarks.create_watermark_item(job_id=job_id, run_id="r1", names=["a"])
    watermarks.add_watermark(item)

    item["watermarks"]["names"].append("b")

    assert watermarks.get_watermark_values(job_id) == {"names": ["a"]}


# --- legacy readers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["~latest", "r1"], ids=["head", "run-item"])
def test_legacy_reader_sees_plain_values_when_types_stand_beside_them(
    watermarks: Watermarks, job_id: str, stored: Callable[[], dict[str, Any]], key: str
) -> None:
    moment = datetime(2023, 3, 16, 15, 45, tzinfo=timezone.utc)

    add(watermarks, job_id, "r1", at=moment, day=date(2023, 3, 16), ratio=0.5, exact=Decimal("1.5"), n=808, name="x")

    assert TypeDeserializer().deserialize(stored()[key]["watermarks"]) == {
        "at": "2023-03-16T15:45:00.000000+00:00",
        "day": "2023-03-16",
        "ratio": Decimal("0.5"),
        "exact": Decimal("1.5"),
        "n": Decimal(808),
        "name": "x",
    }


@pytest.mark.parametrize("run_id", ["a", "jr_ffff", "}}}}", '"'], ids=repr)
def test_original_query_finds_the_committed_watermark_when_run_ids_sort_anywhere(
    watermarks: Watermarks, job_id: str, run_id: str
) -> None:
    add(watermarks, job_id, "m", n=1)
    add(watermarks, job_id, run_id, n=2)

    found = original_query(watermarks, job_id)

    assert found["watermarks"] == {"n": 2}


def test_original_query_never_finds_the_plan_when_it_is_not_committed(watermarks: Watermarks, job_id: str) -> None:
    add(watermarks, job_id, "r1", n=1)
    run = watermarks.begin(job_id, "r2")

    run.freeze({"a": {}}, {"n": 2})

    assert original_query(watermarks, job_id)["watermarks"] == {"n": 1}


# --- order and isolation -----------------------------------------------------------------------------------


def test_jobs_do_not_see_each_other_when_run_ids_are_the_same(watermarks: Watermarks, job_id: str) -> None:
    others = [f"{job_id}-2", f"{job_id}/", job_id.upper()]
    for number, name in enumerate([job_id, *others]):
        add(watermarks, name, "r1", n=number)

    add(watermarks, job_id, "r2", n=9)

    assert [watermarks.get_watermark_values(name)["n"] for name in [job_id, *others]] == [9, 1, 2, 3]
    assert [watermarks.latest(name).version for name in [job_id, *others]] == [2, 1, 1, 1]


def test_another_job_may_begin_when_one_is_held(watermarks: Watermarks, job_id: str) -> None:
    watermarks.begin(job_id, "r1")

    other = watermarks.begin(f"{job_id}-2", "r2")

    assert (other.run_id, other.version) == ("r2", 0)


def test_same_item_is_committed_again_when_a_person_has_gone_back_since(watermarks: Watermarks, job_id: str) -> None:
    first, second = (
        watermarks.create_watermark_item(job_id=job_id, run_id=f"jr_{number}", n=number) for number in (1, 2)
    )
    watermarks.add_watermark(first)
    watermarks.add_watermark(second)
    watermarks.rewind(job_id, to_run="jr_1", why="the second run read half a file")

    watermarks.add_watermark(second)

    assert watermarks.get_watermark_values(job_id) == {"n": 2}
    assert watermarks.latest(job_id).version == 4
