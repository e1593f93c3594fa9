"""Find problems in a job's items, and make safe repairs. In this module, a chunk is an item with a part of a state."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from shlex import quote
from typing import Any

from scripts.helpers.display.units import MAX_AHEAD, count_of, printable
from scripts.helpers.errors import AccessRefusedError, CorruptItemError, NewerFormatError, UnknownJobError
from scripts.helpers.protocol import items
from scripts.helpers.protocol.chunks import references
from scripts.helpers.protocol.head import Head
from scripts.helpers.protocol.lookups import Lookups
from scripts.helpers.protocol.outputs import Output
from scripts.helpers.protocol.races import Written
from scripts.helpers.protocol.requests import Between
from scripts.helpers.protocol.store import Store
from scripts.helpers.protocol.values import Spilled
from scripts.helpers.states import files_waiting

CHUNK_PREFIXES = ("!p#", "!s#")
DAMAGED, UNPUBLISHED, BEHIND = "damaged item", "unpublished", "target behind"
_REPAIR = "Runs refuse it. Rewind, set or reset the context, or discard the plan."
MOST_MISSING = 100
"""How many missing log entries are listed one by one: an altered head may claim to have a million million versions."""


@dataclass(frozen=True)
class Finding:
    """One problem, with its remedy.

    `kind` is one of ``global table``, ``no head``, ``moved``, ``future claim``, ``open plan``, ``unpublished``,
    ``target behind``, ``files set aside``, ``missing log entry``, ``orphaned chunk``, ``missing chunk``,
    ``damaged item``, ``damaged state`` and ``legacy writer``. `can_repair` is whether `repair` can fix it.
    """

    kind: str
    detail: str
    remedy: str
    repaired: bool = False
    can_repair: bool = False


def examine(lookups: Lookups, job_id: str, repair: bool) -> list[Finding]:
    """Read all items of a job and compare them with its head. Only with `repair` is anything changed.

    Each damaged item is one finding, and other problems are still reported. If an item is damaged, nothing is repaired.
    """
    store, now = lookups.store, lookups.clock()
    try:
        head = store.read_head(job_id)
    except CorruptItemError as error:
        return [_damaged(error.range_key, error.detail, job_id)]
    found = {item[items.RANGE_KEY]["S"]: item for item in store.query(Between(job_id))}
    found = {key: item for key, item in found.items() if not items.is_job_runs_key(key)}
    if head is None and not found:
        raise UnknownJobError(job_id, store.table_name)
    if head is None and any(map(items.is_ours, found.values())):
        return [_damaged(items.HEAD_KEY, "it is gone", job_id if any(map(_is_log, found)) else None)]
    if head is None:
        choose = f"watermarks adopt {quote(job_id)} --run RUN --why TEXT"
        remedy = f"The next run takes over a single item. If there are several, choose one: {choose}"
        return [Finding("no head", f"{len(found)} items without a head", remedy)]
    # The items were read page by page. If a run committed meanwhile, the items have chunks to which the head that was
    # read first does not refer. They would look orphaned, and a repair would delete them.
    again = store.read_head(job_id)
    if again is None or again.identity != head.identity:
        return [Finding("open plan", "the job changed while it was examined", "Run the doctor again.")]
    if head.elsewhere is not None:
        detail = f"the job is in {head.elsewhere}" + (", and its copy here is not whole" if head.arriving_from else "")
        return [Finding("moved", detail, "Give the script that table, or run `watermarks copy` again if it died.")]
    findings, found = _readable(found)
    live = {key: item for key, item in found.items() if not _is_over(item, now)}
    # Do not repair if an item is damaged: a repair would delete its chunks, which look unused until it is restored.
    repair = repair and not findings
    return [
        *findings,
        *(Finding("damaged state", f"{items.HEAD_KEY}: {detail}", _REPAIR) for detail in lookups.damage(head)),
        *_future_claim(head, now),
        *_open_plan(head, now),
        *_unpublished(head),
        *_behind(head),
        *_files_waiting(head),
        *_missing_log(store, head, found, repair),
        # Delete unused chunks only if no run holds the job. A run writes chunks before the head refers to them, so
        # these may be the chunks of its plan. And a deletion raises the fence, which would end the run.
        *_chunks(store, head, found, live, repair and head.claim is None),
        *_legacy_writers(head, found),
    ]


def _readable(found: Mapping[str, items.Item]) -> tuple[list[Finding], dict[str, items.Item]]:
    """Return a finding for each damaged item, and the items that can be read."""
    findings: list[Finding] = []
    readable: dict[str, items.Item] = {}
    for key, item in found.items():
        try:
            items.reading(item, _read)
            readable[key] = item
        except CorruptItemError as error:
            findings.append(_damaged(key, error.detail))
        except NewerFormatError as error:
            findings.append(_damaged(key, f"it is of format {error.found}, and the head is not"))
    return findings, readable


def _read(item: items.Item) -> None:
    range_key = item[items.RANGE_KEY]["S"]
    if items.TTL_ATTRIBUTE in item:
        int(item[items.TTL_ATTRIBUTE]["N"])
    if _is_log(range_key):
        items.log_from_item(item)
    elif range_key.startswith(CHUNK_PREFIXES):
        item["data"]["B"]
    elif range_key != items.HEAD_KEY:
        items.run_from_item(item)


def _damaged(range_key: str, detail: str, job_id: str | None = None) -> Finding:
    """Report a damaged item. `job_id` is given if the item is a job's head, which can be rebuilt from the log."""
    remedy = "Restore it from a backup"
    if job_id is not None:
        remedy = f"To make it from the log: watermarks doctor {quote(job_id)} --from-log --why TEXT. Or restore it"
    return Finding(
        DAMAGED,
        f"{range_key}: {detail}",
        f"Somebody altered it. {remedy}, and look who may write to this job's items.",
    )


