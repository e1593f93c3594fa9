"""Copy a job to another table: all items unchanged. The last step completes the head there, and the job continues.

Each step accepts what an interrupted copy has already done, and repeating a step changes nothing::

    target: head, arriving from the source        the job is at the source
    source: head, moved to the target             no run can begin in either table
    target: all items of the source
    target: head, arrived                         the job is at the target
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from scripts.helpers.errors import (
    CorruptItemError,
    InvalidValueError,
    JobMovedError,
    RunInProgressError,
    StaleError,
    UnknownJobError,
)
from scripts.helpers.protocol import items
from scripts.helpers.protocol.changes import Changes
from scripts.helpers.protocol.chunks import references
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.lookups import places_of
from scripts.helpers.protocol.races import Written
from scripts.helpers.protocol.requests import Between, Delete, Put, unchanged_conditions
from scripts.helpers.protocol.store import Store


class Copied(NamedTuple):
    """The number of a job's items that were copied, and the number of items of the Job Runs API that were not."""

    items: int
    left_out: int


def copy_job(changes: Changes, target: Store, job_id: str) -> Copied:
    """Copy a job to another table, where its next run continues; the source refuses runs from then on.

    Raises
    ------
    RunInProgressError
        A run holds the job.
    UnknownJobError, CorruptItemError, NewerFormatError
        The name has no items, or only those of the Job Runs API; or an item of the job is missing or cannot be read.
    JobMovedError, InvalidValueError
        The job has moved to a third table; the target has another job of this name, or a later version of this job.
    StaleError
        The job changed at the source or at the target meanwhile. Copy it again.
    """
    source = changes.lookups.store
    here, place = source.table.place, target.table.place
    # List the target's items before its head is read: if that head says that the job is not in the target, the listed
    # items are leftovers to overwrite. Items listed after the head might be those of a run that has just begun there.
    listed, _ = _items_of_job(target, job_id)
    there = target.read_head(job_id)
    stored, head = changes.read_for_change(job_id)
    found, left_out = _items_of_job(source, job_id)
    if stored is None:
        raise UnknownJobError(job_id, source.table_name)
    again = source.read_head(job_id)
    # Check first that the head is unchanged: if a rewind has deleted chunks meanwhile, `_check_whole` finds damage.
    _check_same(again is not None and again.identity == head.identity, source, job_id)
    if head.arriving_from is not None or head.moved_to not in (None, place):
        raise JobMovedError(job_id, source.table_name, str(head.elsewhere))
    if head.moved_to is not None and there is not None and there.elsewhere is None and _is_later(there, head):
        return Copied(0, left_out)
    if (there is None and listed) or (there is not None and not _may_be_replaced(there, head, here)):
        raise InvalidValueError(reason="job_exists", job_id=job_id, table_name=target.table_name)
    if head.claim is not None and changes.lookups.clock() < head.claim.lease_until:
        raise RunInProgressError(job_id, head.claim.run_id, head.claim.lease_until)
    _check_whole(head, found)
    if there is None or there.arriving_from != here:
        there = _swap_or_raise(target, there, head.arriving(here, there))
    if head.moved_to is None:
        head = _swap_or_raise(source, head, head.moved(place))
    # Keep target items that changed since they were listed: another `copy` may have ended, and a run have written them.
    for range_key, item in listed.items():
        if range_key not in found:
            target.table.write(Delete(items.key(job_id, range_key), unchanged_conditions(item)))
    for range_key, item in found.items():
        if range_key not in listed:
            target.put(item, if_new=True)
        elif item != listed[range_key]:
            target.table.write(Put(item, unchanged_conditions(listed[range_key])))
    _swap_or_raise(target, there, head.arrived(there))
    return Copied(len(found) + 1, left_out)


def _is_later(one: Head, other: Head) -> bool:
    """Return whether a head includes all batches of another head."""
    return all(one.last_versions.get(epoch, -1) >= last for epoch, last in other.last_versions.items())


def _may_be_replaced(there: Head, head: Head, here: str) -> bool:
    """Return whether a copy may replace the target's head, without losing the job's state or reusing a batch id."""
    is_backwards = any(head.last_versions.get(epoch, last) < last for epoch, last in there.last_versions.items())
    if there.elsewhere is None or is_backwards:
        return False
    # An unfinished copy from a third table may be the job's only usable state, so replace it only by a later head.
    return there.moved_to is not None or there.arriving_from == here or _is_later(head, there)


def _items_of_job(store: Store, job_id: str) -> tuple[dict[str, items.Item], int]:
    """Return a job's items by range key, without its head, and the number of its items of the Job Runs API."""
    found = {item[items.RANGE_KEY]["S"]: item for item in store.query(Between(job_id))}
    found.pop(items.HEAD_KEY, None)
    # Leave out items of the Job Runs API: the runs that they describe are active, or wait, in this table only.
    copied = {range_key: item for range_key, item in found.items() if not items.is_job_runs_key(range_key)}
    return copied, len(found) - len(copied)


def _check_whole(head: Head, found: Mapping[str, items.Item]) -> None:
    """Raise CorruptItemError, which names the item, if an item is damaged, or a chunk (part of a state) is missing."""
    for range_key, item in found.items():
        if range_key.startswith(items.LOG_PREFIX):
            items.log_from_item(item)
        elif "data" not in item:
            items.run_from_item(item)
    for reference in (one for _, contexts in places_of(head) for one in references(contexts)):
        for index in range(reference.chunks):
            if (range_key := items.chunk_key(reference.id, index)) not in found:
                raise CorruptItemError(head.job_id, range_key, "it is gone, though the head refers to it")


def _swap_or_raise(store: Store, before: Head | None, after: Head) -> Head:
    _check_same(isinstance(store.swap(before, after), Written), store, after.job_id)
    return after


def _check_same(is_same: bool, store: Store, job_id: str) -> None:
    if not is_same:
        raise StaleError(f"Job {job_id!r} changed in table {store.table_name!r} meanwhile. Copy it again.")
