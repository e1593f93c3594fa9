"""Tests of guards that no other test covers: each fails if its guard is removed."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.helpers.errors import StoreUnavailableError
from scripts.helpers.protocol.head import LogEntry
from scripts.helpers.protocol.store import Store
from scripts.helpers.protocol.values import same_values
from scripts.helpers.watermarks import Watermarks
from tests.support.faults import Faults, head_write
from tests.support.steps import commit, large
from tests.support.table_items import Stored

pytestmark = pytest.mark.both_stores


def test_run_item_shows_the_newer_version_when_an_older_one_is_repaired_late(
    watermarks: Watermarks, job_id: str, stored: Stored
) -> None:
    """`put_run` compares versions, because a slow begin may write the run item of a version that its run has passed."""
    commit(watermarks, job_id, "r1", {"n": 1})
    [old] = watermarks.history(job_id)
    assert isinstance(old, LogEntry)
    commit(watermarks, job_id, "r1", {"n": 2})

    watermarks.store.write_log(old)

    # Read the stored item: a look-up of the run in force would read the head instead.
    assert stored()["r1"]["version"] == {"N": "2"}


def test_job_is_free_when_an_abort_finds_a_plan_that_its_freeze_did_not_see(
    hooked: Watermarks, watermarks: Watermarks, job_id: str, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`abort` swaps a second time: the first swap is refused, as the head has a plan that the run does not know."""
    run = hooked.begin(job_id, "r1")
    swap = Store.swap

    def lose_answer(self: Store, *args: Any) -> Any:
        swap(self, *args)
        raise StoreUnavailableError("table", "put_item", "ReadTimeoutError")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "swap", lose_answer)
        with pytest.raises(StoreUnavailableError):
            run.freeze({"a": [1]}, {"n": 1})

    run.abort()

    assert "owner" not in stored()["~latest"]
    assert watermarks.begin(job_id, "r2").replay


@pytest.mark.parametrize("decision", ["discard", "set", "reset-other", "reset"])
def test_states_that_a_dropped_plan_repeats_can_be_read_when_a_decision_ends_it(
    watermarks: Watermarks, job_id: str, decision: str
) -> None:
    """`unused` keeps the chunks that the versions before and after the decision refer to."""
    commit(watermarks, job_id, "r1", {"parking": large(1), "n": 1})
    run = watermarks.begin(job_id, "r2")
    run.freeze({"parking": run.watermarks["parking"]}, {**run.watermarks, "n": 2})
    after: dict[str, Any] = {"parking": large(1), "n": 1}
    if decision == "discard":
        watermarks.discard_plan(job_id, why="a test")
    elif decision == "set":
        watermarks.set_watermark(job_id, {"n": 9}, why="a test")
        after["n"] = 9
    elif decision == "reset-other":
        watermarks.reset(job_id, transformation_ctx="n", why="a test")
        del after["n"]
    else:
        watermarks.reset(job_id, why="a test")
        after = {}

    head = watermarks.latest(job_id)
    assert same_values({name: watermarks.lookups.state_at(head, name) for name in head.watermarks}, after)
    watermarks.rewind(job_id, to_version=1, why="a test")
    assert same_values(watermarks.get_watermark_values(job_id), {"parking": large(1), "n": 1})


def test_nothing_is_left_when_an_abort_is_sent_again(hooked: Watermarks, faults: Faults, job_id: str) -> None:
    run = hooked.begin(job_id, "r1")
    faults.by_name("resend", head_write)

    run.abort()

    assert hooked.latest(job_id).claim is None
