"""Expiry of old versions. What the head or an unexpired item refers to never expires before it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from scripts.helpers.protocol import items, requests
from scripts.helpers.protocol.chunks import references
from scripts.helpers.protocol.head import Head, LogEntry
from scripts.helpers.protocol.store import Store
from scripts.helpers.protocol.values import Spilled

CHUNK_MARGIN = timedelta(days=3)
"""Chunks outlive what refers to them by this: two runs whose clocks are a day wrong may set the end of one version."""

PAGE = 25
"""Log entries that one request reads to find the older versions that share chunks."""


def expire_version(store: Store, entry: LogEntry, head: Head, at: datetime) -> None:
    """Let a version that the head has left behind expire: its log entry, its run item, chunks that only it uses.

    Chunks expire later than any version that refers to them, whatever clock set its end; older
    versions that share them and have no end yet get the same one. What `head` refers to stays. A run
    item that a later version has rewritten stays as well. The log entry is the last to get its end:
    one that has it has a run item that has it too.
    """
    if entry.version >= head.version:
        return
    kept = {reference.id for reference in references(head.watermarks)}
    gone = {reference.id: reference for reference in references(entry.watermarks) if reference.id not in kept}
    older, at = _sharing(store, entry, gone, at)
    for version in (*reversed(older), entry):
        if version.change.run_id is not None:
            store.expire(entry.job_id, version.change.run_id, at, version.version)
        store.expire(entry.job_id, items.log_key(version.version), at)
    for reference in gone.values():
        store.expire_chunks(entry.job_id, reference, at + CHUNK_MARGIN)


def _sharing(store: Store, entry: LogEntry, gone: dict[str, Spilled], at: datetime) -> tuple[list[LogEntry], datetime]:
    """Find the older versions without an end that share chunks in `gone`, and the latest end of those that have one.

    Versions that share a chunk follow each other without a gap, so the first that shares none ends the search.
    """
    older: list[LogEntry] = []
    if not gone or entry.version == 1:
        return older, at
    for item in store.query(requests.log_of(entry.job_id, below=entry.version, page=PAGE)):
        version = items.log_from_item(item)
        shared = [reference for reference in references(version.watermarks) if reference.id in gone]
        if not shared:
            break
        if items.TTL_ATTRIBUTE in item:
            end = datetime.fromtimestamp(int(item[items.TTL_ATTRIBUTE]["N"]), timezone.utc)
            at = max(at, end)
        else:
            older.append(version)
    return older, at
