"""Chunks are written no faster than one partition accepts them, and the lease is kept in the meantime."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from scripts.helpers.errors import AccessRefusedError, FencedError, PlanConflictError, StoreUnavailableError
from scripts.helpers.protocol.chunks import CHUNK_BYTES, Blob
from scripts.helpers.protocol.items import log_key
from scripts.helpers.protocol.store import Store
from scripts.helpers.protocol.values import Spilled, same_values, to_utc_string
from scripts.helpers.watermarks import DEFAULT_LEASE, Watermarks
from tests.protocol.capacity import write_units
from tests.support.clock import Clock
from tests.support.dynamodb import FakeDynamoDB
from tests.support.faults import Faults, Request
from tests.support.reasons import because
from tests.support.steps import commit, large
from tests.support.table_items import Stored

PARTITION_UNITS = 1_000
JOB = "parking"
PATIENCE_SECONDS = 60.0
"""Shorter than `PATIENCE`, so that two threads that wait for each other fail early instead of hanging."""


class Partition(FakeDynamoDB):
    """One partition: a thousand write units a second. A request is throttled when none is left."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.left, self.throttled = 0.0, float(PARTITION_UNITS), 0
        self.fault = self._meter

    def sleep(self, seconds: float) -> None:
        self.left = min(PARTITION_UNITS, self.left + seconds * PARTITION_UNITS)
        self.now += seconds

    def _meter(self, number: int, method: str, params: dict[str, Any]) -> str | None:
        if method not in ("put_item", "update_item", "delete_item"):
            return None
        item = params.get("Item")
        key = (JOB, (item or params["Key"])["runId"]["S"])
        units = write_units(self._load(key), item)
        if units > self.left:
            self.throttled += 1
            return "throttle"
        self.left -= units
        return None


@pytest.fixture
def partition() -> Partition:
    return Partition()


@pytest.fixture
def store(partition: Partition) -> Store:
    client: Any = partition
    made = Store("table", client)
    made.sleep, made.timer = partition.sleep, lambda: partition.now
    return made


def chunk(request: Request) -> bool:
    """Match the write of a chunk."""
    return request.operation == "PutItem" and (request.range_key or "").startswith(("!p#", "!s#"))


# --- pace --------------------------------------------------------------------------------------------------------


def test_sixty_megabytes_are_written_without_a_throttle_when_a_partition_takes_a_thousand_units(
    partition: Partition, store: Store
) -> None:
    parts = [bytes(CHUNK_BYTES)] * 172

    store.write_chunks(JOB, {"s#t-0": parts})

    assert len(partition.items) == 172
    assert partition.throttled == 0
    assert 59 < partition.now < 75


def test_expiry_and_deletion_of_large_states_are_paced_too(partition: Partition, store: Store, clock: Clock) -> None:
    reference = Spilled("s#t-0", 30, 30 * CHUNK_BYTES, "0" * 64)
    store.write_chunks(JOB, {reference.id: [bytes(CHUNK_BYTES)] * 30})

    store.expire_chunks(JOB, reference, clock.now)
    store.delete_chunks(JOB, reference)

    assert partition.items == {}
    assert partition.throttled == 0


def test_nothing_waits_when_one_chunk_is_written(partition: Partition, store: Store) -> None:
    store.write_chunks(JOB, {"s#t-0": [bytes(CHUNK_BYTES)]})

    assert partition.now == 0


def test_chunks_are_written_when_others_use_up_the_partition_for_a_minute(partition: Partition, store: Store) -> None:
    partition.left = -60.0 * PARTITION_UNITS

    store.write_chunks(JOB, {"s#t-0": [bytes(CHUNK_BYTES)] * 3})

    assert len(partition.items) == 3
    assert partition.throttled > 4
    assert partition.now > 60


def test_store_is_unavailable_in_the_end_when_every_chunk_write_is_throttled(
    partition: Partition, store: Store
) -> None:
    partition.left = float("-inf")

    with pytest.raises(StoreUnavailableError, match="ProvisionedThroughputExceeded"):
        store.write_chunks(JOB, {"s#t-0": [b"x"]})

    assert 60 < partition.now < 600


