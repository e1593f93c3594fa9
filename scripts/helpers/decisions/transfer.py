"""Move jobs from one table to another, items and all, by a file of JSON lines."""

from __future__ import annotations

import hashlib
import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import IO, Literal

from scripts.helpers.decisions.export_lines import (
    Exported,
    checked_export,
    chunks_of,
    digest,
    first_line,
    item_line,
    item_of,
    last_line,
    lines_of,
    read_item,
)
from scripts.helpers.errors import (
    CorruptItemError,
    ExportFileError,
    JobsExistError,
    NewerFormatError,
    StaleError,
    UnknownJobError,
)
from scripts.helpers.protocol import items
from scripts.helpers.protocol.head import SUCCESS, Head, LogEntry, Order
from scripts.helpers.protocol.races import Written
from scripts.helpers.protocol.requests import Between
from scripts.helpers.protocol.store import Store
from scripts.helpers.protocol.values import to_utc_string

READS = 5
"""Attempts to read a job that does not change meanwhile.

No `Patience` of `races`: nothing is written here, so nobody is disturbed, and reading the items again is the pause.
"""
WRITERS = 8
"""Jobs written at the same time. An import waits for DynamoDB and for nothing else."""
JOBS_AT_ONCE = 64
"""Jobs of the file in memory: enough that no writer waits while one of them has a long history."""
HOLD = timedelta(days=3)
"""How long runs wait for an import that died while it replaced a job. Until it is done again the history is of two
jobs, and two clocks may be a day wrong each."""
CHANGED = "the file has changed since it was checked"

Step = Literal["new", "continue", "same", "replace", "epoch"]
"""What an import does with a job: write it, write what is missing, nothing, put it in the place of another, or start
a new epoch of what is there already."""


@dataclass
class Summary:
    """What was exported: how much, and the jobs at which a run was at work.

    `left_out` counts the items of the Job Runs API (definitions, runs, triggers), which no export holds. `damaged`
    says of each job of a list that could not be read why not: it is not in the export.
    """

    jobs: int = 0
    items: int = 0
    left_out: int = 0
    at_work: list[str] = field(default_factory=list)
    damaged: dict[str, str] = field(default_factory=dict)


def export_jobs(
    store: Store,
    job_ids: Iterable[str],
    target: IO[bytes],
    now: datetime,
    on_job: Callable[[int], None] = lambda _: None,
    *,
    listed: bool = False,
) -> Summary:
    """Write every item of some jobs but those of the Job Runs API, each job as it was at one moment.

    Nothing is written to `target` before everything was read.

    Parameters
    ----------
    target
        Open for bytes. It gets one first line, a line for each item, and a last line with their hash.
    on_job
        Told of the number of jobs read.
    listed
        The names are those of a list, and not of a person: pass over those under which only the Job Runs API keeps
        anything, and leave out what cannot be read, which `Summary.damaged` names. Otherwise who may spoil one item
        could keep all others from being exported.

    Raises
    ------
    UnknownJobError, StaleError
        There is no such job with watermarks; it changed at each attempt to read it.
    CorruptItemError, NewerFormatError
        A job that was named has an item that no import would take; the error names both.
    """
    summary = Summary()
    with tempfile.TemporaryFile() as spool:
        for job_id in job_ids:
            try:
                head, found, left_out = _read_job(store, job_id)
                _check_readable(job_id, found)
            except (CorruptItemError, NewerFormatError, StaleError, UnknownJobError) as error:
                if not listed:
                    raise
                summary.damaged[job_id] = str(error)
                continue
            summary.left_out += left_out
            if not found and listed:
                continue
            if not found:
                raise UnknownJobError(job_id, store.table_name)
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


def _items_of(store: Store, job_id: str) -> list[items.Item]:
    """Read a job's items without those of its runs: these are at work, or wait, at one table only."""
    found = store.query(Between(job_id))
    return [item for item in found if not _is_of_job_runs(item)]


def _is_of_job_runs(item: items.Item) -> bool:
    return items.is_of_job_runs(_range_key(item))