def examine_table(store: Store) -> list[Finding]:
    """Return a finding if replicas in other regions ignore conditional writes; none if DescribeTable is refused."""
    try:
        replicas = store.table.eventual_replicas()
    except AccessRefusedError:
        return []
    if not replicas:
        return []
    return [
        Finding(
            "global table",
            f"table {store.table_name!r} is copied to {', '.join(replicas)} with eventual consistency, so runs in two "
            "regions can both commit",
            "Use the table from one region only, or make the global table strongly consistent (MRSC).",
        )
    ]


def _future_claim(head: Head, now: datetime) -> Iterable[Finding]:
    if head.claim and (head.claim.last_beat or head.claim.since) > now + MAX_AHEAD:
        yield Finding(
            "future claim",
            f"run {head.claim.run_id!r} began or renewed its lease in the future; it blocks other runs until "
            f"{head.claim.lease_until}",
            "Its clock or the one here is wrong. If the run is dead: watermarks release "
            f"{quote(head.job_id)} --why TEXT",
        )


def _open_plan(head: Head, now: datetime) -> Iterable[Finding]:
    if head.plan is None or (head.claim and now < head.claim.lease_until):
        return
    owner = "that no run works on"
    if head.claim:
        owner = f"of run {head.claim.run_id!r}, whose lease ended {head.claim.lease_until}"
    drop = f"watermarks discard-plan {quote(head.job_id)} --why TEXT"
    remedy = f"Run the job again: it replays the plan. Or drop it: {drop}"
    yield Finding("open plan", f"plan {head.plan.plan_id} {owner}", remedy)


def _unpublished(head: Head) -> Iterable[Finding]:
    for output in head.unpublished:
        yield Finding(
            UNPUBLISHED,
            f"version {output.version} for {output.target}",
            "It is committed and waits in staging. The next run publishes it before it writes anything there. To "
            f"publish it now: watermarks doctor {quote(head.job_id)} --publish",
        )


def way_forward(job_id: str, version: int, output: Output) -> str:
    """Return the remedy for a target that has versions only up to `version` (0: none) and lacks later ones."""
    back = f"rewind {quote(job_id)} --to-version {version}" if version else f"reset {quote(job_id)}"
    again = "the rows of later versions are read again, for all targets of the job"
    retract, where = " --retract", ". --retract deletes them first where they still are"
    if not output.is_retractable:
        where = "merged again" if output.merge is not None else "there twice where they still are"
        retract, where = "", f", and are {where}"
    forget = f"watermarks doctor {quote(job_id)} --forget {printable(quote(output.target))}"
    return f"run `watermarks {back}{retract} --why TEXT`: {again}{where}. If it was on purpose, run `{forget}`"


def behind(job_id: str, version: int, output: Output, detail: str) -> Finding:
    """Return the finding that a target lacks the versions after `version`; see `way_forward`."""
    forward = way_forward(job_id, version, output)
    return Finding(BEHIND, detail, f"It was emptied or rolled back. If that was a mistake, {forward}.")


def _behind(head: Head) -> Iterable[Finding]:
    for output in head.at_targets:
        if (last := output.lacks_after) is not None:
            lost = f"what was published after version {last}" if last else "all that was published"
            detail = f"{output.target} had lost {lost} when something was added or taken back there"
            yield behind(head.job_id, last, output, detail)


def _files_waiting(head: Head) -> Iterable[Finding]:
    if waiting := files_waiting(head):
        remedy = f"To list them, and to retry or skip each: watermarks files {quote(head.job_id)}"
        yield Finding("files set aside", f"{count_of(waiting, 'file')} could not be read", remedy)