def test_chunk_write_is_not_sent_again_when_it_is_refused_for_another_reason(
    hooked: Watermarks, faults: Faults, job_id: str
) -> None:
    faults.by_name("drop", chunk, times=1)

    with pytest.raises(StoreUnavailableError):
        hooked.store.write_chunks(job_id, {"s#t-0": [b"x"]})

    assert faults.hits == 1


# --- the lease in the meantime -------------------------------------------------------------------------------------


def in_the_middle_of_chunks(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> list[object]:
    """Run `action` in another thread while chunks are written; return the list that receives its result."""
    answers: list[object] = []
    write_chunks = Store.write_chunks

    def write_and_act(self: Store, job_id: str, chunks: Any) -> None:
        write_chunks(self, job_id, chunks)
        thread = threading.Thread(target=lambda: answers.append(action()), daemon=True)
        thread.start()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive(), "the other thread waits for the chunks"

    monkeypatch.setattr(Store, "write_chunks", write_and_act)
    return answers


def test_lease_is_renewed_and_kept_when_the_heart_beats_while_chunks_are_written(
    watermarks: Watermarks, clock: Clock, job_id: str, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = watermarks.begin(job_id, "r1")
    clock.move(minutes=5)
    answers = in_the_middle_of_chunks(monkeypatch, run.heartbeat)

    run.freeze({"parking": large(1)}, {"parking": large(2)})

    assert answers == [True]
    assert stored()["~latest"]["leaseUntil"]["S"] == to_utc_string(clock.now + DEFAULT_LEASE)
    assert run.commit() == "done"


def test_freeze_is_fenced_when_another_run_takes_over_while_chunks_are_written(
    watermarks: Watermarks, job_id: str, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = watermarks.begin(job_id, "r1")
    in_the_middle_of_chunks(monkeypatch, lambda: watermarks.begin(job_id, "r2", take_over=True))

    with pytest.raises(FencedError):
        run.freeze({"parking": large(1)}, {"parking": large(2)})

    assert "plan" not in stored()["~latest"]


def test_freeze_is_refused_when_the_run_is_aborted_while_its_chunks_are_written(
    watermarks: Watermarks, job_id: str, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler aborts in the same thread that freezes."""
    run = watermarks.begin(job_id, "r1")
    write_chunks = Store.write_chunks

    def write_and_abort(self: Store, job_id: str, chunks: Any) -> None:
        write_chunks(self, job_id, chunks)
        run.abort()

    monkeypatch.setattr(Store, "write_chunks", write_and_abort)

    with pytest.raises(PlanConflictError, check=because("run_closed")):
        run.freeze({"parking": large(1)}, {"parking": large(2)})

    assert not {"plan", "owner"} & stored()["~latest"].keys()


# --- what a commit deletes, and when -------------------------------------------------------------------------------


def test_version_before_can_be_read_when_the_plan_had_a_blob_of_its_state(watermarks: Watermarks, job_id: str) -> None:
    commit(watermarks, job_id, "r1", {"parking": {"ledger": Blob(large(1)["packed"])}})
    run = watermarks.begin(job_id, "r2")
    run.freeze({"parking": {"ledger": run.state("parking")["ledger"]}}, {"parking": {"n": 1}})
    run.commit()

    watermarks.rewind(job_id, to_version=1, why="a test")

    ledger = watermarks.get_watermark_values(job_id)["parking"]["ledger"]
    assert same_values(ledger.data, large(1)["packed"])
    assert watermarks.doctor(job_id) == []


@pytest.mark.parametrize("decided", [False, True], ids=["commit", "discard"])
def test_version_expires_when_the_role_may_not_delete(
    watermarks: Watermarks,
    make_watermarks: Callable[..., Watermarks],
    job_id: str,
    stored: Stored,
    decided: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watermarks = make_watermarks(watermarks.table_name, retention=timedelta(days=1))
    commit(watermarks, job_id, "r1", {"n": 1})
    run = watermarks.begin(job_id, "r2")
    run.freeze({"parking": large(1)}, {"n": 2})

    def refuse(self: Store, job_id: str, range_key: str) -> None:
        raise AccessRefusedError("dynamodb:DeleteItem", "table")

    monkeypatch.setattr(Store, "delete", refuse)
    if decided:
        watermarks.discard_plan(job_id, why="a test")
    else:
        run.commit()

    found = stored()
    assert "expiresAt" in found[log_key(1)]
    assert "expiresAt" in found["r1"]
