"""Copy a job to another table, from where it continues: items as they are, the head last.

While a job has two tables, both have a head that names the other one in `moved_to`, and nothing begins at either.
Each step below finds what an interrupted copy has done, and one that is done again changes nothing::

    target: a head that is at the source     source: a head that moved to the target
    target: all items of the source          target: the head of the source, in the place of the first
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from scripts.helpers.errors import (
    CorruptItemError,
    JobExistsError,
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
from scripts.helpers.protocol.requests import Between
from scripts.helpers.protocol.store import Store


class Copied(NamedTuple):
    """How many items of a job were copied, and how many of the Job Runs API stay where they are."""

    items: int
    left_out: int


def copy_job(changes: Changes, target: Store, job_id: str) -> Copied:
    """Copy a job to another table, where its next run continues; its head here refuses runs from then on.

    Raises
    ------
    RunInProgressError
        A run is at work.
    UnknownJobError, CorruptItemError, NewerFormatError
        There is nothing of that name but records of the Job Runs API; an item of the job cannot be read, or is missing.
    JobMovedError, JobExistsError
        The job has moved to a third table; the target has a job of this name, or a later version of this one.
    StaleError
        Somebody changed the job at the source or at the target meanwhile. Copy it again.
    """
    source = changes.lookups.store
    # Before its head is read: what is listed beside a head of an earlier stay is of that stay, and may go.
    there_before = {_range_key(item): item for item in _of_job(target, job_id)[0]}
    there = target.read_head(job_id)
    stored, head = changes.read_for_change(job_id)
    found, left_out = _of_job(source, job_id)
    if stored is None:
        raise UnknownJobError(job_id, source.table_name)
    if head.moved_to not in (None, target.table.place):
        raise JobMovedError(job_id, source.table_name, str(head.moved_to))
    if head.moved_to is not None and there is not None and there.moved_to is None:
        return Copied(0, left_out)
    if (there is None and there_before) or (there is not None and not _may_be_replaced(there, head)):
        raise JobExistsError(job_id, target.table_name)
    if head.claim is not None and changes.lookups.clock() < head.claim.lease_until:
        raise RunInProgressError(job_id, head.claim.run_id, head.claim.lease_until)
    _check_whole(head, found)
    if there is None or there.moved_to != source.table.place:
        there = _swapped(target, there, replace(head.arrived(there), claim=None, moved_to=source.table.place))
    if head.moved_to is None:
        head = _swapped(source, head, head.moved(target.table.place))
    keys = {_range_key(item) for item in found}
    for range_key in there_before.keys() - keys:
        target.delete(job_id, range_key)
    for item in found:
        # What is there and was not listed is of a run, after another copy of the same job was done.
        target.put(item, if_new=_range_key(item) not in there_before)
    _swapped(target, there, head.arrived(there))
    return Copied(len(found) + 1, left_out)


def _may_be_replaced(there: Head, head: Head) -> bool:
    """Tell whether a head is one of an earlier stay, and none of its batch ids would be used again."""
    known = head.last_versions
    return there.moved_to is not None and all(known.get(epoch, at) >= at for epoch, at in there.last_versions.items())


def _of_job(store: Store, job_id: str) -> tuple[list[items.Item], int]:
    """Return a job's items without its head, and the number of those of the Job Runs API, which are left out."""
    # Runs are at work, or wait, at one table only.
    everything = list(store.query(Between(job_id)))
    found = [item for item in everything if not items.is_of_job_runs(_range_key(item))]
    return [item for item in found if _range_key(item) != items.HEAD_KEY], len(everything) - len(found)


def _check_whole(head: Head, found: Sequence[items.Item]) -> None:
    """Refuse a job that no run could begin at the target; CorruptItemError names the item."""
    for item in found:
        if _range_key(item).startswith(items.LOG_PREFIX):
            items.log_from_item(item)
        elif "data" not in item:
            items.run_from_item(item)
    keys = {_range_key(item) for item in found}
    for reference in (one for _, contexts in places_of(head) for one in references(contexts)):
        for index in range(reference.chunks):
            if (range_key := items.chunk_key(reference.id, index)) not in keys:
                raise CorruptItemError(head.job_id, range_key, "it is gone, though the head refers to it")


def _swapped(store: Store, before: Head | None, after: Head) -> Head:
    if not isinstance(store.swap(before, after), Written):
        raise StaleError(f"Job {after.job_id!r} changed in table {store.table_name!r} meanwhile. Copy it again.")
    return after


def _range_key(item: items.Item) -> str:
    return str(item[items.RANGE_KEY]["S"])
