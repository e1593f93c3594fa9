"""A dictionary model of one job that sees each write to the table and checks the invariants at each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime
from typing import Any

from scripts.helpers.protocol import items
from scripts.helpers.protocol.chunks import Blob, join, references, replaced
from scripts.helpers.protocol.requests import Between, put
from scripts.helpers.protocol.values import Spilled
from tests.support.doubles import Double, table_of
from tests.support.dynamodb import RANGE, TTL, Item, Key

JOB = "parking"


@dataclass(frozen=True)
class Frozen:
    """A plan with everything that was spilled read back."""

    plan_id: str
    contexts: Mapping[str, Any]
    next: Mapping[str, Any]


@dataclass(frozen=True)
class State:
    """The contents of the head, with everything that was spilled read back."""

    epoch: str
    version: int = 0
    fence: int = 0
    watermarks: Mapping[str, Any] = field(default_factory=dict)
    op: str | None = None
    run_id: str | None = None
    owner: str | None = None
    lease_until: datetime | None = None
    plan: Frozen | None = None

    def claimed(self, run_id: str, lease_until: datetime) -> State:
        return replace(self, fence=self.fence + 1, owner=run_id, lease_until=lease_until)

    def planned(self, plan: Frozen, run_id: str, lease_until: datetime | None) -> State:
        return replace(self, plan=plan, owner=run_id, lease_until=lease_until)

    def released(self) -> State:
        return replace(self, owner=None, lease_until=None)

    def committed(self, run_id: str) -> State:
        assert self.plan is not None, "a commit without a plan"
        return replace(
            self.released(),
            version=self.version + 1, watermarks=self.plan.next, op="COMMIT", run_id=run_id, plan=None,
        )  # fmt: skip

    def decided(self, op: str, watermarks: Mapping[str, Any], run_id: str | None) -> State:
        return replace(
            self.released(),
            version=self.version + 1, fence=self.fence + 1, watermarks=watermarks, op=op, run_id=run_id, plan=None,
        )  # fmt: skip


@dataclass(frozen=True)
class Version:
    """What the log must hold for one version."""

    op: str
    watermarks: Mapping[str, Any]
    run_id: str | None
    epoch: str
    plan: Frozen | None


@dataclass(frozen=True)
class History:
    """A job as it is in a backup."""

    items: dict[Key, bytes]
    state: State | None
    log: dict[int, Version]
    legacy: dict[str, int]
    swept: set[str]


@dataclass
class Intent:
    """A call under way: which write of the head it may make, and which ones it made."""

    kind: str
    expected: Callable[[State | None, State], State]
    made: list[State] = field(default_factory=list)
    imported: bool = False
    given_up: bool = False
    """The call withdrew its claim, because the log could not be completed."""
    disturbed: bool = False
    """Another call was made in the middle of this one."""
    most: int = 1
    """How many writes of the head it may make."""


class Model:
    """A watched table: each write of the head must be the legal step that the call under way intends."""

    def __init__(self, double: Double) -> None:
        self.double = double
        double.seen = self._see
        self.intents: list[Intent] = []
        self.state: State | None = None
        self.log: dict[int, Version] = {}
        self.legacy: dict[str, int] = {}
        self.plans: dict[tuple[str, int], object] = {}
        self.swept: set[str] = set()

    @property
    def items(self) -> dict[Key, Item]:
        """All items that the table has."""
        return self.double.items

    # --- every write ----------------------------------------------------------------------------

    def _see(self, key: Key, before: Item | None, item: Item | None) -> None:
        if key[1] == items.HEAD_KEY:
            assert item is not None, "the head was deleted"
            if item != before:
                self._watch(self.read_state())
        elif item is None and self.state is not None:
            assert key[1] not in self._held_chunks(), f"{key[1]} was deleted, but the head refers to it"

    def _watch(self, after: State) -> None:
        before, intent = self.state, self.intents[-1]
        if before is None and intent.kind == "set" and after == State(after.epoch):
            self.state = after  # Written before the chunks: chunks without a head look like a damaged job.
            return
        if before is None and self.legacy and not intent.imported:
            if intent.kind != "adopt":
                assert len(self.legacy) == 1, "a legacy history without an order was taken over"
            run_id = str(after.run_id)
            assert run_id in self.legacy, "the item of the original class was overlooked"
            expected = State(
                after.epoch, 1, 0, {"rows": {"value": self.legacy[run_id]}}, "IMPORT", run_id
            )  # fmt: skip
            intent.imported = True
        else:
            expected = intent.expected(before, after)
            intent.made.append(after)
        assert canonical(after) == canonical(expected), f"{intent.kind}: {before} became {after}"
        if before is not None and before.epoch == after.epoch:
            assert after.version >= before.version, "the version went down (I1)"
            assert after.fence >= before.fence, "the fence went down (I1)"
        self.state = after
        if after.version and after.version not in self.log:
            plan = before.plan if before and after.op == "COMMIT" else None
            self.log[after.version] = Version(str(after.op), after.watermarks, after.run_id, after.epoch, plan)
        if after.plan is not None:
            self.see_plan(after.epoch, after.version, after.plan)

    def see_plan(self, epoch: str, version: int, plan: Frozen) -> None:
        """Check that there is one plan for a version, and that everyone who reads it sees the same plan."""
        seen = self.plans.setdefault((epoch, version), canonical(plan))
        assert seen == canonical(plan), f"two plans for version {version + 1} (I3)"

    def read_state(self) -> State:
        """Read the head from the table; the chunks that it refers to must exist."""
        head = items.head_from_item(self._raw(items.HEAD_KEY))
        plan = head.plan
        return State(
            epoch=head.epoch,
            version=head.version,
            fence=head.fence,
            watermarks=self.resolved(head.watermarks),
            op=head.last.op if head.last else None,
            run_id=head.last.run_id if head.last else None,
            owner=head.claim.run_id if head.claim else None,
            lease_until=head.claim.lease_until if head.claim else None,
            plan=Frozen(plan.plan_id, self.resolved(plan.contexts), self.resolved(plan.next)) if plan else None,
        )

    def resolved(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values with each reference to chunks, at any depth, replaced by its value."""
        return {name: replaced(value, self._joined) for name, value in values.items()}

    def _joined(self, reference: Spilled) -> Any:
        chunks = [self.double.item(JOB, range_key) for range_key in chunk_keys([reference])]
        assert all(chunks), f"a chunk of {reference.id} is gone, but something refers to it (I8)"
        return join(reference, [chunk["data"]["B"] for chunk in chunks if chunk])

    def _raw(self, range_key: str) -> Item:
        item = self.double.item(JOB, range_key)
        assert item is not None
        return item

    def _held_chunks(self) -> list[str]:
        head = items.head_from_item(self._raw(items.HEAD_KEY))
        plans = [head.plan.contexts, head.plan.next] if head.plan else []
        return [key for holder in (head.watermarks, *plans) for key in chunk_keys(references(holder))]

    # --- what must hold between calls -----------------------------------------------------------

    def check(self) -> None:
        """Check the items at rest: I1, I2 and I8."""
        found = {key[1]: item for key, item in self.double.items.items() if key[0] == JOB}
        if self.state is None:
            assert not any(key[0] in "!~" for key in found)
            return
        assert self.state.version == len(self.log), "the log is not dense (I1)"
        head = found[items.HEAD_KEY]
        assert max(found) == items.HEAD_KEY, "a legacy reader does not find the head (I2)"
        assert canonical(self.read_state()) == canonical(self.state)
        if self.state.version:
            assert canonical(self.state.watermarks) == canonical(self.log[self.state.version].watermarks), "I2"
        self._check_log(found)
        self._check_expiry(head, self._held_chunks(), found)

    def _check_log(self, found: dict[str, Item]) -> None:
        assert self.state is not None
        for version, expected in self.log.items():
            key = items.log_key(version)
            if key not in found:
                deferred = version == self.state.version
                assert deferred or key in self.swept, f"version {version} is missing in the log (I1)"
                continue
            entry = items.log_from_item(found[key])
            assert (entry.change.op, entry.change.run_id) == (expected.op, expected.run_id)
            assert entry.change.plan_id == (expected.plan.plan_id if expected.plan else None)
            assert canonical(self.resolved(entry.watermarks)) == canonical(expected.watermarks), f"log {version} (I2)"
            self._check_expiry(found[key], chunk_keys(references(entry.watermarks)), found)
        logged = {key for key in found if key.startswith(items.LOG_PREFIX)}
        assert logged <= {items.log_key(version) for version in self.log}, "a version that was never made (I7)"
        for key, item in found.items():
            if key[0] not in "!~" and "version" in item:
                run = items.run_from_item(item)
                stored, logged_as = self.resolved(run["watermarks"]), self.log[run["version"]].watermarks
                assert canonical(stored) == canonical(logged_as), f"run {key} (I2)"
                self._check_expiry(item, chunk_keys(references(run["watermarks"])), found)

    def _check_expiry(self, holder: Item, chunks: list[str], found: dict[str, Item]) -> None:
        """Check that the chunks an item refers to exist and expire no earlier than the item."""
        if holder[RANGE]["S"] == items.HEAD_KEY:
            assert TTL not in holder, "the head may expire (I8)"
        for key in chunks:
            assert key in found, f"{key} is gone, but {holder[RANGE]['S']} refers to it (I8)"
            if TTL in found[key]:
                lives = TTL in holder and int(holder[TTL]["N"]) <= int(found[key][TTL]["N"])
                assert lives, f"{key} expires before {holder[RANGE]['S']}, which refers to it (I8)"

    # --- outside the package --------------------------------------------------------------------

    def sweep(self, now: datetime) -> list[Key]:
        past = self.double.sweep(now)
        self.swept |= {range_key for _, range_key in past}
        return past

    def snapshot(self) -> History:
        """Return a copy of the table, as a backup."""
        return History(self.double.dump(), self.state, dict(self.log), dict(self.legacy), set(self.swept))

    def restore(self, kept: History) -> None:
        """Restore the table from a backup. Versions run backwards until the doctor is called."""
        self.double.load(kept.items)
        self.state = kept.state
        self.log, self.legacy, self.swept = dict(kept.log), dict(kept.legacy), set(kept.swept)

    def legacy_read(self) -> Item | None:
        """Read as the original class does: the last item of the job is the most recent."""
        found = table_of(self.double).query(Between(JOB, newest_first=True, limit=1)).items
        return found[0] if found else None

    def legacy_write(self, run_id: str, value: int) -> None:
        """Write as the original class does: an item without a version."""
        stored = {"watermarks": {"M": {"rows": {"M": {"value": {"N": str(value)}}}}}}
        table_of(self.double).write(put(items.key(JOB, run_id) | stored, if_new=False))
        if self.state is None:
            self.legacy[run_id] = value


def chunk_keys(found: list[Spilled]) -> list[str]:
    return [items.chunk_key(reference.id, index) for reference in found for index in range(reference.chunks)]


def canonical(value: Any) -> object:
    """Return a form that is equal only for equal values of equal types: 1, 1.0 and True stay distinct."""
    if is_dataclass(value):
        return tuple(canonical(getattr(value, part.name)) for part in fields(value))
    if isinstance(value, Mapping):
        return tuple((name, canonical(value[name])) for name in sorted(value))
    if isinstance(value, list):
        return tuple(map(canonical, value))
    if isinstance(value, Blob):
        return canonical(value.data)
    return type(value).__name__, value
