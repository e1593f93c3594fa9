"""What can be wrong with a job's items, and the repairs that are safe."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from scripts.helpers import items, requests
from scripts.helpers.errors import UnknownJobError
from scripts.helpers.records import Head
from scripts.helpers.spill import references
from scripts.helpers.store import Store
from scripts.helpers.values import Spilled

CHUNK_PREFIXES = ("!p#", "!s#")


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, with its remedy.

    `kind` is one of ``open plan``, ``missing log entry``, ``orphaned chunk``, ``missing chunk`` and
    ``legacy writer``.
    """

    kind: str
    detail: str
    remedy: str
    repaired: bool = False


def examine(store: Store, job_id: str, now: datetime, repair: bool) -> list[Finding]:
    """Read all items of a job and compare them with its head. Only `repair` changes anything."""
    head = store.read_head(job_id)
    if head is None:
        raise UnknownJobError(job_id, store.table_name)
    found = {item[items.RANGE_KEY]["S"]: item for item in store.query(requests.query_job(store.table_name, job_id))}
    again = store.read_head(job_id)
    if again is None or again.identity != head.identity:
        return [Finding("open plan", "the job changed while it was examined", "Run the doctor again.")]
    return [
        *_open_plan(head, now),
        *_missing_log(store, head, found, repair),
        *_chunks(store, head, found, repair and head.claim is None),
        *_legacy_writers(head, found),
    ]


def _open_plan(head: Head, now: datetime) -> Iterable[Finding]:
    if head.plan is None or (head.claim and now < head.claim.lease_until):
        return
    owner = f"of run {head.claim.run_id!r}, whose lease ended {head.claim.lease_until}" if head.claim else "of no run"
    yield Finding(
        "open plan", f"plan {head.plan.plan_id} {owner}", "Run the job again: it replays the plan. Or discard_plan."
    )


def _missing_log(store: Store, head: Head, found: dict[str, items.Item], repair: bool) -> Iterable[Finding]:
    """Report gaps in the log. Versions below the oldest entry may have expired; they are no gap."""
    versions = {int(key.removeprefix(items.LOG_PREFIX)) for key in found if key.startswith(items.LOG_PREFIX)}
    for version in range(min(versions, default=head.version), head.version + 1):
        if version in versions or version == 0:
            continue
        is_last = version == head.version
        if repair and is_last and head.log_entry:
            store.write_log(head.log_entry)
        remedy = "The next begin writes it, or the doctor with repair." if is_last else "Restore it from a backup."
        yield Finding("missing log entry", f"version {version}", remedy, repaired=repair and is_last)


def _chunks(store: Store, head: Head, found: dict[str, items.Item], repair: bool) -> Iterable[Finding]:
    used: dict[str, Spilled] = {}
    for holder in [head.watermarks, *([head.plan.contexts, head.plan.next] if head.plan else [])]:
        used |= {key: reference for reference in references(holder) for key in _chunk_keys(reference)}
    for key, item in found.items():
        if key.startswith(items.LOG_PREFIX):
            entry = items.log_from_item(item)
            used |= {chunk: reference for reference in references(entry.watermarks) for chunk in _chunk_keys(reference)}
    for key in sorted(used.keys() - found.keys()):
        yield Finding("missing chunk", f"{key}", "Restore it from a backup, or rewind to a version without it.")
    for key in sorted(found):
        if key.startswith(CHUNK_PREFIXES) and key not in used:
            if repair:
                store.delete(head.job_id, key)
            yield Finding("orphaned chunk", f"{key}", "Run the doctor with repair, while no run is at work.", repair)


def _chunk_keys(reference: Spilled) -> list[str]:
    return [items.chunk_key(reference.id, index) for index in range(reference.chunks)]


def _legacy_writers(head: Head, found: dict[str, items.Item]) -> Iterable[Finding]:
    """Report items without a version that came after the take-over: the original class still writes."""
    legacy = [key for key, item in found.items() if key[0] not in "!~" and "version" not in item]
    first = found.get(items.log_key(1))
    if first is None and head.version > 0:
        return  # The entry that counts them has expired.
    change = items.log_from_item(first).change if first else None
    taken_over = int(change.metrics.get("legacy_items", 0)) if change and change.op == "IMPORT" else 0
    if len(legacy) > taken_over:
        yield Finding(
            "legacy writer",
            f"{len(legacy) - taken_over} items more than when the job was taken over",
            "Some script still uses the original class; its watermarks are not seen. Move it to this package.",
        )
