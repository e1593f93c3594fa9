"""Move jobs from one table to another, items and all, by a file of JSON lines."""

from __future__ import annotations

import hashlib
import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Literal

from scripts.helpers import items, requests
from scripts.helpers.errors import ExportFileError, JobsExistError, StaleError, UnknownJobError
from scripts.helpers.export_lines import Exported, check, digest, first_line, item_line, item_of, last_line
from scripts.helpers.records import Head, Order
from scripts.helpers.store import Store
from scripts.helpers.values import to_utc_string

READS = 5
"""Attempts to read a job that does not change meanwhile."""
WRITERS, JOBS_AT_ONCE = 8, 64

Step = Literal["new", "continue", "same", "replace"]
"""What an import does with a job: write it, write what is missing, nothing, or put it in the place of another."""


@dataclass
class Summary:
    """What was exported: how much, and the jobs at which a run was at work."""

    jobs: int = 0
    items: int = 0
    at_work: list[str] = field(default_factory=list)


def export_jobs(
    store: Store,
    job_ids: Iterable[str],
    target: IO[bytes],
    now: datetime,
    on_job: Callable[[int], None] = lambda _: None,
) -> Summary:
    """Write every item of some jobs, each job as it was at one moment.

    Nothing is written to `target` before everything was read.

    Parameters
    ----------
    target
        Open for bytes. It gets one first line, a line for each item, and a last line with their hash.
    on_job
        Told of the number of jobs read.

    Raises
    ------
    UnknownJobError, StaleError
        There is no such job; it changed at each attempt to read it.
    """
    summary = Summary()
    with tempfile.TemporaryFile() as spool:
        for job_id in job_ids:
            head, found = _read_job(store, job_id)
            if head is not None and head.claim is not None and now < head.claim.lease_until:
                summary.at_work.append(job_id)
            for item in found:
                spool.write(item_line(item))
            summary.jobs, summary.items = summary.jobs + 1, summary.items + len(found)
            on_job(summary.jobs)
        spool.seek(0)
        hashed = hashlib.sha256()
        first = first_line(store.table_name, to_utc_string(now.astimezone(timezone.utc)), summary.jobs, summary.items)
        for line in itertools.chain([first], spool):
            hashed.update(line)
            target.write(line)
        target.write(last_line(hashed.hexdigest()))
    return summary


def _read_job(store: Store, job_id: str) -> tuple[Head | None, list[items.Item]]:
    head = store.read_head(job_id)
    for _ in range(READS):
        found = list(store.query(requests.query_job(store.table_name, job_id)))
        again = store.read_head(job_id)
        if not found:
            raise UnknownJobError(job_id, store.table_name)
        if (head.identity if head else None) == (again.identity if again else None):
            return head, found
        head = again
    raise StaleError(f"Job {job_id!r} changed {READS} times while it was read. Export it when it is at rest.")


@dataclass(frozen=True)
class ImportPlan:
    """What an import would do, found without writing anything.

    `present` holds the heads that are in the table now, of jobs that have one.
    """

    path: Path
    exported: Exported
    steps: Mapping[str, Step]
    present: Mapping[str, Head]


def plan_import(
    store: Store, path: Path, *, replace: bool = False, on_job: Callable[[int], None] = lambda _: None
) -> ImportPlan:
    """Check a whole file, and what the table holds of its jobs. Nothing is written.

    A job that an import left half-way is continued: all that is there of it is in the file.

    Raises
    ------
    ExportFileError, NewerFormatError
        The file is not whole, not unchanged, or of a later format.
    JobsExistError
        Jobs are there with another content, and `replace` is not given; or they are to be replaced
        by a job without a head, which nobody adopted.
    """
    with path.open("rb") as file:
        exported = check(str(path), file)
    steps: dict[str, Step] = {}
    present: dict[str, Head] = {}
    refused = []
    for number, (job_id, wanted) in enumerate(exported.jobs.items(), 1):
        there = {
            item[items.RANGE_KEY]["S"]: digest(item_line(item))
            for item in store.query(requests.query_job(store.table_name, job_id))
        }
        if there.items() <= wanted.items():
            steps[job_id] = "same" if len(there) == len(wanted) else "continue" if there else "new"
        elif replace and job_id in exported.heads:
            steps[job_id] = "replace"
            head = store.read_head(job_id)
            if head is not None:
                present[job_id] = head
        else:
            refused.append(job_id)
        on_job(number)
    if refused:
        raise JobsExistError(store.table_name, refused)
    return ImportPlan(path, exported, steps, present)


