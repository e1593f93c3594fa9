"""Two actors with clocks of their own, a growing source and a sink; the model checks every call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple

from scripts.helpers.errors import CommitUnknownError, JobMovedError, StoreUnavailableError, WatermarkError
from scripts.helpers.protocol.chunks import Blob
from scripts.helpers.protocol.run import Run
from scripts.helpers.watermarks import Watermarks
from tests.protocol.model import Frozen, Intent, Model, State
from tests.support.doubles import Double, opened
from tests.support.dynamodb import Died, FakeDynamoDB

LEASE = timedelta(minutes=15)
CONTEXTS = ("rows", "files")
START = datetime(2026, 3, 16, 15, 45, tzinfo=timezone.utc)
UNKNOWN = (StoreUnavailableError, CommitUnknownError)
MAX_REQUESTS = 500
DECISIONS = ("IMPORT", "REWIND", "RESET", "SET")


class Trouble(NamedTuple):
    """What goes wrong in a call: the fault hits the `request`-th request and the `times` - 1 requests after it."""

    request: int
    fault: str | None = None
    times: int = 1
    meanwhile: Callable[[], None] | None = None
    """Called before that request, as another actor's work."""


@dataclass(eq=False)
class Handle:
    """A run as its process knows it. It may act at any time, even long after other runs have taken the job."""

    run: Run
    actor: str
    state: State
    plan: Frozen | None
    given: tuple[dict[str, Any], dict[str, Any]] | None = None
    processed: bool = False
    dead: bool = False

    def __repr__(self) -> str:
        return f"<{self.run.run_id} fence {self.state.fence}>"


class Outcome(NamedTuple):
    value: Any
    error: BaseException | None
    intent: Intent

    @property
    def unknown(self) -> bool:
        return isinstance(self.error, (*UNKNOWN, Died))

    def refused(self, *errors: type[BaseException]) -> bool:
        """Return whether the call failed, with one of these errors or an unknown outcome; fail on any other error."""
        if self.error is None:
            return False
        # Any call may be refused while the job is being moved to another table.
        assert self.unknown or isinstance(self.error, (JobMovedError, *errors)), repr(self.error)
        return True


def in_memory() -> FakeDynamoDB:
    """Return DynamoDB in memory, with stale reads and small pages."""
    double = FakeDynamoDB("table", stale_reads=True)
    double.page_items = 7
    return double


class Actors:
    """Two actors, their clocks, the source and the sink of one job."""

    def __init__(self, retention: timedelta | None = None, make_double: Callable[[], Double] = in_memory) -> None:
        self.model = Model(make_double())
        self.now = START
        self.skew = {"a": timedelta(), "b": timedelta()}
        self.actors = {name: self._actor(name, retention) for name in self.skew}
        self.source = dict.fromkeys(CONTEXTS, 0)
        self.sink: dict[str, object] = {}
        self.handles: list[Handle] = []
        self.runs = 0

    def _actor(self, name: str, retention: timedelta | None) -> Watermarks:
        return opened(self.model.double, clock=lambda: self.clock(name), retention=retention)

    def clock(self, actor: str) -> datetime:
        return self.now + self.skew[actor]

    def new_run_id(self) -> str:
        self.runs += 1
        return f"jr_{self.runs}"

    # --- one call -------------------------------------------------------------------------------

    def call(self, intent: Intent, trouble: Trouble | None, function: Callable[[], Any]) -> Outcome:
        """Make a call. If its outcome is known, check that it reports what it wrote."""
        count = 0
        hit = False

        def fault(number: int, method: str, params: dict[str, Any]) -> str | None:
            nonlocal count, hit
            count += 1
            assert count <= MAX_REQUESTS, f"{intent.kind} does not end"
            if trouble is None or not trouble.request <= count < trouble.request + trouble.times:
                return None
            if trouble.meanwhile:
                intent.disturbed = True
                trouble.meanwhile()
            hit = hit or trouble.fault is not None
            return trouble.fault

        value, error = None, None
        double = self.model.double
        outer, double.fault = double.fault, fault
        self.model.intents.append(intent)
        try:
            value = function()
        except (WatermarkError, Died) as raised:
            error = raised
        finally:
            double.fault = outer
            self.model.intents.pop()
        outcome = Outcome(value, error, intent)
        assert hit or not outcome.unknown, f"{intent.kind} gave up though nothing failed: {error!r}"
        assert len(intent.made) <= intent.most + intent.given_up, (
            f"{intent.kind} took effect {len(intent.made)} times (I9)"
        )
        assert error is not None or not intent.given_up
        if error is not None and not outcome.unknown:
            assert not intent.made, f"{intent.kind} was refused by {error!r}, but took effect"
        return outcome


def nothing(before: State | None, after: State) -> State:
    raise AssertionError(f"a call that may change nothing wrote the head: {after}")


def rows_of(context: str, low: int, high: int) -> list[str]:
    return [f"{context}-{number}" for number in range(low, high)]


def position(watermarks: Mapping[str, Any], context: str) -> int:
    return int(watermarks.get(context, {"value": 0})["value"])


def mark(context: str, value: int, parts: Sequence[Blob] = ()) -> dict[str, Any]:
    """Return the watermark of a context that was read up to `value`: it grows, and mixes value types (I14).

    The files are remembered in parts, and each run adds one part, as in `FileBookmark`.
    """
    names = rows_of(context, 0, value)
    return {
        "value": value,
        "at": START + timedelta(hours=value),
        "share": Decimal(value) / 8,
        "ratio": float(value),
    } | ({"parts": list(parts) or [blob_of(names)]} if context == "files" else {"names": names})


def blob_of(names: Sequence[str]) -> Blob:
    return Blob(",".join(names).encode())
