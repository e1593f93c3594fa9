"""Changes to the code, each of which breaks one promise of the protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from scripts.helpers.protocol import changes, dynamodb, items, requests, values
from scripts.helpers.protocol.changes import Changes
from scripts.helpers.protocol.chunks import references
from scripts.helpers.protocol.head import Change, Head, LogEntry, Plan
from scripts.helpers.protocol.races import Lost, Written
from scripts.helpers.protocol.run import Run
from scripts.helpers.protocol.store import Store
from scripts.helpers.protocol.values import Spilled

Patch = Callable[[pytest.MonkeyPatch], None]


def noresolve(patch: pytest.MonkeyPatch) -> None:
    """The table's answer is trusted after a failed condition or a lost answer; nothing is read to check."""

    def settle(
        self: Store, read: Any, identity: Any, before: Any, after: Any, write: requests.Write, budget: float
    ) -> Any:
        return Written(after) if self.table.write(write) else Lost(None)

    patch.setattr(Store, "_settle", settle)


def noreplay(patch: pytest.MonkeyPatch) -> None:
    """A new run makes its own plan instead of replaying the one that a dead run left."""
    claimed = Head.claimed
    patch.setattr(Head, "claimed", lambda self, *args, **given: replace(claimed(self, *args, **given), plan=None))


def norollfwd(patch: pytest.MonkeyPatch) -> None:
    """The log entry that a dead run failed to write is never written."""
    patch.setattr(Changes, "complete_log", lambda self, head: None)


def nofence_noversion(patch: pytest.MonkeyPatch) -> None:
    """The condition of a head write covers only plan and epoch."""
    unchanged = requests._unchanged
    kept = ("epoch", "planId")
    patch.setattr(requests, "_unchanged", lambda head: tuple(one for one in unchanged(head) if one.attribute in kept))


def versionback(patch: pytest.MonkeyPatch) -> None:
    """A rewind sets the version number back to that of its target."""
    rewound = Head.rewound

    def back(self: Head, entry: LogEntry, *given: Any, **named: Any) -> Head:
        return replace(rewound(self, entry, *given, **named), version=entry.version)

    patch.setattr(Head, "rewound", back)


def head_expires(patch: pytest.MonkeyPatch) -> None:
    """The head gets an expiresAt."""
    write = items.head_to_item
    patch.setattr(requests, "head_to_item", lambda head: write(head) | {"expiresAt": items.number(2_000_000_000)})


def eventual_read(patch: pytest.MonkeyPatch) -> None:
    """Reads of one item are not consistent."""
    get = dynamodb.get_item
    patch.setattr(dynamodb, "get_item", lambda *args: {k: v for k, v in get(*args).items() if k != "ConsistentRead"})


def eventual_query(patch: pytest.MonkeyPatch) -> None:
    """Queries are not consistent."""
    query = dynamodb.query
    patch.setattr(dynamodb, "query", lambda *args: {k: v for k, v in query(*args).items() if k != "ConsistentRead"})


def condition_dropped(patch: pytest.MonkeyPatch) -> None:
    """The write of the head has no condition."""
    put = requests.put_head
    patch.setattr(requests, "put_head", lambda *args: requests.Put(put(*args).item))


def chunks_after_head(patch: pytest.MonkeyPatch) -> None:
    """The head is written before the chunks that it refers to."""
    swap, write_chunks = Store.swap, Store.write_chunks
    late: list[Any] = []
    patch.setattr(Store, "write_chunks", lambda self, job_id, chunks: late.append((job_id, chunks)))

    def swap_first(self: Store, *args: Any) -> Written[Head] | Lost[Head]:
        found = swap(self, *args)
        while late:
            write_chunks(self, *late.pop())
        return found

    patch.setattr(Store, "swap", swap_first)


def chunks_deleted_too_early(patch: pytest.MonkeyPatch) -> None:
    """The chunks of a plan are deleted before the commit that ends the plan."""
    commit = Run.commit

    def delete_first(self: Run, **metrics: Any) -> str:
        for reference in references(self.plan.contexts if self.plan else {}):
            self._store.delete_chunks(self.job_id, reference)
        return commit(self, **metrics)

    patch.setattr(Run, "commit", delete_first)


def chunks_expire_with_one_version(patch: pytest.MonkeyPatch) -> None:
    """Chunks expire with the version that a commit supersedes, though older versions that never expire share them."""
    patch.setattr(changes, "_sharing", lambda store, entry, gone, at: ([], at))


def lease_ignored(patch: pytest.MonkeyPatch) -> None:
    """Any run takes the job over, even while another run's lease is valid."""
    claimed = Head.claimed

    def take(self: Head, *args: Any, take_over: bool = False, **given: Any) -> Head:
        return claimed(self, *args, take_over=True, **given)

    patch.setattr(Head, "claimed", take)


