"""The doctor on chunks: which nothing refers to, which are missing, and when they may be deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scripts.helpers.errors import CorruptItemError, FencedError
from scripts.helpers.protocol import items
from scripts.helpers.protocol.items import log_key
from scripts.helpers.protocol.values import same_values
from scripts.helpers.watermarks import DEFAULT_LEASE, Watermarks
from tests.conftest import Clock
from tests.decisions.doctor_cases import ORPHAN, Stored, commit, kinds, large


@pytest.mark.parametrize("range_key", [ORPHAN, "!p#0123456789abcdef-0#00000"])
def test_orphaned_chunk_is_deleted_when_the_doctor_may_repair(
    watermarks: Watermarks, job_id: str, put: Any, stored: Stored, range_key: str
) -> None:
    commit(watermarks, job_id, "r1", parking=large(1))
    before = stored()
    put(range_key, data={"B": b"x"})

    looked, repaired, again = (watermarks.doctor(job_id, repair=repair) for repair in (False, True, True))

    assert kinds(looked) == [("orphaned chunk", range_key, False)]
    assert looked[0].remedy == "Run the doctor with repair, while no run is at work."
    assert kinds(repaired) == [("orphaned chunk", range_key, True)]
    assert again == []
    assert stored() == before


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
    commit(watermarks, job_id, "r1", n=1)
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
    commit(watermarks, job_id, "r1", parking=large(1))
    commit(watermarks, job_id, "r2", parking=large(2))
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
    commit(watermarks, job_id, "r1", parking=large(1))
    commit(watermarks, job_id, "r2", parking=large(2))
    delete(items.chunk_key(stored()["~latest"]["watermarks"]["M"]["parking"]["M"]["id"]["S"], 0))
    with pytest.raises(CorruptItemError, match="chunk 1 of 2 is gone"):
        watermarks.get_watermark_values(job_id)

    watermarks.rewind(job_id, to_run="r1", why="a chunk is gone")

    assert same_values(watermarks.get_watermark_values(job_id), {"parking": large(1)})