def _identity(head: Head | None) -> object:
    return head.identity if head else None


def _read_job(store: Store, job_id: str) -> tuple[Head | None, list[items.Item], int]:
    """Return the head, all items to export, and how many of the Job Runs API there are beside them."""
    head = store.read_head(job_id)
    for _ in range(READS):
        everything = list(store.query(Between(job_id)))
        again = store.read_head(job_id)
        if not everything:
            raise UnknownJobError(job_id, store.table_name)
        # Each step of a run and each decision writes the head: with the same one before and after, none came between.
        if _identity(head) == _identity(again):
            found = [item for item in everything if not _is_of_job_runs(item)]
            return head, found, len(everything) - len(found)
        head = again
    raise StaleError(f"Job {job_id!r} changed {READS} times while it was read. Export it when it is at rest.")


def _check_readable(job_id: str, found: Sequence[items.Item]) -> None:
    """Refuse a job that an import would refuse, together with the whole file; CorruptItemError names it."""
    keys = {_range_key(item) for item in found}
    for item in found:
        head = read_item(item)
        if head is None:
            continue
        lost = chunks_of(head) - keys
        if lost:
            raise CorruptItemError(job_id, min(lost), "it is gone, though the head refers to it")


@dataclass(frozen=True)
class ImportPlan:
    """What an import would do, found without writing anything.

    `present` holds the heads that are in the table now, of jobs to replace that have one.
    """

    path: Path
    exported: Exported
    steps: Mapping[str, Step]
    present: Mapping[str, Head]
    new_epoch: bool = False

    def starts_epoch(self, job_id: str) -> bool:
        """Tell whether a job gets a new epoch, in a version of its own and without its open plan."""
        step = self.steps[job_id]
        return job_id in self.exported.heads and step != "same" and (self.new_epoch or step in ("replace", "epoch"))


def plan_import(
    store: Store,
    path: Path,
    *,
    replace: bool = False,
    new_epoch: bool = False,
    on_job: Callable[[int], None] = lambda _: None,
) -> ImportPlan:
    """Check a whole file, and what the table holds of its jobs. Nothing is written.

    A job that an import left half-way is continued: all that is there of it is in the file. One whose
    head is that of the file was imported as a whole, whatever of its history has expired since.

    Parameters
    ----------
    replace
        Put jobs in the place of those that are there with another content.
    new_epoch
        For a copy beside the original: both go on, and each has batch ids of its own. It is started
        for jobs too that an earlier import wrote in the epoch of the original.

    Raises
    ------
    ExportFileError, NewerFormatError
        The file is not whole, not unchanged, or of a later format.
    JobsExistError
        Jobs are there with another content, and `replace` is not given; or they are to be replaced
        by a job without a head, which nobody adopted.
    """
    with path.open("rb") as file:
        exported = checked_export(str(path), lines_of(file))
    steps: dict[str, Step] = {}
    present: dict[str, Head] = {}
    refused = []
    for number, (job_id, listed) in enumerate(exported.jobs.items(), 1):
        # Items of the Job Runs API are never imported, so none that the file has can be missing here.
        wanted = {range_key: hashed for range_key, hashed in listed.items() if not items.is_of_job_runs(range_key)}
        there = {_range_key(item): digest(item_line(item)) for item in _items_of(store, job_id)}
        step = _step(there, wanted, replace)
        if step == "replace" and job_id not in exported.heads:
            step = None  # Only the write of a head can make sure that the job there has not changed meanwhile.
        if step == "same" and new_epoch and job_id in exported.heads:
            step = "epoch"  # What is there has the epoch of the original.
        if step is None:
            refused.append(job_id)
        else:
            steps[job_id] = step
        if step == "replace":
            head = store.read_head(job_id)
            if head is not None:
                present[job_id] = head
        on_job(number)
    if refused:
        raise JobsExistError(store.table_name, refused)
    return ImportPlan(path, exported, steps, present, new_epoch)