def _is_over(item: items.Item, now: datetime) -> bool:
    """Return whether an item has expired, so that DynamoDB may delete it at any time, in any order."""
    return items.TTL_ATTRIBUTE in item and int(item[items.TTL_ATTRIBUTE]["N"]) <= now.timestamp()


def _missing_log(store: Store, head: Head, found: dict[str, items.Item], repair: bool) -> Iterable[Finding]:
    """Report missing log entries, except those before the oldest entry or before one with a TTL, which have expired."""
    log = {int(key.removeprefix(items.LOG_PREFIX)): item for key, item in found.items() if _is_log(key)}
    ending = [version for version, item in log.items() if items.TTL_ATTRIBUTE in item]
    first = max(ending, default=min(log, default=head.version))
    missing = (version for version in range(first, head.version + 1) if version not in log and version != 0)
    named = list(itertools.islice(missing, MOST_MISSING))
    last = max(named, default=0)
    if head.version - last > 0 and len(named) == MOST_MISSING:
        absent = head.version - last - sum(version > last for version in log)
        if absent:
            yield Finding("missing log entry", f"{absent:,} versions after {last:,}", "Restore them from a backup.")
    for version in named:
        is_last = version == head.version
        if repair and is_last and head.log_entry:
            store.write_log(head.log_entry)
        remedy = "The next run writes it, or the doctor with --repair." if is_last else "Restore it from a backup."
        yield Finding("missing log entry", f"version {version}", remedy, repair and is_last, is_last)


def _chunks(
    store: Store, head: Head, found: dict[str, items.Item], live: dict[str, items.Item], repair: bool
) -> Iterable[Finding]:
    held: dict[str, Spilled] = {}
    held |= _by_chunk(head.watermarks)
    if head.plan:
        held |= _by_chunk(head.plan.contexts)
        held |= _by_chunk(head.plan.next)
    needed = dict(held)
    for key, item in found.items():
        if _is_log(key):
            by_chunk = _by_chunk(items.log_from_item(item).watermarks)
            held |= by_chunk
            # An expired log entry needs no chunks: DynamoDB deletes expired items in any order, perhaps chunks first.
            if key in live:
                needed |= by_chunk
    for key in sorted(needed.keys() - found.keys()):
        yield Finding("missing chunk", f"{key}", "Restore it from a backup, or rewind to a version without it.")
    orphans = [
        key
        for key in sorted(found)
        if key.startswith(CHUNK_PREFIXES) and key not in held and items.TTL_ATTRIBUTE not in found[key]
    ]
    repaired = repair and bool(orphans) and _may_delete(store, head)
    for key in orphans:
        if repaired:
            store.delete(head.job_id, key)
        remedy = "Run the doctor with --repair, while no run is at work."
        yield Finding("orphaned chunk", f"{key}", remedy, repaired, can_repair=True)


def _may_delete(store: Store, head: Head) -> bool:
    """Raise the fence, so that no decision that has begun can make a head refer to the unused chunks.

    Return False if the job has changed. A decision, such as a rewind, writes its chunks before the head that refers to
    them, so in between they look unused. Once the fence is raised, that write of the head fails, and the decision
    starts again with other names for its chunks. None of these is deleted, because `examine` listed the chunks earlier.
    """
    return isinstance(store.swap(head, head.fenced()), Written)


def _is_log(key: str) -> bool:
    return key.startswith(items.LOG_PREFIX)


def _by_chunk(holder: Mapping[str, Any]) -> dict[str, Spilled]:
    return {key: reference for reference in references(holder) for key in _chunk_keys(reference)}


def _chunk_keys(reference: Spilled) -> list[str]:
    return [items.chunk_key(reference.id, index) for index in range(reference.chunks)]


def _legacy_writers(head: Head, found: dict[str, items.Item]) -> Iterable[Finding]:
    """Report items without a version that were written after the job's import: a script uses the original class."""
    legacy = [key for key, item in found.items() if key[0] not in "!~" and "version" not in item]
    first = found.get(items.log_key(1))
    if first is None and head.version > 0:
        return  # Version 1's log entry, which stored how many such items were imported, has expired: do not compare.
    change = items.log_from_item(first).change if first else None
    taken_over = 0
    if change and change.op == "IMPORT":  # Subtract the item that became version 1, which is not in `legacy`.
        taken_over = int(change.metrics.get("legacy_items", 1)) - 1
    if len(legacy) > taken_over:
        yield Finding(
            "legacy writer",
            f"{len(legacy) - taken_over} items more than when the job was taken over",
            "Some script still uses the original class; its watermarks are not seen. Move it to this package.",
        )
