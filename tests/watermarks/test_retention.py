"""Retention: old versions may expire, but nothing that the head or an unexpired log entry needs expires before it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from scripts.helpers.errors import NothingThereError, UnknownRunError
from scripts.helpers.protocol.changes import expire_version
from scripts.helpers.protocol.items import log_key
from scripts.helpers.protocol.values import same_values
from scripts.helpers.watermarks import Watermarks
from tests.support import steps
from tests.support.clock import Clock
from tests.support.faults import Faults, Wire
from tests.support.reasons import because
from tests.support.table_items import Stored

pytestmark = pytest.mark.both_stores

KEPT = timedelta(days=30)
MARGIN = int(timedelta(days=3).total_seconds())
"""Longer than the difference between two clocks that are each wrong by a day."""
WHY: dict[str, Any] = {"why": "a test", "who": "tester"}


def large(seed: int) -> dict[str, Any]:
    return steps.large(seed, 100_000)


@pytest.fixture
def kept(hooked: Watermarks, clock: Clock) -> Watermarks:
    """Return `Watermarks` that keep old versions for 30 days."""
    made = Watermarks(hooked.table_name, hooked.store.client, clock=clock, retention=KEPT)
    made.store.table, made.store.sleep = hooked.store.table, hooked.store.sleep
    return made


@pytest.fixture
def commit(kept: Watermarks, clock: Clock, job_id: str) -> Callable[..., int]:
    """Return a function that commits a run a day later and returns when the version before it may expire."""

    def act(run_id: str, **following: Any) -> int:
        clock.move(days=1)
        steps.commit(kept, job_id, run_id, following)
        return int((clock.now + KEPT).timestamp())

    return act


@pytest.fixture
def expiries(stored: Stored) -> Callable[[], dict[str, int]]:
    """Return a reader of the ``expiresAt`` of all items that have one."""

    def read() -> dict[str, int]:
        return {key: int(item["expiresAt"]["N"]) for key, item in stored().items() if "expiresAt" in item}

    return read


@pytest.fixture
def sweep(clock: Clock, expiries: Callable[[], dict[str, int]], delete: Callable[[str], None]) -> Callable[..., int]:
    """Return a function that moves the clock, deletes all expired items as TTL does, and returns their number."""

    def act(**later: float) -> int:
        clock.move(**later)
        gone = [key for key, at in expiries().items() if at <= clock.now.timestamp()]
        for key in gone:
            delete(key)
        return len(gone)

    return act


def test_nothing_expires_when_no_retention_is_set(
    watermarks: Watermarks, job_id: str, expiries: Callable[[], dict[str, int]]
) -> None:
    for number in range(3):
        watermarks.add_watermark(watermarks.create_watermark_item(job_id, f"r{number}", n=number))

    assert expiries() == {}


def test_superseded_entry_and_run_expire_after_the_retention_when_a_later_run_commits(
    commit: Any, expiries: Callable[[], dict[str, int]], stored: Stored
) -> None:
    commit("r1", n=1)
    assert expiries() == {}
    second = commit("r2", n=2)
    third = commit("r3", n=3)

    assert expiries() == {log_key(1): second, "r1": second, log_key(2): third, "r2": third}
    assert set(stored()) - set(expiries()) == {log_key(3), "r3", "~latest"}


def test_superseded_entry_and_run_expire_when_add_watermark_commits(
    kept: Watermarks, clock: Clock, job_id: str, expiries: Callable[[], dict[str, int]]
) -> None:
    for number in (1, 2):
        kept.add_watermark(kept.create_watermark_item(job_id, f"r{number}", n=number))

    at = int((clock.now + KEPT).timestamp())
    assert expiries() == {log_key(1): at, "r1": at}


def test_chunks_expire_with_the_last_version_that_needs_them_when_states_are_large(
    commit: Any, expiries: Callable[[], dict[str, int]], stored: Stored
) -> None:
    commit("r1", a=large(1), b=large(2))
    first = {key for key in stored() if key.startswith("!s#")}
    second = commit("r2", a=large(1), b=large(3))
    gone_second = {key for key in expiries() if key.startswith("!s#")}
    third = commit("r3", a=large(4), b=large(3))

    found = expiries()
    assert len(first) == 2
    assert len(gone_second) == 1
    assert gone_second < first
    assert {key: at for key, at in found.items() if key in first} == {
        **dict.fromkeys(gone_second, second + MARGIN),
        **dict.fromkeys(first - gone_second, third + MARGIN),
    }
    assert found[log_key(1)] == second
    assert found[log_key(2)] == third


def test_run_item_keeps_no_expiry_when_a_later_version_has_rewritten_it(
    commit: Any, expiries: Callable[[], dict[str, int]]
) -> None:
    commit("r1", n=1)
    commit("r2", n=2)
    assert "r1" in expiries()

    commit("r1", n=3)

    assert set(expiries()) == {log_key(1), log_key(2), "r2"}


def test_run_item_keeps_no_expiry_when_the_same_run_commits_twice_in_a_row(
    commit: Any, expiries: Callable[[], dict[str, int]]
) -> None:
    commit("r1", n=1)
    commit("r1", n=2)

    assert set(expiries()) == {log_key(1)}


@pytest.mark.parametrize("decision", ["rewind", "reset", "set", "discard", "after-restore"])
def test_superseded_entry_expires_when_a_decision_makes_the_next_version(
    kept: Watermarks, commit: Any, clock: Clock, job_id: str, expiries: Callable[[], dict[str, int]], decision: str
) -> None:
    commit("r1", n=1)
    commit("r2", n=2)
    kept.begin(job_id, "r3").freeze({}, {"n": 3})
    clock.move(days=1)
    decisions: dict[str, Callable[[], Any]] = {
        "rewind": lambda: kept.rewind(job_id, to_version=1, **WHY),
        "reset": lambda: kept.reset(job_id, **WHY),
        "set": lambda: kept.set_watermark(job_id, {"n": 7}, **WHY),
        "discard": lambda: kept.discard_plan(job_id, **WHY),
        "after-restore": lambda: kept.decisions.restore(job_id, {}, **WHY),
    }

    decisions[decision]()

    assert expiries()[log_key(2)] == int((clock.now + KEPT).timestamp())
    assert {log_key(3), "~latest"} & set(expiries()) == set()


def test_version_keeps_no_expiry_when_the_head_has_not_left_it_behind(
    kept: Watermarks, commit: Any, clock: Clock, job_id: str, expiries: Callable[[], dict[str, int]]
) -> None:
    commit("r1", n=1)
    head = kept.latest(job_id)
    assert head.log_entry is not None

    expire_version(kept.store, head.log_entry, head, clock.now)

    assert expiries() == {}


@pytest.mark.parametrize("unshared", [0, 1], ids=["all", "some"])
def test_older_versions_expire_with_the_chunks_they_share_when_they_were_made_without_a_retention(
    hooked: Watermarks,
    commit: Any,
    job_id: str,
    expiries: Callable[[], dict[str, int]],
    stored: Stored,
    unshared: int,
) -> None:
    for number in range(unshared):
        steps.commit(hooked, job_id, f"before{number}", {"a": large(2)})
    others = set(stored())
    for number in (1, 2):
        steps.commit(hooked, job_id, f"r{number}", {"a": large(1)})
    [chunk] = {key for key in stored() if key.startswith("!s#")} - others

    at = commit("r3", a=large(3))

    assert expiries() == {
        **dict.fromkeys([log_key(unshared + 1), "r1", log_key(unshared + 2), "r2"], at),
        chunk: at + MARGIN,
    }


# --- after TTL has deleted ---------------------------------------------------------------------------------------


def test_answers_about_the_newest_are_the_same_when_everything_expired_is_gone(
    kept: Watermarks, commit: Any, job_id: str, sweep: Callable[..., int]
) -> None:
    for number in range(5):
        commit(f"r{number}", a=large(number), b=large(100), n=number)
    latest, newest = kept.latest(job_id), kept.history(job_id)[:1]
    values = kept.get_watermark(job_id)

    gone = sweep(days=365)

    assert gone == 4 * 3
    assert kept.latest(job_id) == latest
    assert kept.history(job_id) == newest
    assert same_values(kept.get_watermark(job_id), values)
    assert same_values(kept.get_watermark(job_id, "r4"), values)
    assert same_values(kept.begin(job_id, "r5").state("b"), large(100))
    assert kept.doctor(job_id) == []


def test_versions_go_on_when_everything_expired_is_gone(
    kept: Watermarks, commit: Any, job_id: str, sweep: Callable[..., int]
) -> None:
    commit("r1", n=1)
    commit("r2", n=2)
    sweep(days=365)

    commit("r3", n=3)

    assert [entry.version for entry in kept.history(job_id)] == [3, 2]


def test_state_is_readable_when_it_was_rewound_to_and_its_version_has_expired(
    kept: Watermarks, commit: Any, job_id: str, sweep: Callable[..., int]
) -> None:
    commit("r1", a=large(1))
    commit("r2", a=large(2))
    kept.rewind(job_id, to_run="r1", **WHY)

    gone = sweep(days=365)

    assert gone == 2 * 3
    assert same_values(kept.get_watermark_values(job_id), {"a": large(1)})
    assert same_values(kept.get_watermark_values(job_id, "r1"), {"a": large(1)})
    assert same_values(kept.begin(job_id, "r3").state("a"), large(1))
    assert kept.doctor(job_id) == []


def test_expired_version_and_run_are_typed_errors_when_they_are_asked_for(
    kept: Watermarks, commit: Any, job_id: str, sweep: Callable[..., int], stored: Stored
) -> None:
    commit("r1", n=1)
    commit("r2", n=2)
    sweep(days=365)
    before = stored()

    with pytest.raises(
        NothingThereError,
        check=because("unknown_version"),
        match=f"Version 1 of job '{job_id}' is not in its log.* expired",
    ):
        kept.rewind(job_id, to_version=1, **WHY)
    with pytest.raises(UnknownRunError, match=f"Run 'r1' of job '{job_id}' has no watermark.* expired"):
        kept.rewind(job_id, to_run="r1", **WHY)
    with pytest.raises(UnknownRunError, match="or its item expired"):
        kept.get_watermark(job_id, "r1")

    assert stored() == before


# --- on the wire -------------------------------------------------------------------------------------------------


def test_nothing_is_made_anew_when_what_would_expire_is_gone(
    kept: Watermarks, commit: Any, job_id: str, stored: Stored, delete: Callable[[str], None]
) -> None:
    commit("r1", n=1)
    run = kept.begin(job_id, "r2")
    run.freeze({}, {"n": 2})
    delete("r1")
    delete(log_key(1))

    run.commit()

    assert set(stored()) == {log_key(2), "r2", "~latest"}


def test_commit_is_done_when_the_expiry_cannot_be_set(
    kept: Watermarks, commit: Any, faults: Faults, wire: Wire, job_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    commit("r1", n=1)
    faults.drop(lambda request: request.operation == "UpdateItem", times=100)

    commit("r2", n=2)

    assert faults.hits >= 1
    assert kept.latest(job_id).version == 2
    assert f"event=log_deferred job={job_id} version=2" in caplog.text