def _step(there: Mapping[str, bytes], wanted: Mapping[str, bytes], replace: bool) -> Step | None:
    """Compare a job in the table with that in the file; None: they differ, and nothing is to be replaced."""
    # Heads are written last. Without one, and with nothing that is not in the file, an import died here.
    if there.items() <= wanted.items() and items.HEAD_KEY not in there:
        if not there:
            return "new"
        return "same" if len(there) == len(wanted) else "continue"
    # The same head means the same job: some of its history may have expired on either side.
    if there == wanted or (not replace and there.get(items.HEAD_KEY, b"") == wanted.get(items.HEAD_KEY)):
        return "same"
    return "replace" if replace else None


def import_jobs(
    store: Store,
    plan: ImportPlan,
    order: Order | None = None,
    *,
    on_job: Callable[[int], None] = lambda _: None,
) -> dict[str, Head]:
    """Write the jobs of a plan; return the heads of those that have one.

    A job is written with its head last, so nothing begins on half of it, and a second import goes on
    where a first one died. It keeps its epoch: an open plan is replayed under the same batch id, and
    sinks that have taken a batch know it. One that replaces another, or of a plan with `new_epoch`,
    starts a new epoch in a version of its own: no batch id of either is used again. No run begins a
    job that is replaced before all of it is written.

    Parameters
    ----------
    order
        Who imports and why; needed and kept in the history where a new epoch is started.

    Raises
    ------
    StaleError
        A job that is to be replaced has changed since the plan was made, or was taken over before its
        history was written; those before it are written.
    ExportFileError
        The file has changed since.
    """
    written: dict[str, Head] = {}

    def write(job: tuple[str, list[items.Item]]) -> None:
        job_id, found = job
        head = _write_job(store, plan, job_id, found, order)
        if head is not None:
            written[job_id] = head

    with ThreadPoolExecutor(WRITERS) as pool:
        done = 0
        jobs = _jobs_of(plan, lambda: done)
        while batch := list(itertools.islice(jobs, JOBS_AT_ONCE)):
            for _ in pool.map(write, batch):
                done += 1
                on_job(done)
    return written


def _jobs_of(plan: ImportPlan, done: Callable[[], int]) -> Iterator[tuple[str, list[items.Item]]]:
    """Yield each job to write with its items, as they were when the file was checked."""

    def job_of(line: tuple[int, bytes, items.Item | None]) -> str | None:
        item = line[2]
        return item[items.HASH_KEY]["S"] if item else None

    with plan.path.open("rb") as file:
        found = ((number, line, item_of(line)) for number, line in enumerate(lines_of(file), 1))
        for job_id, lines in itertools.groupby(found, job_of):
            # The first and the last line are of no job.
            if job_id is None or plan.steps.get(job_id) == "same":
                continue
            job: list[items.Item] = []
            for number, line, item in lines:
                assert item is not None
                # The file was checked as a whole, but somebody may have written to it since.
                if plan.exported.jobs.get(job_id, {}).get(_range_key(item)) != digest(line):
                    raise ExportFileError(str(plan.path), number, CHANGED, done())
                if not items.is_of_job_runs(_range_key(item)):
                    job.append(item)
            yield job_id, job


def _write_job(
    store: Store, plan: ImportPlan, job_id: str, found: Sequence[items.Item], order: Order | None
) -> Head | None:
    """Write the items of one job; return the head that it has then, None for a job that nobody adopted."""
    head = plan.exported.heads.get(job_id)
    if head is None or not plan.starts_epoch(job_id):
        _write_as_exported(store, head, found)
        return head
    assert order is not None
    after = head.restored(order)
    assert after.last is not None
    log = items.log_to_item(LogEntry(job_id, after.version, after.watermarks, after.last))
    chunks, history = _parted(found)
    late = unwritten(head, found)
    # A run item of an earlier version of the same run would be in the way.
    late_keys = [_range_key(item) for item in late]
    history = [item for item in history if _range_key(item) not in late_keys] + late
    step = plan.steps[job_id]
    if step == "replace":
        _replace(store, plan, after, order, chunks, [log, *history])
    elif step == "epoch":
        # All of it is there already, and its head is still that of the file.
        if late and head.log_entry:
            store.write_log(head.log_entry)
        _swap(store, head, after)
        _put_all(store, [log], if_new=True)
    else:
        _put_all(store, [*chunks, *history], if_new=True)
        _swap(store, None, after)
        _put_all(store, [log], if_new=True)
    return after


