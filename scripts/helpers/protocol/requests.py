"""Objects that describe requests to a table: writes with their conditions, and reads. Pure.

`dynamodb` turns them into DynamoDB's syntax and sends them; `sqlite` runs them on a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from scripts.helpers.protocol.head import Head, LogEntry
from scripts.helpers.protocol.items import (
    FORMAT,
    HASH_KEY,
    HEAD_KEY,
    LOG_PREFIX,
    TOKEN,
    TTL_ATTRIBUTE,
    Item,
    chunk_key,
    head_to_item,
    key,
    log_key,
    log_to_item,
    number,
    run_to_item,
)
from scripts.helpers.protocol.values import to_utc_string

Value = Any
"""A DynamoDB attribute value, such as ``{"N": "1"}``."""


class Expected(NamedTuple):
    """A condition on one attribute of the stored item; if it does not hold, nothing is written."""

    attribute: str
    comparison: Literal["absent", "present", "equal", "absent or below"]
    expected: Value = None


@dataclass(frozen=True)
class Put:
    """The write of a whole item, valid only if all conditions hold for the item that it replaces."""

    item: Item
    only_if: tuple[Expected, ...] = ()


@dataclass(frozen=True)
class Update:
    """The write of one attribute of an item, valid only if all conditions hold for the item."""

    key: Item
    attribute: str
    value: Value
    only_if: tuple[Expected, ...]


@dataclass(frozen=True)
class Delete:
    """The deletion of an item, valid only if all conditions hold for it; the item may be gone already."""

    key: Item
    only_if: tuple[Expected, ...] = ()


Write = Put | Update | Delete


@dataclass(frozen=True)
class Between:
    """The items of one job in the order of their range keys, from `first` to `last` if these are set.

    A page has at most `limit` items, and starts after the range key `after`.
    """

    job_id: str
    first: str | None = None
    last: str | None = None
    newest_first: bool = False
    limit: int | None = None
    after: str | None = None


@dataclass(frozen=True)
class Walk:
    """A request for a page of a parallel scan's `segment`. It starts after the key `after`, which need not exist."""

    segment: int
    segments: int
    limit: int
    after: Item | None = None


class ItemPage(NamedTuple):
    """A page of items, with the key after which the next page starts (`last`; None at the end) and the read units."""

    items: list[Item]
    last: Item | None
    units: float = 0.0


IS_NEW = (Expected(HASH_KEY, "absent"),)


def put_head(before: Head | None, after: Head) -> Put:
    """Build the one conditional write of a transition: valid only if the stored head still is `before`.

    Without `before` the head must not exist. Otherwise version, fence, epoch and plan must be the same, so
    a run that was fenced, or that has not seen the latest commit or plan, changes nothing.
    """
    # Two first runs of a job may both have found no head. Without the condition, the second run would overwrite the
    # claim of the first, and both would run.
    return Put(head_to_item(after), IS_NEW if before is None else _unchanged(before))


def renew_lease(head: Head) -> Update:
    """Build the heartbeat: a write of a later lease end, valid only while the same claim (hold on the job) lasts."""
    assert head.claim is not None
    # An abort ends the claim and leaves version, fence, epoch and plan as they were. Without the token in the
    # condition, a late heartbeat would write the end of a lease into a head that no run holds.
    same_claim = Expected("ownerTok", "equal", {"S": head.claim.token})
    until = {"S": to_utc_string(head.claim.lease_until)}
    return Update(key(head.job_id, HEAD_KEY), "leaseUntil", until, (*_unchanged(head), same_claim))


def _unchanged(head: Head) -> tuple[Expected, ...]:
    """Build the conditions that hold only while the stored head is `head`, or `head` with a renewed lease."""
    # The fence refuses a run whose job another run has taken over. The version refuses a writer that has not seen the
    # latest commit. The plan refuses a second freeze, and the commit of a plan that is not the open one. The epoch
    # refuses a head read before the table was restored: version and fence may have reached the same numbers since.
    # The lease is not compared, because a run that renews its lease would refuse its own next step.
    return (
        Expected("version", "equal", number(head.version)),
        Expected("fence", "equal", number(head.fence)),
        Expected("epoch", "equal", {"S": head.epoch}),
        Expected("planId", "equal", {"S": head.plan.plan_id}) if head.plan else Expected("planId", "absent"),
    )


def put_log(entry: LogEntry) -> Put:
    """Build the write of a log entry, which changes nothing if the version has an entry already."""
    # The run that committed a version writes its entry, and the next begin writes it again in case that run died
    # in between. A late writer must not replace an entry whose expiry has been set meanwhile.
    return Put(log_to_item(entry), IS_NEW)


def put_run(entry: LogEntry) -> Put:
    """Build the write of a run item; it never overwrites a later version of the same run."""
    # A run id may commit more than once, and a begin writes the previous version's item if it is missing. Without the
    # comparison, a begin could replace a newer version. "absent" is allowed, as items of the original class have none.
    return Put(run_to_item(entry), (Expected("version", "absent or below", number(entry.version)),))


def put_replacement(before: Item | None, after: Item) -> Put:
    """Build the write of an item, valid only if no write changed it since `before` was read (None: no item exists)."""
    # Each write stores a new token. So the condition fails if another write has changed the item since it was read.
    return Put(after, IS_NEW if before is None else (Expected(TOKEN, "equal", before[TOKEN]),))


def expire(job_id: str, range_key: str, at: datetime, version: int | None = None) -> Update:
    """Build the write that sets an item's expiry. If `version` is given, the item must still have that version."""
    # Without a condition, an update of a deleted item would create one with nothing but a key and an expiry. If the
    # run id committed again, the same item holds a newer version, which must not expire with the old one.
    is_same = Expected("version", "equal", number(version)) if version is not None else Expected(HASH_KEY, "present")
    return Update(key(job_id, range_key), TTL_ATTRIBUTE, number(int(at.timestamp())), (is_same,))


def put_chunk(job_id: str, chunks_id: str, index: int, data: bytes) -> Put:
    """Build the write of a chunk; a chunk is immutable, so its condition refuses a second write."""
    # Never overwrite a chunk: heads and log entries store the hash of its bytes. If these changed, every version that
    # refers to the chunk would become unreadable.
    return Put(key(job_id, chunk_key(chunks_id, index)) | {"fmt": number(FORMAT), "data": {"B": data}}, IS_NEW)


def unchanged_conditions(item: Item) -> tuple[Expected, ...]:
    """Build the conditions that hold only while an item is as it was read; only its expiry may have changed."""
    # Compare attributes that a new write changes: a run item's version, a head's epoch, fence or version. Log entries
    # never change. Items of the original class have no such attribute, and must still have none: a new write adds one.
    names = ("version", "epoch", "fence", "commitId", "committedAt")
    return tuple(Expected(name, "equal" if name in item else "absent", item.get(name)) for name in names)


def put(item: Item, *, if_new: bool) -> Put:
    """Build the write of an item copied unchanged from another table."""
    # `if_new` protects items that a run has written in the new table while a slow copy was still under way.
    return Put(item, IS_NEW if if_new else ())


def log_query(job_id: str, *, below: int | None = None, page: int | None = None) -> Between:
    """Build the query for a job's log, newest version first; with `below`, only versions below that one."""
    last = log_key(below - 1) if below is not None else LOG_PREFIX + "~"
    return Between(job_id, LOG_PREFIX, last, newest_first=True, limit=page)
