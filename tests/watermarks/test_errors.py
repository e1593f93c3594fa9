"""Bad input is refused with a specific error and a remedy, before anything is sent, and nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from scripts.helpers.errors import (
    InvalidIdError,
    InvalidValueError,
    NoWatermarkError,
    TooLargeError,
    UnknownJobError,
    UnknownRunError,
)
from scripts.helpers.watermarks import Watermarks
from tests.support.faults import Wire
from tests.support.table_items import Stored

pytestmark = pytest.mark.both_stores

PRIVATE = "a-private-value"

BAD_IDS: list[Any] = [
    pytest.param("", " '' ", id="empty"),
    pytest.param("x\n1", r"'x\n1'", id="newline"),
    pytest.param("!x", "'!x'", id="bang"),
    pytest.param(None, "must be a str, not NoneType", id="none"),
    pytest.param(["x"], "must be a str, not list", id="list"),
]
"""Bad ids for jobs and runs; `tests/protocol/test_names.py` has more."""
JOB_CALLS: dict[str, Callable[[Watermarks, Any], Any]] = {
    "begin": lambda watermarks, job_id: watermarks.begin(job_id, "r1"),
    "add_watermark": lambda watermarks, job_id: watermarks.add_watermark(
        {"jobName": job_id, "runId": "r1", "watermarks": {"n": 1}}
    ),
    "adopt": lambda watermarks, job_id: watermarks.adopt(job_id, "r1"),
    "get_most_recent_run_id": lambda watermarks, job_id: watermarks.get_most_recent_run_id(job_id),
    "get_watermark": lambda watermarks, job_id: watermarks.get_watermark(job_id),
    "get_watermark-of-run": lambda watermarks, job_id: watermarks.get_watermark(job_id, "r1"),
    "latest": lambda watermarks, job_id: watermarks.latest(job_id),
    "history": lambda watermarks, job_id: watermarks.history(job_id),
}
RUN_CALLS: dict[str, Callable[[Watermarks, str, Any], Any]] = {
    "begin": lambda watermarks, job_id, run_id: watermarks.begin(job_id, run_id),
    "create_watermark_item": lambda watermarks, job_id, run_id: watermarks.create_watermark_item(job_id, run_id),
    "add_watermark": lambda watermarks, job_id, run_id: watermarks.add_watermark(
        {"jobName": job_id, "runId": run_id, "watermarks": {"n": 1}}
    ),
}
READS: dict[str, Callable[[Watermarks, str, Any], Any]] = {
    "adopt": lambda watermarks, job_id, run_id: watermarks.adopt(job_id, run_id),
    "get_watermark": lambda watermarks, job_id, run_id: watermarks.get_watermark(job_id, run_id),
}
"""Calls that accept any run id under which the original class may have stored an item."""
BAD_VALUES: list[Any] = [
    pytest.param(datetime(2026, 3, 16), InvalidValueError, "without a time zone. Give it one", id="naive-datetime"),
    pytest.param(float("nan"), InvalidValueError, "NaN or infinite", id="nan"),
    pytest.param(float("inf"), InvalidValueError, "NaN or infinite", id="infinite"),
    pytest.param(Decimal("sNaN"), InvalidValueError, "NaN or infinite", id="decimal-nan"),
    pytest.param(10**38 + 1, InvalidValueError, "has 39 digits; the limit is 38. Round it", id="39-digits"),
    pytest.param(Decimal("1E126"), InvalidValueError, "outside 1E-130 to 9.9E+125. Scale it", id="1E126"),
    pytest.param("x" * 65 * 1024, TooLargeError, "the limit is 65,536. Store a reference", id="65-kb"),
    pytest.param(set(), InvalidValueError, "is an empty set, which a table cannot hold", id="empty-set"),
    pytest.param({1, "a"}, InvalidValueError, "is a set of int, str. Sets hold texts, bytes, or", id="mixed-set"),
    pytest.param({1, 2.0}, InvalidValueError, "is a set of float, int. Sets hold", id="set-of-two-types"),
    pytest.param({(1, 2)}, InvalidValueError, "is a set of tuple. Sets hold", id="set-of-tuples"),
    pytest.param(set(range(2_001)), InvalidValueError, "is past entry 2,000", id="large-set"),
    pytest.param(object(), InvalidValueError, "is a object, which cannot be stored. Use str", id="object"),
    pytest.param((1, 2), InvalidValueError, "is a tuple, which cannot be stored", id="tuple"),
    pytest.param("\ud800", InvalidValueError, "half a surrogate pair", id="surrogate"),
    pytest.param({"": 1}, InvalidValueError, "has a name that is not a non-empty str. Rename it", id="empty-name"),
    pytest.param([[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]], InvalidValueError, "deeper than 16 levels. Flatten", id="depth"),
]


@pytest.fixture
def seeded(hooked: Watermarks, wire: Wire, job_id: str) -> Watermarks:
    """Return `Watermarks` over a table where the job has committed r1; the wire is empty."""
    hooked.add_watermark(hooked.create_watermark_item(job_id=job_id, run_id="r1", mark=PRIVATE))
    wire.clear()
    return hooked


# --- ids ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", JOB_CALLS)
@pytest.mark.parametrize(("bad", "text"), BAD_IDS)
def test_job_name_is_refused_before_anything_is_sent_when_it_is_bad(
    client: Any, wire: Wire, bad: Any, text: str, call: str
) -> None:
    watermarks = Watermarks("some-table", client)

    with pytest.raises(InvalidIdError) as caught:
        JOB_CALLS[call](watermarks, bad)

    assert str(caught.value).startswith("Job name ")
    assert text in str(caught.value)
    assert "must match [A-Za-z0-9]" in str(caught.value) or "must be a str" in str(caught.value)
    assert wire.requests == []


@pytest.mark.parametrize("call", RUN_CALLS)
@pytest.mark.parametrize(("bad", "text"), BAD_IDS)
def test_run_id_is_refused_before_anything_is_sent_when_it_is_bad(
    client: Any, wire: Wire, job_id: str, bad: Any, text: str, call: str
) -> None:
    watermarks = Watermarks("some-table", client)

    with pytest.raises(InvalidIdError) as caught:
        RUN_CALLS[call](watermarks, job_id, bad)

    assert str(caught.value).startswith("Run id ")
    assert text in str(caught.value)
    assert "1 to 255 printable ASCII characters" in str(caught.value) or "must be a str" in str(caught.value)
    assert wire.requests == []


@pytest.mark.parametrize("call", READS)
@pytest.mark.parametrize("bad", ["", "!c#0000000000000000001", "~latest", "r" * 1_025, 7, b"r1"])
def test_run_id_of_a_read_is_refused_before_anything_is_sent_when_it_is_bad(
    client: Any, wire: Wire, job_id: str, bad: Any, call: str
) -> None:
    watermarks = Watermarks("some-table", client)

    with pytest.raises(InvalidIdError, match=r"^Run id .*(starts with neither|must be a str)"):
        READS[call](watermarks, job_id, bad)

    assert wire.requests == []


@pytest.mark.parametrize("name", ["x", "A" * 255, "a b._/:@=+-", "0"], ids=["1", "255", "signs", "digit"])
def test_job_name_is_taken_when_it_is_within_the_rule(watermarks: Watermarks, job_id: str, name: str) -> None:
    unique = (job_id + name)[:255]

    watermarks.begin(unique, "r1")

    assert watermarks.latest(unique).job_id == unique


@pytest.mark.parametrize("run_id", ["x", "r" * 255, "#?*'\"% ~!", "}"], ids=["1", "255", "signs", "last"])
def test_run_id_is_taken_when_it_is_within_the_rule(watermarks: Watermarks, job_id: str, run_id: str) -> None:
    watermarks.add_watermark(watermarks.create_watermark_item(job_id=job_id, run_id=run_id, n=1))

    assert watermarks.get_most_recent_run_id(job_id) == run_id
    assert watermarks.get_watermark_values(job_id, run_id) == {"n": 1}


def test_job_name_rule_is_the_given_one_when_one_is_given(watermarks: Watermarks, client: Any, wire: Wire) -> None:
    ours = Watermarks(watermarks.table_name, client, job_id_rule=r"parking-\w+")

    with pytest.raises(InvalidIdError, match=r"'housing-1' \(9 characters\) is not allowed\. It must match parking"):
        ours.begin("housing-1", "r1")

    assert wire.requests == []


# --- values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bad", "error", "text"), BAD_VALUES)
def test_value_is_refused_before_anything_is_sent_when_it_cannot_be_stored(
    seeded: Watermarks, wire: Wire, job_id: str, bad: Any, error: type[InvalidValueError], text: str
) -> None:
    values = {"good": PRIVATE, "mark": bad}

    with pytest.raises(error) as created:
        seeded.create_watermark_item(job_id=job_id, run_id="r2", **values)
    with pytest.raises(error) as caught:
        seeded.add_watermark({"jobName": job_id, "runId": "r2", "watermarks": values})

    assert str(created.value) == str(caught.value)
    assert text in str(caught.value)
    assert ("watermark map, most of it in 'mark'" if error is TooLargeError else "mark") in str(caught.value)
    assert PRIVATE not in str(caught.value)
    assert wire.requests == []


@pytest.mark.parametrize("name", ["jobName", "runId", "watermarks"])
def test_name_is_refused_before_anything_is_sent_when_it_is_reserved(
    seeded: Watermarks, wire: Wire, job_id: str, name: str
) -> None:
    with pytest.raises(
        InvalidValueError, match=f"'{name}' is a reserved name.*jobName, runId, watermarks.*Rename it"
    ) as caught:
        seeded.create_watermark_item(job_id=job_id, run_id="r2", **{name: PRIVATE})

    assert caught.value.name == name
    assert PRIVATE not in str(caught.value)
    assert wire.requests == []


@pytest.mark.parametrize(
    "item",
    [
        None,
        {},
        "jobName",
        ["jobName", "runId", "watermarks"],
        {"jobName": "j", "runId": "r2"},
        {"jobName": "j", "watermarks": {}},
        {"jobName": "j", "runId": "r2", "watermarks": {}, "more": 1},
        {"jobName": "j", "runId": "r2", "watermarks": None},
        {"jobName": "j", "runId": "r2", "watermarks": [PRIVATE]},
        {"jobName": "j", "runId": "r2", "watermarks": PRIVATE},
    ],
    ids=str,
)
def test_add_watermark_is_refused_before_anything_is_sent_when_the_item_is_malformed(
    seeded: Watermarks, wire: Wire, item: Any
) -> None:
    with pytest.raises(InvalidValueError, match=r"exactly jobName, runId and.*create_watermark_item") as caught:
        seeded.add_watermark(item)

    assert PRIVATE not in str(caught.value)
    assert wire.requests == []


@pytest.mark.parametrize("name", ["", 7, None, b"n"], ids=repr)
def test_add_watermark_is_refused_before_anything_is_sent_when_a_name_is_no_text(
    seeded: Watermarks, wire: Wire, job_id: str, name: Any
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        seeded.add_watermark({"jobName": job_id, "runId": "r2", "watermarks": {name: 1}})

    assert str(caught.value).startswith(f"The watermark {repr(name)!r} has a name that is not a non-empty str")
    assert wire.requests == []


@pytest.mark.parametrize("name", ["job_id", "run_id", "self"])
def test_add_watermark_takes_a_handmade_item_when_a_name_is_that_of_an_argument(
    seeded: Watermarks, job_id: str, name: str
) -> None:
    seeded.add_watermark({"jobName": job_id, "runId": "r2", "watermarks": {name: 1}})

    assert seeded.get_watermark_values(job_id) == {name: 1}


# --- nothing stored yet -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", sorted(set(JOB_CALLS) - {"begin", "add_watermark", "adopt"}))
def test_job_is_named_when_it_is_unknown(watermarks: Watermarks, job_id: str, stored: Stored, call: str) -> None:
    with pytest.raises(UnknownJobError, match="Check the name; a job appears there with its first run") as caught:
        JOB_CALLS[call](watermarks, job_id)

    assert isinstance(caught.value, LookupError)
    assert f"Table {watermarks.table_name!r} holds nothing for job {job_id!r}" in str(caught.value)
    assert (caught.value.job_id, caught.value.table_name) == (job_id, watermarks.table_name)
    assert stored() == {}


@pytest.mark.parametrize("call", ["get_most_recent_run_id", "get_watermark"])
def test_job_has_no_watermark_when_its_first_run_works(
    watermarks: Watermarks, job_id: str, stored: Stored, call: str
) -> None:
    watermarks.begin(job_id, "r1").freeze({}, {"mark": PRIVATE})
    before = stored()

    with pytest.raises(NoWatermarkError, match="On a first run read everything, then commit") as caught:
        JOB_CALLS[call](watermarks, job_id)

    assert isinstance(caught.value, LookupError)
    assert f"Job {job_id!r} has not committed" in str(caught.value)
    assert PRIVATE not in str(caught.value)
    assert stored() == before


@pytest.mark.parametrize("committed", [False, True], ids=["first-run", "later"])
def test_run_is_named_when_it_has_not_committed(watermarks: Watermarks, job_id: str, committed: bool) -> None:
    if committed:
        watermarks.add_watermark(watermarks.create_watermark_item(job_id=job_id, run_id="r1", n=1))
    watermarks.begin(job_id, "r2").freeze({}, {"n": 2})

    with pytest.raises(UnknownRunError, match=r"history\(job_id\) lists the runs") as caught:
        watermarks.get_watermark(job_id, "r2")

    assert isinstance(caught.value, LookupError)
    assert f"Run 'r2' of job {job_id!r} has no watermark" in str(caught.value)
    assert (caught.value.job_id, caught.value.run_id) == (job_id, "r2")


# --- history ---------------------------------------------------------------------------------------------------------


def test_history_entry_shows_no_values_when_it_is_printed(watermarks: Watermarks, job_id: str) -> None:
    run = watermarks.begin(job_id, "r1")
    run.freeze({}, {"mark": PRIVATE})
    run.commit(rows=3)

    shown = repr(watermarks.history(job_id)), repr(watermarks.latest(job_id)), repr(run)

    assert shown[0].splitlines()[-1] == "      1  COMMIT  2026-03-16 15:45:00  r1    0 s     3"
    assert PRIVATE not in "".join(shown)
