"""How long and how often the client tries: explicit timeouts and retries, random pauses, and a limit to it all."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import boto3
import pytest

from scripts.helpers.errors import CommitUnknownError, StoreUnavailableError, WatermarkError
from scripts.helpers.protocol.dynamodb import CLIENT_CONFIG
from scripts.helpers.protocol.store import ATTEMPTS, BUDGET_SECONDS
from scripts.helpers.watermarks import Watermarks
from tests.support.clock import Clock
from tests.support.faults import ONE_ATTEMPT, ClientFaults, Wire, anything, head_write
from tests.support.places import REGION

JOB, ALWAYS = "parking", 10_000


class Timer:
    """A monotonic timer that only sleeps and slow requests advance."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


class TimedWatermarks:
    """`Watermarks` with a fake timer, whose requests may fail."""

    def __init__(self, table_name: str, client: Any, clock: Clock) -> None:
        self.client, self.timer = client, Timer()
        self.wire, self.faults = Wire(client), ClientFaults(client)
        self.watermarks = Watermarks(table_name, client, clock=clock)
        self.watermarks.store.timer, self.watermarks.store.sleep = self.timer, self.timer.sleep

    def slow_down(self, seconds: float) -> None:
        """Make every request from now on take this long."""

        def before_send(**_: Any) -> None:
            self.timer.now += seconds

        self.client.meta.events.register_first("before-send.dynamodb", before_send)


@pytest.fixture
def timed(dynamodb: Any, watermarks: Watermarks, clock: Clock) -> TimedWatermarks:
    config = CLIENT_CONFIG.merge(ONE_ATTEMPT)
    client = boto3.client("dynamodb", endpoint_url=dynamodb.meta.endpoint_url, config=config)
    return TimedWatermarks(watermarks.table_name, client, clock)


@pytest.fixture
def longest_pauses(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """Make every random pause as long as possible; return the upper bounds that were requested."""
    bounds: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        bounds.append((low, high))
        return high

    monkeypatch.setattr(random, "uniform", uniform)
    return bounds


CALLS: dict[str, tuple[type[WatermarkError], Callable[[TimedWatermarks, Any], Any]]] = {
    "freeze": (StoreUnavailableError, lambda _, run: run.freeze({}, {"n": 1})),
    "commit": (CommitUnknownError, lambda _, run: run.commit()),
    "abort": (StoreUnavailableError, lambda _, run: run.abort()),
}


def test_default_client_has_explicit_limits_when_none_is_given(endpoint: str) -> None:
    made = Watermarks("some-table", region_name=REGION, endpoint_url=endpoint)

    config: Any = made.store.client.meta.config
    assert (config.connect_timeout, config.read_timeout) == (3, 5)
    assert config.retries == {"mode": "standard", "total_max_attempts": 3}


@pytest.mark.parametrize("lease", [1, 900], ids=["lease-of-1-s", "lease-of-15-min"])
@pytest.mark.parametrize("call", ["begin", "freeze", "commit", "abort"])
def test_call_ends_within_its_budget_when_it_is_throttled_for_ever(
    timed: TimedWatermarks, longest_pauses: list[tuple[float, float]], call: str, lease: int
) -> None:
    run = None
    if call != "begin":
        run = timed.watermarks.begin(JOB, "r1", lease=timedelta(seconds=lease))
    if call in ("commit", "abort"):
        assert run is not None
        run.freeze({}, {"n": 1})
    timed.faults.throttle(head_write, ALWAYS)
    timed.wire.clear()

    with pytest.raises((StoreUnavailableError, CommitUnknownError)) as caught:
        if call == "begin":
            timed.watermarks.begin(JOB, "r1", lease=timedelta(seconds=lease))
        else:
            CALLS[call][1](timed, run)

    assert type(caught.value) is (StoreUnavailableError if call == "begin" else CALLS[call][0])
    assert timed.timer.now <= min(BUDGET_SECONDS, lease)
    assert 2 <= len(timed.wire.head_writes) <= ATTEMPTS
    assert len(timed.timer.pauses) == len(timed.wire.head_writes) - 1


@pytest.mark.parametrize(("lease", "attempts"), [(10, 1), (20, 2), (900, 2)])
def test_no_attempt_starts_after_the_budget_when_each_request_times_out(
    timed: TimedWatermarks, longest_pauses: list[tuple[float, float]], lease: int, attempts: int
) -> None:
    run = timed.watermarks.begin(JOB, "r1", lease=timedelta(seconds=lease))
    timed.slow_down(8)
    timed.faults.drop(anything, ALWAYS)
    timed.wire.clear()

    with pytest.raises(StoreUnavailableError):
        run.freeze({}, {"n": 1})

    assert len(timed.wire.head_writes) == attempts
    assert timed.timer.now <= min(BUDGET_SECONDS, lease) + 2 * 8


def test_pauses_are_full_jitter_and_grow_when_a_write_is_throttled(
    timed: TimedWatermarks, longest_pauses: list[tuple[float, float]]
) -> None:
    run = timed.watermarks.begin(JOB, "r1")
    timed.faults.throttle(head_write, ALWAYS)

    with pytest.raises(StoreUnavailableError):
        run.freeze({}, {"n": 1})

    asked = longest_pauses[: len(timed.timer.pauses)]
    assert len(asked) == ATTEMPTS - 1
    assert {low for low, _ in asked} == {0}
    assert [high for _, high in asked] == timed.timer.pauses == [0.2, 0.4, 0.8]


def test_pauses_differ_when_two_writers_are_throttled_alike(timed: TimedWatermarks) -> None:
    pauses = []

    for number in range(2):
        timed.faults.throttle(head_write, 3)
        timed.watermarks.begin(f"{JOB}-{number}", "r1")
        pauses.append(timed.timer.pauses[-3:])

    assert pauses[0] != pauses[1]
    assert all(0 <= pause <= limit for three in pauses for pause, limit in zip(three, (0.2, 0.4, 0.8), strict=True))


def test_nothing_changed_when_a_call_gives_up(timed: TimedWatermarks, clock: Clock) -> None:
    run = timed.watermarks.begin(JOB, "r1")
    before = timed.watermarks.latest(JOB)
    timed.faults.throttle(head_write, ALWAYS)

    with pytest.raises(StoreUnavailableError, match=r"put_item on table '.+' failed: ProvisionedThroughput"):
        run.freeze({}, {"n": 1})

    assert timed.watermarks.latest(JOB) == before
    timed.faults.heal()
    run.freeze({}, {"n": 1})
    assert run.commit() == "done"
