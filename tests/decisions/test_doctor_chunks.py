"""The doctor and chunks: orphaned ones, missing ones, and when orphans may be deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scripts.helpers.decisions.doctor import Finding
from scripts.helpers.errors import CorruptItemError, FencedError
from scripts.helpers.protocol import items
from scripts.helpers.protocol.chunks import Blob
from scripts.helpers.protocol.items import log_key
from scripts.helpers.protocol.store import Store
from scripts.helpers.protocol.values import same_values
from scripts.helpers.watermarks import DEFAULT_LEASE, Watermarks
from tests.decisions.doctor_cases import ORPHAN, kinds
from tests.support.clock import Clock
from tests.support.faults import Wire
from tests.support.steps import commit, large
from tests.support.table_items import Stored

pytestmark = pytest.mark.both_stores

Decide = Callable[[Watermarks, str], object]


@pytest.mark.parametrize("range_key", [ORPHAN, "!p#0123456789abcdef-0#00000"])
def test_orphaned_chunk_is_deleted_when_the_doctor_may_repair(
    watermarks: Watermarks, job_id: str, put: Any, stored: Stored, range_key: str
) -> None:
    commit(watermarks, job_id, "r1", {"parking": large(1)})
    before = stored()
    put(range_key, data={"B": b"x"})

    looked, repaired, again = (watermarks.doctor(job_id, repair=repair) for repair in (False, True, True))

    assert kinds(looked) == [("orphaned chunk", range_key, False)]
    assert looked[0].remedy == "Run the doctor with --repair, while no run is at work."
    assert kinds(repaired) == [("orphaned chunk", range_key, True)]
    assert again == []
    fence = {"fence": {"N": str(int(before["~latest"]["fence"]["N"]) + 1)}}
    last = {"last": {"M": before["~latest"]["last"]["M"] | fence}}
    assert stored() == before | {"~latest": before["~latest"] | fence | last}


def test_chunks_of_a_failed_freeze_are_found_and_deleted_when_its_run_is_over(
    hooked: Watermarks, job_id: str, stored: Stored
) -> None:
    run = hooked.begin(job_id, "r1")
    hooked.begin(job_id, "r1")
    with pytest.raises(FencedError):
        run.freeze({"parking": large(1)}, {"parking": large(2)})
    hooked.begin(job_id, "r1").abort()

    found = hooked.doctor(job_id, repair=True)

    assert [finding.kind for finding in found] == ["orphaned chunk"] * 4
    assert set(stored()) == {"~latest"}


@pytest.mark.parametrize("lease", ["alive", "over"])
def test_orphaned_chunk_is_kept_when_a_run_has_the_job(
    watermarks: Watermarks, clock: Clock, job_id: str, put: Any, stored: Stored, lease: str
) -> None:
    commit(watermarks, job_id, "r1", {"n": 1})
    watermarks.begin(job_id, "r2")
    put(ORPHAN, data={"B": b"x"})
    if lease == "over":
        clock.move(seconds=DEFAULT_LEASE.total_seconds())

    found = watermarks.doctor(job_id, repair=True)

    assert kinds(found) == [("orphaned chunk", ORPHAN, False)]
    assert ORPHAN in stored()


@pytest.mark.parametrize("holder", ["head", "log", "plan", "next"])
def test_missing_chunk_is_found_when_something_refers_to_it(
    watermarks: Watermarks, job_id: str, stored: Stored, delete: Callable[[str], None], holder: str
) -> None:
    commit(watermarks, job_id, "r1", {"parking": large(1)})
    commit(watermarks, job_id, "r2", {"parking": large(2)})
    watermarks.begin(job_id, "r3").freeze({"parking": large(3)}, {"parking": large(4)})
    head = stored()["~latest"]
    maps = {
        "head": head["watermarks"],
        "log": stored()[log_key(1)]["watermarks"],
        "plan": head["plan"]["M"]["contexts"],
        "next": head["plan"]["M"]["next"],
    }
    gone = items.chunk_key(maps[holder]["M"]["parking"]["M"]["id"]["S"], 1)
    delete(gone)

    found = watermarks.doctor(job_id, repair=True)

    assert kinds(found) == [("missing chunk", gone, False)]
    assert found[0].remedy == "Restore it from a backup, or rewind to a version without it."


def test_remedy_works_when_a_chunk_of_the_newest_version_is_missing(
    watermarks: Watermarks, job_id: str, stored: Stored, delete: Callable[[str], None]
) -> None:
    commit(watermarks, job_id, "r1", {"parking": large(1)})
    commit(watermarks, job_id, "r2", {"parking": large(2)})
    delete(items.chunk_key(stored()["~latest"]["watermarks"]["M"]["parking"]["M"]["id"]["S"], 0))
    with pytest.raises(CorruptItemError, match="chunk 1 of 2 is gone"):
        watermarks.get_watermark_values(job_id)

    watermarks.rewind(job_id, to_run="r1", why="a chunk is gone")

    assert same_values(watermarks.get_watermark_values(job_id), {"parking": large(1)})


# --- while a decision is under way ---------------------------------------------------------------------------------


DECIDE: dict[str, Decide] = {
    "set": lambda w, job: w.set_watermark(job, {"landed": {"ledger": Blob(large(3)["packed"])}}, why="a test"),
    "rewind": lambda w, job: w.rewind(job, to_version=1, why="a test"),
    "change": lambda w, job: w.decisions.change_watermark(job, lambda _: large(4), context="parking", why="a test"),
}
DECISIONS = pytest.mark.parametrize("decide", DECIDE.values(), ids=DECIDE)


@DECISIONS
def test_chunks_of_a_decision_in_flight_are_there_afterwards_when_the_doctor_repairs(
    watermarks: Watermarks, job_id: str, monkeypatch: pytest.MonkeyPatch, decide: Decide
) -> None:
    """The doctor sees the decision's chunks before anything refers to them."""
    commit(watermarks, job_id, "r1", {"parking": large(1)})
    commit(watermarks, job_id, "r2", {"parking": large(2)})
    repaired = repair_when(monkeypatch, watermarks, job_id, "write_chunks")

    decide(watermarks, job_id)

    assert [kind for kind, _, _ in kinds(repaired)] == ["orphaned chunk"] * 2
    assert watermarks.doctor(job_id, repair=True) == []
    values = watermarks.get_watermark_values(job_id)
    for state in values.values():
        assert len(state["ledger"].data if "ledger" in state else state["packed"]) == 400_000