def import_jobs(
    store: Store,
    plan: ImportPlan,
    order: Order,
    *,
    new_epoch: bool = False,
    on_job: Callable[[int], None] = lambda _: None,
) -> dict[str, Head]:
    """Write the jobs of a plan; return the heads of those that have one.

    A job is written with its head last, so nothing begins on half of it, and a second import goes on
    where a first one died. It keeps its epoch: an open plan is replayed under the same batch id, and
    sinks that have taken a batch know it. One that replaces another, or with `new_epoch`, starts a
    new epoch in a version of its own: no batch id of either is used again.

    Parameters
    ----------
    order
        Who imports and why; kept in the history where a new epoch is started.
    new_epoch
        For a copy beside the original: both go on, and each has batch ids of its own.

    Raises
    ------
    StaleError
        A job that is to be replaced has changed since the plan was made; those before it are written.
    ExportFileError
        The file has changed since.
    """
    written: dict[str, Head] = {}

    def write(job: tuple[str, list[items.Item]]) -> None:
        job_id, found = job
        head = _write_job(store, plan, job_id, found, order, new_epoch)
        if head is not None:
            written[job_id] = head

    with ThreadPoolExecutor(WRITERS) as pool:
        jobs, done = _jobs_of(plan), 0
        while batch := list(itertools.islice(jobs, JOBS_AT_ONCE)):
            for _ in pool.map(write, batch):
                done += 1
                on_job(done)
    return written


def _jobs_of(plan: ImportPlan) -> Iterator[tuple[str, list[items.Item]]]:
    """Yield each job to write with its items, as they were when the file was checked."""
    with plan.path.open("rb") as file:
        found = ((number, line, item_of(line)) for number, line in enumerate(file, 1))
        for job_id, lines in itertools.groupby(found, lambda one: one[2] and one[2][items.HASH_KEY]["S"]):
            if job_id is None or plan.steps.get(job_id) == "same":
                continue
            job: list[items.Item] = []
            for number, line, item in lines:
                assert item is not None
                if plan.exported.jobs.get(job_id, {}).get(item[items.RANGE_KEY]["S"]) != digest(line):
                    raise ExportFileError(str(plan.path), number, "the file has changed since it was checked")
                job.append(item)
            yield job_id, job


def _write_job(
    store: Store, plan: ImportPlan, job_id: str, found: Sequence[items.Item], order: Order, new_epoch: bool
) -> Head | None:
    head = plan.exported.heads.get(job_id)
    step = plan.steps[job_id]
    chunks = [item for item in found if "data" in item]
    others = [item for item in found if "data" not in item and item[items.RANGE_KEY]["S"] != items.HEAD_KEY]
    if head is not None and (new_epoch or step == "replace"):
        head = head.restored(order)
    _put_all(store, chunks)
    if step == "replace":
        assert head is not None
        _swap(store, plan.present.get(job_id), head)
        _put_all(store, others, if_new=False)
        _delete_others(store, job_id, plan.exported.jobs[job_id].keys() | {items.log_key(head.version)})
    else:
        _put_all(store, others)
        if head is None:
            return None
        (item,) = [item for item in found if item[items.RANGE_KEY]["S"] == items.HEAD_KEY]
        if new_epoch:
            _swap(store, None, head)
        elif not store.put(item):
            raise StaleError(
                f"Job {job_id!r} was begun while it was imported. Stop its runs, and import it to replace."
            )
    if head is not plan.exported.heads[job_id] and head.log_entry is not None:
        store.write_log(head.log_entry)
    return head


def _put_all(store: Store, found: Iterable[items.Item], *, if_new: bool = True) -> None:
    for item in found:
        store.put(item, if_new=if_new)


def _swap(store: Store, before: Head | None, after: Head) -> None:
    current = store.swap(before, after)
    if current is None or current.identity != after.identity:
        raise StaleError(f"Job {after.job_id!r} has changed since the import began; it was not replaced. Look again.")


def _delete_others(store: Store, job_id: str, kept: Iterable[str]) -> None:
    """Delete what the replaced job has left behind."""
    wanted = {*kept, items.HEAD_KEY}
    for item in list(store.query(requests.query_job(store.table_name, job_id))):
        range_key = item[items.RANGE_KEY]["S"]
        if range_key not in wanted:
            store.delete(job_id, range_key)
