"""What is asked of a table, as values: writes with their conditions, and reads. Pure.

`dynamodb` sends them. Nothing above it knows how a condition is written there.
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
"""An attribute as DynamoDB has it, such as ``{"N": "1"}``."""


class Expected(NamedTuple):
    """What must hold of one attribute of the item that is there, or nothing is written."""

    attribute: str
    comparison: Literal["absent", "present", "equal", "absent or below"]
    expected: Value = None


@dataclass(frozen=True)
class Put:
    """The write of a whole item, valid only if all conditions hold of the one that it replaces."""

    item: Item
    only_if: tuple[Expected, ...] = ()


@dataclass(frozen=True)
class Update:
    """The write of one attribute of an item, valid only if all conditions hold of it."""

    key: Item
    attribute: str
    value: Value
    only_if: tuple[Expected, ...]


@dataclass(frozen=True)
class Delete:
    """The deletion of an item, valid only if all conditions hold of it; it may be gone already."""

    key: Item
    only_if: tuple[Expected, ...] = ()


Write = Put | Update | Delete


@dataclass(frozen=True)
class Between:
    """The items of one job in the order of their range keys, those from `first` to `last` where they are given.

    A page has at most `limit` items, and begins behind the range key `after`.
    """

    job_id: str
    first: str | None = None
    last: str | None = None
    newest_first: bool = False
    limit: int | None = None
    after: str | None = None


@dataclass(frozen=True)
class Walk:
    """A page of one segment of a whole table, behind a key that need not exist."""

    segment: int
    segments: int
    limit: int
    after: Item | None = None


class ItemPage(NamedTuple):
    """Items, and the key behind which the next page begins; None at the end. `units` is what DynamoDB charged."""

    items: list[Item]
    last: Item | None
    units: float = 0.0


IS_NEW = (Expected(HASH_KEY, "absent"),)


def put_head(before: Head | None, after: Head) -> Put:
    """Build the one conditional write of a transition: valid only if the head still is `before`.

    Without `before` the head must not exist. Otherwise version, fence and plan must be the same:
    a run that was fenced, or that missed a commit or a plan, changes nothing.
    """
    # Two first runs may both have read that there is no head. Without the condition the second would
    # overwrite the first one's claim, and both would work.
    return Put(head_to_item(after), IS_NEW if before is None else _unchanged(before))


def renew_lease(head: Head) -> Update:
    """Build the heartbeat: a later end of the lease, valid only while the claim is the same."""
    assert head.claim is not None
    # An abort lets go of the job and leaves version, fence, epoch and plan as they were. Without the token a late
    # heartbeat would write the end of a lease into a head that nobody holds.
    same_claim = Expected("ownerTok", "equal", {"S": head.claim.token})
    until = {"S": to_utc_string(head.claim.lease_until)}
    return Update(key(head.job_id, HEAD_KEY), "leaseUntil", until, (*_unchanged(head), same_claim))


def _unchanged(head: Head) -> tuple[Expected, ...]:
    """Build the condition that no transition has happened since `head`."""
    # The fence keeps out a run whose job another one has taken over. The version refuses what missed a commit, the plan
    # a second freeze, or a commit of a plan that is not the open one. The epoch refuses what was read before the
    # table was restored: version and fence may since have come to the same numbers again.
    # The lease is not compared: a renewal in between would refuse every step of the run that renewed it.
    return (
        Expected("version", "equal", number(head.version)),
        Expected("fence", "equal", number(head.fence)),
        Expected("epoch", "equal", {"S": head.epoch}),
        Expected("planId", "equal", {"S": head.plan.plan_id}) if head.plan else Expected("planId", "absent"),
    )


def put_log(entry: LogEntry) -> Put:
    """Build the write of a log entry; a second one of the same version is refused by its condition."""
    # The entry of a version is written by the run that committed it and again by the next begin, in case that run
    # died in between. A late writer must not replace an entry that has been given its end meanwhile.
    return Put(log_to_item(entry), IS_NEW)


def put_run(entry: LogEntry) -> Put:
    """Build the write of a run item; a later version of the same run is never overwritten."""
    # A run id may commit more than once, and a begin repairs the item of the version before it. Without the comparison
    # a delayed repair would put an older version over the newer one. An item of the original class has no version.
    return Put(run_to_item(entry), (Expected("version", "absent or below", number(entry.version)),))


def put_in_place_of(before: Item | None, after: Item) -> Put:
    """Build the write of an item in place of `before`, by its token; without `before` there must be none."""
    # Each write leaves a token of its own, so this refuses to undo a change that was made after `before` was read.
    return Put(after, IS_NEW if before is None else (Expected(TOKEN, "equal", before[TOKEN]),))


def expire(job_id: str, range_key: str, at: datetime, version: int | None = None) -> Update:
    """Build the write that lets an item expire; with `version` only while the item still is of that version."""
    # An update of an item that is gone would create one that has nothing but its key and an end. A run id that
    # committed again has a newer version in the same item, which must not expire with the old one.
    is_same = Expected("version", "equal", number(version)) if version is not None else Expected(HASH_KEY, "present")
    return Update(key(job_id, range_key), TTL_ATTRIBUTE, number(int(at.timestamp())), (is_same,))


def put_chunk(job_id: str, chunks_id: str, index: int, data: bytes) -> Put:
    """Build the write of a chunk; a chunk is immutable, so a second write of it is refused."""
    # Heads and log entries know the hash of what they refer to: other bytes under the same key would make
    # every version that shares the chunk unreadable.
    return Put(key(job_id, chunk_key(chunks_id, index)) | {"fmt": number(FORMAT), "data": {"B": data}}, IS_NEW)


def as_it_was(item: Item) -> tuple[Expected, ...]:
    """Build the condition that nobody has written an item since it was read, other than its expiry."""
    # A log entry is written once, a run item again with another version, and a head with another epoch, fence or
    # version. What is of the original class has none of them.
    names = ("version", "epoch", "fence", "commitId", "committedAt")
    return tuple(Expected(name, "equal" if name in item else "absent", item.get(name)) for name in names)


def put(item: Item, *, if_new: bool) -> Put:
    """Build the write of one item as it is, as when it is moved from another table."""
    # What a run has written since stays, where a copy is slow.
    return Put(item, IS_NEW if if_new else ())


def log_of(job_id: str, *, below: int | None = None, page: int | None = None) -> Between:
    """Build the query for a job's log, newest version first; only versions `below` one."""
    last = log_key(below - 1) if below is not None else LOG_PREFIX + "~"
    return Between(job_id, LOG_PREFIX, last, newest_first=True, limit=page)
