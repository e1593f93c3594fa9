"""Large plans and states: chunks are written before the head, values come back unchanged, and nothing is left over."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from scripts.helpers.errors import PlanConflictError, StoreUnavailableError, TooLargeError
from scripts.helpers.files.bookmark import FileBookmark
from scripts.helpers.job import IncrementalJob
from scripts.helpers.listing.listing import Lister
from scripts.helpers.protocol import chunks as spill
from scripts.helpers.protocol import run as run_module
from scripts.helpers.protocol.chunks import CHUNK_BYTES, Blob
from scripts.helpers.protocol.run import Run
from scripts.helpers.protocol.values import Spilled, same_values
from scripts.helpers.watermarks import DEFAULT_LEASE, Watermarks
from tests.support import steps
from tests.support.buckets import SOURCE, Bucket, keys_of
from tests.support.clock import Clock
from tests.support.faults import Faults, Wire, head_write
from tests.support.steps import commit
from tests.support.table_items import Stored

pytestmark = pytest.mark.both_stores

WHY: dict[str, Any] = {"why": "a test", "who": "tester"}


def large(seed: int = 0, size: int = 400_000) -> dict[str, Any]:
    """Return a value that does not compress, with one value of every type beside it."""
    return steps.large(seed, size) | {
        "count": 3,
        "ratio": 1.0,
        "price": Decimal("1.50"),
        "at": datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc),
        "day": date(2026, 3, 16),
        "flags": [True, 0, None, ""],
    }


def chunks(stored: Stored, prefix: str = "!") -> list[str]:
    """Return the range keys of all chunks."""
    return [key for key in stored() if key.startswith(prefix) and not key.startswith("!c#")]


def frozen_without_an_answer(hooked: Watermarks, faults: Faults, job_id: str, contexts: Any, following: Any) -> Run:
    """Return a run whose freeze took effect although its caller got an error."""
    run = hooked.begin(job_id, "r1")
    faults.reply_lost(head_write)
    faults.drop(lambda request: faults.hits > 0 and not faults.healed, times=100)
    with pytest.raises(StoreUnavailableError):
        run.freeze(contexts, following)
    faults.heal()
    return run


# --- freeze, replay, commit ------------------------------------------------------------------------------------


def test_chunks_are_sent_before_the_head_when_a_plan_and_a_state_are_large(
    hooked: Watermarks, wire: Wire, job_id: str, stored: Stored
) -> None:
    run = hooked.begin(job_id, "r1")
    wire.clear()

    run.freeze({"parking": large(1)}, {"parking": large(2)})

    sent = [request.range_key or "" for request in wire.writes]
    assert [key[:3] for key in sent] == ["!p#", "!p#", "!s#", "!s#", "~la"]
    assert sent == sorted(sent)
    sizes = {key: len(item["data"]["B"]) for key, item in stored().items() if key[:3] in ("!p#", "!s#")}
    assert sorted(sizes) == sent[:-1]
    assert max(sizes.values()) == CHUNK_BYTES == 350_000


def test_head_stays_small_when_a_plan_and_a_state_are_large(
    watermarks: Watermarks, job_id: str, stored: Stored
) -> None:
    run = watermarks.begin(job_id, "r1")

    plan = run.freeze({"parking": large(1), "repairs": {"low": 1}}, {"parking": large(2), "repairs": {"n": 1}})

    assert len(repr(stored()["~latest"])) < 4_000
    assert isinstance(plan.contexts["parking"], Spilled)
    assert plan.contexts["repairs"] == {"low": 1}


@pytest.mark.parametrize("retry", ["same-handle", "same-id", "new-id"])
def test_values_come_back_with_their_types_when_a_large_plan_is_replayed(
    watermarks: Watermarks, clock: Clock, job_id: str, retry: str
) -> None:
    run = watermarks.begin(job_id, "r1")
    run.freeze({"parking": large(1)}, {"parking": large(2)})
    if retry != "same-handle":
        clock.move(seconds=DEFAULT_LEASE.total_seconds())
        run = watermarks.begin(job_id, "r1" if retry == "same-id" else "r2")

    planned, state = run.planned("parking"), run.state("parking")

    assert same_values(planned, large(1))
    assert state is None
    assert run.commit(rows=3) == "done"
    assert same_values(watermarks.begin(job_id, "r3").state("parking"), large(2))


def test_large_values_are_looked_up_when_they_are_committed(watermarks: Watermarks, job_id: str) -> None:
    commit(watermarks, job_id, "r1", {"parking": large(1), "n": 1})
    commit(watermarks, job_id, "r2", {"parking": large(2), "n": 2})

    newest, oldest = watermarks.get_watermark_values(job_id), watermarks.get_watermark_values(job_id, "r1")

    assert same_values(newest, {"parking": large(2), "n": 2})
    assert same_values(watermarks.get_watermark_values(job_id, "r2"), newest)
    assert same_values(oldest, {"parking": large(1), "n": 1})


@pytest.mark.parametrize("again", ["before", "after"], ids=["same-handle", "after-replay"])
def test_freeze_is_no_change_when_the_same_large_plan_is_given_again(
    watermarks: Watermarks, job_id: str, stored: Stored, again: str
) -> None:
    run = watermarks.begin(job_id, "r1")
    plan = run.freeze({"parking": large(1)}, {"parking": large(2)})
    if again == "after":
        run = watermarks.begin(job_id, "r1")
    before = stored()

    found = run.freeze({"parking": large(1)}, {"parking": large(2)})

    assert found == plan
    assert stored() == before


def test_freeze_is_refused_when_another_large_plan_is_given(watermarks: Watermarks, job_id: str) -> None:
    run = watermarks.begin(job_id, "r1")
    plan = run.freeze({"parking": large(1)}, {"parking": large(2)})

    with pytest.raises(PlanConflictError, match=f"plan {plan.plan_id} .* another one"):
        run.freeze({"parking": large(3)}, {"parking": large(2)})

    assert same_values(run.planned("parking"), large(1))


def test_retried_freeze_keeps_the_first_plan_when_its_answer_was_lost(
    hooked: Watermarks, faults: Faults, job_id: str, stored: Stored
) -> None:
    run = frozen_without_an_answer(hooked, faults, job_id, {"parking": large(1)}, {"parking": large(2)})
    kept = stored()["~latest"]["planId"]["S"]

    plan = run.freeze({"parking": large(1)}, {"parking": large(2)})

    assert plan.plan_id == kept
    assert same_values(run.planned("parking"), large(1))
    assert run.commit() == "done"
    assert same_values(hooked.get_watermark_values(job_id), {"parking": large(2)})


def test_retried_freeze_stores_a_blob_once_when_its_answer_was_lost(
    hooked: Watermarks, faults: Faults, job_id: str
) -> None:
    following = {"parking": {"ledger": Blob(large(1)["packed"])}}
    run = frozen_without_an_answer(hooked, faults, job_id, {}, following)

    run.freeze({}, following)

    assert run.commit() == "done"
    assert hooked.doctor(job_id) == []


def test_heartbeat_goes_on_when_a_freeze_took_effect_without_an_answer(
    hooked: Watermarks, faults: Faults, job_id: str
) -> None:
    run = frozen_without_an_answer(hooked, faults, job_id, {}, {"n": 1})

    assert run.heartbeat() is True

    run.freeze({}, {"n": 1})
    assert run.heartbeat() is True
    assert run.commit() == "done"


# --- what is deleted, and what stays ------------------------------------------------------------------------------


def test_plan_chunks_are_deleted_and_state_chunks_stay_when_a_run_commits(
    watermarks: Watermarks, job_id: str, stored: Stored
) -> None:
    run = watermarks.begin(job_id, "r1")
    run.freeze({"parking": large(1)}, {"parking": large(2)})
    assert (len(chunks(stored, "!p#")), len(chunks(stored, "!s#"))) == (2, 2)

    run.commit()

    assert (len(chunks(stored, "!p#")), len(chunks(stored, "!s#"))) == (0, 2)


@pytest.mark.parametrize("decision", ["discard", "reset", "rewind", "set"])
def test_chunks_of_a_dropped_plan_are_deleted_when_a_decision_is_made(
    watermarks: Watermarks, job_id: str, stored: Stored, decision: str
) -> None:
    commit(watermarks, job_id, "r1", {"parking": large(1)})
    kept = chunks(stored)
    watermarks.begin(job_id, "r2").freeze({"parking": large(2)}, {"parking": large(3)})
    decisions: dict[str, Callable[[], Any]] = {
        "discard": lambda: watermarks.discard_plan(job_id, **WHY),
        "reset": lambda: watermarks.reset(job_id, **WHY),
        "rewind": lambda: watermarks.rewind(job_id, to_version=1, **WHY),
        "set": lambda: watermarks.set_watermark(job_id, {"n": 1}, **WHY),
    }

    decisions[decision]()

    assert chunks(stored) == kept
    set_by_hand = {"n": 1} if decision == "set" else {}
    assert same_values(watermarks.get_watermark_values(job_id, "r1"), {"parking": large(1), **set_by_hand})


@pytest.mark.parametrize("decision", ["discard", "reset", "set"])
def test_state_that_a_dropped_plan_repeats_stays_when_a_decision_is_made(
    watermarks: Watermarks, job_id: str, stored: Stored, decision: str
) -> None:
    commit(watermarks, job_id, "r1", {"parking": large(1), "n": 1})
    kept = chunks(stored)
    run = watermarks.begin(job_id, "r2")
    run.freeze({"n": {"to": 2}}, {**run.watermarks, "n": 2})
    decisions: dict[str, Callable[[], Any]] = {
        "discard": lambda: watermarks.discard_plan(job_id, **WHY),
        "reset": lambda: watermarks.reset(job_id, transformation_ctx="parking", **WHY),
        "set": lambda: watermarks.set_watermark(job_id, {"n": 9}, **WHY),
    }

    decisions[decision]()
    watermarks.rewind(job_id, to_version=1, **WHY)

    assert set(kept) <= set(chunks(stored))
    assert same_values(watermarks.get_watermark_values(job_id), {"parking": large(1), "n": 1})


def test_job_is_let_go_with_its_plan_when_a_freeze_took_effect_without_an_answer(
    hooked: Watermarks, faults: Faults, job_id: str
) -> None:
    run = frozen_without_an_answer(hooked, faults, job_id, {}, {"n": 1})

    run.abort()

    head = hooked.latest(job_id)
    assert (head.claim, head.plan is not None) == (None, True)
    assert hooked.begin(job_id, "r2").replay


def test_large_state_is_there_again_when_a_job_is_rewound_after_a_reset(watermarks: Watermarks, job_id: str) -> None:
    commit(watermarks, job_id, "r1", {"parking": large(1)})
    watermarks.reset(job_id, **WHY)

    watermarks.rewind(job_id, to_run="r1", **WHY)

    assert same_values(watermarks.begin(job_id, "r2").state("parking"), large(1))


def test_only_the_named_context_is_copied_when_one_context_is_rewound(
    watermarks: Watermarks, job_id: str, stored: Stored
) -> None:
    commit(watermarks, job_id, "r1", {"a": large(1), "b": large(2)})
    commit(watermarks, job_id, "r2", {"a": large(3), "b": large(4)})
    before = chunks(stored)

    watermarks.rewind(job_id, to_version=1, transformation_ctx="a", **WHY)

    assert same_values(watermarks.get_watermark_values(job_id), {"a": large(1), "b": large(4)})
    assert len(chunks(stored)) == len(before) + 2
    assert watermarks.doctor(job_id) == []


@pytest.mark.parametrize("given", ["reference", "same-value"])
def test_unchanged_state_is_not_written_again_when_a_later_run_commits(
    hooked: Watermarks, wire: Wire, job_id: str, stored: Stored, given: str
) -> None:
    commit(hooked, job_id, "r1", {"parking": large(1), "n": 1})
    before = chunks(stored)
    run = hooked.begin(job_id, "r2")
    following = {**run.watermarks, "n": 2} if given == "reference" else {"parking": large(1), "n": 2}
    wire.clear()

    run.freeze({}, following)
    run.commit()

    assert [request for request in wire.writes if (request.range_key or "")[:3] in ("!p#", "!s#")] == []
    assert chunks(stored) == before
    assert same_values(hooked.get_watermark_values(job_id), {"parking": large(1), "n": 2})


# --- sizes ----------------------------------------------------------------------------------------------------------


def test_plan_of_20_mb_is_frozen_replayed_and_committed_when_it_does_not_compress(
    watermarks: Watermarks, clock: Clock, job_id: str, stored: Stored
) -> None:
    packed = random.Random(20).randbytes(20 * 1024 * 1024)

    watermarks.begin(job_id, "r1").freeze({"parking": {"packed": packed}}, {"n": 1})
    clock.move(seconds=DEFAULT_LEASE.total_seconds())
    run = watermarks.begin(job_id, "r2")
    found = run.planned("parking")
    run.commit()

    assert found == {"packed": packed}
    assert chunks(stored) == []


@pytest.mark.parametrize("part", ["plan", "state"])
def test_nothing_is_sent_when_a_value_is_over_the_limit(
    hooked: Watermarks, wire: Wire, job_id: str, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setattr(run_module, "MAX_SPILL_BYTES", 300_000)
    monkeypatch.setattr(spill, "MAX_SPILL_BYTES", 300_000)
    run = hooked.begin(job_id, "r1")
    wire.clear()
    given = ({"parking": large(1)}, {}) if part == "plan" else ({}, {"parking": large(1)})

    with pytest.raises(
        TooLargeError, match=r"most of it in 'parking': 400,\d+ bytes, and the limit is 300,000\. Store"
    ):
        run.freeze(*given)

    assert wire.requests == []
    assert run.plan is None


def test_nothing_is_sent_when_small_values_are_too_many_for_the_head(
    hooked: Watermarks, wire: Wire, job_id: str
) -> None:
    run = hooked.begin(job_id, "r1")
    wire.clear()

    with pytest.raises(TooLargeError, match=r"the limit is 65,536\. Store a reference to the data"):
        run.freeze({}, {f"{number:03}": "x" * 100 for number in range(900)})

    assert wire.requests == []


def test_bookmark_of_many_files_goes_from_run_to_run_when_it_is_large(
    hooked: Watermarks, wire: Wire, job_id: str, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = Bucket()
    monkeypatch.setattr(Lister, "look_at_each", lambda _, keys: bucket.look_at_each(keys))
    for number in range(20_000):
        bucket.put(f"{number:06}.csv", body=str(number))
    planned = list(bucket.objects)
    with pytest.raises(ZeroDivisionError), IncrementalJob(hooked, job_id, "r1") as job:
        job.new_files(SOURCE, transformation_ctx="parking", listing=bucket, on_changed=None)
        job.freeze()
        raise ZeroDivisionError
    bucket.put("zz.csv")
    with IncrementalJob(hooked, job_id, "r2") as job:
        replayed = job.new_files(SOURCE, transformation_ctx="parking", listing=bucket, on_changed=None)
    with IncrementalJob(hooked, job_id, "r3") as job:
        added = job.new_files(SOURCE, transformation_ctx="parking", listing=bucket, on_changed=None)
    before, _ = chunks(stored), wire.clear()
    with IncrementalJob(hooked, job_id, "r4") as job:
        nothing = job.new_files(SOURCE, transformation_ctx="parking", listing=bucket, on_changed=None)

    assert keys_of(replayed) == planned
    assert keys_of(added) == ["zz.csv"]
    assert nothing.count == 0
    assert chunks(stored) == before
    assert [request for request in wire.writes if (request.range_key or "").startswith("!s#")] == []
    assert hooked.history(job_id)[2].change.metrics["files_read"] == 20_000
    state = hooked.get_watermark_values(job_id)["parking"]
    assert FileBookmark(SOURCE, state=state).new_files(bucket).count == 0
    assert hooked.doctor(job_id) == []
