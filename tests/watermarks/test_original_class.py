"""The original class and this one on one table: scripts get the same answers, and old items are taken over."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from scripts.helpers.errors import ConfigurationError, InvalidIdError, UnknownWatermarkError
from scripts.helpers.watermarks import Watermarks
from tests.support.reasons import because
from tests.support.steps import add
from tests.watermarks.original_class import OriginalWatermarks

Either = OriginalWatermarks | Watermarks


@pytest.fixture
def original(watermarks: Watermarks, dynamodb: Any) -> OriginalWatermarks:
    """Return the original class over the table of `watermarks`."""
    return OriginalWatermarks(watermarks.table_name, dynamodb)


@pytest.fixture(params=["original", "ours"])
def either(request: pytest.FixtureRequest, watermarks: Watermarks, original: OriginalWatermarks) -> Either:
    """Return each of the two classes in turn."""
    return original if request.param == "original" else watermarks


# --- what scripts do, with either class -----------------------------------------------------------------


def test_script_of_the_playbook_reads_what_it_stored_when_either_class_runs_it(either: Either, job_id: str) -> None:
    item = type(either).create_watermark_item(job_id=job_id, run_id="jr_1", latest_data="2023-03-16", rows=808)
    either.add_watermark(item)

    run_id = either.get_most_recent_run_id(job_id=job_id)

    assert run_id == "jr_1"
    assert either.get_watermark(job_id=job_id, run_id=run_id)["watermarks"]["latest_data"] == "2023-03-16"
    assert either.get_watermark(job_id)["watermarks"] == {"latest_data": "2023-03-16", "rows": 808}
    assert either.get_watermark_values(job_id=job_id) == {"latest_data": "2023-03-16", "rows": 808}


def test_values_are_found_under_their_key_when_a_script_names_one(either: Either, job_id: str) -> None:
    either.add_watermark(either.create_watermark_item(job_id, "jr_1", "state", n=1, latest_data="x"))

    assert either.get_watermark_values(job_id, "jr_1", "state") == {"n": 1, "latest_data": "x"}
    assert either.get_watermark_values(job_id, key="state")["n"] == 1
    assert either.get_watermark(job_id)["state"]["latest_data"] == "x"


@pytest.mark.parametrize("stored", [False, True], ids=["first-run", "second-run"])
def test_script_recognizes_its_first_run_when_it_catches_the_errors_of_the_original(
    either: Either, job_id: str, stored: bool
) -> None:
    if stored:
        either.add_watermark(either.create_watermark_item(job_id=job_id, run_id="jr_1", n=1))

    try:
        latest = either.get_watermark(job_id, either.get_most_recent_run_id(job_id))["watermarks"]["n"]
    except IndexError:
        latest = None

    assert latest == (1 if stored else None)


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (IndexError, lambda marks, job: marks.get_most_recent_run_id(f"{job}-2")),
        (IndexError, lambda marks, job: marks.get_watermark(f"{job}-2")),
        (IndexError, lambda marks, job: marks.get_watermark_values(f"{job}-2")),
        (KeyError, lambda marks, job: marks.get_watermark(f"{job}-2", "jr_1")),
        (KeyError, lambda marks, job: marks.get_watermark(job, "jr_2")),
        (KeyError, lambda marks, job: marks.get_watermark_values(job, "jr_2")),
        (KeyError, lambda marks, job: marks.get_watermark_values(job, "jr_1", "state")),
        (KeyError, lambda marks, job: marks.get_watermark(job)["state"]),
        (KeyError, lambda marks, job: marks.get_watermark(job)["watermarks"]["last_processed_date"]),
    ],
)
def test_error_is_what_scripts_catch_when_something_is_not_there(
    either: Either, job_id: str, error: type[Exception], call: Callable[[Any, str], Any]
) -> None:
    either.add_watermark(either.create_watermark_item(job_id=job_id, run_id="jr_1", latest_data="x"))

    with pytest.raises(error):
        call(either, job_id)


def test_begun_job_is_a_first_run_when_a_script_catches_indexerror(watermarks: Watermarks, job_id: str) -> None:
    watermarks.begin(job_id, "jr_1")

    with pytest.raises(IndexError, match="has not committed a watermark yet"):
        watermarks.get_most_recent_run_id(job_id)


def test_error_names_what_is_stored_when_a_script_reads_the_name_of_the_playbook(
    watermarks: Watermarks, job_id: str
) -> None:
    add(watermarks, job_id, "jr_1", latest_data="2023-03-16", rows_collected=808)

    with pytest.raises(UnknownWatermarkError) as caught:
        watermarks.get_watermark(job_id=job_id, run_id="jr_1")["watermarks"]["last_processed_date"]

    assert str(caught.value).startswith(f"Job {job_id!r} has stored no 'last_processed_date'. ")
    assert "It has stored: latest_data, rows_collected." in str(caught.value)
    assert "2023-03-16" not in str(caught.value)


# --- what the original class wrote ----------------------------------------------------------------------


WRITTEN: dict[str, dict[str, Any]] = {
    "texts": {"ids": {"b", "a"}},
    "numbers": {"ids": {1, 2}},
    "decimals": {"ids": {Decimal("0.5"), Decimal("1.5")}},
    "bytes": {"ids": {b"a", b"b"}},
    "nested-set": {"by_area": {"north": {"a"}, "all": [{1}]}},
    "nested": {"a": {"b": {"c": [1, "x", None, True, {"d": b"1"}]}}},
    "odd-names": {"with space": 1, "ü": 2, "a.b": 3, "#": 4, "n" * 300: 5},
    "empty": {},
    "60-kb": {"text": "x" * 60_000},
}


@pytest.mark.parametrize("values", WRITTEN.values(), ids=list(WRITTEN))
@pytest.mark.parametrize("key", ["watermarks", "state"])
def test_item_is_read_taken_over_and_kept_when_the_original_class_wrote_it(
    watermarks: Watermarks, original: OriginalWatermarks, job_id: str, values: dict[str, Any], key: str
) -> None:
    original.add_watermark({"jobName": job_id, "runId": "jr_1", key: values})
    before = watermarks.get_watermark_values(job_id, "jr_1", key)
    theirs = original.get_watermark_values(job_id, "jr_1", key)

    run = watermarks.begin(job_id, "jr_2")
    run.freeze({}, dict(run.watermarks))
    run.commit()

    assert before == theirs == values
    assert watermarks.get_watermark_values(job_id, "jr_2", key) == values
    assert watermarks.get_watermark_values(job_id, "jr_1", key) == values
    assert original.get_watermark(job_id)["watermarks"] == (values if key == "watermarks" else {key: values})


def test_attributes_of_a_script_are_kept_when_they_stand_beside_the_watermarks(
    watermarks: Watermarks, original: OriginalWatermarks, job_id: str
) -> None:
    original.add_watermark({"jobName": job_id, "runId": "jr_1", "watermarks": {"n": 1}, "source": "uprn"})

    watermarks.begin(job_id, "jr_2").abort()

    assert watermarks.get_watermark_values(job_id) == {"n": 1, "source": "uprn"}
    assert watermarks.get_watermark(job_id, "jr_1")["source"] == "uprn"


BEYOND: dict[str, tuple[dict[str, Any], str]] = {
    "over-64-kb": ({"text": "x" * 70_000}, "70,"),
    "17-levels": ({"a": [[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]}, "deeper than 16 levels"),
    "2001-names": ({f"n{number}": 1 for number in range(2_001)}, "past entry 2,000"),
    "reserved": ({"runId": "jr_1"}, "'runId' is a reserved name"),
}


@pytest.mark.parametrize("others", [0, 2], ids=["only-item", "one-of-three"])
@pytest.mark.parametrize(("values", "detail"), BEYOND.values(), ids=list(BEYOND))
def test_item_is_read_and_its_remedy_works_when_no_head_can_hold_it(
    watermarks: Watermarks,
    original: OriginalWatermarks,
    job_id: str,
    values: dict[str, Any],
    detail: str,
    others: int,
) -> None:
    for number in range(others + 1):
        original.add_watermark({"jobName": job_id, "runId": f"jr_{number}", "watermarks": values})

    with pytest.raises(ConfigurationError, check=because("legacy_item")) as caught:
        if others:
            watermarks.adopt(job_id, "jr_0")
        else:
            watermarks.begin(job_id, "r1")

    assert f"Item 'jr_0' of job {job_id!r} is of the original class and cannot be adopted. " in str(caught.value)
    assert detail in str(caught.value)
    assert f"adopt({job_id!r}, run_id='jr_0', watermarks={{...}})" in str(caught.value)
    assert watermarks.get_watermark_values(job_id, "jr_0") == values
    watermarks.adopt(job_id, run_id="jr_0", watermarks={"n": 1})
    assert watermarks.begin(job_id, "r1").watermarks == {"n": 1}


@pytest.mark.parametrize("run_id", ["Lauf für März", " r", "r\n1", "r" * 300], ids=["unicode", "space", "line", "long"])
def test_item_is_read_and_adopted_when_its_run_id_is_not_allowed(
    watermarks: Watermarks, original: OriginalWatermarks, job_id: str, run_id: str
) -> None:
    for name in (run_id, "jr_1"):
        original.add_watermark({"jobName": job_id, "runId": name, "watermarks": {"run": name}})

    watermarks.adopt(job_id, run_id)

    assert watermarks.get_watermark_values(job_id, run_id) == {"run": run_id}
    assert watermarks.get_most_recent_run_id(job_id) == run_id
    assert watermarks.begin(job_id, "jr_2").watermarks == {"run": run_id}


@pytest.mark.parametrize("name", ["Straße (Nord)", "job #1", "~job", "*", "j" * 300])
def test_remedy_works_when_the_original_class_stored_a_job_name_that_is_not_allowed(
    watermarks: Watermarks, original: OriginalWatermarks, job_id: str, name: str
) -> None:
    odd = f"{name} {job_id}"
    original.add_watermark(original.create_watermark_item(odd, "jr_1", n=1))

    with pytest.raises(InvalidIdError, match=r"widen the rule: Watermarks\(job_id_rule=\.\.\.\)"):
        watermarks.begin(odd, "jr_2")

    wide = Watermarks(watermarks.table_name, watermarks.dynamodb_client, job_id_rule=r"(?s:.+)")
    wide.add_watermark(wide.create_watermark_item(odd, "jr_2", n=2))
    assert [entry.change.op for entry in wide.history(odd)] == ["COMMIT", "IMPORT"]


# --- both classes at once -------------------------------------------------------------------------------


def test_reader_of_the_original_class_sees_each_commit_when_this_class_writes(
    watermarks: Watermarks, original: OriginalWatermarks, job_id: str, run_ids: list[str]
) -> None:
    seen = []

    for number, run_id in enumerate(run_ids):
        add(watermarks, job_id, run_id, n=number, ids={"a", str(number)})
        seen.append(original.get_watermark_values(job_id))

    assert seen == [{"n": number, "ids": {"a", str(number)}} for number in range(5)]


def test_latest_run_is_right_here_but_not_in_the_original_class_when_ids_have_no_order(
    watermarks: Watermarks, original: OriginalWatermarks, job_id: str
) -> None:
    ours, theirs = f"{job_id}-ours", f"{job_id}-theirs"

    for run_id in ("jr_c", "jr_a", "jr_b"):
        watermarks.add_watermark(Watermarks.create_watermark_item(ours, run_id, n=1))
        original.add_watermark(OriginalWatermarks.create_watermark_item(theirs, run_id, n=1))

    assert watermarks.get_most_recent_run_id(ours) == "jr_b"
    assert original.get_most_recent_run_id(theirs) == "jr_c"