def same_fence(patch: pytest.MonkeyPatch) -> None:
    """A takeover does not raise the fence."""
    claimed = Head.claimed
    patch.setattr(
        Head, "claimed", lambda self, *args, **given: replace(claimed(self, *args, **given), fence=self.fence)
    )


def already_by_version(patch: pytest.MonkeyPatch) -> None:
    """Any later version counts as the commit of this plan."""

    def later(self: Run, before: Head, current: Head | None) -> Change | None:
        return current.last if current is not None and current.version > before.version else None

    patch.setattr(Run, "_committed_from", later)


def next_recomputed(patch: pytest.MonkeyPatch) -> None:
    """A second freeze replaces the plan."""

    def planned(self: Head, plan: Plan) -> Head:
        return replace(self, plan=plan)

    patch.setattr(Head, "planned", planned)


def same_epoch(patch: pytest.MonkeyPatch) -> None:
    """After a restore, batch ids are used again."""
    restored = Head.restored
    patch.setattr(Head, "restored", lambda self, *given: replace(restored(self, *given), epoch=self.epoch))


def reset_keeps_plan(patch: pytest.MonkeyPatch) -> None:
    """A reset keeps the open plan, which it has made wrong."""
    reset = Head.reset
    patch.setattr(Head, "reset", lambda self, *given, **named: replace(reset(self, *given, **named), plan=self.plan))


def release_makes_version(patch: pytest.MonkeyPatch) -> None:
    """A release counts as a version, so the open plan gets another batch id."""
    freed = Head.freed
    patch.setattr(Head, "freed", lambda self, order: replace(freed(self, order), version=self.version + 1))


def release_keeps_fence(patch: pytest.MonkeyPatch) -> None:
    """A released run that is still alive can continue."""
    freed = Head.freed
    patch.setattr(Head, "freed", lambda self, order: replace(freed(self, order), fence=self.fence))


def types_lost(patch: pytest.MonkeyPatch) -> None:
    """Values come back without their original types."""
    decode = values.decode
    patch.setattr(values, "decode", lambda attribute, types=None: decode(attribute))


def chunks_without_margin(patch: pytest.MonkeyPatch) -> None:
    """Chunks expire in the same second as the version that refers to them."""
    patch.setattr(changes, "CHUNK_MARGIN", timedelta())


def run_item_stays(patch: pytest.MonkeyPatch) -> None:
    """The run item of a superseded version gets no expiry, though its log entry gets one."""
    expire = Store.expire

    def only_log(self: Store, job_id: str, range_key: str, at: datetime, version: int | None = None) -> None:
        if range_key.startswith("!"):
            expire(self, job_id, range_key, at, version)

    patch.setattr(Store, "expire", only_log)


def _delete_after_commit(patch: pytest.MonkeyPatch, unneeded: Callable[[Head, Head], list[Spilled]]) -> None:
    finish = Run._finish

    def delete_too(self: Run, before: Head, after: Head) -> None:
        finish(self, before, after)
        for reference in unneeded(before, after):
            self._store.delete_chunks(self.job_id, reference)

    patch.setattr(Run, "_finish", delete_too)


def blobs_of_the_plan_deleted(patch: pytest.MonkeyPatch) -> None:
    """A commit deletes everything its plan refers to, even what the state shares with the plan."""
    _delete_after_commit(patch, lambda before, after: references(before.plan.contexts) if before.plan else [])


def blobs_of_the_version_before_deleted(patch: pytest.MonkeyPatch) -> None:
    """A commit deletes what the new state no longer uses, though the previous version is still in the history."""

    def left(before: Head, after: Head) -> list[Spilled]:
        return [
            reference for reference in references(before.watermarks) if reference not in references(after.watermarks)
        ]

    _delete_after_commit(patch, left)


def begins_where_it_moved(patch: pytest.MonkeyPatch) -> None:
    """Runs may begin at the table that a job has left."""

    def swap(self: Store, before: Head | None, after: Head, budget: float = 30.0) -> Any:
        return self._settle_head(before, after, requests.put_head(before, after), budget)

    patch.setattr(Store, "swap", swap)


def moved_with_the_same_fence(patch: pytest.MonkeyPatch) -> None:
    """A run that is presumed dead may commit at the table that its job has left."""
    patch.setattr(Head, "moved", lambda self, to: replace(self, claim=None, moved_to=to))


SEARCHED: Sequence[Patch] = (
    noresolve,
    noreplay,
    norollfwd,
    nofence_noversion,
    versionback,
    head_expires,
    eventual_read,
    condition_dropped,
    chunks_after_head,
    chunks_deleted_too_early,
    blobs_of_the_plan_deleted,
    blobs_of_the_version_before_deleted,
    lease_ignored,
    same_fence,
    already_by_version,
    next_recomputed,
    same_epoch,
    release_makes_version,
    release_keeps_fence,
    types_lost,
)