@DECISIONS
def test_chunks_of_a_decision_are_kept_when_it_is_made_after_the_doctor_has_looked(
    watermarks: Watermarks, job_id: str, put: Any, stored: Stored, monkeypatch: pytest.MonkeyPatch, decide: Decide
) -> None:
    """The decision writes its chunks and its head after the doctor has listed the items, but before it deletes any."""
    commit(watermarks, job_id, "r1", {"parking": large(1)})
    commit(watermarks, job_id, "r2", {"parking": large(2)})
    put(ORPHAN, data={"B": b"x"})
    swap, decided = Store.swap, list[object]()

    def swap_late(self: Store, *args: Any) -> Any:
        if not decided:
            decided.append(None)
            decide(watermarks, job_id)
        return swap(self, *args)

    monkeypatch.setattr(Store, "swap", swap_late)
    found = watermarks.doctor(job_id, repair=True)

    assert kinds(found) == [("orphaned chunk", ORPHAN, False)]
    assert ORPHAN in stored()
    assert kinds(watermarks.doctor(job_id, repair=True)) == [("orphaned chunk", ORPHAN, True)]
    assert watermarks.doctor(job_id) == []


def test_run_is_not_counted_when_the_doctor_raises_the_fence(watermarks: Watermarks, job_id: str, put: Any) -> None:
    commit(watermarks, job_id, "r1", {"n": 1})
    put(ORPHAN, data={"B": b"x"})
    before = watermarks.latest(job_id)

    watermarks.doctor(job_id, repair=True)

    after = watermarks.latest(job_id)
    assert (after.version, after.fence) == (before.version, before.fence + 1)
    commit(watermarks, job_id, "r2", {"n": 2})
    assert watermarks.history(job_id)[0].change.failed == 0


def test_nothing_is_written_when_the_doctor_finds_no_orphan(hooked: Watermarks, job_id: str, wire: Wire) -> None:
    commit(hooked, job_id, "r1", {"parking": large(1)})
    wire.clear()

    assert hooked.doctor(job_id, repair=True) == []

    assert wire.writes == []


def repair_when(monkeypatch: pytest.MonkeyPatch, watermarks: Watermarks, job_id: str, method: str) -> list[Finding]:
    """Let the doctor repair once, right after a method of the store was called; return its findings."""
    found: list[Finding] = []
    called = getattr(Store, method)

    def call_then_repair(self: Store, *args: Any) -> Any:
        result = called(self, *args)
        if not found:
            found.extend(watermarks.doctor(job_id, repair=True))
        return result

    monkeypatch.setattr(Store, method, call_then_repair)
    return found
