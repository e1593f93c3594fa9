"""Tables that the original class filled: plain items under random run ids, and no head."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from scripts.helpers.errors import AmbiguousHistoryError, CorruptItemError, StoreUnavailableError, UnknownRunError
from scripts.helpers.protocol.store import Store
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.faults import Faults, head_write, log_write
from tests.support.steps import add, commit, large
from tests.support.table_items import Stored, chunk_keys

pytestmark = pytest.mark.both_stores

VALUES = {"latest_data": "2023-03-16 15:45:00", "rows_collected": 808}
PutLegacy = Callable[..., None]


# --- one item -----------------------------------------------------------------------------------------


def test_reads_answer_and_store_nothing_when_there_is_one_item(
    watermarks: Watermarks, job_id: str, put_legacy: PutLegacy, stored: Stored
) -> None:
    put_legacy("jr_a")
    before = stored()

    found = watermarks.get_most_recent_run_id(job_id)

    item = {"jobName": job_id, "runId": "jr_a", "watermarks": VALUES}
    assert found == "jr_a"
    assert watermarks.get_watermark(job_id) == item
    assert watermarks.get_watermark(job_id, "jr_a") == item
    assert watermarks.get_watermark_values(job_id) == VALUES
    assert (watermarks.latest(job_id).version, watermarks.latest(job_id).fence) == (1, 0)
    assert [(entry.version, entry.change.op) for entry in watermarks.history(job_id)] == [(1, "IMPORT")]
    assert stored() == before


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ({"N": "0"}, 0),
        ({"N": "1.5"}, Decimal("1.5")),
        ({"S": ""}, ""),
        ({"BOOL": False}, False),
        ({"NULL": True}, None),
        ({"B": b"\x00"}, b"\x00"),
        ({"L": [{"N": "1"}, {"S": "a"}]}, [1, "a"]),
        ({"M": {"in": {"N": "7"}}}, {"in": 7}),
    ],
    ids=str,
)
def test_value_is_read_and_kept_when_the_original_class_wrote_it(
    watermarks: Watermarks, job_id: str, put_legacy: PutLegacy, attribute: dict[str, Any], value: Any
) -> None:
    put_legacy("jr_a", mark=attribute)

    read = watermarks.get_watermark_values(job_id)
    run = watermarks.begin(job_id, "r1")

    assert repr(read) == repr(run.watermarks) == repr({"mark": value})


def test_begin_adopts_the_item_as_version_1_when_there_is_one(
    watermarks: Watermarks,
    clock: Clock,
    job_id: str,
    put_legacy: PutLegacy,
    stored: Stored,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put_legacy("jr_a")

    run = watermarks.begin(job_id, "jr_b")

    assert (run.watermarks, run.version, run.fence, run.replay) == (VALUES, 1, 1, False)
    [entry] = watermarks.history(job_id)
    assert (entry.version, entry.watermarks, entry.change.op, entry.change.run_id) == (1, VALUES, "IMPORT", "jr_a")
    assert (entry.change.at, entry.change.metrics) == (clock.now, {"legacy_items": 1})
    assert set(stored()) == {"jr_a", "!c#0000000000000000001", "~latest"}
    assert "first_run" not in caplog.text


def test_history_keeps_the_import_when_the_first_run_commits(
    watermarks: Watermarks, job_id: str, put_legacy: PutLegacy
) -> None:
    put_legacy("jr_a")

    run = watermarks.begin(job_id, "jr_b")
    run.freeze({}, {"n": 1})
    run.commit()

    found = [(entry.version, entry.change.op, entry.change.run_id) for entry in watermarks.history(job_id)]
    assert found == [(2, "COMMIT", "jr_b"), (1, "IMPORT", "jr_a")]
    assert watermarks.get_watermark_values(job_id, "jr_a") == VALUES


def test_add_watermark_follows_the_item_when_there_is_one(
    watermarks: Watermarks, job_id: str, put_legacy: PutLegacy
) -> None:
    put_legacy("jr_a")

    add(watermarks, job_id, "jr_b", n=1)

    assert [(entry.version, entry.change.op) for entry in watermarks.history(job_id)] == [(2, "COMMIT"), (1, "IMPORT")]
    assert watermarks.get_most_recent_run_id(job_id) == "jr_b"


def test_add_watermark_commits_nothing_new_when_it_repeats_the_legacy_item(
    watermarks: Watermarks, job_id: str, put_legacy: PutLegacy
) -> None:
    put_legacy("jr_a")

    add(watermarks, job_id, "jr_a", **VALUES)

    assert [(entry.version, entry.change.op) for entry in watermarks.history(job_id)] == [(1, "IMPORT")]


@pytest.mark.parametrize("fault", ["drop", "reply_lost", "resend", "throttle"])
def test_item_is_adopted_once_when_the_import_write_fails(
    hooked: Watermarks, faults: Faults, job_id: str, put_legacy: PutLegacy, fault: str
) -> None:
    put_legacy("jr_a")
    faults.by_name(fault, head_write)

    run = hooked.begin(job_id, "jr_b")

    assert faults.hits == 1
    assert (run.version, run.fence) == (1, 1)
    assert [entry.change.op for entry in hooked.history(job_id)] == ["IMPORT"]


def test_log_has_the_import_of_another_run_when_it_was_faster_and_died(
    watermarks: Watermarks, job_id: str, put_legacy: PutLegacy, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_legacy("jr_a")
    faster = watermarks.lookups.head_of_legacy(stored()["jr_a"])
    pending, swap = [faster], Store.swap

    def lose(self: Store, *args: Any) -> Any:
        if pending:
            swap(self, None, pending.pop())
        return swap(self, *args)

    monkeypatch.setattr(Store, "swap", lose)

    add(watermarks, job_id, "jr_b", n=1)

    assert watermarks.history(job_id)[-1].change == faster.last


def test_import_entry_is_written_by_the_next_begin_when_the_first_one_died(
    hooked: Watermarks, faults: Faults, job_id: str, put_legacy: PutLegacy
) -> None:
    put_legacy("jr_a")
    faults.drop(log_write, times=1)
    with pytest.raises(StoreUnavailableError, match=r"(Try again|or try) later"):
        hooked.begin(job_id, "jr_b")

    run = hooked.begin(job_id, "jr_c")
    run.freeze({}, {"n": 1})
    run.commit()

    assert [(entry.version, entry.change.op) for entry in hooked.history(job_id)] == [(2, "COMMIT"), (1, "IMPORT")]


def test_unreadable_item_is_named_when_it_has_no_watermarks(
    watermarks: Watermarks, put: Callable[..., None], job_id: str, stored: Stored
) -> None:
    put("jr_a")
    before = stored()

    with pytest.raises(CorruptItemError, match=f"Item 'jr_a' of job '{job_id}' is not readable") as caught:
        watermarks.begin(job_id, "jr_b")

    assert (caught.value.job_id, caught.value.range_key) == (job_id, "jr_a")
    assert stored() == before


# --- several items ----------------------------------------------------------------------------------------


CALLS: dict[str, Callable[[Watermarks, str], Any]] = {
    "begin": lambda watermarks, job_id: watermarks.begin(job_id, "r1"),
    "add_watermark": lambda watermarks, job_id: add(watermarks, job_id, "r1", n=1),
    "adopt": lambda watermarks, job_id: watermarks.adopt(job_id, "r1"),
    "get_most_recent_run_id": lambda watermarks, job_id: watermarks.get_most_recent_run_id(job_id),
    "get_watermark": lambda watermarks, job_id: watermarks.get_watermark(job_id),
    "get_watermark_values": lambda watermarks, job_id: watermarks.get_watermark_values(job_id),
    "latest": lambda watermarks, job_id: watermarks.latest(job_id),
    "history": lambda watermarks, job_id: watermarks.history(job_id),
}


@pytest.mark.parametrize("call", [call for call in CALLS if call != "adopt"])
def test_call_names_the_runs_and_the_remedy_when_there_are_several_items(
    watermarks: Watermarks, job_id: str, put_legacy: PutLegacy, stored: Stored, call: str
) -> None:
    put_legacy("jr_b")
    put_legacy("jr_a")
    before = stored()

    with pytest.raises(AmbiguousHistoryError) as caught:
        CALLS[call](watermarks, job_id)

    assert (caught.value.job_id, caught.value.run_ids) == (job_id, ("jr_a", "jr_b"))
    text = str(caught.value)
    assert f"Job {job_id!r} has 2 items of the original class" in text
    assert "jr_a, jr_b" in text
    assert "get_job_runs shows start times" in text
    assert "adopt(job_id, run_id=...)" in text
    assert "808" not in text.replace(job_id, "")  # The random job name may contain it.
    assert stored() == before


def test_error_names_ten_runs_and_counts_all_when_there_are_many_items(
    watermarks: Watermarks, job_id: str, put_legacy: PutLegacy
) -> None:
    run_ids = [f"jr_{number:02}" for number in range(25)]
    for run_id in run_ids:
        put_legacy(run_id)

    with pytest.raises(AmbiguousHistoryError, match=r"has 25 items.* jr_09, …") as caught:
        watermarks.begin(job_id, "r1")

    assert caught.value.run_ids == tuple(run_ids)
    assert "jr_10" not in str(caught.value)


def test_all_pages_are_read_when_the_items_are_large(
    watermarks: Watermarks, job_id: str, put_legacy: PutLegacy
) -> None:
    run_ids = [f"jr_{number}" for number in range(6)]
    for run_id in run_ids:
        put_legacy(run_id, mark={"S": "x" * 300_000})

    with pytest.raises(AmbiguousHistoryError) as caught:
        watermarks.latest(job_id)

    assert caught.value.run_ids == tuple(run_ids)


def test_item_of_a_named_run_is_read_when_there_are_several(
    watermarks: Watermarks, job_id: str, put_legacy: PutLegacy
) -> None:
    put_legacy("jr_a", n={"N": "1"})
    put_legacy("jr_b", n={"N": "2"})

    assert watermarks.get_watermark(job_id, "jr_a") == {"jobName": job_id, "runId": "jr_a", "watermarks": {"n": 1}}


def test_unknown_run_is_named_when_there_are_several_items(
    watermarks: Watermarks, job_id: str, put_legacy: PutLegacy
) -> None:
    put_legacy("jr_a")
    put_legacy("jr_b")

    with pytest.raises(UnknownRunError, match=f"Run 'jr_z' of job '{job_id}' has no watermark"):
        watermarks.get_watermark(job_id, "jr_z")


# --- no items, or a head that is gone --------------------------------------------------------------------------


@pytest.mark.parametrize("call", CALLS)
def test_call_says_that_the_head_is_gone_when_only_its_log_is_left(
    watermarks: Watermarks, job_id: str, stored: Stored, delete: Callable[[str], None], call: str
) -> None:
    add(watermarks, job_id, "r1", n=808)
    delete("~latest")
    before = stored()

    with pytest.raises(CorruptItemError, match="make it from the log: `watermarks doctor") as caught:
        CALLS[call](watermarks, job_id)

    assert (caught.value.job_id, caught.value.range_key) == (job_id, "~latest")
    assert "'!c#0000000000000000001' is there" in str(caught.value)
    assert stored() == before


def test_latest_says_that_the_head_is_gone_when_only_a_chunk_is_left(
    watermarks: Watermarks, job_id: str, stored: Stored, delete: Callable[[str], None]
) -> None:
    commit(watermarks, job_id, "r1", large(1, 100_000))
    [chunk] = chunk_keys(stored())
    for range_key in stored().keys() - {chunk}:
        delete(range_key)

    with pytest.raises(CorruptItemError, match=f"it is gone, though '{chunk}' is there"):
        watermarks.latest(job_id)