def _write_as_exported(store: Store, head: Head | None, found: Sequence[items.Item]) -> None:
    """Write a job into the epoch that it has in the file, where it is not there, or only a part of it."""
    chunks, history = _parted(found)
    _put_all(store, [*chunks, *history], if_new=True)
    if head is None:
        return
    (item,) = [item for item in found if _range_key(item) == items.HEAD_KEY]
    # The head comes last, and only where there is none: a run may have begun the job while its items were written.
    # Of a request that was sent twice, as its first answer was lost, the second finds what the first has written.
    if not store.put(item, if_new=True) and store.read(head.job_id, items.HEAD_KEY) != item:
        raise StaleError(
            f"Job {head.job_id!r} was begun while it was imported. Stop its runs, and import it to replace."
        )


def _replace(
    store: Store, plan: ImportPlan, after: Head, order: Order, chunks: Sequence[items.Item], history: list[items.Item]
) -> None:
    """Put a job in the place of another. What is there under the same keys may be of that job, or expire.

    Chunks come before the head that refers to them. History comes after it: until the head is written the old job
    counts, and if it has changed since the plan was made, its history is still whole. So are its chunks: those of an
    old version in the file may have an end, which the old job must not get.
    """
    job_id = after.job_id
    needed = chunks_of(after)
    _put_all(store, [item for item in chunks if _range_key(item) in needed], if_new=False)
    # Listed before the head is written: what appears after it may be of a run that took the job over.
    there = [_range_key(item) for item in _items_of(store, job_id)]
    # Held: a run that committed now would find the old job's log entry of its version and leave it, as if it were
    # its own. That entry goes below, and the version would have none.
    held = after.held(order, HOLD)
    _swap(store, plan.present.get(job_id), held)
    rest = [item for item in chunks if _range_key(item) not in needed]
    _put_all(store, [*rest, *history], if_new=False)
    kept = {*plan.exported.jobs[job_id], *map(_range_key, history)}
    for range_key in there:
        if range_key not in kept:
            store.delete(job_id, range_key)
    if not isinstance(store.swap(held, after), Written):
        raise StaleError(
            f"Job {job_id!r} was taken over while its history was written. The job continues from the state in "
            "the file, but versions may be missing in its history."
        )


def _parted(found: Sequence[items.Item]) -> tuple[list[items.Item], list[items.Item]]:
    """Part a job's items into chunks and history; the head is in neither."""
    chunks = [item for item in found if "data" in item]
    history = [item for item in found if "data" not in item and _range_key(item) != items.HEAD_KEY]
    return chunks, history


def unwritten(head: Head, found: Sequence[items.Item]) -> list[items.Item]:
    """Return run item and log entry of a head's version, if whoever made it died before they were written.

    The next begin would write them from the head, but the head that follows it in a new epoch has another version.
    """
    entry = head.log_entry
    if entry is None or any(_range_key(item) == items.log_key(entry.version) for item in found):
        return []
    of_run = [items.run_to_item(entry)] if entry.change.run_id and entry.change.op in SUCCESS else []
    return [*of_run, items.log_to_item(entry)]


def _put_all(store: Store, found: Iterable[items.Item], *, if_new: bool) -> None:
    for item in found:
        store.put(item, if_new=if_new)


def _swap(store: Store, before: Head | None, after: Head) -> None:
    if not isinstance(store.swap(before, after), Written):
        raise StaleError(f"Job {after.job_id!r} has changed since the import began; it was not replaced. Look again.")


def _range_key(item: items.Item) -> str:
    return str(item[items.RANGE_KEY]["S"])
